/* dtype.h -- element types, under their safetensors names. */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <stddef.h>
#include <stdint.h>

enum dtype {
    DT_F32, DT_F64, DT_BF16, DT_F16, DT_I64, DT_I32, DT_I16, DT_I8,
    DT_U64, DT_U32, DT_U16, DT_U8, DT_BOOL, DT_F8_E4M3, DT_F8_E5M2,
    DT_N
};

size_t dtype_size(enum dtype t);                /* bytes of one element */
const char *dtype_name(enum dtype t);           /* "F32", "BF16", ... */
int dtype_parse(const char *name, enum dtype *out);     /* ERR_DATA when unknown */

/* Round to nearest even; NaN stays NaN. */
uint16_t dtype_to_bf16(float v);
float dtype_from_bf16(uint16_t v);
float dtype_from_f16(uint16_t v);

#endif
