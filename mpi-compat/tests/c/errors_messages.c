/* The string of a code names the function, the argument and the value.
   not on peers: the words are those of this library */
#include "check.h"

static void show(int code) {
    char text[MPI_MAX_ERROR_STRING];
    int length;
    OK(MPI_Error_string(code, text, &length));
    printf("%s\n", text);
}

static void expect(int code, const char *part) {
    char text[MPI_MAX_ERROR_STRING];
    int length;
    OK(MPI_Error_string(code, text, &length));
    CHECK(strstr(text, part) != NULL);
    if (strstr(text, part) == NULL) show(code);
}

int main(void) {
    int n;
    MPI_Datatype type;
    MPI_Group group, some;
    start();
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    expect(MPI_Comm_rank(MPI_COMM_NULL, &n), "MPI_Comm_rank: comm (0x100) is MPI_COMM_NULL");
    expect(MPI_Comm_rank(MPI_COMM_WORLD, NULL), "MPI_Comm_rank: rank is a null pointer");
    expect(MPI_Type_contiguous(-2, MPI_INT, &type), "MPI_Type_contiguous: count is -2");
    expect(MPI_Type_contiguous_c(-2, MPI_INT, &type), "MPI_Type_contiguous_c: count is -2");
    expect(MPI_Group_compare(group, MPI_GROUP_NULL, &n), "group2 (0x108) is MPI_GROUP_NULL");
    expect(MPI_Group_incl(group, 1, (int[]){9}, &some), "ranks contains 9");
    expect(MPI_Barrier(MPI_COMM_NULL), "MPI_Barrier");
    return finish();
}
