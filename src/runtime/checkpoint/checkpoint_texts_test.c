/* The texts of checkpoints: scaler, loader, optimizer, shards, and the caller's own. */
#include <stdlib.h>

#include <tutti/checkpoint.h>
#include <tutti/data.h>
#include <tutti/launch.h>
#include <tutti/nn_layers.h>

#include "core/base/log.h"
#include "core/base/place_testing.h"
#include "runtime/checkpoint/manifest.h"

static void expect_text(const tutti_checkpoint_text_t *text, const char *want)
{
    assert_int_equal(text->loaded.bytes, strlen(want));
    assert_string_equal(text->loaded.data, want);
}

static void texts_come_back(void **state)
{
    (void)state;
    char folder[TT_PLACE_BYTES];
    int64_t step;
    tutti_checkpoint_text_t texts[] = {
        {.name = "notes", .saved = tutti_text("a \"line\"\n\xc3\xa4")},
        {.name = "empty", .saved = tutti_text("")}};
    tutti_checkpoint_t checkpoint = {.folder = folder, .texts = texts, .text_count = 2};
    tt_place_make(folder);
    assert_int_equal(tutti_checkpoint_save(&checkpoint, 1), TUTTI_OK);
    for (int i = 0; i < 2; i++) { /* the second one takes the first one's place */
        assert_int_equal(tutti_checkpoint_load(&checkpoint, &step), TUTTI_OK);
        expect_text(&texts[0], "a \"line\"\n\xc3\xa4");
        expect_text(&texts[1], "");
    }
    tutti_buffer_release(&texts[0].loaded);
    tutti_buffer_release(&texts[1].loaded);
    tt_place_remove(folder);
}

static void a_text_that_is_not_there_is_named(void **state)
{
    (void)state;
    char folder[TT_PLACE_BYTES];
    int64_t step;
    tutti_checkpoint_text_t texts[] = {{.name = "notes", .saved = tutti_text("x")},
                                       {.name = "more"}};
    tutti_checkpoint_t checkpoint = {.folder = folder, .texts = texts, .text_count = 2};
    tt_place_make(folder);
    assert_int_equal(tutti_checkpoint_save(&checkpoint, 1), TUTTI_OK);
    assert_int_equal(tutti_checkpoint_load(&checkpoint, &step), TUTTI_ERR_MISMATCH);
    assert_string_equal(tutti_last_error(),
                        "checkpoint of step 1: 1 text does not fit; text \"more\" is not in it");
    assert_null(texts[0].loaded.data);
    tt_place_remove(folder);
}

static void texts_that_cannot_be_are_refused(void **state)
{
    (void)state;
    char folder[TT_PLACE_BYTES];
    const tutti_checkpoint_text_t wrong[] = {
        {.name = "tutti.scaler", .saved = tutti_text("1")},
        {.name = "", .saved = tutti_text("1")},
        {.name = NULL, .saved = tutti_text("1")},
        {.name = "\xff", .saved = tutti_text("1")},
        {.name = "bytes", .saved = tutti_text("\xff")},
        {.name = "zero", .saved = tutti_bytes_of("a\0b", 3)},
    };
    tt_place_make(folder);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tutti_checkpoint_text_t text = wrong[i];
        tutti_checkpoint_t checkpoint = {.folder = folder, .texts = &text, .text_count = 1};
        assert_int_equal(tutti_checkpoint_save(&checkpoint, 1), TUTTI_ERR_ARG);
        tt_expect_error("text \"");
    }
    tt_place_remove(folder);
}

static void an_optimizer_that_was_not_saved_is_named(void **state)
{
    (void)state;
    char folder[TT_PLACE_BYTES];
    int64_t step;
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_optim_t *opt;
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx), 0);
    assert_int_equal(tutti_module_create(ctx, &tutti_linear_layer,
                                         &(tutti_linear_options_t){.in = 2, .out = 2}, &net),
                     0);
    assert_int_equal(tutti_optim_create(ctx, &tutti_sgd, NULL, &opt), 0);
    assert_int_equal(tutti_optim_add_module(opt, net, NULL, NULL), 0);
    tt_place_make(folder);
    tutti_checkpoint_t checkpoint = {.folder = folder, .module = net};
    assert_int_equal(tutti_checkpoint_save(&checkpoint, 1), TUTTI_OK);
    checkpoint.optim = opt;
    assert_int_equal(tutti_checkpoint_load(&checkpoint, &step), TUTTI_ERR_MISMATCH);
    tt_expect_error("text \"tutti.optimizer\" is not in it: it was saved without the optimizer");
    tt_place_remove(folder);
    tutti_optim_release(opt);
    tutti_module_release(net);
    tutti_context_release(ctx);
}

