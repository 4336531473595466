/* Every class is its own code and has a string that fits MPI_MAX_ERROR_STRING. */
#include "check.h"

int main(void) {
    start();
    for (int class = MPI_SUCCESS; class <= MPI_ERR_ABI; class++) {
        char text[MPI_MAX_ERROR_STRING];
        int length = -1, back = -1;
        OK(MPI_Error_class(class, &back));
        CHECK(back == class);
        OK(MPI_Error_string(class, text, &length));
        CHECK(length > 0 && length < MPI_MAX_ERROR_STRING && (size_t)length == strlen(text));
    }
    CHECK(MPI_ERR_ABI <= MPI_ERR_LASTCODE);
    return finish();
}
