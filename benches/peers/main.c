/* Arguments and the order of the suites. */
#include "peers.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char SUITES[] = "epoch,op,am,barrier,ghost,pack,put,coll,two-sided,irregular,loops,threads";
static const char USAGE[] =
    "usage: peers [--quick] [--suites LIST] [--windows LIST] [--sizes LIST] [--counts LIST] [--budget-ms N]\n"
    "             [--single] [--packets] [--messages LIST] [--operations LIST]\n"
    "  --quick      fewer sizes and shorter blocks\n"
    "  --suites     of epoch,op,am,barrier,ghost (all), pack, put, coll, two-sided, irregular, loops, threads\n"
    "  --windows    of allocated,user (both)\n"
    "  --sizes      bytes of puts and gets, ascending; suite threads: threads (8,64,1024,8192,65536,1048576)\n"
    "  --counts     integers per neighbour in the ghost-area exchange, ascending (1,4,16,..,65536)\n"
    "  --budget-ms  time for the blocks of one measurement (120; quick: 25); eight times that with --single\n"
    "  --single     suite op: the time of every single iteration, in place of blocks\n"
    "  --packets    packets of each epoch or operation, from the counters of this machine's RDMA devices\n"
    "  --messages   suites pack and put: SHAPE:BYTES,.. of benches/src/shapes.rs\n"
    "  --operations suites coll and loops: of barrier,broadcast,..; see coll.c, loops.c\n"
    "An even number of ranks is needed but for pack.\n";

static void refuse(int rank, const char *why, const char *what) {
    if (rank == 0)
        fprintf(stderr, "peers: %s%s\n%s", why, what, USAGE);
    MPI_Finalize();
    exit(2);
}

/* Numbers, ascending, each from 1 to `most`. */
static int parse_list(const char *text, struct list *list, long most) {
    list->length = 0;
    while (*text) {
        char *end;
        long value = strtol(text, &end, 10);
        if (end == text || (*end && *end != ',') || value < 1 || value > most || list->length == LIST_MAX ||
            (list->length > 0 && value <= list->value[list->length - 1]))
            return 0;
        list->value[list->length++] = value;
        text = *end ? end + 1 : end;
    }
    return list->length > 0;
}

int is_listed(const char *list, const char *name) {
    const size_t length = strlen(name);
    for (; *list; list += strcspn(list, ","), list += *list == ',')
        if (strcspn(list, ",") == length && strncmp(list, name, length) == 0)
            return 1;
    return 0;
}

/* Whether every name of a list is in `known`. */
static int are_listed(const char *known, const char *names) {
    char name[16];
    for (int used; sscanf(names, "%15[^,]%n", name, &used) == 1; names += used, names += *names == ',')
        if (!is_listed(known, name))
            return 0;
    return *names == 0;
}

static void parse(struct options *o, int argc, char **argv) {
    int quick = 0;
    for (int i = 1; i < argc; i++)
        quick |= strcmp(argv[i], "--quick") == 0;
    o->messages = o->operations = "";
    o->suites = "epoch,op,am,barrier,ghost";
    o->windows = "allocated,user";
    o->budget_s = quick ? 0.025 : 0.12;
    o->blocks = quick ? 5 : 11;
    parse_list(quick ? "8,65536,1048576" : "8,64,1024,8192,65536,1048576", &o->bytes, 1L << 28);
    parse_list(quick ? "1,256,16384" : "1,4,16,64,256,1024,4096,16384,65536", &o->counts, 131072);
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *text = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(name, "--quick") == 0)
            continue;
        if (strcmp(name, "--single") == 0 || strcmp(name, "--packets") == 0) {
            *(strcmp(name, "--single") == 0 ? &o->single : &o->packets) = 1;
            continue;
        }
        int good = strcmp(name, "--suites") == 0    ? are_listed(SUITES, o->suites = text)
                   : strcmp(name, "--windows") == 0 ? are_listed("allocated,user", o->windows = text)
                   : strcmp(name, "--sizes") == 0   ? parse_list(text, &o->bytes, 1L << 28)
                   : strcmp(name, "--counts") == 0  ? parse_list(text, &o->counts, 262144)
                   : strcmp(name, "--messages") == 0 ? (o->messages = text)[0] != 0
                   : strcmp(name, "--operations") == 0 ? (o->operations = text)[0] != 0
                   : strcmp(name, "--budget-ms") == 0 ? (o->budget_s = atof(text) / 1e3) > 0
                                                      : 0;
        if (!good)
            refuse(o->rank, "cannot use ", name);
        i++;
    }
    if (o->single)
        o->budget_s *= 8; /* as Budget::of in benches/src/measure/mod.rs */
}

/* Like bind_to_nth() in benches/src/cores.rs: each rank on a core, in turn if there are more ranks. Called after
 * MPI_Init, which counts the cores. All ranks are on this machine. */
static void bind_to_core(int rank) {
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    int turn = rank % CPU_COUNT(&all), core = 0;
    while (!CPU_ISSET(core, &all) || turn-- > 0)
        core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        perror("farside-peers: bind to a core");
}

int main(int argc, char **argv) {
    struct options options;
    memset(&options, 0, sizeof options);
    int with_threads = 0, level;
    for (int i = 1; i + 1 < argc; i++)
        with_threads |= strcmp(argv[i], "--suites") == 0 && strcmp(argv[i + 1], "threads") == 0;
    /* Other measurements are those of programs with one thread. */
    if (with_threads)
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    else
        MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &options.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &options.ranks);
    parse(&options, argc, argv);
    bind_to_core(options.rank);
    if (is_listed(options.suites, "pack"))
        run_pack(&options);
    if (options.ranks % 2 != 0 && strcmp(options.suites, "pack") != 0)
        refuse(options.rank, "odd number of ranks", "");
    run_messages(&options);
    static const struct {
        const char *name;
        void (*run)(const struct options *);
    } without_window[] = {{"ghost", run_ghost_twosided}, {"two-sided", run_two_sided}, {"irregular", run_irregular},
                          {"loops", run_loops}, {"threads", run_threads}, {"coll", run_collectives}, {"put", run_alltoall}};
    for (size_t i = 0; i < sizeof without_window / sizeof without_window[0]; i++)
        if (is_listed(options.suites, without_window[i].name))
            without_window[i].run(&options);
    static const struct {
        const char *name;
        void (*run)(const struct options *, const char *kind);
    } of_window[] = {{"epoch", run_epochs}, {"op", run_operations}, {"ghost", run_ghost}, {"put", run_put}};
    static const char *const kinds[] = {"allocated", "user"};
    for (size_t i = 0; i < 2; i++)
        for (size_t j = 0; j < 4 && is_listed(options.windows, kinds[i]); j++)
            if (is_listed(options.suites, of_window[j].name))
                of_window[j].run(&options, kinds[i]);
    MPI_Finalize();
    return 0;
}