static void a_text_without_a_name_is_not_loaded(void **state)
{
    (void)state;
    char folder[TT_PLACE_BYTES];
    int64_t step = 77;
    tutti_checkpoint_text_t texts[] = {{.name = "notes", .saved = tutti_text("x")}, {0}};
    tutti_checkpoint_t checkpoint = {.folder = folder, .texts = texts, .text_count = 1};
    tt_place_make(folder);
    assert_int_equal(tutti_checkpoint_save(&checkpoint, 1), TUTTI_OK);
    checkpoint.text_count = 2;
    assert_int_equal(tutti_checkpoint_load(&checkpoint, &step), TUTTI_ERR_ARG);
    tt_expect_error("checkpoint: text 1 has no name");
    assert_int_equal(step, 77);
    tt_place_remove(folder);
}

/* ---- what the library writes ----------------------------------------------------------------- */

typedef struct {
    char folder[TT_PLACE_BYTES];
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_optim_t *opt;
    tutti_scaler_t *scaler;
    tutti_dataset_t *data;
    tutti_dataloader_t *loader;
    tutti_checkpoint_t checkpoint;
} training_t;

static void begin(training_t *t, const char *folder, const tutti_optim_ops_t *kind, int64_t batch)
{
    const tutti_linear_options_t linear = {.in = 3, .out = 2};
    const tutti_dataloader_options_t options = {.batch = batch, .shards = 2};
    static float samples[8];
    tutti_tensor_t *x;
    *t = (training_t){0};
    snprintf(t->folder, sizeof t->folder, "%s", folder);
    assert_int_equal(tutti_context_create(NULL, &t->ctx), TUTTI_OK);
    assert_int_equal(tutti_module_create(t->ctx, &tutti_linear_layer, &linear, &t->net), TUTTI_OK);
    assert_int_equal(tutti_optim_create(t->ctx, kind, NULL, &t->opt), TUTTI_OK);
    assert_int_equal(tutti_optim_add_module(t->opt, t->net, NULL, NULL), TUTTI_OK);
    assert_int_equal(tutti_scaler_create(NULL, &t->scaler), TUTTI_OK);
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(8, 1), &x), TUTTI_OK);
    memcpy(tutti_tensor_data(x), samples, sizeof samples);
    assert_int_equal(tutti_dataset_create(&tutti_tensor_dataset,
                                          &(tutti_tensor_data_options_t){.input = x}, &t->data),
                     TUTTI_OK);
    tutti_tensor_release(x);
    assert_int_equal(tutti_dataloader_create(t->data, &options, &t->loader), TUTTI_OK);
    t->checkpoint = (tutti_checkpoint_t){.folder = t->folder,
                                         .module = t->net,
                                         .optim = t->opt,
                                         .scaler = t->scaler,
                                         .loader = t->loader,
                                         .shards = 2};
}

static void end(training_t *t)
{
    tutti_dataloader_release(t->loader);
    tutti_dataset_release(t->data);
    tutti_scaler_release(t->scaler);
    tutti_optim_release(t->opt);
    tutti_module_release(t->net);
    tutti_context_release(t->ctx);
}

static void a_training_is_put_back(void **state)
{
    (void)state;
    static training_t first, second;
    char folder[TT_PLACE_BYTES];
    int64_t step = 0;
    const tutti_scaler_state_t scale = {.scale = 0.1, .growth_tracker = 7, .skipped = 3};
    tt_place_make(folder);
    begin(&first, folder, &tutti_adamw, 2);
    begin(&second, folder, &tutti_adamw, 2);
    assert_int_equal(tutti_scaler_set_state(first.scaler, scale), TUTTI_OK);
    assert_int_equal(tutti_dataloader_set_epoch(first.loader, 5), TUTTI_OK);
    assert_int_equal(tutti_checkpoint_save(&first.checkpoint, 9), TUTTI_OK);
    assert_int_equal(tutti_checkpoint_load(&second.checkpoint, &step), TUTTI_OK);
    const tutti_scaler_state_t got = tutti_scaler_get_state(second.scaler);
    assert_true(got.scale == 0.1); /* all of its bits */
    assert_int_equal(got.growth_tracker, 7);
    assert_int_equal(got.skipped, 3);
    assert_int_equal(tutti_dataloader_epoch(second.loader), 5);
    end(&second);
    end(&first);
    tt_place_remove(folder);
}

static void another_optimizer_or_loader_is_refused(void **state)
{
    (void)state;
    static training_t first, other;
    char folder[TT_PLACE_BYTES];
    int64_t step = 77;
    tt_place_make(folder);
    begin(&first, folder, &tutti_adamw, 2);
    assert_int_equal(tutti_checkpoint_save(&first.checkpoint, 1), TUTTI_OK);
    begin(&other, folder, &tutti_adam, 2);
    assert_int_equal(tutti_checkpoint_load(&other.checkpoint, &step), TUTTI_ERR_MISMATCH);
    tt_expect_error("the state of optimizer adamw, not of adam");
    end(&other);
    begin(&other, folder, &tutti_adamw, 1);
    assert_int_equal(tutti_checkpoint_load(&other.checkpoint, &step), TUTTI_ERR_MISMATCH);
    tt_expect_error("dataloader: the state was saved with");
    assert_int_equal(step, 77);
    end(&other);
    end(&first);
    tt_place_remove(folder);
}

