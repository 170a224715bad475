/* Checkpoints of a training: a training that goes on from one ends with the same bits; damage,
 * crashes in the middle and mistakes.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tutti/collectives.h>
#include <tutti/launch.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/checkpoint.h>
#include <tutti/tensor.h>

#include "core/base/folder.h"
#include "core/base/place_testing.h"

static bool folders_cannot_be_read;

/* Takes the place of the C library's: a file system in the network that has lost its server. */
struct dirent *readdir(DIR *folder)
{
    if (folders_cannot_be_read) {
        errno = EIO;
        return NULL;
    }
    return (struct dirent *)readdir64(folder);
}

typedef struct {
    char folder[TT_PLACE_BYTES];
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_optim_t *opt;
    tutti_tensor_t *mark;
    tutti_slice_t extra;
    tutti_checkpoint_t checkpoint;
} training_t;

static void open_width(training_t *t, const char *folder, int64_t hidden)
{
    const tutti_mlp_options_t options = {.width = 3, .hidden = hidden};
    snprintf(t->folder, sizeof t->folder, "%s", folder);
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.seed = 3}, &t->ctx), 0);
    assert_int_equal(tutti_module_create(t->ctx, &tutti_mlp_layer, &options, &t->net), 0);
    assert_int_equal(
        tutti_optim_create(t->ctx, &tutti_adam, &(tutti_adam_options_t){.lr = 0.1}, &t->opt), 0);
    assert_int_equal(tutti_optim_add_module(t->opt, t->net, NULL, NULL), 0);
    assert_int_equal(tutti_tensor_create(TUTTI_F64, TUTTI_SHAPE(1), &t->mark), 0);
    t->extra = tutti_slice_whole("mark", t->mark);
    t->checkpoint = (tutti_checkpoint_t){.folder = t->folder,
                                         .module = t->net,
                                         .optim = t->opt,
                                         .slices = &t->extra,
                                         .slice_count = 1,
                                         .keep = 2};
}

static void open_training(training_t *t, const char *folder)
{
    open_width(t, folder, 5);
}

static void close_training(training_t *t)
{
    tutti_tensor_release(t->mark);
    tutti_optim_release(t->opt);
    tutti_module_release(t->net);
    tutti_context_release(t->ctx);
}

static void train(training_t *t, int64_t from, int64_t to)
{
    for (int64_t step = from; step < to; step++) {
        tutti_scope_t *s;
        tutti_context_set_step(t->ctx, step);
        assert_int_equal(tutti_scope_open(t->ctx, &s), 0);
        tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(4, 3), -1, 1);
        tutti_tensor_t *loss = tutti_mse_loss(s, tutti_forward(s, t->net, x), x, TUTTI_LOSS_MEAN);
        (void)tutti_backward(s, loss);
        assert_int_equal(tutti_scope_close(s), 0);
        assert_int_equal(tutti_optim_step(t->opt), 0);
        tutti_module_zero_grad(t->net);
        *(double *)tutti_tensor_data(t->mark) = (double)step + 1;
    }
}

static void digest(training_t *t, char text[TUTTI_DIGEST_BYTES])
{
    assert_int_equal(tutti_module_digest(t->net, text), 0);
}

static bool has(const char *place, const char *name)
{
    char path[256];
    struct stat about;
    snprintf(path, sizeof path, "%s/%s", place, name);
    return stat(path, &about) == 0;
}

static void save(training_t *t, int64_t step)
{
    assert_int_equal(tutti_checkpoint_save(&t->checkpoint, step), TUTTI_OK);
}

static void cut(const char *place, const char *name, off_t bytes)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", place, name);
    assert_int_equal(truncate(path, bytes), 0);
}

static void a_training_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    training_t t;
    char place[TT_PLACE_BYTES], want[TUTTI_DIGEST_BYTES], got[TUTTI_DIGEST_BYTES];
    int64_t step = 77;
    tt_place_make(place);
    open_training(&t, place);
    assert_int_equal(tutti_checkpoint_load(&t.checkpoint, &step), TUTTI_END);
    assert_int_equal(step, 77);
    train(&t, 0, 4);
    save(&t, 4);
    train(&t, 4, 9);
    digest(&t, want);
    close_training(&t);
    open_training(&t, place);
    assert_int_equal(tutti_checkpoint_load(&t.checkpoint, &step), TUTTI_OK);
    assert_int_equal(step, 4);
    assert_true(*(double *)tutti_tensor_data(t.mark) == 4);
    train(&t, step, 9);
    digest(&t, got);
    assert_string_equal(got, want);
    close_training(&t);
    tt_place_remove(place);
}

