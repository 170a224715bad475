/* How fast the tcp wire is on loopback, beside plain sockets in the same run.
 *
 * Two processes, each on a core of its own if there are two. "one way" sends messages of one size
 * and gets an answer of 4 bytes for each batch; "both ways" exchanges messages, each side sending
 * and receiving at once, as the phases of an all_reduce do. Rounds alternate between the two; the
 * median is printed, in GB/s for each direction, and the wire's over the sockets'.
 *
 *     TUTTI_KEY_FILE=build/tests.key build/bench/wire_speed [STREAMS]
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/wire/peers.h"
#include "core/base/alloc.h"

enum { ROUNDS = 9, BYTES_MAX = 64 << 20, BATCH_BYTES = 32 << 20 };

/* What both processes see: infos, and a barrier. */
typedef struct {
    _Atomic int is_there[TT_INFO_KINDS][2];
    unsigned char infos[TT_INFO_KINDS][2][TT_PEER_INFO_BYTES];
    _Atomic int arrived;
    struct sockaddr_in address;
} table_t;

typedef struct {
    int rank, barriers;
    table_t *table;
    tt_peers_t *peers;
    tt_wire_t wire;
    int fd;
    char *out, *in;
} side_t;

static tutti_status_t put(void *user, tt_info_kind_t kind, int rank, const void *info)
{
    table_t *table = user;
    memcpy(table->infos[kind][rank], info, tt_info_bytes(kind));
    table->is_there[kind][rank] = 1;
    return TUTTI_OK;
}

static tutti_status_t get(void *user, tt_info_kind_t kind, int rank, tt_deadline_t deadline,
                          void *info)
{
    const table_t *table = user;
    while (!table->is_there[kind][rank] && !tt_deadline_is_past(deadline)) {
        sched_yield();
    }
    memcpy(info, table->infos[kind][rank], tt_info_bytes(kind));
    return TUTTI_OK;
}

static void meet(side_t *side)
{
    side->table->arrived++;
    side->barriers += 2;
    while (side->table->arrived < side->barriers) {
        sched_yield();
    }
}

static void check(bool is_well, const char *what)
{
    if (!is_well) {
        fprintf(stderr, "wire_speed: %s: %s\n", what, tutti_last_error());
        exit(1);
    }
}

/* ---- the two ways to move bytes -------------------------------------------------------------- */

/* Sends and receives at once, until both are done. */
static void move_raw(side_t *side, size_t out, size_t in)
{
    for (size_t sent = 0, got = 0; sent < out || got < in;) {
        ssize_t n = 0, m = 0;
        if (sent < out) {
            n = send(side->fd, side->out + sent, out - sent, in > 0 ? MSG_DONTWAIT : 0);
            sent += n > 0 ? (size_t)n : 0;
        }
        if (got < in) {
            m = recv(side->fd, side->in + got, in - got, out > 0 ? MSG_DONTWAIT : 0);
            got += m > 0 ? (size_t)m : 0;
        }
        if (n <= 0 && m <= 0) {
            const short events = (short)((sent < out ? POLLOUT : 0) | (got < in ? POLLIN : 0));
            (void)poll(&(struct pollfd){.fd = side->fd, .events = events}, 1, 1000);
        }
    }
}

static void move_wire(side_t *side, size_t out, size_t in)
{
    const tt_wire_ops_t *ops = side->wire.ops;
    tt_idle_t idle = {0};
    for (size_t sent = 0, got = 0; sent < out || got < in;) {
        size_t n = 0, m = 0;
        if (sent < out) {
            const tt_span_t span = {side->out + sent, out - sent};
            check(ops->send(side->wire.state, &span, 1, &n) == TUTTI_OK, "send");
            sent += n;
        }
        if (got < in) {
            check(ops->recv(side->wire.state, side->in + got, in - got, &m) == TUTTI_OK, "recv");
            got += m;
        }
        if (n == 0 && m == 0) {
            tt_peers_progress(side->peers);
            tt_peers_idle(side->peers, &idle, TT_NEVER);
        } else {
            tt_peers_idle_end(side->peers, &idle);
            idle = (tt_idle_t){0};
        }
    }
    tt_peers_idle_end(side->peers, &idle);
}

typedef void (*move_t)(side_t *side, size_t out, size_t in);

