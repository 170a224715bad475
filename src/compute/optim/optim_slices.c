/* What an optimizer must know of slices on other ranks: sums over whole parameters. Each rank
 * writes the numbers of what it has, at their places in a row of all, in which the others' are 0;
 * the slicer adds the rows of all ranks, which is exact; then everybody adds up the same numbers in
 * the same order, as one process does that has the whole.
 *
 *     parameter   |   section 0   |   section 1   |   section 2   |
 *     rank 0      | sums            0 ...
 *     rank 1        0 ...         | sums            sums          |
 */
#include <stdio.h>
#include <string.h>

#include "compute/optim/optim_offload.h"
#include "compute/optim/optimizer.h"
#include "core/base/alloc.h"
#include "core/base/integers.h"

/* What is summed: so many numbers of a parameter, of which this rank writes its own. */
typedef struct sums sums_t;
struct sums {
    tutti_optim_t *opt;
    bool is_largest;
    double (*totals)[TUTTI_OPTIM_SUMS_MAX];
    double *norms;
    size_t (*count)(const tutti_tensor_t *whole);
    tutti_status_t (*write)(const sums_t *sums, size_t slot, const tutti_tensor_t *grad,
                            double *numbers);
    void (*read)(const sums_t *sums, size_t slot, const double *numbers);
};

/* ---- sections -------------------------------------------------------------------------------- */

static size_t sections_of(const tutti_tensor_t *whole)
{
    const size_t numel = (size_t)whole->numel;
    return tt_divide_up(numel, tt_optim_section(numel));
}

static size_t count_sums(const tutti_tensor_t *whole)
{
    return TUTTI_OPTIM_SUMS_MAX * sections_of(whole);
}

static tutti_status_t write_sums(const sums_t *sums, size_t slot, const tutti_tensor_t *grad,
                                 double *numbers)
{
    tutti_optim_t *opt = sums->opt;
    tt_optim_slot_t *at = &opt->slots[slot];
    const tutti_tensor_t *values = tt_optim_weight(at);
    const size_t length = tt_optim_section((size_t)at->tensor->numel),
                 first = (size_t)values->part->first;
    TT_ASSERT(first % length == 0 || values->numel == 0);
    double *own = numbers + TUTTI_OPTIM_SUMS_MAX * (first / length);
    if (tt_optim_is_offloaded(opt, at)) {
        return tt_optim_offload_measure(opt, at, grad, length, own);
    }
    if (values->storage->device != NULL) { /* kernels of the host alone measure */
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "%s measures parameters, and \"%s\" is dealt out to ranks and lies on %s: "
                       "keep it on the host, or choose another kind",
                       opt->ops->name, at->name, tt_device_text(values->storage->device));
    }
    tutti_optim_piece_t piece = tt_optim_piece_of(opt, at, grad);
    piece.options = opt->groups[at->group].options;
    tt_optim_measure_now(opt->ops, opt->ctx->exec.threads, &piece, length, own);
    return TUTTI_OK;
}

static void read_sums(const sums_t *sums, size_t slot, const double *numbers)
{
    double *total = sums->totals[slot];
    const size_t sections = sections_of(sums->opt->slots[slot].tensor);
    memset(total, 0, TUTTI_OPTIM_SUMS_MAX * sizeof *total);
    tt_optim_add_sections(numbers, sections, total);
}

/* ---- blocks of gradients --------------------------------------------------------------------- */

static size_t count_blocks(const tutti_tensor_t *whole)
{
    return tt_divide_up((size_t)whole->numel, TT_FLAT_BLOCK);
}

/* A device's gradient is read: only its rank has it, and numbers of all ranks are added up here. */
static tutti_status_t write_norms(const sums_t *sums, size_t slot, const tutti_tensor_t *grad,
                                  double *numbers)
{
    tutti_tensor_t *host;
    const size_t first = (size_t)tt_optim_weight(&sums->opt->slots[slot])->part->first;
    TT_ASSERT(first % TT_FLAT_BLOCK == 0 || grad->numel == 0);
    TT_TRY(tt_tensor_on_host(grad, &host));
    tt_flat_blocks(sums->opt->ctx->exec.threads, tt_tensor_data(host), (size_t)host->numel,
                   sums->is_largest, numbers + first / TT_FLAT_BLOCK);
    tutti_tensor_release(host);
    return TUTTI_OK;
}

static void read_norms(const sums_t *sums, size_t slot, const double *numbers)
{
    double all = 0;
    const size_t blocks = count_blocks(sums->opt->slots[slot].tensor);
    for (size_t i = 0; i < blocks; i++) {
        all = tt_flat_fold(all, numbers[i], sums->is_largest);
    }
    sums->norms[slot] = all;
}

/* ---- all slices of a slicer ------------------------------------------------------------------ */

