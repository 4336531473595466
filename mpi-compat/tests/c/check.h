/* Shared by the programs of this folder: initialization and finalization, and checks that print the line of a failure. */
#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            failures++; \
            printf("FAILED line %d: %s\n", __LINE__, #condition); \
        } \
    } while (0)

/* The call succeeds. */
#define OK(call) \
    do { \
        int ok_code = (call); \
        if (ok_code != MPI_SUCCESS) { \
            failures++; \
            printf("FAILED line %d: %s returned class %d\n", __LINE__, #call, class_of(ok_code)); \
        } \
    } while (0)

/* The call returns an error of the class. */
#define FAILS(class, call) \
    do { \
        int fails_class = class_of(call); \
        if (fails_class != (class)) { \
            failures++; \
            printf("FAILED line %d: %s returned class %d, not %s\n", __LINE__, #call, fails_class, #class); \
        } \
    } while (0)

/* A call of the tool interface, which has codes and no classes. */
#define CHECK_T(code, call) \
    do { \
        int check_code = (call); \
        if (check_code != (code)) { \
            failures++; \
            printf("FAILED line %d: %s returned %d, not %s\n", __LINE__, #call, check_code, #code); \
        } \
    } while (0)

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static inline int class_of(int code) {
    int class = -1;
    if (code == MPI_SUCCESS) return MPI_SUCCESS;
    MPI_Error_class(code, &class);
    return class;
}

/* From here on errors are returned. */
static inline void start(void) {
    MPI_Init(NULL, NULL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
}

static inline int rank_of(MPI_Comm comm) {
    int rank;
    MPI_Comm_rank(comm, &rank);
    return rank;
}

/* Rank `victim`, which is to be killed next, returns when all others have come here. They do not wait, as in a barrier,
   whose last waits would get the error of its end. */
static inline void before_end_of(int victim, MPI_Comm comm) {
    int size, word = 0;
    MPI_Comm_size(comm, &size);
    if (rank_of(comm) != victim) MPI_Send(&word, 1, MPI_INT, victim, 77, comm);
    else
        while (--size > 0) MPI_Recv(&word, 1, MPI_INT, MPI_ANY_SOURCE, 77, comm, MPI_STATUS_IGNORE);
}

/* The ranks that share memory with this one, in the order of all ranks. */
static inline MPI_Comm sharing(void) {
    MPI_Comm comm;
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm));
    return comm;
}

/* Whether this runs in an emulated machine, where bytes are slow. */
static inline int is_emulated(void) { return getenv("FARSIDE_TEST_QUICK") != NULL; }

/* Whether this runs on another library, which only shows that the expectations are right. */
static inline int is_on_peer(void) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int len;
    return MPI_Get_library_version(version, &len) != MPI_SUCCESS || strncmp(version, "Farside", 7) != 0;
}

/* The number of rounds of a loop: fewer in an emulated machine, and on another library. */
static inline int rounds(int n) { return is_emulated() || is_on_peer() ? n / 20 : n; }

/* The byte at place i of data that is made of a seed. */
static inline unsigned char byte_at(int seed, size_t i) { return (unsigned char)(i * 31 + i / 251 + (size_t)seed * 17); }

static inline void fill(void *data, size_t len, int seed) {
    for (size_t i = 0; i < len; i++) ((unsigned char *)data)[i] = byte_at(seed, i);
}

static inline int is_filled(const void *data, size_t len, int seed) {
    for (size_t i = 0; i < len; i++)
        if (((const unsigned char *)data)[i] != byte_at(seed, i)) return 0;
    return 1;
}

/* The end of a program that has ended MPI. */
static inline int end(void) {
    if (failures == 0) printf("passed\n");
    return failures != 0;
}

static inline int finish(void) {
    OK(MPI_Finalize());
    return end();
}

#endif
