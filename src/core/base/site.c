/* Addresses as lines of source, by elfutils' libdwfl: it reads /proc/PID/maps, so programs that lie
 * anywhere, shared libraries and other processes are all the same to it, and then the line tables
 * of the one file that the address is in. Debug information is looked for in that file and in
 * /usr/lib/debug, never on a network.
 */
#include "core/base/site.h"

#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const Dwfl_Callbacks callbacks = {
    .find_elf = dwfl_linux_proc_find_elf,
    .find_debuginfo = dwfl_build_id_find_debuginfo, /* the standard one asks debuginfod */
};

tt_sites_t *tt_sites_open(int64_t pid)
{
    Dwfl *dwfl = dwfl_begin(&callbacks);
    if (dwfl == NULL) {
        return NULL;
    }
    if (dwfl_linux_proc_report(dwfl, pid > 0 ? (pid_t)pid : getpid()) != 0 ||
        dwfl_report_end(dwfl, NULL, NULL) != 0) {
        dwfl_end(dwfl);
        return NULL;
    }
    return (tt_sites_t *)dwfl;
}

void tt_sites_close(tt_sites_t *sites)
{
    dwfl_end((Dwfl *)sites);
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* "step+0x12 in train", or the offset in the file when it has no symbols. */
static void name_symbol(Dwfl_Module *module, GElf_Addr address, tt_site_t *out)
{
    GElf_Off offset = 0;
    GElf_Sym symbol;
    Dwarf_Addr start = 0;
    const char *file = dwfl_module_info(module, NULL, &start, NULL, NULL, NULL, NULL, NULL);
    const char *name = dwfl_module_addrinfo(module, address, &offset, &symbol, NULL, NULL, NULL);
    const char *program = file != NULL ? last_part(file) : "?";
    if (name != NULL) {
        snprintf(out->text, sizeof out->text, "%.48s+0x%llx in %.24s", name,
                 (unsigned long long)offset + 1, program);
    } else {
        snprintf(out->text, sizeof out->text, "%.48s+0x%llx", program,
                 (unsigned long long)(address + 1 - start));
    }
}

/* Without the index of addresses that gcc writes and clang does not: ask each unit. */
static const char *find_line_by_unit(Dwfl_Module *module, GElf_Addr address, int *number)
{
    Dwarf_Addr bias = 0;
    Dwarf_Die *unit = NULL;
    while ((unit = dwfl_module_nextcu(module, unit, &bias)) != NULL) {
        Dwarf_Line *line =
            dwarf_haspc(unit, address - bias) == 1 ? dwarf_getsrc_die(unit, address - bias) : NULL;
        if (line != NULL && dwarf_lineno(line, number) == 0) {
            return dwarf_linesrc(line, NULL, NULL);
        }
    }
    return NULL;
}

static const char *find_line(Dwfl_Module *module, GElf_Addr address, int *number)
{
    Dwfl_Line *line = dwfl_module_getsrc(module, address);
    const char *file = line != NULL ? dwfl_lineinfo(line, NULL, number, NULL, NULL, NULL) : NULL;
    return file != NULL ? file : find_line_by_unit(module, address, number);
}

tt_site_t tt_sites_name(tt_sites_t *sites, uint64_t address)
{
    tt_site_t out = {""};
    const GElf_Addr call = (GElf_Addr)address - 1;
    Dwfl_Module *module = NULL;
    if (sites != NULL && address != 0) {
        module = dwfl_addrmodule((Dwfl *)sites, call);
    }
    if (module == NULL) {
        return out;
    }
    int number = 0;
    const char *file = find_line(module, call, &number);
    if (file != NULL && number > 0) {
        snprintf(out.text, sizeof out.text, "%.80s:%d", last_part(file), number);
    } else {
        name_symbol(module, call, &out);
    }
    return out;
}

tt_site_t tt_site_name(const void *address)
{
    tt_sites_t *sites = tt_sites_open(0);
    const tt_site_t out = tt_sites_name(sites, (uint64_t)(uintptr_t)address);
    tt_sites_close(sites);
    return out;
}
