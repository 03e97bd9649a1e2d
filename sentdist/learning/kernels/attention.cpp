// softmax(q kᵀ · scale) v within each sentence of a flat tensor, with dropout and DropHead; one head of one sentence at a time, in float32.
#include <algorithm>
#include <vector>

#include "lanes.h"

namespace {

constexpr int64_t ROWS = 4;  // queries at once: each key or value that is loaded serves so many products

int64_t whole_lanes(int64_t length) { return (length + LANES - 1) / LANES * LANES; }

// Rows of queries, keys and values; head h of a row begins `h · head_width` behind it. Biases of the same layout, or none.
template <typename Element>
struct States {
    const Element *query, *key, *value;
    const float *query_bias, *key_bias, *value_bias;
    int64_t stride;
};

struct Shape {
    const int32_t* boundaries;
    int64_t sentences, heads, head_width;
    float scale;
};

// Where the attention weights of a sentence begin, as dropout counts them: sentence by sentence, head by head, query by query, key by key.
std::vector<int64_t> first_places(const Shape& shape) {
    std::vector<int64_t> first(shape.sentences + 1, 0);
    for (int64_t sentence = 0; sentence < shape.sentences; ++sentence) {
        int64_t length = shape.boundaries[sentence + 1] - shape.boundaries[sentence];
        first[sentence + 1] = first[sentence] + shape.heads * length * length;
    }
    return first;
}

int64_t longest(const Shape& shape) {
    int64_t found = 0;
    for (int64_t sentence = 0; sentence < shape.sentences; ++sentence)
        found = std::max<int64_t>(found, shape.boundaries[sentence + 1] - shape.boundaries[sentence]);
    return found;
}

// (length, width) of a head into float32 rows of whole lanes, zeros behind them; what the next head reads is asked for meanwhile.
template <typename Element>
void read_head(const Element* from, const float* bias, int64_t stride, int64_t length, int64_t width, float* rows) {
    int64_t padded = whole_lanes(width);
    for (int64_t row = 0; row < length; ++row)
        for (int64_t column = 0; column < width; column += LANES) {
            __builtin_prefetch(from + row * stride + column + width);
            Lanes values = load(from + row * stride + column, width - column);
            if (bias != nullptr) values += load(bias + column, width - column);
            store(rows + row * padded + column, values);
        }
    std::fill(rows + length * padded, rows + whole_lanes(length) * padded, 0.0f);
}

// The other way, for `count` rows.
template <typename Element>
void write_head(const float* rows, float scale, int64_t count, int64_t width, Element* to, int64_t stride) {
    for (int64_t row = 0; row < count; ++row)
        for (int64_t column = 0; column < width; column += LANES)
            store(to + row * stride + column, load(rows + row * whole_lanes(width) + column) * scale, width - column);
}

// (padded length, width) to (width, padded length), in squares of LANES.
void transpose(const float* rows, int64_t padded, int64_t width, float* columns) {
    for (int64_t row = 0; row < padded; row += LANES)
        for (int64_t column = 0; column < width; column += LANES) {
            Lanes square[LANES];
            for (int64_t place = 0; place < LANES; ++place) square[place] = load(rows + (row + place) * width + column);
            transpose_square(square);
            for (int64_t place = 0; place < LANES; ++place) store(columns + (column + place) * padded + row, square[place]);
        }
}

// ROWS rows of `left` (ROWS, inner) times `right` (inner, columns): out (ROWS, columns). `left_stride` between its rows.
inline void products(const float* left, int64_t left_stride, const float* right, int64_t inner, int64_t columns, float* out) {
    for (int64_t column = 0; column < columns; column += LANES) {
        Lanes sums[ROWS] = {};
        for (int64_t place = 0; place < inner; ++place) {
            Lanes values = load(right + place * columns + column);
            for (int64_t row = 0; row < ROWS; ++row) sums[row] += left[row * left_stride + place] * values;
        }
        for (int64_t row = 0; row < ROWS; ++row) store(out + row * columns + column, sums[row]);
    }
}

// Adds leftᵀ right, left (ROWS, padded) and right (ROWS, width), to sums (length, width).
inline void add_transposed(const float* left, int64_t padded, const float* right, int64_t length, int64_t width, float* sums) {
    for (int64_t column = 0; column < width; column += LANES) {
        Lanes rows[ROWS];
        for (int64_t row = 0; row < ROWS; ++row) rows[row] = load(right + row * width + column);
        for (int64_t place = 0; place < length; ++place) {
            Lanes total = load(sums + place * width + column);
            for (int64_t row = 0; row < ROWS; ++row) total += left[row * padded + place] * rows[row];
            store(sums + place * width + column, total);
        }
    }
}

// The lanes from `first` on, with `beyond` behind a sentence's end.
inline Lanes within(Lanes lanes, int64_t first, int64_t length, float beyond) {
    constexpr Ints number = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return number < int32_t(std::min<int64_t>(length - first, LANES)) ? lanes : all(beyond);
}

struct Scratch {
    std::vector<float> memory;
    float* next;

