/* Cases of pooling (op_conv.h). Their references are golden values. */
#include <tutti/op_conv.h>
#include <tutti/op_sample.h>

#include "op_cases.h"

static const tutti_pool_options_t plain = {.kernel = {2, 2}};
static const tutti_pool_options_t overlapping = {
    .kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1}, .ceil_mode = true};
static const tutti_pool_options_t dilated = {
    .kernel = {2, 2}, .stride = {1, 3}, .dilation = {2, 3}};

static void call_max_pool1d(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_max_pool1d(s, in[0], &overlapping, &out[1]);
}

static void call_max_pool2d(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_max_pool2d(s, in[0], &plain, NULL);
}

static void call_max_pool2d_overlapping(tutti_scope_t *s, tutti_tensor_t *const *in,
                                        tutti_tensor_t **out)
{
    out[0] = tutti_max_pool2d(s, in[0], &overlapping, &out[1]);
}

static void call_max_pool2d_dilated(tutti_scope_t *s, tutti_tensor_t *const *in,
                                    tutti_tensor_t **out)
{
    out[0] = tutti_max_pool2d(s, in[0], &dilated, NULL);
}

static const tutti_avg_pool_options_t mean = {
    .kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1}, .ceil_mode = true};
static const tutti_avg_pool_options_t mean_of_x = {
    .kernel = {3, 3}, .stride = {1, 2}, .padding = {1, 1}, .excludes_padding = true};
static const tutti_avg_pool_options_t fifth = {.kernel = {2, 2}, .divisor = 5};

static void call_avg_pool1d(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_avg_pool1d(s, in[0], &mean);
}

static void call_avg_pool2d(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_avg_pool2d(s, in[0], &mean);
}

static void call_avg_pool2d_of_x(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_avg_pool2d(s, in[0], &mean_of_x);
}

static void call_avg_pool2d_fifth(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_avg_pool2d(s, in[0], &fifth);
}

static void call_adaptive_max_pool1d(tutti_scope_t *s, tutti_tensor_t *const *in,
                                     tutti_tensor_t **out)
{
    out[0] = tutti_adaptive_max_pool1d(s, in[0], 3, &out[1]);
}

static void call_adaptive_max_pool2d(tutti_scope_t *s, tutti_tensor_t *const *in,
                                     tutti_tensor_t **out)
{
    out[0] = tutti_adaptive_max_pool2d(s, in[0], 0, 2, NULL);
}

static void call_adaptive_avg_pool1d(tutti_scope_t *s, tutti_tensor_t *const *in,
                                     tutti_tensor_t **out)
{
    out[0] = tutti_adaptive_avg_pool1d(s, in[0], 3);
}

static void call_adaptive_avg_pool2d(tutti_scope_t *s, tutti_tensor_t *const *in,
                                     tutti_tensor_t **out)
{
    out[0] = tutti_adaptive_avg_pool2d(s, in[0], 3, 2);
}

static void call_global_average(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_adaptive_avg_pool2d(s, in[0], 1, 1);
}

static const tutti_interpolate_options_t nearest = {.scale = {2, 1.5}};
static const tutti_interpolate_options_t linear = {
    .mode = TUTTI_INTERPOLATE_LINEAR, .size = {5}, .scale = {0, 2}};
static const tutti_interpolate_options_t aligned = {
    .mode = TUTTI_INTERPOLATE_LINEAR, .size = {2, 9}, .align_corners = true};

static void call_nearest(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_interpolate(s, in[0], &nearest);
}

static void call_linear(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_interpolate(s, in[0], &linear);
}

static const tutti_interpolate_options_t trilinear = {
    .mode = TUTTI_INTERPOLATE_LINEAR, .size = {5, 0, 3}, .scale = {0, 1.5}};
static const tutti_interpolate_options_t nearest_volume = {.scale = {2, 1.5, 1}};

static void call_trilinear(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_interpolate(s, in[0], &trilinear);
}

static void call_nearest_volume(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_interpolate(s, in[0], &nearest_volume);
}

static void call_aligned(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_interpolate(s, in[0], &aligned);
}

static const tutti_interpolate_options_t cubic = {
    .mode = TUTTI_INTERPOLATE_CUBIC, .size = {5}, .scale = {0, 2.3}};
static const tutti_interpolate_options_t smooth = {
    .mode = TUTTI_INTERPOLATE_CUBIC, .size = {2, 2}, .antialias = true};
