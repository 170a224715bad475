/* What a rank has at its most while it trains a GPT by AdamW at a stage of sharding, beside the
 * numbers of the guide's formula (docs/guide/sharded.md).
 *
 *     build/bin/tutti run -n 4 build/bench/sharded_memory STAGE LAYERS WIDTH HEADS BUCKET_KIB
 *
 * Bytes are those that the allocator and this rank's part of the shared heap have handed out and
 * that are not kept for reuse, looked at between the nodes of forward and backward, within their
 * kernels, and around the step. The model is built as a whole before, which does not count.
 * Sequences are of one token, so that activations are next to nothing. Rank 0 prints a JSON line.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/sharded.h>
#include <tutti/tutti.h>

#include "comm/group/group_impl.h"
#include "core/base/alloc.h"
#include "parallel/ddp/ddp_impl.h"

enum { STEPS = 3, VOCAB = 256 };

typedef struct {
    long stage, layers, width, heads, bucket_kib;
} wanted_t;

typedef struct {
    tutti_group_t *world;
    tutti_context_t *ctx;
    tutti_module_t *model;
    tutti_ddp_t *ddp;
    tutti_optim_t *opt;
    tutti_idle_t idle;
    size_t before, peak; /* of live bytes */
} training_t;

static size_t live_bytes(const training_t *t)
{
    tt_device_t *heap = t->world->backend->memory(t->world->state);
    const size_t cached = tt_device_stats(t->ctx->cpu).cached_bytes;
    return tt_alloc_stats().bytes - cached + tt_device_stats(heap).live_bytes;
}

static void look(void *user)
{
    training_t *t = user;
    const size_t now = live_bytes(t) - t->before;
    t->peak = now > t->peak ? now : t->peak;
}

static tutti_status_t look_in_forward(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s, (void)call;
    look(user);
    return TUTTI_OK;
}

static tutti_status_t open_training(const wanted_t *wanted, training_t *t)
{
    const tutti_gpt_options_t gpt = {.layers = wanted->layers,
                                     .width = wanted->width,
                                     .heads = wanted->heads,
                                     .context = 1,
                                     .vocab = VOCAB};
    const tutti_ddp_options_t options = {.stage = (int)wanted->stage,
                                         .units = {.kind = wanted->stage == 3 ? "block" : NULL},
                                         .bucket_bytes = (size_t)wanted->bucket_kib << 10};
    TUTTI_CHECK(tutti_init(NULL, &t->world));
    TUTTI_CHECK(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &t->ctx));
    t->before = live_bytes(t);
    TUTTI_CHECK(tutti_module_create(t->ctx, &tutti_gpt_layer, &gpt, &t->model));
    TUTTI_CHECK(tutti_ddp_create(t->ctx, t->model, t->world, &options, &t->ddp));
    TUTTI_CHECK(tutti_optim_create(t->ctx, &tutti_adamw, NULL, &t->opt));
    TUTTI_CHECK(tutti_optim_add_module(t->opt, t->model, NULL, NULL));
    t->idle = (tutti_idle_t){.call = look, .move = look, .user = t};
    tutti_context_add_idle(t->ctx, &t->idle);
    return TUTTI_OK;
}

static tutti_status_t watch(tutti_module_t *m, training_t *t)
{
    static const tutti_module_hooks_t hooks = {
        .before_forward = look_in_forward, .after_forward = look_in_forward, .always_call = true};
    return tutti_module_add_hooks(m, &hooks, t);
}

/* Behind those of units: what a unit has brought is there. */
static tutti_status_t watch_all(training_t *t)
{
    TUTTI_CHECK(watch(t->model, t));
    for (int u = 1; u < t->ddp->units.count; u++) {
        TUTTI_CHECK(t->ddp->units.units[u].is_kept ? TUTTI_OK
                                                   : watch(t->ddp->units.units[u].module, t));
    }
    return TUTTI_OK;
}

static tutti_status_t run_step(training_t *t)
{
    while (tutti_ddp_next_shard(t->ddp, t->ctx)) {
        tutti_scope_t *s;
        TUTTI_CHECK(tutti_scope_open(t->ctx, &s));
        tutti_tensor_t *tokens = tutti_randint(s, TUTTI_U8, TUTTI_SHAPE(1, 1), 0, VOCAB),
                       *targets = tutti_randint(s, TUTTI_U8, TUTTI_SHAPE(1), 0, VOCAB);
        tutti_tensor_t *logits = tutti_forward(s, t->model, tokens);
        logits = tutti_reshape(s, logits, TUTTI_SHAPE(1, VOCAB));
        (void)tutti_backward(s, tutti_cross_entropy(s, logits, targets));
        TUTTI_CHECK(tutti_scope_close(s));
    }
    look(t);
    TUTTI_CHECK(tutti_ddp_finish(t->ddp));
    look(t);
    TUTTI_CHECK(tutti_optim_step(t->opt));
    look(t);
    return TUTTI_OK;
}

