/* Subgroups of mpi_conform, and what goes wrong in them. */
#include "mpi_conform.h"

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "comm/backend/mpi/mpi_impl.h"

/* ---- subgroups ---- */

group_t open_part(const group_t *world, const char *name, const int *ranks, int size,
                  int64_t timeout_ms)
{
    group_t part_of = {.ops = world->ops, .size = size, .rank = -1};
    for (int i = 0; i < size; i++) {
        part_of.rank = ranks[i] == world->rank ? i : part_of.rank;
    }
    part_of.state = tt_alloc(world->ops->state_bytes, "state");
    CHECK(part_of.state != NULL && part_of.rank >= 0, "member");
    const tt_backend_options_t options = {.name = name,
                                          .rank = part_of.rank,
                                          .size = size,
                                          .timeout_ms = timeout_ms,
                                          .parent = world->state,
                                          .parent_ranks = ranks};
    CHECK(world->ops->open(part_of.state, &options) == TUTTI_OK, "open");
    return part_of;
}

void close_part(group_t *group)
{
    group->ops->close(group->state);
    tt_free(group->state);
}

static void try_everybody(const group_t *world)
{
    int ranks[LEAVES_MAX];
    for (int i = 0; i < world->size; i++) {
        ranks[i] = i;
    }
    group_t all = open_part(world, "all", ranks, world->size, 20000);
    perform(&all, &(tt_call_t){.collective = TT_BARRIER});
    close_part(&all);
}

/* The last rank and the first, in that order; others know nothing of it. */
void try_subgroup(const group_t *world)
{
    try_everybody(world);
    const int ranks[2] = {world->size - 1, 0}, size = world->size > 1 ? 2 : 1;
    if (world->rank != ranks[0] && world->rank != 0) {
        return;
    }
    group_t ends = open_part(world, "ends", ranks, size, 20000);
    my_rank = ends.rank;
    try_moves(&ends);
    try_canonical(&ends);
    try_ring(&ends, 100);
    my_rank = world->rank;
    close_part(&ends);
}

/* ---- faults ---- */

static void expect_failure(const group_t *group, tt_op_t *op, tutti_status_t want, const char *text)
{
    const tutti_status_t status = group->ops->wait(group->state, op, tt_deadline_in_ms(20000));
    CHECK(status == want, "got %s, want %s", tutti_status_name(status), tutti_status_name(want));
    CHECK(strstr(tutti_last_error(), text) != NULL, "want \"%s\"", text);
    CHECK(group->ops->status(group->state) == want, "status");
    static tt_run_t again;
    const tt_call_t call = {.collective = TT_BARRIER};
    CHECK(group->ops->start(group->state, &call, &again) == want, "a failed group takes calls");
}

static void start_sum(const group_t *group, tt_run_t *run, size_t count)
{
    const tt_call_t call = {.collective = TT_ALL_REDUCE,
                            .count = count,
                            .pieces = (const void *[]){buffers[0]},
                            .piece_count = 1,
                            .out = buffers[0]};
    CHECK(group->ops->start(group->state, &call, run) == TUTTI_OK, "start");
}

/* MPI cannot take back what it has announced, so it may read that for ever. */
void check_scratch_is_kept(void)
{
    char left[1000];
    (void)tt_alloc_report(left, sizeof left);
    CHECK(strstr(left, "mpi scratch") != NULL, "scratch was freed under MPI's eyes");
}

/* Rank 0 does not come to a call: the others name it, and rank 0 hears of it. */
static void try_late(const group_t *world, size_t count)
{
    static tt_run_t run, behind;
    static tt_message_op_t op;
    int ranks[LEAVES_MAX];
    for (int i = 0; i < world->size; i++) {
        ranks[i] = i;
    }
    group_t all = open_part(world, "late", ranks, world->size, 300);
    if (world->rank > 0) {
        start_sum(&all, &run, count);
        start_sum(&all, &behind, count); /* who waits for this one waits for the other */
        /* The first to give up tells the rest. */
        const tutti_status_t status =
            all.ops->wait(all.state, &behind.op, tt_deadline_in_ms(20000));
        CHECK(status == TUTTI_ERR_TIMEOUT || status == TUTTI_ERR_ABORTED, "late");
        if (status == TUTTI_ERR_TIMEOUT) {
            CHECK(strstr(tutti_last_error(), "all_reduce #1 f32[1") != NULL, "call");
            CHECK(strstr(tutti_last_error(), "of group late: gave up after 300 ms") != NULL, "who");
            CHECK(strstr(tutti_last_error(), "nothing came from rank 0") != NULL, "missing");
        }
    } else {
        const tt_message_t never = {.peer = 0, .data = buffers[1], .count = 1};
        CHECK(all.ops->start_message(all.state, &never, &op) == TUTTI_OK, "start");
        const tutti_status_t status = all.ops->wait(all.state, &op.op, tt_deadline_in_ms(20000));
        CHECK(status == TUTTI_ERR_ABORTED || status == TUTTI_ERR_TIMEOUT, "news");
    }
    close_part(&all);
    if (count > 1000 && world->rank > 0) {
        check_scratch_is_kept();
    }
}

