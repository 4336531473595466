/* A program can remove its added error strings, codes and classes: strings first, then codes, then their class. */
#include "check.h"

int main(void) {
    int class, code, length;
    char text[MPI_MAX_ERROR_STRING];
    start();
    OK(MPI_Add_error_class(&class));
    OK(MPI_Add_error_code(class, &code));
    OK(MPI_Add_error_string(class, "a class"));
    OK(MPI_Add_error_string(code, "here"));
    CHECK(MPI_Remove_error_code(code) != MPI_SUCCESS);
    OK(MPI_Remove_error_string(code));
    OK(MPI_Error_string(code, text, &length));
    CHECK(length == 0);
    CHECK(MPI_Remove_error_class(class) != MPI_SUCCESS);
    OK(MPI_Remove_error_code(code));
    CHECK(MPI_Remove_error_class(class) != MPI_SUCCESS);
    OK(MPI_Remove_error_string(class));
    OK(MPI_Remove_error_class(class));
    CHECK(MPI_Remove_error_class(MPI_ERR_RANK) != MPI_SUCCESS);
    CHECK(MPI_Remove_error_code(MPI_ERR_RANK) != MPI_SUCCESS);
    return finish();
}
