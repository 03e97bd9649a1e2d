// As many floats at a time as a register holds: loads, stores and the functions that attention, layer norm and GELU need, for any processor
// that GCC or Clang knows.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>
#if defined(__AVX512BF16__) && defined(__AVX512VL__)
#include <immintrin.h>
#endif

// Never more than a register holds: GCC keeps a wider vector in memory, and each sum of products would be loaded and stored (measured on
// AVX2: attention took four to seven times as long). A divisor of 16, of which Python knows that widths are multiples.
#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX2__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

typedef float Lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

struct bfloat16 {
    uint16_t bits;
};

template <typename To, typename From>
inline To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof(to));
    return to;
}

inline Lanes all(float value) { return value - Lanes{}; }

inline Lanes load(const float* from) {
    Lanes lanes;
    std::memcpy(&lanes, from, sizeof(lanes));
    return lanes;
}

inline Lanes load(const bfloat16* from) {
    Halves halves;
    std::memcpy(&halves, from, sizeof(halves));
    return same_bits<Lanes>(__builtin_convertvector(halves, Words) << 16);
}

inline void store(float* to, Lanes lanes) { std::memcpy(to, &lanes, sizeof(lanes)); }

// Rounds to the nearest, ties to even; what is not finite stays so.
inline void store(bfloat16* to, Lanes lanes) {
#if defined(__AVX512BF16__) && defined(__AVX512VL__)
    __m256bh halves = _mm512_cvtneps_pbh(same_bits<__m512>(lanes));
    std::memcpy(to, &halves, sizeof(halves));
#else
    Words words = same_bits<Words>(lanes);
    Words rounded = words + 0x7fff + ((words >> 16) & 1);
    Words chosen = lanes == lanes ? rounded : (words | 0x00400000);
    Halves halves = __builtin_convertvector(chosen >> 16, Halves);
    std::memcpy(to, &halves, sizeof(halves));
#endif
}

// `count` of them, zeros behind; less than LANES where a head's width is no multiple of it.
template <typename Element>
inline Lanes load(const Element* from, int64_t count) {
    if (count >= LANES) return load(from);
    Element some[LANES] = {};
    std::memcpy(some, from, count * sizeof(Element));
    return load(some);
}

template <typename Element>
inline void store(Element* to, Lanes lanes, int64_t count) {
    if (count >= LANES) return store(to, lanes);
    Element some[LANES];
    store(some, lanes);
    std::memcpy(to, some, count * sizeof(Element));
}

inline Lanes larger(Lanes left, Lanes right) { return left > right ? left : right; }

template <int... Chosen>
inline Lanes picked(Lanes left, Lanes right) {
#if defined(__clang__) || __GNUC__ >= 12
    return __builtin_shufflevector(left, right, Chosen...);
#else
    return __builtin_shuffle(left, right, Ints{Chosen...});
#endif
}

// 0, 1, 2, …
template <typename Vector, int... Lane>
constexpr Vector numbers(std::integer_sequence<int, Lane...>) {
    return Vector{Lane...};
}

template <typename Vector>
constexpr Vector numbers() {
    return numbers<Vector>(std::make_integer_sequence<int, LANES>());
}

// Each lane and the one `Step` away from it change places.
template <int Step, int... Lane>
inline Lanes exchanged(Lanes lanes, std::integer_sequence<int, Lane...>) {
    return picked<(Lane ^ Step)...>(lanes, lanes);
}

template <int Step>
inline Lanes exchanged(Lanes lanes) {
    return exchanged<Step>(lanes, std::make_integer_sequence<int, LANES>());
}

// By halves, in one order.
template <int Step = LANES / 2>
inline float sum(Lanes lanes) {
    lanes += exchanged<Step>(lanes);
    if constexpr (Step == 1)
        return lanes[0];
    else
        return sum<Step / 2>(lanes);
}

template <int Step = LANES / 2>
inline float largest(Lanes lanes) {
    lanes = larger(lanes, exchanged<Step>(lanes));
    if constexpr (Step == 1)
        return lanes[0];
    else
        return largest<Step / 2>(lanes);
}

