/* The launches of conv.h: over planes (conv.c, conv_weight.c) or over volumes (conv_volume.c). A
 * volume in which nothing moves along depth and height is a plane, as it lies: [D H, W]. */
#include "core/base/profiler.h"
#include "core/kernel/conv/conv_impl.h"

/* As planes where that is all it takes. */
static tt_conv_t simplest(const tt_conv_t *conv)
{
    const tt_conv_depth_t *d = &conv->depth;
    tt_conv_t out = *conv;
    if (d->size > 0 && d->kernel == 1 && d->stride == 1 && d->padding == 0 &&
        conv->kernel[0] == 1 && conv->stride[0] == 1 && conv->padding[0] == 0 &&
        d->out_size == d->size && conv->out_size[0] == conv->size[0]) {
        out.size[0] = out.out_size[0] = d->size * conv->size[0];
        out.depth = (tt_conv_depth_t){.size = 0};
    }
    return out;
}

/* Each element of y is a sum over a window; padding counts as if it were multiplied. The other two
 * directions multiply the same pairs. */
static void count(const tt_conv_t *c)
{
    const tt_conv_depth_t *d = &c->depth;
    const double windows = (double)(c->batch * c->groups * c->out) *
                           (double)(c->out_size[0] * c->out_size[1]) *
                           (double)(d->size > 0 ? d->out_size : 1);
    const double window =
        (double)(c->in * c->kernel[0] * c->kernel[1]) * (double)(d->size > 0 ? d->kernel : 1);
    tt_profile_count(2 * windows * window);
}

typedef struct {
    tt_conv_t conv;
    const void *x, *weight, *bias; /* x: of to_x dy */
    void *y;                       /* of to_x dx */
} operands_t;

static tutti_status_t run_forward(tt_threads_t *threads, const void *arguments)
{
    const operands_t *a = arguments;
    const tt_conv_t conv = simplest(&a->conv);
    TT_TRY(tt_conv_check_room(&conv));
    return (conv.depth.size > 0 ? tt_volume_forward : tt_planes_forward)(threads, &conv, a->x,
                                                                         a->weight, a->bias, a->y);
}

static tutti_status_t run_to_x(tt_threads_t *threads, const void *arguments)
{
    const operands_t *a = arguments;
    const tt_conv_t conv = simplest(&a->conv);
    TT_TRY(tt_conv_check_room(&conv));
    return (conv.depth.size > 0 ? tt_volume_to_x : tt_planes_to_x)(threads, &conv, a->x, a->weight,
                                                                   a->bias, a->y);
}

static const tt_pointer_t pointers[] = {TT_POINTER(operands_t, x), TT_POINTER(operands_t, weight),
                                        TT_POINTER(operands_t, bias), TT_POINTER(operands_t, y),
                                        TT_NO_POINTER};
static const tt_kernel_t forward_kernel = TT_KERNEL("conv", operands_t, run_forward, pointers);
static const tt_kernel_t to_x_kernel = TT_KERNEL("conv_transpose", operands_t, run_to_x, pointers);

tutti_status_t tt_conv_forward(tt_exec_t *exec, const tt_conv_t *conv, const void *x,
                               const void *weight, const void *bias, void *y)
{
    count(conv);
    return tt_launch(exec, &forward_kernel, &(operands_t){*conv, x, weight, bias, y});
}

tutti_status_t tt_conv_to_x(tt_exec_t *exec, const tt_conv_t *conv, const void *dy,
                            const void *weight, const void *bias, void *dx)
{
    count(conv);
    return tt_launch(exec, &to_x_kernel, &(operands_t){*conv, dy, weight, bias, dx});
}

typedef struct {
    tt_conv_t conv;
    const void *x, *dy;
    void *dw;
} weight_operands_t;

static tutti_status_t run_to_weight(tt_threads_t *threads, const void *arguments)
{
    const weight_operands_t *a = arguments;
    const tt_conv_t conv = simplest(&a->conv);
    TT_TRY(tt_conv_check_room(&conv));
    return (conv.depth.size > 0 ? tt_volume_to_weight : tt_planes_to_weight)(threads, &conv, a->x,
                                                                             a->dy, a->dw);
}

static const tt_pointer_t weight_pointers[] = {TT_POINTER(weight_operands_t, x),
                                               TT_POINTER(weight_operands_t, dy),
                                               TT_POINTER(weight_operands_t, dw), TT_NO_POINTER};
static const tt_kernel_t weight_kernel =
    TT_KERNEL("conv_backward_weight", weight_operands_t, run_to_weight, weight_pointers);

tutti_status_t tt_conv_to_weight(tt_exec_t *exec, const tt_conv_t *conv, const void *x,
                                 const void *dy, void *dw)
{
    count(conv);
    return tt_launch(exec, &weight_kernel, &(weight_operands_t){*conv, x, dy, dw});
}
