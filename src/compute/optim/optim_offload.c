/* Steps of slots whose state lies in a file: a chunk after another comes through the disk's ring. A
 * chunk's master meets the parameter, the chunk is stepped as a parameter in memory is, and the
 * master is rounded into the parameter.
 */
#include "compute/optim/optim_offload.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/base/integers.h"
#include "core/device/disk_device.h"
#include "core/kernel/elementwise/map.h"

tutti_status_t tt_optim_offload_check(const tutti_optim_t *opt)
{
    return opt->offload == NULL || !opt->offload->is_broken
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE,
                         "%s: a step failed half-way, so its state and parameters are of two "
                         "steps: load both, as by tutti_checkpoint_load(). The failure was: %s",
                         opt->ops->name, opt->offload->text);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static tt_disk_ring_t *ring_of(const tutti_optim_t *opt)
{
    return tt_disk_ring_of(opt->offload->disk);
}

tutti_status_t tt_optim_offload_begin(tutti_optim_t *opt)
{
    tt_optim_offload_t *offload = opt->offload;
    if (offload == NULL || offload->is_open) {
        return TUTTI_OK;
    }
    TT_TRY(tt_optim_is_laid(opt) ? TUTTI_OK : tt_optim_lay_out(opt));
    TT_TRY(tt_disk_ring_begin(ring_of(opt)));
    offload->is_open = true;
    return TUTTI_OK;
}

tutti_status_t tt_optim_offload_note(tutti_optim_t *opt, tutti_status_t status)
{
    tt_optim_offload_t *offload = opt->offload;
    if (offload == NULL || status >= 0) {
        return status;
    }
    if (offload->has_changed && !offload->is_broken) {
        offload->is_broken = true;
        memcpy(offload->text, tutti_last_error(), strlen(tutti_last_error()) + 1);
    }
    offload->is_open = offload->has_changed = false;
    return status;
}

