/* The source of ranks that share a host: the parameters lie there once, in host blocks (decision
 * 0034). Nothing is gathered, and nothing is sent.
 *
 *     block of a flat     | slice of rank 0 | slice of rank 1 | slice of rank 2 |     of FULL
 *     block of its copy   |       "         |       "         |       "         |     of COMPUTE
 *
 *     start      nothing
 *     wait       until every rank has written its slice of this version
 *     leave      nothing
 *     claim      this rank has finished reading; until all have
 *     publish    the copy of this rank's slice is made, then both are posted
 *
 * Blocks lie in the heaps of the ranks in turn, so that none holds more than its share. Pages that
 * hold only others' slices are read-only for this rank.
 *
 * Cost: a look at a line of each rank in start and wait; the memory of the parameters once a host.
 */
#include <string.h>

#include "comm/group/agree.h"
#include "comm/group/host_block.h"
#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/ddp/unit_slice_copy.h"
#include "parallel/ddp/unit_source.h"

typedef struct {
    tt_host_block_t *blocks[TT_UNIT_KINDS];
    tutti_tensor_t *wholes[TT_UNIT_KINDS]; /* [numel] over the blocks, which they hold */
    tutti_tensor_t *owns[TT_UNIT_KINDS];   /* this rank's slices of them */
    tt_slice_copy_t low;                   /* that of COMPUTE, borrowed */
} share_flat_t;

typedef struct {
    share_flat_t *flats; /* [flat_count] */
} share_t;

static share_flat_t *flat_of(const tt_unit_source_t *source, int flat)
{
    return &((share_t *)source->state)->flats[flat];
}

static int kind_count(const tt_unit_flat_t *flat)
{
    return flat->dtypes[TT_UNIT_COMPUTE] != flat->dtypes[TT_UNIT_FULL] ? TT_UNIT_KINDS : 1;
}

/* The block of a kind: where there is no copy to compute with, that of FULL. */
static int block_of(const tt_unit_flat_t *flat, tt_unit_kind_t kind)
{
    return kind_count(flat) > 1 ? (int)kind : TT_UNIT_FULL;
}

static bool may_share(const tutti_group_t *group, int near_ranks)
{
    (void)near_ranks; /* all of it is near */
    return tutti_group_size(group) > 1 && tt_group_shares_host(group) && tt_unit_may_share();
}

/* ---- making ---------------------------------------------------------------------------------- */

static void release_block(tt_storage_t *storage)
{
    tt_host_block_release(storage->owner);
}

/* The tensors of a block, which they hold from here on. */
static tutti_status_t open_tensors(const tt_unit_flat_t *flat, share_flat_t *share, int kind,
                                   int rank)
{
    const tutti_dtype_t dtype = flat->dtypes[kind];
    tt_host_block_t *block = share->blocks[kind];
    tt_storage_t *storage;
    TT_TRY(tt_storage_borrow(tt_host_block_data(block),
                             (size_t)flat->numel * tutti_dtype_bytes(dtype), release_block, block,
                             &storage));
    tutti_status_t status =
        tt_tensor_over(storage, dtype, TUTTI_SHAPE(flat->numel), NULL, 0, &share->wholes[kind]);
    if (status >= 0) {
        status = tt_tensor_over(storage, dtype, TUTTI_SHAPE(flat->counts[rank]), NULL,
                                flat->cuts[rank], &share->owns[kind]);
    }
    if (status < 0) {
        storage->release = NULL; /* the block is still the caller's */
        tutti_tensor_release(share->wholes[kind]);
        share->wholes[kind] = NULL;
    }
    tt_storage_release(storage);
    return status;
}

static tutti_status_t guard(const tt_unit_flat_t *flat, const share_flat_t *share, int kind,
                            int rank)
{
    const size_t bytes = tutti_dtype_bytes(flat->dtypes[kind]);
    return tt_host_block_guard(share->blocks[kind], (size_t)flat->cuts[rank] * bytes,
                               (size_t)flat->counts[rank] * bytes);
}

static tutti_status_t open_kind(const tt_unit_source_t *source, int index, int kind)
{
    const tt_unit_flat_t *flat = &source->flats[index];
    share_flat_t *share = flat_of(source, index);
    const int rank = tutti_group_rank(source->group), size = tutti_group_size(source->group);
    char what[TT_UNIT_FLAT_TEXT_BYTES];
    tt_unit_flat_text(flat, index, (tt_unit_kind_t)kind, what);
    const tt_host_block_options_t options = {.bytes = (size_t)flat->numel *
                                                      tutti_dtype_bytes(flat->dtypes[kind]),
                                             .keeper = index % size,
                                             .what = what};
    TT_TRY(tt_host_block_create(source->group, &options, &share->blocks[kind]));
    tutti_status_t status = open_tensors(flat, share, kind, rank);
    if (status >= 0) {
        status = guard(flat, share, kind, rank);
    }
    return tt_group_agree(source->group, status);
}

