// softmax(q kᵀ · scale + what a distance adds) v over what a token sees of its sentence in a flat tensor, with dropout and DropHead; one head
// of one sentence at a time, in float32.
#include <algorithm>
#include <vector>

#include "lanes.h"

namespace {

// The heads of sentences in a flat tensor: which rows each has and sees, which thread does it, and its rows as float32 of whole lanes.

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

constexpr int AT_ONCE = 2;  // lanes of columns: so many sums of ROWS rows stay in registers, and one need not wait for its last product

// ROWS rows of `left` (ROWS, inner) times COLUMNS lanes of columns of `right` (inner, stride): into `out` (ROWS, stride).
template <int COLUMNS>
inline void product_block(const float* left, int64_t left_stride, const float* right, int64_t inner, int64_t stride, float* out) {
    Lanes sums[ROWS][COLUMNS] = {};
    for (int64_t place = 0; place < inner; ++place) {
        Lanes values[COLUMNS];
        for (int column = 0; column < COLUMNS; ++column) values[column] = load(right + place * stride + column * LANES);
        for (int64_t row = 0; row < ROWS; ++row)
            for (int column = 0; column < COLUMNS; ++column) sums[row][column] += left[row * left_stride + place] * values[column];
    }
    for (int64_t row = 0; row < ROWS; ++row)
        for (int column = 0; column < COLUMNS; ++column) store(out + row * stride + column * LANES, sums[row][column]);
}

// ROWS rows of `left` (ROWS, inner) times some columns of `right` (inner, stride): these of out (ROWS, stride). `left_stride` between its
// rows.
inline void products(const float* left, int64_t left_stride, const float* right, int64_t inner, Places columns, int64_t stride,
                     float* out) {
    int64_t column = columns.first;
    for (; column + AT_ONCE * LANES <= columns.end; column += AT_ONCE * LANES)
        product_block<AT_ONCE>(left, left_stride, right + column, inner, stride, out + column);
    for (; column < columns.end; column += LANES) product_block<1>(left, left_stride, right + column, inner, stride, out + column);
}

// ROWS queries (ROWS, width) times the keys (width, padded) that they see: their scores (ROWS, padded).
inline void query_products(const float* queries, int64_t width, const float* key_columns, Places seen, int64_t padded, float* scores) {
    products(queries, width, key_columns, width, seen, padded, scores);
}

// ROWS rows of weights (ROWS, padded) times the rows (padded, width) of what they see: (ROWS, width).
inline void weighted_sums(const float* weights, int64_t padded, const float* rows, Places seen, int64_t width, float* out) {
    products(weights + seen.first, padded, rows + seen.first * width, seen.end - seen.first, {0, width}, width, out);
}

// Adds leftᵀ right, left (ROWS, padded) and right (ROWS, width), to the rows of sums (length, width) that are seen.
inline void add_transposed(const float* left, int64_t padded, const float* right, Places seen, int64_t width, float* sums) {
    for (int64_t column = 0; column < width; column += LANES) {
        Lanes rows[ROWS];
        for (int64_t row = 0; row < ROWS; ++row) rows[row] = load(right + row * width + column);
        for (int64_t place = seen.first; place < seen.end; ++place) {
            Lanes total = load(sums + place * width + column);
            for (int64_t row = 0; row < ROWS; ++row) total += left[row * padded + place] * rows[row];
            store(sums + place * width + column, total);
        }
    }
}

// The lanes from `place` on, with `beyond` for what is not seen.
inline Lanes within(Lanes lanes, int64_t place, Places seen, float beyond) {
    constexpr Ints number = numbers<Ints>();
    lanes = number < int32_t(std::min<int64_t>(seen.end - place, LANES)) ? lanes : all(beyond);
    return number < int32_t(std::max<int64_t>(seen.first - place, 0)) ? all(beyond) : lanes;
}

// What the distances within a head's sentence add, the longest one back first, and zeros behind them; null where there are none.
float* read_distances(const Layout& layout, const Head& head, Scratch& scratch) {
    if (layout.distances == nullptr) return nullptr;
    float* distances = scratch.take(head.distance_floats());
    const float* middle = layout.distances + head.number * layout.num_distances + layout.num_distances / 2;
    float* end = std::copy(middle - (head.length - 1), middle + head.length, distances);
    std::fill(end, distances + head.distance_floats(), 0.0f);
    return distances;
}

// A query's scores, times the scale, plus what its distances add. `block`: what its ROWS queries see, here and below.
void add_distances(float* scores, Places block, float scale, const float* distances) {
    for (int64_t place = block.first; place < block.end; place += LANES)
        store(scores + place, load(scores + place) * scale + load(distances + place));
}

// Adds the gradients of a query's scores to those of its distances, then makes them those of the products.
void add_to_distances(float* grads, Places block, Places seen, float scale, float* sums) {
    for (int64_t place = block.first; place < block.end; place += LANES) {
        Lanes values = load(grads + place);
        store(sums + place, load(sums + place) + within(values, place, seen, 0.0f));
        store(grads + place, values * scale);
    }
}

// Of a query: its largest score, and one over the sum of its powers.
struct SoftmaxStatistics {
    float top, inverse;
};

// A query's scores to its dropped weights, which are 0 for what its block sees and it does not.
SoftmaxStatistics softmax(float* scores, Places block, Places seen, float scale, const Dropout& dropout, int64_t first_place) {
    Lanes high = all(-__builtin_inff());
    for (int64_t place = block.first; place < block.end; place += LANES) {
        Lanes scaled = within(load(scores + place) * scale, place, seen, -__builtin_inff());
        store(scores + place, scaled);
        high = larger(scaled, high);
    }
    float top = largest(high);
    Lanes total = {};
    for (int64_t place = block.first; place < block.end; place += LANES) {
        Lanes powers = within(exp_of_negative(load(scores + place) - top), place, seen, 0.0f);
        total += powers;
        store(scores + place, powers * dropout.at(first_place + place));
    }
    float inverse = 1.0f / sum(total);
    for (int64_t place = block.first; place < block.end; place += LANES) store(scores + place, load(scores + place) * inverse);
    return {top, inverse};
}

// A query's scores to its dropped weights, as `softmax` has made them, and the gradient of these to that of the scores. `drawn`: room for
// as many factors.
void softmax_backward(float* scores, float* grads, Places block, Places seen, float scale, const Dropout& dropout, int64_t first_place,
                      SoftmaxStatistics made, float* drawn) {
    Lanes total = {};
    for (int64_t place = block.first; place < block.end; place += LANES) {
        Lanes powers = exp_of_negative(load(scores + place) * scale - made.top) * made.inverse, factors = dropout.at(first_place + place);
        powers = within(powers, place, seen, 0.0f);
        store(scores + place, powers);
        store(drawn + place, factors);
        total += powers * factors * load(grads + place);
    }
    float mean = sum(total);
    for (int64_t place = block.first; place < block.end; place += LANES) {
        Lanes powers = load(scores + place), factors = load(drawn + place);
        store(grads + place, powers * (load(grads + place) * factors - mean) * scale);
        store(scores + place, powers * factors);
    }
}

// Queries, keys and values of a head as float32 rows of whole lanes.
struct HeadRows {
    float *query, *key, *value;
};

template <typename Element>
HeadRows read_qkv(const QueryKeyValue<Element>& qkv, const Layout& layout, const Head& head, Scratch& scratch) {
    int64_t offset = head.number * layout.head_width, from = head.begin * qkv.stride + offset;
    auto read = [&](const Element* rows, const float* bias) {
        float* into = scratch.take(head.padded() * whole_lanes(layout.head_width));
        read_head(rows + from, bias == nullptr ? nullptr : bias + offset, qkv.stride, head.length, layout.head_width, into);
        return into;
    };
    float* query = read(qkv.query, qkv.query_bias);
    float* key = read(qkv.key, qkv.key_bias);
    return {query, key, read(qkv.value, qkv.value_bias)};
}

float* transposed(const float* rows, const Head& head, int64_t width, Scratch& scratch) {
    float* columns = scratch.take(head.padded() * width);
    transpose(rows, head.padded(), width, columns);
    return columns;
}

template <typename Element>
void attention(const QueryKeyValue<Element>& qkv, const Layout& layout, const Dropout& dropout, const float* head_scales, Element* out,
               int64_t out_stride, SoftmaxStatistics* statistics, int threads) {
    int64_t width = whole_lanes(layout.head_width);
    for_each_head(layout, 4, 1, threads, [&](const Head& head, Scratch& scratch) {
        HeadRows rows = read_qkv(qkv, layout, head, scratch);
        float *key_columns = transposed(rows.key, head, width, scratch), *weights = scratch.take(ROWS * head.padded());
        float *context = scratch.take(ROWS * width), *distances = read_distances(layout, head, scratch);
        float score_scale = distances == nullptr ? layout.scale : 1.0f;
        float scale = head_scales == nullptr ? 1.0f : head_scales[head.sentence * layout.num_heads + head.number];
        for (int64_t first = 0; first < head.length; first += ROWS) {
            int64_t last = std::min(first + ROWS, head.length);
            Places block = head.seen(layout, first, last);
            query_products(rows.query + first * width, width, key_columns, block, head.padded(), weights);
            for (int64_t row = first; row < last; ++row) {
                int64_t first_place = head.first_place + row * head.length;
                float* scores = weights + (row - first) * head.padded();
                if (distances != nullptr) add_distances(scores, block, layout.scale, distances + head.length - 1 - row);
                SoftmaxStatistics made = softmax(scores, block, head.seen(layout, row), score_scale, dropout, first_place);
                if (statistics != nullptr) statistics[(head.begin + row) * layout.num_heads + head.number] = made;
            }
            weighted_sums(weights, head.padded(), rows.value, block, width, context);
            Element* to = out + (head.begin + first) * out_stride + head.number * layout.head_width;
            write_head(context, scale, last - first, layout.head_width, to, out_stride);
        }
    });
}

// Sums over the sentences, one behind the other whoever computed them, what each head has summed of its distances: 2 · length floats.
void sum_distances(const Layout& layout, const float* of_heads, float* sums, int threads) {
#pragma omp parallel for num_threads(threads)
    for (int64_t number = 0; number < layout.num_heads; ++number) {
        float *row = sums + number * layout.num_distances, *middle = row + layout.num_distances / 2;
        std::fill(row, row + layout.num_distances, 0.0f);
        for (int64_t sentence = 0; sentence < layout.num_sentences; ++sentence) {
            int64_t begin = layout.boundaries[sentence], length = layout.boundaries[sentence + 1] - begin;
            const float* from = of_heads + 2 * (begin * layout.num_heads + number * length);
            for (int64_t place = 0; place < 2 * length - 1; ++place) middle[place - (length - 1)] += from[place];
        }
    }
}

template <typename Element>
void attention_backward(const QueryKeyValue<Element>& qkv, const Layout& layout, const Dropout& dropout, const float* head_scales,
                        const Element* grad, int64_t grad_stride, const SoftmaxStatistics* statistics, Element* grad_query,
                        Element* grad_key, Element* grad_value, int64_t out_stride, float* grad_distances, int threads) {
    int64_t width = whole_lanes(layout.head_width);
    int64_t num_tokens = layout.boundaries[layout.num_sentences];
    std::vector<float> distance_sums(layout.distances == nullptr ? 0 : 2 * num_tokens * layout.num_heads);
    for_each_head(layout, 8, 3, threads, [&](const Head& head, Scratch& scratch) {
        int64_t padded = head.padded(), offset = head.number * layout.head_width, to = head.begin * out_stride + offset;
        HeadRows rows = read_qkv(qkv, layout, head, scratch);
        float* grad_rows = scratch.take(padded * width);
        read_head(grad + head.begin * grad_stride + offset, nullptr, grad_stride, head.length, layout.head_width, grad_rows);
        float scale = head_scales == nullptr ? 1.0f : head_scales[head.sentence * layout.num_heads + head.number];
        for (int64_t place = 0; place < padded * width; place += LANES) store(grad_rows + place, load(grad_rows + place) * scale);
        float *key_columns = transposed(rows.key, head, width, scratch), *value_columns = transposed(rows.value, head, width, scratch);
        float *key_sums = scratch.take(padded * width), *value_sums = scratch.take(padded * width);
        std::fill(key_sums, key_sums + padded * width, 0.0f);
        std::fill(value_sums, value_sums + padded * width, 0.0f);
        float *weights = scratch.take(ROWS * padded), *slopes = scratch.take(ROWS * padded), *query_rows = scratch.take(ROWS * width);
        float *drawn = scratch.take(padded), *distances = read_distances(layout, head, scratch);
        float* sums = distances == nullptr ? nullptr : scratch.take(head.distance_floats());
        float score_scale = distances == nullptr ? layout.scale : 1.0f;
        if (sums != nullptr) std::fill(sums, sums + head.distance_floats(), 0.0f);
        for (int64_t first = 0; first < head.length; first += ROWS) {
            int64_t last = std::min(first + ROWS, head.length);
            Places block = head.seen(layout, first, last);
            query_products(rows.query + first * width, width, key_columns, block, padded, weights);
            query_products(grad_rows + first * width, width, value_columns, block, padded, slopes);
            for (int64_t row = first; row < last; ++row) {
                int64_t first_place = head.first_place + row * head.length, start = (row - first) * padded;
                SoftmaxStatistics made = statistics[(head.begin + row) * layout.num_heads + head.number];
                int64_t distance = head.length - 1 - row;
                Places seen = head.seen(layout, row);
                if (distances != nullptr) add_distances(weights + start, block, layout.scale, distances + distance);
                softmax_backward(weights + start, slopes + start, block, seen, score_scale, dropout, first_place, made, drawn);
                if (distances != nullptr) add_to_distances(slopes + start, block, seen, layout.scale, sums + distance);
            }
            std::fill(weights + (last - first) * padded, weights + ROWS * padded, 0.0f);  // of rows that are no queries
            std::fill(slopes + (last - first) * padded, slopes + ROWS * padded, 0.0f);
            add_transposed(weights, padded, grad_rows + first * width, block, width, value_sums);
            add_transposed(slopes, padded, rows.query + first * width, block, width, key_sums);
            weighted_sums(slopes, padded, rows.key, block, width, query_rows);
            write_head(query_rows, 1.0f, last - first, layout.head_width, grad_query + to + first * out_stride, out_stride);
        }
        write_head(key_sums, 1.0f, head.length, layout.head_width, grad_key + to, out_stride);
        write_head(value_sums, 1.0f, head.length, layout.head_width, grad_value + to, out_stride);
        int64_t first_sum = 2 * (head.begin * layout.num_heads + head.number * head.length);
        if (sums != nullptr) std::copy(sums, sums + 2 * head.length - 1, distance_sums.data() + first_sum);
    });
    if (grad_distances != nullptr) sum_distances(layout, distance_sums.data(), grad_distances, threads);
}

}  // namespace

