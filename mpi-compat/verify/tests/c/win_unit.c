/* The displacement unit must be positive; all ranks get the same error class.
   ranks 2
   says VERIFY MPI_WIN_CREATE(1): disp_unit=0 <= 0 */
#include "check.h"

int main(void) {
    MPI_Win win;
    int memory[4], code, class;
    start();
    code = MPI_Win_create(memory, sizeof memory, WRONG_AT(1, 0, 4), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Error_class(code, &class);
    if (class != (IS_WRONG ? MPI_ERR_DISP : MPI_SUCCESS)) printf("FAILED rank %d: class %d\n", rank, class);
    if (code == MPI_SUCCESS) MPI_Win_free(&win);
    return finish();
}
