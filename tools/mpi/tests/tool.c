/* A tool that counts a call by the profiling interface, as those of measurement do. Preloaded before libfpga_mpi.so, or behind it, where it
   sees what passes through.
   With TOOL_FLIP=1 it changes one bit of one result on rank 0: tests that compare must notice. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static long calls;
static const char *begun = "without MPI_Init";

/* libfpga_mpi.so has it under any MPI library. */
int PMPI_Allreduce_c(const void *send, void *receive, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm);

static int after(int code, void *receive, MPI_Count count) {
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (++calls >= 10 && rank == 0 && count > 0 && getenv("TOOL_FLIP")) {
        *(char *)receive ^= 1;
        unsetenv("TOOL_FLIP");
    }
    return code;
}

int MPI_Allreduce(const void *send, void *receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    return after(PMPI_Allreduce(send, receive, count, type, op, comm), receive, count);
}

int MPI_Allreduce_c(const void *send, void *receive, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    return after(PMPI_Allreduce_c(send, receive, count, type, op, comm), receive, count);
}

int MPI_Init(int *argc, char ***argv) {
    begun = "from MPI_Init on";
    return PMPI_Init(argc, argv);
}

int MPI_Finalize(void) {
    int rank;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) printf("tool: %ld calls %s\n", calls, begun);
    return PMPI_Finalize();
}
