/* Legal programs of which this library sees only a part. Rank 0 prints what collectives.c prints.

   legal host: communicators of the ranks of one host, and of every other rank.
   legal spawn: ranks that are started by MPI_Comm_spawn; calls with them go to the MPI library.
   legal order: sums whose order is visible, and calls in which it is not.
   legal message: a message in parts, while both ranks make nothing but collective calls.
   legal twice: one address for both buffers, whose elements are different ones; on rank 0 only.
   legal gaps: pairs in structures, whose gaps belong to the program.
   legal bottom: buffers whose datatypes hold their addresses.
   legal blocks: blocks of vector forms whose displacements are their addresses; on rank 0 only.
   legal file NAME: a file that both ranks write and read, by collective calls.
   legal delete: delete functions of attributes which call collectives of the communicator that is freed.
   legal late: a communicator that is freed before its last request ends.
   legal large: a broadcast of nearly as many bytes as the cards take, without much more memory than it needs.
   legal unread: functions with large counts, with numbers that MPI does not read on a rank.
   legal multiple: MPI_THREAD_MULTIPLE.
   legal session: MPI_Session_init instead of MPI_Init, where the MPI library has sessions. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long expected, wrong;

/* Calls on `comm`: an allreduce, and a gather of a datatype that differs by rank. */
static void calls(MPI_Comm comm, int on_cards) {
    int rank, size, all = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    MPI_Allreduce(&rank, &all, 1, MPI_INT, MPI_SUM, comm);
    wrong += all != size * (size - 1) / 2;
    int row[3] = {rank, 2 * rank, 3 * rank}, rows[3 * 64];
    MPI_Datatype three;
    MPI_Type_contiguous(3, MPI_INT, &three);
    MPI_Type_commit(&three);
    MPI_Allgather(row, rank % 2 ? 1 : 3, rank % 2 ? three : MPI_INT, rows, rank % 2 ? 3 : 1, rank % 2 ? MPI_INT : three, comm);
    for (int i = 0; i < 3 * size; i++) wrong += rows[i] != i / 3 * (i % 3 + 1);
    MPI_Type_free(&three);
    if (size > 1) expected += on_cards;
}

static void by_host(void) {
    MPI_Comm host;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    calls(host, 1);
    calls(MPI_COMM_WORLD, 1);
    MPI_Comm_free(&host);
}

/* A sum of floats, and calls whose order nobody can see. */
static void in_order(void) {
    int rank, size, all = 0, root = 7;
    double own, sum = 0, largest = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    own = rank;
    MPI_Allreduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&rank, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Reduce(&own, &largest, 1, MPI_DOUBLE, MPI_MAX, size - 1, MPI_COMM_WORLD);
    if (rank != 0) root = 0;
    MPI_Bcast(&root, 1, MPI_INT, 0, MPI_COMM_WORLD);
    wrong += sum != size * (size - 1) / 2 || all != size * (size - 1) / 2 || root != 7 || (rank == size - 1 && largest != rank);
    if (rank == 0) printf("expected allreduce 1\nexpected reduce 1\nexpected broadcast 1\n");
}