static void count_shards(tt_log_level_t level, const char *line, void *user)
{
    *(int *)user += level == TT_LOG_WARN && strstr(line, "2 shards, this one has 4") != NULL;
}

static void other_shards_are_logged(void **state)
{
    (void)state;
    char folder[TT_PLACE_BYTES];
    int64_t step;
    int lines = 0;
    tutti_checkpoint_t checkpoint = {.folder = folder, .shards = 2};
    tt_place_make(folder);
    assert_int_equal(tutti_checkpoint_save(&checkpoint, 1), TUTTI_OK);
    tt_log_set_sink(count_shards, &lines);
    assert_int_equal(tutti_checkpoint_load(&checkpoint, &step), TUTTI_OK);
    assert_int_equal(lines, 0);
    checkpoint.shards = 4;
    assert_int_equal(tutti_checkpoint_load(&checkpoint, &step), TUTTI_OK);
    tt_log_set_sink(NULL, NULL);
    assert_int_equal(lines, 1);
    tt_place_remove(folder);
}

/* What readers find. */
static void hyperparameters_are_written_down(void **state)
{
    (void)state;
    static training_t t;
    char folder[TT_PLACE_BYTES], command[256];
    const tutti_schedule_t schedule = {
        .kind = TUTTI_SCHEDULE_COSINE, .lr = 0.5, .total_steps = 10, .min_ratio = 0.25};
    tt_place_make(folder);
    begin(&t, folder, &tutti_adamw, 2);
    tutti_optim_set_lr(t.opt, 0.125);
    t.checkpoint.schedule = &schedule;
    assert_int_equal(tutti_checkpoint_save(&t.checkpoint, 1), TUTTI_OK);
    const char *const texts[] = {
        "{\\\"kind\\\":\\\"adamw\\\",\\\"groups\\\":[{\\\"lr\\\":0.125,\\\"beta1\\\":0.9",
        "{\\\"kind\\\":\\\"cosine\\\",\\\"lr\\\":0.5", "\"tutti.shards\":\"2\""};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        snprintf(command, sizeof command, "grep -qF '%s' %s/step-000000000001/manifest.json",
                 texts[i], folder);
        assert_int_equal(system(command), 0);
    }
    end(&t);
    tt_place_remove(folder);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static tutti_status_t save_texts(const tutti_spawned_t *self)
{
    tutti_group_t *world;
    int64_t step = 0;
    const bool is_last = self->rank == self->size - 1;
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    tutti_checkpoint_text_t texts[] = {{.name = "same", .saved = tutti_text("both")},
                                       {.name = "last's"}};
    if (is_last) {
        texts[1].saved = tutti_text("mine");
    }
    tutti_checkpoint_t checkpoint = {
        .folder = self->argument.data, .group = world, .texts = texts, .text_count = 2};
    tutti_status_t status = tutti_checkpoint_save(&checkpoint, 1);
    status = status < 0 ? status : tutti_checkpoint_load(&checkpoint, &step);
    if (status >= 0 && strcmp(texts[1].loaded.data, "mine") != 0) {
        status = TT_FAIL(TUTTI_ERR_STATE, "rank %d got %s", self->rank,
                         (const char *)texts[1].loaded.data);
    }
    texts[0].saved = tutti_text(is_last ? "one" : "other");
    const tutti_status_t refused = tutti_checkpoint_save(&checkpoint, 2);
    if (status >= 0 && (refused != TUTTI_ERR_MISMATCH ||
                        strstr(tutti_last_error(), "other texts \"same\"") == NULL)) {
        status = TT_FAIL(TUTTI_ERR_STATE, "different texts: %s", tutti_status_name(refused));
    }
    tutti_buffer_release(&texts[0].loaded);
    tutti_buffer_release(&texts[1].loaded);
    tutti_group_release(world);
    return status;
}

static void any_rank_may_have_a_text(void **state)
{
    (void)state;
    char folder[TT_PLACE_BYTES];
    tt_place_make(folder);
    assert_int_equal(
        tutti_spawn(save_texts, 2,
                    &(tutti_spawn_options_t){.argument = tutti_text(folder), .threads = true}),
        TUTTI_OK);
    tt_place_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_come_back),
        cmocka_unit_test(a_text_that_is_not_there_is_named),
        cmocka_unit_test(an_optimizer_that_was_not_saved_is_named),
        cmocka_unit_test(texts_that_cannot_be_are_refused),
        cmocka_unit_test(a_text_without_a_name_is_not_loaded),
        cmocka_unit_test(a_training_is_put_back),
        cmocka_unit_test(another_optimizer_or_loader_is_refused),
        cmocka_unit_test(other_shards_are_logged),
        cmocka_unit_test(hyperparameters_are_written_down),
        cmocka_unit_test(any_rank_may_have_a_text),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
