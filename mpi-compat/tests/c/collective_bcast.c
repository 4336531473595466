/* A broadcast from every root: short, long, and with another datatype of the same elements at the root.
   ranks 1 2 3 4 */
#include "check.h"

enum { LONG = 100000 };

int main(void) {
    static int data[LONG];
    int rank, size;
    MPI_Datatype every_other;
    start();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Type_vector(10, 1, 2, MPI_INT, &every_other));
    OK(MPI_Type_commit(&every_other));
    for (int root = 0; root < size; root++) {
        double one = rank == root ? root + 0.5 : -1;
        int counts[] = {0, 1, 1000, LONG};
        OK(MPI_Bcast(&one, 1, MPI_DOUBLE, root, MPI_COMM_WORLD));
        CHECK(one == root + 0.5);
        for (int c = 0; c < COUNT(counts); c++) {
            int right = 1;
            for (int i = 0; i < LONG; i++) data[i] = rank == root ? i * 7 + root : -1;
            OK(MPI_Bcast(data, counts[c], MPI_INT, root, MPI_COMM_WORLD));
            for (int i = 0; i < LONG; i++) right &= data[i] == (i < counts[c] || rank == root ? i * 7 + root : -1);
            CHECK(right);
        }
        for (int i = 0; i < 20; i++) data[i] = rank == root ? i : -1;
        if (rank == root) {
            OK(MPI_Bcast(data, 10, MPI_INT, root, MPI_COMM_WORLD));
        } else {
            OK(MPI_Bcast(data, 1, every_other, root, MPI_COMM_WORLD));
            for (int i = 0; i < 20; i++) CHECK(data[i] == (i % 2 == 0 ? i / 2 : -1));
        }
    }
    OK(MPI_Type_free(&every_other));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Bcast(NULL, 0, MPI_INT, 0, MPI_COMM_WORLD));
    return finish();
}
