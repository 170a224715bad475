/* The store of simulated ranks: one table, which a made-up server keeps, and a client for each
 * rank.
 *
 * A request is on its way for a while, is carried out when the server gets to it, and its answer is
 * on its way for a while; a request that must wait waits there. As with the tcp
 * client, a connection that breaks fails the call under way, which may have been carried out or
 * not, and a server that does not answer is given up GRACE_MS after the deadline.
 */
#include "comm/store/store_ops.h"
#include "core/base/buffer.h"
#include "sim.h"

enum { GRACE_MS = 2000, DELAY_NS = 30000, WAY_NS = 500, RESET_PART = 200 };

typedef struct {
    sim_rank_t *self;
    bool is_aborted;
} client_t;

typedef enum { HERE, PAUSED, SILENT, BROKEN } link_t;

typedef struct {
    client_t *client;
    const tt_store_request_t *request;
    tt_store_reply_t *reply;
    bool is_broken; /* by a reset */
    tt_deadline_t deadline, patience;
} exchange_t;

static bool draw_reset(const sim_rank_t *self)
{
    sim_t *sim = self->sim;
    const int64_t end_ns = sim->fault_ns + (sim->fault_end_ns - sim->fault_ns) / RESET_PART;
    return sim->fault == SIM_STORE_RESET && self->rank == sim->victim &&
           sim->now_ns >= sim->fault_ns && sim->now_ns < end_ns && sim_draw(sim, 3) == 0;
}

/* What stands between a rank and the server now. */
static link_t look(const exchange_t *x)
{
    const sim_rank_t *self = x->client->self;
    const sim_t *sim = self->sim;
    const bool has_struck = sim->now_ns >= sim->fault_ns, is_victim = self->rank == sim->victim;
    if (!has_struck) {
        return HERE;
    }
    switch (sim->fault) {
    case SIM_CRASH:
        return is_victim ? BROKEN : HERE;
    case SIM_STORE_RESET:
        return x->is_broken ? BROKEN : HERE;
    case SIM_STORE_GONE:
        return BROKEN;
    case SIM_STORE_PAUSE:
        return sim->now_ns < sim->fault_end_ns ? PAUSED : HERE;
    case SIM_PARTITION:
        return (self->rank >= sim->victim) != sim->is_store_high ? SILENT : HERE;
    default:
        return HERE;
    }
}

static void drop_values(const exchange_t *x)
{
    const tt_store_request_t *request = x->request;
    const size_t replies = request->key_count * tt_store_rule(request->op)->replies_per_key;
    for (size_t i = 0; i < replies; i++) {
        tutti_buffer_release(&x->reply->values[i]);
    }
}

static void travel(const exchange_t *x)
{
    sim_rank_t *self = x->client->self;
    const int64_t way_ns = WAY_NS + (int64_t)sim_draw(self->sim, DELAY_NS);
    sim_sleep_until(self, self->sim->now_ns + way_ns);
}

static tutti_status_t apply(const exchange_t *x)
{
    return tt_table_apply(x->client->self->sim->table, x->request, x->reply);
}

/* It reaches the server after all, which answers nobody. */
static void apply_in_vain(const exchange_t *x)
{
    if (apply(x) == TUTTI_OK) {
        drop_values(x);
    }
}

static tutti_status_t give_up(const exchange_t *x)
{
    sim_sleep_until(x->client->self, x->patience);
    return TT_FAIL(TUTTI_ERR_TIMEOUT, "store: no answer to %s, and time is up",
                   tt_store_rule(x->request->op)->text);
}

static tutti_status_t fail_broken(const exchange_t *x)
{
    return TT_FAIL(TUTTI_ERR_PEER, "store: the connection broke in %s",
                   tt_store_rule(x->request->op)->text);
}

/* Until the server gets to the request. While it is paused nobody sees what it has carried out, so
 * that those who give up may say what it will. */
static tutti_status_t await_server(const exchange_t *x)
{
    sim_t *sim = x->client->self->sim;
    const link_t link = look(x);
    if (link == SILENT) {
        return give_up(x);
    }
    if (link == BROKEN) {
        if (x->is_broken && sim_draw(sim, 2) == 0) {
            apply_in_vain(x);
        }
        return fail_broken(x);
    }
    if (link == PAUSED && sim->fault_end_ns > x->patience) {
        const tutti_status_t status = give_up(x);
        apply_in_vain(x);
        return status;
    }
    if (link == PAUSED) {
        sim_sleep_until(x->client->self, sim->fault_end_ns);
    }
    return TUTTI_OK;
}

static void wake(tt_table_waiter_t *waiter)
{
    sim_rank_t *self = waiter->user;
    self->wake_ns = self->sim->now_ns;
}

/* Until what is missing may be there, the fault strikes, or the time is up. */
static tutti_status_t await_keys(const exchange_t *x)
{
    sim_rank_t *self = x->client->self;
    const sim_t *sim = self->sim;
    tt_table_waiter_t waiter = {.request = x->request, .ready = wake, .user = self};
    const bool strikes_first = sim->now_ns < sim->fault_ns && sim->fault_ns < x->deadline;
    TT_TRY(tt_table_await(sim->table, &waiter));
    sim_sleep_until(self, strikes_first ? sim->fault_ns : x->deadline);
    tt_table_forget(sim->table, &waiter);
    return TUTTI_OK;
}

static tutti_status_t check_open(const client_t *client, const tt_store_request_t *request)
{
    return client->is_aborted ? TT_FAIL(TUTTI_ERR_ABORTED, "store %s: the store was aborted",
                                        tt_store_rule(request->op)->text)
                              : TUTTI_OK;
}

static tutti_status_t perform(void *state, const tt_store_request_t *request,
                              tt_deadline_t deadline, tt_store_reply_t *reply)
{
    client_t *client = state;
    const sim_t *sim = client->self->sim;
    const exchange_t x = {.client = client,
                          .request = request,
                          .reply = reply,
                          .is_broken = draw_reset(client->self),
                          .deadline = deadline,
                          .patience = deadline + GRACE_MS * TT_NS_PER_MS};
    tutti_status_t status = TUTTI_PENDING;
    travel(&x);
    while (status == TUTTI_PENDING) {
        TT_TRY(check_open(client, request));
        TT_TRY(await_server(&x));
        status = apply(&x);
        if (status == TUTTI_PENDING && sim->now_ns >= deadline) {
            status = tt_table_fail_missing(sim->table, request);
        } else if (status == TUTTI_PENDING) {
            TT_TRY(await_keys(&x));
        }
    }
    travel(&x);
    const link_t link = look(&x);
    if (link == BROKEN || link == SILENT) {
        drop_values(&x);
        return link == BROKEN ? fail_broken(&x) : give_up(&x);
    }
    return status;
}

static void abort_calls(void *state)
{
    ((client_t *)state)->is_aborted = true;
}

static void close_store(void *state)
{
    (void)state;
}

static const tt_store_ops_t sim_store_ops = {
    .name = "simulated",
    .about = "a server that is late, mute or gone as the seed says",
    .state_bytes = sizeof(client_t),
    .perform = perform,
    .abort = abort_calls,
    .close = close_store,
};

tutti_status_t sim_open_store(sim_rank_t *self, tutti_store_t **out)
{
    tutti_store_t *store;
    if (self->sim->table == NULL) {
        TT_TRY(tt_table_create(&self->sim->table));
    }
    TT_TRY(tt_store_create(&sim_store_ops, &store));
    *(client_t *)store->state = (client_t){.self = self};
    *out = store;
    return TUTTI_OK;
}
