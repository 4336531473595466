/* Info objects may be used before MPI_Init and after MPI_Finalize. */
#include "check.h"

static void use(void) {
    MPI_Info info;
    char value[8];
    int flag = 0, length = sizeof value;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "k", "v"));
    OK(MPI_Info_get_string(info, "k", &length, value, &flag));
    CHECK(flag && strcmp(value, "v") == 0);
    OK(MPI_Info_free(&info));
}

int main(void) {
    use();
    start();
    use();
    MPI_Finalize();
    use();
    printf("%s\n", failures ? "failed" : "passed");
    return failures != 0;
}
