/* Checkpoints of a training on a device: its files are those of the host, and go back. */
#include <stdlib.h>
#include <unistd.h>

#include <tutti/devices.h>
#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_shape.h>
#include <tutti/checkpoint.h>
#include <tutti/tensor.h>

#include "core/base/folder.h"
#include "core/base/testing.h"

typedef struct {
    char folder[64];
    tutti_device_t *device;
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_module_t *net;
    tutti_optim_t *opt;
    tutti_slice_t extra[2];
    tutti_checkpoint_t checkpoint;
} training_t;

static tutti_status_t cast_up(void *user, const char *name, tutti_module_t *m)
{
    (void)user;
    return strcmp(name, "up") == 0 ? tutti_module_cast(m, TUTTI_BF16) : TUTTI_OK;
}

/* A module of two dtypes, and tensors with gaps and of bools beside it. */
static void begin(training_t *t, const char *device, uint64_t seed)
{
    const tutti_mlp_options_t options = {.width = 3, .hidden = 5};
    const bool truth[] = {true, false, true};
    *t = (training_t){.folder = "/tmp/tutti_checkpoints_XXXXXX"};
    assert_non_null(mkdtemp(t->folder));
    assert_int_equal(tutti_device_open(device, NULL, &t->device), 0);
    assert_int_equal(tutti_context_create(
                         &(tutti_context_options_t){.seed = seed, .device = t->device}, &t->ctx),
                     0);
    assert_int_equal(tutti_scope_open(t->ctx, &t->s), 0);
    assert_int_equal(tutti_module_create(t->ctx, &tutti_mlp_layer, &options, &t->net), 0);
    assert_int_equal(tutti_module_apply(t->net, cast_up, NULL), 0);
    assert_int_equal(
        tutti_optim_create(t->ctx, &tutti_adam, &(tutti_adam_options_t){.lr = 0.1}, &t->opt), 0);
    assert_int_equal(tutti_optim_add_module(t->opt, t->net, NULL, NULL), 0);
    tutti_tensor_t *rows = tutti_uniform(t->s, TUTTI_F32, TUTTI_SHAPE(7, 6), -1, 1);
    t->extra[0] = tutti_slice_whole("gaps", tutti_transpose(t->s, rows, 0, 1));
    t->extra[1] =
        tutti_slice_whole("truth", tutti_from_data(t->s, TUTTI_BOOL, TUTTI_SHAPE(3), truth));
    t->checkpoint = (tutti_checkpoint_t){.folder = t->folder,
                                         .module = t->net,
                                         .optim = t->opt,
                                         .slices = t->extra,
                                         .slice_count = 2};
}

static void end(training_t *t)
{
    assert_int_equal(tutti_scope_close(t->s), 0);
    tutti_optim_release(t->opt);
    tutti_module_release(t->net);
    tutti_context_release(t->ctx);
    tutti_device_release(t->device);
    char path[160];
    snprintf(path, sizeof path, "%s/step-000000000002", t->folder);
    (void)tt_folder_remove(path);
    assert_int_equal(tt_folder_remove(t->folder), 0);
}

static tutti_status_t set_grad(void *user, const char *name, tutti_tensor_t *x)
{
    training_t *t = user;
    (void)name;
    return tutti_tensor_set_grad(
        x, tutti_full(t->s, tutti_tensor_dtype(x), tutti_tensor_shape(x), 0.75));
}

static void step(training_t *t)
{
    assert_int_equal(tutti_module_each_parameter(t->net, set_grad, t), 0);
    assert_int_equal(tutti_optim_step(t->opt), 0);
}

static size_t read_whole(const training_t *t, const char *name, char *bytes, size_t room)
{
    char path[160];
    snprintf(path, sizeof path, "%s/step-000000000002/%s", t->folder, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t count = fread(bytes, 1, room, file);
    assert_true(count > 0 && count < room);
    assert_int_equal(fclose(file), 0);
    return count;
}

static void expect_same_files(const training_t *a, const training_t *b)
{
    static const char *const names[] = {"rank-00000-0.safetensors", "rank-00000-0.digests",
                                        "manifest.json"};
    static char x[65536], y[65536];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t bytes = read_whole(a, names[i], x, sizeof x);
        assert_int_equal(read_whole(b, names[i], y, sizeof y), bytes);
        assert_memory_equal(x, y, bytes);
    }
}

