/* Progress on the terminal, a line of JSON per step and test in the log, and the last line. */
#include "fashion.h"

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
};

tutti_status_t report_open(const session_t *session, int64_t step, report_t **out)
{
    report_t *report = calloc(1, sizeof *report);
    if (report == NULL) {
        return TUTTI_ERR_NOMEM;
    }
    report->log_path = session->settings.log;
    const char *mode = step > 0 ? "a" : "w";
    if (report->log_path != NULL && (report->log = fopen(report->log_path, mode)) == NULL) {
        fprintf(stderr, "fashion: cannot write %s: %s\n", report->log_path, strerror(errno));
        free(report);
        return TUTTI_ERR_IO;
    }
    *out = report;
    TUTTI_CHECK(tutti_progress_open(NULL, &report->line));
    return metrics_begin(session->settings.metrics, session->command, session->ranks,
                         session->settings.resume, step, &report->metrics);
}

void report_step(report_t *report, const progress_t *p)
{
    char loss[32] = "null"; /* JSON knows no NaN */
    if (isfinite(p->loss)) {
        snprintf(loss, sizeof loss, "%.6f", p->loss);
    }
    if (report->log != NULL) {
        fprintf(report->log,
                "{\"epoch\":%lld,\"step\":%lld,\"loss\":%s,\"lr\":%.6g,\"seconds\":%.6f,"
                "\"samples_per_second\":%.1f}\n",
                (long long)p->epoch, (long long)p->step, loss, p->lr, p->seconds,
                p->samples_per_second);
    }
    if (report->metrics != NULL) { /* a failure is told when they are closed */
        (void)tutti_metrics_scalar(report->metrics, "loss/train", p->step, p->loss);
        (void)tutti_metrics_scalar(report->metrics, "speed/samples_per_second", p->step,
                                   p->samples_per_second);
        (void)tutti_metrics_scalar(report->metrics, "lr", p->step, p->lr);
    }
    tutti_progress_show(report->line, p->seconds_left,
                        "epoch %lld/%lld  step %lld/%lld  loss %.4f  lr %.2e  %.0f samples/s",
                        (long long)p->epoch + 1, (long long)p->epochs, (long long)p->step,
                        (long long)p->steps, p->loss, p->lr, p->samples_per_second);
}

void report_test(report_t *report, const progress_t *p, double accuracy)
{
    if (report->log != NULL) {
        fprintf(report->log, "{\"epoch\":%lld,\"step\":%lld,\"test_accuracy\":%.4f}\n",
                (long long)p->epoch, (long long)p->step, accuracy);
    }
    if (report->metrics != NULL) {
        (void)tutti_metrics_scalar(report->metrics, "accuracy/test", p->step, accuracy);
    }
    tutti_progress_print(report->line, "epoch %lld/%lld  loss %.4f  test accuracy %.2f %%",
                         (long long)p->epoch + 1, (long long)p->epochs, p->loss, 100 * accuracy);
}

void report_digest(report_t *report, int64_t step, const char *digest)
{
    if (report->metrics != NULL) {
        (void)tutti_metrics_text(report->metrics, "digest", step, digest);
    }
}

tutti_status_t report_close(report_t *report)
{
    bool is_whole = true;
    if (report == NULL) {
        return TUTTI_OK;
    }
    if (report->log != NULL) {
        is_whole = ferror(report->log) == 0;
        is_whole = fclose(report->log) == 0 && is_whole;
    }
    if (!is_whole) {
        fprintf(stderr, "fashion: cannot write all of %s: %s\n", report->log_path, strerror(errno));
    }
    if (tutti_progress_close(report->line) < 0) {
        fprintf(stderr, "fashion: %s\n", tutti_last_error());
    }
    const tutti_status_t told = tutti_metrics_close(report->metrics);
    if (told < 0) {
        fprintf(stderr, "fashion: %s\n", tutti_last_error());
    }
    free(report);
    return is_whole ? told : TUTTI_ERR_IO;
}

void report_result(const result_t *result, const char *digest)
{
    printf("{\"test_accuracy\":%.4f,\"seconds\":%.2f,\"samples_per_second\":%.1f,"
           "\"digest\":\"%s\"}\n",
           result->accuracy, result->seconds, result->samples_per_second, digest);
}
