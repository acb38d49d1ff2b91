/* The info key fpga_offload: calls on communicators that have it. Rank 0 prints what collectives.c prints. With an argument, rank 1 says
   something else than rank 0: "differs", "invalid", or "changes" later. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static long expected, wrong;

/* An allreduce, and whether it is expected on the cards. */
static void sum(MPI_Comm comm, int on_cards) {
    int rank, size, all = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    MPI_Allreduce(&rank, &all, 1, MPI_INT, MPI_SUM, comm);
    wrong += all != size * (size - 1) / 2;
    expected += on_cards;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Info never, always, other_keys;
    MPI_Info_create(&never);
    MPI_Info_set(never, "fpga_offload", "never");
    MPI_Info_create(&always);
    MPI_Info_set(always, "fpga_offload", "always");
    MPI_Info_create(&other_keys);
    MPI_Info_set(other_keys, "mpi_assert_no_any_tag", "true");
    MPI_Comm comm, other;
    if (argc > 1 && strcmp(argv[1], "changes") == 0) {
        /* Rank 1 changes the key of a communicator in use, and rank 0 another key. */
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        sum(comm, 1);
        MPI_Comm_set_info(comm, rank == 1 ? never : other_keys);
        sum(comm, 0);
        MPI_Comm_free(&comm);
    } else if (argc > 1) {
        if (strcmp(argv[1], "invalid") == 0) MPI_Info_set(always, "fpga_offload", rank == 1 ? "sometimes" : "always");
        MPI_Comm_dup_with_info(MPI_COMM_WORLD, rank == 1 && strcmp(argv[1], "invalid") ? never : always, &comm);
        sum(comm, 0);
        sum(comm, 0);
        sum(MPI_COMM_WORLD, 1);
        MPI_Comm_free(&comm);
    } else {
        sum(MPI_COMM_WORLD, 1);
        MPI_Comm_dup_with_info(MPI_COMM_WORLD, never, &comm);
        sum(comm, 0);
        /* A duplicate does not inherit the key. */
        MPI_Comm_dup(comm, &other);
        sum(other, 1);
        MPI_Comm_free(&other);
        /* A key that is changed holds from the next call on, also on a communicator that is in use. */
        MPI_Comm_set_info(comm, always);
        sum(comm, 1);
        MPI_Comm_set_info(comm, other_keys);
        sum(comm, 1);
        MPI_Comm_set_info(comm, never);
        sum(comm, 0);
        MPI_Comm_free(&comm);
#if HAS_IDUP
        MPI_Request request;
        MPI_Comm_idup_with_info(MPI_COMM_WORLD, never, &comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        sum(comm, 0);
        MPI_Comm_free(&comm);
#endif
    }
    MPI_Info_free(&never);
    MPI_Info_free(&always);
    MPI_Info_free(&other_keys);
    if (rank == 0) printf("expected allreduce %ld\n", expected);
    MPI_Finalize();
    return wrong != 0;
}
