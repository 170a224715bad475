/* What a launcher and the launchers that it has started on other hosts say to each other, over the
 * standard streams of ssh: `tutti run --hosts` here, `tutti run --agent` there.
 *
 *     to a host      when it has said hello: "tutti BYTES\n", and so many bytes of "name=value",
 *                    each ended by a 0 byte: its part of the job, with the job's key. Then numbers
 *                    of signals, one byte each. The end of the stream ends the job there.
 *     from a host    lines, of which the first character says what they are:
 *
 *         tutti host 1      hello; what stands before it is the host's shell's
 *         aADDRESS PORT     of node 0: where its store listens
 *         oTEXT, eTEXT      what ranks printed on stdout and stderr, and notes
 *         dFOLDER           of its logs
 *         tTEXT             a last line of the failed rank's stderr
 *         vTEXT             the verdict, or why it could not start
 *         rSTATUS CODE RANK NODE SIGNAL RESTARTS
 *                           how it ended; nothing follows
 *
 * Nothing of the job is in the arguments or in the environment of any process: `ps` shows neither
 * key nor variables, and no shell reads the ranks' arguments.
 */
#ifndef TT_SSH_JOB_H
#define TT_SSH_JOB_H

#include <tutti/launch.h>

#include "comm/net/job_key.h"

/* Without its new line. The number is the protocol's. */
#define TT_SSH_HELLO "tutti host 1"

enum { TT_SSH_LETTER_BYTES_MAX = 1 << 24 };

/* A job as it is sent and received. */
typedef struct {
    tutti_launch_options_t options;
    tt_job_key_t key;
    const char *name;            /* of the host, as the launcher calls it */
    const char *const *settings; /* "NAME=value" for the launcher there, ended by NULL */
} tt_ssh_job_t;

/* The letter to a host, with its head; *out is freed with tt_free(). */
tutti_status_t tt_ssh_job_pack(const tt_ssh_job_t *job, char **out, size_t *bytes);

/* text: what stands behind the head; it is changed, and the job points into it. *memory is freed
 * with tt_free() after the job. */
tutti_status_t tt_ssh_job_unpack(char *text, size_t bytes, tt_ssh_job_t *out, void **memory);

/* From a host. Each writes one line, or a few, to stdout. */
void tt_ssh_say_hello(void);
void tt_ssh_say_address(const char *host, int port);
void tt_ssh_say_end(tutti_status_t status, const tutti_launch_report_t *report);

/* One of the lines behind 'd', 't', 'v' and 'r', which stands in `line` with its mark, goes into
 * the report. True: it was the last, and *status is how tutti_launch() ended there. */
bool tt_ssh_hear_end(const char *line, tutti_launch_report_t *report, tutti_status_t *status);

#endif
