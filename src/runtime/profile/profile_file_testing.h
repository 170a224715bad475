/* For tests of profiles: a file of a test's own, in a folder that goes with all that is in it. For
 * *_test.c only. */
#ifndef TT_PROFILE_FILE_TESTING_H
#define TT_PROFILE_FILE_TESTING_H

#include "core/base/place_testing.h"

static char place[TT_PLACE_BYTES], path[TT_PLACE_BYTES + 2];

static inline int tt_profile_file_setup(void **state)
{
    (void)state;
    tt_place_make(place);
    snprintf(path, sizeof path, "%s/p", place);
    return 0;
}

static inline int tt_profile_file_teardown(void **state)
{
    (void)state;
    tt_place_remove(place);
    return 0;
}

/* Of cmocka's list. */
#define TT_PROFILE_TEST(name)                                                                      \
    cmocka_unit_test_setup_teardown(name, tt_profile_file_setup, tt_profile_file_teardown)

#endif
