/* Optimizer state on a disk: a training does not notice. Two trainings do the same at random, one
 * of which has its state in a file; all their bits are compared. */
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <tutti/devices.h>
#include <tutti/nn_layers.h>
#include <tutti/offload.h>

#include "compute/optim/optimizer.h"
#include "core/base/config.h"
#include "core/base/place_testing.h"
#include "core/base/rng.h"
#include "core/tensor/tensor_impl.h"

enum { PARAMS_MAX = 8, TRAININGS = 14, ACTIONS = 9, PATH_BYTES = 128 };

static tutti_context_t *ctx;
static char folder[TT_PLACE_BYTES];
static tt_rng_t rng;
static uint64_t drawn;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)tt_rng_below(rng, drawn++, below);
}

/* ---- two trainings --------------------------------------------------------------------------- */

typedef struct {
    tutti_optim_t *opt;
    tutti_tensor_t *params[PARAMS_MAX];
} side_t;

typedef struct {
    side_t sides[2]; /* memory, disk */
    int param_count;
    int64_t step;
} pair_t;

typedef struct {
    const tutti_optim_ops_t *kind;
    const void *options;
} kind_t;

static const tutti_sgd_options_t momentum = {.momentum = 0.9};
static const tutti_adam_options_t amsgrad = {.amsgrad = true, .weight_decay = 0.1};
static const tutti_rmsprop_options_t centered = {.centered = true, .momentum = 0.5};
static const tutti_adafactor_options_t with_mean = {.beta1 = 0.9};

static const kind_t kinds[] = {{&tutti_sgd, NULL},          {&tutti_sgd, &momentum},
                               {&tutti_adam, &amsgrad},     {&tutti_adamw, NULL},
                               {&tutti_rmsprop, &centered}, {&tutti_adagrad, NULL},
                               {&tutti_lion, NULL},         {&tutti_lamb, NULL},
                               {&tutti_adafactor, NULL},    {&tutti_adafactor, &with_mean}};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

static void fill(tutti_tensor_t *x, uint64_t seed)
{
    tutti_tensor_t *values;
    assert_int_equal(tutti_tensor_create(TUTTI_F32, tutti_tensor_shape(x), &values), 0);
    float *at = tutti_tensor_data(values);
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        at[i] = (float)((int64_t)(seed >> 33) - (1 << 30)) / (float)(1 << 30);
    }
    assert_int_equal(tutti_tensor_copy(x, values), 0);
    tutti_tensor_release(values);
}

/* Sizes of one chunk, of some, of one element beside. */
static tutti_shape_t draw_shape(void)
{
    const tutti_shape_t shapes[] = {TUTTI_SHAPE(1),       TUTTI_SHAPE(13),      TUTTI_SHAPE(40, 30),
                                    TUTTI_SHAPE(70001),   TUTTI_SHAPE(1 << 18), TUTTI_SHAPE(600001),
                                    TUTTI_SHAPE(600, 700)};
    return shapes[draw(7)];
}

static void add_params(pair_t *pair, int count)
{
    for (; count > 0 && pair->param_count < PARAMS_MAX; count--) {
        char name[16];
        const int i = pair->param_count++;
        const tutti_dtype_t dtypes[] = {TUTTI_F32, TUTTI_F32, TUTTI_BF16, TUTTI_F16};
        const tutti_shape_t shape = draw_shape();
        const tutti_dtype_t dtype = dtypes[draw(4)];
        const uint64_t seed = draw(UINT32_MAX);
        snprintf(name, sizeof name, "p%d", i);
        for (int k = 0; k < 2; k++) {
            side_t *side = &pair->sides[k];
            assert_int_equal(tutti_tensor_create(dtype, shape, &side->params[i]), 0);
            fill(side->params[i], seed);
            assert_int_equal(tutti_tensor_set_requires_grad(side->params[i], true), 0);
            assert_int_equal(tutti_optim_add_parameter(side->opt, 0, name, side->params[i]), 0);
        }
    }
}

static void begin_pair(pair_t *pair, const kind_t *kind)
{
    *pair = (pair_t){.param_count = 0};
    for (int k = 0; k < 2; k++) {
        assert_int_equal(tutti_optim_create(ctx, kind->kind, kind->options, &pair->sides[k].opt),
                         0);
    }
    assert_int_equal(tutti_optim_offload(pair->sides[1].opt, folder), 0);
    add_params(pair, 2 + (int)draw(3));
}

