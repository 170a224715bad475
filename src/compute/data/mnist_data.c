/* Pictures of ten kinds, such as MNIST's and Fashion-MNIST's: bytes in memory, normalised when they
 * are read, by a table of what each byte becomes.
 */
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include <tutti/data_files.h>
#include <tutti/pictures.h>

#include "compute/data/dataset.h"
#include "compute/data/row_data.h"
#include "core/base/default.h"

enum { PATH_BYTES_MAX = 4096 };

typedef struct {
    tt_rows_t rows; /* u8 [N, height, width], u8 [N] */
    float values[256];
} state_t;

static tutti_status_t read_file(const tutti_mnist_options_t *o, const char *what,
                                tutti_tensor_t **out)
{
    char path[PATH_BYTES_MAX];
    const int bytes = snprintf(path, sizeof path, "%s/%s-%s-ubyte", o->folder,
                               o->is_test ? "t10k" : "train", what);
    if (bytes < 0 || (size_t)bytes + sizeof ".gz" > sizeof path) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set mnist: the folder's name is longer than %d bytes",
                       PATH_BYTES_MAX - 100);
    }
    if (access(path, R_OK) != 0) {
        snprintf(path + bytes, sizeof path - (size_t)bytes, ".gz");
    }
    return tutti_idx_read(path, out);
}

static tutti_status_t check_types(const tt_rows_t *rows, const tutti_dataset_info_t *info)
{
    if (info->fields[0].dtype != TUTTI_U8 || info->fields[0].shape.rank != 2 ||
        info->fields[1].dtype != TUTTI_U8 || info->fields[1].shape.rank != 0) {
        char images[200], labels[200];
        return TT_FAIL(TUTTI_ERR_FORMAT,
                       "data set mnist: the pictures are %s and the labels %s: expected u8[N, "
                       "height, width] and u8[N]",
                       tutti_tensor_describe(rows->values[0], images, sizeof images),
                       tutti_tensor_describe(rows->values[1], labels, sizeof labels));
    }
    return TUTTI_OK;
}

static tutti_status_t init(tutti_dataset_t *d, const void *options, tutti_dataset_info_t *info)
{
    const tutti_mnist_options_t *o = options;
    state_t *state = tutti_dataset_state(d);
    const double std = tt_or_default(o->std, 1);
    if (o->folder == NULL || !isfinite(o->mean) || !(std > 0)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "data set mnist: folder %s, mean %g, std %g: a folder is required, "
                       "and a std above 0",
                       o->folder == NULL ? "missing" : o->folder, o->mean, std);
    }
    state->rows.count = 2;
    TT_TRY(read_file(o, "images-idx3", &state->rows.values[0]));
    TT_TRY(read_file(o, "labels-idx1", &state->rows.values[1]));
    TT_TRY(tt_rows_describe("mnist", &state->rows, info));
    TT_TRY(check_types(&state->rows, info));
    for (int i = 0; i < 256; i++) {
        state->values[i] = (float)((i / 255.0 - o->mean) / std);
    }
    const int64_t *sizes = info->fields[0].shape.dims;
    info->fields[0] = (tutti_field_t){TUTTI_F32, TUTTI_SHAPE(1, sizes[0], sizes[1])};
    return TUTTI_OK;
}

static tutti_status_t read_picture(tutti_dataset_t *d, int64_t index, tutti_sample_t *sample)
{
    const state_t *state = d->state;
    const int64_t pixels = tutti_shape_numel(d->info.fields[0].shape);
    const unsigned char *from = tutti_tensor_data(state->rows.values[0]);
    const unsigned char *labels = tutti_tensor_data(state->rows.values[1]);
    float *to = sample->data[TUTTI_INPUT];
    for (int64_t i = 0; i < pixels; i++) {
        to[i] = state->values[from[index * pixels + i]];
    }
    *(unsigned char *)sample->data[TUTTI_TARGET] = labels[index];
    return TUTTI_OK;
}

const tutti_dataset_ops_t tutti_mnist_dataset = {
    .name = "mnist",
    .about = "MNIST, Fashion-MNIST and others of their format, normalised",
    .state_bytes = sizeof(state_t),
    .init = init,
    .fini = tt_rows_fini,
    .read = read_picture,
};
