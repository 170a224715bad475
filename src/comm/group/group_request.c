/* Requests: what a public call of a collective asks for is checked here, the same way for all of
 * them, and described to the backend.
 *
 * collectives.def says for each collective whether its input and output are one rank's part or the
 * parts of all; from that follow who must pass what, and how many elements it has. Then come the
 * three forms of parts:
 *
 *     even     one tensor, cut into equal parts of elements
 *     uneven   one tensor, cut along its first dimension, in counts of rows
 *     list     a tensor for each part; side by side in memory, or packed (group_pack.c)
 *
 * Nothing is sent to other ranks before all of it is known to be right.
 */
#include "comm/group/group_impl.h"

#include <stdio.h>

#include "core/base/alloc.h"
#include "core/base/integers.h"
#include "core/kernel/elementwise/combine.h"
#include "core/tensor/tensor_impl.h"

typedef enum { SIDE_NONE, SIDE_PART, SIDE_ALL } side_kind_t;

typedef struct {
    const char *name;
    side_kind_t kind;
    bool is_used; /* on this rank */
    tutti_tensor_t *one;
    tutti_tensor_t *const *list; /* [size], instead */
    size_t *parts;               /* [size] elements of each rank's; NULL: even */
    size_t count, total;         /* elements of a part if even, and of all that is there */
    void *data;
} side_t;

typedef struct {
    tutti_group_t *group;
    const tt_request_t *request;
    const char *name;
    side_t in, out;
    tutti_dtype_t dtype;
    bool has_dtype;
    size_t *counts; /* [2 size] of uneven parts and lists */
} check_t;

static side_kind_t kind_of(tt_collective_t collective, bool is_out)
{
    enum { part = SIDE_PART, all = SIDE_ALL };
    static const unsigned char kinds[][2] = {
#define X(identifier, name, reduces, piece_elements, out_elements) {piece_elements, out_elements},
#include "comm/plan/collectives.def"
#undef X
    };
    return (side_kind_t)kinds[collective][is_out];
}

tutti_status_t tt_group_check_tensor(const char *call, const char *name, const tutti_tensor_t *x)
{
    if (x == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: %s is NULL", call, name);
    }
    if (tt_tensor_is_absent(x)) {
        char where[96];
        snprintf(where, sizeof where, "%s: %s", call, name);
        return tt_tensor_check_named(x, where);
    }
    if (!tutti_tensor_is_contiguous(x)) {
        char text[128];
        return TT_FAIL(TUTTI_ERR_SHAPE, "%s: %s %s is not contiguous; clone it", call, name,
                       tutti_tensor_describe(x, text, sizeof text));
    }
    if (x->storage->device != NULL) { /* others come as views (group_stream.c) */
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED, "%s: %s lies on %s; this takes tensors of the host",
                       call, name, tt_device_text(x->storage->device));
    }
    return TUTTI_OK;
}

tutti_status_t tt_group_check_root(const tutti_group_t *group, const char *call, int root)
{
    if (root < 0 || root >= group->size) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: root %d is outside group %s of %d ranks", call, root,
                       group->name, group->size);
    }
    return TUTTI_OK;
}

static size_t numel(const tutti_tensor_t *x)
{
    return (size_t)tutti_tensor_numel(x);
}

static tutti_status_t check_one(check_t *c, const side_t *side, int index, const tutti_tensor_t *x)
{
    char room[40], text[128];
    const char *name = side->name;
    if (side->list != NULL) {
        snprintf(room, sizeof room, "%ss[%d]", side->name, index);
        name = room;
    }
    TT_TRY(tt_group_check_tensor(c->name, name, x));
    const tutti_dtype_t dtype = tutti_tensor_dtype(x);
    if (c->has_dtype && dtype != c->dtype) {
        return TT_FAIL(
            TUTTI_ERR_DTYPE, "%s: %s is %s, but the tensors of a call have one dtype, %s here",
            c->name, name, tutti_tensor_describe(x, text, sizeof text), tutti_dtype_name(c->dtype));
    }
    c->dtype = dtype;
    c->has_dtype = true;
    return TUTTI_OK;
}

