/* The difference between the greatest and the smallest dimension is the least of all grids, dimensions do not
   increase, and given ones stay; also for the largest numbers of ranks.
   not on peers: not promised for numbers of this size */
#include "check.h"

/* The least spread of n in 3 dimensions. */
static int least_spread(int n) {
    int best = n;
    for (int x = 1; x <= n; x++)
        for (int y = 1; n % x == 0 && y <= x && y * y <= n; y++) {
            int z = n / x / y;
            /* y is the smallest. */
            if (n / x % y == 0 && z <= x && y <= z && x - y < best) best = x - y;
        }
    return best;
}

static void check_large(int n, int dims, int spread) {
    int d[40] = {0}, rest = n;
    OK(MPI_Dims_create(n, dims, d));
    for (int i = 0; i < dims; i++) {
        CHECK(d[i] > 0 && rest % d[i] == 0 && (i == 0 || d[i] <= d[i - 1]));
        rest /= d[i];
    }
    CHECK(rest == 1 && d[0] - d[dims - 1] == spread);
}

int main(void) {
    start();
    for (int n = 1; n <= rounds(4096); n++) {
        int d[3] = {0, 0, 0}, given[4] = {0, 7, 0, 0};
        OK(MPI_Dims_create(n, 3, d));
        CHECK(d[0] >= d[1] && d[1] >= d[2] && d[0] * d[1] * d[2] == n && d[0] - d[2] == least_spread(n));
        OK(MPI_Dims_create(7 * n, 4, given));
        CHECK(given[1] == 7 && given[0] == d[0] && given[2] == d[1] && given[3] == d[2]);
    }
    int apart[] = {7488, 19008, 24624, 34425};
    for (int i = 0; i < COUNT(apart); i++) check_large(apart[i], 3, least_spread(apart[i]));
    /* A number with 1536 divisors, the greatest prime, and powers. */
    check_large(2095133040, 2, 829);
    check_large(2095133040, 4, 12);
    check_large(2095133040, 8, 8);
    check_large(2095133040, 15, 18);
    check_large(2147483647, 3, 2147483646);
    check_large(1 << 30, 40, 1);
    check_large(1 << 30, 15, 0);
    check_large(1, 40, 0);
    return finish();
}
