/* Once a failed call has returned on a rank, no other rank touches that rank's memory for it: late
 * ranks, tensors that are released or still held, packs, groups that are released, processes that
 * were stopped inside. And memory of groups that are gone comes back to the heap. */
#include "core/base/testing.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/backend/native_backend.h"
#include "comm/exec/coll_exec.h"
#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"
#include "comm/wire/node_peers_impl.h"
#include "core/base/clock.h"

enum { ELEMENTS = 1 << 18, TIMEOUT_MS = 20000 };

static void run_team(int size, void (*body)(tt_member_t *), void *user)
{
    tt_team_expect_quietly(size, TIMEOUT_MS, body, user);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static tutti_tensor_t *make(tt_member_t *m, tutti_group_t *group, int64_t count)
{
    tutti_tensor_t *x = NULL;
    TT_EXPECT(m, tutti_group_tensor(group, TUTTI_F32, TUTTI_SHAPE(count), &x) == TUTTI_OK);
    return x;
}

static int64_t others_than(const tutti_tensor_t *x, float want)
{
    const float *values = tutti_tensor_data(x);
    int64_t others = 0;
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        others += values[i] != want;
    }
    return others;
}

/* ---- a late rank ----------------------------------------------------------------------------- */

typedef tutti_status_t (*call_fn_t)(tutti_group_t *group, tutti_tensor_t *x, tutti_work_t **work);

static tutti_status_t sum_in_place(tutti_group_t *group, tutti_tensor_t *x, tutti_work_t **work)
{
    return tutti_all_reduce(group, x, TUTTI_SUM, work);
}

static tutti_status_t sum_to_first(tutti_group_t *group, tutti_tensor_t *x, tutti_work_t **work)
{
    return tutti_reduce(group, x, 0, TUTTI_SUM, work);
}

/* Rank 1 is the root, which puts its share into rank 0's memory. */
static tutti_status_t copy_of_last_rank(tutti_group_t *group, tutti_tensor_t *x,
                                        tutti_work_t **work)
{
    return tutti_broadcast(group, x, 1, work);
}

/* The scaled contribution lies in a pack. */
static tutti_status_t sum_scaled(tutti_group_t *group, tutti_tensor_t *x, tutti_work_t **work)
{
    const double half = 0.5;
    return tutti_all_reduce_with(group, x, TUTTI_PREMUL_SUM,
                                 &(tutti_reduce_options_t){.factor = &half}, work);
}

typedef struct {
    call_fn_t call;
    bool is_held;        /* the tensor of the failed call is used on; else released */
    bool leaves_group;   /* the group is released too */
    tutti_status_t late; /* what the late rank hears, out */
} lateness_t;

/* Rank 0 gives up its call, and uses the memory again. */
static void give_up(tt_member_t *m, const lateness_t *lateness, tutti_group_t *group)
{
    tutti_tensor_t *x = make(m, group, ELEMENTS);
    tutti_work_t *work = NULL;
    TT_EXPECT(m, lateness->call(group, x, &work) == TUTTI_OK);
    tutti_group_abort(group);
    TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_ERR_ABORTED);
    tutti_work_release(work);
    if (!lateness->is_held) {
        tutti_tensor_release(x);
    }
    if (lateness->leaves_group) {
        tutti_group_release(group);
    }
    tutti_tensor_t *y = lateness->is_held ? x : make(m, m->group, ELEMENTS);
    tutti_tensor_t *z = make(m, m->group, ELEMENTS); /* where a pack may have been */
    TT_EXPECT(m, tutti_tensor_fill(y, 7) == TUTTI_OK && tutti_tensor_fill(z, 7) == TUTTI_OK);
    tt_member_tell(m);
    tt_member_await(m, 2);
    TT_EXPECT(m, others_than(y, 7) == 0 && others_than(z, 7) == 0);
    tutti_tensor_release(z);
    tutti_tensor_release(y);
    if (!lateness->leaves_group) {
        tutti_group_release(group);
    }
}

