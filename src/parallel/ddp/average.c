/* Averaging parameters: when (a pure function of the step), and over whom. */
#include <tutti/ddp.h>

#include <string.h>

#include <tutti/collectives.h>
#include <tutti/objects.h>

#include "comm/group/agree.h"
#include "core/base/alloc.h"
#include "core/base/fail.h"
#include "core/base/fnv.h"
#include "core/tensor/tensor_impl.h"

enum { LEVELS_MAX = 8 };

struct tutti_averager {
    tutti_average_level_t levels[LEVELS_MAX];
    int count;
    int64_t warmup, step;
};

/* ---- stages ---------------------------------------------------------------------------------- */

/* Of a module that a pipeline has cut, another rank's stages lie on meta. */
static bool is_another_stages(const tutti_tensor_t *x)
{
    return x->slice != NULL && x->slice->slicer->deals_wholes &&
           !tt_device_has_values(x->storage->device);
}

typedef struct {
    uint64_t names; /* of parameters that this rank has */
    bool is_cut;    /* a pipeline has cut the module, on all ranks */
} present_t;

static tutti_status_t note_present(void *user, const char *name, tutti_tensor_t *x)
{
    present_t *present = user;
    present->is_cut |= x->slice != NULL && x->slice->slicer->deals_wholes;
    if (!is_another_stages(x)) {
        present->names = tt_fnv(present->names, name, strlen(name) + 1);
    }
    return TUTTI_OK;
}

/* Ranks with other stages would average other parameters. */
static tutti_status_t check_stages(tutti_module_t *module, tutti_group_t *group)
{
    present_t present = {.names = TT_FNV_BEGIN};
    tutti_buffer_t first = {NULL, 0};
    TT_TRY(tutti_module_each_parameter(module, note_present, &present));
    if (!present.is_cut) {
        return TUTTI_OK;
    }
    tutti_status_t status = tutti_broadcast_bytes(
        group, tutti_bytes_of(&present.names, sizeof present.names), 0, &first);
    if (status >= 0 && memcmp(first.data, &present.names, sizeof present.names) != 0) {
        status = TT_FAIL(TUTTI_ERR_MISMATCH,
                         "average_parameters: rank %d of the group has other stages of the "
                         "pipeline than rank 0: give the group of the ranks that have the same "
                         "ones, such as tutti_mesh_group(mesh, \"dp\")",
                         tutti_group_rank(group));
    }
    tutti_buffer_release(&first);
    return tt_group_agree(group, status);
}

/* ---- averages -------------------------------------------------------------------------------- */

static tutti_status_t average_one(void *user, const char *name, tutti_tensor_t *x)
{
    (void)name;
    return is_another_stages(x) ? TUTTI_OK : tutti_all_reduce(user, x, TUTTI_AVG, NULL);
}

tutti_status_t tutti_average_parameters(tutti_module_t *module, tutti_group_t *group)
{
    TT_TRY(check_stages(module, group));
    return tutti_module_each_parameter(module, average_one, group);
}

static tutti_status_t check_levels(const tutti_average_level_t *levels, int count)
{
    if (count < 1 || count > LEVELS_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "averager: %d levels; want 1 to %d", count, LEVELS_MAX);
    }
    for (int i = 0; i < count; i++) {
        const int64_t before = i > 0 ? levels[i - 1].period : 1;
        if (levels[i].period < 1 || levels[i].period % before != 0 ||
            (i > 0 && levels[i].period == before)) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "averager: the period of level %d is %lld; want a larger multiple of "
                           "%lld, the one before",
                           i, (long long)levels[i].period, (long long)before);
        }
    }
    return TUTTI_OK;
}

tutti_status_t tutti_averager_create(const tutti_average_level_t *levels, int count, int64_t warmup,
                                     tutti_averager_t **out)
{
    TT_TRY(check_levels(levels, count));
    if (warmup < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "averager: a warmup of %lld steps", (long long)warmup);
    }
    tutti_averager_t *averager = tt_alloc(sizeof *averager, "averager");
    TT_TRY_ALLOC(averager);
    averager->warmup = warmup;
    for (int i = 0; i < count; i++) {
        averager->levels[averager->count++] =
            (tutti_average_level_t){levels[i].period, tutti_group_retain(levels[i].group)};
    }
    *out = averager;
    return TUTTI_OK;
}

void tutti_averager_release(tutti_averager_t *averager)
{
    for (int i = 0; averager != NULL && i < averager->count; i++) {
        tutti_group_release(averager->levels[i].group);
    }
    tt_free(averager);
}

int tutti_averager_due(const tutti_averager_t *averager, int64_t step)
{
    int due = -1;
    for (int i = 0; i < averager->count && step >= averager->warmup; i++) {
        due = (step - averager->warmup) % averager->levels[i].period == 0 ? i : due;
    }
    return due;
}

tutti_status_t tutti_averager_step(tutti_averager_t *averager, tutti_module_t *module)
{
    const int due = tutti_averager_due(averager, averager->step++);
    return due < 0 ? TUTTI_OK : tutti_average_parameters(module, averager->levels[due].group);
}

void tutti_averager_set_step(tutti_averager_t *averager, int64_t step)
{
    averager->step = step;
}