/* What earlier versions wrote: three files, and no manifest. */
static void write_snapshot(training_t *t, int64_t step)
{
    char folder[96], path[160], text[24];
    const tutti_named_tensor_t mark = {"mark", t->mark};
    snprintf(text, sizeof text, "%lld", (long long)step);
    const tutti_named_text_t metadata = {"step", text};
    snprintf(folder, sizeof folder, "%s/step-%012lld", t->folder, (long long)step);
    assert_int_equal(mkdir(folder, 0777), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(tutti_module_save(t->net, path, &metadata, 1), TUTTI_OK);
    snprintf(path, sizeof path, "%s/optim.safetensors", folder);
    assert_int_equal(tutti_optim_save(t->opt, path), TUTTI_OK);
    snprintf(path, sizeof path, "%s/extra.safetensors", folder);
    assert_int_equal(tutti_safetensors_save(path, &mark, 1, NULL, 0), TUTTI_OK);
}

static void a_training_goes_on_from_a_snapshot_of_earlier_versions(void **state)
{
    (void)state;
    training_t t;
    char place[TT_PLACE_BYTES], want[TUTTI_DIGEST_BYTES], got[TUTTI_DIGEST_BYTES];
    int64_t step = 0;
    tt_place_make(place);
    open_training(&t, place);
    train(&t, 0, 4);
    write_snapshot(&t, 4);
    train(&t, 4, 9);
    digest(&t, want);
    close_training(&t);
    open_training(&t, place);
    assert_int_equal(tutti_checkpoint_load(&t.checkpoint, &step), TUTTI_OK);
    assert_int_equal(step, 4);
    train(&t, step, 8);
    save(&t, 8); /* beside it */
    close_training(&t);
    open_training(&t, place);
    assert_int_equal(tutti_checkpoint_load(&t.checkpoint, &step), TUTTI_OK);
    assert_int_equal(step, 8);
    train(&t, step, 9);
    digest(&t, got);
    assert_string_equal(got, want);
    close_training(&t);
    tt_place_remove(place);
}

static void the_newest_are_kept(void **state)
{
    (void)state;
    training_t t;
    char place[TT_PLACE_BYTES];
    tt_place_make(place);
    open_training(&t, place);
    train(&t, 0, 1);
    for (int64_t step = 8; step < 13; step++) {
        save(&t, step);
    }
    save(&t, 12); /* again */
    assert_false(has(place, "step-000000000010"));
    assert_true(has(place, "step-000000000011"));
    assert_true(has(place, "step-000000000012"));
    t.checkpoint.keep = 1;
    save(&t, 13);
    assert_false(has(place, "step-000000000012"));
    close_training(&t);
    tt_place_remove(place);
}

static void what_a_crash_left_is_neither_loaded_nor_kept(void **state)
{
    (void)state;
    training_t t;
    char place[TT_PLACE_BYTES], path[128];
    int64_t step;
    tt_place_make(place);
    open_training(&t, place);
    train(&t, 0, 1);
    save(&t, 1);
    snprintf(path, sizeof path, "%s/.half-000000000007", place);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/.half-000000000007/model.safetensors", place);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666));
    assert_int_equal(tutti_checkpoint_load(&t.checkpoint, &step), TUTTI_OK);
    assert_int_equal(step, 1);
    save(&t, 2);
    assert_false(has(place, ".half-000000000007"));
    close_training(&t);
    tt_place_remove(place);
}

static void a_damaged_one_is_passed_over(void **state)
{
    (void)state;
    training_t t;
    char place[TT_PLACE_BYTES];
    int64_t step;
    tt_place_make(place);
    open_training(&t, place);
    train(&t, 0, 2);
    save(&t, 2);
    train(&t, 2, 3);
    save(&t, 3);
    cut(place, "step-000000000003/rank-00000-0.digests", 5);
    assert_int_equal(tutti_checkpoint_load(&t.checkpoint, &step), TUTTI_OK);
    assert_int_equal(step, 2);
    cut(place, "step-000000000002/rank-00000-0.safetensors", 0);
    assert_int_equal(tutti_checkpoint_load(&t.checkpoint, &step), TUTTI_ERR_FORMAT);
    tt_expect_error("step-000000000003/rank-00000-0.digests"); /* the newest is reported */
    close_training(&t);
    tt_place_remove(place);
}

static void mistakes_are_told(void **state)
{
    (void)state;
    training_t t, other;
    char place[TT_PLACE_BYTES];
    int64_t step;
    tt_place_make(place);
    open_training(&t, place);
    open_width(&other, place, 6);
    train(&t, 0, 1);
    save(&t, 1);
    assert_int_equal(tutti_checkpoint_load(&other.checkpoint, &step), TUTTI_ERR_MISMATCH);
    assert_int_equal(tutti_checkpoint_save(&t.checkpoint, -1), TUTTI_ERR_ARG);
    assert_int_equal(tutti_checkpoint_save(&t.checkpoint, 1000000000000), TUTTI_ERR_ARG);
    t.checkpoint.folder = "/proc/none";
    assert_int_equal(tutti_checkpoint_save(&t.checkpoint, 1), TUTTI_ERR_IO);
    tt_expect_error("/proc/none");
    t.checkpoint.folder = "";
    assert_int_equal(tutti_checkpoint_save(&t.checkpoint, 1), TUTTI_ERR_ARG);
    close_training(&other);
    close_training(&t);
    tt_place_remove(place);
}

/* Steps are numbered from 0. */
static void the_first_step_counts(void **state)
{
    (void)state;
    training_t t;
    char place[TT_PLACE_BYTES];
    int64_t step = 77;
    tt_place_make(place);
    open_training(&t, place);
    save(&t, 0);
    assert_int_equal(tutti_checkpoint_load(&t.checkpoint, &step), TUTTI_OK);
    assert_int_equal(step, 0);
    close_training(&t);
    tt_place_remove(place);
}

/* No descriptor is left to look into it. */
static void a_folder_that_cannot_be_looked_into_is_told(void **state)
{
    (void)state;
    training_t t;
    char place[TT_PLACE_BYTES];
    int64_t step;
    struct rlimit limit;
    tt_place_make(place);
    open_training(&t, place);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max});
    const tutti_status_t loaded = tutti_checkpoint_load(&t.checkpoint, &step);
    const tutti_status_t saved = tutti_checkpoint_save(&t.checkpoint, 1);
    setrlimit(RLIMIT_NOFILE, &limit);
    assert_int_equal(loaded, TUTTI_ERR_IO);
    assert_int_equal(saved, TUTTI_ERR_IO);
    tt_expect_error(place);
    close_training(&t);
    assert_false(has(place, ".half-000000000001")); /* nothing was begun */
    tt_place_remove(place);
}

