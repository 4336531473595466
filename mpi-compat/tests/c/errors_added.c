/* A program adds error classes, codes and strings, and MPI_LASTUSEDCODE grows. */
#include "check.h"

static int last_used(void) {
    int *value = NULL, flag = 0;
    OK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &value, &flag));
    CHECK(flag && value != NULL);
    return value ? *value : -1;
}

int main(void) {
    int class, code, back, length = -1;
    char text[MPI_MAX_ERROR_STRING] = "x";
    start();
    CHECK(last_used() >= MPI_ERR_LASTCODE);
    OK(MPI_Add_error_class(&class));
    CHECK(class > MPI_ERR_LASTCODE && last_used() >= class);
    OK(MPI_Error_string(class, text, &length));
    CHECK(length == 0 && text[0] == 0);
    OK(MPI_Add_error_code(class, &code));
    CHECK(code != class);
    OK(MPI_Error_class(code, &back));
    CHECK(back == class);
    OK(MPI_Error_class(class, &back));
    CHECK(back == class);
    OK(MPI_Add_error_string(code, "the oven is cold"));
    OK(MPI_Error_string(code, text, &length));
    CHECK(strcmp(text, "the oven is cold") == 0 && length == 16);
    OK(MPI_Add_error_string(code, "warmer"));
    OK(MPI_Error_string(code, text, &length));
    CHECK(strcmp(text, "warmer") == 0);
    return finish();
}
