/* Data sets and loaders: what comes, in which order, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <zlib.h>

#include <tutti/data_files.h>
#include <tutti/dataloader.h>

#include "compute/data/shuffle.h"
#include "core/base/alloc.h"

enum { FILES = 3 };

typedef struct {
    tutti_context_t *ctx;
    tutti_scope_t *s;
    char folder[64], paths[FILES][128];
} fixture_t;

static int setup(void **state)
{
    static fixture_t f;
    snprintf(f.folder, sizeof f.folder, "/tmp/tutti-data-XXXXXX");
    assert_non_null(mkdtemp(f.folder));
    for (int i = 0; i < FILES; i++) {
        snprintf(f.paths[i], sizeof f.paths[i], "%s/%d", f.folder, i);
    }
    assert_int_equal(
        tutti_context_create(&(tutti_context_options_t){.threads = 1, .seed = 3}, &f.ctx), 0);
    assert_int_equal(tutti_scope_open(f.ctx, &f.s), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    fixture_t *f = *state;
    (void)tutti_scope_close(f->s);
    tutti_context_release(f->ctx);
    for (int i = 0; i < FILES; i++) {
        (void)unlink(f->paths[i]);
    }
    return rmdir(f->folder) == 0 && tt_alloc_stats().blocks == 0 ? 0 : -1;
}

static void expect_error(const char *part)
{
    if (strstr(tutti_last_error(), part) == NULL) {
        fail_msg("\"%s\" is not in: %s", part, tutti_last_error());
    }
}

static void write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static tutti_dataloader_t *create(tutti_dataset_t *d, int64_t batch)
{
    tutti_dataloader_t *loader;
    const tutti_dataloader_options_t options = {.batch = batch};
    assert_int_equal(tutti_dataloader_create(d, &options, &loader), 0);
    return loader;
}

/* ---- order ----------------------------------------------------------------------------------- */

static void a_permutation_meets_each_number_once(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < 200; n++) {
        unsigned char seen[200] = {0};
        for (uint64_t i = 0; i < n; i++) {
            const uint64_t x = tt_permute(1, 2, n, i);
            assert_true(x < n && !seen[x]);
            seen[x] = 1;
        }
    }
}

static void permutations_of_seeds_and_epochs_differ(void **state)
{
    (void)state;
    int fixed = 0, same_epoch = 0, same_seed = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        const uint64_t x = tt_permute(1, 0, 1000, i);
        fixed += x == i;
        same_epoch += x == tt_permute(1, 1, 1000, i);
        same_seed += x == tt_permute(2, 0, 1000, i);
    }
    assert_true(fixed < 10 && same_epoch < 10 && same_seed < 10); /* each 1 on average */
}

/* Each number lands at each place about equally often. */
static void permutations_are_even(void **state)
{
    (void)state;
    int counts[5][5] = {{0}};
    for (uint64_t epoch = 0; epoch < 5000; epoch++) {
        for (uint64_t i = 0; i < 5; i++) {
            counts[i][tt_permute(9, epoch, 5, i)]++;
        }
    }
    for (int i = 0; i < 25; i++) {
        assert_true(abs(counts[i / 5][i % 5] - 1000) < 150); /* 5 standard deviations */
    }
}

/* ---- text and tokens ------------------------------------------------------------------------- */

static void a_share_of_a_text_is_cut_into_windows(void **state)
{
    fixture_t *f = *state;
    char text[101];
    for (int i = 0; i < 100; i++) {
        text[i] = (char)i;
    }
    write_file(f->paths[0], text, 100);
    tutti_text_options_t options = {.path = f->paths[0], .length = 4, .from = 0.9, .stride = 1};
    tutti_dataset_t *d;
    assert_int_equal(tutti_dataset_create(&tutti_text_dataset, &options, &d), 0);
    assert_int_equal(tutti_dataset_info(d).count, 6);
    tutti_dataloader_t *loader = create(d, 6);
    tutti_batch_t batch;
    assert_int_equal(tutti_dataloader_next(loader, f->s, &batch), 0);
    assert_true(tutti_tensor_at(batch.input, 0) == 90);
    assert_true(tutti_tensor_at(batch.target, 23) == 99);
    tutti_dataloader_release(loader);
    tutti_dataset_release(d);
    options.length = 10;
    assert_int_equal(tutti_dataset_create(&tutti_text_dataset, &options, &d), TUTTI_ERR_ARG);
    expect_error("holds no window of 10 and one behind it: choose a shorter length");
    options.from = 1;
    assert_int_equal(tutti_dataset_create(&tutti_text_dataset, &options, &d), TUTTI_ERR_ARG);
    options.path = "/nonexistent";
    options.from = 0;
    assert_int_equal(tutti_dataset_create(&tutti_text_dataset, &options, &d), TUTTI_ERR_IO);
    expect_error("/nonexistent");
}

