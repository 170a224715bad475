/* What tests of host blocks share: ranks of one host, and a block of theirs. For *_test.c only. */
#ifndef TT_HOST_BLOCK_TESTING_H
#define TT_HOST_BLOCK_TESTING_H

#include "comm/group/group_team.h"
#include "comm/group/host_block.h"
#include "core/base/alloc.h"

enum { TT_HOST_BLOCK_MS = 60000 }; /* the deadline of calls */

static inline void run_team(int size, void (*body)(tt_member_t *), void *user)
{
    tt_needs_shared_memory("host blocks are for ranks of one host");
    tt_team_expect_quietly(size, TT_HOST_BLOCK_MS, body, user);
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

static inline bool says(const char *text)
{
    return strstr(tutti_last_error(), text) != NULL;
}

static inline tt_host_block_t *make(tt_member_t *m, int keeper, size_t bytes)
{
    tt_host_block_t *block = NULL;
    const tt_host_block_options_t options = {
        .bytes = bytes, .keeper = keeper, .what = "parameters blocks.1"};
    TT_EXPECT(m, tt_host_block_create(m->group, &options, &block) == TUTTI_OK);
    return block;
}

#endif
