/* A struct in external32 has its elements one after the other, without padding.
   not on peers: MPICH crashes */
#include "check.h"

int main(void) {
    struct one { char c; double d; short s; } in[2] = {{'a', 1.5, 3}, {'b', -2, -4}}, out[2];
    unsigned char bytes[64];
    MPI_Aint position = 0, size;
    MPI_Datatype parts, type;
    start();
    memset(out, 0, sizeof out);
    OK(MPI_Type_create_struct(3, (int[]){1, 1, 1},
        (MPI_Aint[]){offsetof(struct one, c), offsetof(struct one, d), offsetof(struct one, s)},
        (MPI_Datatype[]){MPI_CHAR, MPI_DOUBLE, MPI_SHORT}, &parts));
    OK(MPI_Type_create_resized(parts, 0, sizeof(struct one), &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_Pack_external_size("external32", 2, type, &size));
    CHECK(size == 22);
    OK(MPI_Pack_external("external32", in, 2, type, bytes, sizeof bytes, &position));
    CHECK(position == 22);
    for (int i = 0; i < 22; i++) printf("%02x ", bytes[i]);
    printf("\n");
    position = 0;
    OK(MPI_Unpack_external("external32", bytes, 22, &position, out, 2, type));
    for (int i = 0; i < 2; i++) CHECK(in[i].c == out[i].c && in[i].d == out[i].d && in[i].s == out[i].s);
    OK(MPI_Type_free(&parts));
    OK(MPI_Type_free(&type));
    return finish();
}
