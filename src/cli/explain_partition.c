/* tutti explain partition: where a model is cut into the stages of a pipeline, from a file of
 * measured layers: a line "name,seconds,output_bytes,weight_bytes" for each. Nothing runs.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/pipeline_partition.h>

#include "cli/explain_parts.h"

enum { LINKS_MAX = 16 };

typedef struct {
    const char *layers, *links;
    int64_t ranks, stages;
    double bandwidth;
    bool replicate, is_json;
} flags_t;

static const tutti_option_t table[] = {
    {.name = "layers",
     .kind = TUTTI_OPTION_TEXT,
     FIELD(layers),
     .argument = "FILE",
     .about = "name,seconds,output_bytes,weight_bytes of each layer, for one micro-batch"},
    {.name = "ranks",
     .alias = 'n',
     .kind = TUTTI_OPTION_INT,
     FIELD(ranks),
     .argument = "N",
     .min = 1,
     .max = 1 << 14,
     .about = "ranks of the pipeline"},
    {.name = "stages",
     .kind = TUTTI_OPTION_INT,
     FIELD(stages),
     .argument = "S",
     .min = 0,
     .max = 1 << 14,
     .about = "stages, one after the other on the ranks; 0: one for each rank"},
    {.name = "bandwidth",
     .kind = TUTTI_OPTION_REAL,
     FIELD(bandwidth),
     .argument = "B",
     .min = 0,
     .max = 1e18,
     .about = "bytes per second between ranks; 0: messages take no time"},
    {.name = "links",
     .kind = TUTTI_OPTION_TEXT,
     FIELD(links),
     .argument = "NxB,…",
     .about = "levels of the machine, innermost first: 4x1e10,2x1e9 is 2 hosts of 4 ranks"},
    {.name = "replicate",
     FIELD(replicate),
     .about = "let stages be on several ranks (a plan only: no schedule runs them)"},
    {.name = "json", FIELD(is_json), .about = "print JSON"},
    {0}};

/* The layers of a file; names point into its text. */
typedef struct {
    tutti_pipeline_layer_t *all; /* owned */
    int count;
} layers_t;

static int refuse_line(const char *path, int line)
{
    fprintf(stderr,
            "tutti explain: --layers %s: line %d: want name,seconds,output_bytes,weight_bytes\n",
            path, line);
    return TT_EXIT_USAGE;
}

/* ",number" at `*at`, which goes on behind it. */
static bool take_number(char **at, double *number)
{
    char *end;
    if (**at != ',') {
        return false;
    }
    *number = strtod(*at + 1, &end);
    const bool is_number = end > *at + 1 && isfinite(*number) && *number >= 0;
    *at = end;
    return is_number;
}

static bool parse_line(char *line, tutti_pipeline_layer_t *layer)
{
    char *at = line + strcspn(line, ",");
    char *name_end = at;
    *layer = (tutti_pipeline_layer_t){.name = line};
    const bool is_good = take_number(&at, &layer->seconds) &&
                         take_number(&at, &layer->output_bytes) &&
                         take_number(&at, &layer->weight_bytes) && at[strspn(at, " \t\r")] == 0;
    *name_end = 0;
    return is_good;
}

/* The first line may be the names of the columns. Returns -1, or the exit code. */
static int parse_layers(const char *path, char *text, layers_t *layers)
{
    int line = 0;
    for (char *at = text; at != NULL && *at != 0;) {
        char *next = strchr(at, '\n');
        if (next != NULL) {
            *next++ = 0;
        }
        tutti_pipeline_layer_t *layer = &layers->all[layers->count];
        const bool is_blank = at[strspn(at, " \t\r")] == 0;
        if (!is_blank && parse_line(at, layer)) {
            layers->count++;
        } else if (!is_blank && line > 0) {
            return refuse_line(path, line + 1);
        }
        at = next;
        line++;
    }
    return layers->count > 0 ? -1 : refuse_line(path, 1);
}

/* Returns how many there are; 0: none, or a mistake. */
static int parse_links(const char *text, tutti_pipeline_link_t *links)
{
    int count = 0;
    while (count < LINKS_MAX) {
        char *end;
        const long ranks = strtol(text, &end, 10);
        if (*end != 'x' || ranks < 1 || ranks > 1 << 14) {
            return 0;
        }
        const char *number = end + 1;
        const double speed = strtod(number, &end);
        if (end == number || !isfinite(speed) || speed < 0) {
            return 0;
        }
        links[count++] = (tutti_pipeline_link_t){(int)ranks, speed};
        if (*end == 0) {
            return count;
        }
        if (*end != ',') {
            return 0;
        }
        text = end + 1;
    }
    return 0;
}

