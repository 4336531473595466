/* Random updates, and a hash table in dynamic memory: the programs that benches/peers measures, once each.
   ranks 2 3 4 */
#include "check.h"

#include "../../../benches/peers/irregular.c"

void check(int holds, const char *suite, const char *sync, const char *op, const char *reason) {
    if (holds) return;
    failures++;
    printf("FAILED %s, %s, %s: %s\n", suite, sync, op, reason);
}

long measure(const struct options *options, const struct what *what, body run, void *argument, int counts) {
    (void)options, (void)what, (void)counts;
    run(argument, 1);
    return 1;
}

int main(void) {
    struct options options = {0};
    start();
    options.rank = rank_of(MPI_COMM_WORLD);
    MPI_Comm_size(MPI_COMM_WORLD, &options.ranks);
    run_irregular(&options);
    return finish();
}
