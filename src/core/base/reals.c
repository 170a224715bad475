/* strtod() and printf() take the point of the program's locale: a comma in half of the world. The
 * locale "C" has a point; the C library has that one ready, so that nothing is allocated. The
 * thread has it while it writes.
 */
#include "core/base/reals.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static locale_t plain(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

bool tt_parse_real(const char *text, double *out)
{
    char *end;
    const locale_t own = plain();
    if (own == (locale_t)0 || text[strspn(text, "+-.0123456789eE")] != 0) {
        return false;
    }
    *out = strtod_l(text, &end, own);
    freelocale(own);
    return end != text && *end == 0;
}

int tt_format_list(char *text, size_t bytes, const char *format, va_list args)
{
    const locale_t own = plain(), before = uselocale(own);
    const int length = vsnprintf(text, bytes, format, args);
    uselocale(before);
    if (own != (locale_t)0) {
        freelocale(own);
    }
    return length;
}

int tt_format(char *text, size_t bytes, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int length = tt_format_list(text, bytes, format, args);
    va_end(args);
    return length;
}
