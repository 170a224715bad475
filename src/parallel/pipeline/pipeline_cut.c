/* Where a chain is cut into stages: before the parts that are named, or evenly.
 *
 *     embedding │ blocks.0 … blocks.6 │ ln │ head        the longest chain inside: blocks
 *     stage 0                                            embedding and blocks.0 to 2
 *     stage 1                                            blocks.3 and 4
 *     stage 2                                            blocks.5 and 6, ln, head
 */
#include <stdio.h>
#include <string.h>

#include "parallel/pipeline/pipeline_impl.h"

/* ---- by names -------------------------------------------------------------------------------- */

static int find_part(const tt_chain_t *chain, const char *name)
{
    int i = 0;
    while (i < chain->count && strcmp(chain->parts[i].name, name) != 0) {
        i++;
    }
    return i < chain->count ? i : -1;
}

static char *list_parts(const tt_chain_t *chain, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < chain->count && used < bytes; i++) {
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i > 0 ? ", " : "",
                                 chain->parts[i].name);
    }
    return text;
}

static tutti_status_t cut_at(tt_chain_t *chain, const char *name, int stage, int *from)
{
    char parts[600];
    const int part = find_part(chain, name);
    if (part < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "pipeline: no part is called \"%s\": there are %s", name,
                       list_parts(chain, parts, sizeof parts));
    }
    if (part <= *from) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "pipeline: stage %d cannot begin with %s: stage %d begins with %s, which is "
                       "not before it",
                       stage, name, stage - 1, chain->parts[*from].name);
    }
    for (int i = part; i < chain->count; i++) {
        chain->parts[i].stage = stage;
    }
    *from = part;
    return TUTTI_OK;
}

static tutti_status_t cut_by_names(tt_chain_t *chain, int stages, const char *const *names,
                                   int count)
{
    int from = 0;
    if (count != stages - 1) {
        return TT_FAIL(TUTTI_ERR_ARG, "pipeline: %d cuts make %d stages, and there are %d", count,
                       count + 1, stages);
    }
    for (int i = 0; i < count; i++) {
        TT_TRY(cut_at(chain, names[i], i + 1, &from));
    }
    return TUTTI_OK;
}

/* ---- evenly ---------------------------------------------------------------------------------- */

/* The longest run of links of one chain; the first of several. */
static void find_longest(const tt_chain_t *chain, int *first, int *end)
{
    *first = *end = 0;
    for (int i = 0, k; i < chain->count; i = k) {
        for (k = i + 1; k < chain->count && chain->parts[k].parent == chain->parts[i].parent;) {
            k++;
        }
        if (k - i > *end - *first) {
            *first = i;
            *end = k;
        }
    }
}

static int stage_of(int index, int count, int stages)
{
    const int few = count / stages, more = count % stages, edge = more * (few + 1);
    return index < edge ? index / (few + 1) : more + (index - edge) / few;
}

static tutti_status_t cut_evenly(tt_chain_t *chain, int stages)
{
    int first, end;
    char parts[600];
    if (chain->count < stages) {
        return TT_FAIL(TUTTI_ERR_ARG, "pipeline: %d stages, and the module has %d parts: %s",
                       stages, chain->count, list_parts(chain, parts, sizeof parts));
    }
    find_longest(chain, &first, &end);
    if (end - first < stages) {
        first = 0;
        end = chain->count;
    }
    for (int i = 0; i < chain->count; i++) {
        const int at = i < first ? first : i >= end ? end - 1 : i;
        chain->parts[i].stage = stage_of(at - first, end - first, stages);
    }
    return TUTTI_OK;
}

tutti_status_t tt_chain_cut(tt_chain_t *chain, int stages, const char *const *names, int count)
{
    return names != NULL ? cut_by_names(chain, stages, names, count) : cut_evenly(chain, stages);
}
