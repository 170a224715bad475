/* Averages of weights: against a plain loop, in and out of the module, with the optimizer's masters
 * and batch norm's statistics; and what is refused. */
#include <math.h>
#include <string.h>

#include <tutti/averaged.h>
#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>

#include "compute/autograd/op_testing.h"
#include "compute/nn/layers/layer_batch_norm.h"
#include "compute/nn/module_impl.h"
#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

enum { WIDTH = 70, STEPS = 5 };

static tutti_module_t *new_net(fixture_t *f)
{
    tutti_module_t *net;
    const tutti_linear_options_t linear = {.in = WIDTH, .out = WIDTH};
    const tutti_batch_norm_layer_options_t norm = {.width = WIDTH};
    assert_int_equal(tutti_module_create(f->ctx, &tutti_sequential_layer, NULL, &net), 0);
    assert_int_equal(tutti_sequential_add(net, &tutti_linear_layer, &linear, NULL), 0);
    assert_int_equal(tutti_sequential_add(net, &tutti_batch_norm_layer, &norm, NULL), 0);
    return net;
}

static tutti_averaged_t *new_average(fixture_t *f, tutti_module_t *net, double decay, bool buffers)
{
    tutti_averaged_t *average;
    const tutti_averaged_options_t options = {.decay = decay, .buffers = buffers};
    if (tutti_averaged_create(f->ctx, net, &options, &average) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    return average;
}

/* Numbers that were visited, and all of them as one. */
typedef struct {
    float values[WIDTH * WIDTH + 4 * WIDTH];
    size_t count;
    uint64_t hash;
} seen_t;

static tutti_status_t see(void *user, const char *name, tutti_tensor_t *x)
{
    seen_t *seen = user;
    tutti_tensor_t *host;
    (void)name;
    assert_int_equal(tt_tensor_on_host(x, &host), 0);
    for (int64_t i = 0; i < tutti_tensor_numel(host); i++) {
        const float value = (float)tutti_tensor_at(host, i);
        if (seen->count < sizeof seen->values / sizeof *seen->values) {
            seen->values[seen->count] = value;
        }
        seen->count++;
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        seen->hash = (seen->hash ^ bits) * 1099511628211u;
    }
    tutti_tensor_release(host);
    return TUTTI_OK;
}

static seen_t see_parameters(tutti_module_t *net)
{
    seen_t seen = {.count = 0};
    assert_int_equal(tutti_module_each_parameter(net, see, &seen), 0);
    return seen;
}

static seen_t see_state(tutti_averaged_t *average)
{
    seen_t seen = {.count = 0};
    assert_int_equal(tutti_averaged_each_state(average, see, &seen), 0);
    return seen;
}

/* Numbers that look random, the same in every run. */
static tutti_tensor_t *waves(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape, double at)
{
    tutti_tensor_t *x = tutti_arange(s, TUTTI_F32, at * 1.7, 0.73, tutti_shape_numel(shape));
    return tutti_cast(s, tutti_reshape(s, tutti_sin(s, x), shape), dtype);
}

static void write_weight(fixture_t *f, tutti_module_t *net, double at)
{
    tutti_tensor_t *x = tutti_module_find(net, "0.weight");
    assert_int_equal(
        tutti_tensor_copy(x, waves(f->s, tutti_tensor_dtype(x), tutti_tensor_shape(x), at)), 0);
}

/* ---- values ---------------------------------------------------------------------------------- */

static void expect_plain(fixture_t *f, double decay, tutti_dtype_t dtype)
{
    static float want[sizeof((seen_t){0}).values / sizeof(float)];
    seen_t now;
    tutti_module_t *net = new_net(f);
    assert_int_equal(tutti_module_cast(net, dtype), 0);
    tutti_averaged_t *average = new_average(f, net, decay, false);
    for (int step = 0; step < STEPS; step++) {
        write_weight(f, net, step);
        now = see_parameters(net);
        const float share = (float)(decay == 0 ? 1 / (step + 1.0) : 1 - decay);
        for (size_t i = 0; i < now.count; i++) {
            const float moved = want[i] + (now.values[i] - want[i]) * share;
            want[i] = step == 0 ? now.values[i] : moved;
        }
        assert_int_equal(tutti_averaged_update(average), 0);
    }
    assert_int_equal(tutti_averaged_count(average), STEPS);
    assert_memory_equal(see_state(average).values, want, now.count * sizeof *want);
    assert_int_equal(tutti_averaged_swap_in(average), 0);
    const seen_t in = see_parameters(net);
    for (size_t i = 0; i < in.count; i++) {
        assert_true(fabsf(in.values[i] - want[i]) <= (dtype == TUTTI_F32 ? 0 : 0.01F));
    }
    assert_int_equal(tutti_averaged_swap_out(average), 0);
    assert_memory_equal(see_parameters(net).values, now.values, now.count * sizeof *want);
    tutti_averaged_release(average);
    tutti_module_release(net);
}

static void averages_are_those_of_a_plain_loop(void **state)
{
    expect_plain(*state, 0, TUTTI_F32);
    expect_plain(*state, 0.9, TUTTI_F32);
    expect_plain(*state, 0, TUTTI_BF16);
    expect_plain(*state, 0.9, TUTTI_F16);
}

/* ---- a training goes on ---------------------------------------------------------------------- */

static void step(fixture_t *f, tutti_module_t *net, tutti_optim_t *opt, int i)
{
    tutti_scope_t *s;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    const tutti_dtype_t dtype = tutti_tensor_dtype(tutti_module_find(net, "0.weight"));
    tutti_tensor_t *x = waves(s, dtype, TUTTI_SHAPE(6, WIDTH), 10 + i);
    tutti_tensor_t *loss = tutti_mean(s, tutti_square(s, tutti_forward(s, net, x)));
    assert_int_equal(opt == NULL ? 0 : tutti_backward(s, loss), 0);
    assert_int_equal(tutti_scope_close(s), 0);
    if (opt != NULL) {
        assert_int_equal(tutti_optim_step(opt), 0);
        tutti_optim_zero_grad(opt);
    }
}

/* Of weights, averages and the optimizer's state. */
static uint64_t train(fixture_t *f, tutti_dtype_t dtype, bool swaps)
{
    tutti_optim_t *opt;
    tutti_module_t *net = new_net(f);
    const tutti_adamw_options_t adamw = {.lr = 1e-3};
    seen_t seen = {.count = 0};
    write_weight(f, net, 0);
    assert_int_equal(tutti_tensor_fill(tutti_module_find(net, "0.bias"), 0.5), 0);
    assert_int_equal(tutti_module_cast(net, dtype), 0);
    assert_int_equal(tutti_optim_create(f->ctx, &tutti_adamw, &adamw, &opt), 0);
    assert_int_equal(tutti_optim_add_module(opt, net, NULL, NULL), 0);
    tutti_averaged_t *average = new_average(f, net, 0.5, false);
    for (int i = 0; i < STEPS; i++) {
        step(f, net, opt, i);
        assert_int_equal(tutti_averaged_update(average), 0);
        if (swaps) {
            assert_int_equal(tutti_averaged_swap_in(average), 0);
            assert_int_equal(tutti_averaged_swap_out(average), 0);
        }
    }
    assert_int_equal(tutti_module_each_tensor(net, see, &seen), 0);
    assert_int_equal(tutti_optim_each_state(opt, see, &seen), 0);
    assert_int_equal(tutti_averaged_each_state(average, see, &seen), 0);
    tutti_averaged_release(average);
    tutti_optim_release(opt);
    tutti_module_release(net);
    return seen.hash;
}

/* The masters of 16-bit weights hold more than these: they must not be made again. */
static void swapping_changes_no_bit_of_a_training(void **state)
{
    fixture_t *f = *state;
    assert_true(train(f, TUTTI_F32, false) == train(f, TUTTI_F32, true));
    assert_true(train(f, TUTTI_BF16, false) == train(f, TUTTI_BF16, true));
}

/* ---- buffers --------------------------------------------------------------------------------- */

static float mean_of(tutti_module_t *net)
{
    return ((const float *)tt_test_host(tutti_module_find(net, "1.running_mean")))[3];
}

static void buffers_are_the_last_ones_or_averages(void **state)
{
    fixture_t *f = *state;
    for (int averages = 0; averages < 2; averages++) {
        tutti_module_t *net = new_net(f);
        tutti_averaged_t *average = new_average(f, net, 0, averages);
        const double means[] = {1, 2, 6};
        for (int i = 0; i < 3; i++) {
            assert_int_equal(tutti_tensor_fill(tutti_module_find(net, "1.running_mean"), means[i]),
                             0);
            assert_int_equal(tutti_averaged_update(average), 0);
        }
        assert_int_equal(tutti_tensor_fill(tutti_module_find(net, "1.running_mean"), 9), 0);
        assert_int_equal(tutti_averaged_swap_in(average), 0);
        assert_true(mean_of(net) == (averages ? 3 : 6));
        assert_int_equal(tutti_averaged_swap_out(average), 0);
        assert_true(mean_of(net) == 9);
        tutti_averaged_release(average);
        tutti_module_release(net);
    }
}

/* Of averaged weights: the plain average of the batches, which stays theirs. */
static void statistics_are_made_again(void **state)
{
    fixture_t *f = *state;
    float single[3];
    tutti_module_t *net = new_net(f);
    tutti_averaged_t *average = new_average(f, net, 0, false);
    step(f, net, NULL, 0);
    assert_int_equal(tutti_averaged_update(average), 0);
    const float own = mean_of(net);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tutti_norm_statistics_begin(net), 0);
        step(f, net, NULL, 5 + i);
        single[i] = mean_of(net);
        assert_int_equal(tutti_norm_statistics_end(net), 0);
    }
    assert_int_equal(tutti_tensor_fill(tutti_module_find(net, "1.running_mean"), own), 0);
    assert_int_equal(tutti_averaged_swap_in(average), 0);
    assert_int_equal(tutti_norm_statistics_begin(net), 0);
    assert_int_equal(tutti_norm_statistics_begin(net), TUTTI_ERR_STATE);
    for (int i = 0; i < 3; i++) {
        step(f, net, NULL, 5 + i);
    }
    assert_int_equal(tutti_norm_statistics_end(net), 0);
    assert_int_equal(tutti_norm_statistics_end(net), TUTTI_ERR_STATE);
    const float made = mean_of(net);
    assert_true(fabsf(made - (single[0] + single[1] + single[2]) / 3) < 1e-6F);
    assert_true(fabsf(made - own) > 1e-4F);
    step(f, net, NULL, 5); /* moves by the layer's momentum again */
    assert_true(fabsf(mean_of(net) - (0.9F * made + 0.1F * single[0])) < 1e-6F);
    assert_int_equal(tutti_averaged_swap_out(average), 0);
    assert_true(mean_of(net) == own);
    assert_int_equal(tutti_averaged_swap_in(average), 0);
    assert_true(fabsf(mean_of(net) - (0.9F * made + 0.1F * single[0])) < 1e-6F);
    tutti_averaged_release(average);
    tutti_module_release(net);
}

