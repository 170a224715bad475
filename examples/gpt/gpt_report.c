/* Progress on the terminal, a line of JSON per step in the log, and the summary. Rank 0 only. */
#include "gpt.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct report {
    FILE *log; /* NULL: none */
    const char *log_path;
    tutti_metrics_t *metrics; /* NULL: none */
    tutti_progress_t *line;
    double val_loss; /* the newest; negative: none yet */
};

tutti_status_t report_open(const session_t *session, bool is_continued, int64_t step,
                           report_t **out)
{
    report_t *report = calloc(1, sizeof *report);
    if (report == NULL) {
        return TUTTI_ERR_NOMEM;
    }
    report->val_loss = -1;
    report->log_path = session->settings.log;
    if (session->rank == 0 && report->log_path != NULL) {
        report->log = fopen(session->settings.log, is_continued ? "a" : "w");
        if (report->log == NULL) {
            fprintf(stderr, "gpt: cannot write %s: %s\n", session->settings.log, strerror(errno));
            free(report);
            return TUTTI_ERR_IO;
        }
    }
    *out = report;
    TUTTI_CHECK(tutti_progress_open(&(tutti_progress_options_t){.is_silent = session->rank != 0},
                                    &report->line));
    return session->rank == 0
               ? metrics_begin(session->settings.metrics, session->command, session->ranks,
                               session->settings.resume, step, &report->metrics)
               : TUTTI_OK;
}

/* A failure is told when they are closed: nothing of them may stop a training. */
static void tell_step(tutti_metrics_t *metrics, const progress_t *p)
{
    (void)tutti_metrics_scalar(metrics, "loss/train", p->step, p->loss);
    (void)tutti_metrics_scalar(metrics, "speed/tokens_per_second", p->step, p->tokens_per_second);
    (void)tutti_metrics_scalar(metrics, "lr", p->step, p->lr);
}

/* A number as JSON has it, which knows no NaN. */
static const char *as_json(double value, char text[32])
{
    if (!isfinite(value)) {
        return "null";
    }
    snprintf(text, 32, "%.6f", value);
    return text;
}

void report_step(report_t *report, const progress_t *p)
{
    char loss[32];
    if (report->log != NULL) {
        fprintf(report->log,
                "{\"step\":%lld,\"loss\":%s,\"lr\":%.6g,\"seconds\":%.3f,"
                "\"tokens_per_second\":%.1f}\n",
                (long long)p->step, as_json(p->loss, loss), p->lr, p->seconds,
                p->tokens_per_second);
    }
    if (report->metrics != NULL) {
        tell_step(report->metrics, p);
    }
    char validation[48] = "";
    if (report->val_loss >= 0) {
        snprintf(validation, sizeof validation, "  val %.4f", report->val_loss);
    }
    tutti_progress_show(report->line, p->seconds_left,
                        "step %lld  loss %.4f%s  lr %.2e  %.0f tokens/s", (long long)p->step,
                        p->loss, validation, p->lr, p->tokens_per_second);
}

void report_validation(report_t *report, int64_t step, double seconds, double loss)
{
    report->val_loss = loss;
    if (report->metrics != NULL) {
        (void)tutti_metrics_scalar(report->metrics, "loss/validation", step, loss);
    }
    if (report->log != NULL) {
        char text[32];
        fprintf(report->log, "{\"step\":%lld,\"seconds\":%.3f,\"val_loss\":%s}\n", (long long)step,
                seconds, as_json(loss, text));
    }
}

static tutti_status_t close_file(FILE *file, const char *path)
{
    const bool was_written = ferror(file) == 0;
    if (fclose(file) == 0 && was_written) {
        return TUTTI_OK;
    }
    fprintf(stderr, "gpt: cannot write all of %s: %s\n", path, strerror(errno));
    return TUTTI_ERR_IO;
}

void report_digest(report_t *report, int64_t step, const char *digest)
{
    if (report->metrics != NULL) {
        (void)tutti_metrics_text(report->metrics, "digest", step, digest);
    }
}

tutti_status_t report_close(report_t *report)
{
    if (report == NULL) {
        return TUTTI_OK;
    }
    if (tutti_progress_close(report->line) < 0) {
        fprintf(stderr, "gpt: %s\n", tutti_last_error());
    }
    const tutti_status_t told = tutti_metrics_close(report->metrics);
    if (told < 0) {
        fprintf(stderr, "gpt: %s\n", tutti_last_error());
    }
    const tutti_status_t status =
        report->log == NULL ? told : close_file(report->log, report->log_path);
    free(report);
    return status < 0 ? status : told;
}

tutti_status_t report_summary(const session_t *session, const summary_t *summary)
{
    char train[32], validation[32];
    const settings_t *settings = &session->settings;
    FILE *file = fopen(settings->summary, "w");
    if (file == NULL) {
        fprintf(stderr, "gpt: cannot write %s: %s\n", settings->summary, strerror(errno));
        return TUTTI_ERR_IO;
    }
    fprintf(file,
            "{\"ranks\":%d,\"steps\":%lld,\"seconds\":%.2f,\"tokens_per_second\":%.1f,"
            "\"train_loss\":%s,\"val_loss\":%s,\"digest\":\"%s\",\"checkpoint\":\"%s\"}\n",
            session->ranks, (long long)summary->steps, summary->seconds, summary->tokens_per_second,
            as_json(summary->train_loss, train), as_json(summary->val_loss, validation),
            summary->digest, settings->save == NULL ? "" : settings->save);
    return close_file(file, settings->summary);
}