static tutti_status_t check_side(check_t *c, side_t *side)
{
    const bool is_given = side->one != NULL || side->list != NULL;
    if (!side->is_used) {
        if (is_given && !c->request->is_in_place) {
            return TT_FAIL(TUTTI_ERR_ARG, "%s: %s is for root %d alone; rank %d passes NULL",
                           c->name, side->name, c->request->root, c->group->rank);
        }
        side->one = NULL;
        side->list = NULL;
        return TUTTI_OK;
    }
    if (!is_given && c->request->is_list && side->kind == SIDE_ALL) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: %ss is NULL", c->name, side->name);
    }
    if (side->list == NULL) {
        TT_TRY(check_one(c, side, 0, side->one));
        side->total = numel(side->one);
        side->data = tutti_tensor_data(side->one);
        return TUTTI_OK;
    }
    for (int i = 0; i < c->group->size; i++) {
        TT_TRY(check_one(c, side, i, side->list[i]));
        side->total += numel(side->list[i]);
    }
    return TUTTI_OK;
}

/* ---- even parts ---- */

static tutti_status_t check_even(check_t *c)
{
    const size_t size = (size_t)c->group->size;
    char a[128], b[128];
    const side_t *whole = c->in.kind == SIDE_ALL ? &c->in : &c->out;
    const side_t *part = c->in.kind == SIDE_ALL ? &c->out : &c->in;
    if (part->kind == SIDE_ALL) { /* all_to_all */
        if (whole->total != part->total || whole->total % size != 0) {
            return TT_FAIL(TUTTI_ERR_SHAPE,
                           "%s: input %s and output %s must have as many elements, divisible by %d "
                           "ranks; else use tutti_%s_uneven",
                           c->name, tutti_tensor_describe(whole->one, a, sizeof a),
                           tutti_tensor_describe(part->one, b, sizeof b), c->group->size, c->name);
        }
        c->in.count = c->out.count = whole->total / size;
        return TUTTI_OK;
    }
    const size_t count = part->is_used ? part->total : whole->total;
    if (whole->kind == SIDE_ALL && whole->is_used && whole->total != count * size) {
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "%s: %s %s must have %d times the elements of %s %s, once for each rank",
                       c->name, whole->name, tutti_tensor_describe(whole->one, a, sizeof a),
                       c->group->size, part->name, tutti_tensor_describe(part->one, b, sizeof b));
    }
    c->in.count = c->out.count = count;
    return TUTTI_OK;
}

/* ---- uneven parts ---- */

/* Elements of a row: of one index of the first dimension. */
static tutti_status_t row_of(const check_t *c, const side_t *side, size_t *row)
{
    if (tutti_tensor_rank(side->one) == 0) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "%s: %s is a scalar, which has no rows", c->name,
                       side->name);
    }
    tutti_shape_t shape = tutti_tensor_shape(side->one);
    shape.dims[0] = 1;
    const size_t found = (size_t)tutti_shape_numel(shape);
    if (*row != SIZE_MAX && *row != found) {
        char text[128];
        return TT_FAIL(TUTTI_ERR_SHAPE, "%s: rows of %s %s must have %zu elements, as the others",
                       c->name, side->name, tutti_tensor_describe(side->one, text, sizeof text),
                       *row);
    }
    *row = found;
    return TUTTI_OK;
}

