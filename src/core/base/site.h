/* Where code is: an address as "train.c:88", or as "step+0x12 in train" where there is no debug
 * information. For texts only: nothing is read before the first address is asked for, and that
 * takes milliseconds.
 *
 *     tt_sites_t *sites = tt_sites_open(0);
 *     text = tt_sites_name(sites, call.site).text;
 *     tt_sites_close(sites);
 */
#ifndef TT_SITE_H
#define TT_SITE_H

#include <stdint.h>

enum { TT_SITE_BYTES = 96 };

typedef struct {
    char text[TT_SITE_BYTES]; /* "": not known */
} tt_site_t;

typedef struct tt_sites tt_sites_t;

/* The code of a process of this host (0: this one), as it is mapped now. NULL when that cannot be
 * read: it has ended, or belongs to somebody else. */
tt_sites_t *tt_sites_open(int64_t pid);

/* Of a return address: the call before it. `sites` may be NULL. */
tt_site_t tt_sites_name(tt_sites_t *sites, uint64_t address);

/* NULL is fine. */
void tt_sites_close(tt_sites_t *sites);

/* Open, name, close; of this process. */
tt_site_t tt_site_name(const void *address);

#endif
