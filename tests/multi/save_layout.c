/* Saves a checkpoint of the tensors of layout_testing.h, for checkpoint_cli_test.py:
 *
 *     save_layout FOLDER LAYOUT RANKS STEP [CHANGE …]
 *     set NAME ELEMENT VALUE     another value: -1.5, nan, -nan
 *     without NAME               this tensor is left out
 *     name NAME OTHER            it gets another name
 *     text NAME TEXT             of the caller
 *     whole                      each tensor in one file
 *     big ROWS COLUMNS           one more, "big", of f32, whose element i is i % 251; each rank has
 *                                an interval of it
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/launch.h>

#include "runtime/checkpoint/layout_testing.h"

enum { TEXTS_MAX = 8 };

typedef struct {
    char **changes;
    int count;
    const char *folder;
    tt_layout_t layout;
    int64_t step;
} job_t;

static const job_t *job; /* the ranks are threads */

static long long number(const char *text)
{
    return strtoll(text, NULL, 10);
}

static void add_big(tt_laid_t *laid, const tutti_spawned_t *self, char **change)
{
    const tt_layout_tensor_t big = {"big", TUTTI_F32,
                                    TUTTI_SHAPE(number(change[1]), number(change[2]))};
    tt_lay_interval(laid, &big, self->rank, self->size);
    tutti_slice_t *slice = &laid->slices[laid->count - 1];
    float *data = tutti_tensor_data(slice->tensor);
    for (int64_t i = 0; i < tutti_tensor_numel(slice->tensor); i++) {
        data[i] = (float)((slice->first + i) % 251);
    }
}

static void leave_out(tt_laid_t *laid, const char *name)
{
    size_t kept = 0;
    for (size_t i = 0; i < laid->count; i++) {
        if (strcmp(laid->slices[i].name, name) == 0) {
            tutti_tensor_release(laid->slices[i].tensor);
        } else {
            laid->slices[kept++] = laid->slices[i];
        }
    }
    laid->count = kept;
}

static void rename_one(tt_laid_t *laid, const char *name, const char *other)
{
    for (size_t i = 0; i < laid->count; i++) {
        if (strcmp(laid->slices[i].name, name) == 0) {
            laid->slices[i].name = other;
        }
    }
}

static _Thread_local char **wanted; /* of set: name, element, value */

static tutti_status_t set_one(const tutti_slice_t *slice, int64_t at, int64_t element)
{
    if (strcmp(slice->name, wanted[0]) != 0 || element != number(wanted[1])) {
        return TUTTI_OK;
    }
    const double value = strtod(wanted[2], NULL);
    const tutti_dtype_t dtype = tutti_tensor_dtype(slice->tensor);
    char *data = tutti_tensor_data(slice->tensor);
    tt_convert_from(TT_CLASS_F64, dtype)(data + at * (int64_t)tutti_dtype_bytes(dtype), &value, 1);
    return TUTTI_OK;
}

static tutti_status_t change(tt_laid_t *laid, const tutti_spawned_t *self)
{
    for (int i = 0; i < job->count;) {
        char **change = &job->changes[i];
        if (strcmp(change[0], "set") == 0) {
            wanted = change + 1;
            TT_TRY(tt_lay_all(laid, set_one));
            i += 4;
        } else if (strcmp(change[0], "without") == 0) {
            leave_out(laid, change[1]);
            i += 2;
        } else if (strcmp(change[0], "name") == 0) {
            rename_one(laid, change[1], change[2]);
            i += 3;
        } else if (strcmp(change[0], "text") == 0) {
            i += 3;
        } else if (strcmp(change[0], "whole") == 0) {
            i += 1;
        } else {
            add_big(laid, self, change);
            i += 3;
        }
    }
    return TUTTI_OK;
}

static bool is_whole(void)
{
    for (int i = 0; i < job->count; i++) {
        if (strcmp(job->changes[i], "whole") == 0) {
            return true;
        }
    }
    return false;
}

static size_t list_texts(tutti_checkpoint_text_t *texts)
{
    size_t count = 0;
    for (int i = 0; i < job->count; i++) {
        if (strcmp(job->changes[i], "text") == 0) {
            texts[count++] = (tutti_checkpoint_text_t){.name = job->changes[i + 1],
                                                       .saved = tutti_text(job->changes[i + 2])};
        }
    }
    return count;
}

static tutti_status_t save_rank(const tutti_spawned_t *self)
{
    tutti_group_t *world;
    tt_laid_t laid;
    TT_TRY(tutti_init(TUTTI_SPAWNED(self), &world));
    tt_lay(&laid, job->layout, self->rank, self->size);
    tutti_status_t status = tt_lay_all(&laid, tt_layout_set);
    status = status < 0 ? status : change(&laid, self);
    tutti_checkpoint_text_t texts[TEXTS_MAX];
    const tutti_checkpoint_t checkpoint = {.folder = job->folder,
                                           .group = world,
                                           .slices = laid.slices,
                                           .slice_count = laid.count,
                                           .keep = 100,
                                           .texts = texts,
                                           .text_count = list_texts(texts),
                                           .whole = is_whole()};
    status = status < 0 ? status : tutti_checkpoint_save(&checkpoint, job->step);
    tt_lay_end(&laid);
    tutti_group_release(world);
    return status;
}

int main(int argc, char **argv)
{
    job_t all = {
        .changes = argv + 5, .count = argc - 5, .folder = argv[1], .step = number(argv[4])};
    while (strcmp(tt_layout_names[all.layout], argv[2]) != 0) {
        all.layout++;
    }
    job = &all;
    if (tutti_spawn(save_rank, (int)number(argv[3]), &(tutti_spawn_options_t){.threads = true}) <
        0) {
        fprintf(stderr, "save_layout: %s\n", tutti_last_error());
        return 1;
    }
    return 0;
}
