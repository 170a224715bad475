/* The size of the last cache before memory. */
#ifndef TT_CACHE_SIZE_H
#define TT_CACHE_SIZE_H

#include <stddef.h>

/* Bytes of the largest cache that a core of this machine sees, shared or not; 32 MiB if nobody
 * says. What cpuid says, and the C library after it, is that of all sockets' slices together on
 * some virtual machines, so the kernel is asked. A few system calls. */
size_t tt_last_cache_bytes(void);

/* The same under another folder than /sys/devices/system/cpu/cpu0/cache. 0: nothing there. */
size_t tt_last_cache_bytes_in(const char *folder);

#endif
