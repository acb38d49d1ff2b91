// An error handler that throws an exception of C++, which the program catches. Rank 0 prints what collectives.c prints.
#include <mpi.h>
#include <stdio.h>

#include <stdexcept>

static void handler(MPI_Comm *, int *, ...) { throw std::runtime_error("an error of MPI"); }

int main(int argc, char **argv) {
    int rank, ranks, data = 0, one = 1, all = 0, caught = 0;
    MPI_Comm comm;
    MPI_Errhandler made;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(handler, &made);
    MPI_Comm_set_errhandler(comm, made);
    for (int i = 0; i < 2; i++) {
        if (rank == 0) {
            try {
                MPI_Bcast(&data, -1, MPI_INT, 0, comm);
            } catch (const std::exception &) {
                caught++;
            }
        }
        MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, comm);
        if (all != ranks) caught = -1;
    }
    if (rank == 0) printf("expected allreduce 2\nexpected broadcast 2\n");
    MPI_Finalize();
    return caught != (rank == 0 ? 2 : 0);
}
