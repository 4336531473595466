/* Null objects, keys out of range and strings that are too long are errors of their classes. */
#include "check.h"

int main(void) {
    MPI_Info info;
    static char text[2 * MPI_MAX_INFO_VAL];
    char key[MPI_MAX_INFO_KEY];
    start();
    OK(MPI_Info_create(&info));
    memset(text, 'x', sizeof text - 1);
    FAILS(MPI_ERR_INFO_KEY, MPI_Info_set(info, text, "b"));
    FAILS(MPI_ERR_INFO_KEY, MPI_Info_set(info, NULL, "b"));
    FAILS(MPI_ERR_INFO_VALUE, MPI_Info_set(info, "a", text));
    FAILS(MPI_ERR_ARG, MPI_Info_get_nthkey(info, 0, key));
    FAILS(MPI_ERR_ARG, MPI_Info_get_nthkey(info, -1, key));
    OK(MPI_Info_free(&info));
    return finish();
}
