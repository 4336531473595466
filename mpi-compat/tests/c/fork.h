/* Shared by programs that fork: children, and what they and their parent tell each other. */
#ifndef FORK_H
#define FORK_H

#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* A child made by fork, which ends by the number of its failures. */
typedef struct {
    pid_t pid;
    int to_child[2], to_parent[2];
} Child;

/* Forks; true in the child. */
static inline int begin_child(Child *child) {
    CHECK(pipe(child->to_child) == 0 && pipe(child->to_parent) == 0);
    fflush(stdout);
    child->pid = fork();
    int in_child = child->pid == 0;
    /* What the other side alone needs is closed, so that nobody waits for a process that has ended. */
    close(child->to_child[in_child]);
    close(child->to_parent[!in_child]);
    if (in_child) alarm(60);
    return in_child;
}

static inline void tell(const int *ends) { CHECK(write(ends[1], "x", 1) == 1); }

static inline void hear(const int *ends) {
    char x;
    CHECK(read(ends[0], &x, 1) == 1);
}

static inline void end_child(void) {
    fflush(stdout);
    exit(failures);
}

/* The wait status of a child that has ended. */
static inline int status_of(Child *child) {
    int status = -1;
    CHECK(waitpid(child->pid, &status, 0) == child->pid);
    close(child->to_child[1]);
    close(child->to_parent[0]);
    return status;
}

static inline int ended_well(Child *child) { return status_of(child) == 0; }

#endif
