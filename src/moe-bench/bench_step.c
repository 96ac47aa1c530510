/* bench_step.c -- moe-bench step: the trainer's own step on made-up tokens, and
 * which op takes how much of it.
 *
 * Two passes over the same trainer: the first times whole steps, nothing else
 * looks at the clock; in the second a clock stands around every op.  The rates
 * come from the first.  No file but the configuration is read, none written. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "bench.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/out.h"
#include "base/table.h"
#include "base/units.h"
#include "dev/peak.h"
#include "dev/timed.h"
#include "train/trainer.h"

enum { STEPS_MAX = 10000 };

struct step_opts {
    struct opt_common common;
    const char *config, *device;
    int64_t threads, steps, warmup;
    double peak;
    _Bool tsv, json;
};

#define AT(field) offsetof(struct step_opts, field)
static const struct opt step_table[] = {
    OPT_COMMON,
    { OPT_STR, 'c', "config", "FILE", NULL, "configuration; without it operands say what differs from the defaults", AT(config), 0, 0 },
    { OPT_STR, 'd', "device", "NAME", "cpu", "device to time", AT(device), 0, 0 },
    { OPT_INT, 'j', "threads", "N", "0", "threads of the device; 0: all cores it may use", AT(threads), 0, 1024 },
    { OPT_INT, 'n', "steps", "N", "20", "steps timed, and as many again op by op", AT(steps), 1, STEPS_MAX },
    { OPT_INT, 'w', "warmup", "N", "3", "steps before them", AT(warmup), 0, STEPS_MAX },
    { OPT_FLOAT, 0, "peak", "GFLOPS", "0", "GEMM peak for the share; 0: measured after the steps", AT(peak), 0, 1e12 },
    { OPT_FLAG, 0, "tsv", NULL, NULL, "print tab-separated values", AT(tsv), 0, 0 },
    { OPT_FLAG, 0, "json", NULL, NULL, "print one JSON object a line", AT(json), 0, 0 },
    OPT_END
};

enum { WHOLE, DATA, FORWARD, BACKWARD, OPTIMIZER, N_PHASES };
static const char *const phases[N_PHASES] = { "step", "data", "forward", "backward", "optimizer" };

struct measured {
    double *s[N_PHASES];        /* [steps] seconds, sorted when taken */
    double cpu_s;               /* user and system, of the process, a step */
    double flops;               /* of the model, a step */
    int64_t tokens;
    double rss, peak;
};

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