    explicit Scratch(int64_t floats) : memory(floats + LANES), next(memory.data()) {}
    float* take(int64_t floats) {
        float* taken = next;
        next += floats;
        return taken;
    }
};

template <typename Element>
void attention(const States<Element>& states, const Shape& shape, const Dropout& dropout, const float* head_scales, Element* out,
               int64_t out_stride, float* statistics, int threads) {
    int64_t head_width = shape.head_width, width = whole_lanes(head_width), most = whole_lanes(longest(shape));
    std::vector<int64_t> first_place = first_places(shape);
#pragma omp parallel num_threads(threads)
    {
        Scratch scratch(4 * most * width + ROWS * (most + width));
        float *query = scratch.take(most * width), *key = scratch.take(most * width), *value = scratch.take(most * width);
        float *key_columns = scratch.take(most * width), *weights = scratch.take(ROWS * most), *context = scratch.take(ROWS * width);
#pragma omp for collapse(2) schedule(dynamic, 8)
        for (int64_t sentence = 0; sentence < shape.sentences; ++sentence) {
            for (int64_t head = 0; head < shape.heads; ++head) {
                int64_t begin = shape.boundaries[sentence], length = shape.boundaries[sentence + 1] - begin, padded = whole_lanes(length);
                int64_t offset = head * head_width, place_of_head = first_place[sentence] + head * length * length;
                auto bias = [&](const float* of) { return of == nullptr ? nullptr : of + offset; };
                read_head(states.query + begin * states.stride + offset, bias(states.query_bias), states.stride, length, head_width, query);
                read_head(states.key + begin * states.stride + offset, bias(states.key_bias), states.stride, length, head_width, key);
                read_head(states.value + begin * states.stride + offset, bias(states.value_bias), states.stride, length, head_width, value);
                transpose(key, padded, width, key_columns);
                float head_scale = head_scales == nullptr ? 1.0f : head_scales[sentence * shape.heads + head];
                for (int64_t first = 0; first < length; first += ROWS) {
                    products(query + first * width, width, key_columns, width, padded, weights);
                    int64_t rows = std::min(ROWS, length - first);
                    for (int64_t row = 0; row < rows; ++row) {
                        float* of_row = weights + row * padded;
                        Lanes high = all(-__builtin_inff());
                        for (int64_t place = 0; place < length; place += LANES) {
                            Lanes scores = within(load(of_row + place) * shape.scale, place, length, -__builtin_inff());
                            store(of_row + place, scores);
                            high = larger(scores, high);
                        }
                        float top = largest(high);
                        Lanes total = {};
                        for (int64_t place = 0; place < length; place += LANES) {
                            Lanes powers = within(exp_of_negative(load(of_row + place) - top), place, length, 0.0f);
                            total += powers;
                            store(of_row + place, powers * dropout.at(place_of_head + (first + row) * length + place));
                        }
                        float inverse = 1.0f / sum(total);
                        for (int64_t place = 0; place < length; place += LANES) store(of_row + place, load(of_row + place) * inverse);
                        if (statistics != nullptr) {
                            float* kept = statistics + ((begin + first + row) * shape.heads + head) * 2;
                            kept[0] = top, kept[1] = inverse;
                        }
                    }
                    products(weights, padded, value, length, width, context);
                    write_head(context, head_scale, rows, head_width, out + (begin + first) * out_stride + offset, out_stride);
                }
            }
        }
    }
}

template <typename Element>
void attention_backward(const States<Element>& states, const Shape& shape, const Dropout& dropout, const float* head_scales,
                        const Element* grad, int64_t grad_stride, const float* statistics, Element* to_query, Element* to_key,
                        Element* to_value, int64_t to_stride, int threads) {
    int64_t head_width = shape.head_width, width = whole_lanes(head_width), most = whole_lanes(longest(shape));
    std::vector<int64_t> first_place = first_places(shape);
#pragma omp parallel num_threads(threads)
    {
        Scratch scratch(8 * most * width + ROWS * (2 * most + width));
        float *query = scratch.take(most * width), *key = scratch.take(most * width), *value = scratch.take(most * width);
        float *key_columns = scratch.take(most * width), *value_columns = scratch.take(most * width), *arrived = scratch.take(most * width);
        float *key_sums = scratch.take(most * width), *value_sums = scratch.take(most * width);
        float *weights = scratch.take(ROWS * most), *slopes = scratch.take(ROWS * most), *query_rows = scratch.take(ROWS * width);
#pragma omp for collapse(2) schedule(dynamic, 8)
        for (int64_t sentence = 0; sentence < shape.sentences; ++sentence) {
            for (int64_t head = 0; head < shape.heads; ++head) {
                int64_t begin = shape.boundaries[sentence], length = shape.boundaries[sentence + 1] - begin, padded = whole_lanes(length);
                int64_t offset = head * head_width, place_of_head = first_place[sentence] + head * length * length;
                auto bias = [&](const float* of) { return of == nullptr ? nullptr : of + offset; };
                read_head(states.query + begin * states.stride + offset, bias(states.query_bias), states.stride, length, head_width, query);
                read_head(states.key + begin * states.stride + offset, bias(states.key_bias), states.stride, length, head_width, key);
                read_head(states.value + begin * states.stride + offset, bias(states.value_bias), states.stride, length, head_width, value);
                read_head(grad + begin * grad_stride + offset, nullptr, grad_stride, length, head_width, arrived);
                if (head_scales != nullptr) {
                    float head_scale = head_scales[sentence * shape.heads + head];
                    for (int64_t place = 0; place < length * width; place += LANES) store(arrived + place, load(arrived + place) * head_scale);
                }
                transpose(key, padded, width, key_columns);
                transpose(value, padded, width, value_columns);
                std::fill(key_sums, key_sums + length * width, 0.0f);
                std::fill(value_sums, value_sums + length * width, 0.0f);
                for (int64_t first = 0; first < length; first += ROWS) {
                    products(query + first * width, width, key_columns, width, padded, weights);
                    products(arrived + first * width, width, value_columns, width, padded, slopes);
                    for (int64_t row = 0; row < ROWS; ++row) {
                        float *of_row = weights + row * padded, *slope_row = slopes + row * padded;
                        if (first + row >= length) {
                            std::fill(of_row, of_row + padded, 0.0f);
                            std::fill(slope_row, slope_row + padded, 0.0f);
                            continue;
                        }
                        const float* kept = statistics + ((begin + first + row) * shape.heads + head) * 2;
                        int64_t place_of_row = place_of_head + (first + row) * length;
                        Lanes total = {};
                        for (int64_t place = 0; place < length; place += LANES) {
                            Lanes scores = load(of_row + place) * shape.scale - kept[0];
                            Lanes powers = within(exp_of_negative(scores) * kept[1], place, length, 0.0f);
                            store(of_row + place, powers);
                            total += powers * dropout.at(place_of_row + place) * load(slope_row + place);
                        }
                        float mean = sum(total);
                        for (int64_t place = 0; place < length; place += LANES) {
                            Lanes powers = load(of_row + place), factors = dropout.at(place_of_row + place);
                            store(slope_row + place, powers * (load(slope_row + place) * factors - mean) * shape.scale);
                            store(of_row + place, powers * factors);
                        }
                    }
                    add_transposed(weights, padded, arrived + first * width, length, width, value_sums);
                    add_transposed(slopes, padded, query + first * width, length, width, key_sums);
                    products(slopes, padded, key, length, width, query_rows);
                    int64_t rows = std::min(ROWS, length - first);
                    write_head(query_rows, 1.0f, rows, head_width, to_query + (begin + first) * to_stride + offset, to_stride);
                }
                write_head(key_sums, 1.0f, length, head_width, to_key + begin * to_stride + offset, to_stride);
                write_head(value_sums, 1.0f, length, head_width, to_value + begin * to_stride + offset, to_stride);
            }
        }
    }
}

}  // namespace

