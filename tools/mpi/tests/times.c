/* Time of a call by operation and size, on the slowest rank: "OPERATION BYTES MICROSECONDS" on rank 0. BYTES is the larger of input and
   output of a rank. With a second argument, both are in memory of MPI_Alloc_mem. Each has a communicator of its own, whose name says which it is: so libfpga_mpi.so counts it apart. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BCAST, ALLREDUCE, ALLGATHER, ALLTOALL, OPERATIONS };
static const char *names[OPERATIONS] = {"broadcast", "allreduce", "allgather", "alltoall"};

static void call(int what, char *send, char *receive, int bytes, int ranks, MPI_Comm comm) {
    int block = bytes / ranks;
    switch (what) {
    case BCAST: MPI_Bcast(send, bytes, MPI_BYTE, 0, comm); break;
    case ALLREDUCE: MPI_Allreduce(send, receive, bytes / 4, MPI_FLOAT, MPI_SUM, comm); break;
    case ALLGATHER: MPI_Allgather(send, block, MPI_BYTE, receive, block, MPI_BYTE, comm); break;
    case ALLTOALL: MPI_Alltoall(send, block, MPI_BYTE, receive, block, MPI_BYTE, comm); break;
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int largest = argc > 1 ? atoi(argv[1]) : 64 << 20;
    char *send, *receive;
    if (argc > 2) {
        MPI_Alloc_mem(largest, MPI_INFO_NULL, &send);
        MPI_Alloc_mem(largest, MPI_INFO_NULL, &receive);
    } else {
        send = malloc(largest);
        receive = malloc(largest);
    }
    memset(send, 0, largest);
    memset(receive, 0, largest);
    for (int what = 0; what < OPERATIONS; what++) {
        for (long bytes = 8; bytes <= largest; bytes *= bytes == 16 << 20 ? 4 : 8) {
            char name[64];
            MPI_Comm comm;
            MPI_Comm_dup(MPI_COMM_WORLD, &comm);
            snprintf(name, sizeof name, "%s %ld", names[what], bytes);
            MPI_Comm_set_name(comm, name);
            int calls = bytes <= 4096 ? 200 : bytes <= 256 << 10 ? 50 : bytes <= 2 << 20 ? 10 : 3;
            /* The first call registers the communicator and makes the plan. */
            for (int i = 0; i < 2; i++) call(what, send, receive, bytes, ranks, comm);
            PMPI_Barrier(comm);
            double begin = MPI_Wtime(), own, slowest;
            for (int i = 0; i < calls; i++) call(what, send, receive, bytes, ranks, comm);
            own = (MPI_Wtime() - begin) / calls * 1e6;
            PMPI_Reduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, comm);
            if (rank == 0) printf("%s %ld %.3f\n", names[what], bytes, slowest);
            MPI_Comm_free(&comm);
        }
    }
    MPI_Finalize();
    return 0;
}
