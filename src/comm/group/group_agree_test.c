/* Agreeing: the lowest rank's failure is everybody's, with its text; none is none; a group that is
 * given up meanwhile fails, and each rank keeps a failure of its own. */
#include "comm/group/agree.h"
#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"

enum { RANKS = 5 };

/* A bit for each rank that fails, each with a status and a text of its own. */
static tutti_status_t own_failure(int rank, unsigned failing)
{
    static const tutti_status_t statuses[RANKS] = {TUTTI_ERR_ARG, TUTTI_ERR_NOMEM, TUTTI_ERR_IO,
                                                   TUTTI_ERR_DTYPE, TUTTI_ERR_FORMAT};
    return (failing >> rank & 1) == 0 ? TUTTI_OK
                                      : TT_FAIL(statuses[rank], "it was number %d", rank);
}

static int lowest_of(unsigned failing)
{
    int rank = 0;
    while ((failing >> rank & 1) == 0) {
        rank++;
    }
    return rank;
}

static void agree_on(tt_member_t *member, unsigned failing)
{
    char text[64];
    const tutti_status_t got = tt_group_agree(member->group, own_failure(member->rank, failing));
    if (failing == 0) {
        TT_EXPECT(member, got == TUTTI_OK);
        return;
    }
    const int lowest = lowest_of(failing);
    const bool is_mine = lowest == member->rank;
    snprintf(text, sizeof text, is_mine ? "it was number %d" : "rank %d: it was number %d", lowest,
             lowest);
    TT_EXPECT(member, strcmp(tutti_last_error(), text) == 0);
    TT_EXPECT(member, got == own_failure(lowest, failing));
}

/* The group goes on after each. */
static void agree_on_everything(tt_member_t *member)
{
    for (unsigned failing = 0; failing < 1u << member->size; failing++) {
        agree_on(member, failing);
    }
    TT_EXPECT(member, tutti_barrier(member->group, NULL) == TUTTI_OK);
}

static void the_lowest_ranks_failure_is_everybodys(void **state)
{
    (void)state;
    for (int size = 1; size <= RANKS; size++) {
        tt_team_expect(size, 0, agree_on_everything, NULL);
    }
}

/* ---- what is heard is bytes ------------------------------------------------------------------ */

static void fail_unprintably(tt_member_t *member)
{
    const tutti_status_t mine =
        member->rank == 1 ? TT_FAIL(TUTTI_ERR_IO, "a\tb\n\033[31m\177 \xc3\xa9") : TUTTI_OK;
    TT_EXPECT(member, tt_group_agree(member->group, mine) == TUTTI_ERR_IO);
    TT_EXPECT(member,
              strcmp(tutti_last_error(), member->rank == 1 ? "a\tb\n\033[31m\177 \xc3\xa9"
                                                           : "rank 1: a?b??[31m? \xc3\xa9") == 0);
}

static void a_text_of_another_rank_goes_into_a_line(void **state)
{
    (void)state;
    tt_team_expect(3, 0, fail_unprintably, NULL);
}

/* As the calls of an agreement lie on the wire. */
typedef struct {
    int64_t status;
    char text[TT_ERROR_TEXT_BYTES];
} words_t;

static void say(tt_member_t *member, words_t *words)
{
    int64_t lowest = member->rank;
    const tt_call_t find = {
        .collective = TT_ALL_REDUCE, .reduction = TUTTI_MIN, .dtype = TUTTI_I64, .count = 1};
    const tt_call_t tell = {
        .collective = TT_BROADCAST, .dtype = TUTTI_U8, .count = sizeof *words, .root = 0};
    TT_EXPECT(member,
              tt_group_call_plain(member->group, &find, tutti_bytes_of(&lowest, sizeof lowest),
                                  (tutti_buffer_t){&lowest, sizeof lowest}) == TUTTI_OK);
    TT_EXPECT(member,
              tt_group_call_plain(member->group, &tell, tutti_bytes_of(words, sizeof *words),
                                  (tutti_buffer_t){words, sizeof *words}) == TUTTI_OK);
}

/* Rank 0 has a program of its own: a text without an end, and a status that is none. */
static void hear_nonsense(tt_member_t *member)
{
    static const int64_t statuses[] = {TUTTI_ERR_PEER, 0, 1, INT64_MIN};
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        words_t words = {.status = statuses[i]};
        memset(words.text, 'x', sizeof words.text);
        if (member->rank == 0) {
            say(member, &words);
            continue;
        }
        const tutti_status_t got = tt_group_agree(member->group, TUTTI_OK);
        const char *text = tutti_last_error();
        TT_EXPECT(member, got == (i == 0 ? TUTTI_ERR_PEER : TUTTI_ERR_FORMAT));
        TT_EXPECT(member,
                  strncmp(text, i == 0 ? "rank 0: x" : "rank 0 failed with status", 9) == 0);
        TT_EXPECT(member, strspn(text + 8, "x") == (i == 0 ? TT_ERROR_TEXT_BYTES - 1 - 8 : 0));
    }
}

