/* Algorithms and plans as text: what would be chosen and why, what it costs, and every step. */
#include <tutti/diagnose.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/choice.h"
#include "comm/algorithm/tuning.h"
#include "core/base/alloc.h"
#include "core/base/config.h"
#include "core/base/reals.h"
#include "core/kernel/reduce/tree.h"

enum { RANKS_MAX = 4096, DEFAULT_COUNT = 16 };

/* The names of all, each behind a comma. */
static const char collectives[] =
#define X(identifier, name, reduces, piece_elements, out_elements) ", " name
#include "comm/plan/collectives.def"
#undef X
    ;
_Static_assert(sizeof collectives <= sizeof((tutti_algorithm_t *)0)->collectives,
               "an algorithm may do all of them");

/* A text that grows. */
typedef struct {
    char *data;
    size_t bytes, room;
    tutti_status_t status;
} text_t;

static char *make_room(text_t *text, size_t bytes)
{
    if (text->status >= 0 && text->bytes + bytes + 1 > text->room) {
        const size_t room = 2 * text->room + bytes + 256;
        char *data = tt_realloc(text->data, room, "explanation");
        text->status = data != NULL ? TUTTI_OK : TUTTI_ERR_NOMEM;
        text->data = data != NULL ? data : text->data;
        text->room = data != NULL ? room : text->room;
    }
    return text->status >= 0 ? text->data + text->bytes : NULL;
}

__attribute__((format(printf, 2, 3))) static void put(text_t *text, const char *format, ...)
{
    enum { PUT_BYTES = 512 };
    char *at = make_room(text, PUT_BYTES);
    if (at != NULL) {
        va_list args;
        va_start(args, format);
        const int n = tt_format_list(at, PUT_BYTES, format, args);
        va_end(args);
        text->bytes += n < 0 ? 0 : n < PUT_BYTES ? (size_t)n : PUT_BYTES - 1;
    }
}

static tutti_status_t give(text_t *text, tutti_buffer_t *out)
{
    if (text->status < 0) {
        tt_free(text->data);
        return text->status;
    }
    *out = (tutti_buffer_t){text->data, text->bytes};
    return TUTTI_OK;
}

/* ---- algorithms ---- */

/* Four ranks: of one host, or of two. */
static bool can_do(const tt_algorithm_t *algorithm, tt_collective_t collective)
{
    static const int two_hosts[] = {0, 0, 1, 1};
    const tt_plan_request_t one = {.collective = collective, .size = 4, .count = 64};
    tt_plan_request_t two = one;
    two.hosts = two_hosts;
    return tt_algorithm_fits(algorithm, &one) || tt_algorithm_fits(algorithm, &two);
}

tutti_status_t tutti_explain_algorithm(size_t index, tutti_algorithm_t *out)
{
    TT_WANT("explain_algorithm", out);
    for (size_t i = 0; i <= index; i++) {
        if (tt_algorithms[i] == NULL) {
            return TUTTI_END;
        }
    }
    const tt_algorithm_t *algorithm = tt_algorithms[index];
    *out = (tutti_algorithm_t){.name = algorithm->name,
                               .about = algorithm->about,
                               .source = algorithm->source,
                               .is_canonical = algorithm->is_canonical};
    size_t length = 0;
    for (int i = 0; i < TT_COLLECTIVE_COUNT; i++) {
        if (can_do(algorithm, (tt_collective_t)i)) {
            const int n =
                snprintf(out->collectives + length, sizeof out->collectives - length, "%s%s",
                         length > 0 ? " " : "", tt_collective_name((tt_collective_t)i));
            length += n > 0 ? (size_t)n : 0;
        }
    }
    return TUTTI_OK;
}

tutti_status_t tutti_explain_rules(const char *rules)
{
    TT_WANT("explain_rules", rules);
    tt_coll_rules_t parsed = {0};
    return tt_coll_rules_add(&parsed, rules, "");
}

/* ---- plans ---- */

typedef struct {
    const tutti_explain_options_t *options;
    tt_plan_request_t request;
    tt_choice_t choice;
    int *hosts; /* owned */
} case_t;

static tutti_status_t find_collective(const char *name, tt_collective_t *out)
{
    for (int i = 0; name != NULL && i < TT_COLLECTIVE_COUNT; i++) {
        if (strcmp(tt_collective_name((tt_collective_t)i), name) == 0) {
            *out = (tt_collective_t)i;
            return TUTTI_OK;
        }
    }
    return TT_FAIL(TUTTI_ERR_ARG, "explain: there is no collective \"%s\"; there are %s",
                   name != NULL ? name : "", collectives + strlen(", "));
}

/* The product may be larger than an int. */
static int64_t count_placed(const tutti_explain_options_t *options)
{
    return (int64_t)options->hosts * options->per_host;
}

