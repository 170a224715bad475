/* Retired extents. Most leave the books at once: their pages are punched, and nothing remembers
 * their addresses. One that shares a page with a block that lives stays until that block is freed:
 *
 *     page      |            |            |            |
 *     before    |  used | retired  ...         |  used |
 *     punched   |       |    xxxxxxxxxx        |       |
 *
 * The free rest of such a page is given to the retired extent, so that a page with retired bytes
 * can only become emptier. When the page holds retired bytes alone, it is punched too.
 */
#include "core/device/heap_extents_impl.h"

#include "core/base/integers.h"

static bool is_retired(const tt_extent_t *extent)
{
    return extent != NULL && extent->kind == TT_EXTENT_RETIRED;
}

static void queue(tt_extents_t *extents, tt_extent_t *retired)
{
    if (!retired->is_queued) {
        retired->is_queued = true;
        retired->next_free = extents->to_punch;
        extents->to_punch = retired;
    }
}

static void unqueue(tt_extents_t *extents, tt_extent_t *retired)
{
    tt_extent_t **link = &extents->to_punch;
    while (retired->is_queued && *link != retired) {
        link = &(*link)->next_free;
    }
    if (retired->is_queued) {
        *link = retired->next_free;
        retired->is_queued = false;
    }
}

/* Join two retired extents that lie side by side. */
static void join_retired(tt_extents_t *extents, tt_extent_t *left, tt_extent_t *right)
{
    if (is_retired(left) && is_retired(right) && tt_extent_meets(left, right)) {
        left->bytes += right->bytes;
        left->punched += right->punched;
        unqueue(extents, right);
        tt_extents_drop(extents, right);
        queue(extents, left);
    }
}

static void give_front(tt_extents_t *extents, tt_extent_t *left, tt_extent_t *idle)
{
    const size_t to_page = tt_page_ceil(extents, idle->offset) - idle->offset;
    const size_t part = tt_min_size(to_page, idle->bytes);
    left->bytes += part;
    idle->offset += part;
    idle->bytes -= part;
    if (part > 0) {
        queue(extents, left);
    }
}

static void give_back(tt_extents_t *extents, tt_extent_t *right, tt_extent_t *idle)
{
    const size_t end = tt_extent_end(idle);
    const size_t part = tt_min_size(end - tt_page_floor(extents, end), idle->bytes);
    right->offset -= part;
    right->bytes += part;
    idle->bytes -= part;
    if (part > 0) {
        queue(extents, right);
    }
}

void tt_extents_give_edges(tt_extents_t *extents, tt_extent_t *idle)
{
    tt_extent_t *left = idle->previous, *right = idle->next;
    left = is_retired(left) && tt_extent_meets(left, idle) ? left : NULL;
    right = is_retired(right) && tt_extent_meets(idle, right) ? right : NULL;
    if (left == NULL && right == NULL) {
        return;
    }
    tt_extents_leave_free(extents, idle);
    if (left != NULL) {
        give_front(extents, left, idle);
    }
    if (right != NULL) {
        give_back(extents, right, idle);
    }
    if (idle->bytes > 0) {
        tt_extents_enter_free(extents, idle);
        return;
    }
    tt_extents_drop(extents, idle);
    join_retired(extents, left, right);
}

void tt_extents_retire(tt_extents_t *extents, tt_extent_t *block)
{
    tt_extents_forget_block(extents, block);
    if (block->kind == TT_EXTENT_RESERVED) { /* punching counts them out again */
        extents->populated_bytes += block->bytes;
    }
    block->kind = TT_EXTENT_RETIRED;
    block->punched = 0;
    block->is_queued = false;
    queue(extents, block);
    tt_extent_t *left = block->previous, *right = block->next;
    if (tt_extent_meets(block, right) && right->kind == TT_EXTENT_IDLE) {
        tt_extents_give_edges(extents, right);
    } else {
        join_retired(extents, block, right);
    }
    if (tt_extent_meets(left, block) && left->kind == TT_EXTENT_IDLE) {
        tt_extents_give_edges(extents, left);
    } else {
        join_retired(extents, left, block);
    }
}

bool tt_extents_next_punch(tt_extents_t *extents, int *segment, size_t *offset, size_t *bytes)
{
    while (extents->to_punch != NULL) {
        tt_extent_t *retired = extents->to_punch;
        unqueue(extents, retired);
        const size_t inside = tt_extent_inside(extents, retired);
        const size_t fresh = inside - retired->punched;
        *segment = retired->segment;
        *offset = tt_page_ceil(extents, retired->offset);
        *bytes = inside;
        extents->populated_bytes -= fresh;
        retired->punched = inside;
        if (inside == retired->bytes) {
            tt_extents_drop(extents, retired);
        }
        if (fresh > 0) {
            return true;
        }
    }
    return false;
}
