/* What a stage gives for which inputs: found when inputs of such shapes come first, and compared
 * from then on. A few are kept: those of a batch, of its micro-batches with a row more, of
 * evaluation.
 */
#include <tutti/op.h>

#include <string.h>

#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/pipeline/pipeline_impl.h"

enum { KNOWN_MAX = 16 };

typedef struct {
    int count;
    tutti_spec_t specs[TT_WIDTH];
} specs_t;

struct tt_stage_known {
    struct tt_stage_known *next;
    bool trains;
    specs_t inputs, outputs;
};

static specs_t specs_of(tutti_tensor_t *const *tensors, int count)
{
    specs_t specs = {.count = count};
    for (int i = 0; i < count; i++) {
        specs.specs[i] =
            (tutti_spec_t){tutti_tensor_dtype(tensors[i]), tutti_tensor_shape(tensors[i])};
    }
    return specs;
}

/* The first that differs; -1: none. */
static int find_difference(const specs_t *a, const specs_t *b)
{
    for (int i = 0; i < a->count && i < b->count; i++) {
        if (a->specs[i].dtype != b->specs[i].dtype ||
            !tutti_shape_equal(a->specs[i].shape, b->specs[i].shape)) {
            return i;
        }
    }
    return a->count == b->count ? -1 : 0;
}

static const tt_stage_known_t *find(const tt_stage_t *stage, bool trains, const specs_t *inputs)
{
    const tt_stage_known_t *known = stage->known;
    while (known != NULL &&
           (known->trains != trains || find_difference(&known->inputs, inputs) >= 0)) {
        known = known->next;
    }
    return known;
}

/* The oldest goes where there are many. */
static tutti_status_t remember(tt_stage_t *stage, bool trains, const specs_t *inputs,
                               const specs_t *outputs)
{
    tt_stage_known_t *known = tt_alloc(sizeof *known, "stage's shapes");
    TT_TRY_ALLOC(known);
    *known = (tt_stage_known_t){stage->known, trains, *inputs, *outputs};
    stage->known = known;
    for (int i = 1; i < KNOWN_MAX && known != NULL; i++) {
        known = known->next;
    }
    if (known != NULL && known->next != NULL) {
        tt_free(known->next);
        known->next = NULL;
    }
    return TUTTI_OK;
}

static tutti_status_t refuse(const tutti_pipeline_t *p, const tt_stage_t *stage, const specs_t *was,
                             const specs_t *is)
{
    char before[80], now[80];
    const int i = find_difference(was, is);
    return TT_FAIL(TUTTI_ERR_SHAPE,
                   "stage %d (%s to %s) gives %s %s as output %d, and gave %s %s for inputs of the "
                   "same shapes before",
                   stage->index, p->chain.parts[stage->first].name,
                   p->chain.parts[stage->end - 1].name, tutti_dtype_name(is->specs[i].dtype),
                   tutti_shape_format(is->specs[i].shape, now, sizeof now), i,
                   tutti_dtype_name(was->specs[i].dtype),
                   tutti_shape_format(was->specs[i].shape, before, sizeof before));
}

tutti_status_t tt_stage_check_outputs(tutti_pipeline_t *p, tt_stage_t *stage, int micro_batch)
{
    const tt_cell_t *cell = &stage->cells[micro_batch];
    const tt_segment_t *first = &cell->segments[0],
                       *last = &cell->segments[stage->segment_count - 1];
    const specs_t inputs = specs_of(first->inputs, first->input_count),
                  outputs = specs_of(last->outputs, last->output_count);
    const tt_stage_known_t *known = find(stage, p->trains, &inputs);
    if (known == NULL) {
        return remember(stage, p->trains, &inputs, &outputs);
    }
    return find_difference(&known->outputs, &outputs) < 0
               ? TUTTI_OK
               : refuse(p, stage, &known->outputs, &outputs);
}

void tt_stage_forget(tt_stage_t *stage)
{
    while (stage->known != NULL) {
        tt_stage_known_t *next = stage->known->next;
        tt_free(stage->known);
        stage->known = next;
    }
}
