/* Owners of tutti.hpp: what they own is released once, whatever becomes of them. cpp_test.py builds
 * it with exceptions and without.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <tutti/tutti.hpp>

static void expect(bool holds, const char *what)
{
    if (!holds) {
        std::printf("not so: %s (%s)\n", what, tutti_last_error());
        std::exit(1);
    }
}

static_assert(!std::is_copy_constructible_v<tutti::owner<tutti_tensor_t>>);
static_assert(std::is_nothrow_move_constructible_v<tutti::owner<tutti_tensor_t>>);
static_assert(sizeof(tutti::owner<tutti_tensor_t>) == sizeof(tutti_tensor_t *));
static_assert(tutti::has_status<tutti_scope_t> && tutti::has_status<tutti_trace_t> &&
              tutti::has_status<tutti_metrics_t> && !tutti::has_status<tutti_tensor_t>);

/* Macros, with nothing that -pedantic minds. */
static void shapes()
{
    const int four = 4;
    const tutti_shape_t shape = TUTTI_SHAPE(2, size_t(3), four);
    expect(shape.rank == 3 && tutti_shape_numel(shape) == 24, "a shape");
    expect(TUTTI_SCALAR.rank == 0 && tutti_shape_numel(TUTTI_SCALAR) == 1, "a scalar");
    expect(TUTTI_DIMS(0, -1).count == 2 && TUTTI_DIMS(0, -1).dims[1] == -1, "dims");
    expect(TUTTI_ALL_DIMS.count == 0, "all dims");
    expect(TUTTI_RANGE(2, 5).stop == 5 && TUTTI_RANGE_FROM(2).stop == INT64_MAX, "ranges");
    expect(TUTTI_PADDING(1, 2, 3, 4).count == 4 && TUTTI_PADDING(1, 2).sizes[1] == 2, "paddings");
    tutti_spawned_t self = {};
    self.rank = 1;
    self.size = 3;
    const auto options = TUTTI_SPAWNED(&self);
    const tutti_init_options_t *init = options;
    expect(init->rank == 1 && init->world_size == 3 && init->url == nullptr, "a spawned rank");
}

static int released;

static tutti_status_t count_release(tutti_module_t *, const void *)
{
    return TUTTI_OK;
}

static void forget(tutti_module_t *)
{
    released++;
}

static tutti_module_ops_t counting()
{
    tutti_module_ops_t ops = {};
    ops.name = "counting";
    ops.about = "counts how often it goes";
    ops.state_bytes = 8;
    ops.init = count_release;
    ops.fini = forget;
    return ops;
}

static tutti::owner<tutti_module_t> make_module(tutti_context_t *ctx, const tutti_module_ops_t *ops)
{
    tutti::owner<tutti_module_t> m;
    const tutti_status_t status = tutti::check(tutti_module_create(ctx, ops, nullptr, m.out()));
    expect(status == TUTTI_OK && m, "a module");
    return m;
}

static void moves(tutti_context_t *ctx)
{
    const tutti_module_ops_t ops = counting();
    released = 0;
    {
        auto a = make_module(ctx, &ops);
        auto b = std::move(a);
        expect(!a && b, "a moved owner owns nothing");
        auto shared = tutti::retain(b.get());
        b.reset();
        expect(released == 0, "a retained object stays");
        shared = make_module(ctx, &ops);
        expect(released == 1, "assigning releases the old object");
        tutti_module_t *bare = shared.disown();
        expect(!shared && released == 1, "a disowned object stays");
        shared = tutti::owner<tutti_module_t>(bare);
        auto &same = shared;
        shared = std::move(same);
        expect(shared && released == 1, "moving to oneself does nothing");
        static_cast<void>(shared.out());
        expect(released == 2, "out() releases the old object");
    }
    expect(released == 2, "nothing is released twice");
}

static void scopes(tutti_context_t *ctx)
{
    double sum = 0;
    const tutti_status_t fine = tutti::in_scope(ctx, [&](tutti_scope_t *s) {
        sum = tutti_tensor_item(tutti_sum(s, tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 3))));
    });
    expect(fine == TUTTI_OK && sum == 6, "a scope");
#if defined(__cpp_exceptions)
    try {
        tutti::in_scope(ctx, [](tutti_scope_t *s) {
            tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 3));
            static_cast<void>(tutti_matmul(s, x, x));
        });
        expect(false, "a failure in a scope is thrown");
    } catch (const tutti::error &error) {
        expect(error.status() == TUTTI_ERR_SHAPE && std::strstr(error.what(), "matmul") != nullptr,
               "it has status and text");
    }
    const tutti_module_ops_t ops = counting();
    released = 0;
    try {
        auto net = make_module(ctx, &ops);
        tutti::in_scope(ctx, [](tutti_scope_t *) { throw 7; });
        expect(false, "what the function throws goes on");
    } catch (int number) {
        expect(number == 7 && released == 1, "and releases on its way");
    }
    try {
        auto none = tutti::make(tutti_context_create, nullptr);
        none = tutti::make(tutti_device_open, "no such device", nullptr).disown() != nullptr
                   ? tutti::owner<tutti_context_t>()
                   : std::move(none);
        expect(false, "make() throws");
    } catch (const tutti::error &error) {
        expect(error.status() < 0, "make() throws what failed");
    }
#else
    const tutti_status_t bad = tutti::in_scope(ctx, [](tutti_scope_t *s) {
        tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(2, 3));
        static_cast<void>(tutti_matmul(s, x, x));
    });
    expect(bad == TUTTI_ERR_SHAPE, "a failure in a scope is returned");
    auto device = tutti::make(tutti_device_open, "no such device", nullptr);
    expect(!device && device.status() < 0 && *device == nullptr, "make() says what failed");
    auto made = tutti::make(tutti_context_create, nullptr);
    expect(bool(made) && *made != nullptr, "make() makes");
#endif
}

/* A function may return how it went, as those of C do. */
static void statuses(tutti_context_t *ctx)
{
    const auto fail = [](tutti_scope_t *) { return tutti_metrics_flush(nullptr); };
#if defined(__cpp_exceptions)
    try {
        tutti::in_scope(ctx, fail);
        expect(false, "what the function returns is thrown");
    } catch (const tutti::error &error) {
        expect(error.status() == TUTTI_ERR_ARG, "with its status");
    }
#else
    const tutti_status_t bad = tutti::in_scope(ctx, fail);
    expect(bad == TUTTI_ERR_ARG, "what the function returns is returned");
#endif
    const tutti_status_t end = tutti::in_scope(ctx, [](tutti_scope_t *) { return TUTTI_END; });
    expect(end == TUTTI_END, "an end is no failure");
    const tutti_status_t fine = tutti::in_scope(ctx, [](tutti_scope_t *) { return 7.5; });
    expect(fine == TUTTI_OK, "another value is none of ours");
}

static void texts()
{
    tutti::holder<tutti_buffer_t> text, other;
    const tutti_status_t status =
        tutti::check(tutti_pipeline_write(nullptr, text.out()) < 0 ? TUTTI_OK : TUTTI_END);
    expect(status == TUTTI_OK && text->data == nullptr, "a holder without content");
    other = std::move(text);
    expect(other->bytes == 0, "a moved holder");
}

int main()
{
    tutti::owner<tutti_context_t> ctx;
    const tutti_status_t status = tutti::check(tutti_context_create(nullptr, ctx.out()));
    expect(status == TUTTI_OK, "a context");
    shapes();
    moves(ctx);
    scopes(ctx);
    statuses(ctx);
    texts();
    std::printf("all is so\n");
    return 0;
}
