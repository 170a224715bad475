/* The source that works anywhere: a flat is gathered from all ranks into memory that they share,
 * and given back when nobody reads it. On one rank the slice is the whole.
 *
 * In 16 bits the slices are rounded first, and travel so: half of the bytes. What a rank has
 * rounded it keeps until it is stepped.
 *
 * Where slices lie elsewhere (source->bring), own and what is rounded are there from start until
 * the gathering has ended; on one rank, until the whole goes.
 *
 * What stays near is copied out of the whole, a part for each rank of the set, and gathered by a
 * group of the set:
 *
 *     slices    | 0 | 1 | 2 | 3 |     of all ranks
 *     parts     |   0   |   1   |     of ranks 0 and 1, and once more of ranks 2 and 3
 *
 * Cost: of N bytes on W ranks each sends, and receives, about N (W − 1) / W; of what is near on k
 * ranks N (k − 1) / k. */
#include <string.h>

#include "comm/group/agree.h"
#include "comm/group/transient.h"
#include "core/base/alloc.h"
#include "parallel/ddp/unit_slice_copy.h"
#include "parallel/ddp/unit_source.h"

typedef struct {
    tt_slice_copy_t low; /* [counts[rank]] in the dtype of COMPUTE */
    tutti_tensor_t *coming[TT_UNIT_KINDS];
    tutti_work_t *works[TT_UNIT_KINDS];
    tutti_tensor_t *near[TT_UNIT_KINDS]; /* this rank's part, from keep until it has come again */
} place_t;

typedef struct {
    place_t *places;      /* [flat_count] */
    int64_t *near_counts; /* [flat_count × near_ranks] */
} gather_t;

enum { ALIGN = 16 }; /* elements: parts begin at multiples */

static const char unused[] = "it is being gathered";
static const char elsewhere[] = "it lies on a disk (options.offload)";

static place_t *place_of(const tt_unit_source_t *source, int flat)
{
    return &((gather_t *)source->state)->places[flat];
}

/* ---- opening and closing --------------------------------------------------------------------- */

static tutti_status_t new_part(const tt_unit_source_t *source, int index, tt_unit_kind_t kind,
                               tutti_tensor_t **out)
{
    const tt_unit_flat_t *flat = &source->flats[index];
    const tutti_shape_t shape = TUTTI_SHAPE(flat->counts[tutti_group_rank(source->group)]);
    return source->bring != NULL
               ? tt_group_tensor_away(flat->dtypes[kind], shape, elsewhere, out)
               : tutti_group_tensor(source->group, flat->dtypes[kind], shape, out);
}

static tutti_status_t open_flat(const tt_unit_source_t *source, int index)
{
    tt_unit_flat_t *flat = &source->flats[index];
    place_t *place = place_of(source, index);
    TT_TRY(new_part(source, index, TT_UNIT_FULL, &flat->own));
    return flat->dtypes[TT_UNIT_COMPUTE] == flat->dtypes[TT_UNIT_FULL]
               ? TUTTI_OK
               : new_part(source, index, TT_UNIT_COMPUTE, &place->low.tensor);
}

static tutti_status_t open_all(tt_unit_source_t *source)
{
    gather_t *gather = source->state;
    gather->places = tt_alloc_array((size_t)source->flat_count, sizeof(place_t), "unit gather");
    TT_TRY_ALLOC(gather->places);
    for (int i = 0; i < source->flat_count; i++) {
        TT_TRY(open_flat(source, i));
    }
    return TUTTI_OK;
}

static int64_t near_begin(int64_t numel, int ranks, int rank)
{
    return rank == ranks ? numel : numel * rank / ranks / ALIGN * ALIGN;
}

static tutti_status_t cut_parts(const tt_unit_source_t *source)
{
    gather_t *gather = source->state;
    const int ranks = source->near_ranks;
    const size_t count = (size_t)source->flat_count * (size_t)ranks;
    gather->near_counts = tt_alloc_array(count, sizeof(int64_t), "unit gather");
    TT_TRY_ALLOC(gather->near_counts);
    for (size_t i = 0; i < count; i++) {
        const int64_t numel = source->flats[i / (size_t)ranks].numel;
        const int rank = (int)(i % (size_t)ranks);
        gather->near_counts[i] =
            near_begin(numel, ranks, rank + 1) - near_begin(numel, ranks, rank);
    }
    return TUTTI_OK;
}

