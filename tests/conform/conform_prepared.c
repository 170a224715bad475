/* Conformance of prepared calls: each gives what the plain call of its name gives, whether all
 * ranks have prepared it or some, and as often as it is started. Every tensor of the case is
 * compared, so that a write to a wrong place is seen too.
 */
#include <string.h>

#include <tutti/prepared.h>

#include "conform_impl.h"
#include "core/base/alloc.h"

enum { TENSORS_MAX = 8 + 2 * TT_CONFORM_RANKS_MAX };

/* What the forms below take. */
typedef struct {
    const tt_conform_at_t *at;
    tutti_group_t *group;
    tutti_tensor_t *tensors[TENSORS_MAX]; /* all of the following */
    int tensor_count;
    tutti_tensor_t *x, *part, *all, *all_out, *rows, *all_rows, *gives, *takes;
    tutti_tensor_t **list, **list_out;
    int64_t counts[TT_CONFORM_RANKS_MAX], swaps[TT_CONFORM_RANKS_MAX];
    int first[TT_CONFORM_RANKS_MAX + 1];
    double factor;
    int root;
    bool is_root;
} args_t;

static tutti_contributions_t leaves_of(const args_t *a, tutti_tensor_t *const *piece)
{
    return (tutti_contributions_t){.count = a->at->size + 1,
                                   .first = a->first,
                                   .pieces = piece,
                                   .piece_count = 1,
                                   .dtype = a->at->dtype};
}

/* Integers have no average. */
static tutti_reduction_t mean_of(const args_t *a)
{
    return tutti_dtype_is_float(a->at->dtype) ? TUTTI_AVG : TUTTI_SUM;
}

#define AT_ROOT(tensor) (a->is_root ? (tensor) : NULL)

typedef enum {
#define X(name, ...) FORM_##name,
#include "prepared_forms.def"
#undef X
    FORM_barrier,
    FORMS
} form_t;

static const char *name_of(form_t form)
{
    static const char *const names[] = {
#define X(name, ...) [FORM_##name] = #name,
#include "prepared_forms.def"
#undef X
        [FORM_barrier] = "barrier"};
    return names[form];
}

/* The plain call where `out` is NULL. */
static tutti_status_t call_or_prepare(const args_t *a, form_t form, tutti_prepared_t **out)
{
    const tutti_reduce_options_t with = {.factor = &a->factor, .root = a->root};
    const tutti_contributions_t leaves = leaves_of(a, &a->part), wide = leaves_of(a, &a->all),
                                long_leaves = leaves_of(a, &a->all_rows);
    switch (form) {
#define X(name, ...)                                                                               \
    case FORM_##name:                                                                              \
        return out == NULL ? tutti_##name(a->group, __VA_ARGS__, NULL)                             \
                           : tutti_prepare_##name(a->group, __VA_ARGS__, out);
#include "prepared_forms.def"
#undef X
    default:
        return out == NULL ? tutti_barrier(a->group, NULL) : tutti_prepare_barrier(a->group, out);
    }
}

/* ---- the case ---- */

static tutti_tensor_t *add(args_t *a, size_t count)
{
    return a->tensors[a->tensor_count++] = tt_conform_make(a->at, count);
}

/* Rows of rank's part when parts are uneven; some have none. */
static size_t rows_of(const tt_conform_at_t *at, int rank)
{
    return at->count * (size_t)(rank % 3) / 2 + (size_t)(rank == 1);
}

static void make_uneven(args_t *a)
{
    const tt_conform_at_t *at = a->at;
    size_t all = 0, swapped = 0;
    for (int i = 0; i < at->size; i++) {
        a->counts[i] = (int64_t)rows_of(at, i);
        a->swaps[i] = (at->rank + i) % 3 + (int64_t)at->count / 2;
        all += (size_t)a->counts[i];
        swapped += (size_t)a->swaps[i];
    }
    a->rows = add(a, rows_of(at, at->rank));
    a->all_rows = add(a, all);
    a->gives = add(a, swapped);
    a->takes = add(a, swapped);
}

/* Rank 0 hosts two leaves. */
static void make_case(const tt_conform_at_t *at, args_t *a)
{
    const size_t size = (size_t)at->size;
    *a = (args_t){.at = at, .group = at->group, .factor = 0.75 * at->rank - 0.5, .root = at->root};
    a->is_root = at->rank == at->root;
    a->x = add(a, at->count);
    a->part = add(a, at->count);
    a->all = add(a, size * at->count);
    a->all_out = add(a, size * at->count);
    make_uneven(a);
    a->list = a->tensors + a->tensor_count;
    a->list_out = a->list + size;
    for (size_t i = 0; i < 2 * size; i++) {
        (void)add(a, at->count);
    }
    for (int rank = 1; rank <= at->size; rank++) {
        a->first[rank] = rank + 1;
    }
}

