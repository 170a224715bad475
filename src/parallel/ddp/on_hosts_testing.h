/* For tests: members of a group on made-up hosts, as those of tt_team_expect() are on one.
 *
 *     tt_on_hosts("aab", train, &job); // ranks 0 and 1 on one host, rank 2 on another
 */
#ifndef TT_ON_HOSTS_TESTING_H
#define TT_ON_HOSTS_TESTING_H

#include "core/base/testing.h"

#include <string.h>

#include "comm/group/group_impl.h"
#include "comm/group/group_team.h"
#include "comm/wire/peers_team_test.h"
#include "core/base/alloc.h"

enum { TT_ON_HOSTS_RANKS_MAX = 8, TT_ON_HOSTS_TIMEOUT_MS = 60000 };

typedef struct {
    tutti_store_t *store;
    void *user;
    void (*body)(tt_member_t *m);
} tt_on_hosts_t;

/* A rank of a made-up host is a member like others. */
static inline void tt_on_hosts_run_peer(tt_peer_t *self)
{
    tt_on_hosts_t *on = self->team->user;
    const tt_group_options_t options = {.name = "world",
                                        .rank = self->rank,
                                        .size = self->size,
                                        .store = on->store,
                                        .timeout_ms = TT_ON_HOSTS_TIMEOUT_MS,
                                        .peers = self->peers};
    tt_member_t m = {.rank = self->rank, .size = self->size, .user = on->user};
    TT_EXPECT_PEER(self, tt_group_create(&options, &m.group) == TUTTI_OK);
    if (m.group != NULL) {
        on->body(&m);
        tutti_group_release(m.group);
    }
    if (m.failure[0] != 0) {
        snprintf(self->failure, sizeof self->failure, "%.800s", m.failure);
    }
}

/* `shape` names each rank's host by a letter. Ranks prove the key of TUTTI_KEY_FILE. */
static inline void tt_on_hosts(const char *shape, void (*body)(tt_member_t *m), void *user)
{
    char names[TT_ON_HOSTS_RANKS_MAX][2] = {{0}}, report[1024];
    tt_on_hosts_t on = {.user = user, .body = body};
    tt_peers_team_t team = {.size = (int)strlen(shape), .body = tt_on_hosts_run_peer, .user = &on};
    for (int rank = 0; rank < team.size; rank++) {
        names[rank][0] = shape[rank];
        team.hosts[rank] = names[rank];
    }
    assert_int_equal(tutti_store_hash_create(&on.store), TUTTI_OK);
    tt_run_peers(&team);
    tutti_store_release(on.store);
    if (tt_alloc_stats().blocks != 0) {
        (void)tt_alloc_report(report, sizeof report);
        fail_msg("left behind:\n%s", report);
    }
}

/* Where ranks fail, and say so. */
static inline void tt_on_hosts_quietly(const char *shape, void (*body)(tt_member_t *m), void *user)
{
    tt_log_set_sink(tt_team_ignore_log, NULL);
    tt_on_hosts(shape, body, user);
    tt_log_set_sink(NULL, NULL);
}

#endif
