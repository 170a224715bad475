/* The last calls of groups as JSON, whatever engine has carried them out. docs/formats/dump.md has
 * the fields.
 *
 *     tt_dump_t dump = tt_dump_begin(rank);
 *     tt_dump_add(&dump, &world);
 *     tt_dump_add(&dump, &part);
 *     status = tt_dump_end(&dump, path);
 */
#ifndef TT_DUMP_H
#define TT_DUMP_H

#include "comm/exec/call_text.h"

typedef struct {
    struct json_t *groups;
    tt_sites_t *sites;
    int rank; /* in the world */
} tt_dump_t;

/* What one rank sees of another. */
typedef struct {
    int64_t pid;
    tt_record_t last; /* its last call; number 0: it made none */
    tt_call_text_t where;
} tt_dump_seen_t;

typedef struct {
    const char *name, *error;
    int rank, size;
    uint32_t epoch;
    const int *ranks; /* [size] in the world */
    const tt_records_t *records;
    void *user;

    /* Whether the oldest call under way waits for a rank. */
    bool (*awaits)(void *user, int rank);

    /* Since when the operation with this record is waited for; 0: it is not. */
    int64_t (*waited_since_ns)(void *user, uint64_t record);

    /* False: nothing is seen of that rank. NULL: of none. */
    bool (*see)(void *user, int rank, tt_dump_seen_t *out);
} tt_dump_group_t;

tt_dump_t tt_dump_begin(int rank);

/* The world comes first. */
void tt_dump_add(const tt_dump_t *dump, const tt_dump_group_t *group);

/* Errors: IO, NOMEM. */
tutti_status_t tt_dump_end(const tt_dump_t *dump, const char *path);

/* A group has failed: its world's file goes into the folder of TUTTI_DUMP, if there is one. The
 * last error stays that of the failure. */
typedef struct {
    const char *world;
    int rank; /* in the world */
    tutti_status_t status;
    const char *error;
    tutti_status_t (*write)(void *group, const char *path);
    void *group;
} tt_dump_failure_t;

void tt_dump_failure(const tt_dump_failure_t *failure);

#endif
