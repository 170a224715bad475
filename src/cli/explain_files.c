/* Files and JSON of `tutti explain`. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/explain_parts.h"

enum { FILE_BYTES_MAX = 1 << 30 };

static int fail_file(const char *flag, const char *path, const char *what)
{
    fprintf(stderr, "tutti explain: --%s %s: %s\n", flag, path, what);
    return TT_EXIT_USAGE;
}

/* All that is there; false: `what` says why not. */
static bool read_all(FILE *file, char **text, size_t *bytes, const char **what)
{
    size_t room = 4096, length = 0;
    char *data = malloc(room);
    while (data != NULL && room <= FILE_BYTES_MAX) {
        length += fread(data + length, 1, room - length, file);
        if (length < room) {
            break;
        }
        char *larger = realloc(data, room *= 2);
        if (larger == NULL) {
            free(data);
        }
        data = larger;
    }
    const bool is_read = data != NULL && room <= FILE_BYTES_MAX && ferror(file) == 0;
    *what = data == NULL            ? "out of memory"
            : room > FILE_BYTES_MAX ? "larger than a gigabyte"
                                    : strerror(errno);
    if (!is_read) {
        free(data);
        return false;
    }
    data[length] = 0; /* there is room: the last read was short */
    *text = data;
    *bytes = length;
    return true;
}

int tt_explain_read(const char *flag, const char *path, char **text, size_t *bytes)
{
    const char *what;
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return fail_file(flag, path, strerror(errno));
    }
    const bool is_read = read_all(file, text, bytes, &what);
    const int code = is_read ? -1 : fail_file(flag, path, what);
    (void)fclose(file);
    return code;
}

int tt_explain_write(const char *flag, const char *path, const tutti_buffer_t *content)
{
    FILE *file = fopen(path, "wb");
    const bool is_written =
        file != NULL && fwrite(content->data, 1, content->bytes, file) == content->bytes;
    const bool is_closed = file != NULL && fclose(file) == 0;
    return is_written && is_closed ? 0 : fail_file(flag, path, "the file cannot be written");
}

int tt_explain_print_json(json_t *json)
{
    char *text = json_dumps(json, JSON_INDENT(2));
    json_decref(json);
    if (text == NULL) {
        fprintf(stderr, "tutti explain: out of memory\n");
        return 1;
    }
    printf("%s\n", text);
    free(text);
    return 0;
}
