/* A structure with a gap on both sides.
   ranks 1 2 3 4 */
#include "rma.h"

int main(void) {
    struct record { char letter; double number; int count; } *memory, record = {0};
    int lens[3] = {1, 1, 1};
    MPI_Aint places[3] = {offsetof(struct record, letter), offsetof(struct record, number), offsetof(struct record, count)};
    MPI_Datatype types[3] = {MPI_CHAR, MPI_DOUBLE, MPI_INT}, packed, type;
    start();
    me = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    OK(MPI_Type_create_struct(3, lens, places, types, &packed));
    OK(MPI_Type_create_resized(packed, 0, sizeof(struct record), &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_Type_free(&packed));
    OK(MPI_Win_allocate(3 * sizeof(struct record), sizeof(struct record), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
    memset(memory, 0, 3 * sizeof(struct record));
    FENCE();
    record.letter = 'a' + me;
    record.number = me / 4.0;
    record.count = me;
    OK(MPI_Put(&record, 1, type, right(), 2, 1, type, win));
    FENCE();
    CHECK(memory[2].letter == 'a' + left() && memory[2].number == left() / 4.0 && memory[2].count == left());
    CHECK(memory[1].letter == 0 && memory[1].number == 0);
    OK(MPI_Type_free(&type));
    return done();
}
