/* What a terminal obeys goes out of a text, byte for byte; nothing else does. */
#include "core/base/printable.h"

#include <stdio.h>

#include "core/base/testing.h"

static void expect(const char *before, const char *after)
{
    char text[64];
    snprintf(text, sizeof text, "%s", before);
    tt_make_printable(text);
    assert_string_equal(text, after);
}

static void each_byte_is_kept_or_replaced(void **state)
{
    (void)state;
    for (int byte = 1; byte < 256; byte++) {
        const char text[] = {'a', (char)byte, 'b', 0};
        const bool is_control = byte < ' ' || byte == 0x7f;
        expect(text, is_control ? "a?b" : text);
    }
    expect("", "");
}

static void the_second_set_is_control_in_utf_8_alone(void **state)
{
    (void)state;
    expect("\xc2\x80.\xc2\x9b[31m\xc2\x9f", "??.??[31m??");
    expect("\xc2\xa0\xc2\xbf\xc3\x9b\x9b", "\xc2\xa0\xc2\xbf\xc3\x9b\x9b");
    expect("\xc2\xc2\x9b\xc2\n\xc2", "\xc2??\xc2?\xc2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_byte_is_kept_or_replaced),
        cmocka_unit_test(the_second_set_is_control_in_utf_8_alone),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
