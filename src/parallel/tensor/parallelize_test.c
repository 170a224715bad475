/* Tensor parallelism: digests of small trainings are the same on any number of ranks, with and
 * without sequence parallelism; with one shard they are those of the model that is not cut. */
#include "comm/group/group_team.h"

#include <stdlib.h>
#include <string.h>

#include <tutti/autograd.h>
#include <tutti/context.h>
#include <tutti/modes.h>
#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/op_math.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>
#include <tutti/optim.h>
#include <tutti/tensor_parallel.h>

#include "core/tensor/tensor_impl.h"

enum { RANKS_MAX = 4, BATCH = 2, LENGTH = 12, WIDTH = 24, HEADS = 12, VOCAB = 19, STEPS = 3 };

typedef enum { GPT, BLOCK, MLP, CHAIN } kind_t;

typedef struct {
    kind_t kind;
    int shards;       /* 0: the module is not cut */
    int64_t length;   /* of the sequence; 0: LENGTH */
    int64_t kv_heads; /* 0: HEADS */
    bool sequence, recompute;
    float dropout;
    double smoothing;
    double max_norm;               /* of gradients */
    tutti_dtype_t dtype, autocast; /* of the parameters; of products */
    char digests[RANKS_MAX][TUTTI_DIGEST_BYTES];
    double losses[RANKS_MAX];
} job_t;

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_optim_t *opt;
} trainee_t;

static int64_t length_of(const job_t *job)
{
    return job->length > 0 ? job->length : LENGTH;
}

/* Norms of both kinds, without biases, around what is cut. */
static tutti_status_t make_chain(tutti_context_t *ctx, tutti_module_t **out)
{
    const tutti_norm_options_t norm = {.width = WIDTH, .no_bias = true};
    const tutti_linear_options_t up = {.in = WIDTH, .out = 31}, down = {.in = 31, .out = WIDTH};
    TUTTI_CHECK(tutti_module_create(ctx, &tutti_sequential_layer, NULL, out));
    TUTTI_CHECK(tutti_sequential_add(*out, &tutti_rms_norm_layer, &norm, NULL));
    TUTTI_CHECK(tutti_sequential_add(*out, &tutti_linear_layer, &up, NULL));
    TUTTI_CHECK(tutti_sequential_add(*out, &tutti_linear_layer, &down, NULL));
    TUTTI_CHECK(tutti_sequential_add(*out, &tutti_layer_norm_layer, &norm, NULL));
    return tutti_sequential_add(*out, &tutti_rms_norm_layer, &norm, NULL);
}

static const tutti_parallel_rule_t chain_rules[] = {
    {.pattern = "0", .style = TUTTI_PARALLEL_SEQUENCE},
    {.pattern = "1", .style = TUTTI_PARALLEL_COLUMN},
    {.pattern = "2", .style = TUTTI_PARALLEL_ROW},
    {.pattern = "3", .style = TUTTI_PARALLEL_SEQUENCE},
    {.pattern = "4", .style = TUTTI_PARALLEL_SEQUENCE}};

static tutti_status_t make_net(tutti_context_t *ctx, const job_t *job, tutti_module_t **out)
{
    const tutti_gpt_options_t gpt = {.layers = 2,
                                     .width = WIDTH,
                                     .heads = HEADS,
                                     .kv_heads = job->kv_heads,
                                     .context = LENGTH + 2,
                                     .vocab = VOCAB,
                                     .recompute = job->recompute,
                                     .dropout = job->dropout};
    const tutti_transformer_block_options_t block = {.width = WIDTH,
                                                     .heads = HEADS,
                                                     .kv_heads = job->kv_heads,
                                                     .causal = true,
                                                     .dropout = job->dropout};
    const tutti_mlp_options_t mlp = {.width = WIDTH,
                                     .hidden = 31, /* no multiple of anything */
                                     .activation = TUTTI_ACTIVATION_SILU,
                                     .dropout = job->dropout};
    if (job->kind == CHAIN) {
        return make_chain(ctx, out);
    }
    return job->kind == GPT ? tutti_module_create(ctx, &tutti_gpt_layer, &gpt, out)
           : job->kind == BLOCK
               ? tutti_module_create(ctx, &tutti_transformer_block_layer, &block, out)
               : tutti_module_create(ctx, &tutti_mlp_layer, &mlp, out);
}

static tutti_tensor_t *tokens(tutti_scope_t *s, int64_t step, int shift)
{
    tutti_tensor_t *x = tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(BATCH, LENGTH));
    for (int64_t i = 0; i < (int64_t)BATCH * LENGTH; i++) {
        ((int64_t *)tutti_tensor_data(x))[i] = (i * 5 + step * 3 + shift * 7 + i * i) % VOCAB;
    }
    return x;
}

