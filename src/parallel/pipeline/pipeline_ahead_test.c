/* Forwards ahead of the verdict: that they are, by the order of events; how many; and what is made
 * again behind a step that is undone, to the message. That bits are those of waiting says
 * pipeline_validate_test.c. */
#include "parallel/pipeline/pipeline_testing.h"

#include <unistd.h>

#include "parallel/pipeline/pipeline_impl.h"

enum { STEPS = 4, MICRO_BATCHES = 6 };

typedef struct {
    const char *model, *schedule;
    const tutti_pipeline_schedule_t *own; /* instead */
    double max_norm;
    bool waits; /* steps are the caller's */
    /* Of rank 0 of two or more: forwards at the beginning of its row. */
    int64_t ahead, of_last;
} plan_t;

typedef struct {
    tt_training_t training;
    tt_trainer_t t;
} set_t;

static tutti_status_t open_set(set_t *set, const plan_t *plan, tutti_group_t *group)
{
    *set = (set_t){.training = {.model = plan->model,
                                .schedule = plan->schedule,
                                .own = plan->own,
                                .micro_batches = plan->own != NULL ? 0 : MICRO_BATCHES,
                                .rows = 2 * MICRO_BATCHES}};
    const tutti_pipeline_validation_t o = {.max_norm = plan->max_norm};
    TT_TRY(tt_trainer_open(&set->t, &set->training, group));
    return plan->waits ? TUTTI_OK : tutti_pipeline_post_validate(set->t.pipeline, set->t.opt, &o);
}

static tutti_status_t step(set_t *set, const plan_t *plan, int number)
{
    double loss;
    tutti_scope_t *s;
    tutti_tensor_t *x, *y;
    if (plan->waits) {
        return tt_train_step(&set->t, &set->training, number, &loss);
    }
    TT_TRY(tutti_scope_open(set->t.ctx, &s));
    tt_make_batch(s, &set->training, number, &x, &y);
    const tutti_status_t status =
        tutti_pipeline_step(set->t.pipeline, &(tutti_pipeline_batch_t){&x, 1, &y, 1}, NULL);
    const tutti_status_t closed = tutti_scope_close(s);
    return status < 0 ? status : closed;
}

/* ---- the order of events --------------------------------------------------------------------- */

/* Of a member; the second step's first forward is told to the one that holds up the first step. */
typedef struct {
    tt_member_t *m;
    int step, seen;
} events_t;

static tutti_status_t tell_forward(tutti_scope_t *s, tutti_module_call_t *call, void *user)
{
    (void)s, (void)call;
    events_t *events = user;
    if (events->step == 1 && events->seen++ == 0) {
        tt_member_tell(events->m);
    }
    return TUTTI_OK;
}

/* In its last W: its numbers have not left, so nobody has the verdict. */
static void await_forward(tutti_scope_t *s, tutti_tensor_t *leaf, void *user)
{
    (void)s, (void)leaf;
    events_t *events = user;
    if (events->step == 0 && ++events->seen == MICRO_BATCHES) {
        tt_member_await(events->m, 1);
    }
}

static int stage_of_last(const tutti_pipeline_t *p)
{
    int64_t i = p->row.count - 1;
    while (p->row.actions[i].kind > TUTTI_PIPELINE_W) {
        i--;
    }
    TT_ASSERT(p->row.actions[i].kind == TUTTI_PIPELINE_W);
    return p->row.actions[i].stage;
}

static tutti_status_t arm(set_t *set, events_t *events)
{
    const tutti_pipeline_t *p = set->t.pipeline;
    const tutti_module_hooks_t hooks = {.before_forward = tell_forward};
    const int last = stage_of_last(p);
    if (p->rank == 0) {
        return tutti_module_add_hooks(p->chain.parts[0].module, &hooks, events);
    }
    for (int i = 0; i < p->chain.count && p->rank == p->ranks - 1; i++) {
        tutti_tensor_t *weight = tutti_module_find(p->chain.parts[i].module, "weight");
        if (p->chain.parts[i].stage == last && weight != NULL) {
            return tutti_tensor_on_accumulate(weight, await_forward, events);
        }
    }
    return p->rank == p->ranks - 1 ? TUTTI_ERR_STATE : TUTTI_OK;
}

static void hold_up(tt_member_t *m)
{
    set_t set;
    events_t events = {.m = m};
    const plan_t *plan = m->user;
    TT_EXPECT(m, open_set(&set, plan, m->group) == TUTTI_OK);
    TT_EXPECT(m, arm(&set, &events) == TUTTI_OK);
    for (; events.step < 2; events.step++) {
        TT_EXPECT(m, step(&set, plan, events.step) == TUTTI_OK);
        events.seen = 0;
    }
    TT_EXPECT(m, tutti_pipeline_validate(set.t.pipeline, NULL) == TUTTI_OK);
    tt_trainer_close(&set.t);
}

