// The limit of the device ofi: a provider of libfabric alone, between two processes of this machine that poll.
//
//   cc -O2 benches/src/limits/ofi.c -o ofi -lfabric && ./ofi PROVIDER [BYTES [BLOCKS]]
//
// Prints the medians, in microseconds, of a write that is complete when it is visible at the target (where the provider
// has that: FI_DELIVERY_COMPLETE), of a read, and of half a round trip of messages. The provider is asked for what the
// device asks for. Debian: libfabric-dev.
#define _GNU_SOURCE
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ADDRESS = 512, IN_BLOCK = 200, MAX_BYTES = 1 << 20, MAX_BLOCKS = 1000 };

static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_cq *cq;
static struct fid_av *av;
static struct fid_ep *ep;
static struct fid_mr *mr;
static char *memory; // the peer's half, then what is sent, then what is received
static fi_addr_t peer;
static uint64_t remote_address, remote_key, delivery = FI_DELIVERY_COMPLETE;
static struct fi_context2 contexts[2];
static int done[2]; // completions of operations, and of receives
static size_t bytes = 8;

static void check(const char *call, long code) {
    if (code < 0) {
        fprintf(stderr, "%s: %s\n", call, fi_strerror((int)-code));
        exit(2);
    }
}

static void progress(void) {
    struct fi_cq_msg_entry entries[8];
    ssize_t count = fi_cq_read(cq, entries, 8);
    if (count == -FI_EAGAIN) return;
    check("fi_cq_read", count);
    for (ssize_t i = 0; i < count; i++) done[entries[i].op_context == &contexts[1]]++;
}

static void await(int which) {
    while (!done[which]) progress();
    done[which]--;
}

