/* Making DDP: what fails on one rank alone is known to all at once, with rank and cause. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tutti/ddp.h>
#include <tutti/nn_layers.h>
#include <tutti/optim.h>
#include <tutti/tensor.h>

#include "comm/group/group_team.h"
#include "core/base/alloc.h"
#include "core/tensor/device_testing.h"
#include "core/tensor/tensor_impl.h"

enum { RANKS = 3, STRIDE = 17 };

typedef struct {
    bool is_norm; /* in: the model is a batch norm, which has buffers */
    tutti_context_t *ctx;
    tutti_module_t *model;
    tutti_tensor_t *stray; /* of no module */
    tutti_optim_t *opt;
} setting_t;

static tutti_status_t open_setting(setting_t *set)
{
    const tutti_context_options_t options = {.threads = 1};
    const tutti_linear_options_t layer = {.in = 3, .out = 2};
    const tutti_batch_norm_layer_options_t norm = {.width = 3};
    TUTTI_CHECK(tutti_context_create(&options, &set->ctx));
    TUTTI_CHECK(set->is_norm
                    ? tutti_module_create(set->ctx, &tutti_batch_norm_layer, &norm, &set->model)
                    : tutti_module_create(set->ctx, &tutti_linear_layer, &layer, &set->model));
    TUTTI_CHECK(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(2), &set->stray));
    return tutti_tensor_set_requires_grad(set->stray, true);
}

static void close_setting(setting_t *set)
{
    tutti_optim_release(set->opt);
    tutti_tensor_release(set->stray);
    tutti_module_release(set->model);
    tutti_context_release(set->ctx);
}

/* ---- a mistake on one rank ------------------------------------------------------------------- */

static void step_a_stray_tensor_on_rank_1(tt_member_t *member)
{
    const bool is_odd = member->rank == 1;
    setting_t set = {0};
    tutti_ddp_t *ddp = NULL;
    TT_EXPECT(member, open_setting(&set) == TUTTI_OK);
    TT_EXPECT(member, tutti_optim_create(set.ctx, &tutti_sgd, NULL, &set.opt) == TUTTI_OK);
    TT_EXPECT(member, tutti_optim_add_module(set.opt, set.model, NULL, NULL) == TUTTI_OK);
    if (is_odd) {
        TT_EXPECT(member, tutti_optim_add_parameter(set.opt, 0, "stray", set.stray) == TUTTI_OK);
    }
    const tutti_ddp_options_t options = {.optimizer = set.opt};
    TT_EXPECT(member,
              tutti_ddp_create(set.ctx, set.model, member->group, &options, &ddp) == TUTTI_ERR_ARG);
    TT_EXPECT(member, strstr(tutti_last_error(), "has a parameter \"stray\" that is none") != NULL);
    TT_EXPECT(member, is_odd == (strncmp(tutti_last_error(), "rank 1: ", 8) != 0));
    TT_EXPECT(member, ddp == NULL);
    /* nothing is lost: the same group, without the mistake */
    TT_EXPECT(member, tutti_ddp_create(set.ctx, set.model, member->group, NULL, &ddp) == TUTTI_OK);
    tutti_ddp_release(ddp);
    close_setting(&set);
}

static void a_mistake_on_one_rank_is_told_on_all(void **state)
{
    (void)state;
    tt_team_expect(RANKS, 3000, step_a_stray_tensor_on_rank_1, NULL);
}

static void wrap_no_module_on_one_rank(tt_member_t *member)
{
    const int odd = *(const int *)member->user;
    setting_t set = {0};
    tutti_ddp_t *ddp = NULL;
    TT_EXPECT(member, open_setting(&set) == TUTTI_OK);
    tutti_module_t *module = member->rank == odd ? NULL : set.model;
    TT_EXPECT(member,
              tutti_ddp_create(set.ctx, module, member->group, NULL, &ddp) == TUTTI_ERR_ARG);
    TT_EXPECT(member, strstr(tutti_last_error(), "ddp_create: module is NULL") != NULL);
    TT_EXPECT(member, (member->rank == odd) == (strncmp(tutti_last_error(), "rank ", 5) != 0));
    TT_EXPECT(member, ddp == NULL);
    TT_EXPECT(member, tutti_ddp_create(set.ctx, set.model, member->group, NULL, &ddp) == TUTTI_OK);
    tutti_ddp_release(ddp);
    close_setting(&set);
}

static void a_rank_without_a_module_is_named_to_all(void **state)
{
    (void)state;
    for (int odd = 0; odd < RANKS; odd++) {
        tt_team_expect(RANKS, 3000, wrap_no_module_on_one_rank, &odd);
    }
}

/* ---- no memory on one rank ------------------------------------------------------------------- */

typedef struct {
    size_t nth;
    tutti_ddp_options_t options;
    tutti_status_t statuses[TT_TEAM_MAX];
} torture_t;

