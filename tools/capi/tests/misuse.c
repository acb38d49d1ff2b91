/* What programs do wrong: each call returns an error, and the program lives. Used by the tests. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <fpga.h>

static void expect(int found, int expected, const char *text, int line) {
    if (found != expected || (expected != FPGA_OK && strstr(fpga_error_text(), text) == NULL)) {
        fprintf(stderr, "line %d: status %d, expected %d with \"%s\": %s\n", line, found, expected, text,
                fpga_error_text());
        exit(1);
    }
}

#define EXPECT(call, status, text) expect(call, status, text, __LINE__)
#define OK(call) expect(call, FPGA_OK, "", __LINE__)

static fpga_cluster *cluster;
static fpga_collective *collective;

/* Waits for a collective that never ends. A thread that was cancelled meanwhile ends here. */
static void *wait_in_vain(void *is_waiting) {
    int status;
    __atomic_store_n((int *)is_waiting, 1, __ATOMIC_SEQ_CST);
    do {
        status = fpga_collective_wait(collective, 1000 * 1000);
    } while (status == FPGA_BUSY);
    pthread_testcancel();
    return (void *)(intptr_t)status;
}

static void nulls(void) {
    uint8_t data[64] = {0};
    uint32_t count;
    fpga_card card;
    fpga_request request = {0};
    int is_done;
    EXPECT(fpga_cluster_open(NULL, &cluster), FPGA_USAGE, "selector is NULL");
    EXPECT(fpga_cluster_open("mock:optweb:4", NULL), FPGA_USAGE, "cluster is NULL");
    EXPECT(fpga_cluster_open("\xff", &cluster), FPGA_USAGE, "not UTF-8");
    EXPECT(fpga_cluster_cards(NULL, &count), FPGA_USAGE, "cluster is NULL");
    EXPECT(fpga_cluster_close(NULL), FPGA_USAGE, "cluster is NULL");
    EXPECT(fpga_collective_launch(NULL), FPGA_USAGE, "collective is NULL");
    EXPECT(fpga_collective_test(NULL, &is_done), FPGA_USAGE, "collective is NULL");
    EXPECT(fpga_collective_launch((fpga_collective *)data), FPGA_USAGE, "no handle");
    EXPECT(fpga_cluster_close((fpga_cluster *)data), FPGA_USAGE, "no handle");

    OK(fpga_cluster_open("mock:optweb:4", &cluster));
    EXPECT(fpga_cluster_cards(cluster, NULL), FPGA_USAGE, "count is NULL");
    EXPECT(fpga_cluster_card(cluster, 4, &card, sizeof card), FPGA_USAGE, "no card 4");
    EXPECT(fpga_cluster_card(cluster, 0, &card, 0), FPGA_USAGE, "sizeof");
    EXPECT(fpga_cluster_card_name(cluster, 0, (char *)data, 3), FPGA_USAGE, "too few");
    EXPECT(fpga_memory_write(cluster, 0, 0, NULL, 64), FPGA_USAGE, "data is NULL");
    EXPECT(fpga_memory_write(cluster, 0, 0, data, SIZE_MAX), FPGA_USAGE, "longer than any memory");
    EXPECT(fpga_memory_write(cluster, 0, UINT64_MAX, data, 64), FPGA_REFUSED, "card memory range");
    EXPECT(fpga_memory_read(cluster, 9, 0, data, 64), FPGA_USAGE, "no card 9");
    OK(fpga_memory_write(cluster, 0, 0, NULL, 0));
    OK(fpga_memory_write(cluster, 0, 4097, "unaligned", 9));
    OK(fpga_memory_read(cluster, 0, 4097, data, 9));
    if (memcmp(data, "unaligned", 9) != 0) {
        exit(1);
    }

    EXPECT(fpga_collective_plan(cluster, NULL, sizeof request, &collective), FPGA_USAGE, "request is NULL");
    EXPECT(fpga_collective_plan(cluster, &request, 4096, &collective), FPGA_USAGE, "sizeof");
    EXPECT(fpga_collective_plan(cluster, &request, sizeof request, &collective), FPGA_USAGE, "operation is NULL");
    request.operation = "allreduc";
    /* In the middle of a pointer, and of what came with the first version. */
    EXPECT(fpga_collective_plan(cluster, &request, 12, &collective), FPGA_USAGE, "request has 12 bytes: expected at least");
    EXPECT(fpga_collective_plan(cluster, &request, sizeof request - 1, &collective), FPGA_USAGE, "sizeof");
    EXPECT(fpga_collective_plan(cluster, &request, 0, &collective), FPGA_USAGE, "sizeof");
    EXPECT(fpga_collective_plan(cluster, &request, sizeof request, &collective), FPGA_USAGE, "available: ");
    request.operation = "allgatherv";
    EXPECT(fpga_collective_plan(cluster, &request, sizeof request, &collective), FPGA_USAGE, "several lengths");
    request.operation = "allreduce";
    EXPECT(fpga_collective_plan(cluster, &request, sizeof request, &collective), FPGA_USAGE, "needs a reduction");
    request.operation = "broadcast";
    request.root = 4;
    EXPECT(fpga_collective_plan(cluster, &request, sizeof request, &collective), FPGA_REFUSED, "root 4 is not a rank");
    request.root = 0;
    request.bytes = UINT64_MAX;
    if (fpga_collective_plan(cluster, &request, sizeof request, &collective) == FPGA_OK) {
        exit(1);
    }
}

