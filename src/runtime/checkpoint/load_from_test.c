/* Loading from files of any format: what is converted, transposed, renamed and chosen, and what is
 * refused. */
#include <tutti/tutti.h>

#include "runtime/checkpoint/load_names.h"
#include "runtime/checkpoint/source_testing.h"

static tutti_tensor_t *make(tutti_dtype_t dtype, tutti_shape_t shape)
{
    tutti_tensor_t *x;
    assert_int_equal(tutti_tensor_create(dtype, shape, &x), TUTTI_OK);
    return x;
}

static tutti_status_t load(const char *path, const tutti_slice_t *slices, size_t count,
                           const tutti_load_options_t *options)
{
    const tutti_checkpoint_t checkpoint = {.slices = slices, .slice_count = count};
    return tutti_checkpoint_load_from(&checkpoint, path, options);
}

static void expect_values(const tutti_tensor_t *x, const double *values)
{
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        if (tutti_tensor_at(x, i) != values[i]) {
            fail_msg("[%lld] is %g, not %g", (long long)i, tutti_tensor_at(x, i), values[i]);
        }
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

static void every_dtype_is_cast_to_every_other(void **state)
{
    (void)state;
    static const tutti_load_options_t cast = {.cast = true};
    tt_place_of_files_t place;
    tt_begin_files(&place);
    for (int from = 0; from < TUTTI_DTYPE_COUNT; from++) {
        tutti_tensor_t *x = tt_ramp((tutti_dtype_t)from, TUTTI_SHAPE(3, 5), from == TUTTI_BOOL);
        const tutti_named_tensor_t named = {"w", x};
        assert_int_equal(tutti_safetensors_save(tt_file_of(&place, "a"), &named, 1, NULL, 0), 0);
        for (int to = 0; to < TUTTI_DTYPE_COUNT; to++) {
            tutti_tensor_t *want = make((tutti_dtype_t)to, TUTTI_SHAPE(3, 5)),
                           *got = make((tutti_dtype_t)to, TUTTI_SHAPE(3, 5));
            const tutti_slice_t slice = tutti_slice_whole("w", got);
            assert_int_equal(tutti_tensor_copy(want, x), TUTTI_OK);
            assert_int_equal(load(tt_file_of(&place, "a"), &slice, 1, NULL),
                             from == to ? TUTTI_OK : TUTTI_ERR_MISMATCH);
            assert_int_equal(load(tt_file_of(&place, "a"), &slice, 1, &cast), TUTTI_OK);
            assert_memory_equal(tutti_tensor_data(got), tutti_tensor_data(want),
                                tutti_tensor_bytes(want));
            tutti_tensor_release(want);
            tutti_tensor_release(got);
        }
        tutti_tensor_release(x);
    }
    tt_end_files(&place);
}

/* Stored [5, 3], it is [3, 5] here: as a whole, in rows, columns and intervals. */
static void what_is_stored_transposed_is_read_as_any_slice(void **state)
{
    (void)state;
    static const tutti_load_rule_t rules[] = {{"w", "w", true}};
    static const tutti_load_options_t options = {.rules = rules, .rule_count = 1, .cast = true};
    static const double whole[] = {0, 3, 6, 9, 12, 1, 4, 7, 10, 13, 2, 5, 8, 11, 14};
    const tutti_shape_t shape = TUTTI_SHAPE(3, 5);
    for (int dtype = TUTTI_F32; dtype <= TUTTI_F64; dtype++) {
        tt_place_of_files_t place;
        tt_begin_files(&place);
        tt_write_matrix(tt_file_of(&place, "a"), "w", 5, 0);
        tutti_tensor_t *all = make((tutti_dtype_t)dtype, shape),
                       *box = make((tutti_dtype_t)dtype, TUTTI_SHAPE(2, 2)),
                       *part = make((tutti_dtype_t)dtype, TUTTI_SHAPE(7));
        const tutti_slice_t slices[] = {tutti_slice_whole("w", all),
                                        tutti_slice_box("w", box, shape, (int64_t[]){1, 2}),
                                        tutti_slice_interval("w", part, shape, 4)};
        assert_int_equal(load(tt_file_of(&place, "a"), slices, 3, &options), TUTTI_OK);
        expect_values(all, whole);
        expect_values(box, (const double[]){7, 10, 8, 11});
        expect_values(part, whole + 4);
        tutti_tensor_release(all);
        tutti_tensor_release(box);
        tutti_tensor_release(part);
        tt_end_files(&place);
    }
}

/* ---- names ----------------------------------------------------------------------------------- */

static void a_rule_says_what_a_name_is_there(void **state)
{
    (void)state;
    static const struct {
        const char *name, *stored, *of, *is; /* is: NULL: nothing */
    } cases[] = {
        {"a", "b", "a", "b"},
        {"a", "b", "aa", NULL},
        {"blocks.*.up", "h.*.fc", "blocks.12.up", "h.12.fc"},
        {"blocks.*.up", "h.*.fc", "blocks..up", "h..fc"},
        {"blocks.*.up", "h.*.fc", "blocks.up", NULL},
        {"blocks.*.up", "h.*.fc", "blocks.1.upper", NULL},
        {"*", "model.*", "w", "model.w"},
        {"model.*", "*", "model.w", "w"},
        {"a*", "b", "ac", "b"},
        {"*.bias", "*.b", "x.bias", "x.b"},
        {"ab*ba", "*", "aba", NULL},
        {"ab*ba", "*", "abba", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char stored[32];
        const tutti_load_rule_t rule = {cases[i].name, cases[i].stored, false};
        const bool is_renamed = tt_load_rename(&rule, cases[i].of, stored, sizeof stored);
        assert_int_equal(is_renamed, cases[i].is != NULL);
        if (is_renamed) {
            assert_string_equal(stored, cases[i].is);
        }
    }
    char little[4];
    assert_false(tt_load_rename(&(tutti_load_rule_t){"*", "*", false}, "long", little, 4));
    assert_true(tt_load_rename(&(tutti_load_rule_t){"*", "*", false}, "lon", little, 4));
}

static void the_first_rule_that_leads_to_a_tensor_holds(void **state)
{
    (void)state;
    static const tutti_load_rule_t rules[] = {
        {"head", "lm_head", false}, {"head", "embedding", false}, {"tok", "embedding", false}};
    static const tutti_load_options_t options = {.rules = rules, .rule_count = 3};
    tt_place_of_files_t place;
    tt_begin_files(&place);
    tt_write_matrix(tt_file_of(&place, "a"), "embedding", 1, 5);
    tutti_tensor_t *tok = make(TUTTI_F32, TUTTI_SHAPE(1, 3)),
                   *head = make(TUTTI_F32, TUTTI_SHAPE(1, 3));
    const tutti_slice_t slices[] = {tutti_slice_whole("tok", tok), tutti_slice_whole("head", head)};
    assert_int_equal(load(tt_file_of(&place, "a"), slices, 2, &options), TUTTI_OK);
    expect_values(tok, (const double[]){5, 6, 7});
    expect_values(head, (const double[]){5, 6, 7});
    tutti_tensor_release(tok);
    tutti_tensor_release(head);
    tt_end_files(&place);
}

/* By its name there: it is as if it were not there. */
static void what_is_excluded_by_its_name_there_is_not_loaded(void **state)
{
    (void)state;
    static const tutti_load_rule_t rules[] = {{"head", "lm_head", false}, {"head", "tok", false}};
    static const char *const left_out[] = {"lm_*", "tok"};
    tutti_load_options_t options = {
        .exclude = left_out, .exclude_count = 1, .rules = rules, .rule_count = 2};
    tt_place_of_files_t place;
    tt_begin_files(&place);
    tutti_tensor_t *lm = tt_ramp(TUTTI_F32, TUTTI_SHAPE(2), 1),
                   *tok = tt_ramp(TUTTI_F32, TUTTI_SHAPE(2), 5),
                   *head = make(TUTTI_F32, TUTTI_SHAPE(2));
    const tutti_named_tensor_t saved[] = {{"lm_head", lm}, {"tok", tok}};
    const tutti_slice_t slice = tutti_slice_whole("head", head);
    assert_int_equal(tutti_safetensors_save(tt_file_of(&place, "a"), saved, 2, NULL, 0), TUTTI_OK);
    assert_int_equal(load(tt_file_of(&place, "a"), &slice, 1, &options), TUTTI_OK);
    expect_values(head, (const double[]){5, 6});
    options.exclude_count = 2;
    assert_int_equal(load(tt_file_of(&place, "a"), &slice, 1, &options), TUTTI_ERR_MISMATCH);
    tt_expect_error("1 tensor does not fit; \"head\", there \"lm_head\", is not in it");
    tutti_tensor_release(lm);
    tutti_tensor_release(tok);
    tutti_tensor_release(head);
    tt_end_files(&place);
}

/* Three tensors of a file: here are two of them, and another one. */
static void patterns_choose_what_is_loaded(void **state)
{
    (void)state;
    static const char *const blocks[] = {"block.*"}, *const none[] = {"[hn]*"};
    static const struct {
        tutti_load_options_t options;
        tutti_status_t status;
        double block, head; /* values then */
        const char *text;
    } cases[] = {
        {{0},
         TUTTI_ERR_MISMATCH,
         0,
         0,
         "2 tensors do not fit; \"new\" is not in it; \"mask\" is in it, but not here"},
        {{.allow_missing = true},
         TUTTI_ERR_MISMATCH,
         0,
         0,
         ": 1 tensor does not fit; \"mask\" is in it"},
        {{.allow_surplus = true},
         TUTTI_ERR_MISMATCH,
         0,
         0,
         ": 1 tensor does not fit; \"new\" is not in it"},
        {{.allow_missing = true, .allow_surplus = true}, TUTTI_OK, 1, 2, ""},
        {{.include = blocks, .include_count = 1}, TUTTI_OK, 1, 0, ""},
        {{.exclude = none, .exclude_count = 1, .allow_surplus = true}, TUTTI_OK, 1, 0, ""},
        {{.exclude = none, .exclude_count = 1},
         TUTTI_ERR_MISMATCH,
         0,
         0,
         ": 1 tensor does not fit; \"mask\" is in it"},
        {{.include = blocks, .include_count = 1, .exclude = blocks, .exclude_count = 1},
         TUTTI_OK,
         0,
         0,
         ""},
    };
    static const char *const names[] = {"block.up", "head", "mask"};
    tt_place_of_files_t place;
    tutti_named_tensor_t saved[3];
    tt_begin_files(&place);
    for (int i = 0; i < 3; i++) {
        saved[i] = (tutti_named_tensor_t){names[i], tt_ramp(TUTTI_F32, TUTTI_SHAPE(1), i + 1)};
    }
    assert_int_equal(tutti_safetensors_save(tt_file_of(&place, "a"), saved, 3, NULL, 0), TUTTI_OK);
    tutti_tensor_t *block = make(TUTTI_F32, TUTTI_SHAPE(1)),
                   *head = make(TUTTI_F32, TUTTI_SHAPE(1)), *new = make(TUTTI_F32, TUTTI_SHAPE(1));
    const tutti_slice_t slices[] = {tutti_slice_whole("block.up", block),
                                    tutti_slice_whole("head", head), tutti_slice_whole("new", new)};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(tutti_tensor_fill(block, 0), TUTTI_OK);
        assert_int_equal(tutti_tensor_fill(head, 0), TUTTI_OK);
        assert_int_equal(load(tt_file_of(&place, "a"), slices, 3, &cases[i].options),
                         cases[i].status);
        if (cases[i].status < 0) {
            tt_expect_error(cases[i].text);
        }
        assert_true(tutti_tensor_at(block, 0) == cases[i].block);
        assert_true(tutti_tensor_at(head, 0) == cases[i].head);
        assert_true(tutti_tensor_at(new, 0) == 0);
    }
    for (int i = 0; i < 3; i++) {
        tutti_tensor_release((tutti_tensor_t *)(uintptr_t)saved[i].tensor);
        tutti_tensor_release(slices[i].tensor);
    }
    tt_end_files(&place);
}

/* ---- modules and optimizers ------------------------------------------------------------------ */

/* A linear layer and its optimizer, which has made a step. */
typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_optim_t *optim;
} training_t;

