/* The fields of a status, by name and by call. */
#include "check.h"

int main(void) {
    MPI_Status status;
    int value = -1;
    start();
    memset(&status, 0, sizeof status);
    OK(MPI_Status_set_source(&status, 3));
    OK(MPI_Status_set_tag(&status, 44));
    OK(MPI_Status_set_error(&status, MPI_ERR_TRUNCATE));
    CHECK(status.MPI_SOURCE == 3 && status.MPI_TAG == 44 && status.MPI_ERROR == MPI_ERR_TRUNCATE);
    OK(MPI_Status_get_source(&status, &value));
    CHECK(value == 3);
    OK(MPI_Status_get_tag(&status, &value));
    CHECK(value == 44);
    OK(MPI_Status_get_error(&status, &value));
    CHECK(value == MPI_ERR_TRUNCATE);
    OK(MPI_Status_set_cancelled(&status, 1));
    OK(MPI_Test_cancelled(&status, &value));
    CHECK(value);
    OK(MPI_Status_set_cancelled(&status, 0));
    OK(MPI_Test_cancelled(&status, &value));
    CHECK(!value);
    return finish();
}
