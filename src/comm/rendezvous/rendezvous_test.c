/* Tests of the meeting: what launchers' variables and URLs mean, and meetings of processes. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/group.h>

#include <xxhash.h>

#include "comm/rendezvous/rendezvous.h"
#include "comm/net/address.h"
#include "comm/net/free_port_test.h"
#include "comm/net/socket.h"
#include "comm/net/unix_socket.h"
#include "core/base/config.h"
#include "core/base/testing.h"

/* Every variable that a launcher may have set. */
static void forget_all(void)
{
    for (int i = 0; i < TT_CONFIG_COUNT; i++) {
        unsetenv(tt_config_table[i].variable);
    }
}

/* "A=1 B=x": nothing but these. */
static void set(const char *text)
{
    char copy[512], *rest;
    snprintf(copy, sizeof copy, "%s", text);
    forget_all();
    for (char *item = strtok_r(copy, " ", &rest); item != NULL; item = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(item, '=');
        *equals = 0;
        setenv(item, equals + 1, 1);
    }
}

static tt_rendezvous_t read_variables(const char *environment)
{
    tt_rendezvous_t out = {0};
    set(environment);
    if (tt_rendezvous_from_environment(-1, -1, &out) != TUTTI_OK) {
        fail_msg("%s: %s", environment, tutti_last_error());
    }
    forget_all();
    return out;
}

static void expect_refusal(const char *environment, const char *text)
{
    tt_rendezvous_t out;
    set(environment);
    assert_int_equal(tt_rendezvous_from_environment(-1, -1, &out), TUTTI_ERR_ARG);
    tt_expect_error(text);
    forget_all();
}

static void every_launcher_is_understood(void **state)
{
    (void)state;
    tt_rendezvous_t r = read_variables("");
    assert_int_equal(r.kind, TT_PLACE_ALONE);
    r = read_variables(
        "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
        "MASTER_PORT=2000 TUTTI_AGENT_STORE=1 SLURM_PROCID=7 SLURM_STEP_NUM_TASKS=8");
    assert_int_equal(r.kind, TT_PLACE_SERVED);
    assert_int_equal(r.port, 2000);
    assert_int_equal(r.rank, 1);
    r = read_variables("RANK=1 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=2000");
    assert_int_equal(r.kind, TT_PLACE_HOST);
    assert_int_equal(r.port, 2000);
    r = read_variables("RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=node7 MASTER_PORT=2000 "
                       "TORCHELASTIC_USE_AGENT_STORE=True");
    assert_int_equal(r.kind, TT_PLACE_HOST);
    assert_int_equal(r.port, 2001);
    assert_int_equal(r.port_count, TT_PORTS_TRIED);
    r = read_variables("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_LOCAL_RANK=1 "
                       "OMPI_COMM_WORLD_LOCAL_SIZE=3 PMIX_NAMESPACE=77 PMIX_RANK=1");
    assert_int_equal(r.kind, TT_PLACE_HOST);
    assert_string_equal(r.launcher, "Open MPI");
    assert_non_null(strstr(r.job, "77"));
    r = read_variables("PMI_RANK=2 PMI_SIZE=3 MPI_LOCALRANKID=2 MPI_LOCALNRANKS=3 SLURM_PROCID=0 "
                       "SLURM_STEP_NUM_TASKS=1 SLURM_STEP_TASKS_PER_NODE=1");
    assert_string_equal(r.launcher, "PMI");
    assert_int_equal(r.rank, 2);
    assert_int_equal(r.local_rank, 2);
}

/* Nobody says how many ranks are on this host: the first launcher that says the rest counts. */
static void launchers_without_local_ranks_count_after_the_others(void **state)
{
    (void)state;
    expect_refusal("PMI_RANK=1 PMI_SIZE=4", "PMI");
    expect_refusal("PMI_RANK=1 PMI_SIZE=4 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4", "PMI");
    expect_refusal("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 PMI_RANK=1 PMI_SIZE=4",
                   "Open MPI");
    assert_string_equal(read_variables("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 PMI_RANK=2 "
                                       "PMI_SIZE=3 MPI_LOCALRANKID=2 MPI_LOCALNRANKS=3")
                            .launcher,
                        "PMI");
}

