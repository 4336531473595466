/* A value of each basic type is put and got back.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    enum { PLACES = 12 };
    unsigned char *memory;
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Win_allocate(16 * PLACES, 16, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
    memset(memory, 0xee, 16 * PLACES);
    FENCE();
    MPI_Datatype types[PLACES] = {MPI_CHAR, MPI_SIGNED_CHAR, MPI_SHORT, MPI_INT, MPI_LONG, MPI_LONG_LONG, MPI_FLOAT, MPI_DOUBLE,
                                  MPI_BYTE, MPI_UINT16_T, MPI_UINT32_T, MPI_INT64_T};
    unsigned char data[PLACES][16], got[PLACES][16];
    for (int i = 0; i < PLACES; i++) {
        fill(data[i], 16, me + i);
        OK(MPI_Put(data[i], 1, types[i], right(), i, 1, types[i], win));
    }
    FENCE();
    for (int i = 0; i < PLACES; i++) {
        int bytes;
        OK(MPI_Type_size(types[i], &bytes));
        CHECK(is_filled(memory + 16 * i, bytes, left() + i));
        for (int j = bytes; j < 16; j++) CHECK(memory[16 * i + j] == 0xee);
        OK(MPI_Get(got[i], 1, types[i], right(), i, 1, types[i], win));
    }
    FENCE();
    for (int i = 0; i < PLACES; i++) {
        int bytes;
        OK(MPI_Type_size(types[i], &bytes));
        CHECK(memcmp(got[i], data[i], bytes) == 0);
    }
    return done();
}
