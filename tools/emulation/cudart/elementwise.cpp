// out[i] = f(a[i], b[i]) of a few functors, for the types that sizes, shapes, counts and flags have.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "arithmetic.h"

namespace opus::standin {

namespace {

// Behind a first member of so many bytes.
template <typename T>
std::size_t place_behind(std::size_t bytes) {
    return std::max(bytes, alignof(T));
}

template <typename T>
T* at(char* pointer) {
    return reinterpret_cast<T*>(pointer);
}

enum class Order : std::uint8_t { ge, gt, le, lt };  // PyTorch's OpType

template <typename T>
bool ordered(int how, T a, T b) {
    switch (static_cast<Order>(how)) {
        case Order::ge: return a >= b;
        case Order::gt: return a > b;
        case Order::le: return a <= b;
        default: return a < b;
    }
}

// Filled in, compared, converted, and not computed with otherwise.
template <typename T>
constexpr bool is_half = std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>;

template <typename T>
std::function<void()> filled(const Elementwise& c) {
    return [to = at<T>(c.pointers[0]), n = c.count, value = read<T>(c.functor)] { std::fill_n(to, n, value); };
}

// Of one operand, or of two: the second is a value then.
template <typename R, typename T, typename F>
std::function<void()> of_one(const Elementwise& c, F f) {
    return [to = at<R>(c.pointers[0]), a = at<T>(c.pointers[1]), n = c.count, f] {
        for (int i = 0; i < n; ++i) to[i] = static_cast<R>(f(a[i]));
    };
}
template <typename R, typename T, typename F>
std::function<void()> of_two(const Elementwise& c, F f) {
    return [to = at<R>(c.pointers[0]), a = at<T>(c.pointers[1]), b = at<T>(c.pointers[2]), n = c.count, f] {
        for (int i = 0; i < n; ++i) to[i] = static_cast<R>(f(a[i], b[i]));
    };
}

bool begins(const std::string& text, const std::string& with) { return text.compare(0, with.size(), with) == 0; }

template <typename T>
std::function<void()> compared(const std::string& f, const std::string& type, const Elementwise& c) {
    const std::string ns = "at::native::", inner = ns + "(anonymous namespace)::";
    const int how = read<int>(c.functor);
    const bool with_value = c.operands == 1 && f.find("<" + type + ", " + type + ", bool, ") != std::string::npos;
    if (c.operands == 2 && f.find(inner + "CompareFunctor<" + type + ">") != std::string::npos)
        return of_two<bool, T>(c, [how](T a, T b) { return ordered(how, a, b); });
    if (c.operands == 2 && f.find(inner + "CompareEqFunctor<" + type + ">") != std::string::npos)
        return of_two<bool, T>(c, [how](T a, T b) { return (a == b) == (how == 0); });
    if (with_value && f.find(inner + "CompareEqFunctor<" + type + ">") != std::string::npos) {
        const T value = read<T>(c.functor, place_behind<T>(sizeof(int)));
        return of_one<bool, T>(c, [how, value](T a) { return (a == value) == (how == 0); });
    }
    if (c.operands == 1 && begins(f, ns + "compare_scalar_kernel<" + type + ">")) {
        const T value = read<T>(c.functor, place_behind<T>(sizeof(int)));
        return of_one<bool, T>(c, [how, value](T a) { return ordered(how, a, value); });
    }
    return {};
}

template <typename T>
std::function<void()> added(const std::string& f, const std::string& type, const Elementwise& c) {
    const std::string ns = "at::native::";
    if constexpr (std::is_integral_v<T>) {  // flags, too
        const auto bitwise = [&](const char* name) {
            return c.operands == 2 && begins(f, ns + "BinaryFunctor<" + type + ", " + type + ", " + type + ", " + ns +
                                                    name + "<" + type + ">");
        };
        if constexpr (std::is_same_v<T, bool>)
            if (c.operands == 2 &&
                begins(f, ns + "BinaryFunctor<bool, bool, bool, " + ns + "binary_internal::MulFunctor<bool>"))
                return of_two<T, T>(c, [](T a, T b) { return a && b; });
        if (bitwise("BitwiseOrFunctor")) return of_two<T, T>(c, [](T a, T b) { return a | b; });
        if (bitwise("BitwiseAndFunctor")) return of_two<T, T>(c, [](T a, T b) { return a & b; });
    }
    if constexpr (!std::is_same_v<T, bool> && !is_half<T>) {
        if (c.operands == 2 && f == ns + "CUDAFunctor_add<" + type + ">")
            return of_two<T, T>(c, [alpha = read<T>(c.functor)](T a, T b) { return a + alpha * b; });
        if (c.operands == 1 && begins(f, ns + "CUDAFunctorOn")) {
            const T value = read<T>(c.functor), alpha = read<T>(c.functor, sizeof(T));
            if (f == ns + "CUDAFunctorOnSelf_add<" + type + ">")
                return of_one<T, T>(c, [=](T a) { return a + alpha * value; });
            if (f == ns + "CUDAFunctorOnOther_add<" + type + ">")
                return of_one<T, T>(c, [=](T a) { return value + alpha * a; });
        }
        const std::string multiply = ns + "binary_internal::MulFunctor<" + type + ">";
        const std::string three = "<" + type + ", " + type + ", " + type + ", " + multiply;
        if (c.operands == 2 && begins(f, ns + "BinaryFunctor" + three))
            return of_two<T, T>(c, [](T a, T b) { return a * b; });
        if (c.operands == 1 && (begins(f, ns + "AUnaryFunctor" + three) || begins(f, ns + "BUnaryFunctor" + three)))
            return of_one<T, T>(c, [value = read<T>(c.functor, place_behind<T>(1))](T a) { return a * value; });
    }
    return {};
}

// What norms and factors are made of: powers, roots, quotients, logarithms.
template <typename T>
std::function<void()> powers(const std::string& f, const std::string& type, const Elementwise& c) {
    const auto is = [&](const char* name) { return f.find(name) != std::string::npos; };
    const auto is_form = [&](int number) {
        return f.find("::{lambda(" + type + ")#" + std::to_string(number) + "}") != std::string::npos;
    };
    if (c.operands == 2 && f == "at::native::BinaryFunctor<" + type + ", " + type + ", " + type +
                                    ", at::native::binary_internal::DivFunctor<" + type + "> >")
        return of_two<T, T>(c, [](T a, T b) { return a / b; });
    if (c.operands != 1) return {};
    if (is("::pow_tensor_scalar_kernel_impl<")) {  // squares, cubes, their inverse, and whatever else
        if (is_form(1)) return of_one<T, T>(c, [](T a) { return a * a; });
        if (is_form(2)) return of_one<T, T>(c, [](T a) { return a * a * a; });
        if (is_form(3)) return of_one<T, T>(c, [](T a) { return 1 / (a * a); });
        if (is_form(4)) return of_one<T, T>(c, [by = read<T>(c.functor)](T a) { return std::pow(a, by); });
    }
    if (!is_form(1)) return {};
    if (is("::rsqrt_kernel_cuda(")) return of_one<T, T>(c, [](T a) { return 1 / std::sqrt(a); });
    if (is("::sqrt_kernel_cuda(")) return of_one<T, T>(c, [](T a) { return std::sqrt(a); });
    if (is("::log_kernel_cuda(")) return of_one<T, T>(c, [](T a) { return std::log(a); });
    if (is("::reciprocal_kernel_cuda(")) return of_one<T, T>(c, [](T a) { return 1 / a; });
    if (is("::neg_kernel_cuda(")) return of_one<T, T>(c, [](T a) { return -a; });
    return {};
}

// torch.where, which asks only how large a number is.
template <typename T>
std::function<void()> chosen(const std::string& f, const std::string& type, const Elementwise& c) {
    if (f.find("::{lambda(bool, " + type + ", " + type + ")#1}") == std::string::npos) return {};
    return [to = at<T>(c.pointers[0]), which = at<bool>(c.pointers[1]), a = at<T>(c.pointers[2]),
            b = at<T>(c.pointers[3]), n = c.count] {
        for (int i = 0; i < n; ++i) to[i] = which[i] ? a[i] : b[i];
    };
}
std::function<void()> chosen(const std::string& f, const Elementwise& c) {
    if (f.find("::where_kernel_impl(") == std::string::npos) return {};
    if (auto found = chosen<std::uint8_t>(f, "unsigned char", c)) return found;
    if (auto found = chosen<std::uint16_t>(f, "unsigned short", c)) return found;
    if (auto found = chosen<std::uint32_t>(f, "unsigned int", c)) return found;
    return chosen<std::uint64_t>(f, "unsigned long", c);
}

template <typename T>
std::function<void()> computed(const std::string& f, const std::string& type, const Elementwise& c) {
    if (c.operands == 0) return f == "at::native::FillFunctor<" + type + ">" ? filled<T>(c) : std::function<void()>();
    if (auto found = compared<T>(f, type, c)) return found;
    if constexpr (std::is_floating_point_v<T> || is_half<T>)
        if (c.operands == 1 && f == "at::native::AbsFunctor<" + type + ">")
            return of_one<T, T>(c, [](T a) { return a < 0 ? -a : a + 0; });
    if constexpr (std::is_floating_point_v<T>)
        if (auto found = powers<T>(f, type, c)) return found;
    return added<T>(f, type, c);
}

// --- conversions ------------------------------------------------------------------------------------------------

// Numbers of types, by c10/core/ScalarType.h. `run` gets a null pointer of the type.
template <typename Run>
bool with_type(int number, Run run) {
    switch (number) {
        case 0: run(static_cast<std::uint8_t*>(nullptr)); return true;
        case 1: run(static_cast<std::int8_t*>(nullptr)); return true;
        case 2: run(static_cast<std::int16_t*>(nullptr)); return true;
        case 3: run(static_cast<std::int32_t*>(nullptr)); return true;
        case 4: run(static_cast<std::int64_t*>(nullptr)); return true;
        case 5: run(static_cast<Half*>(nullptr)); return true;
        case 6: run(static_cast<float*>(nullptr)); return true;
        case 7: run(static_cast<double*>(nullptr)); return true;
        case 11: run(static_cast<bool*>(nullptr)); return true;
        case 15: run(static_cast<BFloat16*>(nullptr)); return true;
        default: return false;
    }
}

int number_of(const std::string& type) {
    return type == "float" ? 6 : type == "double" ? 7 : type == "c10::Half" ? 5 : type == "c10::BFloat16" ? 15 : -1;
}

std::function<void()> converted(int from, int to, const Elementwise& c) {
    std::function<void()> found;
    with_type(from, [&](auto* source) {
        with_type(to, [&](auto* target) {
            using From = std::remove_pointer_t<decltype(source)>;
            using To = std::remove_pointer_t<decltype(target)>;
            found = of_one<To, From>(c, [](From a) { return static_cast<To>(a); });
        });
    });
    return found;
}

// Between floats, whose types the kernel's name says.
std::function<void()> converted_floats(const std::string& f, const Elementwise& c) {
    const std::string made = "at::native::converting_copy_kernel_cuda<";
    const std::size_t comma = f.find(", "), end = f.find('>');
    if (c.operands != 1 || !begins(f, made) || comma == std::string::npos || end < comma) return {};
    const std::string from = f.substr(made.size(), comma - made.size()), to = f.substr(comma + 2, end - comma - 2);
    return converted(number_of(from), number_of(to), c);
}

}  // namespace

std::function<void()> elementwise(const std::string& functor, const Elementwise& call) {
    if (call.converted) {
        const bool copies = call.operands == 1 && begins(functor, "at::native::direct_copy_kernel_cuda(");
        if (!copies) return {};
        return converted(read<std::int8_t>(call.load), read<std::int8_t>(call.store), call);  // both begin with the type
    }
    if (call.operands == 3) return chosen(functor, call);
    std::function<void()> found = converted_floats(functor, call);
    const auto attempt = [&](auto value, const char* type) {
        if (!found) found = computed<decltype(value)>(functor, type, call);
    };
    attempt(std::int64_t{}, "long");
    attempt(std::int32_t{}, "int");
    attempt(std::int16_t{}, "short");
    attempt(std::int8_t{}, "signed char");
    attempt(std::uint8_t{}, "unsigned char");
    attempt(bool{}, "bool");
    attempt(float{}, "float");
    attempt(double{}, "double");
    attempt(BFloat16{}, "c10::BFloat16");
    attempt(Half{}, "c10::Half");
    return found;
}

}  // namespace opus::standin
