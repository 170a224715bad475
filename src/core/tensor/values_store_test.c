/* Tensors of a store that are not contiguous, or of another dtype, are copied by way of the host.
 */
#include <tutti/devices.h>

#include "core/base/place_testing.h"
#include "core/device/disk_device.h"
#include "core/tensor/tensor_impl.h"

enum { ROWS = 37, COLUMNS = 61 };

static double value_of(int64_t row, int64_t column)
{
    return (double)(row * 100 + column);
}

static tutti_tensor_t *make(tt_device_t *device, tutti_dtype_t dtype, int64_t rows, int64_t columns)
{
    tutti_tensor_t *x;
    assert_int_equal(tt_tensor_new(device, dtype, TUTTI_SHAPE(rows, columns), true, &x), TUTTI_OK);
    return x;
}

/* Rows of x stand for columns of it: x is [columns, rows] in memory. */
static tutti_tensor_t turned(const tutti_tensor_t *x)
{
    tutti_tensor_t view = {.dtype = x->dtype, .numel = x->numel, .storage = x->storage};
    view.shape = TUTTI_SHAPE(x->shape.dims[1], x->shape.dims[0]);
    view.strides[0] = x->strides[1];
    view.strides[1] = x->strides[0];
    return view;
}

static void any_layout_is_copied_in_and_out(void **state)
{
    (void)state;
    char place[TT_PLACE_BYTES];
    tt_device_t *disk;
    tt_place_make(place);
    assert_int_equal(tt_device_open(&tt_device_disk, &(tt_disk_options_t){place}, &disk), TUTTI_OK);
    tutti_tensor_t *in = make(NULL, TUTTI_F64, ROWS, COLUMNS);
    for (int64_t i = 0; i < ROWS * COLUMNS; i++) {
        ((double *)tt_tensor_data(in))[i] = value_of(i / COLUMNS, i % COLUMNS);
    }
    tutti_tensor_t *stored = make(disk, TUTTI_F32, COLUMNS, ROWS);
    tutti_tensor_t *out = make(NULL, TUTTI_F64, ROWS, COLUMNS), view = turned(stored);
    assert_int_equal(tutti_tensor_copy(&view, in), TUTTI_OK);
    for (int64_t i = 0; i < ROWS * COLUMNS; i++) {
        assert_true(tutti_tensor_at(stored, i) == value_of(i % ROWS, i / ROWS));
    }
    assert_int_equal(tutti_tensor_copy(out, &view), TUTTI_OK);
    assert_memory_equal(tt_tensor_data(out), tt_tensor_data(in), tutti_tensor_bytes(in));
    tutti_tensor_release(out);
    tutti_tensor_release(stored);
    tutti_tensor_release(in);
    tutti_device_release(disk);
    tt_place_remove(place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_layout_is_copied_in_and_out),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
