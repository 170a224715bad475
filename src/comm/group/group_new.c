/* Groups of some of the ranks: from a list, by colour, in equal pieces.
 *
 * Other ranks need not know. Each derives the same name for the meeting place in the
 * parent's store: the list of ranks, and how often a group of this list has been made here before.
 * They meet there (group_meet.c), so that a member that does not come is named on all the others;
 * then the backend opens the group, over what the world has opened already; and they meet again,
 * so that all have the group or none has. A member that fails on the way says so in the meeting;
 * also one whose arguments are wrong, unless they are the list, which names the place. Those may
 * wait for it then, in a turn that it does not count: where it finds later that a meeting stands
 * without it, it follows another member to the next turn, once for each wrong list. It never goes
 * first: it may just have been late, and the others would be a turn behind it from then on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/group/agree.h"
#include "comm/group/group_impl.h"
#include "comm/plan/plan_text.h"
#include "core/base/alloc.h"
#include "core/base/fnv.h"

enum { LIST_BYTES = 64, PARENT_BYTES = 81, NAME_BYTES = 200, KEY_BYTES = 128 };

/* The members, as ranks of the parent: without memory for them the others can still be told. */
typedef struct {
    const int *ranks; /* [count]; NULL: from `first` on */
    int first, count;
} members_t;

static int rank_at(const members_t *members, int i)
{
    return members->ranks != NULL ? members->ranks[i] : members->first + i;
}

static uint64_t hash_ranks(const members_t *members)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ (uint64_t)members->count;
    for (int i = 0; i < members->count; i++) {
        hash = (hash ^ (uint32_t)rank_at(members, i)) * UINT64_C(0x100000001b3);
        hash ^= hash >> 29;
    }
    return hash;
}

/* "[0-3,8]" */
static void name_ranks(const members_t *members, char *text, size_t bytes)
{
    tt_plan_text_t out = {text, bytes, 0};
    for (int i = 0, end; i < members->count; i = end) {
        end = i + 1;
        while (end < members->count && rank_at(members, end) == rank_at(members, end - 1) + 1) {
            end++;
        }
        tt_plan_put(&out, "%s%d", i > 0 ? "," : "[", rank_at(members, i));
        if (end - i > 2) {
            tt_plan_put(&out, "-%d", rank_at(members, end - 1));
        } else {
            end = i + 1;
        }
    }
    tt_plan_put(&out, "]");
    if (out.length >= bytes) {
        snprintf(text, bytes, "[%d ranks %016llx]", members->count,
                 (unsigned long long)hash_ranks(members));
    }
}

/* The last resort of a rank that cannot tell the others in a meeting. */
static tutti_status_t fail_parent(tutti_group_t *parent, tutti_status_t status)
{
    char cause[TT_ERROR_TEXT_BYTES];
    snprintf(cause, sizeof cause, "%s", tutti_last_error());
    if (parent->size > 1) {
        tt_group_fail(parent, status);
    }
    return tt_fail_again(status, cause);
}

/* Before a rank counts a turn: the others may do so. */
static tutti_status_t refuse(tutti_group_t *parent, tutti_status_t status)
{
    parent->refused++;
    return status;
}

/* Of a group that is made. */
typedef struct {
    tt_group_options_t plan;
    const members_t *members;
    tt_turn_t *turn; /* the parent's */
    char key[KEY_BYTES];
    bool is_late; /* the members' meeting stands without this rank */
} making_t;

/* *turn: until the next call. */
static tutti_status_t next_turn(tutti_group_t *parent, uint64_t list, tt_turn_t **turn)
{
    for (int i = 0; i < parent->turn_count; i++) {
        if (parent->turns[i].list == list) {
            *turn = &parent->turns[i];
            (*turn)->count++;
            return TUTTI_OK;
        }
    }
    tt_turn_t *grown = tt_realloc(parent->turns, ((size_t)parent->turn_count + 1) * sizeof *grown,
                                  "groups made so far");
    TT_TRY_ALLOC(grown);
    parent->turns = grown;
    *turn = &grown[parent->turn_count++];
    **turn = (tt_turn_t){.list = list, .count = 1};
    return TUTTI_OK;
}

/* Where this rank is in the list; -1 if it is not. */
static int find_self(const tutti_group_t *parent, const members_t *members)
{
    for (int i = 0; i < members->count; i++) {
        if (rank_at(members, i) == parent->rank) {
            return i;
        }
    }
    return -1;
}

