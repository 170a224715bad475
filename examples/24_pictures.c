/* Lesson 24: pictures of different sizes, in a folder for each class, cut and mirrored at random.
 *
 *     build/bin/24_pictures /tmp/pictures
 *
 * Writes 60 small pictures, warm and cold ones, into FOLDER/cold and FOLDER/warm, and trains a
 * linear classifier on random parts of them: once without workers and once with two. What comes out
 * of a step of a picture depends on (seed, epoch, position, sample) alone, so both end with the
 * same bits.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <tutti/nn_layers.h>
#include <tutti/op_loss.h>
#include <tutti/op_shape.h>
#include <tutti/optim.h>
#include <tutti/pictures.h>
#include <tutti/transforms.h>

enum { COUNT = 60, SIDE = 16, EPOCHS = 8 };

static const char *const classes[] = {"cold", "warm"};

/* Red or blue that grows along the picture, more or less of it. */
static tutti_status_t write_picture(const char *folder, int number)
{
    const int kind = number % 2, height = 20 + number % 7, width = 24 + number % 5;
    tutti_tensor_t *x;
    char path[512];
    TUTTI_CHECK(tutti_tensor_create(TUTTI_U8, TUTTI_SHAPE(3, height, width), &x));
    unsigned char *plane = tutti_tensor_data(x);
    plane += kind == 1 ? 0 : 2 * height * width;
    for (int i = 0; i < height * width; i++) {
        plane[i] = (unsigned char)(40 + 2 * number + 2 * (i % width));
    }
    snprintf(path, sizeof path, "%s/%s", folder, classes[kind]);
    (void)mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/%s/%d.%s", folder, classes[kind], number,
             number % 3 == 0 ? "jpg" : "png");
    const tutti_status_t status = tutti_picture_write(path, x, 0);
    tutti_tensor_release(x);
    return status;
}

static tutti_status_t open_pictures(const char *folder, tutti_dataset_t **out)
{
    static const tutti_resized_crop_options_t crop = {.height = SIDE, .width = SIDE};
    static const tutti_flip_options_t flip = {.probability = 0.5};
    static const tutti_jitter_options_t jitter = {.brightness = 0.3, .contrast = 0.3};
    static const tutti_normalize_options_t scale = {.mean = {0.5, 0.5, 0.5},
                                                    .std = {0.25, 0.25, 0.25}};
    static const tutti_transform_t steps[] = {{&tutti_resized_crop_transform, &crop},
                                              {&tutti_flip_transform, &flip},
                                              {&tutti_jitter_transform, &jitter},
                                              {&tutti_normalize_transform, &scale}};
    tutti_dataset_t *files;
    TUTTI_CHECK(tutti_dataset_create(&tutti_folder_dataset,
                                     &(tutti_folder_options_t){.folder = folder}, &files));
    const tutti_transform_options_t chain = {
        .dataset = files, .steps = steps, .step_count = 4, .seed = 7};
    const tutti_status_t status = tutti_dataset_create(&tutti_transform_dataset, &chain, out);
    tutti_dataset_release(files);
    return status;
}

/* A batch; TUTTI_END behind the epoch's last. */
static tutti_status_t step(tutti_context_t *ctx, tutti_dataloader_t *loader, tutti_module_t *net,
                           double *loss)
{
    tutti_scope_t *s;
    tutti_batch_t batch;
    TUTTI_CHECK(tutti_scope_open(ctx, &s));
    const tutti_status_t status = tutti_dataloader_next(loader, s, &batch);
    if (status == TUTTI_OK) {
        tutti_tensor_t *x = tutti_reshape(s, batch.input, TUTTI_SHAPE(batch.size, 3 * SIDE * SIDE));
        tutti_tensor_t *error = tutti_cross_entropy(s, tutti_forward(s, net, x), batch.target);
        *loss = tutti_tensor_item(error);
        (void)tutti_backward(s, error);
    }
    TUTTI_CHECK(tutti_scope_close(s));
    return status;
}

static tutti_status_t train(const char *folder, int workers)
{
    tutti_context_t *ctx;
    tutti_dataset_t *pictures;
    tutti_dataloader_t *loader;
    tutti_module_t *net;
    tutti_optim_t *opt;
    double loss = 0;
    char digest[TUTTI_DIGEST_BYTES];
    const tutti_dataloader_options_t options = {
        .batch = 12, .shuffle = true, .seed = 1, .workers = workers};
    TUTTI_CHECK(tutti_context_create(&(tutti_context_options_t){.seed = 1}, &ctx));
    TUTTI_CHECK(open_pictures(folder, &pictures));
    TUTTI_CHECK(tutti_dataloader_create(pictures, &options, &loader));
    TUTTI_CHECK(tutti_module_create(ctx, &tutti_linear_layer,
                                    &(tutti_linear_options_t){.in = 3 * SIDE * SIDE, .out = 2},
                                    &net));
    TUTTI_CHECK(tutti_optim_create(ctx, &tutti_sgd, &(tutti_sgd_options_t){.lr = 0.005}, &opt));
    TUTTI_CHECK(tutti_optim_add_module(opt, net, NULL, NULL));
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        TUTTI_CHECK(tutti_dataloader_set_epoch(loader, epoch));
        tutti_status_t status;
        while ((status = step(ctx, loader, net, &loss)) == TUTTI_OK) {
            TUTTI_CHECK(tutti_optim_step(opt));
            tutti_optim_zero_grad(opt);
        }
        TUTTI_CHECK(status);
    }
    TUTTI_CHECK(tutti_module_digest(net, digest));
    printf("%d workers: the last loss is %.4f, digest %s\n", workers, loss, digest);
    tutti_optim_release(opt);
    tutti_module_release(net);
    tutti_dataloader_release(loader);
    tutti_dataset_release(pictures);
    tutti_context_release(ctx);
    return TUTTI_OK;
}

static tutti_status_t run(const char *folder)
{
    (void)mkdir(folder, 0777);
    for (int i = 0; i < COUNT; i++) {
        TUTTI_CHECK(write_picture(folder, i));
    }
    TUTTI_CHECK(train(folder, 0));
    return train(folder, 2);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: 24_pictures FOLDER\n");
        return 2;
    }
    if (run(argv[1]) < 0) {
        fprintf(stderr, "24_pictures: %s\n", tutti_last_error());
        return 1;
    }
    return 0;
}
