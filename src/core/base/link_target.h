/* Where a symbolic link leads: what takes the place of a file must not take that of a link to it.
 */
#ifndef TT_LINK_TARGET_H
#define TT_LINK_TARGET_H

#include <limits.h>

#include "core/base/fail.h"

/* The file that opening `path` opens, or makes, without links in its last part: `path` itself where
 * that is no link. The target need not be there. IO: the link cannot be followed (a loop, a folder
 * that is not there, one that the system does not trust), or leads to a file without a name. */
tutti_status_t tt_link_target(const char *path, char target[PATH_MAX]);

#endif
