/* Carrying out a plan: rounds of steps. Local steps and those in local ranks' memory are done on
 * the spot; sends and receives move as far as their wires let them, and the round is looked at
 * again later. */
#include <string.h>

#include "comm/exec/coll_exec.h"
#include "core/base/alloc.h"
#include "core/base/cache_size.h"

/* Of a step of the round; POSTED: of a BARRIER that has been posted. */
enum { STEP_OPEN, STEP_POSTED, STEP_DONE };

tutti_status_t tt_coll_open_steps(tt_coll_t *coll)
{
    tt_steps_t *steps = &coll->steps;
    steps->cache_bytes = tt_last_cache_bytes();
    steps->dst = tt_alloc_array((size_t)coll->size, sizeof *steps->dst, "group");
    return steps->dst != NULL ? TUTTI_OK : TUTTI_ERR_NOMEM;
}

void tt_coll_close_steps(tt_coll_t *coll)
{
    tt_steps_t *steps = &coll->steps;
    tt_free(steps->dst);
    tt_free(steps->marks.data);
    tt_plan_round_close(&steps->round);
    tt_free(steps->sources.data);
    tt_free(steps->tree_scratch.data);
    tt_free(coll->rooms[TT_BUFFER_SCRATCH].data);
    tt_free(coll->rooms[TT_BUFFER_SUM].data);
}

/* What was there is not kept. */
static tutti_status_t make_room(tt_room_t *room, size_t bytes)
{
    if (room->bytes < bytes) {
        void *grown = tt_alloc_raw(bytes, "collective scratch");
        TT_TRY_ALLOC(grown);
        tt_free(room->data);
        *room = (tt_room_t){grown, bytes};
    }
    return TUTTI_OK;
}

/* Its steps, none of them done. */
static tutti_status_t enter_round(tt_coll_t *coll, const tt_run_t *run)
{
    const tt_plan_round_t *round = &coll->steps.round;
    TT_TRY(tt_plan_round(run->plan->plan, run->round, &coll->steps.round));
    TT_TRY(make_room(&coll->steps.marks, (size_t)round->count));
    if (round->count > 0) {
        memset(coll->steps.marks.data, 0, (size_t)round->count);
    }
    return TUTTI_OK;
}

/* Used within one step only, so that it may grow while other calls are under way. */
tutti_status_t tt_coll_make_sum_room(tt_coll_t *coll, const tt_plan_t *plan)
{
    TT_TRY(make_room(&coll->steps.sources, (size_t)plan->source_count_max * sizeof(void *)));
    return make_room(&coll->steps.tree_scratch, tt_tree_reduce_scratch_bytes(plan->depth_max));
}

static tutti_status_t prepare(tt_coll_t *coll, const tt_run_t *run)
{
    static const tt_buffer_t own[] = {TT_BUFFER_SCRATCH, TT_BUFFER_SUM};
    const size_t *room = run->plan->plan->room;
    for (int i = 0; i < 2; i++) {
        const size_t element = tt_dtype_bytes(tt_call_dtype(&run->call, own[i]));
        TT_TRY(make_room(&coll->rooms[own[i]], room[own[i]] * element));
    }
    const bool is_staged = room[TT_BUFFER_BOUNCE] > 0 || room[TT_BUFFER_BOUNCE_OUT] > 0;
    return is_staged ? tt_coll_make_bounce_buffers(coll, run) : TUTTI_OK;
}

static void *buffer_of(const tt_coll_t *coll, const tt_run_t *run, tt_part_t part)
{
    if (part.buffer == TT_BUFFER_PIECE) {
        /* only read; the contract of wires and kernels takes const, a part does not */
        union {
            const void *given;
            void *plain;
        } piece = {run->pieces[part.index]};
        return piece.plain;
    }
    return part.buffer == TT_BUFFER_OUT ? run->call.out
                                        : coll->rooms[tt_plan_memory(part.buffer)].data;
}

static size_t part_bytes(const tt_run_t *run, tt_part_t part, size_t count)
{
    return count * tt_dtype_bytes(tt_call_dtype(&run->call, part.buffer));
}

/* The memory of a part of mine; NULL for the empty messages of a barrier, and of an empty buffer.
 */
static void *part_of(const tt_coll_t *coll, const tt_run_t *run, tt_part_t part)
{
    if (run->call.collective == TT_BARRIER) {
        return NULL;
    }
    char *buffer = buffer_of(coll, run, part);
    return buffer != NULL ? buffer + tt_part_begin(&run->call, part) : NULL;
}

