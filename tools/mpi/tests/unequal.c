/* An erroneous program: ranks give different counts to one call. It must end with an error.

   unequal new: to a call whose like none has made. unequal known: to calls that all have made before. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, own[64] = {0}, all[64];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc > 1 && strcmp(argv[1], "known") == 0)
        for (int count = 16; count <= 32; count += 16) MPI_Allreduce(own, all, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(own, all, rank ? 32 : 16, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d: no error\n", rank);
    MPI_Finalize();
    return 0;
}
