/* Random damage of one file of the newest checkpoint: the load is that one, with the right values,
 * or the one before it. TUTTI_SEED names the damage. */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tutti/checkpoint.h>

#include "core/base/log.h"
#include "core/base/place_testing.h"
#include "core/tensor/device_testing.h"

enum { ROUNDS = 400, TENSORS = 2, STEPS = 2, FILES = 3, FILE_BYTES_MAX = 32768 };

#define DAMAGES(X) X(bytes) X(cut) X(torn) X(inserted) X(moved) X(older) X(longer) X(gone) X(folder)

typedef enum {
#define X(name) DAMAGE_##name,
    DAMAGES(X)
#undef X
        DAMAGE_COUNT
} damage_t;

static const char *const damage_names[] = {
#define X(name) #name,
    DAMAGES(X)
#undef X
};

static const char *const files[FILES] = {"manifest.json", "rank-00000-0.digests",
                                         "rank-00000-0.safetensors"};

typedef struct {
    size_t bytes;
    unsigned char data[FILE_BYTES_MAX];
} content_t;

typedef struct {
    char folder[TT_PLACE_BYTES];
    tutti_tensor_t *tensors[TENSORS];
    tutti_slice_t slices[TENSORS];
    tutti_checkpoint_t checkpoint;
    content_t whole[STEPS][FILES];
    tt_rng_t rng;
    uint64_t draws;
} fixture_t;

/* ---- values, which tell the step ------------------------------------------------------------- */

static double value_of(int64_t step, int tensor, int64_t i)
{
    return (double)(step * 10000 + tensor * 100 + i % 97);
}

static void set_values(const fixture_t *f, int64_t step)
{
    for (int t = 0; t < TENSORS; t++) {
        float *data = tutti_tensor_data(f->tensors[t]);
        for (int64_t i = 0; i < tutti_tensor_numel(f->tensors[t]); i++) {
            data[i] = (float)value_of(step, t, i);
        }
    }
}

static bool has_values(const fixture_t *f, int64_t step)
{
    for (int t = 0; t < TENSORS; t++) {
        for (int64_t i = 0; i < tutti_tensor_numel(f->tensors[t]); i++) {
            if (tutti_tensor_at(f->tensors[t], i) != value_of(step, t, i)) {
                return false;
            }
        }
    }
    return true;
}

/* ---- files ----------------------------------------------------------------------------------- */

static void name_file(const fixture_t *f, int64_t step, int file, char path[160])
{
    snprintf(path, 160, "%s/step-%012lld/%s", f->folder, (long long)step, files[file]);
}

static void read_file(const char *path, content_t *content)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    content->bytes = fread(content->data, 1, sizeof content->data, file);
    assert_true(content->bytes < sizeof content->data);
    fclose(file);
}

static void write_file(const char *path, const content_t *content)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(content->data, 1, content->bytes, file), content->bytes);
    assert_int_equal(fclose(file), 0);
}

static int begin(void **state)
{
    fixture_t *f = calloc(1, sizeof *f);
    const tutti_shape_t shapes[] = {TUTTI_SHAPE(5, 1000), TUTTI_SHAPE(7)};
    tt_place_make(f->folder);
    for (int t = 0; t < TENSORS; t++) {
        assert_int_equal(tutti_tensor_create(TUTTI_F32, shapes[t], &f->tensors[t]), TUTTI_OK);
        f->slices[t] = tutti_slice_whole(t == 0 ? "weight" : "bias", f->tensors[t]);
    }
    f->checkpoint =
        (tutti_checkpoint_t){.folder = f->folder, .slices = f->slices, .slice_count = TENSORS};
    for (int64_t step = 1; step <= STEPS; step++) {
        set_values(f, step);
        assert_int_equal(tutti_checkpoint_save(&f->checkpoint, step), TUTTI_OK);
        for (int i = 0; i < FILES; i++) {
            char path[160];
            name_file(f, step, i, path);
            read_file(path, &f->whole[step - 1][i]);
        }
    }
    *state = f;
    return 0;
}

static int end(void **state)
{
    fixture_t *f = *state;
    for (int t = 0; t < TENSORS; t++) {
        tutti_tensor_release(f->tensors[t]);
    }
    tt_place_remove(f->folder);
    free(f);
    return 0;
}

/* ---- damage ---------------------------------------------------------------------------------- */

static size_t draw(fixture_t *f, size_t bound)
{
    return (size_t)tt_rng_below(f->rng, f->draws++, bound);
}

