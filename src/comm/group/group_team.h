/* For tests: ranks that are threads of one process, meeting in a hash store. Header only, so that
 * it is no part of the library.
 *
 *     static void sum(tt_member_t *m)
 *     {
 *         TT_EXPECT(m, tutti_barrier(m->group, NULL) == TUTTI_OK);
 *     }
 *     assert_string_equal(tt_team_run(3, 0, sum, NULL).text, "");
 */
#ifndef TT_GROUP_TEAM_H
#define TT_GROUP_TEAM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <tutti/collectives.h>

#include "core/base/config.h"
#include "core/base/log.h"
#include "core/base/testing.h"

#include "core/base/clock.h"
#include "core/base/futex.h"

enum { TT_TEAM_MAX = 16 };

typedef struct tt_member {
    pthread_t thread;
    pthread_barrier_t *start; /* no body begins, and gives the group up, before all have met */
    _Atomic uint32_t *told;   /* how often members have said that they are done with something */
    tutti_store_t *store;
    tutti_group_t *group;
    int rank, size;
    int64_t timeout_ms;
    void (*body)(struct tt_member *member);
    void *user;
    char failure[1400]; /* "" as long as all is well */
} tt_member_t;

typedef struct {
    char text[1400];
} tt_team_result_t;

/* Note the first failure of this member and go on. */
#define TT_EXPECT(member, condition)                                                               \
    do {                                                                                           \
        if (!(condition) && (member)->failure[0] == 0) {                                           \
            snprintf((member)->failure, sizeof(member)->failure, "rank %d of %d, line %d: %s: %s", \
                     (member)->rank, (member)->size, __LINE__, #condition, tutti_last_error());    \
        }                                                                                          \
    } while (0)

static inline void tt_member_tell(tt_member_t *member)
{
    atomic_fetch_add(member->told, 1);
    tt_futex_wake_all(member->told);
}

/* Until members have told so often: for one that must be late, but not by the clock. */
static inline void tt_member_await(tt_member_t *member, uint32_t times)
{
    const tt_deadline_t deadline = tt_deadline_in_ms(20000);
    for (uint32_t seen = atomic_load(member->told); seen < times;
         seen = atomic_load(member->told)) {
        if (tt_deadline_is_past(deadline)) {
            TT_EXPECT(member, seen >= times);
            return;
        }
        tt_futex_wait(member->told, seen, deadline);
    }
}

static inline void *tt_team_thread(void *arg)
{
    tt_member_t *member = arg;
    const tutti_init_options_t options = {.store = member->store,
                                          .rank = member->rank,
                                          .world_size = member->size,
                                          .timeout_ms = member->timeout_ms};
    TT_EXPECT(member, tutti_init(&options, &member->group) == TUTTI_OK);
    pthread_barrier_wait(member->start);
    if (member->group != NULL) {
        member->body(member);
        tutti_group_release(member->group);
    }
    return NULL;
}

static inline tt_team_result_t tt_team_run(int size, int64_t timeout_ms,
                                           void (*body)(tt_member_t *member), void *user)
{
    tt_member_t members[TT_TEAM_MAX] = {{0}};
    tt_team_result_t result = {""};
    tutti_store_t *store;
    if (size > TT_TEAM_MAX || tutti_store_hash_create(&store) < 0) {
        return (tt_team_result_t){"no store"};
    }
    _Atomic uint32_t told = 0;
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)size);
    for (int i = 0; i < size; i++) {
        members[i] = (tt_member_t){.start = &start,
                                   .told = &told,
                                   .store = store,
                                   .rank = i,
                                   .size = size,
                                   .timeout_ms = timeout_ms,
                                   .body = body,
                                   .user = user};
        pthread_create(&members[i].thread, NULL, tt_team_thread, &members[i]);
    }
    for (int i = 0; i < size; i++) {
        pthread_join(members[i].thread, NULL);
        if (members[i].failure[0] != 0 && result.text[0] == 0) {
            memcpy(result.text, members[i].failure, sizeof result.text);
        }
    }
    pthread_barrier_destroy(&start);
    tutti_store_release(store);
    return result;
}

/* The same, in a test that fails with what the first member noted. */
static inline void tt_team_expect(int size, int64_t timeout_ms, void (*body)(tt_member_t *member),
                                  void *user)
{
    const tt_team_result_t result = tt_team_run(size, timeout_ms, body, user);
    if (result.text[0] != 0) {
        fail_msg("%s", result.text);
    }
}

static inline void tt_team_ignore_log(tt_log_level_t level, const char *line, void *user)
{
    (void)level, (void)line, (void)user;
}

/* The same without the warnings that the members give. */
static inline void tt_team_expect_quietly(int size, int64_t timeout_ms,
                                          void (*body)(tt_member_t *member), void *user)
{
    tt_log_set_sink(tt_team_ignore_log, NULL);
    const tt_team_result_t result = tt_team_run(size, timeout_ms, body, user);
    tt_log_set_sink(NULL, NULL);
    if (result.text[0] != 0) {
        fail_msg("%s", result.text);
    }
}

/* Skips a test, which runs over tcp, of what shared memory alone has. */
static inline void tt_needs_shared_memory(const char *why)
{
    if (strcmp(tt_config_text(TT_CONFIG_WIRES), "tcp") == 0) {
        print_message("%s\n", why);
        skip();
    }
}

#endif