static tutti_status_t open_gather(tt_unit_source_t *source)
{
    const int me = tutti_group_rank(source->group), ranks = source->near_ranks;
    TT_TRY(tt_group_agree(source->group, open_all(source)));
    if (ranks == 0) {
        return TUTTI_OK;
    }
    TT_TRY(tt_group_agree(source->group, cut_parts(source)));
    return tt_group_agree(source->group,
                          tutti_group_split(source->group, me / ranks, me, &source->near));
}

/* On one rank the whole is the slice. */
static size_t bytes_of_whole(const tt_unit_source_t *source, const tutti_tensor_t *whole)
{
    return whole == NULL || whole->storage->away != NULL || tutti_group_size(source->group) == 1
               ? 0
               : tutti_tensor_bytes(whole);
}

/* What this rank gives: the slice, or its copy in 16 bits, which modules in f32 do without. */
static tutti_tensor_t *part_of(const tt_unit_source_t *source, int index, tt_unit_kind_t kind)
{
    tutti_tensor_t *low = place_of(source, index)->low.tensor;
    return kind == TT_UNIT_COMPUTE && low != NULL ? low : source->flats[index].own;
}

/* What lies elsewhere goes again. */
static void let_part_go(const tt_unit_source_t *source, int index, tt_unit_kind_t kind)
{
    const tutti_tensor_t *part = part_of(source, index, kind);
    const tt_unit_kind_t other = kind == TT_UNIT_FULL ? TT_UNIT_COMPUTE : TT_UNIT_FULL;
    if (part == part_of(source, index, other) && (place_of(source, index)->coming[other] != NULL ||
                                                  source->flats[index].whole[other] != NULL)) {
        return; /* it goes with the other */
    }
    if (source->bring != NULL && part != NULL && part->storage->away == NULL) {
        (void)tt_storage_evict(part->storage, elsewhere); /* it is there */
    }
}

/* On one rank the whole is this rank's part, which a parameter may still have. */
static void drop(tt_unit_source_t *source, int index, tt_unit_kind_t kind)
{
    place_t *place = place_of(source, index);
    tt_unit_flat_t *flat = &source->flats[index];
    tt_unit_source_let_go(source, bytes_of_whole(source, place->coming[kind]) +
                                      bytes_of_whole(source, flat->whole[kind]));
    if (place->works[kind] != NULL) { /* others may write what is coming */
        (void)tutti_work_wait(place->works[kind], 0);
        tutti_work_release(place->works[kind]);
        place->works[kind] = NULL;
    }
    tutti_tensor_release(place->coming[kind]);
    tutti_tensor_release(flat->whole[kind]);
    place->coming[kind] = flat->whole[kind] = NULL;
}

static void drop_near(tt_unit_source_t *source, int index, tt_unit_kind_t kind)
{
    tutti_tensor_t **part = &place_of(source, index)->near[kind];
    if (*part != NULL) {
        tt_unit_source_let_go(source, tutti_tensor_bytes(*part));
        tutti_tensor_release(*part);
        *part = NULL;
    }
}

static void leave(tt_unit_source_t *source, int index, tt_unit_kind_t kind)
{
    const bool has_part =
        place_of(source, index)->coming[kind] != NULL || source->flats[index].whole[kind] != NULL;
    drop(source, index, kind);
    drop_near(source, index, kind);
    if (has_part) {
        let_part_go(source, index, kind);
    }
}