static void come_late(tt_member_t *m)
{
    lateness_t *lateness = m->user;
    const int both[] = {0, 1};
    tutti_group_t *group;
    TT_EXPECT(m, tutti_group_new(m->group, both, 2, NULL, &group) == TUTTI_OK);
    if (m->rank == 0) {
        give_up(m, lateness, group);
        return;
    }
    tutti_tensor_t *x = make(m, group, ELEMENTS);
    tt_member_await(m, 1);
    lateness->late = lateness->call(group, x, NULL);
    tt_member_tell(m);
    tutti_tensor_release(x);
    tutti_group_release(group);
}

static void a_late_rank_touches_nothing_of_one_that_has_given_up(void **state)
{
    (void)state;
    const call_fn_t calls[] = {sum_in_place, sum_to_first, sum_scaled, copy_of_last_rank};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        for (int way = 0; way < 4; way++) {
            lateness_t lateness = {
                .call = calls[i], .is_held = way % 2 == 1, .leaves_group = way / 2 == 1};
            run_team(2, come_late, &lateness);
            if (lateness.late != TUTTI_ERR_ABORTED) {
                fail_msg("call %zu, way %d: the late rank hears %d", i, way, lateness.late);
            }
        }
    }
}

/* ---- a group that has failed ----------------------------------------------------------------- */

static void allocate_after_failure(tt_member_t *m)
{
    if (m->rank == 0) {
        tutti_group_abort(m->group);
    }
    tutti_tensor_t *x = make(m, m->group, 100);
    TT_EXPECT(m, x != NULL && tutti_tensor_fill(x, 3) == TUTTI_OK && others_than(x, 3) == 0);
    tutti_tensor_release(x);
}

static void a_failed_group_still_hands_out_tensors(void **state)
{
    (void)state;
    run_team(2, allocate_after_failure, NULL);
}

/* ---- a rank that shows wrong addresses ------------------------------------------------------- */

static void show_wrong_address(tt_member_t *m)
{
    const bool is_none = *(const bool *)m->user;
    tutti_tensor_t *x = make(m, m->group, ELEMENTS);
    if (m->rank == 0) {
        tt_member_await(m, 1);
        TT_EXPECT(m, sum_in_place(m->group, x, NULL) == TUTTI_ERR_FORMAT);
        TT_EXPECT(m, strstr(tutti_last_error(), "rank 1 shows an address that is wrong") != NULL);
    } else {
        tutti_work_t *work = NULL;
        tt_coll_t *coll = tt_native_coll(m->group->state);
        TT_EXPECT(m, sum_in_place(m->group, x, &work) == TUTTI_OK);
        unsigned char *shown = tt_coll_slot(coll, 1, coll->queue.sequence)->head;
        if (is_none) {
            memset(shown + sizeof(tt_heap_address_t), 0, sizeof(tt_heap_address_t));
        } else {
            shown[sizeof(tt_heap_address_t)] ^= 1; /* of its piece, which is aligned no more */
        }
        tt_member_tell(m);
        TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_ERR_FORMAT);
        tutti_work_release(work);
    }
    tutti_tensor_release(x);
}

static void a_wrong_address_fails_the_call(void **state)
{
    (void)state;
    for (int is_none = 0; is_none < 2; is_none++) {
        run_team(2, show_wrong_address, &(bool){is_none == 1});
    }
}

/* ---- memory that comes back ------------------------------------------------------------------ */

static size_t live_bytes(tutti_group_t *group)
{
    return tt_device_stats(group->backend->memory(group->state)).live_bytes;
}

/* Frees what the others have left as well: they all have when the barrier ends. */
static size_t live_bytes_at_rest(tt_member_t *m)
{
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    tt_node_peers_t *node_peers = tt_native_coll(m->group->state)->node_peers;
    for (int i = 0; i < 1000; i++) {
        tt_quarantine_sweep(node_peers);
    }
    return live_bytes(m->group);
}

typedef enum { CALLS, ABORTED, MESSAGES, KINDS } kind_t;

