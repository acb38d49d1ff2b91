/* A program that handles errors: calls until a card fails, and then once more. Each rank prints the errors, and all end well.

   Errors cost none of the program's own classes of errors, of which MPI has few.

   errors full: the tables of the cards are full, so a plan that needs more entries does not run on them.
   errors some: rank 1 is later than a card waits, on a communicator that rank 2 is not in, and has no error in.
   errors late_new, late_vector: rank 1 is later than a card waits; the calls after that have new sizes, or are vector forms.
   errors type: a datatype that is not committed, which the MPI library reports on all ranks.
   errors fatal: the same, and no error is handled.
   errors logical: prints what logical operations on integers of Fortran give, a class of errors or a value.
   errors place: MPI_IN_PLACE where MPI does not take it, on all ranks, which the MPI library reports.
   errors handler: an error of rank 0, whose handler makes the collective that the other ranks make in no handler.
   errors jump: the same, and the handler leaves by longjmp. */
#include <mpi.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ELEMENTS = 20000, CALLS_MAX = 1000, RANKS_MAX = 64 };

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

/* On cards some of which have no link between them: a collective of all goes over two steps, each with communicators of its own. */
static int with_full_tables(int rank, int ranks) {
    enum { TABLES = 30 };
    MPI_Comm halves[TABLES];
    int own[2] = {rank, -rank}, all[2 * RANKS_MAX], wrong = 0;
    for (int i = 0; i < TABLES; i++) {
        MPI_Comm_split(MPI_COMM_WORLD, rank / (ranks / 2), rank, &halves[i]);
        wrong += MPI_Barrier(halves[i]) != MPI_SUCCESS;
    }
    wrong += MPI_Allgather(own, 2, MPI_INT, all, 2, MPI_INT, MPI_COMM_WORLD) != MPI_SUCCESS;
    for (int i = 0; i < ranks; i++) wrong += all[2 * i] != i || all[2 * i + 1] != -i;
    for (int i = 0; i < TABLES; i++) wrong += MPI_Barrier(halves[i]) != MPI_SUCCESS || MPI_Comm_free(&halves[i]) != MPI_SUCCESS;
    return wrong;
}

/* Counts calls without an error on ranks that some others have left. */
static int after_late(int rank, int ranks, int is_vector) {
    int own[RANKS_MAX] = {0}, all[RANKS_MAX], counts[RANKS_MAX], places[RANKS_MAX], wrong = 0;
    MPI_Comm comm = MPI_COMM_WORLD;
    for (int i = 0; i < ranks; i++) counts[i] = 1, places[i] = i;
    wrong += MPI_Barrier(comm) != MPI_SUCCESS;
    if (rank == 1) sleep(6);
    MPI_Barrier(comm);
    for (int i = 1; i <= 3; i++) {
        int code = is_vector ? MPI_Alltoallv(own, counts, places, MPI_INT, all, counts, places, MPI_INT, comm)
                             : MPI_Bcast(own, i, MPI_INT, 0, comm);
        wrong += code == MPI_SUCCESS;
    }
    printf("rank %d: %d wrong\n", rank, wrong);
    return wrong;
}

static int of_type(int is_fatal) {
    if (is_fatal) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    int data[6] = {0}, class = MPI_SUCCESS;
    MPI_Datatype spread;
    MPI_Type_vector(3, 1, 2, MPI_INT, &spread);
    MPI_Error_class(MPI_Bcast(data, 1, spread, 0, MPI_COMM_WORLD), &class);
    return class != MPI_ERR_TYPE || MPI_Barrier(MPI_COMM_WORLD) != MPI_SUCCESS;
}

/* Errors of the communicator are handled, those of MPI_COMM_WORLD are not. */
static int of_logical(int rank) {
    MPI_Datatype types[] = {MPI_INTEGER, MPI_INTEGER1, MPI_INTEGER2, MPI_INTEGER4, MPI_INTEGER8, MPI_INT};
    MPI_Op operations[] = {MPI_LAND, MPI_LOR, MPI_LXOR};
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    for (int i = 0; i < 6; i++) {
        for (int j = 0; j < 3; j++) {
            long own = rank == 1, all = 0;
            int class;
            MPI_Error_class(MPI_Allreduce(&own, &all, 1, types[i], operations[j], comm), &class);
            if (rank == 0) printf("type %d, operation %d: class %d, value %ld\n", i, j, class, all);
        }
    }
    MPI_Comm_free(&comm);
    return 0;
}

