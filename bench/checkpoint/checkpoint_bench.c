/* What saving and loading checkpoints takes, beside the same files by plain system calls.
 *
 *     build/bin/tutti run -n 2 build/bench/checkpoint FOLDER PART [MIB] [ROUNDS]
 *
 *     save, load   one line a round: seconds of ours and of the limit program, in turns; what was
 *                  read is in the page cache
 *     cold         loading again, with nothing of the files in the page cache
 *     ours         a save, a cold and a warm load without the limit program
 *     steps        steps while a save is written in the background, and without, in turns
 *     bytes        what each rank reads over what it has, loading rows of what two ranks saved
 *     memory       what the process takes beside its state
 *     many         10,000 tensors of 1 KiB, which every rank has: saved and loaded
 *
 * FOLDER is made, and emptied by whoever called. The state is MIB (1024) over all ranks.
 */
#include "checkpoint_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tutti/tutti.h>

enum { ROWS = 2048, TENSOR_MIB = ROWS / 128 * WIDTH / 2048 };

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the state ------------------------------------------------------------------------------- */

static tutti_status_t add_slice(state_t *state, const layout_t *layout, int64_t begin, int64_t end)
{
    const tutti_shape_t whole = TUTTI_SHAPE(layout->rows, layout->width);
    tutti_shape_t shape = whole;
    int64_t offset[2] = {0, 0};
    offset[layout->is_by_columns] = begin;
    shape.dims[layout->is_by_columns] = end - begin;
    tutti_tensor_t *x;
    TUTTI_CHECK(tutti_tensor_create(TUTTI_F32, shape, &x));
    snprintf(state->names[state->count], NAME_BYTES, "t%05zu.weight", state->count);
    state->slices[state->count] = tutti_slice_box(state->names[state->count], x, whole, offset);
    state->count++;
    return TUTTI_OK;
}

tutti_status_t state_create(tutti_group_t *world, const char *folder, const layout_t *layout,
                            state_t *out)
{
    state_t state = {.world = world,
                     .rank = tutti_group_rank(world),
                     .ranks = tutti_group_size(world),
                     .names = calloc(layout->count, sizeof *state.names),
                     .slices = calloc(layout->count, sizeof *state.slices)};
    const int part = layout->parts == 1 ? 0 : state.rank;
    const int64_t size = layout->is_by_columns ? layout->width : layout->rows;
    tutti_status_t status =
        state.names == NULL || state.slices == NULL ? TUTTI_ERR_NOMEM : TUTTI_OK;
    for (size_t i = 0; i < layout->count && part < layout->parts && status >= 0; i++) {
        status = add_slice(&state, layout, size * part / layout->parts,
                           size * (part + 1) / layout->parts);
    }
    state.checkpoint = (tutti_checkpoint_t){.folder = folder,
                                            .group = world,
                                            .slices = state.slices,
                                            .slice_count = state.count,
                                            .keep = 1};
    if (status < 0) {
        state_release(&state);
        return status;
    }
    *out = state;
    state_fill(out, false);
    return TUTTI_OK;
}

void state_release(state_t *state)
{
    for (size_t i = 0; i < state->count; i++) {
        tutti_tensor_release(state->slices[i].tensor);
    }
    free(state->slices);
    free(state->names);
}

static float value_of(size_t tensor, const tutti_slice_t *slice, int64_t row, int64_t column)
{
    const int64_t element = (slice->offset[0] + row) * slice->whole.dims[1] + slice->offset[1];
    return (float)((element + column + (int64_t)tensor) % 65521 + 1);
}

void state_fill(const state_t *state, bool is_zero)
{
    for (size_t i = 0; i < state->count; i++) {
        const tutti_slice_t *slice = &state->slices[i];
        const tutti_shape_t shape = tutti_tensor_shape(slice->tensor);
        float *data = tutti_tensor_data(slice->tensor);
        for (int64_t row = 0; row < shape.dims[0]; row++) {
            for (int64_t column = 0; column < shape.dims[1]; column++) {
                *data++ = is_zero ? 0 : value_of(i, slice, row, column);
            }
        }
    }
}

tutti_status_t state_check(const state_t *state)
{
    size_t wrong = 0;
    for (size_t i = 0; i < state->count; i++) {
        const tutti_slice_t *slice = &state->slices[i];
        const tutti_shape_t shape = tutti_tensor_shape(slice->tensor);
        const float *data = tutti_tensor_data(slice->tensor);
        for (int64_t row = 0; row < shape.dims[0]; row++) {
            for (int64_t column = 0; column < shape.dims[1]; column++) {
                wrong += *data++ != value_of(i, slice, row, column);
            }
        }
    }
    if (wrong > 0) {
        fprintf(stderr, "checkpoint: %zu elements are not what was saved\n", wrong);
    }
    return wrong == 0 ? TUTTI_OK : TUTTI_ERR_STATE;
}

/* ---- the program ----------------------------------------------------------------------------- */

static tutti_status_t run_on_state(tutti_group_t *world, const char *folder, const char *part,
                                   size_t mib, int rounds)
{
    state_t state;
    const layout_t layout = {
        .count = mib / TENSOR_MIB, .rows = ROWS, .width = WIDTH, .parts = tutti_group_size(world)};
    TUTTI_CHECK(state_create(world, folder, &layout, &state));
    tutti_status_t status = TUTTI_OK;
    if (strcmp(part, "memory") == 0) {
        status = bench_memory(&state);
    } else if (strcmp(part, "steps") == 0) {
        status = bench_steps(&state, rounds);
    } else if (strcmp(part, "ours") == 0) {
        status = bench_save(&state, rounds, false);
        status = status < 0 ? status : bench_load(&state, rounds, false, true);
        status = status < 0 ? status : bench_load(&state, rounds, false, false);
    } else if (strcmp(part, "save") == 0) {
        status = bench_save(&state, rounds, true);
    } else {
        status = bench_load(&state, rounds, true, strcmp(part, "cold") == 0);
    }
    state_release(&state);
    return status;
}

static tutti_status_t run(const char *folder, const char *part, size_t mib, int rounds)
{
    tutti_group_t *world;
    TUTTI_CHECK(tutti_init(NULL, &world));
    const tutti_status_t status =
        strcmp(part, "bytes") == 0  ? bench_bytes(world, folder, mib / TENSOR_MIB)
        : strcmp(part, "many") == 0 ? bench_many(world, folder, rounds)
                                    : run_on_state(world, folder, part, mib, rounds);
    if (status < 0) {
        fprintf(stderr, "checkpoint: %s\n", tutti_last_error());
    }
    tutti_group_release(world);
    return status;
}

int main(int argc, char **argv)
{
    static const char parts[] = " save load cold ours steps bytes memory many ";
    const long mib = argc > 3 ? strtol(argv[3], NULL, 10) : 1024;
    const long rounds = argc > 4 ? strtol(argv[4], NULL, 10) : 5;
    char word[NAME_BYTES];
    snprintf(word, sizeof word, " %s ", argc > 2 ? argv[2] : "");
    if (argc < 3 || argc > 5 || strstr(parts, word) == NULL || mib < TENSOR_MIB || rounds < 1) {
        fprintf(stderr, "usage: checkpoint FOLDER PART [MIB] [ROUNDS]; parts:%s\n", parts);
        return 2;
    }
    return run(argv[1], argv[2], (size_t)mib, (int)rounds) < 0;
}
