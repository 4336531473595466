/* Half and quadruple precision, and integers of 16 bytes.
   not on peers: their types are optional */
#include "check.h"

int main(void) {
    unsigned short half[2] = {0x3e00, 0x0001}, other[2] = {0xc000, 0x0001}; /* 1.5 and -2; twice the least */
    __float128 x = 1, y = 3, third;
    __int128 a = (__int128)1 << 100, b = -1;
    start();
    OK(MPI_Reduce_local(half, other, 2, MPI_REAL2, MPI_SUM));
    CHECK(other[0] == 0xb800 && other[1] == 0x0002); /* -0.5 */
    other[0] = 0xc000;
    OK(MPI_Reduce_local(half, other, 1, MPI_REAL2, MPI_MAX));
    CHECK(other[0] == 0x3e00);
    third = x / y;
    y = third;
    OK(MPI_Reduce_local(&x, &y, 1, MPI_REAL16, MPI_SUM));
    CHECK(y == 1 + third);
    y = third;
    OK(MPI_Reduce_local(&third, &y, 1, MPI_REAL16, MPI_PROD));
    CHECK(y == third * third);
    y = -third;
    OK(MPI_Reduce_local(&third, &y, 1, MPI_REAL16, MPI_MIN));
    CHECK(y == -third);
    OK(MPI_Reduce_local(&a, &b, 1, MPI_INTEGER16, MPI_SUM));
    CHECK(b == ((__int128)1 << 100) - 1);
    int yes = 1, no = 0;
    OK(MPI_Reduce_local(&yes, &no, 1, MPI_LOGICAL4, MPI_LOR));
    CHECK(no == 1);
    return finish();
}
