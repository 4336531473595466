/* Pair types have the layout of the C structs. */
#include "check.h"

#define PAIR(type, value) \
    do { \
        struct pair { value v; int i; }; \
        MPI_Aint lb, extent, true_lb, true_extent; \
        OK(MPI_Type_get_extent(type, &lb, &extent)); \
        CHECK(lb == 0 && extent == sizeof(struct pair)); \
        OK(MPI_Type_get_true_extent(type, &true_lb, &true_extent)); \
        CHECK(true_lb == 0 && true_extent == (MPI_Aint)(offsetof(struct pair, i) + sizeof(int))); \
    } while (0)

int main(void) {
    MPI_Datatype pair;
    start();
    PAIR(MPI_FLOAT_INT, float);
    PAIR(MPI_DOUBLE_INT, double);
    PAIR(MPI_LONG_INT, long);
    PAIR(MPI_2INT, int);
    PAIR(MPI_SHORT_INT, short);
    PAIR(MPI_LONG_DOUBLE_INT, long double);
    OK(MPI_Type_get_value_index(MPI_DOUBLE, MPI_INT, &pair));
    CHECK(pair == MPI_DOUBLE_INT);
    OK(MPI_Type_get_value_index(MPI_INT, MPI_INT, &pair));
    CHECK(pair == MPI_2INT);
    return finish();
}
