/* metrics.c -- see metrics.h. */
#include "train/metrics.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/units.h"

struct metrics {
    const struct trainer *t;
    struct json_out *j;
    char path[4200];
    int64_t restart;
    double peak_gflops;
};

/* Cuts a row that a crash left without its newline. */
static int cut_torn_row(const char *path)
{
    char buf[65536];
    int fd = open(path, O_RDWR | O_CLOEXEC);

    if (fd < 0)
        return 0;
    off_t end = lseek(fd, 0, SEEK_END), keep = end;
    while (keep > 0) {
        off_t from = keep > (off_t)sizeof buf ? keep - (off_t)sizeof buf : 0;
        ssize_t n = pread(fd, buf, (size_t)(keep - from), from);
        if (n <= 0)
            break;
        char *nl = memrchr(buf, '\n', (size_t)n);
        if (nl) {
            keep = from + (nl - buf) + 1;
            break;
        }
        keep = from;
    }
    int rc = keep < end && ftruncate(fd, keep) != 0 ? err_sys(ERR_IO, "%s", path) : 0;
    close(fd);
    return rc;
}

int metrics_open(const char *run_dir, const struct trainer *t, int64_t restart, double peak_gflops,
                 struct metrics **out)
{
    struct metrics *m = calloc(1, sizeof *m);

    if (!m)
        return err_set(ERR_IO, "out of memory");
    m->t = t;
    m->restart = restart;
    m->peak_gflops = peak_gflops;
    m->j = json_new();
    if (run_dir) {
        snprintf(m->path, sizeof m->path, "%s/metrics.jsonl", run_dir);
        if (cut_torn_row(m->path) < 0) {
            metrics_close(m);
            return err_last();
        }
    }
    *out = m;
    return 0;
}

void metrics_close(struct metrics *m)
{
    if (!m)
        return;
    json_free(m->j);
    free(m);
}

static void put_time(struct json_out *j, const char *key)
{
    time_t now = time(NULL);
    struct tm tm;
    char buf[32];

    gmtime_r(&now, &tm);
    strftime(buf, sizeof buf, "%Y-%m-%dT%H:%M:%SZ", &tm);
    json_put_str(j, key, buf);
}

static int64_t resident_bytes(void)
{
    char buf[128];
    long pages = 0;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return 0;
    ssize_t n = read(fd, buf, sizeof buf - 1);
    close(fd);
    if (n <= 0)
        return 0;
    buf[n] = '\0';
    return sscanf(buf, "%*s %ld", &pages) == 1 ? (int64_t)pages * sysconf(_SC_PAGESIZE) : 0;
}

/* What one MoE layer's counts say. */
struct load { double max_mean, entropy; int64_t dead; };

static struct load load_of(const struct trainer *t, int64_t layer)
{
    int64_t n = t->cfg->model.num_experts, total = 0, most = 0;
    const int64_t *c = t->counts + layer * n;
    struct load l = { 0 };

    for (int64_t e = 0; e < n; e++) {
        total += c[e];
        most = c[e] > most ? c[e] : most;
        l.dead += c[e] == 0;
    }
    for (int64_t e = 0; e < n; e++) {
        double p = total ? (double)c[e] / (double)total : 0;
        if (p > 0 && n > 1)
            l.entropy -= p * log(p) / log((double)n);
    }
    l.max_mean = total ? (double)most * (double)n / (double)total : 0;
    return l;
}

/* Clocks and ratios end where they stop being true: microseconds, six digits.
 * Losses and norms are written whole, since runs are compared by them. */
static double rounded(double v)
{
    return isfinite(v) && fabs(v) < 1e12 ? nearbyint(v * 1e6) / 1e6 : v;
}

static void put_layers(struct json_out *j, const struct trainer *t, const char *key, int what)
{
    json_arr(j, key);
    for (int64_t i = 0; i < t->cfg->model.num_hidden_layers; i++) {
        if (!model_is_moe(&t->cfg->model, i))
            continue;
        struct load l = load_of(t, i);
        if (what == 0)
            json_put_num(j, NULL, rounded(l.max_mean));
        else if (what == 1)
            json_put_num(j, NULL, rounded(l.entropy));
        else if (what == 2)
            json_put_int(j, NULL, l.dead);
        else if (what == 3)
            json_put_num(j, NULL, rounded(t->bias_range[i]));
        else
            json_put_int(j, NULL, (int64_t)t->rounds[i]);
    }
    json_arr_end(j);
}