/* GB/s of one batch of messages. */
static double run(side_t *side, move_t move, size_t bytes, bool is_both_ways)
{
    const int count = (int)(BATCH_BYTES / bytes > 0 ? BATCH_BYTES / bytes : 1);
    meet(side);
    const int64_t start_ns = tt_clock_ns();
    for (int i = 0; i < count; i++) {
        const bool is_sender = side->rank == 0;
        move(side, is_both_ways || is_sender ? bytes : 0, is_both_ways || !is_sender ? bytes : 0);
    }
    move(side, side->rank == 1 ? 4 : 0, side->rank == 0 ? 4 : 0);
    return (double)bytes * count / (double)(tt_clock_ns() - start_ns);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(side_t *side, size_t bytes, bool is_both_ways)
{
    double raw[ROUNDS], wire[ROUNDS], ratio[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        raw[i] = run(side, move_raw, bytes, is_both_ways);
        wire[i] = run(side, move_wire, bytes, is_both_ways);
        ratio[i] = wire[i] / raw[i];
    }
    qsort(raw, ROUNDS, sizeof *raw, compare);
    qsort(wire, ROUNDS, sizeof *wire, compare);
    qsort(ratio, ROUNDS, sizeof *ratio, compare);
    if (side->rank == 0) {
        printf("%10zu  %-9s  %7.2f  %7.2f  %6.2f\n", bytes, is_both_ways ? "both ways" : "one way",
               raw[ROUNDS / 2], wire[ROUNDS / 2], ratio[ROUNDS / 2]);
    }
}

/* ---- two processes --------------------------------------------------------------------------- */

static void connect_raw(side_t *side)
{
    socklen_t bytes = sizeof side->table->address;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr *address = (struct sockaddr *)&side->table->address;
    if (side->rank == 0) {
        side->table->address.sin_family = AF_INET;
        side->table->address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        check(bind(fd, address, bytes) == 0 && listen(fd, 1) == 0, "listen");
        check(getsockname(fd, address, &bytes) == 0, "getsockname");
    }
    meet(side);
    if (side->rank == 0) {
        side->fd = accept(fd, NULL, NULL);
        close(fd);
    } else {
        check(connect(fd, address, bytes) == 0, "connect");
        side->fd = fd;
    }
    setsockopt(side->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

static void connect_wire(side_t *side)
{
    const tt_peers_options_t options = {
        .rank = side->rank,
        .size = 2,
        .directory = {.put = put, .get = get, .user = side->table},
        .wires = "tcp",
    };
    check(tt_peers_join(&options, tt_deadline_in_ms(10000), &side->peers) == TUTTI_OK, "join");
    check(tt_peers_open_wire(side->peers, 1 - side->rank, 1, &side->wire) == TUTTI_OK, "open");
}

static void live(side_t *side)
{
    cpu_set_t cpus, mine;
    CPU_ZERO(&mine);
    sched_getaffinity(0, sizeof cpus, &cpus);
    for (int i = 0, seen = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &cpus) && seen++ == side->rank) {
            CPU_SET(i, &mine);
        }
    }
    side->out = tt_alloc(BYTES_MAX, "bench");
    side->in = tt_alloc(BYTES_MAX, "bench");
    connect_raw(side);
    connect_wire(side);
    if (CPU_COUNT(&cpus) > 1) {
        sched_setaffinity(0, sizeof mine, &mine);
    }
    for (size_t bytes = 4 << 10; bytes <= 16 << 20; bytes *= 4) {
        measure(side, bytes, false);
        measure(side, bytes, true);
    }
    meet(side);
    tt_wire_close(&side->wire);
    tt_peers_release(side->peers);
    tt_free(side->out);
    tt_free(side->in);
}

int main(int argc, char **argv)
{
    side_t side = {0};
    side.table =
        mmap(NULL, sizeof *side.table, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(side.table != MAP_FAILED, "memory");
    if (argc > 1) {
        setenv("TUTTI_TCP_STREAMS", argv[1], 1);
    }
    printf("%10s  %-9s  %7s  %7s  %6s\n", "bytes", "", "sockets", "wire", "ratio");
    fflush(stdout);
    const pid_t child = fork();
    side.rank = child == 0;
    live(&side);
    if (child > 0) {
        int status;
        waitpid(child, &status, 0);
    }
    return 0;
}
