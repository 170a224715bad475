/* Reading and writing elements, and tensors of given values. */
#include <tutti/tensor.h>

#include <math.h>
#include <string.h>

#include "core/kernel/half.h"
#include "core/kernel/elementwise/convert.h"
#include "core/kernel/elementwise/map.h"
#include "core/tensor/tensor_impl.h"

static double load(tutti_dtype_t dtype, const void *element)
{
    switch (dtype) {
    case TUTTI_F32:
        return *(const float *)element;
    case TUTTI_F64:
        return *(const double *)element;
    case TUTTI_BF16:
        return tt_bf16_to_f32(*(const uint16_t *)element);
    case TUTTI_F16:
        return tt_f16_to_f32(*(const uint16_t *)element);
    case TUTTI_I64:
        return (double)*(const int64_t *)element;
    case TUTTI_I32:
        return *(const int32_t *)element;
    case TUTTI_I8:
        return *(const int8_t *)element;
    case TUTTI_U8:
        return *(const uint8_t *)element;
    case TUTTI_BOOL:
        return *(const bool *)element;
    default:
        return NAN;
    }
}

static tutti_status_t check_values(const tutti_tensor_t *x)
{
    char text[192];
    return tt_device_has_values(x->storage->device)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE, "%s lies on meta: it has no values",
                         tutti_tensor_describe(x, text, sizeof text));
}

double tutti_tensor_at(const tutti_tensor_t *x, int64_t index)
{
    if (tutti_tensor_device_data(x) == NULL || index < 0 || index >= x->numel) {
        return NAN;
    }
    int64_t position = 0;
    for (int i = x->shape.rank; i-- > 0; index /= x->shape.dims[i]) {
        position += index % x->shape.dims[i] * x->strides[i];
    }
    const size_t bytes = tutti_dtype_bytes(x->dtype);
    const char *element = (const char *)tt_tensor_data(x) + position * (int64_t)bytes;
    if (x->storage->device == NULL) {
        return load(x->dtype, element);
    }
    uint64_t copy;
    return check_values(x) < 0 ||
                   tt_device_move(NULL, &copy, x->storage->device, element, bytes) < 0
               ? NAN
               : load(x->dtype, &copy);
}

double tutti_tensor_item(const tutti_tensor_t *x)
{
    return x->numel == 1 ? tutti_tensor_at(x, 0) : NAN;
}

tutti_status_t tt_tensor_convert(tt_exec_t *exec, tutti_tensor_t *to, const tutti_tensor_t *from)
{
    const tt_strided_t out = tt_tensor_strided(to), in = tt_tensor_strided(from);
    TT_TRY(tt_map_unary(exec, TT_UNARY_COPY, (tt_map_params_t){0}, &out, &in));
    tt_tensor_touch(to);
    return TUTTI_OK;
}

void tt_tensor_convert_now(tt_threads_t *threads, tutti_tensor_t *to, const tutti_tensor_t *from)
{
    const tt_strided_t out = tt_tensor_strided(to), in = tt_tensor_strided(from);
    tt_map_now(threads, 1, TT_UNARY_COPY, (tt_map_params_t){0},
               (const tt_strided_t *[]){&out, &in});
    tt_tensor_touch(to);
}

/* Where kernels on its memory run that no context launches. */
static tt_exec_t *exec_of(const tutti_tensor_t *x)
{
    return x->storage->device == NULL ? NULL : tt_device_exec(x->storage->device);
}

/* ---- tensors of a store, where nothing is computed ------------------------------------------- */

/* Bytes from its first element to its last. */
static size_t span_of(const tutti_tensor_t *x)
{
    int64_t elements = x->numel > 0;
    for (int i = 0; i < x->shape.rank && x->numel > 0; i++) {
        elements += (x->shape.dims[i] - 1) * x->strides[i];
    }
    return (size_t)elements * tutti_dtype_bytes(x->dtype);
}