/* Of mine or a local rank's; PENDING while the segment it lies in is on its way. */
static tutti_status_t find_memory(const tt_coll_t *coll, const tt_run_t *run,
                                  const tt_place_t *place, void **out)
{
    if (place->rank != coll->rank) {
        return tt_coll_find_memory(coll, run, place, out);
    }
    *out = part_of(coll, run, place->part);
    return TUTTI_OK;
}

/* Whose memory a sum is written to: mine, one local rank's, or all local ranks'. */
static tutti_status_t find_dst(tt_coll_t *coll, const tt_run_t *run, const tt_step_t *step,
                               int *dst_count)
{
    const bool is_for_all = step->to == TT_TO_LOCAL_RANKS;
    const int target = tt_plan_target(run->plan->plan, step);
    tutti_status_t status = TUTTI_OK;
    *dst_count = is_for_all ? coll->local_count : 1;
    for (int i = 0; i < *dst_count && status == TUTTI_OK; i++) {
        const tt_place_t place = {is_for_all ? coll->local_ranks[i] : target, step->dst,
                                  step->count};
        status = find_memory(coll, run, &place, &coll->steps.dst[i]);
    }
    return status;
}

static tutti_status_t find_sources(tt_coll_t *coll, const tt_run_t *run, const tt_step_t *step)
{
    const tt_plan_t *plan = run->plan->plan;
    const void **sources = coll->steps.sources.data;
    for (int i = 0; i < plan->sums[step->sum].count; i++) {
        const tt_source_t source = tt_plan_source(plan, step, i);
        const tt_place_t place = {source.rank, source.part, step->count};
        void *found;
        const tutti_status_t status = find_memory(coll, run, &place, &found);
        if (status != TUTTI_OK) {
            return status;
        }
        sources[i] = found;
    }
    return TUTTI_OK;
}

/* Stops early when a rank has given up: tt_coll_leave will say so. */
static void sum_up(const tt_coll_t *coll, const tt_tree_reduce_t *job, size_t count)
{
    const size_t block = TT_LOOK_BYTES / tt_dtype_bytes(job->src_dtype);
    size_t begin = 0;
    while (count - begin > block && !(coll->lease.is_inside && tt_coll_is_given_up(coll))) {
        tt_tree_reduce(job, begin, begin + block);
        begin += block;
    }
    if (count - begin <= block) {
        tt_tree_reduce(job, begin, count);
    }
}

static tutti_status_t run_reduce(tt_coll_t *coll, const tt_run_t *run, const tt_step_t *step)
{
    const tt_call_t *call = &run->call;
    const tt_plan_sum_t *sum = &run->plan->plan->sums[step->sum];
    int dst_count;
    tutti_status_t status = find_sources(coll, run, step);
    if (status == TUTTI_OK) {
        status = find_dst(coll, run, step, &dst_count);
    }
    if (status != TUTTI_OK) {
        return status;
    }
    const tt_tree_reduce_t job = {
        .kernels = coll->kernels,
        .src_dtype = tt_call_dtype(call, sum->sources[0].part.buffer),
        .dst_dtype = tt_call_dtype(call, step->dst.buffer),
        .reduction = sum->is_partial && call->reduction == TUTTI_AVG ? TUTTI_SUM : call->reduction,
        .custom = call->custom,
        .leaves = sum->leaves,
        .source_count = sum->count,
        .sources = coll->steps.sources.data,
        .merges = sum->merges,
        .dst_count = dst_count,
        .dst = coll->steps.dst,
        .scratch = coll->steps.tree_scratch.data,
    };
    sum_up(coll, &job, step->count);
    return TUTTI_OK;
}

typedef void (*copy_fn_t)(void *dst, const void *src, size_t bytes);

static void move_bytes(void *dst, const void *src, size_t bytes)
{
    memmove(dst, src, bytes);
}

/* What all local ranks read and write, taking them to be equal. */
static size_t footprint(const tt_coll_t *coll, const tt_run_t *run)
{
    const tt_call_t *call = &run->call;
    const size_t in = run->plan->piece_elements * tt_dtype_bytes(call->dtype);
    const size_t out = run->plan->out_elements * tt_dtype_bytes(call->out_dtype);
    const uintptr_t piece = (uintptr_t)run->pieces[0], result = (uintptr_t)call->out;
    const bool is_inside = call->piece_count > 0 && piece >= result && piece < result + out;
    return (out + (is_inside ? 0 : in)) * (size_t)coll->local_count;
}

