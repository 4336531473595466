/* Suite "pack": MPI_Pack and MPI_Unpack of the layouts of benches/src/shapes.rs, by rank 0. */
#include "peers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_INTS = 4096, STRUCT_BYTES = 29, STRUCT_EXTENT = 40, PACKED_AT = 1088 };

/* A message: `count` elements of `type`, with `bytes` packed bytes, and the buffers. */
struct message {
    MPI_Datatype type;
    int count;
    long bytes;
    unsigned char *memory, *packed;
    int room;
};

/* `count` of twice that number of positions, in random order, as in shapes.rs, times `unit`. */
static int *places(long count, int unit) {
    int *place = malloc(2 * (size_t)count * sizeof *place);
    for (long i = 0; i < 2 * count; i++)
        place[i] = (int)i * unit;
    uint64_t state = 1;
    for (long i = 2 * count - 1; i > 0; i--) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        long j = (long)((state >> 33) % (uint64_t)(i + 1));
        int held = place[i];
        place[i] = place[j], place[j] = held;
    }
    return place;
}

static void face(long bytes, MPI_Datatype *type, int z, int y, int x) {
    int side = (int)lround(sqrt((double)bytes / 8));
    int sizes[] = {side, side, side}, subsizes[] = {z ? 1 : side, y ? 1 : side, x ? 1 : side}, starts[] = {z, y, x};
    MPI_Type_create_subarray(3, sizes, subsizes, starts, MPI_ORDER_C, MPI_DOUBLE, type);
}

/* The two leading block diagonals of a square matrix of ints, of 16 x 16 blocks: a contiguous part of each row. */
static void diagonals(long bytes, MPI_Datatype *type) {
    int side = (int)lround(sqrt((double)bytes / (4 * 31))), rows = 16 * side;
    int *lengths = malloc((size_t)rows * sizeof *lengths), *at = malloc((size_t)rows * sizeof *at);
    for (int row = 0; row < rows; row++) {
        lengths[row] = row / side < 15 ? 2 * side : side;
        at[row] = row * rows + row / side * side;
    }
    MPI_Type_indexed(rows, lengths, at, MPI_INT, type);
    free(lengths);
    free(at);
}

