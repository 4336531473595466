/* Basic elements of a struct of which only part was received. */
#include "check.h"

int main(void) {
    MPI_Status status;
    MPI_Datatype type;
    int count;
    start();
    memset(&status, 0, sizeof status);
    struct { double d[2]; int i; char c[3]; } one;
    MPI_Aint places[] = {offsetof(__typeof__(one), d), offsetof(__typeof__(one), i), offsetof(__typeof__(one), c)};
    OK(MPI_Type_create_struct(3, (int[]){2, 1, 3}, places, (MPI_Datatype[]){MPI_DOUBLE, MPI_INT, MPI_CHAR}, &type));
    OK(MPI_Type_commit(&type));
    /* 23 bytes and 6 elements each. */
    for (int n = 0; n <= 14; n++) {
        int elements = -1;
        OK(MPI_Status_set_elements(&status, type, n));
        OK(MPI_Get_elements(&status, type, &elements));
        OK(MPI_Get_count(&status, type, &count));
        CHECK(elements == n);
        CHECK(count == (n % 6 == 0 ? n / 6 : MPI_UNDEFINED));
    }
    OK(MPI_Status_set_elements(&status, MPI_BYTE, 10));
    OK(MPI_Get_elements(&status, type, &count));
    CHECK(count == MPI_UNDEFINED);
    OK(MPI_Type_free(&type));
    return finish();
}
