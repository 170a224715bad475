/* CIFAR's binary version: records of one label, or two (coarse, fine), and three planes of 32 × 32
 * bytes:
 *
 *     CIFAR-10    | label | 1024 red | 1024 green | 1024 blue | …
 *     CIFAR-100   | coarse label | fine label | 3072 pixels | …
 *
 * Source: https://www.cs.toronto.edu/~kriz/cifar.html.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <tutti/pictures.h>

#include "compute/data/dataset.h"
#include "core/base/alloc.h"
#include "core/base/file.h"

enum { SIDE = 32, PIXELS = 3 * SIDE * SIDE };

typedef struct {
    unsigned char *records;
    size_t bytes;
    size_t labels; /* of a record */
    size_t label;  /* which of them counts */
} state_t;

/* A file's records behind those that are there. */
static tutti_status_t add_records(state_t *state, const tt_file_t *file, int classes)
{
    const size_t record = state->labels + PIXELS;
    if (file->bytes == 0 || file->bytes % record != 0) {
        return TT_FAIL(TUTTI_ERR_FORMAT,
                       "%s: %llu bytes: expected records of %zu (is it the binary version?)",
                       file->path, (unsigned long long)file->bytes, record);
    }
    unsigned char *grown =
        tt_realloc(state->records, state->bytes + (size_t)file->bytes, "CIFAR pictures");
    TT_TRY_ALLOC(grown);
    state->records = grown;
    unsigned char *to = grown + state->bytes;
    TT_TRY(tt_file_read_at(file, 0, to, file->bytes));
    for (size_t i = 0; i < file->bytes; i += record) {
        if (to[i + state->label] >= classes) {
            return TT_FAIL(TUTTI_ERR_FORMAT, "%s: label %d at offset %zu: expected below %d",
                           file->path, to[i + state->label], i + state->label, classes);
        }
    }
    state->bytes += (size_t)file->bytes;
    return TUTTI_OK;
}

static tutti_status_t add_file(state_t *state, const char *folder, const char *name, int classes)
{
    char path[PATH_MAX];
    const int bytes = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (bytes < 0 || bytes >= (int)sizeof path) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set cifar: the folder's name is too long");
    }
    tt_file_t file;
    TT_TRY(tt_file_open(path, &file));
    const tutti_status_t status = add_records(state, &file, classes);
    tt_file_close(&file);
    return status;
}

static tutti_status_t init(tutti_dataset_t *d, const void *options, tutti_dataset_info_t *info)
{
    static const char *const files[2][2][6] = {
        {{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
          "data_batch_5.bin"},
         {"test_batch.bin"}},
        {{"train.bin"}, {"test.bin"}}};
    const tutti_cifar_options_t *o = options;
    state_t *state = tutti_dataset_state(d);
    if (o->folder == NULL || (o->is_coarse && !o->is_100)) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set cifar: a folder is required, and is_coarse is of "
                                      "CIFAR-100 only");
    }
    state->labels = o->is_100 ? 2 : 1;
    state->label = o->is_100 && !o->is_coarse ? 1 : 0;
    const int classes = o->is_coarse ? 20 : o->is_100 ? 100 : 10;
    for (const char *const *name = files[o->is_100][o->is_test]; *name != NULL; name++) {
        TT_TRY(add_file(state, o->folder, *name, classes));
    }
    *info = tt_pair_info((tutti_field_t){TUTTI_U8, TUTTI_SHAPE(3, SIDE, SIDE)},
                         (tutti_field_t){TUTTI_U8, TUTTI_SCALAR});
    info->count = (int64_t)(state->bytes / (state->labels + PIXELS));
    return TUTTI_OK;
}

static void fini(tutti_dataset_t *d)
{
    const state_t *state = d->state;
    tt_free(state->records);
}

static tutti_status_t read_picture(tutti_dataset_t *d, int64_t index, tutti_sample_t *to)
{
    const state_t *state = d->state;
    const unsigned char *record = state->records + (size_t)index * (state->labels + PIXELS);
    *(unsigned char *)to->data[TUTTI_TARGET] = record[state->label];
    memcpy(to->data[TUTTI_INPUT], record + state->labels, PIXELS);
    return TUTTI_OK;
}

const tutti_dataset_ops_t tutti_cifar_dataset = {
    .name = "cifar",
    .about = "CIFAR-10 and CIFAR-100, the binary version",
    .state_bytes = sizeof(state_t),
    .init = init,
    .fini = fini,
    .read = read_picture,
};
