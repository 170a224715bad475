/* Calls that are coalesced: what is known of them between coalesce_begin and _end. */
#ifndef TT_COALESCED_H
#define TT_COALESCED_H

#include "comm/group/group_impl.h"

struct tt_coalesced {
    tt_streamed_t *streamed; /* calls on tensors of a device, none of them started; or NULL */
    tutti_work_t *bundle;    /* of the calls that have started; NULL: none has */
    tt_pack_t *fused; /* holds tensors of one dtype and reduction, not started yet; or NULL */
    size_t fused_bytes;
    const char *fused_end; /* of the memory of all that are fused */
    tutti_reduction_t op;
    const void *pieces[1]; /* of the start of what is fused */
    const void *site;      /* of the first that is fused */
    tutti_status_t status; /* the first failure of a call that had been accepted */
    char error[TT_ERROR_TEXT_BYTES];
};

/* One more tensor is fused. Errors: ARG if it overlaps one that is, for they are one call. */
tutti_status_t tt_coalesced_hold(tt_coalesced_t *all, tutti_group_t *group, tutti_tensor_t *x);

/* The call of what is fused, with its pack. The call's pieces are `all`'s, until the next one. */
tutti_status_t tt_coalesced_pack(tt_coalesced_t *all, tutti_group_t *group, tt_start_t *start);
void tt_coalesced_drop_fused(tt_coalesced_t *all, tutti_group_t *group);

/* The bundle is left to the caller. */
void tt_coalesced_free(tt_coalesced_t *all, tutti_group_t *group);

#endif