/* Else a training would begin again from step 0. */
static void a_folder_that_cannot_be_read_is_not_an_empty_one(void **state)
{
    (void)state;
    training_t t;
    char place[TT_PLACE_BYTES];
    int64_t step = 77;
    tt_place_make(place);
    open_training(&t, place);
    save(&t, 1);
    folders_cannot_be_read = true;
    const tutti_status_t status = tutti_checkpoint_load(&t.checkpoint, &step);
    folders_cannot_be_read = false;
    assert_int_equal(status, TUTTI_ERR_IO);
    tt_expect_error("folder ");
    assert_int_equal(step, 77);
    assert_int_equal(tutti_checkpoint_load(&t.checkpoint, &step), TUTTI_OK);
    close_training(&t);
    tt_place_remove(place);
}

/* The nth allocation fails, for every n: the checkpoint before is still there. */
static void memory_that_runs_out_costs_no_checkpoint(void **state)
{
    (void)state;
    training_t t;
    char place[TT_PLACE_BYTES];
    int64_t step;
    tt_place_make(place);
    open_training(&t, place);
    train(&t, 0, 1);
    save(&t, 1);
    bool has_failed = true;
    for (size_t nth = 1; has_failed; nth++) {
        tt_alloc_fail_at(nth);
        const tutti_status_t saved = tutti_checkpoint_save(&t.checkpoint, 2);
        has_failed = tt_alloc_has_failed() != 0;
        tt_alloc_fail_at(0);
        assert_int_equal(saved, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
        assert_int_equal(tutti_checkpoint_load(&t.checkpoint, &step), TUTTI_OK);
        assert_int_equal(step, has_failed ? 1 : 2);
    }
    has_failed = true;
    for (size_t nth = 1; has_failed; nth++) {
        tt_alloc_fail_at(nth);
        const tutti_status_t loaded = tutti_checkpoint_load(&t.checkpoint, &step);
        has_failed = tt_alloc_has_failed() != 0;
        tt_alloc_fail_at(0);
        assert_int_equal(loaded, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
    }
    close_training(&t);
    tt_place_remove(place);
}

/* All learn of a mistake of rank 1. */
static tutti_status_t fail_together(training_t *t, const tutti_spawned_t *self)
{
    int64_t step = 77;
    t->checkpoint.keep = self->rank == 1 ? -1 : 0;
    const tutti_status_t saved = tutti_checkpoint_save(&t->checkpoint, 3);
    const tutti_status_t loaded = tutti_checkpoint_load(&t->checkpoint, &step);
    t->checkpoint.keep = 0;
    return saved == TUTTI_ERR_ARG && loaded == TUTTI_ERR_ARG && step == 77 &&
                   strstr(tutti_last_error(), self->rank == 1 ? "keep is -1" : "rank 1: ") != NULL
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE, "saved %d, loaded %d", (int)saved, (int)loaded);
}

/* Rank 0 alone writes; all learn when it cannot, and all load the same. */
static tutti_status_t checkpoint_together(const tutti_spawned_t *self)
{
    tutti_group_t *world;
    training_t t;
    int64_t step = 0;
    const char *place = self->argument.data;
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    open_training(&t, place);
    t.checkpoint.group = world;
    train(&t, 0, 2);
    tutti_status_t status = tutti_checkpoint_save(&t.checkpoint, 2);
    if (status >= 0) {
        status = tutti_checkpoint_load(&t.checkpoint, &step);
    }
    if (status >= 0 && step != 2) {
        status = TT_FAIL(TUTTI_ERR_STATE, "step %d", (int)step);
    }
    if (status >= 0) {
        status = fail_together(&t, self);
    }
    t.checkpoint.folder = "/proc/none";
    const tutti_status_t refused = tutti_checkpoint_save(&t.checkpoint, 3);
    if (status >= 0 && refused != TUTTI_ERR_IO) {
        status = TT_FAIL(TUTTI_ERR_STATE, "status %d of a folder that cannot be", (int)refused);
    }
    if (status >= 0 && self->rank != 0) {
        tt_expect_error("rank 0: ");
        tt_expect_error("/proc/none");
    }
    close_training(&t);
    tutti_group_release(world);
    return status;
}

static void ranks_agree(void **state)
{
    (void)state;
    char place[TT_PLACE_BYTES];
    tt_place_make(place);
    assert_int_equal(
        tutti_spawn(checkpoint_together, 3,
                    &(tutti_spawn_options_t){.argument = tutti_text(place), .threads = true}),
        TUTTI_OK);
    tt_place_remove(place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_training_goes_on_with_the_same_bits),
        cmocka_unit_test(a_training_goes_on_from_a_snapshot_of_earlier_versions),
        cmocka_unit_test(the_newest_are_kept),
        cmocka_unit_test(what_a_crash_left_is_neither_loaded_nor_kept),
        cmocka_unit_test(a_damaged_one_is_passed_over),
        cmocka_unit_test(mistakes_are_told),
        cmocka_unit_test(the_first_step_counts),
        cmocka_unit_test(a_folder_that_cannot_be_looked_into_is_told),
        cmocka_unit_test(a_folder_that_cannot_be_read_is_not_an_empty_one),
        cmocka_unit_test(memory_that_runs_out_costs_no_checkpoint),
        cmocka_unit_test(ranks_agree),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