static void write_tokens(const char *path, int first, int count, int said)
{
    unsigned char bytes[1024 + 2 * 64] = {0};
    const uint32_t header[] = {20240520, 1, (uint32_t)said};
    memcpy(bytes, header, sizeof header);
    for (int i = 0; i < count; i++) {
        bytes[1024 + 2 * i] = (unsigned char)(first + i);
        bytes[1025 + 2 * i] = 1;
    }
    write_file(path, bytes, 1024 + 2 * (size_t)count);
}

static void token_files_follow_each_other(void **state)
{
    fixture_t *f = *state;
    write_tokens(f->paths[0], 0, 10, 10);
    write_tokens(f->paths[1], 10, 3, 3); /* too short for a window */
    write_tokens(f->paths[2], 20, 8, 8);
    const char *paths[] = {f->paths[0], f->paths[1], f->paths[2]};
    tutti_token_options_t options = {.paths = paths, .path_count = 3, .length = 3};
    tutti_dataset_t *d;
    assert_int_equal(tutti_dataset_create(&tutti_token_dataset, &options, &d), 0);
    assert_int_equal(tutti_dataset_info(d).count, 3 + 0 + 2);
    tutti_dataloader_t *loader = create(d, 5);
    tutti_batch_t batch;
    assert_int_equal(tutti_dataloader_next(loader, f->s, &batch), 0);
    static const int inputs[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 20, 21, 22, 23, 24, 25};
    for (int i = 0; i < 15; i++) {
        assert_true(tutti_tensor_at(batch.input, i) == 256 + inputs[i]);
        assert_true(tutti_tensor_at(batch.target, i) == 256 + inputs[i] + 1);
    }
    tutti_dataloader_release(loader);
    tutti_dataset_release(d);
}

static void a_token_above_the_vocabulary_is_an_error(void **state)
{
    fixture_t *f = *state;
    write_tokens(f->paths[0], 0, 10, 10);
    const char *path = f->paths[0];
    tutti_token_options_t options = {.paths = &path, .path_count = 1, .length = 3, .vocab = -1};
    tutti_dataset_t *d;
    assert_int_equal(tutti_dataset_create(&tutti_token_dataset, &options, &d), TUTTI_ERR_ARG);
    expect_error("vocab is -1");
    options.vocab = 262;
    assert_int_equal(tutti_dataset_create(&tutti_token_dataset, &options, &d), 0);
    tutti_dataloader_t *loader = create(d, 3);
    tutti_scope_t *s;
    tutti_batch_t batch;
    assert_int_equal(tutti_scope_open(f->ctx, &s), 0);
    assert_int_equal(tutti_dataloader_next(loader, s, &batch), TUTTI_ERR_FORMAT);
    expect_error("token 262: expected below 262");
    assert_int_equal(tutti_scope_close(s), TUTTI_ERR_FORMAT);
    tutti_dataloader_release(loader);
    tutti_dataset_release(d);
}