void make_layout(const char *shape, long bytes, MPI_Datatype *type, int *count) {
    int block = 0;
    *count = 1;
    if (sscanf(shape, "vector_%d", &block) == 1) {
        MPI_Type_create_hvector((int)(bytes / block), block == 4 ? 1 : block / 8, 2 * block, block == 4 ? MPI_INT : MPI_DOUBLE,
                                type);
    } else if (strcmp(shape, "column") == 0) {
        MPI_Type_vector((int)(bytes / 4), 1, ROW_INTS, MPI_INT, type);
    } else if (sscanf(shape, "columns_%d", &block) == 1) {
        MPI_Type_vector(block, (int)(bytes / (4 * block)), ROW_INTS, MPI_INT, type);
    } else if (strcmp(shape, "face_x") == 0) {
        face(bytes, type, 0, 0, 1);
    } else if (strcmp(shape, "face_y") == 0) {
        face(bytes, type, 0, 1, 0);
    } else if (strcmp(shape, "face_z") == 0) {
        face(bytes, type, 1, 0, 0);
    } else if (sscanf(shape, "indexed_%d", &block) == 1) {
        int *at = places(bytes / block, block / 8);
        MPI_Type_create_indexed_block((int)(bytes / block), block / 8, at, MPI_DOUBLE, type);
        free(at);
    } else if (strcmp(shape, "struct") == 0) {
        int lengths[] = {1, 3, 1};
        MPI_Aint at[] = {0, 8, 32};
        MPI_Datatype types[] = {MPI_INT, MPI_DOUBLE, MPI_CHAR}, one;
        MPI_Type_create_struct(3, lengths, at, types, &one);
        MPI_Type_create_resized(one, 0, STRUCT_EXTENT, type);
        MPI_Type_free(&one);
        *count = (int)(bytes / STRUCT_BYTES);
    } else if (strcmp(shape, "nested") == 0) {
        MPI_Datatype one;
        MPI_Type_create_hvector(4, 1, 24, MPI_DOUBLE, &one);
        MPI_Type_create_hvector((int)(bytes / 32), 1, 128, one, type);
        MPI_Type_free(&one);
    } else if (strcmp(shape, "none") == 0) {
        MPI_Type_contiguous((int)(bytes / 4), MPI_INT, type);
    } else if (sscanf(shape, "blocks_%d", &block) == 1) {
        MPI_Type_create_hvector(block, (int)(bytes / block / 4), 2 * bytes / block, MPI_INT, type);
    } else if (strcmp(shape, "diagonals") == 0) {
        diagonals(bytes, type);
    } else {
        fprintf(stderr, "peers: no shape %s\n", shape);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Type_commit(type);
}

static void pack(void *argument, long iterations) {
    struct message *m = argument;
    for (long i = 0; i < iterations; i++) {
        int position = 0;
        MPI_Pack(m->memory, m->count, m->type, m->packed, m->room, &position, MPI_COMM_SELF);
    }
}

static void unpack(void *argument, long iterations) {
    struct message *m = argument;
    for (long i = 0; i < iterations; i++) {
        int position = 0;
        MPI_Unpack(m->packed, m->room, &position, m->memory, m->count, m->type, MPI_COMM_SELF);
    }
}

/* Sends one message there and back; returns whether it came back unchanged. */
static int goes_round(struct message *m, size_t extent) {
    for (size_t i = 0; i < extent; i++)
        m->memory[i] = (unsigned char)(i * 41 >> 3);
    int position = 0;
    MPI_Pack(m->memory, m->count, m->type, m->packed, m->room, &position, MPI_COMM_SELF);
    unsigned char *first = malloc((size_t)m->room);
    memcpy(first, m->packed, (size_t)m->bytes);
    int good = position == m->bytes;
    memset(m->memory, 7, extent);
    unpack(m, 1);
    memset(m->packed, 9, (size_t)m->bytes);
    pack(m, 1);
    good &= memcmp(first, m->packed, (size_t)m->bytes) == 0;
    free(first);
    return good;
}

int next_message(const char **messages, char shape[32], long *bytes) {
    int used = 0;
    if (**messages == 0)
        return 0;
    if (sscanf(*messages, "%31[^:]:%ld%n", shape, bytes, &used) != 2 || *bytes < 1) {
        fprintf(stderr, "peers: no message %s\n", *messages);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    *messages += used;
    *messages += **messages == ',';
    return 1;
}

void run_pack(const struct options *options) {
    struct options own = *options;
    const char *messages = options->messages;
    char shape[32];
    struct message m;
    while (next_message(&messages, shape, &m.bytes)) {
        make_layout(shape, m.bytes, &m.type, &m.count);
        MPI_Aint low, extent;
        MPI_Type_get_true_extent(m.type, &low, &extent);
        size_t room = (size_t)(low + extent) + (size_t)(m.count - 1) * STRUCT_EXTENT;
        MPI_Pack_size(m.count, m.type, MPI_COMM_SELF, &m.room);
        m.memory = pages((long)room);
        unsigned char *packed = pages(m.room + PACKED_AT);
        m.packed = packed + PACKED_AT;
        check(goes_round(&m, room), "pack", "none", shape, "packed, unpacked and packed again");
        /* Short blocks, so that the fastest one was not disturbed by other load of the machine. */
        own.blocks = m.bytes < 1 << 19 ? 400 : 11;
        struct what what = {"pack", "none", "none", "pack", m.bytes, 1, 0, shape};
        measure(&own, &what, pack, &m, 1);
        what.op = "unpack";
        measure(&own, &what, unpack, &m, 1);
        MPI_Type_free(&m.type);
        free(m.memory);
        free(packed);
    }
}
