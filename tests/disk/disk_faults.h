/* A disk that fails: system calls on what is below a folder are counted for each thread, and from
 * the n-th on, or only that one, do not do their work. The linker puts these in the place of the C
 * library's (--wrap, in cmake/tests.cmake). fsync() does nothing at all, to be quick. */
#ifndef TT_DISK_FAULTS_H
#define TT_DISK_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    DISK_ONCE,     /* one call fails */
    DISK_LASTING,  /* and all behind it */
    DISK_VANISHED, /* the folder gets another name, "<folder>.away" */
    DISK_READ_ONLY /* as DISK_LASTING, of calls that write */
} disk_fault_t;

typedef struct {
    const char *folder;
    disk_fault_t fault;
    int code;   /* errno; not of DISK_VANISHED */
    int64_t at; /* the number of the call, from 1 on; 0: none */
} disk_plan_t;

/* For the calling thread; the count begins anew. The plan is used until disk_heal(). */
void disk_fail(const disk_plan_t *plan);
void disk_heal(void);

/* Of the process: files cannot be locked (ENOLCK), folders not be exchanged (EINVAL). */
void disk_set_plain(bool is_plain);

/* The call that failed first, "fsync"; NULL: none did. */
const char *disk_failed(void);

#endif
