/* What a checkpoint takes beside time: bytes that are read, and memory; and many small tensors. */
#include "checkpoint_bench.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAVED_BY = 2, ODD_ROWS = 2047, ODD_WIDTH = 2051, MANY = 10000 };

/* A number in one of the files of /proc/self, behind a word. */
static long long look_up(const char *path, const char *word)
{
    char text[4096], *found;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t bytes = read(fd, text, sizeof text - 1);
    close(fd);
    text[bytes > 0 ? bytes : 0] = 0;
    found = strstr(text, word);
    return found == NULL ? 0 : strtoll(found + strlen(word), NULL, 10);
}

/* The most of all ranks. */
static tutti_status_t most_of(tutti_group_t *world, double *value)
{
    tutti_tensor_t *cell;
    TUTTI_CHECK(tutti_group_tensor(world, TUTTI_F64, TUTTI_SHAPE(1), &cell));
    double *data = tutti_tensor_data(cell);
    *data = *value;
    const tutti_status_t status = tutti_all_reduce(world, cell, TUTTI_MAX, NULL);
    *value = *data;
    tutti_tensor_release(cell);
    return status;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static tutti_status_t save_layout(tutti_group_t *world, const char *folder, const layout_t *layout)
{
    state_t state;
    TUTTI_CHECK(state_create(world, folder, layout, &state));
    const tutti_status_t status = tutti_checkpoint_save(&state.checkpoint, 1);
    state_release(&state);
    return status;
}

/* Bytes read over bytes of the state, of the rank with the most. */
static tutti_status_t load_layout(tutti_group_t *world, const char *folder, const layout_t *layout,
                                  double *ratio)
{
    state_t state;
    int64_t step;
    double bytes = 0;
    TUTTI_CHECK(state_create(world, folder, layout, &state));
    state_fill(&state, true);
    for (size_t i = 0; i < state.count; i++) {
        bytes += (double)tutti_tensor_bytes(state.slices[i].tensor);
    }
    const long long before = look_up("/proc/self/io", "rchar:");
    tutti_status_t status = tutti_checkpoint_load(&state.checkpoint, &step);
    *ratio = (double)(look_up("/proc/self/io", "rchar:") - before) / bytes;
    status = status < 0 ? status : state_check(&state);
    state_release(&state);
    return status < 0 ? status : most_of(world, ratio);
}

tutti_status_t bench_bytes(tutti_group_t *world, const char *folder, size_t count)
{
    double rows, columns;
    layout_t layout = {.count = count, .rows = ODD_ROWS, .width = ODD_WIDTH, .parts = SAVED_BY};
    TUTTI_CHECK(save_layout(world, folder, &layout));
    layout.parts = tutti_group_size(world);
    TUTTI_CHECK(load_layout(world, folder, &layout, &rows));
    layout.is_by_columns = true;
    TUTTI_CHECK(load_layout(world, folder, &layout, &columns));
    if (tutti_group_rank(world) == 0) {
        printf("{\"what\":\"bytes\",\"ranks\":%d,\"rows\":%.4f,\"columns\":%.4f}\n",
               tutti_group_size(world), rows, columns);
    }
    return TUTTI_OK;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The most that the process takes during a call beyond what it had before, in MiB. */
static tutti_status_t memory_of(const state_t *state, bool is_save, double *mib)
{
    static const char status_path[] = "/proc/self/status";
    int64_t step = 1;
    const int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "5", 1) != 1) {
        perror("/proc/self/clear_refs");
    }
    close(fd);
    const long long before = look_up(status_path, "VmRSS:");
    TUTTI_CHECK(is_save ? tutti_checkpoint_save(&state->checkpoint, step)
                        : tutti_checkpoint_load(&state->checkpoint, &step));
    *mib = (double)(look_up(status_path, "VmHWM:") - before) / 1024;
    return most_of(state->world, mib);
}

tutti_status_t bench_memory(const state_t *state)
{
    double save, load;
    TUTTI_CHECK(memory_of(state, true, &save));
    TUTTI_CHECK(memory_of(state, false, &load));
    if (state->rank == 0) {
        printf("{\"what\":\"memory\",\"save_mib\":%.2f,\"load_mib\":%.2f}\n", save, load);
    }
    return TUTTI_OK;
}

/* ---- many small tensors ---------------------------------------------------------------------- */

tutti_status_t bench_many(tutti_group_t *world, const char *folder, int rounds)
{
    state_t state;
    const layout_t layout = {.count = MANY, .rows = 16, .width = 16, .parts = 1};
    TUTTI_CHECK(state_create(world, folder, &layout, &state));
    tutti_status_t status = TUTTI_OK;
    for (int64_t i = 0; i < rounds && status >= 0; i++) {
        int64_t step;
        const double begin = seconds_now();
        status = tutti_checkpoint_save(&state.checkpoint, i);
        const double middle = seconds_now();
        status = status < 0 ? status : tutti_checkpoint_load(&state.checkpoint, &step);
        if (status >= 0 && state.rank == 0) {
            printf("{\"what\":\"many\",\"save_s\":%.4f,\"load_s\":%.4f}\n", middle - begin,
                   seconds_now() - middle);
        }
    }
    state_release(&state);
    return status;
}
