/* Lesson 12: an LSTM that learns to write, byte by byte, on any number of ranks.
 *
 *     bible -f gen1:1-rev22:21 > bible.txt       # Debian's bible-kjv; any text will do
 *     tutti run -n 2 build/bin/12_lstm bible.txt 500
 *
 * The module takes bytes and, if there are any, states, and gives what the next byte may be and
 * the new states. Training needs none: each window of the text begins afresh. The sample at the
 * end hands the states on from byte to byte.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include <tutti/tutti.h>

enum { BYTES = 256, HIDDEN = 128, LAYERS = 2, WINDOW = 64, BATCH = 8, SHARDS = 4, SAMPLE = 300 };

typedef struct {
    tutti_module_t *embedding, *lstm, *head;
} writer_t;

static tutti_status_t writer_init(tutti_module_t *m, const void *options)
{
    (void)options;
    writer_t *w = tutti_module_state(m);
    const tutti_embedding_options_t embedding = {.count = BYTES, .width = HIDDEN};
    const tutti_rnn_options_t lstm = {
        .in = HIDDEN, .hidden = HIDDEN, .layers = LAYERS, .batch_first = true};
    const tutti_linear_options_t head = {.in = HIDDEN, .out = BYTES};
    TUTTI_CHECK(
        tutti_module_new_child(m, "embedding", &tutti_embedding_layer, &embedding, &w->embedding));
    TUTTI_CHECK(tutti_module_new_child(m, "lstm", &tutti_lstm_layer, &lstm, &w->lstm));
    return tutti_module_new_child(m, "head", &tutti_linear_layer, &head, &w->head);
}

/* bytes [B, T] and h, c [LAYERS, B, HIDDEN] -> logits [B, T, BYTES], h, c */
static void writer_forward(tutti_scope_t *s, tutti_module_t *m, tutti_tensor_t *const *inputs,
                           int input_count, tutti_tensor_t **outputs, int output_count)
{
    writer_t *w = tutti_module_state(m);
    tutti_tensor_t *all[3] = {tutti_forward(s, w->embedding, inputs[0])};
    for (int i = 1; i < input_count && i < 3; i++) {
        all[i] = inputs[i];
    }
    tutti_forward_many(s, w->lstm, all, input_count, outputs, output_count);
    outputs[0] = tutti_forward(s, w->head, outputs[0]);
}

static const tutti_module_ops_t writer = {.name = "writer",
                                          .about = "an LSTM over bytes",
                                          .state_bytes = sizeof(writer_t),
                                          .init = writer_init,
                                          .forward_many = writer_forward};

typedef struct {
    tutti_group_t *world;
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_dataset_t *text;
    tutti_dataloader_t *loader;
    tutti_ddp_t *ddp;
    tutti_optim_t *opt;
} lesson_t;

static tutti_status_t open_lesson(lesson_t *l, const char *path)
{
    const tutti_text_options_t text = {.path = path, .length = WINDOW, .stride = 1};
    const tutti_ddp_options_t ddp = {.shards = SHARDS};
    const tutti_adam_options_t adam = {.lr = 0.003};
    TUTTI_CHECK(tutti_init(NULL, &l->world));
    TUTTI_CHECK(tutti_context_create(&(tutti_context_options_t){.seed = 1}, &l->ctx));
    TUTTI_CHECK(tutti_dataset_create(&tutti_text_dataset, &text, &l->text));
    const tutti_dataloader_options_t loader = {.batch = BATCH,
                                               .shards = SHARDS,
                                               .ranks = tutti_group_size(l->world),
                                               .rank = tutti_group_rank(l->world),
                                               .shuffle = true,
                                               .endless = true};
    TUTTI_CHECK(tutti_dataloader_create(l->text, &loader, &l->loader));
    TUTTI_CHECK(tutti_module_create(l->ctx, &writer, NULL, &l->net));
    TUTTI_CHECK(tutti_ddp_create(l->ctx, l->net, l->world, &ddp, &l->ddp));
    TUTTI_CHECK(tutti_optim_create(l->ctx, &tutti_adam, &adam, &l->opt));
    return tutti_optim_add_module(l->opt, l->net, NULL, NULL);
}

