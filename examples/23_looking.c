/* Lesson 23: looking. What a network is made of, where the time of its training goes, and a line
 * that says how far it is.
 *
 *     build/bin/23_looking                               # the table of its own profile
 *     tutti profile -- build/bin/23_looking --plain      # the same from outside, of all of it
 *
 * A training has two parts: noise is added to pictures, in a region of our own, and a network
 * learns to tell which of two patterns it covers.
 */
#include <stdio.h>
#include <string.h>

#include <tutti/tutti.h>

enum { BATCH = 32, PIXELS = 64, STEPS = 50 };

static const char file_name[] = "looking.profile";

static tutti_status_t make_net(tutti_context_t *ctx, tutti_module_t **out)
{
    TUTTI_CHECK(tutti_module_create(ctx, &tutti_sequential_layer, NULL, out));
    TUTTI_CHECK(tutti_sequential_add(*out, &tutti_linear_layer,
                                     &(tutti_linear_options_t){.in = PIXELS, .out = 128}, NULL));
    TUTTI_CHECK(tutti_sequential_add(*out, &tutti_activation_layer,
                                     &(tutti_activation_options_t){.kind = TUTTI_ACTIVATION_RELU},
                                     NULL));
    return tutti_sequential_add(*out, &tutti_linear_layer,
                                &(tutti_linear_options_t){.in = 128, .out = 2}, NULL);
}

/* On meta nothing is computed: a network of any size can be looked at. */
static tutti_status_t show_parts(void)
{
    tutti_device_t *meta;
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_scope_t *s;
    tutti_buffer_t text;
    TUTTI_CHECK(tutti_device_open("meta", NULL, &meta));
    TUTTI_CHECK(tutti_context_create(&(tutti_context_options_t){.device = meta}, &ctx));
    TUTTI_CHECK(make_net(ctx, &net));
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    tutti_tensor_t *x = tutti_zeros(s, TUTTI_F32, TUTTI_SHAPE(BATCH, PIXELS));
    TUTTI_CHECK(tutti_module_summary(
        net, &(tutti_summary_options_t){.inputs = &x, .input_count = 1}, &text));
    printf("%s\n", (const char *)text.data);
    tutti_buffer_release(&text);
    TUTTI_CHECK(tutti_scope_close(s));
    tutti_module_release(net);
    tutti_context_release(ctx);
    tutti_device_release(meta);
    return TUTTI_OK;
}

/* Pictures of the pattern that their number's last bit says, beneath noise. */
static tutti_tensor_t *make_pictures(tutti_scope_t *s, tutti_tensor_t *kinds)
{
    tutti_profile_begin("add noise"); /* a row of the table, and a bar of the timeline */
    tutti_tensor_t *x = tutti_normal(s, TUTTI_F32, TUTTI_SHAPE(BATCH, PIXELS), 0, 1);
    float *pixels = tutti_tensor_data(x);
    int64_t *kind = tutti_tensor_data(kinds);
    for (int i = 0; i < BATCH && pixels != NULL && kind != NULL; i++) {
        kind[i] = i & 1;
        for (int k = 0; k < PIXELS; k++) {
            pixels[i * PIXELS + k] += ((k >> kind[i]) & 1) != 0 ? 0.5f : -0.5f;
        }
    }
    tutti_profile_count(BATCH * PIXELS); /* what this loop computes, nobody else knows */
    tutti_profile_end();
    return x;
}

static tutti_status_t train_step(tutti_context_t *ctx, tutti_module_t *net, tutti_optim_t *opt,
                                 double *loss)
{
    tutti_scope_t *s;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    tutti_tensor_t *kinds = tutti_zeros(s, TUTTI_I64, TUTTI_SHAPE(BATCH));
    tutti_tensor_t *logits = tutti_forward(s, net, make_pictures(s, kinds));
    tutti_tensor_t *mean = tutti_cross_entropy(s, logits, kinds);
    TUTTI_CHECK(tutti_backward(s, mean));
    *loss = tutti_tensor_item(mean);
    TUTTI_CHECK(tutti_scope_close(s));
    TUTTI_CHECK(tutti_optim_step(opt));
    tutti_optim_zero_grad(opt);
    return TUTTI_OK;
}

static tutti_status_t train(tutti_context_t *ctx, tutti_module_t *net, tutti_optim_t *opt)
{
    tutti_progress_t *progress;
    TUTTI_CHECK(tutti_progress_open(NULL, &progress));
    for (int step = 1; step <= STEPS; step++) {
        double loss;
        tutti_context_set_step(ctx, step);
        TUTTI_CHECK(train_step(ctx, net, opt, &loss));
        tutti_progress_show(progress, step == STEPS ? 0 : -1, "step %d of %d  loss %.4f", step,
                            STEPS, loss);
    }
    return tutti_progress_close(progress);
}

static tutti_status_t show_profile(void)
{
    const char *const files[] = {file_name};
    tutti_profile_t *profile;
    tutti_buffer_t text;
    TUTTI_CHECK(tutti_profile_load(files, 1, &profile));
    TUTTI_CHECK(tutti_profile_table(profile, &text));
    printf("\n%s", (const char *)text.data);
    tutti_buffer_release(&text);
    tutti_profile_release(profile);
    remove(file_name);
    return TUTTI_OK;
}

static tutti_status_t look(bool is_plain)
{
    tutti_context_t *ctx;
    tutti_module_t *net;
    tutti_optim_t *opt;
    TUTTI_CHECK(show_parts());
    TUTTI_CHECK(tutti_context_create(&(tutti_context_options_t){.seed = 1}, &ctx));
    TUTTI_CHECK(make_net(ctx, &net));
    TUTTI_CHECK(tutti_optim_create(ctx, &tutti_adam, &(tutti_adam_options_t){.lr = 1e-2}, &opt));
    TUTTI_CHECK(tutti_optim_add_module(opt, net, NULL, NULL));
    TUTTI_CHECK(is_plain ? TUTTI_OK : tutti_profile_start(file_name));
    TUTTI_CHECK(train(ctx, net, opt));
    TUTTI_CHECK(is_plain ? TUTTI_OK : tutti_profile_stop());
    tutti_optim_release(opt);
    tutti_module_release(net);
    tutti_context_release(ctx);
    return is_plain ? TUTTI_OK : show_profile();
}

int main(int argc, char **argv)
{
    if (look(argc > 1 && strcmp(argv[1], "--plain") == 0) < 0) {
        fprintf(stderr, "23_looking: %s\n", tutti_last_error());
        return 1;
    }
    return 0;
}