static tutti_tensor_t *gpt_loss(tutti_scope_t *s, tt_member_t *m, const job_t *job,
                                tutti_module_t *net, int64_t step)
{
    tutti_tensor_t *logits = tutti_forward(s, net, tokens(s, step, 0)), *y = tokens(s, step, 1);
    const tutti_cross_entropy_options_t loss = {.label_smoothing = job->smoothing};
    const tutti_parallel_loss_options_t cut = {
        .group = m->group, .shards = job->shards, .classes = VOCAB, .loss = loss};
    return job->shards > 0 ? tutti_parallel_cross_entropy(s, logits, y, &cut)
                           : tutti_cross_entropy_with(s, logits, y, &loss);
}

/* Activations in and out as the module wants them; the loss weighs every element differently. */
static tutti_tensor_t *plain_loss(tutti_scope_t *s, tt_member_t *m, const job_t *job,
                                  tutti_module_t *net, int64_t step)
{
    const tutti_shape_t shape = TUTTI_SHAPE(BATCH, length_of(job), WIDTH);
    tutti_tensor_t *x = tutti_arange(s, TUTTI_F32, (double)step, 0.37, tutti_shape_numel(shape));
    x = tutti_sin(s, tutti_reshape(s, x, shape));
    const tutti_placement_t parts = {
        .kind = TUTTI_PLACEMENT_SHARD, .dim = 1, .leaves = job->shards};
    const tutti_redistribution_t in = {.to = parts}, out = {.from = parts};
    const bool is_cut = job->sequence && job->shards > 0;
    tutti_tensor_t *y = is_cut ? tutti_redistribute(s, x, m->group, &in) : x;
    y = tutti_forward(s, net, y);
    y = is_cut ? tutti_redistribute(s, y, m->group, &out) : y;
    return tutti_mean(s, tutti_mul(s, tutti_cast(s, y, TUTTI_F32), tutti_cos(s, x)));
}

static tutti_status_t train_step(tt_member_t *m, job_t *job, trainee_t *t, int64_t step)
{
    tutti_scope_t *s;
    tutti_context_set_step(t->ctx, step);
    TUTTI_CHECK(tutti_scope_open(t->ctx, &s));
    tutti_tensor_t *loss =
        job->kind == GPT ? gpt_loss(s, m, job, t->net, step) : plain_loss(s, m, job, t->net, step);
    job->losses[m->rank] = tutti_tensor_at(loss, 0);
    (void)tutti_backward(s, loss);
    TUTTI_CHECK(tutti_scope_close(s));
    double norm = 0;
    TUTTI_CHECK(tutti_clip_grad_norm(t->opt, job->max_norm > 0 ? job->max_norm : 1e9, 2, &norm));
    job->losses[m->rank] += norm;
    TUTTI_CHECK(tutti_optim_step(t->opt));
    tutti_optim_zero_grad(t->opt);
    return TUTTI_OK;
}

static tutti_status_t prepare(tt_member_t *m, const job_t *job, trainee_t *t)
{
    const bool has_rules = job->kind == CHAIN;
    const tutti_parallel_options_t cut = {
        .shards = job->shards,
        .sequence = job->sequence,
        .rules = has_rules ? chain_rules : NULL,
        .rule_count = has_rules ? (int)(sizeof chain_rules / sizeof *chain_rules) : 0};
    const tutti_context_options_t options = {.threads = 1, .seed = 11};
    TUTTI_CHECK(tutti_context_create(&options, &t->ctx));
    (void)tutti_context_set_autocast(t->ctx, job->autocast);
    TUTTI_CHECK(make_net(t->ctx, job, &t->net));
    if (job->dtype != TUTTI_F32) {
        TUTTI_CHECK(tutti_module_cast(t->net, job->dtype));
    }
    if (job->shards > 0) {
        TUTTI_CHECK(tutti_parallelize(t->net, m->group, &cut));
    }
    TUTTI_CHECK(
        tutti_optim_create(t->ctx, &tutti_adamw, &(tutti_adamw_options_t){.lr = 0.05f}, &t->opt));
    return tutti_optim_add_module(t->opt, t->net, NULL, NULL);
}

static void train(tt_member_t *m)
{
    job_t *job = m->user;
    trainee_t t = {NULL, NULL, NULL};
    TT_EXPECT(m, prepare(m, job, &t) == TUTTI_OK);
    for (int64_t step = 0; step < STEPS && m->failure[0] == 0; step++) {
        TT_EXPECT(m, train_step(m, job, &t, step) == TUTTI_OK);
    }
    if (m->failure[0] == 0) {
        TT_EXPECT(m, (job->shards > 0 ? tutti_parallel_digest : tutti_module_digest)(
                         t.net, job->digests[m->rank]) == TUTTI_OK);
    }
    tutti_optim_release(t.opt);
    tutti_module_release(t.net);
    tutti_context_release(t.ctx);
}

