/* A program that handles errors: calls until a card fails, and then once more. Each rank prints the errors, and all end well. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ELEMENTS = 20000, CALLS_MAX = 1000 };

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, calls = 0, code = MPI_SUCCESS, again, length;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
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