static const tutti_linear_options_t sizes = {.in = 3, .out = 2};

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
    assert_int_equal(tutti_scope_open(t->ctx, &s), TUTTI_OK);
    tutti_tensor_t *y = tutti_forward(s, t->net, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(1, 3)));
    assert_int_equal(tutti_backward(s, tutti_sum(s, y)), TUTTI_OK);
    assert_int_equal(tutti_optim_step(t->optim), TUTTI_OK);
    tutti_optim_zero_grad(t->optim);
    assert_int_equal(tutti_scope_close(s), TUTTI_OK);
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

/* The folder of a step as earlier versions wrote it: it goes on with the same bits. */
static void snapshots_of_earlier_versions_are_loaded(void **state)
{
    (void)state;
    const tutti_named_text_t step = {"step", "7"};
    tt_place_of_files_t place;
    training_t old, new;
    tt_begin_files(&place);
    begin_training(&old, 1);
    begin_training(&new, 2);
    make_step(&old);
    const char *model = tt_file_of(&place, "model.safetensors");
    assert_int_equal(tutti_module_save(old.net, model, &step, 1), TUTTI_OK);
    assert_int_equal(tutti_optim_save(old.optim, tt_file_of(&place, "optim.safetensors")), 0);
    tutti_checkpoint_t checkpoint = {.module = new.net, .optim = new.optim};
    assert_int_equal(tutti_checkpoint_load_from(&checkpoint, place.folder, NULL), TUTTI_OK);
    expect_same(new.net, old.net);
    make_step(&old);
    make_step(&new);
    expect_same(new.net, old.net);
    tutti_optim_t *other;
    assert_int_equal(tutti_optim_create(new.ctx, &tutti_sgd, NULL, &other), TUTTI_OK);
    checkpoint.optim = other;
    const tutti_load_options_t any = {.allow_surplus = true};
    assert_int_equal(tutti_checkpoint_load_from(&checkpoint, place.folder, &any),
                     TUTTI_ERR_MISMATCH);
    tt_expect_error("it holds the state of optimizer adamw, not of sgd");
    checkpoint.optim = NULL;
    assert_int_equal(tutti_checkpoint_load_from(&checkpoint, place.folder, NULL),
                     TUTTI_ERR_MISMATCH);
    tt_expect_error("\" is in it, but not here");
    tutti_optim_release(other);
    end_training(&old);
    end_training(&new);
    tt_end_files(&place);
}

