/* Call sites: lines where there is debug information, symbols where there is none, other processes,
 * addresses that are nowhere. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include "core/base/site.h"
#include "core/base/testing.h"

__attribute__((noinline)) static const void *where_am_i(void)
{
    return __builtin_return_address(0);
}

static bool names_this_test(const char *text, int line)
{
    char want[64];
    snprintf(want, sizeof want, "site_test.c:%d", line);
    return strcmp(text, want) == 0;
}

static void a_return_address_is_the_line_of_its_call(void **state)
{
    (void)state;
    const void *site = where_am_i();
    const int line = __LINE__ - 1;
    const tt_site_t name = tt_site_name(site);
    if (!names_this_test(name.text, line)) {
        fail_msg("want line %d, got \"%s\"", line, name.text);
    }
}

static void what_has_no_lines_is_named_by_its_symbol(void **state)
{
    (void)state;
    const tt_site_t name = tt_site_name((const char *)(uintptr_t)&deflateBound + 1);
    /* unless zlib's debug information is installed */
    if (strstr(name.text, "deflateBound+0x1 in libz") == NULL && strstr(name.text, ".c:") == NULL) {
        fail_msg("\"%s\"", name.text);
    }
}

static void addresses_that_are_nowhere_have_no_name(void **state)
{
    (void)state;
    assert_string_equal(tt_site_name(NULL).text, "");
    assert_string_equal(tt_site_name((const void *)(uintptr_t)1).text, "");
    assert_string_equal(tt_sites_name(NULL, 4096).text, "");
    assert_null(tt_sites_open(INT32_MAX)); /* no such process */
}

static void the_code_of_a_stopped_process_is_named_too(void **state)
{
    (void)state;
    const void *site = where_am_i();
    const int line = __LINE__ - 1;
    const pid_t child = fork();
    if (child == 0) {
        raise(SIGSTOP);
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, WUNTRACED), child);
    tt_sites_t *sites = tt_sites_open(child);
    assert_non_null(sites);
    const tt_site_t name = tt_sites_name(sites, (uint64_t)(uintptr_t)site);
    tt_sites_close(sites);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_true(names_this_test(name.text, line));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_return_address_is_the_line_of_its_call),
        cmocka_unit_test(what_has_no_lines_is_named_by_its_symbol),
        cmocka_unit_test(addresses_that_are_nowhere_have_no_name),
        cmocka_unit_test(the_code_of_a_stopped_process_is_named_too),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
