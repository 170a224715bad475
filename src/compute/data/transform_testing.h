/* Pictures, and steps over them. For *_test.c only. */
#ifndef TT_TRANSFORM_TESTING_H
#define TT_TRANSFORM_TESTING_H

#include <tutti/transforms.h>

#include "core/tensor/scope_testing.h"

enum { PICTURE_ROOM = 4096 };

/* u8 [count, channels, height, width] of bytes that go up by 3, and i64 targets. */
static inline tutti_dataset_t *make_pictures(tt_fixture_t *f, int64_t count, int64_t channels,
                                             int64_t height, int64_t width)
{
    static unsigned char bytes[PICTURE_ROOM];
    const int64_t numel = count * channels * height * width;
    assert_true(numel <= PICTURE_ROOM);
    for (int64_t i = 0; i < numel; i++) {
        bytes[i] = (unsigned char)(3 * i);
    }
    const tutti_tensor_data_options_t options = {
        .input =
            tutti_from_data(f->s, TUTTI_U8, TUTTI_SHAPE(count, channels, height, width), bytes),
        .target = tutti_arange(f->s, TUTTI_I64, 0, 1, count)};
    tutti_dataset_t *d;
    assert_int_equal(tutti_dataset_create(&tutti_tensor_dataset, &options, &d), 0);
    return d;
}

static inline tutti_dataset_t *make_chain(tutti_dataset_t *from, const tutti_transform_t *steps,
                                          int count, uint64_t seed)
{
    tutti_dataset_t *d;
    const tutti_transform_options_t options = {
        .dataset = from, .steps = steps, .step_count = count, .seed = seed};
    if (tutti_dataset_create(&tutti_transform_dataset, &options, &d) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    tutti_dataset_release(from);
    return d;
}

/* A sample, or NOMEM, whichever allocation of reading it fails. Releases the data set. */
static inline void expect_read_or_nomem(tutti_dataset_t *d)
{
    bool has_failed = true;
    for (size_t n = 1; has_failed; n++) {
        tutti_sample_t sample = {0};
        tt_alloc_fail_at(n);
        const tutti_status_t status = tutti_dataset_read(d, 0, (tutti_draw_t){0}, &sample);
        has_failed = tt_alloc_has_failed();
        tt_alloc_fail_at(0);
        tutti_sample_clear(&sample);
        assert_int_equal(status, has_failed ? TUTTI_ERR_NOMEM : TUTTI_OK);
    }
    tutti_dataset_release(d);
}

#endif