/* What one saved, on another device. */
static void carry(training_t *from, training_t *to)
{
    char folder[sizeof to->folder];
    int64_t reached = 0;
    memcpy(folder, to->folder, sizeof folder);
    to->checkpoint.folder = from->folder;
    assert_int_equal(tutti_checkpoint_load(&to->checkpoint, &reached), TUTTI_OK);
    assert_int_equal(reached, 2);
    to->checkpoint.folder = to->folder;
    assert_int_equal(tutti_checkpoint_save(&to->checkpoint, 2), 0);
    expect_same_files(from, to);
}

static void a_checkpoint_goes_to_the_host_and_back(void **state)
{
    (void)state;
    static training_t first, host, last;
    begin(&first, "strict:0", 1);
    begin(&host, "cpu", 2);
    begin(&last, "strict:1", 3);
    step(&first);
    step(&first);
    assert_int_equal(tutti_checkpoint_save(&first.checkpoint, 2), 0);
    carry(&first, &host);
    carry(&host, &last);
    assert_ptr_equal(tutti_tensor_device(tutti_module_find(last.net, "up.weight")), last.device);
    char digest[3][TUTTI_DIGEST_BYTES];
    training_t *const all[] = {&first, &host, &last};
    for (int i = 0; i < 3; i++) { /* moments and masters lie where the step wants them */
        step(all[i]);
        assert_int_equal(tutti_module_digest(all[i]->net, digest[i]), 0);
        assert_string_equal(digest[i], digest[0]);
    }
    end(&last);
    end(&host);
    end(&first);
}

/* Neither weights nor moments were ever made elsewhere. */
static void a_module_on_meta_gets_memory_by_a_checkpoint(void **state)
{
    (void)state;
    static training_t first, later;
    tutti_device_t *strict;
    int64_t reached = 0;
    begin(&first, "cpu", 1);
    step(&first);
    step(&first);
    assert_int_equal(tutti_checkpoint_save(&first.checkpoint, 2), 0);
    for (int i = 0; i < 2; i++) {
        begin(&later, "meta", 4);
        assert_int_equal(tutti_device_open("strict:1", NULL, &strict), TUTTI_OK);
        char folder[sizeof later.folder];
        memcpy(folder, later.folder, sizeof folder);
        later.checkpoint.folder = first.folder;
        later.checkpoint.device = i == 0 ? strict : NULL;
        assert_int_equal(tutti_checkpoint_load(&later.checkpoint, &reached), TUTTI_ERR_STATE);
        tt_expect_error("\"gaps\" lies on meta");
        later.checkpoint.slices = first.extra;
        assert_int_equal(tutti_checkpoint_load(&later.checkpoint, &reached), TUTTI_OK);
        assert_ptr_equal(tutti_tensor_device(tutti_module_find(later.net, "up.weight")),
                         later.checkpoint.device);
        later.checkpoint.folder = folder;
        assert_int_equal(tutti_checkpoint_save(&later.checkpoint, 2), 0);
        expect_same_files(&first, &later);
        end(&later);
        tutti_device_release(strict);
    }
    end(&first);
}

static void what_is_loaded_lies_on_the_contexts_device(void **state)
{
    (void)state;
    static training_t t;
    char path[128];
    tutti_safetensors_t *file;
    begin(&t, "strict:0", 1);
    snprintf(path, sizeof path, "%s/x", t.folder);
    const tutti_named_tensor_t named[] = {{t.extra[0].name, t.extra[0].tensor},
                                          {t.extra[1].name, t.extra[1].tensor}};
    assert_int_equal(tutti_safetensors_save(path, named, 2, NULL, 0), 0);
    assert_int_equal(tutti_safetensors_open(path, &file), 0);
    for (int i = 0; i < 2; i++) {
        const tutti_tensor_t *x = tutti_safetensors_load(t.s, file, named[i].name);
        assert_ptr_equal(tutti_tensor_device(x), t.device);
        for (int64_t k = 0; k < tutti_tensor_numel(x); k++) {
            assert_true(tutti_tensor_at(x, k) == tutti_tensor_at(named[i].tensor, k));
        }
    }
    tutti_safetensors_close(file);
    end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_goes_to_the_host_and_back),
        cmocka_unit_test(a_module_on_meta_gets_memory_by_a_checkpoint),
        cmocka_unit_test(what_is_loaded_lies_on_the_contexts_device),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
