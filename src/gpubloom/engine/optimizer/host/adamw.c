/* AdamW in one pass over flat host arrays.
 *
 * For every element, in FP32, each operation rounded once and in this order (left to right, nothing fused):
 *
 *     g = gradient * scale
 *     m = beta1 * m + (1 - beta1) * g
 *     v = beta2 * v + (1 - beta2) * g * g
 *     p = p * (1 - lr * weight_decay) - (lr / c1) * m / (sqrt(v) / sqrt(c2) + eps)
 *
 * with c1 = 1 - beta1^t and c2 = 1 - beta2^t. Everything that does not depend on the element is computed in
 * double by the caller and rounded to FP32 once. No element depends on another and IEEE rounding is kept
 * (no -ffast-math, no contraction), so the result does not depend on vector width, split or compiler, and
 * torch, given the same operations, gives the same bits (fallback.py).
 *
 * The copy is p rounded to nearest in the precision that computes; ties go to even in FP16, and away from zero
 * in BF16, as they must in masters of two halves (encoding.py). It is written in the same pass because memory
 * bandwidth is all that this function spends.
 *
 * Conversions are integer arithmetic, so that every compiler can vectorise them. A NaN stays one.
 *
 * Arrays in fewer bytes (encoding.py says what the bits are) are decoded tile by tile to FP32, updated and
 * encoded again, all in the first-level cache.
 *
 * All threads of an update call adamw_shared with the same arguments and take ranges until none is left. So a
 * thread of Python takes part in a whole block with one call: a call for each range kept the interpreter, and
 * the thread that starts the GPU's kernels, busy. */

#include <math.h>
#include <stdint.h>
#include <string.h>
#ifdef __AVX__
#include <immintrin.h>
#endif

struct constants {
    float scale, beta1, rest1, beta2, rest2, decay, rate, root2, eps;
};

static inline uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float from_f32(float value) { return value; }

static inline float to_f32(float value) { return value; }

static inline float from_bf16(uint16_t half) { return of_bits((uint32_t)half << 16); }

