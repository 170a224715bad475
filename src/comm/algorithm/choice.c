/* Choosing the algorithm of a call.
 *
 * On one host: what fits into the flag line travels there (one hand-over instead of two), what is
 * larger is read in place. Over several hosts: shared memory inside each, wires between. Rules
 * (rules.h) come first, TUTTI_ALGO's before the tuning file's. The choice depends on nothing but
 * what is the same on all ranks. All choices but those that rules force are canonical: the built-in
 * table is no faster without that (over tcp of one machine, four ranks: pairwise moves 1.2 to 2.3
 * GB/s, ring 0.8 to 1.9); where another wire makes ring the faster one, TUTTI_EXACT=0 lets tuning
 * say so.
 */
#include "comm/algorithm/algorithms.h"
#include "comm/algorithm/choice.h"

enum {
    /* Above this, two hand-overs cost less than every rank computing everything. */
    FLAG_BYTES_MAX = 1024
};

/* The most that any rank would write into its flag line. */
static size_t flag_bytes(const tt_plan_request_t *request, size_t element)
{
    size_t most = 0;
    tt_plan_request_t other = *request;
    for (int rank = 0; rank < request->size; rank++) {
        other.rank = rank;
        const size_t pieces = tt_collective_reduces(request->collective)
                                  ? (size_t)tt_plan_pieces_of(request, rank)
                                  : 1;
        const size_t bytes = tt_plan_piece_elements(&other) * element * pieces;
        most = bytes > most ? bytes : most;
        if (request->counts == NULL && request->first == NULL && request->leaves == 0 &&
            !tt_collective_has_root(request->collective)) {
            break; /* all are equal */
        }
    }
    return most;
}

static bool fits_flags(const tt_plan_request_t *request, size_t element, size_t limit)
{
    return tt_algorithm_fits(&tt_algorithm_flag, request) && flag_bytes(request, element) <= limit;
}

static bool is_usable(const tt_rule_t *rule, const tt_plan_request_t *request, size_t element)
{
    return !rule->algorithm->travels_in_flags || fits_flags(request, element, TT_FLAG_EXTRA_BYTES);
}

/* Whether two ranks share a host. Hosts are numbered as they first appear, so that without local
 * ranks the last rank's host has the highest number. */
static bool has_node_peers(const tt_plan_request_t *request)
{
    return tt_plan_host(request, request->size - 1) != request->size - 1;
}

/* What is built in, for those who have not tuned: the first of these that fits; the last one, which
 * says why it does not, if none does. */
static tt_choice_t choose_by_table(const tt_plan_request_t *request, size_t element)
{
    static const tt_algorithm_t *const all[] = {&tt_algorithm_direct, &tt_algorithm_two_level,
                                                &tt_algorithm_pairwise, &tt_algorithm_prefix};
    enum { LAST = sizeof all / sizeof *all - 1 };
    const bool is_one_host = tt_plan_host_count(request) == 1;
    if (is_one_host && fits_flags(request, element, FLAG_BYTES_MAX)) {
        return (tt_choice_t){&tt_algorithm_flag,
                             "the built-in table: it is small enough to travel in the flags"};
    }
    int i = 0;
    while (i < LAST && (!tt_algorithm_fits(all[i], request) ||
                        (all[i]->needs_hosts && !has_node_peers(request)))) {
        i++;
    }
    return (tt_choice_t){
        all[i], is_one_host ? "the built-in table: local ranks read each other's memory in place"
                : has_node_peers(request)
                    ? "the built-in table: several ranks on a host share its memory"
                    : "the built-in table: every rank is a host of its own"};
}

tt_choice_t tt_coll_choose(const tt_coll_rules_t *rules, const tt_plan_request_t *request,
                           size_t element)
{
    for (int i = 0; i < rules->count; i++) {
        const tt_rule_t *rule = &rules->rules[i];
        if (tt_coll_rule_matches(rule, request, request->count * element) &&
            is_usable(rule, request, element)) {
            return (tt_choice_t){rule->algorithm, rule->origin};
        }
    }
    return choose_by_table(request, element);
}