static void end_pair(pair_t *pair)
{
    for (int k = 0; k < 2; k++) {
        tutti_optim_release(pair->sides[k].opt);
        tt_tensors_release(pair->sides[k].params, PARAMS_MAX);
    }
}

/* ---- comparing ------------------------------------------------------------------------------- */

typedef struct {
    char name[64];
    tutti_tensor_t *host;
} item_t;

typedef struct {
    item_t items[16 * PARAMS_MAX];
    int count;
} items_t;

static tutti_status_t copy_item(void *user, const char *name, tutti_tensor_t *x)
{
    items_t *items = user;
    item_t *item = &items->items[items->count++];
    snprintf(item->name, sizeof item->name, "%s", name);
    return tt_tensor_on_host(x, &item->host);
}

static void expect_same_tensor(const char *name, const tutti_tensor_t *a, const tutti_tensor_t *b)
{
    const size_t bytes = tutti_tensor_bytes(a);
    assert_int_equal(bytes, tutti_tensor_bytes(b));
    if (memcmp(tutti_tensor_data(a), tutti_tensor_data(b), bytes) != 0) {
        fail_msg("%s differs", name);
    }
}

static void expect_same(const pair_t *pair)
{
    items_t all[2] = {{.count = 0}, {.count = 0}};
    for (int k = 0; k < 2; k++) {
        assert_int_equal(tutti_optim_each_state(pair->sides[k].opt, copy_item, &all[k]), 0);
    }
    assert_int_equal(all[0].count, all[1].count);
    for (int i = 0; i < all[0].count; i++) {
        assert_string_equal(all[0].items[i].name, all[1].items[i].name);
        expect_same_tensor(all[0].items[i].name, all[0].items[i].host, all[1].items[i].host);
        tutti_tensor_release(all[0].items[i].host);
        tutti_tensor_release(all[1].items[i].host);
    }
    for (int i = 0; i < pair->param_count; i++) {
        expect_same_tensor("a parameter", pair->sides[0].params[i], pair->sides[1].params[i]);
    }
}

/* ---- what is done ---------------------------------------------------------------------------- */

/* Some have no gradient. */
static void step_pair(pair_t *pair)
{
    const uint32_t absent = draw(4) == 0 ? draw(1 << PARAMS_MAX) : 0;
    const double clip = draw(3) == 0 ? 0.5 : 0;
    const uint64_t seed = draw(UINT32_MAX);
    pair->step++;
    for (int k = 0; k < 2; k++) {
        const side_t *side = &pair->sides[k];
        tutti_optim_zero_grad(side->opt);
        for (int i = 0; i < pair->param_count; i++) {
            tutti_tensor_t *g;
            if ((absent >> i & 1) == 0) {
                assert_int_equal(tutti_tensor_create(tutti_tensor_dtype(side->params[i]),
                                                     tutti_tensor_shape(side->params[i]), &g),
                                 0);
                fill(g, seed + (uint64_t)i);
                assert_int_equal(tutti_tensor_set_grad(side->params[i], g), 0);
                tutti_tensor_release(g);
            }
        }
        tutti_optim_set_lr(side->opt, 1e-2 / (double)pair->step);
        assert_int_equal(clip > 0 ? tutti_clip_grad_norm(side->opt, clip, 2, NULL) : 0, 0);
        assert_int_equal(tutti_optim_step(side->opt), 0);
    }
}

static void path_of(int side, char path[PATH_BYTES])
{
    snprintf(path, PATH_BYTES, "%s/side%d", folder, side);
}

/* Each side's state goes into the other's optimizer. */
static void save_and_load(const pair_t *pair)
{
    char path[PATH_BYTES];
    for (int k = 0; k < 2; k++) {
        path_of(k, path);
        assert_int_equal(tutti_optim_save(pair->sides[k].opt, path), 0);
    }
    for (int k = 0; k < 2; k++) {
        path_of(1 - k, path);
        assert_int_equal(tutti_optim_load(pair->sides[k].opt, path), 0);
    }
}

