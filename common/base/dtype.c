/* dtype.c -- one row per element type. */
#include "base/dtype.h"

#include <string.h>

#include "base/err.h"

static const struct { const char *name; size_t size; } types[DT_N] = {
    [DT_F32] = { "F32", 4 }, [DT_F64] = { "F64", 8 }, [DT_BF16] = { "BF16", 2 }, [DT_F16] = { "F16", 2 },
    [DT_I64] = { "I64", 8 }, [DT_I32] = { "I32", 4 }, [DT_I16] = { "I16", 2 }, [DT_I8] = { "I8", 1 },
    [DT_U64] = { "U64", 8 }, [DT_U32] = { "U32", 4 }, [DT_U16] = { "U16", 2 }, [DT_U8] = { "U8", 1 },
    [DT_BOOL] = { "BOOL", 1 }, [DT_F8_E4M3] = { "F8_E4M3", 1 }, [DT_F8_E5M2] = { "F8_E5M2", 1 },
};

size_t dtype_size(enum dtype t)
{
    BUG_ON((unsigned)t >= DT_N);
    return types[t].size;
}

const char *dtype_name(enum dtype t)
{
    BUG_ON((unsigned)t >= DT_N);
    return types[t].name;
}

int dtype_parse(const char *name, enum dtype *out)
{
    for (int i = 0; i < DT_N; i++) {
        if (!strcmp(name, types[i].name)) {
            *out = (enum dtype)i;
            return 0;
        }
    }
    return err_set(ERR_DATA, "unknown element type \"%s\"", name);
}

uint16_t dtype_to_bf16(float v)
{
    uint32_t u;

    memcpy(&u, &v, 4);
    /* Rounding a NaN up could carry into the sign or leave an infinity. */
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

float dtype_from_bf16(uint16_t v)
{
    uint32_t u = (uint32_t)v << 16;
    float f;

    memcpy(&f, &u, 4);
    return f;
}

float dtype_from_f16(uint16_t v)
{
    uint32_t sign = (uint32_t)(v & 0x8000u) << 16, e = (v >> 10) & 31u, m = v & 0x3ffu, u;
    float f;

    if (e == 0) {
        /* Zero or subnormal: m units of 2^-24, exact in a float. */
        f = (float)m * 0x1p-24f;
        return sign ? -f : f;
    }
    u = sign | (e == 31 ? 0x7f800000u : (e + 112u) << 23) | m << 13;
    memcpy(&f, &u, 4);
    return f;
}
