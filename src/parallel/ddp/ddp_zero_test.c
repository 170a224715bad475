/* What users of ZeroRedundancyOptimizer look for at stage 1 (docs/guide/sharded.md has the table):
 * state that is collected is that of a training on one rank, tensor by tensor, whichever rank gets
 * it, and others go on from it; parameters lie in buckets; groups come later. */
#include "core/base/testing.h"

#include <tutti/autograd.h>
#include <tutti/checkpoint.h>
#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/offload.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/safetensors.h>
#include <tutti/sharded.h>

#include "comm/group/group_team.h"
#include "core/base/alloc.h"
#include "core/base/place_testing.h"
#include "core/tensor/tensor_list.h"
#include "parallel/ddp/ddp_impl.h"

enum { STEPS = 3, IN = 24, WIDE = 1500, BATCH = 2, SHARDS = 4, RANKS_MAX = 4, LAYERS = 3 };

typedef struct {
    const char *name;
    const tutti_optim_ops_t *kind;
    const void *optimizer_options;
    tutti_dtype_t dtype; /* of the model */
    bool whole_slices, is_on_disk;
} case_t;

typedef struct {
    const case_t *at;
    int stage, to;
    const char *folder;
    tt_tensor_list_t states[RANKS_MAX];
} job_t;

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *net, *layers[LAYERS];
    tutti_optim_t *opt;
    tutti_ddp_t *ddp;
} training_t;

/* ---- the training ---------------------------------------------------------------------------- */

/* The weight of the first layer has three sections, which ranks can have apart. */
static tutti_status_t open_net(training_t *t, tutti_dtype_t dtype)
{
    const tutti_linear_options_t options[LAYERS] = {
        {.in = IN, .out = WIDE, .activation = TUTTI_ACTIVATION_TANH},
        {.in = WIDE, .out = 3},
        {.in = 3, .out = 3}};
    TUTTI_CHECK(tutti_module_create(t->ctx, &tutti_sequential_layer, NULL, &t->net));
    for (int i = 0; i < LAYERS; i++) {
        TUTTI_CHECK(tutti_sequential_add(t->net, &tutti_linear_layer, &options[i], &t->layers[i]));
    }
    return tutti_module_cast(t->net, dtype);
}

static tutti_status_t open_training(tutti_group_t *group, const job_t *job, training_t *t)
{
    const case_t *at = job->at;
    const tutti_context_options_t context = {.threads = 1, .seed = 3};
    const tutti_ddp_options_t options = {.shards = SHARDS,
                                         .stage = job->stage,
                                         .units = {.kind = job->stage == 3 ? "linear" : NULL},
                                         .whole_slices = at->whole_slices,
                                         .bucket_bytes = 100 << 10};
    TUTTI_CHECK(tutti_context_create(&context, &t->ctx));
    TUTTI_CHECK(open_net(t, at->dtype));
    TUTTI_CHECK(tutti_optim_create(t->ctx, at->kind, at->optimizer_options, &t->opt));
    TUTTI_CHECK(tutti_optim_add_module(t->opt, t->net, NULL, NULL));
    TUTTI_CHECK(at->is_on_disk ? tutti_optim_offload(t->opt, job->folder) : TUTTI_OK);
    return tutti_ddp_create(t->ctx, t->net, group, &options, &t->ddp);
}

static void close_training(training_t *t)
{
    tutti_ddp_release(t->ddp);
    tutti_optim_release(t->opt);
    tutti_module_release(t->net);
    tutti_context_release(t->ctx);
}

/* The last layer comes with the second step: it has made one less. */
static tutti_status_t run_shard(const training_t *t, const case_t *at, int step)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(t->ctx, &s));
    tutti_tensor_t *x = tutti_uniform(s, at->dtype, TUTTI_SHAPE(BATCH, IN), -1, 1);
    for (int i = 0; i < (step == 0 ? LAYERS - 1 : LAYERS); i++) {
        x = tutti_forward(s, t->layers[i], x);
    }
    (void)tutti_backward(s, tutti_mean(s, tutti_square(s, tutti_cast(s, x, TUTTI_F32))));
    return tutti_scope_close(s);
}

