/* Comparing two checkpoints, window by window: rows of a tensor, as many as there is room for.
 * Elements are compared by their bits. Memory: a window of each. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/reals.h"
#include "core/tensor/tensor_impl.h"
#include "runtime/checkpoint/saved_impl.h"

enum { WINDOW_BYTES = 16 << 20 };

typedef struct {
    tutti_saved_t *a, *b;
    const tutti_saved_watch_t *watch;
    uint64_t done, all;
    size_t differences; /* tensors and texts */
} diff_t;

/* ---- elements -------------------------------------------------------------------------------- */

/* As many digits as tell it from its neighbours; the bits of what has more than one form. */
static void print_value(const tutti_tensor_t *x, int64_t at, char *text, size_t bytes)
{
    const size_t size = tutti_dtype_bytes(x->dtype);
    const char *element = (const char *)tt_tensor_data(x) + at * (int64_t)size;
    const double value = tutti_tensor_at(x, at);
    if (x->dtype == TUTTI_I64) {
        int64_t whole;
        memcpy(&whole, element, sizeof whole);
        snprintf(text, bytes, "%" PRId64, whole);
    } else if (x->dtype == TUTTI_BOOL) {
        snprintf(text, bytes, "%d", *(const unsigned char *)element);
    } else if (isnan(value)) {
        uint64_t bits = 0;
        memcpy(&bits, element, size); /* little-endian, as the files are */
        snprintf(text, bytes, "nan (0x%0*" PRIx64 ")", (int)(2 * size), bits);
    } else {
        tt_format(text, bytes, "%.*g", x->dtype == TUTTI_F64 ? 17 : 9, value);
    }
}

static void note_first(tutti_saved_difference_t *difference, int64_t first, int64_t at,
                       tutti_tensor_t *const windows[2])
{
    int64_t rest = first + at;
    const tutti_shape_t shape = difference->a->shape;
    for (int d = shape.rank - 1; d >= 0; d--) {
        difference->first[d] = rest % shape.dims[d];
        rest /= shape.dims[d];
    }
    print_value(windows[0], at, difference->first_a, sizeof difference->first_a);
    print_value(windows[1], at, difference->first_b, sizeof difference->first_b);
}

/* Elements [first, first + count), which are in the windows. */
static void compare(tutti_saved_difference_t *difference, int64_t first, int64_t count,
                    tutti_tensor_t *const windows[2])
{
    const size_t size = tutti_dtype_bytes(difference->a->dtype);
    const char *a = tt_tensor_data(windows[0]), *b = tt_tensor_data(windows[1]);
    if (memcmp(a, b, (size_t)count * size) == 0) {
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        if (memcmp(a + (size_t)i * size, b + (size_t)i * size, size) != 0) {
            if (difference->count++ == 0) {
                note_first(difference, first, i, windows);
            }
        }
    }
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void tell(diff_t *diff, const tutti_saved_difference_t *difference)
{
    diff->differences++;
    if (diff->watch->difference != NULL) {
        diff->watch->difference(diff->watch->user, difference);
    }
}

/* Whole rows where one fits. */
static int64_t window_elements(const tutti_saved_tensor_t *tensor)
{
    const int64_t room = WINDOW_BYTES / (int64_t)tutti_dtype_bytes(tensor->dtype);
    const int64_t numel = tutti_shape_numel(tensor->shape);
    const int64_t row = tensor->shape.rank > 0 ? numel / tensor->shape.dims[0] : 1;
    return numel <= room ? numel : row <= room ? room / row * row : room;
}

/* Elements from `first` on, of both. */
static tutti_status_t compare_window(diff_t *diff, tutti_saved_difference_t *difference,
                                     int64_t first, int64_t count)
{
    const char *name = difference->a->name;
    tutti_saved_t *const both[2] = {diff->a, diff->b};
    tutti_tensor_t *windows[2] = {NULL, NULL};
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; i < 2 && status >= 0; i++) {
        status = tt_tensor_new(NULL, difference->a->dtype, TUTTI_SHAPE(count), false, &windows[i]);
        status = status < 0 ? status : tt_saved_read_window(both[i], name, NULL, first, windows[i]);
    }
    if (status >= 0) {
        compare(difference, first, count, windows);
    }
    tutti_tensor_release(windows[0]);
    tutti_tensor_release(windows[1]);
    return status;
}

