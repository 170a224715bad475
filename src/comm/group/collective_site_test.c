/* Every public call that ranks make together says where it was made: when two ranks do not make the
 * same call, the error of both names the file and line of each; when a message does not come, the
 * report names that of the rank that waits.
 *
 * A case is a call on one line, which it notes. One rank makes it, the other one makes another
 * call; what is reported to them must have the line. A walk through the headers sees that none was
 * forgotten.
 */
#include <ctype.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include <tutti/collectives.h>
#include <tutti/messages.h>
#include <tutti/objects.h>

#include "comm/group/group_team.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/testing.h"

enum { RANKS = 2, ROWS = 2, REPORT_MS = 50, TIMEOUT_MS = 20000, LINES = 16, LINE_BYTES = 1200 };

/* What the calls work on. */
typedef struct {
    tutti_group_t *g;
    tutti_tensor_t *x;             /* [ROWS] */
    tutti_tensor_t *all;           /* [RANKS * ROWS] */
    tutti_tensor_t *parts[RANKS];  /* [ROWS] each */
    tutti_tensor_t *others[RANKS]; /* the same */
    int64_t counts[RANKS];
    tutti_contributions_t leaves;
    tutti_bytes_t bytes[RANKS];
    tutti_buffer_t got[RANKS];
    tutti_transfer_t recv;
    int line; /* of the call that was made */
    tutti_status_t status;
} desk_t;

typedef struct {
    const char *name;
    void (*call)(desk_t *d);
} case_t;

/* Makes a call, which is no tail call: that would return to somewhere else. */
#define CALL(call) (d->line = __LINE__, d->status = (call))

static void all_reduce(desk_t *d)
{
    CALL(tutti_all_reduce(d->g, d->x, TUTTI_SUM, NULL));
}

static void all_reduce_with(desk_t *d)
{
    CALL(tutti_all_reduce_with(d->g, d->x, TUTTI_SUM, NULL, NULL));
}

static void all_reduce_contributions(desk_t *d)
{
    CALL(tutti_all_reduce_contributions(d->g, &d->leaves, d->x, TUTTI_SUM, NULL));
}

static void reduce(desk_t *d)
{
    CALL(tutti_reduce(d->g, d->x, TUTTI_SUM, 0, NULL));
}

static void scan(desk_t *d)
{
    CALL(tutti_scan(d->g, d->x, TUTTI_SUM, NULL));
}

static void scan_with(desk_t *d)
{
    CALL(tutti_scan_with(d->g, d->x, TUTTI_SUM, NULL, NULL));
}

static void exscan_with(desk_t *d)
{
    CALL(tutti_exscan_with(d->g, d->x, TUTTI_SUM, NULL, NULL));
}

static void exscan(desk_t *d)
{
    CALL(tutti_exscan(d->g, d->x, TUTTI_SUM, NULL));
}

static void reduce_with(desk_t *d)
{
    CALL(tutti_reduce_with(d->g, d->x, TUTTI_SUM, NULL, NULL));
}

static void reduce_scatter(desk_t *d)
{
    CALL(tutti_reduce_scatter(d->g, d->x, d->all, TUTTI_SUM, NULL));
}

static void reduce_scatter_with(desk_t *d)
{
    CALL(tutti_reduce_scatter_with(d->g, d->x, d->all, TUTTI_SUM, NULL, NULL));
}

static void reduce_scatter_uneven(desk_t *d)
{
    CALL(tutti_reduce_scatter_uneven(d->g, d->x, d->all, d->counts, TUTTI_SUM, NULL));
}

static void reduce_scatter_list(desk_t *d)
{
    CALL(tutti_reduce_scatter_list(d->g, d->x, d->parts, TUTTI_SUM, NULL));
}

static void reduce_scatter_contributions(desk_t *d)
{
    tutti_contributions_t leaves = d->leaves;
    leaves.pieces = &d->all;
    CALL(tutti_reduce_scatter_contributions(d->g, &leaves, d->x, TUTTI_SUM, NULL));
}

static void reduce_scatter_contributions_uneven(desk_t *d)
{
    const tutti_reduction_t op = TUTTI_SUM; /* so that it is one line */
    tutti_contributions_t leaves = d->leaves;
    leaves.pieces = &d->all;
    CALL(tutti_reduce_scatter_contributions_uneven(d->g, &leaves, d->x, d->counts, op, NULL));
}

static void broadcast(desk_t *d)
{
    CALL(tutti_broadcast(d->g, d->x, 0, NULL));
}

static void all_gather(desk_t *d)
{
    CALL(tutti_all_gather(d->g, d->all, d->x, NULL));
}

