/**
 * @file tutti.hpp
 * Owners for C++17: objects of Tutti's that are released when they go out of scope, and failures as
 * exceptions. It is no second interface: functions, options and their names are those of C.
 *
 * Example:
 *
 *     tutti::owner<tutti_context_t> ctx = tutti::make(tutti_context_create, nullptr);
 *     tutti_linear_options_t options = {};
 *     options.in = 8;
 *     options.out = 2;
 *     auto net = tutti::make(tutti_module_create, ctx, &tutti_linear_layer, &options);
 *     tutti::in_scope(ctx, [&](tutti_scope_t *s) {
 *         tutti_tensor_t *x = tutti_ones(s, TUTTI_F32, TUTTI_SHAPE(4, 8));
 *         std::printf("%g\n", tutti_tensor_item(tutti_sum(s, tutti_forward(s, net, x))));
 *     });
 *
 * An owner passes for the pointer that it owns, which stays valid as long as the owner; tensors
 * that operations return belong to their scope, as in C, and tutti::retain() makes an owner of one.
 *
 * Without exceptions (-fno-exceptions) what would throw returns a tutti::outcome or a
 * tutti::result, and the compiler warns where nobody looks at it. An exception must not find its
 * way through C: a callback that Tutti calls catches all.
 *
 * Owners are used by one thread at a time, as the objects are.
 */
#ifndef TUTTI_TUTTI_HPP
#define TUTTI_TUTTI_HPP

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tutti/tutti.h>

#if defined(__cpp_exceptions)
#include <stdexcept>
#endif

namespace tutti
{

/* ---- what releases what ---------------------------------------------------------------------- */

/** The function that releases an object of type T; null: there is none. */
template <class T> inline constexpr auto release_of = nullptr;

template <> inline constexpr auto release_of<tutti_averager_t> = &tutti_averager_release;
template <> inline constexpr auto release_of<tutti_averaged_t> = &tutti_averaged_release;
template <> inline constexpr auto release_of<tutti_backward_run_t> = &tutti_backward_release;
template <> inline constexpr auto release_of<tutti_bench_t> = &tutti_bench_close;
template <> inline constexpr auto release_of<tutti_context_t> = &tutti_context_release;
template <> inline constexpr auto release_of<tutti_dataloader_t> = &tutti_dataloader_release;
template <> inline constexpr auto release_of<tutti_dataset_t> = &tutti_dataset_release;
template <> inline constexpr auto release_of<tutti_ddp_t> = &tutti_ddp_release;
template <> inline constexpr auto release_of<tutti_device_t> = &tutti_device_release;
template <> inline constexpr auto release_of<tutti_event_t> = &tutti_event_release;
template <> inline constexpr auto release_of<tutti_group_t> = &tutti_group_release;
template <> inline constexpr auto release_of<tutti_mesh_t> = &tutti_mesh_release;
template <> inline constexpr auto release_of<tutti_metrics_t> = &tutti_metrics_close;
template <> inline constexpr auto release_of<tutti_module_t> = &tutti_module_release;
template <> inline constexpr auto release_of<tutti_optim_t> = &tutti_optim_release;
template <> inline constexpr auto release_of<tutti_pipeline_t> = &tutti_pipeline_release;
template <> inline constexpr auto release_of<tutti_prepared_t> = &tutti_prepared_release;
template <> inline constexpr auto release_of<tutti_profile_t> = &tutti_profile_release;
template <> inline constexpr auto release_of<tutti_progress_t> = &tutti_progress_close;
template <> inline constexpr auto release_of<tutti_safetensors_t> = &tutti_safetensors_close;
template <> inline constexpr auto release_of<tutti_sampler_t> = &tutti_sampler_release;
template <> inline constexpr auto release_of<tutti_saved_t> = &tutti_saved_close;
template <> inline constexpr auto release_of<tutti_saver_t> = &tutti_saver_release;
template <> inline constexpr auto release_of<tutti_scaler_t> = &tutti_scaler_release;
template <> inline constexpr auto release_of<tutti_scope_t> = &tutti_scope_close;
template <> inline constexpr auto release_of<tutti_spawn_t> = &tutti_spawn_release;
template <> inline constexpr auto release_of<tutti_store_t> = &tutti_store_release;
template <> inline constexpr auto release_of<tutti_stream_t> = &tutti_stream_release;
template <> inline constexpr auto release_of<tutti_tensor_t> = &tutti_tensor_release;
template <> inline constexpr auto release_of<tutti_trace_t> = &tutti_trace_release;
template <> inline constexpr auto release_of<tutti_work_t> = &tutti_work_release;

/* These are structs of the caller's, of which the content is released: see holder. */
template <> inline constexpr auto release_of<tutti_buffer_t> = &tutti_buffer_release;
template <> inline constexpr auto release_of<tutti_layers_t> = &tutti_layers_release;
template <>
inline constexpr auto release_of<tutti_pipeline_partition_t> = &tutti_pipeline_partition_release;
template <> inline constexpr auto release_of<tutti_pipeline_row_t> = &tutti_pipeline_row_release;
template <>
inline constexpr auto release_of<tutti_pipeline_schedule_t> = &tutti_pipeline_schedule_release;
template <>
inline constexpr auto release_of<tutti_pipeline_simulation_t> = &tutti_pipeline_simulation_release;
template <> inline constexpr auto release_of<tutti_sharded_plan_t> = &tutti_sharded_plan_release;
template <>
inline constexpr auto release_of<tutti_sharded_simulation_t> = &tutti_sharded_simulation_release;

/** Whether releasing tells how it went: closing a scope, a trace, metrics. */
template <class T>
inline constexpr bool has_status =
    std::is_same_v<decltype(release_of<T>), tutti_status_t (*const)(T *)>;

/* ---- failures -------------------------------------------------------------------------------- */

#if defined(__cpp_exceptions)

/** A failure: what() is tutti_last_error() of the thread that it happened in. */
class error : public std::runtime_error
{
  public:
    explicit error(tutti_status_t status) : std::runtime_error(tutti_last_error()), status_(status)
    {
    }

