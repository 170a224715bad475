/* einsum, made of other operations: diagonals are slices, summed letters of two terms a matrix
 * product, the others a product of elements; what no later term nor the result has is summed early.
 *
 *     a [batch, own of a, summed]   b [batch, summed, own of b]   ->   [batch, own of a, own of b]
 *
 * A term is a tensor and the label of each of its dimensions: 0 to 51 for letters, from 52 on for
 * those of "...", counted from the last. Sets of labels are masks.
 */
#include <tutti/op.h>
#include <tutti/op_math.h>
#include <tutti/op_pad.h>
#include <tutti/op_reduce.h>
#include <tutti/op_shape.h>

#include <string.h>

#include "core/base/fail.h"
#include "core/tensor/tensor_impl.h"

enum { LETTERS = 52, LABELS = 60 };

#define BIT(label) (UINT64_C(1) << (label))

typedef struct {
    tutti_tensor_t *x;
    int labels[TUTTI_RANK_MAX]; /* [x's rank] */
} term_t;

/* The labels of one side of the equation, in order. `dots`: where "..." stands, -1: nowhere. */
typedef struct {
    int labels[LABELS + 1];
    int count, dots;
} side_t;

static int label_of(char c)
{
    return c >= 'a' && c <= 'z' ? c - 'a' + 26 : c >= 'A' && c <= 'Z' ? c - 'A' : -1;
}

static char letter_of(int label)
{
    return (char)(label >= 26 ? 'a' + label - 26 : 'A' + label);
}

/* ---- reading the equation -------------------------------------------------------------------- */

/* One side's text up to its end, which *at moves to. */
static tutti_status_t read_side(const char *equation, const char **at, side_t *side)
{
    const char *p = *at;
    *side = (side_t){.dots = -1};
    for (; *p != 0 && *p != ',' && *p != '-'; p++) {
        if (*p == ' ') {
            continue;
        }
        if (strncmp(p, "...", 3) == 0 && side->dots < 0) {
            side->dots = side->count;
            p += 2;
            continue;
        }
        const int label = label_of(*p);
        if (label < 0 || side->count == LABELS) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "einsum: '%c' at character %d of \"%s\": want letters, one \"...\" for "
                           "a term, ',' and \"->\"",
                           *p, (int)(p - equation), equation);
        }
        side->labels[side->count++] = label;
    }
    *at = p;
    return TUTTI_OK;
}

/* Room for the dimensions of "..." before label `dots`. */
static tutti_status_t open_dots(side_t *side, int dims)
{
    if (side->count + dims > LABELS) {
        return TT_FAIL(TUTTI_ERR_ARG, "einsum: a term has too many dimensions");
    }
    memmove(&side->labels[side->dots + dims], &side->labels[side->dots],
            (size_t)(side->count - side->dots) * sizeof *side->labels);
    for (int i = 0; i < dims; i++) {
        side->labels[side->dots + i] = LETTERS + dims - 1 - i;
    }
    side->count += dims;
    return TUTTI_OK;
}

/* The labels of a term's dimensions. */
static tutti_status_t name_dims(side_t *side, const tutti_tensor_t *x, int number, term_t *term)
{
    const int rank = x->shape.rank;
    if (side->dots < 0 ? side->count != rank : side->count > rank) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "einsum: term %d has %d dimensions, and %d letters", number,
                       rank, side->count);
    }
    if (side->dots >= 0) {
        TT_TRY(open_dots(side, rank - side->count));
    }
    memcpy(term->labels, side->labels, (size_t)rank * sizeof *side->labels);
    return TUTTI_OK;
}

/* ---- one term -------------------------------------------------------------------------------- */

static uint64_t mask_of(const term_t *t)
{
    uint64_t mask = 0;
    for (int i = 0; i < t->x->shape.rank; i++) {
        mask |= BIT(t->labels[i]);
    }
    return mask;
}

static int place_of(const term_t *t, int label)
{
    for (int i = 0; i < t->x->shape.rank; i++) {
        if (t->labels[i] == label) {
            return i;
        }
    }
    return -1;
}

static void drop_label(term_t *t, int place)
{
    memmove(&t->labels[place], &t->labels[place + 1],
            (size_t)(TUTTI_RANK_MAX - 1 - place) * sizeof *t->labels);
}