/* A program with a later header finds zeros in fields that the library does not know, and the bytes of a name. */
static void structures(void) {
    struct {
        fpga_card card;
        uint8_t later[32];
    } large;
    static const uint8_t zeros[sizeof large.later];
    char *name;
    memset(&large, 0xa5, sizeof large);
    OK(fpga_cluster_card(cluster, 0, (fpga_card *)&large, sizeof large));
    name = malloc(large.card.name_bytes);
    if (memcmp(large.later, zeros, sizeof zeros) != 0 || name == NULL) {
        exit(1);
    }
    EXPECT(fpga_cluster_card_name(cluster, 0, name, large.card.name_bytes - 1), FPGA_USAGE, "too few");
    OK(fpga_cluster_card_name(cluster, 0, name, large.card.name_bytes));
    if (strlen(name) + 1 != large.card.name_bytes) {
        exit(1);
    }
    free(name);
    EXPECT(fpga_cluster_card(cluster, 0, (fpga_card *)&large, SIZE_MAX), FPGA_USAGE, "sizeof");
}

static void order(void) {
    uint8_t data[4096] = {0};
    int is_done;
    uint64_t input, output;
    fpga_request request = {0};
    fpga_times times;
    request.operation = "allgather";
    request.bytes = sizeof data;
    OK(fpga_collective_plan(cluster, &request, sizeof request, &collective));
    EXPECT(fpga_collective_test(collective, &is_done), FPGA_REFUSED, "launch the collective first");
    EXPECT(fpga_collective_wait(collective, 1000), FPGA_REFUSED, "launch the collective first");
    EXPECT(fpga_collective_times(collective, &times, sizeof times), FPGA_REFUSED, "no launch is done");
    EXPECT(fpga_collective_bytes(collective, 4, &input, &output), FPGA_USAGE, "no rank 4");
    OK(fpga_collective_bytes(collective, 3, &input, &output));
    if (input != sizeof data || output != 4 * sizeof data) {
        exit(1);
    }
    EXPECT(fpga_collective_write(collective, 0, 1, data, sizeof data), FPGA_REFUSED, "input");
    EXPECT(fpga_collective_write(collective, 0, sizeof data + 1, data, 0), FPGA_REFUSED, "input");
    EXPECT(fpga_collective_write(collective, 0, UINT64_MAX, data, sizeof data), FPGA_REFUSED, "input");
    EXPECT(fpga_collective_read(collective, 0, 4 * sizeof data + 1, data, 0), FPGA_REFUSED, "output");
    OK(fpga_collective_write(collective, 0, sizeof data, data, 0));
    OK(fpga_collective_read(collective, 0, 4 * sizeof data, data, 0));
    OK(fpga_collective_abort(collective));
    OK(fpga_collective_launch(collective));
    EXPECT(fpga_collective_launch(collective), FPGA_REFUSED, "in flight");
    EXPECT(fpga_collective_read(collective, 0, 0, data, sizeof data), FPGA_REFUSED, "in flight");
    OK(fpga_collective_wait(collective, UINT64_MAX));
    /* It stays done. */
    OK(fpga_collective_wait(collective, 0));
    is_done = 0;
    OK(fpga_collective_test(collective, &is_done));
    if (!is_done) {
        fprintf(stderr, "done, but the test says no\n");
        exit(1);
    }
    OK(fpga_collective_write(collective, 0, 0, data, sizeof data));
    OK(fpga_collective_launch(collective));
    OK(fpga_collective_abort(collective));
    EXPECT(fpga_collective_test(collective, &is_done), FPGA_REFUSED, "launch the collective first");
    EXPECT(fpga_collective_wait(collective, 1000), FPGA_REFUSED, "launch the collective first");
    OK(fpga_collective_release(collective));
    EXPECT(fpga_collective_release(collective), FPGA_USAGE, "was closed");
    EXPECT(fpga_collective_launch(collective), FPGA_USAGE, "was closed");
    OK(fpga_collective_plan(cluster, &request, sizeof request, &collective));
    OK(fpga_cluster_close(cluster));
    EXPECT(fpga_collective_launch(collective), FPGA_USAGE, "was closed");
    EXPECT(fpga_cluster_close(cluster), FPGA_USAGE, "was closed");
    EXPECT(fpga_memory_read(cluster, 0, 0, data, sizeof data), FPGA_USAGE, "was closed");
}

