/* How many pictures a second a loader reads, cuts and flips, of JPEG files in a folder for each
 * class; what bench/peers/torch_data.py does with torchvision.
 *
 *     build/bench/data_speed make FOLDER 10000     that many pictures of 256 × 256
 *     build/bench/data_speed load FOLDER 2         by so many workers, as a line of JSON
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <tutti/transforms.h>
#include <tutti/pictures.h>

enum { SIDE = 256, CROP = 224, CLASSES = 10, BATCH = 64 };

/* Waves in three colors with some noise: files of about the size that photographs have. */
static void draw(int number, unsigned char *pixels)
{
    uint32_t noise = (uint32_t)number * 2654435761U + 1;
    for (int c = 0; c < 3; c++) {
        for (int i = 0; i < SIDE * SIDE; i++) {
            const int y = i / SIDE, x = i % SIDE;
            noise = noise * 1664525U + 1013904223U;
            const int wave = (x * (c + 1) + y * (number % 7 + 1)) % 128;
            *pixels++ = (unsigned char)(64 + (wave < 64 ? wave : 127 - wave) + (noise >> 27));
        }
    }
}

static tutti_status_t make(const char *folder, int count)
{
    tutti_tensor_t *x;
    char path[512];
    tutti_status_t status = TUTTI_OK;
    TUTTI_CHECK(tutti_tensor_create(TUTTI_U8, TUTTI_SHAPE(3, SIDE, SIDE), &x));
    (void)mkdir(folder, 0777);
    for (int i = 0; i < CLASSES; i++) {
        snprintf(path, sizeof path, "%s/%d", folder, i);
        (void)mkdir(path, 0777);
    }
    for (int i = 0; i < count && status >= 0; i++) {
        draw(i, tutti_tensor_data(x));
        snprintf(path, sizeof path, "%s/%d/%d.jpg", folder, i % CLASSES, i);
        status = tutti_picture_write(path, x, 85);
    }
    tutti_tensor_release(x);
    return status;
}

static double now(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static tutti_status_t read_all(tutti_context_t *ctx, tutti_dataloader_t *loader, int64_t *count)
{
    tutti_status_t status = TUTTI_OK;
    while (status == TUTTI_OK) {
        tutti_scope_t *s;
        tutti_batch_t batch;
        TUTTI_CHECK(tutti_scope_open(ctx, &s));
        status = tutti_dataloader_next(loader, s, &batch);
        *count += batch.size;
        TUTTI_CHECK(tutti_scope_close(s));
    }
    return status;
}

static tutti_status_t load(const char *folder, int workers)
{
    static const tutti_crop_options_t crop = {.height = CROP, .width = CROP};
    static const tutti_flip_options_t flip = {.probability = 0.5};
    static const tutti_normalize_options_t scale = {.mean = {0.485, 0.456, 0.406},
                                                    .std = {0.229, 0.224, 0.225}};
    static const tutti_transform_t steps[] = {{&tutti_random_crop_transform, &crop},
                                              {&tutti_flip_transform, &flip},
                                              {&tutti_normalize_transform, &scale}};
    tutti_context_t *ctx;
    tutti_dataset_t *files, *pictures;
    tutti_dataloader_t *loader;
    TUTTI_CHECK(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &ctx));
    TUTTI_CHECK(tutti_dataset_create(&tutti_folder_dataset,
                                     &(tutti_folder_options_t){.folder = folder}, &files));
    const tutti_transform_options_t chain = {
        .dataset = files, .steps = steps, .step_count = 3, .seed = 1};
    TUTTI_CHECK(tutti_dataset_create(&tutti_transform_dataset, &chain, &pictures));
    const tutti_dataloader_options_t options = {
        .batch = BATCH, .shuffle = true, .workers = workers};
    TUTTI_CHECK(tutti_dataloader_create(pictures, &options, &loader));
    int64_t count = 0;
    const double begin = now();
    const tutti_status_t status = read_all(ctx, loader, &count);
    printf("{\"pictures\": %lld, \"pictures_per_second\": %.1f}\n", (long long)count,
           (double)count / (now() - begin));
    tutti_dataloader_release(loader);
    tutti_dataset_release(pictures);
    tutti_dataset_release(files);
    tutti_context_release(ctx);
    return status;
}

int main(int argc, char **argv)
{
    const bool is_make = argc == 4 && strcmp(argv[1], "make") == 0;
    if (argc != 4 || (!is_make && strcmp(argv[1], "load") != 0)) {
        fprintf(stderr, "usage: data_speed make FOLDER COUNT | load FOLDER WORKERS\n");
        return 2;
    }
    const int number = (int)strtol(argv[3], NULL, 10);
    if ((is_make ? make(argv[2], number) : load(argv[2], number)) < 0) {
        fprintf(stderr, "data_speed: %s\n", tutti_last_error());
        return 1;
    }
    return 0;
}