static void malformed_token_files_are_refused(void **state)
{
    fixture_t *f = *state;
    const char *path = f->paths[0];
    const tutti_token_options_t options = {.paths = &path, .path_count = 1, .length = 3};
    tutti_dataset_t *d;
    write_tokens(path, 0, 10, 11);
    assert_int_equal(tutti_dataset_create(&tutti_token_dataset, &options, &d), TUTTI_ERR_FORMAT);
    expect_error("truncated: expected 11 tokens (offset 8) from offset 1024 to 1046, the file ends "
                 "at 1044");
    write_tokens(path, 0, 10, 9);
    assert_int_equal(tutti_dataset_create(&tutti_token_dataset, &options, &d), TUTTI_ERR_FORMAT);
    expect_error("too long");
    write_file(path, "short", 5);
    assert_int_equal(tutti_dataset_create(&tutti_token_dataset, &options, &d), TUTTI_ERR_FORMAT);
    expect_error("expected 1024 bytes at offset 0, the file ends at 5");
    char zeros[1024] = {0};
    write_file(path, zeros, sizeof zeros);
    assert_int_equal(tutti_dataset_create(&tutti_token_dataset, &options, &d), TUTTI_ERR_FORMAT);
    expect_error("magic number 0 at offset 0: expected 20240520");
    expect_error(path);
}

/* ---- IDX ------------------------------------------------------------------------------------- */

static const unsigned char pixels[] = {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6};

static size_t compress_pixels(unsigned char *to, size_t room)
{
    z_stream z = {0};
    unsigned char copy[sizeof pixels];
    memcpy(copy, pixels, sizeof pixels);
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = copy;
    z.avail_in = sizeof copy;
    z.next_out = to;
    z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    const size_t bytes = z.total_out;
    assert_int_equal(deflateEnd(&z), Z_OK);
    return bytes;
}

static void idx_files_are_read_plain_and_compressed(void **state)
{
    (void)state;
    unsigned char packed[100];
    const size_t bytes = compress_pixels(packed, sizeof packed);
    for (int i = 0; i < 2; i++) {
        tutti_tensor_t *x;
        assert_int_equal(tutti_idx_parse("x",
                                         i == 0 ? tutti_bytes_of(pixels, sizeof pixels)
                                                : tutti_bytes_of(packed, bytes),
                                         &x),
                         0);
        assert_true(tutti_shape_equal(tutti_tensor_shape(x), TUTTI_SHAPE(2, 3)));
        assert_int_equal(tutti_tensor_dtype(x), TUTTI_U8);
        assert_memory_equal(tutti_tensor_data(x), pixels + 12, 6);
        tutti_tensor_release(x);
    }
    static const unsigned char floats[] = {0, 0, 13, 1, 0, 0, 0, 1, 0x3f, 0x80, 0, 0};
    tutti_tensor_t *one;
    assert_int_equal(tutti_idx_parse("x", tutti_bytes_of(floats, sizeof floats), &one), 0);
    assert_true(tutti_tensor_at(one, 0) == 1);
    tutti_tensor_release(one);
}

static void every_torn_idx_file_is_refused(void **state)
{
    (void)state;
    unsigned char packed[100];
    const size_t bytes = compress_pixels(packed, sizeof packed);
    tutti_tensor_t *x;
    for (size_t i = 0; i < sizeof pixels; i++) {
        assert_int_equal(tutti_idx_parse("x", tutti_bytes_of(pixels, i), &x), TUTTI_ERR_FORMAT);
    }
    for (size_t i = 0; i < bytes; i++) {
        assert_int_equal(tutti_idx_parse("x", tutti_bytes_of(packed, i), &x), TUTTI_ERR_FORMAT);
        expect_error("x: ");
    }
    packed[bytes - 5] ^= 1; /* the checksum */
    assert_int_equal(tutti_idx_parse("x", tutti_bytes_of(packed, bytes), &x), TUTTI_ERR_FORMAT);
    expect_error("corrupt gzip data");
    packed[bytes - 5] ^= 1;
    packed[bytes] = 0;
    assert_int_equal(tutti_idx_parse("x", tutti_bytes_of(packed, bytes + 1), &x), TUTTI_ERR_FORMAT);
    expect_error("1 bytes behind the end");
}