/* A state of which a part is new would be none: it stays as a whole. */
static void an_optimizers_state_is_loaded_or_stays(void **state)
{
    (void)state;
    tt_place_of_files_t place;
    training_t old, new, twin;
    tt_begin_files(&place);
    begin_training(&old, 1);
    begin_training(&new, 2);
    begin_training(&twin, 2);
    make_step(&old);
    make_step(&new);
    make_step(&twin);
    const char *model = tt_file_of(&place, "model.safetensors");
    assert_int_equal(tutti_module_save(old.net, model, NULL, 0), TUTTI_OK);
    assert_int_equal(tutti_optim_save(old.optim, tt_file_of(&place, "optim.safetensors")), 0);
    const tutti_checkpoint_t checkpoint = {.module = new.net, .optim = new.optim};
    const char *const part = "*.exp_avg", *const all = "optim.*";
    tutti_load_options_t options = {.exclude = &part, .exclude_count = 1};
    assert_int_equal(tutti_checkpoint_load_from(&checkpoint, place.folder, &options),
                     TUTTI_ERR_MISMATCH);
    tt_expect_error("\"optim.weight.exp_avg\" is not loaded, but its parameter's step is: want all "
                    "or nothing of a parameter's state");
    make_step(&new);
    make_step(&twin);
    expect_same(new.net, twin.net);
    options.exclude = &all;
    assert_int_equal(tutti_checkpoint_load_from(&checkpoint, place.folder, &options), TUTTI_OK);
    assert_int_equal(tutti_module_load(twin.net, tt_file_of(&place, "model.safetensors")), 0);
    make_step(&new);
    make_step(&twin);
    expect_same(new.net, twin.net);
    end_training(&old);
    end_training(&new);
    end_training(&twin);
    tt_end_files(&place);
}

