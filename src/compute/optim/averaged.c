/* Averages of weights: what this rank steps of each parameter has an average beside it.
 *
 *     parameter        ranks step    average
 *     whole            all of it     whole                 one rank; DDP's stage 0
 *     slice->values    their slice   as the slice lies     stages 1 to 3, pipelines
 *
 * Swapping is a step of all parameters: slices are written, and who deals them out tells the other
 * ranks. What fails half way there leaves the module's own weights to be put back, at once or by
 * the next tutti_averaged_swap_out(). An optimizer's f32 masters of 16-bit weights stay, for these
 * have the bits again that the masters round to. Source: averaged.h. */
#include <tutti/averaged.h>

#include <stdio.h>
#include <string.h>

#include "compute/optim/optimizer.h"
#include "core/base/alloc.h"
#include "core/kernel/optim/weight_average.h"

typedef struct {
    char *name;
    tutti_tensor_t *tensor;  /* the module's; retained */
    tutti_tensor_t *average; /* as the part that this rank steps; f32 where it is averaged */
    tutti_tensor_t *own;     /* the module's values while the averages are in it */
    bool is_parameter;
    bool is_averaged; /* else a copy of the last update's */
    uint32_t within;  /* its version while they are in, and how often it was bounded */
    uint32_t bounded;
    tt_event_t before; /* what is being copied */
} entry_t;

/* What the module has; MIXED: perhaps averages in part, and its own weights are kept. */
typedef enum { OWN, AVERAGES, MIXED } inside_t;

struct tutti_averaged {
    tutti_context_t *ctx;
    tutti_optim_t *list; /* of the parameters, to tell other ranks; never steps */
    tutti_averaged_options_t options;
    entry_t *entries;
    size_t count, room;
    tutti_tensor_t *updates; /* an i64 scalar of the host */
    size_t moved;            /* entries, of an update that has failed */
    inside_t inside;
};

#define UPDATES_NAME "updates"

static tutti_tensor_t *values_of(const entry_t *e)
{
    return e->tensor->slice == NULL ? e->tensor : e->tensor->slice->values;
}

static int64_t *updates_of(const tutti_averaged_t *a)
{
    return tutti_tensor_data(a->updates);
}

/* ---- making ---------------------------------------------------------------------------------- */

static tutti_status_t check_values(const char *name, const tutti_tensor_t *x)
{
    const tt_device_t *device = x->storage->device;
    if (strcmp(name, UPDATES_NAME) == 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "averaged: \"%s\" is what the count is called: rename it",
                       name);
    }
    if (device != NULL && tt_device_is_store(device)) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "averaged: %s lies on %s, where nothing computes: average weights that lie "
                       "in memory",
                       name, tt_device_text(device));
    }
    return tutti_tensor_is_contiguous(x)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "averaged: %s is not contiguous", name);
}

static tutti_status_t make_room(tutti_averaged_t *a)
{
    if (a->count < a->room) {
        return TUTTI_OK;
    }
    const size_t room = a->room == 0 ? 16 : 2 * a->room;
    entry_t *entries = tt_realloc(a->entries, room * sizeof *entries, "averages");
    TT_TRY_ALLOC(entries);
    a->entries = entries;
    a->room = room;
    return TUTTI_OK;
}

static tutti_status_t new_like(const tutti_tensor_t *x, tutti_dtype_t dtype, tutti_tensor_t **out)
{
    tutti_tensor_t *made;
    TT_TRY(tt_tensor_new(x->storage->device, dtype, x->shape, true, &made));
    const tutti_status_t status = tt_optim_like_part(made, x);
    if (status < 0) {
        tutti_tensor_release(made);
        return status;
    }
    *out = made;
    return TUTTI_OK;
}

static tutti_status_t add(tutti_averaged_t *a, const char *name, tutti_tensor_t *x,
                          bool is_parameter)
{
    entry_t e = {.tensor = x, .is_parameter = is_parameter};
    const tutti_tensor_t *values = values_of(&e);
    TT_TRY(check_values(name, values));
    TT_TRY(make_room(a));
    e.is_averaged = is_parameter ||
                    (a->options.buffers && tutti_dtype_is_float(x->dtype) && x->dtype != TUTTI_F64);
    e.name = tt_strdup(name, "average's name");
    TT_TRY_ALLOC(e.name);
    const tutti_status_t status =
        new_like(values, e.is_averaged ? TUTTI_F32 : x->dtype, &e.average);
    if (status < 0) {
        tt_free(e.name);
        return status;
    }
    (void)tutti_tensor_retain(x);
    a->entries[a->count++] = e;
    return TUTTI_OK;
}