/* ---- learning rates -------------------------------------------------------------------------- */

/* Rates that torch.optim.swa_utils.SWALR gives behind a constant 1, by its formula. */
static void rates_go_over_to_a_constant_one(void **state)
{
    (void)state;
    tutti_swa_schedule_t s = {
        .before = {.lr = 1}, .start = 3, .anneal_steps = 4, .lr = 0.2, .linear = true};
    const double line[] = {1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2, 0.2};
    for (int64_t i = 0; i < 9; i++) {
        assert_true(fabs(tutti_swa_lr(&s, i) - line[i]) < 1e-12);
    }
    s.linear = false;
    for (int64_t i = 3; i < 9; i++) {
        const double t = i < 7 ? (double)(i - 3) / 4 : 1,
                     alpha = (1 - cos(3.14159265358979 * t)) / 2;
        assert_true(fabs(tutti_swa_lr(&s, i) - (0.2 * alpha + (1 - alpha))) < 1e-12);
    }
    s.anneal_steps = INT64_MAX; /* it never ends */
    assert_true(tutti_swa_lr(&s, 4) > 0.99);
    s.anneal_steps = 0;
    assert_true(tutti_swa_lr(&s, 2) == 1 && tutti_swa_lr(&s, 3) == 0.2);
    s.lr = NAN;
    assert_true(isnan(tutti_swa_lr(&s, 0)));
    assert_int_equal(tutti_swa_check(&s), TUTTI_ERR_ARG);
    s = (tutti_swa_schedule_t){.before = {.lr = 1}, .start = -1};
    assert_int_equal(tutti_swa_check(&s), TUTTI_ERR_ARG);
    assert_non_null(strstr(tutti_last_error(), "schedule swa: start is -1"));
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void expect(tutti_status_t got, tutti_status_t want, const char *text)
{
    assert_int_equal(got, want);
    if (strstr(tutti_last_error(), text) == NULL) {
        fail_msg("%s: %s", text, tutti_last_error());
    }
}

static void what_is_wrong_is_said(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *net = new_net(f);
    tutti_averaged_t *average;
    const tutti_averaged_options_t much = {.decay = 1};
    expect(tutti_averaged_create(f->ctx, net, &much, &average), TUTTI_ERR_ARG,
           "decay is 1: it must be below 1, or 0 for");
    average = new_average(f, net, 0.5, false);
    expect(tutti_averaged_swap_in(average), TUTTI_ERR_STATE, "there is no average yet");
    expect(tutti_averaged_swap_out(average), TUTTI_ERR_STATE, "the averages are not in the module");
    assert_int_equal(tutti_averaged_update(average), 0);
    assert_int_equal(tutti_averaged_swap_in(average), 0);
    expect(tutti_averaged_update(average), TUTTI_ERR_STATE,
           "tutti_averaged_swap_out() comes first");
    expect(tutti_averaged_swap_in(average), TUTTI_ERR_STATE, "the averages are in the module");
    expect(tutti_averaged_each_state(average, see, NULL), TUTTI_ERR_STATE, "each_state");
    write_weight(f, net, 3);
    expect(tutti_averaged_swap_out(average), TUTTI_ERR_STATE,
           "0.weight was written while the averages were in");
    tutti_averaged_release(average);
    tutti_averaged_release(NULL);
    assert_int_equal(tutti_averaged_count(NULL), 0);
    assert_int_equal(tutti_module_cast(net, TUTTI_F64), 0);
    assert_int_equal(tutti_averaged_create(f->ctx, net, NULL, &average), TUTTI_ERR_DTYPE);
    tutti_module_release(net);
}

/* A module that stands twice in another one moves by its momentum again. */
static void shared_norms_are_begun_once(void **state)
{
    fixture_t *f = *state;
    tutti_module_t *net = new_net(f);
    tutti_module_t *norm = net->children[1].module;
    assert_int_equal(tutti_module_add_child(net, "again", norm), 0);
    assert_int_equal(tutti_norm_statistics_begin(net), 0);
    assert_int_equal(tutti_norm_statistics_end(net), 0);
    assert_false(((tt_channel_norm_t *)tutti_module_state(norm))->is_cumulative);
    tutti_module_release(net);
}

/* Without memory nothing has changed. */
static void any_allocation_may_fail(void **state)
{
    fixture_t *f = *state;
    tt_test_host_only();
    tutti_module_t *net = new_net(f);
    tutti_averaged_t *average = NULL;
    tutti_status_t status = TUTTI_ERR_NOMEM;
    for (int i = 1; status == TUTTI_ERR_NOMEM; i++) {
        tt_alloc_fail_at(i);
        status = tutti_averaged_create(f->ctx, net, NULL, &average);
    }
    tt_alloc_fail_at(0);
    assert_int_equal(status, 0);
    assert_int_equal(tutti_averaged_update(average), 0);
    write_weight(f, net, 1);
    const uint64_t before = see_parameters(net).hash;
    status = TUTTI_ERR_NOMEM;
    for (int i = 1; status == TUTTI_ERR_NOMEM; i++) {
        tt_alloc_fail_at(i);
        status = tutti_averaged_swap_in(average);
        tt_alloc_fail_at(0);
        assert_true((see_parameters(net).hash == before) == (status < 0));
    }
    assert_int_equal(status, 0);
    assert_int_equal(tutti_averaged_swap_out(average), 0);
    assert_true(see_parameters(net).hash == before);
    tutti_averaged_release(average);
    tutti_module_release(net);
}

/* ---- what fails half way --------------------------------------------------------------------- */

/* Deals out 0.weight to this rank alone. Of its calls that are told of a step, some fail. */
typedef struct {
    tt_slicer_t base;
    tt_tensor_slice_t slice;
    int calls, first, last; /* from the first to the last one, from 1 on; 0: none */
} dealer_t;

static tutti_status_t agree(tt_slicer_t *slicer, tutti_status_t status)
{
    (void)slicer;
    return status;
}

static tutti_status_t stepped(tt_slicer_t *slicer, tutti_status_t status)
{
    dealer_t *dealer = (dealer_t *)(void *)slicer;
    dealer->calls++;
    return dealer->calls >= dealer->first && dealer->calls <= dealer->last
               ? TT_FAIL(TUTTI_ERR_PEER, "rank 1 closed")
               : status;
}

static tutti_status_t begin(tt_slicer_t *slicer)
{
    return stepped(slicer, TUTTI_OK);
}

static void deal(fixture_t *f, tutti_module_t *net, dealer_t *dealer)
{
    tutti_tensor_t *x = tutti_module_find(net, "0.weight"), *values;
    assert_int_equal(tt_test_tensor(TUTTI_F32, TUTTI_SHAPE(WIDTH * WIDTH), &values), 0);
    assert_int_equal(tt_tensor_set_part(values, tutti_tensor_shape(x), 0), 0);
    assert_int_equal(
        tutti_tensor_copy(values, waves(f->s, TUTTI_F32, TUTTI_SHAPE(WIDTH * WIDTH), 1)), 0);
    *dealer = (dealer_t){.base = {.agree = agree, .begin = begin, .stepped = stepped},
                         .slice.values = values};
    assert_int_equal(tt_slice_hang(x, &dealer->slice, &dealer->base), 0);
}

/* Of the slice, and of what is whole. */
static uint64_t see_all(tutti_module_t *net, const dealer_t *dealer)
{
    seen_t seen = see_parameters(net);
    assert_int_equal(tutti_module_each_buffer(net, see, &seen), 0);
    assert_int_equal(see(&seen, "slice", dealer->slice.values), 0);
    return seen.hash;
}

/* Calls from the first to the last one fail: 1 and 2 are the swap's in; 3 and 4 put back what it
 * wrote, or are the swap's out. */
static void swap(tutti_module_t *net, tutti_averaged_t *average, dealer_t *dealer, int first,
                 int last)
{
    static const char text[] = "rank 1 closed; the module may have averages still: "
                               "tutti_averaged_swap_out() puts its own weights back";
    const uint64_t own = see_all(net, dealer), averages = see_state(average).hash;
    dealer->calls = 0;
    dealer->first = first;
    dealer->last = last;
    assert_int_equal(tutti_averaged_swap_in(average), first <= 2 ? TUTTI_ERR_PEER : 0);
    if (last <= 2) {
        assert_string_equal(tutti_last_error(), "rank 1 closed");
    } else {
        if (first > 2) {
            assert_true(see_all(net, dealer) != own);
            assert_int_equal(tutti_averaged_swap_out(average), TUTTI_ERR_PEER);
        }
        assert_string_equal(tutti_last_error(), text);
        assert_int_equal(tutti_averaged_swap_in(average), TUTTI_ERR_STATE);
        assert_int_equal(tutti_averaged_swap_out(average), 0);
    }
    assert_true(see_all(net, dealer) == own);
    assert_true(see_state(average).hash == averages);
}

static void a_swap_is_whole_or_put_right(void **state)
{
    fixture_t *f = *state;
    static const int calls[][2] = {{1, 1}, {2, 2}, {2, 3}, {3, 3}, {4, 4}};
    dealer_t dealer;
    tutti_module_t *net = new_net(f);
    deal(f, net, &dealer);
    tutti_averaged_t *average = new_average(f, net, 0.5, false);
    assert_int_equal(tutti_averaged_update(average), 0);
    assert_int_equal(tutti_tensor_fill(dealer.slice.values, 4), 0);
    assert_int_equal(tutti_tensor_fill(tutti_module_find(net, "0.bias"), 5), 0);
    assert_int_equal(tutti_tensor_fill(tutti_module_find(net, "1.running_mean"), 6), 0);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        swap(net, average, &dealer, calls[i][0], calls[i][1]);
    }
    tutti_averaged_release(average);
    tt_slice_take(tutti_module_find(net, "0.weight"), &dealer.slice);
    tutti_tensor_release(dealer.slice.values);
    tutti_module_release(net);
}

