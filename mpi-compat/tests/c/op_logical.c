/* Logical operators on C booleans, bitwise ones on bytes. */
#include <stdbool.h>
#include "check.h"

int main(void) {
    bool a[4] = {false, false, true, true}, b[4] = {false, true, false, true}, to[4];
    unsigned char x[2] = {0xf0, 0x0f}, y[2] = {0xff, 0x55};
    start();
    memcpy(to, b, sizeof b);
    OK(MPI_Reduce_local(a, to, 4, MPI_C_BOOL, MPI_LAND));
    CHECK(!to[0] && !to[1] && !to[2] && to[3]);
    memcpy(to, b, sizeof b);
    OK(MPI_Reduce_local(a, to, 4, MPI_C_BOOL, MPI_LOR));
    CHECK(!to[0] && to[1] && to[2] && to[3]);
    memcpy(to, b, sizeof b);
    OK(MPI_Reduce_local(a, to, 4, MPI_C_BOOL, MPI_LXOR));
    CHECK(!to[0] && to[1] && to[2] && !to[3]);
    OK(MPI_Reduce_local(x, y, 2, MPI_BYTE, MPI_BAND));
    CHECK(y[0] == 0xf0 && y[1] == 0x05);
    OK(MPI_Reduce_local(x, y, 2, MPI_BYTE, MPI_BXOR));
    CHECK(y[0] == 0 && y[1] == 0x0a);
    return finish();
}