/* ---- results ---- */

static const char *name_of(const tutti_pipeline_layer_t *layers, int index)
{
    return layers[index].name[0] != 0 ? layers[index].name : "?";
}

static int print_text(const layers_t *layers, const tutti_pipeline_partition_t *cut)
{
    printf("%-6s %-32s %-6s %-12s %s\n", "stage", "layers", "ranks", "seconds", "send");
    for (int i = 0; i < cut->count; i++) {
        const tutti_pipeline_stage_t *stage = &cut->stages[i];
        char names[256];
        snprintf(names, sizeof names, "%d: %s%s%s", stage->layers,
                 name_of(layers->all, stage->first), stage->layers > 1 ? " … " : "",
                 stage->layers > 1 ? name_of(layers->all, stage->first + stage->layers - 1) : "");
        printf("%-6d %-32s %-6d %-12.6g %.6g\n", i, names, stage->replicas, stage->seconds,
               stage->send_seconds);
    }
    printf("\na micro-batch every %.6g seconds, in a full pipeline\n", cut->seconds);
    return 0;
}

static int print_json(const layers_t *layers, const tutti_pipeline_partition_t *cut)
{
    json_t *stages = json_array();
    for (int i = 0; i < cut->count; i++) {
        const tutti_pipeline_stage_t *stage = &cut->stages[i];
        json_t *names = json_array();
        for (int k = 0; k < stage->layers; k++) {
            json_array_append_new(names, json_string(name_of(layers->all, stage->first + k)));
        }
        json_array_append_new(stages,
                              json_pack("{s:o, s:i, s:i, s:f, s:f}", "layers", names, "first",
                                        stage->first, "replicas", stage->replicas, "seconds",
                                        stage->seconds, "send_seconds", stage->send_seconds));
    }
    return tt_explain_print_json(
        json_pack("{s:f, s:o}", "seconds", cut->seconds, "stages", stages));
}

static int print_cut(const flags_t *flags, const layers_t *layers)
{
    tutti_pipeline_link_t links[LINKS_MAX];
    tutti_pipeline_partition_options_t options = {.ranks = (int)flags->ranks,
                                                  .stages = (int)flags->stages,
                                                  .replicate = flags->replicate,
                                                  .bytes_per_second = flags->bandwidth};
    if (flags->links != NULL) {
        options.links = links;
        options.link_count = parse_links(flags->links, links);
        if (options.link_count == 0) {
            return tt_cli_refuse("explain", "links", flags->links, "such as 4x1e10,2x1e9");
        }
    }
    tutti_pipeline_partition_t cut;
    if (tutti_pipeline_partition(layers->all, layers->count, &options, &cut) < 0) {
        return tt_cli_fail("explain", TT_EXIT_USAGE);
    }
    const int code = flags->is_json ? print_json(layers, &cut) : print_text(layers, &cut);
    tutti_pipeline_partition_release(&cut);
    return code;
}

static int count_lines(const char *text)
{
    int lines = 1;
    for (; *text != 0; text++) {
        lines += *text == '\n';
    }
    return lines;
}

static int find_cut(const flags_t *flags)
{
    char *text;
    size_t bytes;
    int code = tt_explain_read("layers", flags->layers, &text, &bytes);
    if (code >= 0) {
        return code;
    }
    layers_t layers = {.all = calloc((size_t)count_lines(text), sizeof *layers.all)};
    if (layers.all == NULL) {
        fprintf(stderr, "tutti explain: out of memory\n");
        code = 1;
    } else {
        code = parse_layers(flags->layers, text, &layers);
        code = code < 0 ? print_cut(flags, &layers) : code;
    }
    free(layers.all);
    free(text);
    return code;
}

int tt_explain_partition(int argc, char **argv)
{
    const flags_t defaults = {.ranks = 2};
    flags_t flags = defaults;
    const tutti_status_t status = tutti_options_parse(table, argc, argv, &flags, NULL);
    if (status == TUTTI_END) {
        return tt_cli_help("tutti explain partition --layers FILE [OPTION …]", table, &defaults);
    }
    if (status < 0) {
        return tt_cli_fail("explain", TT_EXIT_USAGE);
    }
    if (flags.layers == NULL) {
        return tt_cli_refuse("explain", "layers", "", "a file of measured layers");
    }
    return find_cut(&flags);
}
