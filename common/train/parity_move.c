/* parity_move.c -- whole tensors between rank 0 and their owners.
 *
 * One exchange moves a whole store.  Both sides list its parts in table order,
 * which is the order in which an exchange pairs them.  It refuses models that
 * do not fit on one rank; verify is for small ones. */
#include "train/parity_impl.h"

#include "base/err.h"
#include "comm/comm.h"

static _Bool has(const struct trainer *t, enum parity_store s, int i_param)
{
    enum param_optim o = t->table.v[i_param].optim;

    return s == PARITY_SECOND ? o == PARAM_ADAMW : s == PARITY_MASTER || o != PARAM_NONE;
}

/* Gradients and moments are with the one who steps the part. */
static const struct ckpt_rows *rows_of(const struct trainer *t, enum parity_store s)
{
    return s == PARITY_MASTER ? t->rows : t->step_rows;
}

static const struct owned_layout *parts_of(const struct trainer *t, enum parity_store s)
{
    return s == PARITY_MASTER ? &t->own : t->stepped;
}

/* Where our part lies. */
static float *place(const struct trainer *t, enum parity_store s, int i_part)
{
    const struct owned_part *p = &parts_of(t, s)->parts[i_part];
    struct optim_state st[2];

    if (s == PARITY_MASTER || s == PARITY_GRADS)
        return (s == PARITY_MASTER ? t->master : t->grads) + p->offset;
    optim_states(t->optim, i_part, st);
    return st[s == PARITY_SECOND].data;
}

static int list_own(const struct trainer *t, enum parity_store s, struct comm_part *out)
{
    const struct owned_layout *own = parts_of(t, s);
    int n = 0;

    for (int i = 0; i < own->n_parts; i++) {
        const struct owned_part *p = &own->parts[i];
        if (has(t, s, p->i_param))
            out[n++] = (struct comm_part){ .rank = 0, .p = place(t, s, i),
                                           .bytes = p->n_rows * t->table.v[p->i_param].cols * (int64_t)sizeof(float) };
    }
    return n;
}

/* Is rank one of those who hold the rows?  Of several with the same the first
 * one gives, and all get. */
static _Bool holds(const struct ckpt_rows *r, int rank, _Bool all)
{
    int behind = rank - r->holder;

    return behind == 0 || (all && behind > 0 && behind % r->stride == 0 && behind / r->stride < r->n_holders);
}

/* On rank 0: rows of whole tensors, rank by rank. */
static int list_whole(const struct parity *v, enum parity_store s, _Bool all, float *flat, struct comm_part *out)
{
    const struct trainer *t = v->t;
    const struct ckpt_rows *rows = rows_of(t, s);
    int n = 0;

    for (int rank = 0; comm_rank(v->comm) == 0 && rank < comm_size(v->comm); rank++)
        for (int i = 0; i < t->table.n; i++)
            for (int k = t->rows_at[i]; has(t, s, i) && k < t->rows_at[i + 1]; k++) {
                const struct param *p = &t->table.v[i];
                if (holds(&rows[k], rank, all))
                    out[n++] = (struct comm_part){ .rank = rank, .p = flat + p->offset + rows[k].first_row * p->cols,
                                                   .bytes = rows[k].n_rows * p->cols * (int64_t)sizeof(float) };
            }
    return n;
}

static int move(struct parity *v, enum parity_store s, float *flat, _Bool in)
{
    struct trainer *t = v->t;
    struct arena *a = arena_new();
    struct comm_part *own = arena_array(a, (size_t)t->own.n_parts + 1, sizeof *own);
    struct comm_part *whole = arena_array(a, (size_t)(plan_n_parts(t->plan) * t->mesh.replicas) + 1, sizeof *whole);
    /* What every replica has, the first one gives. */
    _Bool shared = rows_of(t, s) == t->rows;
    int n_own = in || !shared || mesh_at(t->mesh, comm_rank(v->comm)).replica == 0 ? list_own(t, s, own) : 0;
    int n_whole = list_whole(v, s, in, flat, whole), rc;

    rc = in ? comm_all_to_all(v->comm, whole, n_whole, own, n_own) : comm_all_to_all(v->comm, own, n_own, whole, n_whole);
    arena_free(a);
    return rc;
}

int parity_gather(struct parity *v, enum parity_store s, float *flat)
{
    return move(v, s, flat, 0);
}

int parity_scatter(struct parity *v, enum parity_store s, float *flat)
{
    return move(v, s, flat, 1);
}