static void the_first_forward_begins_before_the_verdict(void **state)
{
    (void)state;
    plan_t plans[] = {{.model = "mlp", .schedule = "zb-h2"},
                      {.model = "mlp", .schedule = "zb-h2", .max_norm = 1e-3},
                      {.model = "mlp", .schedule = "zb-v"},
                      {.model = "mlp", .schedule = "zb-v", .max_norm = 1e-3}};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        tt_team_expect(2, 0, hold_up, &plans[i]);
    }
    tt_team_expect(3, 0, hold_up, &plans[0]);
}

/* ---- counts ---------------------------------------------------------------------------------- */

/* Of the forwards ahead those whose outputs go to another rank. */
static int64_t sent_ahead(const tutti_pipeline_t *p)
{
    int64_t count = 0;
    for (int64_t i = 0; i < p->ahead; i++) {
        const tutti_pipeline_action_t *a = &p->row.actions[i];
        count += a->kind == TUTTI_PIPELINE_F && a->stage + 1 < p->stages &&
                 tt_rank_of_stage(p, a->stage + 1) != p->rank;
    }
    return count;
}

static tutti_pipeline_stats_t train(tt_member_t *m, const plan_t *plan, int64_t *sent)
{
    set_t set;
    TT_EXPECT(m, open_set(&set, plan, m->group) == TUTTI_OK);
    for (int i = 0; i < STEPS; i++) {
        TT_EXPECT(m, step(&set, plan, i) == TUTTI_OK);
    }
    TT_EXPECT(m, plan->waits || tutti_pipeline_validate(set.t.pipeline, NULL) == TUTTI_OK);
    *sent = sent_ahead(set.t.pipeline);
    const tutti_pipeline_stats_t stats = tutti_pipeline_stats(set.t.pipeline);
    tt_trainer_close(&set.t);
    return stats;
}

static void count(tt_member_t *m)
{
    int64_t sent;
    plan_t plan = *(const plan_t *)m->user;
    const int64_t wanted = m->rank == 0 ? plan.ahead : plan.of_last;
    const bool is_end = m->rank == 0 || m->rank == m->size - 1;
    plan.waits = true;
    const tutti_pipeline_stats_t waiting = train(m, &plan, &sent);
    TT_EXPECT(m, waiting.forwards_ahead == 0 && waiting.forwards_repeated == 0);
    plan.waits = false;
    const tutti_pipeline_stats_t never = train(m, &plan, &sent);
    TT_EXPECT(m, !is_end || never.forwards_ahead == (STEPS - 1) * wanted);
    TT_EXPECT(m, never.forwards_repeated == 0);
    TT_EXPECT(m, never.messages == waiting.messages);
    TT_EXPECT(m, never.live_max == waiting.live_max);
    plan.max_norm = 1e-3;
    const tutti_pipeline_stats_t always = train(m, &plan, &sent);
    TT_EXPECT(m, always.forwards_ahead == never.forwards_ahead);
    TT_EXPECT(m, always.forwards_repeated == never.forwards_ahead);
    sent = always.forwards_repeated > 0 ? (STEPS - 1) * sent : 0;
    TT_EXPECT(m, always.messages == waiting.messages + sent);
    TT_EXPECT(m, m->rank > 0 || m->size == 1 || wanted == 0 || sent > 0);
    TT_EXPECT(m, always.live_max == waiting.live_max);
}

