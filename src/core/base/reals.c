/* strtod() reads what the program's locale writes: with a comma for the point in half of the world.
 * The locale "C" has a point; the C library has that one ready, so that nothing is allocated.
 */
#include "core/base/reals.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

bool tt_parse_real(const char *text, double *out)
{
    char *end;
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (plain == (locale_t)0 || text[strspn(text, "+-.0123456789eE")] != 0) {
        return false;
    }
    *out = strtod_l(text, &end, plain);
    freelocale(plain);
    return end != text && *end == 0;
}
