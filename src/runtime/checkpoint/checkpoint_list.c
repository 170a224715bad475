/* The steps in a training's folder. */
#include <tutti/checkpoint_files.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "core/base/alloc.h"
#include "runtime/checkpoint/folder_lock.h"
#include "runtime/checkpoint/step_folders.h"

typedef struct {
    tutti_checkpoint_step_t *steps;
    size_t count, room;
} list_t;

/* One that goes meanwhile is not there. */
static tutti_status_t add(void *user, const tt_step_folder_t *found)
{
    list_t *list = user;
    struct stat about;
    if (stat(found->path, &about) != 0) {
        return errno == ENOENT ? TUTTI_OK : TT_FAIL_ERRNO(TUTTI_ERR_IO, "folder %s", found->path);
    }
    if (list->count == list->room) {
        const size_t room = list->room == 0 ? 8 : 2 * list->room;
        void *steps = tt_realloc(list->steps, room * sizeof *list->steps, "buffer");
        TT_TRY_ALLOC(steps);
        list->steps = steps;
        list->room = room;
    }
    tutti_checkpoint_step_t *step = &list->steps[list->count++];
    *step = (tutti_checkpoint_step_t){
        .step = found->step, .is_published = found->is_whole, .time_s = about.st_mtime};
    snprintf(step->name, sizeof step->name, "%s", found->name);
    return TUTTI_OK;
}

static int by_step(const void *a, const void *b)
{
    const tutti_checkpoint_step_t *x = a, *y = b;
    return x->step != y->step ? (x->step > y->step) - (x->step < y->step)
                              : x->is_published - y->is_published;
}

tutti_status_t tutti_checkpoint_list(const char *folder, tutti_buffer_t *steps)
{
    list_t list = {.steps = tt_alloc(1, "buffer")};
    TT_TRY_ALLOC(list.steps);
    const tutti_status_t status = tt_steps_each(folder, add, &list);
    if (status < 0) {
        tt_free(list.steps);
        return status;
    }
    qsort(list.steps, list.count, sizeof *list.steps, by_step);
    *steps = (tutti_buffer_t){list.steps, list.count * sizeof *list.steps};
    return TUTTI_OK;
}

tutti_status_t tutti_checkpoint_remove(const char *folder, int64_t step)
{
    tt_path_t path;
    struct stat about;
    if (step >= 0 && step <= TT_STEP_MAX) {
        tt_steps_name(folder, step, path);
        if (stat(path, &about) == 0) {
            TT_TRY(tt_folder_lock(folder, NULL, true));
            return tt_steps_remove(folder, step);
        }
    }
    return TT_FAIL(TUTTI_ERR_NOT_FOUND, "folder %s: there is no checkpoint of step %lld in it",
                   folder, (long long)step);
}
