/* Shared by the programs of this folder, each of which has calls that are wrong if WRONG is defined, and right
   otherwise. */
#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, handled;

/* The value of the first form is given by the ranks that are wrong. */
#ifdef WRONG
#define IS_WRONG 1
#else
#define IS_WRONG 0
#endif
#define WRONG_AT(r, wrong, right) (IS_WRONG && rank == (r) ? (wrong) : (right))

static void on_error(MPI_Comm *comm, int *code, ...) {
    (void)comm;
    (void)code;
    handled++;
}

static void on_win_error(MPI_Win *win, int *code, ...) {
    (void)win;
    (void)code;
    handled++;
}

static inline void handle(MPI_Comm comm) {
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(on_error, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Errhandler_free(&handler);
}

static inline void handle_win(MPI_Win win) {
    MPI_Errhandler handler;
    MPI_Win_create_errhandler(on_win_error, &handler);
    MPI_Win_set_errhandler(win, handler);
    MPI_Errhandler_free(&handler);
}

static inline void start(void) {
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    handle(MPI_COMM_WORLD);
    handle(MPI_COMM_SELF);
}

/* All ranks have learnt of the error, once, or of none; then collective calls go on. */
static inline int finish(void) {
    int sum = -1;
    if (MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS || sum != size * (size - 1) / 2)
        printf("FAILED rank %d: a good call after it\n", rank);
#ifdef HANDLED
    int wanted = IS_WRONG ? (HANDLED) : 0;
#else
    int wanted = IS_WRONG;
#endif
    if (handled != wanted) printf("FAILED rank %d: %d errors, not %d\n", rank, handled, wanted);
    MPI_Finalize();
    printf("ended\n");
    return 0;
}

#endif
