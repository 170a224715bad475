/* Schedules of arbitrary bytes: what is read can be written and read again, and what the check
 * takes can be planned, checked again, simulated and drawn. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <tutti/pipeline.h>

#include "core/base/alloc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void expect_equal(const tutti_pipeline_schedule_t *a, const tutti_pipeline_schedule_t *b)
{
    TT_ASSERT(a->ranks == b->ranks && a->stages == b->stages);
    TT_ASSERT(a->micro_batches == b->micro_batches && a->shards == b->shards);
    for (int rank = 0; rank < a->ranks; rank++) {
        TT_ASSERT(a->rows[rank].count == b->rows[rank].count);
        TT_ASSERT(memcmp(a->rows[rank].actions, b->rows[rank].actions,
                         (size_t)a->rows[rank].count * sizeof *a->rows[rank].actions) == 0);
    }
}

static void write_and_read(const tutti_pipeline_schedule_t *schedule)
{
    tutti_buffer_t csv;
    tutti_pipeline_schedule_t again;
    TT_ASSERT(tutti_pipeline_write(schedule, &csv) == TUTTI_OK);
    TT_ASSERT(tutti_pipeline_read(csv.data, csv.bytes, schedule->micro_batches, &again) ==
              TUTTI_OK);
    expect_equal(schedule, &again);
    tutti_pipeline_schedule_release(&again);
    tutti_buffer_release(&csv);
}

static void draw(const tutti_pipeline_schedule_t *schedule)
{
    tutti_pipeline_simulation_t simulation;
    tutti_buffer_t picture;
    TT_ASSERT(tutti_pipeline_simulate(schedule, NULL, 1, &simulation) == TUTTI_OK);
    for (int is_svg = 0; is_svg < 2; is_svg++) {
        TT_ASSERT(tutti_pipeline_draw(schedule, &simulation, is_svg == 1, &picture) == TUTTI_OK);
        tutti_buffer_release(&picture);
    }
    tutti_pipeline_simulation_release(&simulation);
}

/* With all that is added to what is computed, the same is held. */
static void plan(const tutti_pipeline_schedule_t *own, const tutti_pipeline_report_t *before)
{
    tutti_pipeline_schedule_t schedule;
    tutti_pipeline_report_t report;
    const tutti_pipeline_options_t options = {.own = own};
    TT_ASSERT(tutti_pipeline_plan(&options, &schedule) == TUTTI_OK);
    TT_ASSERT(tutti_pipeline_check(&schedule, &report, NULL) == TUTTI_OK);
    TT_ASSERT(report.is_canonical == before->is_canonical);
    TT_ASSERT(report.activations_max == before->activations_max);
    TT_ASSERT(report.versions_max == before->versions_max);
    draw(&schedule);
    tutti_pipeline_schedule_release(&schedule);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    tutti_pipeline_schedule_t schedule;
    tutti_pipeline_report_t report;
    tutti_buffer_t grid;
    if (tutti_pipeline_read(data, bytes, 0, &schedule) == TUTTI_OK) {
        write_and_read(&schedule);
        if (tutti_pipeline_check(&schedule, &report, &grid) == TUTTI_OK) {
            plan(&schedule, &report);
        } else {
            TT_ASSERT(grid.bytes > 0 && strlen(grid.data) == grid.bytes);
        }
        tutti_buffer_release(&grid);
        tutti_pipeline_schedule_release(&schedule);
    }
    TT_ASSERT(tt_alloc_stats().blocks == 0);
    return 0;
}