    tutti_status_t status() const noexcept
    {
        return status_;
    }

  private:
    tutti_status_t status_;
};

/** The status of a call that has not failed: OK, END, PENDING. */
using outcome = tutti_status_t;

/** The status of a call. @throws error, where it failed */
inline outcome check(tutti_status_t status)
{
    if (status < 0) {
        throw error(status);
    }
    return status;
}

#else

/** The status of a call, which must be looked at. */
class [[nodiscard]] outcome
{
  public:
    explicit outcome(tutti_status_t status) noexcept : status_(status)
    {
    }
    operator tutti_status_t() const noexcept
    {
        return status_;
    }

  private:
    tutti_status_t status_;
};

/** The status of a call. */
inline outcome check(tutti_status_t status)
{
    return outcome(status);
}

#endif

/* ---- owners ---------------------------------------------------------------------------------- */

/** Owns one object, or none; moves, and is not copied. */
template <class T> class owner
{
  public:
    owner() noexcept = default;
    explicit owner(T *object) noexcept : object_(object)
    {
    }
    owner(owner &&other) noexcept : object_(other.disown())
    {
    }
    owner(const owner &) = delete;
    owner &operator=(const owner &) = delete;
    ~owner()
    {
        reset();
    }

    owner &operator=(owner &&other) noexcept
    {
        if (this != &other) {
            reset(other.disown());
        }
        return *this;
    }

    /** The object, for a call; it stays this owner's. */
    T *get() const noexcept
    {
        return object_;
    }
    operator T *() const noexcept
    {
        return object_;
    }

    /** Where a function puts a new object; the one of before is released. */
    T **out() noexcept
    {
        reset();
        return &object_;
    }

    /** The object is the caller's from here on. */
    T *disown() noexcept
    {
        return std::exchange(object_, nullptr);
    }

    /** Releases what it owns; of what tells a failure by that, the failure is lost: see close(). */
    void reset(T *object = nullptr) noexcept
    {
        T *old = std::exchange(object_, object);
        if (old != nullptr) {
            static_cast<void>(release_of<T>(old));
        }
    }

    /** Releases what it owns, and tells how that went. @throws error */
    template <class U = T> auto close() -> std::enable_if_t<has_status<U>, outcome>
    {
        T *old = disown();
        return check(old != nullptr ? release_of<T>(old) : TUTTI_OK);
    }

  private:
    T *object_ = nullptr;
};

/** Holds a struct that functions fill, such as a tutti_buffer_t, and releases its content. */
template <class T> class holder
{
  public:
    holder() noexcept = default;
    holder(holder &&other) noexcept : value_(std::exchange(other.value_, T()))
    {
    }
    holder(const holder &) = delete;
    holder &operator=(const holder &) = delete;
    ~holder()
    {
        release_of<T>(&value_);
    }

    holder &operator=(holder &&other) noexcept
    {
        std::swap(value_, other.value_);
        return *this;
    }

    const T *get() const noexcept
    {
        return &value_;
    }
    operator const T *() const noexcept
    {
        return &value_;
    }
    const T *operator->() const noexcept
    {
        return &value_;
    }

    /** Where a function puts the content; that of before is released. */
    T *out() noexcept
    {
        release_of<T>(&value_);
        value_ = T();
        return &value_;
    }

  private:
    T value_ = T();
};

/* ---- making ---------------------------------------------------------------------------------- */

#if defined(__cpp_exceptions)

/** What make() returns. */
template <class Made> using result = Made;

/** A new object, or an exception. */
template <class Made> Made result_of(tutti_status_t status, Made &&made)
{
    check(status);
    return std::move(made);
}

#else

/** A new object, or why there is none. */
template <class Made> class [[nodiscard]] result
{
  public:
    result(tutti_status_t status, Made &&made) : status_(status), made_(std::move(made))
    {
    }

    explicit operator bool() const noexcept
    {
        return status_ >= 0;
    }
    tutti_status_t status() const noexcept
    {
        return status_;
    }
    Made &operator*() noexcept
    {
        return made_;
    }

  private:
    tutti_status_t status_;
    Made made_;
};

template <class Made> result<Made> result_of(tutti_status_t status, Made &&made)
{
    return result<Made>(status, std::move(made));
}

#endif

/** The owner or the holder that a function's last parameter fills. */
template <class... Params> struct made_by {
    using last = std::tuple_element_t<sizeof...(Params) - 1, std::tuple<Params...>>;
    using target = std::remove_pointer_t<last>;
    using type = std::conditional_t<std::is_pointer_v<target>, owner<std::remove_pointer_t<target>>,
                                    holder<target>>;
};

/**
 * Calls a function whose last parameter is what it makes, and returns the owner.
 *
 *     auto world = tutti::make(tutti_init, nullptr);
 *     auto all = tutti::make(tutti_gather_bytes, world, tutti_text("hello"), 0);
 *
 * @throws error
 */
template <class... Params, class... Args>
auto make(tutti_status_t (*create)(Params...), Args &&...args)
    -> result<typename made_by<Params...>::type>
{
    typename made_by<Params...>::type made;
    const tutti_status_t status = create(std::forward<Args>(args)..., made.out());
    return result_of(status, std::move(made));
}

/* ---- scopes and references ------------------------------------------------------------------- */

/**
 * Opens a scope, calls a function with it, and closes it: the first failure inside is the one
 * that is told. A function may return a status or an outcome, which is told where the scope has
 * none; what else it returns is left.
 *
 * @throws error, and what the function throws
 */
template <class Function> outcome in_scope(tutti_context_t *ctx, Function &&function)
{
    owner<tutti_scope_t> scope;
    const tutti_status_t status = tutti_scope_open(ctx, scope.out());
    if (status < 0) {
        return check(status);
    }
    using made = std::decay_t<std::invoke_result_t<Function, tutti_scope_t *>>;
    if constexpr (std::is_same_v<made, tutti_status_t> || std::is_same_v<made, outcome>) {
        const tutti_status_t inside = std::forward<Function>(function)(scope.get());
        const tutti_status_t closed = tutti_scope_close(scope.disown());
        return check(closed < 0 ? closed : inside);
    } else {
        static_cast<void>(std::forward<Function>(function)(scope.get()));
        return scope.close();
    }
}

/** One more owner of an object that others own, too. */
inline owner<tutti_context_t> retain(tutti_context_t *x)
{
    return owner<tutti_context_t>(tutti_context_retain(x));
}
inline owner<tutti_dataset_t> retain(tutti_dataset_t *x)
{
    return owner<tutti_dataset_t>(tutti_dataset_retain(x));
}
inline owner<tutti_device_t> retain(tutti_device_t *x)
{
    return owner<tutti_device_t>(tutti_device_retain(x));
}
inline owner<tutti_event_t> retain(tutti_event_t *x)
{
    return owner<tutti_event_t>(tutti_event_retain(x));
}
inline owner<tutti_group_t> retain(tutti_group_t *x)
{
    return owner<tutti_group_t>(tutti_group_retain(x));
}
inline owner<tutti_mesh_t> retain(tutti_mesh_t *x)
{
    return owner<tutti_mesh_t>(tutti_mesh_retain(x));
}
inline owner<tutti_module_t> retain(tutti_module_t *x)
{
    return owner<tutti_module_t>(tutti_module_retain(x));
}
inline owner<tutti_sampler_t> retain(tutti_sampler_t *x)
{
    return owner<tutti_sampler_t>(tutti_sampler_retain(x));
}
inline owner<tutti_store_t> retain(tutti_store_t *x)
{
    return owner<tutti_store_t>(tutti_store_retain(x));
}
inline owner<tutti_tensor_t> retain(tutti_tensor_t *x)
{
    return owner<tutti_tensor_t>(tutti_tensor_retain(x));
}
inline owner<tutti_trace_t> retain(tutti_trace_t *x)
{
    return owner<tutti_trace_t>(tutti_trace_retain(x));
}
inline owner<tutti_work_t> retain(tutti_work_t *x)
{
    return owner<tutti_work_t>(tutti_work_retain(x));
}

} // namespace tutti

#endif
