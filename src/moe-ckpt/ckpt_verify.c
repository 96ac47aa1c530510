/* ckpt_verify.c -- moe-ckpt verify: the answer is yes (0) or no (1).
 *
 * Damage is the answer here, not an accident: every problem is one line on
 * stderr and the status is 1.  A RUN is judged by what `latest` names, never by
 * an older checkpoint that happens to be whole. */
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/out.h"
#include "base/problems.h"
#include "base/units.h"
#include "ckpt/verify.h"

#include "ckpt_cmds.h"


struct verify {
    struct opt_common common;
    _Bool structure, json, tsv;
};

static const struct opt opts[] = {
    OPT_COMMON,
    { OPT_FLAG, 's', "structure", NULL, NULL, "check structure only, not checksums", offsetof(struct verify, structure), 0, 0 },
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object per checkpoint", offsetof(struct verify, json), 0, 0 },
    { OPT_FLAG, 0, "tsv", NULL, NULL, "tab-separated columns", offsetof(struct verify, tsv), 0, 0 },
    OPT_END
};

static const struct table_col cols[] = {
    { "checkpoint", "checkpoint", 's', 0 },
    { "ok", "ok", '?', 0 },
    { "checksums", "checksums", '?', 0 },
    { "problems", "problems", 'i', 0 },
    { "files", "files", 'i', 0 },
    { "tensors", "tensors", 'i', 0 },
    { "parts", "parts", 'i', 0 },
    { "bytes", "bytes", 'b', 0 },
    { "seconds", "seconds", 'f', 3 },
};

static void row(struct table *t, const char *dir, const struct ckpt_verify *v, _Bool ok, double seconds)
{
    table_str(t, dir);
    table_int(t, ok);
    table_int(t, v->has_manifest && !v->structure_only);
    table_int(t, v->n_problems);
    table_int(t, v->n_files);
    table_int(t, v->n_tensors);
    table_int(t, v->n_parts);
    table_int(t, (int64_t)v->bytes);
    table_num(t, seconds);
}

static void sentence(const char *dir, const struct ckpt_verify *v, double seconds)
{
    char bytes[32], rate[32], files[32], tensors[32];

    out_printf("%s: %s: %s%s file%s, %s tensor%s", dir, v->structure_only || !v->has_manifest ? "structure is sound" : "ok",
               v->kind == MANIFEST_LIGHT ? "light, " : v->kind == MANIFEST_MAJOR ? "major, " : "",
               units_count(files, v->n_files), v->n_files == 1 ? "" : "s",
               units_count(tensors, v->n_tensors), v->n_tensors == 1 ? "" : "s");
    if (v->structure_only || !v->has_manifest)
        out_printf("; no checksums were compared\n");
    else
        out_printf(", %s hashed in %.2f s (%s/s)\n",
                   units_bytes(bytes, (double)v->bytes), seconds,
                   units_bytes(rate, (double)v->bytes / (seconds > 1e-6 ? seconds : 1e-6)));
}

static int one(const struct verify *o, const char *path, struct table *table)
{
    struct problems told = { 0 };
    struct ckpt_verify v = { .problem = problems_add, .progress = problems_progress, .ctx = &told, .structure_only = o->structure };
    struct arena *a = arena_new();
    double start = clock_s();
    char *dir;
    _Bool ok;
    int rc;

    rc = ckpt_resolve(a, path, CKPT_NO_FALLBACK, &dir, NULL);
    if (rc == ERR_DATA)         /* a latest that is damaged is told of whole; one that leads nowhere, at once */
        rc = dir && fs_is_dir(dir) ? 0 : err_set(ERR_NO, "%s", err_msg());
    if (rc == 0)
        rc = ckpt_verify(dir, &v);
    problems_progress_end(&told);
    if (rc < 0)
        goto out;
    ok = v.n_problems == 0 && (v.has_manifest || o->structure);
    if (table)
        row(table, dir, &v, ok, clock_s() - start);
    else if (ok)
        sentence(dir, &v, clock_s() - start);
    if (v.n_problems == 1)
        rc = err_set(ERR_NO, "%s", told.first);
    else if (v.n_problems)
        rc = err_set(ERR_NO, "%s: damaged: %lld problems", dir, (long long)v.n_problems);
    else if (!ok)
        rc = err_set(ERR_NO, "%s: structure is sound, but no checksums (no MANIFEST.json); --structure accepts that", dir);
out:
    arena_free(a);
    return rc;
}

static int verify(void *options, int argc, char **argv)
{
    const struct verify *o = options;
    struct err_state last = { 0 };
    int worst = 0;
    struct table *table = NULL;
    enum table_form form;

    TRY(ckpt_cmds_form(o->json, o->tsv, &form));
    if (form != TABLE_HUMAN)
        table = table_begin(form, "moe.ckpt-verify/1", cols, sizeof cols / sizeof *cols);
    for (int i = 0; i < argc; i++) {
        if (one(o, argv[i], table) >= 0)
            continue;
        if (worst)
            log_error("%s", last.msg);
        err_take(&last);        /* main prints the last one */
        if (!worst || worst == ERR_NO)
            worst = last.code;  /* what kept us from an answer outweighs the answer no */
    }
    if (table)
        TRY(table_end(table));
    return worst ? err_set(worst, "%s", last.msg) : 0;
}

const struct opt_cmd ckpt_verify_cmd = {
    "verify", "check every byte of checkpoints against their checksums", "[-s] [--json | --tsv] CKPT...",
    "moe-ckpt verify runs/a\n"
    "moe-ckpt verify runs/a/ckpt/step-*\n"
    "moe-ckpt verify --structure hf/\n",
    opts, sizeof(struct verify), 1, -1, verify
};