/* Memory without values would be all that it gets. */
static void a_tensor_on_meta_must_be_loaded(void **state)
{
    (void)state;
    static const tutti_load_options_t options = {.allow_missing = true};
    tt_place_of_files_t place;
    tutti_device_t *meta;
    training_t there;
    tutti_module_t *net;
    tutti_context_t *ctx;
    tt_begin_files(&place);
    begin_training(&there, 1);
    const tutti_named_tensor_t weight = {"weight", tutti_module_find(there.net, "weight")};
    assert_int_equal(tutti_safetensors_save(tt_file_of(&place, "a"), &weight, 1, NULL, 0), 0);
    assert_int_equal(tutti_device_open("meta", NULL, &meta), TUTTI_OK);
    const tutti_context_options_t on_meta = {.threads = 1, .device = meta};
    assert_int_equal(tutti_context_create(&on_meta, &ctx), TUTTI_OK);
    assert_int_equal(tutti_module_create(ctx, &tutti_linear_layer, &sizes, &net), TUTTI_OK);
    const tutti_checkpoint_t checkpoint = {.module = net};
    assert_int_equal(tutti_checkpoint_load_from(&checkpoint, tt_file_of(&place, "a"), &options),
                     TUTTI_ERR_STATE);
    tt_expect_error("\"bias\" lies on meta, and nothing is loaded into it");
    assert_int_equal(tutti_module_save(there.net, tt_file_of(&place, "a"), NULL, 0), TUTTI_OK);
    assert_int_equal(tutti_checkpoint_load_from(&checkpoint, tt_file_of(&place, "a"), NULL), 0);
    expect_same(net, there.net);
    tutti_module_release(net);
    tutti_context_release(ctx);
    tutti_device_release(meta);
    end_training(&there);
    tt_end_files(&place);
}

