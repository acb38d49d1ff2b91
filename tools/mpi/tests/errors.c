/* A program that handles errors: calls until a card fails, and then once more. Each rank prints the errors, and all end well.

   errors some: rank 1 is later than a card waits, on a communicator that rank 2 is not in, and has no error in.
   errors type: a datatype that is not committed, which the MPI library reports on all ranks. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ELEMENTS = 20000, CALLS_MAX = 1000 };

static int on_some(int rank) {
    int all, code = MPI_SUCCESS;
    MPI_Comm pair;
    MPI_Comm_split(MPI_COMM_WORLD, rank < 2, rank, &pair);
    MPI_Comm_set_errhandler(pair, MPI_ERRORS_RETURN);
    if (rank < 2) {
        MPI_Allreduce(&rank, &all, 1, MPI_INT, MPI_SUM, pair);
        if (rank == 1) sleep(3);
        code = MPI_Allreduce(&rank, &all, 1, MPI_INT, MPI_SUM, pair);
    }
    /* Rank 1 may find what rank 0 has sent. */
    return rank == 0 && code == MPI_SUCCESS;
}

static int of_type(void) {
    int data[6] = {0}, class = MPI_SUCCESS;
    MPI_Datatype spread;
    MPI_Type_vector(3, 1, 2, MPI_INT, &spread);
    MPI_Error_class(MPI_Bcast(data, 1, spread, 0, MPI_COMM_WORLD), &class);
    return class != MPI_ERR_TYPE || MPI_Barrier(MPI_COMM_WORLD) != MPI_SUCCESS;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, calls = 0, code = MPI_SUCCESS, again, length;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (argc > 1) {
        int wrong = strcmp(argv[1], "some") == 0 ? on_some(rank) : of_type();
        MPI_Finalize();
        return wrong;
    }
    double *own = calloc(ELEMENTS, sizeof *own), *all = calloc(ELEMENTS, sizeof *all);
    while (code == MPI_SUCCESS && calls++ < CALLS_MAX)
        code = MPI_Allreduce(own, all, ELEMENTS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    again = MPI_Allreduce(own, all, ELEMENTS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (code == MPI_SUCCESS || again == MPI_SUCCESS) {
        fprintf(stderr, "rank %d: no error, or a call that succeeds after one\n", rank);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    MPI_Error_string(code, text, &length);
    printf("rank %d: %s\n", rank, text);
    MPI_Finalize();
    return 0;
}