static tutti_status_t run_steps(const training_t *t, const case_t *at, int first, int end)
{
    for (int step = first; step < end; step++) {
        tutti_context_set_step(t->ctx, step);
        while (tutti_ddp_next_shard(t->ddp, t->ctx)) {
            TUTTI_CHECK(run_shard(t, at, step));
        }
        TUTTI_CHECK(tutti_ddp_finish(t->ddp));
        TUTTI_CHECK(tutti_optim_step(t->opt));
    }
    return TUTTI_OK;
}

/* ---- the state of one rank ------------------------------------------------------------------- */

/* What is visited may go: a copy. */
static tutti_status_t keep(void *list, const char *name, tutti_tensor_t *x)
{
    tutti_tensor_t *copy;
    TUTTI_CHECK(tutti_tensor_create(tutti_tensor_dtype(x), tutti_tensor_shape(x), &copy));
    tutti_status_t status = tutti_tensor_copy(copy, x);
    status = status < 0 ? status : tt_tensor_list_add(list, name, copy);
    tutti_tensor_release(copy);
    return status;
}

static void train(tt_member_t *m)
{
    job_t *job = m->user;
    training_t t = {0};
    TT_EXPECT(m, open_training(m->group, job, &t) == TUTTI_OK);
    TT_EXPECT(m, run_steps(&t, job->at, 0, STEPS) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_consolidate(t.ddp, t.opt, job->to, keep, &job->states[m->rank]) == 0);
    close_training(&t);
}

static void run(job_t *job, int ranks)
{
    tt_team_expect_quietly(ranks, 60000, train, job);
}

static void forget(job_t *job)
{
    for (int r = 0; r < RANKS_MAX; r++) {
        tt_tensor_list_release(&job->states[r]);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void expect_same(const tt_tensor_list_t *want, const tt_tensor_list_t *list)
{
    assert_int_equal(list->count, want->count);
    for (size_t i = 0; i < want->count; i++) {
        const tutti_tensor_t *a = want->items[i].tensor, *b = list->items[i].tensor;
        assert_string_equal(list->items[i].name, want->items[i].name);
        assert_int_equal(tutti_tensor_dtype(b), tutti_tensor_dtype(a));
        assert_true(tutti_shape_equal(tutti_tensor_shape(b), tutti_tensor_shape(a)));
        assert_memory_equal(tutti_tensor_data(tt_listed(list, i)),
                            tutti_tensor_data(tt_listed(want, i)), tutti_tensor_bytes(a));
    }
}

static const tutti_sgd_options_t momentum = {.lr = 0.1, .momentum = 0.9};
static const tutti_adafactor_options_t factored = {.lr = 0.01};

static const case_t cases[] = {
    {.name = "adamw", .kind = &tutti_adamw},
    {.name = "momentum", .kind = &tutti_sgd, .optimizer_options = &momentum},
    {.name = "sgd", .kind = &tutti_sgd},
    {.name = "lamb", .kind = &tutti_lamb},
    {.name = "adafactor",
     .kind = &tutti_adafactor,
     .optimizer_options = &factored,
     .whole_slices = true},
    {.name = "whole slices of adamw", .kind = &tutti_adamw, .whole_slices = true},
    {.name = "bf16 with masters", .kind = &tutti_adamw, .dtype = TUTTI_BF16},
    {.name = "on a disk", .kind = &tutti_adamw, .is_on_disk = true},
};

/* On all ranks, or on one alone, which takes turns; then on the others nothing is visited. */
static void collect_case(const case_t *at, int number, const char *folder)
{
    job_t want = {.at = at, .folder = folder};
    run(&want, 1);
    assert_true(want.states[0].count > 0);
    for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
        const int stage = (number + ranks) % 4; /* take turns */
        job_t job = {.at = at, .stage = stage, .to = (number + ranks) % (ranks + 1) - 1};
        job.folder = folder;
        run(&job, ranks);
        for (int r = 0; r < ranks; r++) {
            if (job.to < 0 || job.to == r) {
                expect_same(&want.states[0], &job.states[r]);
            } else {
                assert_int_equal(job.states[r].count, 0);
            }
        }
        for (int r = 0; r < RANKS_MAX; r++) {
            tt_tensor_list_release(&job.states[r]);
        }
    }
    forget(&want);
}

static void state_is_that_of_one_rank(void **state)
{
    (void)state;
    char folder[TT_PLACE_BYTES];
    tt_place_make(folder);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        print_message("%s\n", cases[i].name);
        collect_case(&cases[i], (int)i, folder);
    }
    tt_place_remove(folder);
}