static void all_gather_uneven(desk_t *d)
{
    CALL(tutti_all_gather_uneven(d->g, d->all, d->x, d->counts, NULL));
}

static void all_gather_list(desk_t *d)
{
    CALL(tutti_all_gather_list(d->g, d->parts, d->x, NULL));
}

static void gather(desk_t *d)
{
    CALL(tutti_gather(d->g, d->all, d->x, 0, NULL));
}

static void gather_uneven(desk_t *d)
{
    CALL(tutti_gather_uneven(d->g, d->all, d->x, d->counts, 0, NULL));
}

static void gather_list(desk_t *d)
{
    CALL(tutti_gather_list(d->g, d->parts, d->x, 0, NULL));
}

static void scatter(desk_t *d)
{
    CALL(tutti_scatter(d->g, d->x, d->all, 0, NULL));
}

static void scatter_uneven(desk_t *d)
{
    CALL(tutti_scatter_uneven(d->g, d->x, d->all, d->counts, 0, NULL));
}

static void scatter_list(desk_t *d)
{
    CALL(tutti_scatter_list(d->g, d->x, d->parts, 0, NULL));
}

static void all_to_all(desk_t *d)
{
    CALL(tutti_all_to_all(d->g, d->parts[0], d->x, NULL));
}

static void all_to_all_uneven(desk_t *d)
{
    const int64_t one[] = {1, 1};
    CALL(tutti_all_to_all_uneven(d->g, d->parts[0], one, d->x, one, NULL));
}

static void all_to_all_list(desk_t *d)
{
    CALL(tutti_all_to_all_list(d->g, d->others, d->parts, NULL));
}

static void barrier(desk_t *d)
{
    CALL(tutti_barrier(d->g, NULL));
}

/* Of calls that are fused, the first one's. */
static void coalesce_end(desk_t *d)
{
    d->status = tutti_coalesce_begin(d->g);
    if (d->status == TUTTI_OK) {
        CALL(tutti_all_reduce(d->g, d->x, TUTTI_SUM, NULL));
    }
    if (d->status == TUTTI_OK) {
        d->status = tutti_all_reduce(d->g, d->all, TUTTI_SUM, NULL);
    }
    if (d->status == TUTTI_OK) {
        d->status = tutti_coalesce_end(d->g, NULL);
    }
}

static void broadcast_bytes(desk_t *d)
{
    CALL(tutti_broadcast_bytes(d->g, d->bytes[0], 0, d->got));
}

static void all_gather_bytes(desk_t *d)
{
    CALL(tutti_all_gather_bytes(d->g, d->bytes[0], d->got));
}

static void gather_bytes(desk_t *d)
{
    CALL(tutti_gather_bytes(d->g, d->bytes[0], 0, d->got));
}

static void scatter_bytes(desk_t *d)
{
    CALL(tutti_scatter_bytes(d->g, d->bytes, 0, d->got));
}

static void group_split(desk_t *d)
{
    tutti_group_t *out;
    CALL(tutti_group_split(d->g, 0, 0, &out));
}

static const case_t collectives[] = {
    {"all_reduce", all_reduce},
    {"all_reduce_with", all_reduce_with},
    {"all_reduce_contributions", all_reduce_contributions},
    {"reduce", reduce},
    {"scan", scan},
    {"exscan", exscan},
    {"scan_with", scan_with},
    {"exscan_with", exscan_with},
    {"reduce_with", reduce_with},
    {"reduce_scatter", reduce_scatter},
    {"reduce_scatter_with", reduce_scatter_with},
    {"reduce_scatter_uneven", reduce_scatter_uneven},
    {"reduce_scatter_list", reduce_scatter_list},
    {"reduce_scatter_contributions", reduce_scatter_contributions},
    {"reduce_scatter_contributions_uneven", reduce_scatter_contributions_uneven},
    {"broadcast", broadcast},
    {"all_gather", all_gather},
    {"all_gather_uneven", all_gather_uneven},
    {"all_gather_list", all_gather_list},
    {"gather", gather},
    {"gather_uneven", gather_uneven},
    {"gather_list", gather_list},
    {"scatter", scatter},
    {"scatter_uneven", scatter_uneven},
    {"scatter_list", scatter_list},
    {"all_to_all", all_to_all},
    {"all_to_all_uneven", all_to_all_uneven},
    {"all_to_all_list", all_to_all_list},
    {"barrier", barrier},
    {"coalesce_end", coalesce_end},
    {"broadcast_bytes", broadcast_bytes},
    {"all_gather_bytes", all_gather_bytes},
    {"gather_bytes", gather_bytes},
    {"scatter_bytes", scatter_bytes},
    {"group_split", group_split},
};

/* ---- messages ---- */

static void receive(desk_t *d)
{
    CALL(tutti_recv(d->g, d->x, 1, 5, NULL));
}

