/* The place of a data loader as a line of text (docs/formats/dataloader.md), with what the place
 * means nothing without: how steps are cut, and a checksum of the epoch's order.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "compute/data/dataloader_impl.h"
#include "core/base/alloc.h"
#include "core/base/buffer.h"
#include "core/base/config.h"
#include "core/base/crc32c.h"
#include "core/base/little_endian.h"

enum { VERSION = 1, ORDER_SAMPLES = 64, TEXT_BYTES_MAX = 512 };

enum { F_VERSION, F_EPOCH, F_STEP, F_STEPS, F_BATCH, F_SHARDS, F_SAMPLES, F_ORDER, FIELDS };

static const char *const names[FIELDS] = {
    "tutti-dataloader", "epoch", "step", "steps", "batch", "shards", "samples", "order",
};

/* CRC-32C of the first samples of an epoch, 8 bytes each. Of a stream what decides which part a
 * batch comes from: parts, and micro-batches, of which `shards` has only the product. */
static tutti_status_t sum_order(tutti_dataloader_t *loader, int64_t epoch, int64_t *out)
{
    if (loader->sampler == NULL) {
        *out = (loader->options.micro_batches - 1) << 32 | loader->options.parts;
        return TUTTI_OK;
    }
    const int64_t count = tutti_sampler_count(loader->sampler);
    int64_t summed = 0;
    uint32_t sum = 0;
    for (int64_t i = 0; i < count && summed < ORDER_SAMPLES; i++) {
        int64_t size;
        TT_TRY(tutti_sampler_read(loader->sampler, epoch, i, loader->scratch, &size));
        for (int64_t k = 0; k < size; k++) {
            uint8_t bytes[8];
            tt_put_u64(bytes, (uint64_t)loader->scratch[k]);
            sum = tt_crc32c(sum, bytes, sizeof bytes);
        }
        summed += size;
    }
    *out = sum;
    return TUTTI_OK;
}

/* What a state of this loader says, at a place. */
static tutti_status_t describe(tutti_dataloader_t *loader, int64_t epoch, int64_t step,
                               int64_t *fields)
{
    const bool is_stream = loader->sampler == NULL;
    const bool has_batches = !is_stream && tutti_sampler_width(loader->sampler) > 1;
    fields[F_VERSION] = VERSION;
    fields[F_EPOCH] = epoch;
    fields[F_STEP] = step;
    fields[F_STEPS] = loader->options.endless || is_stream ? 0 : loader->steps;
    fields[F_BATCH] = has_batches ? 0 : loader->options.batch;
    fields[F_SHARDS] = loader->lots;
    fields[F_SAMPLES] = is_stream ? 0 : tutti_sampler_count(loader->sampler);
    return sum_order(loader, epoch, &fields[F_ORDER]);
}

tutti_status_t tutti_dataloader_save_state(tutti_dataloader_t *loader, tutti_buffer_t *out)
{
    const int64_t count = tt_dataloader_local_lots(loader), number = loader->number;
    if (count == 0) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "dataloader: rank %d hosts none of the %d shards, so it "
                       "does not know the step: save the state on another",
                       loader->options.rank, loader->options.shards);
    }
    if (number % count != 0) {
        return TT_FAIL(TUTTI_ERR_STATE,
                       "dataloader: %lld of this rank's %lld batches of step %lld are taken: a "
                       "state can be saved between steps only",
                       (long long)(number % count), (long long)count, (long long)(number / count));
    }
    int64_t fields[FIELDS];
    char text[TEXT_BYTES_MAX];
    size_t bytes = 0;
    TT_TRY(describe(loader, loader->epoch, (number + loader->past) / count, fields));
    for (int i = 0; i < FIELDS; i++) {
        bytes += (size_t)snprintf(text + bytes, sizeof text - bytes, "%s %" PRId64 "%c", names[i],
                                  fields[i], i + 1 < FIELDS ? ' ' : '\n');
    }
    return tt_buffer_copy(tutti_bytes_of(text, bytes), out);
}

/* The next word of a text, without the blank or newline behind it; NULL if there is none. */
static char *next_word(char **text, char end)
{
    char *word = *text, *stop = strchr(word, end);
    if (stop == NULL || stop == word) {
        return NULL;
    }
    *stop = 0;
    *text = stop + 1;
    return word;
}

static tutti_status_t parse(tutti_bytes_t state, int64_t *fields)
{
    char text[TEXT_BYTES_MAX] = {0}, *at = text;
    if (state.bytes == 0 || state.bytes >= sizeof text) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "dataloader: a state of %zu bytes: it is one line of text",
                       state.bytes);
    }
    memcpy(text, state.data, state.bytes);
    for (int i = 0; i < FIELDS; i++) {
        const char *name = next_word(&at, ' ');
        if (name == NULL || strcmp(name, names[i]) != 0) {
            return TT_FAIL(TUTTI_ERR_FORMAT, "dataloader: the state is malformed: expected '%s'",
                           names[i]);
        }
        const char *value = next_word(&at, i + 1 < FIELDS ? ' ' : '\n');
        if (value == NULL || !tt_parse_int(value, &fields[i]) || fields[i] < 0) {
            return TT_FAIL(TUTTI_ERR_FORMAT,
                           "dataloader: the state is malformed: expected a number behind '%s'",
                           names[i]);
        }
    }
    return at == text + state.bytes
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_FORMAT, "dataloader: the state goes on behind its line");
}

static tutti_status_t check(const int64_t *fields, const int64_t *own)
{
    for (int i = F_STEPS; i < FIELDS; i++) {
        if (fields[i] != own[i]) {
            return TT_FAIL(TUTTI_ERR_MISMATCH,
                           "dataloader: the state was saved with %s %lld, this loader has %lld: "
                           "make it with the same data, order, batch and shards",
                           names[i], (long long)fields[i], (long long)own[i]);
        }
    }
    return TUTTI_OK;
}

tutti_status_t tutti_dataloader_load_state(tutti_dataloader_t *loader, tutti_bytes_t state)
{
    int64_t fields[FIELDS] = {0}, own[FIELDS];
    TT_TRY(parse(state, fields));
    if (fields[F_VERSION] != VERSION) {
        return TT_FAIL(TUTTI_ERR_FORMAT, "dataloader: a state of version %lld: expected %d",
                       (long long)fields[F_VERSION], VERSION);
    }
    const tutti_batch_place_t place = {.step = fields[F_STEP], .epoch = fields[F_EPOCH]};
    const bool has_no_end = loader->options.endless || loader->sampler == NULL;
    if (has_no_end && fields[F_STEPS] == 0 ? tt_dataloader_check_place(loader, place) < 0
                                           : fields[F_STEP] > fields[F_STEPS]) {
        return TT_FAIL(
            TUTTI_ERR_FORMAT, "dataloader: the state is malformed: step %lld of %lld in epoch %lld",
            (long long)fields[F_STEP], (long long)fields[F_STEPS], (long long)fields[F_EPOCH]);
    }
    TT_TRY(describe(loader, fields[F_EPOCH], fields[F_STEP], own));
    TT_TRY(check(fields, own));
    return tt_dataloader_go(loader, fields[F_EPOCH],
                            fields[F_STEP] * tt_dataloader_local_lots(loader));
}