static tutti_status_t open_share(tt_unit_source_t *source)
{
    share_t *state = source->state;
    state->flats = tt_alloc_array((size_t)source->flat_count, sizeof *state->flats, "shared units");
    TT_TRY(tt_group_agree(source->group, state->flats != NULL ? TUTTI_OK : TUTTI_ERR_NOMEM));
    for (int i = 0; i < source->flat_count; i++) {
        for (int kind = 0; kind < kind_count(&source->flats[i]); kind++) {
            TT_TRY(open_kind(source, i, kind));
        }
        source->flats[i].own = flat_of(source, i)->owns[TT_UNIT_FULL];
        flat_of(source, i)->low.tensor = flat_of(source, i)->owns[TT_UNIT_COMPUTE];
    }
    return TUTTI_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

static tutti_status_t start_share(tt_unit_source_t *source, int flat, tt_unit_kind_t kind)
{
    (void)source, (void)flat, (void)kind;
    return TUTTI_OK;
}

static bool is_there_share(tt_unit_source_t *source, int flat, tt_unit_kind_t kind)
{
    return tt_host_block_is_there(
        flat_of(source, flat)->blocks[block_of(&source->flats[flat], kind)]);
}

static tutti_status_t wait_share(tt_unit_source_t *source, int flat, tt_unit_kind_t kind)
{
    const share_flat_t *share = flat_of(source, flat);
    const int block = block_of(&source->flats[flat], kind);
    tutti_tensor_t **whole = &source->flats[flat].whole[kind];
    TT_TRY(tt_host_block_await(share->blocks[block]));
    if (source->copies && kind == TT_UNIT_FULL) {
        return tt_unit_source_copy(source, share->wholes[block], whole);
    }
    *whole = tutti_tensor_retain(share->wholes[block]);
    return TUTTI_OK;
}

static void leave_share(tt_unit_source_t *source, int flat, tt_unit_kind_t kind)
{
    const int block = block_of(&source->flats[flat], kind);
    tt_unit_source_drop(source, flat_of(source, flat)->wholes[block],
                        &source->flats[flat].whole[kind]);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* All are finished before any is waited for: ranks do not wait for each other in turn. */
static tutti_status_t claim_share(tt_unit_source_t *source)
{
    for (int i = 0; i < source->flat_count; i++) {
        for (int kind = 0; kind < kind_count(&source->flats[i]); kind++) {
            tt_host_block_finish(flat_of(source, i)->blocks[kind]);
        }
    }
    for (int i = 0; i < source->flat_count; i++) {
        for (int kind = 0; kind < kind_count(&source->flats[i]); kind++) {
            TT_TRY(tt_host_block_claim(flat_of(source, i)->blocks[kind]));
        }
    }
    return TUTTI_OK;
}

static void publish_flat(const tt_unit_source_t *source, int flat)
{
    share_flat_t *share = flat_of(source, flat);
    tt_host_block_post(share->blocks[TT_UNIT_FULL]);
    if (kind_count(&source->flats[flat]) > 1) {
        tt_slice_copy_update(&share->low, share->owns[TT_UNIT_FULL], source->ctx->exec.threads);
        tt_host_block_post(share->blocks[TT_UNIT_COMPUTE]);
    }
}

static tutti_status_t publish_share(tt_unit_source_t *source)
{
    for (int i = 0; i < source->flat_count; i++) {
        publish_flat(source, i);
    }
    return TUTTI_OK;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void close_kind(share_flat_t *share, int kind)
{
    if (share->wholes[kind] == NULL) {
        tt_host_block_release(share->blocks[kind]);
    }
    tutti_tensor_release(share->owns[kind]);
    tutti_tensor_release(share->wholes[kind]);
}

static void close_share(tt_unit_source_t *source)
{
    share_t *state = source->state;
    for (int i = 0; state->flats != NULL && i < source->flat_count; i++) {
        source->flats[i].own = NULL;
        for (int kind = 0; kind < TT_UNIT_KINDS; kind++) {
            leave_share(source, i, (tt_unit_kind_t)kind);
            close_kind(&state->flats[i], kind);
        }
    }
    tt_free(state->flats);
    state->flats = NULL;
}

const tt_unit_source_ops_t tt_unit_share = {
    .name = "share",
    .about = "the ranks of the host have one copy of the parameters, and read it in place",
    .state_bytes = sizeof(share_t),
    .is_common = true,
    .is_local = true,
    .is_possible = may_share,
    .open = open_share,
    .close = close_share,
    .start = start_share,
    .is_there = is_there_share,
    .wait = wait_share,
    .leave = leave_share,
    .claim = claim_share,
    .publish = publish_share,
};