template <int Step, int... Lane>
inline void swap_blocks(Lanes* rows, std::integer_sequence<int, Lane...>) {
    for (int row = 0; row < LANES; ++row) {
        if (row & Step) continue;
        Lanes upper = rows[row], lower = rows[row + Step];
        rows[row] = picked<(Lane & Step ? LANES + Lane - Step : Lane)...>(upper, lower);
        rows[row + Step] = picked<(Lane & Step ? LANES + Lane : Lane + Step)...>(upper, lower);
    }
}

// Turns a square of LANES rows about its diagonal.
template <int Step = LANES / 2>
inline void transpose_square(Lanes* rows) {
    swap_blocks<Step>(rows, std::make_integer_sequence<int, LANES>());
    if constexpr (Step > 1) transpose_square<Step / 2>(rows);
}

// eˣ for x <= 0, to 2e-7 relative, by 2ⁿ and the first eight terms of the series. What is below -87 gives that of -87, which is as good as
// 0. NaN stays NaN.
inline Lanes exp_of_negative(Lanes x) {
    x = x < -87.0f ? all(-87.0f) : x;
    Lanes shifted = x * 1.44269504f + 12582912.0f;  // 1.5 · 2²³: the sum is rounded to an integer in its low bits
    Lanes whole = shifted - 12582912.0f;
    Lanes rest = x - whole * 0.693359375f + whole * 2.12194440e-4f;  // ln 2 in two parts, after Cody & Waite 1980
    Lanes power = all(1.0f / 5040.0f);
    power = power * rest + 1.0f / 720.0f;
    power = power * rest + 1.0f / 120.0f;
    power = power * rest + 1.0f / 24.0f;
    power = power * rest + 1.0f / 6.0f;
    power = power * rest + 0.5f;
    power = power * rest + 1.0f;
    power = power * rest + 1.0f;
    Ints exponent = same_bits<Ints>(shifted) << 23;
    return same_bits<Lanes>(same_bits<Ints>(power) + exponent);
}

// The normal distribution at x: Φ(x), and φ(x) = exp(-x² / 2) / √(2π). Φ to 1.5e-7: Abramowitz & Stegun 1964, equation 7.1.26.
struct NormalAt {
    Lanes cdf, density;
};

inline NormalAt normal_at(Lanes x) {
    Lanes magnitude = larger(x, -x) * 0.70710678f;
    magnitude = x == x ? magnitude : x;
    Lanes bell = exp_of_negative(-magnitude * magnitude);
    Lanes t = 1.0f / (1.0f + 0.3275911f * magnitude);
    Lanes series = all(1.061405429f);
    series = series * t - 1.453152027f;
    series = series * t + 1.421413741f;
    series = series * t - 0.284496736f;
    series = series * t + 0.254829592f;
    Lanes tail = 0.5f * series * t * bell;
    return {x < 0.0f ? tail : 1.0f - tail, bell * 0.39894228f};
}

// A permutation of 32-bit numbers in which each bit of the result depends evenly on all of the argument (Wellons 2018, "lowbias32").
inline Words mixed(Words x) {
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

// What values are multiplied by: 0 with a probability, else `kept_factor`. A number is drawn for each place of a tensor from the seed and
// the place alone, so that a backward pass draws it again instead of reading it.
struct Dropout {
    uint64_t seed;
    uint32_t threshold;  // of 2³² numbers, those below drop a value
    float kept_factor;

    Lanes at(int64_t place) const {
        if (threshold == 0) return all(1.0f);
        constexpr Words number = numbers<Words>();
        uint32_t high = uint32_t(seed >> 32) + uint32_t(place >> 32) * 0x9e3779b9u;
        Words drawn = mixed(mixed((uint32_t(place) + number) ^ uint32_t(seed)) + high);
        Ints is_kept = drawn >= threshold;
        return same_bits<Lanes>(is_kept & same_bits<Ints>(all(kept_factor)));
    }
};

// Tells `work` of which type the rows are, by a value of it: what Python calls has no templates.
template <typename Work>
void with_element_type(int is_bfloat16, Work work) {
    if (is_bfloat16)
        work(bfloat16{});
    else
        work(float{});
}