// Repeats a call while the provider has no room.
#define POST(call)                                                                                                     \
    do {                                                                                                               \
        ssize_t code;                                                                                                  \
        while ((code = (call)) == -FI_EAGAIN) progress();                                                              \
        check(#call, code);                                                                                            \
    } while (0)

static void open_endpoint(const char *provider) {
    struct fi_info *hints = fi_allocinfo();
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->fabric_attr->prov_name = strdup(provider);
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->tx_attr->op_flags = delivery;
    if (fi_getinfo(FI_VERSION(1, 11), NULL, NULL, 0, hints, &info) < 0) {
        hints->tx_attr->op_flags = delivery = 0;
        check("fi_getinfo", fi_getinfo(FI_VERSION(1, 11), NULL, NULL, 0, hints, &info));
    }
    info->tx_attr->op_flags = 0;
    check("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
    check("fi_domain", fi_domain(fabric, info, &domain, NULL));
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD};
    if (fi_cq_open(domain, &cq_attr, &cq, NULL) < 0) {
        cq_attr.wait_obj = FI_WAIT_NONE;
        check("fi_cq_open", fi_cq_open(domain, &cq_attr, &cq, NULL));
    }
    struct fi_av_attr av_attr = {0};
    check("fi_av_open", fi_av_open(domain, &av_attr, &av, NULL));
    check("fi_endpoint", fi_endpoint(domain, info, &ep, NULL));
    check("fi_ep_bind", fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
    check("fi_ep_bind", fi_ep_bind(ep, &av->fid, 0));
    check("fi_enable", fi_enable(ep));
    memory = aligned_alloc(4096, 3 * MAX_BYTES);
    memset(memory, 1, 3 * MAX_BYTES);
    uint64_t access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    check("fi_mr_reg", fi_mr_reg(domain, memory, 3 * MAX_BYTES, access, 0, 1, 0, &mr, NULL));
    if (info->domain_attr->mr_mode & FI_MR_ENDPOINT) {
        check("fi_mr_bind", fi_mr_bind(mr, &ep->fid, 0));
        check("fi_mr_enable", fi_mr_enable(mr));
    }
}

static void transfer(int write) {
    struct iovec local = {memory + MAX_BYTES, bytes};
    struct fi_rma_iov remote = {remote_address, bytes, remote_key};
    void *desc = fi_mr_desc(mr);
    struct fi_msg_rma message = {&local, &desc, 1, peer, &remote, 1, &contexts[0], 0};
    if (write) {
        POST(fi_writemsg(ep, &message, FI_COMPLETION | delivery));
    } else {
        POST(fi_readmsg(ep, &message, FI_COMPLETION));
    }
    await(0);
}

static void post_receive(void) {
    POST(fi_recv(ep, memory + 2 * MAX_BYTES, MAX_BYTES, fi_mr_desc(mr), FI_ADDR_UNSPEC, &contexts[1]));
}

static void send_message(void) {
    POST(fi_send(ep, memory + MAX_BYTES, bytes, fi_mr_desc(mr), peer, &contexts[0]));
}

static void receive(void) {
    await(1);
    post_receive();
}

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: ofi PROVIDER [BYTES [BLOCKS]]\n");
        return 2;
    }
    if (argc > 2) bytes = strtoul(argv[2], NULL, 10);
    int blocks = argc > 3 ? atoi(argv[3]) : 31;
    if (bytes < 1 || bytes > MAX_BYTES || blocks < 1 || blocks > MAX_BLOCKS) {
        fprintf(stderr, "BYTES are 1 to %d, BLOCKS 1 to %d\n", MAX_BYTES, MAX_BLOCKS);
        return 2;
    }
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 2;
    int is_child = fork() == 0, end = ends[is_child];
    close(ends[!is_child]);
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(is_child, &core);
    sched_setaffinity(0, sizeof core, &core); // with one core both share it
    open_endpoint(argv[1]);
    struct {
        char address[ADDRESS];
        uint64_t at, key;
    } own = {{0}, 0, 0}, other;
    size_t length = ADDRESS;
    check("fi_getname", fi_getname(&ep->fid, own.address, &length));
    own.at = info->domain_attr->mr_mode & FI_MR_VIRT_ADDR ? (uintptr_t)memory : 0;
    own.key = fi_mr_key(mr);
    post_receive();
    if (write(end, &own, sizeof own) != sizeof own) return 2;
    if (recv(end, &other, sizeof other, MSG_WAITALL) != sizeof other) return 2;
    if (fi_av_insert(av, other.address, 1, &peer, 0, NULL) != 1) return 2;
    remote_address = other.at;
    remote_key = other.key;
    if (is_child) {
        for (int i = 0; i < (1 + blocks) * IN_BLOCK; i++) {
            receive();
            send_message();
            await(0);
        }
        char byte;
        while (recv(end, &byte, 1, MSG_DONTWAIT) < 0) progress();
        return 0;
    }
    static double us[3][MAX_BLOCKS];
    for (int block = -1; block < blocks; block++) { // the first block connects
        double times[4] = {now_us()};
        for (int i = 0; i < IN_BLOCK; i++) {
            send_message();
            await(0);
            receive();
        }
        times[1] = now_us();
        for (int i = 0; i < IN_BLOCK; i++) transfer(1);
        times[2] = now_us();
        for (int i = 0; i < IN_BLOCK; i++) transfer(0);
        times[3] = now_us();
        for (int i = 0; i < 3 && block >= 0; i++) us[i][block] = (times[i + 1] - times[i]) / IN_BLOCK / (i == 0 ? 2 : 1);
    }
    if (write(end, "", 1) != 1) return 2;
    for (int i = 0; i < 3; i++) qsort(us[i], blocks, sizeof us[i][0], ascending);
    printf("%s, %zu B: write%s %.2f us, read %.2f us, message %.2f us\n", argv[1], bytes,
           delivery ? " until delivered" : "", us[1][blocks / 2], us[2][blocks / 2], us[0][blocks / 2]);
    fi_close(&ep->fid);
    return 0;
}
