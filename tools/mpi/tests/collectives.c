/* Random collectives, each made twice: by MPI, where libfpga_mpi.so may take it to the cards, and by the MPI library itself. Both
   must leave the same bytes. All ranks draw the same numbers from the seed.

   collectives SEED CASES [COMMUNICATORS [LATE]]

   Then so many communicators are made and freed. With LATE, rank 1 is so many seconds late for two of the calls, the first on its communicator and a later one.

   Variables: CARDS_A_HOST=n, if hosts have fewer cards than ranks. ALIVE=n: communicators that exist at a time. FRACTIONS=1: floats are
   fractions, whose sums and products may differ by what rounding explains. LARGE=1: calls are large enough to be cut into parts.

   Rank 0 prints "expected OPERATION CALLS" for each operation: as many calls must have gone to the cards, no less and no more. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <float.h>
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The MPI library's own function, which no preloaded library replaces. LIBMPI is its file name. */
static void *library_function(const char *name) {
    void *library = dlopen(LIBMPI, RTLD_NOLOAD | RTLD_LAZY);
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "no %s in " LIBMPI "\n", name);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return found;
}
#define LIBRARY(name) ((__typeof__(&name))library_function("P" #name))

enum { RANKS_MAX = 16 };

static uint64_t state;
static uint32_t draw(uint32_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 20) % below;
}

enum { BARRIER, BCAST, REDUCE, ALLREDUCE, SCATTER, GATHER, ALLGATHER, ALLTOALL, SCATTERV, GATHERV, ALLGATHERV, ALLTOALLV, REDUCE_SCATTER_BLOCK, REDUCE_SCATTER, SCAN, EXSCAN, OPERATIONS };
static const char *names[OPERATIONS] = {"barrier", "broadcast", "reduce", "allreduce", "scatter", "gather", "allgather", "alltoall",
                                        "scatterv", "gatherv", "allgatherv", "alltoallv", "reduce_scatter", "reduce_scatter", "scan", "exscan"};
static long expected[OPERATIONS];

enum kind { INTEGER, FLOATING, PAIR };
struct type { MPI_Datatype type; int bytes; enum kind kind; int value_bytes; };

static int rank, size, world_rank, fractions, large;
static long wrong;

static int setting(const char *name, int otherwise) { return getenv(name) ? atoi(getenv(name)) : otherwise; }

/* A communicator, and which calls on it are expected on the cards. */
struct group {
    MPI_Comm comm;
    enum { NOTHING, FOLDED, EVERYTHING } takes;
    /* Ranks that share a card follow each other. */
    int are_ranges;
};

/* Where this process runs: its number on its host, and the host. */
static int own_number, own_host;

static void find_host(void) {
    MPI_Comm host;
    own_host = world_rank;
    LIBRARY(MPI_Comm_split_type)(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, world_rank, MPI_INFO_NULL, &host);
    LIBRARY(MPI_Comm_rank)(host, &own_number);
    LIBRARY(MPI_Bcast)(&own_host, 1, MPI_INT, 0, host);
    LIBRARY(MPI_Comm_free)(&host);
}

static struct group group_of(MPI_Comm comm) {
    struct group group = {comm, NOTHING, 1};
    int ranks, owners = 0, leaders[RANKS_MAX], seat[2] = {own_host, own_number < setting("CARDS_A_HOST", RANKS_MAX)}, seats[RANKS_MAX][2];
    MPI_Comm_size(comm, &ranks);
    LIBRARY(MPI_Allgather)(seat, 2, MPI_INT, seats, 2, MPI_INT, comm);
    for (int i = 0; i < ranks; i++) {
        owners += seats[i][1];
        /* In rank order: the last card before it, or the first one, of the same host. */
        leaders[i] = -1;
        for (int at = 0; at < ranks; at++)
            if (seats[at][1] && seats[at][0] == seats[i][0] && (at <= i || leaders[i] < 0)) leaders[i] = at;
        if (leaders[i] < 0) return group;
        for (int at = 0; at + 1 < i; at++) group.are_ranges &= leaders[at] != leaders[i] || leaders[i - 1] == leaders[i];
    }
    if (owners > 1) group.takes = owners < ranks ? FOLDED : EVERYTHING;
    return group;
}

static void expect(const struct group *group, int what, int is_rounded) {
    int folds = what == BARRIER || what == BCAST || what == REDUCE || what == ALLREDUCE;
    const char *order = getenv("FPGA_MPI_ORDER");
    if (is_rounded && !group->are_ranges && order && strcmp(order, "rank") == 0) return;
    if (group->takes == EVERYTHING || (group->takes == FOLDED && folds)) expected[what]++;
}

