/* Letters and lines between launchers: one table says which options travel. */
#include "runtime/elastic/ssh_job.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/alloc.h"
#include "core/base/reals.h"

typedef enum { INT, LONG, BOOL, TEXT } kind_t;

#define FIELD(kind, label, name)                                                                   \
    {                                                                                              \
        label, kind, offsetof(tt_ssh_job_t, name)                                                  \
    }

static const struct {
    const char *label;
    kind_t kind;
    size_t offset;
} fields[] = {FIELD(TEXT, "name", name),
              FIELD(TEXT, "folder", options.folder),
              FIELD(TEXT, "host", options.master_host),
              FIELD(TEXT, "run_id", options.run_id),
              FIELD(TEXT, "log_dir", options.log_dir),
              FIELD(INT, "port", options.master_port),
              FIELD(INT, "ranks", options.rank_count),
              FIELD(INT, "nodes", options.node_count),
              FIELD(INT, "node", options.node_rank),
              FIELD(INT, "restarts", options.max_restarts),
              FIELD(LONG, "join_ms", options.join_timeout_ms),
              FIELD(LONG, "grace_ms", options.grace_ms),
              FIELD(BOOL, "plain", options.is_plain)};

enum { FIELDS = sizeof fields / sizeof fields[0] };

/* ---- packing --------------------------------------------------------------------------------- */

typedef struct {
    char *text;
    size_t bytes, room;
    bool has_failed;
} letter_t;

static void add(letter_t *letter, const char *data, size_t bytes)
{
    if (!letter->has_failed && letter->bytes + bytes > letter->room) {
        const size_t room = 2 * letter->room + bytes;
        char *text = tt_realloc(letter->text, room, "letter to a host");
        letter->has_failed = text == NULL;
        letter->text = text != NULL ? text : letter->text;
        letter->room = text != NULL ? room : letter->room;
    }
    if (!letter->has_failed) {
        memcpy(letter->text + letter->bytes, data, bytes);
        letter->bytes += bytes;
    }
}

static void add_text(letter_t *letter, const char *label, const char *value)
{
    add(letter, label, strlen(label));
    add(letter, "=", 1);
    add(letter, value, strlen(value) + 1);
}

static void add_field(letter_t *letter, int index, const tt_ssh_job_t *job)
{
    const void *field = (const char *)job + fields[index].offset;
    const char *text = fields[index].kind == TEXT ? *(const char *const *)field : NULL;
    char number[24] = "";
    if (fields[index].kind == INT) {
        snprintf(number, sizeof number, "%d", *(const int *)field);
    } else if (fields[index].kind == LONG) {
        snprintf(number, sizeof number, "%" PRId64, *(const int64_t *)field);
    } else if (fields[index].kind == BOOL) {
        snprintf(number, sizeof number, "%d", *(const bool *)field);
    }
    if (text != NULL || fields[index].kind != TEXT) {
        add_text(letter, fields[index].label, text != NULL ? text : number);
    }
}

static void add_list(letter_t *letter, const char *label, const char *const *list)
{
    for (size_t i = 0; list != NULL && list[i] != NULL; i++) {
        add_text(letter, label, list[i]);
    }
}

/* A digit for each rank. */
static void add_streams(letter_t *letter, const char *label, const uint8_t *streams, int count)
{
    for (int i = 0; streams != NULL && i < count; i++) {
        if (i == 0) {
            add(letter, label, strlen(label));
        }
        add(letter, &"0123"[streams[i] & 3], 1);
    }
    add(letter, "", streams != NULL);
}