static int append(struct metrics *m, const char **json)
{
    size_t n;
    const char *text = json_text(m->j, &n);

    if (json)
        *json = text;
    if (!m->path[0])
        return 0;
    /* The newline belongs to the row's one write. */
    static char line[1 << 16];
    if (n + 1 > sizeof line)
        return err_set(ERR_BUG, "a metrics row of %zu bytes", n);
    memcpy(line, text, n);
    line[n] = '\n';
    return fs_append_line(m->path, line, n + 1, 0);
}

static double flops_of(const struct metrics *m, const struct step_facts *f)
{
    /* A step without a target computed nothing. */
    return f->n_valid > 0 ? params_flops(&m->t->table, f->n_tokens, f->pairs) : 0;
}

static double mfu_of(const struct metrics *m, const struct step_facts *f, const struct metrics_extra *x)
{
    return m->peak_gflops > 0 && x->step_s > 0 ? flops_of(m, f) / (x->step_s * m->peak_gflops * 1e9) : NAN;
}

int metrics_step(struct metrics *m, const struct step_facts *f, const struct metrics_extra *x, const char **json)
{
    const struct trainer *t = m->t;
    struct json_out *j = m->j;

    json_reset(j);
    json_obj(j, NULL);
    json_put_str(j, "schema", "moe.metrics/1");
    json_put_int(j, "step", f->step);
    put_time(j, "time");
    json_put_int(j, "restart", m->restart);
    json_put_int(j, "tokens", t->tokens);
    json_put_int(j, "loss_tokens", f->n_valid);
    json_put_num(j, "loss", f->loss);
    json_put_num(j, "ce", f->ce);
    json_put_num(j, "aux", f->aux);
    json_put_num(j, "z", f->z);
    json_put_num(j, "grad_norm", f->norm);
    json_put_bool(j, "clipped", f->clipped);
    json_put_int(j, "skipped", t->next_data - t->step);
    json_put_num(j, "lr_muon", f->lr_muon);
    json_put_num(j, "lr_adamw", f->lr_adamw);
    json_put_num(j, "step_s", rounded(x->step_s));
    json_put_num(j, "data_s", rounded(f->data_s));
    json_put_num(j, "fwd_s", rounded(f->fwd_s));
    json_put_num(j, "bwd_s", rounded(f->bwd_s));
    json_put_num(j, "comm_s", rounded(f->comm_s));
    json_put_num(j, "optim_s", rounded(f->optim_s));
    json_put_num(j, "ckpt_s", rounded(x->ckpt_s));
    json_put_num(j, "eval_s", rounded(x->eval_s));
    json_put_num(j, "tok_s", rounded(x->step_s > 0 ? (double)f->n_tokens / x->step_s : 0));
    json_put_num(j, "flops", flops_of(m, f));
    json_put_num(j, "mfu", rounded(mfu_of(m, f, x)));
    json_put_int(j, "mem_planned", (int64_t)mem_planned(t->mem));
    json_put_int(j, "mem_used", (int64_t)mem_used(t->mem));
    json_put_int(j, "rss", resident_bytes());
    put_layers(j, t, "load_max_mean", 0);
    put_layers(j, t, "load_entropy", 1);
    put_layers(j, t, "dead", 2);
    put_layers(j, t, "bias_range", 3);
    put_layers(j, t, "rounds", 4);
    json_put_nonfinite(j);
    json_obj_end(j);
    return append(m, json);
}

double metrics_eval_loss(const struct eval_facts *e)
{
    return e->tokens ? e->nll / (double)e->tokens : NAN;
}

double metrics_bits_per_byte(const struct eval_facts *e)
{
    return e->text_bytes ? e->nll / (0.69314718055994530942 * (double)e->text_bytes) : NAN;
}

int metrics_eval(struct metrics *m, int64_t step, const struct eval_facts *e, const char **json)
{
    struct json_out *j = m->j;

    json_reset(j);
    json_obj(j, NULL);
    json_put_str(j, "schema", "moe.eval/1");
    json_put_int(j, "step", step);
    json_put_str(j, "set", e->set);
    json_put_int(j, "tokens", e->tokens);
    json_put_num(j, "loss", metrics_eval_loss(e));
    json_put_num(j, "ppl", exp(metrics_eval_loss(e)));
    json_put_num(j, "bits_per_byte", metrics_bits_per_byte(e));
    json_obj_end(j);
    return append(m, json);
}

