/* Paths of CTC, sample by sample, in logarithms of f64. See ctc.h.
 *
 * A target of S labels becomes L = 2S + 1 places: a blank before, between and behind them.
 * alpha[t][i] is the probability to be at place i after step t, by all ways from the start;
 * beta[t][i] that to reach the end from there, step t included. From a place a path stays, goes on
 * by one, or by two where that skips a blank between unequal labels.
 */
#include "core/kernel/loss/ctc.h"

#include <math.h>
#include <string.h>

#include "core/base/alloc.h"

#define NEVER (-(double)INFINITY)

static int64_t input_length(const tt_ctc_t *ctc, int64_t n)
{
    return ctc->input_lengths == NULL ? ctc->steps : ctc->input_lengths[n];
}

static int64_t target_length(const tt_ctc_t *ctc, int64_t n)
{
    return ctc->target_lengths == NULL ? ctc->target_stride : ctc->target_lengths[n];
}

/* The targets of all samples before this one, where they lie one behind the other. */
static int64_t target_begin(const tt_ctc_t *ctc, int64_t n)
{
    int64_t begin = n * ctc->target_stride;
    for (int64_t i = 0; i < n && ctc->target_stride == 0; i++) {
        begin += target_length(ctc, i);
    }
    return begin;
}

static tutti_status_t check_lengths(const tt_ctc_t *ctc)
{
    int64_t total = 0;
    for (int64_t n = 0; n < ctc->samples; n++) {
        const int64_t in = input_length(ctc, n), out = target_length(ctc, n);
        if (in < 0 || in > ctc->steps) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "ctc_loss: input length %lld of sample %lld is outside 0 to %lld",
                           (long long)in, (long long)n, (long long)ctc->steps);
        }
        const int64_t room =
            ctc->target_stride > 0 ? ctc->target_stride : ctc->target_count - total;
        if (out < 0 || out > room) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "ctc_loss: target length %lld of sample %lld is outside 0 to %lld",
                           (long long)out, (long long)n, (long long)room);
        }
        total += out;
    }
    return TUTTI_OK;
}

static tutti_status_t check_targets(const tt_ctc_t *ctc)
{
    for (int64_t n = 0; n < ctc->samples; n++) {
        const int64_t *labels = ctc->targets + target_begin(ctc, n);
        for (int64_t i = 0; i < target_length(ctc, n); i++) {
            if (labels[i] < 0 || labels[i] >= ctc->classes) {
                return TT_FAIL(TUTTI_ERR_ARG,
                               "ctc_loss: target %lld of sample %lld is %lld, outside [0, %lld)",
                               (long long)i, (long long)n, (long long)labels[i],
                               (long long)ctc->classes);
            }
        }
    }
    return TUTTI_OK;
}

/* ---- a sample -------------------------------------------------------------------------------- */

typedef struct {
    const tt_ctc_t *ctc;
    int64_t n, steps, places;
    const int64_t *labels;
    double *alpha, *beta; /* [steps, places] */
} sample_t;

static double log_prob(const sample_t *p, int64_t t, int64_t c)
{
    const int64_t at = (t * p->ctc->samples + p->n) * p->ctc->classes + c;
    return p->ctc->dtype == TUTTI_F32 ? (double)((const float *)p->ctc->log_probs)[at]
                                      : ((const double *)p->ctc->log_probs)[at];
}

static int64_t label_at(const sample_t *p, int64_t place)
{
    return place % 2 == 0 ? p->ctc->blank : p->labels[place / 2];
}

/* log(e^a + e^b) */
static double add_logs(double a, double b)
{
    const double most = a > b ? a : b, least = a > b ? b : a;
    return least == NEVER ? most : most + log1p(exp(least - most));
}

/* Whether a path may go from two places before straight to this one. */
static bool may_skip(const sample_t *p, int64_t place)
{
    return place >= 2 && place % 2 == 1 && label_at(p, place) != label_at(p, place - 2);
}