/* The bytes that it lies in, on the host, and it in them; *view is no owner. */
static tutti_status_t land(const tutti_tensor_t *x, tutti_tensor_t **bytes, tutti_tensor_t *view)
{
    const size_t span = span_of(x);
    TT_TRY(tt_tensor_new(NULL, TUTTI_U8, TUTTI_SHAPE((int64_t)span), false, bytes));
    const tutti_status_t status =
        tt_device_move(NULL, tt_tensor_data(*bytes), x->storage->device, tt_tensor_data(x), span);
    if (status < 0) {
        tutti_tensor_release(*bytes);
        return status;
    }
    *view = (tutti_tensor_t){.dtype = x->dtype, .shape = x->shape, .numel = x->numel};
    view->storage = (*bytes)->storage;
    memcpy(view->strides, x->strides, sizeof view->strides);
    return TUTTI_OK;
}

/* `to` is not contiguous: what lies between its elements goes back as it was. */
static tutti_status_t copy_into_store(tutti_tensor_t *to, const tutti_tensor_t *from)
{
    tutti_tensor_t *bytes, view;
    TT_TRY(land(to, &bytes, &view));
    tutti_status_t status = tutti_tensor_copy(&view, from);
    if (status >= 0) {
        status = tt_device_move(to->storage->device, tt_tensor_data(to), NULL,
                                tt_tensor_data(bytes), span_of(to));
    }
    tutti_tensor_release(bytes);
    tt_tensor_touch(to);
    return status;
}

/* `from` is not contiguous, or of another dtype. */
static tutti_status_t copy_out_of_store(tutti_tensor_t *to, const tutti_tensor_t *from)
{
    tutti_tensor_t *bytes, view;
    TT_TRY(land(from, &bytes, &view));
    const tutti_status_t status = tutti_tensor_copy(to, &view);
    tutti_tensor_release(bytes);
    return status;
}

/* The values in a dtype, contiguous, where they lie: `from` itself (retained), or a copy. */
static tutti_status_t pack(const tutti_tensor_t *from, tutti_dtype_t dtype, tutti_tensor_t **out)
{
    if (from->dtype == dtype && tutti_tensor_is_contiguous(from)) {
        return tt_tensor_alias(from, out);
    }
    TT_TRY(tt_tensor_new(from->storage->device, dtype, from->shape, false, out));
    tutti_status_t status = tt_tensor_convert(exec_of(from), *out, from);
    if (status >= 0 && from->storage->is_pinned) {
        status = tt_storage_pin((*out)->storage); /* nobody else writes it */
    }
    if (status < 0) {
        tutti_tensor_release(*out);
    }
    return status;
}

static void release_storage(void *storage)
{
    tt_storage_release(storage);
}

/* Both are contiguous and of one dtype. Memory of the host that is pinned stays until the device is
 * done with it: nobody waits for that here. */
static tutti_status_t move(tutti_tensor_t *to, const tutti_tensor_t *from)
{
    tt_device_t *device = to->storage->device, *other = from->storage->device;
    tt_device_t *accelerator = device == NULL ? other : device;
    tt_storage_t *host = device == NULL ? to->storage : from->storage;
    const size_t bytes = tutti_tensor_bytes(to);
    if (!host->is_pinned || tt_device_streams(accelerator) == NULL) {
        return tt_device_move(device, tt_tensor_data(to), other, tt_tensor_data(from), bytes);
    }
    TT_TRY(device == NULL
               ? tt_device_copy_out(other, tt_tensor_data(to), tt_tensor_data(from), bytes)
               : tt_device_copy_in(device, tt_tensor_data(to), tt_tensor_data(from), bytes));
    tt_storage_t *memory = tt_storage_memory(host);
    tt_storage_retain(memory);
    const tutti_status_t status = tt_device_push_release(accelerator, release_storage, memory);
    if (status < 0) {
        tt_storage_release(memory);
    }
    return status;
}

/* `to` is contiguous, and lies elsewhere. */
static tutti_status_t copy_packed(tutti_tensor_t *to, const tutti_tensor_t *from)
{
    tutti_tensor_t *packed;
    if (tt_device_has_values(to->storage->device)) {
        TT_TRY(check_values(from));
    }
    TT_TRY(pack(from, to->dtype, &packed));
    const tutti_status_t status = move(to, packed);
    tutti_tensor_release(packed);
    return status;
}

