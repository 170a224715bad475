/* A locale with a comma, which the machine may not have: localedef makes one in a new folder. For
 * *_test.c only.
 *
 *     tt_comma_begin();
 *     … numbers are written and read …
 *     tt_comma_end();
 */
#ifndef TT_COMMA_TESTING_H
#define TT_COMMA_TESTING_H

#include <locale.h>
#include <stdlib.h>

#include "core/base/place_testing.h"

/* 1.5 is "1,5" from here on. Without localedef, as of musl, the test is skipped and says why. */
static inline void tt_comma_begin(void)
{
    char place[TT_PLACE_BYTES], command[512], text[8];
    tt_place_make(place);
    snprintf(command, sizeof command,
             "cd %s && printf 'LC_NUMERIC\\ndecimal_point \",\"\\nthousands_sep \".\"\\n"
             "grouping 3;3\\nEND LC_NUMERIC\\n' >source && "
             "localedef -c -i ./source -f ANSI_X3.4-1968 ./comma >log 2>&1; test -d comma",
             place);
    const int status = system(command);
    setenv("LOCPATH", place, 1);
    const char *set = status == 0 ? setlocale(LC_NUMERIC, "comma") : NULL;
    tt_place_remove(place);
    if (set == NULL) {
        print_message("localedef makes no locale with a comma\n");
        skip();
    }
    snprintf(text, sizeof text, "%.1f", 1.5);
    assert_string_equal(text, "1,5");
}

static inline void tt_comma_end(void)
{
    setlocale(LC_NUMERIC, "C");
}

#endif