/* The rows that counts want of a tensor are there. */
static tutti_status_t check_rows(const check_t *c, const side_t *side, const int64_t *counts)
{
    int64_t all = 0;
    for (int i = 0; i < c->group->size; i++) {
        if (counts[i] < 0 || counts[i] > INT64_MAX - all) {
            return TT_FAIL(TUTTI_ERR_ARG, "%s: counts[%d] of %s is %lld", c->name, i, side->name,
                           (long long)counts[i]);
        }
        all += counts[i];
    }
    const int64_t want = side->kind == SIDE_PART ? counts[c->group->rank] : all;
    if (side->is_used && tutti_tensor_dim(side->one, 0) != want) {
        char text[128];
        return TT_FAIL(TUTTI_ERR_SHAPE, "%s: %s %s must have %lld rows, as the counts %s", c->name,
                       side->name, tutti_tensor_describe(side->one, text, sizeof text),
                       (long long)want,
                       side->kind == SIDE_PART ? "say of this rank" : "are together");
    }
    return TUTTI_OK;
}

static tutti_status_t check_uneven(check_t *c)
{
    const tt_request_t *request = c->request;
    const bool is_exchange = request->collective == TT_ALL_TO_ALL;
    const int64_t *in = request->input_counts;
    const int64_t *out = is_exchange ? request->output_counts : in;
    if (in == NULL || out == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: the counts are NULL; want one for each of %d ranks",
                       c->name, c->group->size);
    }
    size_t row = SIZE_MAX;
    if (c->in.is_used) {
        TT_TRY(row_of(c, &c->in, &row));
    }
    if (c->out.is_used) {
        TT_TRY(row_of(c, &c->out, &row));
    }
    TT_TRY(check_rows(c, &c->in, in));
    TT_TRY(check_rows(c, &c->out, out));
    const int size = c->group->size;
    c->in.parts = c->counts;
    c->out.parts = c->counts + size;
    for (int i = 0; i < size; i++) {
        c->in.parts[i] = (size_t)in[i] * row;
        c->out.parts[i] = (size_t)out[i] * row;
    }
    if (is_exchange && in[c->group->rank] != out[c->group->rank]) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: rank %d gives itself %lld rows and takes %lld", c->name,
                       c->group->rank, (long long)in[c->group->rank],
                       (long long)out[c->group->rank]);
    }
    return TUTTI_OK;
}

/* ---- lists ---- */

static bool measure_list(side_t *side, size_t *parts, int size)
{
    bool is_even = true;
    for (int i = 0; i < size; i++) {
        parts[i] = numel(side->list[i]);
        is_even = is_even && parts[i] == parts[0];
    }
    side->parts = parts;
    return is_even;
}

static tutti_status_t check_exchange_list(check_t *c)
{
    const int size = c->group->size, rank = c->group->rank;
    (void)measure_list(&c->in, c->counts, size);
    (void)measure_list(&c->out, c->counts + size, size);
    if (c->in.parts[rank] != c->out.parts[rank]) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "%s: inputs[%d] has %zu elements and outputs[%d] has %zu",
                       c->name, rank, c->in.parts[rank], rank, c->out.parts[rank]);
    }
    return TUTTI_OK;
}

/* Only gather and scatter, where the other ranks do not know the root's list, want equal sizes. */
static tutti_status_t check_list(check_t *c)
{
    const int size = c->group->size, rank = c->group->rank;
    if (c->out.list != NULL) { /* inputs are only read, and may share memory */
        TT_TRY(tt_group_check_apart(c->group, c->name, c->out.list));
    }
    if (c->request->collective == TT_ALL_TO_ALL) {
        return check_exchange_list(c);
    }
    side_t *list = c->in.kind == SIDE_ALL ? &c->in : &c->out;
    side_t *part = c->in.kind == SIDE_ALL ? &c->out : &c->in;
    c->in.count = c->out.count = part->total;
    if (!list->is_used) {
        return TUTTI_OK;
    }
    const bool is_even = measure_list(list, c->counts, size);
    if (!is_even && tt_collective_has_root(c->request->collective)) {
        return TT_FAIL(TUTTI_ERR_SHAPE,
                       "%s: the tensors of a list must have as many elements each; use "
                       "tutti_%s_uneven, which tells every rank the counts",
                       c->name, c->name);
    }
    if (list->parts[rank] != part->total) {
        return TT_FAIL(TUTTI_ERR_SHAPE, "%s: %ss[%d] has %zu elements and %s of rank %d has %zu",
                       c->name, list->name, rank, list->parts[rank], part->name, rank, part->total);
    }
    part->parts = list->parts = is_even ? NULL : list->parts;
    return TUTTI_OK;
}

