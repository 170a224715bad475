/* Reading numbers with a point. */
#ifndef TT_REALS_H
#define TT_REALS_H

#include <stdbool.h>

/* The whole text as a decimal number, "-1.5e3": no blanks, no hexadecimal digits, no inf or nan.
 * The point is a point, whatever the program's locale. What is too large is HUGE_VAL, and what is
 * too small is what strtod() makes of it. False: it is none. */
bool tt_parse_real(const char *text, double *out);

#endif
