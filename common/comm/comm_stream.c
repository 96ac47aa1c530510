/* comm_stream.c -- walking lists of parts, and sums whose order is the ranks'.
 *
 * Sums go through blocks small enough to stay in the first cache, so that each
 * source is read once and the result written once, and so that the result may
 * lie where a source lies. */
#include "comm/comm_stream.h"

#include <string.h>

#include "base/err.h"

void comm_stream_begin(struct comm_stream_cursor *s, const struct comm_part *parts, int n_parts, int rank)
{
    *s = (struct comm_stream_cursor){ parts, n_parts, rank, 0, 0 };
}

int64_t comm_stream_next(struct comm_stream_cursor *s, int64_t max, const struct comm_part **part, int64_t *offset)
{
    while (s->i < s->n_parts && (s->parts[s->i].rank != s->rank || s->at == s->parts[s->i].bytes)) {
        s->i++;
        s->at = 0;
    }
    if (s->i == s->n_parts)
        return 0;
    int64_t n = s->parts[s->i].bytes - s->at;
    if (n > max)
        n = max;
    if (part)
        *part = &s->parts[s->i];
    if (offset)
        *offset = s->at;
    s->at += n;
    return n;
}

int64_t comm_stream_bytes(const struct comm_part *parts, int n_parts, int rank)
{
    int64_t n = 0;

    for (int i = 0; i < n_parts; i++)
        n += parts[i].rank == rank ? parts[i].bytes : 0;
    return n;
}

int64_t comm_stream_sum_size(enum dtype wire)
{
    switch (wire) {
    case DT_F32:
    case DT_BF16:
    case DT_I32:
        return 4;
    case DT_F64:
    case DT_I64:
        return 8;
    default:
        return 0;
    }
}

enum { BLOCK = 1024 };

static inline float from_bf16(uint16_t v)
{
    uint32_t u = (uint32_t)v << 16;
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

#define SAME(v) (v)
#define ADD(a, b) ((a) + (b))
/* Comparisons with NaN are false: a stays if it is NaN, b is taken if it is. */
#define LARGER(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))
#define SMALLER(a, b) ((b) < (a) || (b) != (b) ? (b) : (a))

/* One kernel per type and operation. */
#define KERNEL(name, in_t, sum_t, load, combine)                               \
    static void name(sum_t *sum, const void *const *src, int n_src, int64_t at, int n) \
    {                                                                          \
        sum_t acc[BLOCK];                                                      \
        const in_t *x = (const in_t *)src[0] + at;                             \
        _Pragma("omp simd")                                                    \
        for (int i = 0; i < n; i++)                                            \
            acc[i] = load(x[i]);                                               \
        for (int s = 1; s < n_src; s++) {                                      \
            const in_t *y = (const in_t *)src[s] + at;                         \
            _Pragma("omp simd")                                                \
            for (int i = 0; i < n; i++)                                        \
                acc[i] = combine(acc[i], load(y[i]));                          \
        }                                                                      \
        memcpy(sum + at, acc, (size_t)n * sizeof *sum);                        \
    }

/* Integers wrap, so their sum runs in the unsigned type. */
KERNEL(sum_f32, float, float, SAME, ADD)
KERNEL(max_f32, float, float, SAME, LARGER)
KERNEL(min_f32, float, float, SAME, SMALLER)
KERNEL(sum_bf16, uint16_t, float, from_bf16, ADD)
KERNEL(max_bf16, uint16_t, float, from_bf16, LARGER)
KERNEL(min_bf16, uint16_t, float, from_bf16, SMALLER)
KERNEL(sum_f64, double, double, SAME, ADD)
KERNEL(max_f64, double, double, SAME, LARGER)
KERNEL(min_f64, double, double, SAME, SMALLER)
KERNEL(sum_i32, uint32_t, uint32_t, SAME, ADD)
KERNEL(max_i32, int32_t, int32_t, SAME, LARGER)
KERNEL(min_i32, int32_t, int32_t, SAME, SMALLER)
KERNEL(sum_i64, uint64_t, uint64_t, SAME, ADD)
KERNEL(max_i64, int64_t, int64_t, SAME, LARGER)
KERNEL(min_i64, int64_t, int64_t, SAME, SMALLER)

#define RUN(name, sum_t) name((sum_t *)to, src, n_src, at, n)
#define BY_OP(type, sum_t, max_t)                                              \
    do {                                                                       \
        if (op == COMM_SUM)                                                    \
            RUN(sum_##type, sum_t);                                            \
        else if (op == COMM_MAX)                                               \
            RUN(max_##type, max_t);                                            \
        else                                                                   \
            RUN(min_##type, max_t);                                            \
    } while (0)

void comm_stream_reduce(void *sum, int64_t offset, const void *const *src, int n_src, int64_t n_bytes,
                   enum dtype wire, enum comm_op op)
{
    int64_t size = (int64_t)dtype_size(wire);
    char *to = (char *)sum + offset / size * comm_stream_sum_size(wire);

    BUG_ON(offset % size || n_bytes % size);
    for (int64_t at = 0; at < n_bytes / size; at += BLOCK) {
        int n = n_bytes / size - at < BLOCK ? (int)(n_bytes / size - at) : BLOCK;

        switch (wire) {
        case DT_F32:
            BY_OP(f32, float, float);
            break;
        case DT_BF16:
            BY_OP(bf16, float, float);
            break;
        case DT_F64:
            BY_OP(f64, double, double);
            break;
        case DT_I32:
            BY_OP(i32, uint32_t, int32_t);
            break;
        case DT_I64:
            BY_OP(i64, uint64_t, int64_t);
            break;
        default:
            BUG_ON(!comm_stream_sum_size(wire));
        }
    }
}
