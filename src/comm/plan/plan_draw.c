/* Plans as a picture, for `tutti explain --svg`.
 *
 *          rank 0       rank 1       a column per rank, coloured by host
 *     ─────────────────────────
 *      0     │ ╲          │          a band per round: an arrow per pair of ranks, from the upper
 *            │   ╲        │          end of the sender's line to the lower end of the receiver's,
 *            │     ╲ 64   │          as wide as what it carries; the mouse shows what that is
 *     ─────────────────────────
 *      1     Σ            │          Σ: adds up; a bar: barrier of a host's ranks
 */
#include "comm/plan/plan.h"

#include <math.h>
#include <string.h>

#include "comm/plan/plan_text.h"
#include "core/base/alloc.h"

enum { LEFT = 70, TOP = 84, COLUMN = 112, BAND = 66, HEAD = 26, LEGEND = 44 };

/* What passes from one rank to another in a round. */
enum { SENT, READ, WRITTEN, FLOWS };

typedef struct {
    tt_plan_text_t text;
    tt_plan_t *const *plans;
    const int *hosts;
    int size, shown, rounds; /* ranks, ranks that are drawn, rounds that are drawn */
    int width;
    size_t most; /* elements of the widest arrow */
    tt_plan_round_t steps;
    size_t *flows; /* [FLOWS][size][size] of a round */
} picture_t;

static int column(int rank)
{
    return LEFT + COLUMN / 2 + rank * COLUMN;
}

static int band(int round)
{
    return TOP + round * BAND;
}

static size_t *flow(const picture_t *p, int kind, int from, int to)
{
    return &p->flows[((size_t)kind * (size_t)p->size + (size_t)from) * (size_t)p->size +
                     (size_t)to];
}

static void add_flow(const picture_t *p, const tt_plan_t *plan, const tt_step_t *step)
{
    const bool is_read = step->kind == TT_STEP_GET || step->kind == TT_STEP_REDUCE;
    if (step->kind == TT_STEP_SEND) { /* the empty messages of a barrier show, too */
        *flow(p, SENT, plan->rank, step->peer) += step->count > 0 ? step->count : 1;
    }
    for (int i = 0; is_read && i < tt_plan_reads(plan, step); i++) {
        *flow(p, READ, tt_plan_read(plan, step, i).rank, plan->rank) += step->count;
    }
    for (int rank = 0; step->to != TT_TO_ME && rank < p->size; rank++) {
        const bool is_node_peer = p->hosts == NULL || p->hosts[rank] == p->hosts[plan->rank];
        if (step->to == TT_TO_PEER ? rank == step->peer : is_node_peer) {
            *flow(p, WRITTEN, plan->rank, rank) += step->count;
        }
    }
}

/* A rank's steps of a round; none behind its last one. */
static void look_at(picture_t *p, int rank, int round)
{
    if (round >= p->plans[rank]->rounds || tt_plan_round(p->plans[rank], round, &p->steps) < 0) {
        p->steps.count = 0;
    }
}

static void add_flows(picture_t *p, int round)
{
    memset(p->flows, 0, FLOWS * (size_t)p->size * (size_t)p->size * sizeof *p->flows);
    for (int rank = 0; rank < p->size; rank++) {
        look_at(p, rank, round);
        for (int i = 0; i < p->steps.count; i++) {
            add_flow(p, p->plans[rank], &p->steps.steps[i]);
        }
    }
}

/* Whether a rank has a step of a kind in a round. */
static bool has_step(picture_t *p, int rank, int round, tt_step_kind_t kind)
{
    look_at(p, rank, round);
    for (int i = 0; i < p->steps.count; i++) {
        if (p->steps.steps[i].kind == kind) {
            return true;
        }
    }
    return false;
}

