/* Every stage, on any number of ranks, over any wire, however its units are cut and when they come:
 * one digest for each mathematics. Rows are a covering array: each pair of choices is in one of
 * them.
 *
 * TUTTI_TEST_SHARE=4 runs a random quarter of the rows; TUTTI_SEED names it. */
#include "parallel/ddp/ddp_stages_testing.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include <tutti/devices.h>

#include "core/base/place_testing.h"
#include "core/tensor/device_testing.h"
#include "parallel/ddp/on_hosts_testing.h"

enum { STEPS = 4, BATCH = 2, RANKS_MAX = 4, SEED = 11 };

/* ---- choices --------------------------------------------------------------------------------- */

/* Those of the mathematics come first: rows that have the same of them have one digest. */
typedef enum {
    OPTIMIZER,
    SHARDS,
    UNEVEN,
    CLIP,
    SCALER,
    MICRO,
    DTYPE,
    FROZEN,
    IGNORED,
    NORMS, /* in f32 */
    OUTPUT,
    LAYOUT, /* from here on */
    STAGE = LAYOUT,
    RANKS,
    WIRE,
    UNITS,
    RECOMPUTE,
    INSIDE,
    KEEP,
    PREFETCH,
    PERSISTENCE,
    BUCKETS,
    META,
    ROWS,  /* of options.mesh */
    HOSTS, /* on which ranks are */
    NEAR,  /* options.reshard_ranks */
    DISK,  /* options.offload */
    ACCUMULATE,
    CHOICES
} choice_t;

static const struct {
    const char *name;
    int count;
} choices[CHOICES] = {
    [OPTIMIZER] = {"optimizer", 6},
    [SHARDS] = {"shards", 4},
    [UNEVEN] = {"uneven", 3},
    [CLIP] = {"clip", 3},
    [SCALER] = {"scaler", 2},
    [MICRO] = {"micro", 2},
    [DTYPE] = {"dtype", 4},
    [FROZEN] = {"frozen", 2},
    [IGNORED] = {"ignored", 2},
    [NORMS] = {"norms", 2},
    [OUTPUT] = {"output", 2},
    [STAGE] = {"stage", 4},
    [RANKS] = {"ranks", 4},
    [WIRE] = {"wire", 2},
    [UNITS] = {"units", 4},
    [RECOMPUTE] = {"recompute", 2},
    [INSIDE] = {"inside", 2},
    [KEEP] = {"keep", 4},
    [PREFETCH] = {"prefetch", 3},
    [PERSISTENCE] = {"persist", 2},
    [BUCKETS] = {"buckets", 2},
    [META] = {"meta", 2},
    [ROWS] = {"rows", 2},
    [HOSTS] = {"hosts", 3},
    [NEAR] = {"near", 2},
    [DISK] = {"disk", 2},
    [ACCUMULATE] = {"accumulate", 2},
};

static const int shards[] = {2, 4, 7, 1};

/* Of up to four ranks; the first: one host, without connections. */
static const char *const shapes[] = {NULL, "aabb", "abaa"};
static const tutti_ddp_uneven_t uneven[] = {TUTTI_DDP_EVEN, TUTTI_DDP_WEIGHTED, TUTTI_DDP_ACTIVE};
static const double norms[] = {0, 0.05, INFINITY};

static const tutti_sgd_options_t momentum = {.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01};

static const struct {
    const tutti_optim_ops_t *kind;
    const void *options;
} optimizers[] = {{&tutti_sgd, &momentum}, {&tutti_adamw, NULL}, {&tutti_lion, NULL},
                  {&tutti_lamb, NULL},     {&tutti_adam, NULL},  {&tutti_adafactor, NULL}};

typedef enum { F32, MIXED, REDUCED, BF16 } dtype_t;

static char folder[TT_PLACE_BYTES]; /* of those on a disk */

typedef struct {
    int at[CHOICES];
} row_t;

