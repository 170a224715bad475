/* Cores for ranks. hwloc lists cores so that neighbours share caches and memory; rank r of n gets
 * cores r × C / n up to (r + 1) × C / n of the C that this process may use.
 */
#include "runtime/elastic/launch_binding.h"

#include <hwloc.h>
#include <hwloc/glibc-sched.h>

#include <tutti/elastic.h>

#include "core/base/alloc.h"

/* One entry per core, of what this process may use of it. Without a topology: of each CPU. */
typedef struct {
    int count;
    cpu_set_t cpus[CPU_SETSIZE];
} cores_t;

static void add_core(cores_t *cores, const cpu_set_t *core, const cpu_set_t *allowed)
{
    cpu_set_t usable;
    CPU_AND(&usable, core, allowed);
    if (CPU_COUNT(&usable) > 0 && cores->count < CPU_SETSIZE) {
        cores->cpus[cores->count++] = usable;
    }
}

static void add_cpus(cores_t *cores, const cpu_set_t *allowed)
{
    for (int i = 0; i < CPU_SETSIZE; i++) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(i, &one);
        add_core(cores, &one, allowed);
    }
}

static void add_topology(cores_t *cores, hwloc_topology_t topology, const cpu_set_t *allowed)
{
    const int count = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    for (int i = 0; i < count; i++) {
        cpu_set_t core;
        const hwloc_obj_t object = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, (unsigned)i);
        if (hwloc_cpuset_to_glibc_sched_affinity(topology, object->cpuset, &core, sizeof core) ==
            0) {
            add_core(cores, &core, allowed);
        }
    }
}

static void find_cores(cores_t *cores)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        CPU_ZERO(&allowed);
        CPU_SET(0, &allowed);
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
    cores_t *cores = tt_alloc(sizeof *cores, "cores");
    int count = 1;
    if (cores != NULL) {
        find_cores(cores);
        count = cores->count;
    }
    tt_free(cores);
    return count;
}

tutti_status_t tt_bindings_plan(int rank_count, tt_binding_t *out)
{
    cores_t *cores = tt_alloc(sizeof *cores, "cores");
    TT_TRY_ALLOC(cores);
    find_cores(cores);
    const int n = cores->count;
    for (int rank = 0; rank < rank_count; rank++) {
        const int first = n >= rank_count ? rank * n / rank_count : rank % n;
        const int end = n >= rank_count ? (rank + 1) * n / rank_count : first + 1;
        CPU_ZERO(&out[rank].cpus);
        for (int i = first; i < end; i++) {
            CPU_OR(&out[rank].cpus, &out[rank].cpus, &cores->cpus[i]);
        }
        out[rank].cores = end - first;
    }
    tt_free(cores);
    return TUTTI_OK;
}