#define ATTENTION_OF(NAME, ELEMENT)                                                                                                      \
    extern "C" void attention_##NAME(const ELEMENT* query, const ELEMENT* key, const ELEMENT* value, const float* query_bias,            \
                                     const float* key_bias, const float* value_bias, int64_t stride, const int32_t* boundaries,          \
                                     int64_t sentences, int64_t heads, int64_t head_width, float scale, uint64_t seed,            \
                                     uint32_t dropped, float kept, const float* head_scales, ELEMENT* out, int64_t out_stride,          \
                                     float* statistics, int threads) {                                                                   \
        attention(States<ELEMENT>{query, key, value, query_bias, key_bias, value_bias, stride},                                          \
                  Shape{boundaries, sentences, heads, head_width, scale}, Dropout{seed, dropped, kept}, head_scales, out, out_stride, \
                  statistics, threads);                                                                                                  \
    }                                                                                                                                    \
    extern "C" void attention_backward_##NAME(                                                                                           \
        const ELEMENT* query, const ELEMENT* key, const ELEMENT* value, const float* query_bias, const float* key_bias,                  \
        const float* value_bias, int64_t stride, const int32_t* boundaries, int64_t sentences, int64_t heads, int64_t head_width,        \
        float scale, uint64_t seed, uint32_t dropped, float kept, const float* head_scales, const ELEMENT* grad,                 \
        int64_t grad_stride, const float* statistics, ELEMENT* to_query, ELEMENT* to_key, ELEMENT* to_value, int64_t to_stride,          \
        int threads) {                                                                                                                   \
        attention_backward(States<ELEMENT>{query, key, value, query_bias, key_bias, value_bias, stride},                                 \
                           Shape{boundaries, sentences, heads, head_width, scale}, Dropout{seed, dropped, kept}, head_scales, grad,   \
                           grad_stride, statistics, to_query, to_key, to_value, to_stride, threads);                                     \
    }

ATTENTION_OF(float32, float)
ATTENTION_OF(bfloat16, bfloat16)
