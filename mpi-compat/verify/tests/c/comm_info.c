/* All ranks give the same Info object, from level 3 on.
   ranks 2
   level 3
   says VERIFY MPI_COMM_SET_INFO(1): info {mpi_assert_no_any_tag=true} inconsistent with info {mpi_assert_no_any_tag=false} of 0 */
#include "check.h"

int main(void) {
    MPI_Info info;
    MPI_Comm comm = MPI_COMM_NULL;
    start();
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_assert_no_any_tag", WRONG_AT(1, "true", "false"));
    MPI_Comm_set_info(MPI_COMM_WORLD, info);
    MPI_Info_set(info, "mpi_assert_no_any_tag", "false");
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
    MPI_Comm_free(&comm);
    MPI_Info_free(&info);
    return finish();
}
