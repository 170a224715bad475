/* Stores between processes, and among many clients: nothing is lost when 200 clients use one
 * server, when 2,000 join it at once, or when processes share a file and are killed while they
 * write. Run with arguments, this program is one of those processes.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <tutti/store.h>

#include "comm/net/job_key_test.h"
#include "comm/store/store_ops.h"
#include "comm/store/store_tcp.h"
#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/base/clock.h"

#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        if ((call) < 0) {                                                                          \
            fail_msg("%s: %s", #call, tutti_last_error());                                         \
        }                                                                                          \
    } while (0)

enum { WORKERS = 4, ADDS = 100, CLIENTS = 200 };

extern char **environ;

/* ---- the other processes ---- */

static tutti_status_t open_store(const char *where, tutti_store_t **out)
{
    int64_t port;
    char *end;
    port = strtol(where, &end, 10);
    return *end == 0 ? tutti_store_tcp_connect("127.0.0.1", (int)port, 10000, out)
                     : tutti_store_file_open(where, out);
}

/* Count to ADDS together with the others, then wait until all are through. */
static tutti_status_t count_together(tutti_store_t *store)
{
    for (int i = 0; i < ADDS; i++) {
        TUTTI_CHECK(tutti_store_add(store, tutti_text("sum"), 1, NULL));
        TUTTI_CHECK(tutti_store_append(store, tutti_text("text"), tutti_text("abc")));
    }
    int64_t done;
    TUTTI_CHECK(tutti_store_add(store, tutti_text("done"), 1, &done));
    if (done == WORKERS) {
        TUTTI_CHECK(tutti_store_set(store, tutti_text("all"), tutti_text("1")));
    }
    const tutti_bytes_t all = tutti_text("all");
    return tutti_store_wait(store, &all, 1, 60000);
}

static tutti_status_t write_forever(tutti_store_t *store)
{
    static char value[20000];
    memset(value, 'x', sizeof value);
    for (;;) {
        const tutti_bytes_t keys[] = {tutti_text("a"), tutti_text("b")};
        const tutti_bytes_t values[] = {tutti_bytes_of(value, sizeof value), tutti_text("y")};
        TUTTI_CHECK(tutti_store_multi_set(store, keys, values, 2));
        TUTTI_CHECK(tutti_store_add(store, tutti_text("writes"), 1, NULL));
    }
}

static int be_worker(const char *task, const char *where)
{
    tutti_store_t *store;
    tutti_status_t status = open_store(where, &store);
    if (status >= 0) {
        status = strcmp(task, "count") == 0 ? count_together(store) : write_forever(store);
        tutti_store_release(store);
    }
    if (status < 0) {
        fprintf(stderr, "worker: %s\n", tutti_last_error());
    }
    return status < 0;
}

static pid_t start_worker(const char *task, const char *where)
{
    pid_t pid;
    char *argv[] = {strdup("worker"), strdup(task), strdup(where), NULL};
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ), 0);
    for (int i = 0; i < 3; i++) {
        free(argv[i]);
    }
    return pid;
}

/* ---- the tests ---- */

static void expect_no_leaks(void)
{
    char report[400];
    if (tt_alloc_report(report, sizeof report) > 0) {
        fail_msg("leaks:\n%s", report);
    }
}

static void check_counting(tutti_store_t *store, const char *where)
{
    pid_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = start_worker("count", where);
    }
    for (int i = 0; i < WORKERS; i++) {
        int status;
        assert_int_equal(waitpid(workers[i], &status, 0), workers[i]);
        assert_int_equal(status, 0);
    }
    int64_t sum;
    tutti_buffer_t text;
    CHECK_OK(tutti_store_add(store, tutti_text("sum"), 0, &sum));
    assert_int_equal(sum, WORKERS * ADDS);
    CHECK_OK(tutti_store_get(store, tutti_text("text"), 1000, &text));
    assert_int_equal(text.bytes, 3 * WORKERS * ADDS);
    for (size_t i = 0; i < text.bytes; i += 3) {
        assert_memory_equal((char *)text.data + i, "abc", 3);
    }
    tutti_buffer_release(&text);
}