/* Rank 1 comes when rank 0 has given up and uses its memory again: nothing arrives there. */
static void try_straggler(const group_t *world, size_t count)
{
    static tt_run_t run;
    const int ranks[2] = {0, 1};
    group_t two = {0};
    const tt_call_t call = {.collective = TT_ALL_GATHER,
                            .count = count,
                            .pieces = (const void *[]){buffers[0]},
                            .piece_count = 1,
                            .out = buffers[2]};
    if (world->rank < 2) {
        two = open_part(world, count > 1000 ? "straggler" : "straggler of little", ranks, 2,
                        world->rank == 0 ? 1000 : 20000);
    }
    if (world->rank == 0) {
        CHECK(two.ops->start(two.state, &call, &run) == TUTTI_OK, "start");
        CHECK(two.ops->wait(two.state, &run.op, tt_deadline_in_ms(20000)) == TUTTI_ERR_TIMEOUT,
              "rank 1 was there");
        memset(buffers[2], 0x77, 2 * count * sizeof(float));
    }
    perform(world, &(tt_call_t){.collective = TT_BARRIER});
    if (world->rank == 1) {
        CHECK(two.ops->start(two.state, &call, &run) == TUTTI_OK, "start");
        const tutti_status_t status = two.ops->wait(two.state, &run.op, tt_deadline_in_ms(20000));
        /* little was on its way before rank 0 gave up */
        CHECK(status == TUTTI_ERR_ABORTED || (status == TUTTI_OK && count <= 1000),
              "it did not hear that rank 0 gave up");
    }
    perform(world, &(tt_call_t){.collective = TT_BARRIER});
    for (size_t i = 0; world->rank == 0 && i < 2 * count * sizeof(float); i++) {
        CHECK(buffers[2][i] == 0x77, "byte %zu was overwritten after the failure", i);
    }
    if (world->rank < 2) {
        close_part(&two);
    }
}

/* Rank 1's call is another one: all ranks say so, before memory is touched (TUTTI_MPI_CHECK). */
static void try_different(const group_t *world, const tt_call_t *one, const tt_call_t *other,
                          const char *text)
{
    static tt_run_t run;
    int ranks[LEAVES_MAX];
    for (int i = 0; i < world->size; i++) {
        ranks[i] = i;
    }
    group_t all = open_part(world, "different", ranks, world->size, 20000);
    poison();
    tt_call_t call = world->rank == 1 ? *other : *one;
    call.out_dtype = call.dtype;
    call.pieces = (const void *[]){buffers[0]};
    call.piece_count = call.collective != TT_BARRIER;
    call.out = buffers[1];
    CHECK(all.ops->start(all.state, &call, &run) == TUTTI_OK, "start");
    const tutti_status_t status = all.ops->wait(all.state, &run.op, tt_deadline_in_ms(20000));
    CHECK(status == TUTTI_ERR_MISMATCH || status == TUTTI_ERR_ABORTED, "%s", text);
    CHECK(status == TUTTI_ERR_ABORTED || strstr(tutti_last_error(), text) != NULL, "%s", text);
    for (int i = 0; i < GUARD; i++) {
        CHECK(buffers[1][i] == 0x5a, "%s: memory was touched", text);
    }
    close_part(&all);
}

void try_mismatches(const group_t *world)
{
    const tt_call_t sum = {.collective = TT_ALL_REDUCE, .count = 5000};
    tt_call_t other = sum;
    other.reduction = TUTTI_MAX;
    try_different(world, &sum, &other,
                  "all_reduce #1: rank 1 passed f32[5000] max, rank 0 passed f32[5000] sum");
    other = sum;
    other.count = 4999;
    try_different(world, &sum, &other, "rank 1 passed f32[4999], rank 0 passed f32[5000]");
    other = sum;
    other.dtype = TUTTI_I32;
    try_different(world, &sum, &other, "rank 1 passed i32[5000] into i32, rank 0 passed f32");
    other = sum;
    other.tag = 7;
    try_different(world, &sum, &other, "with tag 7");
    other = (tt_call_t){.collective = TT_BARRIER};
    try_different(world, &sum, &other, "rank 1 called barrier f32[0], rank 0 called all_reduce");
    const tt_call_t first = {.collective = TT_BROADCAST, .count = 10, .root = 0};
    other = first;
    other.root = 1;
    try_different(world, &first, &other, "with root 1");
}

