/* What tutti_parallelize() does to one module: planned, checked, made, then put in place at once.
 *
 *     tp_plan.c     which modules: by rules, or by their kinds      items without dimensions
 *     tp_flow.c     which dropout layers get parts, and of what     items without a style
 *     tp_style.c    what a style does to a kind of module           dimensions, checked
 *     tp_holders.c  who must not be left out                        an error
 *     tp_cut.c      this rank's part of each parameter              tensors
 *     tp_layers.c   forward of layers that are cut
 *     parallelize.c all of it, agreed upon by the ranks
 */
#ifndef TT_TP_ITEM_H
#define TT_TP_ITEM_H

#include <tutti/tensor_parallel.h>

#include "compute/nn/module_impl.h"
#include "parallel/tensor/tp_ops.h"

/* What hangs on a module that is cut. */
typedef struct {
    tt_module_cut_t base;
    tt_tp_linear_t how; /* its group is retained */
    bool is_sequence_cut;
    tutti_redistribution_t prepared[2]; /* of input and result */
    bool is_prepared[2];
} tt_tp_cut_t;

enum { TT_TP_PARAMETERS_MAX = 2 };

/* A parameter that is cut, and this rank's part of it. */
typedef struct {
    const char *name; /* in its module */
    tutti_tensor_t *tensor, *part;
    int dim; /* -1: every rank has all of it */
} tt_tp_parameter_t;

typedef struct {
    char name[TT_MODULE_NAME_BYTES];
    tutti_module_t *m;
    tutti_parallel_rule_t rule;
    tt_tp_t tp;
    bool is_sequence_cut;
    tt_share_t heads;                 /* of m, an attention; of 0: none */
    tt_share_t columns;               /* of m, a dropout layer; of 0: none */
    bool drops;                       /* m drops out its result, a part of the sequence */
    const tutti_module_t *columns_of; /* m drops out columns as this one has them, a sibling */

    /* Of the style: */
    const tutti_module_ops_t *ops; /* that m gets; NULL: its own */
    tt_tp_dim_t dim;
    tt_tp_parameter_t parameters[TT_TP_PARAMETERS_MAX];
    int parameter_count;
    tt_tp_cut_t *cut; /* made; NULL once it hangs on m */
} tt_tp_item_t;

typedef struct {
    tt_tp_item_t *items; /* [count] */
    size_t count, capacity;
    bool is_sequence_cut;
} tt_tp_plan_t;

/* Which modules below m are cut: items with a rule each. Errors: NOT_FOUND, UNSUPPORTED, ARG,
 * NOMEM. The plan is closed by the caller, also after a failure. */
tutti_status_t tt_tp_plan_open(tutti_module_t *m, const tt_tp_t *tp,
                               const tutti_parallel_options_t *o, tt_tp_plan_t *plan);
void tt_tp_plan_close(tt_tp_plan_t *plan);

/* Whether all modules below m can go on with the parameters that they will have, once styles were
 * applied. Errors: ARG, STATE. */
tutti_status_t tt_tp_plan_check(tutti_module_t *m, tt_tp_plan_t *plan);

/* An item of a module, of that style; NULL: none. */
tt_tp_item_t *tt_tp_item_of(const tt_tp_plan_t *plan, const tutti_module_t *m,
                            tutti_parallel_style_t style);

/* Dropout layers below m: what they are given is whole, a part of the sequence, or of columns.
 * `found` is called for those that need an item: columns_of is the layer that made the columns,
 * NULL for the sequence. Errors: UNSUPPORTED (it is not known), those of found. */
typedef struct {
    const tt_tp_plan_t *plan;
    tutti_status_t (*found)(void *user, const tutti_module_t *dropout,
                            const tutti_module_t *columns_of);
    const char *(*name_of)(void *user, const tutti_module_t *m);
    void *user;
} tt_tp_flow_t;
tutti_status_t tt_tp_flow(const tt_tp_flow_t *flow, const tutti_module_t *m);

/* Whether a style takes a kind of module. */
bool tt_tp_style_takes(tutti_parallel_style_t style, const tutti_module_t *m);

/* Whether a style was applied to m before. */
bool tt_tp_is_cut(const tutti_module_t *m);

/* What the item's style does to its module. Errors: ARG, STATE, UNSUPPORTED. */
tutti_status_t tt_tp_style_apply(tt_tp_item_t *item);

/* Memory for all that the item changes: parts of parameters, what hangs on m. Errors: NOMEM. */
tutti_status_t tt_tp_cut_make(tt_tp_item_t *item);

/* The item's changes; does not fail. */
void tt_tp_cut_commit(tt_tp_item_t *item);

/* Something to hang on a module, in front of what hangs there or behind the first. Errors: NOMEM.
 */
tutti_status_t tt_tp_cut_new(const tt_tp_t *tp, tt_tp_cut_t **out);
void tt_tp_cut_hang(tutti_module_t *m, tt_tp_cut_t *cut, bool is_first);

/* The spread of a parameter, NULL for one that every rank has; who has it. */
const tt_tp_linear_t *tt_tp_spread_of(const tutti_tensor_t *x);

extern const tutti_module_ops_t tt_column_linear_layer, tt_row_linear_layer,
    tt_vocabulary_embedding_layer, tt_sequence_layer_norm_layer, tt_sequence_rms_norm_layer,
    tt_sequence_positions_layer;

#endif
