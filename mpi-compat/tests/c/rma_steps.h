/* Shared by programs that exchange the values of a computation by windows: each step takes the left neighbour's value. */
#ifndef RMA_STEPS_H
#define RMA_STEPS_H

#include "rma.h"

enum { ROUNDS = 12 };

/* The value after a step; before the first one it is the rank and 1. */
static inline int step(int own, int from_left) { return 2 * own % 1000 + from_left; }

/* This rank's value after all steps, computed without communication. */
static inline int expected(void) {
    int values[8], next[8];
    for (int i = 0; i < size; i++) values[i] = i + 1;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < size; i++) next[i] = step(values[i], values[(i + size - 1) % size]);
        memcpy(values, next, size * sizeof(int));
    }
    return values[me];
}

#endif
