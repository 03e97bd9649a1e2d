// What a transformer layer does to each token by itself: bias, dropout, residual and layer norm in one pass; bias and GELU in another.
#include <algorithm>
#include <cmath>
#include <memory>

#include "lanes.h"

namespace {

// Sums over rows are taken in so many parts, added in order: the same digits on any number of threads.
constexpr int64_t PARTS = 32;

struct Part {
    int64_t first, last;
};

Part part_of_rows(int64_t number, int64_t rows) {
    int64_t size = (rows + PARTS - 1) / PARTS;
    return {std::min(rows, number * size), std::min(rows, (number + 1) * size)};
}

void add_up(const float* parts, int64_t width, float* sums) {
    for (int64_t column = 0; column < width; column += LANES) {
        Lanes total = {};
        for (int64_t number = 0; number < PARTS; ++number) total += load(parts + number * width + column);
        store(sums + column, total);
    }
}

template <typename Element>
void add_norm(const Element* product, const float* bias, Dropout dropout, const float* residual, const float* norm_weight,
              const float* norm_bias, double epsilon, int64_t rows, int64_t width, float* normalized, float* inverse_std, float* out,
              bfloat16* rounded, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; ++row) {
        int64_t start = row * width;
        float* result = out + start;
        Lanes total = {};
        for (int64_t column = 0; column < width; column += LANES) {
            Lanes value = load(product + start + column);
            if (bias != nullptr) value += load(bias + column);
            value = value * dropout.at(start + column) + load(residual + start + column);
            store(result + column, value);
            total += value;
        }
        float mean = sum(total) / float(width);
        Lanes squares = {};
        for (int64_t column = 0; column < width; column += LANES) {
            Lanes centred = load(result + column) - mean;
            squares += centred * centred;
        }
        float inverse = float(1.0 / std::sqrt(double(sum(squares)) / double(width) + epsilon));
        if (inverse_std != nullptr) inverse_std[row] = inverse;
        for (int64_t column = 0; column < width; column += LANES) {
            Lanes centred = (load(result + column) - mean) * inverse;
            if (normalized != nullptr) store(normalized + start + column, centred);
            Lanes value = centred * load(norm_weight + column) + load(norm_bias + column);
            store(result + column, value);
            if (rounded != nullptr) store(rounded + start + column, value);
        }
    }
}

template <typename Element>
void add_norm_backward(const float* grad, const Element* grad_product_input, const float* normalized, const float* inverse_std,
                       const float* norm_weight, const float* norm_bias, Dropout dropout, int64_t rows, int64_t width, float* grad_residual,
                       Element* grad_product, float* grad_bias, float* grad_norm_weight, float* grad_norm_bias, Element* recomputed,
                       int threads) {
    std::unique_ptr<float[]> parts(new float[3 * PARTS * width]());
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t number = 0; number < PARTS; ++number) {
        float* bias_part = parts.get() + number * width;
        float* norm_weight_part = bias_part + PARTS * width;
        float* norm_bias_part = norm_weight_part + PARTS * width;
        auto [first, last] = part_of_rows(number, rows);
        for (int64_t row = first; row < last; ++row) {
            int64_t start = row * width;
            float* result = grad_residual + start;
            Lanes total = {}, along = {};
            for (int64_t column = 0; column < width; column += LANES) {
                Lanes grad_out = load(grad + start + column);
                if (grad_product_input != nullptr) grad_out += load(grad_product_input + start + column);
                Lanes centred = load(normalized + start + column);
                store(norm_weight_part + column, load(norm_weight_part + column) + grad_out * centred);
                store(norm_bias_part + column, load(norm_bias_part + column) + grad_out);
                if (recomputed != nullptr)
                    store(recomputed + start + column, centred * load(norm_weight + column) + load(norm_bias + column));
                Lanes scaled = grad_out * load(norm_weight + column);
                store(result + column, scaled);
                total += scaled;
                along += scaled * centred;
            }
            float mean = sum(total) / float(width), slope = sum(along) / float(width), inverse = inverse_std[row];
            for (int64_t column = 0; column < width; column += LANES) {
                Lanes value = (load(result + column) - mean - load(normalized + start + column) * slope) * inverse;
                store(result + column, value);
                value *= dropout.at(start + column);
                store(grad_product + start + column, value);
                store(bias_part + column, load(bias_part + column) + value);
            }
        }
    }
    add_up(parts.get(), width, grad_bias);
    add_up(parts.get() + PARTS * width, width, grad_norm_weight);
    add_up(parts.get() + 2 * PARTS * width, width, grad_norm_bias);
}

template <typename Element>
void gelu(const Element* product, const float* bias, int64_t rows, int64_t width, Element* out, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t column = 0; column < width; column += LANES) {
            Lanes x = load(product + row * width + column) + load(bias + column);
            store(out + row * width + column, x * normal_at(x).cdf);
        }
    }
}

