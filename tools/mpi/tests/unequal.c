/* An erroneous program: ranks make different calls. It must end, and most of them with an error.

   unequal new: different counts of a call whose like none has made. unequal known: of calls that all have made before.
   unequal calls: different collectives. unequal roots: different roots.
   unequal gatherv, scatterv, allgatherv, alltoallv: one count of the vector form has no equal on the other side. MPI libraries run
   these, but for an allgatherv. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size, own[64] = {0}, all[128], counts[64], others[64], places[64];
    MPI_Comm comm = MPI_COMM_WORLD;
    const char *kind = argc > 1 ? argv[1] : "new";
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int i = 0; i < 64; i++) counts[i] = others[i] = 3, places[i] = 8 * i;
    others[size - 1] = 8;
    if (strcmp(kind, "known") == 0)
        for (int count = 16; count <= 32; count += 16) MPI_Allreduce(own, all, count, MPI_INT, MPI_SUM, comm);
    if (strcmp(kind, "roots") == 0 || (strcmp(kind, "calls") == 0 && rank))
        MPI_Bcast(own, 16, MPI_INT, strcmp(kind, "calls") ? rank : 0, comm);
    else if (strcmp(kind, "gatherv") == 0) MPI_Gatherv(own, 3, MPI_INT, all, others, places, MPI_INT, 0, comm);
    else if (strcmp(kind, "scatterv") == 0) MPI_Scatterv(own, counts, places, MPI_INT, all, rank ? 64 : 3, MPI_INT, 0, comm);
    else if (strcmp(kind, "allgatherv") == 0) MPI_Allgatherv(own, rank ? 3 : 2, MPI_INT, all, counts, places, MPI_INT, comm);
    else if (strcmp(kind, "alltoallv") == 0)
        MPI_Alltoallv(own, counts, places, MPI_INT, all, rank ? counts : others, places, MPI_INT, comm);
    else MPI_Allreduce(own, all, rank ? 32 : 16, MPI_INT, MPI_SUM, comm);
    printf("rank %d: no error\n", rank);
    MPI_Finalize();
    return 0;
}
