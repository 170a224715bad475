/* Edit distance between names, by the usual table of which one row is kept:
 *
 *     d[i][j] = min(d[i-1][j] + 1, d[i][j-1] + 1, d[i-1][j-1] + (a[i] != b[j]))
 *
 * Cost: the product of the lengths. Source: Levenshtein 1966; Wagner and Fischer 1974.
 */
#include "core/base/nearest.h"

#include <string.h>

#include <tutti/options.h>

static char plain(char c)
{
    return c == '_' ? '-' : c;
}

static size_t min3(size_t a, size_t b, size_t c)
{
    const size_t least = a < b ? a : b;
    return least < c ? least : c;
}

static bool starts_with(const char *known, const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (known[i] == 0 || plain(name[i]) != plain(known[i])) {
            return false;
        }
    }
    return true;
}

bool tt_name_is(const char *name, size_t length, const char *known)
{
    return starts_with(known, name, length) && known[length] == 0;
}

size_t tt_name_distance(const char *name, const char *known)
{
    const size_t name_bytes = strnlen(name, TT_NAME_BYTES_MAX - 1);
    const size_t known_bytes = strnlen(known, TT_NAME_BYTES_MAX - 1);
    if (name_bytes > 0 && name_bytes < known_bytes && starts_with(known, name, name_bytes)) {
        return 1;
    }
    size_t row[TT_NAME_BYTES_MAX];
    for (size_t j = 0; j <= known_bytes; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= name_bytes; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= known_bytes; j++) {
            const size_t above = row[j];
            const size_t changed = plain(name[i - 1]) != plain(known[j - 1]);
            row[j] = min3(above + 1, row[j - 1] + 1, diagonal + changed);
            diagonal = above;
        }
    }
    return row[known_bytes];
}

bool tt_name_matches(const char *pattern, const char *name)
{
    if (*pattern == '*') {
        return tt_name_matches(pattern + 1, name) ||
               (*name != 0 && *name != '.' && tt_name_matches(pattern, name + 1));
    }
    if (*pattern == 0 || *name == 0) {
        return *pattern == *name;
    }
    return (*pattern == *name || *pattern == '?') && tt_name_matches(pattern + 1, name + 1);
}

const char *tutti_nearest_name(const char *name, const char *const *known)
{
    const char *nearest = NULL;
    size_t least = SIZE_MAX;
    for (; *known != NULL; known++) {
        const size_t distance = tt_name_distance(name, *known);
        if (distance < least) {
            least = distance;
            nearest = *known;
        }
    }
    return nearest;
}
