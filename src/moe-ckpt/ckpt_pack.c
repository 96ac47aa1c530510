/* ckpt_pack.c -- moe-ckpt pack and unpack: checkpoints as one compressed stream. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/out.h"
#include "base/units.h"
#include "ckpt/packing.h"

#include "ckpt_cmds.h"

struct pack { struct opt_common common; const char *output, *delta; _Bool force, json; };

static const struct opt pack_opts[] = {
    OPT_COMMON,
    { OPT_FLAG, 'f', "force", NULL, NULL, "replace the file, or write to a terminal", offsetof(struct pack, force), 0, 0 },
    { OPT_STR, 'o', "output", "FILE", "-", "where to write; - is standard output", offsetof(struct pack, output), 0, 0 },
    { OPT_STR, 0, "delta", "CKPT", NULL, "pack the difference to this checkpoint", offsetof(struct pack, delta), 0, 0 },
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object on standard output; needs -o FILE", offsetof(struct pack, json), 0, 0 },
    OPT_END
};

static int to_stdout(void *ctx, const void *data, size_t n)
{
    (void)ctx;
    return out_write(data, n);
}

static int to_file(void *ctx, const void *data, size_t n) { return fs_out_write(ctx, data, n); }

struct done { const char *path, *how; const struct packing *p; double seconds; };

/* What was written, and by which of the two. */
static int say(const struct done *d, _Bool json)
{
    static const struct table_col cols[] = {
        { "path", "path", 's', 0 }, { "how", "how", 's', 0 }, { "files", "files", 'i', 0 }, { "tensors", "tensors", 'i', 0 },
        { "bytes", "bytes", 'b', 0 }, { "packed_bytes", "packed", 'b', 0 }, { "seconds", "seconds", 'f', 3 },
    };
    const struct packing *p = d->p;
    char raw[32], packed[32], rate[32];
    struct table *t;

    if (!json) {
        log_info("%s: %s, packed %s (%.3f to 1), %.2f s, %s/s", d->path, units_bytes(raw, (double)p->raw_bytes),
                 units_bytes(packed, (double)p->packed_bytes), p->packed_bytes ? (double)p->raw_bytes / (double)p->packed_bytes : 1.0,
                 d->seconds, units_bytes(rate, (double)p->raw_bytes / (d->seconds > 1e-6 ? d->seconds : 1e-6)));
        return 0;
    }
    t = table_begin(TABLE_JSON, "moe.ckpt-packed/1", cols, sizeof cols / sizeof *cols);
    table_str(t, d->path);
    table_str(t, d->how);
    table_int(t, p->n_files);
    table_int(t, p->n_tensors);
    table_int(t, (int64_t)p->raw_bytes);
    table_int(t, (int64_t)p->packed_bytes);
    table_num(t, d->seconds);
    return table_end(t);
}

static int pack(void *options, int argc, char **argv)
{
    const struct pack *o = options;
    struct ckpt_cmds_bar bar = { "pack", NULL };
    struct arena *a = arena_new();
    struct packing p = { .tool = ckpt_cmds_maker(a, "pack").tool, .progress = ckpt_cmds_progress, .ctx = &bar };
    struct ckpt *c = NULL, *base = NULL;
    struct fs_out *f = NULL;
    double start = clock_s();
    _Bool piped = !strcmp(o->output, "-");
    int rc;

    (void)argc;
    if (o->json && piped) {
        rc = err_set(ERR_USAGE, "--json needs -o FILE: standard output is the stream");
        goto out;
    }
    TRY_OUT(rc, ckpt_cmds_open(argv[0], &c));
    if (o->delta)
        TRY_OUT(rc, ckpt_cmds_open(o->delta, &base));
    p.base = base;
    if (piped) {
        TRY_OUT(rc, out_binary(o->force));
        rc = packing_write(c, to_stdout, NULL, &p);
    } else {
        if (fs_exists(o->output) && !o->force) {
            rc = err_set(ERR_CREATE, "%s: is there already; -f replaces it", o->output);
            goto out;
        }
        TRY_OUT(rc, fs_out_open(o->output, &f));
        rc = packing_write(c, to_file, f, &p);
        if (rc == 0)
            rc = fs_out_commit(f);
        else
            fs_out_abort(f);
    }
    ckpt_cmds_progress_end(&bar);
    if (rc == 0)
        rc = say(&(struct done){ piped ? ckpt_path(c) : o->output, "pack", &p, clock_s() - start }, o->json);
out:
    ckpt_close(c);
    ckpt_close(base);
    arena_free(a);
    return rc;
}

