/* Files whose bytes are changed at random: whatever a header says then, nothing is read outside the
 * file, and of what has digests no other value is ever loaded. The seed is printed; TUTTI_SEED sets
 * it. */
#include <tutti/checkpoint.h>

#include "core/base/log.h"
#include "core/base/rng.h"
#include "runtime/checkpoint/source_testing.h"

enum { BYTES_MAX = 8192, MUTANTS = 400 };

typedef struct {
    uint8_t bytes[BYTES_MAX];
    size_t count;
} content_t;

static tt_rng_t rng;
static uint64_t draws;

/* A number below `end`. */
static size_t draw(size_t end)
{
    return (size_t)tt_rng_below(rng, draws++, end);
}

static void read_content(const char *path, content_t *content)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    content->count = fread(content->bytes, 1, BYTES_MAX, file);
    assert_true(content->count < BYTES_MAX);
    fclose(file);
}

/* A flipped bit, another byte, another digit, a part that is missing, doubled or cut off. */
static void mutate(content_t *c)
{
    const size_t header = c->count < 400 || draw(2) == 0 ? c->count : 400;
    const size_t at = draw(header), left = c->count - at, length = draw(left < 40 ? left : 40) + 1;
    switch (draw(6)) {
    case 0:
        c->bytes[at] ^= (uint8_t)(1 << draw(8));
        break;
    case 1:
        c->bytes[at] = (uint8_t)draw(256);
        break;
    case 2:
        c->bytes[at] = (uint8_t)('0' + draw(10));
        break;
    case 3:
        memmove(c->bytes + at, c->bytes + at + length, left - length);
        c->count -= length;
        break;
    case 4:
        if (c->count + length < BYTES_MAX) {
            memmove(c->bytes + at + length, c->bytes + at, left);
            c->count += length;
        }
        break;
    default:
        c->count = at;
    }
}

/* All that it says can be read, or is refused with a text. Returns how many could be. */
static int read_all(const tt_source_t *source)
{
    int count = 0;
    for (size_t i = 0; i < source->manifest->tensor_count; i++) {
        tutti_tensor_t *x = tt_read_saved(source, &source->manifest->tensors[i]);
        count += x != NULL;
        tutti_tensor_release(x);
    }
    return count;
}

/* No slice leaves its file. */
static void check_places(const tt_source_t *source)
{
    for (size_t i = 0; i < source->manifest->tensor_count; i++) {
        const tt_saved_tensor_t *tensor = &source->manifest->tensors[i];
        for (size_t k = 0; k < tensor->slice_count; k++) {
            const tt_saved_slice_t *slice = &tensor->slices[k];
            tt_path_t path;
            struct stat about;
            tt_steps_file(source->folder, source->manifest->files[slice->file].name, path);
            assert_int_equal(stat(path, &about), 0);
            const uint64_t bytes =
                (uint64_t)tt_box_numel(&slice->box) * tutti_dtype_bytes(tensor->dtype);
            assert_true(slice->at <= (uint64_t)about.st_size &&
                        bytes <= (uint64_t)about.st_size - slice->at);
        }
    }
}

/* Mutants of one file of a folder that is opened as `name`. */
static void try_mutants(const tt_place_of_files_t *place, const char *file, const char *name,
                        int *opened, int *refused)
{
    static content_t good, mutant;
    read_content(tt_file_of(place, file), &good);
    for (int i = 0; i < MUTANTS; i++) {
        tt_source_t source;
        mutant = good;
        for (size_t k = draw(3) + 1; k > 0 && mutant.count > 0; k--) {
            mutate(&mutant);
        }
        tt_write_file(tt_file_of(place, file), mutant.bytes, mutant.count);
        if (tt_source_open(tt_file_of(place, name), &source) < 0) {
            assert_true(tutti_last_error()[0] != 0);
            (*refused)++;
            continue;
        }
        check_places(&source);
        (void)read_all(&source);
        tt_source_close(&source);
        (*opened)++;
    }
    tt_write_file(tt_file_of(place, file), good.bytes, good.count);
}