/* The diagonal of dimensions i < j of one label stands at the end. */
static tutti_status_t take_diagonal(tutti_scope_t *s, term_t *t, int i, int j)
{
    const int rank = t->x->shape.rank, label = t->labels[i];
    const int64_t n = t->x->shape.dims[i];
    tutti_dims_t order = {.count = rank};
    tutti_shape_t flat = {.rank = rank - 1};
    int labels[TUTTI_RANK_MAX], at = 0;
    if (t->x->shape.dims[j] != n) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "einsum: '%c' is %lld and %lld in one term",
                       letter_of(label), (long long)n, (long long)t->x->shape.dims[j]);
    }
    for (int d = 0; d < rank; d++) {
        if (d != i && d != j) {
            order.dims[at] = d;
            flat.dims[at] = t->x->shape.dims[d];
            labels[at++] = t->labels[d];
        }
    }
    order.dims[at] = i;
    order.dims[at + 1] = j;
    labels[at] = label;
    flat.dims[at] = n * n;
    t->x = tutti_reshape(s, tutti_permute(s, t->x, order), flat);
    t->x = tutti_slice(s, t->x, -1, (tutti_range_t){.stop = INT64_MAX, .step = n + 1});
    memcpy(t->labels, labels, (size_t)(at + 1) * sizeof *labels);
    return t->x->status;
}

static tutti_status_t take_diagonals(tutti_scope_t *s, term_t *t)
{
    for (int i = 0; i < t->x->shape.rank; i++) {
        for (int j = i + 1; j < t->x->shape.rank; j++) {
            if (t->labels[i] == t->labels[j]) {
                TT_TRY(take_diagonal(s, t, i, j));
                i = j = -1;
                break;
            }
        }
    }
    return TUTTI_OK;
}

/* Labels outside `kept` are summed over. */
static tutti_status_t sum_others(tutti_scope_t *s, term_t *t, uint64_t kept)
{
    tutti_dims_t dims = {0};
    for (int i = 0; i < t->x->shape.rank; i++) {
        if (!(kept & BIT(t->labels[i]))) {
            dims.dims[dims.count++] = i;
        }
    }
    if (dims.count == 0) {
        return TUTTI_OK;
    }
    t->x = tutti_sum_over(s, t->x, dims, false);
    for (int i = dims.count; i-- > 0;) {
        drop_label(t, dims.dims[i]);
    }
    return t->x->status;
}

/* The labels of `groups` in order; what a term lacks is left out. */
static tutti_status_t order_by(tutti_scope_t *s, term_t *t, const int *labels, int count)
{
    tutti_dims_t order = {0};
    bool is_moved = false;
    for (int i = 0; i < count; i++) {
        const int place = place_of(t, labels[i]);
        if (place >= 0) {
            is_moved = is_moved || place != order.count;
            order.dims[order.count++] = place;
        }
    }
    if (is_moved) {
        int moved[TUTTI_RANK_MAX];
        for (int i = 0; i < order.count; i++) {
            moved[i] = t->labels[order.dims[i]];
        }
        memcpy(t->labels, moved, (size_t)order.count * sizeof *moved);
        t->x = tutti_permute(s, t->x, order);
    }
    return t->x->status;
}

/* ---- two terms ------------------------------------------------------------------------------- */

/* Groups of labels one behind the other, and what they are in sizes. */
typedef struct {
    int labels[2 * TUTTI_RANK_MAX], count;
    int64_t numel;
} labels_t;

static void collect(const term_t *t, uint64_t mask, labels_t *out)
{
    out->numel = 1;
    for (int i = 0; i < t->x->shape.rank; i++) {
        if (mask & BIT(t->labels[i])) {
            out->labels[out->count++] = t->labels[i];
            out->numel *= t->x->shape.dims[i];
        }
    }
}

/* A label whose size is 1 in one of both terms belongs to the other alone. */
static tutti_status_t match_sizes(tutti_scope_t *s, term_t *a, term_t *b)
{
    for (int i = 0; i < a->x->shape.rank; i++) {
        const int j = place_of(b, a->labels[i]);
        if (j < 0 || a->x->shape.dims[i] == b->x->shape.dims[j]) {
            continue;
        }
        const bool is_a = a->x->shape.dims[i] == 1;
        if (!is_a && b->x->shape.dims[j] != 1) {
            const int label = a->labels[i];
            char name[2] = {label < LETTERS ? letter_of(label) : '.', 0};
            return TT_FAIL(TUTTI_ERR_SHAPE, "einsum: '%s' is %lld and %lld", name,
                           (long long)a->x->shape.dims[i], (long long)b->x->shape.dims[j]);
        }
        term_t *one = is_a ? a : b;
        one->x = tutti_squeeze(s, one->x, is_a ? i : j);
        TT_TRY(one->x->status);
        drop_label(one, is_a ? i : j);
        i -= is_a;
    }
    return TUTTI_OK;
}

