/* safetensors: what is written is read again, and malformed files are refused by name and offset.
 */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include <tutti/safetensors.h>

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    char folder[64], path[128];
} fixture_t;

static int setup(void **state)
{
    static fixture_t f;
    snprintf(f.folder, sizeof f.folder, "/tmp/tutti-safetensors-XXXXXX");
    assert_non_null(mkdtemp(f.folder));
    snprintf(f.path, sizeof f.path, "%s/a.safetensors", f.folder);
    assert_int_equal(tutti_context_create(&(tutti_context_options_t){.threads = 1}, &f.ctx), 0);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    (void)tutti_scope_close(f->s);
    tutti_context_release(f->ctx);
    (void)unlink(f->path);
    const int folder_is_empty = rmdir(f->folder); /* also fails if a temporary file is left */
    return folder_is_empty == 0 && tt_alloc_stats().blocks == 0 ? 0 : -1;
}

static void expect_error(const char *part)
{
    if (strstr(tutti_last_error(), part) == NULL) {
        fail_msg("\"%s\" is not in: %s", part, tutti_last_error());
    }
}

static tutti_status_t save(fixture_t *f, const char *name, tutti_tensor_t *x)
{
    const tutti_named_tensor_t named = {name, x};
    return tutti_safetensors_save(f->path, &named, 1, NULL, 0);
}

static void every_dtype_comes_back(void **state)
{
    fixture_t *f = *state;
    char names[TUTTI_DTYPE_COUNT][16];
    tutti_named_tensor_t named[TUTTI_DTYPE_COUNT];
    for (int i = 0; i < TUTTI_DTYPE_COUNT; i++) {
        snprintf(names[i], sizeof names[i], "x.%d", i);
        tutti_tensor_t *x = tutti_empty(f->s, (tutti_dtype_t)i, TUTTI_SHAPE(2, 3));
        memset(tutti_tensor_data(x), i == TUTTI_BOOL ? 1 : 16 + i, tutti_tensor_bytes(x));
        named[i] = (tutti_named_tensor_t){names[i], x};
    }
    const tutti_named_text_t metadata[] = {{"step", "12"}, {"text", "quotes \" and \n"}};
    assert_int_equal(tutti_safetensors_save(f->path, named, TUTTI_DTYPE_COUNT, metadata, 2), 0);
    tutti_safetensors_t *file;
    assert_int_equal(tutti_safetensors_open(f->path, &file), 0);
    assert_int_equal(tutti_safetensors_count(file), TUTTI_DTYPE_COUNT);
    assert_string_equal(tutti_safetensors_metadata(file, "step"), "12");
    assert_string_equal(tutti_safetensors_metadata(file, "text"), "quotes \" and \n");
    assert_null(tutti_safetensors_metadata(file, "other"));
    for (int i = 0; i < TUTTI_DTYPE_COUNT; i++) {
        tutti_tensor_t *x = tutti_safetensors_load(f->s, file, names[i]);
        assert_int_equal(tutti_tensor_dtype(x), i);
        assert_true(tutti_shape_equal(tutti_tensor_shape(x), TUTTI_SHAPE(2, 3)));
        assert_memory_equal(tutti_tensor_data(x), tutti_tensor_data(named[i].tensor),
                            tutti_tensor_bytes(x));
        assert_int_equal(tutti_safetensors_find(file, names[i])->offset %
                             tutti_dtype_bytes((tutti_dtype_t)i),
                         0);
    }
    tutti_safetensors_close(file);
}

static void scalars_and_empty_tensors_come_back(void **state)
{
    fixture_t *f = *state;
    const tutti_named_tensor_t named[] = {
        {"empty", tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(0, 7))},
        {"scalar", tutti_full(f->s, TUTTI_F32, TUTTI_SCALAR, 2.5)},
        {"empty too", tutti_zeros(f->s, TUTTI_U8, TUTTI_SHAPE(3, 0))}};
    assert_int_equal(tutti_safetensors_save(f->path, named, 3, NULL, 0), 0);
    tutti_safetensors_t *file;
    assert_int_equal(tutti_safetensors_open(f->path, &file), 0);
    assert_true(tutti_tensor_item(tutti_safetensors_load(f->s, file, "scalar")) == 2.5);
    assert_int_equal(tutti_tensor_dim(tutti_safetensors_load(f->s, file, "empty"), 1), 7);
    assert_int_equal(tutti_tensor_dim(tutti_safetensors_load(f->s, file, "empty too"), 0), 3);
    tutti_safetensors_close(file);
    assert_int_equal(tutti_safetensors_save(f->path, NULL, 0, NULL, 0), 0);
    assert_int_equal(tutti_safetensors_open(f->path, &file), 0);
    assert_int_equal(tutti_safetensors_count(file), 0);
    tutti_safetensors_close(file);
}