/* A result that the cache cannot hold is stored around it (a sum is not: its lines are there, for
 * they were read). Only inside one buffer can the two overlap. */
static copy_fn_t copy_of(const tt_coll_t *coll, const tt_run_t *run, const tt_step_t *step)
{
    const bool is_result = step->dst.buffer == TT_BUFFER_OUT && step->src.buffer != TT_BUFFER_OUT;
    return is_result && footprint(coll, run) > coll->steps.cache_bytes ? coll->kernels->copy_stream
                                                                       : move_bytes;
}

/* Out of or into another rank's memory, which does not overlap; stops early as sum_up does. */
static void copy_by_blocks(const tt_coll_t *coll, copy_fn_t copy, void *dst, const void *src,
                           size_t bytes)
{
    size_t done = 0;
    while (bytes - done > TT_LOOK_BYTES && !tt_coll_is_given_up(coll)) {
        copy((char *)dst + done, (const char *)src + done, TT_LOOK_BYTES);
        done += TT_LOOK_BYTES;
    }
    if (bytes - done <= TT_LOOK_BYTES) {
        copy((char *)dst + done, (const char *)src + done, bytes - done);
    }
}

static void copy_to(const tt_coll_t *coll, const tt_run_t *run, const tt_step_t *step, void *dst,
                    const void *src)
{
    const size_t bytes = part_bytes(run, step->dst, step->count);
    if (dst == src || bytes == 0) {
        return;
    }
    if (coll->lease.is_inside && step->kind != TT_STEP_COPY && step->peer != coll->rank) {
        copy_by_blocks(coll, copy_of(coll, run, step), dst, src, bytes);
    } else {
        copy_of(coll, run, step)(dst, src, bytes);
    }
}

/* COPY, GET and PUT. */
static tutti_status_t run_move(const tt_coll_t *coll, const tt_run_t *run, const tt_step_t *step)
{
    const tt_plan_t *plan = run->plan->plan;
    tt_place_t from = {tt_plan_read(plan, step, 0).rank, step->src, step->count};
    const tt_place_t to = {tt_plan_target(plan, step), step->dst, step->count};
    void *src, *dst;
    tutti_status_t status = TUTTI_OK;
    if (from.part.index == TT_FROM_TABLE) {
        from.part.index = 0;
        from.part.offset = tt_plan_part(&plan->request, coll->rank).begin;
        if (step->peer != coll->rank) {
            status = tt_coll_look_up(coll, run, step, &from.part.offset);
        }
    }
    if (status != TUTTI_OK || step->count == 0) {
        return status;
    }
    status = find_memory(coll, run, &from, &src);
    if (status == TUTTI_OK) {
        status = find_memory(coll, run, &to, &dst);
    }
    if (status == TUTTI_OK) {
        copy_to(coll, run, step, dst, src);
    }
    return status;
}

/* The phase is posted once; a mark says so. */
static tutti_status_t run_barrier(tt_coll_t *coll, const tt_run_t *run, const tt_step_t *step)
{
    unsigned char *mark =
        (unsigned char *)coll->steps.marks.data + (step - coll->steps.round.steps);
    const uint64_t phase = tt_phase(run->sequence, run->round);
    if (*mark == STEP_OPEN) {
        *mark = STEP_POSTED;
        tt_coll_post_phase(coll, phase);
    }
    return tt_coll_have_reached(coll, phase) ? TUTTI_OK : TUTTI_PENDING;
}

/* Steps in the memory of other ranks are done inside. All others are done outside: they tell others
 * something, or may take long. */
static tutti_status_t enter_or_leave(tt_coll_t *coll, const tt_run_t *run, tt_step_kind_t kind)
{
    const tt_algorithm_t *algorithm = run->plan->plan->algorithm;
    bool is_fine = true;
    if (kind != TT_STEP_GET && kind != TT_STEP_PUT && kind != TT_STEP_REDUCE) {
        is_fine = tt_coll_leave(coll);
    } else if (algorithm->shares_memory && !algorithm->travels_in_flags && !coll->lease.is_inside) {
        is_fine = tt_coll_enter(coll);
    }
    return is_fine ? TUTTI_OK : tt_coll_refuse();
}

