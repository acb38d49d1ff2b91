#define _XOPEN_SOURCE 700
#include "runtime.h"

#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define STACK_BYTES (64 << 10)
/* Words in a channel between two kernels: few, so that kernels have to wait. */
#define DEPTH 2

struct queue {
    const void *key;
    struct queue *next;
    size_t limit, first, count, room, bytes;
    char *words;
};

struct coroutine {
    struct coroutine *next;
    const struct kernel *kernel;
    void *arguments[ARGUMENTS];
    bool *is_done;
    bool is_over;
    /* Reads that found nothing since the last time that others ran. */
    size_t misses;
    ucontext_t context;
};

static struct queue *queues;
static struct coroutine *coroutines;
static struct coroutine *current;
static ucontext_t scheduler;
static bool has_moved;

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);

    if (memory == NULL) {
        abort();
    }
    return memory;
}

static struct queue *queue_of(const void *key, size_t bytes)
{
    struct queue *queue;
    size_t i;

    for (queue = queues; queue != NULL; queue = queue->next) {
        if (queue->key == key) {
            return queue;
        }
    }
    queue = allocate(sizeof *queue);
    queue->key = key;
    queue->bytes = bytes;
    queue->limit = DEPTH;
    for (i = 0; i < open_channel_count; i++) {
        queue->limit = open_channels[i].key == key ? (size_t)-1 : queue->limit;
    }
    queue->next = queues;
    queues = queue;
    return queue;
}

static void put(struct queue *queue, const void *word)
{
    char *words;

    if (queue->first + queue->count == queue->room) {
        queue->room = 2 * queue->count + 4;
        words = allocate(queue->room * queue->bytes);
        if (queue->count > 0) {
            memcpy(words, queue->words + queue->first * queue->bytes, queue->count * queue->bytes);
        }
        free(queue->words);
        queue->words = words;
        queue->first = 0;
    }
    memcpy(queue->words + (queue->first + queue->count) * queue->bytes, word, queue->bytes);
    queue->count++;
    has_moved = true;
}

static bool take(struct queue *queue, void *word)
{
    if (queue->count == 0) {
        return false;
    }
    memcpy(word, queue->words + queue->first * queue->bytes, queue->bytes);
    queue->first++;
    queue->count--;
    has_moved = true;
    return true;
}

static void yield(void)
{
    swapcontext(&current->context, &scheduler);
}

void channel_write(const void *key, const void *word, size_t bytes)
{
    struct queue *queue = queue_of(key, bytes);

    while (queue->count >= queue->limit) {
        yield();
    }
    put(queue, word);
}

void channel_read(const void *key, void *word, size_t bytes)
{
    struct queue *queue = queue_of(key, bytes);

    while (!take(queue, word)) {
        yield();
    }
}

bool channel_try_read(const void *key, void *word, size_t bytes)
{
    if (take(queue_of(key, bytes), word)) {
        return true;
    }
    /* A multiplexer tries all its inputs before it writes what it holds. No kernel has more inputs than there are kernels. */
    current->misses++;
    if (current->misses >= kernel_count) {
        current->misses = 0;
        yield();
    }
    return false;
}

const struct open_channel *channel_named(const char *name)
{
    size_t i;

    for (i = 0; i < open_channel_count; i++) {
        if (strcmp(open_channels[i].name, name) == 0) {
            return &open_channels[i];
        }
    }
    return NULL;
}

void channel_put(const struct open_channel *channel, const void *word)
{
    put(queue_of(channel->key, channel->bytes), word);
}

bool channel_take(const struct open_channel *channel, void *word)
{
    return take(queue_of(channel->key, channel->bytes), word);
}

static void begin(void)
{
    current->kernel->run(current->arguments);
    current->is_over = true;
    has_moved = true;
    if (current->is_done != NULL) {
        *current->is_done = true;
    }
    yield();
}

void kernel_start(const struct kernel *kernel, void *const *arguments, bool *is_done)
{
    struct coroutine *coroutine = allocate(sizeof *coroutine);
    size_t i;

    coroutine->kernel = kernel;
    coroutine->is_done = is_done;
    for (i = 0; i < ARGUMENTS && kernel->bytes[i] > 0; i++) {
        coroutine->arguments[i] = allocate(kernel->bytes[i]);
        memcpy(coroutine->arguments[i], arguments[i], kernel->bytes[i]);
    }
    getcontext(&coroutine->context);
    coroutine->context.uc_stack.ss_sp = allocate(STACK_BYTES);
    coroutine->context.uc_stack.ss_size = STACK_BYTES;
    coroutine->context.uc_link = NULL;
    makecontext(&coroutine->context, begin, 0);
    coroutine->next = coroutines;
    coroutines = coroutine;
}

void run_until_idle(void)
{
    int idle;

    /* A kernel that moves nothing in one round has tried all its inputs once, and one more time in the next. */
    for (idle = 0; idle < 3; idle++) {
        has_moved = false;
        for (current = coroutines; current != NULL; current = current->next) {
            if (!current->is_over) {
                swapcontext(&scheduler, &current->context);
            }
        }
        if (has_moved) {
            idle = -1;
        }
    }
}
