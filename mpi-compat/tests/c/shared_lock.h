/* Shared by programs whose locks exclude loads and stores. */
#ifndef SHARED_LOCK_H
#define SHARED_LOCK_H

#include "check.h"

enum { ROUNDS = 200 };

static inline void one_by_one(MPI_Win win, MPI_Comm node, int me, int size) {
    int unit, *base;
    MPI_Aint bytes;
    OK(MPI_Win_shared_query(win, 0, &bytes, &unit, &base));
    CHECK(bytes == 4);
    if (bytes != 4) return;
    volatile int *counter = base;
    if (me == 0) *counter = 0;
    MPI_Barrier(node);
    for (int i = 0; i < ROUNDS; i++) {
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
        int value = *counter;
        for (volatile int wait = 0; wait < 100; wait++) {}
        *counter = value + 1;
        OK(MPI_Win_unlock(0, win));
    }
    MPI_Barrier(node);
    CHECK(*counter == ROUNDS * size);
    /* The value is odd while a writer has the lock, so a rank that has locked all ranks sees an even value. */
    MPI_Barrier(node);
    if (me == 0) *counter = 0;
    MPI_Barrier(node);
    for (int i = 0; i < ROUNDS; i++) {
        if (me == 1) {
            OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
            *counter += 1;
            for (volatile int wait = 0; wait < 1000; wait++) {}
            *counter += 1;
            OK(MPI_Win_unlock(0, win));
        } else {
            OK(MPI_Win_lock_all(0, win));
            int before = *counter;
            for (volatile int wait = 0; wait < 100; wait++) {}
            CHECK(before % 2 == 0 && *counter == before);
            OK(MPI_Win_unlock_all(win));
        }
    }
    MPI_Barrier(node);
}

#endif