/* A line with a head at (x1, y1). */
static void draw_line(picture_t *p, int kind, double width, const double *from, const double *to)
{
    static const char *const colours[] = {"#2563eb", "#059669", "#d97706"};
    static const char *const dashes[] = {"none", "5 4", "2 3"};
    const double dx = to[0] - from[0], dy = to[1] - from[1];
    const double length = sqrt(dx * dx + dy * dy), ux = dx / length, uy = dy / length;
    const double size = 6 + width, bx = to[0] - ux * size, by = to[1] - uy * size;
    tt_plan_put(&p->text,
                "<path fill=\"none\" stroke=\"%s\" stroke-dasharray=\"%s\" stroke-width=\"%.1f\" "
                "d=\"M%.1f %.1fL%.1f %.1f\"/><path fill=\"%s\" d=\"M%.1f %.1fL%.1f %.1fL%.1f "
                "%.1fZ\"/>",
                colours[kind], dashes[kind], width, from[0], from[1], bx, by, colours[kind], to[0],
                to[1], bx - uy * size / 2, by + ux * size / 2, bx + uy * size / 2,
                by - ux * size / 2);
}

static void draw_arrow(picture_t *p, int kind, int from, int to, int top)
{
    static const char *const words[] = {"sends to", "is read by", "writes into"};
    const size_t count = *flow(p, kind, from, to);
    if (count == 0 || from == to || from >= p->shown || to >= p->shown) {
        return;
    }
    const int gap = from < to ? 9 : -9;
    const double ends[2][2] = {{column(from) + gap, top + 8}, {column(to) - gap, top + BAND - 10}};
    tt_plan_put(&p->text, "<g><title>rank %d %s rank %d: %zu</title>", from, words[kind], to,
                count);
    draw_line(p, kind, 1.2 + 2.3 * (double)count / (double)p->most, ends[0], ends[1]);
    tt_plan_put(&p->text, "</g>\n");
}

static void draw_marks(picture_t *p, int round)
{
    for (int rank = 0; rank < p->shown; rank++) {
        const int x = column(rank), y = band(round) + BAND / 2;
        if (has_step(p, rank, round, TT_STEP_BARRIER)) {
            tt_plan_put(&p->text,
                        "<rect fill=\"#c4b5fd\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"6\" "
                        "rx=\"3\"><title>waits for its local ranks</title></rect>\n",
                        x - COLUMN / 2 + 6, y - 3, COLUMN - 12);
        }
        if (has_step(p, rank, round, TT_STEP_REDUCE)) {
            tt_plan_put(&p->text,
                        "<circle fill=\"#fff\" stroke=\"#1f2937\" cx=\"%d\" cy=\"%d\" r=\"9\"/>"
                        "<text x=\"%d\" y=\"%d\" font-size=\"12\">&#931;</text>\n",
                        x, y, x, y + 4);
        } else if (has_step(p, rank, round, TT_STEP_COPY)) {
            tt_plan_put(&p->text,
                        "<circle fill=\"#64748b\" cx=\"%d\" cy=\"%d\" r=\"4\"><title>copies"
                        "</title></circle>\n",
                        x, y);
        }
    }
}

static void draw_round(picture_t *p, int round)
{
    const int y = band(round);
    tt_plan_put(&p->text,
                "<rect fill=\"%s\" x=\"0\" y=\"%d\" width=\"%d\" height=\"%d\"/>"
                "<text x=\"%d\" y=\"%d\">%d</text>\n",
                round % 2 == 0 ? "#f1f5f9" : "#fff", y, p->width, BAND, LEFT / 2, y + BAND / 2 + 4,
                round);
    for (int rank = 0; rank < p->shown; rank++) {
        tt_plan_put(&p->text, "<path stroke=\"#cbd5e1\" d=\"M%d %dV%d\"/>\n", column(rank), y,
                    y + BAND);
    }
    add_flows(p, round);
    for (int kind = 0; kind < FLOWS; kind++) {
        for (int from = 0; from < p->shown; from++) {
            for (int to = 0; to < p->shown; to++) {
                draw_arrow(p, kind, from, to, y);
            }
        }
    }
    draw_marks(p, round);
}

