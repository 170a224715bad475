/* Numbers in text have a point, whatever the locale of the program or the thread. The library reads
 * and writes real numbers by these alone (a rule of tidy). */
#ifndef TT_REALS_H
#define TT_REALS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

/* The whole text as a decimal number, "-1.5e3": no blanks, no hexadecimal digits, no inf or nan.
 * What is too large is HUGE_VAL, and what is too small is what strtod() makes of it. False: it is
 * none. */
bool tt_parse_real(const char *text, double *out);

/* snprintf() and vsnprintf(). */
__attribute__((format(printf, 3, 4))) int tt_format(char *text, size_t bytes, const char *format,
                                                    ...);
__attribute__((format(printf, 3, 0))) int tt_format_list(char *text, size_t bytes,
                                                         const char *format, va_list args);

#endif
