/**
 * @file info.h
 * What this build of Tutti is made of, and what machine it runs on: what `tutti info` prints.
 *
 * Example:
 *
 *     tutti_family_t family;
 *     for (size_t i = 0; tutti_info_family(i, &family) == TUTTI_OK; i++) {
 *         printf("%s: %zu\n", family.name, family.member_count);
 *     }
 */
#ifndef TUTTI_INFO_H
#define TUTTI_INFO_H

#include <stddef.h>
#include <stdint.h>

#include <tutti/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A kind of thing that can be added to Tutti: stores, operations, backends, … */
typedef struct tutti_family {
    const char *name, *about;
    size_t member_count;
} tutti_family_t;

/** One of a family, such as the tcp store. */
typedef struct tutti_member {
    const char *name, *about;
} tutti_member_t;

/** An environment variable that Tutti reads. */
typedef struct tutti_setting {
    const char *variable, *fallback, *about;
    const char *value; /**< what holds now: the environment's, or the fallback */
    char allowed[96];  /**< what it may hold, in words; "" where a launcher decides */
} tutti_setting_t;

/** The machine, as far as this process may use it; 0 and "" for what is unknown. */
typedef struct tutti_machine {
    char cpu[96];
    int packages, numa_nodes, cores, threads; /**< threads: hardware threads */
    int64_t l1_bytes, l2_bytes, l3_bytes;     /**< of one cache of this level */
    int64_t memory_bytes;
    const char *kernel_variant; /**< instruction set that the kernels use: "avx512", "amx" */
} tutti_machine_t;

/** Such as "0.1.0". @thread any @errors none */
TUTTI_API const char *tutti_version(void);

/** The index-th family; END behind the last. @thread any @errors none */
TUTTI_API tutti_status_t tutti_info_family(size_t index, tutti_family_t *out);

/** The index-th member of a family; END behind the last. @thread any @errors ARG: no such family */
TUTTI_API tutti_status_t tutti_info_member(size_t family, size_t index, tutti_member_t *out);

/** The index-th environment variable; END behind the last. @thread any @errors none */
TUTTI_API tutti_status_t tutti_info_setting(size_t index, tutti_setting_t *out);

/**
 * Check the values of all TUTTI_ variables. tutti_init() and tutti_context_create() do so, too.
 *
 * @thread any
 * @errors ARG names a variable, its value and what is allowed
 */
TUTTI_API tutti_status_t tutti_info_check_settings(void);

/**
 * Look at the machine.
 *
 * @param out  written on success
 * @thread     any
 * @cost       reads the topology, a few milliseconds
 * @errors     IO; ARG, UNSUPPORTED when TUTTI_ISA asks for what is not there
 */
TUTTI_API tutti_status_t tutti_info_machine(tutti_machine_t *out);

#ifdef __cplusplus
}
#endif

#endif