static tutti_status_t check_ranks(const tutti_explain_options_t *options, int64_t size)
{
    if (size < 1 || size > RANKS_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "explain: %lld ranks; want 1 to %d", (long long)size,
                       RANKS_MAX);
    }
    if (options->rank < 0 || options->rank >= size || options->root < 0 || options->root >= size) {
        return TT_FAIL(TUTTI_ERR_ARG, "explain: rank %d, root %d: want 0 to %d", options->rank,
                       options->root, (int)size - 1);
    }
    if (options->hosts != 0 && (options->per_host < 1 || count_placed(options) != size)) {
        return TT_FAIL(TUTTI_ERR_ARG, "explain: %d hosts of %d ranks are not %d ranks",
                       options->hosts, options->per_host, (int)size);
    }
    if (options->leaves < 0 || options->leaves > TT_TREE_LEAVES_MAX || options->count < 0) {
        return TT_FAIL(TUTTI_ERR_ARG, "explain: %d leaves, %lld elements: want 0 to %d, 0 or more",
                       options->leaves, (long long)options->count, TT_TREE_LEAVES_MAX);
    }
    return TUTTI_OK;
}

static tutti_status_t place_on_hosts(case_t *what)
{
    const int size = what->request.size;
    if (what->options->hosts < 2) {
        return TUTTI_OK;
    }
    what->hosts = tt_alloc_array((size_t)size, sizeof *what->hosts, "explanation");
    TT_TRY_ALLOC(what->hosts);
    for (int i = 0; i < size; i++) {
        what->hosts[i] = i / what->options->per_host;
    }
    what->request.hosts = what->hosts;
    return TUTTI_OK;
}

static const char *wires_of(const tutti_explain_options_t *options)
{
    return options->hosts < 2 ? "shm" : options->per_host < 2 ? "tcp" : "shm+tcp";
}

/* TUTTI_ALGO and the tuning file, as a group would find them here. */
static tutti_status_t choose(case_t *what)
{
    char tuned[TT_TUNING_BYTES];
    int64_t is_exact;
    TT_TRY(tt_config_int(TT_CONFIG_EXACT, 0, 1, &is_exact));
    tt_coll_rules_t rules = {.is_free = is_exact == 0};
    TT_TRY(tt_coll_rules_add(&rules, tt_config_text(TT_CONFIG_ALGO), "TUTTI_ALGO"));
    TT_TRY(tt_tuning_load(what->request.size, wires_of(what->options), tuned));
    TT_TRY(tt_coll_rules_add_tuned(&rules, tuned));
    what->choice = tt_coll_choose(&rules, &what->request, tutti_dtype_bytes(what->options->dtype));
    return TUTTI_OK;
}

static tutti_status_t pick(case_t *what)
{
    const char *name = what->options->algorithm;
    if (name == NULL) {
        return choose(what);
    }
    TT_TRY(tutti_explain_rules(name)); /* says which names there are */
    what->choice = (tt_choice_t){tt_algorithm_find(name), "asked for"};
    return what->choice.algorithm != NULL
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "explain: \"%s\" is no name of an algorithm", name);
}

static tutti_status_t open_case(const tutti_explain_options_t *options, case_t *what)
{
    const int64_t ranks = options->ranks != 0   ? options->ranks
                          : options->hosts != 0 ? count_placed(options)
                                                : 2;
    tt_collective_t collective;
    TT_TRY(find_collective(options->collective, &collective));
    TT_TRY(check_ranks(options, ranks));
    const int size = (int)ranks;
    const size_t count =
        options->count > 0 ? (size_t)options->count : (size_t)DEFAULT_COUNT * (size_t)size;
    *what = (case_t){.options = options,
                     .request = {.collective = collective,
                                 .rank = options->rank,
                                 .size = size,
                                 .root = options->root,
                                 .count = collective == TT_BARRIER ? 0 : count,
                                 .leaves = options->leaves,
                                 .is_staged = options->is_foreign}};
    tutti_status_t status = place_on_hosts(what);
    if (status >= 0) {
        status = pick(what);
    }
    if (status < 0) {
        tt_free(what->hosts);
    }
    return status;
}

/* The maxima over all ranks. */
static tutti_status_t find_cost(const case_t *what, tt_plan_cost_t *cost)
{
    tt_plan_request_t request = what->request;
    tutti_status_t status = TUTTI_OK;
    for (request.rank = 0; request.rank < request.size && status >= 0; request.rank++) {
        tt_plan_t *plan;
        TT_TRY(tt_plan_create(&request, what->choice.algorithm, &plan));
        status = tt_plan_raise_cost(plan, cost);
        tt_plan_release(plan);
    }
    return status;
}