/* ---- mistakes -------------------------------------------------------------------------------- */

static void options_that_mean_nothing_are_refused(void **state)
{
    (void)state;
    static const char *const null[] = {NULL};
    static const tutti_load_rule_t no_name = {NULL, "a", false}, no_stored = {"a", NULL, false},
                                   stars = {"*a*", "b", false}, more = {"a", "*", false},
                                   two = {"*", "**", false};
    static const struct {
        tutti_load_options_t options;
        const char *text;
    } cases[] = {
        {{.include_count = 1}, "include pattern 0 of 1 is NULL"},
        {{.include = null, .include_count = 1}, "include pattern 0 of 1 is NULL"},
        {{.exclude = null, .exclude_count = 1}, "exclude pattern 0 of 1 is NULL"},
        {{.rule_count = 1}, "1 rules are NULL"},
        {{.rules = &no_name, .rule_count = 1}, "rule 0 has no name"},
        {{.rules = &no_stored, .rule_count = 1}, "rule 0 has no stored name"},
        {{.rules = &stars, .rule_count = 1}, "rule 0, \"*a*\" is \"b\" there: want one `*`"},
        {{.rules = &more, .rule_count = 1}, "rule 0, \"a\" is \"*\" there"},
        {{.rules = &two, .rule_count = 1}, "rule 0, \"*\" is \"**\" there"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(load("/nowhere", NULL, 0, &cases[i].options), TUTTI_ERR_ARG);
        tt_expect_error("checkpoint_load_from: ");
        tt_expect_error(cases[i].text);
    }
    assert_int_equal(load(NULL, NULL, 0, NULL), TUTTI_ERR_ARG);
    assert_int_equal(load("/nowhere", NULL, 0, NULL), TUTTI_ERR_IO);
}

static void shapes_and_dtypes_that_differ_are_listed(void **state)
{
    (void)state;
    static const tutti_load_rule_t rules[] = {{"*", "*", true}};
    static const tutti_load_options_t turned = {.rules = rules, .rule_count = 1};
    static const tutti_load_rule_t lost[] = {{"w", "there", false}};
    static const tutti_load_options_t renamed = {
        .rules = lost, .rule_count = 1, .allow_surplus = true};
    tt_place_of_files_t place;
    tt_begin_files(&place);
    tt_write_matrix(tt_file_of(&place, "a"), "w", 5, 0);
    tutti_tensor_t *x = make(TUTTI_F64, TUTTI_SHAPE(5, 3)), *row = make(TUTTI_F32, TUTTI_SHAPE(15));
    const tutti_slice_t slice = tutti_slice_whole("w", x), flat = tutti_slice_whole("w", row),
                        other = tutti_slice_whole("v\n", row);
    assert_int_equal(load(tt_file_of(&place, "a"), &slice, 1, NULL), TUTTI_ERR_MISMATCH);
    tt_expect_error("/a: 1 tensor does not fit; \"w\" is f32[5, 3], not f64[5, 3]");
    assert_int_equal(load(tt_file_of(&place, "a"), &slice, 1, &turned), TUTTI_ERR_MISMATCH);
    tt_expect_error("\"w\" is f32[3, 5] transposed, not f64[5, 3]");
    assert_int_equal(load(tt_file_of(&place, "a"), &flat, 1, NULL), TUTTI_ERR_MISMATCH);
    tt_expect_error("\"w\" is f32[5, 3], not f32[15]");
    assert_int_equal(load(tt_file_of(&place, "a"), &flat, 1, &turned), TUTTI_ERR_MISMATCH);
    tt_expect_error("\"w\" is [5, 3] there, [15] here: only matrices are transposed");
    assert_int_equal(load(tt_file_of(&place, "a"), &other, 1, &renamed), TUTTI_ERR_MISMATCH);
    tt_expect_error("\"v\\x0a\" is not in it");
    tt_write_matrix(tt_file_of(&place, "a"), "v", 5, 0);
    assert_int_equal(load(tt_file_of(&place, "a"), &slice, 1, &renamed), TUTTI_ERR_MISMATCH);
    tt_expect_error("\"w\", there \"there\", is not in it");
    tutti_tensor_release(x);
    tutti_tensor_release(row);
    tt_end_files(&place);
}

static void a_long_list_ends_with_a_number(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    static char names[COUNT][16];
    static tutti_slice_t slices[COUNT];
    tt_place_of_files_t place;
    tt_begin_files(&place);
    tt_write_matrix(tt_file_of(&place, "a"), "w", 1, 0);
    tutti_tensor_t *x = make(TUTTI_F32, TUTTI_SHAPE(1));
    for (int i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "tensor.%d", i);
        slices[i] = tutti_slice_whole(names[i], x);
    }
    assert_int_equal(load(tt_file_of(&place, "a"), slices, COUNT, NULL), TUTTI_ERR_MISMATCH);
    tt_expect_error("/a: 101 tensors do not fit; \"tensor.0\" is not in it; \"tensor.1\"");
    const char *end = strrchr(tutti_last_error(), ';');
    int shown = 0, more = 0;
    for (const char *at = tutti_last_error(); (at = strchr(at, ';')) != NULL; at++) {
        shown++;
    }
    assert_int_equal(sscanf(end, "; and %d more", &more), 1);
    assert_int_equal(shown - 1 + more, COUNT + 1);
    assert_true(more > 0 && shown > 10);
    tutti_tensor_release(x);
    tt_end_files(&place);
}