/* Where two choices exclude each other, one gives way. */
static void settle(row_t *row)
{
    if (row->at[CLIP] > 0 || row->at[SCALER] > 0) {
        row->at[INSIDE] = 0; /* comes too late there */
    }
    if (row->at[STAGE] != 3) {
        row->at[META] = 0;
    }
    if (row->at[DTYPE] == MIXED && row->at[NORMS] == 0) {
        row->at[IGNORED] = 0; /* they would be f32 among 16 bits */
    }
    if (row->at[STAGE] < 3 || row->at[RANKS] % 2 == 0) {
        row->at[ROWS] = 0; /* there are two */
    }
    if (row->at[STAGE] < 3 || row->at[ROWS] > 0 || row->at[DTYPE] == BF16) {
        row->at[DISK] = 0; /* it takes f32 of one row */
    }
    if (row->at[STAGE] < 3 || row->at[RANKS] < 3 || row->at[ROWS] > 0 || row->at[KEEP] % 2 != 0) {
        row->at[NEAR] = 0; /* two of four ranks keep a unit together, or each keeps it */
    }
    if (row->at[RANKS] == 0) {
        row->at[HOSTS] = 0;
    }
    if (row->at[STAGE] < 2) {
        row->at[ACCUMULATE] = 0; /* all ranks have all gradients */
    }
}

static void describe(const row_t *row, char *text, size_t bytes)
{
    size_t used = 0;
    for (int c = 0; c < CHOICES && used < bytes; c++) {
        used += (size_t)snprintf(text + used, bytes - used, "%s%s %d", c > 0 ? ", " : "",
                                 choices[c].name, row->at[c]);
    }
}

/* ---- the training ---------------------------------------------------------------------------- */

typedef struct {
    row_t row;
    char digests[RANKS_MAX][TUTTI_DIGEST_BYTES];
} job_t;

static tutti_tensor_t *input_of(tutti_scope_t *s, const row_t *row)
{
    tutti_tensor_t *x = tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(BATCH, TT_STAGES_IN), -1, 1);
    return row->at[DTYPE] == BF16 ? tutti_cast(s, x, TUTTI_BF16) : x;
}

static tutti_status_t run_micro_batch(tutti_ddp_t *ddp, tutti_context_t *ctx, const row_t *row,
                                      const tutti_scaler_t *scaler)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    tutti_tensor_t *y = tutti_cast(s, tutti_ddp_forward(s, ddp, input_of(s, row)), TUTTI_F32);
    tutti_tensor_t *loss = tutti_mean(s, tutti_square(s, y));
    (void)tutti_backward(s, scaler != NULL ? tutti_scaler_scale(scaler, s, loss) : loss);
    return tutti_scope_close(s);
}

static tutti_status_t run_shard(tutti_ddp_t *ddp, tutti_context_t *ctx, const row_t *row, int step,
                                const tutti_scaler_t *scaler)
{
    const int64_t shard = tutti_context_shard(ctx);
    const bool is_empty = row->at[UNEVEN] > 0 && (step + shard) % 3 == 1;
    const int micro_batches = 1 + row->at[MICRO];
    if (row->at[UNEVEN] > 0) {
        TUTTI_CHECK(tutti_ddp_set_weight(ddp, is_empty ? 0 : row->at[UNEVEN] == 1 ? 1 + shard : 1));
    }
    for (int i = 0; i < micro_batches && !is_empty; i++) {
        tutti_ddp_no_sync(ddp, i + 1 < micro_batches);
        TUTTI_CHECK(run_micro_batch(ddp, ctx, row, scaler));
    }
    return TUTTI_OK;
}

static tutti_status_t update(const row_t *row, tutti_optim_t *opt, tutti_scaler_t *scaler)
{
    if (scaler != NULL) {
        TUTTI_CHECK(tutti_scaler_unscale(scaler, opt));
    }
    if (row->at[CLIP] > 0) {
        const double p = norms[row->at[CLIP]] == INFINITY ? INFINITY : 2;
        TUTTI_CHECK(tutti_clip_grad_norm(opt, 0.05, p, NULL));
    }
    if (scaler != NULL) {
        TUTTI_CHECK(tutti_scaler_step(scaler, opt, NULL));
        return tutti_scaler_update(scaler);
    }
    return row->at[INSIDE] ? TUTTI_OK : tutti_optim_step(opt);
}

