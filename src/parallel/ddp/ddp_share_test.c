/* Stage 3 where ranks share a host: parameters are there once, whoever reads them; what a rank does
 * alone harms no other; killed and stopped ranks are named. */
#include "core/base/testing.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/own_optimizer.h>
#include <tutti/sharded.h>

#include "comm/backend/native_backend.h"
#include "comm/exec/coll_impl.h"
#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"
#include "comm/group/rank_testing.h"
#include "comm/net/free_port_test.h"
#include "core/base/futex.h"
#include "parallel/ddp/ddp_impl.h"

enum { TIMEOUT_MS = 60000, LAYERS = 5, WIDTH = 400, BATCH = 3, STEPS = 3, VICTIM = 1 };

/* ---- a training ------------------------------------------------------------------------------ */

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *net, *layers[LAYERS];
    tutti_optim_t *opt;
    tutti_ddp_t *ddp;
} training_t;

static tutti_status_t make_net(training_t *t)
{
    const tutti_linear_options_t options = {
        .in = WIDTH, .out = WIDTH, .activation = TUTTI_ACTIVATION_TANH};
    TUTTI_CHECK(tutti_module_create(t->ctx, &tutti_sequential_layer, NULL, &t->net));
    for (int i = 0; i < LAYERS; i++) {
        TUTTI_CHECK(tutti_sequential_add(t->net, &tutti_linear_layer, &options, &t->layers[i]));
    }
    return TUTTI_OK;
}

static tutti_status_t open_training(training_t *t, tutti_group_t *group,
                                    const tutti_optim_ops_t *kind,
                                    const tutti_ddp_options_t *options)
{
    const tutti_context_options_t context = {.threads = 1, .seed = 5};
    TUTTI_CHECK(tutti_context_create(&context, &t->ctx));
    TUTTI_CHECK(make_net(t));
    TUTTI_CHECK(tutti_optim_create(t->ctx, kind, NULL, &t->opt));
    TUTTI_CHECK(tutti_optim_add_module(t->opt, t->net, NULL, NULL));
    return tutti_ddp_create(t->ctx, t->net, group, options, &t->ddp);
}

static const tutti_ddp_options_t stage_3 = {.stage = 3, .units = {.kind = "linear"}};

static void close_training(training_t *t)
{
    tutti_ddp_release(t->ddp);
    tutti_optim_release(t->opt);
    tutti_module_release(t->net);
    tutti_context_release(t->ctx);
}

static tutti_tensor_t *loss_of(tutti_scope_t *s, const training_t *t, tutti_tensor_t *x)
{
    return tutti_mean(s, tutti_square(s, tutti_forward(s, t->net, x)));
}

static tutti_status_t run_shard(training_t *t)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(t->ctx, &s));
    tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(BATCH, WIDTH), -1, 1);
    (void)tutti_backward(s, loss_of(s, t, x));
    return tutti_scope_close(s);
}

static tutti_status_t run_step(training_t *t, int step)
{
    tutti_context_set_step(t->ctx, step);
    while (tutti_ddp_next_shard(t->ddp, t->ctx)) {
        TUTTI_CHECK(run_shard(t));
    }
    TUTTI_CHECK(tutti_ddp_finish(t->ddp));
    return tutti_optim_step(t->opt);
}

static tutti_status_t evaluate(training_t *t, float *loss)
{
    tutti_scope_t *s;
    tutti_tensor_t *x;
    TUTTI_CHECK(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(BATCH, WIDTH), &x));
    TUTTI_CHECK(tutti_tensor_fill(x, 0.25));
    TUTTI_CHECK(tutti_scope_open(t->ctx, &s));
    const bool before = tutti_context_set_grad_enabled(t->ctx, false);
    const tutti_tensor_t *y = loss_of(s, t, x);
    *loss = tutti_tensor_status(y) < 0 ? -1 : *(const float *)tutti_tensor_data(y);
    tutti_context_set_grad_enabled(t->ctx, before);
    const tutti_status_t status = tutti_scope_close(s);
    tutti_tensor_release(x);
    return status;
}