static const tutti_interpolate_options_t area = {.mode = TUTTI_INTERPOLATE_AREA, .size = {2, 2, 3}};
static const tutti_interpolate_options_t lanczos = {
    .mode = TUTTI_INTERPOLATE_LANCZOS, .size = {2}, .scale = {0, 1.3}, .antialias = true};
static const tutti_interpolate_options_t exact = {
    .mode = TUTTI_INTERPOLATE_NEAREST_EXACT, .size = {5}, .scale = {0, 0.6}};

static void call_cubic(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_interpolate(s, in[0], &cubic);
}

static void call_smooth(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_interpolate(s, in[0], &smooth);
}

static void call_lanczos(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_interpolate(s, in[0], &lanczos);
}

static void call_area(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_interpolate(s, in[0], &area);
}

static void call_exact(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_interpolate(s, in[0], &exact);
}

static void call_grid_sample(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    out[0] = tutti_grid_sample(s, in[0], in[1], NULL);
}

static void call_grid_nearest(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    const tutti_grid_sample_options_t o = {.mode = TUTTI_GRID_NEAREST, .align_corners = true};
    out[0] = tutti_grid_sample(s, in[0], in[1], &o);
}

static void call_grid_reflected(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    const tutti_grid_sample_options_t o = {.mode = TUTTI_GRID_BICUBIC,
                                           .padding = TUTTI_GRID_REFLECTION};
    out[0] = tutti_grid_sample(s, in[0], in[1], &o);
}

static void call_grid_border(tutti_scope_t *s, tutti_tensor_t *const *in, tutti_tensor_t **out)
{
    const tutti_grid_sample_options_t o = {.padding = TUTTI_GRID_BORDER, .align_corners = true};
    out[0] = tutti_grid_sample(s, in[0], in[1], &o);
}

/* Within x, beside its edges, and outside; no place is where a slope jumps. */
static const double places[] = {-0.81, 0.32, 0.55, -0.4, 1.4,  0.1,
                                -0.2,  -0.9, 0.93, 0.7,  -1.7, 2.3};
static const double places_3d[] = {-0.81, 0.32, 0.55, -0.4, 1.4, 0.1, -0.2, -0.9, 0.93};

#define CASE(name, about) .op = name, .what = about
#define X(...)                                                                                     \
    {                                                                                              \
        .shape = SHAPE(__VA_ARGS__)                                                                \
    }

#define PLACES(list, ...)                                                                          \
    {                                                                                              \
        .shape = SHAPE(__VA_ARGS__), .values = list                                                \
    }

