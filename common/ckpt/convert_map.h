/* convert_map.h -- where each tensor of the output comes from; for convert.c. */
#ifndef CKPT_CONVERT_MAP_H
#define CKPT_CONVERT_MAP_H

#include "ckpt/convert.h"
#include "model/params.h"

struct convert_item {
    const struct param *param;          /* of the output */
    const struct ckpt_tensor *from;     /* NULL: zeros */
    int64_t first;                      /* its first element there */
    int64_t n;                          /* elements */
    enum dtype dtype;                   /* in the output */
};

struct convert_map {
    struct model_config in, out;
    struct param_table table_in, table_out;
    struct convert_item *items;         /* [table_out.n] in table order */
    const struct ckpt_tensor **zero;    /* [n_zero] left out if all their values are 0 */
    int n_zero;
    const struct ckpt_tensor **unused;  /* [n_unused] left out, to be told of */
    int n_unused;
    enum dtype dtype;                   /* of the weights, for config.json */
};

/* Reads config.json and sorts the tensors of c.  In arena a; the configurations
 * are freed by convert_map_fini(), also after an error. */
int convert_map_make(struct arena *a, const struct ckpt *c, int family, enum dtype dtype, struct convert_map *m);
void convert_map_fini(struct convert_map *m);

#endif