/* Small values, so that sums of floats are exact in any order. Gaps of pairs are zero. */
static void fill(char *data, long elements, const struct type *type, MPI_Op op) {
    memset(data, 0, elements * type->bytes);
    for (long i = 0; i < elements; i++) {
        int value = op == MPI_PROD ? 1 + rand() % 2 : rand() % 9;
        char *at = data + i * type->bytes;
        if (type->kind == FLOATING || (type->kind == PAIR && (type->type == MPI_FLOAT_INT || type->type == MPI_DOUBLE_INT))) {
            double precise = value + (fractions && type->kind == FLOATING ? rand() / (RAND_MAX + 1.0) : 0);
            float single = precise;
            memcpy(at, type->value_bytes == 4 ? (void *)&single : (void *)&precise, type->value_bytes);
        } else {
            int64_t integer = value;
            memcpy(at, &integer, type->value_bytes);
        }
        if (type->kind == PAIR) {
            int32_t index = rand() % 100;
            memcpy(at + (type->bytes == 16 ? 8 : 4), &index, 4);
        }
    }
}

static MPI_Op operation(const struct type *type) {
    MPI_Op numbers[] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_LAND, MPI_LOR, MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR};
    switch (type->kind) {
    case PAIR: return draw(2) ? MPI_MINLOC : MPI_MAXLOC;
    case FLOATING: return numbers[draw(4)];
    default: return numbers[draw(10)];
    }
}

/* One call, by the functions of MPI or of its library. */
#define CALL(name, ...) (by_library ? LIBRARY(name)(__VA_ARGS__) : name(__VA_ARGS__))

struct call {
    int what, root, in_place, count, recvcounts[64];
    /* Of vector forms: elements from each rank to each, and of this rank the counts and displacements of both sides. */
    int elements[RANKS_MAX][RANKS_MAX];
    int sends[RANKS_MAX], send_places[RANKS_MAX], receives[RANKS_MAX], receive_places[RANKS_MAX];
    MPI_Op op;
    MPI_Datatype send_type, receive_type;
    MPI_Comm comm;
};

static void call(const struct call *c, int by_library, void *send, void *receive) {
    void *input = c->in_place ? MPI_IN_PLACE : send;
    int n = c->count;
    switch (c->what) {
    case BARRIER: CALL(MPI_Barrier, c->comm); break;
    case BCAST: CALL(MPI_Bcast, receive, n, c->receive_type, c->root, c->comm); break;
    case REDUCE: CALL(MPI_Reduce, c->in_place && rank == c->root ? MPI_IN_PLACE : send, receive, n, c->receive_type, c->op, c->root, c->comm); break;
    case ALLREDUCE: CALL(MPI_Allreduce, input, receive, n, c->receive_type, c->op, c->comm); break;
    case SCAN: CALL(MPI_Scan, input, receive, n, c->receive_type, c->op, c->comm); break;
    case EXSCAN: CALL(MPI_Exscan, input, receive, n, c->receive_type, c->op, c->comm); break;
    case REDUCE_SCATTER_BLOCK: CALL(MPI_Reduce_scatter_block, input, receive, n, c->receive_type, c->op, c->comm); break;
    case REDUCE_SCATTER: CALL(MPI_Reduce_scatter, input, receive, c->recvcounts, c->receive_type, c->op, c->comm); break;
    case SCATTER: CALL(MPI_Scatter, send, n, c->send_type, c->in_place && rank == c->root ? MPI_IN_PLACE : receive, n, c->receive_type, c->root, c->comm); break;
    case GATHER: CALL(MPI_Gather, c->in_place && rank == c->root ? MPI_IN_PLACE : send, n, c->send_type, receive, n, c->receive_type, c->root, c->comm); break;
    case ALLGATHER: CALL(MPI_Allgather, input, n, c->send_type, receive, n, c->receive_type, c->comm); break;
    case SCATTERV: CALL(MPI_Scatterv, send, c->sends, c->send_places, c->send_type, c->in_place && rank == c->root ? MPI_IN_PLACE : receive, c->receives[c->root], c->receive_type, c->root, c->comm); break;
    case GATHERV: CALL(MPI_Gatherv, c->in_place && rank == c->root ? MPI_IN_PLACE : send, c->sends[c->root], c->send_type, receive, c->receives, c->receive_places, c->receive_type, c->root, c->comm); break;
    case ALLGATHERV: CALL(MPI_Allgatherv, input, c->sends[rank], c->send_type, receive, c->receives, c->receive_places, c->receive_type, c->comm); break;
    case ALLTOALLV: CALL(MPI_Alltoallv, input, c->sends, c->send_places, c->send_type, receive, c->receives, c->receive_places, c->receive_type, c->comm); break;
    case ALLTOALL: CALL(MPI_Alltoall, input, n, c->send_type, receive, n, c->receive_type, c->comm); break;
    }
}

