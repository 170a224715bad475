/* Devices by name. */
#include <tutti/devices.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/device/device.h"

static tutti_status_t fail_name(const char *name)
{
    char kinds[128] = "";
    for (int i = 0; tt_devices[i] != NULL; i++) {
        if (tt_devices[i]->open_named != NULL) {
            const size_t used = strlen(kinds);
            snprintf(kinds + used, sizeof kinds - used, "%s%s%s", used > 0 ? ", " : "",
                     tt_devices[i]->name, tt_devices[i]->is_numbered ? ":0, …" : "");
        }
    }
    return TT_FAIL(TUTTI_ERR_ARG, "device_open: there is no device \"%s\": there are %s",
                   name == NULL ? "(NULL)" : name, kinds);
}

/* "strict:3": its kind and 3. */
static tutti_status_t parse(const char *name, const tt_device_ops_t **ops, int *index)
{
    const char *colon = name == NULL ? NULL : strchr(name, ':');
    const size_t length = name == NULL ? 0 : colon == NULL ? strlen(name) : (size_t)(colon - name);
    char *end = NULL;
    const long number = colon == NULL ? 0 : strtol(colon + 1, &end, 10);
    for (int i = 0; tt_devices[i] != NULL; i++) {
        const tt_device_ops_t *one = tt_devices[i];
        if (one->open_named == NULL || strlen(one->name) != length ||
            memcmp(one->name, name, length) != 0) {
            continue;
        }
        const bool is_number = colon == NULL || (one->is_numbered && colon[1] >= '0' &&
                                                 colon[1] <= '9' && *end == 0 && number < 1000);
        *ops = one;
        *index = (int)number;
        return is_number ? TUTTI_OK : fail_name(name);
    }
    return fail_name(name);
}

tutti_status_t tutti_device_open(const char *name, const tutti_device_options_t *options,
                                 tutti_device_t **out)
{
    const tt_device_ops_t *ops = NULL;
    int index = 0;
    TT_TRY(parse(name, &ops, &index));
    if (options != NULL && (options->memory_bytes < 0 || options->launch_ns < 0 ||
                            options->copy_bytes_per_s < 0 || options->threads < 0)) {
        return TT_FAIL(TUTTI_ERR_ARG, "device_open: %s: an option is negative", name);
    }
    return tt_device_share(ops, index, options, out);
}
