/* The predefined operators on every integer type. */
#include "check.h"

#define RUN(type, c_type) \
    do { \
        c_type a[] = {5, 0, 3, 12}, b[] = {3, 0, 0, 10}; \
        MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN, MPI_LAND, MPI_LOR, MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR}; \
        printf(#type ":"); \
        for (int o = 0; o < COUNT(ops); o++) { \
            c_type to[4]; \
            memcpy(to, b, sizeof b); \
            OK(MPI_Reduce_local(a, to, 4, type, ops[o])); \
            for (int i = 0; i < 4; i++) printf(" %d", (int)to[i]); \
            printf(","); \
        } \
        printf("\n"); \
    } while (0)

int main(void) {
    start();
    RUN(MPI_INT, int);
    RUN(MPI_SHORT, short);
    RUN(MPI_LONG, long);
    RUN(MPI_LONG_LONG, long long);
    RUN(MPI_UNSIGNED, unsigned);
    RUN(MPI_UNSIGNED_SHORT, unsigned short);
    RUN(MPI_UNSIGNED_LONG, unsigned long);
    RUN(MPI_UNSIGNED_LONG_LONG, unsigned long long);
    RUN(MPI_SIGNED_CHAR, signed char);
    RUN(MPI_UNSIGNED_CHAR, unsigned char);
    RUN(MPI_INT8_T, int8_t);
    RUN(MPI_INT16_T, int16_t);
    RUN(MPI_INT32_T, int32_t);
    RUN(MPI_INT64_T, int64_t);
    RUN(MPI_UINT8_T, uint8_t);
    RUN(MPI_UINT16_T, uint16_t);
    RUN(MPI_UINT32_T, uint32_t);
    RUN(MPI_UINT64_T, uint64_t);
    RUN(MPI_AINT, MPI_Aint);
    RUN(MPI_OFFSET, MPI_Offset);
    RUN(MPI_COUNT, MPI_Count);
    return finish();
}