static void processes_count_together_over_tcp(void **state)
{
    (void)state;
    tutti_store_t *store;
    char port[16];
    CHECK_OK(tutti_store_tcp_listen(NULL, 0, &store));
    snprintf(port, sizeof port, "%d", tutti_store_port(store));
    check_counting(store, port);
    tutti_store_release(store);
    expect_no_leaks();
}

static void make_path(char path[64])
{
    snprintf(path, 64, "/tmp/tutti_store_%d", (int)getpid());
    unlink(path);
}

static void processes_count_together_in_a_file(void **state)
{
    (void)state;
    tutti_store_t *store;
    char path[64];
    make_path(path);
    CHECK_OK(tutti_store_file_open(path, &store));
    check_counting(store, path);
    tutti_store_release(store);
    unlink(path);
    expect_no_leaks();
}

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * TT_NS_PER_MS}, NULL);
}

/* Two writers, of which one is killed after the other at odd moments. */
static void a_file_survives_killed_writers(void **state)
{
    (void)state;
    tutti_store_t *store;
    char path[64];
    make_path(path);
    CHECK_OK(tutti_store_file_open(path, &store));
    int64_t before = 0, writes = 0;
    for (int round = 0; round < 12; round++) {
        const pid_t workers[] = {start_worker("write", path), start_worker("write", path)};
        const tutti_bytes_t key = tutti_text("writes");
        CHECK_OK(tutti_store_wait(store, &key, 1, 20000));
        for (int i = 0; i < 2; i++) {
            sleep_ms(3 + 2 * round + i);
            kill(workers[i], SIGKILL);
            assert_int_equal(waitpid(workers[i], NULL, 0), workers[i]);
        }
        tutti_buffer_t got[2];
        const tutti_bytes_t keys[] = {tutti_text("a"), tutti_text("b")};
        CHECK_OK(tutti_store_multi_get(store, keys, 2, 1000, got));
        assert_int_equal(got[0].bytes, 20000);
        assert_string_equal(got[1].data, "y");
        tutti_buffer_release(&got[0]);
        tutti_buffer_release(&got[1]);
        CHECK_OK(tutti_store_add(store, key, 0, &writes));
        assert_true(writes >= before);
        before = writes;
    }
    tutti_store_release(store);
    CHECK_OK(tutti_store_file_open(path, &store)); /* and from the front */
    CHECK_OK(tutti_store_add(store, tutti_text("writes"), 0, &writes));
    assert_int_equal(writes, before);
    tutti_store_release(store);
    unlink(path);
    expect_no_leaks();
}

/* A file with three keys; returns its size. */
static off_t make_file(const char *path)
{
    tutti_store_t *store;
    CHECK_OK(tutti_store_file_open(path, &store));
    CHECK_OK(tutti_store_set(store, tutti_text("one"), tutti_text("1")));
    CHECK_OK(tutti_store_set(store, tutti_text("two"), tutti_text("2")));
    CHECK_OK(tutti_store_set(store, tutti_text("three"), tutti_text("3")));
    tutti_store_release(store);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return info.st_size;
}

static void a_file_torn_anywhere_opens_and_goes_on(void **state)
{
    (void)state;
    char path[64];
    make_path(path);
    const off_t size = make_file(path);
    for (off_t cut = size; cut >= 0; cut -= cut > 100 ? 7 : 1) {
        assert_int_equal(truncate(path, cut), 0);
        tutti_store_t *store;
        size_t count;
        CHECK_OK(tutti_store_file_open(path, &store));
        CHECK_OK(tutti_store_num_keys(store, &count));
        assert_true(count <= 3);
        CHECK_OK(tutti_store_set(store, tutti_text("after"), tutti_text("4")));
        tutti_store_release(store);
        CHECK_OK(tutti_store_file_open(path, &store));
        size_t count_again;
        CHECK_OK(tutti_store_num_keys(store, &count_again));
        assert_int_equal(count_again, count + 1);
        tutti_store_release(store);
        unlink(path);
        make_file(path);
    }
    unlink(path);
    expect_no_leaks();
}

