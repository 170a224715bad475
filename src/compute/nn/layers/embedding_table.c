/* The table of embedding and embedding_bag. Its numbers are those of a table without padding, but
 * for the row of padding. Source: torch.nn.Embedding.reset_parameters. */
#include "compute/nn/layers/embedding_table.h"

#include "core/kernel/elementwise/map.h"
#include "core/tensor/tensor_impl.h"

static tutti_status_t check(const char *kind, const tt_embedding_sizes_t *sizes)
{
    const tutti_embedding_lookup_options_t *o = &sizes->lookup;
    const long long count = sizes->count;
    if (count < 1 || sizes->width < 1) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: count %lld, width %lld: both must be at least 1", kind,
                       count, (long long)sizes->width);
    }
    if (o->has_padding && (o->padding < -count || o->padding >= count)) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: padding %lld is no row of a table of %lld", kind,
                       (long long)o->padding, count);
    }
    if (!(o->max_norm >= 0)) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: max_norm must be at least 0, not %g", kind, o->max_norm);
    }
    return tt_or_default(o->norm_p, 2) > 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "%s: norm_p must be above 0, not %g", kind, o->norm_p);
}

/* Normal numbers, and zeros in the row that the fourth number says. */
static tutti_status_t fill_table(tutti_context_t *ctx, tutti_tensor_t *x,
                                 const tt_initializer_t *init)
{
    const int64_t width = x->shape.dims[1], row = (int64_t)init->numbers[3];
    TT_TRY(tt_init_fill(ctx, x, init));
    float *first = tt_tensor_data(x);
    const tt_strided_t padding = tt_strided_row(first + row * width, TUTTI_F32, width);
    return tt_fill(tt_tensor_exec(ctx, x), &padding, 0);
}

static tutti_status_t fill_padded(tutti_module_t *m, const tt_embedding_sizes_t *sizes,
                                  tutti_tensor_t *x)
{
    const int64_t padding = sizes->lookup.padding;
    tt_initializer_t init =
        tt_init_filler(m->ctx, (tutti_init_t){TUTTI_INIT_NORMAL, 0, sizes->std});
    init.run = fill_table;
    init.numbers[3] = (double)(padding < 0 ? padding + sizes->count : padding);
    TT_TRY(tt_init_run(m->ctx, x, init));
    TT_TRY(tutti_tensor_set_requires_grad(x, true));
    return tutti_module_add_parameter(m, "weight", x);
}

static tutti_status_t add_padded(tutti_module_t *m, const tt_embedding_sizes_t *sizes,
                                 tutti_tensor_t **out)
{
    tutti_tensor_t *x;
    TT_TRY(
        tt_tensor_new(m->ctx->home, TUTTI_F32, TUTTI_SHAPE(sizes->count, sizes->width), false, &x));
    const tutti_status_t status = fill_padded(m, sizes, x);
    tutti_tensor_release(x);
    *out = status < 0 ? NULL : x; /* the module's */
    return status;
}

tutti_status_t tt_embedding_table_add(tutti_module_t *m, const tt_embedding_sizes_t *sizes)
{
    tt_embedding_table_t *table = tutti_module_state(m);
    TT_TRY(check(m->ops->name, sizes));
    table->lookup = sizes->lookup;
    return sizes->lookup.has_padding
               ? add_padded(m, sizes, &table->weight)
               : tutti_module_new_parameter(m, "weight", TUTTI_SHAPE(sizes->count, sizes->width),
                                            (tutti_init_t){TUTTI_INIT_NORMAL, 0, sizes->std},
                                            &table->weight);
}