/* Nobody gives the group up but tutti_ddp_create(): whoever waited for the one that failed would
 * wait for the deadline. */
static void create_without_memory(tt_member_t *member)
{
    torture_t *torture = member->user;
    setting_t set = {.is_norm = torture->options.buffer_dtype != TUTTI_F32};
    tutti_ddp_t *ddp = NULL;
    TT_EXPECT(member, open_setting(&set) == TUTTI_OK);
    TT_EXPECT(member, tutti_barrier(member->group, NULL) == TUTTI_OK);
    if (member->rank == 0) {
        tt_alloc_fail_at(torture->nth);
    }
    TT_EXPECT(member, tutti_barrier(member->group, NULL) == TUTTI_OK);
    torture->statuses[member->rank] =
        tutti_ddp_create(set.ctx, set.model, member->group, &torture->options, &ddp);
    tt_member_tell(member);
    tt_member_await(member, 2); /* a rank that leaves the group would be noticed */
    tutti_ddp_release(ddp);
    close_setting(&set);
}

/* Ranks that hear of it may say how: ABORTED, that a rank is lost. Nobody takes it for a difference
 * between the ranks. */
static bool is_right(tutti_status_t status, bool has_failed)
{
    return has_failed ? status < 0 && status != TUTTI_ERR_TIMEOUT && status != TUTTI_ERR_MISMATCH
                      : status == TUTTI_OK;
}

/* From the first-th on, each stride-th. */
static void fail_allocations(const tutti_ddp_options_t *options, size_t first, size_t stride)
{
    size_t nth = first;
    for (bool has_failed = true; has_failed; nth += stride) {
        torture_t torture = {.nth = nth, .options = *options};
        tt_team_expect_quietly(2, 20000, create_without_memory, &torture);
        has_failed = tt_alloc_has_failed() != 0;
        tt_alloc_fail_at(0);
        const tutti_status_t *got = torture.statuses;
        /* Groups are made for units; their meetings go on if a key cannot be taken away. */
        const bool is_absorbed = options->stage == 3 && got[0] == TUTTI_OK && got[1] == TUTTI_OK;
        if (!is_absorbed && (!is_right(got[0], has_failed) || !is_right(got[1], has_failed))) {
            fail_msg("allocation %zu failed: rank 0 returned %d, rank 1 %d", nth, got[0], got[1]);
        }
    }
    assert_true(nth > 20);
}

static void fail_each_allocation(const tutti_ddp_options_t *options)
{
    fail_allocations(options, 1, 1);
}

static void a_rank_without_memory_keeps_nobody_waiting(void **state)
{
    (void)state;
    fail_each_allocation(&(tutti_ddp_options_t){0});
    fail_each_allocation(&(tutti_ddp_options_t){.bucket_bytes = TUTTI_DDP_BUCKET_AUTO});
    fail_each_allocation(&(tutti_ddp_options_t){.stage = 1});
    fail_each_allocation(&(tutti_ddp_options_t){.stage = 2});
    fail_each_allocation(&(tutti_ddp_options_t){
        .param_dtype = TUTTI_BF16, .buffer_dtype = TUTTI_BF16, .f32_output = true});
}

/* Where ranks gather, then where they share; a share of all allocations, drawn by the seed. */
static void a_rank_without_memory_for_units_keeps_nobody_waiting(void **state)
{
    (void)state;
    const uint64_t seed = tt_test_number("TUTTI_SEED", (uint64_t)time(NULL));
    printf("TUTTI_SEED=%llu\n", (unsigned long long)seed);
    for (uint64_t share = 0; share < 2; share++) {
        const size_t first = 1 + (size_t)((seed + share) % STRIDE);
        printf("units, source %d: allocations %zu, %zu, … fail\n", (int)share, first,
               first + STRIDE);
        setenv("TUTTI_SHARED_PARAMETERS", share ? "1" : "0", 1);
        fail_allocations(&(tutti_ddp_options_t){.stage = 3}, first, STRIDE);
    }
    unsetenv("TUTTI_SHARED_PARAMETERS");
}

/* A mistake that all ranks make leaves the group as it is. */
static void create_with_a_transposed_weight(tt_member_t *member)
{
    setting_t set = {0};
    tutti_ddp_t *ddp = NULL;
    TT_EXPECT(member, open_setting(&set) == TUTTI_OK);
    tutti_tensor_t *weight = tutti_module_find(set.model, "weight");
    TT_EXPECT(member, tutti_tensor_set_requires_grad(weight, false) == TUTTI_OK);
    weight->strides[0] = 1;
    weight->strides[1] = 2;
    TT_EXPECT(member,
              tutti_ddp_create(set.ctx, set.model, member->group, NULL, &ddp) == TUTTI_ERR_ARG);
    TT_EXPECT(member, strstr(tutti_last_error(), "parameter weight is not contiguous") != NULL);
    weight->strides[0] = 3;
    weight->strides[1] = 1;
    TT_EXPECT(member, tutti_ddp_create(set.ctx, set.model, member->group, NULL, &ddp) == TUTTI_OK);
    tutti_ddp_release(ddp);
    close_setting(&set);
}

