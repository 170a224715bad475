/* Probabilities of paths, step by step. From a place a path stays, goes on by one, or by two where
 * that skips a blank between unequal labels.
 *
 *     alpha[t][i]   of being at place i after step t, by all ways from the start
 *     beta[t][i]    of reaching the end from there, without what step t itself has
 *
 * alpha beta / the probability of the target is that of being there. All are numbers with an
 * exponent of their own, so that there are no logarithms but those given, and an e^x is taken once
 * for each class of a step: sums of f64 with a relative error of some units of 2^-53 for each step.
 */
#include "core/kernel/loss/ctc_paths.h"

#include <float.h>
#include <math.h>

#define RANGE 0x1p512
#define MOST 0x1p256
#define LEAST 0x1p-256
#define LOG_RANGE 354.89135644669199 /* log 2^512 */
#define LOG_MOST 0x1p48              /* of a class: so that exponents of 2^20 steps are exact */

static const tt_far_t none = {0, -(INT64_C(1) << 62)}, one = {1, 0};

static tt_far_t normal(double f, int64_t e)
{
    if (f == 0 || isnan(f)) { /* whose exponents would add up without end */
        return (tt_far_t){f, f == 0 ? none.e : 0};
    }
    if (f < LEAST && f > 0) {
        return (tt_far_t){f * RANGE, e - 1};
    }
    return f >= MOST && f <= DBL_MAX ? (tt_far_t){f / RANGE, e + 1} : (tt_far_t){f, e};
}

static tt_far_t plus(tt_far_t a, tt_far_t b)
{
    if (a.e == b.e) {
        return (tt_far_t){a.f + b.f, a.e};
    }
    const tt_far_t high = a.e > b.e ? a : b, low = a.e > b.e ? b : a;
    return (tt_far_t){high.f + low.f * (high.e - low.e == 1 ? 1 / RANGE : 0), high.e};
}

static tt_far_t times(tt_far_t a, tt_far_t b)
{
    return normal(a.f * b.f, a.e + b.e);
}

/* Of numbers up to 1. */
static double plain(tt_far_t a)
{
    return a.e == 0 ? a.f : a.e < -1 ? a.f * 0 : a.e < 0 ? a.f / RANGE : a.f * RANGE;
}

/* e^x, of which `value` is what exp gave. */
static tt_far_t far_exp(const tt_ctc_sample_t *s, double x, double value)
{
    if (!(x < -150 || x > 150) || isinf(x)) {
        return x == -(double)INFINITY ? none : (tt_far_t){value, 0};
    }
    const double near = fmin(fmax(x, -LOG_MOST), LOG_MOST);
    const double e = nearbyint(near / LOG_RANGE), rest = near - e * LOG_RANGE;
    const void *operand = &rest;
    s->exp(&value, &operand, 1, (tt_map_params_t){0});
    return (tt_far_t){value, (int64_t)e};
}

/* ---- scratch --------------------------------------------------------------------------------- */

static int64_t places_of(int64_t labels)
{
    return 2 * labels + 1;
}

static size_t row_of(const tt_ctc_t *ctc, int64_t labels)
{
    return (size_t)(ctc->classes > labels ? ctc->classes : labels + 1);
}

size_t tt_ctc_room(const tt_ctc_t *ctc, int64_t labels, bool has_gradient)
{
    const size_t places = (size_t)places_of(labels);
    const size_t alphas = has_gradient && ctc->steps > 1 ? (size_t)ctc->steps : 1;
    return ((size_t)labels + 1 + (alphas + 1) * places) * sizeof(tt_far_t) +
           2 * row_of(ctc, labels) * sizeof(double);
}

void tt_ctc_cut(tt_ctc_sample_t *s, int64_t labels, bool has_gradient, void *room)
{
    const size_t places = (size_t)places_of(labels);
    const size_t alphas = has_gradient && s->ctc->steps > 1 ? (size_t)s->ctc->steps : 1;
    s->prob = room;
    s->beta = s->prob + labels + 1;
    s->alpha = s->beta + places;
    s->row = (double *)(void *)(s->alpha + alphas * places);
    s->logs = s->row + row_of(s->ctc, labels);
}

