/* tutti info: the machine, the families, the environment, as text or as JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <tutti/diagnose.h>

#include "cli/cli.h"

typedef struct {
    bool is_json, is_environment;
} flags_t;

static const tutti_option_t table[] = {
    {.name = "json", .offset = offsetof(flags_t, is_json), .about = "print JSON"},
    {.name = "environment",
     .offset = offsetof(flags_t, is_environment),
     .about = "only the environment variables"},
    {0}};

static void print_machine(const tutti_machine_t *machine)
{
    printf("tutti %s\n\nmachine\n", tutti_version());
    printf("  cpu            %s\n", machine->cpu[0] != 0 ? machine->cpu : "unknown");
    printf("  topology       %d packages, %d NUMA nodes, %d cores, %d hardware threads\n",
           machine->packages, machine->numa_nodes, machine->cores, machine->threads);
    printf("  caches         L1 %" PRId64 " KiB, L2 %" PRId64 " KiB, L3 %" PRId64 " KiB\n",
           machine->l1_bytes >> 10, machine->l2_bytes >> 10, machine->l3_bytes >> 10);
    printf("  memory         %" PRId64 " MiB\n", machine->memory_bytes >> 20);
    printf("  kernels        %s\n", machine->kernel_variant);
}

static void print_options(size_t family, size_t member)
{
    tutti_member_option_t option;
    for (size_t i = 0; tutti_info_option(family, member, i, &option) == TUTTI_OK; i++) {
        printf("    %-20s %g, in [%g, %g)\n", option.name, option.fallback, option.min,
               option.below);
    }
}

static void print_families(void)
{
    tutti_family_t family;
    tutti_member_t member;
    for (size_t i = 0; tutti_info_family(i, &family) == TUTTI_OK; i++) {
        printf("\n%s: %s\n", family.name, family.about);
        for (size_t j = 0; tutti_info_member(i, j, &member) == TUTTI_OK; j++) {
            printf("  %-22s %s\n", member.name, member.about != NULL ? member.about : "");
            print_options(i, j);
        }
    }
}

static void print_settings(void)
{
    tutti_setting_t setting;
    printf("environment variables\n");
    for (size_t i = 0; tutti_info_setting(i, &setting) == TUTTI_OK; i++) {
        printf("  %-22s %s", setting.variable, setting.about);
        if (strcmp(setting.value, setting.fallback) != 0) {
            printf(" (now \"%s\")", setting.value);
        } else if (setting.fallback[0] != 0) {
            printf(" (default %s)", setting.fallback);
        }
        if (setting.allowed[0] != 0) {
            printf("; %s", setting.allowed);
        }
        printf("\n");
    }
}

static json_t *machine_json(const tutti_machine_t *machine)
{
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:I, s:s}", "cpu", machine->cpu,
                     "packages", machine->packages, "numa_nodes", machine->numa_nodes, "cores",
                     machine->cores, "threads", machine->threads, "l1_bytes",
                     (json_int_t)machine->l1_bytes, "l2_bytes", (json_int_t)machine->l2_bytes,
                     "l3_bytes", (json_int_t)machine->l3_bytes, "memory_bytes",
                     (json_int_t)machine->memory_bytes, "kernels", machine->kernel_variant);
}

static json_t *families_json(void)
{
    json_t *all = json_object();
    tutti_family_t family;
    tutti_member_t member;
    for (size_t i = 0; tutti_info_family(i, &family) == TUTTI_OK; i++) {
        json_t *members = json_object();
        for (size_t j = 0; tutti_info_member(i, j, &member) == TUTTI_OK; j++) {
            const char *about = member.about != NULL ? member.about : "";
            json_object_set_new(members, member.name, json_string(about));
        }
        json_object_set_new(all, family.name, members);
    }
    return all;
}

/* {"adam": {"lr": 0.001, …}, …}: what 0 means */
static json_t *options_json(void)
{
    json_t *all = json_object();
    tutti_family_t family;
    tutti_member_t member;
    tutti_member_option_t option;
    for (size_t i = 0; tutti_info_family(i, &family) == TUTTI_OK; i++) {
        for (size_t j = 0; tutti_info_member(i, j, &member) == TUTTI_OK; j++) {
            json_t *own = json_object();
            for (size_t k = 0; tutti_info_option(i, j, k, &option) == TUTTI_OK; k++) {
                json_object_set_new(own, option.name, json_real(option.fallback));
            }
            if (json_object_size(own) > 0) {
                json_object_set(all, member.name, own);
            }
            json_decref(own);
        }
    }
    return all;
}

static json_t *settings_json(void)
{
    json_t *all = json_object();
    tutti_setting_t setting;
    for (size_t i = 0; tutti_info_setting(i, &setting) == TUTTI_OK; i++) {
        json_object_set_new(all, setting.variable,
                            json_pack("{s:s, s:s, s:s, s:s}", "value", setting.value, "default",
                                      setting.fallback, "allowed", setting.allowed, "about",
                                      setting.about));
    }
    return all;
}

static int print_json(const tutti_machine_t *machine)
{
    json_t *all = json_pack("{s:s, s:o, s:o, s:o, s:o}", "version", tutti_version(), "machine",
                            machine_json(machine), "families", families_json(), "options",
                            options_json(), "environment", settings_json());
    char *text = json_dumps(all, JSON_INDENT(2));
    json_decref(all);
    if (text == NULL) {
        fprintf(stderr, "tutti info: out of memory\n");
        return 1;
    }
    printf("%s\n", text);
    free(text);
    return 0;
}

/* Behind the table, which has what is allowed. */
static int check_settings(void)
{
    return tutti_info_check_settings() < 0 ? tt_cli_fail("info", TT_EXIT_USAGE) : 0;
}

int tt_verb_info(int argc, char **argv)
{
    flags_t flags = {0};
    const tutti_status_t status = tutti_options_parse(table, argc, argv, &flags, NULL);
    if (status == TUTTI_END) {
        return tt_cli_help("tutti info [OPTION …]", table, NULL);
    }
    if (status < 0) {
        return tt_cli_fail("info", TT_EXIT_USAGE);
    }
    if (flags.is_environment && !flags.is_json) {
        print_settings();
        return check_settings();
    }
    tutti_machine_t machine;
    if (tutti_info_machine(&machine) < 0) {
        return tt_cli_fail("info", 1);
    }
    if (flags.is_json) {
        return print_json(&machine);
    }
    print_machine(&machine);
    print_families();
    printf("\n");
    print_settings();
    return check_settings();
}