/* Whose failures come later; there is none where the tests run on the host. */
static tutti_device_t *later_device(const fixture_t *f)
{
    tutti_device_t *device = tutti_context_device(f->ctx);
    if (device == NULL) {
        print_message("skipped: the host fails at once\n");
        skip();
    }
    return device;
}

/* Behind a failure a device copies nothing: there would be no weights to come back. */
static void behind_a_failure_nothing_is_swapped(void **state)
{
    fixture_t *f = *state;
    tutti_device_t *device = later_device(f);
    tutti_module_t *net = new_net(f);
    tutti_averaged_t *average = new_average(f, net, 0.5, false);
    assert_int_equal(tutti_averaged_update(average), 0);
    write_weight(f, net, 1);
    const uint64_t own = see_parameters(net).hash;
    tt_test_fail_on(device);
    assert_int_equal(tutti_averaged_swap_in(average), TUTTI_ERR_ARG);
    tt_expect_error("it fails");
    assert_int_equal(tt_test_wait(f->ctx), TUTTI_ERR_ARG);
    assert_true(see_parameters(net).hash == own);
    assert_int_equal(tutti_averaged_swap_in(average), 0);
    tt_test_fail_on(device);
    assert_int_equal(tutti_averaged_swap_out(average), TUTTI_ERR_ARG);
    assert_int_equal(tt_test_wait(f->ctx), TUTTI_ERR_ARG);
    assert_int_equal(tutti_averaged_swap_out(average), 0);
    assert_true(see_parameters(net).hash == own);
    tt_test_fail_on(device);
    assert_int_equal(tutti_norm_statistics_begin(net), TUTTI_ERR_ARG);
    assert_int_equal(tt_test_wait(f->ctx), TUTTI_ERR_ARG);
    assert_int_equal(tutti_norm_statistics_end(net), TUTTI_ERR_STATE);
    assert_int_equal(tutti_norm_statistics_begin(net), 0);
    assert_int_equal(tutti_norm_statistics_end(net), 0);
    tutti_averaged_release(average);
    tutti_module_release(net);
}

