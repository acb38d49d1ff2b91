/* As allreduce_loop.rs of tools/collective, in C: allreduce_loop COUNT prints the median in ns. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <fpga.h>

enum { COUNT = 256, BYTES = COUNT * sizeof(float), RANKS = 4 };

static void check(int status) {
    if (status != FPGA_OK) {
        fprintf(stderr, "%s\n", fpga_error_text());
        exit(status);
    }
}

static void allreduce(fpga_collective *collective, float input[RANKS][COUNT], float output[RANKS][COUNT]) {
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        check(fpga_collective_write(collective, rank, 0, input[rank], BYTES));
    }
    check(fpga_collective_launch(collective));
    check(fpga_collective_wait(collective, 10000000));
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        check(fpga_collective_read(collective, rank, 0, output[rank], BYTES));
    }
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static int compare(const void *one, const void *other) {
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 2000;
    static float input[RANKS][COUNT], output[RANKS][COUNT];
    int64_t *times = calloc(count > 0 ? count : 1, sizeof *times);
    fpga_cluster *cluster;
    fpga_collective *collective;
    fpga_request request = {0};
    if (!times || count <= 0) {
        return 2;
    }
    check(fpga_cluster_open("mock:optweb:4", &cluster));
    request.operation = "allreduce";
    request.reduction = "sum";
    request.element = "f32";
    request.bytes = BYTES;
    check(fpga_collective_plan(cluster, &request, sizeof request, &collective));
    for (int i = 0; i < RANKS * COUNT; i++) {
        input[i / COUNT][i % COUNT] = 1;
    }
    for (int i = 0; i < count; i++) {
        int64_t began = now();
        allreduce(collective, input, output);
        times[i] = now() - began;
    }
    for (int i = 0; i < RANKS * COUNT; i++) {
        if (output[i / COUNT][i % COUNT] != RANKS) {
            return 3;
        }
    }
    qsort(times, count, sizeof *times, compare);
    printf("%lld\n", (long long)times[count / 2]);
    check(fpga_cluster_close(cluster));
    free(times);
    return 0;
}
