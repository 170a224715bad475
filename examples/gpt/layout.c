/* Which ranks do what: --mesh dp=D,tp=T,pp=P lays them out as a block. Ranks along "tp" share each
 * layer (tensor parallelism), along "pp" the layers (stages.c), along "dp" the data (DDP).
 * replicate=2,shard=2 in place of dp=4 lays those that share the data out in rows, each of which
 * has all weights at --stage 3. */
#include "gpt.h"

#include <stdio.h>
#include <string.h>

enum { DP, TP, PP, DIMS, REPLICATE = DIMS, SHARD, SIZES };

static const char *const names[] = {"dp", "tp", "pp", "replicate", "shard"};

static tutti_status_t fail(const char *mesh)
{
    fprintf(stderr,
            "gpt: --mesh %s: want sizes such as dp=2,tp=2, pp=4, or replicate=2,shard=2 (without "
            "dp), whose product is the ranks\n",
            mesh);
    return TUTTI_ERR_ARG;
}

/* One "tp=2" of the list. Returns what follows; NULL: that is none. */
static const char *read_size(const char *text, int sizes[SIZES])
{
    for (int i = 0; i < SIZES; i++) {
        int used = 0, size = 0;
        if (strncmp(text, names[i], strlen(names[i])) == 0 &&
            sscanf(text + strlen(names[i]), "=%d%n", &size, &used) == 1 && used > 0 && size > 0) {
            text += strlen(names[i]) + (size_t)used;
            sizes[i] = size;
            return *text == ',' ? text + 1 : *text == 0 ? text : NULL;
        }
    }
    return NULL;
}

/* Without --mesh all ranks share the data. */
static tutti_status_t read_mesh(const session_t *session, int sizes[SIZES])
{
    const char *text = session->settings.mesh;
    sizes[DP] = text == NULL ? session->ranks : 1;
    sizes[TP] = sizes[PP] = 1;
    sizes[REPLICATE] = sizes[SHARD] = 0;
    while (text != NULL && *text != 0) {
        text = read_size(text, sizes);
        if (text == NULL) {
            return fail(session->settings.mesh);
        }
    }
    if (sizes[REPLICATE] > 0 || sizes[SHARD] > 0) {
        sizes[REPLICATE] += sizes[REPLICATE] == 0;
        sizes[SHARD] += sizes[SHARD] == 0;
        sizes[DP] = sizes[DP] == 1 ? sizes[REPLICATE] * sizes[SHARD] : 0;
    }
    return (int64_t)sizes[DP] * sizes[TP] * sizes[PP] == session->ranks
               ? TUTTI_OK
               : fail(session->settings.mesh);
}

static tutti_status_t open_rows(session_t *session, const int *sizes)
{
    return sizes[REPLICATE] == 0 ? TUTTI_OK
                                 : tutti_mesh_create(session->data, 2, &sizes[REPLICATE],
                                                     &names[REPLICATE], &session->rows);
}

tutti_status_t gpt_open_mesh(session_t *session)
{
    const settings_t *settings = &session->settings;
    int sizes[SIZES];
    TUTTI_CHECK(read_mesh(session, sizes));
    TUTTI_CHECK(tutti_mesh_create(session->world, DIMS, sizes, names, &session->mesh));
    session->data = tutti_mesh_group(session->mesh, names[DP]);
    session->tensor = tutti_mesh_group(session->mesh, names[TP]);
    session->pipe = tutti_mesh_group(session->mesh, names[PP]);
    TUTTI_CHECK(open_rows(session, sizes));
    session->is_cut = settings->tp_shards > 0 || sizes[TP] > 1;
    return TUTTI_OK;
}

tutti_status_t gpt_cut_model(session_t *session)
{
    const tutti_parallel_options_t options = {.shards = (int)session->settings.tp_shards,
                                              .sequence = session->settings.sequence_parallel};
    return session->is_cut ? tutti_parallelize(session->model, session->tensor, &options)
                           : TUTTI_OK;
}