static void close_gather(tt_unit_source_t *source)
{
    const gather_t *gather = source->state;
    for (int i = 0; gather->places != NULL && i < source->flat_count; i++) {
        for (tt_unit_kind_t kind = TT_UNIT_FULL; kind < TT_UNIT_KINDS; kind++) {
            drop(source, i, kind);
            drop_near(source, i, kind);
        }
        tutti_tensor_release(gather->places[i].low.tensor);
        tutti_tensor_release(source->flats[i].own);
        source->flats[i].own = NULL;
    }
    tutti_group_release(source->near);
    source->near = NULL;
    tt_free(gather->near_counts);
    tt_free(gather->places);
}

/* ---- gathering ------------------------------------------------------------------------------- */

static tutti_status_t bring_own(tt_unit_source_t *source, int index)
{
    const tutti_tensor_t *own = source->flats[index].own;
    if (source->bring == NULL || own->storage->away == NULL) {
        return TUTTI_OK;
    }
    TT_TRY(tt_group_tensor_refill(source->group, own));
    const tutti_status_t status = source->bring(source, index);
    if (status < 0) {
        let_part_go(source, index, TT_UNIT_FULL);
    }
    return status;
}

/* The whole in f32 may be coming, too, and needs own then. */
static tutti_status_t bring_low(tt_unit_source_t *source, int index)
{
    const tt_unit_flat_t *flat = &source->flats[index];
    place_t *place = place_of(source, index);
    const bool is_used = place->coming[TT_UNIT_FULL] != NULL || flat->whole[TT_UNIT_FULL] != NULL;
    TT_TRY(bring_own(source, index));
    tutti_status_t status = tt_group_tensor_refill(source->group, place->low.tensor);
    if (status >= 0) {
        tt_tensor_convert_now(source->ctx->exec.threads, place->low.tensor, flat->own);
    }
    if (!is_used) {
        let_part_go(source, index, TT_UNIT_FULL);
    }
    return status;
}

/* The part, with its values. */
static tutti_status_t find_part(tt_unit_source_t *source, int index, tt_unit_kind_t kind,
                                tutti_tensor_t **out)
{
    *out = part_of(source, index, kind);
    const bool is_own = *out == source->flats[index].own;
    if (source->bring != NULL) {
        return is_own ? bring_own(source, index) : bring_low(source, index);
    }
    if (!is_own) {
        tt_slice_copy_update(&place_of(source, index)->low, source->flats[index].own,
                             source->ctx->exec.threads);
    }
    return TUTTI_OK;
}

static tutti_status_t new_whole(const tt_unit_source_t *source, int index, tt_unit_kind_t kind,
                                tutti_tensor_t **out)
{
    const tt_unit_flat_t *flat = &source->flats[index];
    TT_TRY(tt_group_tensor_away(flat->dtypes[kind], TUTTI_SHAPE(flat->numel), unused, out));
    return tt_group_tensor_refill(source->group, *out);
}

/* Of the set's parts. */
static tutti_status_t start_near(tt_unit_source_t *source, int index, tt_unit_kind_t kind)
{
    const gather_t *gather = source->state;
    place_t *place = place_of(source, index);
    TT_TRY(new_whole(source, index, kind, &place->coming[kind]));
    tt_unit_source_hold(source, bytes_of_whole(source, place->coming[kind]));
    tutti_group_set_tag(source->near, (uint64_t)(TT_UNIT_KINDS * index) + kind);
    return tutti_all_gather_uneven(source->near, place->coming[kind], place->near[kind],
                                   gather->near_counts + (ptrdiff_t)index * source->near_ranks,
                                   &place->works[kind]);
}

static tutti_status_t start(tt_unit_source_t *source, int index, tt_unit_kind_t kind)
{
    place_t *place = place_of(source, index);
    const tt_unit_flat_t *flat = &source->flats[index];
    tutti_tensor_t *part;
    TT_ASSERT(place->coming[kind] == NULL && flat->whole[kind] == NULL);
    if (place->near[kind] != NULL) {
        return start_near(source, index, kind);
    }
    TT_TRY(find_part(source, index, kind, &part));
    if (tutti_group_size(source->group) == 1) {
        place->coming[kind] = tutti_tensor_retain(part);
        return TUTTI_OK;
    }
    const tutti_status_t status = new_whole(source, index, kind, &place->coming[kind]);
    if (status < 0) {
        let_part_go(source, index, kind);
        return status;
    }
    tt_unit_source_hold(source, bytes_of_whole(source, place->coming[kind]));
    return tutti_all_gather_uneven(source->group, place->coming[kind], part, flat->counts,
                                   &place->works[kind]);
}