static void receive_several(desk_t *d)
{
    const tutti_transfer_t both[] = {d->recv, d->recv};
    CALL(tutti_batch_send_recv(d->g, both, 2, NULL));
}

static void receive_bytes(desk_t *d)
{
    CALL(tutti_recv_bytes(d->g, 1, 5, NULL, d->got));
}

static void probe(desk_t *d)
{
    tutti_message_info_t info;
    CALL(tutti_probe(d->g, 1, 5, &info));
}

static void send_large(desk_t *d)
{
    tutti_tensor_t *x;
    d->status = tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(1 << 22), &x);
    if (d->status < 0) {
        return;
    }
    CALL(tutti_send(d->g, x, 1, 5, NULL));
    tutti_tensor_release(x);
}

static void send_many_bytes(desk_t *d)
{
    const size_t bytes = (size_t)1 << 24;
    void *data = tt_alloc(bytes, "test");
    CALL(tutti_send_bytes(d->g, (tutti_bytes_t){data, bytes}, 1, 5));
    tt_free(data);
}

static const case_t messages[] = {
    {"recv", receive},    {"batch_send_recv", receive_several}, {"recv_bytes", receive_bytes},
    {"send", send_large}, {"send_bytes", send_many_bytes},      {"probe", probe},
};

/* ---- two ranks ---- */

/* What was logged, by both. */
typedef struct {
    _Atomic int count;
    char lines[LINES][LINE_BYTES];
} lines_t;

static lines_t kept;

static void keep_line(tt_log_level_t level, const char *line, void *user)
{
    lines_t *lines = user;
    const int at = atomic_fetch_add(&lines->count, level == TT_LOG_WARN);
    if (level == TT_LOG_WARN && at < LINES) {
        snprintf(lines->lines[at], LINE_BYTES, "%s", line);
    }
}

static void open_desk(tt_member_t *m, desk_t *d)
{
    *d = (desk_t){.g = m->group, .counts = {ROWS, ROWS}};
    TT_EXPECT(m, tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(ROWS), &d->x) == TUTTI_OK);
    TT_EXPECT(m, tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(RANKS * ROWS), &d->all) == TUTTI_OK);
    for (int i = 0; i < RANKS; i++) {
        d->bytes[i] = tutti_text("some");
        TT_EXPECT(m, tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(ROWS), &d->parts[i]) == TUTTI_OK);
        TT_EXPECT(m, tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(ROWS), &d->others[i]) == TUTTI_OK);
    }
    d->leaves = (tutti_contributions_t){
        .count = RANKS, .pieces = &d->x, .piece_count = 1, .dtype = TUTTI_F32};
    d->recv = (tutti_transfer_t){TUTTI_RECV, d->x, 1, 5};
}

static void close_desk(desk_t *d)
{
    tutti_tensor_release(d->x);
    tutti_tensor_release(d->all);
    for (int i = 0; i < RANKS; i++) {
        tutti_tensor_release(d->parts[i]);
        tutti_tensor_release(d->others[i]);
    }
}

/* What became of a rank. */
typedef struct {
    tutti_status_t status;
    int line;
    char error[1400];
} end_t;

static end_t ends[RANKS];

static void note_end(const tt_member_t *m, const desk_t *d)
{
    ends[m->rank] = (end_t){.status = d->status, .line = d->line};
    snprintf(ends[m->rank].error, sizeof ends[m->rank].error, "%s", tutti_last_error());
}

static bool says(const char *text, const char *before, int line)
{
    char place[64];
    snprintf(place, sizeof place, "%scollective_site_test.c:%d", before, line);
    const char *found = strstr(text, place);
    return found != NULL && !isdigit((unsigned char)found[strlen(place)]);
}

static void run_case(const case_t *at, int64_t timeout_ms, void (*body)(tt_member_t *m))
{
    memset(&kept, 0, sizeof kept);
    union {
        const case_t *read_only;
        void *user;
    } user = {at};
    tt_log_set_sink(keep_line, &kept);
    const tt_team_result_t result = tt_team_run(RANKS, timeout_ms, body, user.user);
    tt_log_set_sink(NULL, NULL);
    if (result.text[0] != 0) {
        fail_msg("%s: %s", at->name, result.text);
    }
}

/* Rank 0 makes the call, rank 1 another one. */
static void disagree(tt_member_t *m)
{
    const case_t *at = m->user;
    desk_t desk;
    open_desk(m, &desk);
    if (m->rank == 0) {
        at->call(&desk);
    } else if (at->call == barrier) {
        all_reduce(&desk);
    } else {
        barrier(&desk);
    }
    note_end(m, &desk);
    close_desk(&desk);
}

