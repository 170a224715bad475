/* Older weights of a stage, and steps inside a batch.
 *
 *     parameter ──► storage of the newest     a STEP behind which its version is still wanted: new
 *     kept[0]   ──► storage of version 3      storage with a copy, which the optimizer changes
 *     kept[1]   ──► storage of version 4
 *     enter 3: the parameter and kept[0] change places, until leave
 *
 * The old storage stays where it is, so that what graphs have saved of it, views too, is what
 * forward used; its count of writes does not move. Who kept a pointer to the parameter sees the
 * version that is due. A STEP behind which nobody wants the old version changes it in place.
 *
 * An optimizer steps whole parameters of this rank alone, so that ranks need no call between them
 * (steps_alone in pipeline_slices.c); of others' it has no state.
 *
 * Cost: a pass over the stage's parameters and one version's memory for each version that is kept.
 * Source: Narayanan et al., "PipeDream" (2019), section 3.3; "Memory-Efficient Pipeline-Parallel
 * DNN Training" (2021), section 3.1.
 */
#include "comm/group/agree.h"
#include "compute/optim/optimizer.h"
#include "core/base/alloc.h"
#include "core/tensor/tensor_impl.h"
#include "parallel/pipeline/pipeline_versions.h"

/* ---- one version ----------------------------------------------------------------------------- */

/* What is never stepped is the same in all versions. */
static bool has_versions(const tutti_pipeline_t *p, const tt_pipeline_param_t *param)
{
    return param->owner == p->rank && tutti_tensor_requires_grad(param->tensor) &&
           param->is_optimized;
}

static void release_values(const tutti_pipeline_t *p, tutti_tensor_t **values)
{
    if (values != NULL) {
        tt_tensors_release(values, (size_t)p->param_count);
    }
    tt_free(values);
}

/* Its memory is the next version's, so that a device's stream has no more of it under way. */
static void drop(tutti_pipeline_t *p, tt_version_t *version)
{
    tt_versions_t *v = p->versions;
    release_values(p, v->spare);
    v->spare = version->values;
    v->kept_bytes -= version->bytes;
    *version = v->kept[--v->kept_count];
}

/* The parameter moves to a copy; *old has what it had. */
static tutti_status_t move_param(tutti_pipeline_t *p, tt_pipeline_param_t *param,
                                 tutti_tensor_t **old)
{
    tutti_tensor_t *x = param->tensor;
    if (*old == NULL) {
        TT_TRY(tt_tensor_new(x->storage->device, x->dtype, x->shape, false, old));
    }
    TT_TRY(tutti_tensor_copy(*old, x));
    (*old)->storage->version = x->storage->version; /* the same values: masters are right */
    tt_tensor_swap(x, *old);
    return tt_slices_follow(p, param);
}

static tutti_status_t keep_newest(tutti_pipeline_t *p)
{
    tt_versions_t *v = p->versions;
    tt_version_t *version = &v->kept[v->kept_count];
    *version = (tt_version_t){.number = v->newest, .values = v->spare};
    v->spare = NULL;
    if (version->values == NULL) {
        version->values =
            tt_alloc_array((size_t)p->param_count, sizeof *version->values, "pipeline versions");
        TT_TRY_ALLOC(version->values);
    }
    v->kept_count++;
    for (int i = 0; i < p->param_count; i++) {
        if (has_versions(p, &p->params[i])) {
            TT_TRY(move_param(p, &p->params[i], &version->values[i]));
            version->bytes += (int64_t)tutti_tensor_bytes(version->values[i]);
        } else {
            tutti_tensor_release(version->values[i]); /* of a spare: it was frozen since */
            version->values[i] = NULL;
        }
    }
    v->kept_bytes += version->bytes;
    tutti_pipeline_stats_t *stats = &p->stats;
    const int count = v->kept_count + 1;
    stats->versions_max = count > stats->versions_max ? count : stats->versions_max;
    stats->stash_bytes_max =
        v->kept_bytes > stats->stash_bytes_max ? v->kept_bytes : stats->stash_bytes_max;
    return TUTTI_OK;
}

