/* Names in sources. */
#include "runtime/checkpoint/load_names.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 1024 };

static bool matches(const char *const *patterns, size_t count, const char *name)
{
    bool is_match = false;
    for (size_t i = 0; i < count && !is_match; i++) {
        is_match = fnmatch(patterns[i], name, 0) == 0;
    }
    return is_match;
}

bool tt_load_takes(const tutti_load_options_t *o, const char *name)
{
    return (o->include_count == 0 || matches(o->include, o->include_count, name)) &&
           !matches(o->exclude, o->exclude_count, name);
}

/* ---- rules ----------------------------------------------------------------------------------- */

static bool is_of_optim(const char *name)
{
    return strncmp(name, TT_OPTIM_PREFIX, sizeof TT_OPTIM_PREFIX - 1) == 0;
}

static bool rename_whole(const tutti_load_rule_t *rule, const char *name, char *stored,
                         size_t bytes)
{
    const char *star = strchr(rule->name, '*'), *to = strchr(rule->stored, '*');
    if (star == NULL) {
        return strcmp(rule->name, name) == 0 &&
               snprintf(stored, bytes, "%s", rule->stored) < (int)bytes;
    }
    const size_t before = (size_t)(star - rule->name), behind = strlen(star + 1);
    const size_t length = strlen(name);
    if (length < before + behind || strncmp(name, rule->name, before) != 0 ||
        strcmp(name + length - behind, star + 1) != 0) {
        return false;
    }
    const int any = (int)(length - before - behind);
    const int used = to == NULL ? snprintf(stored, bytes, "%s", rule->stored)
                                : snprintf(stored, bytes, "%.*s%.*s%s", (int)(to - rule->stored),
                                           rule->stored, any, name + before, to + 1);
    return used < (int)bytes;
}

/* "optim.<parameter>.<moment>": there is no dot in the moment's name. */
static bool rename_state(const tutti_load_rule_t *rule, const char *name, char *stored,
                         size_t bytes)
{
    char parameter[NAME_BYTES], there[NAME_BYTES];
    const char *begin = name + sizeof TT_OPTIM_PREFIX - 1, *moment = strrchr(begin, '.');
    if (moment == NULL || moment - begin >= NAME_BYTES) {
        return false;
    }
    snprintf(parameter, sizeof parameter, "%.*s", (int)(moment - begin), begin);
    return rename_whole(rule, parameter, there, sizeof there) &&
           snprintf(stored, bytes, TT_OPTIM_PREFIX "%s%s", there, moment) < (int)bytes;
}

bool tt_load_rename(const tutti_load_rule_t *rule, const char *name, char *stored, size_t bytes)
{
    return (is_of_optim(name) && !is_of_optim(rule->name) ? rename_state : rename_whole)(
        rule, name, stored, bytes);
}

bool tt_load_transposes(const tutti_load_rule_t *rule, const tt_saved_tensor_t *saved)
{
    return rule->transposed && (saved->shape.rank > 0 || !is_of_optim(saved->name));
}

tt_fit_t tt_load_find(const tutti_load_options_t *o, const tt_manifest_t *manifest,
                      const char *name)
{
    char stored[NAME_BYTES];
    for (size_t i = 0; i < o->rule_count; i++) {
        const tt_saved_tensor_t *saved = tt_load_rename(&o->rules[i], name, stored, sizeof stored)
                                             ? tt_manifest_find(manifest, stored)
                                             : NULL;
        if (saved != NULL && !matches(o->exclude, o->exclude_count, saved->name)) {
            return (tt_fit_t){saved, tt_load_transposes(&o->rules[i], saved)};
        }
    }
    return (tt_fit_t){tt_manifest_find(manifest, name), false};
}

/* ---- mistakes -------------------------------------------------------------------------------- */

static tutti_status_t check_patterns(const char *const *patterns, size_t count, const char *what)
{
    for (size_t i = 0; i < count; i++) {
        if (patterns == NULL || patterns[i] == NULL) {
            return TT_FAIL(TUTTI_ERR_ARG, "checkpoint_load_from: %s pattern %zu of %zu is NULL",
                           what, i, count);
        }
    }
    return TUTTI_OK;
}

static int count_stars(const char *text)
{
    int count = 0;
    for (; *text != 0; text++) {
        count += *text == '*';
    }
    return count;
}

static tutti_status_t check_rule(const tutti_load_rule_t *rule, size_t number)
{
    if (rule->name == NULL || rule->stored == NULL) {
        return TT_FAIL(TUTTI_ERR_ARG, "checkpoint_load_from: rule %zu has no %s", number,
                       rule->name == NULL ? "name" : "stored name");
    }
    const int here = count_stars(rule->name), there = count_stars(rule->stored);
    return here <= 1 && there <= here
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG,
                         "checkpoint_load_from: rule %zu, \"%s\" is \"%s\" there: want one `*` at "
                         "most, and none there without one here",
                         number, rule->name, rule->stored);
}

tutti_status_t tt_load_options_check(const tutti_load_options_t *o)
{
    TT_TRY(check_patterns(o->include, o->include_count, "include"));
    TT_TRY(check_patterns(o->exclude, o->exclude_count, "exclude"));
    for (size_t i = 0; i < o->rule_count; i++) {
        if (o->rules == NULL) {
            return TT_FAIL(TUTTI_ERR_ARG, "checkpoint_load_from: %zu rules are NULL",
                           o->rule_count);
        }
        TT_TRY(check_rule(&o->rules[i], i));
    }
    return TUTTI_OK;
}
