/* Where a block fits among the free extents. A run is free extents side by side, idle and bare. */
#include "core/device/heap_extents_impl.h"

#include "core/base/integers.h"

static bool holds(const tt_extent_t *extent, size_t offset, size_t bytes)
{
    return offset <= tt_extent_end(extent) && bytes <= tt_extent_end(extent) - offset;
}

/* The smallest extent of a kind that holds the block. */
static bool find_in_one(const tt_extents_t *extents, tt_extent_kind_t kind, size_t bytes,
                        size_t align, tt_extent_fit_t *out)
{
    tt_extent_t *best = NULL;
    for (tt_extent_t *extent = extents->first_free; extent != NULL; extent = extent->next_free) {
        if (extent->kind == kind && holds(extent, tt_round_up(extent->offset, align), bytes) &&
            (best == NULL || extent->bytes < best->bytes)) {
            best = extent;
        }
    }
    if (best == NULL) {
        return false;
    }
    *out = (tt_extent_fit_t){.extent = best,
                             .offset = tt_round_up(best->offset, align),
                             .bare_bytes = kind == TT_EXTENT_BARE ? bytes : 0};
    return true;
}

/* The bytes of an extent that a block covers. */
static size_t covered(const tt_extent_t *extent, size_t offset, size_t bytes)
{
    const size_t first = extent->offset > offset ? extent->offset : offset;
    const size_t block_end = offset + bytes, extent_end = tt_extent_end(extent);
    const size_t end = extent_end < block_end ? extent_end : block_end;
    return end > first ? end - first : 0;
}

/* Fit the block to the start of the run that begins with an extent. */
static bool fit_run(tt_extent_t *extent, size_t bytes, size_t align, tt_extent_fit_t *out)
{
    tt_extent_fit_t fit = {.offset = tt_round_up(extent->offset, align)};
    for (;;) {
        const size_t part = covered(extent, fit.offset, bytes);
        if (part > 0 && fit.extent == NULL) {
            fit.extent = extent;
        }
        fit.bare_bytes += extent->kind == TT_EXTENT_BARE ? part : 0;
        if (tt_extent_end(extent) >= fit.offset + bytes) {
            *out = fit;
            return true;
        }
        tt_extent_t *next = extent->next;
        if (!tt_extent_meets(extent, next) || !tt_extent_is_free(next)) {
            return false;
        }
        extent = next;
    }
}

static bool starts_run(const tt_extent_t *extent)
{
    return !tt_extent_meets(extent->previous, extent) || !tt_extent_is_free(extent->previous);
}

bool tt_extents_find(const tt_extents_t *extents, size_t bytes, size_t align, tt_extent_fit_t *out)
{
    if (find_in_one(extents, TT_EXTENT_IDLE, bytes, align, out)) {
        return true;
    }
    bool is_found = false;
    for (tt_extent_t *extent = extents->first_free; extent != NULL; extent = extent->next_free) {
        /* an idle extent inside a run may be a better start than the run's own */
        tt_extent_fit_t fit;
        if ((starts_run(extent) || extent->kind == TT_EXTENT_IDLE) &&
            fit_run(extent, bytes, align, &fit) &&
            (!is_found || fit.bare_bytes < out->bare_bytes)) {
            *out = fit;
            is_found = true;
        }
    }
    return is_found;
}

bool tt_extents_find_bare(const tt_extents_t *extents, size_t bytes, tt_extent_fit_t *out)
{
    return find_in_one(extents, TT_EXTENT_BARE, bytes, extents->page_bytes, out);
}

tt_extent_t *tt_extents_first_bare(const tt_extent_fit_t *fit, size_t bytes)
{
    tt_extent_t *extent = fit->extent;
    while (extent->kind != TT_EXTENT_BARE && tt_extent_end(extent) < fit->offset + bytes) {
        extent = extent->next;
    }
    TT_ASSERT(extent->kind == TT_EXTENT_BARE);
    return extent;
}
