/* A program in the style of 2003 exchanges particles with functions that MPI-3.0 removed.
   ranks 1 2 3 */
#include "removed.h"

#define PARTICLES 10

typedef struct {
    int kind;
    double place[3];
    char name[5];
} Particle;

static int errors;

static void count_error(MPI_Comm *comm, int *code, ...) {
    errors++;
    (void)comm, (void)code;
}

static MPI_Datatype particle_type(void) {
    Particle particle;
    int lengths[3] = {1, 3, 5};
    MPI_Aint places[3], base;
    MPI_Datatype types[3] = {MPI_INT, MPI_DOUBLE, MPI_CHAR}, bare, type;
    MPI_Address(&particle, &base);
    MPI_Address(&particle.kind, &places[0]);
    MPI_Address(particle.place, &places[1]);
    MPI_Address(particle.name, &places[2]);
    for (int i = 0; i < 3; i++) places[i] -= base;
    OK(MPI_Type_struct(3, lengths, places, types, &bare));
    OK(MPI_Type_create_resized(bare, 0, sizeof(Particle), &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_Type_free(&bare));
    return type;
}

static void exchange_particles(MPI_Comm comm, int rank, int size) {
    static Particle out[PARTICLES], in[PARTICLES];
    MPI_Datatype type = particle_type(), every_second, chosen;
    MPI_Aint extent, lb, ub, two[2] = {sizeof(Particle), 7 * sizeof(Particle)};
    MPI_Status status;
    int ones[2] = {1, 1}, next = (rank + 1) % size, last = (rank + size - 1) % size;
    OK(MPI_Type_extent(type, &extent));
    OK(MPI_Type_lb(type, &lb));
    OK(MPI_Type_ub(type, &ub));
    CHECK(extent == sizeof(Particle) && lb == 0 && ub == sizeof(Particle));
    OK(MPI_Type_hvector(PARTICLES / 2, 1, 2 * extent, type, &every_second));
    OK(MPI_Type_commit(&every_second));
    OK(MPI_Type_hindexed(2, ones, two, type, &chosen));
    OK(MPI_Type_commit(&chosen));
    for (int i = 0; i < PARTICLES; i++) out[i] = (Particle){rank * 100 + i, {i, i + 0.5, rank}, "abcd"};
    OK(MPI_Sendrecv(out, 1, every_second, next, 0, in, PARTICLES / 2, type, last, 0, comm, &status));
    for (int i = 0; i < PARTICLES / 2; i++)
        CHECK(in[i].kind == last * 100 + 2 * i && in[i].place[2] == last && strcmp(in[i].name, "abcd") == 0);
    memset(in, 0, sizeof in);
    OK(MPI_Sendrecv(out, 2, type, next, 0, in, 1, chosen, last, 0, comm, &status));
    CHECK(in[0].kind == 0 && in[1].kind == last * 100 && in[7].kind == last * 100 + 1 && in[2].place[1] == 0);
    OK(MPI_Type_free(&chosen));
    OK(MPI_Type_free(&every_second));
    OK(MPI_Type_free(&type));
}

static void bounds_of_a_type_that_begins_elsewhere(void) {
    MPI_Datatype type;
    MPI_Aint lb, ub, extent;
    OK(MPI_Type_create_resized(MPI_INT, -4, 20, &type));
    OK(MPI_Type_lb(type, &lb));
    OK(MPI_Type_ub(type, &ub));
    OK(MPI_Type_extent(type, &extent));
    CHECK(lb == -4 && ub == 16 && extent == 20);
    OK(MPI_Type_free(&type));
}

static void handlers(MPI_Comm comm) {
    MPI_Errhandler handler, found;
    OK(MPI_Errhandler_create(count_error, &handler));
    OK(MPI_Errhandler_set(comm, handler));
    OK(MPI_Errhandler_get(comm, &found));
    CHECK(found == handler);
    MPI_Send(NULL, -1, MPI_INT, 0, 0, comm);
    CHECK(errors == 1);
    OK(MPI_Errhandler_set(comm, MPI_ERRORS_RETURN));
    OK(MPI_Errhandler_free(&found));
    OK(MPI_Errhandler_free(&handler));
}

int main(int argc, char **argv) {
    MPI_Comm comm;
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Errhandler_set(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Errhandler_set(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    exchange_particles(comm, rank, size);
    bounds_of_a_type_that_begins_elsewhere();
    handlers(comm);
    OK(MPI_Comm_free(&comm));
    return finish();
}