/* ---- going on elsewhere ---------------------------------------------------------------------- */

typedef struct {
    char folder[TT_PLACE_BYTES], path[TT_PLACE_BYTES + 32], weights[TT_PLACE_BYTES + 32];
    char wanted[TUTTI_DIGEST_BYTES], digests[RANKS_MAX][TUTTI_DIGEST_BYTES];
} elsewhere_t;

static const case_t plain = {.name = "adamw", .kind = &tutti_adamw};

/* Rank 1 writes the state, and all train on. */
static void train_and_write(tt_member_t *m)
{
    elsewhere_t *e = m->user;
    const job_t job = {.at = &plain, .stage = 3};
    const tutti_named_text_t kind = {"optimizer", "adamw"};
    tt_tensor_list_t list = {0};
    training_t t = {0};
    TT_EXPECT(m, open_training(m->group, &job, &t) == TUTTI_OK);
    TT_EXPECT(m, run_steps(&t, &plain, 0, 1) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_consolidate(t.ddp, t.opt, 1, keep, &list) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_unshard(t.ddp, NULL) == TUTTI_OK);
    if (m->rank == 1) {
        TT_EXPECT(m, tutti_safetensors_save(e->path, list.items, list.count, &kind, 1) == 0);
        TT_EXPECT(m, tutti_module_save(t.net, e->weights, NULL, 0) == TUTTI_OK);
    }
    TT_EXPECT(m, run_steps(&t, &plain, 1, STEPS) == TUTTI_OK);
    char digest[TUTTI_DIGEST_BYTES];
    TT_EXPECT(m, tutti_ddp_digest(t.ddp, digest) == TUTTI_OK);
    if (m->rank == 0) {
        memcpy(e->wanted, digest, sizeof digest);
    }
    tt_tensor_list_release(&list);
    close_training(&t);
}

/* Each rank takes its slices of what the folder has. */
static tutti_status_t load_slices(tutti_group_t *group, const training_t *t, const char *folder)
{
    const tutti_checkpoint_t checkpoint = {.group = group, .module = t->net, .optim = t->opt};
    return tutti_checkpoint_load_from(&checkpoint, folder, NULL);
}

static tutti_status_t load_whole(const training_t *t, const elsewhere_t *e)
{
    TUTTI_CHECK(tutti_module_load(t->net, e->weights));
    return tutti_optim_load(t->opt, e->path);
}

static void load_and_train(tt_member_t *m)
{
    elsewhere_t *e = m->user;
    const job_t job = {.at = &plain, .stage = m->size - 1};
    training_t t = {0};
    TT_EXPECT(m, open_training(m->group, &job, &t) == TUTTI_OK);
    TT_EXPECT(m, (m->size == 1 ? load_whole(&t, e) : load_slices(m->group, &t, e->folder)) == 0);
    TT_EXPECT(m, run_steps(&t, &plain, 1, STEPS) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_digest(t.ddp, e->digests[m->rank]) == TUTTI_OK);
    close_training(&t);
}

