/* What sharded parameters need of a graph: a tiny one in a test. Each unit's parameters lie in one
 * flat storage, which is there only while the unit computes; a rank keeps its slice of it.
 *
 *     forward     before_forward: gather          after_forward: evict
 *     backward    before_backward: gather         last gradient: reduce and scatter, evict
 *     recomputed  before_forward: gather          after_forward: keep it for the backward, or evict
 *
 * The bits are those of a training that keeps everything. */
#include "comm/group/group_team.h"

#include <tutti/collectives.h>
#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/optim.h>

#include "core/device/cpu_device.h"
#include "core/tensor/tensor_impl.h"

enum { WIDTH = 8, BATCH = 2, LENGTH = 3, STEPS = 3, UNITS = 4, PARAMS_MAX = 16 };

typedef enum {
    APART,      /* each block is a region */
    TOGETHER,   /* one region of both, whose units are evicted also when it is computed again */
    ONE_INSIDE, /* the same, and the second block a region in it */
} regions_t;

/* ---- the model: mlp, block, block, linear ---------------------------------------------------- */

typedef struct {
    tutti_module_t *mlp, *pair, *blocks[2], *head;
    regions_t regions;
} net_t;

static tutti_status_t pair_init(tutti_module_t *m, const void *options)
{
    (void)m, (void)options;
    return TUTTI_OK;
}

static tutti_tensor_t *pair_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const net_t *net = *(net_t **)tutti_module_state(m);
    x = tutti_forward(s, net->blocks[0], x);
    return net->regions == ONE_INSIDE ? tutti_recompute(s, net->blocks[1], x)
                                      : tutti_forward(s, net->blocks[1], x);
}

static const tutti_module_ops_t pair_ops = {.name = "pair",
                                            .about = "both blocks",
                                            .state_bytes = sizeof(net_t *),
                                            .init = pair_init,
                                            .forward = pair_forward};

static tutti_status_t net_init(tutti_module_t *m, const void *options)
{
    net_t *net = tutti_module_state(m);
    const tutti_mlp_options_t mlp = {.width = WIDTH, .hidden = 2 * WIDTH};
    const tutti_transformer_block_options_t block = {.width = WIDTH, .heads = 2, .causal = true};
    const tutti_linear_options_t head = {.in = WIDTH, .out = WIDTH};
    net->regions = *(const regions_t *)options;
    TUTTI_CHECK(tutti_module_new_child(m, "mlp", &tutti_mlp_layer, &mlp, &net->mlp));
    TUTTI_CHECK(tutti_module_new_child(m, "pair", &pair_ops, NULL, &net->pair));
    *(net_t **)tutti_module_state(net->pair) = net;
    for (int i = 0; i < 2; i++) {
        TUTTI_CHECK(tutti_module_new_child(net->pair, i == 0 ? "a" : "b",
                                           &tutti_transformer_block_layer, &block,
                                           &net->blocks[i]));
    }
    return tutti_module_new_child(m, "head", &tutti_linear_layer, &head, &net->head);
}

static tutti_tensor_t *net_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *x)
{
    const net_t *net = tutti_module_state(m);
    x = tutti_forward(s, net->mlp, x);
    if (net->regions == APART) {
        x = tutti_recompute(s, net->blocks[0], x);
        x = tutti_recompute(s, net->blocks[1], x);
    } else {
        x = tutti_recompute(s, net->pair, x);
    }
    return tutti_forward(s, net->head, x);
}

static const tutti_module_ops_t net_ops = {.name = "net",
                                           .about = "four units",
                                           .state_bytes = sizeof(net_t),
                                           .init = net_init,
                                           .forward = net_forward};

/* ---- units ----------------------------------------------------------------------------------- */

typedef struct job job_t;

