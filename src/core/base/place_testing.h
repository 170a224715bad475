/* A folder of a test's own, which goes with all that is in it. For *_test.c only.
 *
 *     char place[TT_PLACE_BYTES];
 *     tt_place_make(place);
 *     tt_place_remove(place);
 */
#ifndef TT_PLACE_TESTING_H
#define TT_PLACE_TESTING_H

#include <stdlib.h>

#include "core/base/testing.h"

enum { TT_PLACE_BYTES = 64 };

static inline void tt_place_make(char place[TT_PLACE_BYTES])
{
    snprintf(place, TT_PLACE_BYTES, "/tmp/tutti-test-XXXXXX");
    assert_non_null(mkdtemp(place));
}

/* In memory, where files can be there: for what writes much, and tests no disk. */
static inline void tt_place_make_quick(char place[TT_PLACE_BYTES])
{
    snprintf(place, TT_PLACE_BYTES, "/dev/shm/tutti-test-XXXXXX");
    if (mkdtemp(place) == NULL) {
        tt_place_make(place);
    }
}

/* By another process, which meets none of the faults that a test makes here. */
static inline void tt_place_remove(const char *place)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", place);
    assert_int_equal(system(command), 0);
}

#endif
