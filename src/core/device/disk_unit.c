/* Units of a file: how large they are, and how they move. */
#include "core/device/disk_ring.h"

size_t tt_disk_unit_bytes(const tt_disk_unit_t *unit)
{
    size_t bytes = 0;
    for (int i = 0; i < unit->count; i++) {
        bytes += unit->ranges[i].bytes;
    }
    return bytes;
}

size_t tt_disk_unit_written_bytes(const tt_disk_unit_t *unit)
{
    size_t bytes = 0;
    for (int i = 0; i < unit->count; i++) {
        bytes += unit->ranges[i].is_constant ? 0 : unit->ranges[i].bytes;
    }
    return bytes;
}

tutti_status_t tt_disk_unit_move(tt_disk_file_t *file, const tt_disk_unit_t *unit, char *memory,
                                 bool is_writing)
{
    for (int i = 0; i < unit->count; i++) {
        const tt_disk_range_t *range = &unit->ranges[i];
        if (!is_writing) {
            TT_TRY(tt_disk_file_read(file, range->at, memory, range->bytes));
        } else if (!range->is_constant) {
            TT_TRY(tt_disk_file_write(file, range->at, memory, range->bytes));
        }
        memory += range->bytes;
    }
    return TUTTI_OK;
}