const op_case_t op_cases_pool[] = {
    {CASE("max_pool1d", "overlapping, indices"), .inputs = {X(2, 3, 7)}, .output_count = 2,
     .call = call_max_pool1d},
    {CASE("max_pool1d", "empty"), .inputs = {X(0, 3, 7)}, .output_count = 2,
     .call = call_max_pool1d},
    {CASE("max_pool2d", ""), .inputs = {X(2, 3, 4, 5)}, .call = call_max_pool2d},
    {CASE("max_pool2d", "one image, overlapping, indices"), .inputs = {X(3, 4, 5)},
     .output_count = 2, .call = call_max_pool2d_overlapping},
    {CASE("max_pool2d", "dilated"), .inputs = {X(1, 2, 5, 9)}, .call = call_max_pool2d_dilated},
    {CASE("max_pool2d", "empty"), .inputs = {X(0, 3, 4, 4)}, .call = call_max_pool2d},
    {CASE("avg_pool1d", ""), .inputs = {X(2, 3, 7)}, .call = call_avg_pool1d},
    {CASE("avg_pool1d", "empty"), .inputs = {X(0, 3, 7)}, .call = call_avg_pool1d},
    {CASE("avg_pool2d", ""), .inputs = {X(2, 2, 4, 5)}, .call = call_avg_pool2d},
    {CASE("avg_pool2d", "one image, padding does not count"), .inputs = {X(3, 4, 6)},
     .call = call_avg_pool2d_of_x},
    {CASE("avg_pool2d", "divisor"), .inputs = {X(2, 4, 6)}, .call = call_avg_pool2d_fifth},
    {CASE("avg_pool2d", "empty"), .inputs = {X(0, 3, 4, 6)}, .call = call_avg_pool2d},
    {CASE("adaptive_max_pool1d", "indices"), .inputs = {X(2, 3, 7)}, .output_count = 2,
     .call = call_adaptive_max_pool1d},
    {CASE("adaptive_max_pool1d", "empty"), .inputs = {X(0, 3, 7)}, .output_count = 2,
     .call = call_adaptive_max_pool1d},
    {CASE("adaptive_max_pool2d", "equal windows"), .inputs = {X(2, 3, 3, 4)},
     .call = call_adaptive_max_pool2d},
    {CASE("adaptive_max_pool2d", "empty"), .inputs = {X(0, 3, 3, 4)},
     .call = call_adaptive_max_pool2d},
    {CASE("adaptive_avg_pool1d", ""), .inputs = {X(2, 3, 7)}, .call = call_adaptive_avg_pool1d},
    {CASE("adaptive_avg_pool1d", "empty"), .inputs = {X(0, 3, 7)},
     .call = call_adaptive_avg_pool1d},
    {CASE("adaptive_avg_pool2d", ""), .inputs = {X(2, 2, 4, 5)}, .call = call_adaptive_avg_pool2d},
    {CASE("adaptive_avg_pool2d", "global"), .inputs = {X(2, 2, 4, 5)}, .call = call_global_average},
    {CASE("interpolate", "nearest"), .inputs = {X(2, 2, 3, 4)}, .call = call_nearest},
    {CASE("interpolate", "linear"), .inputs = {X(2, 3, 7)}, .call = call_linear},
    {CASE("interpolate", "bilinear"), .inputs = {X(2, 2, 3, 4)}, .call = call_linear},
    {CASE("interpolate", "corners"), .inputs = {X(2, 2, 3, 4)}, .call = call_aligned},
    {CASE("interpolate", "trilinear"), .inputs = {X(1, 2, 3, 2, 4)}, .call = call_trilinear},
    {CASE("interpolate", "nearest in a volume"), .inputs = {X(2, 1, 3, 2, 4)},
     .call = call_nearest_volume},
    {CASE("interpolate", "bicubic"), .inputs = {X(2, 2, 3, 4)}, .call = call_cubic},
    {CASE("interpolate", "bicubic, antialias"), .inputs = {X(1, 2, 5, 7)}, .call = call_smooth},
    {CASE("interpolate", "lanczos"), .inputs = {X(1, 2, 5, 7)}, .call = call_lanczos},
    {CASE("interpolate", "area"), .inputs = {X(1, 2, 5, 3)}, .call = call_area},
    {CASE("interpolate", "area of a volume"), .inputs = {X(1, 2, 3, 5, 4)}, .call = call_area},
    {CASE("interpolate", "nearest exact"), .inputs = {X(2, 2, 3, 4)}, .call = call_exact},
    {CASE("grid_sample", ""), .inputs = {X(1, 2, 3, 4), PLACES(places, 1, 2, 3, 2)},
     .input_count = 2, .call = call_grid_sample},
    {CASE("grid_sample", "nearest"), .inputs = {X(2, 2, 3, 4), PLACES(places, 2, 1, 3, 2)},
     .input_count = 2, .call = call_grid_nearest},
    {CASE("grid_sample", "bicubic, reflected"),
     .inputs = {X(1, 2, 3, 4), PLACES(places, 1, 2, 3, 2)}, .input_count = 2,
     .call = call_grid_reflected},
    {CASE("grid_sample", "border"), .inputs = {X(1, 2, 3, 4), PLACES(places, 1, 6, 1, 2)},
     .input_count = 2, .call = call_grid_border},
    {CASE("grid_sample", "a volume"),
     .inputs = {X(1, 2, 2, 3, 4), PLACES(places_3d, 1, 1, 3, 1, 3)}, .input_count = 2,
     .call = call_grid_sample},
    {CASE("grid_sample", "bicubic in a volume"),
     .inputs = {X(1, 1, 2, 3, 4), PLACES(places_3d, 1, 1, 3, 1, 3)}, .input_count = 2,
     .call = call_grid_reflected},
    {CASE("grid_sample", "no samples"), .inputs = {X(0, 2, 3, 4), X(0, 2, 2, 2)}, .input_count = 2,
     .call = call_grid_sample},
    {CASE("grid_sample", "no points"), .inputs = {X(1, 2, 3, 4), X(1, 0, 2, 2)}, .input_count = 2,
     .call = call_grid_sample},
    {CASE("interpolate", "empty"), .inputs = {X(0, 2, 3, 4)}, .call = call_linear},
    {CASE("adaptive_avg_pool2d", "empty"), .inputs = {X(0, 2, 4, 5)},
     .call = call_adaptive_avg_pool2d},
};

/* ---- errors ---------------------------------------------------------------------------------- */

static tutti_tensor_t *f32(tutti_scope_t *s, tutti_shape_t shape)
{
    return tutti_ones(s, TUTTI_F32, shape);
}

