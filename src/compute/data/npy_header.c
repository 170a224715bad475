/* The header of a .npy file:
 *
 *     | 93 'N' 'U' 'M' 'P' 'Y' | major | minor | bytes, u16 or (from version 2 on) u32 | text |
 *
 * and the text is a dictionary as Python writes it, filled up with blanks and ended by a newline:
 *
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 *
 * Nothing of it is evaluated, and files of Python's objects, which are code, are refused.
 * Source: numpy.lib.format.
 */
#include <inttypes.h>
#include <string.h>

#include "compute/data/npy.h"

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

enum { MAGIC_BYTES = 6, TEXT_BYTES_MAX = 65536, WORD_BYTES = 32 };

/* The text that is read, and the names of what was found. */
typedef struct {
    const char *path;
    const char *begin, *at;
    uint64_t offset; /* of the text in the file */
    bool has_dtype, has_order, has_shape;
} text_t;

static tutti_status_t expect(const text_t *t, const char *what)
{
    return TT_FAIL(TUTTI_ERR_FORMAT, "%s: the header at offset %" PRIu64 ": expected %s", t->path,
                   t->offset + (uint64_t)(t->at - t->begin), what);
}

static void skip_blanks(text_t *t)
{
    while (*t->at == ' ' || *t->at == '\t' || *t->at == '\n') {
        t->at++;
    }
}

static bool take(text_t *t, char symbol)
{
    skip_blanks(t);
    if (*t->at != symbol) {
        return false;
    }
    t->at++;
    return true;
}

/* What stands in quotes. */
static tutti_status_t take_word(text_t *t, char word[WORD_BYTES])
{
    skip_blanks(t);
    const char quote = *t->at;
    if (quote != '\'' && quote != '"') {
        return expect(t, "a quoted word");
    }
    const char *end = strchr(t->at + 1, quote);
    if (end == NULL || end - t->at - 1 >= WORD_BYTES) {
        return expect(t, "a shorter word in quotes");
    }
    const size_t bytes = (size_t)(end - t->at - 1);
    memcpy(word, t->at + 1, bytes);
    word[bytes] = 0;
    t->at = end + 1;
    return TUTTI_OK;
}

static tutti_status_t take_dtype(text_t *t, tt_npy_t *npy)
{
    static const struct {
        const char *name;
        tutti_dtype_t dtype;
    } types[] = {{"f4", TUTTI_F32}, {"f8", TUTTI_F64}, {"f2", TUTTI_F16}, {"i8", TUTTI_I64},
                 {"i4", TUTTI_I32}, {"i1", TUTTI_I8},  {"u1", TUTTI_U8},  {"b1", TUTTI_BOOL}};
    char word[WORD_BYTES];
    skip_blanks(t);
    if (*t->at == '[') {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "%s: records of several fields: save each as an array of its own", t->path);
    }
    TT_TRY(take_word(t, word));
    if (word[0] == 0 || strchr("<>|=", word[0]) == NULL) {
        return expect(t, "a dtype such as '<f4' before");
    }
    if (strcmp(word + 1, "O") == 0) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "%s: Python's objects, which are code, are not loaded: save arrays of "
                       "numbers",
                       t->path);
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(word + 1, types[i].name) == 0) {
            npy->dtype = types[i].dtype;
            npy->is_swapped = word[0] == '>';
            t->has_dtype = true;
            return TUTTI_OK;
        }
    }
    return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                   "%s: dtype %s: f2, f4, f8, i1, i4, i8, u1 and b1 can be read: convert it by "
                   "astype() before",
                   t->path, word);
}

static tutti_status_t take_order(text_t *t, tt_npy_t *npy)
{
    static const char *const words[] = {"False", "True"};
    skip_blanks(t);
    for (int i = 0; i < 2; i++) {
        if (strncmp(t->at, words[i], strlen(words[i])) == 0) {
            t->at += strlen(words[i]);
            npy->is_fortran = i == 1;
            t->has_order = true;
            return TUTTI_OK;
        }
    }
    return expect(t, "True or False");
}

static tutti_status_t take_size(text_t *t, int64_t *out)
{
    int64_t size = 0;
    const char *first = t->at;
    for (; *t->at >= '0' && *t->at <= '9'; t->at++) {
        if (__builtin_mul_overflow(size, 10, &size) ||
            __builtin_add_overflow(size, *t->at - '0', &size)) {
            return expect(t, "a size below 2^63");
        }
    }
    if (t->at == first) {
        return expect(t, "a size");
    }
    t->at += *t->at == 'L'; /* as Python 2 wrote it */
    *out = size;
    return TUTTI_OK;
}

static tutti_status_t take_shape(text_t *t, tt_npy_t *npy)
{
    if (!take(t, '(')) {
        return expect(t, "a tuple of sizes");
    }
    npy->shape.rank = 0;
    while (!take(t, ')')) {
        if (npy->shape.rank == TUTTI_RANK_MAX) {
            return TT_FAIL(TUTTI_ERR_UNSUPPORTED, "%s: more than %d dimensions", t->path,
                           TUTTI_RANK_MAX);
        }
        TT_TRY(take_size(t, &npy->shape.dims[npy->shape.rank++]));
        if (!take(t, ',') && (skip_blanks(t), *t->at != ')')) {
            return expect(t, "a comma or ')'");
        }
    }
    t->has_shape = true;
    return TUTTI_OK;
}

