/* The machine: what hwloc and the kernel tell about it. */
#include <tutti/diagnose.h>

#include <hwloc.h>
#include <stdio.h>

#include "core/base/fail.h"
#include "core/kernel/isa.h"

const char *tutti_version(void)
{
    return TUTTI_VERSION;
}

static int count_of(hwloc_topology_t topology, hwloc_obj_type_t type)
{
    const int count = hwloc_get_nbobjs_by_type(topology, type);
    return count > 0 ? count : 0;
}

/* Of the first cache of a kind; 0 when there is none. */
static int64_t cache_bytes(hwloc_topology_t topology, hwloc_obj_type_t type)
{
    const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);
    return cache != NULL ? (int64_t)cache->attr->cache.size : 0;
}

static void describe(hwloc_topology_t topology, tutti_machine_t *machine)
{
    const hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
    const hwloc_obj_t root = hwloc_get_root_obj(topology);
    const char *cpu = package != NULL ? hwloc_obj_get_info_by_name(package, "CPUModel") : NULL;
    cpu = cpu != NULL ? cpu : hwloc_obj_get_info_by_name(root, "CPUModel");
    snprintf(machine->cpu, sizeof machine->cpu, "%s", cpu != NULL ? cpu : "");
    machine->packages = count_of(topology, HWLOC_OBJ_PACKAGE);
    machine->numa_nodes = count_of(topology, HWLOC_OBJ_NUMANODE);
    machine->cores = count_of(topology, HWLOC_OBJ_CORE);
    machine->threads = count_of(topology, HWLOC_OBJ_PU);
    machine->l1_bytes = cache_bytes(topology, HWLOC_OBJ_L1CACHE);
    machine->l2_bytes = cache_bytes(topology, HWLOC_OBJ_L2CACHE);
    machine->l3_bytes = cache_bytes(topology, HWLOC_OBJ_L3CACHE);
    machine->memory_bytes = (int64_t)root->total_memory;
}

tutti_status_t tutti_info_machine(tutti_machine_t *out)
{
    TT_WANT("info_machine", out);
    TT_TRY(tt_isa_check());
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) {
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "topology of the machine");
    }
    if (hwloc_topology_load(topology) != 0) {
        hwloc_topology_destroy(topology);
        return TT_FAIL_ERRNO(TUTTI_ERR_IO, "topology of the machine");
    }
    *out = (tutti_machine_t){.kernel_variant = tt_isa_name()};
    describe(topology, out);
    hwloc_topology_destroy(topology);
    return TUTTI_OK;
}