/* ---- input against output ---- */

/* Where this rank's part begins in a whole. */
static size_t own_offset(const check_t *c, const side_t *whole)
{
    size_t offset = whole->parts == NULL ? whole->count * (size_t)c->group->rank : 0;
    for (int i = 0; whole->parts != NULL && i < c->group->rank; i++) {
        offset += whole->parts[i];
    }
    return offset * tutti_dtype_bytes(c->dtype);
}

/* But for this rank's part of a whole, which may be the other side. */
static bool do_sides_overlap(const check_t *c)
{
    const side_t *in = &c->in, *out = &c->out;
    const char *a = in->data, *b = out->data;
    const size_t element = tutti_dtype_bytes(c->dtype);
    if (c->request->is_in_place || a == NULL || b == NULL || in->total == 0 || out->total == 0 ||
        a + in->total * element <= b || b + out->total * element <= a) {
        return false;
    }
    const bool is_own_part = (in->kind == SIDE_PART && a == b + own_offset(c, out)) ||
                             (out->kind == SIDE_PART && b == a + own_offset(c, in));
    return !is_own_part;
}

static tutti_status_t check_overlap(const check_t *c)
{
    const bool is_pair = c->in.kind == c->out.kind;
    return do_sides_overlap(c)
               ? TT_FAIL(TUTTI_ERR_ARG, "%s: input and output overlap%s", c->name,
                         is_pair ? "" : ", but not at this rank's part of the whole")
               : TUTTI_OK;
}

/* ---- from the checked request to the call ---- */

/* The tensors of a list lie side by side: the first one's memory is that of all. */
static bool find_adjacent(side_t *side, int size)
{
    char *end = NULL;
    for (int i = 0; i < size; i++) {
        char *data = tutti_tensor_data(side->list[i]);
        const size_t bytes = tutti_tensor_bytes(side->list[i]);
        if (bytes == 0) {
            continue;
        }
        if (end != NULL && data != end) {
            return false;
        }
        side->data = end == NULL ? data : side->data;
        end = data + bytes;
    }
    return true;
}

static void scale(const check_t *c, tt_pack_t *pack, side_t *in, void *memory)
{
    tt_pack_add(pack, (tt_copy_t){.memory = in->data,
                                  .packed = memory,
                                  .bytes = in->total * tutti_dtype_bytes(c->dtype),
                                  .is_in = true,
                                  .is_scaled = true,
                                  .factor = *c->request->factor,
                                  .dtype = c->dtype});
    in->data = memory;
}

/* NULL where nothing needs memory. */
static char *at(char *memory, size_t offset)
{
    return memory != NULL ? memory + offset : NULL;
}

