/* Optimistic steps begin and end: ranks compare what they ask for before anybody keeps anything. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "comm/group/agree.h"
#include "core/base/alloc.h"
#include "core/base/default.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/pipeline/pipeline_validate.h"
#include "parallel/scaler_impl.h"

/* ---- what is refused ------------------------------------------------------------------------- */

static tutti_status_t check_slots(const tutti_pipeline_t *p, const tutti_optim_t *opt)
{
    for (size_t i = 0; i < opt->slot_count; i++) {
        const tt_optim_slot_t *slot = &opt->slots[i];
        if (tt_validation_param(p, slot->tensor) == NULL) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "pipeline: the optimizer has a parameter \"%s\" that is none of the "
                           "module: nobody would step it",
                           slot->name);
        }
        if (tutti_dtype_bytes(slot->tensor->dtype) < 4) {
            return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                           "pipeline_post_validate: \"%s\" is of 16 bits, with a master elsewhere: "
                           "unscale, clip and step behind each tutti_pipeline_step()",
                           slot->name);
        }
        if (tt_device_is_store(tt_optim_weight(slot)->storage->device)) {
            return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                           "pipeline_post_validate: \"%s\" lies on a disk, of which no copy is "
                           "kept: step behind each tutti_ddp_finish()",
                           slot->name);
        }
    }
    return TUTTI_OK;
}

static tutti_status_t check(const tutti_pipeline_t *p, const tutti_optim_t *opt,
                            const tutti_pipeline_validation_t *o)
{
    if (p->validation != NULL || opt->driver != NULL) {
        return TT_FAIL(TUTTI_ERR_STATE, "pipeline_post_validate: the optimizer is stepped by %s",
                       p->validation != NULL ? "this already: take it away first" : opt->driver);
    }
    if (p->versions != NULL || opt->offload != NULL) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "pipeline_post_validate: %s: step behind each "
                       "tutti_pipeline_step()",
                       p->versions != NULL ? "stages of this schedule step inside a batch"
                                           : "the optimizer's state is on a disk");
    }
    if (!(o->max_norm >= 0) || (o->norm_type != 2 && o->norm_type != INFINITY)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "pipeline_post_validate: max_norm is %g, norm_type %g: want at least 0, and "
                       "2 or infinity",
                       o->max_norm, o->norm_type);
    }
    return check_slots(p, opt);
}

/* ---- do ranks ask for the same? -------------------------------------------------------------- */

typedef struct {
    double is_given; /* else it is taken away */
    double max_norm, norm_type, scaler[TT_SCALER_NUMBERS];
} asked_t;

static asked_t ask(const tutti_optim_t *opt, const tutti_pipeline_validation_t *o)
{
    asked_t asked = {0};
    if (opt != NULL) {
        asked = (asked_t){.is_given = 1, .max_norm = o->max_norm, .norm_type = o->norm_type};
        tt_scaler_tell(o->scaler, asked.scaler);
    }
    return asked;
}

enum { ASKED_BYTES = 192 };

static const char *describe(const asked_t *asked, char text[ASKED_BYTES])
{
    const double *s = asked->scaler;
    if (asked->is_given == 0) {
        return "takes the optimizer away (NULL)";
    }
    const int used = snprintf(text, ASKED_BYTES, "gives max_norm %g, norm_type %g and ",
                              asked->max_norm, asked->norm_type);
    const size_t left = ASKED_BYTES - (size_t)used;
    if (s[TT_SCALER_NUMBERS - 1] == 0) {
        snprintf(text + used, left, "no scaler");
    } else {
        snprintf(text + used, left, "a scaler of %g (growth %g, backoff %g, interval %g, %g fine)",
                 s[0], s[1], s[2], s[3], s[4]);
    }
    return text;
}

static tutti_status_t check_same(const asked_t *mine, const asked_t *first, const char *who)
{
    char here[ASKED_BYTES], there[ASKED_BYTES];
    return memcmp(mine, first, sizeof *mine) == 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_MISMATCH,
                         "pipeline_post_validate: this rank %s, and %s %s: all ask for the same, "
                         "and no rank has it now",
                         describe(mine, here), who, describe(first, there));
}

static tutti_status_t compare_row(const tutti_pipeline_t *p, const asked_t *mine)
{
    asked_t first;
    TT_TRY(tt_group_hear_first(p->group, mine, sizeof *mine, &first));
    return tt_group_agree(p->group, check_same(mine, &first, "rank 0"));
}

/* A row that is not of one mind says so to the others first, in `status`. */
static tutti_status_t compare_replicas(const tutti_pipeline_t *p, const asked_t *mine,
                                       tutti_status_t status)
{
    asked_t first;
    if (p->ddp == NULL) {
        return status;
    }
    TT_TRY(tt_ddp_agree(p->ddp, status));
    TT_TRY(tt_ddp_hear_first(p->ddp, mine, sizeof *mine, &first));
    return tt_ddp_agree(p->ddp, check_same(mine, &first, "the first of its replicas"));
}

