/* An optimizer whose parameters are dealt out by two slicers: which calls each gets, and that what
 * goes wrong among the ranks of one is told to those of the other. The slicers are made up here:
 * they note their calls, and fail where they are told to. */
#include "core/base/testing.h"

#include <stdio.h>

#include <tutti/optim.h>

#include "compute/optim/optimizer.h"

enum { COUNT = 2, NUMEL = 12 };

/* A call: "a0+": slicer 0 agrees, all is well so far; "s": sum, "b": begin, "e": stepped. */
static char calls[256];
static const char *fails; /* the call that fails, "s1"; from its nth on */
static int nth;

typedef struct {
    tt_slicer_t base;
    tt_tensor_slice_t slice;
    tutti_tensor_t *x;
} side_t;

static side_t sides[COUNT];

static tutti_status_t note(const tt_slicer_t *slicer, char what, const char *how)
{
    const int index = (const side_t *)(const void *)slicer == &sides[1];
    const size_t used = strlen(calls);
    char call[8];
    snprintf(call, sizeof call, "%c%d", what, index);
    snprintf(calls + used, sizeof calls - used, "%s%s%s", used > 0 ? " " : "", call, how);
    return strcmp(call, fails) == 0 && --nth <= 0 ? TT_FAIL(TUTTI_ERR_PEER, "%s fails", call)
                                                  : TUTTI_OK;
}

static tutti_status_t agree(tt_slicer_t *slicer, tutti_status_t status)
{
    const tutti_status_t own = note(slicer, 'a', status < 0 ? "-" : "+");
    return status < 0 ? status : own;
}

static tutti_status_t sum(tt_slicer_t *slicer, double *numbers, size_t count)
{
    (void)numbers, (void)count;
    return note(slicer, 's', "");
}

static tutti_status_t begin(tt_slicer_t *slicer)
{
    return note(slicer, 'b', "");
}

static tutti_status_t stepped(tt_slicer_t *slicer, tutti_status_t status)
{
    const tutti_status_t own = note(slicer, 'e', status < 0 ? "-" : "+");
    return status < 0 ? status : own;
}

static void open_row(side_t *side, tutti_tensor_t **out)
{
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(NUMEL), out), TUTTI_OK);
    assert_int_equal(tutti_tensor_fill(*out, 1), TUTTI_OK);
    assert_int_equal(tt_tensor_set_part(*out, side->x->shape, 0), TUTTI_OK);
}

static void open_side(tutti_optim_t *opt, int index)
{
    side_t *side = &sides[index];
    *side = (side_t){.base = {.agree = agree, .sum = sum, .begin = begin, .stepped = stepped}};
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(3, 4), &side->x), TUTTI_OK);
    side->slice.slicer = &side->base;
    open_row(side, &side->slice.values);
    open_row(side, &side->slice.grad);
    side->x->slice = &side->slice;
    assert_int_equal(tutti_optim_add_parameter(opt, 0, index == 0 ? "x" : "y", side->x), TUTTI_OK);
}

static void close_side(side_t *side)
{
    side->x->slice = NULL;
    tutti_tensor_release(side->slice.values);
    tutti_tensor_release(side->slice.grad);
    tutti_tensor_release(side->x);
}

static tutti_status_t step_it(tutti_optim_t *opt)
{
    return tutti_optim_step(opt);
}

static tutti_status_t clip_it(tutti_optim_t *opt)
{
    return tutti_clip_grad_norm(opt, 1, 2, NULL);
}

static tutti_status_t unscale_it(tutti_optim_t *opt)
{
    tt_unscaled_t out;
    return tt_optim_unscale(opt, 0.5, &out);
}

/* call: the nth of that name fails; "" none. want: the calls, or their end after "… ". */
static void expect(tutti_status_t (*run)(tutti_optim_t *), const char *call, int at,
                   const char *want)
{
    tutti_context_t *ctx;
    tutti_optim_t *opt;
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    assert_int_equal(tutti_optim_create(ctx, &tutti_lamb, NULL, &opt), TUTTI_OK);
    for (int i = 0; i < COUNT; i++) {
        open_side(opt, i);
    }
    calls[0] = 0;
    fails = call;
    nth = at;
    const tutti_status_t status = run(opt);
    assert_int_equal(status, call[0] == 0 ? TUTTI_OK : TUTTI_ERR_PEER);
    if (call[0] != 0) {
        char text[16];
        snprintf(text, sizeof text, "%s fails", call);
        assert_string_equal(tutti_last_error(), text);
    }
    const size_t length = strlen(calls), end = strlen(want);
    assert_true(length >= end);
    assert_string_equal(calls + (call[0] == 0 ? 0 : length - end), want);
    tutti_optim_release(opt);
    for (int i = 0; i < COUNT; i++) {
        close_side(&sides[i]);
    }
    tutti_context_release(ctx);
}

#define AGREED "a0+ a1+ a0+ "
#define TOLD " a0- a1- a0-"
#define SUMMED "s0 a1+ s1 "

static void a_step_asks_both(void **state)
{
    (void)state;
    expect(step_it, "", 0, AGREED AGREED SUMMED AGREED "b0 b1 e0+ e1+ a0+");
    expect(step_it, "a0", 1, "a0+ a1- a0-");
    expect(step_it, "a1", 1, "a0+ a1+ a0-");
    expect(step_it, "s0", 1, AGREED "s0 a1-" TOLD);
    expect(step_it, "s1", 1, AGREED "s0 a1+ s1" TOLD);
    expect(step_it, "b0", 1, "b0 b1 e0- e1- a0-");
    expect(step_it, "b1", 1, "b0 b1 e0- e1- a0-");
    expect(step_it, "e0", 1, "b0 b1 e0+ e1- a0-");
    expect(step_it, "e1", 1, "b0 b1 e0+ e1+ a0-"); /* who may be told that all is well, before */
    expect(step_it, "a0", 7, "b0 b1 e0+ e1+ a0+");
}

static void so_do_clipping_and_unscaling(void **state)
{
    (void)state;
    expect(clip_it, "s0", 1, AGREED "s0 a1-" TOLD);
    expect(clip_it, "s1", 1, AGREED "s0 a1+ s1" TOLD);
    expect(unscale_it, "s0", 1, AGREED "s0 a1-" TOLD);
    expect(unscale_it, "s1", 1, AGREED "s0 a1+ s1" TOLD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_asks_both),
        cmocka_unit_test(so_do_clipping_and_unscaling),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
