/* The inside of a sampler, the list of kinds, and what kinds share. */
#ifndef TT_SAMPLER_IMPL_H
#define TT_SAMPLER_IMPL_H

#include <tutti/dataloader.h>

#include "core/base/fail.h"
#include "core/base/ref.h"

struct tutti_sampler {
    tt_ref_t ref;
    const tutti_sampler_ops_t *ops;
    tutti_sampler_info_t info;
    void *state;
};

extern const tutti_sampler_ops_t *const tt_samplers[];
extern const size_t tt_sampler_count;

/* ARG unless the option is at least `least`; `kind` stands in the message. */
tutti_status_t tt_sampler_check(const char *kind, const char *option, int64_t value, int64_t least);

/* ARG unless there is a sampler and its entries are single samples. */
tutti_status_t tt_sampler_check_inner(const char *kind, const tutti_sampler_t *inner);

#endif