/* One bit of each byte, from the head of the file to its end: found, and said where. */
static void a_flipped_bit_in_a_file_is_found(void **state)
{
    (void)state;
    char path[64];
    make_path(path);
    const off_t size = make_file(path);
    for (off_t at = 0; at < size; at++) {
        const int fd = open(path, O_RDWR);
        uint8_t byte;
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= (uint8_t)(1 << at % 8);
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        tutti_store_t *store;
        tutti_status_t status = tutti_store_file_open(path, &store);
        if (status >= 0) {
            size_t count = 3;
            status = tutti_store_num_keys(store, &count);
            /* A longer record than the file holds looks like one that was being written. */
            assert_true(status == TUTTI_ERR_FORMAT || count < 3);
            tutti_store_release(store);
        }
        if (status < 0) {
            assert_int_equal(status, TUTTI_ERR_FORMAT);
            assert_non_null(strstr(tutti_last_error(), path));
            assert_non_null(strstr(tutti_last_error(), "offset"));
        }
        byte ^= (uint8_t)(1 << at % 8);
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        close(fd);
    }
    unlink(path);
    expect_no_leaks();
}

/* Whether holes can be made where the tests' files lie. */
static bool has_holes(const char *path)
{
    const int fd = open(path, O_RDWR | O_CREAT, 0600);
    static const char zeros[1 << 16];
    const bool is_made =
        write(fd, zeros, sizeof zeros) == (ssize_t)sizeof zeros &&
        fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, sizeof zeros) == 0;
    close(fd);
    unlink(path);
    return is_made;
}

static void expect_held(tutti_store_t *store, const char *key, const char *want)
{
    tutti_buffer_t value;
    CHECK_OK(tutti_store_get(store, tutti_text(key), 1000, &value));
    assert_memory_equal(value.data, want, strlen(want));
    tutti_buffer_release(&value);
}

/* 40 MB of records about two keys: the file keeps a little of it, and a client that looked away for
 * long sees what is there now. */
static void a_files_garbage_goes(void **state)
{
    (void)state;
    tutti_store_t *writer, *sleeper, *late;
    char path[64], value[40000];
    make_path(path);
    const bool is_small = has_holes(path);
    CHECK_OK(tutti_store_file_open(path, &writer));
    CHECK_OK(tutti_store_file_open(path, &sleeper));
    CHECK_OK(tutti_store_set(sleeper, tutti_text("gone"), tutti_text("1")));
    CHECK_OK(tutti_store_delete(writer, tutti_text("gone"), NULL));
    CHECK_OK(tutti_store_set(writer, tutti_text("kept"), tutti_text("from the beginning")));
    for (int i = 0; i < 1000; i++) {
        memset(value, 'a' + i % 26, sizeof value);
        CHECK_OK(tutti_store_set(writer, tutti_text("k"), tutti_bytes_of(value, sizeof value)));
    }
    CHECK_OK(tutti_store_file_open(path, &late));
    tutti_store_t *const all[] = {writer, sleeper, late};
    for (int i = 0; i < 3; i++) {
        size_t count;
        expect_held(all[i], "k", "llllllll"); /* 999 = 26 * 38 + 11 */
        expect_held(all[i], "kept", "from the beginning");
        CHECK_OK(tutti_store_num_keys(all[i], &count));
        assert_int_equal(count, 2);
        CHECK_OK(tutti_store_set(all[i], tutti_text("kept"), tutti_text("from the beginning")));
    }
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_true(!is_small || info.st_blocks * 512 < 4 << 20);
    for (int i = 0; i < 3; i++) {
        tutti_store_release(all[i]);
    }
    unlink(path);
    expect_no_leaks();
}

typedef struct {
    pthread_t thread;
    int port, index;
    tutti_status_t status;
} client_t;

/* Everyone says that it is here, and waits for everyone. */
static tutti_status_t meet(client_t *client, tutti_store_t *store)
{
    char names[CLIENTS][24];
    tutti_bytes_t keys[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        snprintf(names[i], sizeof names[i], "rank/%d", i);
        keys[i] = tutti_text(names[i]);
    }
    TUTTI_CHECK(tutti_store_set(store, keys[client->index], tutti_text("here")));
    TUTTI_CHECK(tutti_store_wait(store, keys, CLIENTS, 60000));
    return tutti_store_add(store, tutti_text("met"), 1, NULL);
}

static void *be_client(void *arg)
{
    client_t *client = arg;
    tutti_store_t *store;
    client->status = tutti_store_tcp_connect("127.0.0.1", client->port, 60000, &store);
    if (client->status >= 0) {
        client->status = meet(client, store);
        tutti_store_release(store);
    }
    return NULL;
}

