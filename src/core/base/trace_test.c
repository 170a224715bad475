/* Timelines: what is written is JSON of the agreed form, whatever the names are. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include <tutti/diagnose.h>

#include "core/base/testing.h"

static void events_become_json(void **state)
{
    (void)state;
    char path[] = "/tmp/tutti_trace_XXXXXX";
    close(mkstemp(path));
    tutti_trace_t *trace;
    assert_int_equal(tutti_trace_create(path, 3, &trace), TUTTI_OK);
    tutti_trace_event(trace, "compute", "forward", 1500, 4750);
    tutti_trace_event(tutti_trace_retain(trace), "wire", "a \"name\"\\\n", 5000, 4000);
    tutti_trace_event(NULL, "compute", "nothing", 0, 1);
    assert_int_equal(tutti_trace_release(trace), TUTTI_OK);
    tutti_trace_event(trace, "compute", "backward", 5000, 6000);
    assert_int_equal(tutti_trace_release(trace), TUTTI_OK);
    json_error_t error;
    json_t *all = json_load_file(path, 0, &error);
    unlink(path);
    assert_non_null(all);
    assert_int_equal(json_array_size(all), 6); /* the process, two lanes, three events */
    const json_t *forward = json_array_get(all, 2);
    assert_string_equal(json_string_value(json_object_get(forward, "name")), "forward");
    assert_int_equal(json_integer_value(json_object_get(forward, "pid")), 3);
    assert_true(json_real_value(json_object_get(forward, "ts")) == 1.5);
    assert_true(json_real_value(json_object_get(forward, "dur")) == 3.25);
    const json_t *odd = json_array_get(all, 4);
    assert_string_equal(json_string_value(json_object_get(odd, "name")), "a ?name???");
    assert_true(json_real_value(json_object_get(odd, "dur")) == 0);
    assert_int_equal(json_integer_value(json_object_get(odd, "tid")), 1);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(all, 5), "tid")), 0);
    json_decref(all);
}

static void a_file_that_cannot_be_made_is_named(void **state)
{
    (void)state;
    tutti_trace_t *trace;
    assert_int_equal(tutti_trace_create("/nowhere/at/all.json", 0, &trace), TUTTI_ERR_IO);
    tt_expect_error("/nowhere/at/all.json");
    assert_int_equal(tutti_trace_release(NULL), TUTTI_OK);
}

static void what_cannot_be_written_is_told_at_the_end(void **state)
{
    (void)state;
    tutti_trace_t *trace;
    assert_int_equal(tutti_trace_create("/dev/full", 0, &trace), TUTTI_OK);
    tutti_trace_event(trace, "compute", "forward", 0, 1);
    assert_int_equal(tutti_trace_release(trace), TUTTI_ERR_IO);
    tt_expect_error("/dev/full");
    tt_expect_error("No space left on device");
}

/* The last owner may have nobody to tell. */
static void every_owner_is_told(void **state)
{
    (void)state;
    tutti_trace_t *trace;
    assert_int_equal(tutti_trace_create("/dev/full", 0, &trace), TUTTI_OK);
    tutti_trace_retain(trace);
    assert_int_equal(tutti_trace_release(trace), TUTTI_ERR_IO);
    tutti_trace_event(trace, "compute", "forward", 0, 1);
    assert_int_equal(tutti_trace_release(trace), TUTTI_ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_become_json),
        cmocka_unit_test(a_file_that_cannot_be_made_is_named),
        cmocka_unit_test(what_cannot_be_written_is_told_at_the_end),
        cmocka_unit_test(every_owner_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