static void strided_tensors_are_written_row_by_row_and_read_with_conversion(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *x = tutti_arange(f->s, TUTTI_F32, 0, 1, 6), *turned;
    const int64_t strides[] = {1, 2};
    assert_int_equal(tt_tensor_over(x->storage, TUTTI_F32, TUTTI_SHAPE(2, 3), strides, 0, &turned),
                     0);
    assert_int_equal(save(f, "x", turned), 0);
    tutti_tensor_t *to = tutti_zeros(f->s, TUTTI_F64, TUTTI_SHAPE(2, 3));
    tutti_safetensors_t *file;
    assert_int_equal(tutti_safetensors_open(f->path, &file), 0);
    assert_int_equal(tutti_safetensors_read(file, "x", to), 0);
    static const double expected[] = {0, 2, 4, 1, 3, 5};
    for (int i = 0; i < 6; i++) {
        assert_true(tutti_tensor_at(to, i) == expected[i]);
    }
    assert_int_equal(tutti_tensor_fill(turned, 0), 0);
    assert_int_equal(tutti_safetensors_read(file, "x", turned), 0);
    assert_true(tutti_tensor_at(x, 1) == 1 && tutti_tensor_at(x, 2) == 2);
    tutti_safetensors_close(file);
    tutti_tensor_release(turned);
}

static void reading_the_wrong_thing_says_what_is_there(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(save(f, "up.weight", tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(2, 2))), 0);
    tutti_safetensors_t *file;
    assert_int_equal(tutti_safetensors_open(f->path, &file), 0);
    tutti_tensor_t *to = tutti_zeros(f->s, TUTTI_F32, TUTTI_SHAPE(4));
    assert_int_equal(tutti_safetensors_read(file, "up.wieght", to), TUTTI_ERR_NOT_FOUND);
    expect_error("the nearest is \"up.weight\"");
    assert_int_equal(tutti_safetensors_read(file, "up.weight", to), TUTTI_ERR_SHAPE);
    expect_error("\"up.weight\" is [2, 2] in the file, [4] here");
    assert_true(tutti_tensor_at(to, 0) == 0);
    tutti_scope_t *inner;
    assert_int_equal(tutti_scope_open(f->ctx, &inner), 0);
    assert_int_equal(tutti_tensor_numel(tutti_safetensors_load(inner, file, "down")), 0);
    assert_int_equal(tutti_scope_close(inner), TUTTI_ERR_NOT_FOUND);
    tutti_safetensors_close(file);
}

static void bad_names_are_refused_and_leave_the_old_file(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *x = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(1));
    assert_int_equal(save(f, "old", x), 0);
    const tutti_named_tensor_t twice[] = {{"a", x}, {"a", x}};
    assert_int_equal(tutti_safetensors_save(f->path, twice, 2, NULL, 0), TUTTI_ERR_ARG);
    expect_error("\"a\" is there twice");
    assert_int_equal(save(f, "__metadata__", x), TUTTI_ERR_ARG);
    const tutti_named_tensor_t one = {"a", x};
    const tutti_named_text_t without = {"step", NULL};
    assert_int_equal(tutti_safetensors_save(f->path, &one, 1, &without, 1), TUTTI_ERR_ARG);
    expect_error("a metadata has no text");
    const char *bad[] = {"\xff",
                         "\x80",
                         "\xc3",
                         "\xc0\x80",
                         "\xe0\x80\x80",
                         "\xed\xa0\x80",
                         "\xf0\x80\x80\x80",
                         "\xf4\x90\x80\x80",
                         "\xf8\x88\x80\x80\x80",
                         "\xe2\x82"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(save(f, bad[i], x), TUTTI_ERR_ARG);
        expect_error("not UTF-8");
    }
    const tutti_named_tensor_t named = {"a", x};
    const tutti_named_text_t texts[] = {{"k", "1"}, {"k", "2"}};
    assert_int_equal(tutti_safetensors_save(f->path, &named, 1, texts, 2), TUTTI_ERR_ARG);
    tutti_safetensors_t *file;
    assert_int_equal(tutti_safetensors_open(f->path, &file), 0);
    assert_non_null(tutti_safetensors_find(file, "old"));
    tutti_safetensors_close(file);
}