typedef struct {
    labels_t batch, own_a, own_b, summed;
} pair_t;

static tutti_shape_t matrices(int64_t batch, int64_t rows, int64_t columns, bool has_batch)
{
    return has_batch ? TUTTI_SHAPE(batch, rows, columns) : TUTTI_SHAPE(rows, columns);
}

static int append(int *to, int count, const labels_t *from)
{
    memcpy(to + count, from->labels, (size_t)from->count * sizeof *to);
    return count + from->count;
}

/* One group behind the other; a label is at most once in a pair. */
static tutti_status_t arrange(tutti_scope_t *s, term_t *t, const labels_t *first,
                              const labels_t *second, const labels_t *third)
{
    int labels[4 * TUTTI_RANK_MAX];
    int count = append(labels, 0, first);
    count = append(labels, count, second);
    count = append(labels, count, third);
    return order_by(s, t, labels, count);
}

static tutti_status_t as_product(tutti_scope_t *s, const pair_t *p, term_t *a, term_t *b,
                                 tutti_tensor_t **out)
{
    const bool has_batch = p->batch.count > 0;
    TT_TRY(arrange(s, a, &p->batch, &p->own_a, &p->summed));
    TT_TRY(arrange(s, b, &p->batch, &p->summed, &p->own_b));
    tutti_tensor_t *left = tutti_reshape(
        s, a->x, matrices(p->batch.numel, p->own_a.numel, p->summed.numel, has_batch));
    tutti_tensor_t *right = tutti_reshape(
        s, b->x, matrices(p->batch.numel, p->summed.numel, p->own_b.numel, has_batch));
    *out = tutti_matmul(s, left, right);
    return (*out)->status;
}

/* [batch, own of a, 1, summed] times [batch, 1, own of b, summed], and the sum. */
static tutti_status_t as_elements(tutti_scope_t *s, const pair_t *p, term_t *a, term_t *b,
                                  tutti_tensor_t **out)
{
    TT_TRY(arrange(s, a, &p->batch, &p->own_a, &p->summed));
    TT_TRY(arrange(s, b, &p->batch, &p->own_b, &p->summed));
    tutti_tensor_t *left =
        tutti_reshape(s, a->x, TUTTI_SHAPE(p->batch.numel, p->own_a.numel, 1, p->summed.numel));
    tutti_tensor_t *right =
        tutti_reshape(s, b->x, TUTTI_SHAPE(p->batch.numel, 1, p->own_b.numel, p->summed.numel));
    *out = tutti_mul(s, left, right);
    *out = p->summed.count > 0 ? tutti_sum_over(s, *out, TUTTI_DIMS(3), false) : *out;
    return (*out)->status;
}

static int64_t size_of(const term_t *a, const term_t *b, int label)
{
    const int place = place_of(a, label);
    return place >= 0 ? a->x->shape.dims[place] : b->x->shape.dims[place_of(b, label)];
}

/* a becomes both. */
static tutti_status_t combine(tutti_scope_t *s, term_t *a, term_t *b, uint64_t kept)
{
    TT_TRY(match_sizes(s, a, b));
    const uint64_t in_a = mask_of(a), in_b = mask_of(b);
    TT_TRY(sum_others(s, a, kept | in_b));
    TT_TRY(sum_others(s, b, kept | in_a));
    pair_t p = {0};
    collect(a, in_a & in_b & kept, &p.batch);
    collect(a, in_a & ~in_b, &p.own_a);
    collect(b, in_b & ~in_a, &p.own_b);
    collect(a, in_a & in_b & ~kept, &p.summed);
    tutti_shape_t shape = {0};
    int labels[3 * TUTTI_RANK_MAX];
    int count = append(labels, 0, &p.batch);
    count = append(labels, count, &p.own_a);
    count = append(labels, count, &p.own_b);
    if (count > TUTTI_RANK_MAX) {
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "einsum: two terms together have %d dimensions, more than "
                       "%d",
                       count, TUTTI_RANK_MAX);
    }
    shape.rank = count;
    for (int i = 0; i < count; i++) {
        shape.dims[i] = size_of(a, b, labels[i]);
    }
    const bool is_float = tutti_dtype_is_float(tutti_op_promote(a->x->dtype, b->x->dtype));
    const bool is_product = is_float && p.summed.count > 0 &&
                            (p.own_a.numel > 1 || p.own_b.numel > 1 || p.batch.count == 0);
    tutti_tensor_t *y;
    TT_TRY(is_product ? as_product(s, &p, a, b, &y) : as_elements(s, &p, a, b, &y));
    a->x = tutti_reshape(s, y, shape);
    memcpy(a->labels, labels, (size_t)count * sizeof *labels);
    return a->x->status;
}

