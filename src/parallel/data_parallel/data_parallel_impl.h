/* The inside of DataParallel.
 *
 *     replicas.c       the team: contexts and modules of the replicas, over the original's memory
 *     replica_run.c    one forward of the team, and its backward: what each replica does
 *     replica_node.c   the run as a node in the caller's graph, and how results are laid out
 *     replica_sum.c    gradients of the replicas into one, by the canonical tree
 */
#ifndef TT_DATA_PARALLEL_IMPL_H
#define TT_DATA_PARALLEL_IMPL_H

#include <tutti/data_parallel.h>

#include "compute/autograd/op_call.h"
#include "core/base/ref.h"
#include "core/tensor/tensor_impl.h"
#include "core/tensor/tensor_list.h"
#include "parallel/data_parallel/thread_team.h"

/* What of a parameter, or of a buffer, a replica has copied, and what its own one was then. */
typedef struct {
    const tt_storage_t *storage;
    uint32_t version, own_version;
    tt_event_t before, behind; /* of the copy; without a stream: it was made at once */
} tt_replicated_t;

typedef struct {
    tutti_context_t *ctx;
    tutti_module_t *module;
    tt_tensor_list_t params, buffers; /* in the original's order */
    tt_replicated_t *replicated;      /* [params + buffers] */
} tt_replica_t;

/* Runs hold it too, for a graph may outlive the wrapper. */
typedef struct {
    tt_ref_t ref;
    tutti_module_t *original;
    tt_tensor_list_t params, buffers; /* the original's */
    int count;
    int threads; /* of each */
    tt_replica_t replicas[TUTTI_DATA_PARALLEL_MAX];
    tt_thread_team_t *team;
} tt_replicas_t;

tutti_status_t tt_replicas_new(tutti_module_t *original,
                               const tutti_data_parallel_options_t *options, tt_replicas_t **out);
void tt_replicas_release(tt_replicas_t *team);

/* Where replica `index` is computed; that of the first is the original's. NULL: on the host. */
static inline tt_device_t *tt_replica_device(const tt_replicas_t *team, int index)
{
    return team->replicas[index].ctx->home;
}

tutti_status_t tt_replicas_update(tt_replicas_t *team);

/* Replicas' threads launch on their devices' own streams: the caller must, too. Errors:
 * UNSUPPORTED.
 */
tutti_status_t tt_replicas_check_streams(const tt_replicas_t *team);

/* What a replica has of a run. */
typedef struct {
    struct tt_replica_run *run;
    tutti_tensor_t **inputs;       /* [input_count], leaves of the replica's graph */
    tutti_tensor_t **outputs;      /* [output_count] until they are put together */
    tutti_tensor_t **grad_outputs; /* [output_count] in backward: the outputs' gradients, or NULL */
    tutti_spec_t *specs;           /* [output_count] of the outputs */
    tutti_tensor_t *root;          /* of the replica's graph; NULL: nothing to learn */
    tutti_status_t status;
    char error[TT_ERROR_TEXT_BYTES];
} tt_replica_part_t;

typedef struct tt_replica_run {
    tt_ref_t ref;
    tt_replicas_t *team;  /* retained */
    tutti_context_t *ctx; /* the caller's, while the team works */
    int count;            /* replicas that run */
    int input_count, output_count;
    int dim;           /* along which inputs were cut; < 0: they were not */
    int out_dim;       /* as given: outputs are put together along it, or along that from behind */
    bool retain_graph; /* in backward */
    tt_replica_part_t parts[TUTTI_DATA_PARALLEL_MAX];
    tutti_tensor_t **sums; /* [params], retained; NULL: no gradient came */
} tt_replica_run_t;

tutti_status_t tt_replica_run_new(tt_replicas_t *team, int count, int input_count, int output_count,
                                  tt_replica_run_t **out);
void tt_replica_run_release(tt_replica_run_t *run);

/* In the place of *x, owned by the caller: the same values on a device, if they lie elsewhere. */
tutti_status_t tt_replica_move(tt_device_t *device, tutti_tensor_t **x);

/* All parts have their inputs. Afterwards all have their outputs, the same in number and dtype. */
tutti_status_t tt_replica_run_forward(tutti_scope_t *s, tt_replica_run_t *run);

/* Parts have their grad_outputs. Afterwards the inputs have gradients, and `sums` are there. */
tutti_status_t tt_replica_run_backward(tutti_scope_t *s, tt_replica_run_t *run);

/* A tensor without gradient is a sum without one; in `sums` afterwards, and nowhere else. */
tutti_status_t tt_replica_sum(tutti_scope_t *s, tt_replica_run_t *run);

/* The run in the caller's graph, its outputs put together. `inputs` are the caller's: those that
 * were cut if dim >= 0, else one for each replica. */
void tt_replica_run_record(tutti_scope_t *s, tt_replica_run_t *run, tutti_tensor_t *const *inputs,
                           tutti_tensor_t **outputs);

#endif
