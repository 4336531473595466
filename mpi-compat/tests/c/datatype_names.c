/* Types have names: derived ones are unnamed at first, and predefined ones can be renamed. */
#include "check.h"

int main(void) {
    MPI_Datatype type;
    char name[MPI_MAX_OBJECT_NAME] = "x";
    int length = -1;
    start();
    /* MPI_C_FLOAT_COMPLEX is its synonym. */
    OK(MPI_Type_get_name(MPI_C_COMPLEX, name, &length));
    CHECK(strcmp(name, "MPI_C_COMPLEX") == 0);
    OK(MPI_Type_contiguous(2, MPI_INT, &type));
    OK(MPI_Type_get_name(type, name, &length));
    CHECK(length == 0 && name[0] == 0);
    OK(MPI_Type_set_name(type, "two"));
    OK(MPI_Type_get_name(type, name, &length));
    CHECK(length == 3 && strcmp(name, "two") == 0);
    OK(MPI_Type_set_name(MPI_INT, "whole"));
    OK(MPI_Type_get_name(MPI_INT, name, &length));
    CHECK(strcmp(name, "whole") == 0);
    OK(MPI_Type_free(&type));
    return finish();
}