/* ---- the whole ------------------------------------------------------------------------------- */

typedef struct {
    term_t *terms; /* [count] */
    int count, dots;
    int uses[LABELS]; /* of each label, in all terms */
    side_t result;
} einsum_t;

static tutti_status_t read_terms(einsum_t *e, const char *equation, const char **at,
                                 tutti_tensor_t *const *terms)
{
    for (int k = 0; k < e->count; k++) {
        side_t side;
        TT_TRY(read_side(equation, at, &side));
        if ((**at == ',') != (k + 1 < e->count)) {
            return TT_FAIL(TUTTI_ERR_ARG, "einsum: \"%s\" has %s terms than the %d that are given",
                           equation, **at == ',' ? "more" : "fewer", e->count);
        }
        *at += **at == ',';
        e->terms[k].x = terms[k];
        TT_TRY(terms[k]->status);
        const int rank = terms[k]->shape.rank, dims = side.dots < 0 ? 0 : rank - side.count;
        e->dots = dims > e->dots ? dims : e->dots;
        TT_TRY(name_dims(&side, terms[k], k, &e->terms[k]));
        for (int i = 0; i < rank; i++) {
            e->uses[e->terms[k].labels[i]]++;
        }
    }
    return TUTTI_OK;
}

/* Behind "->"; or what occurs once, in order. */
static tutti_status_t read_result(einsum_t *e, const char *equation, const char *at)
{
    side_t *side = &e->result;
    uint64_t seen = 0;
    if (*at == '-') {
        if (at[1] != '>') {
            return TT_FAIL(TUTTI_ERR_ARG, "einsum: \"%s\": '-' without '>'", equation);
        }
        at += 2;
        TT_TRY(read_side(equation, &at, side));
        if (*at != 0) {
            return TT_FAIL(TUTTI_ERR_ARG, "einsum: \"%s\" has more than one result", equation);
        }
    } else {
        *side = (side_t){.dots = 0};
        for (int label = 0; label < LETTERS; label++) {
            if (e->uses[label] == 1) {
                side->labels[side->count++] = label;
            }
        }
    }
    for (int i = 0; i < side->count; i++) {
        const int label = side->labels[i];
        if (e->uses[label] == 0 || (seen & BIT(label))) {
            return TT_FAIL(TUTTI_ERR_ARG, "einsum: the result has '%c' %s", letter_of(label),
                           e->uses[label] == 0 ? "that no term has" : "twice");
        }
        seen |= BIT(label);
    }
    return side->dots < 0 ? TUTTI_OK : open_dots(side, e->dots);
}

/* Which labels of the first `done` terms are needed yet. */
static uint64_t needed(const einsum_t *e, int done)
{
    uint64_t mask = 0;
    for (int i = 0; i < e->result.count; i++) {
        mask |= BIT(e->result.labels[i]);
    }
    for (int k = done; k < e->count; k++) {
        mask |= mask_of(&e->terms[k]);
    }
    return mask;
}

static tutti_status_t run(tutti_scope_t *s, einsum_t *e)
{
    for (int k = 0; k < e->count; k++) {
        TT_TRY(take_diagonals(s, &e->terms[k]));
    }
    term_t *all = &e->terms[0];
    TT_TRY(sum_others(s, all, needed(e, 1)));
    for (int k = 1; k < e->count; k++) {
        TT_TRY(combine(s, all, &e->terms[k], needed(e, k + 1)));
    }
    return order_by(s, all, e->result.labels, e->result.count);
}

tutti_tensor_t *tutti_einsum(tutti_scope_t *s, const char *equation, tutti_tensor_t *const *terms,
                             int count)
{
    term_t few[8];
    einsum_t e = {.terms = few, .count = count};
    const char *at = equation;
    if (equation == NULL || count < 1 || count > (int)(sizeof few / sizeof *few)) {
        return tutti_scope_fail(
            s, TT_FAIL(TUTTI_ERR_ARG, "einsum: want an equation, and 1 to 8 terms, not %d", count));
    }
    tutti_status_t status = read_terms(&e, equation, &at, terms);
    if (status >= 0) {
        status = read_result(&e, equation, at);
    }
    if (status >= 0) {
        status = run(s, &e);
    }
    return status < 0 ? tutti_scope_fail(s, status) : few[0].x;
}