/* Through rings, and in place. */
static void exchange(tt_member_t *m, tutti_group_t *group, tutti_tensor_t *x)
{
    tutti_work_t *work = NULL;
    tutti_tensor_t *y = make(m, group, tutti_tensor_numel(x));
    TT_EXPECT(m, tutti_send(group, x, (m->rank + 1) % m->size, 1, &work) == TUTTI_OK);
    TT_EXPECT(m, tutti_recv(group, y, (m->rank + m->size - 1) % m->size, 1, NULL) == TUTTI_OK);
    TT_EXPECT(m, tutti_work_wait(work, 0) == TUTTI_OK);
    tutti_work_release(work);
    tutti_tensor_release(y);
}

static void come_and_go(tt_member_t *m)
{
    const kind_t kind = *(const kind_t *)m->user;
    const int all[] = {0, 1, 2};
    const size_t before = live_bytes_at_rest(m);
    for (int i = 0; i < 30; i++) {
        tutti_group_t *group;
        TT_EXPECT(m, tutti_group_new(m->group, all, 3, NULL, &group) == TUTTI_OK);
        tutti_tensor_t *x = make(m, group, i % 2 == 0 ? 10000 : 10);
        if (kind == MESSAGES) {
            exchange(m, group, x);
        } else if (kind == CALLS) {
            TT_EXPECT(m, tutti_all_reduce(group, x, TUTTI_SUM, NULL) == TUTTI_OK);
        } else if (m->rank == i % 3) { /* in the midst of the others' call, or before it */
            tutti_group_abort(group);
        } else {
            TT_EXPECT(m, tutti_all_reduce(group, x, TUTTI_SUM, NULL) == TUTTI_ERR_ABORTED);
        }
        tutti_tensor_release(x);
        tutti_group_release(group);
    }
    TT_EXPECT(m, live_bytes_at_rest(m) == before);
}

static void what_groups_had_comes_back_when_all_have_left(void **state)
{
    (void)state;
    for (kind_t kind = CALLS; kind < KINDS; kind++) {
        run_team(3, come_and_go, &kind);
    }
}

/* ---- processes ------------------------------------------------------------------------------- */

enum { STOPPED_ELEMENTS = 1 << 24, STOPPED_MS = 2000, PATIENCE_MS = 20000 };

typedef struct {
    _Atomic uint32_t told; /* how often ranks have said that they are done with something */
    tutti_status_t statuses[2];
    char failures[2][512];
} report_t;

/* A rank that is a process, with a group of both and a tensor in it. */
typedef struct {
    report_t *report;
    int rank;
    tutti_group_t *world, *group;
    tutti_tensor_t *x;
    call_fn_t call; /* in which it is stopped */
    bool is_cut;    /* the socket between the two has ended by then */
} process_t;

