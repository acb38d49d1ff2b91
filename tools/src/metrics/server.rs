//! A server for one document: HTTP/1.1 with limits, one connection at a time, closed after each answer.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use schemars::JsonSchema;
use serde::Serialize;

use super::text::Format;
use crate::cli::Cli;
use crate::exit::{Exit, Failure, Result};
use crate::interrupt::{Interrupt, PAUSE, is_ready};
use crate::output;

/// Largest head of a request.
const HEAD_MAX: usize = 8 << 10;
/// Time limit of a connection, for the request and the answer together.
const TIME_MAX: Duration = Duration::from_secs(2);

#[derive(JsonSchema, Serialize)]
pub(crate) struct Printed {
    schema: &'static str,
    address: String,
}

/// Answers requests for `/metrics` with `body` until a signal comes. Always returns the reason of its end.
pub(super) fn serve(
    cli: &Cli,
    address: SocketAddr,
    interrupt: &Interrupt,
    body: impl Fn(Format) -> Result<String>,
) -> Result<()> {
    let failed = |error: std::io::Error| Failure::new(Exit::Failed, format!("--listen {address}: {error}"));
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    if cli.json {
        output::json(&Printed { schema: "fpgactl.metrics/1", address: address.to_string() })?;
    } else {
        output::text(&format!("listening: http://{address}/metrics\n"))?;
    }
    loop {
        interrupt.check()?;
        // However the wait ends, accepting does not wait.
        let _ = is_ready(&listener, PollFlags::POLLIN, PAUSE);
        match listener.accept() {
            Ok((stream, _)) => {
                if let Err(error) = answer(stream, &body) {
                    log::debug!("A client of the metrics: {error}");
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // Such as a client that left, or no free descriptor, which passes.
            Err(error) => {
                log::warn!("Cannot accept a client: {error}");
                interrupt.sleep();
            }
        }
    }
}

fn answer(mut stream: TcpStream, body: impl Fn(Format) -> Result<String>) -> std::io::Result<()> {
    let deadline = Instant::now() + TIME_MAX;
    stream.set_nonblocking(false)?;
    let response = match read_head(&mut stream, deadline)? {
        Some(head) => respond(&head, body),
        None => {
            response("431 Request Header Fields Too Large", "text/plain", "", "the head has more than 8 KiB\n", true)
        }
    };
    let mut rest = response.as_bytes();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        let count = stream.write(rest)?;
        if count == 0 {
            return Err(ErrorKind::WriteZero.into());
        }
        rest = &rest[count..];
    }
    stream.shutdown(std::net::Shutdown::Write)
}

/// Returns the time that is left.
fn left(deadline: Instant) -> std::io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Reads up to the empty line; `None` if there is none in [`HEAD_MAX`] bytes.
fn read_head(stream: &mut TcpStream, deadline: Instant) -> std::io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while head.len() <= HEAD_MAX {
        if head.windows(4).any(|end| end == b"\r\n\r\n") {
            return Ok(Some(head));
        }
        stream.set_read_timeout(Some(left(deadline)?))?;
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&part[..count]);
    }
    Ok(None)
}

/// Returns the answer to a request.
fn respond(head: &[u8], body: impl Fn(Format) -> Result<String>) -> String {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = std::str::from_utf8(line).unwrap_or_default();
    let words: Vec<&str> = line.split(' ').collect();
    let plain = |status, text: &str| response(status, "text/plain; charset=utf-8", "", text, true);
    let [method, target, "HTTP/1.0" | "HTTP/1.1"] = words[..] else {
        return plain("400 Bad Request", "expected GET /metrics HTTP/1.1\n");
    };
    if path(target) != "/metrics" {
        return plain("404 Not Found", "the metrics are at /metrics\n");
    }
    match method {
        "GET" | "HEAD" => {
            let format = accepted(head);
            match body(format) {
                Ok(text) => response("200 OK", format.content_type(), "Vary: Accept\r\n", &text, method == "GET"),
                Err(failure) => plain("500 Internal Server Error", &format!("{}\n", failure.message())),
            }
        }
        _ => response(
            "405 Method Not Allowed",
            "text/plain; charset=utf-8",
            "Allow: GET, HEAD\r\n",
            "expected GET\n",
            true,
        ),
    }
}

/// Returns the path of a request's target, which may be a whole URI (RFC 9112, section 3.2.2).
fn path(target: &str) -> &str {
    let target = match target.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => {
            &rest[rest.find(['/', '?']).unwrap_or(rest.len())..]
        }
        _ => target,
    };
    target.split('?').next().unwrap_or_default()
}

/// Returns the format for a client: OpenMetrics for one that accepts it by name, as Prometheus does.
fn accepted(head: &[u8]) -> Format {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let mut types = head.lines().filter_map(|line| line.strip_prefix("accept:")).flat_map(|types| types.split(','));
    let is_open = |one: &str| {
        let mut parts = one.split(';').map(str::trim);
        // A weight of 0 means that the client does not accept it (RFC 9110, section 12.4.2).
        parts.next() == Some("application/openmetrics-text")
            && parts.all(|part| part.strip_prefix("q=").is_none_or(|weight| weight.parse::<f32>() != Ok(0.0)))
    };
    if types.any(is_open) { Format::OpenMetrics } else { Format::Prometheus }
}

fn response(status: &str, content_type: &str, headers: &str, body: &str, with_body: bool) -> String {
    let length = body.len();
    let body = if with_body { body } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{headers}Connection: close\r\n\r\n{body}"
    )
}
