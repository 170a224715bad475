/* The loss scaler. For each optimizer it notes, from one update to the next, how far the step has
 * come:
 *
 *     nothing --unscale--> unscaled --step--> stepped --update--> nothing
 *
 * and whether a gradient overflowed. That is a number whose maximum over the group every rank takes
 * for its own; so all ranks skip, shrink and grow together. A rank that could not unscale says so
 * by the same number, and then why.
 *
 * Source: torch.cuda.amp.GradScaler; Micikevicius et al., "Mixed precision training", ICLR 2018.
 */
#include <tutti/modes.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tutti/collectives.h>
#include <tutti/op_math.h>

#include "comm/group/agree.h"
#include "compute/optim/optimizer.h"
#include "core/base/alloc.h"
#include "core/base/default.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/scaler_impl.h"

/* What a rank found; the largest counts. */
enum { FINE, OVERFLOW, FAILURE };

typedef struct {
    tutti_optim_t *opt;
    bool has_overflow, has_agreed, has_stepped;
} progress_t;

struct tutti_scaler {
    tutti_scaler_options_t options; /* with the defaults put in */
    tutti_scaler_state_t state;
    progress_t *progress; /* [count], of the optimizers unscaled since the last update */
    size_t count, capacity;
    tutti_tensor_t *found; /* [1], what the ranks agree on; NULL without a group */
};

/* Losses are multiplied by it, gradients by its reciprocal, both in f32. */
static bool is_scale(double x)
{
    return x > 0 && isnormal((float)x);
}

static tutti_status_t check_options(const tutti_scaler_options_t *o)
{
    if (!is_scale(o->init_scale)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "scaler: init_scale is %g: it must be above 1e-37 and finite in f32",
                       o->init_scale);
    }
    if (!(o->growth_factor > 1 && isfinite(o->growth_factor))) {
        return TT_FAIL(TUTTI_ERR_ARG, "scaler: growth_factor is %g: it must be above 1 and finite",
                       o->growth_factor);
    }
    if (!(o->backoff_factor > 0 && o->backoff_factor < 1)) {
        return TT_FAIL(TUTTI_ERR_ARG, "scaler: backoff_factor is %g: it must be above 0, below 1",
                       o->backoff_factor);
    }
    if (o->growth_interval < 1) {
        return TT_FAIL(TUTTI_ERR_ARG, "scaler: growth_interval is %lld: it must be at least 1",
                       (long long)o->growth_interval);
    }
    return TUTTI_OK;
}

static tutti_scaler_options_t with_defaults(const tutti_scaler_options_t *options)
{
    tutti_scaler_options_t o = options == NULL ? (tutti_scaler_options_t){0} : *options;
    o.init_scale = tt_or_default(o.init_scale, 65536);
    o.growth_factor = tt_or_default(o.growth_factor, 2);
    o.backoff_factor = tt_or_default(o.backoff_factor, 0.5);
    o.growth_interval = o.growth_interval == 0 ? 2000 : o.growth_interval;
    return o;
}

tutti_status_t tutti_scaler_create(const tutti_scaler_options_t *options, tutti_scaler_t **out)
{
    const tutti_scaler_options_t o = with_defaults(options);
    TT_TRY(check_options(&o));
    tutti_scaler_t *scaler = tt_alloc(sizeof *scaler, "scaler");
    TT_TRY_ALLOC(scaler);
    *scaler = (tutti_scaler_t){.options = o, .state = {.scale = o.disabled ? 1 : o.init_scale}};
    scaler->options.group = NULL;
    if (o.group != NULL && !o.disabled) {
        scaler->options.group = tutti_group_retain(o.group);
        const tutti_status_t status =
            tutti_tensor_create(TUTTI_I32, TUTTI_SHAPE(1), &scaler->found);
        if (status < 0) {
            tutti_scaler_release(scaler);
            return status;
        }
    }
    *out = scaler;
    return TUTTI_OK;
}