static void run_forward(sample_t *p)
{
    const int64_t places = p->places;
    for (int64_t t = 0; t < p->steps; t++) {
        double *now = p->alpha + t * places;
        const double *before = now - places;
        for (int64_t i = 0; i < places; i++) {
            double sum = t == 0 ? (i < 2 ? 0 : NEVER) : before[i];
            if (t > 0 && i >= 1) {
                sum = add_logs(sum, before[i - 1]);
            }
            if (t > 0 && may_skip(p, i)) {
                sum = add_logs(sum, before[i - 2]);
            }
            now[i] = sum == NEVER ? NEVER : sum + log_prob(p, t, label_at(p, i));
        }
    }
}

static void run_backward(sample_t *p)
{
    const int64_t places = p->places;
    for (int64_t t = p->steps; t-- > 0;) {
        double *now = p->beta + t * places;
        const double *after = now + places;
        const bool is_last = t + 1 == p->steps;
        for (int64_t i = 0; i < places; i++) {
            double sum = is_last ? (i + 2 >= places ? 0 : NEVER) : after[i];
            if (!is_last && i + 1 < places) {
                sum = add_logs(sum, after[i + 1]);
            }
            if (!is_last && i + 2 < places && may_skip(p, i + 2)) {
                sum = add_logs(sum, after[i + 2]);
            }
            now[i] = sum == NEVER ? NEVER : sum + log_prob(p, t, label_at(p, i));
        }
    }
}

/* -log of the probability of the target. */
static double loss_of(const sample_t *p)
{
    if (p->steps == 0) {
        return p->places == 1 ? 0 : (double)INFINITY;
    }
    const double *last = p->alpha + (p->steps - 1) * p->places;
    return -(p->places == 1 ? last[0] : add_logs(last[p->places - 1], last[p->places - 2]));
}

/* ---- all samples ----------------------------------------------------------------------------- */

typedef struct {
    const tt_ctc_t *ctc;
    double *scratch;
    size_t room; /* of a sample's alpha, and of its beta */
    const int64_t *begins;
    int copies; /* of the room: 1 forward, 2 backward */
} job_t;

static sample_t sample_of(const job_t *job, int64_t n)
{
    const tt_ctc_t *ctc = job->ctc;
    double *own = job->scratch + (size_t)n * job->room * (size_t)job->copies;
    return (sample_t){.ctc = ctc,
                      .n = n,
                      .steps = input_length(ctc, n),
                      .places = 2 * target_length(ctc, n) + 1,
                      .labels = ctc->targets + job->begins[n],
                      .alpha = own,
                      .beta = own + job->room};
}

static void store(tutti_dtype_t dtype, void *to, int64_t at, double value)
{
    if (dtype == TUTTI_F32) {
        ((float *)to)[at] = (float)value;
    } else {
        ((double *)to)[at] = value;
    }
}

static void forward_piece(void *arg, size_t n)
{
    const job_t *job = arg;
    sample_t p = sample_of(job, (int64_t)n);
    run_forward(&p);
    const double loss = loss_of(&p);
    store(job->ctc->dtype, job->ctc->losses, p.n,
          job->ctc->zero_infinity && loss == (double)INFINITY ? 0 : loss);
}

/* The logarithm of being at any place of the class that place `first` has. */
static double at_class(const sample_t *p, int64_t t, int64_t first)
{
    const double *alpha = p->alpha + t * p->places, *beta = p->beta + t * p->places;
    double sum = alpha[first] + beta[first];
    for (int64_t i = first + 1; i < p->places; i++) {
        if (label_at(p, i) == label_at(p, first)) {
            sum = add_logs(sum, alpha[i] + beta[i]);
        }
    }
    return sum;
}

/* Whether an earlier place has its class. Blanks are at every second one. */
static bool is_seen(const sample_t *p, int64_t place)
{
    for (int64_t i = 0; i < place; i++) {
        if (label_at(p, i) == label_at(p, place)) {
            return true;
        }
    }
    return false;
}