/* A disk that is full in the middle of a write: a limit on the size of files stands for it. */
static void a_failed_write_leaves_the_old_file_and_no_other(void **state)
{
    fixture_t *f = *state;
    assert_int_equal(save(f, "old", tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(1))), 0);
    struct rlimit before, small = {.rlim_cur = 4096};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const tutti_status_t status = save(f, "new", tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(10000)));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, handler);
    assert_int_equal(status, TUTTI_ERR_IO);
    expect_error("File too large");
    tutti_safetensors_t *file;
    assert_int_equal(tutti_safetensors_open(f->path, &file), 0);
    assert_non_null(tutti_safetensors_find(file, "old"));
    tutti_safetensors_close(file); /* teardown sees that no temporary file is left */
    assert_int_equal(tutti_safetensors_save("/nonexistent/x", NULL, 0, NULL, 0), TUTTI_ERR_IO);
    expect_error("/nonexistent/x");
}

static void files_that_cannot_be_opened_are_named(void **state)
{
    fixture_t *f = *state;
    tutti_safetensors_t *file;
    assert_int_equal(tutti_safetensors_open(f->path, &file), TUTTI_ERR_IO);
    expect_error(f->path);
    expect_error("No such file");
    assert_int_equal(tutti_safetensors_open(f->folder, &file), TUTTI_ERR_IO);
    expect_error("not a regular file");
}

/* Length, header and `data_bytes` bytes of data. */
static tutti_status_t parse(const char *header, size_t data_bytes)
{
    unsigned char bytes[1024] = {0};
    const size_t length = strlen(header);
    bytes[0] = (unsigned char)length;
    bytes[1] = (unsigned char)(length >> 8);
    memcpy(bytes + 8, header, length);
    tutti_safetensors_t *file;
    const tutti_status_t status =
        tutti_safetensors_open_bytes("m", tutti_bytes_of(bytes, 8 + length + data_bytes), &file);
    if (status >= 0) {
        tutti_safetensors_close(file);
    }
    return status;
}