void tutti_scaler_release(tutti_scaler_t *scaler)
{
    if (scaler == NULL) {
        return;
    }
    tutti_tensor_release(scaler->found);
    tutti_group_release(scaler->options.group);
    tt_free(scaler->progress);
    tt_free(scaler);
}

tutti_tensor_t *tutti_scaler_scale(const tutti_scaler_t *scaler, tutti_scope_t *s,
                                   tutti_tensor_t *loss)
{
    return scaler->options.disabled ? loss : tutti_mul_scalar(s, loss, scaler->state.scale);
}

/* ---- a step ---------------------------------------------------------------------------------- */

static progress_t *find(const tutti_scaler_t *scaler, const tutti_optim_t *opt)
{
    for (size_t i = 0; i < scaler->count; i++) {
        if (scaler->progress[i].opt == opt) {
            return &scaler->progress[i];
        }
    }
    return NULL;
}

static tutti_status_t ensure_room(tutti_scaler_t *scaler)
{
    if (scaler->count < scaler->capacity) {
        return TUTTI_OK;
    }
    const size_t capacity = scaler->capacity + 4;
    progress_t *progress = tt_realloc(scaler->progress, capacity * sizeof *progress, "scaler");
    TT_TRY_ALLOC(progress);
    scaler->progress = progress;
    scaler->capacity = capacity;
    return TUTTI_OK;
}

/* mine: how this rank's unscaling fared. A failure of one rank is one of all. */
static tutti_status_t share(tutti_scaler_t *scaler, tutti_status_t mine, bool *has_overflow)
{
    tutti_group_t *group = scaler->options.group;
    if (group == NULL) {
        return mine;
    }
    char text[TT_ERROR_TEXT_BYTES];
    int32_t *found = tutti_tensor_data(scaler->found);
    snprintf(text, sizeof text, "%s", mine < 0 ? tutti_last_error() : "");
    *found = mine < 0 ? FAILURE : *has_overflow ? OVERFLOW : FINE;
    const tutti_status_t status = tutti_all_reduce(group, scaler->found, TUTTI_MAX, NULL);
    if (status < 0) { /* perhaps on this rank alone */
        (void)tt_group_give_up(group, status);
    }
    if (mine < 0) {
        (void)tt_fail_again(mine, text);
    }
    if (status < 0) {
        return mine < 0 ? mine : status;
    }
    if (*found == FAILURE) {
        return tt_group_agree(group, mine);
    }
    *has_overflow = *found == OVERFLOW;
    return TUTTI_OK;
}

static tutti_status_t agree(tutti_scaler_t *scaler, progress_t *progress)
{
    if (!progress->has_agreed) {
        TT_TRY(share(scaler, TUTTI_OK, &progress->has_overflow));
    }
    progress->has_agreed = true;
    return TUTTI_OK;
}

/* What was unscaled is noted before anything else can fail, also if it is a part of the gradients:
 * a second call does not do it again. What cannot be known of the others counts as an overflow. */
static tutti_status_t unscale(tutti_scaler_t *scaler, tutti_optim_t *opt)
{
    tt_unscaled_t unscaled = {.is_begun = false};
    tutti_status_t status = ensure_room(scaler);
    if (status >= 0) {
        status = tt_optim_unscale(opt, 1 / scaler->state.scale, &unscaled);
    }
    if (status < 0 && !unscaled.is_begun) {
        return share(scaler, status, &(bool){false});
    }
    progress_t *progress = &scaler->progress[scaler->count++];
    *progress = (progress_t){.opt = opt, .has_overflow = !unscaled.is_finite};
    return status < 0 ? share(scaler, status, &progress->has_overflow) : agree(scaler, progress);
}

