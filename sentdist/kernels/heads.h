// The heads of sentences in a flat tensor: which rows each has and sees, which thread does it, and its rows as float32 of whole lanes.
#pragma once

#include <algorithm>
#include <vector>

#include "lanes.h"

namespace {

constexpr int64_t ROWS = 4;  // queries at once: each key or value that is loaded serves so many products

int64_t whole_lanes(int64_t length) { return (length + LANES - 1) / LANES * LANES; }

// Rows of queries, keys and values; head h of a row begins `h · head_width` behind it. Biases of the same layout, or none.
template <typename Element>
struct QueryKeyValue {
    const Element *query, *key, *value;
    const float *query_bias, *key_bias, *value_bias;
    int64_t stride;
};

struct Layout {
    const int32_t* boundaries;
    int64_t num_sentences, num_heads, head_width;
    float scale;
    const float* distances;  // (num_heads, num_distances): what is added to a score by the place of the key less that of the query, which is
    int64_t num_distances;   // 0 in the middle; or none
    int64_t before, after;   // a token at place i sees those from i - before to i + after
};

// Places of keys, as many as lie from `first` to before `end`.
struct Places {
    int64_t first, end;
};

// One head of one sentence: its rows in the flat tensor, and where its attention weights begin, as dropout counts them:
// sentence by sentence, head by head, query by query, key by key.
struct Head {
    int64_t sentence, number, begin, length, first_place;

    int64_t padded() const { return whole_lanes(length); }
    int64_t distance_floats() const { return 2 * padded() + LANES; }  // room for a value of each distance, read from any of them on

    // What a query sees.
    Places seen(const Layout& layout, int64_t row) const {
        return {std::max<int64_t>(0, row - layout.before), std::min(length, row + layout.after + 1)};
    }

    // What the queries from `first` to before `last` see, from whole lanes on.
    Places seen(const Layout& layout, int64_t first, int64_t last) const {
        return {seen(layout, first).first / LANES * LANES, seen(layout, last - 1).end};
    }
};

// Floats of one thread, dealt out from the front.
struct Scratch {
    std::vector<float> memory;
    int64_t taken = 0;

    explicit Scratch(int64_t floats) : memory(floats + LANES) {}
    float* take(int64_t floats) {
        taken += floats;
        return memory.data() + taken - floats;
    }
};

// Lets `work(head, scratch)` do each head of each sentence. It takes at most so many tensors of a head's rows, so many of ROWS queries'
// weights and of distances, and one of ROWS rows.
template <typename Work>
void for_each_head(const Layout& layout, int64_t num_tensors, int64_t num_weights, int threads, Work work) {
    std::vector<int64_t> first_place(layout.num_sentences + 1, 0);
    int64_t longest = 0;
    for (int64_t sentence = 0; sentence < layout.num_sentences; ++sentence) {
        int64_t length = layout.boundaries[sentence + 1] - layout.boundaries[sentence];
        first_place[sentence + 1] = first_place[sentence] + layout.num_heads * length * length;
        longest = std::max(longest, length);
    }
    int64_t floats = whole_lanes(longest) * (num_tensors * whole_lanes(layout.head_width) + num_weights * ROWS);
    if (layout.distances != nullptr) floats += num_weights * (2 * whole_lanes(longest) + LANES);
#pragma omp parallel num_threads(threads)
    {
        Scratch scratch(floats + ROWS * whole_lanes(layout.head_width));
#pragma omp for collapse(2) schedule(dynamic, 8)
        for (int64_t sentence = 0; sentence < layout.num_sentences; ++sentence) {
            for (int64_t number = 0; number < layout.num_heads; ++number) {
                int64_t begin = layout.boundaries[sentence], length = layout.boundaries[sentence + 1] - begin;
                scratch.taken = 0;
                work(Head{sentence, number, begin, length, first_place[sentence] + number * length * length}, scratch);
            }
        }
    }
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

}  // namespace