/* OK when the step is done. */
static tutti_status_t run_step(tt_coll_t *coll, tt_run_t *run, const tt_step_t *step)
{
    const tutti_status_t entered = enter_or_leave(coll, run, step->kind);
    if (entered != TUTTI_OK) {
        return entered;
    }
    switch (step->kind) {
    case TT_STEP_SEND:
        return tt_coll_send(coll, run, step, part_of(coll, run, step->src),
                            part_bytes(run, step->src, step->count));
    case TT_STEP_RECV:
        return tt_coll_recv(coll, run, step, part_of(coll, run, step->dst),
                            part_bytes(run, step->dst, step->count));
    case TT_STEP_COPY:
    case TT_STEP_GET:
    case TT_STEP_PUT:
        return run_move(coll, run, step);
    case TT_STEP_REDUCE:
        return run_reduce(coll, run, step);
    case TT_STEP_BARRIER:
        return run_barrier(coll, run, step);
    }
    return TUTTI_OK;
}

static bool uses_wire(const tt_step_t *step)
{
    return step->kind == TT_STEP_SEND || step->kind == TT_STEP_RECV;
}

bool tt_coll_awaits(const tt_coll_t *coll, const tt_run_t *run, int rank)
{
    if (run->state != TT_RUN_RUNNING || run->plan == NULL) {
        return false;
    }
    const tt_plan_t *plan = run->plan->plan;
    if (run->round < 0 || run->round >= plan->rounds || !coll->steps.is_in_round) {
        return false;
    }
    const unsigned char *marks = coll->steps.marks.data;
    for (int i = 0; i < coll->steps.round.count; i++) {
        const tt_step_t *step = &coll->steps.round.steps[i];
        if (uses_wire(step) && step->peer == rank && marks[i] != STEP_DONE) {
            return true;
        }
    }
    return false;
}

static void unblock_links(tt_coll_t *coll, const tt_plan_round_t *round)
{
    for (int i = 0; i < round->count; i++) {
        if (uses_wire(&round->steps[i])) {
            tt_link_t *link = &coll->links.all[round->steps[i].peer];
            link->is_blocked_in = link->is_blocked_out = false;
        }
    }
}

/* All steps of the round once; OK when all are done. */
static tutti_status_t run_round(tt_coll_t *coll, tt_run_t *run)
{
    const tt_plan_round_t *round = &coll->steps.round;
    unsigned char *marks = coll->steps.marks.data;
    tutti_status_t result = TUTTI_OK;
    unblock_links(coll, round);
    for (int i = 0; i < round->count; i++) {
        if (marks[i] == STEP_DONE) {
            continue;
        }
        const tutti_status_t status = run_step(coll, run, &round->steps[i]);
        if (status < 0) {
            return status;
        }
        if (status == TUTTI_OK) {
            marks[i] = STEP_DONE;
        } else {
            result = TUTTI_PENDING;
        }
    }
    return result;
}

/* No books are kept: if a step must wait, those before it are done again. */
static tutti_status_t run_at_once(tt_coll_t *coll, tt_run_t *run)
{
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; i < run->plan->plan->step_count && status == TUTTI_OK; i++) {
        status = run_step(coll, run, &run->plan->plan->steps[i]);
    }
    return status;
}

static tutti_status_t run_rounds(tt_coll_t *coll, tt_run_t *run)
{
    const tt_plan_t *plan = run->plan->plan;
    if (run->round < 0) {
        TT_TRY(prepare(coll, run));
        run->round = 0;
        coll->steps.is_in_round = false;
    }
    while (run->round < plan->rounds) {
        if (!coll->steps.is_in_round) {
            TT_TRY(enter_round(coll, run));
            coll->steps.is_in_round = true;
        }
        tt_record_progress(&coll->block->records, run->op.record, TT_RECORD_RUNNING, run->round);
        const tutti_status_t status = run_round(coll, run);
        if (status != TUTTI_OK) {
            return status;
        }
        run->round++;
        coll->steps.is_in_round = false;
    }
    return TUTTI_OK;
}

/* One sum, or one round of gets and puts, which may be done twice: most calls on one host are such.
 */
static bool is_repeatable(const tt_plan_t *plan)
{
    int moves = 0;
    for (int i = 0; i < plan->step_count; i++) {
        moves += plan->steps[i].kind == TT_STEP_GET || plan->steps[i].kind == TT_STEP_PUT;
    }
    const bool is_sum = plan->step_count == 1 && plan->steps[0].kind == TT_STEP_REDUCE;
    return plan->rounds == 1 && !plan->is_made_by_rounds && (is_sum || moves == plan->step_count);
}

tt_execute_fn_t tt_coll_executor(const tt_plan_t *plan)
{
    return is_repeatable(plan) ? run_at_once : run_rounds;
}
