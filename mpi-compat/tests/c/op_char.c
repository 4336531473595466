/* MPI_CHAR, for which the standard defines no operator, is reduced as a signed char.
   ranks 1 */
#include "check.h"

int main(void) {
    const signed char a[4] = {-1, 5, 0, 100}, b[4] = {1, -3, 2, 100};
    const MPI_Op ops[10] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_LAND, MPI_LOR, MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR};
    signed char as_char[4], as_signed[4];
    start();
    for (int i = 0; i < COUNT(ops); i++) {
        memcpy(as_char, b, sizeof b);
        memcpy(as_signed, b, sizeof b);
        OK(MPI_Reduce_local(a, as_char, 4, MPI_CHAR, ops[i]));
        OK(MPI_Reduce_local(a, as_signed, 4, MPI_SIGNED_CHAR, ops[i]));
        CHECK(memcmp(as_char, as_signed, sizeof as_char) == 0);
    }
    memcpy(as_char, b, sizeof b);
    OK(MPI_Reduce_local(a, as_char, 4, MPI_CHAR, MPI_MAX));
    CHECK(as_char[0] == 1 && as_char[1] == 5 && as_char[2] == 2 && as_char[3] == 100);
    FAILS(MPI_ERR_OP, MPI_Reduce_local(a, as_char, 2, MPI_CHAR, MPI_MINLOC));
    FAILS(MPI_ERR_OP, MPI_Reduce_local(a, as_char, 1, MPI_WCHAR, MPI_MAX));
    return finish();
}