static void headers_of_strangers_are_not_believed(void **state)
{
    (void)state;
    static uint8_t bytes[BYTES_MAX];
    static const char index[] = "{\"metadata\": {\"total_size\": 60}, \"weight_map\": "
                                "{\"x\": \"a.safetensors\", \"y\": \"b.safetensors\"}}";
    tt_place_of_files_t place;
    int opened = 0, refused = 0;
    tt_begin_files(&place);
    tt_write_matrix(tt_file_of(&place, "a.safetensors"), "x", 2, 1);
    tt_write_matrix(tt_file_of(&place, "b.safetensors"), "y", 3, 5);
    tt_write_file(tt_file_of(&place, "model.safetensors.index.json"), index, sizeof index - 1);
    tt_write_file(tt_file_of(&place, "gpt2.bin"), bytes, tt_fill_llmc(bytes, BYTES_MAX, true));
    try_mutants(&place, "a.safetensors", "a.safetensors", &opened, &refused);
    try_mutants(&place, "model.safetensors.index.json", ".", &opened, &refused);
    try_mutants(&place, "b.safetensors", ".", &opened, &refused);
    try_mutants(&place, "gpt2.bin", "gpt2.bin", &opened, &refused);
    assert_true(opened > 0 && refused > 0);
    tt_end_files(&place);
}

/* ---- what has digests ------------------------------------------------------------------------ */

static void ignore(tt_log_level_t level, const char *line, void *user)
{
    (void)level;
    (void)line;
    (void)user;
}

static void expect_ramp(const tutti_tensor_t *x, double first)
{
    for (int64_t i = 0; i < tutti_tensor_numel(x); i++) {
        assert_true(tutti_tensor_at(x, i) == first + (double)i);
    }
}

/* It loads what was saved, or nothing. */
static void a_damaged_checkpoint_is_never_loaded_wrong(void **state)
{
    (void)state;
    static const char *const files[] = {"manifest.json", "rank-00000-0.digests",
                                        "rank-00000-0.safetensors"};
    static content_t good, mutant;
    tt_place_of_files_t place;
    int loaded = 0, refused = 0;
    tt_begin_files(&place);
    tutti_tensor_t *w = tt_ramp(TUTTI_F32, TUTTI_SHAPE(7, 5), 1),
                   *b = tt_ramp(TUTTI_I32, TUTTI_SHAPE(9), 100);
    const tutti_slice_t slices[] = {tutti_slice_whole("w", w), tutti_slice_whole("b", b)};
    const tutti_checkpoint_t checkpoint = {
        .folder = place.folder, .slices = slices, .slice_count = 2};
    assert_int_equal(tutti_checkpoint_save(&checkpoint, 1), TUTTI_OK);
    tt_log_set_sink(ignore, NULL);
    for (int i = 0; i < 3 * MUTANTS; i++) {
        char file[96];
        int64_t step;
        snprintf(file, sizeof file, "step-000000000001/%s", files[i % 3]);
        read_content(tt_file_of(&place, file), &good);
        mutant = good;
        mutate(&mutant);
        tt_write_file(tt_file_of(&place, file), mutant.bytes, mutant.count);
        assert_int_equal(tutti_tensor_fill(w, 0), TUTTI_OK);
        assert_int_equal(tutti_tensor_fill(b, 0), TUTTI_OK);
        if (tutti_checkpoint_load(&checkpoint, &step) == TUTTI_OK) {
            expect_ramp(w, 1);
            expect_ramp(b, 100);
            loaded++;
        } else {
            refused++;
        }
        tt_write_file(tt_file_of(&place, file), good.bytes, good.count);
    }
    tt_log_set_sink(NULL, NULL);
    assert_true(loaded > 0 && refused > 2 * MUTANTS); /* headers of safetensors are not read */
    tutti_tensor_release(w);
    tutti_tensor_release(b);
    tt_end_files(&place);
}

int main(void)
{
    const char *given = getenv("TUTTI_SEED");
    const uint64_t seed = given == NULL ? 12 : strtoull(given, NULL, 10);
    rng = tt_rng_stream(seed, 0, 0, 0, 0);
    printf("TUTTI_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_of_strangers_are_not_believed),
        cmocka_unit_test(a_damaged_checkpoint_is_never_loaded_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
