/* Finding the plug-in of an MPI, libtutti_mpi_<flavour>.so: in the folders of TUTTI_PLUGINS, then
 * around the file that this code was loaded from (libtutti or a program): there, in tutti/, and
 * where the build folder and an installation have it, ../lib and ../lib/tutti.
 *
 * The symbols of the MPI in use are made global: components of some Open MPIs want that. For
 * `tutti info` they stay local, so that several MPIs can be asked for their versions.
 *
 * Cost: a dlopen of MPI, some ten milliseconds; once for each world.
 */
#include "comm/backend/mpi/mpi_load.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/config.h"
#include "core/base/log.h"

enum { FLAVOURS = 2, PATH_BYTES = 1024 };

static const char *const flavours[FLAVOURS] = {"openmpi", "mpich"};

#ifndef TUTTI_LIBDIR
#define TUTTI_LIBDIR "lib"
#endif

static const char *const places[] = {"", "/tutti", "/../lib", "/../lib/tutti",
                                     "/../" TUTTI_LIBDIR "/tutti"};

enum { PLACE_COUNT = sizeof places / sizeof places[0] };

/* What one search has to say if it finds nothing. */
typedef struct {
    const char *flavour;
    int flags;
    char reason[PATH_BYTES + 128];
} search_t;

static const tt_mpi_t *try_file(search_t *search, const char *path)
{
    if (access(path, R_OK) != 0) {
        return NULL;
    }
    void *handle = dlopen(path, search->flags);
    tt_mpi_plugin_fn_t function = NULL;
    if (handle != NULL) {
        void *symbol = dlsym(handle, TT_MPI_SYMBOL);
        memcpy(&function, &symbol, sizeof function);
    }
    if (function == NULL) {
        const char *text = dlerror();
        snprintf(search->reason, sizeof search->reason, "%s", text != NULL ? text : path);
        return NULL;
    }
    const tt_mpi_t *mpi = function();
    if (mpi->abi != TT_MPI_ABI || mpi->table_bytes != sizeof *mpi) {
        snprintf(search->reason, sizeof search->reason,
                 "%s is of another version of Tutti (%u, this is %d)", path, mpi->abi, TT_MPI_ABI);
        return NULL;
    }
    return mpi;
}

/* In one folder, given by its first `length` characters, and around it. */
static const tt_mpi_t *try_around(search_t *search, const char *folder, size_t length)
{
    const tt_mpi_t *mpi = NULL;
    for (int i = 0; i < PLACE_COUNT && mpi == NULL; i++) {
        char path[PATH_BYTES];
        const int n = snprintf(path, sizeof path, "%.*s%s/libtutti_mpi_%s.so", (int)length, folder,
                               places[i], search->flavour);
        if (n > 0 && n < (int)sizeof path) {
            mpi = try_file(search, path);
        }
    }
    return mpi;
}

static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? (size_t)(slash - path) : 0;
}

/* Around libtutti, or the program that this code is linked into. */
static const tt_mpi_t *try_home(search_t *search)
{
    Dl_info info;
    const tt_mpi_t *mpi = NULL;
    if (dladdr(flavours, &info) != 0 && info.dli_fname != NULL && info.dli_fname[0] == '/') {
        mpi = try_around(search, info.dli_fname, folder_length(info.dli_fname));
    }
    char path[PATH_BYTES];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (mpi == NULL && n > 0) {
        path[n] = 0;
        mpi = try_around(search, path, folder_length(path));
    }
    return mpi;
}

static const tt_mpi_t *find(search_t *search)
{
    const char *folders = tt_config_text(TT_CONFIG_PLUGINS);
    const tt_mpi_t *mpi = NULL;
    while (*folders != 0 && mpi == NULL) {
        const size_t length = strcspn(folders, ":");
        mpi = length > 0 ? try_around(search, folders, length) : NULL;
        folders += length + (folders[length] == ':');
    }
    return mpi != NULL ? mpi : try_home(search);
}

/* The MPI that the program itself is linked with, or that its launcher belongs to; or NULL. */
static const char *guess(void)
{
    if (dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world") != NULL) {
        return "openmpi";
    }
    if (dlsym(RTLD_DEFAULT, "MPI_Init") != NULL) {
        return "mpich";
    }
    if (tt_config_is_set(TT_CONFIG_OMPI_SIZE)) {
        return "openmpi";
    }
    return tt_config_is_set(TT_CONFIG_PMI_SIZE) ? "mpich" : NULL;
}

static tutti_status_t check_wanted(const char *wanted)
{
    for (int i = 0; i < FLAVOURS; i++) {
        if (strcmp(wanted, flavours[i]) == 0) {
            return TUTTI_OK;
        }
    }
    return TT_FAIL(TUTTI_ERR_ARG, "TUTTI_MPI=%s: want openmpi or mpich", wanted);
}

tutti_status_t tt_mpi_load(const tt_mpi_t **out)
{
    const bool is_told = tt_config_is_set(TT_CONFIG_MPI);
    const char *wanted = is_told ? tt_config_text(TT_CONFIG_MPI) : guess();
    if (is_told) {
        TT_TRY(check_wanted(wanted));
    }
    search_t search = {.flags = RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE};
    for (int i = 0; i < FLAVOURS; i++) {
        search.flavour = flavours[i];
        if (wanted != NULL && strcmp(wanted, flavours[i]) != 0) {
            continue;
        }
        *out = find(&search);
        if (*out != NULL) {
            return TUTTI_OK;
        }
    }
    return TT_FAIL(search.reason[0] != 0 ? TUTTI_ERR_FORMAT : TUTTI_ERR_NOT_FOUND,
                   "the mpi engine wants the plug-in libtutti_mpi_%s.so, which %s: %s",
                   wanted != NULL ? wanted : "openmpi.so or libtutti_mpi_mpich",
                   search.reason[0] != 0 ? "cannot be loaded" : "was not found",
                   search.reason[0] != 0
                       ? search.reason
                       : "install that MPI and its headers and build Tutti again, or name the "
                         "plug-in's folder in TUTTI_PLUGINS");
}

bool tt_mpi_describe(size_t index, const char **name, const char **about)
{
    static const char *const names[] = {"mpi openmpi", "mpi mpich"};
    if (index >= FLAVOURS) {
        return false;
    }
    search_t search = {.flavour = flavours[index], .flags = RTLD_NOW | RTLD_NODELETE};
    const tt_mpi_t *mpi = find(&search);
    *name = names[index];
    if (mpi != NULL) {
        *about = mpi->version();
    } else if (search.reason[0] == 0) {
        *about = "no plug-in found: build Tutti where that MPI is installed, or set TUTTI_PLUGINS";
    } else {
        tt_log(TT_LOG_INFO, "%s", search.reason);
        *about = "its plug-in cannot be loaded; TUTTI_LOG=info says why";
    }
    return true;
}
