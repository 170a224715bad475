/* Channels: tcp connections whose other side has proved the job's key. Non-blocking, without an
 * event loop: a caller that waits polls tt_channel_fd() for tt_channel_events().
 *
 *     encrypt   TLS 1.3 for everything
 *     auth      a TLS 1.3 handshake, then clear records with checksums: keeps strangers out, does
 *               not stop someone on the path from reading or altering bytes
 *     off       clear records only
 *
 * The handshake is TLS 1.3 with an external pre-shared key, which each side proves to have, and
 * fresh X25519 keys; there are no certificates, tickets or early data. docs/formats/channel.md has
 * every byte.
 *
 * Clear records carry up to TT_RECORD_BYTES_MAX bytes and a CRC-32C. What tt_channel_recv() gives
 * is checked when the last byte of its record is given, so that nothing is copied: a
 * reader that acts on part of a record checks the bounds of what it reads, and trusts a message
 * only when it is complete.
 */
#ifndef TT_CHANNEL_H
#define TT_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sys/socket.h>
#include <sys/uio.h>

#include "comm/net/job_key.h"
#include "core/base/clock.h"

enum { TT_RECORD_BYTES_MAX = 512 << 10, TT_HANDSHAKE_MS = 5000, TT_CHANNEL_PARTS_MAX = 4 };

/* AES-GCM is safe for 2^24.5 full TLS records under one key (RFC 8446, 5.5). */
enum { TT_RECORDS_PER_KEY = 1 << 23 };

typedef enum { TT_PROTECT_AUTO, TT_PROTECT_ENCRYPT, TT_PROTECT_AUTH, TT_PROTECT_OFF } tt_protect_t;

/* What both sides must have: the key of an epoch. Shared by channels; any thread. */
typedef struct tt_credentials tt_credentials_t;

/* `key` NULL only with TT_PROTECT_OFF. Errors: ARG, NOMEM, IO. */
tutti_status_t tt_credentials_create(const tt_job_key_t *key, uint32_t epoch, tt_protect_t protect,
                                     tt_credentials_t **out);

/* From the settings: TUTTI_KEY_FD or TUTTI_KEY_FILE, and TUTTI_PROTECT, where auto means auth on a
 * loopback address, encrypt elsewhere. Errors: AUTH (no key and not off: says what to do). */
tutti_status_t tt_credentials_find(const char *address, uint32_t epoch, tt_credentials_t **out);

/* The same with a key that is known; NULL as if the settings named none. */
tutti_status_t tt_credentials_choose(const tt_job_key_t *key, const char *address, uint32_t epoch,
                                     tt_credentials_t **out);

/* The same job's key for another address and epoch. */
tutti_status_t tt_credentials_derive(const tt_credentials_t *from, const char *address,
                                     uint32_t epoch, tt_credentials_t **out);

/* For tests: an `encrypt` channel renews the key that it sends under after so many records; as
 * created TT_RECORDS_PER_KEY. Before the first channel. */
void tt_credentials_set_records_per_key(tt_credentials_t *credentials, uint64_t records);
tt_credentials_t *tt_credentials_retain(tt_credentials_t *credentials);
void tt_credentials_release(tt_credentials_t *credentials);
tt_protect_t tt_credentials_protect(const tt_credentials_t *credentials);

typedef struct tt_channel tt_channel_t;

/* Begin to connect. Errors: IO, NOMEM. */
tutti_status_t tt_channel_connect(const struct sockaddr *address, socklen_t address_bytes,
                                  tt_credentials_t *credentials, tt_channel_t **out);

/* Take a connection that was accepted; owns fd from then on. Errors: NOMEM: fd is the caller's. */
tutti_status_t tt_channel_accept(int fd, tt_credentials_t *credentials, tt_channel_t **out);

/* OK when data may pass, PENDING while connecting or proving. Errors: AUTH (another key, epoch or
 * protection, or a stranger), PEER (closed, refused), TIMEOUT (no proof in TT_HANDSHAKE_MS), IO. */
tutti_status_t tt_channel_handshake(tt_channel_t *channel);

/* Another deadline of the handshake than TT_HANDSHAKE_MS from now. */
void tt_channel_set_deadline(tt_channel_t *channel, tt_deadline_t deadline);

/* The other side has proved the job's key. Of a connection that was accepted that is known from its
 * first message, before the handshake is over; with `off` never. */
bool tt_channel_has_proof(const tt_channel_t *channel);

/* Of a connection that was accepted: a number of the first message that has proved the key, random
 * and another one in each handshake; 0 as long as there is none. */
uint64_t tt_channel_proof(const tt_channel_t *channel);

/* Of a connection that was accepted: the other side has sent something. */
bool tt_channel_has_spoken(const tt_channel_t *channel);

/* The connection stands, whether the key is proved or not. */
bool tt_channel_is_connected(const tt_channel_t *channel);

/* Of a connection that was made: it, or its first message, is not acknowledged. So it is where a
 * listener's queue is full: to connect again is faster than the kernel's next try. */
bool tt_channel_is_unheard(const tt_channel_t *channel);

/* Sends bytes of the parts (at most TT_CHANNEL_PARTS_MAX), in order; *done (out) says how many.
 * What was not taken must be offered again until it is: the same bytes first, in whatever parts,
 * and not fewer than before. Errors: PEER, IO. */
tutti_status_t tt_channel_send(tt_channel_t *channel, const struct iovec *parts, int part_count,
                               size_t *done);

/* Gives up to `bytes`; *done (out) says how many. Errors: PEER (closed), FORMAT (no record of ours,
 * or its checksum is wrong), IO. */
tutti_status_t tt_channel_recv(tt_channel_t *channel, void *data, size_t bytes, size_t *done);

/* The same for all of the bytes, from *done on, which goes forward: OK when the last one has gone
 * or come, else PENDING: call again with the same. */
tutti_status_t tt_channel_push(tt_channel_t *channel, const void *data, size_t bytes, size_t *done);
tutti_status_t tt_channel_pull(tt_channel_t *channel, void *data, size_t bytes, size_t *done);

int tt_channel_fd(const tt_channel_t *channel);

/* What poll should wait for while the handshake lasts. */
short tt_channel_events(const tt_channel_t *channel);

/* Encrypted data may have been read from the socket already, of which poll does not know. */
bool tt_channel_has_more(const tt_channel_t *channel);

/* "10.0.0.2:41000", of the other side. */
const char *tt_channel_peer(const tt_channel_t *channel);

/* The other side has been silent: it does not even acknowledge what was sent, for 5 s. */
bool tt_channel_is_silent(const tt_channel_t *channel);

/* Not all that was sent has been acknowledged. Until it is, the kernel sends no keep-alives. */
bool tt_channel_awaits_ack(const tt_channel_t *channel);

void tt_channel_close(tt_channel_t *channel);

#endif
