/*
 * Runs generated code as commands on stdin say, one a line:
 *
 *   word CHANNEL HEX                           puts a word into a channel
 *   send CHANNEL DESTINATION WORDS MESSAGES    calls the host code of an end; prints `result CODE`
 *   routes HEX                                 loads a routing table; prints `result CODE`
 *   finish                                     waits for the kernels; prints `result CODE`
 *   take CHANNEL                               runs until nothing moves; prints each word in the channel as `word HEX`
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"
#include "senders.h"

#define TEXT_MAX 1024

static size_t bytes_of(const char *hex, unsigned char *bytes)
{
    size_t count;
    unsigned byte;

    for (count = 0; sscanf(hex + 2 * count, "%2x", &byte) == 1; count++) {
        bytes[count] = (unsigned char)byte;
    }
    return count;
}

static void take_all(const struct open_channel *channel)
{
    unsigned char word[64];
    size_t i;

    run_until_idle();
    while (channel_take(channel, word)) {
        printf("word ");
        for (i = 0; i < channel->bytes; i++) {
            printf("%02x", word[i]);
        }
        printf("\n");
    }
}

static cl_int send(struct circus *circus, const char *name)
{
    unsigned destination;
    unsigned long words, messages;
    size_t i;

    if (scanf("%u %lu %lu", &destination, &words, &messages) != 3) {
        abort();
    }
    for (i = 0; senders[i].name != NULL; i++) {
        if (strcmp(senders[i].name, name) == 0) {
            return senders[i].send(circus, destination, words, messages);
        }
    }
    abort();
}

int main(void)
{
    static char command[TEXT_MAX], text[TEXT_MAX], hex[TEXT_MAX];
    static unsigned char bytes[TEXT_MAX];
    void *const none[ARGUMENTS] = {NULL};
    const struct open_channel *channel;
    struct circus circus;
    cl_int error;
    size_t i;

    for (i = 0; i < kernel_count; i++) {
        if (kernels[i].is_autorun) {
            kernel_start(&kernels[i], none, NULL);
        }
    }
    error = circus_open(&circus, NULL, NULL, NULL);
    if (error != CL_SUCCESS) {
        fprintf(stderr, "circus_open: %d\n", error);
        return 1;
    }
    while (scanf("%1000s", command) == 1) {
        if (strcmp(command, "finish") == 0) {
            printf("result %d\n", circus_finish(&circus));
            continue;
        }
        if (scanf("%1000s", text) != 1) {
            abort();
        }
        channel = channel_named(text);
        if (strcmp(command, "routes") == 0) {
            const size_t count = bytes_of(text, bytes);
            printf("result %d\n", circus_load_routes(&circus, bytes, (cl_uint)count));
        } else if (strcmp(command, "send") == 0) {
            printf("result %d\n", send(&circus, text));
        } else if (strcmp(command, "take") == 0 && channel != NULL) {
            take_all(channel);
        } else if (strcmp(command, "word") == 0 && channel != NULL && scanf("%1000s", hex) == 1) {
            if (bytes_of(hex, bytes) != channel->bytes) {
                abort();
            }
            channel_put(channel, bytes);
        } else {
            fprintf(stderr, "unknown command: %s %s\n", command, text);
            return 1;
        }
    }
    circus_close(&circus);
    return 0;
}