// What Python calls. Rows of queries, keys and values share one stride, their gradients another; null where something is not given or
// wanted.
extern "C" {

void sentdist_attention(int is_bfloat16, const void* query, const void* key, const void* value, const float* query_bias,
                        const float* key_bias, const float* value_bias, int64_t stride, const int32_t* boundaries, int64_t num_sentences,
                        int64_t num_heads, int64_t head_width, float scale, uint64_t seed, uint32_t threshold, float kept_factor,
                        const float* distances, int64_t num_distances, int64_t before, int64_t after, const float* head_scales, void* out,
                        int64_t out_stride, void* statistics, int threads) {
    with_element_type(is_bfloat16, [&](auto element) {
        using Rows = const decltype(element)*;
        QueryKeyValue<decltype(element)> qkv = {Rows(query), Rows(key), Rows(value), query_bias, key_bias, value_bias, stride};
        Layout layout = {boundaries, num_sentences, num_heads, head_width, scale, distances, num_distances, before, after};
        attention(qkv, layout, Dropout{seed, threshold, kept_factor}, head_scales, static_cast<decltype(element)*>(out), out_stride,
                  static_cast<SoftmaxStatistics*>(statistics), threads);
    });
}

void sentdist_attention_backward(int is_bfloat16, const void* query, const void* key, const void* value, const float* query_bias,
                                 const float* key_bias, const float* value_bias, int64_t stride, const int32_t* boundaries,
                                 int64_t num_sentences, int64_t num_heads, int64_t head_width, float scale, uint64_t seed,
                                 uint32_t threshold, float kept_factor, const float* distances, int64_t num_distances,
                                 int64_t before, int64_t after, const float* head_scales, const void* grad, int64_t grad_stride,
                                 const void* statistics, void* grad_query, void* grad_key, void* grad_value, int64_t out_stride,
                                 float* grad_distances, int threads) {
    with_element_type(is_bfloat16, [&](auto element) {
        using Rows = const decltype(element)*;
        using Written = decltype(element)*;
        QueryKeyValue<decltype(element)> qkv = {Rows(query), Rows(key), Rows(value), query_bias, key_bias, value_bias, stride};
        Layout layout = {boundaries, num_sentences, num_heads, head_width, scale, distances, num_distances, before, after};
        attention_backward(qkv, layout, Dropout{seed, threshold, kept_factor}, head_scales, Rows(grad), grad_stride,
                           static_cast<const SoftmaxStatistics*>(statistics), Written(grad_query), Written(grad_key), Written(grad_value),
                           out_stride, grad_distances, threads);
    });
}
}
