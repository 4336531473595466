/* MPI_MINLOC and MPI_MAXLOC: the value with its index; if values are equal, the lesser index. */
#include "check.h"

#define RUN(type, value) \
    do { \
        struct { value v; int i; } a[3] = {{1, 5}, {7, 2}, {4, 9}}, b[3] = {{2, 1}, {7, 3}, {3, 8}}, to[3]; \
        memcpy(to, b, sizeof b); \
        OK(MPI_Reduce_local(a, to, 3, type, MPI_MINLOC)); \
        CHECK(to[0].v == 1 && to[0].i == 5 && to[1].v == 7 && to[1].i == 2 && to[2].v == 3 && to[2].i == 8); \
        memcpy(to, b, sizeof b); \
        OK(MPI_Reduce_local(a, to, 3, type, MPI_MAXLOC)); \
        CHECK(to[0].v == 2 && to[0].i == 1 && to[1].v == 7 && to[1].i == 2 && to[2].v == 4 && to[2].i == 9); \
    } while (0)

int main(void) {
    start();
    RUN(MPI_FLOAT_INT, float);
    RUN(MPI_DOUBLE_INT, double);
    RUN(MPI_LONG_INT, long);
    RUN(MPI_2INT, int);
    RUN(MPI_SHORT_INT, short);
    RUN(MPI_LONG_DOUBLE_INT, long double);
    return finish();
}
