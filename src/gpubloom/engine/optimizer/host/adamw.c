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
 * The copy is p rounded to nearest, ties to even, in the precision that computes. It is written in the same
 * pass because memory bandwidth is all that this function spends.
 *
 * Conversions are integer arithmetic, so that every compiler can vectorise them. A NaN stays one. */

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
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
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
    void name(float *restrict master, float *restrict first, float *restrict second, \
              const gradient_t *restrict gradient, void *unused, int64_t length,     \
              const struct constants *shared) {                                      \
        const struct constants k = *shared;                                           \
        (void)unused;                                                                 \
        for (int64_t i = 0; i < length; i++) {                                        \
            UPDATE(gradient_of)                                                       \
        }                                                                             \
    }

#define WITH_COPY(name, gradient_t, gradient_of, copy_t, copy_of)                     \
    void name(float *restrict master, float *restrict first, float *restrict second, \
              const gradient_t *gradient, copy_t *copy, int64_t length,              \
              const struct constants *shared) {                                      \
        const struct constants k = *shared;                                           \
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

WITHOUT_COPY(adamw_float32, float, from_f32)
WITHOUT_COPY(adamw_bfloat16, uint16_t, from_bf16)
WITHOUT_COPY(adamw_float16, uint16_t, from_f16)
WITH_COPY(adamw_float32_float32, float, from_f32, float, to_f32)
WITH_COPY(adamw_float32_bfloat16, float, from_f32, uint16_t, to_bf16)
WITH_COPY(adamw_float32_float16, float, from_f32, uint16_t, to_f16)
WITH_COPY(adamw_bfloat16_bfloat16, uint16_t, from_bf16, uint16_t, to_bf16)
WITH_COPY(adamw_float16_float16, uint16_t, from_f16, uint16_t, to_f16)
