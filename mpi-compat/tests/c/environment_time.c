/* Time does not run backwards, and a tick is a positive number of seconds below one. */
#include "check.h"

int main(void) {
    start();
    double before = MPI_Wtime(), tick = MPI_Wtick();
    for (int i = 0; i < 1000; i++) {
        double now = MPI_Wtime();
        CHECK(now >= before);
        before = now;
    }
    CHECK(tick > 0 && tick < 1);
    return finish();
}
