/* families.h -- what each model_type of transformers can say, as tables.
 *
 * Private to model/.  A family is a set of facts (which features its modelling
 * code has), its class defaults, and a table that sorts every key of its
 * config.json: used, must be neutral, bookkeeping.  A key in no table is
 * unknown, and the reader refuses it. */
#ifndef MODEL_FAMILIES_H
#define MODEL_FAMILIES_H

#include <stddef.h>

#include "model/model_config.h"

enum family_key_kind {
    FAMILY_INT, FAMILY_NUM, FAMILY_BOOL,        /* used: offset is the field; null leaves the default */
    FAMILY_NEUTRAL,             /* null, 0, false or an empty list only */
    FAMILY_ONLY,                /* null or the text of `only` */
    FAMILY_CODE,                /* used, read by code in config_json.c */
    FAMILY_BOOK,                /* kept and written back */
    FAMILY_DROP                 /* known, replaced by what we write ourselves */
};

struct family_key {
    const char *key;            /* NULL ends the table */
    enum family_key_kind kind;
    size_t offset;
    const char *only, *why;     /* FAMILY_ONLY and FAMILY_NEUTRAL: the reason of a refusal */
};

enum family_shared { FAMILY_SHARED_NONE, FAMILY_SHARED_SUM, FAMILY_SHARED_GATED };

struct family {
    const char *name, *architecture;
    enum family_shared shared;
    unsigned qk_norms;          /* bit 1 << enum qk_norm: what the family allows */
    _Bool bias, bias_o;         /* attention_bias may be true; it then includes o_proj */
    _Bool groups, scale, partial, dense;        /* n_group, routed_scaling_factor, partial rotary, leading dense layers */
    _Bool selection_bias;       /* e_score_correction_bias */
    _Bool free_head_dim;        /* else head_dim is hidden_size / num_attention_heads */
    _Bool always_norm_topk;
    struct model_config def;    /* class defaults for absent keys */
    const struct family_key *keys;      /* its own; families_common follows */
};

extern const struct family families[MODEL_TYPE_N];
extern const struct family_key families_common[];

/* Errors of one configuration, collected so that all are seen at once. */
struct family_faults {
    const struct config *c;     /* places of keys in a YAML file, or NULL */
    const char *path;           /* else the config.json */
    char text[1500];
    int n;
};

/* Adds "PLACE: key: sentence". */
void families_fault(struct family_faults *f, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int families_faults_end(const struct family_faults *f);        /* 0 or ERR_USAGE with all of them */

/* Derives what follows from other fields, then checks every rule of the family. */
void families_check(struct model_config *m, struct family_faults *f);

/* The row of a key, or NULL. */
const struct family_key *families_key(const struct family *f, const char *key);

#endif