/* Norms, of a block that may be a unit. Each rank's gradients of them are its own: nobody steps
 * them. */
static const char *const ignored[] = {"b.ln?"};
static const char *const in_f32[] = {"norm"};

static int choose_group(void *user, const char *name, const tutti_tensor_t *x)
{
    (void)x;
    const row_t *row = user;
    return row->at[IGNORED] && strncmp(name, "b.ln", 4) == 0 ? -1 : 0;
}

static tutti_ddp_options_t options_of(const row_t *row, tutti_optim_t *opt)
{
    static const char *const names[] = {"b", "up", "twice"};
    static const tutti_ddp_units_t units[] = {
        {0}, {.kind = "block"}, {.bytes = 1500}, {.names = names, .name_count = 3}};
    const bool is_mixed = row->at[DTYPE] == MIXED;
    const bool reduces = is_mixed || row->at[DTYPE] == REDUCED;
    return (tutti_ddp_options_t){.shards = shards[row->at[SHARDS]],
                                 .stage = row->at[STAGE],
                                 .uneven = uneven[row->at[UNEVEN]],
                                 .param_dtype = is_mixed ? TUTTI_BF16 : TUTTI_F32,
                                 .reduce_dtype = reduces ? TUTTI_BF16 : TUTTI_F32,
                                 .ignored = ignored,
                                 .ignored_count = row->at[IGNORED],
                                 .f32_kinds = in_f32,
                                 .f32_kind_count = row->at[NORMS],
                                 .f32_output = row->at[OUTPUT],
                                 .optimizer = row->at[INSIDE] ? opt : NULL,
                                 .whole_slices =
                                     optimizers[row->at[OPTIMIZER]].kind == &tutti_adafactor,
                                 .units = row->at[STAGE] == 3 ? units[row->at[UNITS]] : units[0],
                                 .keep_after_forward = row->at[KEEP] & 1,
                                 .keep_after_backward = row->at[KEEP] & 2,
                                 .reshard_ranks = 2 * row->at[NEAR],
                                 .prefetch = (int[]){0, -1, 3}[row->at[PREFETCH]],
                                 .persistence_bytes = row->at[PERSISTENCE] ? 100 : 0,
                                 .accumulate = row->at[ACCUMULATE],
                                 .offload = row->at[DISK] ? folder : NULL,
                                 .bucket_bytes = row->at[BUCKETS] ? 2000 : 0};
}

static tutti_status_t train_ddp(const tt_member_t *m, tutti_context_t *ctx, tutti_module_t *net,
                                tutti_optim_t *opt, job_t *job)
{
    const row_t *row = &job->row;
    tutti_ddp_options_t options = options_of(row, opt);
    const tutti_scaler_options_t scaling = {.init_scale = 1e38, .group = m->group};
    tutti_ddp_t *ddp;
    tutti_scaler_t *scaler = NULL;
    if (row->at[ROWS]) {
        TUTTI_CHECK(tutti_mesh_create(m->group, 2, (int[]){2, m->size / 2},
                                      (const char *[]){"replicate", "shard"}, &options.mesh));
    }
    const tutti_status_t made = tutti_ddp_create(ctx, net, m->group, &options, &ddp);
    tutti_mesh_release(options.mesh);
    TUTTI_CHECK(made);
    tutti_status_t status = row->at[SCALER] ? tutti_scaler_create(&scaling, &scaler) : TUTTI_OK;
    for (int step = 0; step < STEPS && status >= 0; step++) {
        tutti_context_set_step(ctx, step);
        while (status >= 0 && tutti_ddp_next_shard(ddp, ctx)) {
            status = run_shard(ddp, ctx, row, step, scaler);
        }
        status = status < 0 ? status : tutti_ddp_finish(ddp);
        status = status < 0 ? status : update(row, opt, scaler);
    }
    status = status < 0 ? status : tutti_ddp_digest(ddp, job->digests[m->rank]);
    tutti_scaler_release(scaler);
    tutti_ddp_release(ddp);
    return status;
}