/* Rank 0 gives up, and changes what rank 1 has not got yet: OK means the bytes from before. */
static void try_changed(const group_t *world, size_t bytes)
{
    static tt_run_t run;
    const size_t counts[2] = {bytes, 0};
    const tt_call_t call = {.collective = TT_ALL_GATHER,
                            .dtype = TUTTI_U8,
                            .out_dtype = TUTTI_U8,
                            .count = bytes / 2,
                            .counts = counts,
                            .pieces = (const void *[]){buffers[0]},
                            .piece_count = 1,
                            .out = buffers[2]};
    group_t two = open_part(world, "changed", (const int[]){0, 1}, 2, 20000);
    memset(buffers[0], 0x11, bytes);
    if (world->rank == 0) {
        static tt_message_op_t never;
        ((tt_mpi_group_t *)two.state)->timeout_ms = 100;
        CHECK(two.ops->start(two.state, &call, &run) == TUTTI_OK, "start");
        post(&two, &never, false, 1, 1, (tt_slice_t){0, 1});
        CHECK(two.ops->wait(two.state, &never.op, tt_deadline_in_ms(20000)) == TUTTI_ERR_TIMEOUT,
              "rank 1 was there");
        memset(buffers[0], 0x22, bytes);
    }
    perform(world, &(tt_call_t){.collective = TT_BARRIER});
    if (world->rank == 1) {
        CHECK(two.ops->start(two.state, &call, &run) == TUTTI_OK, "start");
        const tutti_status_t status = two.ops->wait(two.state, &run.op, tt_deadline_in_ms(20000));
        CHECK(status == TUTTI_OK || status == TUTTI_ERR_ABORTED, "changed");
        for (size_t i = 0; status == TUTTI_OK && i < bytes; i++) {
            CHECK(buffers[2][i] == 0x11, "byte %zu of %zu was changed after rank 0 gave up", i,
                  bytes);
        }
    }
    perform(world, &(tt_call_t){.collective = TT_BARRIER});
    close_part(&two);
}

/* Rank 0 gives up while others wait for it. */
static void try_abort(const group_t *world)
{
    static tt_run_t run;
    static tt_message_op_t op;
    int ranks[LEAVES_MAX];
    for (int i = 0; i < world->size; i++) {
        ranks[i] = i;
    }
    group_t all = open_part(world, "aborted", ranks, world->size, 20000);
    if (world->rank == 0) {
        start_sum(&all, &run, 100000);
        all.ops->abort(all.state, "");
        expect_failure(&all, &run.op, TUTTI_ERR_ABORTED, "group aborted was aborted");
    } else {
        post(&all, &op, false, 0, 1, (tt_slice_t){0, 1}); /* which rank 0 never sends */
        const int64_t begin = tt_clock_ns();
        expect_failure(&all, &op.op, TUTTI_ERR_ABORTED, "rank 0 aborted it");
        CHECK(tt_clock_ns() - begin < 5 * TT_NS_PER_S, "it took the deadline to hear of it");
    }
    close_part(&all);
}

/* A rank that has nothing under way hears of an abort when it asks for a message. */
static void try_idle(const group_t *world)
{
    int ranks[LEAVES_MAX];
    for (int i = 0; i < world->size; i++) {
        ranks[i] = i;
    }
    group_t all = open_part(world, "idle", ranks, world->size, 20000);
    const tt_message_t any = {.kind = TT_MESSAGE_PROBE, .peer = TT_ANY_RANK, .tag = TT_ANY_TAG};
    const tt_deadline_t deadline = tt_deadline_in_ms(5000);
    tt_message_op_t op;
    if (world->rank == 0) {
        all.ops->abort(all.state, "");
    }
    tutti_status_t status = TUTTI_PENDING;
    while (status == TUTTI_PENDING && !tt_deadline_is_past(deadline)) {
        status = all.ops->iprobe(all.state, &any, &op);
    }
    CHECK(status == TUTTI_ERR_ABORTED, "iprobe of an aborted group: %s", tutti_status_name(status));
    close_part(&all);
}