static tt_version_t *find_version(tt_versions_t *v, int number)
{
    for (int i = 0; i < v->kept_count; i++) {
        if (v->kept[i].number == number) {
            return &v->kept[i];
        }
    }
    return NULL;
}

/* ---- around actions -------------------------------------------------------------------------- */

/* Parameters and an older version change places. */
static void change_places(tutti_pipeline_t *p, tt_version_t *version)
{
    for (int i = 0; i < p->param_count; i++) {
        if (version->values[i] != NULL) {
            tt_tensor_swap(p->params[i].tensor, version->values[i]);
        }
    }
}

static bool wants_version(const tutti_pipeline_t *p, int64_t index)
{
    return p->versions != NULL && p->trains && p->row.actions[index].kind <= TUTTI_PIPELINE_W;
}

void tt_versions_enter(tutti_pipeline_t *p, int64_t index)
{
    tt_versions_t *v = p->versions;
    if (wants_version(p, index) && p->row.actions[index].version != v->newest) {
        v->entered = find_version(v, p->row.actions[index].version);
        TT_ASSERT(v->entered != NULL);
        change_places(p, v->entered);
    }
}

void tt_versions_leave(tutti_pipeline_t *p, int64_t index)
{
    tt_versions_t *v = p->versions;
    if (!wants_version(p, index) || v->entered == NULL) {
        return;
    }
    tt_version_t *version = v->entered;
    v->entered = NULL;
    change_places(p, version);
    if ((v->marks[index] & TT_VERSION_END) != 0) {
        drop(p, version);
    }
}

/* ---- steps ----------------------------------------------------------------------------------- */

static tutti_status_t step_alone(tutti_pipeline_t *p)
{
    p->steps_alone = true;
    const tutti_status_t status = tt_optim_step_all(p->versions->opt);
    p->steps_alone = false;
    return status;
}

static void forget_grads(tutti_pipeline_t *p)
{
    tutti_optim_zero_grad(p->versions->opt);
    tt_slices_begin_step(p);
}

static tutti_status_t show_own(tutti_pipeline_t *p)
{
    for (int i = 0; i < p->param_count; i++) {
        tt_pipeline_param_t *param = &p->params[i];
        if (param->owner == p->rank && tutti_tensor_grad(param->tensor) != NULL) {
            TT_TRY(tt_slices_show(p, param));
        }
    }
    return TUTTI_OK;
}

tutti_status_t tt_versions_step(tutti_pipeline_t *p, int64_t index)
{
    TT_TRY(tt_ties_end_shard(p, 0, false)); /* each is one stage's */
    TT_TRY((p->versions->marks[index] & TT_VERSION_KEEP) != 0 ? keep_newest(p) : TUTTI_OK);
    TT_TRY(show_own(p));
    TT_TRY(step_alone(p));
    p->versions->newest++;
    forget_grads(p);
    tt_ties_begin_step(p);
    return TUTTI_OK;
}

/* ---- a batch --------------------------------------------------------------------------------- */

static const char driver[] = "an asynchronous pipeline";

static tutti_status_t check_memory(const tutti_optim_t *opt)
{
    return opt->offload == NULL
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                         "pipeline: the optimizer's state is on a disk, where a step reads it "
                         "ahead, and this schedule steps again and again inside a batch: keep it "
                         "in memory, or take a schedule that steps at the end (flush)");
}

tutti_status_t tt_versions_check(const tutti_pipeline_t *p)
{
    if (p->versions == NULL) {
        return TUTTI_OK;
    }
    if (p->versions->opt == NULL) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "pipeline: the schedule steps inside a batch, and there is no optimizer: "
                       "call tutti_pipeline_set_optimizer() before");
    }
    return check_memory(p->versions->opt);
}