/* ---- several ranks --------------------------------------------------------------------------- */

/* Each rank has a row of "w"; what follows is wrong on single ranks. */
static tutti_status_t run_rank(const tutti_spawned_t *self)
{
    tutti_group_t *world;
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    tutti_tensor_t *row = make(TUTTI_F64, TUTTI_SHAPE(1, 3)), *y = make(TUTTI_F32, TUTTI_SHAPE(2));
    const tutti_slice_t slices[] = {
        tutti_slice_box("w", row, TUTTI_SHAPE(3, 3), (int64_t[]){self->rank, 0}),
        tutti_slice_whole(self->rank == 0 ? "both" : "two", y)};
    tutti_checkpoint_t checkpoint = {.group = world, .slices = slices, .slice_count = 1};
    const tutti_load_options_t cast = {.cast = true};
    const char *path = self->argument.data;
    assert_int_equal(tutti_checkpoint_load_from(&checkpoint, path, &cast), TUTTI_OK);
    for (int64_t i = 0; i < 3; i++) {
        assert_true(tutti_tensor_at(row, i) == 4. + 3 * self->rank + (double)i);
    }
    assert_int_equal(tutti_checkpoint_load_from(&checkpoint, path, NULL), TUTTI_ERR_MISMATCH);
    tt_expect_error("a: 1 tensor does not fit; \"w\" is f32[3, 3], not f64[3, 3]"); /* once */
    checkpoint.slice_count = 2;
    assert_int_equal(tutti_checkpoint_load_from(&checkpoint, path, &cast), TUTTI_ERR_MISMATCH);
    tt_expect_error("a: 2 tensors do not fit; \"both\" is not in it; \"two\" is not in it");
    checkpoint.slices = slices + 1;
    checkpoint.slice_count = self->rank == 2 ? 0 : 1;
    assert_int_equal(tutti_checkpoint_load_from(&checkpoint, path, &cast), TUTTI_ERR_MISMATCH);
    tt_expect_error("\"w\" is in it, but not here");
    const tutti_load_options_t wrong = {.include_count = self->rank == 1};
    assert_int_equal(tutti_checkpoint_load_from(&checkpoint, path, &wrong), TUTTI_ERR_ARG);
    checkpoint.slices = slices;
    checkpoint.slice_count = self->rank == 1; /* the one that has it is enough */
    assert_int_equal(tutti_checkpoint_load_from(&checkpoint, path, &cast), TUTTI_OK);
    assert_int_equal(tutti_checkpoint_load_from(&checkpoint, "/nowhere", NULL), TUTTI_ERR_IO);
    tutti_tensor_release(row);
    tutti_tensor_release(y);
    tutti_group_release(world);
    return TUTTI_OK;
}

