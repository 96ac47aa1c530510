/* mistake.c -- moe-train with a mistake in it, which moe-train verify must find.
 *
 * Linked around the library: calls between its files are wrapped by the linker
 * (the Makefile lists them), so the product holds no place for a mistake.  MISTAKE
 * names the one to make:
 *
 *   expert-gradient   gradients of experts are scaled by ep
 *   norm              ranks leave the experts out of the norm
 *   bias              selection biases follow the counts of the own rank
 *   aux               the balance loss is divided by the tokens of the own rank
 *   choice            a rank of several chooses other experts for its first token
 *   update            ranks of several step 0.1 % too far
 *   replica           the second replica steps 0.1 % further than the first
 *   moments           a rank of several forgets its moments
 *   start             weights depend on the rank that draws them
 *   none              nothing
 *
 * On one rank alone each of them does nothing, as such mistakes do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "train/trainer.h"

int __real_trainer_gradients(struct trainer *t, struct step_facts *f);
int __wrap_trainer_gradients(struct trainer *t, struct step_facts *f);
int __real_comm_all_reduce(struct comm *c, void *v, int64_t n, enum dtype dt, enum comm_op op);
int __wrap_comm_all_reduce(struct comm *c, void *v, int64_t n, enum dtype dt, enum comm_op op);
int __real_dev_open(const char *name, const struct dev_options *o, struct dev *out);
int __wrap_dev_open(const char *name, const struct dev_options *o, struct dev *out);
int __real_optim_step(struct optim *o, float *master, float *grads, int64_t t, double lr_factor, double g_scale);
int __wrap_optim_step(struct optim *o, float *master, float *grads, int64_t t, double lr_factor, double g_scale);
void __real_trainer_init(struct trainer *t);
void __wrap_trainer_init(struct trainer *t);
void __real_trainer_close(struct trainer *t);
void __wrap_trainer_close(struct trainer *t);

static struct trainer *now;     /* the one that computes */
static const struct dev_ops *device;

static _Bool is(const char *name)
{
    const char *made = getenv("MISTAKE");

    return now && comm_size(now->opts.world) > 1 && made && strcmp(made, name) == 0;
}

int __wrap_trainer_gradients(struct trainer *t, struct step_facts *f)
{
    now = t;
    int rc = __real_trainer_gradients(t, f);
    for (int i = 0; is("expert-gradient") && i < t->own.n_parts; i++) {
        const struct param *p = &t->table.v[t->own.parts[i].i_param];
        for (int64_t k = 0; p->kind == PARAM_EXPERT && k < p->rows * p->cols; k++)
            t->grads[t->own.parts[i].offset + k] *= (float)t->mesh.ep;
    }
    return rc;
}

int __wrap_comm_all_reduce(struct comm *c, void *v, int64_t n, enum dtype dt, enum comm_op op)
{
    if (is("bias") && dt == DT_I64 && op == COMM_SUM)
        return 0;
    /* The squares of all tensors. */
    for (int i = 0; is("norm") && dt == DT_F64 && n == now->table.n && i < n; i++)
        if (now->table.v[i].kind == PARAM_EXPERT)
            ((double *)v)[i] = 0;
    return __real_comm_all_reduce(c, v, n, dt, op);
}

static void router_bwd(struct dev *d, const struct router *r)
{
    struct router mine = *r;

    if (is("aux"))
        mine.aux_scale *= comm_size(now->opts.world);
    device->router_bwd(d, &mine);
}

static void router_fwd(struct dev *d, const struct router *r)
{
    device->router_fwd(d, r);
    for (int i = 0; is("choice") && !r->forced && r->n_tokens && i < r->top_k; i++)
        r->idx[i] = (uint16_t)((r->idx[i] + 1) % r->n_experts);
}

int __wrap_dev_open(const char *name, const struct dev_options *o, struct dev *out)
{
    static struct dev_ops wrong;
    int rc = __real_dev_open(name, o, out);

    if (rc < 0)
        return rc;
    device = out->ops;
    wrong = *device;
    wrong.router_bwd = router_bwd;
    wrong.router_fwd = router_fwd;
    out->ops = &wrong;
    return 0;
}

int __wrap_optim_step(struct optim *o, float *master, float *grads, int64_t t, double lr_factor, double g_scale)
{
    if (is("moments"))
        for (int i = 0; i < now->own.n_parts; i++) {
            struct optim_state s[2];
            const struct owned_part *p = &now->own.parts[i];
            int n = optim_states(o, i, s);
            for (int k = 0; k < n; k++)
                memset(s[k].data, 0, (size_t)(p->n_rows * now->table.v[p->i_param].cols) * sizeof(float));
        }
    if (is("update") || (is("replica") && mesh_at(now->mesh, comm_rank(now->opts.world)).replica == 1))
        lr_factor *= 1.001;
    return __real_optim_step(o, master, grads, t, lr_factor, g_scale);
}

void __wrap_trainer_init(struct trainer *t)
{
    __real_trainer_init(t);
    now = t;
    if (is("start") && t->own.n_parts)
        t->master[t->own.parts[0].offset] += (float)comm_rank(t->opts.world);
    now = NULL;
}

void __wrap_trainer_close(struct trainer *t)
{
    now = NULL;
    __real_trainer_close(t);
}
