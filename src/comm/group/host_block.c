/* Host blocks: made by all ranks together, of memory of one of them.
 *
 * The keeper takes the memory from its heap, and tells the others the place. When it lets the block
 * go, the memory is in quarantine until every other rank is quiet (wire/quarantine.h): one that was
 * stopped while it read or wrote may go on whenever it likes.
 */
#include "comm/group/host_block.h"

#include <string.h>

#include "comm/backend/native_backend.h"
#include "comm/coll/coll_block.h"
#include "comm/group/agree.h"
#include "comm/group/group_impl.h"
#include "core/base/alloc.h"
#include "core/base/integers.h"
#include "core/base/log.h"

struct tt_host_block {
    tutti_group_t *group; /* borrowed, as coll: not used by release */
    tt_coll_t *coll;
    tt_peers_t *peers; /* retained: they map the memory */
    int rank, size;
    tt_host_block_options_t options;
    char *what;              /* options', a copy */
    tt_block_flags_t *flags; /* [size]; the data follow. NULL: it has not come here */
    uint64_t version;
    tt_quarantine_t *quarantine; /* of the keeper */
    bool is_guarded;
};

enum { DATA_ALIGN = 128 };

_Static_assert(sizeof(tt_block_flags_t) % DATA_ALIGN == 0, "data are aligned behind flags");

static bool is_keeper(const tt_host_block_t *block)
{
    return block->options.keeper == block->rank;
}

static size_t flags_bytes(const tt_host_block_t *block)
{
    return (size_t)block->size * sizeof(tt_block_flags_t);
}

/* Whole pages of its own, so that pages can be read-only. */
static size_t room_of(const tt_host_block_t *block)
{
    return tt_round_up(flags_bytes(block) + block->options.bytes, tt_heap_page_bytes());
}

/* Of the data, with what is left of its last page. */
static size_t data_room(const tt_host_block_t *block)
{
    return room_of(block) - flags_bytes(block);
}

static tt_device_t *heap_of(const tt_host_block_t *block)
{
    return tt_node_peers_heap(tt_peers_node_peers(block->peers));
}

bool tt_group_shares_host(const tutti_group_t *group)
{
    return group->backend == &tt_backend_native &&
           tt_coll_is_on_one_host(tt_native_coll(group->state));
}

int tt_group_host(const tutti_group_t *group, int rank)
{
    return group->backend == &tt_backend_native ? tt_native_coll(group->state)->hosts[rank] : rank;
}

/* ---- making --------------------------------------------------------------------------------- */

static tutti_status_t open_quarantine(tt_host_block_t *block)
{
    const tt_coll_t *coll = block->coll;
    TT_TRY(tt_quarantine_open(coll->node_peers, coll->size, 1, &block->quarantine));
    for (int rank = 0; rank < coll->size; rank++) {
        if (rank != coll->rank) {
            tt_quarantine_watch(block->quarantine, coll->node_peer_ranks[rank],
                                &block->flags[rank].quiet);
        }
    }
    tt_quarantine_add(block->quarantine, block->flags, room_of(block));
    return TUTTI_OK;
}

/* Flags are there all the time. */
static tutti_status_t take_room(tt_host_block_t *block)
{
    void *memory;
    if (!block->options.comes_and_goes) {
        block->flags = tt_device_alloc(heap_of(block), room_of(block), block->what);
        TT_TRY_ALLOC(block->flags);
        return TUTTI_OK;
    }
    TT_TRY(tt_heap_reserve(heap_of(block), room_of(block), block->what, &memory));
    block->flags = memory;
    return tt_heap_populate(heap_of(block), memory, flags_bytes(block));
}