static void forwards_and_messages_are_counted(void **state)
{
    (void)state;
    static const struct {
        int ranks;
        plan_t plan;
    } cases[] = {{1, {.model = "mlp", .schedule = "1f1b"}},
                 {2, {.model = "mlp", .schedule = "1f1b", .ahead = 2, .of_last = 1}},
                 {3, {.model = "mlp", .schedule = "1f1b", .ahead = 3, .of_last = 1}},
                 {2, {.model = "mlp", .schedule = "zb-h2", .ahead = 3, .of_last = 1}},
                 {3, {.model = "mlp", .schedule = "zb-h2", .ahead = 5, .of_last = 1}},
                 {3, {.model = "dropout", .schedule = "gpipe", .ahead = 6, .of_last = 6}},
                 {2, {.model = "mlp", .schedule = "zb-v", .ahead = 4, .of_last = 4}},
                 {2, {.model = "tied", .schedule = "zb-h2"}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        plan_t plan = cases[i].plan;
        tt_team_expect(cases[i].ranks, 0, count, &plan);
    }
}

/* Rank 1 has a second forward ahead of its first backward, and rank 0 makes its input behind one:
 * it is not ahead, so that it comes once. */
static void an_input_behind_a_backward_is_not_ahead(void **state)
{
    (void)state;
    tutti_pipeline_schedule_t own;
    static const char rows[] = "0F0,3F0,3B0,0F1,3F1,3B1,0B0,0B1\n"
                               "1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n";
    assert_int_equal(tutti_pipeline_read(rows, strlen(rows), 0, &own), TUTTI_OK);
    plan_t plan = {.model = "mlp", .own = &own, .ahead = 2, .of_last = 2};
    tt_team_expect(2, 0, count, &plan);
    tutti_pipeline_schedule_release(&own);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* The first rank has no memory behind its last backward; the last one is done with that step, and
 * begins the next one when it has failed. */
typedef struct {
    size_t fails; /* the how manyeth allocation */
    _Atomic int failed, memory;
} short_t;

static void run_short(tutti_scope_t *s, tutti_tensor_t *leaf, void *user)
{
    (void)s, (void)leaf;
    events_t *events = user;
    const short_t *c = events->m->user;
    if (events->step == 0 && ++events->seen == MICRO_BATCHES) {
        tt_member_await(events->m, 1);
        tt_alloc_fail_at(c->fails);
    }
}

static void await_failure(tt_member_t *m)
{
    tt_member_tell(m);
    while (!tt_alloc_has_failed() && atomic_load(m->told) < 2) {
        usleep(100);
    }
}

static void step_short(tt_member_t *m)
{
    set_t set;
    events_t events = {.m = m};
    short_t *c = m->user;
    const plan_t plan = {.model = "mlp", .schedule = "1f1b"};
    TT_EXPECT(m, open_set(&set, &plan, m->group) == TUTTI_OK);
    tutti_tensor_t *weight = tutti_module_find(set.t.pipeline->chain.parts[0].module, "weight");
    TT_EXPECT(m, m->rank > 0 || tutti_tensor_on_accumulate(weight, run_short, &events) == TUTTI_OK);
    tutti_status_t status = step(&set, &plan, 0);
    events.step = 1;
    m->rank == 0 ? tt_member_tell(m) : await_failure(m);
    for (; status >= 0 && events.step < 3; events.step++) {
        status = step(&set, &plan, events.step);
    }
    status = status < 0 ? status : tutti_pipeline_validate(set.t.pipeline, NULL);
    atomic_fetch_add(&c->failed, status < 0);
    atomic_fetch_add(&c->memory, status == TUTTI_ERR_NOMEM);
    TT_EXPECT(m, status != TUTTI_ERR_TIMEOUT);
    tt_trainer_close(&set.t);
}

/* Its numbers say so; others may be in a forward ahead, and wait for one of its. */
static void a_rank_without_memory_is_not_waited_for(void **state)
{
    (void)state;
    int causes = 0;
    for (size_t n = 1; n < 200; n += 3) {
        short_t c = {.fails = n};
        tt_team_expect_quietly(2, 5000, step_short, &c);
        tt_alloc_fail_at(0);
        assert_true(c.failed == 0 || c.failed == 2);
        causes += c.memory == 2;
    }
    assert_true(causes >= 4);
}

/* ---- ranks in other calls -------------------------------------------------------------------- */

typedef struct {
    int rank;        /* who wants the verdict by itself */
    double max_norm; /* whether steps are undone */
} alone_t;

static void validate_alone(tt_member_t *m)
{
    set_t set;
    const alone_t *c = m->user;
    const plan_t plan = {.model = "mlp", .schedule = "1f1b", .max_norm = c->max_norm};
    TT_EXPECT(m, open_set(&set, &plan, m->group) == TUTTI_OK);
    TT_EXPECT(m, step(&set, &plan, 0) == TUTTI_OK);
    TT_EXPECT(m, m->rank != c->rank || tutti_pipeline_validate(set.t.pipeline, NULL) == TUTTI_OK);
    TT_EXPECT(m, step(&set, &plan, 1) < 0);
    TT_EXPECT(m, strstr(tutti_last_error(), "tutti_pipeline_validate() on all ranks") != NULL);
    tt_trainer_close(&set.t);
}

/* Its forwards are not ahead of the verdict, and those of the others are. */
static void a_verdict_is_wanted_by_all_or_none(void **state)
{
    (void)state;
    for (int number = 0; number < 4; number++) {
        alone_t c = {.rank = number % 2, .max_norm = number < 2 ? 1e-3 : 0};
        tt_team_expect_quietly(2, 5000, validate_alone, &c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_forward_begins_before_the_verdict),
        cmocka_unit_test(forwards_and_messages_are_counted),
        cmocka_unit_test(an_input_behind_a_backward_is_not_ahead),
        cmocka_unit_test(a_rank_without_memory_is_not_waited_for),
        cmocka_unit_test(a_verdict_is_wanted_by_all_or_none),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