static void what_no_rank_of_ours_says_is_a_failure(void **state)
{
    (void)state;
    tt_team_expect(3, 0, hear_nonsense, NULL);
}

/* ---- coming again ---------------------------------------------------------------------------- */

/* A bit for each rank that wants to come again; rank 0 may have failed. */
static void agree_to_come_again(tt_member_t *member)
{
    for (unsigned wanting = 0; wanting < 2u << member->size; wanting++) {
        const unsigned failing = wanting >> member->size;
        bool again = (wanting >> member->rank & 1) != 0;
        const tutti_status_t got =
            tt_group_agree_again(member->group, own_failure(member->rank, failing), &again);
        const bool any = (wanting & ((1u << member->size) - 1)) != 0;
        TT_EXPECT(member, got == own_failure(0, failing));
        TT_EXPECT(member, failing != 0 || again == any);
    }
}

static void one_that_wants_to_come_again_is_enough(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++) {
        tt_team_expect(size, 0, agree_to_come_again, NULL);
    }
}

/* Rank 0 gives up instead of agreeing. */
static void agree_without_rank_0(tt_member_t *member)
{
    const bool fails = member->rank == 2;
    const tutti_status_t mine = fails ? TT_FAIL(TUTTI_ERR_IO, "it was number 2") : TUTTI_OK;
    if (member->rank == 0) {
        const tutti_status_t given = TT_FAIL(TUTTI_ERR_DTYPE, "it was number 0");
        TT_EXPECT(member, tt_group_give_up(member->group, given) == TUTTI_ERR_DTYPE);
        TT_EXPECT(member, strcmp(tutti_last_error(), "it was number 0") == 0);
        return;
    }
    const tutti_status_t got = tt_group_agree(member->group, mine);
    TT_EXPECT(member, got == (fails ? TUTTI_ERR_IO : TUTTI_ERR_ABORTED));
    TT_EXPECT(member, strstr(tutti_last_error(), fails ? "it was number 2" : "rank 0") != NULL);
    TT_EXPECT(member, tutti_barrier(member->group, NULL) == TUTTI_ERR_ABORTED);
}

static void nobody_waits_for_a_rank_that_gives_up(void **state)
{
    (void)state;
    tt_team_expect(3, 0, agree_without_rank_0, NULL);
}

static void without_a_group_a_failure_is_ones_own(void **state)
{
    (void)state;
    assert_int_equal(tt_group_agree(NULL, TUTTI_OK), TUTTI_OK);
    assert_int_equal(tt_group_agree(NULL, own_failure(3, 8)), TUTTI_ERR_DTYPE);
    assert_string_equal(tutti_last_error(), "it was number 3");
    assert_int_equal(tt_group_give_up(NULL, own_failure(3, 8)), TUTTI_ERR_DTYPE);
}

static void hear(tt_member_t *member)
{
    const int64_t mine[2] = {member->rank + 10, -member->rank};
    int64_t first[3] = {-1, -1, -1};
    for (int i = 0; i < 2; i++) {
        TT_EXPECT(member, tt_group_hear_first(member->group, mine, sizeof mine, first) == TUTTI_OK);
        TT_EXPECT(member, first[0] == 10 && first[1] == 0 && first[2] == -1);
    }
    if (member->rank == 0) { /* nobody waits for one that gives up */
        (void)tt_group_give_up(member->group, TUTTI_ERR_IO);
    } else if (member->size > 1) {
        TT_EXPECT(member, tt_group_hear_first(member->group, mine, sizeof mine, first) ==
                              TUTTI_ERR_ABORTED);
    }
}

static void the_first_rank_is_heard_by_all(void **state)
{
    (void)state;
    const int64_t mine = 7;
    int64_t first = 0;
    for (int size = 1; size <= RANKS; size++) {
        tt_team_expect(size, 0, hear, NULL);
    }
    assert_int_equal(tt_group_hear_first(NULL, &mine, sizeof mine, &first), TUTTI_OK);
    assert_int_equal(first, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_ranks_failure_is_everybodys),
        cmocka_unit_test(a_text_of_another_rank_goes_into_a_line),
        cmocka_unit_test(what_no_rank_of_ours_says_is_a_failure),
        cmocka_unit_test(one_that_wants_to_come_again_is_enough),
        cmocka_unit_test(nobody_waits_for_a_rank_that_gives_up),
        cmocka_unit_test(without_a_group_a_failure_is_ones_own),
        cmocka_unit_test(the_first_rank_is_heard_by_all),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
