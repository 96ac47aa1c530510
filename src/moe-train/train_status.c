/* train_status.c -- moe-train status: what a run is doing, from its files alone. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/out.h"
#include "base/progress.h"
#include "base/units.h"
#include "train_cmds.h"
#include "train_facts.h"

struct status_opts {
    struct opt_common common;
    _Bool json;
};

static const struct opt opts[] = {
    OPT_COMMON,
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object", offsetof(struct status_opts, json), 0, 0 },
    OPT_END
};

#define SPARK 40

/* Losses of the last rows of metrics.jsonl, at most n of them; returns how many. */
static int last_losses(struct arena *a, const char *run, double *v, int n)
{
    struct fs_blob b = { 0 };
    int k = 0;

    if (fs_read(fs_join(a, run, "metrics.jsonl"), &b) < 0) {
        err_clear();
        return 0;
    }
    const char *end = b.data + b.size;
    double all[4096];
    int n_all = 0;
    for (const char *at = b.data; at < end;) {
        const char *nl = memchr(at, '\n', (size_t)(end - at));
        const char *stop = nl ? nl : end;
        const char *key = memmem(at, (size_t)(stop - at), "\"moe.metrics/1\"", 15);
        const char *loss = key ? memmem(at, (size_t)(stop - at), "\"loss\":", 7) : NULL;
        if (loss) {
            if (n_all == 4096) {
                for (int i = 0; i < 2048; i++)
                    all[i] = all[2 * i];
                n_all = 2048;
            }
            all[n_all++] = strtod(loss + 7, NULL);
        }
        at = stop + 1;
    }
    for (int i = 0; i < n && n_all > 0; i++, k++)
        v[i] = all[(int64_t)i * n_all / (n < n_all ? n : n_all) < n_all ? (int64_t)i * n_all / (n < n_all ? n : n_all) : n_all - 1];
    fs_blob_free(&b);
    return n_all < n ? n_all : k;
}

static int print_json(const struct train_facts *f)
{
    struct json_out *j = json_new();

    json_obj(j, NULL);
    json_put_str(j, "schema", "moe.status/1");
    json_put_str(j, "state", f->state);
    json_put_str(j, "run_id", f->h.run_id.hex);
    json_put_int(j, "restart", f->h.restart);
    json_put_int(j, "step", f->h.step);
    json_put_int(j, "steps", f->h.steps);
    json_put_int(j, "tokens", f->h.tokens);
    json_put_num(j, "loss", f->h.loss);
    json_put_num(j, "tok_s", f->h.tok_s);
    json_put_num(j, "heartbeat_age_s", rint(10 * ((double)time(NULL) - f->h.time)) / 10);
    json_put_str(j, "owner", f->live ? f->owner : NULL);
    json_arr(j, "checkpoints");
    for (int i = 0; i < f->n_steps; i++)
        json_put_int(j, NULL, f->steps[i]);
    json_arr_end(j);
    json_arr(j, "light");
    for (int i = 0; i < f->n_light; i++)
        json_put_int(j, NULL, f->light[i]);
    json_arr_end(j);
    json_put_nonfinite(j);
    json_obj_end(j);
    int rc = out_printf("%s\n", json_text(j, NULL));
    json_free(j);
    return rc;
}

static int print_human(struct arena *a, const char *run, const struct train_facts *f)
{
    double v[SPARK];
    int n = last_losses(a, run, v, SPARK);
    char b[2][32], spark[4 * SPARK + 1];
    double age = (double)time(NULL) - f->h.time;

    TRY(out_printf("%s: %s, step %" PRId64 " of %" PRId64 " (%.0f %%), %s tokens, restarts %" PRId64 "\n", run, f->state, f->h.step,
                   f->h.steps, f->h.steps ? 100.0 * (double)f->h.step / (double)f->h.steps : 0.0, units_count(b[0], f->h.tokens),
                   f->h.restart));
    if (f->live) {
        double eta = train_facts_eta(f);
        TRY(out_printf("  owner     %s, last sign of life %.0f s ago\n", f->owner, age));
        if (isfinite(eta))
            TRY(out_printf("  speed     %s tokens/s, %s left\n", units_count(b[0], (int64_t)f->h.tok_s), units_seconds(b[1], eta)));
    }
    if (n > 1)
        TRY(out_printf("  loss      %s %.4f\n", progress_spark(spark, v, n, n), f->h.loss));
    if (f->n_steps)
        TRY(out_printf("  saved     %d checkpoint%s, newest step %" PRId64 "\n", f->n_steps, f->n_steps == 1 ? "" : "s",
                       f->steps[f->n_steps - 1]));
    else
        TRY(out_printf("  saved     no checkpoint%s yet\n", f->n_light ? " to go on from" : ""));
    if (f->n_light)
        TRY(out_printf("            %d light one%s, newest step %" PRId64 "\n", f->n_light, f->n_light == 1 ? "" : "s",
                       f->light[f->n_light - 1]));
    return 0;
}

static int run(void *p, int argc, char **argv)
{
    struct status_opts *o = p;
    struct arena *a = arena_new();
    int rc = 0;

    for (int i = 0; i < argc && rc >= 0; i++) {
        struct train_facts f = { .live = 0 };
        rc = train_facts_read(a, argv[i], &f);
        if (rc >= 0)
            rc = o->json ? print_json(&f) : print_human(a, argv[i], &f);
    }
    arena_free(a);
    return rc;
}

const struct opt_cmd train_status_cmd = {
    .name = "status", .summary = "what a run is doing, read from its files",
    .synopsis = "[options] RUN ...",
    .examples = "moe-train status runs/a",
    .opts = opts, .opts_size = sizeof(struct status_opts), .min_operands = 1, .max_operands = -1, .run = run,
};