tutti_status_t tt_optim_offload_end(tutti_optim_t *opt, tutti_status_t status)
{
    tt_optim_offload_t *offload = opt->offload;
    if (offload != NULL && offload->is_open && status >= 0) {
        tt_disk_ring_end(ring_of(opt));
        offload->is_open = offload->has_changed = false;
    }
    return tt_optim_offload_note(opt, status);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

typedef struct {
    tutti_optim_t *opt;
    tt_optim_slot_t *slot;
    const tt_optim_place_t *place;
    tutti_optim_piece_t whole; /* without moments, and without its master */
    float *master;             /* of the chunk; NULL: there is none */
    char *x;                   /* of the parameter in 16 bits, the chunk's */
} chunks_t;

static void convert_row(tt_threads_t *threads, const tt_strided_t *to, const tt_strided_t *from)
{
    tt_map_now(threads, 1, TT_UNARY_COPY, (tt_map_params_t){0}, (const tt_strided_t *[]){to, from});
}

/* The master where it rounds to the parameter, else the parameter. */
static void meet(float *master, const tt_strided_t *x)
{
    uint16_t rounded[TT_FLAT_BLOCK];
    float exact[TT_FLAT_BLOCK];
    const int64_t all = x->shape[0];
    for (int64_t i = 0; i < all; i += TT_FLAT_BLOCK) {
        const int64_t n = tt_min(all - i, TT_FLAT_BLOCK);
        uint16_t *have = (uint16_t *)x->data + i;
        const tt_strided_t in = tt_strided_row(have, x->dtype, n),
                           own = tt_strided_row(master + i, TUTTI_F32, n),
                           to = tt_strided_row(rounded, x->dtype, n),
                           f32 = tt_strided_row(exact, TUTTI_F32, n);
        convert_row(NULL, &to, &own);
        convert_row(NULL, &f32, &in);
        for (int64_t k = 0; k < n; k++) {
            master[i + k] = rounded[k] == have[k] ? master[i + k] : exact[k];
        }
    }
}

static void prepare_master(const chunks_t *chunks, size_t count)
{
    const tt_strided_t x = tt_strided_row(chunks->x, chunks->slot->tensor->dtype, (int64_t)count);
    const tt_strided_t master = tt_strided_row(chunks->master, TUTTI_F32, (int64_t)count);
    if (chunks->slot->due == TT_MASTER_IS_NEW) {
        convert_row(chunks->opt->ctx->exec.threads, &master, &x);
    } else if (chunks->slot->due == TT_MASTER_MEETS) {
        meet(chunks->master, &x);
    }
}

static void round_master(const chunks_t *chunks, size_t count)
{
    if (chunks->master != NULL) {
        const tt_strided_t x =
            tt_strided_row(chunks->x, chunks->slot->tensor->dtype, (int64_t)count);
        const tt_strided_t master = tt_strided_row(chunks->master, TUTTI_F32, (int64_t)count);
        convert_row(chunks->opt->ctx->exec.threads, &x, &master);
    }
}

static tutti_status_t open_chunks(tutti_optim_t *opt, tt_optim_slot_t *slot,
                                  const tutti_tensor_t *grad, chunks_t *chunks)
{
    const tutti_tensor_t *x = tt_optim_weight(slot);
    const size_t index = (size_t)(slot - opt->slots);
    TT_TRY(tt_optim_is_as_laid(opt, index) ? TUTTI_OK : tt_optim_lay_out(opt));
    *chunks = (chunks_t){.opt = opt,
                         .slot = slot,
                         .place = &opt->offload->places[index],
                         .whole = tt_optim_piece_of(opt, slot, grad)};
    chunks->whole.ctx = opt->ctx; /* also where the weight lies in the file */
    chunks->whole.options = opt->groups[slot->group].options;
    chunks->whole.weight =
        slot->master == NULL && !tt_optim_is_stored(slot) ? tt_tensor_data(x) : NULL;
    memset(chunks->whole.moments, 0, sizeof chunks->whole.moments);
    return TUTTI_OK;
}

/* One of what the unit in memory has of a chunk. */
static void take_chunk(chunks_t *chunks, int i, float *values, tutti_optim_piece_t *piece)
{
    if (i == TT_OPTIM_GRADIENT) {
        piece->gradient = values;
    } else if (i == TT_OPTIM_WEIGHT) {
        piece->weight = values;
    } else if (i == TT_MOMENTS_MAX) {
        piece->weight = chunks->master = values;
    } else {
        piece->moments[i] = values;
    }
}

/* The chunk from `first` on, in memory until the next is. */
static tutti_status_t use_chunk(chunks_t *chunks, size_t first, tutti_optim_piece_t *piece)
{
    void *memory;
    const tt_optim_place_t *place = chunks->place;
    const tutti_tensor_t *x = tt_optim_weight(chunks->slot);
    const size_t unit = place->unit + (first == 0 ? 0 : first / place->chunk);
    TT_TRY(tt_disk_ring_use(ring_of(chunks->opt), unit, &memory));
    char *at = (char *)memory + place->base;
    *piece = chunks->whole;
    piece->first += first;
    piece->count = tt_optim_chunk_count(chunks->slot, place, first);
    chunks->x = (char *)tt_tensor_data(x) + first * tutti_dtype_bytes(x->dtype);
    chunks->master = NULL;
    piece->weight = piece->weight == NULL ? NULL : piece->weight + first;
    piece->gradient += first;
    for (int i = 0; i < TT_OPTIM_STORED; i++) {
        if (place->at[i] == NULL) {
            continue;
        }
        float *kept = (float *)(void *)at;
        at += tt_optim_kept_bytes(chunks->opt, tt_optim_stored(chunks->slot, i), piece->count);
        take_chunk(chunks, i, kept, piece);
    }
    prepare_master(chunks, piece->count);
    chunks->opt->offload->has_changed = true;
    return TUTTI_OK;
}

static tutti_status_t measure_chunks(chunks_t *chunks, size_t length, double *sums)
{
    tutti_optim_piece_t piece;
    const size_t count = chunks->whole.count;
    tutti_optim_t *opt = chunks->opt;
    for (size_t first = 0; first < count; first += piece.count) {
        TT_TRY(use_chunk(chunks, first, &piece));
        tt_optim_measure_now(opt->ops, opt->ctx->exec.threads, &piece, length,
                             sums + TUTTI_OPTIM_SUMS_MAX * (first / length));
    }
    chunks->slot->due = TT_MASTER_IS_RIGHT;
    return TUTTI_OK;
}

static tutti_status_t update_chunks(chunks_t *chunks)
{
    tutti_optim_piece_t piece;
    const size_t count = chunks->whole.count;
    for (size_t first = 0; first < count; first += piece.count) {
        TT_TRY(use_chunk(chunks, first, &piece));
        tt_optim_update_now(chunks->opt->ops, chunks->opt->ctx->exec.threads, &piece);
        round_master(chunks, piece.count);
    }
    return TUTTI_OK;
}

/* A slot whose options want no state has no chunks: it is stepped in memory. */
static tutti_status_t update_all(chunks_t *chunks)
{
    if (chunks->place->chunk != 0) {
        return update_chunks(chunks);
    }
    if (chunks->whole.count > 0) {
        chunks->opt->offload->has_changed = true;
        tt_optim_update_now(chunks->opt->ops, chunks->opt->ctx->exec.threads, &chunks->whole);
    }
    return TUTTI_OK;
}

tutti_status_t tt_optim_offload_measure(tutti_optim_t *opt, tt_optim_slot_t *slot,
                                        const tutti_tensor_t *grad, size_t length, double *sums)
{
    chunks_t chunks;
    TT_TRY(open_chunks(opt, slot, grad, &chunks));
    if (chunks.place->chunk == 0) {
        tt_optim_measure_now(opt->ops, opt->ctx->exec.threads, &chunks.whole, length, sums);
        return TUTTI_OK;
    }
    return measure_chunks(&chunks, length, sums);
}

static tutti_status_t measure_whole(tutti_optim_t *opt, tt_optim_slot_t *slot,
                                    const tutti_tensor_t *grad, double *sums)
{
    double sections[TUTTI_OPTIM_SECTIONS_MAX * TUTTI_OPTIM_SUMS_MAX];
    const size_t numel = (size_t)tt_optim_weight(slot)->numel, length = tt_optim_section(numel);
    TT_TRY(tt_optim_offload_measure(opt, slot, grad, length, sections));
    tt_optim_add_sections(sections, tt_divide_up(numel, length), sums);
    return TUTTI_OK;
}

tutti_status_t tt_optim_offload_update(tutti_optim_t *opt, tt_optim_slot_t *slot,
                                       const tutti_tensor_t *grad, const double *sums)
{
    chunks_t chunks;
    double own[TUTTI_OPTIM_SUMS_MAX] = {0};
    tutti_tensor_t *x = tt_optim_weight(slot);
    if (opt->ops->measure != NULL && sums == NULL) {
        TT_TRY(measure_whole(opt, slot, grad, own));
        sums = own;
    }
    TT_TRY(open_chunks(opt, slot, grad, &chunks));
    chunks.whole.sums = sums;
    TT_TRY(update_all(&chunks));
    slot->step++;
    slot->due = TT_MASTER_IS_RIGHT;
    tt_tensor_touch(x);
    slot->version = x->storage->version;
    return TUTTI_OK;
}

void tt_optim_offload_forgive(tutti_optim_t *opt)
{
    if (opt->offload != NULL) {
        tt_disk_ring_forgive(ring_of(opt));
        opt->offload->is_broken = opt->offload->is_open = opt->offload->has_changed = false;
    }
}