static inline uint16_t to_bf16(float value) {
    uint32_t bits = bits_of(value);
    uint32_t rounded = (bits + 0x8000u) >> 16;
    /* Rounding could carry a NaN's fraction into the sign; a set quiet bit keeps it a NaN. */
    uint32_t nan = (bits >> 16) | 0x40u;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

static inline float from_f16(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t magnitude = (uint32_t)(half & 0x7fffu) << 13;
    uint32_t normal = magnitude + (112u << 23);
    uint32_t special = magnitude + (224u << 23);
    /* A subnormal half is its fraction in units of 2^-24: put under a one at 2^-14, which is then taken off. */
    uint32_t subnormal = bits_of(of_bits(magnitude + (113u << 23)) - of_bits(113u << 23));
    uint32_t bits = magnitude < (1u << 23) ? subnormal : normal;
    return of_bits((magnitude >= (31u << 23) ? special : bits) | sign);
}

static inline uint16_t to_f16(float value) {
    uint32_t bits = bits_of(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    /* At 0.5 one unit in the last place is 2^-24, a subnormal half's unit: the addition itself rounds. */
    uint32_t subnormal = bits_of(of_bits(magnitude) + 0.5f) - bits_of(0.5f);
    uint32_t finite = magnitude < (113u << 23) ? subnormal : normal;
    uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    return (uint16_t)((magnitude >= (143u << 23) ? special : finite) | sign);
}

/* A copy is gathered in a tile that stays in the first-level cache and is then written past the caches: it is
 * not read here, and reading its cache lines in order to overwrite them cost 6 % of the whole pass. A gradient
 * of the same size may be overwritten by the copy: a tile's gradients are read before its copies are written. */
#define TILE 1024

static inline void write_past_caches(void *restrict to, const void *restrict tile, int64_t bytes) {
    int64_t done = 0;
#ifdef __AVX__
    if ((uintptr_t)to % 32 == 0)
        for (; done + 32 <= bytes; done += 32)
            _mm256_stream_si256((__m256i *)((char *)to + done),
                                _mm256_load_si256((const __m256i *)((const char *)tile + done)));
#endif
    memcpy((char *)to + done, (const char *)tile + done, (size_t)(bytes - done));
}

static inline void writes_are_seen(void) {
#ifdef __AVX__
    _mm_sfence();
#endif
}

#define UPDATE(gradient_of)                                                    \
    float g = gradient_of(gradient[i]) * k.scale;                              \
    float m = k.beta1 * first[i] + k.rest1 * g;                                \
    float v = k.beta2 * second[i] + k.rest2 * g * g;                           \
    float p = master[i] * k.decay - k.rate * m / (sqrtf(v) / k.root2 + k.eps); \
    first[i] = m;                                                              \
    second[i] = v;                                                             \
    master[i] = p;

#define WITHOUT_COPY(name, gradient_t, gradient_of)                                   \
    static void name(float *restrict master, float *restrict first,                   \
                     float *restrict second, const gradient_t *restrict gradient,     \
                     int64_t length, const struct constants k) {                      \
        for (int64_t i = 0; i < length; i++) {                                        \
            UPDATE(gradient_of)                                                       \
        }                                                                             \
    }

#define WITH_COPY(name, gradient_t, gradient_of, copy_t, copy_of)                     \
    static void name(float *restrict master, float *restrict first,                   \
                     float *restrict second, const gradient_t *gradient, copy_t *copy, \
                     int64_t length, const struct constants k) {                      \
        _Alignas(64) copy_t tile[TILE];                                               \
        for (int64_t begin = 0; begin < length; begin += TILE) {                      \
            int64_t count = length - begin < TILE ? length - begin : TILE;            \
            for (int64_t j = 0; j < count; j++) {                                     \
                int64_t i = begin + j;                                                \
                UPDATE(gradient_of)                                                   \
                tile[j] = copy_of(p);                                                 \
            }                                                                         \
            write_past_caches(copy + begin, tile, count * (int64_t)sizeof(copy_t));   \
        }                                                                             \
        writes_are_seen();                                                            \
    }

WITHOUT_COPY(whole_float32, float, from_f32)
WITHOUT_COPY(whole_bfloat16, uint16_t, from_bf16)
WITHOUT_COPY(whole_float16, uint16_t, from_f16)
WITH_COPY(whole_float32_float32, float, from_f32, float, to_f32)
WITH_COPY(whole_float32_bfloat16, float, from_f32, uint16_t, to_bf16)
WITH_COPY(whole_float32_float16, float, from_f32, uint16_t, to_f16)
WITH_COPY(whole_bfloat16_bfloat16, uint16_t, from_bf16, uint16_t, to_bf16)
WITH_COPY(whole_float16_float16, uint16_t, from_f16, uint16_t, to_f16)

/* What encoding.py calls an encoding; a kind of gradient or copy is the precision of computing. */
enum { FLOAT32, BFLOAT16, FLOAT16, SPLIT, EIGHT_BITS, NOTHING };
#define BLOCK 64

struct packed {
    void *master, *low, *first, *first_scales, *second, *second_scales, *copy;
    const void *gradient;
    int64_t length, base;
    int32_t master_kind, moment_kind, gradient_kind, copy_kind;
    uint32_t seed;
    struct constants constants;
};

static inline uint32_t noise_of(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ (x >> 16);
}

static void load(float *restrict tile, const void *from, int kind, int64_t begin, int64_t count) {
    const uint16_t *halves = (const uint16_t *)from + begin;
    switch (kind) {
    case FLOAT32: memcpy(tile, (const float *)from + begin, (size_t)count * 4); break;
    case BFLOAT16: for (int64_t j = 0; j < count; j++) tile[j] = from_bf16(halves[j]); break;
    case FLOAT16: for (int64_t j = 0; j < count; j++) tile[j] = from_f16(halves[j]); break;
    }
}

static inline float of_halves(uint16_t half, int16_t low) {
    return of_bits(((uint32_t)half << 16) + (uint32_t)(int32_t)low);
}

static void load_split(float *restrict tile, const uint16_t *half, const int16_t *low, int64_t count) {
    for (int64_t j = 0; j < count; j++) tile[j] = of_halves(half[j], low[j]);
}

static void store_split(const float *restrict tile, uint16_t *half, int16_t *low, int64_t count) {
    for (int64_t j = 0; j < count; j++) {
        half[j] = to_bf16(tile[j]);
        low[j] = (int16_t)(uint16_t)bits_of(tile[j]);
    }
}

/* The usual case, element by element: loads, arithmetic and stores overlap better than in tiles. */
#define SPLIT_MASTER(name, gradient_t, gradient_of)                                                       \
    static void name(uint16_t *restrict half, int16_t *restrict low, float *restrict first,              \
                     float *restrict second, const gradient_t *restrict gradient, int64_t length,        \
                     const struct constants k) {                                                          \
        for (int64_t i = 0; i < length; i++) {                                                            \
            float before = of_halves(half[i], low[i]);                                                    \
            float g = gradient_of(gradient[i]) * k.scale;                                                 \
            float m = k.beta1 * first[i] + k.rest1 * g;                                                   \
            float v = k.beta2 * second[i] + k.rest2 * g * g;                                              \
            float p = before * k.decay - k.rate * m / (sqrtf(v) / k.root2 + k.eps);                       \
            first[i] = m;                                                                                 \
            second[i] = v;                                                                                \
            half[i] = to_bf16(p);                                                                         \
            low[i] = (int16_t)(uint16_t)bits_of(p);                                                       \
        }                                                                                                 \
    }

SPLIT_MASTER(split_float32, float, from_f32)
SPLIT_MASTER(split_bfloat16, uint16_t, from_bf16)
SPLIT_MASTER(split_float16, uint16_t, from_f16)

static void update_split(const struct packed a) {
    switch (a.gradient_kind) {
    case FLOAT32: split_float32(a.master, a.low, a.first, a.second, a.gradient, a.length, a.constants); break;
    case BFLOAT16: split_bfloat16(a.master, a.low, a.first, a.second, a.gradient, a.length, a.constants); break;
    case FLOAT16: split_float16(a.master, a.low, a.first, a.second, a.gradient, a.length, a.constants); break;
    }
}

static void store_bf16(const float *restrict tile, uint16_t *to, const uint32_t *noise, int shift,
                       int64_t count) {
    for (int64_t j = 0; j < count; j++) {
        uint32_t bits = bits_of(tile[j]);
        uint32_t special = (bits & 0x7f800000u) == 0x7f800000u;
        uint32_t kept = (bits >> 16) | ((bits & 0x7fffffffu) > 0x7f800000u ? 0x40u : 0u);
        to[j] = (uint16_t)(special ? kept : (bits + ((noise[j] >> shift) & 0xffffu)) >> 16);
    }
}

/* Exponents of an 8-bit value: 4 bits and a sign, or 5 bits for the root of a second moment. */
#define SIGNED_EXPONENTS 15
#define ROOT_EXPONENTS 31

static void load_8bit(float *restrict tile, const uint8_t *codes, const uint8_t *scales, int roots,
                      int64_t count) {
    uint32_t bias = (127u - (roots ? ROOT_EXPONENTS : SIGNED_EXPONENTS)) << 3;
    float unit = of_bits((127u - (roots ? 33u : 17u)) << 23);
    uint32_t mask = roots ? 0xffu : 0x7fu;
    for (int64_t block = 0; block < count; block += BLOCK) {
        float scale = of_bits((uint32_t)scales[block / BLOCK] << 23);
        for (int64_t j = block; j < block + BLOCK; j++) {
            uint32_t code = codes[j], magnitude = code & mask;
            float small = (float)(int32_t)magnitude * unit;
            float value = (magnitude < 8u ? small : of_bits((magnitude + bias) << 20)) * scale;
            uint32_t sign = roots ? 0u : (code & 0x80u) << 24;
            tile[j] = roots ? value * value : of_bits(bits_of(value) | sign);
        }
    }
}

static void store_8bit(const float *restrict tile, uint8_t *codes, uint8_t *scales, int roots,
                       const uint32_t *noise, int64_t count) {
    uint32_t bias = (127u - (roots ? ROOT_EXPONENTS : SIGNED_EXPONENTS)) << 3;
    uint32_t smallest = (127u - (roots ? 30u : 14u)) << 23;
    float fixed = of_bits((127u + (roots ? 53u : 37u)) << 23);
    int shift = roots ? 12 : 0;
    for (int64_t block = 0; block < count; block += BLOCK) {
        float values[BLOCK];
        int32_t magnitudes[BLOCK], most = 0;
        for (int j = 0; j < BLOCK; j++) {
            float value = tile[block + j];
            /* The square of a denormal's root need not be the denormal; that of any other root is. */
            float root = sqrtf(bits_of(value) < 0x00800000u ? 0.0f : value);
            values[j] = roots ? root : value;
            magnitudes[j] = (int32_t)(bits_of(values[j]) & 0x7fffffffu);
        }
        /* A loop of its own, of signed numbers: compilers vectorise that. */
        for (int j = 0; j < BLOCK; j++) most = magnitudes[j] > most ? magnitudes[j] : most;
        uint32_t field = ((uint32_t)most + 0xfffffu) >> 23;
        field = field < 1u ? 1u : field > 253u ? 255u : field;
        scales[block / BLOCK] = (uint8_t)field;
        float factor = of_bits((254u - (field > 253u ? 253u : field)) << 23);
        for (int j = 0; j < BLOCK; j++) {
            uint32_t bits = bits_of(values[j] * factor), magnitude = bits & 0x7fffffffu;
            uint32_t chance = (noise[block + j] >> shift) & 0xfffffu;
            uint32_t normal = ((magnitude + chance) >> 20) - bias;
            float below = of_bits(magnitude < smallest ? magnitude : 0u);
            uint32_t small = ((uint32_t)(int32_t)(below * fixed) + chance) >> 20;
            uint32_t code = magnitude < smallest ? small : normal;
            codes[block + j] = (uint8_t)(roots ? code : code | ((bits >> 24) & 0x80u));
        }
    }
}

static void load_moment(float *restrict tile, const void *from, const uint8_t *scales, int kind, int roots,
                        int64_t begin, int64_t count) {
    if (kind == EIGHT_BITS)
        load_8bit(tile, (const uint8_t *)from + begin, scales + begin / BLOCK, roots, count);
    else
        load(tile, from, kind, begin, count);
}

static void store_moment(const float *restrict tile, void *to, uint8_t *scales, int kind, int roots,
                         const uint32_t *noise, int64_t begin, int64_t count) {
    if (kind == EIGHT_BITS)
        store_8bit(tile, (uint8_t *)to + begin, scales + begin / BLOCK, roots, noise, count);
    else if (kind == BFLOAT16)
        store_bf16(tile, (uint16_t *)to + begin, noise, roots ? 16 : 0, count);
    else
        memcpy((float *)to + begin, tile, (size_t)count * 4);
}

/* A tile's loads are over before its arithmetic begins: in a small one the processor's prefetching covers that.
 * Of 1024 elements the pass took 1.4 times as long. Arrays of 8 bits begin and end with whole blocks. */
#define PACKED_TILE 256

static void update_packed(const struct packed a) {
    const struct constants k = a.constants;
    _Alignas(64) float master[PACKED_TILE], first[PACKED_TILE], second[PACKED_TILE], gradient[PACKED_TILE];
    _Alignas(64) uint32_t noise[PACKED_TILE];
    for (int64_t begin = 0; begin < a.length; begin += PACKED_TILE) {
        int64_t count = a.length - begin < PACKED_TILE ? a.length - begin : PACKED_TILE;
        if (a.master_kind == SPLIT)
            load_split(master, (uint16_t *)a.master + begin, (int16_t *)a.low + begin, count);
        else
            load(master, a.master, a.master_kind, begin, count);
        load_moment(first, a.first, a.first_scales, a.moment_kind, 0, begin, count);
        load_moment(second, a.second, a.second_scales, a.moment_kind, 1, begin, count);
        load(gradient, a.gradient, a.gradient_kind, begin, count);
        for (int64_t j = 0; j < count; j++) {
            float g = gradient[j] * k.scale;
            float m = k.beta1 * first[j] + k.rest1 * g;
            float v = k.beta2 * second[j] + k.rest2 * g * g;
            master[j] = master[j] * k.decay - k.rate * m / (sqrtf(v) / k.root2 + k.eps);
            first[j] = m;
            second[j] = v;
        }
        if (a.moment_kind != FLOAT32)
            for (int64_t j = 0; j < count; j++)
                noise[j] = noise_of((uint32_t)(a.base + begin + j) + a.seed);
        store_moment(first, a.first, a.first_scales, a.moment_kind, 0, noise, begin, count);
        store_moment(second, a.second, a.second_scales, a.moment_kind, 1, noise, begin, count);
        if (a.master_kind == SPLIT)
            store_split(master, (uint16_t *)a.master + begin, (int16_t *)a.low + begin, count);
        else
            memcpy((float *)a.master + begin, master, (size_t)count * 4);
        if (a.copy_kind == FLOAT32)
            memcpy((float *)a.copy + begin, master, (size_t)count * 4);
        else if (a.copy_kind == FLOAT16)
            for (int64_t j = 0; j < count; j++) ((uint16_t *)a.copy)[begin + j] = to_f16(master[j]);
        else if (a.copy_kind == BFLOAT16)
            for (int64_t j = 0; j < count; j++) ((uint16_t *)a.copy)[begin + j] = to_bf16(master[j]);
    }
}

#define WHOLE(name) name(a.master, a.first, a.second, a.gradient, a.length, a.constants)
#define WHOLE_WITH_COPY(name) name(a.master, a.first, a.second, a.gradient, a.copy, a.length, a.constants)

static void update_whole(const struct packed a) {
    switch (a.gradient_kind * (NOTHING + 1) + a.copy_kind) {
    case FLOAT32 * (NOTHING + 1) + NOTHING: WHOLE(whole_float32); break;
    case BFLOAT16 * (NOTHING + 1) + NOTHING: WHOLE(whole_bfloat16); break;
    case FLOAT16 * (NOTHING + 1) + NOTHING: WHOLE(whole_float16); break;
    case FLOAT32 * (NOTHING + 1) + FLOAT32: WHOLE_WITH_COPY(whole_float32_float32); break;
    case FLOAT32 * (NOTHING + 1) + BFLOAT16: WHOLE_WITH_COPY(whole_float32_bfloat16); break;
    case FLOAT32 * (NOTHING + 1) + FLOAT16: WHOLE_WITH_COPY(whole_float32_float16); break;
    case BFLOAT16 * (NOTHING + 1) + BFLOAT16: WHOLE_WITH_COPY(whole_bfloat16_bfloat16); break;
    case FLOAT16 * (NOTHING + 1) + FLOAT16: WHOLE_WITH_COPY(whole_float16_float16); break;
    default: update_packed(a);
    }
}

static int64_t bytes_of(int32_t kind) {
    return kind == FLOAT32 ? 4 : kind == EIGHT_BITS ? 1 : 2;
}

/* Ranges are whole blocks, so the scales of 8 bits begin with a range too. */
static struct packed range_of(const struct packed *whole, int64_t begin, int64_t end) {
    struct packed a = *whole;
    a.master = (char *)a.master + begin * bytes_of(a.master_kind);
    if (a.master_kind == SPLIT) a.low = (int16_t *)a.low + begin;
    a.first = (char *)a.first + begin * bytes_of(a.moment_kind);
    a.second = (char *)a.second + begin * bytes_of(a.moment_kind);
    if (a.moment_kind == EIGHT_BITS) {
        a.first_scales = (uint8_t *)a.first_scales + begin / BLOCK;
        a.second_scales = (uint8_t *)a.second_scales + begin / BLOCK;
    }
    a.gradient = (const char *)a.gradient + begin * bytes_of(a.gradient_kind);
    if (a.copy_kind != NOTHING) a.copy = (char *)a.copy + begin * bytes_of(a.copy_kind);
    a.base += begin;
    a.length = end - begin;
    return a;
}

void adamw_shared(const struct packed *whole, int64_t *taken, int64_t size) {
    for (;;) {
        int64_t begin = __atomic_fetch_add(taken, size, __ATOMIC_RELAXED);
        if (begin >= whole->length) return;
        int64_t end = whole->length - begin < size ? whole->length : begin + size;
        const struct packed a = range_of(whole, begin, end);
        if (a.moment_kind == FLOAT32 && a.master_kind == FLOAT32)
            update_whole(a);
        else if (a.moment_kind == FLOAT32 && a.master_kind == SPLIT && a.copy_kind == NOTHING)
            update_split(a);
        else
            update_packed(a);
    }
}