static tutti_status_t train_step(lesson_t *l, double *loss)
{
    while (tutti_ddp_next_shard(l->ddp, l->ctx)) {
        tutti_scope_t *s;
        tutti_batch_t batch;
        TUTTI_CHECK(tutti_scope_open(l->ctx, &s));
        (void)tutti_dataloader_next(l->loader, s, &batch); // a failure is the scope's, too
        tutti_tensor_t *logits = tutti_forward(s, l->net, batch.input);
        tutti_tensor_t *mean = tutti_cross_entropy(s, logits, batch.target);
        (void)tutti_backward(s, mean);
        *loss = tutti_tensor_item(mean);
        TUTTI_CHECK(tutti_scope_close(s));
    }
    TUTTI_CHECK(tutti_ddp_finish(l->ddp));
    TUTTI_CHECK(tutti_clip_grad_norm(l->opt, 1, 2, NULL)); // through time they may explode
    return tutti_optim_step(l->opt);
}

/* The byte at which the sum of probabilities passes a random number. */
static uint8_t pick(tutti_scope_t *s, tutti_tensor_t *logits)
{
    const tutti_tensor_t *p = tutti_softmax(s, tutti_mul_scalar(s, logits, 1 / 0.7), -1);
    double left = tutti_tensor_item(tutti_uniform(s, TUTTI_F32, TUTTI_SHAPE(1), 0, 1));
    int byte = 0;
    while (byte < BYTES - 1 && (left -= tutti_tensor_at(p, byte)) >= 0) {
        byte++;
    }
    return (uint8_t)byte;
}

static tutti_status_t write_sample(lesson_t *l)
{
    tutti_scope_t *s;
    tutti_tensor_t *out[3], *h = NULL, *c = NULL; // NULL counts as zeros
    uint8_t byte = '\n';
    (void)tutti_context_set_grad_enabled(l->ctx, false);
    TUTTI_CHECK(tutti_scope_open(l->ctx, &s));
    for (int i = 0; i < SAMPLE && tutti_scope_status(s) >= 0; i++) {
        tutti_tensor_t *x = tutti_from_data(s, TUTTI_U8, TUTTI_SHAPE(1, 1), &byte);
        tutti_forward_many(s, l->net, (tutti_tensor_t *[]){x, h, c}, 3, out, 3);
        byte = pick(s, out[0]);
        h = out[1];
        c = out[2];
        putchar(isprint(byte) || byte == '\n' ? byte : '?');
    }
    putchar('\n');
    return tutti_scope_close(s);
}

static tutti_status_t lesson(lesson_t *l, int64_t steps)
{
    const bool tells = tutti_group_rank(l->world) == 0;
    char digest[TUTTI_DIGEST_BYTES];
    double loss = 0;
    for (int64_t step = 0; step < steps; step++) {
        tutti_context_set_step(l->ctx, step);
        TUTTI_CHECK(train_step(l, &loss));
        if (tells && (step % 50 == 0 || step == steps - 1)) {
            printf("step %lld: my last shard's loss is %.4f\n", (long long)step, loss);
            fflush(stdout);
        }
    }
    TUTTI_CHECK(tutti_module_digest(l->net, digest));
    if (!tells) {
        return TUTTI_OK;
    }
    printf("digest %s\n", digest);
    return write_sample(l);
}

int main(int argc, char **argv)
{
    lesson_t l = {0};
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: 12_lstm TEXT [STEPS]\n");
        return EXIT_FAILURE;
    }
    tutti_status_t status = open_lesson(&l, argv[1]);
    if (status >= 0) {
        status = lesson(&l, argc > 2 ? strtol(argv[2], NULL, 10) : 500);
    }
    if (status < 0) {
        fprintf(stderr, "%s\n", tutti_last_error());
    }
    tutti_optim_release(l.opt);
    tutti_ddp_release(l.ddp);
    tutti_dataloader_release(l.loader);
    tutti_dataset_release(l.text);
    tutti_module_release(l.net);
    tutti_context_release(l.ctx);
    tutti_group_release(l.world);
    return status < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
