/* families_convert.h -- the same function in another family's words, or why not. */
#ifndef MODEL_FAMILIES_CONVERT_H
#define MODEL_FAMILIES_CONVERT_H

#include "model/model_config.h"
#include "model/params.h"

/* *out (model_config_fini) is the configuration of `in` as a model of `family`
 * (MODEL_TYPE_N: its own).  Tensors that only the new family has are zero then:
 * a shared expert of zeros adds nothing.  Those that only the old one has must
 * satisfy families_must_be_zero().  ERR_USAGE with all reasons when no choice of
 * weights makes the two compute the same.  path names the input. */
int families_convert(const struct model_config *in, int family, const char *path, struct model_config *out);

/* A parameter that the other family has no place for: without it the model stays
 * the same only if it is all zeros (true: a bias, the last matrix of a shared
 * expert), or whatever it is (false: what feeds that matrix). */
_Bool families_must_be_zero(const struct param *p);

#endif