static tutti_status_t compare_tensors(diff_t *diff, tutti_saved_difference_t *difference)
{
    const tutti_saved_tensor_t *a = difference->a;
    const int64_t numel = tutti_shape_numel(a->shape), step = numel > 0 ? window_elements(a) : 1;
    for (int64_t first = 0; first < numel; first += step) {
        const int64_t count = step < numel - first ? step : numel - first;
        TT_TRY(compare_window(diff, difference, first, count));
        diff->done += (uint64_t)count * tutti_dtype_bytes(a->dtype);
        if (diff->watch->progress != NULL) {
            diff->watch->progress(diff->watch->user, diff->done, diff->all);
        }
    }
    if (difference->count > 0) {
        tell(diff, difference);
    }
    return TUTTI_OK;
}

static bool is_alike(const tutti_saved_tensor_t *a, const tutti_saved_tensor_t *b)
{
    return a->dtype == b->dtype && tutti_shape_equal(a->shape, b->shape);
}

static tutti_status_t compare_all(diff_t *diff)
{
    const tt_manifest_t *from = tt_saved_names(diff->a), *to = tt_saved_names(diff->b);
    for (size_t i = 0; i < from->tensor_count; i++) {
        const tutti_saved_tensor_t a = tt_saved_describe(&from->tensors[i]);
        const tt_saved_tensor_t *found = tt_manifest_find(to, a.name);
        const tutti_saved_tensor_t b =
            found == NULL ? (tutti_saved_tensor_t){0} : tt_saved_describe(found);
        tutti_saved_difference_t difference = {.a = &a, .b = found == NULL ? NULL : &b};
        if (found != NULL && is_alike(&a, &b)) {
            TT_TRY(compare_tensors(diff, &difference));
        } else {
            tell(diff, &difference);
        }
    }
    for (size_t i = 0; i < to->tensor_count; i++) {
        const tutti_saved_tensor_t b = tt_saved_describe(&to->tensors[i]);
        if (tt_manifest_find(from, b.name) == NULL) {
            tell(diff, &(tutti_saved_difference_t){.b = &b});
        }
    }
    return TUTTI_OK;
}

/* ---- texts ----------------------------------------------------------------------------------- */

static void tell_text(diff_t *diff, const tutti_saved_text_difference_t *difference)
{
    diff->differences++;
    if (diff->watch->text != NULL) {
        diff->watch->text(diff->watch->user, difference);
    }
}

static void compare_texts(diff_t *diff)
{
    const tt_manifest_t *from = diff->a->source.manifest, *to = diff->b->source.manifest;
    for (size_t i = 0; i < from->text_count; i++) {
        const tutti_buffer_t *b = tt_manifest_text(to, from->texts[i].name);
        tutti_saved_text_difference_t difference = {.name = from->texts[i].name,
                                                    .a = from->texts[i].text.data,
                                                    .b = b == NULL ? NULL : b->data};
        if (b == NULL || strcmp(difference.a, difference.b) != 0) {
            while (b != NULL && difference.a[difference.first] == difference.b[difference.first]) {
                difference.first++;
            }
            tell_text(diff, &difference);
        }
    }
    for (size_t i = 0; i < to->text_count; i++) {
        if (tt_manifest_text(from, to->texts[i].name) == NULL) {
            tell_text(diff, &(tutti_saved_text_difference_t){.name = to->texts[i].name,
                                                             .b = to->texts[i].text.data});
        }
    }
}

static bool is_ours(const tutti_saved_t *saved)
{
    return strcmp(saved->source.format, "checkpoint") == 0;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Of what both have. */
static uint64_t bytes_to_compare(const tt_manifest_t *from, const tt_manifest_t *to)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < from->tensor_count; i++) {
        const tutti_saved_tensor_t a = tt_saved_describe(&from->tensors[i]);
        const tt_saved_tensor_t *found = tt_manifest_find(to, a.name);
        const tutti_saved_tensor_t b =
            found == NULL ? (tutti_saved_tensor_t){0} : tt_saved_describe(found);
        bytes += found != NULL && is_alike(&a, &b) ? a.bytes : 0;
    }
    return bytes;
}

tutti_status_t tutti_saved_diff(tutti_saved_t *a, tutti_saved_t *b,
                                const tutti_saved_watch_t *watch, size_t *differences)
{
    static const tutti_saved_watch_t nobody;
    diff_t diff = {.a = a,
                   .b = b,
                   .watch = watch == NULL ? &nobody : watch,
                   .all = bytes_to_compare(tt_saved_names(a), tt_saved_names(b))};
    TT_TRY(compare_all(&diff));
    if (is_ours(a) && is_ours(b)) {
        compare_texts(&diff);
    }
    *differences = diff.differences;
    return TUTTI_OK;
}
