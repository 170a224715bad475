/* Control characters out of a text, in place: those of ASCII, and the second set (C1), of which
 * U+009b begins what a terminal obeys just as ESC [ does; in UTF-8 they are 0xc2 and one byte.
 *
 * Source: ECMA-48, 5th edition, 1991.
 */
#include "core/base/printable.h"

#include <stdbool.h>

enum { DELETE = 0x7f, C1_LEAD = 0xc2, C1_BEGIN = 0x80, C1_END = 0xa0 };

void tt_make_printable(char *text)
{
    for (unsigned char *at = (unsigned char *)text; *at != 0; at++) {
        const bool is_c1 = at[0] == C1_LEAD && at[1] >= C1_BEGIN && at[1] < C1_END;
        if (is_c1) {
            *at++ = '?';
        }
        *at = is_c1 || *at < ' ' || *at == DELETE ? '?' : *at;
    }
}
