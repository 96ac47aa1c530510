/* train_sample.c -- moe-train sample: continues prompts, token stream in and out. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/out.h"
#include "train_cmds.h"
#include "train/sample.h"

struct sample_cmd_opts {
    struct opt_common common;
    const char *from, *device;
    int64_t threads, n, top_k, seed;
    double temperature, top_p;
    _Bool ignore_eod, force;
};

static const struct opt opts[] = {
    OPT_COMMON,
    { OPT_STR, 0, "from", "PATH", NULL, "run, checkpoint or Hugging Face directory", offsetof(struct sample_cmd_opts, from), 0, 0 },
    { OPT_INT, 'n', "tokens", "N", "100", "tokens to add to each prompt", offsetof(struct sample_cmd_opts, n), 1, 1e9 },
    { OPT_FLOAT, 't', "temperature", "T", "0.8", "0 takes the most likely token", offsetof(struct sample_cmd_opts, temperature), 0, 100 },
    { OPT_INT, 0, "top-k", "K", "0", "draw from the K most likely; 0: all", offsetof(struct sample_cmd_opts, top_k), 0, 1e9 },
    { OPT_FLOAT, 0, "top-p", "P", "0.95", "draw from the most likely that make up P", offsetof(struct sample_cmd_opts, top_p), 0.001, 1 },
    { OPT_INT, 's', "seed", "N", "1", "seed of the draws", offsetof(struct sample_cmd_opts, seed), 0, 9007199254740992.0 },
    { OPT_FLAG, 0, "ignore-eod", NULL, NULL, "go on after the end of a document", offsetof(struct sample_cmd_opts, ignore_eod), 0, 0 },
    TRAIN_DEVICE_OPTS(struct sample_cmd_opts),
    { OPT_FLAG, 'f', "force", NULL, NULL, "write tokens to a terminal", offsetof(struct sample_cmd_opts, force), 0, 0 },
    OPT_END
};

static int put_ids(const int32_t *ids, int64_t n)
{
    TRY(out_write(ids, (size_t)n * sizeof *ids));
    return out_flush();
}

/* One prompt and its continuation; the end-of-document token that stops it is
 * not written, that between two outputs is. */
static int one(struct sampler *s, const struct trainer *t, const int32_t *ids, int64_t n, int64_t number)
{
    _Bool done = 0;
    int32_t id;

    if (number > 0 && t->eod >= 0) {
        int32_t eod = (int32_t)t->eod;
        TRY(put_ids(&eod, 1));
    }
    TRY(sample_prompt(s, ids, n, number));
    TRY(put_ids(ids, n));
    while (!done) {
        TRY(sample_next(s, &id, &done));
        if (id == t->eod && done)
            break;
        TRY(put_ids(&id, 1));
    }
    return 0;
}

static int64_t longest(const int32_t *ids, int64_t n, int64_t eod)
{
    int64_t best = 0, k = 0;

    for (int64_t i = 0; i < n; i++) {
        k = ids[i] == eod ? 0 : k + 1;
        best = k > best ? k : best;
    }
    return best;
}

static int all(struct trainer *t, const struct sample_options *so, const int32_t *ids, int64_t n)
{
    struct sampler *s = NULL;
    int64_t from = 0, number = 0;
    int rc = 0;

    TRY(sample_new(t, so, &s));
    for (int64_t i = 0; i <= n && rc >= 0; i++) {
        if (i < n && ids[i] != t->eod)
            continue;
        if (i > from)
            rc = one(s, t, ids + from, i - from, number++);
        from = i + 1;
    }
    sample_free(s);
    return rc;
}

static int64_t eod_of(const char *from)
{
    struct fs_blob b = { 0 };
    struct ckpt *k = NULL;
    struct tok_vocab *v = NULL;
    const char *content;
    int64_t eod = -1;

    if (ckpt_open(from, 0, &k) == 0 && ckpt_read_file(k, "tokenizer.json", &b) == 0 &&
        tok_vocab_parse("tokenizer.json", b.data, b.size, &v) == 0 && tok_vocab_n_specials(v) > 0)
        eod = tok_vocab_special(v, 0, &content);
    tok_vocab_free(v);
    fs_blob_free(&b);
    ckpt_close(k);
    err_clear();
    return eod;
}

static int run(void *p, int argc, char **argv)
{
    struct sample_cmd_opts *o = p;
    struct run_config c = { 0 };
    struct trainer *t = NULL;
    struct fs_blob in = { 0 };
    int rc;

    if (!o->from)
        return err_set(ERR_USAGE, "no model: --from PATH");
    TRY(out_binary(o->force));
    TRY_OUT(rc, run_config_from(o->from, NULL, argv, argc, &c));
    TRY_OUT(rc, fs_read("-", &in));
    if (in.size % sizeof(int32_t)) {
        rc = err_set(ERR_DATA, "standard input: %zu bytes are no whole number of 4-byte tokens", in.size);
        goto out;
    }
    int64_t n = (int64_t)(in.size / sizeof(int32_t)), long_one = longest((int32_t *)(void *)in.data, n, eod_of(o->from));
    if (long_one == 0) {
        rc = err_set(ERR_NOINPUT, "no prompt on standard input");
        goto out;
    }
    /* One sequence is enough room for a piece of a prompt. */
    c.micro_tokens = c.data.seq_len;
    struct trainer_options to = { .what = TRAINER_MODEL | TRAINER_DECODE, .device = o->device, .threads = (int)o->threads,
                                  .max_positions = long_one + o->n };
    if (to.max_positions > c.data.seq_len)
        log_info("prompt and continuation reach %lld tokens; the model was trained on sequences of %lld",
                 (long long)to.max_positions, (long long)c.data.seq_len);
    TRY_OUT(rc, train_open_from(o->from, &c, &to, 0, &t));
    struct sample_options so = { o->n, o->temperature, o->top_k, o->top_p, o->seed, o->ignore_eod };
    rc = all(t, &so, (int32_t *)(void *)in.data, n);
out:
    trainer_close(t);
    fs_blob_free(&in);
    run_config_fini(&c);
    return rc;
}

const struct opt_cmd train_sample_cmd = {
    .name = "sample", .summary = "continue prompts: token stream in, token stream out",
    .synopsis = "--from PATH [options] < tokens > tokens",
    .examples = "echo \"Es war einmal\" | moe-tokenize encode -t tok.json | moe-train sample --from runs/a |\n"
                "  moe-tokenize decode -t tok.json",
    .opts = opts, .opts_size = sizeof(struct sample_cmd_opts), .min_operands = 0, .max_operands = -1, .run = run,
};
