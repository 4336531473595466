/* Versions can be queried at any time. */
#include "check.h"

static void ask(void) {
    int version = 0, subversion = 0, length = -1;
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    OK(MPI_Get_version(&version, &subversion));
    CHECK(version == MPI_VERSION && subversion == MPI_SUBVERSION);
    OK(MPI_Get_library_version(text, &length));
    CHECK(length > 0 && (size_t)length == strlen(text));
}

int main(void) {
    ask();
    start();
    ask();
    MPI_Finalize();
    ask();
    printf("%s\n", failures ? "failed" : "passed");
    return failures != 0;
}
