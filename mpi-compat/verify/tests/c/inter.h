/* Shared by programs with an intercommunicator. */
#ifndef INTER_H
#define INTER_H

#include "check.h"

/* Starts, and joins ranks 0 and 1 with the ranks from 2 on. */
static inline MPI_Comm join_halves(void) {
    MPI_Comm half, both;
    start();
    MPI_Comm_split(MPI_COMM_WORLD, rank < 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank < 2 ? 2 : 0, 7, &both);
    MPI_Comm_free(&half);
    handle(both);
    return both;
}

#endif
