/* Runs kernels as coroutines of one thread, in turn. Channels are queues. */
#ifndef RUNTIME_H
#define RUNTIME_H

#include <stdbool.h>
#include <stddef.h>

#define ARGUMENTS 3

/* A kernel of the device code. */
struct kernel {
    const char *name;
    void (*run)(void *const *arguments);
    /* Bytes of each argument; 0 if there are fewer. */
    size_t bytes[ARGUMENTS];
    bool is_autorun;
};

/* A channel whose other end is the test's: it has room for everything. */
struct open_channel {
    const char *name;
    void *key;
    size_t bytes;
};

extern const struct kernel kernels[];
extern const size_t kernel_count;
extern const struct open_channel open_channels[];
extern const size_t open_channel_count;

/* Calls of kernels. */
void channel_write(const void *key, const void *word, size_t bytes);
void channel_read(const void *key, void *word, size_t bytes);
bool channel_try_read(const void *key, void *word, size_t bytes);

/* Calls of the test. */
const struct open_channel *channel_named(const char *name);
void channel_put(const struct open_channel *channel, const void *word);
bool channel_take(const struct open_channel *channel, void *word);

/* Starts a kernel with copies of its arguments. `*is_done` becomes true when it ends. */
void kernel_start(const struct kernel *kernel, void *const *arguments, bool *is_done);

/* Runs all kernels until nothing moves. */
void run_until_idle(void);

#endif
