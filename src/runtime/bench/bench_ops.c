/* What `tutti bench` can measure: one line of the table for each op. Sizes and factors are those of
 * nccl-tests: where each rank has a part, the size is that of all parts together, and the factor is
 * what a link must carry of it.
 */
#include "runtime/bench/bench_impl.h"

#include <string.h>

#include <tutti/collectives.h>
#include <tutti/messages.h>

/* ---- busbw / algbw ---- */

static double once(int ranks)
{
    (void)ranks;
    return 1;
}

static double others_parts(int ranks)
{
    return (double)(ranks - 1) / ranks;
}

static double twice_others_parts(int ranks)
{
    return 2 * others_parts(ranks);
}

/* ---- where results come from ---- */

static tt_bench_origin_t from_same_place(const tt_bench_shape_t *shape, size_t i)
{
    return (tt_bench_origin_t){shape->rank, i};
}

static tt_bench_origin_t from_root(const tt_bench_shape_t *shape, size_t i)
{
    return (tt_bench_origin_t){shape->root, i};
}

static tt_bench_origin_t from_my_part(const tt_bench_shape_t *shape, size_t i)
{
    return (tt_bench_origin_t){shape->root, (size_t)shape->rank * shape->count + i};
}

static tt_bench_origin_t from_each_for_me(const tt_bench_shape_t *shape, size_t i)
{
    return (tt_bench_origin_t){(int)(i / shape->count),
                               (size_t)shape->rank * shape->count + i % shape->count};
}

static tt_bench_origin_t from_last_rank(const tt_bench_shape_t *shape, size_t i)
{
    return (tt_bench_origin_t){(shape->rank + shape->size - 1) % shape->size, i};
}

static tt_bench_origin_t from_each(const tt_bench_shape_t *shape, size_t i)
{
    return (tt_bench_origin_t){(int)(i / shape->count), i % shape->count};
}

/* ---- calls ---- */

static tutti_status_t all_reduce(tutti_group_t *group, const tutti_bench_options_t *options,
                                 tutti_tensor_t *out, tutti_tensor_t *in)
{
    (void)in;
    return tutti_all_reduce(group, out, options->reduction, NULL);
}

static tutti_status_t reduce_scatter(tutti_group_t *group, const tutti_bench_options_t *options,
                                     tutti_tensor_t *out, tutti_tensor_t *in)
{
    return tutti_reduce_scatter(group, out, in, options->reduction, NULL);
}

static tutti_status_t all_gather(tutti_group_t *group, const tutti_bench_options_t *options,
                                 tutti_tensor_t *out, tutti_tensor_t *in)
{
    (void)options;
    return tutti_all_gather(group, out, in, NULL);
}

static tutti_status_t broadcast(tutti_group_t *group, const tutti_bench_options_t *options,
                                tutti_tensor_t *out, tutti_tensor_t *in)
{
    (void)in;
    return tutti_broadcast(group, out, options->root, NULL);
}

static tutti_status_t all_to_all(tutti_group_t *group, const tutti_bench_options_t *options,
                                 tutti_tensor_t *out, tutti_tensor_t *in)
{
    (void)options;
    return tutti_all_to_all(group, out, in, NULL);
}

static tutti_status_t reduce(tutti_group_t *group, const tutti_bench_options_t *options,
                             tutti_tensor_t *out, tutti_tensor_t *in)
{
    (void)out; /* the root's alone, and the same tensor */
    return tutti_reduce(group, in, options->reduction, options->root, NULL);
}

static tutti_status_t scan(tutti_group_t *group, const tutti_bench_options_t *options,
                           tutti_tensor_t *out, tutti_tensor_t *in)
{
    (void)in;
    return tutti_scan(group, out, options->reduction, NULL);
}

static tutti_status_t exscan(tutti_group_t *group, const tutti_bench_options_t *options,
                             tutti_tensor_t *out, tutti_tensor_t *in)
{
    (void)in;
    return tutti_exscan(group, out, options->reduction, NULL);
}

static tutti_status_t gather(tutti_group_t *group, const tutti_bench_options_t *options,
                             tutti_tensor_t *out, tutti_tensor_t *in)
{
    return tutti_gather(group, out, in, options->root, NULL);
}

static tutti_status_t scatter(tutti_group_t *group, const tutti_bench_options_t *options,
                              tutti_tensor_t *out, tutti_tensor_t *in)
{
    return tutti_scatter(group, out, in, options->root, NULL);
}

