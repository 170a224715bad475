/* A file's bytes as windows: a language of 256 letters needs no tokenizer. */
#include <math.h>
#include <string.h>

#include <tutti/data_files.h>

#include "compute/data/dataset.h"
#include "compute/data/windows.h"
#include "core/base/alloc.h"
#include "core/base/default.h"

static tutti_status_t check(const tutti_text_options_t *o)
{
    if (o->path == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set text: a path is required");
    }
    const double to = tt_or_default(o->to, 1);
    return o->from >= 0 && to > o->from && to <= 1
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG,
                         "data set text: the share from %g to %g: expected 0 <= from < to <= 1",
                         o->from, to);
}

static tutti_status_t init(tutti_dataset_t *d, const void *options, tutti_dataset_info_t *info)
{
    const tutti_text_options_t *o = options;
    tt_windows_t *w = tutti_dataset_state(d);
    TT_TRY(check(o));
    TT_TRY(tt_windows_begin(w, "text", o->length, o->stride));
    w->element_bytes = 1;
    tt_file_t file;
    TT_TRY(tt_file_open(o->path, &file));
    const uint64_t begin = (uint64_t)floor((double)file.bytes * o->from);
    const uint64_t end = (uint64_t)floor((double)file.bytes * (tt_or_default(o->to, 1)));
    TT_TRY(tt_windows_add(w, &file, begin, (int64_t)(end - begin)));
    const tutti_field_t field = {TUTTI_U8, TUTTI_SHAPE(o->length)};
    *info = tt_pair_info(field, field);
    return tt_windows_count(w, "text", &info->count);
}

static void fini(tutti_dataset_t *d)
{
    tt_windows_end(tutti_dataset_state(d));
}

static tutti_status_t read_window(tutti_dataset_t *d, int64_t index, tutti_sample_t *to)
{
    const tt_windows_t *w = d->state;
    const size_t length = (size_t)w->length;
    unsigned char *bytes = tt_alloc_raw(length + 1, "text window");
    TT_TRY_ALLOC(bytes);
    const tutti_status_t status = tt_windows_read(w, index, bytes);
    if (status >= 0) {
        memcpy(to->data[TUTTI_INPUT], bytes, length);
        memcpy(to->data[TUTTI_TARGET], bytes + 1, length);
    }
    tt_free(bytes);
    return status;
}

const tutti_dataset_ops_t tutti_text_dataset = {
    .name = "text",
    .about = "windows of a file's bytes",
    .state_bytes = sizeof(tt_windows_t),
    .init = init,
    .fini = fini,
    .read = read_window,
};