typedef struct {
    job_t *job;
    char name;
    char reason[96];
    tt_storage_t *flat; /* of all ranks' slices */
    tutti_tensor_t *params[PARAMS_MAX];
    int param_count, awaited; /* gradients, in the backward under way */
    tutti_tensor_t *slice;    /* [chunk] this rank's; the optimizer's */
    int64_t chunk;
} unit_t;

struct job {
    tutti_group_t *group;
    tutti_context_t *ctx;
    tt_device_t *device; /* of the flat storages alone */
    tutti_module_t *net;
    tutti_optim_t *opt;
    unit_t units[UNITS];
    char seen[256]; /* +a: unit a has been gathered, -a: evicted */
    bool has_end;   /* a callback waits for the end of the backward */
};

static void note(unit_t *unit, char what)
{
    char *seen = unit->job->seen;
    const size_t used = strlen(seen);
    snprintf(seen + used, sizeof unit->job->seen - used, "%c%c ", what, unit->name);
}

static tutti_tensor_t *wrap_flat(const unit_t *unit)
{
    tutti_tensor_t *whole = NULL;
    (void)tutti_tensor_wrap(TUTTI_F32, TUTTI_SHAPE((int64_t)(unit->flat->bytes / sizeof(float))),
                            unit->flat->data, &whole);
    return whole;
}

static tutti_status_t gather(unit_t *unit)
{
    if (unit->flat->away == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(tt_storage_refill(unit->flat, unit->job->device));
    tutti_tensor_t *whole = wrap_flat(unit);
    const tutti_status_t status =
        whole == NULL ? TUTTI_ERR_NOMEM
                      : tutti_all_gather(unit->job->group, whole, unit->slice, NULL);
    tutti_tensor_release(whole);
    if (status < 0) {
        (void)tt_storage_evict(unit->flat, unit->reason);
        return status;
    }
    note(unit, '+');
    return tt_storage_publish(unit->flat);
}

static void evict(unit_t *unit)
{
    if (unit->flat->away == NULL) {
        (void)tt_storage_evict(unit->flat, unit->reason);
        note(unit, '-');
    }
}

/* The gradients, side by side; reduced into the slice's. */
static tutti_status_t scatter_into(unit_t *unit, tutti_tensor_t *whole, tutti_tensor_t *part)
{
    int64_t at = 0;
    for (int i = 0; i < unit->param_count; i++) {
        tutti_tensor_t *grad = tutti_tensor_grad(unit->params[i]);
        tutti_tensor_t *place;
        TT_TRY(tt_tensor_over(whole->storage, TUTTI_F32, grad->shape, NULL, at, &place));
        const tutti_status_t status = tutti_tensor_copy(place, grad);
        tutti_tensor_release(place);
        TT_TRY(status);
        at += grad->numel;
        TT_TRY(tutti_tensor_set_grad(unit->params[i], NULL));
    }
    TT_TRY(tutti_reduce_scatter(unit->job->group, part, whole, TUTTI_SUM, NULL));
    return tutti_tensor_set_grad(unit->slice, part);
}

static tutti_status_t scatter(tutti_scope_t *s, unit_t *unit)
{
    tutti_tensor_t *whole = tutti_zeros(s, TUTTI_F32,
                                        TUTTI_SHAPE((int64_t)(unit->flat->bytes / sizeof(float)))),
                   *part;
    TT_TRY(tutti_tensor_status(whole));
    TT_TRY(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(unit->chunk), &part));
    const tutti_status_t status = scatter_into(unit, whole, part);
    tutti_tensor_release(part);
    return status;
}

static void take_gradient(tutti_scope_t *s, tutti_tensor_t *leaf, void *user)
{
    (void)leaf;
    unit_t *unit = user;
    if (--unit->awaited == 0) {
        (void)tutti_scope_fail(s, scatter(s, unit));
        evict(unit);
    }
}

