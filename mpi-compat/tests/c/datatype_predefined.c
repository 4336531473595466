/* Predefined types have the sizes of the C types, are committed, and cannot be freed. */
#include <wchar.h>
#include "check.h"

int main(void) {
    struct { MPI_Datatype type; size_t size; const char *name; } all[] = {
        {MPI_CHAR, sizeof(char), "MPI_CHAR"}, {MPI_SIGNED_CHAR, 1, "MPI_SIGNED_CHAR"},
        {MPI_UNSIGNED_CHAR, 1, "MPI_UNSIGNED_CHAR"}, {MPI_BYTE, 1, "MPI_BYTE"}, {MPI_SHORT, sizeof(short), "MPI_SHORT"},
        {MPI_UNSIGNED_SHORT, sizeof(short), "MPI_UNSIGNED_SHORT"}, {MPI_INT, sizeof(int), "MPI_INT"},
        {MPI_UNSIGNED, sizeof(int), "MPI_UNSIGNED"}, {MPI_LONG, sizeof(long), "MPI_LONG"},
        {MPI_UNSIGNED_LONG, sizeof(long), "MPI_UNSIGNED_LONG"}, {MPI_LONG_LONG, sizeof(long long), NULL},
        {MPI_UNSIGNED_LONG_LONG, sizeof(long long), "MPI_UNSIGNED_LONG_LONG"}, {MPI_FLOAT, sizeof(float), "MPI_FLOAT"},
        {MPI_DOUBLE, sizeof(double), "MPI_DOUBLE"}, {MPI_LONG_DOUBLE, sizeof(long double), "MPI_LONG_DOUBLE"},
        {MPI_WCHAR, sizeof(wchar_t), "MPI_WCHAR"}, {MPI_C_BOOL, sizeof(_Bool), "MPI_C_BOOL"},
        {MPI_INT8_T, 1, "MPI_INT8_T"}, {MPI_INT16_T, 2, "MPI_INT16_T"}, {MPI_INT32_T, 4, "MPI_INT32_T"},
        {MPI_INT64_T, 8, "MPI_INT64_T"}, {MPI_UINT8_T, 1, "MPI_UINT8_T"}, {MPI_UINT16_T, 2, "MPI_UINT16_T"},
        {MPI_UINT32_T, 4, "MPI_UINT32_T"}, {MPI_UINT64_T, 8, "MPI_UINT64_T"}, {MPI_AINT, 8, "MPI_AINT"},
        {MPI_COUNT, 8, "MPI_COUNT"}, {MPI_OFFSET, 8, "MPI_OFFSET"}, {MPI_C_FLOAT_COMPLEX, 8, NULL},
        {MPI_C_DOUBLE_COMPLEX, 16, "MPI_C_DOUBLE_COMPLEX"}, {MPI_C_LONG_DOUBLE_COMPLEX, 32, "MPI_C_LONG_DOUBLE_COMPLEX"},
        {MPI_PACKED, 1, "MPI_PACKED"}, {MPI_FLOAT_INT, 8, "MPI_FLOAT_INT"}, {MPI_DOUBLE_INT, 12, "MPI_DOUBLE_INT"},
        {MPI_LONG_INT, 12, "MPI_LONG_INT"}, {MPI_2INT, 8, "MPI_2INT"}, {MPI_SHORT_INT, 6, "MPI_SHORT_INT"},
        {MPI_LONG_DOUBLE_INT, 20, "MPI_LONG_DOUBLE_INT"},
    };
    start();
    for (int i = 0; i < COUNT(all); i++) {
        char name[MPI_MAX_OBJECT_NAME];
        int size, length;
        OK(MPI_Type_size(all[i].type, &size));
        OK(MPI_Type_get_name(all[i].type, name, &length));
        if ((size_t)size != all[i].size) printf("FAILED %s: %d bytes\n", name, size), failures++;
        if (all[i].name && strcmp(name, all[i].name) != 0) printf("FAILED %s: %s\n", all[i].name, name), failures++;
        MPI_Datatype type = all[i].type;
        OK(MPI_Type_commit(&type));
        CHECK(MPI_Type_free(&type) != MPI_SUCCESS);
    }
    return finish();
}