static tutti_status_t put_head(text_t *text, const case_t *what)
{
    const tt_algorithm_t *algorithm = what->choice.algorithm;
    tt_plan_cost_t cost = {0};
    TT_TRY(find_cost(what, &cost));
    put(text, "%s of %d ranks, %zu elements of %s: %s\n",
        tt_collective_name(what->request.collective), what->request.size, what->request.count,
        tutti_dtype_name(what->options->dtype), algorithm->name);
    put(text, "  chosen by  %s\n", what->choice.why);
    put(text, "  about      %s\n", algorithm->about);
    put(text, "  source     %s\n", algorithm->source != NULL ? algorithm->source : "-");
    put(text, "  canonical  %s\n",
        algorithm->is_canonical ? "yes: the same bits as any other canonical algorithm"
                                : "no: sums have their own order");
    put(text,
        "  cost       %d rounds; a rank sends at most %zu elements, reads %zu of local ranks\n\n",
        cost.rounds, cost.sent, cost.read);
    return text->status;
}

static tutti_status_t put_plan(text_t *text, const case_t *what, int rank)
{
    tt_plan_request_t request = what->request;
    request.rank = rank;
    tt_plan_t *plan;
    TT_TRY(tt_plan_create(&request, what->choice.algorithm, &plan));
    const size_t bytes = tt_plan_print(plan, NULL, 0);
    char *at = make_room(text, bytes);
    if (at != NULL) {
        tt_plan_print(plan, at, bytes + 1);
        text->bytes += bytes;
    }
    tt_plan_release(plan);
    return text->status;
}

static tutti_status_t put_plans(text_t *text, const case_t *what)
{
    const tutti_explain_options_t *options = what->options;
    if (options->is_one_rank) {
        return put_plan(text, what, options->rank);
    }
    for (int rank = 0; rank < what->request.size; rank++) {
        TT_TRY(put_plan(text, what, rank));
    }
    return TUTTI_OK;
}

/* UNSUPPORTED, with a text that says what does not fit, if the algorithm cannot do it. */
static tutti_status_t check_fit(const case_t *what)
{
    tt_plan_t *plan = NULL;
    if (tt_algorithm_fits(what->choice.algorithm, &what->request)) {
        return TUTTI_OK;
    }
    const tutti_status_t status = tt_plan_create(&what->request, what->choice.algorithm, &plan);
    tt_plan_release(plan);
    return status;
}

static void release_plans(tt_plan_t **plans, int count)
{
    for (int rank = 0; plans != NULL && rank < count; rank++) {
        tt_plan_release(plans[rank]);
    }
    tt_free(plans);
}

static tutti_status_t put_picture(text_t *text, const case_t *what)
{
    const int size = what->request.size;
    tt_plan_request_t request = what->request;
    tt_plan_t **plans = tt_alloc_array((size_t)size, sizeof(tt_plan_t *), "explanation");
    tutti_status_t status = plans != NULL ? TUTTI_OK : TUTTI_ERR_NOMEM;
    for (request.rank = 0; request.rank < size && status >= 0; request.rank++) {
        status = tt_plan_create(&request, what->choice.algorithm, &plans[request.rank]);
    }
    const size_t bytes = status >= 0 ? tt_plan_draw(plans, request.hosts, NULL, 0) : 0;
    char *at = bytes > 0 ? make_room(text, bytes) : NULL;
    if (at != NULL) {
        tt_plan_draw(plans, request.hosts, at, bytes + 1);
        text->bytes += bytes;
    } else if (status >= 0) {
        status = TUTTI_ERR_NOMEM;
    }
    release_plans(plans, size);
    return status;
}

tutti_status_t tutti_explain_draw(const tutti_explain_options_t *options, tutti_buffer_t *out)
{
    TT_WANT("explain_draw", options);
    TT_WANT("explain_draw", out);
    case_t what;
    TT_TRY(open_case(options, &what));
    text_t text = {.status = TUTTI_OK};
    tutti_status_t status = check_fit(&what);
    if (status >= 0) {
        status = put_picture(&text, &what);
    }
    text.status = text.status < 0 ? text.status : status;
    tt_free(what.hosts);
    return give(&text, out);
}

tutti_status_t tutti_explain(const tutti_explain_options_t *options, tutti_buffer_t *out)
{
    TT_WANT("explain", options);
    TT_WANT("explain", out);
    case_t what;
    TT_TRY(open_case(options, &what));
    text_t text = {.status = TUTTI_OK};
    tutti_status_t status = check_fit(&what);
    if (status >= 0) {
        status = put_head(&text, &what);
    }
    if (status >= 0) {
        status = put_plans(&text, &what);
    }
    text.status = text.status < 0 ? text.status : status;
    tt_free(what.hosts);
    return give(&text, out);
}
