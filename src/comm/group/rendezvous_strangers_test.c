/* A thousand strangers at the Unix sockets by which the ranks of a host meet: where rank 0 hands
 * the store over, whose name can be known, and where ranks share memory. Whatever they do, the job
 * begins; how long that takes is printed. */
#include <poll.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/group.h>

#include <xxhash.h>

#include "comm/rendezvous/rendezvous.h"
#include "comm/net/free_port_test.h"
#include "comm/net/socket.h"
#include "comm/net/strangers_test.h"
#include "comm/net/unix_socket.h"
#include "comm/wire/peers_team_test.h"

enum { RANKS = 3, GUARD_MS = 10000 }; /* some 100 ms are usual */

/* Where the ranks of tcp://127.0.0.1:PORT meet, as rendezvous_host.c names it. */
static void name_meeting(int port, char name[80])
{
    char job[40];
    snprintf(job, sizeof job, "tcp port %d/world", port);
    const XXH128_hash_t hash = XXH3_128bits(job, strlen(job));
    snprintf(name, 80, "tutti-meet-%u-%016llx%016llx", (unsigned)geteuid(),
             (unsigned long long)hash.high64, (unsigned long long)hash.low64);
}

/* Whether there is an abstract socket of this name, by /proc/net/unix. */
static bool has_socket(const char *name)
{
    char line[256];
    FILE *list = fopen("/proc/net/unix", "re");
    assert_non_null(list);
    bool is_found = false;
    while (!is_found && fgets(line, sizeof line, list) != NULL) {
        const char *at = strchr(line, '@');
        is_found = at != NULL && strncmp(at + 1, name, strlen(name)) == 0;
    }
    fclose(list);
    return is_found;
}

static void show(const char *where, tt_strangers_kind_t kind, int64_t start_ns)
{
    const int64_t took_ms = (tt_clock_ns() - start_ns) / TT_NS_PER_MS;
    print_message("%s, %d strangers, %s: %lld ms\n", where, TT_STRANGERS, tt_strangers_name(kind),
                  (long long)took_ms);
    assert_true(took_ms < GUARD_MS);
}

/* ---- where the store is handed over ---- */

static int meet(const char *url, int rank)
{
    tutti_group_t *world;
    const tutti_init_options_t options = {
        .url = url, .rank = rank, .world_size = RANKS, .timeout_ms = 30000};
    if (tutti_init(&options, &world) < 0) {
        fprintf(stderr, "rank %d: %s\n", rank, tutti_last_error());
        return 1;
    }
    tutti_group_release(world);
    return 0;
}

static pid_t start_rank(const char *url, int rank)
{
    const pid_t child = fork();
    if (child == 0) {
        _exit(meet(url, rank));
    }
    return child;
}

static void hand_over_among(tt_strangers_kind_t kind)
{
    char url[64], name[80];
    static tt_strangers_t strangers;
    pid_t ranks[RANKS];
    int held;
    const int port = tt_hold_port(&held);
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", port);
    name_meeting(port, name);
    strangers = (tt_strangers_t){.kind = kind, .type = SOCK_SEQPACKET};
    ranks[0] = start_rank(url, 0);
    const tt_deadline_t deadline = tt_deadline_in_ms(GUARD_MS);
    while (!has_socket(name)) {
        assert_false(tt_deadline_is_past(deadline));
        sched_yield();
    }
    const tt_unix_address_t address = tt_unix_address(name);
    memcpy(&strangers.where, &address.where, sizeof address.where);
    strangers.bytes = address.bytes;
    tt_strangers_start(&strangers);
    const int64_t start_ns = tt_clock_ns();
    for (int i = 1; i < RANKS; i++) {
        ranks[i] = start_rank(url, i);
    }
    for (int i = 0; i < RANKS; i++) {
        int ended = -1;
        assert_int_equal(waitpid(ranks[i], &ended, 0), ranks[i]);
        assert_int_equal(ended, 0);
    }
    show("handing the store over", kind, start_ns);
    tt_strangers_stop(&strangers);
    close(held);
}

static void a_store_is_handed_over_among_strangers(void **state)
{
    (void)state;
    for (int kind = 0; kind < TT_STRANGERS_KINDS && tt_strangers_may_come(); kind++) {
        hand_over_among((tt_strangers_kind_t)kind);
    }
}

/* ---- where ranks share memory ---- */

