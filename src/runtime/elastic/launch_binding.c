/* Cores for ranks. hwloc lists cores so that neighbours share caches and memory; rank r of n gets
 * cores r × C / n up to (r + 1) × C / n of the C that this process may use.
 */
#include "runtime/elastic/launch_binding.h"

#include <hwloc.h>
#include <stdint.h>

#include <tutti/launch.h>

#include "core/base/alloc.h"

/* Cores are numbered in the order of the topology; without one, each CPU is a core. */
typedef struct {
    int count;
    int16_t core_of[TT_CORES_MAX]; /* of each CPU; -1: this process may not use it */
} cores_t;

static void add_topology(cores_t *cores, hwloc_topology_t topology, const tt_core_set_t *allowed)
{
    const int count = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    for (int i = 0; i < count; i++) {
        const hwloc_obj_t core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, (unsigned)i);
        bool is_usable = false;
        for (int cpu = hwloc_bitmap_first(core->cpuset); cpu >= 0 && cpu < TT_CORES_MAX;
             cpu = hwloc_bitmap_next(core->cpuset, cpu)) {
            if (tt_core_set_has(allowed, cpu)) {
                cores->core_of[cpu] = (int16_t)cores->count;
                is_usable = true;
            }
        }
        cores->count += is_usable;
    }
}

static void add_cpus(cores_t *cores, const tt_core_set_t *allowed)
{
    for (int cpu = 0; cpu < TT_CORES_MAX; cpu++) {
        if (tt_core_set_has(allowed, cpu)) {
            cores->core_of[cpu] = (int16_t)cores->count++;
        }
    }
}

static void find_cores(cores_t *cores)
{
    tt_core_set_t allowed;
    *cores = (cores_t){0};
    for (int cpu = 0; cpu < TT_CORES_MAX; cpu++) {
        cores->core_of[cpu] = -1;
    }
    if (tt_core_set_of(0, &allowed) == 0) {
        tt_core_set_add(&allowed, 0);
    }
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) == 0) {
        if (hwloc_topology_load(topology) == 0) {
            add_topology(cores, topology, &allowed);
        }
        hwloc_topology_destroy(topology);
    }
    if (cores->count == 0) {
        add_cpus(cores, &allowed);
    }
}

int tutti_core_count(void)
{
    cores_t cores;
    find_cores(&cores);
    return cores.count;
}

void tt_bindings_plan(int rank_count, tt_binding_t *out)
{
    cores_t cores;
    find_cores(&cores);
    const int n = cores.count;
    for (int rank = 0; rank < rank_count; rank++) {
        const int first = n >= rank_count ? rank * n / rank_count : rank % n;
        const int end = n >= rank_count ? (rank + 1) * n / rank_count : first + 1;
        out[rank] = (tt_binding_t){.cores = end - first};
        for (int cpu = 0; cpu < TT_CORES_MAX; cpu++) {
            if (cores.core_of[cpu] >= first && cores.core_of[cpu] < end) {
                tt_core_set_add(&out[rank].cpus, cpu);
            }
        }
    }
}
