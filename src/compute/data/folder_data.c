/* Pictures in a folder for each class. The names are read once, sorted and kept; the files are read
 * when they are asked for. Folders within a class count as part of it.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <tutti/pictures.h>

#include "compute/data/dataset.h"
#include "compute/data/picture_codec.h"
#include "core/base/alloc.h"

enum { DEPTH_MAX = 32 };

/* Texts that grow. */
typedef struct {
    char **texts;
    int64_t count, room;
} list_t;

/* A folder, whatever the path that leads to it. */
typedef struct {
    dev_t device;
    ino_t inode;
} place_t;

/* The folders of a class that have been read, in order; and its pictures. */
typedef struct {
    list_t *paths;
    place_t *seen;
    size_t count, room;
} walk_t;

typedef struct {
    list_t classes, paths;
    int64_t *targets; /* [paths] */
    int channels;
} state_t;

static tutti_status_t add(list_t *list, const char *text)
{
    if (list->count == list->room) {
        const int64_t room = list->room == 0 ? 64 : 2 * list->room;
        char **grown = tt_realloc(list->texts, (size_t)room * sizeof *grown, "file names");
        TT_TRY_ALLOC(grown);
        list->texts = grown;
        list->room = room;
    }
    list->texts[list->count] = tt_strdup(text, "file name");
    TT_TRY_ALLOC(list->texts[list->count]);
    list->count++;
    return TUTTI_OK;
}

static void release(list_t *list)
{
    for (int64_t i = 0; i < list->count; i++) {
        tt_free(list->texts[i]);
    }
    tt_free(list->texts);
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static tutti_status_t join(const char *folder, const char *name, char path[PATH_MAX])
{
    const int bytes = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return bytes > 0 && bytes < PATH_MAX
               ? TUTTI_OK
               : TT_FAIL(TUTTI_ERR_ARG, "data set folder: a path is longer than %d bytes: %s",
                         PATH_MAX - 1, folder);
}

/* The names in a folder, sorted, but for those that begin with a point. */
static tutti_status_t read_names(const char *folder, DIR *entries, list_t *names)
{
    errno = 0; /* NULL is the end, or a failure that leaves the rest out */
    for (struct dirent *entry; (entry = readdir(entries)) != NULL; errno = 0) {
        if (entry->d_name[0] != '.') {
            TT_TRY(add(names, entry->d_name));
        }
    }
    if (errno != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "data set folder: reading %s failed", folder);
    }
    if (names->count > 0) {
        qsort(names->texts, (size_t)names->count, sizeof *names->texts, compare);
    }
    return TUTTI_OK;
}

static tutti_status_t list_folder(const char *folder, list_t *names)
{
    DIR *entries = opendir(folder);
    if (entries == NULL) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "data set folder: %s", folder);
    }
    const tutti_status_t status = read_names(folder, entries, names);
    closedir(entries);
    return status;
}

/* ---- walking --------------------------------------------------------------------------------- */

/* By the paths of their folders as texts, "a-b" before "a/b"; those of a folder by their names. */
static int compare_pictures(const void *a, const void *b)
{
    const char *one = *(char *const *)a, *other = *(char *const *)b;
    const size_t bytes = (size_t)(strrchr(one, '/') - one);
    const size_t others = (size_t)(strrchr(other, '/') - other);
    const int order = memcmp(one, other, bytes < others ? bytes : others);
    if (order != 0 || bytes != others) {
        return order != 0 ? order : (bytes > others) - (bytes < others);
    }
    return strcmp(one + bytes, other + others);
}

static int compare_places(const place_t *a, const place_t *b)
{
    const int by_device = (a->device > b->device) - (a->device < b->device);
    return by_device != 0 ? by_device : (a->inode > b->inode) - (a->inode < b->inode);
}

/* Where it is among those seen, or belongs. */
static size_t find_place(const walk_t *walk, const place_t *place)
{
    size_t low = 0, high = walk->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (compare_places(&walk->seen[middle], place) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Links may lead to a folder in many ways: two in each of 30 folders to the next one in a thousand
 * million. */
static tutti_status_t enter(walk_t *walk, const char *folder)
{
    struct stat about;
    if (stat(folder, &about) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "data set folder: %s", folder);
    }
    const place_t place = {about.st_dev, about.st_ino};
    const size_t at = find_place(walk, &place);
    if (at < walk->count && compare_places(&walk->seen[at], &place) == 0) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "data set folder: %s is a folder that its class has already: a link leads "
                       "to it again",
                       folder);
    }
    if (walk->count == walk->room) {
        const size_t room = walk->room == 0 ? 16 : 2 * walk->room;
        place_t *grown = tt_realloc(walk->seen, room * sizeof *grown, "folders");
        TT_TRY_ALLOC(grown);
        walk->seen = grown;
        walk->room = room;
    }
    memmove(walk->seen + at + 1, walk->seen + at, (walk->count - at) * sizeof place);
    walk->seen[at] = place;
    walk->count++;
    return TUTTI_OK;
}