static tutti_status_t freeze(tutti_module_t *net)
{
    const tt_stages_net_t *state = tutti_module_state(net);
    TUTTI_CHECK(tutti_module_set_requires_grad(state->blocks[0], false));
    return tutti_module_set_requires_grad(state->twice, false);
}

/* On meta, or by the context that computes. */
static tutti_status_t make_net(tutti_context_t *ctx, const row_t *row, tutti_module_t **out)
{
    const bool recomputes = row->at[RECOMPUTE];
    tutti_context_options_t options = {.threads = 1, .seed = SEED};
    if (!row->at[META]) {
        return tutti_module_create(ctx, &tt_stages_layer, &recomputes, out);
    }
    TUTTI_CHECK(tutti_device_open("meta", NULL, &options.device));
    TUTTI_CHECK(tutti_context_create(&options, &ctx));
    const tutti_status_t status = tutti_module_create(ctx, &tt_stages_layer, &recomputes, out);
    tutti_context_release(ctx);
    tutti_device_release(options.device);
    return status;
}

static tutti_status_t train_net(const tt_member_t *m, tutti_context_t *ctx, job_t *job)
{
    row_t *row = &job->row;
    tutti_module_t *net;
    tutti_optim_t *opt;
    TUTTI_CHECK(make_net(ctx, row, &net));
    TUTTI_CHECK(row->at[DTYPE] == BF16 ? tutti_module_cast(net, TUTTI_BF16) : TUTTI_OK);
    TUTTI_CHECK(row->at[FROZEN] ? freeze(net) : TUTTI_OK);
    TUTTI_CHECK(tutti_optim_create(ctx, optimizers[row->at[OPTIMIZER]].kind,
                                   optimizers[row->at[OPTIMIZER]].options, &opt));
    TUTTI_CHECK(tutti_optim_add_module(opt, net, choose_group, row));
    const tutti_status_t status = train_ddp(m, ctx, net, opt, job);
    tutti_optim_release(opt);
    tutti_module_release(net);
    return status;
}

static void train(tt_member_t *m)
{
    const tutti_context_options_t options = {.threads = 1, .seed = SEED};
    tutti_context_t *ctx;
    TT_EXPECT(m, tutti_context_create(&options, &ctx) == TUTTI_OK);
    TT_EXPECT(m, train_net(m, ctx, m->user) == TUTTI_OK);
    tutti_context_release(ctx);
}

/* ---- rows ------------------------------------------------------------------------------------ */

enum { ROWS_MAX = 200, TRIES = 40 };

typedef struct {
    bool *is_covered; /* of two choices and their values */
    uint64_t random;
    row_t rows[ROWS_MAX];
    int count;
} array_t;

static bool *pair_at(const array_t *array, int a, int x, int b, int y)
{
    enum { VALUES = 8 };
    return &array->is_covered[((a * VALUES + x) * CHOICES + b) * VALUES + y];
}

static int draw(array_t *array, int below)
{
    array->random = array->random * 6364136223846793005U + 1442695040888963407U;
    return (int)((array->random >> 33) % (uint64_t)below);
}

static int new_pairs(const array_t *array, const row_t *row)
{
    int count = 0;
    for (int a = 0; a < CHOICES; a++) {
        for (int b = a + 1; b < CHOICES; b++) {
            count += !*pair_at(array, a, row->at[a], b, row->at[b]);
        }
    }
    return count;
}