#define EXPECT(process, condition)                                                                 \
    do {                                                                                           \
        char *failure = (process)->report->failures[(process)->rank];                              \
        if (!(condition) && failure[0] == 0) {                                                     \
            snprintf(failure, 512, "line %d: %s: %s", __LINE__, #condition, tutti_last_error());   \
        }                                                                                          \
    } while (0)

static void tell(process_t *process)
{
    atomic_fetch_add(&process->report->told, 1);
    tt_futex_wake_all(&process->report->told);
}

static void await(process_t *process, uint32_t times)
{
    const tt_deadline_t deadline = tt_deadline_in_ms(PATIENCE_MS);
    uint32_t seen = atomic_load(&process->report->told);
    while (seen < times && !tt_deadline_is_past(deadline)) {
        tt_futex_wait(&process->report->told, seen, deadline);
        seen = atomic_load(&process->report->told);
    }
    EXPECT(process, seen >= times);
}

static void live(process_t *process, const char *path, int64_t elements,
                 void (*body)(process_t *process))
{
    char url[128];
    const tutti_group_options_t options = {.timeout_ms = STOPPED_MS};
    snprintf(url, sizeof url, "file://%s?rank=%d&world_size=2", path, process->rank);
    tt_log_set_sink(tt_team_ignore_log, NULL);
    const bool is_ready =
        tutti_init(&(tutti_init_options_t){.url = url}, &process->world) == TUTTI_OK &&
        tutti_group_new(process->world, NULL, 0, &options, &process->group) == TUTTI_OK &&
        tutti_group_tensor(process->group, TUTTI_F32, TUTTI_SHAPE(elements), &process->x) ==
            TUTTI_OK &&
        tutti_tensor_fill(process->x, process->rank) == TUTTI_OK;
    EXPECT(process, is_ready);
    if (is_ready) {
        body(process);
        tutti_group_release(process->group);
        tutti_tensor_release(process->x);
        tutti_group_release(process->world);
        EXPECT(process, tt_alloc_stats().blocks == 0);
    }
    _exit(is_ready ? 0 : 1);
}

/* Two processes; both hear `status` in the end. */
static void run_processes(int64_t elements, void (*body)(process_t *process), tutti_status_t status)
{
    report_t *report =
        mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(report != MAP_FAILED);
    char path[] = "/tmp/tutti-lease-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    unlink(path);
    pid_t children[2];
    for (int rank = 0; rank < 2; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            live(&(process_t){.report = report, .rank = rank}, path, elements, body);
        }
    }
    for (int rank = 0; rank < 2; rank++) {
        int ended = 0;
        assert_int_equal(waitpid(children[rank], &ended, 0), children[rank]);
        assert_string_equal(report->failures[rank], "");
        assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
    }
    assert_int_equal(report->statuses[0], status);
    assert_int_equal(report->statuses[1], status);
    unlink(path);
    munmap(report, sizeof *report);
}

static void come_late_as_process(process_t *process)
{
    tutti_status_t *status = &process->report->statuses[process->rank];
    if (process->rank == 1) {
        await(process, 1);
        *status = tutti_all_reduce(process->group, process->x, TUTTI_SUM, NULL);
        tell(process);
        return;
    }
    tutti_work_t *work = NULL;
    EXPECT(process, tutti_all_reduce(process->group, process->x, TUTTI_SUM, &work) == TUTTI_OK);
    tutti_group_abort(process->group);
    *status = tutti_work_wait(work, 0);
    tutti_work_release(work);
    tutti_tensor_release(process->x);
    EXPECT(process, tutti_group_tensor(process->world, TUTTI_F32, TUTTI_SHAPE(ELEMENTS),
                                       &process->x) == TUTTI_OK);
    EXPECT(process, tutti_tensor_fill(process->x, 7) == TUTTI_OK);
    tell(process);
    await(process, 2);
    EXPECT(process, others_than(process->x, 7) == 0);
}

static void a_late_process_touches_nothing_either(void **state)
{
    (void)state;
    run_processes(ELEMENTS, come_late_as_process, TUTTI_ERR_ABORTED);
}

/* ---- a process that was stopped inside ------------------------------------------------------- */

typedef struct {
    tt_coll_t *coll; /* of rank 0, whose calls go on meanwhile */
    pid_t victim;
    bool is_cut;
    int64_t stopped_ns;
} stopper_t;

/* "pid (name) T ..." */
static bool is_stopped(pid_t pid)
{
    char path[40], text[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    const size_t bytes = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file != NULL) {
        fclose(file);
    }
    text[bytes] = 0;
    const char *end = strrchr(text, ')');
    return end != NULL && end[1] == ' ' && end[2] == 'T';
}

/* Stops rank 1 when it is inside, and lets it go on if it was not any more. */
static void *stop_inside(void *user)
{
    stopper_t *stopper = user;
    const _Atomic uint64_t *inside = &stopper->coll->blocks[1]->inside;
    const tt_deadline_t deadline = tt_deadline_in_ms(PATIENCE_MS);
    while (!tt_deadline_is_past(deadline)) {
        if (atomic_load(inside) == 0) {
            continue;
        }
        kill(stopper->victim, SIGSTOP);
        while (!is_stopped(stopper->victim) && !tt_deadline_is_past(deadline)) {
            sched_yield();
        }
        if (atomic_load(inside) != 0) {
            break;
        }
        kill(stopper->victim, SIGCONT);
    }
    stopper->stopped_ns = tt_clock_ns();
    if (stopper->is_cut) {
        const int peer = stopper->coll->node_peer_ranks[1];
        shutdown(stopper->coll->node_peers->node_peers[peer].fd, SHUT_RD);
    }
    return NULL;
}