static tutti_status_t take_entry(text_t *t, tt_npy_t *npy)
{
    char key[WORD_BYTES];
    TT_TRY(take_word(t, key));
    if (!take(t, ':')) {
        return expect(t, "a colon");
    }
    if (strcmp(key, "descr") == 0 && !t->has_dtype) {
        return take_dtype(t, npy);
    }
    if (strcmp(key, "fortran_order") == 0 && !t->has_order) {
        return take_order(t, npy);
    }
    if (strcmp(key, "shape") == 0 && !t->has_shape) {
        return take_shape(t, npy);
    }
    return expect(t, "'descr', 'fortran_order' and 'shape', each once, before");
}

static tutti_status_t take_all(text_t *t, tt_npy_t *npy)
{
    if (!take(t, '{')) {
        return expect(t, "'{'");
    }
    while (!take(t, '}')) {
        TT_TRY(take_entry(t, npy));
        if (!take(t, ',') && (skip_blanks(t), *t->at != '}')) {
            return expect(t, "a comma or '}'");
        }
    }
    skip_blanks(t);
    if (*t->at != 0 || !t->has_dtype || !t->has_order || !t->has_shape) {
        return expect(t, *t->at != 0 ? "its end"
                                     : "'descr', 'fortran_order' and 'shape' before the end");
    }
    return TUTTI_OK;
}

static tutti_status_t check_bytes(const tt_file_t *file, const tt_npy_t *npy)
{
    char text[200];
    if (tt_shape_check(npy->dtype, npy->shape) < 0) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "%s: a shape of %s: more than memory can address",
                       file->path, tutti_shape_format(npy->shape, text, sizeof text));
    }
    const uint64_t bytes = (uint64_t)tutti_shape_numel(npy->shape) * tutti_dtype_bytes(npy->dtype);
    if (bytes != file->bytes - npy->offset) {
        return TT_FAIL(TUTTI_ERR_FORMAT,
                       "%s: %s: expected %" PRIu64 " bytes from offset %" PRIu64
                       " on for %s%s, there are %" PRIu64,
                       file->path, bytes > file->bytes - npy->offset ? "truncated" : "too long",
                       bytes, npy->offset, tutti_dtype_name(npy->dtype),
                       tutti_shape_format(npy->shape, text, sizeof text),
                       file->bytes - npy->offset);
    }
    return TUTTI_OK;
}

/* Where the text begins, and its bytes. */
static tutti_status_t read_prefix(const tt_file_t *file, uint64_t *begin, uint64_t *bytes)
{
    unsigned char b[MAGIC_BYTES + 6] = {0};
    TT_TRY(tt_file_read_at(file, 0, b, MAGIC_BYTES + 4));
    if (memcmp(b, "\x93NUMPY", MAGIC_BYTES) != 0) {
        return TT_FAIL(TUTTI_ERR_FORMAT,
                       "%s: bytes %02x %02x %02x at offset 0: expected 93 4e 55, a .npy file",
                       file->path, b[0], b[1], b[2]);
    }
    if (b[6] < 1 || b[6] > 3 || b[7] != 0) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED, "%s: version %d.%d at offset 6: expected 1.0 to 3.0",
                       file->path, b[6], b[7]);
    }
    if (b[6] > 1) {
        TT_TRY(tt_file_read_at(file, 8, b + 8, 4));
    }
    *begin = b[6] == 1 ? 10 : 12;
    *bytes = (uint64_t)b[8] | (uint64_t)b[9] << 8;
    *bytes |= b[6] == 1 ? 0 : (uint64_t)b[10] << 16 | (uint64_t)b[11] << 24;
    if (*bytes > TEXT_BYTES_MAX) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "%s: a header of %" PRIu64 " bytes: expected at most %d",
                       file->path, *bytes, TEXT_BYTES_MAX);
    }
    return TUTTI_OK;
}

tutti_status_t tt_npy_open(const tt_file_t *file, tt_npy_t *out)
{
    uint64_t begin = 0, bytes = 0;
    TT_TRY(read_prefix(file, &begin, &bytes));
    char *text = tt_alloc((size_t)bytes + 1, "npy header");
    TT_TRY_ALLOC(text);
    tt_npy_t npy = {.offset = begin + bytes};
    text_t t = {.path = file->path, .begin = text, .at = text, .offset = begin};
    tutti_status_t status = tt_file_read_at(file, begin, text, (size_t)bytes);
    if (status >= 0) {
        status = take_all(&t, &npy);
    }
    if (status >= 0) {
        status = check_bytes(file, &npy);
    }
    tt_free(text);
    if (status >= 0) {
        *out = npy;
    }
    return status;
}