/* The weights that are there count, as in a step behind a failure: of an update that is lost the
 * number would be known alone. */
static void behind_a_failure_an_update_counts(void **state)
{
    fixture_t *f = *state;
    tutti_device_t *device = later_device(f);
    tutti_module_t *net = new_net(f);
    tutti_averaged_t *average = new_average(f, net, 0.5, false),
                     *other = new_average(f, net, 0.5, false);
    assert_int_equal(tutti_tensor_fill(tutti_module_find(net, "1.num_batches_tracked"), 5), 0);
    for (int i = 0; i < 2; i++) {
        write_weight(f, net, i);
        assert_int_equal(tutti_averaged_update(other), 0);
        tt_test_fail_on(device);
        assert_int_equal(tutti_averaged_update(average), 0);
        assert_int_equal(tt_test_wait(f->ctx), TUTTI_ERR_ARG);
        assert_true(see_state(average).hash == see_state(other).hash);
    }
    tutti_averaged_release(other);
    tutti_averaged_release(average);
    tutti_module_release(net);
}

static int launches_left; /* until one fails; 0: none does */

static tutti_status_t launch_or_fail(tt_exec_t *exec, const tt_kernel_t *kernel,
                                     const void *arguments)
{
    if (launches_left > 0 && --launches_left == 0) {
        return TT_FAIL(TUTTI_ERR_IO, "%s: it cannot be launched", kernel->name);
    }
    return kernel->run(exec->threads, arguments);
}

