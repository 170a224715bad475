/* The tables of all variants, and the name of the set that runs. */
#include "core/kernel/kernels.h"

#include <stdio.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <string.h>
#endif

extern const tt_map_ops_t tt_map_ops_baseline, tt_map_ops_avx2, tt_map_ops_avx512;
extern const tt_convert_ops_t tt_convert_ops_baseline, tt_convert_ops_avx2, tt_convert_ops_avx512;

extern const tt_reduce_ops_t tt_reduce_ops_baseline, tt_reduce_ops_avx2, tt_reduce_ops_avx512;
extern const tt_softmax_ops_t tt_softmax_ops_baseline, tt_softmax_ops_avx2, tt_softmax_ops_avx512;
extern const tt_norm_ops_t tt_norm_ops_baseline, tt_norm_ops_avx2, tt_norm_ops_avx512;
extern const tt_channels_ops_t tt_channels_ops_baseline, tt_channels_ops_avx2,
    tt_channels_ops_avx512;
extern const tt_recurrent_ops_t tt_recurrent_ops_baseline, tt_recurrent_ops_avx2,
    tt_recurrent_ops_avx512;
extern const tt_conv_ops_t tt_conv_ops_baseline, tt_conv_ops_avx2, tt_conv_ops_avx512;
extern const tt_interpolate_ops_t tt_interpolate_ops_baseline, tt_interpolate_ops_avx2,
    tt_interpolate_ops_avx512;
extern const tt_pooling_ops_t tt_pooling_ops_baseline, tt_pooling_ops_avx2, tt_pooling_ops_avx512;
extern const tt_random_ops_t tt_random_ops_baseline, tt_random_ops_avx2, tt_random_ops_avx512;
extern const tt_flat_ops_t tt_flat_ops_baseline, tt_flat_ops_avx2, tt_flat_ops_avx512;
extern const tt_optim_steps_ops_t tt_optim_steps_ops_baseline, tt_optim_steps_ops_avx2,
    tt_optim_steps_ops_avx512;
extern const tt_attention_ops_t tt_attention_ops_baseline, tt_attention_ops_avx2,
    tt_attention_ops_avx512;

static const tt_kernels_t tables[TT_VARIANT_COUNT] = {
    [TT_VARIANT_BASELINE] =
        {
            .map = &tt_map_ops_baseline,
            .convert = &tt_convert_ops_baseline,
            .reduce = &tt_reduce_ops_baseline,
            .softmax = &tt_softmax_ops_baseline,
            .norm = &tt_norm_ops_baseline,
            .channels = &tt_channels_ops_baseline,
            .recurrent = &tt_recurrent_ops_baseline,
            .conv = &tt_conv_ops_baseline,
            .interpolate = &tt_interpolate_ops_baseline,
            .pooling = &tt_pooling_ops_baseline,
            .random = &tt_random_ops_baseline,
            .flat = &tt_flat_ops_baseline,
            .optim_steps = &tt_optim_steps_ops_baseline,
            .attention = &tt_attention_ops_baseline,
        },
#if defined(__x86_64__)
    [TT_VARIANT_AVX2] =
        {
            .map = &tt_map_ops_avx2,
            .convert = &tt_convert_ops_avx2,
            .reduce = &tt_reduce_ops_avx2,
            .softmax = &tt_softmax_ops_avx2,
            .norm = &tt_norm_ops_avx2,
            .channels = &tt_channels_ops_avx2,
            .recurrent = &tt_recurrent_ops_avx2,
            .conv = &tt_conv_ops_avx2,
            .interpolate = &tt_interpolate_ops_avx2,
            .pooling = &tt_pooling_ops_avx2,
            .random = &tt_random_ops_avx2,
            .flat = &tt_flat_ops_avx2,
            .optim_steps = &tt_optim_steps_ops_avx2,
            .attention = &tt_attention_ops_avx2,
        },
    [TT_VARIANT_AVX512] =
        {
            .map = &tt_map_ops_avx512,
            .convert = &tt_convert_ops_avx512,
            .reduce = &tt_reduce_ops_avx512,
            .softmax = &tt_softmax_ops_avx512,
            .norm = &tt_norm_ops_avx512,
            .channels = &tt_channels_ops_avx512,
            .recurrent = &tt_recurrent_ops_avx512,
            .conv = &tt_conv_ops_avx512,
            .interpolate = &tt_interpolate_ops_avx512,
            .pooling = &tt_pooling_ops_avx512,
            .random = &tt_random_ops_avx512,
            .flat = &tt_flat_ops_avx512,
            .optim_steps = &tt_optim_steps_ops_avx512,
            .attention = &tt_attention_ops_avx512,
        },
#endif
};

const tt_kernels_t *tt_kernels(void)
{
    return &tables[tt_isa()];
}

void tt_kernels_id(char *text, size_t text_bytes)
{
    char cpu[64] = "cpu";
#if defined(__x86_64__)
    unsigned eax = 0, part[3] = {0}, ignored;
    char vendor[13] = "";
    if (__get_cpuid(0, &eax, &part[0], &part[2], &part[1])) {
        memcpy(vendor, part, sizeof part);
    }
    if (__get_cpuid(1, &eax, &ignored, &ignored, &ignored)) {
        const unsigned family = (eax >> 8 & 15) + (eax >> 20 & 255);
        snprintf(cpu, sizeof cpu, "%s %u.%u", vendor, family, (eax >> 4 & 15) | (eax >> 12 & 240));
    }
#endif
    snprintf(text, text_bytes, "%s %s, built by %s", cpu, tt_isa_name(), __VERSION__);
}
