/* Operations that order, move, add up or bend elements. */
#include <string.h>

#include "op_speed/op_case.h"

/* ---- order and running sums: rows, their length … -------------------------------------------- */

static void make_rows(op_case_t *c)
{
    op_input(c, op_sizes(c, 0, 2), -2, 2);
}

static void make_fixed_rows(op_case_t *c)
{
    op_constant(c, op_sizes(c, 0, 2), -2, 2);
}

static void make_factors(op_case_t *c)
{
    op_input(c, op_sizes(c, 0, 2), 0.99, 1.01);
}

static tutti_tensor_t *topk(tutti_scope_t *s, op_case_t *c)
{
    return tutti_topk(s, c->in[0], c->n[2], -1, &c->second);
}

static tutti_tensor_t *sort(tutti_scope_t *s, op_case_t *c)
{
    return tutti_sort(s, c->in[0], -1, false, &c->second);
}

static tutti_tensor_t *argsort(tutti_scope_t *s, op_case_t *c)
{
    return tutti_argsort(s, c->in[0], -1, false);
}

static tutti_tensor_t *cumsum(tutti_scope_t *s, op_case_t *c)
{
    return tutti_cumsum(s, c->in[0], (int)c->n[2]);
}

static tutti_tensor_t *cumprod(tutti_scope_t *s, op_case_t *c)
{
    return tutti_cumprod(s, c->in[0], (int)c->n[2]);
}

/* ---- classes and draws ----------------------------------------------------------------------- */

static void make_classes(op_case_t *c)
{
    op_indices(c, op_sizes(c, 0, 1), c->n[1]);
}

static tutti_tensor_t *one_hot(tutti_scope_t *s, op_case_t *c)
{
    return tutti_one_hot(s, c->in[0], c->n[1]);
}

static void make_weights(op_case_t *c)
{
    op_constant(c, op_sizes(c, 0, 2), 0.1, 1);
}

static tutti_tensor_t *multinomial(tutti_scope_t *s, op_case_t *c)
{
    return tutti_multinomial(s, c->in[0], c->n[2], c->n[3] != 0);
}

/* ---- writing by index ------------------------------------------------------------------------ */

/** In each row places that are all different. */
static void make_scatter(op_case_t *c)
{
    const int64_t length = c->n[1], written = c->n[2];
    op_input(c, op_sizes(c, 0, 2), -2, 2);
    op_indices(c, TUTTI_SHAPE(c->n[0], written), length);
    op_input(c, TUTTI_SHAPE(c->n[0], written), -2, 2);
    int64_t *index = tutti_tensor_data(c->in[1]);
    for (int64_t i = 0; index != NULL && i < c->n[0] * written; i++) {
        index[i] = (i % written * 7919 + i / written) % length;
    }
}

static tutti_tensor_t *scatter_along(tutti_scope_t *s, op_case_t *c)
{
    return tutti_scatter_along(s, c->in[0], 1, c->in[1], c->in[2]);
}

static tutti_tensor_t *scatter_along_add(tutti_scope_t *s, op_case_t *c)
{
    return tutti_scatter_along_add(s, c->in[0], 1, c->in[1], c->in[2]);
}

static void make_index_add(op_case_t *c)
{
    op_input(c, op_sizes(c, 0, 2), -2, 2);
    op_indices(c, op_sizes(c, 2, 1), c->n[0]);
    op_input(c, TUTTI_SHAPE(c->n[2], c->n[1]), -2, 2);
}

static tutti_tensor_t *index_add(tutti_scope_t *s, op_case_t *c)
{
    return tutti_index_add(s, c->in[0], 0, c->in[1], c->in[2]);
}

/* ---- the same elements at other places: N, C, H, W … ----------------------------------------- */

static void make_planes(op_case_t *c)
{
    op_input(c, op_sizes(c, 0, 4), -2, 2);
}

static tutti_tensor_t *pad(tutti_scope_t *s, op_case_t *c, tutti_pad_mode_t mode)
{
    const int64_t n = c->n[4];
    return tutti_pad(s, c->in[0], TUTTI_PADDING(n, n, n, n), mode, 0);
}

static tutti_tensor_t *pad_constant(tutti_scope_t *s, op_case_t *c)
{
    return pad(s, c, TUTTI_PAD_CONSTANT);
}

static tutti_tensor_t *pad_reflect(tutti_scope_t *s, op_case_t *c)
{
    return pad(s, c, TUTTI_PAD_REFLECT);
}

static tutti_tensor_t *pad_replicate(tutti_scope_t *s, op_case_t *c)
{
    return pad(s, c, TUTTI_PAD_REPLICATE);
}

static tutti_tensor_t *pad_circular(tutti_scope_t *s, op_case_t *c)
{
    return pad(s, c, TUTTI_PAD_CIRCULAR);
}

static void make_matrices(op_case_t *c)
{
    op_input(c, op_sizes(c, 0, 3), -2, 2);
}

static tutti_tensor_t *tril(tutti_scope_t *s, op_case_t *c)
{
    return tutti_tril(s, c->in[0], c->n[3]);
}