static void draw_heads(picture_t *p)
{
    static const char *const tints[] = {"#dbeafe", "#fce7f3", "#dcfce7",
                                        "#fef3c7", "#ede9fe", "#cffafe"};
    for (int rank = 0; rank < p->shown; rank++) {
        const int host = p->hosts != NULL ? p->hosts[rank] : 0;
        tt_plan_put(&p->text,
                    "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\" "
                    "fill=\"%s\"/><text x=\"%d\" y=\"%d\">rank %d",
                    column(rank) - COLUMN / 2 + 8, TOP - HEAD - 6, COLUMN - 16, HEAD,
                    tints[host % 6], column(rank), TOP - HEAD / 2 - 2, rank);
        if (p->hosts != NULL) {
            tt_plan_put(&p->text, ", host %d", host);
        }
        tt_plan_put(&p->text, "</text>\n");
    }
}

static void draw_top(picture_t *p, int height)
{
    const tt_plan_t *plan = p->plans[0];
    tt_plan_put(&p->text,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\" "
                "text-anchor=\"middle\">\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n"
                "<text x=\"16\" y=\"30\" font-size=\"17\" text-anchor=\"start\">"
                "%s %s: %d ranks, %zu elements</text>\n",
                p->width, height, p->width, height, p->width, height,
                tt_collective_name(plan->collective), plan->algorithm->name, p->size, plan->count);
}

static void draw_legend(picture_t *p, int rounds)
{
    static const char *const notes[] = {"sent", "read by a local rank",
                                        "written into a local rank"};
    const int y = band(p->rounds) + 26;
    for (int i = 0; i < FLOWS; i++) {
        const int x = 16 + i * 150;
        const double ends[2][2] = {{x, y - 4}, {x + 34, y - 4}};
        draw_line(p, i, 2, ends[0], ends[1]);
        tt_plan_put(&p->text, "<text x=\"%d\" y=\"%d\" text-anchor=\"start\">%s</text>\n", x + 42,
                    y, notes[i]);
    }
    if (p->rounds < rounds || p->shown < p->size) {
        tt_plan_put(&p->text,
                    "<text x=\"16\" y=\"%d\" text-anchor=\"start\">%d rounds and %d ranks more"
                    "</text>\n",
                    y + 18, rounds - p->rounds, p->size - p->shown);
    }
}

static size_t widest(picture_t *p)
{
    size_t most = 1;
    for (int round = 0; round < p->rounds; round++) {
        add_flows(p, round);
        for (size_t i = 0; i < FLOWS * (size_t)p->size * (size_t)p->size; i++) {
            most = p->flows[i] > most ? p->flows[i] : most;
        }
    }
    return most;
}

size_t tt_plan_draw(tt_plan_t *const *plans, const int *hosts, char *text, size_t text_bytes)
{
    const int size = plans[0]->size;
    int rounds = 0;
    for (int rank = 0; rank < size; rank++) {
        rounds = plans[rank]->rounds > rounds ? plans[rank]->rounds : rounds;
    }
    picture_t p = {.text = {text, text_bytes, 0},
                   .plans = plans,
                   .hosts = hosts,
                   .size = size,
                   .shown = size < TT_DRAW_RANKS ? size : TT_DRAW_RANKS,
                   .rounds = rounds < TT_DRAW_ROUNDS ? rounds : TT_DRAW_ROUNDS};
    p.flows = tt_alloc_array(FLOWS * (size_t)size * (size_t)size, sizeof *p.flows, "picture");
    if (p.flows == NULL) {
        return 0;
    }
    p.most = widest(&p);
    p.width = LEFT + p.shown * COLUMN + 16;
    p.width = p.width < 500 ? 500 : p.width;
    draw_top(&p, band(p.rounds) + LEGEND + 12);
    draw_heads(&p);
    for (int round = 0; round < p.rounds; round++) {
        draw_round(&p, round);
    }
    draw_legend(&p, rounds);
    tt_plan_put(&p.text, "</svg>\n");
    tt_free(p.flows);
    tt_plan_round_close(&p.steps);
    return p.text.length;
}
