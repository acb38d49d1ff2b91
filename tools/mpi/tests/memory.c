/* Calls with memory of MPI_Alloc_mem and with other memory, each on a communicator of its own whose name says which: so libfpga_mpi.so counts
   them apart. Rank 0 prints what collectives.c prints. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ELEMENTS = 5000, CALLS = 4 };

static long wrong;

static void calls(const char *name, int *own, int *all) {
    int rank, ranks;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_name(comm, name);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    int sum = ranks * (ranks - 1) / 2;
    for (int call = 0; call < CALLS; call++) {
        for (int i = 0; i < ELEMENTS; i++) own[i] = rank + call;
        MPI_Allreduce(own, all, ELEMENTS, MPI_INT, MPI_SUM, comm);
        for (int i = 0; i < ELEMENTS; i++) wrong += all[i] != sum + ranks * call;
        MPI_Allreduce(MPI_IN_PLACE, all, ELEMENTS, MPI_INT, MPI_MAX, comm);
        for (int i = 0; i < ELEMENTS; i++) wrong += all[i] != sum + ranks * call;
        MPI_Allgather(own, ELEMENTS, MPI_INT, all, ELEMENTS, MPI_INT, comm);
        for (int i = 0; i < ELEMENTS * ranks; i++) wrong += all[i] != i / ELEMENTS + call;
        MPI_Bcast(own, ELEMENTS, MPI_INT, ranks - 1, comm);
        for (int i = 0; i < ELEMENTS; i++) wrong += own[i] != ranks - 1 + call;
    }
    MPI_Comm_free(&comm);
}

/* Frees memory that is an attribute. */
static int free_attribute(MPI_Comm comm, int key, void *memory, void *extra) { return MPI_Free_mem(memory); }

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks, *own, *all;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    size_t bytes = ELEMENTS * sizeof(int);
    /* Memory that is freed is used again: the second time around all of it is new, too. */
    for (int i = 0; i < 20; i++) {
        MPI_Alloc_mem(bytes, MPI_INFO_NULL, &own);
        MPI_Alloc_mem(bytes * ranks, MPI_INFO_NULL, &all);
        if (i == 0 || i == 19) calls("reached", own, all);
        if (i < 19) {
            MPI_Free_mem(own);
            MPI_Free_mem(all);
        }
    }
    int *other_own = malloc(bytes), *other_all = malloc(bytes * ranks);
    calls("copied", other_own, other_all);
    MPI_Free_mem(all);
    MPI_Free_mem(own);
    /* MPI_Finalize begins with the attributes of MPI_COMM_SELF. */
    int key;
    void *kept;
    MPI_Alloc_mem(bytes, MPI_INFO_NULL, &kept);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, free_attribute, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, kept);
    long found = 0;
    PMPI_Allreduce(&wrong, &found, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("expected allreduce %d\nexpected allgather %d\nexpected broadcast %d\n", 6 * CALLS + 1, 3 * CALLS, 3 * CALLS);
    MPI_Finalize();
    return found != 0;
}