static tt_slicer_t *slicer_of(const tutti_optim_t *opt, size_t slot)
{
    const tt_tensor_slice_t *slice = opt->slots[slot].tensor->slice;
    return slice == NULL ? NULL : slice->slicer;
}

/* Those of one slicer mostly follow each other. */
static bool is_first_of_slicer(const tutti_optim_t *opt, size_t slot)
{
    size_t i = slot;
    while (i > 0 && slicer_of(opt, i - 1) != slicer_of(opt, slot)) {
        i--;
    }
    return i == 0 && slicer_of(opt, slot) != NULL;
}

/* The first slot from `from` on that is the first of its slicer; slot_count: there is none. */
static size_t next_slicer(const tutti_optim_t *opt, size_t from)
{
    while (from < opt->slot_count && !is_first_of_slicer(opt, from)) {
        from++;
    }
    return from;
}

static bool has_several_slicers(const tutti_optim_t *opt)
{
    const size_t first = next_slicer(opt, 0);
    return first < opt->slot_count && next_slicer(opt, first + 1) < opt->slot_count;
}

/* Tells a slicer's ranks how this one has fared. What went wrong first stays. */
static tutti_status_t tell(const tutti_optim_t *opt, size_t slot, tutti_status_t status)
{
    char text[TT_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", status < 0 ? tutti_last_error() : "");
    const tutti_status_t agreed = slicer_of(opt, slot)->agree(slicer_of(opt, slot), status);
    return status < 0 ? tt_fail_again(status, text) : agreed;
}

/* Behind what all slicers did, in their order: what went wrong among the ranks of a later one,
 * those of earlier ones hear of, who may be others. */
static tutti_status_t tell_back(const tutti_optim_t *opt, tutti_status_t status)
{
    bool is_last = true;
    for (size_t i = opt->slot_count; i-- > 0;) {
        if (is_first_of_slicer(opt, i)) {
            status = is_last ? status : tell(opt, i, status);
            is_last = false;
        }
    }
    return status;
}

/* Forth, and back. */
static tutti_status_t tell_all(const tutti_optim_t *opt, tutti_status_t status)
{
    for (size_t i = next_slicer(opt, 0); i < opt->slot_count; i = next_slicer(opt, i + 1)) {
        status = tell(opt, i, status);
    }
    return tell_back(opt, status);
}

static bool takes_part(const tutti_optim_t *opt, size_t slot, const tt_slicer_t *slicer)
{
    return slicer_of(opt, slot) == slicer && tt_optim_grad(&opt->slots[slot]) != NULL;
}

/* What may fail of all slots, of whatever slicer: a measure moves moments, so that none may begin
 * where a rank cannot. */
static tutti_status_t prepare_all(const sums_t *sums, double **numbers)
{
    tutti_optim_t *opt = sums->opt;
    size_t count = 0;
    for (size_t i = 0; i < opt->slot_count; i++) {
        tutti_tensor_t *grad;
        if (slicer_of(opt, i) != NULL && tt_optim_grad(&opt->slots[i]) != NULL) {
            TT_TRY(tt_optim_flat_grad(opt, &opt->slots[i], &grad));
            count += sums->count(opt->slots[i].tensor);
        }
    }
    *numbers = tt_alloc_array(count + opt->slot_count + 1, sizeof **numbers, "sums of slices");
    TT_TRY_ALLOC(*numbers);
    return TUTTI_OK;
}

/* *count: how many. Gradients are there: what fails is reading those of a device. */
static tutti_status_t write_all(const sums_t *sums, const tt_slicer_t *slicer, double *numbers,
                                size_t *count)
{
    tutti_optim_t *opt = sums->opt;
    tutti_status_t status = TUTTI_OK;
    *count = 0;
    for (size_t i = 0; i < opt->slot_count; i++) {
        tutti_tensor_t *grad;
        if (!takes_part(opt, i, slicer)) {
            continue;
        }
        status = status < 0 ? status : tt_optim_flat_grad(opt, &opt->slots[i], &grad);
        status = status < 0 ? status : sums->write(sums, i, grad, numbers + *count);
        *count += sums->count(opt->slots[i].tensor);
    }
    return status;
}

static void read_all(const sums_t *sums, const tt_slicer_t *slicer, const double *numbers)
{
    const tutti_optim_t *opt = sums->opt;
    for (size_t i = 0; i < opt->slot_count; i++) {
        if (takes_part(opt, i, slicer)) {
            sums->read(sums, i, numbers);
            numbers += sums->count(opt->slots[i].tensor);
        }
    }
}

/* *numbers: zeros from here on, of which it takes some. The last one says how many ranks could not
 * write theirs. */
static tutti_status_t sum_slicer(const sums_t *sums, tt_slicer_t *slicer, double **numbers)
{
    double *own = *numbers;
    size_t count;
    const tutti_status_t status = write_all(sums, slicer, own, &count);
    own[count] = status < 0;
    *numbers += count + 1;
    TT_TRY(slicer->sum(slicer, own, count + 1));
    if (own[count] > 0) {
        return slicer->agree(slicer, status);
    }
    read_all(sums, slicer, own);
    return TUTTI_OK;
}

/* A rank that has failed among the ranks of one slicer tells those of the next ones, who would wait
 * for its numbers. */
static tutti_status_t sum_all(const sums_t *sums)
{
    const tutti_optim_t *opt = sums->opt;
    const size_t first = next_slicer(opt, 0);
    double *numbers = NULL;
    tutti_status_t status = tt_optim_agree(opt, prepare_all(sums, &numbers));
    const bool is_ready = status >= 0; /* else all ranks know it */
    double *next = numbers;
    for (size_t i = first; i < opt->slot_count && is_ready; i = next_slicer(opt, i + 1)) {
        status = i == first ? status : tell(opt, i, status);
        status = status < 0 ? status : sum_slicer(sums, slicer_of(opt, i), &next);
    }
    if (is_ready && has_several_slicers(opt)) {
        status = tell_all(opt, status);
    }
    tt_free(numbers);
    return status;
}

tutti_status_t tt_optim_measure_slices(tutti_optim_t *opt, double (*totals)[TUTTI_OPTIM_SUMS_MAX])
{
    const sums_t sums = {
        .opt = opt, .totals = totals, .count = count_sums, .write = write_sums, .read = read_sums};
    return sum_all(&sums);
}

tutti_status_t tt_optim_norms_of_slices(tutti_optim_t *opt, bool is_largest, double *norms)
{
    const sums_t sums = {.opt = opt,
                         .is_largest = is_largest,
                         .norms = norms,
                         .count = count_blocks,
                         .write = write_norms,
                         .read = read_norms};
    return sum_all(&sums);
}

/* ---- all ranks ------------------------------------------------------------------------------- */

bool tt_optim_has_slices(const tutti_optim_t *opt)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        if (opt->slots[i].tensor->slice != NULL) {
            return true;
        }
    }
    return false;
}