static tutti_status_t evict_all(tutti_scope_t *s, tutti_status_t status, void *user)
{
    (void)s, (void)status;
    job_t *job = user;
    job->has_end = false;
    for (int i = 0; i < UNITS; i++) {
        evict(&job->units[i]);
    }
    return TUTTI_OK;
}

static tutti_status_t enter_forward(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s, (void)call;
    return gather(user);
}

static tutti_status_t leave_forward(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)call;
    unit_t *unit = user;
    const net_t *net = tutti_module_state(unit->job->net);
    if (!tutti_context_is_recomputing(tutti_scope_context(s)) || net->regions != APART) {
        evict(unit);
    }
    return TUTTI_OK;
}

static tutti_status_t enter_backward(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)call;
    unit_t *unit = user;
    if (!unit->job->has_end) {
        TT_TRY(tutti_backward_on_end(s, evict_all, unit->job));
        unit->job->has_end = true;
    }
    unit->awaited = unit->param_count;
    return gather(unit);
}

static tutti_status_t add_param(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    unit_t *unit = user;
    unit->params[unit->param_count++] = x;
    return TUTTI_OK;
}

/* The parameter keeps its identity; its memory is a part of the flat one. */
static tutti_status_t move_in(unit_t *unit, tutti_tensor_t *x, int64_t at)
{
    tutti_tensor_t *place;
    TT_TRY(tt_tensor_over(unit->flat, TUTTI_F32, x->shape, NULL, at, &place));
    tutti_status_t status = tutti_tensor_copy(place, x);
    if (status >= 0) {
        tt_tensor_swap(x, place);
        status = tutti_tensor_on_accumulate(x, take_gradient, unit);
    }
    tutti_tensor_release(place);
    return status;
}

static tutti_status_t open_unit(job_t *job, unit_t *unit, char name, tutti_module_t *m)
{
    const tutti_module_hooks_t hooks = {.before_forward = enter_forward,
                                        .after_forward = leave_forward,
                                        .before_backward = enter_backward,
                                        .always_call = true};
    int64_t numel = 0;
    *unit = (unit_t){.job = job, .name = name};
    snprintf(unit->reason, sizeof unit->reason, "unit %c is sharded over %d ranks: gather it", name,
             tutti_group_size(job->group));
    TT_TRY(tutti_module_each_parameter(m, add_param, unit));
    for (int i = 0; i < unit->param_count; i++) {
        numel += unit->params[i]->numel;
    }
    const int size = tutti_group_size(job->group), rank = tutti_group_rank(job->group);
    unit->chunk = (numel + size - 1) / size;
    const size_t bytes = (size_t)unit->chunk * sizeof(float);
    TT_TRY(tt_storage_new(job->device, bytes * (size_t)size, true, &unit->flat));
    numel = 0;
    for (int i = 0; i < unit->param_count; i++) {
        TT_TRY(move_in(unit, unit->params[i], numel));
        numel += unit->params[i]->numel;
    }
    TT_TRY(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(unit->chunk), &unit->slice));
    TT_TRY(tutti_tensor_set_requires_grad(unit->slice, true));
    TT_TRY(tutti_tensor_copy_from(unit->slice, (char *)unit->flat->data + (size_t)rank * bytes));
    TT_TRY(tutti_optim_add_parameter(job->opt, 0, (char[]){name, 0}, unit->slice));
    TT_TRY(tt_storage_evict(unit->flat, unit->reason));
    return tutti_module_add_hooks(m, &hooks, unit);
}

/* ---- training -------------------------------------------------------------------------------- */

static const tutti_adamw_options_t adamw = {.lr = 0.01, .weight_decay = 0.1};

static tutti_status_t open_net(job_t *job, regions_t regions)
{
    const tutti_context_options_t options = {.threads = 1, .seed = 3};
    TT_TRY(tutti_context_create(&options, &job->ctx));
    TT_TRY(tutti_module_create(job->ctx, &net_ops, &regions, &job->net));
    TT_TRY(tt_device_open(&tt_device_cpu, NULL, &job->device));
    return tutti_optim_create(job->ctx, &tutti_adamw, &adamw, &job->opt);
}