static bool names_both(const char *error)
{
    return says(error, "rank 0 at ", ends[0].line) && says(error, "rank 1 at ", ends[1].line);
}

static void a_mismatch_names_the_lines_of_both_calls(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof collectives / sizeof collectives[0]; i++) {
        run_case(&collectives[i], TIMEOUT_MS, disagree);
        for (int rank = 0; rank < RANKS; rank++) {
            const end_t *end = &ends[rank];
            /* who hears of it before it has looked itself says only that */
            const bool has_peer_reason = strstr(end->error, "gave the group up") != NULL;
            if (end->status != TUTTI_ERR_MISMATCH ||
                (!names_both(end->error) &&
                 !(has_peer_reason && names_both(ends[1 - rank].error)))) {
                fail_msg("%s at line %d, rank %d: %s", collectives[i].name, ends[0].line, rank,
                         end->error);
            }
        }
    }
}

/* Rank 0 waits for a message, or for it to be taken, until rank 1 has seen the report. */
static void wait_in_vain(tt_member_t *m)
{
    const case_t *at = m->user;
    const tt_deadline_t deadline = tt_deadline_in_ms(TIMEOUT_MS);
    desk_t desk;
    open_desk(m, &desk);
    if (m->rank == 0) {
        at->call(&desk);
    } else {
        while (atomic_load(&kept.count) == 0 && !tt_deadline_is_past(deadline)) {
            usleep(1000);
        }
        tutti_group_abort(m->group);
    }
    note_end(m, &desk);
    close_desk(&desk);
}

static void a_report_names_the_line_of_a_message(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof messages / sizeof messages[0]; i++) {
        run_case(&messages[i], TIMEOUT_MS, wait_in_vain);
        bool is_named = false;
        for (int line = 0; line < kept.count && line < LINES; line++) {
            is_named = is_named || says(kept.lines[line], "of group world (", ends[0].line);
        }
        if (ends[0].status >= 0 || !is_named) {
            fail_msg("%s at line %d: %s; logged: %s", messages[i].name, ends[0].line, ends[0].error,
                     kept.lines[0]);
        }
    }
}

/* ---- all of them ---- */

/* Calls that nobody waits in for long. */
static const char *const others[] = {
    "coalesce_begin",    /* waits for nobody */
    "iprobe",            /* the same */
    "monitored_barrier", /* goes through the store, and ends by itself */
};

static bool has_case(const char *name, size_t length)
{
    bool found = false;
    for (size_t i = 0; i < sizeof collectives / sizeof collectives[0]; i++) {
        found = found || (strlen(collectives[i].name) == length &&
                          memcmp(collectives[i].name, name, length) == 0);
    }
    for (size_t i = 0; i < sizeof messages / sizeof messages[0]; i++) {
        found = found ||
                (strlen(messages[i].name) == length && memcmp(messages[i].name, name, length) == 0);
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        found = found || (strlen(others[i]) == length && memcmp(others[i], name, length) == 0);
    }
    return found;
}

/* Names in "TUTTI_API tutti_status_t tutti_NAME(". Returns how many there are. */
static int walk_header(const char *path)
{
    static char text[1 << 16];
    static const char start[] = "TUTTI_API tutti_status_t tutti_";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    const size_t bytes = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    assert_true(bytes < sizeof text - 1);
    text[bytes] = 0;
    int count = 0;
    for (const char *at = strstr(text, start); at != NULL; at = strstr(at, start)) {
        at += sizeof start - 1;
        const size_t length = strcspn(at, "(");
        if (!has_case(at, length)) {
            fail_msg("%s: tutti_%.*s has no case here", path, (int)length, at);
        }
        count++;
    }
    return count;
}

static void no_public_call_is_forgotten(void **state)
{
    (void)state;
    const int cases = (int)(sizeof collectives / sizeof collectives[0]) +
                      (int)(sizeof messages / sizeof messages[0]) - 1; /* but for group_split */
    const int count = walk_header(TUTTI_SOURCE_DIR "/include/tutti/collectives.h") +
                      walk_header(TUTTI_SOURCE_DIR "/include/tutti/messages.h") +
                      walk_header(TUTTI_SOURCE_DIR "/include/tutti/objects.h");
    assert_int_equal(count, cases + (int)(sizeof others / sizeof others[0]));
}

int main(void)
{
    char report_ms[16];
    snprintf(report_ms, sizeof report_ms, "%d", REPORT_MS);
    setenv("TUTTI_REPORT_MS", report_ms, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mismatch_names_the_lines_of_both_calls),
        cmocka_unit_test(a_report_names_the_line_of_a_message),
        cmocka_unit_test(no_public_call_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, tt_nothing_is_left);
}