static tutti_tensor_t *triu(tutti_scope_t *s, op_case_t *c)
{
    return tutti_triu(s, c->in[0], c->n[3]);
}

static tutti_tensor_t *roll(tutti_scope_t *s, op_case_t *c)
{
    return tutti_roll(s, c->in[0], op_sizes(c, 4, 2), TUTTI_DIMS(1, 2));
}

static tutti_tensor_t *flip(tutti_scope_t *s, op_case_t *c)
{
    return tutti_flip(s, c->in[0], TUTTI_DIMS(c->n[4] == 0 ? 3 : 2));
}

static tutti_unfold_options_t windows(const op_case_t *c)
{
    return (tutti_unfold_options_t){
        .kernel = {c->n[4], c->n[4]}, .stride = {c->n[5], c->n[5]}, .padding = {c->n[6], c->n[6]}};
}

static tutti_tensor_t *unfold(tutti_scope_t *s, op_case_t *c)
{
    const tutti_unfold_options_t options = windows(c);
    return tutti_unfold(s, c->in[0], &options);
}

static void make_columns(op_case_t *c)
{
    const int64_t *n = c->n;
    int64_t places = 1;
    for (int i = 2; i < 4; i++) {
        places *= (n[i] + 2 * n[6] - n[4]) / n[5] + 1;
    }
    op_input(c, TUTTI_SHAPE(n[0], n[1] * n[4] * n[4], places), -2, 2);
}

static tutti_tensor_t *fold(tutti_scope_t *s, op_case_t *c)
{
    const tutti_unfold_options_t options = windows(c);
    return tutti_fold(s, c->in[0], c->n[2], c->n[3], &options);
}

/* ---- other places: N, C, H, W, H', W', mode … ------------------------------------------------ */

static tutti_tensor_t *interpolate(tutti_scope_t *s, op_case_t *c)
{
    static const tutti_interpolate_mode_t modes[] = {
        TUTTI_INTERPOLATE_LINEAR, TUTTI_INTERPOLATE_CUBIC, TUTTI_INTERPOLATE_AREA,
        TUTTI_INTERPOLATE_LINEAR};
    return tutti_interpolate(s, c->in[0],
                             &(tutti_interpolate_options_t){.mode = modes[c->n[6]],
                                                            .size = {c->n[4], c->n[5]},
                                                            .antialias = c->n[6] == 3});
}

static void make_sampled(op_case_t *c)
{
    const int64_t *n = c->n;
    op_input(c, op_sizes(c, 0, 4), -2, 2);
    op_input(c, TUTTI_SHAPE(n[0], n[4], n[5], 2), -1.1, 1.1);
}

static tutti_tensor_t *grid_sample(tutti_scope_t *s, op_case_t *c)
{
    const tutti_grid_sample_options_t options = {(tutti_grid_mode_t)c->n[6],
                                                 (tutti_grid_padding_t)c->n[7], false};
    return tutti_grid_sample(s, c->in[0], c->in[1], &options);
}

/* ---- sums of products: the sizes of the letters that occur ----------------------------------- */

static int64_t size_of(const op_case_t *c, char letter)
{
    int before = 0;
    for (char other = 'a'; other < letter; other++) {
        before += strchr(c->text, other) != NULL;
    }
    return c->n[before];
}

static void make_terms(op_case_t *c)
{
    tutti_shape_t shape = {.rank = 0};
    for (const char *at = c->text;; at++) {
        if (*at >= 'a' && *at <= 'z') {
            shape.dims[shape.rank++] = size_of(c, *at);
            continue;
        }
        op_input(c, shape, -2, 2);
        shape.rank = 0;
        if (*at != ',') {
            return;
        }
    }
}

static tutti_tensor_t *einsum(tutti_scope_t *s, op_case_t *c)
{
    return tutti_einsum(s, c->text, c->in, c->inputs);
}

const op_t op_moves[] = {
    {"topk", make_rows, topk},
    {"sort", make_rows, sort},
    {"argsort", make_fixed_rows, argsort},
    {"cumsum", make_rows, cumsum},
    {"cumprod", make_factors, cumprod},
    {"one_hot", make_classes, one_hot},
    {"multinomial", make_weights, multinomial},
    {"scatter_along", make_scatter, scatter_along},
    {"scatter_along_add", make_scatter, scatter_along_add},
    {"index_add", make_index_add, index_add},
    {"pad_constant", make_planes, pad_constant},
    {"pad_reflect", make_planes, pad_reflect},
    {"pad_replicate", make_planes, pad_replicate},
    {"pad_circular", make_planes, pad_circular},
    {"tril", make_matrices, tril},
    {"triu", make_matrices, triu},
    {"roll", make_planes, roll},
    {"flip", make_planes, flip},
    {"unfold", make_planes, unfold},
    {"fold", make_columns, fold},
    {"interpolate", make_planes, interpolate},
    {"grid_sample", make_sampled, grid_sample},
    {"einsum", make_terms, einsum},
    {NULL, NULL, NULL},
};