/* Counts calls without an error. */
static int of_place(int rank) {
    int data[RANKS_MAX] = {0}, counts[RANKS_MAX], places[RANKS_MAX], wrong = 0;
    MPI_Comm comm = MPI_COMM_WORLD;
    for (int i = 0; i < RANKS_MAX; i++) counts[i] = 1, places[i] = i;
    wrong += MPI_Allreduce(data, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS;
    wrong += MPI_Scan(data, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS;
    wrong += MPI_Reduce_scatter_block(data, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS;
    wrong += MPI_Allgather(data, 1, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, comm) == MPI_SUCCESS;
    wrong += MPI_Alltoall(data, 1, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, comm) == MPI_SUCCESS;
    wrong += MPI_Allgatherv(data, 1, MPI_INT, MPI_IN_PLACE, counts, places, MPI_INT, comm) == MPI_SUCCESS;
    wrong += MPI_Alltoallv(data, counts, places, MPI_INT, MPI_IN_PLACE, counts, places, MPI_INT, comm) == MPI_SUCCESS;
#ifdef OPEN_MPI
    /* MPICH takes it as an address where only one rank has a buffer. */
    int is_root = rank == 0;
    void *in = MPI_IN_PLACE;
    wrong += MPI_Bcast(in, 1, MPI_INT, 0, comm) == MPI_SUCCESS;
    wrong += MPI_Reduce(is_root ? data : in, is_root ? in : data, 1, MPI_INT, MPI_SUM, 0, comm) == MPI_SUCCESS;
    wrong += MPI_Gather(is_root ? data : in, 1, MPI_INT, is_root ? in : data, 1, MPI_INT, 0, comm) == MPI_SUCCESS;
    wrong += MPI_Scatter(is_root ? in : data, 1, MPI_INT, is_root ? data : in, 1, MPI_INT, 0, comm) == MPI_SUCCESS;
    wrong += MPI_Gatherv(is_root ? data : in, 1, MPI_INT, is_root ? in : data, counts, places, MPI_INT, 0, comm) == MPI_SUCCESS;
    wrong += MPI_Scatterv(is_root ? in : data, counts, places, MPI_INT, is_root ? data : in, 1, MPI_INT, 0, comm) == MPI_SUCCESS;
#endif
    if (wrong) fprintf(stderr, "rank %d: %d calls without an error\n", rank, wrong);
    return wrong + (MPI_Barrier(comm) != MPI_SUCCESS);
}

static MPI_Comm other;
static int calls, is_wrong, does_jump;
static jmp_buf before;

/* A collective of all ranks. */
static void sum(void) {
    int one = 1, all = 0, ranks;
    MPI_Comm_size(other, &ranks);
    MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, other);
    is_wrong |= all != ranks;
}

static void handler(MPI_Comm *comm, int *code, ...) {
    calls++;
    if (does_jump) longjmp(before, 1);
    sum();
}

static int with_handler(int rank) {
    int data[6] = {0};
    MPI_Comm comm;
    MPI_Errhandler made;
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(handler, &made);
    MPI_Comm_set_errhandler(comm, made);
    MPI_Errhandler_free(&made);
    MPI_Barrier(comm);
    if (rank != 0) {
        sum();
    } else if (!setjmp(before)) {
        MPI_Bcast(data, -1, MPI_INT, 0, comm);
        is_wrong |= does_jump;
    } else {
        sum();
    }
    /* All ranks have this error, and each calls its handler once. */
    int jumps = does_jump, before_type = calls;
    does_jump = 0;
    MPI_Datatype spread;
    MPI_Type_vector(3, 1, 2, MPI_INT, &spread);
    MPI_Bcast(data, 1, spread, 0, comm);
    is_wrong |= before_type != (rank == 0) || calls != before_type + 1;
    MPI_Barrier(comm);
    if (rank == 0) printf("expected allreduce 2\nexpected barrier 2\nexpected broadcast 2\n");
    if (is_wrong) fprintf(stderr, "rank %d: %d calls of the handler%s\n", rank, calls, jumps ? ", which jumps" : "");
    return is_wrong;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks, count = 0, code = MPI_SUCCESS, again, length, class;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (argc > 1) {
        does_jump = strcmp(argv[1], "jump") == 0;
        int wrong = strcmp(argv[1], "some") == 0   ? on_some(rank)
                    : strcmp(argv[1], "full") == 0  ? with_full_tables(rank, ranks)
                    : strcmp(argv[1], "type") == 0  ? of_type(0)
                    : strcmp(argv[1], "fatal") == 0 ? of_type(1)
                    : strcmp(argv[1], "late_new") == 0    ? after_late(rank, ranks, 0)
                    : strcmp(argv[1], "late_vector") == 0 ? after_late(rank, ranks, 1)
                    : strcmp(argv[1], "place") == 0 ? of_place(rank)
                    : strcmp(argv[1], "logical") == 0 ? of_logical(rank)
                                                      : with_handler(rank);
        MPI_Finalize();
        return wrong != 0;
    }
    double *own = calloc(ELEMENTS, sizeof *own), *all = calloc(ELEMENTS, sizeof *all);
    while (code == MPI_SUCCESS && count++ < CALLS_MAX)
        code = MPI_Allreduce(own, all, ELEMENTS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    again = MPI_Allreduce(own, all, ELEMENTS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (count = 0; count < CALLS_MAX && again != MPI_SUCCESS; count++)
        again = MPI_Allreduce(own, all, ELEMENTS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (MPI_Add_error_class(&class) != MPI_SUCCESS) {
        fprintf(stderr, "rank %d: no class is left for the program\n", rank);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    if (code == MPI_SUCCESS || again == MPI_SUCCESS) {
        fprintf(stderr, "rank %d: no error, or a call that succeeds after one\n", rank);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    MPI_Error_string(code, text, &length);
    printf("rank %d: %s\n", rank, text);
    MPI_Finalize();
    return 0;
}
