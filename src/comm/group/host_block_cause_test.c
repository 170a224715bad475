/* Who is named where ranks that wait for a host block give up one behind the other. */
#include "core/base/testing.h"

#include "comm/backend/native_backend.h"
#include "comm/coll/coll_fail.h"
#include "comm/group/group_impl.h"
#include "comm/group/host_block_testing.h"

typedef struct {
    tutti_status_t status;
    const char *says; /* of the ranks that follow … */
    int blamed;       /* … and what they hand on */
} cause_t;

/* Rank 1 gives up and blames nobody; rank 2 follows it, and rank 0 sees both. */
static void give_up_for_nobody(tt_member_t *m)
{
    const cause_t *cause = m->user;
    tt_host_block_t *block = make(m, 0, 64);
    if (m->rank == 1) {
        tt_coll_t *coll = tt_native_coll(m->group->state);
        tt_coll_put_cause(coll, "not this one");
        tt_coll_fail(coll, (tt_verdict_t){TT_FAIL(cause->status, "not this one"), -1, false});
    } else {
        tt_member_await(m, m->rank == 2 ? 1 : 2);
        tt_host_block_post(block);
        TT_EXPECT(m, tt_host_block_await(block) == cause->status);
        TT_EXPECT(m, says(cause->says));
        const tt_flag_block_t *own = tt_native_coll(m->group->state)->block;
        TT_EXPECT(m, tt_failure_rank(atomic_load(&own->failure)) == cause->blamed);
    }
    tt_member_tell(m);
    tt_member_await(m, 3);
    tt_host_block_release(block);
}

static void the_rank_that_began_is_named_by_all(void **state)
{
    (void)state;
    cause_t cause = {TUTTI_ERR_MISMATCH,
                     "parameters blocks.1: rank 1 gave the group up (ranks are "
                     "in different calls): not this one",
                     1};
    run_team(3, give_up_for_nobody, &cause);
    cause = (cause_t){TUTTI_ERR_PEER, " gave the group up (", -1}; /* nobody knows which is lost */
    run_team(3, give_up_for_nobody, &cause);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rank_that_began_is_named_by_all),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