/* ---- a step ---------------------------------------------------------------------------------- */

static int64_t row_at(const tt_ctc_sample_t *s, int64_t t)
{
    return (t * s->ctc->samples + s->n) * s->ctc->classes;
}

static double log_prob(const tt_ctc_sample_t *s, int64_t at)
{
    return s->ctc->dtype == TUTTI_F32 ? (double)((const float *)s->ctc->log_probs)[at]
                                      : ((const double *)s->ctc->log_probs)[at];
}

/* Of labels and blank alone. */
static void read_labels(tt_ctc_sample_t *s, int64_t t)
{
    const int64_t at = row_at(s, t);
    for (int64_t k = 0; k < s->labels; k++) {
        s->logs[k] = log_prob(s, at + s->label[k]);
    }
    s->logs[s->labels] = log_prob(s, at + s->ctc->blank);
    const void *operand = s->logs;
    s->exp(s->row, &operand, (size_t)s->labels + 1, (tt_map_params_t){0});
    for (int64_t k = 0; k <= s->labels; k++) {
        s->prob[k] = far_exp(s, s->logs[k], s->row[k]);
    }
}

/* Of all classes, in row. */
static void read_classes(tt_ctc_sample_t *s, int64_t t)
{
    const int64_t at = row_at(s, t);
    for (int64_t c = 0; c < s->ctc->classes; c++) {
        s->logs[c] = log_prob(s, at + c);
    }
    const void *operand = s->logs;
    s->exp(s->row, &operand, (size_t)s->ctc->classes, (tt_map_params_t){0});
    for (int64_t k = 0; k <= s->labels; k++) {
        const int64_t c = k < s->labels ? s->label[k] : s->ctc->blank;
        s->prob[k] = far_exp(s, s->logs[c], s->row[c]);
    }
}

/* Whether a path may go from the label before straight to label k. */
static bool may_skip(const tt_ctc_sample_t *s, int64_t k)
{
    return k > 0 && k < s->labels && s->label[k] != s->label[k - 1];
}

static void begin_alpha(const tt_ctc_sample_t *s, tt_far_t *now)
{
    const int64_t places = places_of(s->labels);
    for (int64_t i = 2; i < places; i++) {
        now[i] = none;
    }
    now[0] = s->prob[s->labels];
    if (places > 1) {
        now[1] = s->prob[0];
    }
}

/* From the end: `now` may be `before`. */
static void move_alpha(const tt_ctc_sample_t *s, const tt_far_t *before, tt_far_t *now)
{
    const tt_far_t blank = s->prob[s->labels];
    for (int64_t k = s->labels; k > 0; k--) {
        now[2 * k] = times(plus(before[2 * k], before[2 * k - 1]), blank);
        tt_far_t sum = plus(before[2 * k - 1], before[2 * k - 2]);
        if (may_skip(s, k - 1)) {
            sum = plus(sum, before[2 * k - 3]);
        }
        now[2 * k - 1] = times(sum, s->prob[k - 1]);
    }
    now[0] = times(before[0], blank);
}

/* beta of the step before, of a beta that has the step itself as well. */
static void move_beta(const tt_ctc_sample_t *s)
{
    tt_far_t *beta = s->beta;
    for (int64_t k = 0; k < s->labels; k++) {
        beta[2 * k] = plus(beta[2 * k], beta[2 * k + 1]);
        beta[2 * k + 1] = plus(beta[2 * k + 1], beta[2 * k + 2]);
        if (may_skip(s, k + 1)) {
            beta[2 * k + 1] = plus(beta[2 * k + 1], beta[2 * k + 3]);
        }
    }
}

static void begin_beta(const tt_ctc_sample_t *s)
{
    const int64_t places = places_of(s->labels);
    for (int64_t i = 0; i < places; i++) {
        s->beta[i] = i + 2 >= places ? one : none;
    }
}