tutti_status_t tutti_scaler_unscale(tutti_scaler_t *scaler, tutti_optim_t *opt)
{
    if (scaler->options.disabled) {
        return TUTTI_OK;
    }
    progress_t *progress = find(scaler, opt);
    if (progress != NULL && !progress->has_agreed) {
        return agree(scaler, progress);
    }
    if (progress != NULL) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "scaler: unscale: the optimizer has %s since the last update: call "
                       "tutti_scaler_update() at the end of each step",
                       progress->has_stepped ? "stepped" : "been unscaled");
    }
    return unscale(scaler, opt);
}

tutti_status_t tutti_scaler_step(tutti_scaler_t *scaler, tutti_optim_t *opt, bool *is_skipped)
{
    progress_t *progress = NULL;
    bool has_overflow = false;
    if (!scaler->options.disabled) {
        if (find(scaler, opt) == NULL) {
            TT_TRY(unscale(scaler, opt));
        }
        progress = find(scaler, opt);
        TT_TRY(agree(scaler, progress));
        if (progress->has_stepped) {
            return TT_FAIL(TUTTI_ERR_STATE, "scaler: step: the optimizer has stepped since the "
                                            "last update: call tutti_scaler_update() first");
        }
        has_overflow = progress->has_overflow;
    }
    if (!has_overflow) {
        TT_TRY(tutti_optim_step(opt));
    }
    if (progress != NULL) {
        progress->has_stepped = true;
    }
    if (is_skipped != NULL) {
        *is_skipped = has_overflow;
    }
    return TUTTI_OK;
}

static void move_scale(const tutti_scaler_options_t *o, tutti_scaler_state_t *state,
                       bool has_overflow)
{
    double moved = state->scale;
    if (has_overflow) {
        moved *= o->backoff_factor;
        state->growth_tracker = 0;
        state->skipped++;
    } else if (++state->growth_tracker >= o->growth_interval) {
        moved *= o->growth_factor;
        state->growth_tracker = 0;
    }
    state->scale = is_scale(moved) ? moved : state->scale;
}

tutti_status_t tutti_scaler_update(tutti_scaler_t *scaler)
{
    if (scaler->options.disabled) {
        return TUTTI_OK;
    }
    if (scaler->count == 0) {
        return TT_FAIL(TUTTI_ERR_STATE, "scaler: update: no optimizer has been unscaled or stepped "
                                        "since the last one");
    }
    bool has_overflow = false;
    for (size_t i = 0; i < scaler->count; i++) {
        const progress_t *one = &scaler->progress[i];
        has_overflow |= one->has_overflow || !one->has_agreed; /* another rank failed */
    }
    move_scale(&scaler->options, &scaler->state, has_overflow);
    scaler->count = 0;
    return TUTTI_OK;
}

bool tt_scaler_is_on(const tutti_scaler_t *scaler)
{
    return scaler != NULL && !scaler->options.disabled;
}

double tt_scaler_factor(const tutti_scaler_t *scaler)
{
    return scaler->options.disabled ? 1 : 1 / scaler->state.scale;
}

void tt_scaler_tell(const tutti_scaler_t *scaler, double numbers[TT_SCALER_NUMBERS])
{
    memset(numbers, 0, TT_SCALER_NUMBERS * sizeof *numbers);
    if (scaler != NULL && !scaler->options.disabled) {
        numbers[0] = scaler->state.scale;
        numbers[1] = scaler->options.growth_factor;
        numbers[2] = scaler->options.backoff_factor;
        numbers[3] = (double)scaler->options.growth_interval;
        numbers[4] = (double)scaler->state.growth_tracker;
        numbers[5] = 1;
    }
}

void tt_scaler_end_step(tutti_scaler_t *scaler, bool has_overflow)
{
    if (!scaler->options.disabled) {
        move_scale(&scaler->options, &scaler->state, has_overflow);
    }
}

/* ---- the state ------------------------------------------------------------------------------- */

tutti_scaler_state_t tutti_scaler_get_state(const tutti_scaler_t *scaler)
{
    return scaler->state;
}