static void run_team(int size, void (*body)(tt_member_t *), void *user)
{
    tt_needs_shared_memory("one copy is for ranks of one host");
    tt_team_expect_quietly(size, TIMEOUT_MS, body, user);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- memory ---------------------------------------------------------------------------------- */

typedef struct {
    size_t heap[TT_TEAM_MAX], state[TT_TEAM_MAX], parameters;
    const char *source;
} counts_t;

/* What a rank looks at while modules compute. */
typedef struct {
    tt_member_t *m;
    const training_t *t;
    tt_device_t *heap;
    size_t before; /* in its heap, between steps */
    int forwards, backwards;
} watch_t;

static size_t buckets_there(const tutti_ddp_t *ddp)
{
    size_t count = 0;
    for (int b = 0; b < ddp->reducer->plan.bucket_count; b++) {
        count += ddp->reducer->buckets[b].grad->storage->away == NULL;
    }
    return count;
}

/* Nothing of a unit is in memory of this rank. */
static void expect_no_copies(const watch_t *w)
{
    const tutti_ddp_memory_t memory = tutti_ddp_memory(w->t->ddp, NULL);
    TT_EXPECT(w->m, memory.unit_bytes == 0 && memory.peak_unit_bytes == 0);
}

static tutti_status_t watch_forward(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s, (void)call;
    watch_t *w = user;
    w->forwards++;
    TT_EXPECT(w->m, buckets_there(w->t->ddp) == 0);
    TT_EXPECT(w->m, tt_device_stats(w->heap).live_bytes == w->before);
    expect_no_copies(w);
    return TUTTI_OK;
}

/* Buckets of gradients come and go. */
static tutti_status_t watch_backward(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s, (void)call;
    watch_t *w = user;
    const size_t bucket = tutti_ddp_memory(w->t->ddp, NULL).largest_unit_bytes,
                 now = tt_device_stats(w->heap).live_bytes;
    w->backwards++;
    TT_EXPECT(w->m, now <= w->before + buckets_there(w->t->ddp) * (bucket + tt_heap_page_bytes()));
    expect_no_copies(w);
    return TUTTI_OK;
}

/* Those of the group are as large for any model. */
static void make_bounce_buffers(tt_member_t *m)
{
    tutti_tensor_t *x;
    TT_EXPECT(m, tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(1 << 18), &x) == TUTTI_OK);
    TT_EXPECT(m, tutti_broadcast(m->group, x, 0, NULL) == TUTTI_OK);
    tutti_tensor_release(x);
}

static void watch_layers(tt_member_t *m, watch_t *w)
{
    static const tutti_module_hooks_t hooks = {.before_forward = watch_forward,
                                               .before_backward = watch_backward};
    for (int i = 0; i < LAYERS; i++) { /* behind those of units */
        TT_EXPECT(m, tutti_module_add_hooks(w->t->layers[i], &hooks, w) == TUTTI_OK);
    }
    w->before = tt_device_stats(w->heap).live_bytes;
}

static void count(tt_member_t *m)
{
    counts_t *counts = m->user;
    training_t t = {0};
    tt_device_t *heap = m->group->backend->memory(m->group->state);
    watch_t w = {.m = m, .t = &t, .heap = heap};
    make_bounce_buffers(m);
    const size_t before = tt_device_stats(heap).live_bytes;
    TT_EXPECT(m, open_training(&t, m->group, &tutti_adamw, &stage_3) == TUTTI_OK);
    TT_EXPECT(m, run_step(&t, 0) == TUTTI_OK); /* which prepares its calls */
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    watch_layers(m, &w);
    for (int step = 1; step < STEPS; step++) {
        TT_EXPECT(m, run_step(&t, step) == TUTTI_OK);
    }
    TT_EXPECT(m, w.forwards == LAYERS * (STEPS - 1) && w.backwards == w.forwards);
    const tutti_ddp_memory_t memory = tutti_ddp_memory(t.ddp, t.opt);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    counts->heap[m->rank] = tt_device_stats(heap).live_bytes - before;
    counts->state[m->rank] = memory.optimizer_bytes;
    if (m->rank == 0) {
        counts->parameters = tutti_ddp_stats(t.ddp).parameter_bytes;
        counts->source = tutti_ddp_stats(t.ddp).unit_source;
    }
    TT_EXPECT(m, memory.gathered_bytes == 0);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    close_training(&t);
}

/* Of all ranks together: parameters, gradients and moments once, but for pages that are not full.
 * In a step there are buckets under way on each rank beside them (watch_backward), and nothing
 * else. */