static tutti_status_t check_members(const tutti_group_t *parent, const members_t *members)
{
    const int *ranks = members->ranks, count = members->count;
    if (ranks == NULL) {
        return TUTTI_OK;
    }
    bool *seen = tt_alloc_array((size_t)parent->size, sizeof *seen, "ranks");
    TT_TRY_ALLOC(seen);
    tutti_status_t status = TUTTI_OK;
    for (int i = 0; status >= 0 && i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= parent->size) {
            status = TT_FAIL(TUTTI_ERR_ARG, "group_new: ranks[%d] is %d, outside group %s of %d", i,
                             ranks[i], parent->name, parent->size);
        } else if (seen[ranks[i]]) {
            status = TT_FAIL(TUTTI_ERR_ARG, "group_new: rank %d is there twice", ranks[i]);
        } else {
            seen[ranks[i]] = true;
        }
    }
    tt_free(seen);
    return status;
}

/* ---- in the parent's store ---- */

static tt_meet_t meeting_of(const making_t *making, tutti_status_t mine)
{
    const tt_group_options_t *plan = &making->plan;
    return (tt_meet_t){.group = plan->parent,
                       .store = plan->parent->store,
                       .ranks = making->members->ranks,
                       .first = making->members->first,
                       .rank = plan->rank,
                       .size = plan->size,
                       .timeout_ms = plan->timeout_ms,
                       .heeds = true,
                       .mine = mine};
}

/* All members are here, all that are hear who is not, or who has failed. */
static tutti_status_t meet_members(const making_t *making, const char *step, tt_meet_t *meet)
{
    char what[NAME_BYTES + 16], place[KEY_BYTES + 16];
    if (making->plan.size == 1) {
        return meet->mine;
    }
    snprintf(what, sizeof what, "group_new %s", making->plan.name);
    snprintf(place, sizeof place, "%s/%s", making->key, step);
    return tt_group_meet_all(meet, place, what);
}

/* Of a group of this list in the parent's store. */
static void write_key(const members_t *members, uint64_t turn, char key[KEY_BYTES])
{
    char list[LIST_BYTES];
    name_ranks(members, list, sizeof list);
    snprintf(key, KEY_BYTES, "group/%s%016llx.%llu", list, (unsigned long long)hash_ranks(members),
             (unsigned long long)turn);
}

static void write_name(const tutti_group_t *parent, const members_t *members, const char *own,
                       uint64_t turn, char name[NAME_BYTES])
{
    char list[LIST_BYTES], again[24] = "", from[PARENT_BYTES];
    name_ranks(members, list, sizeof list);
    if (turn > 1) {
        snprintf(again, sizeof again, "#%llu", (unsigned long long)turn);
    }
    tt_fnv_shorten(parent->name, from, sizeof from); /* the name makes the group's id */
    snprintf(name, NAME_BYTES, "%s%s%.30s%s%s", from, own != NULL ? "/" : "",
             own != NULL ? own : "", list, again);
}

/* All members are making their next group of this list: what they put into the store to make the
 * one before is not read any more. Its own keys stay, it may still be there. */
static tutti_status_t forget_turn(const tt_group_options_t *plan, const members_t *members,
                                  uint64_t turn)
{
    static const char *const shared[] = {"meet/" TT_MEET_VERDICT, "meet/count",
                                         TT_MEET_STAND "/" TT_MEET_VERDICT, TT_MEET_STAND "/count"};
    const tutti_group_t *parent = plan->parent;
    char key[KEY_BYTES];
    tutti_store_t *store;
    write_key(members, turn, key);
    TT_TRY(tutti_store_prefix(parent->store, tutti_text(key), &store));
    tutti_status_t status = TUTTI_OK;
    for (size_t i = 0; plan->rank == 0 && status >= 0 && i < sizeof shared / sizeof shared[0];
         i++) {
        status = tutti_store_delete(store, tutti_text(shared[i]), NULL);
    }
    if (status >= 0 && parent->backend->forget != NULL) {
        status = parent->backend->forget(store, plan->rank);
    }
    tutti_store_release(store);
    return status;
}

/* What each member does alone, before they meet. */
static tutti_status_t prepare(making_t *making, int **every)
{
    tt_group_options_t *plan = &making->plan;
    const members_t *members = making->members;
    if (members->ranks == NULL) {
        *every = tt_alloc_array((size_t)members->count, sizeof **every, "ranks");
        TT_TRY_ALLOC(*every);
        for (int i = 0; i < members->count; i++) {
            (*every)[i] = rank_at(members, i);
        }
    }
    plan->ranks = members->ranks != NULL ? members->ranks : *every;
    return plan->parent->store == NULL
               ? TUTTI_OK
               : tutti_store_prefix(plan->parent->store, tutti_text(making->key), &plan->store);
}