tutti_status_t tutti_scaler_set_state(tutti_scaler_t *scaler, tutti_scaler_state_t state)
{
    if (scaler->count > 0) {
        return TT_FAIL(TUTTI_ERR_STATE, "scaler: its state cannot be set within a step: call "
                                        "tutti_scaler_update() first");
    }
    if (!is_scale(state.scale)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "scaler: the state's scale is %g: it must be above 1e-37 and finite in f32",
                       state.scale);
    }
    if (state.growth_tracker < 0 || state.skipped < 0) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "scaler: the state's growth_tracker is %lld and skipped %lld: they must be "
                       "at least 0",
                       (long long)state.growth_tracker, (long long)state.skipped);
    }
    scaler->state = scaler->options.disabled ? scaler->state : state;
    return TUTTI_OK;
}

enum { SCALE, TRACKER, SKIPPED, STATE_COUNT };

static const char *const state_names[STATE_COUNT] = {"scale", "growth_tracker", "skipped"};

typedef struct {
    tutti_tensor_t *tensors[STATE_COUNT];
} kept_t;

static void release_kept(kept_t *kept)
{
    for (int i = 0; i < STATE_COUNT; i++) {
        tutti_tensor_release(kept->tensors[i]);
    }
}

static tutti_status_t make_kept(kept_t *kept)
{
    for (int i = 0; i < STATE_COUNT; i++) {
        TT_TRY(tutti_tensor_create(i == SCALE ? TUTTI_F64 : TUTTI_I64, TUTTI_SCALAR,
                                   &kept->tensors[i]));
    }
    return TUTTI_OK;
}

tutti_status_t tutti_scaler_save(const tutti_scaler_t *scaler, const char *path)
{
    kept_t kept = {{NULL}};
    tutti_named_tensor_t named[STATE_COUNT];
    tutti_status_t status = make_kept(&kept);
    if (status >= 0) {
        *(double *)tutti_tensor_data(kept.tensors[SCALE]) = scaler->state.scale;
        *(int64_t *)tutti_tensor_data(kept.tensors[TRACKER]) = scaler->state.growth_tracker;
        *(int64_t *)tutti_tensor_data(kept.tensors[SKIPPED]) = scaler->state.skipped;
        for (int i = 0; i < STATE_COUNT; i++) {
            named[i] = (tutti_named_tensor_t){state_names[i], kept.tensors[i]};
        }
        status = tutti_safetensors_save(path, named, STATE_COUNT, NULL, 0);
    }
    release_kept(&kept);
    return status;
}

static tutti_status_t read_kept(const char *path, const tutti_safetensors_t *file, kept_t *kept)
{
    TT_TRY(make_kept(kept));
    for (int i = 0; i < STATE_COUNT; i++) {
        if (tutti_safetensors_find(file, state_names[i]) == NULL) {
            return TT_FAIL(TUTTI_ERR_MISMATCH, "%s has no \"%s\": it is no scaler's", path,
                           state_names[i]);
        }
        TT_TRY(tutti_safetensors_read(file, state_names[i], kept->tensors[i]));
    }
    return TUTTI_OK;
}

tutti_status_t tutti_scaler_load(tutti_scaler_t *scaler, const char *path)
{
    kept_t kept = {{NULL}};
    tutti_safetensors_t *file;
    TT_TRY(tutti_safetensors_open(path, &file));
    tutti_status_t status = read_kept(path, file, &kept);
    if (status >= 0) {
        status = tutti_scaler_set_state(
            scaler, (tutti_scaler_state_t){
                        .scale = *(double *)tutti_tensor_data(kept.tensors[SCALE]),
                        .growth_tracker = *(int64_t *)tutti_tensor_data(kept.tensors[TRACKER]),
                        .skipped = *(int64_t *)tutti_tensor_data(kept.tensors[SKIPPED])});
    }
    release_kept(&kept);
    tutti_safetensors_close(file);
    return status;
}
