/* Samplers: making, sharing and reading them. */
#include "compute/data/sampler_impl.h"

#include "core/base/alloc.h"

tutti_status_t tt_sampler_check(const char *kind, const char *option, int64_t value, int64_t least)
{
    return value >= least
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "sampler %s: %s is %lld: it must be at least %lld", kind,
                         option, (long long)value, (long long)least);
}

tutti_status_t tt_sampler_check_inner(const char *kind, const tutti_sampler_t *inner)
{
    if (inner == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "sampler %s: a sampler is required", kind);
    }
    if (inner->info.width != 1) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "sampler %s: it takes a sampler of samples, but %s gives up to %lld at once",
                       kind, inner->ops->name, (long long)inner->info.width);
    }
    return TUTTI_OK;
}

static tutti_status_t init(tutti_sampler_t *sampler, const void *options)
{
    const char *name = sampler->ops->name;
    if (sampler->ops->init == NULL || sampler->ops->read == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "sampler %s: init and read are required", name);
    }
    sampler->state = tt_alloc(sampler->ops->state_bytes, "sampler");
    TT_TRY_ALLOC(sampler->state);
    sampler->info.width = 1;
    TT_TRY(sampler->ops->init(sampler, options, &sampler->info));
    TT_TRY(tt_sampler_check(name, "the number of entries", sampler->info.count, 0));
    return tt_sampler_check(name, "the width of an entry", sampler->info.width, 1);
}

tutti_status_t tutti_sampler_create(const tutti_sampler_ops_t *kind, const void *options,
                                    tutti_sampler_t **out)
{
    if (options == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "sampler %s: options are required", kind->name);
    }
    tutti_sampler_t *sampler = tt_alloc(sizeof *sampler, "sampler");
    TT_TRY_ALLOC(sampler);
    tt_ref_init(&sampler->ref);
    sampler->ops = kind;
    const tutti_status_t status = init(sampler, options);
    if (status < 0) {
        tutti_sampler_release(sampler);
        return status;
    }
    *out = sampler;
    return TUTTI_OK;
}

tutti_sampler_t *tutti_sampler_retain(tutti_sampler_t *sampler)
{
    tt_ref_retain(&sampler->ref);
    return sampler;
}

void tutti_sampler_release(tutti_sampler_t *sampler)
{
    if (sampler != NULL && tt_ref_release(&sampler->ref)) {
        if (sampler->state != NULL && sampler->ops->fini != NULL) {
            sampler->ops->fini(sampler);
        }
        tt_free(sampler->state);
        tt_free(sampler);
    }
}

void *tutti_sampler_state(tutti_sampler_t *sampler)
{
    return sampler->state;
}

int64_t tutti_sampler_count(const tutti_sampler_t *sampler)
{
    return sampler->info.count;
}

int64_t tutti_sampler_width(const tutti_sampler_t *sampler)
{
    return sampler->info.width;
}

tutti_status_t tutti_sampler_read(tutti_sampler_t *sampler, int64_t epoch, int64_t position,
                                  int64_t *samples, int64_t *size)
{
    if (epoch < 0 || position < 0 || position >= sampler->info.count) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "sampler %s: entry %lld of epoch %lld: an epoch has entries 0 to %lld, and "
                       "epochs begin at 0",
                       sampler->ops->name, (long long)position, (long long)epoch,
                       (long long)sampler->info.count - 1);
    }
    if (size == NULL && sampler->info.width != 1) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "sampler %s: its entries have up to %lld samples: size is "
                       "required",
                       sampler->ops->name, (long long)sampler->info.width);
    }
    int64_t count = 0;
    const int64_t width = sampler->info.width;
    TT_TRY(sampler->ops->read(sampler, epoch, position, samples, &count));
    if (count < (width == 1) || count > width) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "sampler %s: entry %lld of epoch %lld has %lld samples: it may have %d to "
                       "%lld",
                       sampler->ops->name, (long long)position, (long long)epoch, (long long)count,
                       width == 1, (long long)width);
    }
    if (size != NULL) {
        *size = count;
    }
    return TUTTI_OK;
}
