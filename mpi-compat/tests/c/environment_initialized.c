/* MPI_Initialized and MPI_Finalized report the phase of the program. */
#include "check.h"

static void expect(int initialized, int finalized) {
    int flag = -1;
    OK(MPI_Initialized(&flag));
    CHECK(flag == initialized);
    OK(MPI_Finalized(&flag));
    CHECK(flag == finalized);
}

int main(int argc, char **argv) {
    expect(0, 0);
    OK(MPI_Init(&argc, &argv));
    expect(1, 0);
    OK(MPI_Finalize());
    expect(1, 1);
    printf("%s\n", failures ? "failed" : "passed");
    return failures != 0;
}
