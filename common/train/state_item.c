/* state_item.c -- see state_impl.h. */
#include "train/state_impl.h"

#include <stdio.h>

int state_describe(const struct trainer *t, int i, struct state_item *it)
{
    const struct param *p = &t->table.v[i];
    int part = t->own.of_param[i];

    it->i_param = i;
    it->everywhere = 0;
    it->dtype = DT_F32;
    it->n_dims = p->n_dims;
    it->shape[0] = p->rows;
    it->shape[1] = p->cols;
    it->first_row = part < 0 ? 0 : t->own.parts[part].first_row;
    it->n_rows = part < 0 ? 0 : t->own.parts[part].n_rows;
    it->data = NULL;
    return part;
}

void state_describe_counts(const struct trainer *t, int64_t l, int64_t *counts, struct state_item *it)
{
    snprintf(it->name, sizeof it->name, "%s.expert_counts", t->table.v[t->table.layers[l].router].name);
    it->i_param = -1;
    it->dtype = DT_I64;
    it->n_dims = 1;
    it->shape[0] = it->n_rows = t->cfg->model.num_experts;
    it->shape[1] = 1;
    it->first_row = 0;
    it->data = counts + l * t->cfg->model.num_experts;
    it->everywhere = 1;
}

uint64_t state_item_bytes(const struct state_item *it)
{
    uint64_t n = dtype_size(it->dtype);

    for (int k = 0; k < it->n_dims; k++)
        n *= (uint64_t)it->shape[k];
    return n;
}
