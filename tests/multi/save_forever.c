/* A rank of two, for checkpoint_kill_test.py: loads the newest checkpoint of the folder that is its
 * argument, compares each element with what it was at that save, and saves again and again until
 * it is killed, or hears that the other rank was; every second attempt saves tensors whole. With
 * "hosts" behind the folder the ranks are hosts with a disk each, and save each step twice; with
 * "swapped" each has the other one's disk, so that all that it loads is sent by that; "die N" kills
 * rank 1 when it reads the Nth time in a file of slices; with "saver" a thread saves. Each line is
 * written at once. */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <tutti/tutti.h>

enum { SLICES = 3, ROWS = 64, COLUMNS = 1024 };

typedef struct {
    const char *folder;
    bool has_hosts, is_swapped, has_saver;
    int reads; /* of rank 1 before it dies; 0: any */
} orders_t;

static _Atomic int reads_left;

/* Takes the place of the C library's. */
ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
    char link[40], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (reads_left > 0 && readlink(link, path, sizeof path - 1) > 0 &&
        strstr(path, "/rank-") != NULL && --reads_left == 0) {
        (void)raise(SIGKILL);
    }
    return syscall(SYS_pread64, fd, data, bytes, offset);
}

/* `save`: its number, from 1 on; 0: none. */
static float value_of(int64_t save, int slice)
{
    return (float)(save * SLICES + slice);
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

static tutti_status_t set(const tutti_slice_t *slices, int64_t save)
{
    for (int i = 0; i < SLICES; i++) {
        TUTTI_CHECK(tutti_tensor_fill(slices[i].tensor, value_of(save, i)));
    }
    return TUTTI_OK;
}

static int is_right(const tutti_slice_t *slices, int64_t save)
{
    for (int i = 0; i < SLICES; i++) {
        const float *data = tutti_tensor_data(slices[i].tensor);
        for (int64_t k = 0; k < tutti_tensor_numel(slices[i].tensor); k++) {
            if (data[k] != value_of(save, i)) {
                return 0;
            }
        }
    }
    return 1;
}

static tutti_status_t save_once(const tutti_checkpoint_t *checkpoint, tutti_saver_t *saver,
                                int64_t step)
{
    if (saver == NULL) {
        return tutti_checkpoint_save(checkpoint, step);
    }
    TUTTI_CHECK(tutti_saver_save(saver, step));
    return tutti_saver_wait(saver);
}

static tutti_status_t save_on(const tutti_checkpoint_t *checkpoint, tutti_saver_t *saver,
                              int64_t save)
{
    for (;;) {
        save++;
        TUTTI_CHECK(set(checkpoint->slices, save));
        TUTTI_CHECK(save_once(checkpoint, saver, checkpoint->per_host ? save / 2 : save));
        printf("saved %lld\n", (long long)save);
    }
}

static tutti_status_t run(const orders_t *orders, tutti_group_t *world)
{
    tutti_slice_t slices[SLICES];
    char own[4096];
    int64_t step = 0, save = 0;
    tutti_saver_t *saver = NULL;
    const int rank = tutti_group_rank(world);
    TUTTI_CHECK(make(rank, slices));
    snprintf(own, sizeof own, orders->has_hosts ? "%s/%d" : "%s", orders->folder,
             orders->is_swapped ? 1 - rank : rank);
    reads_left = rank == 1 ? orders->reads : 0;
    const tutti_checkpoint_t checkpoint = {.folder = own,
                                           .group = world,
                                           .slices = slices,
                                           .slice_count = SLICES,
                                           .per_host = orders->has_hosts,
                                           .whole = tutti_restart_count() % 2 == 1};
    const tutti_status_t status = tutti_checkpoint_load(&checkpoint, &step);
    if (status < 0) {
        return status;
    }
    if (status == TUTTI_OK) {
        save = (int64_t)(tutti_tensor_at(slices[0].tensor, 0) / SLICES);
    }
    const bool is_whole = status == TUTTI_END ||
                          (is_right(slices, save) && step == (orders->has_hosts ? save / 2 : save));
    if (orders->has_saver) {
        TUTTI_CHECK(tutti_saver_create(&checkpoint, &saver));
    }
    printf("%s %lld\n", is_whole ? "loaded" : "wrong", (long long)save);
    return save_on(&checkpoint, saver, save);
}

int main(int argc, char **argv)
{
    tutti_group_t *world;
    orders_t orders = {.folder = argv[1]};
    for (int i = 2; i < argc; i++) {
        orders.has_hosts = orders.has_hosts || strcmp(argv[i], "hosts") == 0;
        orders.has_saver = orders.has_saver || strcmp(argv[i], "saver") == 0;
        orders.is_swapped = orders.is_swapped || strcmp(argv[i], "swapped") == 0;
        orders.reads = strcmp(argv[i], "die") == 0 && i + 1 < argc
                           ? (int)strtol(argv[i + 1], NULL, 10)
                           : orders.reads;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 2 || tutti_init(NULL, &world) < 0 || run(&orders, world) < 0) {
        printf("failed: %s\n", tutti_last_error());
        return 1;
    }
    return 0;
}