/* They have met: all of them have the group, or none has. */
static tutti_status_t make(making_t *making, tutti_group_t **out)
{
    tutti_group_t *made = NULL;
    const tt_group_options_t *plan = &making->plan;
    const uint64_t turn = making->turn->count;
    tutti_status_t status =
        plan->size > 1 && turn > 1 ? forget_turn(plan, making->members, turn - 1) : TUTTI_OK;
    status = status < 0 ? status : tt_group_create(plan, &made);
    tt_meet_t meet = meeting_of(making, status);
    status = meet_members(making, TT_MEET_STAND, &meet);
    if (status < 0) {
        tutti_group_release(made);
        return status;
    }
    *out = made;
    return TUTTI_OK;
}

/* They begin to make it. A verdict in which this rank was in time shows that all count alike; one
 * that another has failed may be of a turn that this rank has not counted. */
static tutti_status_t begin_turn(making_t *making, tutti_status_t mine)
{
    tt_meet_t meet = meeting_of(making, mine);
    const tutti_status_t status = meet_members(making, "meet", &meet);
    making->is_late = meet.is_late;
    if (!meet.is_late && meet.failure >= 0) {
        making->turn->refused = making->plan.parent->refused;
    }
    return status;
}

/* The members of a group of several meet for it. `mine` is how this one has fared so far. */
static tutti_status_t meet_and_make(making_t *making, const char *own, tutti_status_t mine,
                                    tutti_group_t **out)
{
    char name[NAME_BYTES];
    int *every = NULL;
    tt_group_options_t *plan = &making->plan;
    const members_t *members = making->members;
    making->is_late = false;
    const tutti_status_t counted = next_turn(plan->parent, hash_ranks(members), &making->turn);
    if (counted < 0) { /* which group the others make next it would not know any more */
        return plan->size > 1 ? fail_parent(plan->parent, counted) : counted;
    }
    write_name(plan->parent, members, own, making->turn->count, name);
    write_key(members, making->turn->count, making->key);
    plan->name = name;
    tutti_status_t status = mine < 0 ? mine : prepare(making, &every);
    if (plan->parent->store == NULL) {
        status = status < 0 ? status : tt_group_create(plan, out);
    } else {
        status = begin_turn(making, status);
        status = status < 0 ? status : make(making, out);
    }
    tutti_store_release(plan->store);
    plan->store = NULL;
    tt_free(every);
    return status;
}

/* A meeting stands without this rank. Where a list of its own was wrong before, the others may have
 * waited for it there, and are at their next turn, or come to it. */
static tutti_status_t look_ahead(making_t *making, tutti_status_t mine, bool *follows)
{
    char place[KEY_BYTES + 16];
    tt_turn_t *turn = making->turn;
    const tt_meet_t meet = meeting_of(making, mine);
    *follows = false;
    if (!making->is_late || turn->refused == making->plan.parent->refused) {
        return TUTTI_OK;
    }
    write_key(making->members, turn->count + 1, making->key);
    snprintf(place, sizeof place, "%s/meet", making->key);
    TT_TRY(tt_group_meet_has_begun(&meet, place, follows));
    turn->refused += *follows;
    return TUTTI_OK;
}

/* What a rank can have wrong although it knows who the members are. */
static tutti_status_t check_own(const tutti_group_options_t *options, tutti_group_t **out)
{
    TT_WANT("group_new", out);
    return tt_group_check_timeout("group_new", options != NULL ? options->timeout_ms : 0,
                                  "0 means the parent's");
}

