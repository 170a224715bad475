/* Folders: making, flushing, emptying. */
#ifndef TT_FOLDER_H
#define TT_FOLDER_H

#include "core/base/fail.h"

/* With all above it, as mkdir -p; the names of those that are new are on the disk, where the folder
 * above can be read. IO names the part that cannot be made, which is not there then. */
tutti_status_t tt_folder_make(const char *path);

/* Wait until the names in it are on the disk. Errors: IO. */
tutti_status_t tt_folder_flush(const char *path);

/* With the files in it; folders in it stay, and are an error. What is not there, or goes meanwhile,
 * is removed. Of a link, or a file of that name, nothing but itself goes. IO names the first that
 * cannot be removed. */
tutti_status_t tt_folder_remove(const char *path);

#endif
