/* Finding and loading the plug-in of an MPI. */
#ifndef TT_MPI_LOAD_H
#define TT_MPI_LOAD_H

#include "comm/backend/mpi/mpi_plugin.h"
#include "core/base/fail.h"

/* The plug-in that this process uses: the one that TUTTI_MPI names, or of the MPI that the program
 * itself has, or of the launcher's, or the first there is. Errors: NOT_FOUND (says where it was
 * looked for), FORMAT (another version's plug-in), ARG (TUTTI_MPI). */
tutti_status_t tt_mpi_load(const tt_mpi_t **out);

/* For `tutti info`: the index-th MPI that there could be, and its version or that it is not there.
 * False behind the last. */
bool tt_mpi_describe(size_t index, const char **name, const char **about);

#endif