const struct opt_cmd ckpt_pack_cmd = {
    "pack", "compress a checkpoint into one stream", "[-f] [-o FILE [--json]] [--delta CKPT] CKPT",
    "moe-ckpt pack -o a.moepack runs/a/latest\n"
    "moe-ckpt pack --delta runs/a/ckpt/step-00000100 runs/a > b.moepack\n",
    pack_opts, sizeof(struct pack), 1, 1, pack
};

struct unpack { struct opt_common common; const char *base, *tensor; _Bool force, json; };

static const struct opt unpack_opts[] = {
    OPT_COMMON,
    { OPT_FLAG, 'f', "force", NULL, NULL, "write a tensor to a terminal too", offsetof(struct unpack, force), 0, 0 },
    { OPT_STR, 'b', "base", "CKPT", NULL, "what the stream was packed against with --delta", offsetof(struct unpack, base), 0, 0 },
    { OPT_STR, 't', "tensor", "NAME", NULL, "only the bytes of this tensor, to standard output", offsetof(struct unpack, tensor), 0, 0 },
    { OPT_FLAG, 0, "json", NULL, NULL, "one JSON object; not with --tensor", offsetof(struct unpack, json), 0, 0 },
    OPT_END
};

static int unpack_all(const char *path, const char *to, struct packing *p)
{
    int fd = STDIN_FILENO, rc;

    if (!strcmp(path, "-"))
        return packing_read(fd, "standard input", to, p);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fs_no_input(path);
    rc = packing_read(fd, path, to, p);
    close(fd);
    return rc;
}

static int unpack(void *options, int argc, char **argv)
{
    const struct unpack *o = options;
    struct ckpt_cmds_bar bar = { "unpack", NULL };
    struct packing p = { .progress = o->tensor ? NULL : ckpt_cmds_progress, .ctx = &bar };
    struct ckpt *base = NULL;
    double start = clock_s();
    int rc;

    if (argc != (o->tensor ? 1 : 2))
        return err_set(ERR_USAGE, o->tensor ? "--tensor takes one operand: FILE" : "expected FILE and DIR, or -t NAME FILE (try 'moe-ckpt unpack --help')");
    if (o->json && o->tensor)
        return err_set(ERR_USAGE, "--json and --tensor exclude each other");
    if (o->base)
        TRY(ckpt_cmds_open(o->base, &base));
    p.base = base;
    if (o->tensor) {
        TRY_OUT(rc, out_binary(o->force));
        rc = packing_tensor(argv[0], o->tensor, to_stdout, NULL, &p);
    } else {
        rc = unpack_all(argv[0], argv[1], &p);
        ckpt_cmds_progress_end(&bar);
        if (rc == 0)
            rc = say(&(struct done){ argv[1], "unpack", &p, clock_s() - start }, o->json);
    }
out:
    ckpt_close(base);
    return rc;
}

const struct opt_cmd ckpt_unpack_cmd = {
    "unpack", "make a directory of a packed stream again", "[-b CKPT] [--json] FILE DIR, or -t NAME FILE",
    "moe-ckpt unpack a.moepack a\n"
    "ssh host cat a.moepack | moe-ckpt unpack - a\n"
    "moe-ckpt unpack -t model.norm.weight a.moepack | od -t fF\n",
    unpack_opts, sizeof(struct unpack), 1, 2, unpack
};