static tutti_status_t compare_parts(tt_spread_t *spread, const asked_t *mine, tutti_status_t status)
{
    asked_t first;
    TT_TRY(spread->ops->agree(spread, status));
    TT_TRY(spread->ops->hear_first(spread, mine, sizeof *mine, &first));
    return spread->ops->agree(spread,
                              check_same(mine, &first, "the first with parts of its layers"));
}

/* Those of one group are asked once; NULL: they have been, or it is whole. */
static tt_spread_t *next_spread(const tutti_pipeline_t *p, int param)
{
    tt_spread_t *spread = p->params[param].tensor->spread;
    for (int i = 0; i < param && spread != NULL; i++) {
        const tt_spread_t *before = p->params[i].tensor->spread;
        if (before != NULL && before->ranks == spread->ranks) {
            return NULL;
        }
    }
    return spread;
}

/* The first failure of this rank stays what it is: others hear of it, with this rank's number. */
typedef struct {
    tutti_status_t status;
    char text[TT_ERROR_TEXT_BYTES];
} outcome_t;

static void note(outcome_t *outcome, tutti_status_t status)
{
    if (outcome->status >= 0 && status < 0) {
        outcome->status = status;
        snprintf(outcome->text, sizeof outcome->text, "%s", tutti_last_error());
    }
}

static tutti_status_t tell(const outcome_t *outcome)
{
    return outcome->status < 0 ? tt_fail_again(outcome->status, outcome->text) : TUTTI_OK;
}

/* All ranks of the mesh: those of this row, then the ones that have the same of other rows, and
 * parts of the same layers. A stage without others hears of theirs in its row. */
static tutti_status_t compare(const tutti_pipeline_t *p, const asked_t *mine)
{
    outcome_t outcome = {.status = TUTTI_OK};
    note(&outcome, compare_row(p, mine));
    note(&outcome, compare_replicas(p, mine, tell(&outcome)));
    for (int i = 0; i < p->param_count; i++) {
        tt_spread_t *spread = next_spread(p, i);
        note(&outcome, spread == NULL ? TUTTI_OK : compare_parts(spread, mine, tell(&outcome)));
    }
    note(&outcome, tt_group_agree(p->group, tell(&outcome)));
    return tell(&outcome);
}

/* ---- life ------------------------------------------------------------------------------------ */

static tutti_status_t open(tutti_pipeline_t *p, tutti_optim_t *opt,
                           const tutti_pipeline_validation_t *o)
{
    TT_TRY(check(p, opt, o));
    tt_validation_t *v = tt_alloc(sizeof *v, "pipeline validation");
    TT_TRY_ALLOC(v);
    *v = (tt_validation_t){.options = *o, .opt = opt};
    p->validation = v;
    opt->driver = tt_validation_driver;
    opt->decides = "tutti_pipeline_validate";
    TT_TRY(tt_ahead_open(p));
    return tt_undo_open(opt, &v->undo);
}

void tt_validation_close(tutti_pipeline_t *p)
{
    tt_validation_t *v = p->validation;
    if (v == NULL) {
        return;
    }
    tt_undo_close(&v->undo);
    tutti_work_release(v->work);
    tutti_tensor_release(v->sum);
    tt_free(v->numbers);
    tt_free(v->losses);
    tt_free(v);
    tt_validation_mark(p, NULL); /* the module outlives it */
    p->validation = NULL;
}

static void take_away(tutti_pipeline_t *p)
{
    if (p->validation != NULL) {
        p->validation->opt->driver = p->validation->opt->decides = NULL;
        p->validation->opt->is_undecided = false; /* it failed */
        tt_validation_close(p);
    }
}

/* On all ranks: the step under way is what it should be, and is the last one. */
static tutti_status_t end(tutti_pipeline_t *p, tutti_status_t status)
{
    char text[TT_ERROR_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", status < 0 ? tutti_last_error() : "");
    const tutti_status_t settled = tt_validation_settle(p);
    take_away(p);
    return status < 0 ? tt_fail_again(status, text) : settled;
}

static tutti_status_t begin(tutti_pipeline_t *p, tutti_optim_t *opt,
                            const tutti_pipeline_validation_t *o)
{
    const bool is_new = p->validation == NULL;
    const tutti_status_t status = tt_group_agree(p->group, open(p, opt, o));
    if (status < 0 && is_new) {
        take_away(p);
    }
    return status;
}

tutti_status_t tutti_pipeline_post_validate(tutti_pipeline_t *p, tutti_optim_t *opt,
                                            const tutti_pipeline_validation_t *options)
{
    TT_WANT("pipeline_post_validate", p);
    if (opt == NULL && p->status < 0) { /* whatever has become of the others */
        take_away(p);
        return TUTTI_OK;
    }
    TT_TRY(tt_pipeline_fail(p, TUTTI_OK)); /* what failed before */
    tutti_pipeline_validation_t o = options == NULL ? (tutti_pipeline_validation_t){0} : *options;
    o.norm_type = tt_or_default(o.norm_type, 2);
    o.max_norm = tt_or_default(o.max_norm, INFINITY);
    const asked_t mine = ask(opt, &o);
    const tutti_status_t status = compare(p, &mine);
    return status < 0 || opt == NULL ? end(p, status) : begin(p, opt, &o);
}
