/* What a program has added it can remove. */
#include "check.h"

int main(void) {
    int class, code, length;
    char text[MPI_MAX_ERROR_STRING];
    start();
    OK(MPI_Add_error_class(&class));
    OK(MPI_Add_error_code(class, &code));
    OK(MPI_Add_error_string(code, "here"));
    OK(MPI_Remove_error_string(code));
    OK(MPI_Error_string(code, text, &length));
    CHECK(length == 0);
    OK(MPI_Remove_error_code(code));
    OK(MPI_Remove_error_class(class));
    CHECK(MPI_Remove_error_class(MPI_ERR_RANK) != MPI_SUCCESS);
    CHECK(MPI_Remove_error_code(MPI_ERR_RANK) != MPI_SUCCESS);
    return finish();
}
