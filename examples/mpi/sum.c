/* The sum of 1024 floats of each rank, by MPI alone: nothing here knows of cards.
 * Run with libfpga_mpi.so preloaded: docs/tutorial.md has the line. */
#include <mpi.h>
#include <stdio.h>

enum { COUNT = 1024 };

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);

    float input[COUNT], output[COUNT];
    for (int i = 0; i < COUNT; i++) {
        input[i] = (float)(rank + i);
    }
    MPI_Allreduce(input, output, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);

    int wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        wrong += output[i] != (float)(ranks * (ranks - 1) / 2 + ranks * i);
    }
    if (rank == 0) {
        printf("allreduce of %d floats on %d ranks: %d wrong\n", COUNT, ranks, wrong);
    }
    MPI_Finalize();
    return wrong != 0;
}
