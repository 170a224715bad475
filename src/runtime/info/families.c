/* The families of things that can be added to Tutti, each from the list that its .def makes. */
#include <tutti/ddp.h>
#include <tutti/diagnose.h>

#include "comm/algorithm/algorithms.h"
#include "comm/plan/plan.h"
#include "comm/store/store_ops.h"
#include "comm/backend/backend.h"
#include "comm/backend/mpi/mpi_load.h"
#include "comm/wire/wire.h"
#include "compute/data/dataset.h"
#include "compute/data/sampler_impl.h"
#include "compute/data/transform_impl.h"
#include "compute/nn/module_impl.h"
#include "compute/op/ops.h"
#include "compute/optim/optimizer.h"
#include "parallel/ddp/unit_source.h"
#include "core/base/config.h"
#include "core/base/fail.h"
#include "core/device/device.h"
#include "parallel/pipeline/pipeline_schedule.h"

#define X(family, what, list, length)                                                              \
    static tutti_status_t get_##family(size_t index, tutti_member_t *out)                          \
    {                                                                                              \
        if (index >= (length) || (list)[index] == NULL) {                                          \
            return TUTTI_END;                                                                      \
        }                                                                                          \
        *out = (tutti_member_t){(list)[index]->name, (list)[index]->about};                        \
        return TUTTI_OK;                                                                           \
    }
#include "runtime/info/families.def"
#undef X

static tutti_status_t get_plugins(size_t index, tutti_member_t *out)
{
    return tt_mpi_describe(index, &out->name, &out->about) ? TUTTI_OK : TUTTI_END;
}

static const struct {
    const char *name, *about;
    tutti_status_t (*get)(size_t index, tutti_member_t *out);
} families[] = {
#define X(family, what, list, length) {#family, what, get_##family},
#include "runtime/info/families.def"
#undef X
    {"plugins", "what backends load when they are asked for", get_plugins},
};

enum { FAMILY_COUNT = sizeof families / sizeof families[0] };

tutti_status_t tutti_info_family(size_t index, tutti_family_t *out)
{
    TT_WANT("info_family", out);
    if (index >= FAMILY_COUNT) {
        return TUTTI_END;
    }
    size_t count = 0;
    for (tutti_member_t member; families[index].get(count, &member) == TUTTI_OK;) {
        count++;
    }
    *out = (tutti_family_t){families[index].name, families[index].about, count};
    return TUTTI_OK;
}

tutti_status_t tutti_info_member(size_t family, size_t index, tutti_member_t *out)
{
    TT_WANT("info_member", out);
    if (family >= FAMILY_COUNT) {
        return TT_FAIL(TUTTI_ERR_ARG, "family %zu; there are %d", family, (int)FAMILY_COUNT);
    }
    return families[family].get(index, out);
}

tutti_status_t tutti_info_option(size_t family, size_t member, size_t index,
                                 tutti_member_option_t *out)
{
    tutti_member_t found;
    TT_WANT("info_option", out);
    const tutti_status_t status = tutti_info_member(family, member, &found);
    if (status != TUTTI_OK || families[family].get != get_optimizers) {
        return status < 0 ? status : TUTTI_END;
    }
    const tutti_optim_option_t *option = tt_optimizers[member]->options;
    while (option->name != NULL && index-- > 0) {
        option++;
    }
    *out = (tutti_member_option_t){option->name, option->fallback, option->min, option->below};
    return option->name != NULL ? TUTTI_OK : TUTTI_END;
}

tutti_status_t tutti_info_setting(size_t index, tutti_setting_t *out)
{
    TT_WANT("info_setting", out);
    if (index >= TT_CONFIG_COUNT) {
        return TUTTI_END;
    }
    const tt_config_entry_t *entry = &tt_config_table[index];
    const tt_config_key_t key = (tt_config_key_t)index;
    *out = (tutti_setting_t){.variable = entry->variable,
                             .fallback = entry->fallback,
                             .about = entry->about,
                             .value = tt_config_text(key)};
    tt_config_allowed(key, out->allowed, sizeof out->allowed);
    return TUTTI_OK;
}

tutti_status_t tutti_info_check_settings(void)
{
    return tt_config_check();
}
