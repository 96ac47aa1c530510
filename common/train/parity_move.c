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

/* Where our part lies. */
static float *place(const struct trainer *t, enum parity_store s, int i_part)
{
    const struct owned_part *p = &t->own.parts[i_part];
    struct optim_state st[2];

    if (s == PARITY_MASTER || s == PARITY_GRADS)
        return (s == PARITY_MASTER ? t->master : t->grads) + p->offset;
    optim_states(t->optim, i_part, st);
    return st[s == PARITY_SECOND].data;
}

static int list_own(const struct trainer *t, enum parity_store s, struct comm_part *out)
{
    int n = 0;

    for (int i = 0; i < t->own.n_parts; i++) {
        const struct owned_part *p = &t->own.parts[i];
        if (has(t, s, p->i_param))
            out[n++] = (struct comm_part){ .rank = 0, .p = place(t, s, i),
                                           .bytes = p->n_rows * t->table.v[p->i_param].cols * (int64_t)sizeof(float) };
    }
    return n;
}

/* Rows that rank owns, in whole tensors. */
static int list_whole(const struct trainer *t, enum parity_store s, int rank, float *flat, struct comm_part *out)
{
    int n = 0;

    for (int i = 0; i < t->table.n; i++)
        for (int k = t->rows_at[i]; has(t, s, i) && k < t->rows_at[i + 1]; k++) {
            const struct param *p = &t->table.v[i];
            if (t->rows[k].holder == mesh_owner(t->mesh, rank))
                out[n++] = (struct comm_part){ .rank = rank, .p = flat + p->offset + t->rows[k].first_row * p->cols,
                                               .bytes = t->rows[k].n_rows * p->cols * (int64_t)sizeof(float) };
        }
    return n;
}

static int list_ranks(const struct parity *v, enum parity_store s, int n_ranks, float *flat, struct comm_part *out)
{
    int n = 0;

    for (int r = 0; comm_rank(v->comm) == 0 && r < n_ranks; r++)
        n += list_whole(v->t, s, r, flat, out + n);
    return n;
}

int parity_gather(struct parity *v, enum parity_store s, float *flat)
{
    struct trainer *t = v->t;
    struct arena *a = arena_new();
    struct comm_part *own = arena_array(a, (size_t)t->own.n_parts + 1, sizeof *own);
    struct comm_part *whole = arena_array(a, (size_t)plan_n_parts(t->plan) + 1, sizeof *whole);
    int n_own = mesh_at(t->mesh, comm_rank(v->comm)).replica == 0 ? list_own(t, s, own) : 0;
    int n_whole = list_ranks(v, s, mesh_shard(t->mesh), flat, whole);
    int rc = comm_all_to_all(v->comm, own, n_own, whole, n_whole);

    arena_free(a);
    return rc;
}

int parity_scatter(struct parity *v, enum parity_store s, float *flat)
{
    struct trainer *t = v->t;
    struct arena *a = arena_new();
    struct comm_part *own = arena_array(a, (size_t)t->own.n_parts + 1, sizeof *own);
    struct comm_part *whole = arena_array(a, (size_t)(plan_n_parts(t->plan) * t->mesh.replicas) + 1, sizeof *whole);
    int n_own = list_own(t, s, own);
    int n_whole = list_ranks(v, s, mesh_world(t->mesh), flat, whole);
    int rc = comm_all_to_all(v->comm, whole, n_whole, own, n_own);

    arena_free(a);
    return rc;
}