/* Blocks of lengths of their own, some of them empty, with gaps between them on some ranks. Returns whether there is any element. */
static int draw_blocks(struct call *c) {
    int any = 0;
    /* Ranks of communicators of other sizes draw other blocks, and go on alike after them. */
    uint64_t kept = state;
    for (int from = 0; from < size; from++) {
        for (int to = 0; to < size; to++) {
            int count = draw(4) ? draw(c->count + 1) : 0;
            /* An alltoallv in place exchanges blocks of one length. */
            int *of = &c->elements[from][to];
            *of = c->what == ALLTOALLV && c->in_place && to < from ? c->elements[to][from] : count;
            if (c->what == ALLGATHERV && to > 0) *of = c->elements[from][0];
            if ((c->what == SCATTERV && from != c->root) || (c->what == GATHERV && to != c->root)) *of = 0;
            any |= *of;
        }
    }
    state = kept;
    int given = 0, taken = 0, gap = rand() % 2;
    for (int other = 0; other < size; other++) {
        c->sends[other] = c->elements[rank][other];
        c->receives[other] = c->elements[other][rank];
        c->send_places[other] = given += gap * (rand() % 3);
        c->receive_places[other] = taken += gap * (rand() % 3);
        given += c->sends[other];
        taken += c->receives[other];
    }
    return any;
}

/* The bytes that differ, but for what rounding explains: floats are sums or products of positive numbers. */
static long difference(const char *found, const char *right, long bytes, const struct type *type, int is_rounded) {
    if (!memcmp(found, right, bytes)) return -1;
    for (long at = 0; at < bytes; at += is_rounded ? type->bytes : 1) {
        if (!is_rounded) {
            if (found[at] != right[at]) return at;
            continue;
        }
        float single[2];
        double both[2], error = type->bytes == 4 ? FLT_EPSILON : DBL_EPSILON;
        if (at + type->bytes > bytes) break;
        for (int side = 0; side < 2; side++) {
            const char *from = (side ? right : found) + at;
            memcpy(&single[side], from, 4);
            memcpy(&both[side], from, type->bytes == 4 ? 4 : 8);
            if (type->bytes == 4) both[side] = single[side];
        }
        /* Each way rounds size - 1 times. */
        if (!(fabs(both[0] - both[1]) <= 2 * (size - 1) * error * fabs(both[1]))) return at;
    }
    return -1;
}

/* Memory of MPI_Alloc_mem, for one buffer at a time. */
struct arena { char *memory; long bytes; };

static char *taken(struct arena *arena, long bytes) {
    int offset = rand() % 3 == 0 ? rand() % 64 : 0;
    return rand() % 2 && bytes + offset <= arena->bytes ? arena->memory + offset : malloc(bytes);
}

static void given_back(struct arena *arena, char *memory) {
    if (memory < arena->memory || memory >= arena->memory + arena->bytes) free(memory);
}

