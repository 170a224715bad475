/* What every loss may be asked for. */
#ifndef TT_LOSS_REDUCTION_H
#define TT_LOSS_REDUCTION_H

#include <tutti/op_loss.h>

#include "core/base/fail.h"

static inline tutti_status_t tt_loss_check(const char *loss, tutti_loss_reduction_t reduction)
{
    return reduction == TUTTI_LOSS_MEAN || reduction == TUTTI_LOSS_SUM ||
                   reduction == TUTTI_LOSS_NONE
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG,
                         "%s: reduction %d: want TUTTI_LOSS_MEAN, "
                         "TUTTI_LOSS_SUM or TUTTI_LOSS_NONE",
                         loss, (int)reduction);
}

#endif