typedef struct {
    tt_strangers_t *strangers;
    tt_info_table_t *under;
    int rank;
} oversubscribed_t;

/* Strangers come to rank 0's socket before another rank learns its name. */
static tutti_status_t put_oversubscribed(void *user, tt_info_kind_t kind, int rank,
                                         const void *info)
{
    oversubscribed_t *oversubscribed = user;
    const unsigned char *name = info;
    if (rank == 0) {
        char text[40] = "tutti-";
        for (int i = 0; i < 16; i++) {
            snprintf(text + 6 + 2 * i, 3, "%02x", name[i]);
        }
        const tt_unix_address_t address = tt_unix_address(text);
        memcpy(&oversubscribed->strangers->where, &address.where, sizeof address.where);
        oversubscribed->strangers->bytes = address.bytes;
        tt_strangers_start(oversubscribed->strangers);
    }
    return tt_table_put(oversubscribed->under, kind, rank, info);
}

static tutti_status_t get_oversubscribed(void *user, tt_info_kind_t kind, int rank,
                                         tt_deadline_t deadline, void *info)
{
    const oversubscribed_t *oversubscribed = user;
    return tt_table_get(oversubscribed->under, kind, rank, deadline, info);
}

static void *join_oversubscribed_hosts(void *user)
{
    oversubscribed_t *oversubscribed = user;
    tt_node_peers_t *node_peers = NULL;
    const tt_directory_t directory = {
        .put = put_oversubscribed, .get = get_oversubscribed, .user = oversubscribed};
    const tutti_status_t status = tt_node_peers_join(oversubscribed->rank, RANKS, &directory,
                                                     tt_deadline_in_ms(30000), &node_peers);
    if (status < 0) {
        fprintf(stderr, "rank %d: %s\n", oversubscribed->rank, tutti_last_error());
        return user;
    }
    tt_node_peers_release(node_peers);
    return NULL;
}

static void join_among(tt_strangers_kind_t kind)
{
    static tt_strangers_t strangers;
    strangers = (tt_strangers_t){.kind = kind, .type = SOCK_SEQPACKET};
    tt_info_table_t *under = tt_table_open();
    pthread_t threads[RANKS];
    oversubscribed_t ranks[RANKS];
    const int64_t start_ns = tt_clock_ns();
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = (oversubscribed_t){&strangers, under, i};
        assert_int_equal(pthread_create(&threads[i], NULL, join_oversubscribed_hosts, &ranks[i]),
                         0);
    }
    for (int i = 0; i < RANKS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    show("sharing memory", kind, start_ns);
    tt_strangers_stop(&strangers);
    tt_table_close(under);
}

static void ranks_share_memory_among_strangers(void **state)
{
    (void)state;
    for (int kind = 0; kind < TT_STRANGERS_KINDS && tt_strangers_may_come(); kind++) {
        join_among((tt_strangers_kind_t)kind);
    }
}

/* ---- a queue that nobody looks at ---- */

static void a_connect_to_a_full_queue_ends_at_its_deadline(void **state)
{
    (void)state;
    if (!tt_strangers_may_come()) {
        return;
    }
    static tt_strangers_t strangers;
    char name[40];
    snprintf(name, sizeof name, "tutti-test-full-%d", (int)getpid());
    const tt_unix_address_t address = tt_unix_address(name);
    const int listener = tt_socket_open(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK);
    assert_int_equal(bind(listener, (const struct sockaddr *)&address.where, address.bytes), 0);
    assert_int_equal(listen(listener, 4), 0);
    strangers = (tt_strangers_t){.kind = TT_STRANGERS_IDLE, .type = SOCK_SEQPACKET};
    memcpy(&strangers.where, &address.where, sizeof address.where);
    strangers.bytes = address.bytes;
    tt_strangers_start(&strangers);
    int fd;
    assert_int_equal(tt_unix_connect(&address, tt_deadline_in_ms(50), &fd), TUTTI_ERR_TIMEOUT);
    tt_expect_error(name);
    tt_strangers_stop(&strangers);
    tt_socket_close(listener);
    assert_int_equal(tt_unix_connect(&address, tt_deadline_in_ms(50), &fd), TUTTI_PENDING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_is_handed_over_among_strangers),
        cmocka_unit_test(ranks_share_memory_among_strangers),
        cmocka_unit_test(a_connect_to_a_full_queue_ends_at_its_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