static void max_pool2d_of_a_line(tutti_scope_t *s)
{
    (void)tutti_max_pool2d(s, f32(s, TUTTI_SHAPE(3, 5)), &plain, NULL);
}

static void max_pool2d_of_integers(tutti_scope_t *s)
{
    (void)tutti_max_pool2d(s, tutti_ones(s, TUTTI_I32, TUTTI_SHAPE(3, 5, 5)), &plain, NULL);
}

static void max_pool2d_without_options(tutti_scope_t *s)
{
    (void)tutti_max_pool2d(s, f32(s, TUTTI_SHAPE(3, 5, 5)), NULL, NULL);
}

static void max_pool2d_with_too_much_padding(tutti_scope_t *s)
{
    (void)tutti_max_pool2d(s, f32(s, TUTTI_SHAPE(3, 5, 5)),
                           &(tutti_pool_options_t){.kernel = {3, 3}, .padding = {1, 2}}, NULL);
}

static void max_pool1d_with_too_large_a_kernel(tutti_scope_t *s)
{
    (void)tutti_max_pool1d(s, f32(s, TUTTI_SHAPE(1, 3, 4)), &(tutti_pool_options_t){.kernel = {5}},
                           NULL);
}

static void max_pool1d_without_channels(tutti_scope_t *s)
{
    (void)tutti_max_pool1d(s, f32(s, TUTTI_SHAPE(2, 0, 4)), &plain, NULL);
}

static void avg_pool2d_with_too_much_padding(tutti_scope_t *s)
{
    (void)tutti_avg_pool2d(s, f32(s, TUTTI_SHAPE(3, 5, 5)),
                           &(tutti_avg_pool_options_t){.kernel = {2, 2}, .padding = {2, 1}});
}

static void adaptive_avg_pool2d_of_a_negative_size(tutti_scope_t *s)
{
    (void)tutti_adaptive_avg_pool2d(s, f32(s, TUTTI_SHAPE(3, 5, 5)), 2, -1);
}

static void adaptive_max_pool1d_of_a_plane(tutti_scope_t *s)
{
    (void)tutti_adaptive_max_pool1d(s, f32(s, TUTTI_SHAPE(2, 3, 5, 5)), 2, NULL);
}

static void interpolate_without_a_size(tutti_scope_t *s)
{
    (void)tutti_interpolate(s, f32(s, TUTTI_SHAPE(2, 3, 5, 5)), NULL);
}

static void interpolate_by_too_little(tutti_scope_t *s)
{
    (void)tutti_interpolate(s, f32(s, TUTTI_SHAPE(2, 3, 5)),
                            &(tutti_interpolate_options_t){.scale = {0.1}});
}

static void interpolate_nearest_with_corners(tutti_scope_t *s)
{
    (void)tutti_interpolate(s, f32(s, TUTTI_SHAPE(2, 3, 5)),
                            &(tutti_interpolate_options_t){.size = {4}, .align_corners = true});
}

static void interpolate_one_image(tutti_scope_t *s)
{
    (void)tutti_interpolate(s, f32(s, TUTTI_SHAPE(5, 5)), &nearest);
}

static void interpolate_area_with_antialias(tutti_scope_t *s)
{
    (void)tutti_interpolate(s, f32(s, TUTTI_SHAPE(2, 3, 5)),
                            &(tutti_interpolate_options_t){
                                .mode = TUTTI_INTERPOLATE_AREA, .size = {4}, .antialias = true});
}

static void interpolate_lanczos_without_antialias(tutti_scope_t *s)
{
    (void)tutti_interpolate(
        s, f32(s, TUTTI_SHAPE(2, 3, 5)),
        &(tutti_interpolate_options_t){.mode = TUTTI_INTERPOLATE_LANCZOS, .size = {4}});
}

static void interpolate_lanczos_with_corners(tutti_scope_t *s)
{
    (void)tutti_interpolate(s, f32(s, TUTTI_SHAPE(2, 3, 5)),
                            &(tutti_interpolate_options_t){.mode = TUTTI_INTERPOLATE_LANCZOS,
                                                           .size = {4},
                                                           .align_corners = true,
                                                           .antialias = true});
}

static void interpolate_of_no_mode(tutti_scope_t *s)
{
    (void)tutti_interpolate(
        s, f32(s, TUTTI_SHAPE(2, 3, 5)),
        &(tutti_interpolate_options_t){.mode = (tutti_interpolate_mode_t)9, .size = {4}});
}

