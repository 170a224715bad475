/* Files of every format, for the tests of sources. */
#ifndef TT_SOURCE_TESTING_H
#define TT_SOURCE_TESTING_H

#include <sys/stat.h>
#include <unistd.h>

#include <tutti/safetensors.h>

#include "core/base/little_endian.h"
#include "core/base/place_testing.h"
#include "core/tensor/tensor_impl.h"
#include "runtime/checkpoint/slice_reader.h"
#include "runtime/checkpoint/source.h"

typedef struct {
    char folder[TT_PLACE_BYTES];
} tt_place_of_files_t;

static inline void tt_begin_files(tt_place_of_files_t *place)
{
    tt_place_make(place->folder);
}

static inline void tt_end_files(const tt_place_of_files_t *place)
{
    tt_place_remove(place->folder);
}

static inline const char *tt_file_of(const tt_place_of_files_t *place, const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", place->folder, name);
    return path;
}

static inline void tt_write_file(const char *path, const void *data, size_t bytes)
{
    (void)remove(path); /* ext4 flushes what is written over */
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static inline tutti_tensor_t *tt_ramp(tutti_dtype_t dtype, tutti_shape_t shape, double first)
{
    tutti_tensor_t *x, *wide;
    assert_int_equal(tutti_tensor_create(dtype, shape, &x), TUTTI_OK);
    assert_int_equal(tutti_tensor_create(TUTTI_F64, shape, &wide), TUTTI_OK);
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        ((double *)tutti_tensor_data(wide))[i] = first + (double)i;
    }
    assert_int_equal(tutti_tensor_copy(x, wide), TUTTI_OK);
    tutti_tensor_release(wide);
    return x;
}

/* A safetensors file of one matrix [rows, 3] of f32 that counts from `first` on. */
static inline void tt_write_matrix(const char *path, const char *name, int64_t rows, double first)
{
    tutti_tensor_t *x = tt_ramp(TUTTI_F32, TUTTI_SHAPE(rows, 3), first);
    const tutti_named_tensor_t named = {name, x};
    assert_int_equal(tutti_safetensors_save(path, &named, 1, NULL, 0), TUTTI_OK);
    tutti_tensor_release(x);
}

/* llm.c's file of a small GPT-2, whose i-th element is i. Returns the number of bytes, at most
 * room.
 */
enum { TT_LLMC_T = 5, TT_LLMC_V = 7, TT_LLMC_L = 2, TT_LLMC_C = 4, TT_LLMC_PADDED = 8 };

static inline size_t tt_fill_llmc(uint8_t *to, size_t room, bool is_f32)
{
    const uint32_t header[] = {20240326, is_f32 ? 3 : 5, TT_LLMC_T,     TT_LLMC_V, TT_LLMC_L,
                               2,        TT_LLMC_C,      TT_LLMC_PADDED};
    const size_t c = TT_LLMC_C, size = is_f32 ? 4 : 2;
    const size_t count = (TT_LLMC_PADDED + TT_LLMC_T + 2) * c + TT_LLMC_L * (12 * c * c + 13 * c);
    assert_true(1024 + count * size <= room);
    memset(to, 0, 1024);
    for (size_t i = 0; i < sizeof header / sizeof *header; i++) {
        tt_put_u32(to + 4 * i, header[i]);
    }
    tutti_tensor_t *x = tt_ramp(is_f32 ? TUTTI_F32 : TUTTI_BF16, TUTTI_SHAPE((int64_t)count), 0);
    memcpy(to + 1024, tutti_tensor_data(x), count * size);
    tutti_tensor_release(x);
    return 1024 + count * size;
}

/* A tensor of a source as a whole, in f64; NULL: it cannot be read. */
static inline tutti_tensor_t *tt_read_saved(const tt_source_t *source,
                                            const tt_saved_tensor_t *saved)
{
    tt_slice_reader_t reader;
    tutti_tensor_t *x;
    const tt_box_t box = tt_box_of(saved->shape);
    assert_int_equal(tutti_tensor_create(TUTTI_F64, saved->shape, &x), TUTTI_OK);
    assert_int_equal(tt_slice_reader_open(&reader, source->folder, source->manifest), TUTTI_OK);
    const tutti_status_t status = tt_slice_reader_read(&reader, saved, &box, x);
    tt_slice_reader_close(&reader);
    if (status < 0) {
        tutti_tensor_release(x);
    }
    return status < 0 ? NULL : x;
}

/* It is of a shape, and counts from `first` on. */
static inline void tt_expect_saved(const tt_source_t *source, const char *name, tutti_shape_t shape,
                                   double first)
{
    const tt_saved_tensor_t *saved = tt_manifest_find(source->manifest, name);
    assert_non_null(saved);
    assert_true(tutti_shape_equal(saved->shape, shape));
    tutti_tensor_t *x = tt_read_saved(source, saved);
    assert_non_null(x);
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        assert_true(tutti_tensor_at(x, i) == first + (double)i);
    }
    tutti_tensor_release(x);
}

#endif