/* Whether the descriptor is readable: at once, or within a minute. */
static int is_readable(int descriptor, int is_at_once) {
    struct pollfd event = {descriptor, POLLIN, 0};
    return poll(&event, 1, is_at_once ? 0 : 60 * 1000) == 1;
}

/* The descriptor is readable for a launch in flight, and no longer once it is over. */
static void events(void) {
    int descriptor, is_done = 0, status;
    fpga_request request = {0};
    request.operation = "allgather";
    request.bytes = 4096;
    OK(fpga_cluster_open("mock:optweb:4", &cluster));
    OK(fpga_collective_plan(cluster, &request, sizeof request, &collective));
    OK(fpga_collective_event(collective, &descriptor));
    for (int i = 0; i < 3; i++) {
        OK(fpga_collective_launch(collective));
        for (is_done = 0; !is_done;) {
            if (!is_readable(descriptor, 0)) {
                fprintf(stderr, "launch %d raised no event\n", i);
                exit(1);
            }
            OK(fpga_collective_test(collective, &is_done));
        }
        OK(fpga_collective_test(collective, &is_done));
        if (!is_done || is_readable(descriptor, 1)) {
            fprintf(stderr, "readable after launch %d\n", i);
            exit(1);
        }
        OK(fpga_collective_launch(collective));
        OK(fpga_collective_abort(collective));
        status = fpga_collective_test(collective, &is_done);
        if (status != FPGA_REFUSED || is_readable(descriptor, 1)) {
            fprintf(stderr, "status %d, or readable after abort %d\n", status, i);
            exit(1);
        }
    }
    OK(fpga_cluster_close(cluster));
}

/* Calls the library until it is told to stop. */
static void *call_on(void *is_over) {
    uint64_t input, output;
    while (!__atomic_load_n((int *)is_over, __ATOMIC_SEQ_CST)) {
        OK(fpga_collective_bytes(collective, 0, &input, &output));
    }
    return NULL;
}

