/* Why a walk has stopped, in words and as a grid:
 *
 *           rank 0    rank 1
 *       0   0F0       1B0     <-- rank 1 waits for 1F0
 *       1   0B0       1F0     <-- rank 0 waits for 1B0
 *
 * Marked places have a star. Lines far from them, and columns beyond the first dozen, are left out.
 */
#include "parallel/pipeline/pipeline_grid.h"

#include <stdarg.h>
#include <string.h>

#include "core/base/fail.h"
#include "core/base/reals.h"

enum { AROUND = 6, COLUMNS = 12, HOPS = 8 };

/* ---- in words ---- */

static bool is_stuck(const tt_pipeline_walk_t *walk, int rank)
{
    return walk->at[rank] < walk->schedule->rows[rank].count;
}

/* Whether a rank will still come to an action that gives what is awaited. */
static bool comes_to(const tt_pipeline_walk_t *walk, int rank,
                     const tutti_pipeline_action_t *awaited)
{
    const tutti_pipeline_row_t *row = &walk->schedule->rows[rank];
    for (int64_t i = walk->at[rank]; i < row->count; i++) {
        const tutti_pipeline_action_t *action = &row->actions[i];
        const bool is_kind = action->kind == awaited->kind || (awaited->kind == TUTTI_PIPELINE_I &&
                                                               action->kind == TUTTI_PIPELINE_B);
        if (is_kind && action->stage == awaited->stage &&
            action->micro_batch == awaited->micro_batch) {
            return true;
        }
    }
    return false;
}

/* The rank that a stuck one waits for; -1: nobody does that. */
static int next_of(const tt_pipeline_walk_t *walk, int rank, tutti_pipeline_action_t *awaited)
{
    if (!tt_pipeline_awaited(walk, rank, awaited)) {
        return -1;
    }
    const int next = walk->schedule->rank_of_stage[awaited->stage];
    return next >= 0 && comes_to(walk, next, awaited) ? next : -1;
}

/* A rank on the cycle that the first stuck rank leads to, or the last of the chain. */
static int find_cycle(const tt_pipeline_walk_t *walk)
{
    tutti_pipeline_action_t awaited;
    int rank = 0;
    while (!is_stuck(walk, rank)) {
        rank++;
    }
    for (int i = 0; i < walk->schedule->ranks; i++) {
        const int next = next_of(walk, rank, &awaited);
        if (next < 0) {
            break;
        }
        rank = next;
    }
    return rank;
}

__attribute__((format(printf, 3, 4))) static void append(char *text, size_t bytes,
                                                         const char *format, ...)
{
    const size_t length = strlen(text);
    va_list args;
    va_start(args, format);
    (void)tt_format_list(text + length, bytes - length, format, args);
    va_end(args);
}

tutti_status_t tt_pipeline_explain_stop(const tt_pipeline_walk_t *walk)
{
    char text[768] = "";
    tutti_pipeline_action_t awaited;
    const int first = find_cycle(walk);
    int rank = first;
    for (int hop = 0; hop < HOPS; hop++) {
        const tutti_pipeline_action_t *here = &walk->schedule->rows[rank].actions[walk->at[rank]];
        const int next = next_of(walk, rank, &awaited);
        append(text, sizeof text, "%s %d waits in %s for %s", hop == 0 ? "rank" : ", rank", rank,
               tt_pipeline_label(here).text, tt_pipeline_label(&awaited).text);
        if (next < 0) {
            append(text, sizeof text, ", which no rank does");
            break;
        }
        if (next == first) {
            append(text, sizeof text, next == rank ? ", which stands behind it" : ": a cycle");
            break;
        }
        rank = next;
    }
    return TT_FAIL(TUTTI_ERR_ARG, "pipeline: %s", text);
}

/* ---- the grid ---- */

static bool is_marked(const tt_pipeline_walk_t *walk, int rank, int64_t line)
{
    return walk->has_failed ? walk->failure.rank == rank && walk->failure.index == line
                            : is_stuck(walk, rank) && walk->at[rank] == line;
}

static bool is_shown(const tt_pipeline_walk_t *walk, int64_t line)
{
    for (int rank = 0; rank < walk->schedule->ranks; rank++) {
        const int64_t place = walk->has_failed ? walk->failure.index : walk->at[rank];
        const bool counts = walk->has_failed ? walk->failure.rank == rank : is_stuck(walk, rank);
        if (counts && line >= place - AROUND && line <= place + AROUND / 2) {
            return true;
        }
    }
    return false;
}

/* A dozen ranks, that of the first mark among them. */
static int first_column(const tt_pipeline_walk_t *walk)
{
    const int rank = walk->has_failed ? walk->failure.rank : find_cycle(walk);
    const int last = walk->schedule->ranks - COLUMNS;
    const int first = rank - COLUMNS / 2;
    return last <= 0 || first <= 0 ? 0 : first < last ? first : last;
}

static void print_reason(const tt_pipeline_walk_t *walk, int rank, tt_pipeline_text_t *text)
{
    tutti_pipeline_action_t awaited;
    if (walk->has_failed) {
        tt_pipeline_put_text(text, "  <-- rank %d: here", rank);
    } else if (tt_pipeline_awaited(walk, rank, &awaited)) {
        tt_pipeline_put_text(text, "  <-- rank %d waits for %s", rank,
                             tt_pipeline_label(&awaited).text);
    }
}

/* Without blanks at its end. */
static void end_line(tt_pipeline_text_t *text)
{
    while (text->status >= 0 && text->bytes > 0 && text->data[text->bytes - 1] == ' ') {
        text->bytes--;
    }
    tt_pipeline_put_text(text, "\n");
}

static void print_line(const tt_pipeline_walk_t *walk, int first, int64_t line,
                       tt_pipeline_text_t *text)
{
    const tutti_pipeline_schedule_t *schedule = walk->schedule;
    tt_pipeline_put_text(text, "%6lld ", (long long)line);
    for (int rank = first; rank < schedule->ranks && rank < first + COLUMNS; rank++) {
        const tutti_pipeline_row_t *row = &schedule->rows[rank];
        const tt_pipeline_label_t cell =
            line < row->count ? tt_pipeline_label(&row->actions[line]) : (tt_pipeline_label_t){""};
        tt_pipeline_put_text(text, " %c%-12s", is_marked(walk, rank, line) ? '*' : ' ', cell.text);
    }
    for (int rank = 0; rank < schedule->ranks; rank++) {
        if (is_marked(walk, rank, line)) {
            print_reason(walk, rank, text);
        }
    }
    end_line(text);
}

tutti_status_t tt_pipeline_print_grid(const tt_pipeline_walk_t *walk, tutti_buffer_t *out)
{
    const tutti_pipeline_schedule_t *schedule = walk->schedule;
    tt_pipeline_text_t text = {0};
    const int first = first_column(walk);
    int64_t lines = 0;
    tt_pipeline_put_text(&text, "       ");
    for (int rank = 0; rank < schedule->ranks; rank++) {
        const int64_t count = schedule->rows[rank].count + 1; /* the end can be marked, too */
        lines = count > lines ? count : lines;
        if (rank >= first && rank < first + COLUMNS) {
            tt_pipeline_put_text(&text, "  rank %-7d", rank);
        }
    }
    end_line(&text);
    bool is_gap = false;
    for (int64_t line = 0; line < lines; line++) {
        if (is_shown(walk, line)) {
            print_line(walk, first, line, &text);
        } else if (!is_gap) {
            tt_pipeline_put_text(&text, "   ...\n");
        }
        is_gap = !is_shown(walk, line);
    }
    return tt_pipeline_give_text(&text, out);
}
