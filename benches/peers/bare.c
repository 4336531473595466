/* A bare queue pair between ranks 0 and 1, measured alternately with the library, as
 * benches/src/limits/queue_pair.rs does with Farside, so that libraries can be compared by the time that they add to
 * the bare request of their own process. Compiled only with FARSIDE_VERBS. */
#include "peers.h"

#ifdef FARSIDE_VERBS
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORT = 1, INLINE = 64, READS = 4, TIMEOUT = 17, DEPTH = 64, PAGE = 4096, LOOKS = 100000000 };

struct endpoint {
    union ibv_gid gid;
    uint32_t number, key;
    uint64_t address;
};

static struct ibv_context *context;
static struct ibv_pd *domain;
static struct ibv_cq *completions;
static struct ibv_qp *pair;
static struct ibv_mr *memory;
static char *bytes; /* the other side accesses the first half; the second half is the source and target of requests */
static long half;
static struct endpoint there;
static int origin;

static void failed(const char *what) {
    fprintf(stderr, "peers: bare queue pair: cannot %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 4);
}

static void must(int holds, const char *what) {
    if (!holds)
        failed(what);
}

/* Opens the device that the library was set to use. */
static void open_device(void) {
    const char *name = getenv("UCX_NET_DEVICES");
    size_t length = name ? strcspn(name, ":") : 0;
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    must(list != NULL, "list devices");
    for (int i = 0; i < count && !context; i++)
        if (length == strlen(ibv_get_device_name(list[i])) && strncmp(name, ibv_get_device_name(list[i]), length) == 0)
            context = ibv_open_device(list[i]);
    ibv_free_device_list(list);
    must(context != NULL, "open the device");
}

int bare_open(const struct options *options, long room) {
    if (options->ranks != 2 || !options->single || !getenv("UCX_NET_DEVICES"))
        return 0;
    const char *index = getenv("UCX_IB_GID_INDEX");
    const uint8_t gid_index = (uint8_t)(index ? atoi(index) : 1);
    const int access =
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    struct ibv_port_attr port;
    origin = options->rank == 0;
    half = (room + PAGE - 1) / PAGE * PAGE;
    open_device();
    must(ibv_query_port(context, PORT, &port) == 0, "query the port");
    must((domain = ibv_alloc_pd(context)) != NULL, "allocate a protection domain");
    must((completions = ibv_create_cq(context, 2 * DEPTH, NULL, NULL, 0)) != NULL, "create a completion queue");
    struct ibv_qp_init_attr init = {.send_cq = completions, .recv_cq = completions, .qp_type = IBV_QPT_RC};
    init.cap = (struct ibv_qp_cap){.max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1,
                                   .max_inline_data = INLINE};
    must((pair = ibv_create_qp(domain, &init)) != NULL, "create a queue pair");
    must((bytes = aligned_alloc(PAGE, 2 * (size_t)half)) != NULL, "get memory");
    memset(bytes, 0, 2 * (size_t)half);
    must((memory = ibv_reg_mr(domain, bytes, 2 * (size_t)half, access)) != NULL, "register memory");
    struct endpoint own = {.number = pair->qp_num, .key = memory->rkey, .address = (uintptr_t)bytes};
    must(ibv_query_gid(context, PORT, gid_index, &own.gid) == 0, "query the GID");
    MPI_Sendrecv(&own, sizeof own, MPI_BYTE, 1 - options->rank, 7, &there, sizeof there, MPI_BYTE, 1 - options->rank, 7,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    struct ibv_qp_attr ready = {.qp_state = IBV_QPS_INIT, .port_num = PORT, .qp_access_flags = (unsigned)access};
    must(ibv_modify_qp(pair, &ready, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0,
         "prepare the queue pair");
    struct ibv_qp_attr receive = {.qp_state = IBV_QPS_RTR, .path_mtu = port.active_mtu, .dest_qp_num = there.number,
                                  .max_dest_rd_atomic = READS, .min_rnr_timer = 12};
    receive.ah_attr = (struct ibv_ah_attr){.grh = {.dgid = there.gid, .sgid_index = gid_index, .hop_limit = 64},
                                           .is_global = 1, .port_num = PORT};
    must(ibv_modify_qp(pair, &receive, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0, "connect");
    struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS, .timeout = TIMEOUT, .retry_cnt = 6, .rnr_retry = 6,
                               .max_rd_atomic = READS};
    must(ibv_modify_qp(pair, &send, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                        IBV_QP_MAX_QP_RD_ATOMIC) == 0, "connect");
    MPI_Barrier(MPI_COMM_WORLD);
    return 1;
}

void bare_close(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    ibv_destroy_qp(pair);
    ibv_dereg_mr(memory);
    ibv_destroy_cq(completions);
    ibv_dealloc_pd(domain);
    ibv_close_device(context);
    context = NULL;
    free(bytes);
}

static void post(const struct bare *bare) {
    struct ibv_sge piece = {.addr = (uintptr_t)bytes + (uintptr_t)half, .length = (uint32_t)bare->bytes, .lkey = memory->lkey};
    struct ibv_send_wr request = {.sg_list = &piece, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED};
    struct ibv_send_wr *bad = NULL;
    if (bare->action == BARE_FETCH_ADD) {
        request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        request.wr.atomic.remote_addr = there.address;
        request.wr.atomic.rkey = there.key;
        request.wr.atomic.compare_add = 1;
    } else {
        request.opcode = bare->action == BARE_WRITE ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
        request.wr.rdma.remote_addr = there.address;
        request.wr.rdma.rkey = there.key;
        request.send_flags |= bare->action == BARE_WRITE && bare->bytes <= INLINE ? IBV_SEND_INLINE : 0;
    }
    must(ibv_post_send(pair, &request, &bad) == 0, "post a request");
}

void bare_run(void *argument, long iterations) {
    const struct bare *bare = argument;
    must(bare->bytes <= half, "take a size that there is no room for");
    for (long i = 0; origin && i < iterations; i++) {
        for (int j = 0; j < bare->count; j++)
            post(bare);
        for (int j = 0; j < bare->count; j++) {
            struct ibv_wc wc;
            int found = 0;
            for (long looks = 0; found == 0 && looks < LOOKS; looks++)
                found = ibv_poll_cq(completions, 1, &wc);
            must(found == 1 && wc.status == IBV_WC_SUCCESS, "complete a request");
        }
    }
}

#else

int bare_open(const struct options *options, long room) {
    (void)options;
    (void)room;
    return 0;
}

void bare_close(void) {}

void bare_run(void *argument, long iterations) {
    (void)argument;
    (void)iterations;
}

#endif