static tutti_status_t add_parameter(void *user, const char *name, tutti_tensor_t *x)
{
    return add(user, name, x, true);
}

static tutti_status_t add_buffer(void *user, const char *name, tutti_tensor_t *x)
{
    return add(user, name, x, false);
}

static tutti_status_t add_all(tutti_averaged_t *a, tutti_module_t *module)
{
    TT_TRY(tutti_optim_create(a->ctx, &tutti_sgd, NULL, &a->list));
    TT_TRY(tutti_optim_add_module(a->list, module, NULL, NULL));
    a->list->writes_all = true;
    TT_TRY(tutti_tensor_create(TUTTI_I64, TUTTI_SCALAR, &a->updates));
    TT_TRY(tutti_module_each_parameter(module, add_parameter, a));
    return tutti_module_each_buffer(module, add_buffer, a);
}

tutti_status_t tutti_averaged_create(tutti_context_t *ctx, tutti_module_t *module,
                                     const tutti_averaged_options_t *options,
                                     tutti_averaged_t **out)
{
    TT_WANT("averaged_create", ctx);
    TT_WANT("averaged_create", module);
    const double decay = options == NULL ? 0 : options->decay;
    if (!(decay >= 0 && decay < 1)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "averaged: decay is %g: it must be below 1, or 0 for the mean of all "
                       "updates",
                       decay);
    }
    tutti_averaged_t *a = tt_alloc(sizeof *a, "averages");
    TT_TRY_ALLOC(a);
    a->ctx = tutti_context_retain(ctx);
    if (options != NULL) {
        a->options = *options;
    }
    const tutti_status_t status = add_all(a, module);
    if (status < 0) {
        tutti_averaged_release(a);
        return status;
    }
    *out = a;
    return TUTTI_OK;
}

static void forget_own(tutti_averaged_t *a)
{
    for (size_t i = 0; i < a->count; i++) {
        tutti_tensor_release(a->entries[i].own);
        a->entries[i].own = NULL;
    }
}

void tutti_averaged_release(tutti_averaged_t *a)
{
    if (a == NULL) {
        return;
    }
    forget_own(a);
    for (size_t i = 0; i < a->count; i++) {
        tutti_tensor_release(a->entries[i].average);
        tutti_tensor_release(a->entries[i].tensor);
        tt_free(a->entries[i].name);
    }
    tutti_tensor_release(a->updates);
    tutti_optim_release(a->list);
    tutti_context_release(a->ctx);
    tt_free(a->entries);
    tt_free(a);
}

/* ---- updating -------------------------------------------------------------------------------- */

static tutti_status_t check_place(const entry_t *e)
{
    const tutti_tensor_t *x = values_of(e);
    TT_TRY(tt_tensor_check_decided(e->tensor, e->name));
    const int64_t first = x->part == NULL ? 0 : x->part->first,
                  was = e->average->part == NULL ? 0 : e->average->part->first;
    if (first != was || x->numel != e->average->numel) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "averaged: %s: the average is of %lld elements from %lld on, but this rank "
                       "steps %lld from %lld on: make it behind what deals parameters out",
                       e->name, (long long)e->average->numel, (long long)was, (long long)x->numel,
                       (long long)first);
    }
    if (x->storage->device != e->average->storage->device) {
        return TT_FAIL(TUTTI_ERR_STATE, "averaged: %s lies on %s, its average on %s", e->name,
                       tt_device_text(x->storage->device),
                       tt_device_text(e->average->storage->device));
    }
    return tt_tensor_check_named(x, e->name);
}

static tutti_status_t check_places(const tutti_averaged_t *a)
{
    for (size_t i = 0; i < a->count; i++) {
        TT_TRY(check_place(&a->entries[i]));
    }
    return TUTTI_OK;
}