static void one(const struct type *types, int type_count, const struct group *group, struct arena arenas[2], int number) {
    MPI_Comm comm = group->comm;
    struct call c = {.what = draw(OPERATIONS), .comm = comm};
    /* Vector forms are not cut, and MPICH 4.0 hangs in its own large allgatherv. */
    while (large && c.what >= SCATTERV && c.what <= ALLTOALLV) c.what = draw(OPERATIONS);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    const struct type *type = &types[draw(type_count)];
    int reduces = c.what == REDUCE || c.what == ALLREDUCE || c.what >= REDUCE_SCATTER_BLOCK;
    /* MPICH 4.0 reports truncated messages when it moves pairs with gaps itself. */
    if (!reduces && type->kind == PAIR) type = &types[4];
    int shape = draw(10);
    c.count = shape == 0 ? 0 : shape < 7 ? 1 + draw(40) : shape < 9 ? 1 + draw(3000) : 1 + draw(20000);
    if (large) c.count = ((4 << 20) + draw(1 << 20)) / type->bytes;
    c.root = draw(1 << 12) % size;
    c.in_place = draw(3) == 0 && size > 1;
    /* MPICH 4.0 crashes in its own large in-place reduce to other roots than 0. */
    if (c.what == REDUCE && c.root != 0 && c.count * type->bytes > 1024) c.in_place = 0;
    c.op = operation(type);
    for (int i = 0; i < size; i++) c.recvcounts[i] = c.count;
    /* Types with gaps on some ranks, not on others: their signatures match. */
    uint32_t gaps = draw(4) == 0 && !reduces ? draw(1 << 16) : 0;
    /* MPICH 4.0 reports a truncated message for its own in-place alltoall of such types. */
    if ((c.what == ALLTOALL || c.what == ALLTOALLV) && c.in_place) gaps = 0;
    int is_vector = c.what >= SCATTERV && c.what <= ALLTOALLV;
    int any = is_vector ? draw_blocks(&c) : c.count;
    MPI_Datatype spaced;
    MPI_Type_create_resized(type->type, 0, 2 * type->bytes, &spaced);
    MPI_Type_commit(&spaced);
    c.send_type = gaps >> rank & 1 ? spaced : type->type;
    c.receive_type = gaps >> (rank + 4) & 1 ? spaced : type->type;
    long bytes = 2L * (c.count + 2) * size * type->bytes + 64;
    char *send = taken(&arenas[0], bytes), *before = malloc(bytes), *found = taken(&arenas[1], bytes), *right = malloc(bytes);
    fill(send, bytes / type->bytes, type, c.op);
    fill(before, bytes / type->bytes, type, c.op);
    memset(send + bytes / type->bytes * type->bytes, 0, bytes % type->bytes);
    memset(before + bytes / type->bytes * type->bytes, 0, bytes % type->bytes);
    memcpy(found, before, bytes);
    memcpy(right, before, bytes);
    char *given = malloc(bytes);
    memcpy(given, send, bytes);
    call(&c, 0, send, found);
    call(&c, 1, given, right);
    int is_undefined = c.what == EXSCAN && rank == 0;
    /* An in-place reduce_scatter leaves the input after the first block, or not. */
    int is_first_only = (c.what == REDUCE_SCATTER || c.what == REDUCE_SCATTER_BLOCK) && c.in_place;
    long defined = is_undefined ? 0 : is_first_only ? (long)c.count * type->bytes : bytes;
    int is_rounded = reduces && type->kind == FLOATING && (c.op == MPI_SUM || c.op == MPI_PROD);
    long at = difference(found, right, defined, type, is_rounded && fractions);
    if (at >= 0 || memcmp(send, given, bytes)) {
        fprintf(stderr, "case %d: rank %d of %d: %s, %d elements of %d B, root %d, in place %d, gaps %x: byte %ld is %d, expected %d\n",
                number, rank, size, names[c.what], c.count, type->bytes, c.root, c.in_place, gaps, at, at < 0 ? 0 : found[at], at < 0 ? 0 : right[at]);
        wrong++;
    }
    if (size > 1 && (c.what == BARRIER || any)) expect(group, c.what, is_rounded);
    MPI_Type_free(&spaced);
    given_back(&arenas[0], send), given_back(&arenas[1], found);
    free(given), free(before), free(right);
}

