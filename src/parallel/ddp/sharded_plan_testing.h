/* For tests of plans: a module of four units, and what a row does with them, as text. */
#ifndef TT_SHARDED_PLAN_TESTING_H
#define TT_SHARDED_PLAN_TESTING_H

#include <stdio.h>
#include <string.h>

#include <tutti/sharded_plan.h>

#include "core/base/alloc.h"
#include "core/base/testing.h"

enum { TEXT_BYTES = 4096 };

/* A root and three units, of 80 and 40 bytes. */
static const tutti_sharded_unit_t units[] = {{.name = "", .bytes = 80},
                                             {.name = "a", .bytes = 40},
                                             {.name = "b", .bytes = 40},
                                             {.name = "c", .bytes = 40}};

static inline tutti_sharded_options_t options_of(int stage, int ranks, int prefetch)
{
    return (tutti_sharded_options_t){
        .stage = stage, .ranks = ranks, .prefetch = prefetch, .units = units, .unit_count = 4};
}

static inline tutti_sharded_plan_t plan_of(const tutti_sharded_options_t *options)
{
    tutti_sharded_plan_t plan;
    assert_int_equal(tutti_sharded_plan(options, &plan), TUTTI_OK);
    return plan;
}

static inline void nothing_is_left(void)
{
    assert_int_equal(tt_alloc_stats().blocks, 0);
}

/* Gathers (+ early ones, n and * of what is near), releases, what is kept, and buckets alone: "g0
 * +1 g2 r1 k2 n2 s0". */
static inline char mark_of(const tutti_sharded_action_t *action)
{
    switch (action->kind) {
    case TUTTI_SHARDED_GATHER:
        return "g+n*"[action->is_early + 2 * action->is_near];
    case TUTTI_SHARDED_RELEASE:
        return 'r';
    case TUTTI_SHARDED_KEEP:
        return 'k';
    case TUTTI_SHARDED_SCATTER:
        return 's';
    case TUTTI_SHARDED_PUBLISH:
        return 'p';
    default:
        return 0;
    }
}

static const char *moves(const tutti_sharded_row_t *row, char *text)
{
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < row->count; i++) {
        const tutti_sharded_action_t *action = &row->actions[i];
        const char mark = mark_of(action);
        if (mark != 0) {
            used += (size_t)snprintf(text + used, TEXT_BYTES - used, "%s%c%d", used > 0 ? " " : "",
                                     mark, action->index);
        }
    }
    return text;
}

static inline void expect_moves(const tutti_sharded_options_t *options, int rank, const char *want)
{
    char text[TEXT_BYTES];
    tutti_sharded_plan_t plan = plan_of(options);
    assert_string_equal(moves(&plan.rows[rank], text), want);
    if (tutti_sharded_check(&plan) < 0) {
        fail_msg("%s", tutti_last_error());
    }
    tutti_sharded_plan_release(&plan);
    nothing_is_left();
}

static inline int find(const tutti_sharded_row_t *row, tutti_sharded_kind_t kind, int nth)
{
    for (int i = 0; i < row->count; i++) {
        if (row->actions[i].kind == kind && nth-- == 0) {
            return i;
        }
    }
    fail_msg("no such action");
    return -1;
}

static inline tutti_sharded_simulation_t simulate(const tutti_sharded_options_t *options,
                                                  const tutti_sharded_costs_t *costs)
{
    tutti_sharded_plan_t plan = plan_of(options);
    tutti_sharded_simulation_t simulation;
    assert_int_equal(tutti_sharded_simulate(&plan, costs, &simulation), TUTTI_OK);
    tutti_sharded_plan_release(&plan);
    return simulation;
}

#endif
