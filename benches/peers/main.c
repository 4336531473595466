/* Arguments and the order of the suites. */
#include "peers.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char USAGE[] =
    "usage: peers [--quick] [--suites LIST] [--windows LIST] [--sizes LIST] [--counts LIST] [--budget-ms N]\n"
    "             [--single] [--packets] [--messages LIST] [--operations LIST]\n"
    "  --quick      fewer sizes and shorter blocks\n"
    "  --suites     of epoch,op,am,barrier,ghost (all), pack, put, coll, two-sided, irregular\n"
    "  --windows    of allocated,user (both)\n"
    "  --sizes      bytes of puts and gets, ascending (8,64,1024,8192,65536,1048576)\n"
    "  --counts     integers per neighbour in the ghost-area exchange, ascending (1,4,16,..,65536)\n"
    "  --budget-ms  time for the blocks of one measurement (120; quick: 25); eight times that with --single\n"
    "  --single     suite op: the time of every single iteration, in place of blocks\n"
    "  --packets    packets of each epoch or operation, from the counters of this machine's RDMA devices\n"
    "  --messages   suites pack and put: SHAPE:BYTES,.. of benches/src/shapes.rs\n"
    "  --operations suite coll: of barrier,broadcast,..; see coll.c\n"
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

/* Sets the flag of every name in `text`; false if a name is unknown. */
static int parse_names(const char *text, const char *const *names, int *const *flags, int length) {
    for (int i = 0; i < length; i++)
        *flags[i] = 0;
    while (*text) {
        size_t end = strcspn(text, ",");
        int found = 0;
        for (int i = 0; i < length; i++)
            if (strlen(names[i]) == end && strncmp(names[i], text, end) == 0)
                *flags[i] = found = 1;
        if (!found)
            return 0;
        text += end + (text[end] == ',');
    }
    return 1;
}

static void parse(struct options *o, int argc, char **argv) {
    static const char *const suites[] = {"epoch", "op", "am", "barrier", "ghost", "pack", "put", "coll", "two-sided", "irregular"}, *const windows[] = {"allocated", "user"};
    int *const suite_flags[] = {&o->epoch, &o->op, &o->am, &o->barrier, &o->ghost, &o->pack, &o->put, &o->coll, &o->two_sided, &o->irregular};
    int *const window_flags[] = {&o->allocated, &o->user};
    int quick = 0;
    for (int i = 1; i < argc; i++)
        quick |= strcmp(argv[i], "--quick") == 0;
    o->messages = o->operations = "";
    o->epoch = o->op = o->am = o->barrier = o->ghost = o->allocated = o->user = 1;
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
        int good = strcmp(name, "--suites") == 0    ? parse_names(text, suites, suite_flags, 10)
                   : strcmp(name, "--windows") == 0 ? parse_names(text, windows, window_flags, 2)
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
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &options.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &options.ranks);
    parse(&options, argc, argv);
    bind_to_core(options.rank);
    if (options.pack)
        run_pack(&options, options.messages);
    if (!(options.epoch || options.op || options.am || options.barrier || options.ghost || options.put || options.coll || options.two_sided || options.irregular)) {
        MPI_Finalize();
        return 0;
    }
    if (options.ranks % 2 != 0)
        refuse(options.rank, "odd number of ranks", "");
    static const char *const kinds[] = {"allocated", "user"};
    const int wanted[] = {options.allocated, options.user};
    run_messages(&options);
    if (options.ghost)
        run_ghost_twosided(&options);
    if (options.two_sided)
        run_two_sided(&options);
    if (options.irregular)
        run_irregular(&options);
    if (options.coll)
        run_collectives(&options);
    if (options.put)
        run_alltoall(&options);
    for (int i = 0; i < 2; i++) {
        if (!wanted[i])
            continue;
        if (options.epoch)
            run_epochs(&options, kinds[i]);
        if (options.op)
            run_operations(&options, kinds[i]);
        if (options.ghost)
            run_ghost(&options, kinds[i]);
        if (options.put)
            run_put(&options, kinds[i]);
    }
    MPI_Finalize();
    return 0;
}