static tutti_status_t copy_across(tutti_tensor_t *to, const tutti_tensor_t *from)
{
    const bool is_plain = from->dtype == to->dtype && tutti_tensor_is_contiguous(from);
    if (tt_device_is_store(from->storage->device) && !is_plain) {
        return copy_out_of_store(to, from);
    }
    if (tt_device_is_store(to->storage->device) && !tutti_tensor_is_contiguous(to)) {
        return copy_into_store(to, from);
    }
    if (tutti_tensor_is_contiguous(to)) {
        TT_TRY(copy_packed(to, from));
        tt_tensor_touch(to);
        return TUTTI_OK;
    }
    tutti_tensor_t *landed;
    TT_TRY(tt_tensor_new(to->storage->device, to->dtype, to->shape, false, &landed));
    tutti_status_t status = copy_packed(landed, from);
    if (status >= 0) {
        status = tt_tensor_convert(exec_of(to), to, landed);
    }
    tutti_tensor_release(landed);
    return status;
}

tutti_status_t tt_tensor_read(const tutti_tensor_t *x, void *host)
{
    TT_TRY(tt_tensor_check(x));
    TT_TRY(check_values(x));
    tutti_tensor_t *packed;
    TT_TRY(pack(x, x->dtype, &packed));
    const tutti_status_t status = tt_device_move(NULL, host, x->storage->device,
                                                 tt_tensor_data(packed), tutti_tensor_bytes(x));
    tutti_tensor_release(packed);
    return status;
}

tutti_status_t tt_tensor_on_host(const tutti_tensor_t *x, tutti_tensor_t **out)
{
    TT_TRY(tt_tensor_check(x));
    if (x->storage->device == NULL) {
        return pack(x, x->dtype, out);
    }
    tutti_tensor_t *host;
    TT_TRY(tt_tensor_new(NULL, x->dtype, x->shape, false, &host));
    const tutti_status_t status = copy_packed(host, x);
    if (status < 0) {
        tutti_tensor_release(host);
        return status;
    }
    *out = host;
    return TUTTI_OK;
}

/* A copy on meta is made as what was copied, and then converted, unless that was. */
static tutti_status_t keep_of(tutti_tensor_t *to, const tutti_tensor_t *from)
{
    const tt_initializer_t *of = from->storage->initializer;
    const bool is_known = of != NULL && of->version == from->storage->version &&
                          tt_tensor_is_whole(from) && (of->run == NULL || of->dtype == from->dtype);
    return is_known ? tt_tensor_keep(to, of) : TUTTI_OK;
}

tutti_status_t tutti_tensor_copy(tutti_tensor_t *to, const tutti_tensor_t *from)
{
    TT_TRY(tt_tensor_check(to));
    TT_TRY(tt_tensor_check(from));
    if (!tutti_shape_equal(to->shape, from->shape)) {
        char a[192], b[192];
        return TT_FAIL(TUTTI_ERR_SHAPE, "copy: cannot copy %s into %s",
                       tutti_tensor_describe(from, a, sizeof a),
                       tutti_tensor_describe(to, b, sizeof b));
    }
    if (to->storage->device != from->storage->device) {
        return copy_across(to, from);
    }
    tt_exec_t *exec = exec_of(to);
    if (to->storage != from->storage) {
        TT_TRY(tt_tensor_convert(exec, to, from));
        return tt_device_has_values(to->storage->device) ? TUTTI_OK : keep_of(to, from);
    }
    tutti_tensor_t *apart; /* what is read may not be written meanwhile */
    TT_TRY(tt_tensor_new(to->storage->device, from->dtype, from->shape, false, &apart));
    tutti_status_t status = tt_tensor_convert(exec, apart, from);
    if (status >= 0) {
        status = tt_tensor_convert(exec, to, apart);
    }
    tutti_tensor_release(apart);
    return status;
}

static tutti_status_t fill_again(tutti_context_t *ctx, tutti_tensor_t *x,
                                 const tt_initializer_t *initializer)
{
    (void)ctx;
    return tutti_tensor_fill(x, initializer->numbers[0]);
}

