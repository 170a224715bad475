/* Running a case of an operation (op_cases.h): its inputs, laid out so, its results and gradients.
 *
 *     run_t run;
 *     begin(&run, c, TUTTI_F64, CONTIGUOUS);
 *     … run.outputs[0] … run.grads[0] …
 *     end(&run);
 */
#ifndef TT_OP_CASE_RUN_H
#define TT_OP_CASE_RUN_H

#include "compute/op/ops.h"
#include "core/tensor/device_testing.h"
#include "op_cases.h"

typedef enum { CONTIGUOUS, TRANSPOSED, SLICED, LAYOUT_COUNT } layout_t;

extern const char *const layout_names[LAYOUT_COUNT];

/* A run of a case: its inputs and outputs, in a scope of its own. */
typedef struct {
    const op_case_t *c;
    tutti_context_t *ctx;
    tutti_scope_t *s;
    tutti_dtype_t dtype; /* that TUTTI_F32 stands for */
    layout_t layout;
    int input_count, output_count;
    tutti_tensor_t *inputs[OP_INPUTS_MAX], *outputs[OP_OUTPUTS_MAX], *grads[OP_INPUTS_MAX];
} run_t;

typedef void (*case_fn_t)(const op_case_t *c);

/* All cases, or this run's share of them. */
void for_each_case(case_fn_t fn);

const tutti_op_t *find_op(const char *name);

/* The whole program of a case: inputs, outputs, backward. Its failure is the scope's. */
void perform(run_t *run);

/* Σ weights × outputs, over the outputs that have a gradient; NULL if none has. */
tutti_tensor_t *loss_of(run_t *run);

/* A run in a context and scope of its own; fails the test if the case fails. device NULL: on the
 * host. */
void begin_on(const char *device, run_t *run, const op_case_t *c, tutti_dtype_t dtype,
              layout_t layout);

/* Where TUTTI_TEST_DEVICE says. */
void begin(run_t *run, const op_case_t *c, tutti_dtype_t dtype, layout_t layout);

/* Fails the test if an allocation is left. */
void check_nothing_lives(const char *op, const char *what);
void end(run_t *run);

#endif