static tutti_status_t check_out(const tutti_averaged_t *a, const char *call)
{
    return a->inside == OWN ? TUTTI_OK
                            : TT_FAIL(TUTTI_ERR_STATE,
                                      "%s: the averages are in the module: "
                                      "tutti_averaged_swap_out() comes first",
                                      call);
}

/* Averages of one number of updates. */
static tutti_status_t check_whole(const tutti_averaged_t *a, const char *call)
{
    TT_TRY(check_out(a, call));
    return a->moved == 0 ? TUTTI_OK
                         : TT_FAIL(TUTTI_ERR_STATE,
                                   "%s: an update has failed half way: tutti_averaged_update() "
                                   "goes on with it",
                                   call);
}

/* Both have this shape; between devices of one kind. */
static tutti_status_t copy(tutti_tensor_t *to, const tutti_tensor_t *from)
{
    return to->numel == 0 ? TUTTI_OK : tutti_tensor_copy(to, from);
}

static tutti_status_t update_entry(const tutti_averaged_t *a, const entry_t *e, double share)
{
    const tutti_tensor_t *x = values_of(e);
    if (!e->is_averaged) {
        return x->numel == 0 ? TUTTI_OK : tt_optim_convert(a->ctx, e->average, x);
    }
    const tt_average_t average = {.average = tt_tensor_data(e->average),
                                  .x = tt_tensor_data(x),
                                  .dtype = x->dtype,
                                  .n = (size_t)x->numel,
                                  .share = share};
    TT_TRY(tt_average(tt_tensor_exec(a->ctx, x), &average));
    tt_tensor_touch(e->average);
    return TUTTI_OK;
}

tutti_status_t tutti_averaged_update(tutti_averaged_t *a)
{
    TT_WANT("averaged_update", a);
    TT_TRY(check_out(a, "averaged_update"));
    TT_TRY(check_places(a));
    const int64_t count = *updates_of(a);
    const double share = count == 0                       ? 1
                         : !tt_is_given(a->options.decay) ? 1 / ((double)count + 1)
                                                          : 1 - a->options.decay;
    for (; a->moved < a->count; a->moved++) {
        TT_TRY(update_entry(a, &a->entries[a->moved], share));
    }
    a->moved = 0;
    *updates_of(a) = count + 1;
    return TUTTI_OK;
}

int64_t tutti_averaged_count(const tutti_averaged_t *a)
{
    return a == NULL ? 0 : *updates_of(a);
}

/* ---- swapping -------------------------------------------------------------------------------- */

/* A device copies later, and nothing behind a failure. */
static tutti_status_t start_copy(entry_t *e, tutti_tensor_t *to, const tutti_tensor_t *from)
{
    e->before = tt_device_event(to->storage->device);
    return copy(to, from);
}

static tutti_status_t finish_copies(const tutti_averaged_t *a)
{
    tutti_status_t status = TUTTI_OK;
    for (size_t i = 0; i < a->count; i++) {
        entry_t *e = &a->entries[i];
        status = status < 0 ? status : tt_device_check_since(e->before);
        e->before = (tt_event_t){0};
    }
    return status;
}

static tutti_status_t keep_own(tutti_averaged_t *a)
{
    for (size_t i = 0; i < a->count; i++) {
        entry_t *e = &a->entries[i];
        const tutti_tensor_t *x = values_of(e);
        TT_TRY(new_like(x, x->dtype, &e->own));
        TT_TRY(start_copy(e, e->own, x));
    }
    return finish_copies(a);
}

static tutti_status_t prepare_in(tutti_averaged_t *a)
{
    TT_TRY(check_whole(a, "averaged_swap_in"));
    TT_TRY(*updates_of(a) > 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_STATE, "averaged_swap_in: there is no average yet: "
                                          "tutti_averaged_update() comes first"));
    TT_TRY(check_places(a));
    return keep_own(a);
}

static tutti_status_t write_all(const tutti_averaged_t *a, inside_t what)
{
    for (size_t i = 0; i < a->count; i++) {
        entry_t *e = &a->entries[i];
        TT_TRY(start_copy(e, values_of(e), what == OWN ? e->own : e->average));
    }
    return finish_copies(a);
}