static bool is_there(tt_unit_source_t *source, int index, tt_unit_kind_t kind)
{
    const place_t *place = place_of(source, index);
    return source->flats[index].whole[kind] != NULL ||
           (place->coming[kind] != NULL && tutti_work_is_done(place->works[kind]));
}

/* The whole has come, from the set or from all. */
static void note_arrival(tt_unit_source_t *source, int index, tt_unit_kind_t kind)
{
    const tt_unit_flat_t *flat = &source->flats[index];
    const tutti_tensor_t *near = place_of(source, index)->near[kind];
    const int64_t own = near != NULL ? near->numel : flat->counts[tutti_group_rank(source->group)];
    const int64_t bytes = (flat->numel - own) * (int64_t)tutti_dtype_bytes(flat->dtypes[kind]);
    source->gathered_bytes += bytes;
    source->near_bytes += near != NULL ? bytes : 0;
    drop_near(source, index, kind);
}

static tutti_status_t wait_for(tt_unit_source_t *source, int index, tt_unit_kind_t kind)
{
    place_t *place = place_of(source, index);
    tt_unit_flat_t *flat = &source->flats[index];
    if (flat->whole[kind] != NULL) {
        return TUTTI_OK;
    }
    if (place->works[kind] != NULL) {
        TT_TRY(tutti_work_wait(place->works[kind], 0));
        tutti_work_release(place->works[kind]);
        place->works[kind] = NULL;
        let_part_go(source, index, kind);
    }
    flat->whole[kind] = place->coming[kind];
    place->coming[kind] = NULL;
    note_arrival(source, index, kind);
    return TUTTI_OK;
}

/* ---- keeping --------------------------------------------------------------------------------- */

static tutti_status_t new_near(const tt_unit_source_t *source, int index, tt_unit_kind_t kind,
                               tutti_tensor_t **out)
{
    const gather_t *gather = source->state;
    const int64_t count =
        gather->near_counts[index * source->near_ranks + tutti_group_rank(source->near)];
    TT_TRY(
        tt_group_tensor_away(source->flats[index].dtypes[kind], TUTTI_SHAPE(count), unused, out));
    const tutti_status_t status = tt_group_tensor_refill(source->group, *out);
    if (status < 0) {
        tutti_tensor_release(*out);
        *out = NULL;
    }
    return status;
}

static tutti_status_t keep(tt_unit_source_t *source, int index, tt_unit_kind_t kind)
{
    const tutti_tensor_t *whole = source->flats[index].whole[kind];
    tutti_tensor_t **part = &place_of(source, index)->near[kind];
    TT_ASSERT(whole != NULL && *part == NULL);
    TT_TRY(new_near(source, index, kind, part));
    tt_unit_source_hold(source, tutti_tensor_bytes(*part));
    const int64_t begin =
        near_begin(whole->numel, source->near_ranks, tutti_group_rank(source->near));
    memcpy(tt_tensor_data(*part),
           (const char *)tt_tensor_data(whole) + begin * (int64_t)tutti_dtype_bytes(whole->dtype),
           tutti_tensor_bytes(*part));
    drop(source, index, kind);
    return TUTTI_OK;
}

static void give_up(tt_unit_source_t *source)
{
    (void)tt_group_give_up(source->near, TUTTI_ERR_ABORTED);
}

const tt_unit_source_ops_t tt_unit_gather = {.name = "gather",
                                             .about = "slices are gathered, and given back",
                                             .state_bytes = sizeof(gather_t),
                                             .open = open_gather,
                                             .close = close_gather,
                                             .start = start,
                                             .is_there = is_there,
                                             .wait = wait_for,
                                             .leave = leave,
                                             .keep = keep,
                                             .give_up = give_up};
