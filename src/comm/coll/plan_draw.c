/* Plans as a picture, for `tutti explain --svg`.
 *
 *          rank 0       rank 1       a column per rank, coloured by host
 *     ─────────────────────────
 *      0     │ ╲          │          a band per round: an arrow per pair of ranks, from the upper
 * end │   ╲        │          of the sender's line to the lower end of the receiver's, as wide │ ╲
 * 64   │          as what it carries; what is told of it when pointed at ─────────────────────────
 *      1     Σ            │          Σ: adds up; a bar: mates meet
 */
#include "comm/coll/plan.h"

#include <string.h>

#include "comm/coll/plan_text.h"
#include "core/base/alloc.h"

enum { LEFT = 70, TOP = 84, COLUMN = 112, BAND = 66, HEAD = 26, LEGEND = 44 };

/* What passes from one rank to another in a round. */
enum { SENT, READ, WRITTEN, FLOWS };

typedef struct {
    tt_plan_text_t text;
    tt_plan_t *const *plans;
    const int *hosts;
    int size, shown, rounds; /* ranks, ranks that are drawn, rounds that are drawn */
    size_t most;             /* elements of the widest arrow */
    size_t *flows;           /* [FLOWS][size][size] of a round */
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

static void add_sum(const picture_t *p, const tt_plan_t *plan, const tt_step_t *step)
{
    const tt_plan_sum_t *sum = &plan->sums[step->sum];
    for (int i = 0; i < sum->count; i++) {
        *flow(p, READ, sum->sources[i].rank, plan->rank) += step->count;
    }
    for (int mate = 0; mate < p->size; mate++) {
        const bool is_mate = p->hosts == NULL || p->hosts[mate] == p->hosts[plan->rank];
        if ((step->to == TT_TO_MATES && is_mate) ||
            (step->to == TT_TO_PEER && mate == step->peer)) {
            *flow(p, WRITTEN, plan->rank, mate) += step->count;
        }
    }
}

static void add_flows(const picture_t *p, int round)
{
    memset(p->flows, 0, FLOWS * (size_t)p->size * (size_t)p->size * sizeof *p->flows);
    for (int rank = 0; rank < p->size; rank++) {
        const tt_plan_t *plan = p->plans[rank];
        for (int i = 0; i < plan->step_count; i++) {
            const tt_step_t *step = &plan->steps[i];
            if (step->round != round) {
                continue;
            }
            if (step->kind == TT_STEP_SEND) { /* the empty messages of a barrier show, too */
                *flow(p, SENT, rank, step->peer) += step->count > 0 ? step->count : 1;
            } else if (step->kind == TT_STEP_PULL) {
                *flow(p, READ, step->peer, rank) += step->count;
            } else if (step->kind == TT_STEP_REDUCE) {
                add_sum(p, plan, step);
            }
        }
    }
}

/* Whether a rank has a step of a kind in a round. */
static bool has_step(const picture_t *p, int rank, int round, tt_step_kind_t kind)
{
    const tt_plan_t *plan = p->plans[rank];
    for (int i = 0; i < plan->step_count; i++) {
        if (plan->steps[i].round == round && plan->steps[i].kind == kind) {
            return true;
        }
    }
    return false;
}

static void draw_arrow(picture_t *p, int kind, int from, int to, int top)
{
    static const char *const classes[] = {"sent", "read", "written"};
    static const char *const words[] = {"sends to", "is read by", "writes into"};
    const size_t count = *flow(p, kind, from, to);
    if (count == 0 || from == to || from >= p->shown || to >= p->shown) {
        return;
    }
    const int gap = from < to ? 7 : -7;
    const double width = 1.2 + 2.3 * (double)count / (double)p->most;
    tt_plan_put(&p->text,
                "<path class=\"%s\" stroke-width=\"%.1f\" d=\"M%d %dL%d %d\">"
                "<title>rank %d %s rank %d: %zu</title></path>\n",
                classes[kind], width, column(from) + gap, top + 8, column(to) - gap,
                top + BAND - 12, from, words[kind], to, count);
}

static void draw_marks(picture_t *p, int round)
{
    for (int rank = 0; rank < p->shown; rank++) {
        const int x = column(rank), y = band(round) + BAND / 2;
        if (has_step(p, rank, round, TT_STEP_MEET)) {
            tt_plan_put(&p->text,
                        "<rect class=\"meet\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"6\" "
                        "rx=\"3\"><title>meets its mates</title></rect>\n",
                        x - COLUMN / 2 + 6, y - 3, COLUMN - 12);
        }
        if (has_step(p, rank, round, TT_STEP_REDUCE)) {
            tt_plan_put(&p->text,
                        "<circle class=\"sum\" cx=\"%d\" cy=\"%d\" r=\"9\"/>"
                        "<text class=\"sum\" x=\"%d\" y=\"%d\">&#931;</text>\n",
                        x, y, x, y + 4);
        } else if (has_step(p, rank, round, TT_STEP_COPY)) {
            tt_plan_put(&p->text,
                        "<circle class=\"copy\" cx=\"%d\" cy=\"%d\" r=\"4\"><title>copies"
                        "</title></circle>\n",
                        x, y);
        }
    }
}

static void draw_round(picture_t *p, int round)
{
    const int y = band(round);
    tt_plan_put(&p->text,
                "<rect class=\"band%d\" x=\"0\" y=\"%d\" width=\"100%%\" height=\"%d\"/>"
                "<text class=\"round\" x=\"%d\" y=\"%d\">%d</text>\n",
                round % 2, y, BAND, LEFT / 2, y + BAND / 2 + 4, round);
    for (int rank = 0; rank < p->shown; rank++) {
        tt_plan_put(&p->text, "<path class=\"line\" d=\"M%d %dV%d\"/>\n", column(rank), y,
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
    for (int rank = 0; rank < p->shown; rank++) {
        const int host = p->hosts != NULL ? p->hosts[rank] : 0;
        tt_plan_put(&p->text,
                    "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\" "
                    "fill=\"hsl(%d,55%%,88%%)\"/><text class=\"head\" x=\"%d\" y=\"%d\">rank %d",
                    column(rank) - COLUMN / 2 + 8, TOP - HEAD - 6, COLUMN - 16, HEAD,
                    (210 + host * 75) % 360, column(rank), TOP - HEAD / 2 - 2, rank);
        if (p->hosts != NULL) {
            tt_plan_put(&p->text, ", host %d", host);
        }
        tt_plan_put(&p->text, "</text>\n");
    }
}

static void draw_top(picture_t *p, int width, int height)
{
    const tt_plan_t *plan = p->plans[0];
    tt_plan_put(&p->text,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                "viewBox=\"0 0 %d %d\">\n<style>text{font:13px sans-serif;fill:#1f2937;"
                "text-anchor:middle}.title{font-size:17px;font-weight:600;text-anchor:start}"
                ".round,.note{fill:#6b7280}.note{text-anchor:start;font-size:12px}"
                ".head{font-size:12px}path{fill:none}.line{stroke:#cbd5e1}"
                ".sent{stroke:#2563eb;marker-end:url(#sent)}"
                ".read{stroke:#059669;stroke-dasharray:5 4;marker-end:url(#read)}"
                ".written{stroke:#d97706;stroke-dasharray:2 3;marker-end:url(#written)}"
                ".band0{fill:#f8fafc}.band1{fill:#fff}.meet{fill:#c4b5fd}.copy{fill:#64748b}"
                "circle.sum{fill:#fff;stroke:#1f2937}text.sum{font-size:11px}</style>\n<defs>",
                width, height, width, height);
    static const char *const markers[][2] = {
        {"sent", "#2563eb"}, {"read", "#059669"}, {"written", "#d97706"}};
    for (int i = 0; i < FLOWS; i++) {
        tt_plan_put(&p->text,
                    "<marker id=\"%s\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" "
                    "markerWidth=\"9\" markerHeight=\"9\" markerUnits=\"userSpaceOnUse\" "
                    "orient=\"auto\"><path d=\"M0 0L8 4L0 8Z\" style=\"fill:%s\"/></marker>",
                    markers[i][0], markers[i][1]);
    }
    tt_plan_put(&p->text,
                "</defs>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
                "<text class=\"title\" x=\"16\" y=\"30\">%s %s: %d ranks, %zu elements</text>\n",
                tt_collective_name(plan->collective), plan->algorithm->name, p->size, plan->count);
}

static void draw_legend(picture_t *p, int rounds)
{
    const int y = band(p->rounds) + 26;
    static const char *const notes[][2] = {
        {"sent", "sent"}, {"read", "read by a mate"}, {"written", "written into a mate"}};
    for (int i = 0; i < FLOWS; i++) {
        tt_plan_put(&p->text,
                    "<path class=\"%s\" stroke-width=\"2\" d=\"M%d %dh28\"/>"
                    "<text class=\"note\" x=\"%d\" y=\"%d\">%s</text>\n",
                    notes[i][0], 16 + i * 150, y - 4, 50 + i * 150, y, notes[i][1]);
    }
    if (p->rounds < rounds || p->shown < p->size) {
        tt_plan_put(&p->text,
                    "<text class=\"note\" x=\"16\" y=\"%d\">%d rounds and %d ranks more</text>\n",
                    y + 18, rounds - p->rounds, p->size - p->shown);
    }
}

static size_t widest(const picture_t *p)
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
    const int width = LEFT + p.shown * COLUMN + 16;
    draw_top(&p, width < 500 ? 500 : width, band(p.rounds) + LEGEND + 12);
    draw_heads(&p);
    for (int round = 0; round < p.rounds; round++) {
        draw_round(&p, round);
    }
    draw_legend(&p, rounds);
    tt_plan_put(&p.text, "</svg>\n");
    tt_free(p.flows);
    return p.text.length;
}