/* A message that the sender must work on, and that arrives while it only calls collectives. */
static void with_message(void) {
    enum { BYTES = 8 << 20, MOST = 100000 };
    int rank, size, arrived = 0, all = 0;
    char *data = malloc(BYTES);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    memset(data, rank, BYTES);
    if (rank == 0) MPI_Isend(data, BYTES, MPI_BYTE, size - 1, 0, MPI_COMM_WORLD, &request);
    if (rank == size - 1) MPI_Irecv(data, BYTES, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &request);
    long count = 0;
    for (; !all && count < MOST; count++) {
        if (rank == size - 1) MPI_Test(&request, &arrived, MPI_STATUS_IGNORE);
        MPI_Allreduce(&arrived, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    }
    wrong += !all;
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (rank == size - 1) for (long i = 0; i < BYTES; i++) wrong += data[i] != 0;
    if (rank == 0) printf("expected allreduce %ld\n", count);
    free(data);
}

/* Sends `own`, and receives into `all` behind it: rank 0 names the structure twice. */
static void twice(void) {
    struct {
        int own[2], all[2 * 64];
    } data;
    int rank, size, counts[64], places[64], first = 2, length = 2;
    MPI_Datatype behind, spaced;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Type_indexed(1, &length, &first, MPI_INT, &behind);
    MPI_Type_create_resized(behind, 0, 2 * sizeof(int), &spaced);
    MPI_Type_commit(&spaced);
    for (int i = 0; i < size; i++) counts[i] = 2, places[i] = 2 + 2 * i;
    data.own[0] = rank + 1;
    data.own[1] = 2 * (rank + 1);
    for (int call = 0; call < 3; call++) {
        memset(data.all, 0, sizeof data.all);
        if (call == 0) MPI_Gather(&data, 2, MPI_INT, &data, 1, spaced, 0, MPI_COMM_WORLD);
        else if (call == 1) MPI_Gatherv(&data, 2, MPI_INT, &data, counts, places, MPI_INT, 0, MPI_COMM_WORLD);
        else if (rank == 0) MPI_Allgather(&data, 2, MPI_INT, &data, 1, spaced, MPI_COMM_WORLD);
        else MPI_Allgather(data.own, 2, MPI_INT, data.all, 2, MPI_INT, MPI_COMM_WORLD);
        if (rank == 0 || call == 2) for (int i = 0; i < 2 * size; i++) wrong += data.all[i] != (i / 2 + 1) * (i % 2 + 1);
    }
    MPI_Type_free(&behind);
    MPI_Type_free(&spaced);
    if (rank == 0) printf("expected gather 1\nexpected gatherv 1\nexpected allgather 1\n");
}

/* A structure at MPI_BOTTOM, as input and as output. */
static void at_bottom(void) {
    int rank, size, numbers[3], rows[3 * 64], lengths[2] = {3, 2};
    double fractions[2];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 3; i++) numbers[i] = (rank + 1) * (i + 1);
    for (int i = 0; i < 2; i++) fractions[i] = rank + 0.25 * i;
    MPI_Aint places[2];
    MPI_Get_address(numbers, &places[0]);
    MPI_Get_address(fractions, &places[1]);
    MPI_Datatype types[2] = {MPI_INT, MPI_DOUBLE}, both, row;
    MPI_Type_create_hindexed(1, lengths, places, MPI_INT, &row);
    MPI_Type_commit(&row);
    MPI_Allgather(MPI_BOTTOM, 1, row, rows, 3, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < 3 * size; i++) wrong += rows[i] != (i / 3 + 1) * (i % 3 + 1);
    MPI_Type_create_struct(2, lengths, places, types, &both);
    MPI_Type_commit(&both);
    MPI_Bcast(MPI_BOTTOM, 1, both, size - 1, MPI_COMM_WORLD);
    for (int i = 0; i < 3; i++) wrong += numbers[i] != size * (i + 1);
    for (int i = 0; i < 2; i++) wrong += fractions[i] != size - 1 + 0.25 * i;
    MPI_Type_free(&row);
    MPI_Type_free(&both);
    if (rank == 0) printf("expected allgather 1\nexpected broadcast 1\n");
}

/* Displacements are addresses in functions with large counts, or in a program at a fixed place, below 2 GiB. */
#if HAS_SESSIONS && defined __PIE__
typedef MPI_Count number;
typedef MPI_Aint place;
#define VECTOR(name) name##_c
#else
typedef int number;
typedef int place;
#define VECTOR(name) name
#endif

static void at_addresses(void) {
    static char own[64], all[64];
    number counts[64];
    place from[64], to[64];
    int rank, size;
    MPI_Aint places[2] = {0, 0};
    MPI_Comm comm = MPI_COMM_WORLD;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    void *send = rank ? own : MPI_BOTTOM, *receive = rank ? all : MPI_BOTTOM;
    if (rank == 0) MPI_Get_address(own, &places[0]), MPI_Get_address(all, &places[1]);
    for (int i = 0; i < size; i++) counts[i] = 1, from[i] = places[0] + i, to[i] = places[1] + i, own[i] = 10 * rank + i;
    VECTOR(MPI_Gatherv)(own, 1, MPI_BYTE, receive, counts, to, MPI_BYTE, 0, comm);
    for (int i = 0; i < size; i++) wrong += rank == 0 && all[i] != 10 * i;
    VECTOR(MPI_Scatterv)(send, counts, from, MPI_BYTE, all, 1, MPI_BYTE, 0, comm);
    wrong += all[0] != rank;
    VECTOR(MPI_Allgatherv)(own, 1, MPI_BYTE, receive, counts, to, MPI_BYTE, comm);
    for (int i = 0; i < size; i++) wrong += all[i] != 10 * i;
    VECTOR(MPI_Alltoallv)(send, counts, from, MPI_BYTE, receive, counts, to, MPI_BYTE, comm);
    for (int i = 0; i < size; i++) wrong += all[i] != 10 * i + rank;
    if (rank == 0) printf("expected gatherv 1\nexpected scatterv 1\nexpected allgatherv 1\nexpected alltoallv 1\n");
}

