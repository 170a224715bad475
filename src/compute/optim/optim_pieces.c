/* Pieces of a parameter's step, cut for the threads of whoever runs it.
 *
 *     measure    at most 256 sections of at least 16384 elements, by the number of elements alone;
 *                their sums are added in order
 *     update     parts of 16384 elements, of 65536 where there are many
 */
#include <string.h>

#include "compute/optim/optimizer.h"
#include "core/base/integers.h"

enum { PART = TUTTI_OPTIM_SECTION, PARTS_MANY = 64 };

typedef struct {
    const tutti_optim_ops_t *ops;
    tutti_optim_piece_t whole;
    size_t length; /* of a part, but for the last */
    double *sums;  /* [TUTTI_OPTIM_SUMS_MAX] of each */
} job_t;

static tutti_optim_piece_t part_of(const tutti_optim_piece_t *piece, size_t first, size_t count)
{
    tutti_optim_piece_t part = *piece;
    part.first += first;
    part.count = tt_min_size(part.count - first, count);
    part.weight += first;
    part.gradient += first;
    for (int i = 0; i < TT_MOMENTS_MAX; i++) {
        part.moments[i] = part.moments[i] == NULL ? NULL : part.moments[i] + first;
    }
    return part;
}

static void measure_part(void *arg, size_t index)
{
    const job_t *job = arg;
    const tutti_optim_piece_t part = part_of(&job->whole, index * job->length, job->length);
    job->ops->measure(&part, job->sums + TUTTI_OPTIM_SUMS_MAX * index);
}

static void update_part(void *arg, size_t index)
{
    const job_t *job = arg;
    const tutti_optim_piece_t part = part_of(&job->whole, index * job->length, job->length);
    job->ops->update(&part);
}

void tt_optim_measure_now(const tutti_optim_ops_t *ops, tt_threads_t *threads,
                          const tutti_optim_piece_t *piece, size_t length, double *sums)
{
    const size_t sections = tt_divide_up(piece->count, length);
    job_t job = {ops, *piece, length, sums};
    memset(sums, 0, sections * TUTTI_OPTIM_SUMS_MAX * sizeof *sums);
    tt_threads_run(threads, sections, measure_part, &job);
}

void tt_optim_add_sections(const double *sections, size_t count, double *sums)
{
    for (size_t i = 0; i < count; i++) {
        for (int k = 0; k < TUTTI_OPTIM_SUMS_MAX; k++) {
            sums[k] += sections[TUTTI_OPTIM_SUMS_MAX * i + (size_t)k];
        }
    }
}

void tt_optim_update_now(const tutti_optim_ops_t *ops, tt_threads_t *threads,
                         const tutti_optim_piece_t *piece)
{
    if (ops->wants_whole) {
        ops->update(piece);
        return;
    }
    job_t job = {ops, *piece, piece->count < (size_t)PARTS_MANY * PART ? PART : 4 * PART, NULL};
    tt_threads_run(threads, tt_divide_up(piece->count, job.length), update_part, &job);
}

tutti_optim_piece_t tt_optim_piece_of(tutti_optim_t *opt, const tt_optim_slot_t *slot,
                                      const tutti_tensor_t *grad)
{
    const tutti_tensor_t *weight = slot->master == NULL ? tt_optim_weight(slot) : slot->master;
    tutti_optim_piece_t piece = {.ctx = weight->storage->device == NULL ? opt->ctx : NULL,
                                 .lr = opt->groups[slot->group].lr,
                                 .step = slot->step + 1,
                                 .shape = slot->tensor->shape,
                                 .first = weight->part == NULL ? 0 : (size_t)weight->part->first,
                                 .count = (size_t)weight->numel,
                                 .weight = tt_tensor_data(weight),
                                 .gradient = tt_tensor_data(grad)};
    for (int i = 0; i < TT_MOMENTS_MAX; i++) {
        const tutti_tensor_t *moment = slot->moments[i];
        piece.moments[i] = moment == NULL ? NULL : tt_tensor_data(moment);
    }
    return piece;
}