static void a_host_has_everything_once(void **state)
{
    (void)state;
    enum { RANKS = 4 };
    counts_t counts = {.source = ""};
    size_t sum = 0;
    run_team(RANKS, count, &counts);
    assert_string_equal(counts.source, "share");
    for (int rank = 0; rank < RANKS; rank++) {
        sum += counts.heap[rank] + counts.state[rank];
    }
    const size_t once = counts.parameters * (1 + 1 + 2);
    const size_t pages = RANKS * (2 * LAYERS + 2) * tt_heap_page_bytes();
    print_message("%.4f of parameters, gradients and moments once; %zu bytes more, %zu in pages\n",
                  (double)sum / (double)once, sum - once, pages);
    assert_int_equal(counts.parameters, LAYERS * (WIDTH * WIDTH + WIDTH) * sizeof(float));
    assert_true(sum >= once && sum <= once + pages);
}

/* ---- what a rank does alone ------------------------------------------------------------------ */

typedef struct {
    float losses[STEPS];
    char digest[TUTTI_DIGEST_BYTES];
} looks_t;

/* Rank 0 looks at the model as often as it likes, while the others go on. */
static void look_alone(tt_member_t *m)
{
    looks_t *looks = m->user;
    training_t t = {0};
    TT_EXPECT(m, open_training(&t, m->group, &tutti_adamw, &stage_3) == TUTTI_OK);
    for (int step = 0; step < STEPS; step++) {
        TT_EXPECT(m, run_step(&t, step) == TUTTI_OK);
        for (int i = 0; i < 3 && m->rank == 0; i++) {
            float loss;
            TT_EXPECT(m, evaluate(&t, &loss) == TUTTI_OK && loss > 0);
            TT_EXPECT(m, i == 0 || loss == looks->losses[step]);
            looks->losses[step] = loss;
        }
    }
    char digest[TUTTI_DIGEST_BYTES];
    TT_EXPECT(m, tutti_ddp_digest(t.ddp, digest) == TUTTI_OK);
    if (m->rank == 0) {
        memcpy(looks->digest, digest, sizeof digest);
    }
    close_training(&t);
}

static void one_rank_evaluates_while_others_go_on(void **state)
{
    (void)state;
    looks_t alone, together;
    tt_needs_shared_memory("one copy is for ranks of one host");
    run_team(3, look_alone, &together);
    training_t t = {0};
    const tutti_ddp_options_t options = {.shards = 3};
    tutti_group_t *world;
    assert_int_equal(tutti_init(&(tutti_init_options_t){.world_size = 1}, &world), TUTTI_OK);
    assert_int_equal(open_training(&t, world, &tutti_adamw, &options), TUTTI_OK);
    for (int step = 0; step < STEPS; step++) {
        assert_int_equal(run_step(&t, step), TUTTI_OK);
        assert_int_equal(evaluate(&t, &alone.losses[step]), TUTTI_OK);
    }
    assert_int_equal(tutti_module_digest(t.net, alone.digest), TUTTI_OK);
    close_training(&t);
    tutti_group_release(world);
    assert_memory_equal(together.losses, alone.losses, sizeof alone.losses);
    assert_string_equal(together.digest, alone.digest);
}

static tutti_tensor_t *weight_of(const training_t *t)
{
    return tutti_module_find(t->net, "2.weight");
}

/* What stays whole when ddp goes is each rank's own; what is away says why. */
static void keep_whole(tt_member_t *m)
{
    training_t t = {0};
    TT_EXPECT(m, open_training(&t, m->group, &tutti_adamw, &stage_3) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_data(weight_of(&t)) == NULL);
    TT_EXPECT(m, tutti_tensor_fill(weight_of(&t), 1) == TUTTI_ERR_STATE);
    TT_EXPECT(m, strstr(tutti_last_error(), "unshard") != NULL);
    TT_EXPECT(m, tutti_ddp_unshard(t.ddp, "2") == TUTTI_OK);
    tutti_ddp_release(t.ddp);
    t.ddp = NULL;
    TT_EXPECT(m, tutti_tensor_fill(weight_of(&t), 1 + m->rank) == TUTTI_OK);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    const float *values = tutti_tensor_data(weight_of(&t));
    TT_EXPECT(m, values[0] == (float)(1 + m->rank));
    TT_EXPECT(m, values[WIDTH * WIDTH - 1] == (float)(1 + m->rank));
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    close_training(&t);
}

static void what_stays_whole_is_each_ranks_own(void **state)
{
    (void)state;
    run_team(3, keep_whole, NULL);
}