tutti_status_t tt_ssh_job_pack(const tt_ssh_job_t *job, char **out, size_t *bytes)
{
    enum { HEAD = 24 };
    char key[TT_JOB_KEY_TEXT_BYTES], head[HEAD + 1];
    letter_t letter = {0};
    snprintf(head, sizeof head, "%*s", HEAD, "");
    add(&letter, head, HEAD);
    for (int i = 0; i < FIELDS; i++) {
        add_field(&letter, i, job);
    }
    add_streams(&letter, "redirects=", job->options.redirects, job->options.rank_count);
    add_streams(&letter, "tees=", job->options.tees, job->options.rank_count);
    add_list(&letter, "set", job->settings);
    add_list(&letter, "env", job->options.environment);
    add_list(&letter, "arg", job->options.command);
    tt_job_key_print(&job->key, key);
    add_text(&letter, "key", key);
    explicit_bzero(key, sizeof key);
    if (letter.has_failed) {
        tt_free(letter.text);
        return TUTTI_ERR_NOMEM;
    }
    snprintf(head, sizeof head, "tutti %*zu\n", HEAD - 7, letter.bytes - HEAD);
    memcpy(letter.text, head, HEAD);
    *out = letter.text;
    *bytes = letter.bytes;
    return TUTTI_OK;
}

/* ---- unpacking ------------------------------------------------------------------------------- */

typedef struct {
    tt_ssh_job_t *job;
    const char **settings, **environment, **command;
    size_t settings_count, environment_count, command_count;
    uint8_t *redirects, *tees;
    size_t redirect_count, tee_count;
    bool has_key;
} unpacker_t;

static bool take_field(const char *label, char *value, tt_ssh_job_t *job)
{
    for (int i = 0; i < FIELDS; i++) {
        void *field = (char *)job + fields[i].offset;
        if (strcmp(label, fields[i].label) != 0) {
            continue;
        }
        const long long number = fields[i].kind == TEXT ? 0 : strtoll(value, NULL, 10);
        if (fields[i].kind == TEXT) {
            *(const char **)field = value;
        } else if (fields[i].kind == INT) {
            *(int *)field = (int)number;
        } else if (fields[i].kind == LONG) {
            *(int64_t *)field = number;
        } else {
            *(bool *)field = number != 0;
        }
        return true;
    }
    return false;
}

/* In place. */
static uint8_t *take_streams(char *digits)
{
    for (char *at = digits; *at != 0; at++) {
        *at = (char)(*at & 3);
    }
    return (uint8_t *)digits;
}

static tutti_status_t take(unpacker_t *to, const char *label, char *value)
{
    if (strcmp(label, "set") == 0) {
        to->settings[to->settings_count++] = value;
    } else if (strcmp(label, "env") == 0) {
        to->environment[to->environment_count++] = value;
    } else if (strcmp(label, "arg") == 0) {
        to->command[to->command_count++] = value;
    } else if (strcmp(label, "redirects") == 0) {
        to->redirect_count = strlen(value);
        to->redirects = take_streams(value);
    } else if (strcmp(label, "tees") == 0) {
        to->tee_count = strlen(value);
        to->tees = take_streams(value);
    } else if (strcmp(label, "key") == 0) {
        to->has_key = true;
        return tt_job_key_parse(value, (ssize_t)strlen(value), "of the job", &to->job->key);
    } else if (!take_field(label, value, to->job)) {
        return TT_FAIL(TUTTI_ERR_FORMAT,
                       "a job with \"%.40s\", which is not known here: the tutti "
                       "that starts it is another version",
                       label);
    }
    return TUTTI_OK;
}

static size_t count_ends(const char *text, size_t bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) {
        count += text[i] == 0;
    }
    return count;
}

static tutti_status_t take_all(unpacker_t *to, char *text, size_t bytes)
{
    for (char *at = text, *end = text + bytes; at < end;) {
        char *next = at + strlen(at) + 1, *equals = strchr(at, '=');
        if (equals == NULL) {
            return TT_FAIL(TUTTI_ERR_FORMAT, "a job that cannot be read: \"%.40s\"", at);
        }
        *equals = 0;
        TT_TRY(take(to, at, equals + 1));
        at = next;
    }
    return TUTTI_OK;
}

/* What is read later without a look at how much there is. */
static tutti_status_t check_whole(const unpacker_t *to)
{
    const size_t ranks = to->job->options.rank_count > 0 ? (size_t)to->job->options.rank_count : 0;
    if (!to->has_key) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "a job without a key");
    }
    if ((to->redirects != NULL && to->redirect_count != ranks) ||
        (to->tees != NULL && to->tee_count != ranks)) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "a job of %zu ranks with the streams of others", ranks);
    }
    return TUTTI_OK;
}