static void a_frozen_parameter_with_gaps_is_refused(void **state)
{
    (void)state;
    tt_team_expect(2, 3000, create_with_a_transposed_weight, NULL);
}

/* The first of the parameters, and the second, lie in memory of somebody else. */
static void create_with_borrowed_memory(tt_member_t *member)
{
    static const char *const names[] = {"weight", "bias"};
    for (int i = 0; i < 2; i++) {
        setting_t set = {0};
        tutti_ddp_t *ddp = NULL;
        tutti_tensor_t *large, *part;
        TT_EXPECT(member, open_setting(&set) == TUTTI_OK);
        tutti_tensor_t *param = tutti_module_find(set.model, names[i]);
        TT_EXPECT(member, tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(20), &large) == TUTTI_OK);
        TT_EXPECT(member, tt_tensor_over(large->storage, TUTTI_F32, param->shape, NULL, 4, &part) ==
                              TUTTI_OK);
        tt_tensor_swap(param, part);
        for (int stage = 1; stage <= 3; stage++) {
            const tutti_ddp_options_t options = {.stage = stage};
            TT_EXPECT(member, tutti_ddp_create(set.ctx, set.model, member->group, &options, &ddp) ==
                                  TUTTI_ERR_UNSUPPORTED);
            TT_EXPECT(member, strstr(tutti_last_error(), names[i]) != NULL &&
                                  strstr(tutti_last_error(), "shares its memory") != NULL);
        }
        tutti_tensor_release(part);
        tutti_tensor_release(large);
        close_setting(&set);
    }
}

static void parameters_without_memory_of_their_own_are_refused(void **state)
{
    (void)state;
    tt_team_expect(2, 3000, create_with_borrowed_memory, NULL);
}

static void create_alone_without_memory(tt_member_t *member)
{
    setting_t set = {0};
    tutti_ddp_t *ddp = NULL;
    TT_EXPECT(member, open_setting(&set) == TUTTI_OK);
    tt_alloc_fail_at(1);
    TT_EXPECT(member,
              tutti_ddp_create(set.ctx, set.model, member->group, NULL, &ddp) == TUTTI_ERR_NOMEM);
    TT_EXPECT(member, tutti_ddp_create(set.ctx, set.model, member->group, NULL, &ddp) == TUTTI_OK);
    tutti_ddp_release(ddp);
    close_setting(&set);
}

static void a_single_rank_without_memory_keeps_its_group(void **state)
{
    (void)state;
    tt_team_expect(1, 0, create_alone_without_memory, NULL);
}

/* ---- buffers in another dtype ---------------------------------------------------------------- */

/* Who remembers a buffer by its version, as masters do, sees that it has been written. */
static void cast_buffers(tt_member_t *member)
{
    const tutti_batch_norm_layer_options_t layer = {.width = 3};
    const tutti_ddp_options_t options = {.buffer_dtype = TUTTI_BF16};
    tutti_context_t *ctx = NULL;
    tutti_module_t *model = NULL;
    tutti_ddp_t *ddp = NULL;
    TT_EXPECT(member, tutti_context_create(NULL, &ctx) == TUTTI_OK);
    TT_EXPECT(member,
              tutti_module_create(ctx, &tutti_batch_norm_layer, &layer, &model) == TUTTI_OK);
    tutti_tensor_t *mean = tutti_module_find(model, "running_mean");
    for (int i = 0; i < 9; i++) {
        TT_EXPECT(member, tutti_tensor_fill(mean, 2) == TUTTI_OK);
    }
    const uint32_t version = mean->storage->version;
    TT_EXPECT(member, tutti_ddp_create(ctx, model, member->group, &options, &ddp) == TUTTI_OK);
    TT_EXPECT(member, mean->dtype == TUTTI_BF16 && tutti_tensor_at(mean, 1) == 2);
    TT_EXPECT(member, mean->storage->version > version);
    tutti_ddp_release(ddp);
    tutti_module_release(model);
    tutti_context_release(ctx);
}

static void a_cast_of_buffers_is_a_write(void **state)
{
    (void)state;
    tt_team_expect(1, 0, cast_buffers, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mistake_on_one_rank_is_told_on_all),
        cmocka_unit_test(a_rank_without_a_module_is_named_to_all),
        cmocka_unit_test(a_rank_without_memory_keeps_nobody_waiting),
        cmocka_unit_test(a_rank_without_memory_for_units_keeps_nobody_waiting),
        cmocka_unit_test(a_frozen_parameter_with_gaps_is_refused),
        cmocka_unit_test(parameters_without_memory_of_their_own_are_refused),
        cmocka_unit_test(a_single_rank_without_memory_keeps_its_group),
        cmocka_unit_test(a_cast_of_buffers_is_a_write),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