/* Whatever another thread does at the fork, it holds nothing that the child needs. */
static void forked_beside_calls(void) {
    int is_over = 0, status;
    pthread_t thread;
    if (pthread_create(&thread, NULL, call_on, &is_over) != 0) {
        exit(1);
    }
    for (int i = 0; i < 100; i++) {
        fpga_cluster *own;
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            OK(fpga_cluster_open("mock:optweb:2", &own));
            OK(fpga_cluster_close(own));
            _exit(0);
        }
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            fprintf(stderr, "child %d has status %x\n", i, (unsigned)status);
            exit(1);
        }
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_SEQ_CST);
    pthread_join(thread, NULL);
}

/* A forked child may open clusters, and use none of its parent. */
static void forked(void) {
    uint8_t data[64] = {0};
    uint32_t count;
    int status;
    fpga_request request = {0};
    fpga_cluster *own;
    pid_t child;
    request.operation = "allgather";
    request.bytes = sizeof data;
    OK(fpga_cluster_open("mock:optweb:4", &cluster));
    OK(fpga_collective_plan(cluster, &request, sizeof request, &collective));
    OK(fpga_collective_launch(collective));
    child = fork();
    if (child == 0) {
        for (int i = 0; i < 2; i++) {
            EXPECT(fpga_cluster_cards(cluster, &count), FPGA_USAGE, "not inherited");
            EXPECT(fpga_memory_write(cluster, 0, 0, data, sizeof data), FPGA_USAGE, "not inherited");
            EXPECT(fpga_collective_wait(collective, 1000), FPGA_USAGE, "not inherited");
            EXPECT(fpga_collective_abort(collective), FPGA_USAGE, "not inherited");
            EXPECT(fpga_cluster_close(cluster), FPGA_USAGE, "not inherited");
            OK(fpga_cluster_open("mock:optweb:2", &own));
            OK(fpga_cluster_cards(own, &count));
            OK(fpga_cluster_close(own));
            EXPECT(fpga_cluster_cards(own, &count), FPGA_USAGE, "was closed");
        }
        exit(count == 2 ? 0 : 1);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        fprintf(stderr, "the child failed\n");
        exit(1);
    }
    OK(fpga_collective_wait(collective, 60 * 1000 * 1000));
    forked_beside_calls();
    OK(fpga_cluster_close(cluster));
}

/* Starts a thread that waits in vain, and returns once it does. */
static pthread_t start_waiting(void) {
    int is_waiting = 0, busy = 0;
    uint32_t count;
    pthread_t thread;
    if (pthread_create(&thread, NULL, wait_in_vain, &is_waiting) != 0) {
        exit(1);
    }
    /* Until the thread has the cluster, this one may have it. */
    for (time_t until = time(NULL) + 60; !busy && time(NULL) < until;) {
        busy = __atomic_load_n(&is_waiting, __ATOMIC_SEQ_CST) && fpga_cluster_cards(cluster, &count) == FPGA_BUSY;
    }
    if (!busy) {
        fprintf(stderr, "the thread does not use the cluster\n");
        exit(1);
    }
    return thread;
}

/* A card that stopped: a wait ends at its limit, a second thread is refused meanwhile, and a thread is cancelled after the wait. */
static void threads(void) {
    void *waited;
    pthread_t thread;
    fpga_request request = {0};
    request.operation = "allgather";
    request.bytes = 1 << 20;
    OK(fpga_cluster_open("mock:optweb:4+stop=2@1.0.65536", &cluster));
    OK(fpga_collective_plan(cluster, &request, sizeof request, &collective));
    OK(fpga_collective_launch(collective));
    thread = start_waiting();
    EXPECT(fpga_cluster_close(cluster), FPGA_BUSY, "another thread");
    pthread_join(thread, &waited);
    if ((intptr_t)waited != FPGA_TIMEOUT) {
        fprintf(stderr, "waited %d\n", (int)(intptr_t)waited);
        exit(1);
    }
    thread = start_waiting();
    pthread_cancel(thread);
    pthread_join(thread, &waited);
    if (waited != PTHREAD_CANCELED) {
        fprintf(stderr, "not cancelled\n");
        exit(1);
    }
    OK(fpga_cluster_close(cluster));
}

int main(void) {
    nulls();
    structures();
    order();
    events();
    forked();
    threads();
    puts("every misuse was an error");
    return 0;
}