/* Trains on so many ranks; all have the digest of rank 0, which is given out. */
static void run(job_t *job, int ranks, char digest[TUTTI_DIGEST_BYTES])
{
    tt_team_expect(ranks, 30000, train, job);
    for (int rank = 1; rank < ranks; rank++) {
        assert_string_equal(job->digests[rank], job->digests[0]);
        assert_true(job->losses[rank] == job->losses[0]);
    }
    memcpy(digest, job->digests[0], TUTTI_DIGEST_BYTES);
}

static void expect_one_digest(job_t job, const char *what)
{
    char want[TUTTI_DIGEST_BYTES] = "", got[TUTTI_DIGEST_BYTES];
    for (int ranks = 1; ranks <= job.shards && ranks <= RANKS_MAX; ranks++) {
        for (int sequence = 0; sequence < 2; sequence++) {
            if (sequence && length_of(&job) % job.shards != 0) {
                continue;
            }
            job.sequence = sequence;
            run(&job, ranks, got);
            if (ranks == 1 && !sequence) {
                memcpy(want, got, sizeof want);
            } else if (strcmp(want, got) != 0) {
                fail_msg("%s, %d shards: %d ranks%s: %s, not %s", what, job.shards, ranks,
                         sequence ? ", sequence cut" : "", got, want);
            }
        }
    }
}

static void one_shard_is_the_module_that_is_not_cut(void **state)
{
    (void)state;
    for (int kind = GPT; kind <= CHAIN; kind++) {
        char want[TUTTI_DIGEST_BYTES], got[TUTTI_DIGEST_BYTES];
        job_t job = {.kind = (kind_t)kind};
        run(&job, 1, want);
        job.shards = 1;
        run(&job, 1, got);
        assert_string_equal(got, want);
        job.sequence = true;
        run(&job, 1, got);
        assert_string_equal(got, want);
    }
}

static void ranks_change_no_bit(void **state)
{
    (void)state;
    expect_one_digest((job_t){.kind = GPT, .shards = 4, .max_norm = 0.1}, "gpt");
    expect_one_digest((job_t){.kind = GPT, .shards = 3, .dropout = 0.2f, .smoothing = 0.1},
                      "gpt with dropout and smoothing");
    expect_one_digest((job_t){.kind = BLOCK, .shards = 6}, "block");
    expect_one_digest((job_t){.kind = MLP, .shards = 4, .dropout = 0.5f}, "mlp");
    expect_one_digest((job_t){.kind = CHAIN, .shards = 4}, "norms");
    expect_one_digest((job_t){.kind = CHAIN, .shards = 4, .length = 3}, "a slice without rows");
    expect_one_digest((job_t){.kind = BLOCK, .shards = 4, .length = 1}, "one position");
}

/* A shard has whole groups of heads: of one pair of keys and values, or of more. */
static void shared_keys_change_no_bit(void **state)
{
    (void)state;
    char want[TUTTI_DIGEST_BYTES], got[TUTTI_DIGEST_BYTES];
    expect_one_digest((job_t){.kind = GPT, .shards = 4, .kv_heads = 4, .dropout = 0.2f},
                      "gpt, 4 heads of keys");
    expect_one_digest((job_t){.kind = BLOCK, .shards = 3, .kv_heads = 6, .dtype = TUTTI_BF16},
                      "block of bf16, 6 heads of keys");
    job_t job = {.kind = GPT, .kv_heads = 1};
    run(&job, 1, want);
    job.shards = 1;
    run(&job, 1, got);
    assert_string_equal(got, want);
}

static void sixteen_bits_and_recomputation_change_no_bit(void **state)
{
    (void)state;
    expect_one_digest((job_t){.kind = GPT, .shards = 3, .autocast = TUTTI_BF16}, "gpt, autocast");
    expect_one_digest((job_t){.kind = BLOCK, .shards = 4, .dtype = TUTTI_BF16}, "block of bf16");
    expect_one_digest((job_t){.kind = CHAIN, .shards = 3, .dtype = TUTTI_BF16}, "norms of bf16");
    char want[TUTTI_DIGEST_BYTES], got[TUTTI_DIGEST_BYTES];
    job_t job = {.kind = GPT, .shards = 4, .sequence = true, .dropout = 0.2f};
    run(&job, 2, want);
    job.recompute = true;
    run(&job, 2, got);
    assert_string_equal(got, want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_shard_is_the_module_that_is_not_cut),
        cmocka_unit_test(ranks_change_no_bit),
        cmocka_unit_test(shared_keys_change_no_bit),
        cmocka_unit_test(sixteen_bits_and_recomputation_change_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
