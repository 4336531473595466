/* external32 is big-endian and of fixed widths. */
#include "check.h"

static void show(const char *what, const unsigned char *bytes, MPI_Aint n) {
    printf("%s:", what);
    for (MPI_Aint i = 0; i < n; i++) printf(" %02x", bytes[i]);
    printf("\n");
}

#define ROUND(type, c_type, ...) \
    do { \
        c_type in[] = {__VA_ARGS__}, out[COUNT(in)]; \
        unsigned char bytes[128]; \
        MPI_Aint position = 0, size = -1; \
        memset(out, 0, sizeof out); \
        OK(MPI_Pack_external_size("external32", COUNT(in), type, &size)); \
        OK(MPI_Pack_external("external32", in, COUNT(in), type, bytes, sizeof bytes, &position)); \
        CHECK(position == size); \
        show(#type, bytes, position); \
        position = 0; \
        OK(MPI_Unpack_external("external32", bytes, size, &position, out, COUNT(in), type)); \
        CHECK(position == size && memcmp(in, out, sizeof in) == 0); \
    } while (0)

int main(void) {
    start();
    ROUND(MPI_INT, int, 1, -2, 0x01020304);
    ROUND(MPI_SHORT, short, 1, -2);
    ROUND(MPI_FLOAT, float, 1.5f, -0.25f);
    ROUND(MPI_DOUBLE, double, 1.5, -1e300);
    ROUND(MPI_CHAR, char, 'a', 'b');
    ROUND(MPI_LONG_LONG, long long, 1, -5000000000);
    ROUND(MPI_UINT64_T, uint64_t, 0x0102030405060708);
    ROUND(MPI_BYTE, unsigned char, 0, 255);
    return finish();
}
