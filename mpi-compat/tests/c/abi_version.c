/* The version and the sizes of the ABI can be queried at any time. */
#include "check.h"

static void ask(void) {
    MPI_Info info;
    int major = -1, minor = -1, length, flag;
    char value[16];
    OK(MPI_Abi_get_version(&major, &minor));
    CHECK(major == MPI_ABI_VERSION && minor == MPI_ABI_SUBVERSION);
    OK(MPI_Abi_get_info(&info));
    const char *keys[] = {"mpi_aint_size", "mpi_count_size", "mpi_offset_size"};
    int sizes[] = {sizeof(MPI_Aint), sizeof(MPI_Count), sizeof(MPI_Offset)};
    for (int i = 0; i < 3; i++) {
        length = sizeof value;
        OK(MPI_Info_get_string(info, keys[i], &length, value, &flag));
        CHECK(flag && atoi(value) == sizes[i]);
    }
    OK(MPI_Info_free(&info));
}

int main(void) {
    ask();
    start();
    ask();
    MPI_Finalize();
    printf("%s\n", failures ? "failed" : "passed");
    return failures != 0;
}
