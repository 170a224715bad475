/* Walks through JSON: what jansson reads comes out the same, what it refuses is refused. */
#include "core/base/json_walk.h"

#include <string.h>

#include "core/base/alloc.h"
#include "core/base/testing.h"

static tutti_status_t walk_value(tt_json_walk_t *walk, json_t **out);

static tutti_status_t walk_object(tt_json_walk_t *walk, json_t *object)
{
    tutti_status_t status = tt_json_enter(walk, '{');
    while (status >= 0 && (status = tt_json_next(walk, '}')) == TUTTI_OK) {
        json_t *name = NULL, *value = NULL;
        status = tt_json_name(walk, &name);
        status = status < 0 ? status : walk_value(walk, &value);
        if (status >= 0) {
            json_object_set(object, json_string_value(name), value);
        }
        json_decref(name);
        json_decref(value);
    }
    return status == TUTTI_END ? TUTTI_OK : status;
}

static tutti_status_t walk_list(tt_json_walk_t *walk, json_t *list)
{
    tutti_status_t status = tt_json_enter(walk, '[');
    while (status >= 0 && (status = tt_json_next(walk, ']')) == TUTTI_OK) {
        json_t *value = NULL;
        status = walk_value(walk, &value);
        if (status >= 0) {
            json_array_append_new(list, value);
        }
    }
    return status == TUTTI_END ? TUTTI_OK : status;
}

/* As deep as it goes; what could not be walked leaves nothing. */
static tutti_status_t walk_value(tt_json_walk_t *walk, json_t **out)
{
    const char kind = tt_json_kind(walk);
    if (kind != '{' && kind != '[') {
        return tt_json_leaf(walk, out);
    }
    json_t *value = kind == '{' ? json_object() : json_array();
    const tutti_status_t status = kind == '{' ? walk_object(walk, value) : walk_list(walk, value);
    if (status < 0) {
        json_decref(value);
        return status;
    }
    *out = value;
    return TUTTI_OK;
}

static tutti_status_t walk_text(const char *text, size_t bytes, json_t **out)
{
    tt_json_walk_t walk = tt_json_walk("t", 0, text, bytes);
    TT_TRY(walk_value(&walk, out));
    const tutti_status_t status = tt_json_end(&walk);
    if (status < 0) {
        json_decref(*out);
    }
    return status;
}

/* The text, as jansson and as walks see it. */
static void compare(const char *text, size_t bytes)
{
    json_t *found, *expected = json_loadb(text, bytes, JSON_DECODE_ANY, NULL);
    const tutti_status_t status = walk_text(text, bytes, &found);
    if ((status >= 0) != (expected != NULL)) {
        fail_msg("%.*s: %s", (int)bytes, text, status < 0 ? tutti_last_error() : "accepted");
    }
    if (status >= 0) {
        assert_true(json_equal(found, expected));
        json_decref(found);
    } else {
        assert_int_equal(status, TUTTI_ERR_FORMAT);
        tt_expect_error("t: not valid JSON at offset ");
    }
    json_decref(expected);
}

static const char sample[] = " {\"a\" : {\"b\\u00e9\\\"\":[1 , -2.5e3, true,null,\"\\\\\"], "
                             "\"\":{}},\n\"[\" :[[],[{\"}\":0}]]\t} ";

static void every_prefix_and_changed_byte_is_as_for_jansson(void **state)
{
    (void)state;
    static const char others[] = "{}[],:\" \\x1e\n";
    char text[sizeof sample];
    for (size_t i = 0; i < sizeof sample; i++) {
        compare(sample, i);
        for (size_t k = 0; k < sizeof others - 1 && i < sizeof sample - 1; k++) {
            memcpy(text, sample, sizeof sample);
            text[i] = others[k];
            compare(text, sizeof sample - 1);
        }
    }
}

static void what_is_skipped_ends_where_it_ends(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sample; i++) {
        tt_json_walk_t walk = tt_json_walk("t", 0, sample, i);
        assert_int_equal(tt_json_skip(&walk) >= 0, i >= strlen(sample) - 1);
    }
}

static void long_values_are_refused_and_long_texts_are_not(void **state)
{
    (void)state;
    enum { BYTES = TT_JSON_LEAF_BYTES_MAX + 100 };
    static char text[BYTES];
    json_t *leaf;
    memset(text, 'a', BYTES);
    text[0] = text[BYTES - 1] = '"';
    tt_json_walk_t walk = tt_json_walk("t", 0, text, BYTES);
    assert_int_equal(tt_json_leaf(&walk, &leaf), TUTTI_OK);
    assert_int_equal(json_string_length(leaf), BYTES - 2);
    json_decref(leaf);
    memset(text, ' ', BYTES);
    text[2] = '[';
    text[BYTES - 1] = ']';
    walk = tt_json_walk("t", 5, text, BYTES);
    assert_int_equal(tt_json_leaf(&walk, &leaf), TUTTI_ERR_FORMAT);
    tt_expect_error("t: not valid JSON at offset 7: more than 64 KiB for one value");
}

/* jansson alone would pass over them. */
static void bytes_of_0_are_refused(void **state)
{
    (void)state;
    char text[sizeof sample];
    for (size_t i = 0; i < sizeof sample - 1; i++) {
        json_t *found;
        memcpy(text, sample, sizeof sample);
        text[i] = 0;
        assert_int_equal(walk_text(text, sizeof sample - 1, &found), TUTTI_ERR_FORMAT);
    }
}

static void members_are_places_or_objects(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":1,\"long\": [1,2],\"b\":{}}";
    static const char *const names[] = {"long", "none", NULL};
    tt_json_walk_t walk = tt_json_walk("t", 0, text, sizeof text - 1), places[2] = {0};
    json_t *rest = json_object(), *expected = json_loads("{\"a\":1,\"b\":{}}", 0, NULL);
    assert_int_equal(tt_json_split(&walk, names, places, rest), TUTTI_OK);
    assert_int_equal(tt_json_end(&walk), TUTTI_OK);
    assert_true(json_equal(rest, expected));
    assert_int_equal(tt_json_kind(&places[0]), '[');
    assert_int_equal(places[0].at, 15);
    assert_null(places[1].text);
    json_decref(rest);
    json_decref(expected);
}

static void members_have_a_leafs_bytes_together(void **state)
{
    (void)state;
    enum { BYTES = TT_JSON_LEAF_BYTES_MAX };
    static char text[BYTES + 32];
    static const char *const names[] = {NULL};
    for (int i = 0; i < 2; i++) {
        json_t *rest = json_object();
        memset(text, 'a', sizeof text);
        memcpy(text, "{\"a\":1,\"b\":\"", 12);
        memcpy(text + 12 + BYTES - 3 + i, "\"}", 2);
        tt_json_walk_t walk = tt_json_walk("t", 0, text, (size_t)(12 + BYTES - 3 + i + 2));
        assert_int_equal(tt_json_split(&walk, names, NULL, rest), i == 0 ? 0 : TUTTI_ERR_FORMAT);
        json_decref(rest);
    }
    tt_expect_error("t: not valid JSON at offset 11: more than 64 KiB for one value");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_prefix_and_changed_byte_is_as_for_jansson),
        cmocka_unit_test(bytes_of_0_are_refused),
        cmocka_unit_test(members_are_places_or_objects),
        cmocka_unit_test(members_have_a_leafs_bytes_together),
        cmocka_unit_test(what_is_skipped_ends_where_it_ends),
        cmocka_unit_test(long_values_are_refused_and_long_texts_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
