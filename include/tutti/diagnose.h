/**
 * @file diagnose.h
 * Finding out why ranks wait: the last calls of every group as a file, and what the files of all
 * ranks say together. What `tutti verdict` reads.
 *
 * Example:
 *
 *     if (tutti_barrier(world, NULL) < 0) {
 *         TUTTI_CHECK(tutti_group_dump(world, "rank0.json"));
 *     }
 *     const char *const paths[] = {"rank0.json", "rank1.json"};
 *     tutti_buffer_t text;
 *     bool is_guilty;
 *     TUTTI_CHECK(tutti_verdict(paths, 2, &text, &is_guilty));
 *     tutti_buffer_release(&text);
 *
 * TUTTI_DUMP=FOLDER writes such a file whenever a group fails with PEER, MISMATCH or TIMEOUT;
 * docs/guide/hangs.md tells how to read the verdict.
 */
#ifndef TUTTI_DIAGNOSE_H
#define TUTTI_DIAGNOSE_H

#include <stdbool.h>

#include <tutti/bytes.h>
#include <tutti/group.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Write the last calls of this rank as JSON: of the group's world and of all groups made of it, and
 * what can be seen of the other ranks of this host; over MPI, that is nothing.
 * docs/formats/dump.md has the fields.
 *
 * @param path  of the file, replaced as a whole
 * @thread      one at a time per world; does not wait for others
 * @cost        milliseconds: call sites are looked up in the debug information
 * @errors      IO (names the path), NOMEM, STATE (a forked child)
 * @source      NCCL flight recorder of PyTorch
 */
TUTTI_API tutti_status_t tutti_group_dump(tutti_group_t *group, const char *path);

/**
 * What the files of several ranks say together: who never entered which call, and where it is
 * instead.
 *
 * @param paths      [count] files of tutti_group_dump(), in any order; some may be missing
 * @param text       out, owned by the caller; lines
 * @param is_guilty  out; whether something is wrong
 * @thread           any
 * @errors           ARG (no file), IO, FORMAT (names the file), NOMEM
 */
TUTTI_API tutti_status_t tutti_verdict(const char *const *paths, int count, tutti_buffer_t *text,
                                       bool *is_guilty);

#ifdef __cplusplus
}
#endif

#endif