static size_t largest_parameter(const tutti_ddp_t *ddp)
{
    size_t most = 0;
    for (int i = 0; i < ddp->param_count; i++) {
        const size_t bytes = tutti_tensor_bytes(ddp->params[i].tensor);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void print_result(const wanted_t *wanted, const training_t *t, const double *peaks)
{
    const int ranks = tutti_group_size(t->world);
    const tutti_ddp_stats_t stats = tutti_ddp_stats(t->ddp);
    const tutti_ddp_memory_t memory = tutti_ddp_memory(t->ddp, t->opt);
    const size_t root = wanted->stage == 3 ? tt_ddp_unit_bytes(t->ddp, 0, TT_UNIT_FULL) : 0;
    double sum = 0, most = 0;
    for (int r = 0; r < ranks; r++) {
        sum += peaks[r];
        most = peaks[r] > most ? peaks[r] : most;
    }
    printf("{\"ranks\":%d,\"stage\":%ld,\"source\":\"%s\",\"parameter_bytes\":%zu,"
           "\"largest_bytes\":%zu,\"bucket_bytes\":%zu,\"unit_bytes\":%zu,\"root_bytes\":%zu,"
           "\"peak_bytes\":%.0f,"
           "\"all_peaks_bytes\":%.0f}\n",
           ranks, wanted->stage, stats.unit_source, stats.parameter_bytes,
           largest_parameter(t->ddp), stats.largest_bucket_bytes, memory.largest_unit_bytes, root,
           most, sum);
}

static tutti_status_t measure(const wanted_t *wanted, training_t *t)
{
    TUTTI_CHECK(open_training(wanted, t));
    TUTTI_CHECK(watch_all(t));
    for (int i = 0; i < STEPS; i++) {
        tutti_context_set_step(t->ctx, i);
        TUTTI_CHECK(run_step(t));
    }
    tutti_tensor_t *mine, *all;
    TUTTI_CHECK(tutti_tensor_create(TUTTI_F64, TUTTI_SHAPE(1), &mine));
    TUTTI_CHECK(tutti_tensor_create(TUTTI_F64, TUTTI_SHAPE(tutti_group_size(t->world)), &all));
    *(double *)tutti_tensor_data(mine) = (double)t->peak;
    TUTTI_CHECK(tutti_all_gather(t->world, all, mine, NULL));
    if (tutti_group_rank(t->world) == 0) {
        print_result(wanted, t, tutti_tensor_data(all));
    }
    tutti_tensor_release(all);
    tutti_tensor_release(mine);
    return TUTTI_OK;
}

static void close_training(training_t *t)
{
    if (t->ctx != NULL) {
        tutti_context_remove_idle(t->ctx, &t->idle);
    }
    tutti_ddp_release(t->ddp);
    tutti_optim_release(t->opt);
    tutti_module_release(t->model);
    tutti_context_release(t->ctx);
    tutti_group_release(t->world);
}

static bool read_number(const char *text, long least, long most, long *out)
{
    char *end;
    *out = strtol(text, &end, 10);
    return *end == 0 && *out >= least && *out <= most;
}

int main(int argc, char **argv)
{
    wanted_t w;
    training_t t = {0};
    if (argc != 6 || !read_number(argv[1], 0, 3, &w.stage) ||
        !read_number(argv[2], 1, 1000, &w.layers) || !read_number(argv[3], 1, 65536, &w.width) ||
        !read_number(argv[4], 1, 1024, &w.heads) ||
        !read_number(argv[5], 1, 1 << 20, &w.bucket_kib)) {
        fprintf(stderr, "usage: sharded_memory STAGE LAYERS WIDTH HEADS BUCKET_KIB\n");
        return 2;
    }
    const tutti_status_t status = measure(&w, &t);
    if (status < 0) {
        fprintf(stderr, "sharded_memory: %s\n", tutti_last_error());
    }
    close_training(&t);
    return status < 0;
}
