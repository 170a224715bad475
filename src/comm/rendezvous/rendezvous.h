/* The meeting of a world: who I am and where the others are.
 *
 *     environment or URL --parse, pure--> tt_rendezvous_t --open--> tt_meeting_t: a store with all
 *                                                                   ranks on their way to it
 *
 * docs/guide/launching.md tells users the same.
 */
#ifndef TT_RENDEZVOUS_H
#define TT_RENDEZVOUS_H

#include <stdbool.h>
#include <stdint.h>

#include <tutti/store.h>

#include "core/base/clock.h"
#include "core/base/fail.h"
#include "core/base/core_share.h"

enum {
    TT_WORLD_SIZE_MAX = 1 << 16,
    TT_HOST_BYTES = 256,
    TT_JOB_BYTES = 256,
    TT_PATH_BYTES = 1024,
    TT_ADDRESS_BYTES = 64,
    TT_PORTS_TRIED = 16 /* behind MASTER_PORT, when that is taken */
};

typedef enum {
    TT_PLACE_ALONE,  /* a world of one: no place is needed */
    TT_PLACE_SERVED, /* host and port: the launcher's own store */
    TT_PLACE_HOST,   /* job: all on this host; rank 0's store is handed over a Unix socket */
    TT_PLACE_MASTER, /* host and port: rank 0 listens there; several hosts */
    TT_PLACE_FILE    /* path: a file store */
} tt_place_kind_t;

typedef struct {
    const char *launcher; /* whose variables these are, a literal */
    tt_place_kind_t kind;
    int rank, size;
    int local_rank, local_size; /* -1, 0: not known */
    char host[TT_HOST_BYTES];
    const char *host_source; /* who names the host: a variable, or the URL; a literal */
    int port;                /* 0: the system chooses (HOST only) */
    int port_count;          /* ports that rank 0's store may take, from `port` on */
    char job[TT_JOB_BYTES];
    char path[TT_PATH_BYTES];
} tt_rendezvous_t;

/* What the launcher's variables say; without any, ALONE. ARG names the missing variable. A rank or
 * a size of 0 or more stands for the variable. */
tutti_status_t tt_rendezvous_from_environment(int rank, int size, tt_rendezvous_t *out);

/* What they say of this host alone, in a world of `size`: -1 and 0, what is not known. ARG. */
tutti_status_t tt_rendezvous_find_local(int size, int *local_rank, int *local_size);

/* "env://", "tcp://HOST:PORT?rank=R&world_size=W", "file:///PATH?rank=R&world_size=W".
 * A world_size above 0 stands for what the query may then not say. ARG names what is wrong. */
tutti_status_t tt_rendezvous_from_url(const char *url, int rank, int world_size,
                                      tt_rendezvous_t *out);

typedef struct {
    int rank, size;
    int local_rank, local_size;     /* as above */
    tutti_store_t *store;           /* owned; NULL when alone */
    char address[TT_ADDRESS_BYTES]; /* of this rank, as the others reach it; "": loopback */
    char world[64];                 /* a prefix that no other world in the store has; "": none */
} tt_meeting_t;

/* Makes or finds the store, by the deadline. */
tutti_status_t tt_rendezvous_open(const tt_rendezvous_t *rendezvous, const char *name,
                                  int64_t timeout_ms, tt_meeting_t *out);

/* ---- parts ----------------------------------------------------------------------------------- */

/* All ranks are on this host: rank 0 serves a store on 127.0.0.1 and hands its port, and the job's
 * key, to every other rank over an abstract Unix socket; both sides check the user. The key is the
 * settings', or a new one; the store has it (tt_store_credentials). */
tutti_status_t tt_rendezvous_hand_over(const tt_rendezvous_t *rendezvous, const char *name,
                                       tt_deadline_t deadline, tutti_store_t **out);

/* Agree in a file, which may hold what earlier worlds left, on a prefix of this world's own. */
tutti_status_t tt_rendezvous_agree(tutti_store_t *store, const char *name, int rank, int size,
                                   tt_deadline_t deadline, char world[64]);

/* The first host of Slurm's list: "node[07-12,20],login" has node07. false: it is no such list. */
bool tt_slurm_first_host(const char *list, char *host, size_t host_bytes);

#endif
