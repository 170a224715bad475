/* Reading rules. A rule is [collective:][from-to:]algorithm; sizes are bytes with k, M or G. */
#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RULE_BYTES_MAX = 96 };

static bool is_needless(const char *text)
{
    return text == NULL || *text == 0 || strcmp(text, "auto") == 0;
}

static int find_collective(const char *name)
{
    for (int i = 0; i < TT_COLLECTIVE_COUNT; i++) {
        if (strcmp(tt_collective_name((tt_collective_t)i), name) == 0) {
            return i;
        }
    }
    return -1;
}

/* "4k" and the like up to `end`; false if it is something else. */
static bool read_size(const char *text, const char *end, size_t *out)
{
    if (*text < '0' || *text > '9') {
        return false;
    }
    char *rest;
    const unsigned long long value = strtoull(text, &rest, 10);
    int shift = 0;
    if (rest < end) {
        shift = *rest == 'k' || *rest == 'K' ? 10 : *rest == 'M' ? 20 : *rest == 'G' ? 30 : -1;
        rest++;
    }
    if (rest != end || shift < 0 || value > SIZE_MAX >> shift) {
        return false;
    }
    *out = (size_t)value << shift;
    return true;
}

/* "0-4k", "4k-" (up to the largest). */
static bool read_range(const char *text, tt_rule_t *rule)
{
    const char *dash = strchr(text, '-');
    if (dash == NULL || !read_size(text, dash, &rule->bytes_min)) {
        return false;
    }
    rule->bytes_max = SIZE_MAX;
    return dash[1] == 0 || (read_size(dash + 1, dash + 1 + strlen(dash + 1), &rule->bytes_max) &&
                            rule->bytes_min < rule->bytes_max);
}

/* One word of a rule before its last one. */
static tutti_status_t read_condition(const char *word, tt_rule_t *rule)
{
    if (read_range(word, rule)) {
        return TUTTI_OK;
    }
    rule->collective = find_collective(word);
    return rule->collective >= 0
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG,
                         "algorithm rule: \"%s\" is neither a collective (all_reduce, barrier, …) "
                         "nor a range of bytes (0-4k, 1M-)",
                         word);
}

static tutti_status_t name_algorithms(const char *word)
{
    char names[400] = "";
    size_t length = 0;
    for (int i = 0; tt_algorithms[i] != NULL && length + 1 < sizeof names; i++) {
        const int n = snprintf(names + length, sizeof names - length, "%s%s", i > 0 ? ", " : "",
                               tt_algorithms[i]->name);
        length += n > 0 ? (size_t)n : 0;
    }
    return TT_FAIL(TUTTI_ERR_ARG, "there is no algorithm \"%s\"; there are %s", word, names);
}

static tutti_status_t read_rule(char *text, tt_rule_t *rule)
{
    *rule = (tt_rule_t){.collective = -1, .bytes_max = SIZE_MAX};
    for (char *colon = strchr(text, ':'); colon != NULL; colon = strchr(text, ':')) {
        *colon = 0;
        TT_TRY(read_condition(text, rule));
        text = colon + 1;
    }
    rule->algorithm = tt_algorithm_find(text);
    return rule->algorithm != NULL ? TUTTI_OK : name_algorithms(text);
}

tutti_status_t tt_coll_rules_add(tt_coll_rules_t *rules, const char *text, const char *origin)
{
    for (const char *at = text; !is_needless(at);) {
        const size_t length = strcspn(at, ",");
        char word[RULE_BYTES_MAX];
        if (length >= sizeof word || rules->count == TT_RULES_MAX) {
            return TT_FAIL(TUTTI_ERR_ARG,
                           "algorithm rules: \"%.40s…\": a rule has at most %d "
                           "bytes, and there are at most %d",
                           at, RULE_BYTES_MAX - 1, TT_RULES_MAX);
        }
        memcpy(word, at, length);
        word[length] = 0;
        tt_rule_t *rule = &rules->rules[rules->count];
        TT_TRY(read_rule(word, rule));
        rule->origin = origin;
        rules->count++;
        at += length + (at[length] == ',');
    }
    return TUTTI_OK;
}

tutti_status_t tt_coll_rules_add_tuned(tt_coll_rules_t *rules, const char *text)
{
    const int before = rules->count;
    TT_TRY(tt_coll_rules_add(rules, text, "the tuning file"));
    int kept = before;
    for (int i = before; i < rules->count; i++) {
        if (rules->is_free || rules->rules[i].algorithm->is_canonical) {
            rules->rules[kept++] = rules->rules[i];
        }
    }
    rules->count = kept;
    return TUTTI_OK;
}

bool tt_coll_rule_matches(const tt_rule_t *rule, const tt_plan_request_t *request, size_t bytes)
{
    return (rule->collective < 0 || rule->collective == (int)request->collective) &&
           bytes >= rule->bytes_min && bytes < rule->bytes_max &&
           (rule->algorithm->is_canonical || !request->keeps_order) &&
           tt_algorithm_fits(rule->algorithm, request);
}