static void slurm_counts_inside_a_step_only(void **state)
{
    (void)state;
    assert_int_equal(read_variables("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=3").kind,
                     TT_PLACE_ALONE);
    tt_rendezvous_t r =
        read_variables("SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=1 SLURM_JOB_ID=9 "
                       "SLURM_STEP_TASKS_PER_NODE=2 SLURM_STEP_ID=0 PMI_RANK=1 PMI_SIZE=2");
    assert_int_equal(r.kind, TT_PLACE_HOST);
    assert_string_equal(r.launcher, "Slurm");
    r = read_variables(
        "SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=7 SLURM_LOCALID=1 SLURM_JOB_ID=9 SLURM_STEP_ID=2 "
        "SLURM_STEP_TASKS_PER_NODE=2(x2),3 SLURM_NODEID=2 SLURM_STEP_NODELIST=gpu[07-09]");
    assert_int_equal(r.kind, TT_PLACE_MASTER);
    assert_string_equal(r.host, "gpu07");
    assert_int_equal(r.local_size, 3);
    assert_true(r.port >= 20000 && r.port < 32000);
    const int port = r.port;
    r = read_variables(
        "SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=7 SLURM_LOCALID=0 SLURM_JOB_ID=9 SLURM_STEP_ID=2 "
        "SLURM_STEP_TASKS_PER_NODE=2(x2),3 SLURM_NODEID=0 SLURM_STEP_NODELIST=gpu[07-09]");
    assert_int_equal(r.port, port);
}

static void what_is_missing_is_named(void **state)
{
    (void)state;
    expect_refusal("RANK=0", "WORLD_SIZE is not set");
    expect_refusal("WORLD_SIZE=2", "RANK is not set");
    expect_refusal("RANK=0 WORLD_SIZE=2", "MASTER_ADDR is not set");
    expect_refusal("RANK=0 WORLD_SIZE=2 MASTER_ADDR=node7", "MASTER_PORT is not set");
    expect_refusal("RANK=0 WORLD_SIZE=2 MASTER_ADDR=::1 MASTER_PORT=0", "MASTER_PORT=0");
    expect_refusal("RANK=2 WORLD_SIZE=2", "RANK=2");
    expect_refusal("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=3", "LOCAL_WORLD_SIZE=3");
    expect_refusal("RANK=0 WORLD_SIZE=2 TUTTI_AGENT_STORE=1 MASTER_PORT=7", "MASTER_ADDR");
    expect_refusal("PMIX_RANK=0", "how many ranks");
    expect_refusal("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2",
                   "TUTTI_KEY_FILE");
}

