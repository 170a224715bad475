/* Reading the tuning file. Lines are `RANKS WIRE RULE`, with blanks between; # begins a comment
 * line. Other programs do not write it, and nothing in it can do harm: a rule names an algorithm,
 * and one that does not fit a call is passed over.
 */
#include "comm/algorithm/tuning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/algorithm/rules.h"
#include "core/base/alloc.h"
#include "core/base/config.h"
#include "core/base/file.h"
#include "core/base/log.h"

static const char blanks[] = " \t\r";

/* A word in a line: up to a blank. */
static size_t word_bytes(const char *text)
{
    return strcspn(text, " \t\r\n");
}

static const char *behind(const char *text, size_t bytes)
{
    return text + bytes + strspn(text + bytes, blanks);
}

/* Whether tt_coll_wires() may say it: a typing error would be a rule that is never used. */
static bool is_wire(const char *word, size_t bytes)
{
    static const char *const wires[] = {"self", "shm", "tcp", "shm+tcp"};
    for (size_t i = 0; i < sizeof wires / sizeof wires[0]; i++) {
        if (bytes == strlen(wires[i]) && memcmp(word, wires[i], bytes) == 0) {
            return true;
        }
    }
    return false;
}

static tutti_status_t read_line(const char *line, tt_tuning_line_t *out)
{
    char *end;
    const long ranks = strtol(line, &end, 10);
    out->ranks = (int)ranks;
    out->wire = behind(end, 0);
    out->wire_bytes = word_bytes(out->wire);
    out->rule = behind(out->wire, out->wire_bytes);
    out->rule_bytes = word_bytes(out->rule);
    out->collective = out->rule;
    const char *colon = memchr(out->rule, ':', out->rule_bytes);
    out->collective_bytes = colon != NULL ? (size_t)(colon - out->rule) : 0;
    const char *rest = behind(out->rule, out->rule_bytes);
    if (*line < '0' || *line > '9' || ranks < 1 || ranks > 1 << 20 || out->wire_bytes == 0 ||
        out->rule_bytes == 0 || (*rest != '\n' && *rest != 0)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "\"%.*s\" is no line RANKS WIRE RULE, such as: 2 shm all_reduce:0-4k:flag",
                       (int)strcspn(line, "\n"), line);
    }
    return is_wire(out->wire, out->wire_bytes)
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "\"%.*s\": wire \"%.*s\"; want self, shm, tcp or shm+tcp",
                         (int)strcspn(line, "\n"), line, (int)out->wire_bytes, out->wire);
}

tutti_status_t tt_tuning_next(const char **at, tt_tuning_line_t *out)
{
    while (**at != 0) {
        const char *line = behind(*at, 0);
        const size_t bytes = strcspn(line, "\n");
        *at = line + bytes + (line[bytes] == '\n');
        if (*line != '#' && bytes > 0) {
            return read_line(line, out);
        }
    }
    return TUTTI_END;
}

tutti_status_t tt_tuning_path(char path[TT_TUNING_PATH_BYTES], bool *is_asked)
{
    const char *asked = tt_config_text(TT_CONFIG_TUNE);
    const char *settings = tt_config_text(TT_CONFIG_CONFIG_HOME);
    const char *home = tt_config_text(TT_CONFIG_HOME);
    int bytes;
    if (is_asked != NULL) {
        *is_asked = *asked != 0;
    }
    if (*asked != 0) {
        bytes = snprintf(path, TT_TUNING_PATH_BYTES, "%s", asked);
    } else if (*settings != 0) {
        bytes = snprintf(path, TT_TUNING_PATH_BYTES, "%s/tutti/tune", settings);
    } else {
        bytes = snprintf(path, TT_TUNING_PATH_BYTES, "%s/.config/tutti/tune", home);
    }
    if (strcmp(asked, "off") == 0 || (*asked == 0 && *settings == 0 && *home == 0)) {
        return TT_FAIL(TUTTI_ERR_NOT_FOUND,
                       "no tuning file: set TUTTI_TUNE to one (now \"%s\"), or HOME", asked);
    }
    return bytes < TT_TUNING_PATH_BYTES
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "the tuning file's path has %d bytes; want less than %d",
                         bytes, TT_TUNING_PATH_BYTES);
}

