/* Text that others wrote, before it goes into a line. */
#ifndef TT_PRINTABLE_H
#define TT_PRINTABLE_H

/* What a terminal obeys becomes '?': control characters of ASCII, a line's end and DEL among them,
 * and U+0080 to U+009f, each byte one. All else stays, so that names keep their letters. */
void tt_make_printable(char *text);

#endif