/* A step's gradient: e^log_prob, without the probability of being there. */
static void write_step(const sample_t *p, int64_t t, double loss, double g)
{
    const tt_ctc_t *ctc = p->ctc;
    const int64_t row = (t * ctc->samples + p->n) * ctc->classes;
    for (int64_t c = 0; c < ctc->classes; c++) {
        store(ctc->dtype, ctc->grad_log_probs, row + c, exp(log_prob(p, t, c)) * g);
    }
    for (int64_t i = 0; i < p->places; i++) {
        const int64_t c = label_at(p, i);
        if (!is_seen(p, i)) {
            const double log_p = log_prob(p, t, c), there = at_class(p, t, i) + loss - log_p;
            store(ctc->dtype, ctc->grad_log_probs, row + c, (exp(log_p) - exp(there)) * g);
        }
    }
}

static void backward_piece(void *arg, size_t n)
{
    const job_t *job = arg;
    const tt_ctc_t *ctc = job->ctc;
    sample_t p = sample_of(job, (int64_t)n);
    run_forward(&p);
    run_backward(&p);
    const double loss = loss_of(&p);
    const double g = ctc->dtype == TUTTI_F32 ? (double)((const float *)ctc->grad_losses)[n]
                                             : ((const double *)ctc->grad_losses)[n];
    const bool is_zero = ctc->zero_infinity && loss == (double)INFINITY;
    for (int64_t t = 0; t < ctc->steps; t++) {
        const int64_t row = (t * ctc->samples + p.n) * ctc->classes;
        if (t < p.steps && !is_zero) {
            write_step(&p, t, loss, g);
            continue;
        }
        for (int64_t c = 0; c < ctc->classes; c++) {
            store(ctc->dtype, ctc->grad_log_probs, row + c, 0);
        }
    }
}

static tutti_status_t run_samples(tt_threads_t *threads, const tt_ctc_t *ctc, tt_piece_fn_t fn,
                                  int copies)
{
    int64_t longest = 0;
    TT_TRY(check_lengths(ctc));
    TT_TRY(check_targets(ctc));
    if (ctc->samples == 0) {
        return TUTTI_OK;
    }
    int64_t *begins = tt_alloc_array((size_t)ctc->samples, sizeof *begins, "scratch");
    TT_TRY_ALLOC(begins);
    for (int64_t n = 0; n < ctc->samples; n++) {
        const int64_t length = target_length(ctc, n);
        longest = length > longest ? length : longest;
        begins[n] = target_begin(ctc, n);
    }
    job_t job = {.ctc = ctc,
                 .room = (size_t)(ctc->steps * (2 * longest + 1)),
                 .begins = begins,
                 .copies = copies};
    job.scratch = tt_threads_borrow(threads, (size_t)ctc->samples * job.room * (size_t)copies *
                                                     sizeof *job.scratch +
                                                 sizeof *job.scratch);
    if (job.scratch == NULL) {
        tt_free(begins);
        return TUTTI_ERR_NOMEM;
    }
    tt_threads_run(threads, (size_t)ctc->samples, fn, &job);
    tt_threads_give_back(threads, job.scratch);
    tt_free(begins);
    return TUTTI_OK;
}

static tutti_status_t run_ctc(tt_threads_t *threads, const void *arguments)
{
    return run_samples(threads, arguments, forward_piece, 1);
}

static tutti_status_t run_ctc_backward(tt_threads_t *threads, const void *arguments)
{
    return run_samples(threads, arguments, backward_piece, 2);
}

static const tt_pointer_t pointers[] = {
    TT_POINTER(tt_ctc_t, log_probs),      TT_POINTER(tt_ctc_t, targets),
    TT_POINTER(tt_ctc_t, input_lengths),  TT_POINTER(tt_ctc_t, target_lengths),
    TT_POINTER(tt_ctc_t, losses),         TT_POINTER(tt_ctc_t, grad_losses),
    TT_POINTER(tt_ctc_t, grad_log_probs), TT_NO_POINTER};

TT_LAUNCHER(tt_ctc, "ctc_loss", tt_ctc_t, run_ctc, pointers)
TT_LAUNCHER(tt_ctc_backward, "ctc_loss_backward", tt_ctc_t, run_ctc_backward, pointers)