static tutti_status_t max_in_place(tutti_group_t *group, tutti_tensor_t *x, tutti_work_t **work)
{
    return tutti_all_reduce(group, x, TUTTI_MAX, work);
}

static tutti_status_t call_until_failure(const process_t *process)
{
    tutti_status_t status = TUTTI_OK;
    while (status == TUTTI_OK) {
        status = process->call(process->group, process->x, NULL);
    }
    return status;
}

/* Rank 0's memory is its own again although rank 1 is still inside. */
static void outlive_visitor(process_t *process)
{
    tt_coll_t *coll = tt_native_coll(process->group->state);
    stopper_t stopper = {.coll = coll,
                         .is_cut = process->is_cut,
                         .victim =
                             (pid_t)tt_node_peers_pid(coll->node_peers, coll->node_peer_ranks[1])};
    pthread_t thread;
    float *values = tutti_tensor_data(process->x);
    pthread_create(&thread, NULL, stop_inside, &stopper);
    process->report->statuses[0] = call_until_failure(process);
    const int64_t failed_ns = tt_clock_ns();
    pthread_join(thread, NULL);
    EXPECT(process, failed_ns - stopper.stopped_ns < 10 * STOPPED_MS * TT_NS_PER_MS);
    EXPECT(process, tutti_tensor_data(process->x) == values);
    EXPECT(process, atomic_load(&coll->blocks[1]->inside) != 0);
    for (int64_t i = 0; i < STOPPED_ELEMENTS; i++) {
        values[i] = 7;
    }
    kill(stopper.victim, SIGCONT);
    await(process, 1);
    EXPECT(process, others_than(process->x, 7) == 0);
}

static void be_stopped(process_t *process)
{
    if (process->rank == 0) {
        outlive_visitor(process);
    } else {
        process->report->statuses[1] = call_until_failure(process);
        tell(process);
    }
    if (process->is_cut) {
        return;
    }
    /* the tensor works in another group as before */
    EXPECT(process, tutti_tensor_fill(process->x, process->rank + 1) == TUTTI_OK);
    EXPECT(process, tutti_all_reduce(process->world, process->x, TUTTI_SUM, NULL) == TUTTI_OK);
    EXPECT(process, others_than(process->x, 3) == 0);
}

static void be_stopped_in_sum(process_t *process)
{
    process->call = max_in_place;
    be_stopped(process);
}

static void be_stopped_in_broadcast(process_t *process)
{
    process->call = copy_of_last_rank;
    be_stopped(process);
}

/* To rank 0, rank 1 is dead, and yet it goes on to write. */
static void be_cut_off_in_sum(process_t *process)
{
    process->is_cut = true;
    be_stopped_in_sum(process);
}

static void a_rank_cut_off_inside_harms_nobody(void **state)
{
    (void)state;
    run_processes(STOPPED_ELEMENTS, be_cut_off_in_sum, TUTTI_ERR_PEER);
}

static void a_rank_stopped_inside_harms_nobody(void **state)
{
    (void)state;
    run_processes(STOPPED_ELEMENTS, be_stopped_in_sum, TUTTI_ERR_TIMEOUT);
    run_processes(STOPPED_ELEMENTS, be_stopped_in_broadcast, TUTTI_ERR_TIMEOUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_rank_touches_nothing_of_one_that_has_given_up),
        cmocka_unit_test(a_failed_group_still_hands_out_tensors),
        cmocka_unit_test(a_wrong_address_fails_the_call),
        cmocka_unit_test(what_groups_had_comes_back_when_all_have_left),
        cmocka_unit_test(a_late_process_touches_nothing_either),
        cmocka_unit_test(a_rank_stopped_inside_harms_nobody),
        cmocka_unit_test(a_rank_cut_off_inside_harms_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
