/* Slices on tensors, one within another: a pipeline gives a rank all of a parameter, and DDP deals
 * that out to the ranks that have the same stage.
 *
 *     x->slice ──► DDP's, of a part ──outer──► the pipeline's, of all of x
 *     both slicers are one: the pipeline's, whose `inner` is DDP's
 *
 * They may go in any order. */
#include "core/tensor/slice.h"

#include "core/tensor/tensor_impl.h"

tutti_status_t tt_slice_hang(tutti_tensor_t *x, tt_tensor_slice_t *slice, tt_slicer_t *slicer)
{
    tt_slicer_t *outer = x->slice == NULL ? NULL : x->slice->slicer;
    if (outer != NULL && outer->inner != NULL && outer->inner != slicer) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "parameters of this pipeline are dealt out by another DDP: release that "
                       "first, or make one DDP of the whole module");
    }
    slice->outer = x->slice;
    slice->slicer = outer == NULL ? slicer : outer;
    if (outer != NULL) {
        outer->inner = slicer;
    }
    x->slice = slice;
    return TUTTI_OK;
}

void tt_slice_take(tutti_tensor_t *x, tt_tensor_slice_t *slice)
{
    if (x->slice == slice) {
        x->slice = slice->outer;
        if (slice->outer != NULL) {
            slice->outer->slicer->inner = NULL;
        }
    } else if (x->slice != NULL && x->slice->outer == slice) {
        x->slice->slicer = slice->slicer->inner;
        x->slice->outer = NULL;
    }
}

bool tt_slice_is_elsewhere(const tutti_tensor_t *x)
{
    const tt_tensor_slice_t *slice = x->slice;
    return slice != NULL && slice->outer == NULL && slice->slicer->deals_wholes &&
           slice->values->numel == 0;
}
