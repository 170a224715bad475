/* Sizes and spans of time as people read them, in lines of the log. */
#ifndef TT_UNITS_H
#define TT_UNITS_H

#include <stdint.h>

enum { TT_UNITS_TEXT_BYTES = 32 };

/* "97 B", "1.5 GiB"; returns text. */
char *tt_units_bytes(uint64_t bytes, char text[TT_UNITS_TEXT_BYTES]);

/* "0.31 ms", "2.3 s", "17 min", "5.2 h", "24 days": two digits, and more only where a unit has
 * them; returns text. */
char *tt_units_seconds(double seconds, char text[TT_UNITS_TEXT_BYTES]);

/* "0.73 %", "4.1 %", "17 %", of a share; returns text. */
char *tt_units_percent(double share, char text[TT_UNITS_TEXT_BYTES]);

#endif