/* A deadline is kept although its caller looks ten times a second. */
static void try_slow_test(const group_t *world)
{
    static tt_message_op_t op;
    group_t two = open_part(world, "slow", (const int[]){0, 1}, 2, 300);
    const int64_t begin = tt_clock_ns();
    tutti_status_t status = TUTTI_PENDING;
    post(&two, &op, false, 1 - world->rank, 1, (tt_slice_t){0, 1}); /* which is never sent */
    while (status == TUTTI_PENDING) {
        nanosleep(&(struct timespec){.tv_nsec = 100 * TT_NS_PER_MS}, NULL);
        status = two.ops->test(two.state, &op.op);
    }
    CHECK(status == TUTTI_ERR_TIMEOUT || status == TUTTI_ERR_ABORTED, "slow");
    CHECK(tt_clock_ns() - begin < 4 * TT_NS_PER_S, "a deadline of 300 ms came after %lld ms",
          (long long)((tt_clock_ns() - begin) / TT_NS_PER_MS));
    close_part(&two);
}

/* Rank 1 comes to a group when rank 0 does not wait for it any more. */
static void try_missed(const group_t *world)
{
    const int ranks[2] = {0, 1};
    tt_backend_options_t options = {.name = "missed",
                                    .rank = world->rank,
                                    .size = 2,
                                    .timeout_ms = world->rank == 0 ? 300 : 5000,
                                    .parent = world->state,
                                    .parent_ranks = ranks};
    void *state = tt_alloc(world->ops->state_bytes, "state");
    CHECK(state != NULL, "state");
    if (world->rank == 0) {
        CHECK(world->ops->open(state, &options) == TUTTI_ERR_TIMEOUT, "rank 1 was there");
        CHECK(strstr(tutti_last_error(), "nothing came from rank 1") != NULL, "missing");
    }
    perform(world, &(tt_call_t){.collective = TT_BARRIER});
    if (world->rank == 1) {
        CHECK(world->ops->open(state, &options) == TUTTI_ERR_TIMEOUT, "rank 0 was there");
        CHECK(strstr(tutti_last_error(), "rank 0 had given it up") != NULL, "too late");
    }
    perform(world, &(tt_call_t){.collective = TT_BARRIER});
    tt_free(state);
}

/* Rank 0 gives up a group that rank 1 never comes to. What it has said there is no word about the
 * next group, whose name is as much like the other as names can be. */
static void try_alike(const group_t *world)
{
    const int ranks[2] = {0, 1};
    if (world->rank == 0) {
        const tt_backend_options_t options = {.name = "Aa",
                                              .size = 2,
                                              .timeout_ms = 300,
                                              .parent = world->state,
                                              .parent_ranks = ranks};
        void *state = tt_alloc(world->ops->state_bytes, "state");
        CHECK(state != NULL, "state");
        CHECK(world->ops->open(state, &options) == TUTTI_ERR_TIMEOUT, "rank 1 was there");
        tt_free(state);
    }
    perform(world, &(tt_call_t){.collective = TT_BARRIER});
    group_t two = open_part(world, "BB", ranks, 2, 20000);
    perform(&two, &(tt_call_t){.collective = TT_BARRIER});
    close_part(&two);
}

/* ---- groups of groups ---- */

/* A rank that waits for members moves the calls of the parent on: the others wait for those first.
 */
static void try_new_while_busy(tutti_group_t *world)
{
    tutti_group_t *again;
    tutti_tensor_t *x;
    tutti_work_t *work;
    const tutti_group_options_t options = {.timeout_ms = 5000};
    CHECK(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(1 << 20), &x) == TUTTI_OK, "tensor");
    CHECK(tutti_all_reduce(world, x, TUTTI_SUM, &work) == TUTTI_OK, "all_reduce");
    if (world->rank != 0) {
        CHECK(tutti_work_wait(work, 0) == TUTTI_OK, "wait");
    }
    CHECK(tutti_group_new(world, NULL, 0, &options, &again) == TUTTI_OK, "a group meanwhile");
    CHECK(tutti_work_wait(work, 0) == TUTTI_OK, "wait");
    tutti_work_release(work);
    tutti_tensor_release(x);
    tutti_group_release(again);
}

/* A rank that waits for members hears that one of them has given the parent up. */
static void try_new_of_aborted(tutti_group_t *world)
{
    tutti_group_t *parent, *never;
    CHECK(tutti_group_new(world, NULL, 0, NULL, &parent) == TUTTI_OK, "parent");
    if (world->rank == 0) {
        tutti_group_abort(parent);
    } else {
        const int64_t begin = tt_clock_ns();
        CHECK(tutti_group_new(parent, NULL, 0, NULL, &never) == TUTTI_ERR_ABORTED, "abort");
        CHECK(tt_clock_ns() - begin < 10 * TT_NS_PER_S, "it took the deadline");
    }
    tutti_group_release(parent);
}

