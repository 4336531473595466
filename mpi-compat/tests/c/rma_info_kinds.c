/* Windows report the memory kinds mpi and system.
   not on peers: MPICH says more */
#include "rma.h"

int main(void) {
    begin(1);
    CHECK(has_hint(win, "mpi_memory_alloc_kinds", "mpi,system"));
    return done();
}
