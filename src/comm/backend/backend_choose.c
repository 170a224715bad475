/* Which backend a group has: TUTTI_BACKEND, taken apart.
 *
 *     native                  for tensors of every device
 *     cpu:native,cuda:nccl    for those of each
 */
#include <stdio.h>
#include <string.h>

#include "comm/backend/backend.h"
#include "core/base/config.h"

enum { NAMES_BYTES = 256 };

typedef struct {
    const char *text;
    size_t length;
} word_t;

static bool is(word_t word, const char *text)
{
    return strlen(text) == word.length && memcmp(word.text, text, word.length) == 0;
}

static const char *list_names(char names[NAMES_BYTES])
{
    size_t length = 0;
    names[0] = 0;
    for (int i = 0; tt_backends[i] != NULL && length < NAMES_BYTES; i++) {
        const int n = snprintf(names + length, NAMES_BYTES - length, "%s%s", i > 0 ? ", " : "",
                               tt_backends[i]->name);
        length += n > 0 ? (size_t)n : 0;
    }
    return names;
}

static tutti_status_t find(word_t word, const tt_backend_ops_t **out)
{
    for (int i = 0; tt_backends[i] != NULL; i++) {
        if (is(word, tt_backends[i]->name)) {
            *out = tt_backends[i];
            return TUTTI_OK;
        }
    }
    char names[NAMES_BYTES];
    return TT_FAIL(TUTTI_ERR_ARG, "TUTTI_BACKEND=%s: no backend \"%.*s\"; there are %s",
                   tt_config_text(TT_CONFIG_BACKEND), (int)word.length, word.text,
                   list_names(names));
}

/* One "device:backend", or a backend for every device. */
static tutti_status_t read_item(word_t item, const tt_backend_ops_t **cpu)
{
    const char *colon = memchr(item.text, ':', item.length);
    if (colon == NULL) {
        return find(item, cpu);
    }
    const word_t device = {item.text, (size_t)(colon - item.text)};
    const word_t name = {colon + 1, item.length - device.length - 1};
    if (is(device, "cpu")) {
        return find(name, cpu);
    }
    if (is(device, "cuda")) {
        return TT_FAIL(TUTTI_ERR_UNSUPPORTED,
                       "TUTTI_BACKEND=%s: this build has no cuda tensors, so no backend for them; "
                       "leave cuda out",
                       tt_config_text(TT_CONFIG_BACKEND));
    }
    return TT_FAIL(TUTTI_ERR_ARG, "TUTTI_BACKEND=%s: no device \"%.*s\"; there are cpu, cuda",
                   tt_config_text(TT_CONFIG_BACKEND), (int)device.length, device.text);
}

tutti_status_t tt_backend_choose(const tt_backend_ops_t **out)
{
    const tt_backend_ops_t *cpu = &tt_backend_native;
    const char *text = tt_config_text(TT_CONFIG_BACKEND);
    for (;;) {
        const size_t length = strcspn(text, ",");
        TT_TRY(read_item((word_t){text, length}, &cpu));
        if (text[length] == 0) {
            break;
        }
        text += length + 1;
    }
    *out = cpu;
    return TUTTI_OK;
}