static void change(fixture_t *f, damage_t damage, content_t *c)
{
    const size_t at = draw(f, c->bytes), count = 1 + draw(f, c->bytes - at);
    if (damage == DAMAGE_bytes) {
        for (size_t i = 0; i < 1 + count % 8; i++) {
            c->data[draw(f, c->bytes)] = (unsigned char)draw(f, 256);
        }
    } else if (damage == DAMAGE_cut) {
        c->bytes = at;
    } else if (damage == DAMAGE_torn) {
        memset(c->data + at, 0, c->bytes - at);
    } else if (damage == DAMAGE_inserted) {
        memmove(c->data + at + 1, c->data + at, c->bytes - at);
        c->bytes++;
    } else if (damage == DAMAGE_moved) {
        memmove(c->data + draw(f, c->bytes - count + 1), c->data + at, count);
    } else if (damage == DAMAGE_longer) {
        c->data[c->bytes++] = (unsigned char)draw(f, 256);
    }
}

static void put_damage(fixture_t *f, damage_t damage, int file, const char *path)
{
    content_t content = damage == DAMAGE_older ? f->whole[0][file] : f->whole[1][file];
    change(f, damage, &content);
    assert_int_equal(unlink(path), 0);
    if (damage == DAMAGE_folder) {
        assert_int_equal(mkdir(path, 0700), 0);
    } else if (damage != DAMAGE_gone) {
        write_file(path, &content);
    }
}

static void drop(tt_log_level_t level, const char *line, void *user)
{
    (void)level;
    *(int *)user += strstr(line, "checkpoint of step 2 is passed over: ") != NULL;
}

static void damage_is_passed_over_or_harmless(void **state)
{
    fixture_t *f = *state;
    const uint64_t seed = tt_test_number("TUTTI_SEED", (uint64_t)time(NULL));
    int lines = 0, passed_over = 0;
    printf("TUTTI_SEED=%llu\n", (unsigned long long)seed);
    f->rng = tt_rng_stream(seed, 0, 0, 0, 0);
    tt_log_set_sink(drop, &lines);
    for (int round = 0; round < ROUNDS; round++) {
        const damage_t damage = (damage_t)draw(f, DAMAGE_COUNT);
        const int file = (int)draw(f, FILES);
        int64_t step = 0;
        char path[160];
        name_file(f, STEPS, file, path);
        put_damage(f, damage, file, path);
        set_values(f, 77);
        const tutti_status_t status = tutti_checkpoint_load(&f->checkpoint, &step);
        if (status != TUTTI_OK || (step != 1 && step != 2) || !has_values(f, step)) {
            fail_msg("round %d, %s %s: status %d, step %lld: %s", round, files[file],
                     damage_names[damage], (int)status, (long long)step, tutti_last_error());
        }
        passed_over += step == 1;
        assert_int_equal(remove(path) == 0 || damage == DAMAGE_gone, true);
        write_file(path, &f->whole[1][file]);
    }
    tt_log_set_sink(NULL, NULL);
    assert_int_equal(lines, passed_over);
    assert_true(passed_over > ROUNDS / 2);
}

/* A copy of step 1 under the name of step 2. */
static void another_steps_folder_is_passed_over(void **state)
{
    fixture_t *f = *state;
    int64_t step = 0;
    int lines = 0;
    for (int file = 0; file < FILES; file++) {
        char path[160];
        name_file(f, 2, file, path);
        write_file(path, &f->whole[0][file]);
    }
    tt_log_set_sink(drop, &lines);
    assert_int_equal(tutti_checkpoint_load(&f->checkpoint, &step), TUTTI_OK);
    tt_log_set_sink(NULL, NULL);
    assert_int_equal(step, 1);
    assert_int_equal(lines, 1);
}

static void a_file_of_a_steps_name_is_passed_over(void **state)
{
    static const content_t text = {12, "of no format"};
    fixture_t *f = *state;
    int64_t step = 0;
    int lines = 0;
    char path[160];
    snprintf(path, sizeof path, "%s/step-000000000003", f->folder);
    write_file(path, &text);
    tt_log_set_sink(drop, &lines);
    assert_int_equal(tutti_checkpoint_load(&f->checkpoint, &step), TUTTI_OK);
    tt_log_set_sink(NULL, NULL);
    assert_int_equal(step, 2);
    assert_int_equal(remove(path), 0);
}

/* More than there is memory for; of holes, so no disk has to have it. */
static void a_manifest_that_is_far_too_long_is_passed_over(void **state)
{
    fixture_t *f = *state;
    int64_t step = 0;
    int lines = 0;
    char path[160];
    name_file(f, 2, 0, path);
    if (truncate(path, INT64_C(1) << 42) != 0) {
        skip();
    }
    tt_log_set_sink(drop, &lines);
    assert_int_equal(tutti_checkpoint_load(&f->checkpoint, &step), TUTTI_OK);
    tt_log_set_sink(NULL, NULL);
    assert_int_equal(step, 1);
    assert_int_equal(lines, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(damage_is_passed_over_or_harmless, begin, end),
        cmocka_unit_test_setup_teardown(another_steps_folder_is_passed_over, begin, end),
        cmocka_unit_test_setup_teardown(a_file_of_a_steps_name_is_passed_over, begin, end),
        cmocka_unit_test_setup_teardown(a_manifest_that_is_far_too_long_is_passed_over, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