static void ranks_have_one_failure_together(void **state)
{
    (void)state;
    tt_place_of_files_t place;
    static const char *const names[] = {"a", "\xe9 a"}; /* which the ranks tell each other */
    tt_begin_files(&place);
    for (int i = 0; i < 2; i++) {
        tt_write_matrix(tt_file_of(&place, names[i]), "w", 3, 4);
        const char *path = tt_file_of(&place, names[i]);
        const tutti_spawn_options_t options = {.argument = tutti_bytes_of(path, strlen(path) + 1),
                                               .threads = true};
        if (tutti_spawn(run_rank, 3, &options) != TUTTI_OK) {
            fail_msg("%s", tutti_last_error());
        }
    }
    tt_end_files(&place);
}

static void memory_that_runs_out_is_told(void **state)
{
    (void)state;
    static const tutti_load_rule_t rules[] = {{"v", "w", true}};
    static const tutti_load_options_t options = {.rules = rules, .rule_count = 1, .cast = true};
    tt_place_of_files_t place;
    tt_begin_files(&place);
    tt_write_matrix(tt_file_of(&place, "a"), "w", 5, 0);
    tutti_tensor_t *x = make(TUTTI_F64, TUTTI_SHAPE(3, 5));
    const tutti_slice_t slice = tutti_slice_whole("v", x);
    for (size_t n = 1;; n++) {
        tt_alloc_fail_at(n);
        const tutti_status_t status = load(tt_file_of(&place, "a"), &slice, 1, &options);
        const bool has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
        if (!has_failed) {
            break;
        }
    }
    tutti_tensor_release(x);
    tt_end_files(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_is_cast_to_every_other),
        cmocka_unit_test(what_is_stored_transposed_is_read_as_any_slice),
        cmocka_unit_test(a_rule_says_what_a_name_is_there),
        cmocka_unit_test(the_first_rule_that_leads_to_a_tensor_holds),
        cmocka_unit_test(what_is_excluded_by_its_name_there_is_not_loaded),
        cmocka_unit_test(patterns_choose_what_is_loaded),
        cmocka_unit_test(snapshots_of_earlier_versions_are_loaded),
        cmocka_unit_test(an_optimizers_state_is_loaded_or_stays),
        cmocka_unit_test(a_tensor_on_meta_must_be_loaded),
        cmocka_unit_test(options_that_mean_nothing_are_refused),
        cmocka_unit_test(shapes_and_dtypes_that_differ_are_listed),
        cmocka_unit_test(a_long_list_ends_with_a_number),
        cmocka_unit_test(ranks_have_one_failure_together),
        cmocka_unit_test(memory_that_runs_out_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