static void others_go_on_from_it(void **state)
{
    (void)state;
    elsewhere_t e;
    tt_place_make(e.folder);
    snprintf(e.path, sizeof e.path, "%s/optim.safetensors", e.folder);
    snprintf(e.weights, sizeof e.weights, "%s/model.safetensors", e.folder);
    tt_team_expect_quietly(3, 60000, train_and_write, &e);
    for (int ranks = 1; ranks <= 4; ranks++) { /* at stages 0 to 3 */
        tt_team_expect_quietly(ranks, 60000, load_and_train, &e);
        for (int r = 0; r < ranks; r++) {
            assert_string_equal(e.digests[r], e.wanted);
        }
    }
    tt_place_remove(e.folder);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- buckets and groups ---------------------------------------------------------------------- */

/* At stages 1 and 2 a bucket of parameters is gathered where it is used. */
static void look_at_places(tt_member_t *m)
{
    const int *stage = m->user;
    const job_t job = {.at = &plain, .stage = *stage};
    training_t t = {0};
    TT_EXPECT(m, open_training(m->group, &job, &t) == TUTTI_OK);
    TT_EXPECT(m, run_steps(&t, &plain, 0, 2) == TUTTI_OK);
    for (int i = 0; i < t.ddp->param_count; i++) {
        const tt_bucket_slot_t slot = t.ddp->reducer->plan.slots[i];
        char *bucket = tutti_tensor_data(t.ddp->slices.values[slot.bucket]);
        TT_EXPECT(m, tutti_tensor_data(t.ddp->params[i].tensor) ==
                         bucket + (size_t)slot.offset * sizeof(float));
    }
    close_training(&t);
}

static void parameters_lie_in_buckets(void **state)
{
    (void)state;
    for (int stage = 1; stage <= 2; stage++) {
        tt_team_expect_quietly(2, 20000, look_at_places, &stage);
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

typedef struct {
    int stage;
    char digests[RANKS_MAX][TUTTI_DIGEST_BYTES];
} groups_t;

static int leave_out_last(void *user, const char *name, const tutti_tensor_t *x)
{
    (void)user, (void)x;
    return name[0] == '2' ? -1 : 0;
}

static int last_in_group(void *user, const char *name, const tutti_tensor_t *x)
{
    (void)x;
    return name[0] == '2' ? *(int *)user : -1;
}

/* As add_param_group() of a training that is under way: with a rate of its own. */
static void add_group_later(tt_member_t *m)
{
    groups_t *g = m->user;
    const job_t job = {.at = &plain, .stage = g->stage};
    const tutti_adamw_options_t fast = {.lr = 0.1, .no_weight_decay = true};
    training_t t = {0};
    int group = 0;
    TT_EXPECT(m, open_training(m->group, &job, &t) == TUTTI_OK);
    tutti_optim_release(t.opt);
    TT_EXPECT(m, tutti_optim_create(t.ctx, &tutti_adamw, NULL, &t.opt) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_add_module(t.opt, t.net, leave_out_last, NULL) == TUTTI_OK);
    TT_EXPECT(m, run_steps(&t, &plain, 0, 2) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_add_group(t.opt, &fast, &group) == TUTTI_OK);
    TT_EXPECT(m, tutti_optim_add_module(t.opt, t.net, last_in_group, &group) == TUTTI_OK);
    TT_EXPECT(m, run_steps(&t, &plain, 2, STEPS + 1) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_digest(t.ddp, g->digests[m->rank]) == TUTTI_OK);
    close_training(&t);
}

static void groups_may_come_later(void **state)
{
    (void)state;
    groups_t want = {.stage = 0};
    tt_team_expect_quietly(1, 20000, add_group_later, &want);
    for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
        groups_t g = {.stage = 1 + ranks % 3};
        tt_team_expect_quietly(ranks, 20000, add_group_later, &g);
        for (int r = 0; r < ranks; r++) {
            assert_string_equal(g.digests[r], want.digests[0]);
        }
    }
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* ---- failures -------------------------------------------------------------------------------- */

typedef struct {
    size_t nth; /* allocation that fails on whichever rank */
    bool has_failed;
    tutti_status_t statuses[2], again[2];
} lack_t;

static tutti_status_t look(void *user, const char *name, tutti_tensor_t *x)
{
    (void)user, (void)name, (void)x;
    return TUTTI_OK;
}

static void collect_without_memory(tt_member_t *m)
{
    lack_t *lack = m->user;
    const job_t job = {.at = &plain, .stage = 1};
    training_t t = {0};
    TT_EXPECT(m, open_training(m->group, &job, &t) == TUTTI_OK);
    TT_EXPECT(m, run_steps(&t, &plain, 0, 1) == TUTTI_OK);
    TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
    if (m->rank == 0) {
        tt_alloc_fail_at(lack->nth);
    }
    lack->statuses[m->rank] = tutti_ddp_consolidate(t.ddp, t.opt, 0, look, NULL);
    pthread_barrier_wait(m->start);
    if (m->rank == 0) {
        lack->has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
    }
    pthread_barrier_wait(m->start);
    lack->again[m->rank] = tutti_ddp_consolidate(t.ddp, t.opt, 0, look, NULL);
    close_training(&t);
}

/* All ranks fail, or none; where the call of a group did not fail, they can try again. */
static void a_rank_without_memory_stops_all(void **state)
{
    (void)state;
    int failed = 0, repeated = 0;
    bool has_failed = true;
    for (size_t nth = 1; has_failed && nth < 400; nth += 3) {
        lack_t lack = {.nth = nth};
        tt_team_expect_quietly(2, 20000, collect_without_memory, &lack);
        has_failed = lack.has_failed;
        assert_true((lack.statuses[0] < 0) == (lack.statuses[1] < 0));
        assert_true((lack.again[0] < 0) == (lack.again[1] < 0));
        failed += lack.statuses[0] < 0;
        repeated += lack.statuses[0] < 0 && lack.again[0] == TUTTI_OK;
    }
    print_message("%d calls failed, %d of them were made again\n", failed, repeated);
    assert_true(!has_failed && failed > 5 && repeated > 5);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

typedef struct {
    int visits;
} refusal_t;

static tutti_status_t refuse(void *user, const char *name, tutti_tensor_t *x)
{
    refusal_t *r = user;
    (void)x;
    return ++r->visits == 2 ? tutti_fail(TUTTI_ERR_IO, "no room for %s", name) : TUTTI_OK;
}

static void expect_text(tt_member_t *m, tutti_status_t status, tutti_status_t want,
                        const char *part)
{
    TT_EXPECT(m, status == want);
    TT_EXPECT(m, strstr(tutti_last_error(), part) != NULL);
}

static void refuse_and_misuse(tt_member_t *m)
{
    const job_t job = {.at = &plain, .stage = 1};
    training_t t = {0};
    refusal_t r = {0};
    TT_EXPECT(m, open_training(m->group, &job, &t) == TUTTI_OK);
    TT_EXPECT(m, run_steps(&t, &plain, 0, 1) == TUTTI_OK);
    expect_text(m, tutti_ddp_consolidate(t.ddp, t.opt, 1, refuse, &r), TUTTI_ERR_IO,
                "no room for 0.weight.exp_avg_sq");
    TT_EXPECT(m, r.visits == (m->rank == 1 ? 2 : 0)); /* and none behind it */
    TT_EXPECT(m, tutti_ddp_consolidate(t.ddp, t.opt, 1, look, NULL) == TUTTI_OK);
    expect_text(m, tutti_ddp_consolidate(t.ddp, t.opt, 2, look, NULL), TUTTI_ERR_ARG,
                "rank 2; want 0 to 1, or -1");
    expect_text(m, tutti_ddp_consolidate(t.ddp, t.opt, -2, look, NULL), TUTTI_ERR_ARG, "rank -2");
    TT_EXPECT(m, tutti_ddp_next_shard(t.ddp, t.ctx));
    expect_text(m, tutti_ddp_consolidate(t.ddp, t.opt, 0, look, NULL), TUTTI_ERR_STATE,
                "in the middle of a step");
    close_training(&t);
}

static void a_refusal_is_everybodys(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 20000, refuse_and_misuse, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* State of slices that were cut for other ranks: what is left of it is not all. */
static void step_in_another_ddp(tt_member_t *m)
{
    const job_t job = {.at = &plain, .stage = 1};
    const tutti_ddp_options_t alone = {.stage = 1};
    training_t t = {0};
    tutti_group_t *self;
    TT_EXPECT(m, open_training(m->group, &job, &t) == TUTTI_OK);
    TT_EXPECT(m, run_steps(&t, &plain, 0, 1) == TUTTI_OK);
    tutti_ddp_release(t.ddp);
    t.ddp = NULL;
    TT_EXPECT(m, tutti_group_split(m->group, m->rank, 0, &self) == TUTTI_OK);
    TT_EXPECT(m, tutti_ddp_create(t.ctx, t.net, self, &alone, &t.ddp) == TUTTI_OK);
    expect_text(m, tutti_ddp_consolidate(t.ddp, t.opt, 0, look, NULL), TUTTI_ERR_STATE,
                "of other slices than this ddp's");
    close_training(&t);
    tutti_group_release(self);
}

static void state_of_other_slices_is_refused(void **state)
{
    (void)state;
    tt_team_expect_quietly(2, 20000, step_in_another_ddp, NULL);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(state_is_that_of_one_rank),
        cmocka_unit_test(others_go_on_from_it),
        cmocka_unit_test(parameters_lie_in_buckets),
        cmocka_unit_test(groups_may_come_later),
        cmocka_unit_test(a_rank_without_memory_stops_all),
        cmocka_unit_test(a_refusal_is_everybodys),
        cmocka_unit_test(state_of_other_slices_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
