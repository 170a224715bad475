/**
 * @file objects.h
 * Bytes that another object owns (a view), bytes that you own (a buffer), and calls that carry
 * them.
 *
 * Example:
 *
 *     tutti_buffer_t name;
 *     TUTTI_CHECK(tutti_store_get(store, tutti_text("name"), 0, &name));
 *     printf("%.*s\n", (int)name.bytes, (const char *)name.data);
 *     tutti_buffer_release(&name);
 */
#ifndef TUTTI_OBJECTS_H
#define TUTTI_OBJECTS_H

#include <stddef.h>
#include <string.h>

#include <tutti/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A view; borrowed. `data` may be NULL when `bytes` is 0. */
typedef struct tutti_bytes {
    const void *data;
    size_t bytes;
} tutti_bytes_t;

/**
 * Owned by the receiver. A zero byte follows the `bytes` bytes, so that a text can be used as a C
 * string.
 */
typedef struct tutti_buffer {
    void *data;
    size_t bytes;
} tutti_buffer_t;

/** A view of a C string, without its closing 0. @thread any @errors none */
static inline tutti_bytes_t tutti_text(const char *text)
{
    const tutti_bytes_t view = {text, strlen(text)};
    return view;
}

/** A view of any memory. @thread any @errors none */
static inline tutti_bytes_t tutti_bytes_of(const void *data, size_t bytes)
{
    const tutti_bytes_t view = {data, bytes};
    return view;
}

/** Free what the buffer owns and leave it empty; an empty one or NULL is fine. @thread any @errors
 * none */
TUTTI_API void tutti_buffer_release(tutti_buffer_t *buffer);

/* ---- calls that carry bytes ------------------------------------------------------------------ */

/* Calls that carry bytes of any length, different on every rank: small things such as options,
 * names and counts, in whatever form the caller writes them.
 *
 * Example:
 *
 *     tutti_buffer_t plan;
 *     const char *text = rank == 0 ? "lr 3e-4, 100 steps" : "";
 *     TUTTI_CHECK(tutti_broadcast_bytes(world, tutti_text(text), 0, &plan));
 *     printf("rank %d: %s\n", rank, (const char *)plan.data);
 *     tutti_buffer_release(&plan);
 *
 * All of them wait. The lengths travel first; if a rank would receive more than
 * TUTTI_OBJECT_BYTES_MAX (1 GiB unless the environment says otherwise), every rank returns the same
 * error, before memory is allocated.
 *
 * The caller's bytes are not touched any more when a call returns, whatever came of it. Over the
 * mpi backend this costs a copy on each side.
 *
 * Buffers are written on success only, and are owned by the caller (tutti_buffer_release); a 0
 * stands behind the bytes.
 *
 * Unlike torch.distributed's object collectives: bytes are never code and nothing is padded.
 */

typedef struct tutti_group tutti_group_t; /* group.h */

/**
 * The root's bytes, on every rank.
 *
 * @param bytes  of the root; of no interest elsewhere
 * @param out    owned by the caller, on every rank
 * @thread       one at a time per group; blocks
 * @cost         a broadcast of 8 bytes, and one of the bytes
 * @errors       ARG, NOMEM (too long); as broadcast
 * @source       torch.distributed.broadcast_object_list
 */
TUTTI_API tutti_status_t tutti_broadcast_bytes(tutti_group_t *group, tutti_bytes_t bytes, int root,
                                               tutti_buffer_t *out);

/**
 * Everybody's bytes, on every rank.
 *
 * @param out  [size], each owned by the caller
 * @thread     one at a time per group; blocks
 * @cost       two all_gathers
 * @errors     NOMEM (together too long); as all_gather
 * @source     torch.distributed.all_gather_object
 */
TUTTI_API tutti_status_t tutti_all_gather_bytes(tutti_group_t *group, tutti_bytes_t bytes,
                                                tutti_buffer_t *out);

/**
 * Everybody's bytes, on the root.
 *
 * @param out  [size] on the root, each owned by the caller; NULL elsewhere
 * @thread     one at a time per group; blocks
 * @cost       an all_gather of 8 bytes, and a gather
 * @errors     ARG, NOMEM (together too long); as gather
 * @source     torch.distributed.gather_object
 */
TUTTI_API tutti_status_t tutti_gather_bytes(tutti_group_t *group, tutti_bytes_t bytes, int root,
                                            tutti_buffer_t *out);

/**
 * To each rank its part of what the root has.
 *
 * @param parts  [size] on the root; NULL elsewhere
 * @param out    owned by the caller
 * @thread       one at a time per group; blocks
 * @cost         a broadcast of the lengths, and a scatter
 * @errors       ARG, NOMEM (together too long); as scatter
 * @source       torch.distributed.scatter_object_list
 */
TUTTI_API tutti_status_t tutti_scatter_bytes(tutti_group_t *group, const tutti_bytes_t *parts,
                                             int root, tutti_buffer_t *out);

/** Send bytes to a rank; returns when they may be changed. @thread one at a time per group; blocks
 *  @errors as tutti_send; NOMEM (too long) @source torch.distributed.send_object_list */
TUTTI_API tutti_status_t tutti_send_bytes(tutti_group_t *group, tutti_bytes_t bytes, int to,
                                          int tag);

/**
 * Receive what tutti_send_bytes() sent.
 *
 * @param from    a rank, or TUTTI_ANY_RANK
 * @param tag     at least 0
 * @param source  out, who sent it; may be NULL
 * @param out     owned by the caller
 * @thread        one at a time per group; blocks
 * @errors        as tutti_recv; NOMEM (too long: the group is aborted, for the message can no
 *                longer be received)
 * @source        torch.distributed.recv_object_list
 */
TUTTI_API tutti_status_t tutti_recv_bytes(tutti_group_t *group, int from, int tag, int *source,
                                          tutti_buffer_t *out);

#ifdef __cplusplus
}
#endif

#endif