static void two_hundred_clients_meet_at_one_server(void **state)
{
    (void)state;
    static client_t clients[CLIENTS];
    tutti_store_t *store;
    CHECK_OK(tutti_store_tcp_listen(NULL, 0, &store));
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = (client_t){.port = tutti_store_port(store), .index = i};
        assert_int_equal(pthread_create(&clients[i].thread, NULL, be_client, &clients[i]), 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        assert_int_equal(pthread_join(clients[i].thread, NULL), 0);
        assert_int_equal(clients[i].status, TUTTI_OK);
    }
    int64_t met;
    CHECK_OK(tutti_store_add(store, tutti_text("met"), 0, &met));
    assert_int_equal(met, CLIENTS);
    tutti_store_release(store);
    expect_no_leaks();
}

/* ---- two thousand ---- */

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAS_SLOW_THREADS
#endif
#endif

#ifdef HAS_SLOW_THREADS
enum { OVERSUBSCRIBED = 300 };
#else
enum { OVERSUBSCRIBED = 2000 };
#endif

typedef struct {
    tt_credentials_t *credentials;
    int port, index;
    tutti_status_t status;
    pthread_t thread;
} member_t;

/* Shows a card, waits until all have, reads its neighbour's. */
static tutti_status_t join_oversubscribed(const member_t *member, tutti_store_t *store)
{
    char own[24], next[24];
    snprintf(own, sizeof own, "card/%d", member->index);
    snprintf(next, sizeof next, "card/%d", (member->index + 1) % OVERSUBSCRIBED);
    int64_t here;
    tutti_buffer_t card;
    TUTTI_CHECK(tutti_store_set(store, tutti_text(own), tutti_text(own)));
    TUTTI_CHECK(tutti_store_add(store, tutti_text("here"), 1, &here));
    if (here == OVERSUBSCRIBED) {
        TUTTI_CHECK(tutti_store_set(store, tutti_text("all"), tutti_text("1")));
    }
    const tutti_bytes_t all = tutti_text("all");
    TUTTI_CHECK(tutti_store_wait(store, &all, 1, 60000));
    TUTTI_CHECK(tutti_store_get(store, tutti_text(next), 1000, &card));
    const bool is_right = tt_bytes_equal(tt_buffer_view(&card), tutti_text(next));
    tutti_buffer_release(&card);
    return is_right ? TUTTI_OK : TUTTI_ERR_MISMATCH;
}

static void *be_member(void *arg)
{
    member_t *member = arg;
    tutti_store_t *store;
    member->status =
        tt_store_tcp_connect("127.0.0.1", member->port, member->credentials, 60000, &store);
    if (member->status >= 0) {
        member->status = join_oversubscribed(member, store);
        tutti_store_release(store);
    }
    if (member->status < 0) {
        fprintf(stderr, "member %d: %s\n", member->index, tutti_last_error());
    }
    return NULL;
}

/* Both ends of every connection are in this process. */
static bool may_open_files(rlim_t files)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max > files ? files : limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < files) {
        print_message("skipped: a process may open %llu files, this test wants %llu\n",
                      (unsigned long long)limit.rlim_cur, (unsigned long long)files);
    }
    return limit.rlim_cur >= files;
}

static void two_thousand_clients_join_one_server(void **state)
{
    (void)state;
    static member_t members[OVERSUBSCRIBED];
    tutti_store_t *store;
    tt_credentials_t *credentials;
    pthread_attr_t small;
    if (!may_open_files(2 * OVERSUBSCRIBED + 200)) {
        return;
    }
    CHECK_OK(tutti_store_tcp_listen(NULL, 0, &store));
    CHECK_OK(tt_credentials_find(NULL, 0, &credentials));
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    const int64_t start = tt_clock_ns();
    for (int i = 0; i < OVERSUBSCRIBED; i++) {
        members[i] = (member_t){credentials, tutti_store_port(store), i, TUTTI_OK, 0};
        assert_int_equal(pthread_create(&members[i].thread, &small, be_member, &members[i]), 0);
    }
    for (int i = 0; i < OVERSUBSCRIBED; i++) {
        assert_int_equal(pthread_join(members[i].thread, NULL), 0);
        assert_int_equal(members[i].status, TUTTI_OK);
    }
    print_message("%d clients joined in %.2f s\n", OVERSUBSCRIBED,
                  (double)(tt_clock_ns() - start) / TT_NS_PER_S);
    pthread_attr_destroy(&small);
    tt_credentials_release(credentials);
    tutti_store_release(store);
    expect_no_leaks();
}