static void slurms_lists_are_read(void **state)
{
    (void)state;
    const struct {
        const char *list, *host;
    } cases[] = {{"a", "a"},
                 {"a,b", "a"},
                 {"n[1-3,7],m", "n1"},
                 {"n[007-9]", "n007"},
                 {"n[3,5]-ib,x", "n3-ib"},
                 {"", NULL},
                 {"n[", NULL},
                 {"n[]", NULL},
                 {"n[1", NULL},
                 {"n[1-2][3-4]", NULL},
                 {",a", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char host[16];
        const bool is_found = tt_slurm_first_host(cases[i].list, host, sizeof host);
        assert_int_equal(is_found, cases[i].host != NULL);
        if (is_found) {
            assert_string_equal(host, cases[i].host);
        }
    }
    char small[3];
    assert_false(tt_slurm_first_host("abc", small, sizeof small));
    assert_int_equal(tt_slurm_count_at("4(x2),3", 0), 4);
    assert_int_equal(tt_slurm_count_at("4(x2),3", 1), 4);
    assert_int_equal(tt_slurm_count_at("4(x2),3", 2), 3);
    const char *const bad[] = {"", "x", "4(x2", "4(x0)", "-1", "1,,2", "4(x2),3,", "99999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(tt_slurm_count_at(bad[i], 3), 0);
    }
}

static void urls_are_those_of_torch(void **state)
{
    (void)state;
    tt_rendezvous_t r;
    assert_int_equal(tt_rendezvous_from_url("tcp://node7:29500?rank=1&world_size=4", 0, 0, &r), 0);
    assert_int_equal(r.kind, TT_PLACE_MASTER);
    assert_string_equal(r.host, "node7");
    assert_int_equal(r.port, 29500);
    assert_int_equal(r.rank, 1);
    assert_int_equal(r.size, 4);
    assert_int_equal(tt_rendezvous_from_url("tcp://[fe80::2]:1/?world_size=2&rank=0", 0, 0, &r), 0);
    assert_string_equal(r.host, "fe80::2");
    assert_int_equal(tt_rendezvous_from_url("tcp://[::1]:1", 1, 2, &r), 0);
    assert_int_equal(r.kind, TT_PLACE_HOST);
    assert_int_equal(tt_rendezvous_from_url("file:///tmp/a%20b?rank=0&world_size=1", 0, 0, &r), 0);
    assert_string_equal(r.path, "/tmp/a%20b");
    forget_all();
    assert_int_equal(tt_rendezvous_from_url("env://", 0, 0, &r), 0);
    assert_int_equal(r.kind, TT_PLACE_ALONE);
    set("MASTER_ADDR=127.0.0.1 MASTER_PORT=77 RANK=5");
    assert_int_equal(tt_rendezvous_from_url("env://?rank=1&world_size=2", 0, 0, &r), 0);
    assert_int_equal(r.rank, 1);
    assert_int_equal(r.port, 77);
    forget_all();
}

static void bad_urls_are_refused_by_name(void **state)
{
    (void)state;
    const struct {
        const char *url, *text;
    } cases[] = {
        {"tcp://node7?rank=0&world_size=2", "port is missing"},
        {"tcp://[::1]?rank=0&world_size=2", "port is missing"},
        {"tcp://:1?rank=0&world_size=2", "host is missing"},
        {"tcp://a:0?rank=0&world_size=2", "port \"0\""},
        {"tcp://a:65536?rank=0&world_size=2", "65536"},
        {"tcp://a:1", "rank is missing"},
        {"tcp://a:1?rank=0", "world_size is missing"},
        {"tcp://a:1?rank=0&rank=1", "twice"},
        {"tcp://a:1?rank=2&world_size=2", "rank 2 of a world of 2"},
        {"tcp://a:1?rank=-1&world_size=2", "\"-1\""},
        {"tcp://a:1?rank=&world_size=2", "rank is \"\""},
        {"tcp://a:1?rank=0&world_size=", "world_size is \"\""},
        {"tcp://a:1?rank=0&world_size=1&world_size=1", "world_size is given twice"},
        {"tcp://a:1?rank", "\"rank\" is not known"},
        {"tcp://a:1?timeout=3", "\"timeout=3\""},
        {"file://a?rank=0&world_size=2", "absolute path"},
        {"http://a", "want env://"},
        {"", "want env://"},
        {"env://x", "nothing but"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tt_rendezvous_t r;
        assert_int_equal(tt_rendezvous_from_url(cases[i].url, 0, 0, &r), TUTTI_ERR_ARG);
        tt_expect_error(cases[i].text);
    }
    tt_rendezvous_t r;
    assert_int_equal(tt_rendezvous_from_url("tcp://a:1?rank=0", 0, 2, &r), TUTTI_ERR_ARG);
    tt_expect_error("give them once");
    char url[80];
    snprintf(url, sizeof url, "tcp://a:1?rank=%d&world_size=%d", TT_WORLD_SIZE_MAX - 1,
             TT_WORLD_SIZE_MAX);
    assert_int_equal(tt_rendezvous_from_url(url, 0, 0, &r), TUTTI_OK);
    assert_int_equal(r.size, TT_WORLD_SIZE_MAX);
    snprintf(url, sizeof url, "tcp://a:1?rank=0&world_size=%d", TT_WORLD_SIZE_MAX + 1);
    assert_int_equal(tt_rendezvous_from_url(url, 0, 0, &r), TUTTI_ERR_ARG);
    tt_expect_error("want a number from 0 to");
}

static void addresses_are_asked_of_the_kernel(void **state)
{
    (void)state;
    char text[TT_ADDRESS_TEXT_BYTES];
    tt_addresses_t list;
    assert_int_equal(tt_addresses_find("localhost", 1, TT_NEVER, &list), TUTTI_OK);
    assert_int_equal(tt_address_print(&list, 0, text), TUTTI_OK);
    assert_string_equal(text, "127.0.0.1");
    assert_int_equal(tt_address_own("localhost", &list, text), TUTTI_ERR_ARG);
    tt_expect_error("loopback");
    assert_int_equal(tt_addresses_find("192.0.2.177", 1, TT_NEVER, &list), TUTTI_OK);
    assert_int_equal(tt_address_own("192.0.2.177", &list, text), TUTTI_ERR_ARG);
    tt_expect_error("not this host");
}

/* ---- meetings of processes ------------------------------------------------------------------- */

enum { RANKS = 3 };

/* What a child does; its exit code counts. */
static int meet(const char *url, int rank, int worlds)
{
    const tutti_init_options_t options = {
        .url = url, .rank = rank, .world_size = RANKS, .timeout_ms = 20000};
    for (int i = 0; i < worlds; i++) {
        tutti_group_t *world;
        if (tutti_init(&options, &world) < 0) {
            fprintf(stderr, "rank %d: %s\n", rank, tutti_last_error());
            return 1;
        }
        const bool is_right = tutti_group_rank(world) == rank && tutti_group_size(world) == RANKS;
        tutti_group_release(world);
        if (!is_right) {
            return 2;
        }
    }
    return tt_alloc_stats().blocks == 0 ? 0 : 3;
}

static void run_world(const char *url, int worlds)
{
    pid_t children[RANKS];
    for (int rank = 0; rank < RANKS; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            _exit(meet(url, rank, worlds));
        }
    }
    for (int rank = 0; rank < RANKS; rank++) {
        int ended = -1;
        assert_int_equal(waitpid(children[rank], &ended, 0), children[rank]);
        assert_int_equal(ended, 0);
    }
}

static void ranks_of_a_host_are_handed_the_store(void **state)
{
    (void)state;
    char url[64];
    int held;
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", tt_hold_port(&held));
    run_world(url, 3);
    close(held);
}

static void a_rank_that_does_not_come_is_named(void **state)
{
    (void)state;
    char url[64];
    tutti_group_t *world;
    int held;
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", tt_hold_port(&held));
    tutti_init_options_t options = {.url = url, .rank = 0, .world_size = 3, .timeout_ms = 50};
    assert_int_equal(tutti_init(&options, &world), TUTTI_ERR_TIMEOUT);
    tt_expect_error("ranks 1, 2 of 3");
    options.rank = 1;
    assert_int_equal(tutti_init(&options, &world), TUTTI_ERR_TIMEOUT);
    tt_expect_error("rank 0 to come");
    close(held);
}

/* A rank of a dead world came as far as it can alone. */
static void leave_behind(const char *url, int rank)
{
    tutti_group_t *world;
    const tutti_init_options_t options = {
        .url = url, .rank = rank, .world_size = RANKS, .timeout_ms = 30};
    assert_int_equal(tutti_init(&options, &world), TUTTI_ERR_TIMEOUT);
}

static void a_stale_file_does_no_harm(void **state)
{
    (void)state;
    char path[] = "/tmp/tutti_meet_XXXXXX", url[64];
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    snprintf(url, sizeof url, "file://%s", path);
    leave_behind(url, 1);
    leave_behind(url, 0);
    run_world(url, 2);
    leave_behind(url, 2);
    leave_behind(url, 1);
    leave_behind(url, 0);
    leave_behind(url, 1);
    run_world(url, 1);
    unlink(path);
}

/* ---- signals --------------------------------------------------------------------------------- */

enum { GUARD_MS = 10000 }; /* some 10 ms are usual */

static int entered[2], answered[2]; /* pipes of the handler */

static void wait_for_the_answer(int number)
{
    char byte = (char)number;
    (void)!write(entered[1], &byte, 1);
    (void)!read(answered[0], &byte, 1);
}

/* Rank 0's store serves until rank 1 has used it. */
static int hand_over(const tt_rendezvous_t *rendezvous)
{
    tutti_store_t *store;
    const tutti_bytes_t key = tutti_text("used");
    if (tt_rendezvous_hand_over(rendezvous, "signal", tt_deadline_in_ms(GUARD_MS), &store) < 0 ||
        (rendezvous->rank == 0 ? tutti_store_wait(store, &key, 1, GUARD_MS)
                               : tutti_store_set(store, key, tutti_text("1"))) < 0) {
        fprintf(stderr, "rank %d: %s\n", rendezvous->rank, tutti_last_error());
        return 1;
    }
    tutti_store_release(store);
    return 0;
}

static pid_t start_hand_over(tt_rendezvous_t rendezvous, int rank)
{
    const pid_t child = fork();
    if (child == 0) {
        rendezvous.rank = rank;
        _exit(hand_over(&rendezvous));
    }
    return child;
}

/* Waits until a socket is listened at, or is not any more. */
static bool wait_for_listener(const tt_unix_address_t *address, bool is_wanted, int64_t most_ms)
{
    const tt_deadline_t deadline = tt_deadline_in_ms(most_ms);
    for (;;) {
        int fd;
        const bool is_open = tt_unix_connect(address, deadline, &fd) == TUTTI_OK;
        if (is_open) {
            tt_socket_close(fd);
        }
        if (is_open == is_wanted || tt_deadline_is_past(deadline)) {
            return is_open == is_wanted;
        }
        sched_yield();
    }
}

static bool is_asleep(pid_t pid)
{
    char path[40], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*d %*s %c", &state), 1);
    fclose(file);
    return state == 'S';
}

/* Rank 1 waits for rank 0's answer when a signal comes; the answer comes while the handler runs.
 * On a busy machine the signal may come before rank 1 has said hello, which shows nothing. */
static void a_signal_does_not_lose_the_answer(void **state)
{
    (void)state;
    tt_rendezvous_t rendezvous = {.kind = TT_PLACE_HOST, .size = 2};
    char text[100], byte = 0;
    forget_all();
    snprintf(rendezvous.job, sizeof rendezvous.job, "test %d", (int)getpid());
    snprintf(text, sizeof text, "%.60s/signal", rendezvous.job);
    const XXH128_hash_t hash = XXH3_128bits(text, strlen(text));
    snprintf(text, sizeof text, "tutti-meet-%u-%016llx%016llx", (unsigned)geteuid(),
             (unsigned long long)hash.high64, (unsigned long long)hash.low64);
    const tt_unix_address_t address = tt_unix_address(text);
    assert_int_equal(pipe(entered), 0);
    assert_int_equal(pipe(answered), 0);
    int ended[2];
    const struct sigaction action = {.sa_handler = wait_for_the_answer};
    struct sigaction before;
    sigaction(SIGUSR1, &action, &before);
    const pid_t first = start_hand_over(rendezvous, 0);
    assert_true(wait_for_listener(&address, true, GUARD_MS));
    kill(first, SIGSTOP);
    assert_int_equal(waitpid(first, &ended[0], WUNTRACED), first);
    const pid_t second = start_hand_over(rendezvous, 1);
    while (!is_asleep(second)) {
        sched_yield();
    }
    kill(second, SIGUSR1);
    assert_int_equal(read(entered[0], &byte, 1), 1);
    kill(first, SIGCONT);
    (void)wait_for_listener(&address, false, 1000);
    assert_int_equal(write(answered[1], &byte, 1), 1);
    assert_int_equal(waitpid(second, &ended[1], 0), second);
    assert_int_equal(ended[1], 0);
    assert_int_equal(waitpid(first, &ended[0], 0), first);
    assert_int_equal(ended[0], 0);
    sigaction(SIGUSR1, &before, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_launcher_is_understood),
        cmocka_unit_test(launchers_without_local_ranks_count_after_the_others),
        cmocka_unit_test(slurm_counts_inside_a_step_only),
        cmocka_unit_test(what_is_missing_is_named),
        cmocka_unit_test(slurms_lists_are_read),
        cmocka_unit_test(urls_are_those_of_torch),
        cmocka_unit_test(bad_urls_are_refused_by_name),
        cmocka_unit_test(addresses_are_asked_of_the_kernel),
        cmocka_unit_test(ranks_of_a_host_are_handed_the_store),
        cmocka_unit_test(a_rank_that_does_not_come_is_named),
        cmocka_unit_test(a_stale_file_does_no_harm),
        cmocka_unit_test(a_signal_does_not_lose_the_answer),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