/* The keeper's part. What it has taken when something fails is given back by give_back(). */
static tutti_status_t take_memory(tt_host_block_t *block)
{
    if (!tt_group_shares_host(block->group)) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "%s: the ranks of group %s do not share the memory of one host", block->what,
                       block->group->name);
    }
    if (!is_keeper(block)) {
        return TUTTI_OK;
    }
    if (block->options.bytes > SIZE_MAX / 2) {
        return TT_FAIL(TUTTI_ERR_NOMEM, "%s: cannot get %zu bytes of shared memory", block->what,
                       block->options.bytes);
    }
    TT_TRY(take_room(block));
    memset(block->flags, 0, flags_bytes(block));
    return open_quarantine(block);
}

static tutti_status_t share_place(tt_host_block_t *block, tt_heap_address_t *place)
{
    const tt_call_t tell = {.collective = TT_BROADCAST,
                            .dtype = TUTTI_U8,
                            .count = sizeof *place,
                            .root = block->options.keeper,
                            .site = __builtin_return_address(0)};
    *place = is_keeper(block) ? tt_heap_address(heap_of(block), block->flags, room_of(block)) : 0;
    return tt_group_call_plain(block->group, &tell, tutti_bytes_of(place, sizeof *place),
                               (tutti_buffer_t){place, sizeof *place});
}

static tutti_status_t map_memory(tt_host_block_t *block, tt_heap_address_t place)
{
    if (is_keeper(block)) {
        return TUTTI_OK;
    }
    const tt_heap_span_t span = {place, room_of(block), DATA_ALIGN};
    void *memory;
    TT_TRY(tt_coll_find_block(block->coll, block->options.keeper, span, &memory));
    block->flags = memory;
    return TUTTI_OK;
}

/* Three short calls: all ranks fail, or none does. */
static tutti_status_t meet(tt_host_block_t *block)
{
    tt_heap_address_t place;
    TT_TRY(tt_group_agree(block->group, take_memory(block)));
    const tutti_status_t status = share_place(block, &place);
    if (status < 0) {
        return tt_group_give_up(block->group, status);
    }
    return tt_group_agree(block->group, map_memory(block, place));
}

tutti_status_t tt_host_block_create(tutti_group_t *group, const tt_host_block_options_t *options,
                                    tt_host_block_t **out)
{
    TT_TRY(tt_group_check_free(group, "host block"));
    tt_host_block_t *block = tt_alloc(sizeof *block, "host block");
    char *what = tt_strdup(options->what, "host block");
    const bool has_room = block != NULL && what != NULL;
    tutti_status_t status = tt_group_agree(group, has_room ? TUTTI_OK : TUTTI_ERR_NOMEM);
    if (status < 0) {
        tt_free(what);
        tt_free(block);
        return status;
    }
    block->group = group;
    block->options = *options;
    block->options.what = block->what = what;
    block->rank = group->rank;
    block->size = group->size;
    if (group->backend == &tt_backend_native) {
        block->coll = tt_native_coll(group->state);
        block->peers = tt_peers_retain(block->coll->peers);
    }
    status = meet(block);
    if (status < 0) {
        tt_host_block_release(block);
        return status;
    }
    *out = block;
    return TUTTI_OK;
}

/* ---- giving back ---------------------------------------------------------------------------- */

void tt_host_block_release(tt_host_block_t *block)
{
    if (block == NULL) {
        return;
    }
    const bool is_open = block->flags == NULL || tt_host_block_open(block) >= 0;
    if (!is_open) { /* pages that could not be written are no memory for anybody else */
        tt_log(TT_LOG_ERROR, "%s: %s", block->what, tutti_last_error());
    } else if (block->quarantine != NULL) {
        tt_quarantine_close(block->quarantine);
    } else if (block->flags != NULL && is_keeper(block)) {
        tt_device_free(heap_of(block), block->flags, room_of(block));
    } else if (block->flags != NULL) {
        atomic_store_explicit(&block->flags[block->rank].quiet, TT_QUIET, memory_order_release);
    }
    tt_peers_release(block->peers);
    tt_free(block->what);
    tt_free(block);
}

/* ---- versions ------------------------------------------------------------------------------- */

void *tt_host_block_data(const tt_host_block_t *block)
{
    return (char *)block->flags + flags_bytes(block);
}