static void grid_sample_of_other_samples(tutti_scope_t *s)
{
    (void)tutti_grid_sample(s, f32(s, TUTTI_SHAPE(2, 3, 5, 5)), f32(s, TUTTI_SHAPE(1, 4, 4, 2)),
                            NULL);
}

static void grid_sample_of_integers(tutti_scope_t *s)
{
    (void)tutti_grid_sample(s, f32(s, TUTTI_SHAPE(1, 3, 5, 5)),
                            tutti_ones(s, TUTTI_I32, TUTTI_SHAPE(1, 4, 4, 2)), NULL);
}

static void grid_sample_of_no_mode(tutti_scope_t *s)
{
    (void)tutti_grid_sample(s, f32(s, TUTTI_SHAPE(1, 3, 5, 5)), f32(s, TUTTI_SHAPE(1, 4, 4, 2)),
                            &(tutti_grid_sample_options_t){.padding = (tutti_grid_padding_t)3});
}

const op_error_t op_errors_pool[] = {
    {"interpolate", interpolate_area_with_antialias,
     "interpolate: antialias goes with the modes linear, cubic and lanczos only: f32[2, 3, 5]"},
    {"interpolate", interpolate_lanczos_without_antialias,
     "interpolate: the mode lanczos wants antialias: f32[2, 3, 5]"},
    {"interpolate", interpolate_lanczos_with_corners,
     "interpolate: align_corners goes with the modes linear and cubic only: f32[2, 3, 5]"},
    {"interpolate", interpolate_of_no_mode, "interpolate: there is no such mode: f32[2, 3, 5]"},
    {"grid_sample", grid_sample_of_other_samples,
     "grid_sample: x must be [N, C, H, W] and grid [N, H', W', 2], or [N, C, D, H, W] and "
     "[N, D', H', W', 3]: f32[2, 3, 5, 5] and f32[1, 4, 4, 2]"},
    {"grid_sample", grid_sample_of_integers,
     "grid_sample: x and grid must be of floating dtypes: f32[1, 3, 5, 5] and i32[1, 4, 4, 2]"},
    {"grid_sample", grid_sample_of_no_mode,
     "grid_sample: there is no such mode or padding: f32[1, 3, 5, 5] and f32[1, 4, 4, 2]"},
    {"interpolate", interpolate_without_a_size,
     "interpolate: give size or scale of each dimension, one of them: f32[2, 3, 5, 5]"},
    {"interpolate", interpolate_by_too_little,
     "interpolate: scale 0.1 leaves 0 of 5 elements: f32[2, 3, 5]"},
    {"interpolate", interpolate_nearest_with_corners,
     "interpolate: align_corners goes with the modes linear and cubic only: f32[2, 3, 5]"},
    {"interpolate", interpolate_one_image,
     "interpolate: x must be [N, C, L], [N, C, H, W] or [N, C, D, H, W]: f32[5, 5]"},
    {"max_pool2d", max_pool2d_of_a_line,
     "max_pool2d: x must be [N, C, H, W] or [C, H, W]: f32[3, 5]"},
    {"max_pool2d", max_pool2d_of_integers,
     "max_pool2d: x must be of a floating dtype: i32[3, 5, 5]"},
    {"max_pool2d", max_pool2d_without_options,
     "max_pool2d: kernel 0, stride 0 and dilation 1 must be from 1 to 2^31 - 1: f32[3, 5, 5]"},
    {"max_pool2d", max_pool2d_with_too_much_padding,
     "max_pool2d: padding 2 must be from 0 to half of the kernel 3: f32[3, 5, 5]"},
    {"max_pool1d", max_pool1d_with_too_large_a_kernel,
     "max_pool1d: the kernel does not fit: size 4, kernel 5, dilation 1, padding 0: f32[1, 3, 4]"},
    {"avg_pool2d", avg_pool2d_with_too_much_padding,
     "avg_pool2d: padding 2 must be from 0 to half of the kernel 2: f32[3, 5, 5]"},
    {"adaptive_avg_pool2d", adaptive_avg_pool2d_of_a_negative_size,
     "adaptive_avg_pool2d: size -1 must be from 0 to 2^31 - 1: f32[3, 5, 5]"},
    {"adaptive_max_pool1d", adaptive_max_pool1d_of_a_plane,
     "adaptive_max_pool1d: x must be [N, C, L] or [C, L]: f32[2, 3, 5, 5]"},
    {"max_pool1d", max_pool1d_without_channels, "max_pool1d: only N may be 0: f32[2, 0, 4]"},
};

OP_CASE_LISTS(pool);