static tutti_status_t open_job(job_t *job, tutti_group_t *group, regions_t regions)
{
    *job = (job_t){.group = group};
    TT_TRY(open_net(job, regions));
    const net_t *net = tutti_module_state(job->net);
    tutti_module_t *modules[UNITS] = {net->mlp, net->blocks[0], net->blocks[1], net->head};
    for (int i = 0; i < UNITS; i++) {
        TT_TRY(open_unit(job, &job->units[i], (char)('a' + i), modules[i]));
    }
    return TUTTI_OK;
}

static void close_job(job_t *job)
{
    tutti_optim_release(job->opt);
    tutti_module_release(job->net);
    for (int i = 0; i < UNITS; i++) {
        tutti_tensor_release(job->units[i].slice);
        tt_storage_release(job->units[i].flat);
    }
    tutti_context_release(job->ctx);
    tutti_device_release(job->device);
}

/* The loss of a rank's part of the batch. */
static tutti_tensor_t *loss_of(tutti_scope_t *s, tutti_module_t *net, int step, int rank)
{
    tutti_tensor_t *x = tutti_arange(s, TUTTI_F32, 7 * step + rank, 0.37, BATCH * LENGTH * WIDTH);
    x = tutti_sin(s, tutti_reshape(s, x, TUTTI_SHAPE(BATCH, LENGTH, WIDTH)));
    tutti_tensor_t *y = tutti_forward(s, net, x);
    return tutti_mean(s, tutti_mul(s, y, y));
}

/* The optimizer writes the slices, so the parameters have other values when they come back. */
static tutti_status_t step_slices(job_t *job)
{
    TT_TRY(tutti_optim_step(job->opt));
    tutti_optim_zero_grad(job->opt);
    for (int i = 0; i < UNITS; i++) {
        tt_tensor_touch(job->units[i].params[0]); /* of the storage, so of all */
    }
    return TUTTI_OK;
}

static tutti_status_t train_step(job_t *job, int step)
{
    tutti_scope_t *s;
    TT_TRY(tutti_scope_open(job->ctx, &s));
    tutti_tensor_t *loss = loss_of(s, job->net, step, tutti_group_rank(job->group));
    if (tutti_tensor_status(loss) >= 0) {
        (void)tutti_backward(s, loss);
    }
    TT_TRY(tutti_scope_close(s));
    return step_slices(job);
}

/* Everything on one rank; the gradients of all ranks are added in their order. */
static void train_whole(regions_t regions, int size, char digest[TUTTI_DIGEST_BYTES])
{
    job_t job = {0};
    assert_int_equal(open_net(&job, regions), 0);
    assert_int_equal(tutti_optim_add_module(job.opt, job.net, NULL, NULL), 0);
    for (int step = 0; step < STEPS; step++) {
        for (int rank = 0; rank < size; rank++) {
            tutti_scope_t *s;
            assert_int_equal(tutti_scope_open(job.ctx, &s), 0);
            assert_int_equal(tutti_backward(s, loss_of(s, job.net, step, rank)), 0);
            assert_int_equal(tutti_scope_close(s), 0);
        }
        assert_int_equal(tutti_optim_step(job.opt), 0);
        tutti_optim_zero_grad(job.opt);
    }
    assert_int_equal(tutti_module_digest(job.net, digest), 0);
    close_job(&job);
}

typedef struct {
    regions_t regions;
    char digest[TUTTI_DIGEST_BYTES]; /* of the whole */
} plan_t;

/* Of the first step. The gathers of a backward are one for each unit, or, where units are evicted
 * when they are computed again, one more for each time that happens. */