static void cover(array_t *array, const row_t *row)
{
    for (int a = 0; a < CHOICES; a++) {
        for (int b = a + 1; b < CHOICES; b++) {
            *pair_at(array, a, row->at[a], b, row->at[b]) = true;
        }
    }
    array->rows[array->count++] = *row;
}

/* A pair that is in no row yet and can be: the row has it, and is the best of some that do. */
static bool add_row(array_t *array, int a, int x, int b, int y)
{
    row_t best = {{0}};
    int most = 0;
    for (int i = 0; i < TRIES; i++) {
        row_t row;
        for (int c = 0; c < CHOICES; c++) {
            row.at[c] = draw(array, choices[c].count);
        }
        row.at[a] = x;
        row.at[b] = y;
        settle(&row);
        const int found = new_pairs(array, &row);
        if (row.at[a] == x && row.at[b] == y && found > most) {
            most = found;
            best = row;
        }
    }
    if (most > 0) {
        cover(array, &best);
    }
    return most > 0;
}

/* The array is always the same one; a seed draws from it alone. */
static void fill(array_t *array)
{
    for (int a = 0; a < CHOICES; a++) {
        for (int b = a + 1; b < CHOICES; b++) {
            for (int x = 0; x < choices[a].count; x++) {
                for (int y = 0; y < choices[b].count && array->count < ROWS_MAX; y++) {
                    if (!*pair_at(array, a, x, b, y)) {
                        (void)add_row(array, a, x, b, y);
                    }
                }
            }
        }
    }
}

static void run(job_t *job)
{
    if (job->row.at[WIRE] == 1) {
        setenv("TUTTI_WIRES", "tcp", 1);
        setenv("TUTTI_PROTECT", "off", 1);
    }
    if (shapes[job->row.at[HOSTS]] == NULL) {
        tt_team_expect_quietly(1 + job->row.at[RANKS], 60000, train, job);
    } else {
        char shape[RANKS_MAX + 1];
        (void)snprintf(shape, sizeof shape, "%.*s", 1 + job->row.at[RANKS],
                       shapes[job->row.at[HOSTS]]);
        tt_on_hosts_quietly(shape, train, job);
    }
    unsetenv("TUTTI_WIRES");
    unsetenv("TUTTI_PROTECT");
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static void check_row(const row_t *row)
{
    char text[512];
    job_t want = {.row = *row}, job = {.row = *row};
    describe(row, text, sizeof text);
    for (int c = LAYOUT; c < CHOICES; c++) {
        want.row.at[c] = 0; /* stage 0 on one rank */
    }
    print_message("%s\n", text);
    run(&want);
    run(&job);
    for (int rank = 0; rank <= row->at[RANKS]; rank++) {
        if (strcmp(job.digests[rank], want.digests[0]) != 0) {
            fail_msg("rank %d has %s, stage 0 on one rank has %s", rank, job.digests[rank],
                     want.digests[0]);
        }
    }
}

static void every_row_has_the_digest_of_its_mathematics(void **state)
{
    (void)state;
    static array_t array = {.random = 7};
    const int share = (int)tt_test_number("TUTTI_TEST_SHARE", 1);
    const uint64_t seed = tt_test_number("TUTTI_SEED", (uint64_t)time(NULL));
    static bool is_covered[CHOICES * 8 * CHOICES * 8];
    unsetenv("TUTTI_TEST_SHARE"); /* which the library does not know */
    array.is_covered = is_covered;
    fill(&array);
    assert_true(array.count < ROWS_MAX);
    print_message("TUTTI_SEED=%llu, %d rows, one of %d runs\n", (unsigned long long)seed,
                  array.count, share);
    for (int i = (int)(seed % (uint64_t)share); i < array.count; i += share) {
        check_row(&array.rows[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_has_the_digest_of_its_mathematics),
    };
    setenv("TUTTI_KEY_FILE", TUTTI_BINARY_DIR "/tests.key", 1);
    tt_place_make_quick(folder);
    const int failures = cmocka_run_group_tests(tests, NULL, NULL);
    tt_place_remove(folder);
    return failures;
}