tutti_status_t tutti_tensor_fill(tutti_tensor_t *x, double value)
{
    TT_TRY(tt_tensor_check(x));
    if (!tt_device_has_values(x->storage->device)) {
        return tt_tensor_keep(
            x, &(tt_initializer_t){.run = fill_again, .numbers = {value}, .dtype = x->dtype});
    }
    const tt_strided_t out = tt_tensor_strided(x);
    TT_TRY(tt_fill(exec_of(x), &out, value));
    tt_tensor_touch(x);
    return TUTTI_OK;
}

tutti_status_t tutti_tensor_copy_from(tutti_tensor_t *x, const void *data)
{
    TT_TRY(tt_tensor_check(x));
    union {
        const void *borrowed;
        void *data;
    } source = {.borrowed = data}; /* it is only read */
    tt_storage_t storage = {.data = source.data, .bytes = tutti_tensor_bytes(x)};
    tutti_tensor_t from = {.dtype = x->dtype, .shape = x->shape, .numel = x->numel};
    from.storage = &storage;
    tt_ref_init(&storage.ref);
    tt_shape_strides(x->shape, from.strides);
    return tutti_tensor_copy(x, &from);
}

static tutti_tensor_t *make(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape, bool zeroed)
{
    tutti_tensor_t *x = NULL;
    tutti_status_t status = tutti_scope_status(s);
    if (status >= 0) {
        status = tt_tensor_new(s->ctx->place.device, dtype, shape, zeroed, &x);
    }
    return tt_scope_adopt(s, status, x);
}

tutti_tensor_t *tutti_empty(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape)
{
    return make(s, dtype, shape, false);
}

tutti_tensor_t *tutti_zeros(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape)
{
    return make(s, dtype, shape, true);
}

tutti_tensor_t *tutti_empty_pinned(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape)
{
    tutti_tensor_t *x = NULL;
    tutti_status_t status = tutti_scope_status(s);
    if (status >= 0) {
        status = tt_tensor_new(s->ctx->cpu, dtype, shape, false, &x);
    }
    if (status >= 0) {
        status = tt_storage_pin(x->storage);
        tt_tensors_release(&x, status < 0);
    }
    return tt_scope_adopt(s, status, x);
}

/* The tensor, or the scope's null tensor where writing it failed. */
static tutti_tensor_t *checked(tutti_scope_t *s, tutti_tensor_t *x, tutti_status_t status)
{
    return status < 0 ? tutti_scope_fail(s, status) : x;
}

tutti_tensor_t *tutti_full(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape, double value)
{
    tutti_tensor_t *x = make(s, dtype, shape, false);
    return checked(s, x, tutti_tensor_fill(x, value));
}

tutti_tensor_t *tutti_ones(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape)
{
    return tutti_full(s, dtype, shape, 1.0);
}

tutti_tensor_t *tutti_from_data(tutti_scope_t *s, tutti_dtype_t dtype, tutti_shape_t shape,
                                const void *data)
{
    tutti_tensor_t *x = make(s, dtype, shape, false);
    return checked(s, x, tutti_tensor_copy_from(x, data));
}

typedef struct {
    char *out;
    tutti_dtype_t dtype;
    double start, step;
    int64_t n;
} arange_t;

static tutti_status_t run_arange(tt_threads_t *threads, const void *arguments)
{
    const arange_t *arange = arguments;
    (void)threads;
    for (int64_t i = 0; i < arange->n; i++) {
        const double value = arange->start + (double)i * arange->step;
        tt_convert_from(TT_CLASS_F64, arange->dtype)(
            arange->out + i * (int64_t)tutti_dtype_bytes(arange->dtype), &value, 1);
    }
    return TUTTI_OK;
}

tutti_tensor_t *tutti_arange(tutti_scope_t *s, tutti_dtype_t dtype, double start, double step,
                             int64_t n)
{
    static const tt_pointer_t pointers[] = {TT_POINTER(arange_t, out), TT_NO_POINTER};
    static const tt_kernel_t kernel = TT_KERNEL("arange", arange_t, run_arange, pointers);
    tutti_tensor_t *x = make(s, dtype, TUTTI_SHAPE(n), false);
    if (x->status < 0) {
        return x;
    }
    const arange_t arange = {tt_tensor_data(x), dtype, start, step, n};
    return checked(s, x, tt_launch(exec_of(x), &kernel, &arange));
}
