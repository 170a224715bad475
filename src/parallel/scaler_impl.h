/* Who unscales gradients himself tells a scaler what came of it. */
#ifndef TT_SCALER_IMPL_H
#define TT_SCALER_IMPL_H

#include <tutti/modes.h>

/* Neither NULL nor disabled: who has it unscales, and looks for overflows. */
bool tt_scaler_is_on(const tutti_scaler_t *scaler);

/* What gradients are multiplied by; 1 of one that is disabled. */
double tt_scaler_factor(const tutti_scaler_t *scaler);

/* All that decides what a scaler does next, so that ranks can compare theirs; zeros for NULL. */
enum { TT_SCALER_NUMBERS = 6 };
void tt_scaler_tell(const tutti_scaler_t *scaler, double numbers[TT_SCALER_NUMBERS]);

/* A step is over, on all ranks alike: as tutti_scaler_update() behind all of its calls. */
void tt_scaler_end_step(tutti_scaler_t *scaler, bool has_overflow);

#endif
