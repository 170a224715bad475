/* Ranks that meet in a file, which may be stale: it keeps what earlier worlds wrote, also those
 * that died half-way. So nothing counts that is not an answer to this process's own random token.
 *
 *     rank r     writes its token T(r)
 *     rank 0     offers a world: a random name, and the tokens of all others as it reads them;
 *                a new one whenever a token changes
 *     rank r     accepts an offer that has its token, under the offer's name
 *     rank 0     when all have accepted, writes that the world has begun
 *
 * A token or an acceptance of a dead process can be read, but never belongs to an offer that a
 * living process accepts and begins.
 *
 * Cost: a few small records in the file for each rank; looked at every 1 to 10 ms, as a file gives
 * no notice.
 */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "comm/rendezvous/rendezvous.h"
#include "core/base/alloc.h"
#include "core/base/buffer.h"

enum { TOKEN_BYTES = 16, KEY_BYTES = 320, STEP_NS = 5000000 };

typedef struct {
    uint8_t bytes[TOKEN_BYTES];
} token_t;

typedef struct {
    tutti_store_t *store;
    const char *name;
    int rank, size;
    tt_deadline_t deadline;
    token_t *offer; /* [size]: the world's name, then the tokens of ranks 1 … */
    token_t *seen;  /* [size] */
} agreement_t;

static tutti_status_t make_token(token_t *token)
{
    return getrandom(token, sizeof *token, 0) == (ssize_t)sizeof *token
               ? TUTTI_OK
               : TT_FAIL_ERRNO(TUTTI_ERR_IO, "no random numbers from the system");
}

static void print_token(const token_t *token, char text[2 * TOKEN_BYTES + 1])
{
    for (int i = 0; i < TOKEN_BYTES; i++) {
        snprintf(text + 2 * (size_t)i, 3, "%02x", token->bytes[i]);
    }
}

static tutti_bytes_t key_of(const agreement_t *agreement, const char *what, int rank, char *text)
{
    const int bytes = snprintf(text, KEY_BYTES, "meet/%.128s/%s/%d", agreement->name, what, rank);
    return (tutti_bytes_t){text, (size_t)bytes};
}

static tutti_bytes_t key_of_world(const agreement_t *agreement, const char *what, int rank,
                                  char *text)
{
    char world[2 * TOKEN_BYTES + 1], part[64];
    print_token(&agreement->offer[0], world);
    snprintf(part, sizeof part, "%s/%s", world, what);
    return key_of(agreement, part, rank, text);
}

static tutti_status_t has(const agreement_t *agreement, tutti_bytes_t key, bool *is_there)
{
    return tutti_store_check(agreement->store, &key, 1, is_there);
}

/* false: there is none, or it has another length, as of a world of another size. */
static tutti_status_t read_tokens(const agreement_t *agreement, tutti_bytes_t key, token_t *tokens,
                                  size_t count, bool *is_read)
{
    tutti_buffer_t value;
    TT_TRY(has(agreement, key, is_read));
    if (*is_read) {
        TT_TRY(tutti_store_get(agreement->store, key, 0, &value));
        *is_read = value.bytes == count * sizeof *tokens;
        if (*is_read) {
            memcpy(tokens, value.data, value.bytes);
        }
        tutti_buffer_release(&value);
    }
    return TUTTI_OK;
}

/* Whether all tokens are there; *is_new when they are not those of the last offer. */
static tutti_status_t read_all(agreement_t *agreement, int *missing, bool *is_new)
{
    char text[KEY_BYTES];
    *missing = 0;
    for (int i = 1; i < agreement->size; i++) {
        bool is_read;
        TT_TRY(read_tokens(agreement, key_of(agreement, "token", i, text), &agreement->seen[i], 1,
                           &is_read));
        *missing = is_read || *missing > 0 ? *missing : i;
    }
    const size_t bytes = sizeof(token_t) * (size_t)(agreement->size - 1);
    *is_new = memcmp(agreement->seen + 1, agreement->offer + 1, bytes) != 0;
    return TUTTI_OK;
}

