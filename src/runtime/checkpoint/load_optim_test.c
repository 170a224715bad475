/* An optimizer's state from a checkpoint of other names: it goes by its parameter's rule. */
#include <tutti/tutti.h>

#include "runtime/checkpoint/source_testing.h"

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_optim_t *optim;
} training_t;

static const tutti_load_rule_t rules[] = {{"weight", "h.c_attn.weight", true},
                                          {"*", "h.c_attn.*", false}};

/* in × out: square, so that only values tell whether they are transposed. */
static const tutti_linear_options_t sizes = {.in = 3, .out = 3};

static void begin_training(training_t *t, uint64_t seed)
{
    const tutti_context_options_t options = {.threads = 1, .seed = seed};
    assert_int_equal(tutti_context_create(&options, &t->ctx), TUTTI_OK);
    assert_int_equal(tutti_module_create(t->ctx, &tutti_linear_layer, &sizes, &t->net), TUTTI_OK);
    assert_int_equal(tutti_optim_create(t->ctx, &tutti_adamw, NULL, &t->optim), TUTTI_OK);
    assert_int_equal(tutti_optim_add_module(t->optim, t->net, NULL, NULL), TUTTI_OK);
}

static void make_step(const training_t *t)
{
    tutti_scope_t *s;
    tutti_tensor_t *x = tt_ramp(TUTTI_F32, TUTTI_SHAPE(1, 3), 1);
    assert_int_equal(tutti_scope_open(t->ctx, &s), TUTTI_OK);
    tutti_tensor_t *y = tutti_forward(s, t->net, x);
    assert_int_equal(tutti_backward(s, tutti_sum(s, tutti_mul(s, y, y))), TUTTI_OK);
    assert_int_equal(tutti_optim_step(t->optim), TUTTI_OK);
    tutti_optim_zero_grad(t->optim);
    assert_int_equal(tutti_scope_close(s), TUTTI_OK);
    tutti_tensor_release(x);
}

static void end_training(const training_t *t)
{
    tutti_optim_release(t->optim);
    tutti_module_release(t->net);
    tutti_context_release(t->ctx);
}

static void expect_same(tutti_module_t *a, tutti_module_t *b)
{
    char one[TUTTI_DIGEST_BYTES], other[TUTTI_DIGEST_BYTES];
    assert_int_equal(tutti_module_digest(a, one), TUTTI_OK);
    assert_int_equal(tutti_module_digest(b, other), TUTTI_OK);
    assert_string_equal(one, other);
}

/* A checkpoint of it under the names there. */
static void save_renamed(const training_t *t, const tt_place_of_files_t *place)
{
    tutti_saved_t *saved;
    tutti_saved_tensor_t tensor;
    const tutti_checkpoint_t checkpoint = {
        .folder = tt_file_of(place, "ours"), .module = t->net, .optim = t->optim};
    assert_int_equal(tutti_checkpoint_save(&checkpoint, 1), TUTTI_OK);
    assert_int_equal(tutti_saved_open(tt_file_of(place, "ours"), &saved), TUTTI_OK);
    assert_int_equal(tutti_saved_rename(saved, rules, 2, true), TUTTI_OK);
    assert_int_equal(tutti_saved_find(saved, "optim.h.c_attn.bias.step", &tensor), TUTTI_OK);
    assert_int_equal(tutti_saved_find(saved, "weight", &tensor), TUTTI_ERR_NOT_FOUND);
    assert_int_equal(tutti_saved_split(saved, tt_file_of(place, "there"), 2, NULL), TUTTI_OK);
    tutti_saved_close(saved);
}

static void a_state_goes_by_its_parameters_rule(void **state)
{
    (void)state;
    static const tutti_load_options_t options = {.rules = rules, .rule_count = 2};
    tt_place_of_files_t place;
    training_t old, new;
    tt_begin_files(&place);
    begin_training(&old, 1);
    begin_training(&new, 2);
    make_step(&old);
    save_renamed(&old, &place);
    const tutti_checkpoint_t checkpoint = {.module = new.net, .optim = new.optim};
    assert_int_equal(tutti_checkpoint_load_from(&checkpoint, tt_file_of(&place, "there"), NULL),
                     TUTTI_ERR_MISMATCH);
    assert_int_equal(tutti_checkpoint_load_from(&checkpoint, tt_file_of(&place, "there"), &options),
                     TUTTI_OK);
    for (int i = 0; i < 3; i++) {
        expect_same(old.net, new.net);
        make_step(&old);
        make_step(&new);
    }
    end_training(&old);
    end_training(&new);
    tt_end_files(&place);
}

