/* Windows of files. Cost: one read(2) for each window, and a binary search for its file. */
#include "compute/data/windows.h"

#include "core/base/alloc.h"

tutti_status_t tt_windows_begin(tt_windows_t *w, const char *kind, int64_t length, int64_t stride)
{
    if (length < 1 || stride < 0) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "data set %s: length %lld, stride %lld: the length must be at least 1, the "
                       "stride at least 0",
                       kind, (long long)length, (long long)stride);
    }
    w->length = length;
    w->stride = stride == 0 ? length : stride;
    return TUTTI_OK;
}

static int64_t windows_in(const tt_windows_t *w, int64_t elements)
{
    /* The last window's target needs one element more. */
    return elements <= w->length ? 0 : (elements - w->length - 1) / w->stride + 1;
}

tutti_status_t tt_windows_add(tt_windows_t *w, tt_file_t *file, uint64_t offset, int64_t count)
{
    const size_t bytes = ((size_t)w->file_count + 1) * sizeof *w->files;
    tt_window_file_t *files = tt_realloc(w->files, bytes, "data files");
    if (files == NULL) {
        tt_file_close(file);
        return TUTTI_ERR_NOMEM;
    }
    w->files = files;
    const tt_window_file_t *before = w->file_count == 0 ? NULL : &files[w->file_count - 1];
    files[w->file_count++] =
        (tt_window_file_t){.file = *file,
                           .offset = offset,
                           .windows = windows_in(w, count),
                           .first = before == NULL ? 0 : before->first + before->windows};
    return TUTTI_OK;
}

tutti_status_t tt_windows_count(const tt_windows_t *w, const char *kind, int64_t *out)
{
    const tt_window_file_t *last = w->file_count == 0 ? NULL : &w->files[w->file_count - 1];
    if (last == NULL || last->first + last->windows == 0) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "data set %s: %s%s holds no window of %lld and one behind it: choose a "
                       "shorter length (the context), or more data",
                       kind, last == NULL ? "no file" : last->file.path,
                       w->file_count > 1 ? ", like those before it," : "", (long long)w->length);
    }
    *out = last->first + last->windows;
    return TUTTI_OK;
}

static const tt_window_file_t *file_of(const tt_windows_t *w, int64_t index)
{
    int low = 0, high = w->file_count - 1;
    while (low < high) {
        const int middle = low + (high - low + 1) / 2;
        if (w->files[middle].first <= index) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return &w->files[low];
}

tutti_status_t tt_windows_read(const tt_windows_t *w, int64_t index, void *to)
{
    const tt_window_file_t *f = file_of(w, index);
    const uint64_t element = (uint64_t)(index - f->first) * (uint64_t)w->stride;
    return tt_file_read_at(&f->file, f->offset + element * w->element_bytes, to,
                           ((size_t)w->length + 1) * w->element_bytes);
}

void tt_windows_end(tt_windows_t *w)
{
    for (int i = 0; i < w->file_count; i++) {
        tt_file_close(&w->files[i].file);
    }
    tt_free(w->files);
}