static const char *const orders[] = {
    [APART] = "+a -a +b -b +c -c +d -d "
              "+d -d +c -c +b -b +a -a ",
    [TOGETHER] = "+a -a +b -b +c -c +d -d "
                 "+d -d +b -b +c -c +c -c +b -b +a -a ",
    [ONE_INSIDE] = "+a -a +b -b +c -c +d -d "
                   "+d -d +b -b +c -c +c -c +c -c +b -b +a -a ",
};

static size_t largest_unit(const job_t *job)
{
    size_t most = 0;
    for (int i = 0; i < UNITS; i++) {
        const size_t bytes = tt_cpu_class_bytes(job->units[i].flat->bytes);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void expect_all_away(tt_member_t *m, const job_t *job)
{
    char digest[TUTTI_DIGEST_BYTES];
    TT_EXPECT(m, tt_device_stats(job->device).live_bytes == 0);
    TT_EXPECT(m, tutti_module_digest(job->net, digest) == TUTTI_ERR_STATE);
    TT_EXPECT(m, strstr(tutti_last_error(), "mlp.up.weight f32[16, 8] is not in memory: unit a is "
                                            "sharded over") != NULL);
}

static void expect_digest(tt_member_t *m, job_t *job, const char *want)
{
    char digest[TUTTI_DIGEST_BYTES];
    for (int i = 0; i < UNITS; i++) {
        TT_EXPECT(m, gather(&job->units[i]) == 0);
    }
    TT_EXPECT(m, tutti_module_digest(job->net, digest) == 0);
    TT_EXPECT(m, strcmp(digest, want) == 0);
}

static void train(tt_member_t *m)
{
    const plan_t *plan = m->user;
    job_t job;
    TT_EXPECT(m, open_job(&job, m->group, plan->regions) == 0);
    const size_t before = tt_device_stats(job.device).peak_bytes; /* while they were cut */
    TT_EXPECT(m, before >= largest_unit(&job));
    for (int step = 0; step < STEPS; step++) {
        TT_EXPECT(m, train_step(&job, step) == 0);
        if (step == 0) {
            TT_EXPECT(m, strcmp(job.seen, orders[plan->regions]) == 0);
        }
        expect_all_away(m, &job);
    }
    /* never more than one unit */
    TT_EXPECT(m, tt_device_stats(job.device).peak_bytes == largest_unit(&job));
    expect_digest(m, &job, plan->digest);
    close_job(&job);
}

static void gathered_parameters_train_with_the_bits_of_whole_ones(void **state)
{
    (void)state;
    for (regions_t regions = APART; regions <= ONE_INSIDE; regions++) {
        for (int size = 1; size <= 2; size++) {
            plan_t plan = {.regions = regions};
            train_whole(regions, size, plan.digest);
            tt_team_expect(size, 0, train, &plan);
        }
    }
}

/* ---- failures -------------------------------------------------------------------------------- */

static tutti_status_t refuse(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s, (void)call;
    return *(bool *)user ? TT_FAIL(TUTTI_ERR_STATE, "refused") : TUTTI_OK;
}

static void fail_in_the_middle(tt_member_t *m)
{
    const plan_t *plan = m->user;
    bool refuses = false;
    job_t job;
    TT_EXPECT(m, open_job(&job, m->group, plan->regions) == 0);
    const net_t *net = tutti_module_state(job.net);
    const tutti_module_hooks_t hooks[] = {{.before_forward = refuse}, {.before_backward = refuse}};
    for (int i = 0; i < 2; i++) {
        tutti_scope_t *s;
        TT_EXPECT(m, tutti_scope_open(job.ctx, &s) == 0);
        TT_EXPECT(m, tutti_module_add_hooks(net->blocks[1], &hooks[i], &refuses) == 0);
        refuses = i == 0;
        tutti_tensor_t *loss = loss_of(s, job.net, 0, m->rank);
        refuses = true;
        TT_EXPECT(m, i == 0 || tutti_backward(s, loss) == TUTTI_ERR_STATE);
        TT_EXPECT(m, tutti_scope_close(s) == TUTTI_ERR_STATE);
        TT_EXPECT(m, strstr(tutti_last_error(), "refused") != NULL);
        tutti_module_remove_hooks(net->blocks[1], &refuses);
        expect_all_away(m, &job);
        tutti_optim_zero_grad(job.opt); /* of the units that were through */
    }
    for (int step = 0; step < STEPS; step++) {
        TT_EXPECT(m, train_step(&job, step) == 0);
    }
    expect_digest(m, &job, plan->digest);
    close_job(&job);
}

static void what_fails_in_the_middle_leaves_no_unit_behind(void **state)
{
    (void)state;
    for (regions_t regions = APART; regions <= ONE_INSIDE; regions++) {
        plan_t plan = {.regions = regions};
        train_whole(regions, 2, plan.digest);
        tt_team_expect(2, 0, fail_in_the_middle, &plan);
    }
}

static void fail_allocations(tt_member_t *m)
{
    job_t job;
    bool has_failed = true;
    TT_EXPECT(m, open_job(&job, m->group, TOGETHER) == 0);
    for (size_t n = 1; has_failed && m->failure[0] == 0; n++) {
        job.seen[0] = 0;
        tt_alloc_fail_at(n);
        const tutti_status_t status = train_step(&job, 0);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        /* a device that has blocks in its cache gives them back, and asks once more */
        TT_EXPECT(m, status == TUTTI_OK || (has_failed && status == TUTTI_ERR_NOMEM));
        TT_EXPECT(m, tt_device_stats(job.device).live_bytes == 0);
        tutti_optim_zero_grad(job.opt);
        tutti_module_zero_grad(job.net);
    }
    close_job(&job);
}

static void no_allocation_that_fails_leaves_a_unit_behind(void **state)
{
    (void)state;
    tt_team_expect(1, 0, fail_allocations, NULL);
}

/* What is saved reads the memory that came back, and sees that it is another value. */
static void go_back_after_a_step(tt_member_t *m)
{
    job_t job;
    tutti_scope_t *s;
    const tutti_backward_options_t retain = {.retain_graph = true};
    TT_EXPECT(m, open_job(&job, m->group, APART) == 0);
    TT_EXPECT(m, tutti_scope_open(job.ctx, &s) == 0);
    tutti_tensor_t *loss = loss_of(s, job.net, 0, m->rank);
    for (int i = 0; i < 2; i++) {
        TT_EXPECT(m, tutti_backward_with(s, loss, &retain) == 0);
    }
    TT_EXPECT(m, step_slices(&job) == 0);
    TT_EXPECT(m, tutti_backward(s, loss) == TUTTI_ERR_STATE);
    TT_EXPECT(m, strstr(tutti_last_error(), "was written since") != NULL);
    TT_EXPECT(m, tutti_scope_close(s) == TUTTI_ERR_STATE);
    expect_all_away(m, &job);
    /* without its hooks, a unit says what it lacks */
    tutti_module_remove_hooks(((net_t *)tutti_module_state(job.net))->mlp, &job.units[0]);
    TT_EXPECT(m, train_step(&job, 0) == TUTTI_ERR_STATE);
    TT_EXPECT(m, strstr(tutti_last_error(),
                        "linear_gelu: input 1, f32[16, 8], is not in memory: unit a "
                        "is sharded over 2 ranks: gather it") != NULL);
    close_job(&job);
}

static void a_graph_from_before_a_step_is_refused(void **state)
{
    (void)state;
    tt_team_expect(2, 0, go_back_after_a_step, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gathered_parameters_train_with_the_bits_of_whole_ones),
        cmocka_unit_test(what_fails_in_the_middle_leaves_no_unit_behind),
        cmocka_unit_test(no_allocation_that_fails_leaves_a_unit_behind),
        cmocka_unit_test(a_graph_from_before_a_step_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