void tt_versions_begin_step(tutti_pipeline_t *p)
{
    if (p->versions == NULL) {
        return;
    }
    TT_ASSERT(p->versions->kept_count == 0);
    p->versions->newest = 0;
}

void tt_versions_end_step(tutti_pipeline_t *p)
{
    if (p->versions != NULL) {
        release_values(p, p->versions->spare);
        p->versions->spare = NULL;
    }
}

void tt_versions_close(tutti_pipeline_t *p)
{
    tt_versions_t *v = p->versions;
    if (v == NULL) {
        return;
    }
    while (v->kept_count > 0) {
        drop(p, &v->kept[v->kept_count - 1]);
    }
    release_values(p, v->spare);
    tt_free(v->kept);
    tt_free(v->marks);
    tt_free(v->updates);
    tt_free(v);
    p->versions = NULL;
}

/* ---- the optimizer --------------------------------------------------------------------------- */

static bool has_param(const tutti_pipeline_t *p, const tutti_tensor_t *x)
{
    for (int i = 0; i < p->param_count; i++) {
        if (p->params[i].tensor == x) {
            return true;
        }
    }
    return false;
}

static tutti_status_t check_optimizer(const tutti_pipeline_t *p, const tutti_optim_t *opt)
{
    if (p->versions == NULL) {
        return TT_FAIL(TUTTI_ERR_STATE, "pipeline: the schedule steps at the end of a batch, which "
                                        "is the caller's: tutti_optim_step()");
    }
    if (opt->driver != NULL && opt != p->versions->opt) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "pipeline: the optimizer is stepped by %s already: release that first",
                       opt->driver);
    }
    TT_TRY(check_memory(opt));
    for (size_t i = 0; i < opt->slot_count; i++) {
        if (!has_param(p, opt->slots[i].tensor)) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "pipeline: the optimizer has a parameter \"%s\" that is none of the "
                           "module: nobody would step it",
                           opt->slots[i].name);
        }
    }
    return TUTTI_OK;
}

static void set_optimizer(tutti_pipeline_t *p, tutti_optim_t *opt)
{
    if (p->versions != NULL && p->versions->opt != NULL) {
        p->versions->opt->driver = NULL;
    }
    if (opt != NULL) {
        opt->driver = driver;
    }
    for (int i = 0; i < p->param_count; i++) {
        tt_pipeline_param_t *param = &p->params[i];
        param->is_optimized = opt != NULL && tt_optim_find(opt, param->tensor) >= 0;
    }
    if (p->versions != NULL) {
        p->versions->opt = opt;
    }
}

/* All ranks have one, or none. */
static tutti_status_t agree_on_optimizer(const tutti_pipeline_t *p, const tutti_optim_t *opt)
{
    bool lacks_one = opt == NULL; /* on some rank */
    TT_TRY(tt_group_agree_again(p->group, opt == NULL ? TUTTI_OK : check_optimizer(p, opt),
                                &lacks_one));
    if (!lacks_one) {
        return TUTTI_OK;
    }
    return tt_group_agree(
        p->group, opt == NULL ? TUTTI_OK
                              : TT_FAIL(TUTTI_ERR_MISMATCH,
                                        "pipeline_set_optimizer: this rank gives one, and another "
                                        "rank takes it away (NULL): none has one now"));
}

tutti_status_t tutti_pipeline_set_optimizer(tutti_pipeline_t *p, tutti_optim_t *opt)
{
    TT_WANT("pipeline_set_optimizer", p);
    if (opt == NULL) { /* whatever has become of the others */
        set_optimizer(p, NULL);
        return p->status < 0 ? TUTTI_OK : agree_on_optimizer(p, NULL);
    }
    TT_TRY(tt_pipeline_fail(p, TUTTI_OK)); /* what failed before */
    const tutti_status_t status = agree_on_optimizer(p, opt);
    if (status >= 0 || status == TUTTI_ERR_MISMATCH) {
        set_optimizer(p, status < 0 ? NULL : opt);
    }
    return status;
}
