/* Sorting by keys. See sorting.h.
 *
 * An element becomes an unsigned key whose order is the wanted one. Keys of 32 bits stand above the
 * element's index in one word, so that no two words are equal and every algorithm is stable;
 * keys of 64 bits stand beside it in an item.
 *
 *     few elements    by how many are before each (items: insertion)
 *     up to 1,024     runs of 16 like this, then merged
 *     more            counting by digits of 11 bits, the lowest first; a digit that all share is
 *                     left out
 *     a few of many   a heap of the best so far; of the rest, keys are compared with its last one
 */
#include "core/kernel/index/sorting.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/kernel/half.h"
#include "core/kernel/index/lines.h"

enum {
    RUN = 16,
    MERGED = 1024,
    DIGIT_BITS = 11,
    DIGITS = 1 << DIGIT_BITS,
    HEAP_SHARE = 16,
    FEW = 64, /* of these a fourth of all is few enough for a heap */
    FEW_SHARE = 4,
    CHUNK = 64,
    PIECES = 16,
    SCRATCH = 1 << 26
};

/* Of the functions that take a dtype, a copy for each. */
#define INLINE static inline __attribute__((always_inline))

/* ---- keys ------------------------------------------------------------------------------------ */

static uint32_t key_of_f32(float value)
{
    const uint32_t bits = tt_f32_bits(value + 0.0f); /* of both zeros the positive one */
    const uint32_t key = bits ^ (-(bits >> 31) | UINT32_C(1) << 31);
    return value != value ? UINT32_MAX : key;
}

static uint64_t key_of_f64(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value) {
        return UINT64_MAX;
    }
    return value == 0 ? UINT64_C(1) << 63 : bits >> 63 ? ~bits : bits | UINT64_C(1) << 63;
}

static uint32_t key_of_i32(int32_t value)
{
    return (uint32_t)value ^ UINT32_C(1) << 31;
}

static bool is_wide(tutti_dtype_t dtype)
{
    return dtype == TUTTI_F64 || dtype == TUTTI_I64;
}

INLINE uint32_t narrow_key(tutti_dtype_t dtype, const void *line, int64_t i)
{
    switch (dtype) {
    case TUTTI_F32:
        return key_of_f32(((const float *)line)[i]);
    case TUTTI_BF16:
        return key_of_f32(tt_bf16_to_f32(((const uint16_t *)line)[i]));
    case TUTTI_F16:
        return key_of_f32(tt_f16_to_f32(((const uint16_t *)line)[i]));
    case TUTTI_I32:
        return key_of_i32(((const int32_t *)line)[i]);
    case TUTTI_I8:
        return key_of_i32(((const int8_t *)line)[i]);
    case TUTTI_U8:
        return ((const uint8_t *)line)[i];
    default:
        TT_ASSERT(dtype == TUTTI_BOOL);
        return ((const uint8_t *)line)[i] != 0;
    }
}

static uint64_t wide_key(tutti_dtype_t dtype, const void *line, int64_t i)
{
    return is_wide(dtype) ? dtype == TUTTI_F64
                                ? key_of_f64(((const double *)line)[i])
                                : (uint64_t)((const int64_t *)line)[i] ^ UINT64_C(1) << 63
                          : narrow_key(dtype, line, i);
}

/* ---- words: a key of 32 bits above an index -------------------------------------------------- */

/* At most RUN words, by how many are smaller: no branch depends on them. */
static void rank_words(uint64_t *a, int64_t n)
{
    uint64_t copy[RUN];
    int64_t ranks[RUN];
    for (int64_t i = 0; i < n; i++) {
        const uint64_t x = a[i];
        int64_t smaller_ones = 0;
        for (int64_t j = 0; j < i; j++) {
            const bool is_smaller = a[j] < x;
            smaller_ones += is_smaller;
            ranks[j] += !is_smaller;
        }
        ranks[i] = smaller_ones;
        copy[i] = x;
    }
    for (int64_t i = 0; i < n; i++) {
        a[ranks[i]] = copy[i];
    }
}

