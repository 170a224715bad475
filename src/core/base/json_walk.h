/* JSON that strangers wrote, value by value: of a long text only the value that is looked at is in
 * memory as objects of jansson, which may take 80 times as much as its text.
 *
 *     tt_json_walk_t walk = tt_json_walk("model.safetensors", 8, text, bytes);
 *     TT_TRY(tt_json_enter(&walk, '{'));
 *     while ((status = tt_json_next(&walk, '}')) == TUTTI_OK) {
 *         json_t *name, *value;
 *         TT_TRY(tt_json_name(&walk, &name));
 *         TT_TRY(tt_json_leaf(&walk, &value));
 *         …
 *     }
 *     TT_TRY(status == TUTTI_END ? tt_json_end(&walk) : status);
 *
 * Instead of a leaf, an object or a list may be entered, or anything skipped. A walk may be copied,
 * to come back to a place. Every failure is FORMAT and names file and offset, or NOMEM. Two members
 * of one name are for the caller to find.
 *
 * Cost: each byte is looked at once; that of jansson for each leaf.
 */
#ifndef TT_JSON_WALK_H
#define TT_JSON_WALK_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "core/base/fail.h"

/* Of a leaf that is no text: it takes up to 5 MB as objects. */
enum { TT_JSON_LEAF_BYTES_MAX = 1 << 16 };

typedef struct {
    const char *what; /* for failures: a path */
    size_t before;    /* bytes of the file in front of the text */
    const char *text; /* [bytes] */
    size_t bytes;
    size_t at; /* of what is looked at next */
    bool is_first;
} tt_json_walk_t;

static inline tt_json_walk_t tt_json_walk(const char *what, size_t before, const char *text,
                                          size_t bytes)
{
    return (tt_json_walk_t){.what = what, .before = before, .text = text, .bytes = bytes};
}

/* The first byte of the value that is next; 0: there is none. */
char tt_json_kind(tt_json_walk_t *walk);

/* Into an object, '{', or a list, '['. */
tutti_status_t tt_json_enter(tt_json_walk_t *walk, char open);

/* END: there is none, and the walk is behind the object or list that `close` ends. */
tutti_status_t tt_json_next(tt_json_walk_t *walk, char close);

/* Of a member, to be released with json_decref(). */
tutti_status_t tt_json_name(tt_json_walk_t *walk, json_t **out);

/* A value as a whole, likewise. FORMAT also where it is no text and has more than
 * TT_JSON_LEAF_BYTES_MAX bytes. */
tutti_status_t tt_json_leaf(tt_json_walk_t *walk, json_t **out);

/* Past a value; of what is in it only quotes and brackets are looked at. */
tutti_status_t tt_json_skip(tt_json_walk_t *walk);

/* An object: of a member that is among the names, a list that ends with NULL, the place becomes a
 * walk in front of its value. All others become members of `rest`; they may have
 * TT_JSON_LEAF_BYTES_MAX bytes together. FORMAT also where a name is there twice. */
tutti_status_t tt_json_split(tt_json_walk_t *walk, const char *const *names, tt_json_walk_t *places,
                             json_t *rest);

/* Nothing but blanks may be behind it. */
tutti_status_t tt_json_end(tt_json_walk_t *walk);

#endif