/* Each rank writes a row of the file, and reads that of the next rank. */
static void with_file(char *name) {
    enum { COUNT = 100 };
    int rank, size, row[COUNT], next[COUNT];
    MPI_File file;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < COUNT; i++) row[i] = rank * COUNT + i, next[i] = -1;
    int other = (rank + 1) % size, mode = MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE;
    if (MPI_File_open(MPI_COMM_WORLD, name, mode, MPI_INFO_NULL, &file) != MPI_SUCCESS) {
        wrong++;
        return;
    }
    wrong += MPI_File_write_at_all(file, rank * sizeof row, row, COUNT, MPI_INT, MPI_STATUS_IGNORE) != MPI_SUCCESS;
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
    wrong += MPI_File_read_at_all(file, other * sizeof row, next, COUNT, MPI_INT, MPI_STATUS_IGNORE) != MPI_SUCCESS;
    for (int i = 0; i < COUNT; i++) wrong += next[i] != other * COUNT + i;
    MPI_File_close(&file);
}

/* A sum of all ranks, on a communicator that is being freed. */
static int delete(MPI_Comm comm, int key, void *value, void *state) {
    int one = 1, all = 0, size;
    (void)key, (void)value, (void)state;
    MPI_Comm_size(comm, &size);
    MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, comm);
    wrong += all != size;
    return MPI_SUCCESS;
}

/* More communicators than the tables of the cards hold. */
static void with_delete(void) {
    enum { COUNT = 80 };
    int rank, key;
    MPI_Comm comm;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete, &key, NULL);
    for (int i = 0; i < COUNT; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        /* Attributes are deleted in the order that they were set, or in the opposite one. */
        if (i % 2) MPI_Comm_set_attr(comm, key, NULL);
        MPI_Barrier(comm);
        if (i % 2 == 0) MPI_Comm_set_attr(comm, key, NULL);
        if (i % 4 < 2) MPI_Comm_free(&comm);
        else MPI_Comm_disconnect(&comm);
    }
    MPI_Comm_free_keyval(&key);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("expected barrier %d\n", COUNT + 1);
}

/* Rank 0 frees a communicator while it sends, and the last rank receives while rank 0 is in a barrier, if it gets there in time. */
static void late(void) {
    enum { COUNT = 3 };
    int rank, size, data = 0;
    MPI_Comm comm;
    MPI_Request request;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < COUNT; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Barrier(comm);
        if (rank == 0) {
            data = 7;
            MPI_Issend(&data, 1, MPI_INT, size - 1, 0, comm, &request);
            MPI_Request_free(&request);
        } else if (rank == size - 1) {
            usleep(300000);
            MPI_Recv(&data, 1, MPI_INT, 0, 0, comm, MPI_STATUS_IGNORE);
            wrong += data != 7;
        }
        MPI_Comm_free(&comm);
        /* Rank 0 is still in the barrier when the request ends. */
        if (rank == size - 1) usleep(300000);
        MPI_Barrier(MPI_COMM_WORLD);
        data = 0;
    }
    if (rank == 0) printf("expected barrier %d\n", 2 * COUNT);
}

/* The most address space that this process has had, MiB. */
static long peak(void) {
    char line[256];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "VmPeak: %ld", &kib);
    if (file) fclose(file);
    return kib / 1024;
}

/* Buffers to try both ways have the bytes of the call, and so has what the MPI library or the card needs. */
static void large(void) {
    enum { MIB = 60, BYTES = MIB << 20 };
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    char *data = malloc(BYTES);
    memset(data, rank + 1, BYTES);
    long before = peak();
    MPI_Bcast(data, BYTES, MPI_BYTE, 0, MPI_COMM_WORLD);
    long grown = peak() - before;
    for (long i = 0; i < BYTES; i++) wrong += data[i] != 1;
    if (grown > 5 * MIB) fprintf(stderr, "rank %d of %d: %ld MiB more for %d MiB\n", rank, size, grown, MIB), wrong++;
    if (rank == 0) printf("expected broadcast 1\n");
    free(data);
}

