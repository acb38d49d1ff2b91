/* Calls with memory of MPI_Alloc_mem and with other memory, each on a communicator of its own whose name says which: so libfpga_mpi.so counts
   them apart. Rank 0 prints what collectives.c prints.

   memory many: more small blocks than the process has descriptors.
   memory aligned: blocks with an alignment that the program asks for, where the MPI library knows the key. */
#include <mpi.h>
#include <stdio.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

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

/* A file can be opened, and the cards have memory, while the program has all its blocks. */
static void many(int rank) {
    enum { BLOCKS = 2000, BYTES = 4 << 20 };
    static char *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        MPI_Alloc_mem(16, MPI_INFO_NULL, &blocks[i]);
        memset(blocks[i], i, 16);
    }
    int file = open("/dev/null", O_RDONLY);
    wrong += file < 0;
    close(file);
    char *data = malloc(BYTES);
    memset(data, rank + 1, BYTES);
    MPI_Bcast(data, BYTES, MPI_BYTE, 0, MPI_COMM_WORLD);
    for (int i = 0; i < BYTES; i++) wrong += data[i] != 1;
    for (int i = 0; i < BLOCKS; i++) {
        for (int j = 0; j < 16; j++) wrong += blocks[i][j] != (char)i;
        MPI_Free_mem(blocks[i]);
    }
    free(data);
    if (rank == 0) printf("expected broadcast 1\n");
}

static void aligned(int rank) {
    enum { BLOCKS = 16, ALIGNMENT = 65536 };
    void *blocks[BLOCKS];
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_minimum_memory_alignment", "65536");
    for (int i = 0; i < BLOCKS; i++) {
        MPI_Alloc_mem(5000, info, &blocks[i]);
#ifndef OPEN_MPI
        wrong += (uintptr_t)blocks[i] % ALIGNMENT != 0;
#endif
    }
    for (int i = 0; i < BLOCKS; i++) MPI_Free_mem(blocks[i]);
    MPI_Info_free(&info);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("expected barrier 1\n");
}

int main(int argc, char **argv) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (argc > 1 && limit.rlim_cur > 1024) {
        limit.rlim_cur = 1024;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    MPI_Init(&argc, &argv);
    int rank, ranks, *own, *all;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc > 1) {
        if (strcmp(argv[1], "many") == 0) many(rank);
        else aligned(rank);
        MPI_Finalize();
        return wrong != 0;
    }
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
