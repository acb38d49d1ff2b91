/* An allreduce on all cards of a selector: sum of 1024 floats of each rank. */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include <fpga.h>

enum { COUNT = 1024 };

/* Ends the program with the text of the library if a call failed. */
static void check(int status, const char *what) {
    if (status != FPGA_OK) {
        fprintf(stderr, "%s: %s (%s)\n", what, fpga_error_text(), fpga_status_text(status));
        exit(status);
    }
}

int main(int argc, char **argv) {
    const char *selector = argc > 1 ? argv[1] : "mock:optweb:4";
    fpga_cluster *cluster = NULL;
    check(fpga_cluster_open(selector, &cluster), "open");

    uint32_t ranks = 0;
    check(fpga_cluster_cards(cluster, &ranks), "cards");
    for (uint32_t card = 0; card < ranks; card++) {
        fpga_card info;
        char name[256];
        check(fpga_cluster_card(cluster, card, &info, sizeof info), "card");
        check(fpga_cluster_card_name(cluster, card, name, sizeof name), "name");
        printf("card %" PRIu32 ": %s, %s, %" PRIu64 " bytes\n", card, name, info.kind, info.memory_bytes);
    }

    /* Planned once, launched as often as you like. */
    fpga_request request = {0};
    request.operation = "allreduce";
    request.reduction = "sum";
    request.element = "f32";
    request.bytes = COUNT * sizeof(float);
    fpga_collective *collective = NULL;
    check(fpga_collective_plan(cluster, &request, sizeof request, &collective), "plan");

    float data[COUNT];
    for (uint32_t rank = 0; rank < ranks; rank++) {
        for (int i = 0; i < COUNT; i++) {
            data[i] = (float)(rank + i);
        }
        check(fpga_collective_write(collective, rank, 0, data, sizeof data), "write");
    }

    /* The program may do other work, or wait for several descriptors at once. */
    int descriptor, is_done = 0;
    check(fpga_collective_event(collective, &descriptor), "event");
    check(fpga_collective_launch(collective), "launch");
    for (int seconds = 0; !is_done && seconds < 10; seconds++) {
        struct pollfd event = {descriptor, POLLIN, 0};
        poll(&event, 1, 1000);
        check(fpga_collective_test(collective, &is_done), "test");
    }
    if (!is_done) {
        check(fpga_collective_abort(collective), "abort");
        return FPGA_TIMEOUT;
    }

    /* The same again, by a wait with a time limit. */
    check(fpga_collective_launch(collective), "launch");
    check(fpga_collective_wait(collective, 10 * 1000 * 1000), "wait");

    fpga_times times;
    check(fpga_collective_times(collective, &times, sizeof times), "times");
    for (uint32_t rank = 0; rank < ranks; rank++) {
        check(fpga_collective_read(collective, rank, 0, data, sizeof data), "read");
        for (int i = 0; i < COUNT; i++) {
            float expected = (float)(ranks * (ranks - 1) / 2 + ranks * i);
            if (data[i] != expected) {
                fprintf(stderr, "rank %" PRIu32 ": element %d is %g, not %g\n", rank, i, data[i], expected);
                return 3;
            }
        }
    }
    printf("allreduce of %d floats on %" PRIu32 " cards: T1 %.3f us, T2 %.3f us\n", COUNT, ranks, times.t1_us,
           times.t2_us);

    check(fpga_collective_release(collective), "release");
    check(fpga_cluster_close(cluster), "close");
    return 0;
}
