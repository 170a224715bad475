/* Dropout of a module's result, which may be a part of the whole one: the mask is the whole's. */
#include "compute/nn/module_impl.h"
#include "compute/op/shape/random_stream.h"

tutti_tensor_t *tt_module_dropout(tutti_scope_t *s, const tutti_module_t *m, tutti_tensor_t *y,
                                  float p)
{
    tt_window_t window = {0};
    if (m->cut != NULL && m->cut->columns.of > 0 && y->shape.rank >= 1) {
        const tt_share_t *share = &m->cut->columns;
        window = (tt_window_t){1, share->count, share->first, share->of};
        if (tt_tensor_status(y) >= 0 && y->shape.dims[y->shape.rank - 1] != share->count) {
            return tutti_scope_fail(
                s, TT_FAIL(TUTTI_ERR_SHAPE,
                           "dropout: %lld columns, but this rank's part of what was cut is %lld",
                           (long long)y->shape.dims[y->shape.rank - 1], (long long)share->count));
        }
    } else if (m->cut != NULL && m->cut->positions.of > 0 && y->shape.rank >= 2) {
        const tt_share_t *share = &m->cut->positions;
        const int dim = y->shape.rank - 2;
        window.each = y->shape.dims[dim + 1];
        window.own = y->shape.dims[dim];
        window.first = window.own / share->count * share->first;
        window.whole = window.own / share->count * share->of;
    }
    return tt_dropout_part(s, y, p, &window);
}