/* Everything that goes through the shared heap: packed lists, scaled contributions. */
static tutti_status_t pack_lists(check_t *c, tt_start_t *start)
{
    const int size = c->group->size;
    const size_t element = tutti_dtype_bytes(c->dtype);
    bool packs_in = c->in.list != NULL && !find_adjacent(&c->in, size);
    bool packs_out = c->out.list != NULL && !find_adjacent(&c->out, size);
    if (!packs_in && !packs_out && do_sides_overlap(c)) { /* as it would be for other lists */
        packs_in = c->in.list != NULL;
        packs_out = !packs_in;
    }
    const bool scales = c->request->factor != NULL;
    if (c->in.list == NULL && c->out.list == NULL && !scales) {
        return TUTTI_OK;
    }
    const size_t in_bytes = packs_in ? tt_round_up(c->in.total * element, TT_HEAP_ALIGN) : 0;
    const size_t out_bytes = packs_out ? tt_round_up(c->out.total * element, TT_HEAP_ALIGN) : 0;
    const size_t scaled_bytes =
        scales ? c->in.total * tutti_dtype_bytes(tt_combine_dtype(c->dtype)) : 0;
    const int most = (c->in.list != NULL ? size : 0) + (c->out.list != NULL ? size : 0) + scales;
    tt_pack_t *pack;
    TT_TRY(tt_pack_take(c->group, in_bytes + out_bytes + scaled_bytes, most, &pack));
    char *memory = pack->memory;
    if (c->in.list != NULL) {
        c->in.data = packs_in ? memory : c->in.data;
        tt_pack_hold_list(pack, c->in.list, size, packs_in ? memory : NULL, false);
    }
    if (c->out.list != NULL) {
        c->out.data = packs_out ? at(memory, in_bytes) : c->out.data;
        tt_pack_hold_list(pack, c->out.list, size, packs_out ? c->out.data : NULL, true);
    }
    if (scales) {
        scale(c, pack, &c->in, at(memory, in_bytes + out_bytes));
    }
    start->pack = pack;
    return TUTTI_OK;
}

/* Elements that stand for the call where ranks compare: the same on all of them. */
static size_t common_count(const check_t *c)
{
    size_t all = 0;
    if (c->in.parts == NULL) {
        return c->in.count;
    }
    for (int i = 0; c->request->collective != TT_ALL_TO_ALL && i < c->group->size; i++) {
        all += c->in.parts[i];
    }
    return all / (size_t)c->group->size;
}

/* A checked request, with the memory that has been found for it; its start has the pack. */
static void describe(const check_t *c, tt_described_t *out)
{
    const tt_request_t *request = c->request;
    const bool scales = request->factor != NULL;
    out->start.call = (tt_call_t){
        .collective = request->collective,
        .reduction = scales ? TUTTI_SUM : request->op,
        .custom = request->custom,
        .dtype = scales ? tt_combine_dtype(c->dtype) : c->dtype,
        .out_dtype = c->dtype,
        .count = common_count(c),
        .counts = c->in.parts,
        .recv_counts = request->collective == TT_ALL_TO_ALL ? c->out.parts : NULL,
        .root = request->root,
        .pieces = out->pieces,
        .piece_count = request->collective != TT_BARRIER,
        .out = c->out.data,
        .packed = tt_pack_copies(out->start.pack),
        .site = request->site,
        .prepared = request->prepared,
    };
    out->pieces[0] = c->in.data;
    out->start.tensors = out->tensors;
    if (c->out.one != NULL) {
        out->tensors[out->start.tensor_count++] = c->out.one;
        out->start.writes_first = true;
    }
    if (c->in.one != NULL && c->in.one != c->out.one) {
        out->tensors[out->start.tensor_count++] = c->in.one;
    }
}

static tutti_status_t check_reduction(const check_t *c)
{
    const tt_request_t *request = c->request;
    if (!tt_collective_reduces(request->collective)) {
        return TUTTI_OK;
    }
    if (request->custom != NULL && request->op != TUTTI_CUSTOM) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: a function goes with custom, not with %s", c->name,
                       tutti_reduction_name(request->op));
    }
    if (request->custom != NULL && request->factor == NULL) {
        return tt_custom_check(c->name, c->dtype, request->custom);
    }
    if (request->factor == NULL) {
        return tt_combine_check(c->name, c->dtype, request->op);
    }
    if (request->op != TUTTI_PREMUL_SUM) {
        return TT_FAIL(TUTTI_ERR_ARG, "%s: a factor goes with premul_sum, not with %s", c->name,
                       tutti_reduction_name(request->op));
    }
    if (!tutti_dtype_is_float(c->dtype)) {
        return TT_FAIL(TUTTI_ERR_DTYPE, "%s: premul_sum of %s; only floats can be scaled", c->name,
                       tutti_dtype_name(c->dtype));
    }
    return TUTTI_OK;
}