static void fill(const args_t *a)
{
    for (int i = 0; i < a->tensor_count; i++) {
        tutti_tensor_t *x = a->tensors[i];
        tt_conform_fill(tt_conform_data(x), a->at->dtype, (size_t)i, (size_t)tutti_tensor_numel(x),
                        a->at->rank);
    }
}

static size_t bytes_of(const args_t *a)
{
    size_t bytes = 0;
    for (int i = 0; i < a->tensor_count; i++) {
        bytes += tutti_tensor_bytes(a->tensors[i]);
    }
    return bytes;
}

static void take_picture(const args_t *a, char *picture)
{
    for (int i = 0; i < a->tensor_count; i++) {
        const size_t bytes = tutti_tensor_bytes(a->tensors[i]);
        if (bytes > 0) {
            memcpy(picture, tt_conform_data(a->tensors[i]), bytes);
        }
        picture += bytes;
    }
}

static void compare(const args_t *a, const char *name, const char *picture)
{
    for (int i = 0; i < a->tensor_count; i++) {
        const size_t bytes = tutti_tensor_bytes(a->tensors[i]);
        tt_conform_bytes(a->at, name, tt_conform_data(a->tensors[i]), picture, bytes);
        picture += bytes;
    }
}

static tutti_status_t start_and_wait(tutti_prepared_t *prepared)
{
    tutti_work_t *work;
    const tutti_status_t started = tutti_prepared_start(prepared, &work);
    if (started < 0) {
        return started;
    }
    const tutti_status_t status = tutti_work_wait(work, 0);
    tutti_work_release(work);
    return status;
}

/* Even ranks have prepared it, then odd ones, then all. */
static void check_form(const args_t *a, form_t form, char *picture)
{
    const char *name = name_of(form);
    tutti_prepared_t *prepared = NULL;
    fill(a);
    tt_conform_ok(a->at, name, call_or_prepare(a, form, NULL));
    take_picture(a, picture);
    tt_conform_ok(a->at, name, call_or_prepare(a, form, &prepared));
    for (int turn = 0; turn < 3 && prepared != NULL; turn++) {
        fill(a);
        tt_conform_ok(
            a->at, name,
            a->at->rank % 2 == turn % 2 || turn == 2
                ? (turn == 1 ? tutti_prepared_start(prepared, NULL) : start_and_wait(prepared))
                : call_or_prepare(a, form, NULL));
        compare(a, name, picture);
    }
    tutti_prepared_release(prepared);
}

static void check_messages(const args_t *a)
{
    const tt_conform_at_t *at = a->at;
    const int next = (at->rank + 1) % at->size, last = (at->rank + at->size - 1) % at->size;
    tutti_prepared_t *both[2] = {NULL};
    if (at->size == 1 || at->out->no_messages) {
        return;
    }
    tt_conform_ok(at, "prepared recv", tutti_prepare_recv(at->group, a->x, last, 3, &both[0]));
    tt_conform_ok(at, "prepared send", tutti_prepare_send(at->group, a->part, next, 3, &both[1]));
    for (int turn = 0; turn < 3 && both[0] != NULL && both[1] != NULL; turn++) {
        tt_conform_fill(tt_conform_data(a->part), at->dtype, (size_t)turn, at->count, at->rank);
        tt_conform_ok(at, "prepared messages", tutti_prepared_start_all(both, 2, NULL));
        tt_conform_elements(at, "prepared messages", tt_conform_data(a->x), (size_t)turn, at->count,
                            last);
    }
    tutti_prepared_release(both[0]);
    tutti_prepared_release(both[1]);
}

void tt_conform_check_prepared(const tt_conform_at_t *at)
{
    args_t a;
    make_case(at, &a);
    char *picture = tt_conform_room(bytes_of(&a));
    for (form_t form = 0; form < FORMS; form++) {
        const bool scales = strstr(name_of(form), "_with") != NULL;
        if (!scales || tutti_dtype_is_float(at->dtype)) {
            check_form(&a, form, picture);
        }
    }
    check_messages(&a);
    tt_free(picture);
    for (int i = 0; i < a.tensor_count; i++) {
        tutti_tensor_release(a.tensors[i]);
    }
}