static void malformed_headers_are_refused_by_name_and_offset(void **state)
{
    (void)state;
#define X(dtype, shape, offsets)                                                                   \
    "{\"x\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
    static const struct {
        const char *header;
        size_t data_bytes;
        tutti_status_t status;
        const char *error;
    } cases[] = {
        {X("\"F32\"", "[2]", "[0,8]"), 8, TUTTI_OK, ""},
        {X("\"F32\"", "[2]", "[0,8]"), 7, TUTTI_ERR_FORMAT, "which has 7 bytes of data from"},
        {X("\"F32\"", "[2]", "[0,8]"), 9, TUTTI_ERR_FORMAT, "the tensors end at offset"},
        {X("\"F32\"", "[2]", "[0,4]"), 4, TUTTI_ERR_FORMAT, "expected 8 for f32[2]"},
        {X("\"F32\"", "[2]", "[4,12]"), 12, TUTTI_ERR_FORMAT, "a gap"},
        {X("\"F32\"", "[2]", "[8,0]"), 8, TUTTI_ERR_FORMAT, "data_offsets [8, 0]"},
        {X("\"F32\"", "[2]", "[-8,0]"), 8, TUTTI_ERR_FORMAT, "data_offsets [-8, 0]"},
        {X("\"F32\"", "[2]", "[0,8,8]"), 8, TUTTI_ERR_FORMAT, "expected [first byte, end]"},
        {X("\"F32\"", "[2]", "[0.0,8]"), 8, TUTTI_ERR_FORMAT, "expected [first byte, end]"},
        {X("\"F32\"", "[-2]", "[0,8]"), 8, TUTTI_ERR_FORMAT, "dimension 0"},
        {X("\"F32\"", "2", "[0,8]"), 8, TUTTI_ERR_FORMAT, "\"shape\""},
        {X("\"F32\"", "[4611686018427387904,4]", "[0,0]"), 0, TUTTI_ERR_FORMAT, "more elements"},
        {X("\"F32\"", "[4611686018427387904,4,0]", "[0,0]"), 0, TUTTI_ERR_FORMAT, "more elem"},
        {X("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, TUTTI_ERR_UNSUPPORTED, "9 dimensions"},
        {X("\"U16\"", "[2]", "[0,4]"), 4, TUTTI_ERR_UNSUPPORTED, "\"U16\": expected F32"},
        {X("7", "[2]", "[0,4]"), 4, TUTTI_ERR_FORMAT, "\"dtype\""},
        {"{\"x\":7}", 0, TUTTI_ERR_FORMAT, "tensor \"x\": expected an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, TUTTI_ERR_FORMAT, "an object of texts"},
        {"{\"__metadata__\":[]}", 0, TUTTI_ERR_FORMAT, "an object of texts"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
         "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
         0, TUTTI_ERR_FORMAT, "duplicate \"a\""},
        {"{\"__metadata__\":{\"a\":\"\",\"b\":\"\",\"a\":\"\"}}", 0, TUTTI_ERR_FORMAT,
         "duplicate \"a\""},
        {"{\"__metadata__\":{\"a\":\"\"},\"__metadata__\":{}}", 0, TUTTI_ERR_FORMAT,
         "duplicate \"__m"},
        {"{\"x\" 7}", 0, TUTTI_ERR_FORMAT, "not valid JSON at offset 13: expected :"},
        {"{\"__metadata__\":{\"a\":\"\"],}", 0, TUTTI_ERR_FORMAT,
         "not valid JSON at offset 31: expected ,"},
        {"{,}", 0, TUTTI_ERR_FORMAT, "not valid JSON at offset 9: a name expected"},
        {"[]", 0, TUTTI_ERR_FORMAT, "expected a JSON object at offset 8"},
        {"", 0, TUTTI_ERR_FORMAT, "expected a JSON object at offset 8"},
        {"{\"x\":", 0, TUTTI_ERR_FORMAT, "not valid JSON at offset 13"},
        {"{}  ", 0, TUTTI_OK, ""},
        {"{} {}", 0, TUTTI_ERR_FORMAT, "not valid JSON"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
         3, TUTTI_ERR_FORMAT, "tensor \"b\": begins at offset"},
    };
#undef X
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (parse(cases[i].header, cases[i].data_bytes) != cases[i].status) {
            fail_msg("%s: %s", cases[i].header, tutti_last_error());
        }
        if (cases[i].status < 0) {
            expect_error(cases[i].error);
            expect_error("m: ");
        }
    }
}

static void lengths_are_checked_before_memory_is_taken(void **state)
{
    (void)state;
    tutti_safetensors_t *file;
    const unsigned char huge[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    const unsigned char cut[16] = {100};
    assert_int_equal(tutti_safetensors_open_bytes("m", tutti_bytes_of(huge, 16), &file),
                     TUTTI_ERR_FORMAT);
    expect_error("at most 100000000");
    assert_int_equal(tutti_safetensors_open_bytes("m", tutti_bytes_of(cut, 16), &file),
                     TUTTI_ERR_FORMAT);
    expect_error("expected a header of 100 bytes at offset 8, the file ends at 16");
    assert_int_equal(tutti_safetensors_open_bytes("m", tutti_bytes_of(cut, 7), &file),
                     TUTTI_ERR_FORMAT);
    expect_error("expected 8 bytes at offset 0, the file ends at 7");
}

static void a_bool_is_0_or_1(void **state)
{
    fixture_t *f = *state;
    static const char bytes[] =
        "\x3f\0\0\0\0\0\0\0{\"x\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[0,2]}}    "
        "    \1\2";
    tutti_safetensors_t *file;
    assert_int_equal(
        tutti_safetensors_open_bytes("m", tutti_bytes_of(bytes, sizeof bytes - 1), &file), 0);
    tutti_tensor_t *to = tutti_zeros(f->s, TUTTI_BOOL, TUTTI_SHAPE(2));
    const unsigned char *values = tutti_tensor_data(to);
    assert_int_equal(tutti_safetensors_read(file, "x", to), TUTTI_ERR_FORMAT);
    expect_error("byte 2 at offset 72: expected 0 or 1");
    assert_true(values[0] == 0 && values[1] == 0); /* as it was */
    tutti_safetensors_close(file);
}

/* Where it begins a tensor of some bytes may begin, too; the header may say so first. */
static void an_empty_tensor_takes_no_place(void **state)
{
    (void)state;
    static const char bytes[] =
        "\x70\0\0\0\0\0\0\0{\"x\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
        "\"e\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}       \1\2";
    tutti_safetensors_t *file;
    assert_int_equal(
        tutti_safetensors_open_bytes("m", tutti_bytes_of(bytes, sizeof bytes - 1), &file), 0);
    assert_string_equal(tutti_safetensors_at(file, 0)->name, "e");
    tutti_safetensors_close(file);
}

static void a_file_cut_after_opening_is_an_error(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *x = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(64));
    assert_int_equal(save(f, "x", x), 0);
    tutti_safetensors_t *file;
    assert_int_equal(tutti_safetensors_open(f->path, &file), 0);
    assert_int_equal(truncate(f->path, 128), 0);
    assert_int_equal(tutti_safetensors_read(file, "x", x), TUTTI_ERR_FORMAT);
    expect_error("truncated");
    tutti_safetensors_close(file);
}

static void no_allocation_that_fails_is_lost(void **state)
{
    fixture_t *f = *state;
    tutti_tensor_t *x = tutti_ones(f->s, TUTTI_F32, TUTTI_SHAPE(3));
    const size_t before = tt_alloc_stats().blocks;
    bool has_failed = true;
    for (size_t n = 1; has_failed; n++) {
        tt_alloc_fail_at(n);
        tutti_status_t status = save(f, "x", x);
        tutti_safetensors_t *file = NULL;
        assert_int_equal(status, tt_alloc_has_failed() ? TUTTI_ERR_NOMEM : TUTTI_OK);
        if (status >= 0) {
            status = tutti_safetensors_open(f->path, &file);
        }
        if (status >= 0) {
            status = tutti_safetensors_read(file, "x", x);
        }
        tutti_safetensors_close(file);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        assert_true(has_failed ? status < 0 : status == TUTTI_OK);
        assert_int_equal(tt_alloc_stats().blocks, before);
    }
}

/* So that they can fail, too; and where the most memory was in use. */
static size_t bytes_most;

static void *alloc_json(size_t bytes)
{
    void *block = tt_alloc_raw(bytes, "JSON");
    const size_t now = tt_alloc_stats().bytes;
    bytes_most = now > bytes_most ? now : bytes_most;
    return block;
}

/* As many members as there is room for, each with what is before and behind it, between two texts.
 */
static size_t repeat(char *header, size_t room, const char *const *texts)
{
    size_t bytes = strlen(texts[0]);
    memcpy(header, texts[0], bytes);
    for (int i = 0; bytes + 80 < room; i++) {
        bytes += (size_t)snprintf(header + bytes, 80, "%s\"%x\":%s,", texts[1], i, texts[2]);
    }
    memcpy(header + bytes - 1, texts[3], strlen(texts[3])); /* instead of a comma */
    return bytes - 1 + strlen(texts[3]);
}

static void a_header_takes_a_few_times_its_bytes(void **state)
{
    (void)state;
    enum { ROOM = 1 << 19 };
    static unsigned char bytes[8 + ROOM];
    static const char *const texts[][4] = {
        {"{\"a\":[", "{", "0}", "]}"},
        {"{\"__metadata__\":{", "", "\"\"", "}}"},
        {"{", "", "{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", "}"}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        tutti_safetensors_t *file;
        const size_t length = repeat((char *)bytes + 8, ROOM, texts[i]);
        for (int k = 0; k < 8; k++) {
            bytes[k] = (unsigned char)((uint64_t)length >> (8 * k));
        }
        bytes_most = 0;
        const size_t before = tt_alloc_stats().bytes;
        const tutti_status_t status =
            tutti_safetensors_open_bytes("m", tutti_bytes_of(bytes, 8 + length), &file);
        assert_int_equal(status, i == 0 ? TUTTI_ERR_FORMAT : TUTTI_OK);
        if (status < 0) {
            expect_error("m: not valid JSON at offset 13: more than 64 KiB for one value");
        } else {
            tutti_safetensors_close(file);
        }
        assert_in_range(bytes_most - before, length, 8 * length);
    }
}

int main(void)
{
    json_set_alloc_funcs(alloc_json, tt_free);
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_dtype_comes_back),
        TEST(scalars_and_empty_tensors_come_back),
        TEST(strided_tensors_are_written_row_by_row_and_read_with_conversion),
        TEST(reading_the_wrong_thing_says_what_is_there),
        TEST(bad_names_are_refused_and_leave_the_old_file),
        TEST(a_failed_write_leaves_the_old_file_and_no_other),
        TEST(files_that_cannot_be_opened_are_named),
        TEST(malformed_headers_are_refused_by_name_and_offset),
        TEST(lengths_are_checked_before_memory_is_taken),
        TEST(a_bool_is_0_or_1),
        TEST(an_empty_tensor_takes_no_place),
        TEST(a_file_cut_after_opening_is_an_error),
        TEST(no_allocation_that_fails_is_lost),
        TEST(a_header_takes_a_few_times_its_bytes),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