tutti_status_t tt_tuning_read(const char *path, char **out)
{
    if (access(path, F_OK) != 0) {
        *out = tt_strdup("", "tuning file");
        return *out != NULL ? TUTTI_OK : TUTTI_ERR_NOMEM;
    }
    tt_file_t file;
    TT_TRY(tt_file_open(path, &file));
    tutti_status_t status = TUTTI_OK;
    char *text = NULL;
    if (file.bytes > TT_TUNING_FILE_BYTES_MAX) {
        status = TT_FAIL(TUTTI_ERR_ARG, "tuning file %s has %llu bytes; want at most %d", path,
                         (unsigned long long)file.bytes, TT_TUNING_FILE_BYTES_MAX);
    } else {
        text = tt_alloc(file.bytes + 1, "tuning file");
        status = text == NULL ? TUTTI_ERR_NOMEM : tt_file_read_at(&file, 0, text, file.bytes);
    }
    tt_file_close(&file);
    if (status < 0) {
        tt_free(text);
        return status;
    }
    *out = text;
    return TUTTI_OK;
}

static bool is_for(const tt_tuning_line_t *line, int ranks, const char *wire)
{
    return line->ranks == ranks && line->wire_bytes == strlen(wire) &&
           memcmp(line->wire, wire, line->wire_bytes) == 0;
}

/* Rules with commas between. */
static tutti_status_t gather_rules(const char *text, int ranks, const char *wire,
                                   char rules[TT_TUNING_BYTES])
{
    size_t length = 0;
    tt_tuning_line_t line;
    tutti_status_t status;
    rules[0] = 0;
    while ((status = tt_tuning_next(&text, &line)) == TUTTI_OK) {
        if (!is_for(&line, ranks, wire)) {
            continue;
        }
        if (length + line.rule_bytes + 2 > TT_TUNING_BYTES) {
            return TT_FAIL(TUTTI_ERR_ARG, "more than %d bytes of rules for %d ranks over %s",
                           TT_TUNING_BYTES, ranks, wire);
        }
        rules[length] = ',';
        length += length > 0;
        memcpy(rules + length, line.rule, line.rule_bytes);
        length += line.rule_bytes;
        rules[length] = 0;
    }
    return status < 0 ? status : TUTTI_OK;
}

static tutti_status_t check_rules(const char *rules)
{
    tt_coll_rules_t parsed = {0};
    return tt_coll_rules_add(&parsed, rules, "");
}

static tutti_status_t load(const char *path, int ranks, const char *wire,
                           char rules[TT_TUNING_BYTES])
{
    char *text;
    TT_TRY(tt_tuning_read(path, &text));
    tutti_status_t status = gather_rules(text, ranks, wire, rules);
    tt_free(text);
    if (status >= 0) {
        status = check_rules(rules);
    }
    return status;
}

tutti_status_t tt_tuning_load(int ranks, const char *wire, char rules[TT_TUNING_BYTES])
{
    char path[TT_TUNING_PATH_BYTES];
    bool is_asked;
    memset(rules, 0, TT_TUNING_BYTES);
    if (tt_tuning_path(path, &is_asked) < 0) {
        return TUTTI_OK;
    }
    if (is_asked && access(path, R_OK) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "TUTTI_TUNE=%s", path);
    }
    const tutti_status_t status = load(path, ranks, wire, rules);
    if (status >= 0 || status == TUTTI_ERR_NOMEM) {
        return status;
    }
    memset(rules, 0, TT_TUNING_BYTES);
    char text[TT_ERROR_TEXT_BYTES / 2];
    snprintf(text, sizeof text, "%s", tutti_last_error());
    if (is_asked) {
        return TT_FAIL(status, "tuning file %s: %s", path, text);
    }
    tt_log(TT_LOG_WARN,
           "tuning file %s is left aside: %s; make a new one with `tutti bench --tune`", path,
           text);
    return TUTTI_OK;
}