/* ---- all steps ------------------------------------------------------------------------------- */

/* The probability of the target; alpha is that of the last step. */
static tt_far_t end_of(const tt_ctc_sample_t *s, const tt_far_t *alpha)
{
    const int64_t last = places_of(s->labels) - 1;
    return last == 0 ? alpha[0] : plus(alpha[last], alpha[last - 1]);
}

static double loss_of(const tt_ctc_sample_t *s, const tt_far_t *alpha)
{
    if (s->steps == 0) {
        return s->labels == 0 ? 0 : (double)INFINITY;
    }
    const tt_far_t p = end_of(s, alpha);
    return p.f == 0 ? (double)INFINITY : -(log(p.f) + (double)p.e * LOG_RANGE);
}

double tt_ctc_sample_forward(tt_ctc_sample_t *s)
{
    for (int64_t t = 0; t < s->steps; t++) {
        read_labels(s, t);
        if (t == 0) {
            begin_alpha(s, s->alpha);
        } else {
            move_alpha(s, s->alpha, s->alpha);
        }
    }
    return loss_of(s, s->alpha);
}

static void store(const tt_ctc_t *ctc, int64_t at, double value)
{
    if (ctc->dtype == TUTTI_F32) {
        ((float *)ctc->grad_log_probs)[at] = (float)value;
    } else {
        ((double *)ctc->grad_log_probs)[at] = value;
    }
}

static void clear_rows(const tt_ctc_sample_t *s, int64_t first)
{
    for (int64_t t = first; t < s->ctc->steps; t++) {
        for (int64_t c = 0; c < s->ctc->classes; c++) {
            store(s->ctc, row_at(s, t) + c, 0);
        }
    }
}

/* A step's gradient: e^log_prob, without the probability of being there; beta moves on. */
static void write_step(tt_ctc_sample_t *s, int64_t t, tt_far_t inverse, double g)
{
    const int64_t places = places_of(s->labels), at = row_at(s, t);
    const tt_far_t *alpha = s->alpha + t * places;
    read_classes(s, t);
    for (int64_t i = 0; i < places; i++) {
        const int64_t k = i % 2 == 0 ? s->labels : i / 2;
        const int64_t c = i % 2 == 0 ? s->ctc->blank : s->label[i / 2];
        s->row[c] -= plain(times(times(alpha[i], s->beta[i]), inverse));
        s->beta[i] = times(s->beta[i], s->prob[k]);
    }
    for (int64_t c = 0; c < s->ctc->classes; c++) {
        store(s->ctc, at + c, s->row[c] * g);
    }
    move_beta(s);
}

void tt_ctc_sample_backward(tt_ctc_sample_t *s)
{
    const tt_ctc_t *ctc = s->ctc;
    const int64_t places = places_of(s->labels);
    for (int64_t t = 0; t < s->steps; t++) {
        tt_far_t *now = s->alpha + t * places;
        read_labels(s, t);
        if (t == 0) {
            begin_alpha(s, now);
        } else {
            move_alpha(s, now - places, now);
        }
    }
    const tt_far_t *last = s->steps == 0 ? s->alpha : s->alpha + (s->steps - 1) * places;
    const bool is_lost = ctc->zero_infinity && loss_of(s, last) == (double)INFINITY;
    clear_rows(s, is_lost ? 0 : s->steps);
    if (is_lost || s->steps == 0) {
        return;
    }
    const tt_far_t p = end_of(s, last), inverse = {1 / p.f, -p.e};
    double g = ctc->dtype == TUTTI_F32 ? (double)((const float *)ctc->grad_losses)[s->n]
                                       : ((const double *)ctc->grad_losses)[s->n];
    g = p.f == 0 ? (double)NAN : g; /* of classes that no path could be at, too */
    begin_beta(s);
    for (int64_t t = s->steps; t-- > 0;) {
        write_step(s, t, inverse, g);
    }
}