uint64_t tt_host_block_version(const tt_host_block_t *block)
{
    return block->version;
}

static tt_block_wait_t wait_for(const tt_host_block_t *block, tt_block_word_t word)
{
    return (tt_block_wait_t){
        .flags = block->flags, .word = word, .version = block->version, .what = block->what};
}

bool tt_host_block_is_there(const tt_host_block_t *block)
{
    const tt_block_wait_t wait = wait_for(block, TT_BLOCK_POSTED);
    return tt_coll_block_behind(block->coll, &wait) < 0;
}

bool tt_host_block_is_free(const tt_host_block_t *block)
{
    const tt_block_wait_t wait = wait_for(block, TT_BLOCK_FINISHED);
    return tt_coll_block_behind(block->coll, &wait) < 0;
}

bool tt_host_block_is_unread(const tt_host_block_t *block)
{
    for (int rank = 0; rank < block->size; rank++) {
        const _Atomic uint64_t *finished = &block->flags[rank].finished;
        if (rank != block->rank &&
            atomic_load_explicit(finished, memory_order_acquire) < block->version) {
            return false;
        }
    }
    return true;
}

tutti_status_t tt_host_block_populate(tt_host_block_t *block)
{
    TT_ASSERT(is_keeper(block) && block->options.comes_and_goes);
    return tt_heap_populate(heap_of(block), tt_host_block_data(block), data_room(block));
}

void tt_host_block_discard(tt_host_block_t *block)
{
    TT_ASSERT(is_keeper(block) && block->options.comes_and_goes);
    tt_heap_discard(heap_of(block), tt_host_block_data(block), data_room(block));
}

/* In slices, between which other groups of the family have a turn. */
static tutti_status_t await(const tt_host_block_t *block, tt_block_word_t word)
{
    enum { SLICE_NS = 100000 };
    tutti_group_t *group = block->group;
    tt_block_wait_t wait = wait_for(block, word);
    TT_TRY(tt_group_check_free(group, block->what));
    tutti_status_t status = TUTTI_PENDING;
    while (status == TUTTI_PENDING) {
        const bool is_busy = tt_group_is_family_waiting(group);
        status =
            tt_coll_block_await(block->coll, &wait, is_busy ? tt_clock_ns() + SLICE_NS : TT_NEVER);
        if (status == TUTTI_PENDING) {
            tutti_group_progress(group);
        }
    }
    return status;
}

tutti_status_t tt_host_block_await(tt_host_block_t *block)
{
    return await(block, TT_BLOCK_POSTED);
}

tutti_status_t tt_host_block_claim(tt_host_block_t *block)
{
    return await(block, TT_BLOCK_FINISHED);
}

void tt_host_block_finish(tt_host_block_t *block)
{
    tt_coll_block_set(block->coll, block->flags, TT_BLOCK_FINISHED, block->version);
}

void tt_host_block_post(tt_host_block_t *block)
{
    tt_coll_block_set(block->coll, block->flags, TT_BLOCK_POSTED, ++block->version);
}

/* ---- read-only pages ------------------------------------------------------------------------ */

tutti_status_t tt_host_block_open(tt_host_block_t *block)
{
    if (block->is_guarded) {
        TT_TRY(tt_heap_set_writable(tt_host_block_data(block), data_room(block), true));
        block->is_guarded = false;
    }
    return TUTTI_OK;
}

tutti_status_t tt_host_block_guard(tt_host_block_t *block, size_t begin, size_t bytes)
{
    TT_TRY(tt_host_block_open(block));
    char *data = tt_host_block_data(block);
    const size_t end = begin + bytes;
    block->is_guarded = true;
    tutti_status_t status = tt_heap_set_writable(data, begin, false);
    if (status >= 0) {
        status = tt_heap_set_writable(data + end, data_room(block) - end, false);
    }
    if (status < 0) {
        const tutti_status_t undone = tt_host_block_open(block);
        return undone < 0 ? undone : status;
    }
    return TUTTI_OK;
}