static void merge_words(uint64_t *restrict to, const uint64_t *a, int64_t n, const uint64_t *b,
                        int64_t m)
{
    int64_t i = 0, j = 0;
    while (i < n && j < m) {
        const bool takes_b = b[j] < a[i];
        to[i + j] = takes_b ? b[j] : a[i];
        i += !takes_b;
        j += takes_b;
    }
    memcpy(to + i + j, a + i, (size_t)(n - i) * sizeof *a);
    memcpy(to + n + j, b + j, (size_t)(m - j) * sizeof *b);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Where the result is: a or room. */
static uint64_t *merge_all_words(uint64_t *a, uint64_t *room, int64_t n)
{
    for (int64_t i = 0; i < n; i += RUN) {
        rank_words(a + i, smaller(RUN, n - i));
    }
    for (int64_t width = RUN; width < n; width *= 2) {
        for (int64_t i = 0; i < n; i += 2 * width) {
            const int64_t first = smaller(width, n - i), second = smaller(width, n - i - first);
            merge_words(room + i, a + i, first, a + i + first, second);
        }
        uint64_t *const swapped = a;
        a = room;
        room = swapped;
    }
    return a;
}

/* Counts become places where each digit begins; whether all elements have one digit. */
static bool begin_digits(int64_t *counts, int64_t n)
{
    int64_t begin = 0;
    for (int d = 0; d < DIGITS; d++) {
        const int64_t count = counts[d];
        if (count == n) {
            return true;
        }
        counts[d] = begin;
        begin += count;
    }
    return false;
}

static uint64_t *count_words(uint64_t *a, uint64_t *room, int64_t n)
{
    for (int shift = 32; shift < 64; shift += DIGIT_BITS) {
        int64_t counts[DIGITS] = {0};
        for (int64_t i = 0; i < n; i++) {
            counts[a[i] >> shift & (DIGITS - 1)]++;
        }
        if (begin_digits(counts, n)) {
            continue;
        }
        for (int64_t i = 0; i < n; i++) {
            room[counts[a[i] >> shift & (DIGITS - 1)]++] = a[i];
        }
        uint64_t *const swapped = a;
        a = room;
        room = swapped;
    }
    return a;
}

static uint64_t *sort_words(uint64_t *a, uint64_t *room, int64_t n)
{
    return n <= MERGED ? merge_all_words(a, room, n) : count_words(a, room, n);
}

/* Elements of a line, and what their keys are to be combined with. */
typedef struct {
    const void *line;
    int64_t first, n, stride;
    uint32_t flip; /* all ones if descending */
} run_t;

INLINE void keys_of(tutti_dtype_t dtype, run_t r, uint32_t *keys)
{
    for (int64_t i = 0; i < r.n; i++) {
        keys[i] = narrow_key(dtype, r.line, (r.first + i) * r.stride) ^ r.flip;
    }
}

/* The keys of n elements, at most CHUNK, in the wanted order. */
static void list_keys(const tt_sort_t *sort, const void *line, int64_t first, int64_t n,
                      uint32_t keys[CHUNK])
{
    const run_t r = {line, first, n, sort->x.strides[sort->dim], sort->is_descending ? ~0u : 0};
    switch (sort->x.dtype) {
    case TUTTI_F32:
        keys_of(TUTTI_F32, r, keys);
        break;
    case TUTTI_BF16:
        keys_of(TUTTI_BF16, r, keys);
        break;
    case TUTTI_F16:
        keys_of(TUTTI_F16, r, keys);
        break;
    default:
        keys_of(sort->x.dtype, r, keys);
    }
}

/* The first n elements of a line. */
static void list_words(const tt_sort_t *sort, const void *line, int64_t n, uint64_t *words)
{
    uint32_t keys[CHUNK];
    for (int64_t i = 0; i < n; i += CHUNK) {
        const int64_t count = smaller(CHUNK, n - i);
        list_keys(sort, line, i, count, keys);
        for (int64_t j = 0; j < count; j++) {
            words[i + j] = (uint64_t)keys[j] << 32 | (uint32_t)(i + j);
        }
    }
}

/* The heap's largest word is heap[0]: it goes, and x comes. */
static void replace_largest(uint64_t *heap, int64_t n, uint64_t x)
{
    int64_t at = 0;
    for (int64_t child = 1; child < n; child = 2 * at + 1) {
        child += child + 1 < n && heap[child + 1] > heap[child];
        if (heap[child] <= x) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = x;
}

/* Elements of a line after the heap's own: of equal keys the earlier word is smaller, and stays. */
static void choose_after(const tt_sort_t *sort, const void *line, uint64_t *heap, int64_t wanted)
{
    const int64_t n = sort->x.shape[sort->dim];
    uint32_t keys[CHUNK], last = (uint32_t)(heap[0] >> 32);
    for (int64_t i = wanted; i < n; i += CHUNK) {
        const int64_t count = smaller(CHUNK, n - i);
        list_keys(sort, line, i, count, keys);
        for (int64_t j = 0; j < count; j++) {
            if (keys[j] < last) {
                replace_largest(heap, wanted, (uint64_t)keys[j] << 32 | (uint32_t)(i + j));
                last = (uint32_t)(heap[0] >> 32);
            }
        }
    }
}

/* The `wanted` smallest words of a line, in order. A descending row is a heap. */
static uint64_t *choose_words(const tt_sort_t *sort, const void *line, uint64_t *heap,
                              uint64_t *room, int64_t wanted)
{
    list_words(sort, line, wanted, room);
    const uint64_t *first = sort_words(room, heap, wanted);
    if (first == heap) {
        memcpy(room, heap, (size_t)wanted * sizeof *heap);
    }
    for (int64_t i = 0; i < wanted; i++) {
        heap[i] = room[wanted - 1 - i];
    }
    choose_after(sort, line, heap, wanted);
    return sort_words(heap, room, wanted);
}

/* ---- items: a key of 64 bits beside an index ------------------------------------------------- */

typedef struct {
    uint64_t key;
    int64_t index;
} item_t;

static void insert_items(item_t *a, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const item_t x = a[i];
        int64_t j = i;
        for (; j > 0 && a[j - 1].key > x.key; j--) {
            a[j] = a[j - 1];
        }
        a[j] = x;
    }
}

static void merge_items(item_t *restrict to, const item_t *a, int64_t n, const item_t *b, int64_t m)
{
    int64_t i = 0, j = 0;
    while (i < n && j < m) {
        const bool takes_b = b[j].key < a[i].key;
        to[i + j] = takes_b ? b[j] : a[i];
        i += !takes_b;
        j += takes_b;
    }
    memcpy(to + i + j, a + i, (size_t)(n - i) * sizeof *a);
    memcpy(to + n + j, b + j, (size_t)(m - j) * sizeof *b);
}

static item_t *merge_all_items(item_t *a, item_t *room, int64_t n)
{
    for (int64_t i = 0; i < n; i += RUN) {
        insert_items(a + i, smaller(RUN, n - i));
    }
    for (int64_t width = RUN; width < n; width *= 2) {
        for (int64_t i = 0; i < n; i += 2 * width) {
            const int64_t first = smaller(width, n - i), second = smaller(width, n - i - first);
            merge_items(room + i, a + i, first, a + i + first, second);
        }
        item_t *const swapped = a;
        a = room;
        room = swapped;
    }
    return a;
}

static item_t *count_items(item_t *a, item_t *room, int64_t n)
{
    for (int shift = 0; shift < 64; shift += DIGIT_BITS) {
        int64_t counts[DIGITS] = {0};
        for (int64_t i = 0; i < n; i++) {
            counts[a[i].key >> shift & (DIGITS - 1)]++;
        }
        if (begin_digits(counts, n)) {
            continue;
        }
        for (int64_t i = 0; i < n; i++) {
            room[counts[a[i].key >> shift & (DIGITS - 1)]++] = a[i];
        }
        item_t *const swapped = a;
        a = room;
        room = swapped;
    }
    return a;
}

/* ---- lines ----------------------------------------------------------------------------------- */

typedef struct {
    const tt_sort_t *sort;
    int64_t lines, length, wanted;
    int64_t per_piece; /* lines */
    bool has_items;
    char *scratch;
    size_t piece_bytes;
} job_t;

/* A line of x, and of the result. */
typedef struct {
    char *values;
    int64_t *indices;
    const char *x;
} line_t;

INLINE void copy_elements(const job_t *job, line_t line, size_t bytes)
{
    const tt_sort_t *sort = job->sort;
    const int64_t from = sort->x.strides[sort->dim], to = sort->values.strides[sort->dim];
    const int64_t step = sort->indices.strides[sort->dim];
    for (int64_t i = 0; i < job->wanted; i++) {
        memcpy(line.values + (size_t)(i * to) * bytes,
               line.x + (size_t)(line.indices[i * step] * from) * bytes, bytes);
    }
}

/* The elements that indices name. */
static void take_values(const job_t *job, line_t line)
{
    switch (tutti_dtype_bytes(job->sort->x.dtype)) {
    case 1:
        copy_elements(job, line, 1);
        break;
    case 2:
        copy_elements(job, line, 2);
        break;
    case 4:
        copy_elements(job, line, 4);
        break;
    default:
        copy_elements(job, line, 8);
    }
}

static void sort_narrow(const job_t *job, line_t line, uint64_t *a)
{
    const tt_sort_t *sort = job->sort;
    uint64_t *room = a + job->length;
    if (job->wanted * (job->wanted <= FEW ? FEW_SHARE : HEAP_SHARE) <= job->length) {
        a = choose_words(sort, line.x, a, room, job->wanted);
    } else {
        list_words(sort, line.x, job->length, a);
        a = sort_words(a, room, job->length);
    }
    const int64_t step = sort->indices.strides[sort->dim];
    for (int64_t i = 0; i < job->wanted; i++) {
        line.indices[i * step] = (int64_t)(uint32_t)a[i];
    }
}

static void sort_with_items(const job_t *job, line_t line, item_t *a)
{
    const tt_sort_t *sort = job->sort;
    const int64_t n = job->length;
    for (int64_t i = 0; i < n; i++) {
        const uint64_t key = wide_key(sort->x.dtype, line.x, i * sort->x.strides[sort->dim]);
        a[i] = (item_t){sort->is_descending ? ~key : key, i};
    }
    a = n <= MERGED ? merge_all_items(a, a + n, n) : count_items(a, a + n, n);
    const int64_t step = sort->indices.strides[sort->dim];
    for (int64_t i = 0; i < job->wanted; i++) {
        line.indices[i * step] = a[i].index;
    }
}

static void sort_piece(void *arg, size_t piece)
{
    const job_t *job = arg;
    const tt_sort_t *sort = job->sort;
    void *scratch = job->scratch + piece * job->piece_bytes;
    const int64_t first = (int64_t)piece * job->per_piece;
    for (int64_t i = first; i < first + job->per_piece && i < job->lines; i++) {
        const line_t line = {
            sort->values.data == NULL ? NULL : tt_line_data(&sort->values, sort->dim, i),
            tt_line_data(&sort->indices, sort->dim, i), tt_line_data(&sort->x, sort->dim, i)};
        if (job->has_items) {
            sort_with_items(job, line, scratch);
        } else {
            sort_narrow(job, line, scratch);
        }
        if (line.values != NULL) {
            take_values(job, line);
        }
    }
}

static tutti_status_t run_sort(tt_threads_t *threads, const void *arguments)
{
    const tt_sort_t *sort = arguments;
    job_t job = {.sort = sort,
                 .lines = tt_line_count(&sort->x, sort->dim),
                 .length = sort->x.shape[sort->dim],
                 .wanted = sort->indices.shape[sort->dim]};
    if (job.lines == 0 || job.wanted == 0) {
        return TUTTI_OK;
    }
    job.has_items = is_wide(sort->x.dtype) || job.length > (int64_t)UINT32_MAX;
    job.piece_bytes = 2 * (size_t)job.length * (job.has_items ? sizeof(item_t) : sizeof(uint64_t));
    int64_t pieces = smaller(PIECES, SCRATCH / (int64_t)job.piece_bytes);
    pieces = smaller(job.lines, pieces < 1 ? 1 : pieces);
    job.per_piece = (job.lines + pieces - 1) / pieces;
    job.scratch = tt_threads_borrow(threads, (size_t)pieces * job.piece_bytes);
    TT_TRY_ALLOC(job.scratch);
    tt_threads_run(threads, (size_t)pieces, sort_piece, &job);
    tt_threads_give_back(threads, job.scratch);
    return TUTTI_OK;
}

static const tt_pointer_t pointers[] = {TT_POINTER(tt_sort_t, values.data),
                                        TT_POINTER(tt_sort_t, indices.data),
                                        TT_POINTER(tt_sort_t, x.data), TT_NO_POINTER};

TT_LAUNCHER(tt_sort, "sort", tt_sort_t, run_sort, pointers)
