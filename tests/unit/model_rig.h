/* model_rig.h -- a model with plain memory, for tests; on ref unless told otherwise.
 *
 * Weights, gradients and one batch are public; a test changes them, or the op
 * table, and runs again. */
#ifndef UNIT_MODEL_RIG_H
#define UNIT_MODEL_RIG_H

#include "base/arena.h"
#include "model/model.h"
#include "unit/golden.h"

struct rig {
    struct arena *a;
    struct model_config cfg;
    struct param_table t;
    struct model_opts opts;
    struct dev dev;
    struct dev_ops ops;         /* a copy that dev points to: replace entries at will */
    struct mem *mem;
    struct model *m;
    struct model_io io;
    char *w;                    /* flat, opts.dtype */
    float *wf;                  /* the selection biases, at the same offsets */
    char *g;                    /* flat gradients */
    struct model_batch b;
    int32_t *ids, *targets, *doc_start, *positions;
    uint8_t *valid;
    int64_t *counts;            /* [layers][E] */
};

/* The device of the next rig_open(). */
extern const char *rig_device;

/* Configuration of a golden case; n_layers 0: its own.  One sequence of 72
 * tokens, boundary_every 1, losses off. */
void rig_open(struct rig *r, const char *name, enum dtype dt, int n_layers);
/* After changes of r->opts or r->cfg's table: makes the model (again). */
void rig_model(struct rig *r);
/* With memory recorded over the trace device first, then carved. */
void rig_model_planned(struct rig *r);
void rig_close(struct rig *r);

/* Weights and batch of the golden files. */
void rig_golden(struct rig *r, struct golden *model, struct golden *answers);
/* Random weights, ids and documents; n_seqs x seq_len tokens. */
void rig_random(struct rig *r, uint64_t seed, int64_t n_seqs, int64_t seq_len);

/* Forward and backward; the loss with its coefficients. */
double rig_train(struct rig *r, _Bool first, const double *frac, const uint16_t *forced);

double rig_get(const struct rig *r, const char *flat, int64_t i);
void rig_set(struct rig *r, char *flat, int64_t i, double v);

#endif