/* Legal: rank 1 receives before the collective what rank 0 has begun to send and waits for after it. */
static void pending_send(const struct group *world) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int bytes = 4 << 20, sum = 0, one = 1;
    char *data = calloc(bytes, 1);
    MPI_Request request;
    if (rank == 0) MPI_Isend(data, bytes, MPI_CHAR, 1, 7, MPI_COMM_WORLD, &request);
    if (rank == 1) {
        usleep(200000);
        MPI_Recv(data, bytes, MPI_CHAR, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    wrong += sum != size;
    expect(world, ALLREDUCE, 0);
    free(data);
}

/* Legal: ranks make non-blocking calls of one communicator and blocking ones of another in opposite orders. */
static void opposite_orders(const struct group *world, MPI_Comm other) {
    for (int i = 0; i < 20; i++) {
        int one = i, sum = 0, all = 0, ranks;
        MPI_Request request;
        MPI_Comm_size(MPI_COMM_WORLD, &ranks);
        if (world_rank % 2) MPI_Iallreduce(&one, &all, 1, MPI_INT, MPI_SUM, other, &request);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (world_rank % 2 == 0) MPI_Iallreduce(&one, &all, 1, MPI_INT, MPI_SUM, other, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        wrong += sum != i * ranks || all != i * ranks;
        expect(world, ALLREDUCE, 0);
    }
}

/* Legal: a rank may be late by any time. */
static void late(const struct group *world, unsigned seconds) {
    for (int i = 0; i < 2; i++) {
        int found = 0, root = 0;
        if (world_rank == 1) sleep(seconds);
        if (world_rank == root) found = 5;
        MPI_Bcast(&found, 1, MPI_INT, root, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
        wrong += found != 5;
        expect(world, BCAST, 0);
        expect(world, BARRIER, 0);
    }
}

/* Communicators come and go in any order, and their handles are used again. */
static void come_and_go(const struct group *world, int count) {
    enum { ALIVE_MAX = 1000 };
    static MPI_Comm alive[ALIVE_MAX];
    int places = setting("ALIVE", 6);
    if (places > ALIVE_MAX) places = ALIVE_MAX;
    for (int i = 0; i < places; i++) alive[i] = MPI_COMM_NULL;
    for (int i = 0; i < count; i++) {
        int place = draw(places), sum = 0, own = world_rank + i, all = 0;
        if (alive[place] != MPI_COMM_NULL) MPI_Comm_free(&alive[place]);
        if (draw(2)) MPI_Comm_dup(MPI_COMM_WORLD, &alive[place]);
        else MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &alive[place]);
        MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, alive[place]);
        LIBRARY(MPI_Allreduce)(&own, &all, 1, MPI_INT, MPI_SUM, alive[place]);
        wrong += sum != all;
        expect(world, ALLREDUCE, 0);
    }
    for (int i = 0; i < places; i++) if (alive[i] != MPI_COMM_NULL) MPI_Comm_free(&alive[i]);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    int world_size;
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    int cases = argc > 2 ? atoi(argv[2]) : 100;
    state = seed * 0x9e3779b97f4a7c15u + 1;
    srand(seed * 64 + world_rank);
    const struct type types[] = {
        {MPI_SIGNED_CHAR, 1, INTEGER, 1}, {MPI_UNSIGNED_CHAR, 1, INTEGER, 1}, {MPI_SHORT, 2, INTEGER, 2},
        {MPI_UNSIGNED_SHORT, 2, INTEGER, 2}, {MPI_INT, 4, INTEGER, 4}, {MPI_UNSIGNED, 4, INTEGER, 4},
        {MPI_LONG, 8, INTEGER, 8}, {MPI_UNSIGNED_LONG, 8, INTEGER, 8}, {MPI_LONG_LONG, 8, INTEGER, 8},
        {MPI_INT32_T, 4, INTEGER, 4}, {MPI_UINT64_T, 8, INTEGER, 8}, {MPI_FLOAT, 4, FLOATING, 4},
        {MPI_DOUBLE, 8, FLOATING, 8}, {MPI_FLOAT_INT, 8, PAIR, 4}, {MPI_DOUBLE_INT, 16, PAIR, 8},
        {MPI_2INT, 8, PAIR, 4}, {MPI_LONG_INT, 16, PAIR, 8}, {MPI_SHORT_INT, 8, PAIR, 2},
    };
    int type_count = sizeof types / sizeof *types;
    MPI_Comm comms[4] = {MPI_COMM_WORLD};
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &comms[2]);
    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &comms[3]);
    struct group groups[4];
    fractions = setting("FRACTIONS", 0);
    large = setting("LARGE", 0);
    long room = large ? 64 << 20 : 1 << 20;
    struct arena arenas[2] = {{NULL, room}, {NULL, room}};
    find_host();
    for (int i = 0; i < 4; i++) groups[i] = group_of(comms[i]);
    for (int i = 0; i < 2; i++) MPI_Alloc_mem(arenas[i].bytes, MPI_INFO_NULL, &arenas[i].memory);
    if (argc > 4) late(&groups[0], atoi(argv[4]));
    for (int i = 0; i < cases; i++) one(types, type_count, &groups[draw(4)], arenas, i);
    if (world_size > 1) pending_send(&groups[0]);
    if (world_size > 1) opposite_orders(&groups[0], comms[1]);
    come_and_go(&groups[0], argc > 3 ? atoi(argv[3]) : 20);
    for (int i = 0; i < 2; i++) MPI_Free_mem(arenas[i].memory);
    for (int i = 1; i < 4; i++) MPI_Comm_free(&comms[i]);
    long all = 0;
    LIBRARY(MPI_Allreduce)(&wrong, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (world_rank == 0) {
        expected[REDUCE_SCATTER_BLOCK] += expected[REDUCE_SCATTER];
        for (int i = 0; i < OPERATIONS; i++)
            if (i != REDUCE_SCATTER) printf("expected %s %ld\n", names[i], expected[i]);
        printf("%d cases, %ld wrong\n", cases, all);
    }
    MPI_Finalize();
    return all != 0;
}
