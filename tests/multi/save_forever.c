/* A rank of two, for checkpoint_kill_test.py: loads the newest checkpoint of the folder that is its
 * argument, compares each element with what it was at that step, and saves the next steps until
 * it is killed, or hears that the other rank was; every second attempt saves tensors whole. Each
 * line is written at once. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <tutti/tutti.h>

enum { SLICES = 3, ROWS = 64, COLUMNS = 1024 };

static float value_of(int64_t step, int slice)
{
    return (float)(step * SLICES + slice);
}

static tutti_status_t make(int rank, tutti_slice_t *slices)
{
    tutti_tensor_t *rows, *all, *part;
    const tutti_shape_t whole = TUTTI_SHAPE(2 * ROWS, COLUMNS), flat = TUTTI_SHAPE(10001);
    TUTTI_CHECK(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(ROWS, COLUMNS), &rows));
    TUTTI_CHECK(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(77), &all));
    TUTTI_CHECK(tutti_tensor_create(TUTTI_F32, TUTTI_SHAPE(rank == 0 ? 3000 : 7001), &part));
    slices[0] = tutti_slice_box("rows", rows, whole, (int64_t[]){rank * ROWS, 0});
    slices[1] = tutti_slice_whole("all", all);
    slices[2] = tutti_slice_interval("part", part, flat, rank == 0 ? 0 : 3000);
    return TUTTI_OK;
}

static tutti_status_t set(const tutti_slice_t *slices, int64_t step)
{
    for (int i = 0; i < SLICES; i++) {
        TUTTI_CHECK(tutti_tensor_fill(slices[i].tensor, value_of(step, i)));
    }
    return TUTTI_OK;
}

static int is_right(const tutti_slice_t *slices, int64_t step)
{
    for (int i = 0; i < SLICES; i++) {
        const float *data = tutti_tensor_data(slices[i].tensor);
        for (int64_t k = 0; k < tutti_tensor_numel(slices[i].tensor); k++) {
            if (data[k] != value_of(step, i)) {
                return 0;
            }
        }
    }
    return 1;
}

static tutti_status_t run(const char *folder, tutti_group_t *world)
{
    tutti_slice_t slices[SLICES];
    int64_t step = 0;
    TUTTI_CHECK(make(tutti_group_rank(world), slices));
    const tutti_checkpoint_t checkpoint = {.folder = folder,
                                           .group = world,
                                           .slices = slices,
                                           .slice_count = SLICES,
                                           .whole = tutti_restart_count() % 2 == 1};
    const tutti_status_t status = tutti_checkpoint_load(&checkpoint, &step);
    if (status < 0) {
        return status;
    }
    printf("%s %lld\n", status == TUTTI_OK && !is_right(slices, step) ? "wrong" : "loaded",
           (long long)step);
    for (;;) {
        TUTTI_CHECK(set(slices, ++step));
        TUTTI_CHECK(tutti_checkpoint_save(&checkpoint, step));
        printf("saved %lld\n", (long long)step);
    }
}

int main(int argc, char **argv)
{
    tutti_group_t *world;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 2 || tutti_init(NULL, &world) < 0 || run(argv[1], world) < 0) {
        printf("failed: %s\n", tutti_last_error());
    }
    return 1;
}