/* Somebody else writes a parameter: a master must see it. */
static void write_param(const pair_t *pair)
{
    const uint32_t i = draw((uint32_t)pair->param_count);
    const uint64_t seed = draw(UINT32_MAX);
    fill(pair->sides[0].params[i], seed);
    fill(pair->sides[1].params[i], seed);
}

static void move_there_and_back(const pair_t *pair)
{
    assert_int_equal(tutti_optim_offload(pair->sides[1].opt, NULL), 0);
    expect_same(pair);
    assert_int_equal(tutti_optim_offload(pair->sides[1].opt, folder), 0);
}

static void act(pair_t *pair)
{
    switch (draw(12)) {
    case 0:
        save_and_load(pair);
        break;
    case 1:
        write_param(pair);
        break;
    case 2:
        move_there_and_back(pair);
        break;
    case 3:
        add_params(pair, 1);
        break;
    default:
        step_pair(pair);
    }
}

static void a_training_has_the_bits_of_memory(void **state)
{
    (void)state;
    int64_t seed = (int64_t)getpid();
    if (tt_config_is_set(TT_CONFIG_SEED)) {
        assert_int_equal(tt_config_int(TT_CONFIG_SEED, 0, INT64_MAX, &seed), TUTTI_OK);
    }
    print_message("TUTTI_SEED=%lld\n", (long long)seed);
    rng = tt_rng_stream((uint64_t)seed, 0, 0, 0, 0);
    const uint32_t first = draw(KINDS);
    for (uint32_t i = 0; i < TRAININGS; i++) {
        pair_t pair;
        begin_pair(&pair, &kinds[(first + i) % KINDS]);
        step_pair(&pair);
        for (int k = 0; k < ACTIONS; k++) {
            act(&pair);
            if (draw(3) == 0) {
                expect_same(&pair);
            }
        }
        step_pair(&pair);
        expect_same(&pair);
        end_pair(&pair);
    }
}

/* ---- what it costs --------------------------------------------------------------------------- */

enum { LARGE = 3000000 };

static void begin_large(pair_t *pair, const tutti_optim_ops_t *kind)
{
    *pair = (pair_t){.param_count = 1};
    side_t *side = &pair->sides[0];
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(LARGE), &side->params[0]), 0);
    assert_int_equal(tutti_tensor_set_requires_grad(side->params[0], true), 0);
    tutti_tensor_t *g;
    assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(LARGE), &g), 0);
    assert_int_equal(tutti_tensor_set_grad(side->params[0], g), 0);
    tutti_tensor_release(g);
    assert_int_equal(tutti_optim_create(ctx, kind, NULL, &side->opt), 0);
    assert_int_equal(tutti_optim_add_parameter(side->opt, 0, "x", side->params[0]), 0);
}

static void end_large(pair_t *pair)
{
    tutti_optim_release(pair->sides[0].opt);
    tutti_tensor_release(pair->sides[0].params[0]);
}

static tutti_status_t read_item(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    char byte;
    *(int *)user += 1;
    return tutti_tensor_numel(x) == 1
               ? TUTTI_OK
               : tt_device_copy_out(x->storage->device, &byte, tt_tensor_data(x), 1);
}