/* Names are given back, too: nothing of it differs. */
static void names_are_given_back(void **state)
{
    (void)state;
    tt_place_of_files_t place;
    training_t old;
    tutti_saved_t *saved[2];
    size_t count;
    tt_begin_files(&place);
    begin_training(&old, 1);
    make_step(&old);
    save_renamed(&old, &place);
    assert_int_equal(tutti_saved_open(tt_file_of(&place, "ours"), &saved[0]), TUTTI_OK);
    assert_int_equal(tutti_saved_open(tt_file_of(&place, "there"), &saved[1]), TUTTI_OK);
    assert_int_equal(tutti_saved_rename(saved[1], rules, 2, false), TUTTI_OK);
    assert_int_equal(tutti_saved_diff(saved[0], saved[1], NULL, &count), TUTTI_OK);
    assert_int_equal(count, 0);
    tutti_saved_close(saved[0]);
    tutti_saved_close(saved[1]);
    end_training(&old);
    tt_end_files(&place);
}

/* Adafactor's sums of rows are those of the other's columns: no rule says so. */
static void vectors_of_a_transposed_parameter_are_refused(void **state)
{
    (void)state;
    static const tutti_load_options_t options = {.rules = rules, .rule_count = 2};
    tt_place_of_files_t place;
    tt_begin_files(&place);
    tutti_tensor_t *x = tt_ramp(TUTTI_F32, TUTTI_SHAPE(3), 1), *to;
    const tutti_named_tensor_t named = {"optim.h.c_attn.weight.exp_avg_sq_row", x};
    assert_int_equal(tutti_safetensors_save(tt_file_of(&place, "a"), &named, 1, NULL, 0), TUTTI_OK);
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(3), &to), TUTTI_OK);
    const tutti_slice_t slice = tutti_slice_whole("optim.weight.exp_avg_sq_row", to);
    const tutti_checkpoint_t checkpoint = {.slices = &slice, .slice_count = 1};
    assert_int_equal(tutti_checkpoint_load_from(&checkpoint, tt_file_of(&place, "a"), &options),
                     TUTTI_ERR_MISMATCH);
    tt_expect_error("only matrices are transposed");
    tutti_tensor_release(x);
    tutti_tensor_release(to);
    tt_end_files(&place);
}

/* The model is renamed all the same: who wants it leaves out the optimizer. */
static void vectors_of_a_transposed_parameter_keep_their_names(void **state)
{
    (void)state;
    static const char *const parameters[] = {"weight", "h.c_attn.weight"};
    char vector[64];
    tt_place_of_files_t place;
    tutti_saved_t *saved;
    tutti_saved_tensor_t tensor;
    tt_begin_files(&place);
    tutti_tensor_t *x = tt_ramp(TUTTI_F32, TUTTI_SHAPE(3), 1),
                   *matrix = tt_ramp(TUTTI_F32, TUTTI_SHAPE(3, 3), 1);
    for (int i = 0; i < 2; i++) {
        snprintf(vector, sizeof vector, "optim.%s.exp_avg_sq_row", parameters[i]);
        const tutti_named_tensor_t named[] = {{parameters[i], matrix}, {vector, x}};
        const char *path = tt_file_of(&place, "a");
        assert_int_equal(tutti_safetensors_save(path, named, 2, NULL, 0), TUTTI_OK);
        assert_int_equal(tutti_saved_open(path, &saved), TUTTI_OK);
        assert_int_equal(tutti_saved_rename(saved, rules, 2, i == 0), TUTTI_OK);
        assert_int_equal(tutti_saved_find(saved, parameters[1 - i], &tensor), TUTTI_OK);
        assert_int_equal(tutti_saved_find(saved, vector, &tensor), TUTTI_OK);
        tutti_saved_close(saved);
    }
    tutti_tensor_release(x);
    tutti_tensor_release(matrix);
    tt_end_files(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_goes_by_its_parameters_rule),
        cmocka_unit_test(names_are_given_back),
        cmocka_unit_test(vectors_of_a_transposed_parameter_are_refused),
        cmocka_unit_test(vectors_of_a_transposed_parameter_keep_their_names),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
