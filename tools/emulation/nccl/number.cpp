#include "number.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "small_float.h"

namespace opus::standin {

namespace {

template <typename T>
T load(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}
template <typename T>
void store(std::byte* to, T value) {
    std::memcpy(to, &value, sizeof value);
}

template <typename T>
inline constexpr bool kSmall = requires(T t) {
    t.value();
};

// Integers wrap, as on a GPU: computed unsigned.
template <typename T>
auto wide(T v) {
    if constexpr (kSmall<T>)
        return v.value();
    else if constexpr (std::is_integral_v<T> && sizeof(T) < 4)
        return static_cast<std::uint32_t>(v);
    else if constexpr (std::is_integral_v<T>)
        return static_cast<std::make_unsigned_t<T>>(v);
    else
        return v;
}
template <typename T, typename W>
T narrow(W v) {
    if constexpr (kSmall<T>)
        return T::of(v);
    else
        return static_cast<T>(v);
}
template <typename T>
bool less(T a, T b) {
    if constexpr (kSmall<T>)
        return a.value() < b.value();
    else
        return a < b;
}

struct Sum {
    template <typename T>
    T operator()(T a, T b) const {
        return narrow<T>(wide(a) + wide(b));
    }
};
struct Product {
    template <typename T>
    T operator()(T a, T b) const {
        return narrow<T>(wide(a) * wide(b));
    }
};
struct Largest {
    template <typename T>
    T operator()(T a, T b) const {
        return less(a, b) ? b : a;
    }
};
struct Smallest {
    template <typename T>
    T operator()(T a, T b) const {
        return less(b, a) ? b : a;
    }
};

template <typename T, typename Op>
void combine(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count, Op op) {
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t at = i * sizeof(T);
        store<T>(out + at, op(load<T>(a + at), load<T>(b + at)));
    }
}

template <typename T>
void reduce_as(const Reduction& r, std::byte* out, const std::byte* in, const std::byte* mine, std::size_t count) {
    if (r.scaled) {
        const T scalar = load<T>(r.scalar);
        for (std::size_t i = 0; i < count; ++i) {
            const std::size_t at = i * sizeof(T);
            store<T>(out + at, Sum{}(load<T>(in + at), Product{}(load<T>(mine + at), scalar)));
        }
        return;
    }
    switch (r.op) {
        case ncclProd: combine<T>(out, in, mine, count, Product{}); break;
        case ncclMax: combine<T>(out, in, mine, count, Largest{}); break;
        case ncclMin: combine<T>(out, in, mine, count, Smallest{}); break;
        default: combine<T>(out, in, mine, count, Sum{}); break;
    }
}

template <typename T>
void scale_as(const Reduction& r, std::byte* out, const std::byte* mine, std::size_t count) {
    const T scalar = load<T>(r.scalar);
    for (std::size_t i = 0; i < count; ++i)
        store<T>(out + i * sizeof(T), Product{}(load<T>(mine + i * sizeof(T)), scalar));
}

template <typename T>
void divide_as(std::byte* data, std::size_t count, std::uint32_t ranks) {
    for (std::size_t i = 0; i < count; ++i) {
        std::byte* at = data + i * sizeof(T);
        const T sum = load<T>(at);
        if constexpr (kSmall<T>)
            store<T>(at, T::of(sum.value() / static_cast<float>(ranks)));
        else if constexpr (std::is_floating_point_v<T>)
            store<T>(at, sum / static_cast<T>(ranks));
        else if constexpr (std::is_signed_v<T>)
            store<T>(at, static_cast<T>(sum / std::int64_t{ranks}));
        else
            store<T>(at, static_cast<T>(sum / std::uint64_t{ranks}));
    }
}

// Calls f with a value of the type.
template <typename F>
void with_type(ncclDataType_t type, F f) {
    switch (type) {
        case ncclInt8: f(std::int8_t{}); break;
        case ncclUint8: f(std::uint8_t{}); break;
        case ncclInt32: f(std::int32_t{}); break;
        case ncclUint32: f(std::uint32_t{}); break;
        case ncclInt64: f(std::int64_t{}); break;
        case ncclUint64: f(std::uint64_t{}); break;
        case ncclFloat16: f(Half{}); break;
        case ncclFloat32: f(float{}); break;
        case ncclFloat64: f(double{}); break;
        case ncclBfloat16: f(Bfloat16{}); break;
        case ncclFloat8e4m3: f(E4M3{}); break;
        case ncclFloat8e5m2: f(E5M2{}); break;
        default: break;
    }
}

}  // namespace

std::size_t type_bytes(ncclDataType_t type) {
    std::size_t bytes = 0;
    with_type(type, [&](auto t) { bytes = sizeof t; });
    return bytes;
}

void reduce(const Reduction& r, std::byte* out, const std::byte* in, const std::byte* mine, std::size_t count) {
    with_type(r.type, [&](auto t) { reduce_as<decltype(t)>(r, out, in, mine, count); });
}

void scale(const Reduction& r, std::byte* out, const std::byte* mine, std::size_t count) {
    if (r.scaled) {
        with_type(r.type, [&](auto t) { scale_as<decltype(t)>(r, out, mine, count); });
    } else if (out != mine) {
        std::memmove(out, mine, count * type_bytes(r.type));
    }
}

void conclude(const Reduction& r, std::byte* data, std::size_t count, std::uint32_t ranks) {
    if (r.op != ncclAvg || r.scaled) return;
    with_type(r.type, [&](auto t) { divide_as<decltype(t)>(data, count, ranks); });
}

}  // namespace opus::standin