tutti_status_t tt_optim_agree(const tutti_optim_t *opt, tutti_status_t status)
{
    return tt_optim_agree_spreads(opt, tell_all(opt, status));
}

/* A step without gradients writes nothing: slicers whose parameters have none are not told of it.
 */
static bool is_stepped(const tutti_optim_t *opt, const tt_slicer_t *slicer)
{
    size_t i = 0;
    while (i < opt->slot_count && !takes_part(opt, i, slicer)) {
        i++;
    }
    return opt->writes_all || i < opt->slot_count;
}

/* What one fails of, ranks hear of at the step's end. */
tutti_status_t tt_optim_begin_step(const tutti_optim_t *opt)
{
    tutti_status_t status = TUTTI_OK;
    char text[TT_ERROR_TEXT_BYTES] = "";
    for (size_t i = next_slicer(opt, 0); i < opt->slot_count; i = next_slicer(opt, i + 1)) {
        tt_slicer_t *slicer = slicer_of(opt, i);
        const tutti_status_t one = is_stepped(opt, slicer) ? slicer->begin(slicer) : TUTTI_OK;
        if (status >= 0 && one < 0) {
            snprintf(text, sizeof text, "%s", tutti_last_error());
            status = one;
        }
    }
    return status < 0 ? tt_fail_again(status, text) : TUTTI_OK;
}

tutti_status_t tt_optim_end_step(const tutti_optim_t *opt, tutti_status_t status)
{
    for (size_t i = next_slicer(opt, 0); i < opt->slot_count; i = next_slicer(opt, i + 1)) {
        tt_slicer_t *slicer = slicer_of(opt, i);
        status = is_stepped(opt, slicer) ? slicer->stepped(slicer, status)
                                         : slicer->agree(slicer, status);
    }
    return tell_back(opt, status);
}

tutti_status_t tt_optim_all_agree(const tutti_optim_t *opt, bool *is_so)
{
    const size_t first = next_slicer(opt, 0);
    tutti_status_t status = TUTTI_OK;
    for (size_t i = first; i < opt->slot_count; i = next_slicer(opt, i + 1)) {
        double others = *is_so ? 0 : 1;
        status = i == first ? status : tell(opt, i, status);
        status = status < 0 ? status : slicer_of(opt, i)->sum(slicer_of(opt, i), &others, 1);
        *is_so = status >= 0 && others == 0;
    }
    if (has_several_slicers(opt)) {
        status = tell_all(opt, status);
    }
    return status < 0 ? status : tt_optim_all_agree_spreads(opt, is_so);
}
