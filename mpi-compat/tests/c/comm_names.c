/* Communicators have names, which can be changed; longer ones are truncated. The null handle has a name too. */
#include "check.h"

int main(void) {
    char name[MPI_MAX_OBJECT_NAME], longer[2 * MPI_MAX_OBJECT_NAME];
    int length;
    start();
    OK(MPI_Comm_get_name(MPI_COMM_WORLD, name, &length));
    CHECK(strcmp(name, "MPI_COMM_WORLD") == 0 && length == 14);
    OK(MPI_Comm_get_name(MPI_COMM_SELF, name, &length));
    CHECK(strcmp(name, "MPI_COMM_SELF") == 0);
    OK(MPI_Comm_set_name(MPI_COMM_WORLD, "everyone"));
    OK(MPI_Comm_get_name(MPI_COMM_WORLD, name, &length));
    CHECK(strcmp(name, "everyone") == 0 && length == 8);
    OK(MPI_Comm_set_name(MPI_COMM_WORLD, ""));
    OK(MPI_Comm_get_name(MPI_COMM_WORLD, name, &length));
    CHECK(length == 0 && name[0] == 0);
    memset(longer, 'n', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    OK(MPI_Comm_set_name(MPI_COMM_WORLD, longer));
    OK(MPI_Comm_get_name(MPI_COMM_WORLD, name, &length));
    CHECK(length == MPI_MAX_OBJECT_NAME - 1 && (int)strlen(name) == length);
    OK(MPI_Comm_get_name(MPI_COMM_NULL, name, &length));
    CHECK(strcmp(name, "MPI_COMM_NULL") == 0 && length == 13);
    return finish();
}
