/* Strings, arrays of handles, and objects with fixed addresses. */
#include "support.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct farside_fixed mpifort_fixed_;
__typeof__(mpifort_text_) mpifort_text_;

void *farside_fixed_address(void *buffer)
{
    if (buffer == &mpifort_fixed_.bottom) return MPI_BOTTOM;
    if (buffer == &mpifort_fixed_.in_place) return MPI_IN_PLACE;
    if (buffer == &mpifort_fixed_.buffer_automatic) return MPI_BUFFER_AUTOMATIC;
    return buffer;
}

size_t farside_trimmed(const char *text, size_t len)
{
    while (len > 0 && text[len - 1] == ' ') --len;
    return len;
}

char *farside_string(char *to, const char *text, size_t len)
{
    memcpy(to, text, len);
    to[len] = '\0';
    return to;
}

void farside_pad(char *text, size_t len, const char *from)
{
    size_t own = strlen(from);
    if (own > len) own = len;
    memcpy(text, from, own);
    memset(text + own, ' ', len - own);
}

static void no_memory(void)
{
    fputs("libmpifort_abi: out of memory for an array of handles\n", stderr);
    MPI_Abort(MPI_COMM_WORLD, MPI_ERR_NO_MEM);
    abort();
}

void *farside_array(void *few, size_t size, size_t number)
{
    if (number <= FARSIDE_FEW) return few;
    void *array = number > SIZE_MAX / size ? NULL : malloc(number * size);
    if (!array) no_memory();
    return array;
}

void farside_free_array(void *array, void *few)
{
    if (array != few) free(array);
}

struct kept {
    struct kept *next;
    size_t bytes;
    char content[];
};

void *farside_kept(void *array, void *few, size_t bytes)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct kept *all[256];
    size_t hash = bytes;
    for (size_t i = 0; i < bytes; ++i) hash = hash * 31 + ((unsigned char *)array)[i];
    pthread_mutex_lock(&lock);
    struct kept **place = &all[(hash ^ hash >> 16) % 256];
    while (*place && ((*place)->bytes != bytes || memcmp((*place)->content, array, bytes) != 0)) place = &(*place)->next;
    if (!*place) {
        struct kept *new = malloc(sizeof *new + bytes);
        if (!new) no_memory();
        new->next = NULL;
        new->bytes = bytes;
        memcpy(new->content, array, bytes);
        *place = new;
    }
    void *found = (*place)->content;
    pthread_mutex_unlock(&lock);
    farside_free_array(array, few);
    return found;
}

int farside_remote_size(MPI_Comm comm)
{
    int is_inter = 0, size = 0;
    if (MPI_Comm_test_inter(comm, &is_inter) != MPI_SUCCESS) return 0;
    is_inter ? MPI_Comm_remote_size(comm, &size) : MPI_Comm_size(comm, &size);
    return size;
}

int farside_neighbors(MPI_Comm comm, int incoming)
{
    int kind = MPI_UNDEFINED, number = 0, other = 0, rank = 0;
    if (MPI_Topo_test(comm, &kind) != MPI_SUCCESS) return 0;
    switch (kind) {
    case MPI_CART:
        MPI_Cartdim_get(comm, &number);
        return 2 * number;
    case MPI_GRAPH:
        MPI_Comm_rank(comm, &rank);
        MPI_Graph_neighbors_count(comm, rank, &number);
        return number;
    case MPI_DIST_GRAPH:
        incoming ? MPI_Dist_graph_neighbors_count(comm, &number, &other, &kind)
                 : MPI_Dist_graph_neighbors_count(comm, &other, &number, &kind);
        return number;
    default:
        return 0;
    }
}