/* Around a ring, all at the same time. Alone there is nobody to send to. */
static tutti_status_t send_recv(tutti_group_t *group, const tutti_bench_options_t *options,
                                tutti_tensor_t *out, tutti_tensor_t *in)
{
    (void)options;
    const int rank = tutti_group_rank(group), size = tutti_group_size(group);
    if (size == 1) {
        return tutti_tensor_copy(out, in);
    }
    const tutti_transfer_t transfers[] = {{TUTTI_RECV, out, (rank + size - 1) % size, 0},
                                          {TUTTI_SEND, in, (rank + 1) % size, 0}};
    return tutti_batch_send_recv(group, transfers, 2, NULL);
}

static tutti_status_t barrier(tutti_group_t *group, const tutti_bench_options_t *options,
                              tutti_tensor_t *out, tutti_tensor_t *in)
{
    (void)options, (void)out, (void)in;
    return tutti_barrier(group, NULL);
}

static const tt_bench_op_t ops[] = {
    {.name = "all_reduce",
     .about = "the sum of all ranks' arrays, on every rank",
     .collective = TT_ALL_REDUCE,
     .reduces = true,
     .place = TT_BENCH_SAME,
     .factor = twice_others_parts,
     .origin = from_same_place,
     .call = all_reduce},
    {.name = "reduce_scatter",
     .about = "the sum of all ranks' arrays, a part on each rank",
     .collective = TT_REDUCE_SCATTER,
     .reduces = true,
     .in_is_all = true,
     .place = TT_BENCH_OUT_IN_IN,
     .factor = others_parts,
     .origin = from_my_part,
     .call = reduce_scatter},
    {.name = "all_gather",
     .about = "all ranks' parts, on every rank",
     .collective = TT_ALL_GATHER,
     .out_is_all = true,
     .place = TT_BENCH_IN_IN_OUT,
     .factor = others_parts,
     .origin = from_each,
     .call = all_gather},
    {.name = "broadcast",
     .about = "the root's array, on every rank",
     .collective = TT_BROADCAST,
     .has_root = true,
     .place = TT_BENCH_SAME,
     .factor = once,
     .origin = from_root,
     .call = broadcast},
    {.name = "all_to_all",
     .about = "a part from every rank, on every rank",
     .collective = TT_ALL_TO_ALL,
     .in_is_all = true,
     .out_is_all = true,
     .factor = others_parts,
     .origin = from_each_for_me,
     .call = all_to_all},
    {.name = "reduce",
     .about = "the sum of all ranks' arrays, on the root",
     .collective = TT_REDUCE,
     .reduces = true,
     .has_root = true,
     .out_at_root = true,
     .place = TT_BENCH_SAME,
     .factor = once,
     .origin = from_same_place,
     .call = reduce},
    {.name = "gather",
     .about = "all ranks' parts, on the root",
     .collective = TT_GATHER,
     .has_root = true,
     .out_is_all = true,
     .out_at_root = true,
     .place = TT_BENCH_IN_IN_OUT,
     .factor = others_parts,
     .origin = from_each,
     .call = gather},
    {.name = "scatter",
     .about = "the root's parts, one on each rank",
     .collective = TT_SCATTER,
     .has_root = true,
     .in_is_all = true,
     .in_at_root = true,
     .place = TT_BENCH_OUT_IN_IN,
     .factor = others_parts,
     .origin = from_my_part,
     .call = scatter},
    {.name = "scan",
     .about = "the sum of the arrays of the ranks up to this one",
     .collective = TT_SCAN,
     .reduces = true,
     .place = TT_BENCH_SAME,
     .factor = once,
     .origin = from_same_place,
     .call = scan},
    {.name = "exscan",
     .about = "the sum of the arrays of the ranks before this one",
     .collective = TT_EXSCAN,
     .reduces = true,
     .place = TT_BENCH_SAME,
     .factor = once,
     .origin = from_same_place,
     .call = exscan},
    {.name = "send_recv",
     .about = "a message to the next rank and one from the last, around a ring",
     .collective = -1,
     .factor = once,
     .origin = from_last_rank,
     .call = send_recv},
    {.name = "barrier",
     .about = "nobody goes on before all have come",
     .collective = TT_BARRIER,
     .factor = once, /* of no bytes */
     .call = barrier},
};

enum { OP_COUNT = sizeof ops / sizeof ops[0] };

const tt_bench_op_t *tt_bench_op_find(const char *name)
{
    for (size_t i = 0; i < OP_COUNT; i++) {
        if (strcmp(ops[i].name, name) == 0) {
            return &ops[i];
        }
    }
    return NULL;
}

tutti_status_t tutti_bench_op_at(size_t index, tutti_bench_op_t *out)
{
    if (index >= OP_COUNT) {
        return TUTTI_END;
    }
    const tt_bench_op_t *op = &ops[index];
    *out = (tutti_bench_op_t){op->name, op->about, op->reduces, op->has_root, op->origin != NULL};
    return TUTTI_OK;
}