/* MPI is the parent's: a forked child that called it would speak in its parent's name. */
static void try_forked(tutti_group_t *world)
{
    int status = 1;
    const pid_t child = fork();
    if (child == 0) {
        _exit(tutti_barrier(world, NULL) != TUTTI_ERR_STATE ||
              strstr(tutti_last_error(), "barrier: this process was forked") == NULL);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "a forked child calls");
    CHECK(tutti_barrier(world, NULL) == TUTTI_OK, "barrier");
}

void try_new(tutti_group_t *world)
{
    try_new_while_busy(world);
    try_new_of_aborted(world);
    try_forked(world);
}

/* ---- the world ---- */

/* Rank 0 never joins: the others say so, and do not wait for it when they end either. */
int try_absent(void)
{
    enum { ABSENT_S = 60 };
    tutti_group_t *world;
    int size;
    CHECK(tt_backend_mpi.world(&my_rank, &size) == TUTTI_OK, "MPI");
    if (my_rank == 0) {
        nanosleep(&(struct timespec){.tv_sec = ABSENT_S}, NULL);
        return 0;
    }
    CHECK(tutti_init(&(tutti_init_options_t){.timeout_ms = 500}, &world) == TUTTI_ERR_TIMEOUT,
          "join");
    printf("rank %d of %d: rank 0 has not joined\n", my_rank, size);
    fflush(stdout);
    return 0;
}

/* ---- messages ---- */

/* A message longer, and one shorter, than its receiver asked for. */
static void try_mismatch(const group_t *world, size_t sent)
{
    static tt_message_op_t op;
    group_t two = open_part(world, sent > 4 ? "longer" : "shorter", (const int[]){0, 1}, 2, 20000);
    post(&two, &op, world->rank == 0, 1 - world->rank, 1,
         (tt_slice_t){0, world->rank == 0 ? sent : 4});
    if (world->rank == 1) {
        expect_failure(&two, &op.op, TUTTI_ERR_MISMATCH,
                       sent > 4 ? "more than it asked for" : "asked for");
    } else {
        (void)two.ops->wait(two.state, &op.op, tt_deadline_in_ms(5000));
    }
    close_part(&two);
}

/* Rows that are given and not wanted, and fewer than are wanted: both ranks say so. */
static void try_rows(const group_t *world, size_t given, size_t wanted)
{
    static tt_run_t run;
    group_t two = open_part(world, given > wanted ? "rows" : "few", (const int[]){0, 1}, 2, 20000);
    char text[80];
    const size_t none[] = {0, 0}, gives[] = {0, given}, wants[] = {wanted, 0};
    const tt_call_t call = {.collective = TT_ALL_TO_ALL,
                            .dtype = TUTTI_F32,
                            .out_dtype = TUTTI_F32,
                            .counts = world->rank == 0 ? gives : none,
                            .recv_counts = world->rank == 0 ? none : wants,
                            .pieces = (const void *[]){buffers[0]},
                            .piece_count = 1,
                            .out = buffers[1]};
    snprintf(text, sizeof text, "rank 0 gives rank 1 %zu elements, but rank 1 wants %zu", given,
             wanted);
    CHECK(two.ops->start(two.state, &call, &run) == TUTTI_OK, "start");
    expect_failure(&two, &run.op, TUTTI_ERR_MISMATCH, text);
    close_part(&two);
}

/* The others, who know nothing of it, end as if nothing had happened. */
void try_pair(const group_t *world)
{
    if (world->rank < 2) {
        try_mismatch(world, 6);
        try_rows(world, 3, 0);
        try_rows(world, 2, 5);
        try_rows(world, 0, 4);
    }
}

void try_faults(const group_t *world)
{
    try_late(world, 10);
    try_late(world, 100000);
    if (world->size > 1) {
        try_straggler(world, 100);
        try_straggler(world, 100000);
    }
    static const size_t sizes[] = {2000, 4090, 8000, 50000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && world->size == 2; i++) {
        try_changed(world, sizes[i]);
    }
    try_abort(world);
    try_idle(world);
    if (world->rank < 2) {
        try_slow_test(world);
        try_mismatch(world, 2);
        try_mismatch(world, 6);
    }
    if (world->size == 2) {
        try_missed(world);
        try_alike(world);
    }
    perform(world, &(tt_call_t){.collective = TT_BARRIER}); /* other groups go on */
}