/* The parameters of before the failure are not counted twice. */
static void an_update_goes_on_where_it_failed(void **state)
{
    fixture_t *f = *state;
    tt_test_host_only();
    tutti_module_t *net = new_net(f);
    tutti_averaged_t *average = new_average(f, net, 0.5, false),
                     *other = new_average(f, net, 0.5, false);
    tutti_status_t (*launch)(tt_exec_t *, const tt_kernel_t *, const void *) = f->ctx->exec.launch;
    for (int i = 0; i < 3; i++) {
        write_weight(f, net, i);
        assert_int_equal(tutti_averaged_update(other), 0);
        f->ctx->exec.launch = launch_or_fail;
        launches_left = 1 + i;
        assert_int_equal(tutti_averaged_update(average), TUTTI_ERR_IO);
        assert_int_equal(tutti_averaged_count(average), i);
        if (i > 0) {
            expect(tutti_averaged_each_state(average, see, NULL), TUTTI_ERR_STATE,
                   "averaged_each_state: an update has failed half way: tutti_averaged_update() "
                   "goes on with it");
        }
        assert_int_equal(tutti_averaged_update(average), 0);
        f->ctx->exec.launch = launch;
    }
    assert_true(see_state(average).hash == see_state(other).hash);
    tutti_averaged_release(other);
    tutti_averaged_release(average);
    tutti_module_release(net);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(averages_are_those_of_a_plain_loop),    TEST(swapping_changes_no_bit_of_a_training),
        TEST(buffers_are_the_last_ones_or_averages), TEST(statistics_are_made_again),
        TEST(rates_go_over_to_a_constant_one),       TEST(what_is_wrong_is_said),
        TEST(shared_norms_are_begun_once),           TEST(any_allocation_may_fail),
        TEST(a_swap_is_whole_or_put_right),          TEST(behind_a_failure_nothing_is_swapped),
        TEST(an_update_goes_on_where_it_failed),     TEST(behind_a_failure_an_update_counts),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