/* Whole pairs, or whole elements of a custom reduction, in each part that is reduced. */
static tutti_status_t check_whole(const check_t *c)
{
    const tt_request_t *request = c->request;
    const bool is_custom = request->custom != NULL;
    const char *name = is_custom ? request->custom->name : tutti_reduction_name(request->op);
    const int width = is_custom ? tt_custom_width(request->custom) : tt_combine_width(request->op);
    const size_t *parts = c->in.parts;
    if (width == 1 || !tt_collective_reduces(request->collective)) {
        return TUTTI_OK;
    }
    for (int i = 0; i < (parts != NULL ? c->group->size : 1); i++) {
        TT_TRY(
            tt_combine_check_whole(c->name, name, width, parts != NULL ? parts[i] : c->in.count));
    }
    return TUTTI_OK;
}

tutti_status_t tt_group_take_counts(tutti_group_t *group, size_t **counts)
{
    if (*counts == NULL && group->counts == NULL) { /* the backend copies what it keeps */
        group->counts = tt_alloc_array(2 * (size_t)group->size, sizeof(size_t), "counts");
        TT_TRY_ALLOC(group->counts);
    }
    *counts = *counts != NULL ? *counts : group->counts;
    return TUTTI_OK;
}

static tutti_status_t check_parts(check_t *c)
{
    tutti_group_t *group = c->group;
    if (!c->request->is_uneven && !c->request->is_list) {
        return check_even(c);
    }
    TT_TRY(tt_group_take_counts(group, &c->counts));
    return c->request->is_uneven ? check_uneven(c) : check_list(c);
}

static tutti_status_t check_request(tutti_group_t *group, const tt_request_t *request, check_t *out)
{
    const tt_collective_t kind = request->collective;
    TT_WANT(tt_collective_name(kind), group);
    const bool is_root = group->rank == request->root;
    const bool has_root = tt_collective_has_root(kind);
    *out = (check_t){
        .group = group,
        .request = request,
        .name = tt_collective_name(kind),
        .counts = request->counts,
        .in = {.name = request->is_in_place ? "x" : "input",
               .kind = kind_of(kind, false),
               .is_used = kind != TT_BARRIER && (kind != TT_SCATTER || is_root),
               .one = request->input,
               .list = request->inputs},
        .out = {.name = request->is_in_place ? "x" : "output",
                .kind = kind_of(kind, true),
                .is_used =
                    kind != TT_BARRIER && ((kind != TT_GATHER && kind != TT_REDUCE) || is_root),
                .one = request->output,
                .list = request->outputs},
    };
    if (has_root) {
        TT_TRY(tt_group_check_root(group, out->name, request->root));
    }
    TT_TRY(check_side(out, &out->in));
    TT_TRY(check_side(out, &out->out));
    TT_TRY(check_reduction(out));
    TT_TRY(check_parts(out));
    TT_TRY(check_whole(out));
    return check_overlap(out);
}

tutti_status_t tt_group_request(tutti_group_t *group, const tt_request_t *request,
                                tutti_work_t **work)
{
    check_t c;
    tt_described_t described;
    TT_TRY(check_request(group, request, &c));
    described.start = (tt_start_t){0};
    TT_TRY(pack_lists(&c, &described.start));
    describe(&c, &described);
    return tt_group_start(group, &described.start, work);
}

tutti_status_t tt_group_describe(tutti_group_t *group, const tt_request_t *request,
                                 tt_described_t *out)
{
    check_t c;
    TT_TRY(check_request(group, request, &c));
    out->start = (tt_start_t){0};
    describe(&c, out);
    return TUTTI_OK;
}