static double cpu_now(void)
{
    struct rusage r;

    getrusage(RUSAGE_SELF, &r);
    return seconds(r.ru_utime) + seconds(r.ru_stime);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int one(struct trainer *t, struct step_facts *f, double s[N_PHASES])
{
    double t0 = clock_s();

    TRY(trainer_step(t, f));
    s[WHOLE] = clock_s() - t0;
    s[DATA] = f->data_s;
    s[FORWARD] = f->fwd_s;
    s[BACKWARD] = f->bwd_s;
    s[OPTIMIZER] = f->optim_s;
    if (f->skipped && f->n_valid > 0)
        return err_set(ERR_NO, "step %lld: the loss or a gradient is not finite", (long long)f->step);
    return 0;
}

static int whole_steps(struct trainer *t, const struct step_opts *o, struct arena *a, struct measured *m)
{
    struct step_facts f;
    double s[N_PHASES];

    for (int64_t i = 0; i < o->warmup; i++)
        TRY(one(t, &f, s));
    for (int p = 0; p < N_PHASES; p++)
        m->s[p] = arena_array(a, (size_t)o->steps, sizeof(double));
    double cpu = cpu_now();
    for (int64_t i = 0; i < o->steps; i++) {
        TRY(one(t, &f, s));
        for (int p = 0; p < N_PHASES; p++)
            m->s[p][i] = s[p];
        m->flops += params_flops(&t->table, f.n_valid > 0 ? f.n_tokens : 0, f.pairs) / (double)o->steps;
        m->tokens = f.n_tokens;
    }
    m->cpu_s = (cpu_now() - cpu) / (double)o->steps;
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    m->rss = (double)r.ru_maxrss * 1024;
    for (int p = 0; p < N_PHASES; p++)
        qsort(m->s[p], (size_t)o->steps, sizeof(double), ascending);
    m->peak = o->peak > 0 ? o->peak : dev_gemm_peak(&t->dev);
    return 0;
}

/* The lower of the two in the middle: a time that a step really took. */
static double median(const double *sorted, int64_t n)
{
    return sorted[(n - 1) / 2];
}

static void number(struct table *t, _Bool there, double v)
{
    if (there)
        table_num(t, v);
    else
        table_none(t);
}

static int print_rows(const struct trainer *t, const struct step_opts *o, enum table_form form, const struct measured *m)
{
    static const struct table_col cols[] = {
        { "threads", "threads", 'i', 0 }, { "tokens", "tokens", 'i', 0 }, { "tok_s", "tok/s", 'f', 1 },
        { "gflops", "GFLOP/s", 'f', 2 }, { "peak_gflops", "peak", 'f', 1 }, { "mfu", "share", 'f', 3 },
        { "step_ms", "step ms", 'f', 3 }, { "data_ms", "data ms", 'f', 3 }, { "forward_ms", "forward ms", 'f', 3 },
        { "backward_ms", "backward ms", 'f', 3 }, { "optimizer_ms", "optimizer ms", 'f', 3 },
        { "min_step_ms", "min step ms", 'f', 3 }, { "cpu_ms", "cpu ms", 'f', 3 },
        { "mem_planned", "planned", 'b', 0 }, { "rss_peak", "peak rss", 'b', 0 },
    };
    struct table *tab = table_begin(form, "moe.bench-step/1", cols, sizeof cols / sizeof *cols);
    double step = median(m->s[WHOLE], o->steps);

    table_int(tab, t->dev.threads);
    table_int(tab, m->tokens);
    table_num(tab, (double)m->tokens / step);
    table_num(tab, 1e-9 * m->flops / step);
    number(tab, m->peak > 0, m->peak);
    number(tab, m->peak > 0, 1e-9 * m->flops / step / m->peak);
    for (int p = 0; p < N_PHASES; p++)
        table_num(tab, 1e3 * median(m->s[p], o->steps));
    table_num(tab, 1e3 * m->s[WHOLE][0]);
    table_num(tab, 1e3 * m->cpu_s);
    table_int(tab, (int64_t)mem_planned(t->mem));
    table_int(tab, (int64_t)m->rss);
    return table_end(tab);
}

static int print_human(const struct trainer *t, const struct step_opts *o, const struct measured *m)
{
    static const struct table_col cols[] = {
        { "phase", "phase", 's', 0 }, { "ms", "ms", 'f', 2 }, { "share", "% of step", 'f', 1 }, { "min_ms", "min ms", 'f', 2 },
    };
    double step = median(m->s[WHOLE], o->steps), gflops = 1e-9 * m->flops / step;
    char buf[2][32];

    TRY(out_printf("%.0f tokens/s, %.1f GFLOP/s", (double)m->tokens / step, gflops));
    if (m->peak > 0)
        TRY(out_printf(", %.0f %% of the GEMM peak of %.0f GFLOP/s", 100 * gflops / m->peak, m->peak));
    TRY(out_printf("\n%s tokens a step, %d thread%s, %.2f ms of processor time a step\n", units_count(buf[0], m->tokens),
                   t->dev.threads, t->dev.threads == 1 ? "" : "s", 1e3 * m->cpu_s));
    TRY(out_printf("memory: %s planned, %s resident at the peak\n\n", units_bytes(buf[0], (double)mem_planned(t->mem)),
                   units_bytes(buf[1], m->rss)));
    struct table *tab = table_begin(TABLE_HUMAN, "", cols, sizeof cols / sizeof *cols);
    for (int p = N_PHASES - 1; p >= 0; p--) {
        if (p == WHOLE)
            table_rule(tab);
        table_str(tab, phases[p]);
        table_num(tab, 1e3 * median(m->s[p], o->steps));
        table_num(tab, 100 * median(m->s[p], o->steps) / step);
        table_num(tab, 1e3 * m->s[p][0]);
    }
    TRY(table_end(tab));
    return out_printf("\n");
}

/* An op over the steps: what it took in each. */
struct op_times { const char *op; double calls, flops, bytes, *s, median; };

static int slowest_first(const void *a, const void *b)
{
    const struct op_times *x = a, *y = b;

    return x->median != y->median ? (x->median < y->median) - (x->median > y->median) : strcmp(x->op, y->op);
}

/* Every step calls the same ops: rows[] is made by the first. */
static int collect(struct trainer *t, const struct step_opts *o, struct arena *a, struct op_times **out, int *n, double *whole)
{
    const struct model_config *mc = &t->cfg->model;
    const struct timed_count *c;
    struct op_times *v = NULL;
    struct step_facts f;
    double s[N_PHASES], pairs = 0;

    *n = 0;
    for (int64_t i = 0; i < o->steps; i++) {
        timed_reset(&t->dev);
        TRY(one(t, &f, s));
        whole[i] = s[WHOLE];
        pairs += f.pairs / (double)(o->steps * (t->cfg->tokens_per_step / t->cfg->micro_tokens));
        int rows = timed_counts(&t->dev, &c);
        BUG_ON(i && rows != *n);
        if (!i) {
            *n = rows;
            v = arena_array(a, (size_t)rows, sizeof *v);
        }
        for (int k = 0; k < rows; k++) {
            if (!i)
                v[k] = (struct op_times){ c[k].op, (double)c[k].calls, c[k].flops, c[k].bytes,
                                          arena_array(a, (size_t)o->steps, sizeof(double)), 0 };
            v[k].s[i] = c[k].seconds;
        }
    }
    for (int k = 0; k < *n; k++) {
        /* The device counts a causal mask over the whole batch; the documents
         * are known here. */
        double products = !strcmp(v[k].op, "attn_fwd") ? 2 : !strcmp(v[k].op, "attn_bwd") ? 5 : 0;
        if (products > 0)
            v[k].flops = 2 * products * v[k].calls * pairs * (double)(mc->num_attention_heads * mc->head_dim);
        qsort(v[k].s, (size_t)o->steps, sizeof(double), ascending);
        v[k].median = median(v[k].s, o->steps);
    }
    qsort(whole, (size_t)o->steps, sizeof(double), ascending);
    qsort(v, (size_t)*n, sizeof *v, slowest_first);
    *out = v;
    return 0;
}

/* The same steps again, op by op. */
static int by_op(struct trainer *t, const struct step_opts *o, struct arena *a, enum table_form form)
{
    static const struct table_col cols[] = {
        { "op", "op", 's', 0 }, { "calls", "calls", 'i', 0 }, { "ms", "ms", 'f', 3 }, { "share", "% of step", 'f', 1 },
        { "min_ms", "min ms", 'f', 3 }, { "gflops", "GFLOP/s", 'f', 1 }, { "gbs", "GB/s", 'f', 1 },
    };
    double *whole = arena_array(a, (size_t)o->steps, sizeof *whole), left, step;
    struct op_times *v;
    int n;

    TRY(collect(t, o, a, &v, &n, whole));
    struct table *tab = table_begin(form, "moe.bench-step-op/1", cols, sizeof cols / sizeof *cols);
    left = step = median(whole, o->steps);
    for (int i = 0; i < n; i++) {
        table_str(tab, v[i].op);
        table_int(tab, (int64_t)v[i].calls);
        table_num(tab, 1e3 * v[i].median);
        table_num(tab, 100 * v[i].median / step);
        table_num(tab, 1e3 * v[i].s[0]);
        number(tab, v[i].flops > 0, 1e-9 * v[i].flops / v[i].median);
        number(tab, v[i].flops == 0, 1e-9 * v[i].bytes / v[i].median);
        left -= v[i].median;
    }
    table_rule(tab);
    table_str(tab, "(between ops)");
    table_none(tab);
    table_num(tab, left > 0 ? 1e3 * left : 0);
    table_num(tab, left > 0 ? 100 * left / step : 0);
    table_none(tab);
    table_none(tab);
    table_none(tab);
    return table_end(tab);
}

static int open_step(const struct run_config *c, const struct step_opts *o, _Bool timed, struct trainer **t)
{
    struct trainer_options to = {
        .what = TRAINER_MODEL | TRAINER_GRADS | TRAINER_OPTIM | TRAINER_DATA | TRAINER_VALID | TRAINER_SYNTHETIC,
        .device = o->device, .threads = (int)o->threads, .timed = timed,
    };

    TRY(trainer_open(c, &to, t));
    trainer_init(*t);
    return 0;
}

static int run_step(void *opts, int argc, char **argv)
{
    const struct step_opts *o = opts;
    enum table_form form = o->json ? TABLE_JSON : o->tsv ? TABLE_TSV : TABLE_HUMAN;
    struct run_config c = { 0 };
    struct trainer *t = NULL;
    struct measured m = { .flops = 0 };
    int rc;

    if (o->tsv && o->json)
        return err_set(ERR_USAGE, "--tsv and --json exclude each other");
    TRY(run_config_load(o->config, argv, argc, &c));
    struct arena *a = arena_new();
    TRY_OUT(rc, open_step(&c, o, 0, &t));
    log_info("device %s: %s%s%d thread%s; %lld + 2 x %lld steps", o->device, t->dev.about ? t->dev.about : "",
             t->dev.about ? ", " : "", t->dev.threads, t->dev.threads == 1 ? "" : "s", (long long)o->warmup, (long long)o->steps);
    TRY_OUT(rc, whole_steps(t, o, a, &m));
    TRY_OUT(rc, form == TABLE_HUMAN ? print_human(t, o, &m) : print_rows(t, o, form, &m));
    TRY_OUT(rc, out_flush());
    trainer_close(t);
    t = NULL;
    TRY_OUT(rc, open_step(&c, o, 1, &t));
    struct step_facts f;
    double s[N_PHASES];
    TRY_OUT(rc, one(t, &f, s));
    rc = by_op(t, o, a, form);
out:
    trainer_close(t);
    arena_free(a);
    run_config_fini(&c);
    return rc;
}

const struct opt_cmd bench_step_cmd = {
    .name = "step",
    .summary = "time the training step and the ops it is made of",
    .synopsis = "[options] [key.path=value ...]",
    .examples = "moe-bench step -c etc/small.yaml\n"
                "moe-bench step -c etc/small.yaml -j 1 memory.boundary_every=1\n"
                "moe-bench step -c etc/small.yaml --json > step.jsonl",
    .opts = step_table,
    .opts_size = sizeof(struct step_opts),
    .min_operands = 0,
    .max_operands = -1,
    .run = run_step,
};