/* Each rank reads and writes in its own time. */
static void double_weight(tt_member_t *m)
{
    training_t t = {0};
    float before = 0;
    TT_EXPECT(m, open_training(&t, m->group, &tutti_adamw, &stage_3) == TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        TT_EXPECT(m, tutti_ddp_summon(t.ddp, "2", true) == TUTTI_OK);
        const tutti_ddp_memory_t memory = tutti_ddp_memory(t.ddp, NULL);
        TT_EXPECT(m, memory.unit_bytes == memory.largest_unit_bytes && memory.unit_bytes > 0);
        float *values = tutti_tensor_data(weight_of(&t));
        TT_EXPECT(m, i == 0 || values[7] == 2 * before);
        before = values[7];
        for (int64_t k = 0; k < WIDTH * WIDTH; k++) {
            values[k] *= 2;
        }
        tt_tensor_touch(weight_of(&t));
        TT_EXPECT(m, tutti_ddp_dismiss(t.ddp) == TUTTI_OK);
        TT_EXPECT(m, tutti_ddp_memory(t.ddp, NULL).unit_bytes == 0);
        TT_EXPECT(m, tutti_ddp_memory(t.ddp, NULL).peak_unit_bytes == memory.unit_bytes);
    }
    TT_EXPECT(m, tutti_ddp_summon(t.ddp, NULL, false) == TUTTI_OK);
    TT_EXPECT(m, ((const float *)tutti_tensor_data(weight_of(&t)))[7] == 2 * before);
    TT_EXPECT(m, tutti_ddp_dismiss(t.ddp) == TUTTI_OK);
    TT_EXPECT(m, run_step(&t, 0) == TUTTI_OK);
    close_training(&t);
}

static void what_all_ranks_write_is_written_once(void **state)
{
    (void)state;
    run_team(3, double_weight, NULL);
}

/* ---- processes that are killed or stopped ---------------------------------------------------- */

typedef enum { WHILE_READING, WHILE_WRITING, BEFORE_THE_STEP, KILLS, STOPPED } fault_t;

typedef struct {
    _Atomic uint32_t is_stopped;
    char errors[3][TT_ERROR_TEXT_BYTES];
    tutti_status_t statuses[3];
} report_t;

/* Of this process. */
static struct {
    fault_t fault;
    bool is_time; /* the victim's, from the second step on */
} doom;

static void fail_if(fault_t fault)
{
    if (doom.is_time && doom.fault == fault) {
        (void)raise(fault == STOPPED ? SIGSTOP : SIGKILL);
    }
}

static tutti_status_t read_layer(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s, (void)call, (void)user;
    fail_if(WHILE_READING);
    fail_if(STOPPED);
    return TUTTI_OK;
}

static void write_piece(const tutti_optim_piece_t *piece)
{
    for (size_t i = 0; i < piece->count; i++) {
        piece->weight[i] -= (float)piece->lr * piece->gradient[i];
    }
    fail_if(WHILE_WRITING);
}

typedef struct {
    double lr;
} doomed_options_t;

static const tutti_optim_option_t doomed_options[] = {{"lr", 0, 0.1, 0, 1}, {NULL, 0, 0, 0, 0}};

static const tutti_optim_ops_t doomed = {.name = "doomed",
                                         .options_bytes = sizeof(doomed_options_t),
                                         .options = doomed_options,
                                         .update = write_piece};

/* The other one is stopped: from here on it is waited for, but not for long. */
static void await_stop(const training_t *t, tutti_group_t *world, report_t *report)
{
    enum { SOON_MS = 300 };
    const tt_deadline_t deadline = tt_deadline_in_ms(TIMEOUT_MS);
    while (atomic_load(&report->is_stopped) == 0 && !tt_deadline_is_past(deadline)) {
        tt_futex_wait(&report->is_stopped, 0, deadline);
    }
    tt_native_coll(world->state)->options.timeout_ms = SOON_MS;
    tt_native_coll(t->ddp->units.group->state)->options.timeout_ms = SOON_MS;
}