static void leave_a_child(tutti_store_t *client)
{
    const pid_t child = fork();
    if (child == 0) {
        alarm(30);
        _exit(pause());
    }
    (void)tutti_store_set(client, tutti_text("child"), tutti_bytes_of(&child, sizeof child));
}

/* It says its will twice, leaves a child that lives on, and is killed while it waits. */
static void die_with_a_will(int port)
{
    tutti_store_t *client = NULL;
    tutti_buffer_t value;
    if (tutti_store_tcp_connect("127.0.0.1", port, 5000, &client) == 0 &&
        tt_store_will(client, tutti_text("end"), tutti_text("wrong")) == 0 &&
        tt_store_will(client, tutti_text("end"), tutti_text("killed;")) == 0) {
        leave_a_child(client);
    }
    if (client != NULL && tutti_store_set(client, tutti_text("ready"), tutti_text("1")) == 0) {
        (void)tutti_store_get(client, tutti_text("never"), 60000, &value);
    }
    _exit(1);
}

static void the_will_of_a_killed_client_is_executed(void **state)
{
    (void)state;
    tutti_store_t *server;
    tutti_buffer_t value;
    assert_int_equal(tutti_store_tcp_listen(NULL, 0, &server), 0);
    const pid_t child = fork();
    if (child == 0) {
        die_with_a_will(tutti_store_port(server));
    }
    assert_int_equal(tutti_store_get(server, tutti_text("ready"), 10000, &value), 0);
    tutti_buffer_release(&value);
    bool is_there = true;
    assert_int_equal(tutti_store_check(server, &(tutti_bytes_t){"end", 3}, 1, &is_there), 0);
    assert_false(is_there);
    kill(child, SIGKILL);
    assert_int_equal(tutti_store_get(server, tutti_text("end"), 10000, &value), 0);
    assert_string_equal(value.data, "killed;");
    tutti_buffer_release(&value);
    assert_int_equal(tutti_store_get(server, tutti_text("child"), 10000, &value), 0);
    kill(*(pid_t *)value.data, SIGKILL);
    tutti_buffer_release(&value);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(tt_store_will(server, tutti_text("end"), tutti_text("x")),
                     TUTTI_ERR_UNSUPPORTED);
    tutti_store_t *client;
    char large[1025] = "";
    memset(large, 'x', sizeof large - 1);
    assert_int_equal(tutti_store_tcp_connect("127.0.0.1", tutti_store_port(server), 5000, &client),
                     0);
    assert_int_equal(tt_store_will(client, tutti_text("end"), tutti_bytes_of(large, 1025)),
                     TUTTI_ERR_ARG);
    tutti_store_release(client);
    tutti_store_release(server);
}

static void a_dead_server_is_a_dead_peer(void **state)
{
    (void)state;
    tutti_store_t *server, *client;
    CHECK_OK(tutti_store_tcp_listen(NULL, 0, &server));
    CHECK_OK(tutti_store_tcp_connect("127.0.0.1", tutti_store_port(server), 5000, &client));
    tutti_store_release(server);
    assert_int_equal(tutti_store_set(client, tutti_text("k"), tutti_text("v")), TUTTI_ERR_PEER);
    tutti_store_release(client);
    expect_no_leaks();
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        return be_worker(argv[1], argv[2]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_count_together_over_tcp),
        cmocka_unit_test(processes_count_together_in_a_file),
        cmocka_unit_test(a_file_survives_killed_writers),
        cmocka_unit_test(a_file_torn_anywhere_opens_and_goes_on),
        cmocka_unit_test(a_flipped_bit_in_a_file_is_found),
        cmocka_unit_test(a_files_garbage_goes),
        cmocka_unit_test(two_hundred_clients_meet_at_one_server),
        cmocka_unit_test(two_thousand_clients_join_one_server),
        cmocka_unit_test(the_will_of_a_killed_client_is_executed),
        cmocka_unit_test(a_dead_server_is_a_dead_peer),
    };
    return cmocka_run_group_tests(tests, tt_take_key, NULL);
}
