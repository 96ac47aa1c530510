/* card_run.c -- what the rows of a run add up to.
 *
 * After a restart steps come again.  The rows of a later start take the place of
 * those at and after their first step, as a stack does, since that is what
 * happened to the weights; the time and the arithmetic of both were spent. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/grow.h"

#include "ckpt/card_impl.h"
#include "ckpt/rows.h"

struct row { int64_t step, restart; double flops; };

struct reading {
    struct arena *a;
    int64_t step;               /* rows after it are not counted */
    struct card_rows *out;
    struct row *v;              /* [n], steps ascending */
    size_t n, room;
    char first[40], last[40];
    int64_t evals_room;
};

static void push(struct reading *r, struct row row)
{
    for (; r->n && r->v[r->n - 1].step >= row.step; r->n--)
        if (r->v[r->n - 1].step == row.step && r->v[r->n - 1].restart == row.restart)
            r->out->skipped++;
        else
            r->out->redone++;
    if (r->n == r->room) {
        r->room = r->room ? 2 * r->room : 1024;
        r->v = arena_must(realloc(r->v, r->room * sizeof *r->v));
    }
    r->v[r->n++] = row;
}

static int read_step(struct reading *r, const char *where, const json_t *o)
{
    struct card_rows *out = r->out;
    struct row row = { 0 };
    double step_s = 0, ckpt_s = 0, eval_s = 0;
    const char *time = NULL;

    TRY(json_get_int(o, where, "step", &row.step));
    TRY(json_opt_int(o, where, "restart", &row.restart));
    TRY(json_opt_num(o, where, "flops", &row.flops));
    TRY(json_opt_num(o, where, "step_s", &step_s));
    TRY(json_opt_num(o, where, "ckpt_s", &ckpt_s));
    TRY(json_opt_num(o, where, "eval_s", &eval_s));
    TRY(json_opt_str(o, where, "time", &time));
    if (r->step >= 0 && row.step > r->step) {
        out->later++;
        return 0;
    }
    push(r, row);
    out->flops_spent += row.flops;
    out->step_s += step_s;
    out->ckpt_s += ckpt_s;
    out->eval_s += eval_s;
    if (time && strlen(time) < sizeof r->first) {
        if (!r->first[0])
            strcpy(r->first, time);
        strcpy(r->last, time);
    }
    return 0;
}

static int read_eval(struct reading *r, const char *where, const json_t *o)
{
    struct card_rows *out = r->out;
    struct card_eval e = { .loss = NAN, .ppl = NAN, .bits_per_byte = NAN };
    int i = 0;

    TRY(json_get_int(o, where, "step", &e.step));
    TRY(json_get_str(o, where, "set", &e.set));
    TRY(json_opt_int(o, where, "tokens", &e.tokens));
    TRY(json_opt_num(o, where, "loss", &e.loss));
    TRY(json_opt_num(o, where, "ppl", &e.ppl));
    TRY(json_opt_num(o, where, "bits_per_byte", &e.bits_per_byte));
    if (r->step >= 0 && e.step > r->step)
        return 0;
    while (i < out->n_evals && strcmp(out->evals[i].set, e.set))
        i++;
    if (i == out->n_evals) {
        out->evals = grow_arena(r->a, out->evals, &r->evals_room, i + 1, sizeof *out->evals);
        out->n_evals++;
        e.set = arena_strdup(r->a, e.set);
    } else {
        if (e.step < out->evals[i].step)
            return 0;           /* of a step before the one that is there; the run went back */
        e.set = out->evals[i].set;
    }
    out->evals[i] = e;
    return 0;
}

static int read_row(void *ctx, const char *where, const json_t *o)
{
    const char *schema;

    TRY(json_get_str(o, where, "schema", &schema));
    return (strcmp(schema, "moe.eval/1") ? read_step : read_eval)(ctx, where, o);
}

int card_rows_read(struct arena *a, const char *path, int64_t step, struct card_rows *out)
{
    static const char *const schemas[] = { "moe.metrics/1", "moe.eval/1", NULL };
    struct reading r = { .a = a, .step = step, .out = out };
    int rc;

    *out = (struct card_rows){ 0 };
    rc = rows_each(path, schemas, read_row, &r);
    for (size_t i = 0; i < r.n; i++)
        out->flops += r.v[i].flops;
    out->steps = (int64_t)r.n;
    out->first = arena_strdup(a, r.first);
    out->last = arena_strdup(a, r.last);
    free(r.v);
    return rc;
}