static bool is_folder(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

static tutti_status_t add_pictures(const char *folder, int depth, walk_t *walk);

/* What `names` of a folder are: pictures, and folders of more. */
static tutti_status_t add_named(const char *folder, const list_t *names, int depth, walk_t *walk)
{
    char path[PATH_MAX];
    for (int64_t i = 0; i < names->count; i++) {
        TT_TRY(join(folder, names->texts[i], path));
        if (is_folder(path)) {
            TT_TRY(add_pictures(path, depth + 1, walk));
        } else if (tt_picture_codec_of_name(path) != NULL) {
            TT_TRY(add(walk->paths, path));
        }
    }
    return TUTTI_OK;
}

static tutti_status_t add_pictures(const char *folder, int depth, walk_t *walk)
{
    list_t names = {0};
    if (depth > DEPTH_MAX) {
        return TT_FAIL(TUTTI_ERR_ARG, "data set folder: %s: more than %d folders deep", folder,
                       DEPTH_MAX);
    }
    TT_TRY(enter(walk, folder));
    tutti_status_t status = list_folder(folder, &names);
    if (status >= 0) {
        status = add_named(folder, &names, depth, walk);
    }
    release(&names);
    return status;
}

static tutti_status_t add_class(state_t *state, const char *folder, const char *name)
{
    char path[PATH_MAX];
    const int64_t before = state->paths.count;
    TT_TRY(join(folder, name, path));
    if (!is_folder(path)) {
        return TUTTI_OK;
    }
    walk_t walk = {.paths = &state->paths};
    const tutti_status_t status = add_pictures(path, 0, &walk);
    tt_free(walk.seen);
    TT_TRY(status);
    if (state->paths.count == before) {
        return TT_FAIL(TUTTI_ERR_FORMAT,
                       "data set folder: class %s has no picture: none below %s ends in .png, .jpg "
                       "or .jpeg",
                       name, path);
    }
    qsort(state->paths.texts + before, (size_t)(state->paths.count - before),
          sizeof *state->paths.texts, compare_pictures);
    int64_t *grown =
        tt_realloc(state->targets, (size_t)state->paths.count * sizeof *grown, "file names");
    TT_TRY_ALLOC(grown);
    state->targets = grown;
    for (int64_t i = before; i < state->paths.count; i++) {
        grown[i] = state->classes.count;
    }
    return add(&state->classes, name);
}

static tutti_status_t read_classes(state_t *state, const char *folder)
{
    list_t names = {0};
    tutti_status_t status = list_folder(folder, &names);
    for (int64_t i = 0; i < names.count && status >= 0; i++) {
        status = add_class(state, folder, names.texts[i]);
    }
    release(&names);
    if (status >= 0 && state->classes.count == 0) {
        return TT_FAIL(TUTTI_ERR_FORMAT,
                       "data set folder: %s holds no folder: one for each class "
                       "is expected",
                       folder);
    }
    return status;
}

static tutti_status_t init(tutti_dataset_t *d, const void *options, tutti_dataset_info_t *info)
{
    const tutti_folder_options_t *o = options;
    state_t *state = tutti_dataset_state(d);
    state->channels = o->channels == 0 ? 3 : o->channels;
    if (o->folder == NULL || (state->channels != 3 && state->channels != 1)) {
        return TT_FAIL(TUTTI_ERR_ARG,
                       "data set folder: folder %s, %d channels: a folder is required, and 3 or 1 "
                       "channels",
                       o->folder == NULL ? "missing" : o->folder, state->channels);
    }
    TT_TRY(read_classes(state, o->folder));
    *info =
        tt_pair_info((tutti_field_t){TUTTI_U8, TUTTI_SHAPE(state->channels, TUTTI_ANY, TUTTI_ANY)},
                     (tutti_field_t){TUTTI_I64, TUTTI_SCALAR});
    info->count = state->paths.count;
    return TUTTI_OK;
}

static void fini(tutti_dataset_t *d)
{
    state_t *state = d->state;
    release(&state->classes);
    release(&state->paths);
    tt_free(state->targets);
}

static tutti_status_t make_planes(tt_planes_t *planes)
{
    tutti_sample_t *sample = planes->user;
    TT_TRY(tutti_sample_resize(sample, TUTTI_INPUT,
                               TUTTI_SHAPE(planes->channels, planes->height, planes->width)));
    planes->data = sample->data[TUTTI_INPUT];
    return TUTTI_OK;
}

static tutti_status_t read_picture(tutti_dataset_t *d, int64_t index, tutti_sample_t *to)
{
    const state_t *state = d->state;
    tt_planes_t planes = {.channels = state->channels, .make = make_planes, .user = to};
    *(int64_t *)to->data[TUTTI_TARGET] = state->targets[index];
    return tt_picture_decode_file(state->paths.texts[index], &planes);
}

const tutti_dataset_ops_t tutti_folder_dataset = {
    .name = "folder",
    .about = "PNG and JPEG pictures in a folder for each class",
    .state_bytes = sizeof(state_t),
    .init = init,
    .fini = fini,
    .read = read_picture,
};

static const char *text_of(const tutti_dataset_t *d, bool is_path, int64_t index)
{
    const state_t *state = d->state;
    if (d->ops != &tutti_folder_dataset) {
        return NULL;
    }
    const list_t *list = is_path ? &state->paths : &state->classes;
    return index < 0 || index >= list->count ? NULL : list->texts[index];
}

const char *tutti_folder_class(tutti_dataset_t *d, int64_t index)
{
    return text_of(d, false, index);
}

const char *tutti_folder_path(tutti_dataset_t *d, int64_t sample)
{
    return text_of(d, true, sample);
}