static tutti_status_t make_offer(agreement_t *agreement)
{
    char text[KEY_BYTES];
    const size_t bytes = sizeof(token_t) * (size_t)agreement->size;
    memcpy(agreement->offer, agreement->seen, bytes);
    TT_TRY(make_token(&agreement->offer[0]));
    return tutti_store_set(agreement->store, key_of(agreement, "offer", 0, text),
                           (tutti_bytes_t){agreement->offer, bytes});
}

static tutti_status_t find_unwilling(const agreement_t *agreement, int *missing)
{
    char text[KEY_BYTES];
    *missing = 0;
    for (int i = 1; i < agreement->size && *missing == 0; i++) {
        bool is_there;
        TT_TRY(has(agreement, key_of_world(agreement, "accept", i, text), &is_there));
        *missing = is_there ? 0 : i;
    }
    return TUTTI_OK;
}

static tutti_status_t lead(agreement_t *agreement)
{
    char text[KEY_BYTES];
    bool has_offered = false;
    for (;;) {
        int missing;
        bool is_new;
        TT_TRY(read_all(agreement, &missing, &is_new));
        if (missing == 0 && (is_new || !has_offered)) {
            TT_TRY(make_offer(agreement));
            has_offered = true;
        }
        if (missing == 0) {
            TT_TRY(find_unwilling(agreement, &missing));
        }
        if (missing == 0) {
            return tutti_store_set(agreement->store, key_of_world(agreement, "begun", 0, text),
                                   tutti_text("1"));
        }
        if (tt_deadline_is_past(agreement->deadline)) {
            return TT_FAIL(TUTTI_ERR_TIMEOUT, "rank 0 waited for rank %d of %d to come to the file",
                           missing, agreement->size);
        }
        tt_clock_sleep(STEP_NS, agreement->deadline);
    }
}

static tutti_status_t follow(agreement_t *agreement, const token_t *token)
{
    char text[KEY_BYTES];
    token_t accepted = {0};
    const size_t rank = (size_t)agreement->rank;
    for (;;) {
        bool is_ours = false, has_begun = false;
        TT_TRY(read_tokens(agreement, key_of(agreement, "offer", 0, text), agreement->offer,
                           (size_t)agreement->size, &is_ours));
        is_ours = is_ours && memcmp(&agreement->offer[rank], token, sizeof *token) == 0;
        if (is_ours && memcmp(&accepted, &agreement->offer[0], sizeof accepted) != 0) {
            accepted = agreement->offer[0];
            TT_TRY(tutti_store_set(agreement->store,
                                   key_of_world(agreement, "accept", agreement->rank, text),
                                   tutti_text("1")));
        }
        if (is_ours) {
            TT_TRY(has(agreement, key_of_world(agreement, "begun", 0, text), &has_begun));
        }
        if (has_begun) {
            return TUTTI_OK;
        }
        if (tt_deadline_is_past(agreement->deadline)) {
            return TT_FAIL(TUTTI_ERR_TIMEOUT, "rank %d of %d waited for %s to come to the file",
                           agreement->rank, agreement->size, is_ours ? "the others" : "rank 0");
        }
        tt_clock_sleep(STEP_NS, agreement->deadline);
    }
}

static tutti_status_t agree(agreement_t *agreement)
{
    char text[KEY_BYTES];
    token_t token;
    if (agreement->rank == 0) {
        return lead(agreement);
    }
    TT_TRY(make_token(&token));
    TT_TRY(tutti_store_set(agreement->store, key_of(agreement, "token", agreement->rank, text),
                           (tutti_bytes_t){&token, sizeof token}));
    return follow(agreement, &token);
}

tutti_status_t tt_rendezvous_agree(tutti_store_t *store, const char *name, int rank, int size,
                                   tt_deadline_t deadline, char world[64])
{
    agreement_t agreement = {
        .store = store, .name = name, .rank = rank, .size = size, .deadline = deadline};
    agreement.offer = tt_alloc_array(2 * (size_t)size, sizeof *agreement.offer, "meeting");
    TT_TRY_ALLOC(agreement.offer);
    agreement.seen = agreement.offer + size;
    const tutti_status_t status = agree(&agreement);
    if (status >= 0) {
        char text[2 * TOKEN_BYTES + 1];
        print_token(&agreement.offer[0], text);
        snprintf(world, 64, "%s", text);
    }
    tt_free(agreement.offer);
    return status;
}