static tutti_status_t train(tutti_group_t *world, report_t *report, fault_t fault)
{
    static const tutti_module_hooks_t hooks = {.before_forward = read_layer};
    training_t t = {0};
    doom.fault = fault;
    TUTTI_CHECK(open_training(&t, world, &doomed, &stage_3));
    TUTTI_CHECK(tutti_module_add_hooks(t.layers[2], &hooks, NULL));
    for (int step = 0; step < 1000; step++) {
        doom.is_time = step > 0 && tutti_group_rank(world) == VICTIM;
        if (fault == STOPPED && step > 0 && tutti_group_rank(world) != VICTIM) {
            await_stop(&t, world, report);
        }
        tutti_context_set_step(t.ctx, step);
        while (tutti_ddp_next_shard(t.ddp, t.ctx)) {
            TUTTI_CHECK(run_shard(&t));
        }
        TUTTI_CHECK(tutti_ddp_finish(t.ddp));
        fail_if(BEFORE_THE_STEP);
        TUTTI_CHECK(tutti_optim_step(t.opt));
    }
    return TUTTI_OK;
}

static void be_rank(int rank, int size, int port, report_t *report, fault_t fault)
{
    tutti_group_t *world;
    tt_be_rank(rank, size, port);
    tutti_status_t status = tutti_init(NULL, &world);
    status = status < 0 ? status : train(world, report, fault);
    snprintf(report->errors[rank], sizeof report->errors[rank], "%s", tutti_last_error());
    report->statuses[rank] = status;
    _exit(1); /* as a failing program would, without a goodbye */
}

static void start_ranks(int size, report_t *report, fault_t fault, pid_t *children)
{
    const int port = tt_free_port();
    for (int rank = 0; rank < size; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            be_rank(rank, size, port, report, fault);
        }
    }
}

static report_t *share_report(void)
{
    report_t *report =
        mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(report != MAP_FAILED);
    return report;
}

static void kill_one(fault_t fault)
{
    report_t *report = share_report();
    pid_t children[3];
    char blame[64];
    start_ranks(3, report, fault, children);
    snprintf(blame, sizeof blame, "rank %d (process %d) died", VICTIM, (int)children[VICTIM]);
    for (int rank = 0; rank < 3; rank++) {
        int ended;
        assert_int_equal(waitpid(children[rank], &ended, 0), children[rank]);
        if (rank == VICTIM ? !WIFSIGNALED(ended) : !WIFEXITED(ended)) {
            fail_msg("fault %d: rank %d ended by %d: %s", (int)fault, rank, ended,
                     report->errors[rank]);
        }
    }
    for (int rank = 0; rank < 3; rank++) {
        const bool is_told = strstr(report->errors[rank], blame) != NULL;
        if (rank != VICTIM && (report->statuses[rank] != TUTTI_ERR_PEER || !is_told)) {
            fail_msg("fault %d: rank %d says %d: %s", (int)fault, rank, report->statuses[rank],
                     report->errors[rank]);
        }
    }
    munmap(report, sizeof *report);
}

static void a_killed_rank_is_named(void **state)
{
    (void)state;
    tt_needs_shared_memory("one copy is for ranks of one host");
    for (int fault = 0; fault < KILLS; fault++) {
        kill_one((fault_t)fault);
    }
}

static void a_stopped_rank_is_named(void **state)
{
    (void)state;
    tt_needs_shared_memory("one copy is for ranks of one host");
    report_t *report = share_report();
    pid_t children[2];
    int ended;
    start_ranks(2, report, STOPPED, children);
    assert_int_equal(waitpid(children[VICTIM], &ended, WUNTRACED), children[VICTIM]);
    assert_true(WIFSTOPPED(ended));
    atomic_store(&report->is_stopped, 1);
    tt_futex_wake_all(&report->is_stopped);
    assert_int_equal(waitpid(children[0], &ended, 0), children[0]);
    kill(children[VICTIM], SIGKILL);
    assert_int_equal(waitpid(children[VICTIM], &ended, 0), children[VICTIM]);
    if (report->statuses[0] != TUTTI_ERR_TIMEOUT || strstr(report->errors[0], "rank 1") == NULL) {
        fail_msg("rank 0 says %d: %s", report->statuses[0], report->errors[0]);
    }
    munmap(report, sizeof *report);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_rank_is_named), /* forks before there are threads */
        cmocka_unit_test(a_stopped_rank_is_named),
        cmocka_unit_test(a_host_has_everything_once),
        cmocka_unit_test(one_rank_evaluates_while_others_go_on),
        cmocka_unit_test(what_stays_whole_is_each_ranks_own),
        cmocka_unit_test(what_all_ranks_write_is_written_once),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
