/* What one core multiplies and adds at best, in registers: what rates are compared with. */
#ifndef TT_PEAK_H
#define TT_PEAK_H

/* GFLOP/s of f32 of this core, by the variant in use (isa.h): the best of short runs, for others
 * may want the core, too. Cost: about 3 ms. */
double tt_core_peak(void);

#endif
