/* Walking through JSON: brackets and commas here, leaves by jansson. */
#include "core/base/json_walk.h"

#include <string.h>

#include "core/base/buffer.h"

static tutti_status_t fail_walk(const tt_json_walk_t *walk, size_t at, const char *problem)
{
    char printed[JSON_ERROR_TEXT_LENGTH];
    tt_bytes_print(tutti_text(problem), printed, sizeof printed);
    return TT_FAIL(TUTTI_ERR_FORMAT, "%s: not valid JSON at offset %zu: %s", walk->what,
                   walk->before + at, printed);
}

char tt_json_kind(tt_json_walk_t *walk)
{
    while (walk->at < walk->bytes && walk->text[walk->at] != 0 &&
           strchr(" \t\r\n", walk->text[walk->at]) != NULL) {
        walk->at++;
    }
    return (char)(walk->at < walk->bytes ? walk->text[walk->at] : 0);
}

static tutti_status_t take(tt_json_walk_t *walk, char wanted)
{
    if (tt_json_kind(walk) != wanted) {
        const char problem[] = {'e', 'x', 'p', 'e', 'c', 't', 'e', 'd', ' ', wanted, 0};
        return fail_walk(walk, walk->at, problem);
    }
    walk->at++;
    return TUTTI_OK;
}

tutti_status_t tt_json_enter(tt_json_walk_t *walk, char open)
{
    TT_TRY(take(walk, open));
    walk->is_first = true;
    return TUTTI_OK;
}

tutti_status_t tt_json_next(tt_json_walk_t *walk, char close)
{
    const bool was_first = walk->is_first;
    walk->is_first = false;
    if (tt_json_kind(walk) == close) {
        walk->at++;
        return TUTTI_END;
    }
    return was_first ? TUTTI_OK : take(walk, ',');
}

tutti_status_t tt_json_leaf(tt_json_walk_t *walk, json_t **out)
{
    const bool is_text = tt_json_kind(walk) == '"';
    const size_t left = walk->bytes - walk->at;
    const bool is_cut = !is_text && left > TT_JSON_LEAF_BYTES_MAX;
    json_error_t error;
    *out = json_loadb(walk->text + walk->at, is_cut ? TT_JSON_LEAF_BYTES_MAX : left,
                      JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, &error);
    /* jansson passes over bytes of 0, and does not count them; there is one before what is missing.
     */
    const char *zero =
        *out == NULL ? NULL : memchr(walk->text + walk->at, 0, (size_t)error.position);
    if (zero != NULL) {
        json_decref(*out);
        return fail_walk(walk, (size_t)(zero - walk->text), "a byte of 0");
    }
    if (*out != NULL) {
        walk->at += (size_t)error.position;
        return TUTTI_OK;
    }
    const enum json_error_code code = json_error_code(&error);
    return code == json_error_out_of_memory ? TT_FAIL(TUTTI_ERR_NOMEM, "out of memory: JSON")
           : is_cut && code == json_error_premature_end_of_input
               ? fail_walk(walk, walk->at, "more than 64 KiB for one value")
               : fail_walk(walk, walk->at + (size_t)error.position, error.text);
}

tutti_status_t tt_json_name(tt_json_walk_t *walk, json_t **out)
{
    json_t *name;
    if (tt_json_kind(walk) != '"') {
        return fail_walk(walk, walk->at, "a name expected");
    }
    TT_TRY(tt_json_leaf(walk, &name));
    const tutti_status_t status = take(walk, ':');
    if (status < 0) {
        json_decref(name);
        return status;
    }
    *out = name;
    return TUTTI_OK;
}

/* Behind the quote that ends it. */
static tutti_status_t skip_text(tt_json_walk_t *walk)
{
    const size_t begin = walk->at++;
    while (walk->at < walk->bytes && walk->text[walk->at] != '"') {
        walk->at += walk->text[walk->at] == '\\' ? 2 : 1;
    }
    if (walk->at >= walk->bytes) {
        return fail_walk(walk, begin, "a text that does not end");
    }
    walk->at++;
    return TUTTI_OK;
}

tutti_status_t tt_json_skip(tt_json_walk_t *walk)
{
    size_t depth = 0;
    char kind = tt_json_kind(walk);
    if (kind != '{' && kind != '[') {
        json_t *leaf;
        TT_TRY(kind == '"' ? skip_text(walk) : tt_json_leaf(walk, &leaf));
        json_decref(kind == '"' ? NULL : leaf);
        return TUTTI_OK;
    }
    do {
        kind = tt_json_kind(walk);
        if (walk->at == walk->bytes) {
            return fail_walk(walk, walk->at, "a bracket that is not closed");
        }
        if (kind == '"') {
            TT_TRY(skip_text(walk));
        } else {
            depth += kind == '{' || kind == '[';
            depth -= kind == '}' || kind == ']';
            walk->at++;
        }
    } while (depth > 0);
    return TUTTI_OK;
}

/* A member that is none of the named ones. */
static tutti_status_t take_rest(tt_json_walk_t *walk, const char *name, json_t *rest, size_t *room)
{
    json_t *value;
    const size_t begin = walk->at;
    TT_TRY(tt_json_leaf(walk, &value));
    if (json_object_set_new(rest, name, value) != 0) {
        return TT_FAIL(TUTTI_ERR_NOMEM, "out of memory: JSON");
    }
    if (walk->at - begin > *room) {
        return fail_walk(walk, begin, "more than 64 KiB for one value");
    }
    *room -= walk->at - begin;
    return TUTTI_OK;
}

static tutti_status_t split_member(tt_json_walk_t *walk, const char *const *names,
                                   tt_json_walk_t *places, json_t *rest, size_t *room)
{
    json_t *name;
    size_t i = 0;
    TT_TRY(tt_json_name(walk, &name));
    const char *text = json_string_value(name);
    while (names[i] != NULL && strcmp(names[i], text) != 0) {
        i++;
    }
    const bool is_named = names[i] != NULL;
    tutti_status_t status;
    if (is_named ? places[i].text != NULL : json_object_get(rest, text) != NULL) {
        status = fail_walk(walk, walk->at, "duplicate object key");
    } else if (is_named) {
        places[i] = *walk;
        status = tt_json_skip(walk);
    } else {
        status = take_rest(walk, text, rest, room);
    }
    json_decref(name);
    return status;
}

tutti_status_t tt_json_split(tt_json_walk_t *walk, const char *const *names, tt_json_walk_t *places,
                             json_t *rest)
{
    size_t room = TT_JSON_LEAF_BYTES_MAX;
    tutti_status_t status = tt_json_enter(walk, '{');
    while (status >= 0 && (status = tt_json_next(walk, '}')) == TUTTI_OK) {
        status = split_member(walk, names, places, rest, &room);
    }
    return status == TUTTI_END ? TUTTI_OK : status;
}

tutti_status_t tt_json_end(tt_json_walk_t *walk)
{
    tt_json_kind(walk);
    return walk->at == walk->bytes ? TUTTI_OK : fail_walk(walk, walk->at, "more behind its end");
}
