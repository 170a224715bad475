/* What an optimizer must know of slices on other ranks: sums over whole parameters. Each rank
 * writes the numbers of what it has, at their places in a row of all, in which the others' are 0;
 * the slicer adds the rows of all ranks, which is exact; then everybody adds up the same numbers in
 * the same order, as one process does that has the whole.
 *
 *     parameter   |   section 0   |   section 1   |   section 2   |
 *     rank 0      | sums            0 ...
 *     rank 1        0 ...         | sums            sums          |
 */
#include "compute/optim/optimizer.h"
#include "core/base/alloc.h"
#include "core/base/integers.h"

/* What is summed: so many numbers of a parameter, of which this rank writes its own. */
typedef struct sums sums_t;
struct sums {
    tutti_optim_t *opt;
    bool is_largest;
    tt_optim_measure_t measure;
    double (*totals)[TUTTI_OPTIM_SUMS_MAX];
    double *norms;
    size_t (*count)(const tutti_tensor_t *whole);
    void (*write)(const sums_t *sums, size_t slot, const tutti_tensor_t *grad, double *numbers);
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

typedef struct {
    const sums_t *sums;
    const tt_optim_slot_t *slot;
    const tutti_tensor_t *grad;
    size_t length;
    double *numbers; /* of the slice's first section */
} sections_t;

static void write_section(void *arg, size_t index)
{
    const sections_t *at = arg;
    at->sums->measure(at->sums->opt, at->slot, at->grad, index * at->length, at->length,
                      at->numbers + TUTTI_OPTIM_SUMS_MAX * index);
}

static void write_sums(const sums_t *sums, size_t slot, const tutti_tensor_t *grad, double *numbers)
{
    const tt_optim_slot_t *at = &sums->opt->slots[slot];
    const tutti_tensor_t *values = tt_optim_weight(at);
    const size_t length = tt_optim_section((size_t)at->tensor->numel),
                 first = (size_t)values->part->first;
    TT_ASSERT(first % length == 0 || values->numel == 0);
    sections_t sections = {sums, at, grad, length,
                           numbers + TUTTI_OPTIM_SUMS_MAX * (first / length)};
    tt_threads_run(sums->opt->ctx->exec.threads, tt_divide_up((size_t)values->numel, length),
                   write_section, &sections);
}

static void read_sums(const sums_t *sums, size_t slot, const double *numbers)
{
    double *total = sums->totals[slot];
    const size_t sections = sections_of(sums->opt->slots[slot].tensor);
    for (int k = 0; k < TUTTI_OPTIM_SUMS_MAX; k++) {
        total[k] = 0;
        for (size_t i = 0; i < sections; i++) {
            total[k] += numbers[TUTTI_OPTIM_SUMS_MAX * i + (size_t)k];
        }
    }
}

/* ---- blocks of gradients --------------------------------------------------------------------- */

static size_t count_blocks(const tutti_tensor_t *whole)
{
    return tt_divide_up((size_t)whole->numel, TT_FLAT_BLOCK);
}

static void write_norms(const sums_t *sums, size_t slot, const tutti_tensor_t *grad,
                        double *numbers)
{
    const size_t first = (size_t)tt_optim_weight(&sums->opt->slots[slot])->part->first;
    TT_ASSERT(first % TT_FLAT_BLOCK == 0 || grad->numel == 0);
    tt_flat_blocks(sums->opt->ctx->exec.threads, tt_tensor_data(grad), (size_t)grad->numel,
                   sums->is_largest, numbers + first / TT_FLAT_BLOCK);
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

static bool takes_part(const tutti_optim_t *opt, size_t slot, const tt_slicer_t *slicer)
{
    return slicer_of(opt, slot) == slicer && tt_optim_grad(&opt->slots[slot]) != NULL;
}

static tutti_status_t write_all(const sums_t *sums, const tt_slicer_t *slicer, double *numbers)
{
    tutti_optim_t *opt = sums->opt;
    for (size_t i = 0; i < opt->slot_count; i++) {
        tutti_tensor_t *grad;
        if (takes_part(opt, i, slicer)) {
            TT_TRY(tt_optim_flat_grad(opt, &opt->slots[i], &grad));
            sums->write(sums, i, grad, numbers);
            numbers += sums->count(opt->slots[i].tensor);
        }
    }
    return TUTTI_OK;
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

static tutti_status_t sum_slicer(const sums_t *sums, tt_slicer_t *slicer)
{
    const tutti_optim_t *opt = sums->opt;
    size_t count = 0;
    for (size_t i = 0; i < opt->slot_count; i++) {
        count += takes_part(opt, i, slicer) ? sums->count(opt->slots[i].tensor) : 0;
    }
    double *numbers = tt_alloc_array(count + 1, sizeof *numbers, "sums of slices");
    tutti_status_t status = numbers == NULL ? TUTTI_ERR_NOMEM : write_all(sums, slicer, numbers);
    status = slicer->agree(slicer, status);
    if (status >= 0) {
        status = slicer->sum(slicer, numbers, count);
    }
    if (status >= 0) {
        read_all(sums, slicer, numbers);
    }
    tt_free(numbers);
    return status;
}

static tutti_status_t sum_all(const sums_t *sums)
{
    for (size_t i = 0; i < sums->opt->slot_count; i++) {
        TT_TRY(is_first_of_slicer(sums->opt, i) ? sum_slicer(sums, slicer_of(sums->opt, i))
                                                : TUTTI_OK);
    }
    return TUTTI_OK;
}

tutti_status_t tt_optim_measure_slices(tutti_optim_t *opt, tt_optim_measure_t measure,
                                       double (*totals)[TUTTI_OPTIM_SUMS_MAX])
{
    const sums_t sums = {.opt = opt,
                         .measure = measure,
                         .totals = totals,
                         .count = count_sums,
                         .write = write_sums,
                         .read = read_sums};
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
    for (size_t i = 0; i < opt->slot_count; i++) {
        if (is_first_of_slicer(opt, i)) {
            status = slicer_of(opt, i)->agree(slicer_of(opt, i), status);
        }
    }
    return tt_optim_agree_spreads(opt, status);
}

tutti_status_t tt_optim_end_step(const tutti_optim_t *opt, tutti_status_t status)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        if (is_first_of_slicer(opt, i)) {
            status = slicer_of(opt, i)->stepped(slicer_of(opt, i), status);
        }
    }
    return status;
}

tutti_status_t tt_optim_all_agree(const tutti_optim_t *opt, bool *is_so)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        if (is_first_of_slicer(opt, i)) {
            double others = *is_so ? 0 : 1;
            TT_TRY(slicer_of(opt, i)->sum(slicer_of(opt, i), &others, 1));
            *is_so = others == 0;
        }
    }
    return tt_optim_all_agree_spreads(opt, is_so);
}