tutti_status_t tt_ssh_job_unpack(char *text, size_t bytes, tt_ssh_job_t *out, void **memory)
{
    if (bytes == 0 || text[bytes - 1] != 0) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "a job of %zu bytes that is cut off", bytes);
    }
    const size_t room = count_ends(text, bytes) + 1;
    const char **lists = tt_alloc_array(3 * room, sizeof *lists, "job");
    TT_TRY_ALLOC(lists);
    *out = (tt_ssh_job_t){.name = ""};
    unpacker_t to = {
        .job = out, .settings = lists, .environment = lists + room, .command = lists + 2 * room};
    tutti_status_t status = take_all(&to, text, bytes);
    status = status < 0 ? status : check_whole(&to);
    if (status < 0) {
        tt_free(lists);
        return status;
    }
    out->settings = to.settings;
    out->options.environment = to.environment;
    out->options.command = to.command;
    out->options.redirects = to.redirects;
    out->options.tees = to.tees;
    *memory = lists;
    return TUTTI_OK;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Whole; when nobody reads it there is nobody to tell. */
static void say_text(const char *text, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = write(STDOUT_FILENO, text + done, bytes - done);
        if (n <= 0) {
            return;
        }
        done += (size_t)n;
    }
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    const int n = tt_format_list(text, sizeof text, format, args);
    va_end(args);
    const size_t bytes = n < (int)sizeof text - 1 ? (size_t)n : sizeof text - 2;
    for (size_t i = 0; i < bytes; i++) {
        text[i] = text[i] == '\n' ? ' ' : text[i];
    }
    text[bytes] = '\n';
    say_text(text, bytes + 1);
}

void tt_ssh_say_hello(void)
{
    say_text("\n" TT_SSH_HELLO "\n", sizeof TT_SSH_HELLO + 1);
}

void tt_ssh_say_address(const char *host, int port)
{
    say("a%s %d", host, port);
}

static void say_tail(const char *tail)
{
    for (const char *line = tail; *line != 0;) {
        const size_t bytes = strcspn(line, "\n");
        say_text("t", 1);
        say_text(line, bytes);
        say_text("\n", 1);
        line += bytes + (line[bytes] != 0);
    }
}

void tt_ssh_say_end(tutti_status_t status, const tutti_launch_report_t *report)
{
    if (status < 0) {
        say("v%s", tutti_last_error());
        say("r%d 1 -1 -1 0 0", (int)status);
        return;
    }
    if (report->log_dir[0] != 0) {
        say("d%s", report->log_dir);
    }
    say_tail(report->stderr_tail);
    say("v%s", report->verdict);
    say("r0 %d %d %d %d %d", report->exit_code, report->failed_rank, report->failed_node,
        report->stop_signal, report->restart_count);
}

static void add_tail(tutti_launch_report_t *report, const char *line)
{
    const size_t used = strlen(report->stderr_tail);
    if (used + strlen(line) + 2 <= sizeof report->stderr_tail) {
        snprintf(report->stderr_tail + used, sizeof report->stderr_tail - used, "%s\n", line);
    }
}

bool tt_ssh_hear_end(const char *line, tutti_launch_report_t *report, tutti_status_t *status)
{
    int code = 0;
    if (line[0] == 'd') {
        snprintf(report->log_dir, sizeof report->log_dir, "%s", line + 1);
    } else if (line[0] == 't') {
        add_tail(report, line + 1);
    } else if (line[0] == 'v') {
        snprintf(report->verdict, sizeof report->verdict, "%s", line + 1);
    }
    if (line[0] != 'r' ||
        sscanf(line + 1, "%9d %9d %9d %9d %9d %9d", &code, &report->exit_code, &report->failed_rank,
               &report->failed_node, &report->stop_signal, &report->restart_count) != 6) {
        return false;
    }
    *status = (tutti_status_t)code;
    return true;
}