/* 12 chunks of two moments: a step writes the whole state once, and reads it once. */
static void a_step_moves_the_state_once_through_four_pieces(void **state)
{
    (void)state;
    pair_t pair;
    tutti_offload_stats_t stats;
    begin_large(&pair, &tutti_adam);
    tutti_optim_t *opt = pair.sides[0].opt;
    tutti_optim_offload_stats(opt, &stats);
    assert_int_equal(stats.file_bytes + stats.buffer_bytes, 0);
    assert_int_equal(tutti_optim_offload(opt, folder), 0);
    const size_t before = tt_alloc_stats().bytes;
    for (uint64_t step = 1; step <= 3; step++) {
        const uint64_t whole = 2 * (uint64_t)((LARGE * 4 + 4095) / 4096 * 4096);
        int visited = 0;
        assert_int_equal(tutti_optim_step(opt), 0);
        assert_int_equal(tutti_optim_each_state(opt, read_item, &visited), 0); /* all is written */
        assert_int_equal(visited, 3);
        tutti_optim_offload_stats(opt, &stats);
        assert_int_equal(stats.file_bytes, whole);
        assert_int_equal(stats.written_bytes, step * whole);
        assert_true(stats.read_bytes >= step * whole);
        assert_true(stats.read_bytes <= step * (whole + 3 * (2 << 20)));
        assert_int_equal(stats.buffer_bytes, 4 * (2 << 20));
    }
    assert_true(tt_alloc_stats().bytes - before < 9 << 20); /* the state is 24 MB */
    end_large(&pair);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* 0: as it was. */
static void limit_files(rlim_t bytes)
{
    static struct rlimit before;
    struct rlimit limit;
    assert_int_equal(bytes == 0 ? 0 : getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = bytes == 0 ? before.rlim_cur : bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void a_full_disk_is_told_before_anything_changes(void **state)
{
    (void)state;
    pair_t pair;
    begin_large(&pair, &tutti_adamw);
    tutti_optim_t *opt = pair.sides[0].opt;
    fill(pair.sides[0].params[0], 3);
    const float was = ((const float *)tutti_tensor_data(pair.sides[0].params[0]))[LARGE - 1];
    assert_int_equal(tutti_optim_offload(opt, folder), 0);
    limit_files(20 << 20);
    assert_int_equal(tutti_optim_step(opt), TUTTI_ERR_NOMEM);
    tt_expect_error(folder);
    tt_expect_error("has no room for 12001280 bytes");
    assert_true(((const float *)tutti_tensor_data(pair.sides[0].params[0]))[LARGE - 1] == was);
    limit_files(0);
    assert_int_equal(tutti_optim_step(opt), TUTTI_OK);
    assert_true(((const float *)tutti_tensor_data(pair.sides[0].params[0]))[LARGE - 1] != was);
    assert_int_equal(tutti_optim_offload(opt, NULL), TUTTI_OK);
    limit_files(20 << 20); /* back in memory, and there it stays */
    assert_int_equal(tutti_optim_offload(opt, folder), TUTTI_ERR_NOMEM);
    limit_files(0);
    assert_int_equal(tutti_optim_step(opt), TUTTI_OK);
    end_large(&pair);
}

/* Also where each is stepped by itself, as in a backward: the first one finds room for all. */
static void a_disk_with_room_for_one_parameter_steps_none(void **state)
{
    (void)state;
    enum { COUNT = 500000 };
    tutti_optim_t *opt;
    tutti_tensor_t *params[2], *g;
    assert_int_equal(tutti_optim_create(ctx, &tutti_adamw, NULL, &opt), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(COUNT), &params[i]), 0);
        assert_int_equal(tutti_tensor_set_requires_grad(params[i], true), 0);
        assert_int_equal(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(COUNT), &g), 0);
        fill(params[i], 3);
        fill(g, 4);
        assert_int_equal(tutti_tensor_set_grad(params[i], g), 0);
        tutti_tensor_release(g);
        assert_int_equal(tutti_optim_add_parameter(opt, 0, i == 0 ? "x" : "y", params[i]), 0);
    }
    const double was = tutti_tensor_at(params[0], 0);
    assert_int_equal(tutti_optim_offload(opt, folder), 0);
    limit_files(6 << 20); /* of 8 MB */
    assert_int_equal(tt_optim_step_slot(opt, 0), TUTTI_ERR_NOMEM);
    assert_true(tutti_tensor_at(params[0], 0) == was);
    limit_files(0);
    assert_int_equal(tt_optim_step_slot(opt, 0), TUTTI_OK);
    assert_true(tutti_tensor_at(params[0], 0) != was);
    assert_int_equal(tt_optim_step_slot(opt, 1), TUTTI_OK);
    tt_optim_end_slots(opt);
    tutti_optim_release(opt);
    tt_tensors_release(params, 2);
}

static void bad_folders_are_named(void **state)
{
    (void)state;
    pair_t pair;
    char path[PATH_BYTES];
    begin_large(&pair, &tutti_adamw);
    assert_int_equal(tutti_optim_offload(pair.sides[0].opt, "/dev/null/here"), TUTTI_ERR_IO);
    tt_expect_error("/dev/null");
    assert_int_equal(tutti_optim_offload(pair.sides[0].opt, "/proc"), TUTTI_ERR_IO);
    tt_expect_error("offload: cannot make a file in /proc");
    snprintf(path, sizeof path, "%s/new/folder", folder); /* it is made */
    assert_int_equal(tutti_optim_offload(pair.sides[0].opt, path), TUTTI_OK);
    assert_int_equal(rmdir(path), 0); /* and not needed any longer */
    assert_int_equal(tutti_optim_step(pair.sides[0].opt), TUTTI_OK);
    end_large(&pair);
}