template <typename Element>
void gelu_backward(const Element* product, const float* bias, int64_t rows, int64_t width, Element* grad, Element* recomputed,
                   float* grad_bias, int threads) {
    std::unique_ptr<float[]> parts(new float[PARTS * width]());
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t number = 0; number < PARTS; ++number) {
        float* bias_part = parts.get() + number * width;
        auto [first, last] = part_of_rows(number, rows);
        for (int64_t row = first; row < last; ++row) {
            for (int64_t column = 0; column < width; column += LANES) {
                Lanes x = load(product + row * width + column) + load(bias + column);
                NormalAt at_x = normal_at(x);
                store(recomputed + row * width + column, x * at_x.cdf);
                Lanes value = load(grad + row * width + column) * (at_x.cdf + x * at_x.density);
                store(grad + row * width + column, value);
                store(bias_part + column, load(bias_part + column) + value);
            }
        }
    }
    add_up(parts.get(), width, grad_bias);
}

template <typename Element>
void column_sums(const Element* values, int64_t rows, int64_t width, float* sums, int threads) {
    std::unique_ptr<float[]> parts(new float[PARTS * width]());
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t number = 0; number < PARTS; ++number) {
        float* part = parts.get() + number * width;
        auto [first, last] = part_of_rows(number, rows);
        for (int64_t row = first; row < last; ++row)
            for (int64_t column = 0; column < width; column += LANES)
                store(part + column, load(part + column) + load(values + row * width + column));
    }
    add_up(parts.get(), width, sums);
}

template <typename Element>
void add_to(const Element* values, int64_t count, float* sums, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t place = 0; place < count; place += LANES) store(sums + place, load(sums + place) + load(values + place));
}

}  // namespace

// What Python calls. Rows lie one behind the other; null where something is not given or not wanted.
extern "C" {

void sentdist_add_norm(int is_bfloat16, const void* product, const float* bias, uint64_t seed, uint32_t threshold, float kept_factor,
                       const float* residual, const float* norm_weight, const float* norm_bias, double epsilon, int64_t rows, int64_t width,
                       float* normalized, float* inverse_std, float* out, bfloat16* rounded, int threads) {
    with_element_type(is_bfloat16, [&](auto element) {
        add_norm(static_cast<const decltype(element)*>(product), bias, Dropout{seed, threshold, kept_factor}, residual, norm_weight,
                 norm_bias, epsilon, rows, width, normalized, inverse_std, out, rounded, threads);
    });
}

void sentdist_add_norm_backward(int is_bfloat16, const float* grad, const void* grad_product_input, const float* normalized,
                                const float* inverse_std, const float* norm_weight, const float* norm_bias, uint64_t seed,
                                uint32_t threshold, float kept_factor, int64_t rows, int64_t width, float* grad_residual,
                                void* grad_product, float* grad_bias, float* grad_norm_weight, float* grad_norm_bias, void* recomputed,
                                int threads) {
    with_element_type(is_bfloat16, [&](auto element) {
        using Element = decltype(element);
        add_norm_backward(grad, static_cast<const Element*>(grad_product_input), normalized, inverse_std, norm_weight, norm_bias,
                          Dropout{seed, threshold, kept_factor}, rows, width, grad_residual, static_cast<Element*>(grad_product), grad_bias,
                          grad_norm_weight, grad_norm_bias, static_cast<Element*>(recomputed), threads);
    });
}

void sentdist_gelu(int is_bfloat16, const void* product, const float* bias, int64_t rows, int64_t width, void* out, int threads) {
    with_element_type(is_bfloat16, [&](auto element) {
        using Element = decltype(element);
        gelu(static_cast<const Element*>(product), bias, rows, width, static_cast<Element*>(out), threads);
    });
}

void sentdist_gelu_backward(int is_bfloat16, const void* product, const float* bias, int64_t rows, int64_t width, void* grad,
                            void* recomputed, float* grad_bias, int threads) {
    with_element_type(is_bfloat16, [&](auto element) {
        using Element = decltype(element);
        gelu_backward(static_cast<const Element*>(product), bias, rows, width, static_cast<Element*>(grad),
                      static_cast<Element*>(recomputed), grad_bias, threads);
    });
}

void sentdist_column_sums(int is_bfloat16, const void* values, int64_t rows, int64_t width, float* sums, int threads) {
    with_element_type(is_bfloat16, [&](auto element) {
        column_sums(static_cast<const decltype(element)*>(values), rows, width, sums, threads);
    });
}

void sentdist_add_to(int is_bfloat16, const void* values, int64_t count, float* sums, int threads) {
    with_element_type(is_bfloat16, [&](auto element) { add_to(static_cast<const decltype(element)*>(values), count, sums, threads); });
}
}