static void malformed_idx_files_say_offset_and_expectation(void **state)
{
    (void)state;
    static const struct {
        unsigned char bytes[14];
        size_t count;
        tutti_status_t status;
        const char *error;
    } cases[] = {
        {{'P', 'K', 8, 1}, 4, TUTTI_ERR_FORMAT, "bytes 50 4b at offset 0: expected 00 00"},
        {{0, 1, 8, 1}, 4, TUTTI_ERR_FORMAT, "bytes 00 01 at offset 0: expected 00 00"},
        {{0, 0, 0x0b, 1}, 4, TUTTI_ERR_UNSUPPORTED, "type 0b at offset 2"},
        {{0, 0, 7, 1}, 4, TUTTI_ERR_FORMAT, "type 07 at offset 2: expected 08"},
        {{0, 0, 8, 0}, 4, TUTTI_ERR_FORMAT, "rank 0 at offset 3: expected 1 to 8"},
        {{0, 0, 8, 9}, 4, TUTTI_ERR_FORMAT, "rank 9"},
        {{0, 0, 8, 1, 0, 0, 0, 3, 1, 2},
         10,
         TUTTI_ERR_FORMAT,
         "truncated: expected 3 bytes at offset 8 for u8[3], there are at most 2"},
        {{0, 0, 8, 1, 0, 0, 0, 1, 1, 2},
         10,
         TUTTI_ERR_FORMAT,
         "expected the end at offset 9, there are 1 more bytes"},
        {{0, 0, 14, 1, 255, 255, 255, 255}, 8, TUTTI_ERR_FORMAT, "expected 34359738360 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tutti_tensor_t *x;
        assert_int_equal(tutti_idx_parse("x", tutti_bytes_of(cases[i].bytes, cases[i].count), &x),
                         cases[i].status);
        expect_error(cases[i].error);
    }
}

static void idx_files_of_different_counts_do_not_fit(void **state)
{
    fixture_t *f = *state;
    static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9};
    write_file(f->paths[0], pixels, sizeof pixels);
    write_file(f->paths[1], labels, sizeof labels);
    tutti_dataset_t *d;
    const tutti_idx_options_t options = {f->paths[0], f->paths[1]};
    assert_int_equal(tutti_dataset_create(&tutti_idx_dataset, &options, &d), TUTTI_ERR_SHAPE);
    expect_error("2 inputs, but 3 targets");
    const tutti_idx_options_t alone = {.inputs = f->paths[0]};
    assert_int_equal(tutti_dataset_create(&tutti_idx_dataset, &alone, &d), 0);
    assert_int_equal(tutti_dataset_info(d).count, 2);
    assert_int_equal(tutti_dataset_info(d).fields[0].shape.dims[0], 3);
    tutti_dataset_release(d);
}

static void no_allocation_that_fails_is_lost(void **state)
{
    fixture_t *f = *state;
    write_file(f->paths[0], pixels, sizeof pixels);
    const size_t before = tt_alloc_stats().blocks;
    bool has_failed = true;
    for (size_t n = 1; has_failed; n++) {
        const tutti_idx_options_t options = {f->paths[0], f->paths[0]};
        tutti_dataset_t *d = NULL;
        tutti_dataloader_t *loader = NULL;
        tt_alloc_fail_at(n);
        tutti_status_t status = tutti_dataset_create(&tutti_idx_dataset, &options, &d);
        if (status >= 0) {
            status = tutti_dataloader_create(d, NULL, &loader);
        }
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        tutti_dataloader_release(loader);
        tutti_dataset_release(d);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
        assert_int_equal(tt_alloc_stats().blocks, before);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_permutation_meets_each_number_once),
        TEST(permutations_of_seeds_and_epochs_differ),
        TEST(permutations_are_even),
        TEST(a_share_of_a_text_is_cut_into_windows),
        TEST(token_files_follow_each_other),
        TEST(a_token_above_the_vocabulary_is_an_error),
        TEST(malformed_token_files_are_refused),
        TEST(idx_files_are_read_plain_and_compressed),
        TEST(every_torn_idx_file_is_refused),
        TEST(malformed_idx_files_say_offset_and_expectation),
        TEST(idx_files_of_different_counts_do_not_fit),
        TEST(no_allocation_that_fails_is_lost),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