static tutti_status_t fill_item(void *user, const char *name, tutti_tensor_t *x)
{
    (void)user;
    (void)name;
    return tutti_tensor_numel(x) == 1 ? TUTTI_OK : tutti_tensor_fill(x, 1);
}

static void computing_on_a_disk_is_refused(void **state)
{
    (void)state;
    pair_t pair;
    begin_large(&pair, &tutti_lion);
    assert_int_equal(tutti_optim_offload(pair.sides[0].opt, folder), 0);
    assert_int_equal(tutti_optim_step(pair.sides[0].opt), 0);
    assert_int_equal(tutti_optim_each_state(pair.sides[0].opt, fill_item, NULL),
                     TUTTI_ERR_UNSUPPORTED);
    tt_expect_error("where nothing is computed");
    end_large(&pair);
}

/* Its state would stay on the device, without a word. */
static void a_parameter_on_a_device_is_refused(void **state)
{
    (void)state;
    static const char text[] =
        "lies on strict:0: state goes to a disk from the host's memory alone";
    const tutti_linear_options_t linear = {.in = 3, .out = 3, .no_bias = true};
    tutti_device_t *device;
    tutti_module_t *early, *late;
    tutti_optim_t *opt;
    assert_int_equal(tutti_device_open("strict:0", NULL, &device), TUTTI_OK);
    assert_int_equal(tutti_module_create(ctx, &tutti_linear_layer, &linear, &early), TUTTI_OK);
    assert_int_equal(tutti_module_create(ctx, &tutti_linear_layer, &linear, &late), TUTTI_OK);
    assert_int_equal(tutti_optim_create(ctx, &tutti_adamw, NULL, &opt), TUTTI_OK);
    assert_int_equal(tutti_optim_add_module(opt, early, NULL, NULL), TUTTI_OK);
    assert_int_equal(tutti_optim_offload(opt, folder), TUTTI_OK);
    assert_int_equal(tutti_module_to(late, device), TUTTI_OK);
    tutti_tensor_t *x = tutti_module_find(late, "weight");
    assert_int_equal(tutti_optim_add_parameter(opt, 0, "late", x), TUTTI_ERR_UNSUPPORTED);
    tt_expect_error(text);
    tt_expect_error("adamw: parameter \"late\"");
    /* moved before its first step, which makes the state */
    assert_int_equal(tutti_module_to(early, device), TUTTI_OK);
    assert_int_equal(tutti_tensor_set_grad(tutti_module_find(early, "weight"), x), TUTTI_OK);
    assert_int_equal(tutti_optim_step(opt), TUTTI_ERR_UNSUPPORTED);
    tt_expect_error(text);
    assert_int_equal(tutti_optim_offload(opt, NULL), TUTTI_OK); /* its state is in memory */
    assert_int_equal(tutti_optim_step(opt), TUTTI_OK);
    assert_int_equal(tutti_optim_offload(opt, folder), TUTTI_ERR_UNSUPPORTED);
    tt_expect_error(text);
    tutti_optim_release(opt);
    tutti_module_release(early);
    tutti_module_release(late);
    tutti_device_release(device);
}

static int begin(void **state)
{
    (void)state;
    tt_place_make(folder);
    return tutti_context_create(&(tutti_context_options_t){.threads = 2}, &ctx);
}

static int end(void **state)
{
    tutti_context_release(ctx);
    tt_place_remove(folder);
    return tt_nothing_is_left(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_training_has_the_bits_of_memory),
        cmocka_unit_test(a_step_moves_the_state_once_through_four_pieces),
        cmocka_unit_test(a_full_disk_is_told_before_anything_changes),
        cmocka_unit_test(a_disk_with_room_for_one_parameter_steps_none),
        cmocka_unit_test(bad_folders_are_named),
        cmocka_unit_test(computing_on_a_disk_is_refused),
        cmocka_unit_test(a_parameter_on_a_device_is_refused),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