const char *metrics_human(const struct metrics *m, const struct step_facts *f, const struct metrics_extra *x,
                          double eta_s, char *buf, int n)
{
    char tok[32], eta[32];
    double mfu = mfu_of(m, f, x);
    int k = snprintf(buf, (size_t)n, "step %5" PRId64 "/%" PRId64 "  loss %7.4f  norm %7.3f%s  lr %.2e  %8s tok/s", f->step,
                     m->t->cfg->steps, f->loss, f->norm, f->clipped ? "*" : " ", f->lr_muon,
                     units_count(tok, (int64_t)(x->step_s > 0 ? (double)f->n_tokens / x->step_s : 0)));

    if (isfinite(mfu) && k < n)
        k += snprintf(buf + k, (size_t)(n - k), "  %2.0f%% of peak", 100 * mfu);
    if (f->skipped && k < n)
        k += snprintf(buf + k, (size_t)(n - k), "  skipped");
    if (k < n)
        snprintf(buf + k, (size_t)(n - k), "  eta %s", units_seconds(eta, eta_s));
    return buf;
}

const char *metrics_human_eval(const struct eval_facts *e, char *buf, int n)
{
    char tok[32];

    snprintf(buf, (size_t)n, "  held out %-8s loss %7.4f  %6.3f bits per byte  (%s tokens)", e->set, metrics_eval_loss(e),
             metrics_bits_per_byte(e), units_count(tok, e->tokens));
    return buf;
}

int metrics_heartbeat_write(const char *run_dir, struct heartbeat *h)
{
    char path[4200], text[1024], num[2][32];
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    h->time = (double)ts.tv_sec + 1e-9 * (double)ts.tv_nsec;
    snprintf(path, sizeof path, "%s/heartbeat.json", run_dir);
    int n = snprintf(text, sizeof text,
                     "{\"schema\":\"moe.heartbeat/1\",\"run_id\":\"%s\",\"state\":\"%s\",\"time\":%.3f,\"pid\":%ld,"
                     "\"restart\":%" PRId64 ",\"step\":%" PRId64 ",\"steps\":%" PRId64 ",\"started_at\":%" PRId64
                     ",\"tokens\":%" PRId64 ",\"loss\":%s,\"tok_s\":%s,\"barren\":%s}\n",
                     h->run_id.hex, h->state, h->time, (long)getpid(), h->restart, h->step, h->steps, h->started_at, h->tokens,
                     isfinite(h->loss) ? units_shortest(num[0], h->loss) : "null",
                     isfinite(h->tok_s) ? units_shortest(num[1], h->tok_s) : "null", h->barren ? "true" : "false");
    return fs_write_file(path, text, (size_t)n);
}

int metrics_heartbeat_read(const char *run_dir, struct heartbeat *h)
{
    char path[4200];
    json_t *o = NULL;
    const char *s;
    int rc;

    memset(h, 0, sizeof *h);
    h->loss = h->tok_s = NAN;
    snprintf(path, sizeof path, "%s/heartbeat.json", run_dir);
    TRY(json_load_path(path, &o));
    TRY_OUT(rc, json_get_str(o, path, "run_id", &s));
    if (!hash_parse(s, &h->run_id)) {
        rc = err_set(ERR_DATA, "%s: \"run_id\" is no hash", path);
        goto out;
    }
    TRY_OUT(rc, json_get_str(o, path, "state", &s));
    snprintf(h->state, sizeof h->state, "%s", s);
    TRY_OUT(rc, json_get_num(o, path, "time", &h->time));
    TRY_OUT(rc, json_get_int(o, path, "restart", &h->restart));
    TRY_OUT(rc, json_get_int(o, path, "step", &h->step));
    TRY_OUT(rc, json_get_int(o, path, "steps", &h->steps));
    TRY_OUT(rc, json_get_int(o, path, "started_at", &h->started_at));
    TRY_OUT(rc, json_get_int(o, path, "tokens", &h->tokens));
    TRY_OUT(rc, json_opt_num(o, path, "loss", &h->loss));
    TRY_OUT(rc, json_opt_num(o, path, "tok_s", &h->tok_s));
    rc = json_get_bool(o, path, "barren", &h->barren);
out:
    json_decref(o);
    return rc;
}