/* As a step does it: nobody reads what is written, and all are told. */
static tutti_status_t step(tutti_averaged_t *a, inside_t what)
{
    a->inside = MIXED;
    tutti_status_t status = tt_optim_begin_step(a->list);
    status = tt_optim_end_step(a->list, status < 0 ? status : write_all(a, what));
    TT_TRY(tt_optim_agree(a->list, status));
    a->inside = what;
    return TUTTI_OK;
}

static tutti_status_t put_back(tutti_averaged_t *a)
{
    const tutti_status_t status = step(a, OWN);
    if (status < 0) {
        return TT_FAIL(status,
                       "%s; the module may have averages still: tutti_averaged_swap_out() puts its "
                       "own weights back",
                       tutti_last_error());
    }
    forget_own(a);
    return TUTTI_OK;
}

tutti_status_t tutti_averaged_swap_in(tutti_averaged_t *a)
{
    TT_WANT("averaged_swap_in", a);
    tutti_status_t status = tt_optim_agree(a->list, prepare_in(a));
    if (status < 0) {
        if (a->inside == OWN) {
            forget_own(a);
        }
        return status;
    }
    status = step(a, AVERAGES);
    if (status < 0) {
        char text[TT_ERROR_TEXT_BYTES];
        snprintf(text, sizeof text, "%s", tutti_last_error());
        return put_back(a) < 0 ? status : tt_fail_again(status, text);
    }
    for (size_t i = 0; i < a->count; i++) {
        entry_t *e = &a->entries[i];
        e->within = values_of(e)->storage->version;
        e->bounded = values_of(e)->storage->bounded;
    }
    return TUTTI_OK;
}

/* Buffers may change, and forward may bound a table: these are the average's. */
static bool is_taken(const entry_t *e)
{
    const tt_storage_t *storage = values_of(e)->storage;
    return e->is_parameter ? storage->bounded != e->bounded : storage->version != e->within;
}

/* Of what was averaged in 16 bits all that has its value still keeps the average's bits. */
static tutti_status_t take(const tutti_averaged_t *a, entry_t *e)
{
    const tutti_tensor_t *x = values_of(e);
    if (!e->is_averaged || tutti_dtype_bytes(x->dtype) >= sizeof(float)) {
        return start_copy(e, e->average, x);
    }
    e->before = tt_device_event(x->storage->device);
    return tt_optim_reconcile(a->ctx, e->average, x);
}

static tutti_status_t take_written(const tutti_averaged_t *a)
{
    for (size_t i = 0; i < a->count; i++) {
        entry_t *e = &a->entries[i];
        TT_TRY(is_taken(e) ? take(a, e) : TUTTI_OK);
    }
    return finish_copies(a);
}

static bool is_trained(const entry_t *e)
{
    const tt_storage_t *storage = values_of(e)->storage;
    return e->is_parameter && storage->version - storage->bounded != e->within - e->bounded;
}

static tutti_status_t prepare_out(const tutti_averaged_t *a)
{
    if (a->inside == OWN) {
        return TT_FAIL(TUTTI_ERR_STATE, "averaged_swap_out: the averages are not in the module: "
                                        "tutti_averaged_swap_in() comes first");
    }
    TT_TRY(check_places(a));
    if (a->inside == MIXED) { /* what is there now is nobody's */
        return TUTTI_OK;
    }
    for (size_t i = 0; i < a->count; i++) {
        const entry_t *e = &a->entries[i];
        if (is_trained(e)) {
            return TT_FAIL(TUTTI_ERR_STATE,
                           "averaged_swap_out: %s was written while the averages were in: train "
                           "with the module's own weights",
                           e->name);
        }
    }
    return take_written(a);
}

tutti_status_t tutti_averaged_swap_out(tutti_averaged_t *a)
{
    TT_WANT("averaged_swap_out", a);
    TT_TRY(tt_optim_agree(a->list, prepare_out(a)));
    return put_back(a);
}

/* ---- state ----------------------------------------------------------------------------------- */

tutti_status_t tutti_averaged_each_state(tutti_averaged_t *a, tutti_tensor_visit_t visit,
                                         void *user)
{
    TT_WANT("averaged_each_state", a);
    TT_TRY(check_whole(a, "averaged_each_state"));
    for (size_t i = 0; i < a->count; i++) {
        TT_TRY(visit(user, a->entries[i].name, a->entries[i].average));
    }
    return visit(user, UPDATES_NAME, a->updates);
}