/* Open MPI 4.1 has no such functions, and this library has them. */
static void unread(void) {
    typedef int function(const void *, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, int, MPI_Comm);
    function *gather = (function *)dlsym(RTLD_DEFAULT, "MPI_Gather_c"), *scatter = (function *)dlsym(RTLD_DEFAULT, "MPI_Scatter_c");
    const MPI_Count none = (MPI_Count)1 << 40;
    int rank, size, all[64] = {0}, own = 0;
    MPI_Comm half, both;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int last = size - 1, is_root = rank == last;
    wrong += gather(&rank, 1, MPI_INT, all, is_root ? 1 : none, MPI_INT, last, MPI_COMM_WORLD) != MPI_SUCCESS;
    if (is_root) memset(all, -1, last * sizeof *all);
    wrong += gather(is_root ? MPI_IN_PLACE : &rank, is_root ? none : 1, MPI_INT, all, is_root ? 1 : none, MPI_INT, last, MPI_COMM_WORLD) != MPI_SUCCESS;
    for (int i = 0; i < size; i++) wrong += is_root && all[i] != i;
    wrong += scatter(all, is_root ? 1 : none, MPI_INT, &own, 1, MPI_INT, last, MPI_COMM_WORLD) != MPI_SUCCESS;
    wrong += own != rank;
    /* The root is alone in its group. */
    MPI_Comm_split(MPI_COMM_WORLD, is_root, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, is_root ? 0 : last, 0, &both);
    wrong += gather(&rank, is_root ? none : 1, MPI_INT, all, is_root ? 1 : none, MPI_INT, is_root ? MPI_ROOT : 0, both) != MPI_SUCCESS;
    for (int i = 0; i < last; i++) wrong += is_root && all[i] != i;
    wrong += scatter(all, is_root ? 1 : none, MPI_INT, &own, is_root ? none : 1, MPI_INT, is_root ? MPI_ROOT : 0, both) != MPI_SUCCESS;
    wrong += own != rank;
    MPI_Comm_free(&both);
    MPI_Comm_free(&half);
}

/* Parents and children, as one communicator. */
static void with_children(char *program, MPI_Comm parent) {
    MPI_Comm children = parent, all;
    static char mode[] = "child";
    char *arguments[] = {mode, NULL};
    if (parent == MPI_COMM_NULL)
        MPI_Comm_spawn(program, arguments, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
    MPI_Intercomm_merge(children, parent != MPI_COMM_NULL, &all);
    calls(all, 0);
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&children);
}

#if HAS_SESSIONS
static int session(void) {
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "legal", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    calls(comm, 0);
    MPI_Comm_free(&comm);
    MPI_Group_free(&group);
    MPI_Session_finalize(&session);
    return wrong != 0;
}
#endif

/* Reductions write the values of pairs, not what lies between them. */
static void with_gaps(void) {
    struct { double value; int index, own; } doubles[2], all[2];
    struct { short value, own; int index; } shorts[2];
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 2; i++) {
        doubles[i].value = rank + i, doubles[i].index = rank, doubles[i].own = 100 + rank;
        shorts[i].value = rank - i, shorts[i].index = rank, shorts[i].own = 200 + rank;
        all[i].own = 300 + rank;
    }
    MPI_Allreduce(doubles, all, 2, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, doubles, 2, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, shorts, 2, MPI_SHORT_INT, MPI_MINLOC, MPI_COMM_WORLD);
    for (int i = 0; i < 2; i++) {
        wrong += all[i].value != size - 1 + i || all[i].index != size - 1 || all[i].own != 300 + rank;
        wrong += doubles[i].value != size - 1 + i || doubles[i].index != size - 1 || doubles[i].own != 100 + rank;
        wrong += shorts[i].value != -i || shorts[i].index != 0 || shorts[i].own != 200 + rank;
    }
    if (rank == 0) printf("expected allreduce 3\n");
}

int main(int argc, char **argv) {
    int rank;
    MPI_Comm parent;
    if (argc < 2) return 2;
#if HAS_SESSIONS
    if (strcmp(argv[1], "session") == 0) return session();
#endif
    /* Children are a job of their own, whose statistics would take the place of their parents'. */
    int is_child = strcmp(argv[1], "child") == 0;
    if (is_child) unsetenv("FPGA_MPI_STATS");
    int level = strcmp(argv[1], "multiple") == 0 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, level, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_get_parent(&parent);
    if (is_child || strcmp(argv[1], "spawn") == 0) with_children(argv[0], parent);
    else if (strcmp(argv[1], "order") == 0) in_order();
    else if (strcmp(argv[1], "message") == 0) with_message();
    else if (strcmp(argv[1], "twice") == 0) twice();
    else if (strcmp(argv[1], "gaps") == 0) with_gaps();
    else if (strcmp(argv[1], "bottom") == 0) at_bottom();
    else if (strcmp(argv[1], "blocks") == 0) at_addresses();
    else if (strcmp(argv[1], "file") == 0 && argc > 2) with_file(argv[2]);
    else if (strcmp(argv[1], "delete") == 0) with_delete();
    else if (strcmp(argv[1], "late") == 0) late();
    else if (strcmp(argv[1], "large") == 0) large();
    else if (strcmp(argv[1], "unread") == 0) unread();
    else by_host();
    if (rank == 0 && expected) printf("expected allreduce %ld\nexpected allgather %ld\n", expected, expected);
    MPI_Finalize();
    return wrong != 0;
}