static tutti_status_t make_of(tutti_group_t *parent, const members_t *members,
                              const tutti_group_options_t *options, tutti_group_t **out)
{
    const int64_t timeout_ms = options != NULL ? options->timeout_ms : 0;
    if (members->count < 1 || members->count > parent->size) {
        return refuse(parent,
                      TT_FAIL(TUTTI_ERR_ARG, "group_new: %d ranks of group %s, which has %d",
                              members->count, parent->name, parent->size));
    }
    tutti_status_t checked = check_members(parent, members);
    const int self = find_self(parent, members);
    if (checked < 0 && (checked != TUTTI_ERR_NOMEM || self < 0)) {
        return refuse(parent, checked); /* where the others meet is not known */
    }
    checked = checked < 0 ? checked : check_own(options, out);
    if (self < 0) {
        TT_TRY(checked);
        *out = NULL;
        return TUTTI_NONMEMBER;
    }
    making_t making = {.plan = {.parent = parent,
                                .size = members->count,
                                .rank = self,
                                .epoch = parent->epoch,
                                .timeout_ms = timeout_ms > 0 ? timeout_ms : parent->timeout_ms},
                       .members = members};
    bool follows;
    tutti_status_t status;
    do {
        char cause[TT_ERROR_TEXT_BYTES];
        status = meet_and_make(&making, options != NULL ? options->name : NULL, checked, out);
        snprintf(cause, sizeof cause, "%s", status < 0 ? tutti_last_error() : "");
        TT_TRY(look_ahead(&making, checked, &follows));
        status = status < 0 && !follows ? tt_fail_again(status, cause) : status;
    } while (follows);
    return status;
}

tutti_status_t tutti_group_new(tutti_group_t *parent, const int *ranks, int count,
                               const tutti_group_options_t *options, tutti_group_t **out)
{
    TT_WANT("group_new", parent);
    const tutti_status_t status = tt_group_check_free(parent, "group_new");
    if (status < 0) {
        return refuse(parent, status);
    }
    const members_t members = {ranks, 0, ranks != NULL ? count : parent->size};
    return make_of(parent, &members, options, out);
}

/* ---- by colour ---- */

typedef struct {
    int64_t colour, key, rank;
} split_t;

static int compare_splits(const void *a, const void *b)
{
    const split_t *x = a, *y = b;
    if (x->key != y->key) {
        return x->key < y->key ? -1 : 1;
    }
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static tutti_status_t split_after(tutti_group_t *parent, int colour, split_t *all, int *ranks,
                                  tutti_group_t **out)
{
    int count = 0;
    for (int i = 0; i < parent->size; i++) {
        if (all[i].colour == colour) {
            all[count++] = all[i];
        }
    }
    qsort(all, (size_t)count, sizeof *all, compare_splits);
    for (int i = 0; i < count; i++) {
        ranks[i] = (int)all[i].rank;
    }
    return tutti_group_new(parent, ranks, count, NULL, out);
}

static tutti_status_t check_out(tutti_group_t **out)
{
    TT_WANT("group_split", out);
    return TUTTI_OK;
}

tutti_status_t tutti_group_split(tutti_group_t *parent, int colour, int key, tutti_group_t **out)
{
    TT_WANT("group_split", parent);
    TT_TRY(tt_group_check_free(parent, "group_split"));
    split_t *all = tt_alloc_array((size_t)parent->size, sizeof *all, "colours");
    int *ranks = tt_alloc_array((size_t)parent->size, sizeof *ranks, "ranks");
    const void *site = __builtin_return_address(0);
    const tutti_status_t mine = all == NULL || ranks == NULL ? TUTTI_ERR_NOMEM : check_out(out);
    tutti_status_t status = tt_group_agree_at(parent, mine, site);
    if (status >= 0) {
        const split_t own = {colour, key, parent->rank};
        const tt_call_t like = {.collective = TT_ALL_GATHER,
                                .dtype = TUTTI_I64,
                                .count = sizeof own / sizeof(int64_t),
                                .site = site};
        status = tt_group_call_plain(parent, &like, tutti_bytes_of(&own, sizeof own),
                                     (tutti_buffer_t){all, (size_t)parent->size * sizeof own});
        status = status < 0 ? fail_parent(parent, status) : status;
    }
    if (status >= 0 && colour < 0) {
        *out = NULL;
        status = TUTTI_NONMEMBER;
    } else if (status >= 0) {
        status = split_after(parent, colour, all, ranks, out);
    }
    tt_free(all);
    tt_free(ranks);
    return status;
}

tutti_status_t tutti_group_subgroups(tutti_group_t *parent, int size, tutti_group_t **mine)
{
    TT_WANT("group_subgroups", parent);
    tutti_status_t status = tt_group_check_free(parent, "group_subgroups");
    if (status >= 0 && (size < 1 || parent->size % size != 0)) {
        status = TT_FAIL(TUTTI_ERR_ARG, "group_subgroups: %d ranks do not divide group %s of %d",
                         size, parent->name, parent->size);
    }
    if (status < 0) {
        return refuse(parent, status);
    }
    const members_t members = {NULL, parent->rank / size * size, size};
    return make_of(parent, &members, NULL, mine);
}
