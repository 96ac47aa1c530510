/* card.c -- gathers the facts of a card, and finds the marks in one. */
#include "ckpt/card.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/grow.h"
#include "tok/vocab.h"

#include "ckpt/card_impl.h"

void card_say(struct card *c, const char *sentence)
{
    c->notes = grow_arena(c->arena, c->notes, &c->notes_room, c->n_notes + 1, sizeof *c->notes);
    c->notes[c->n_notes++] = sentence;
}

const char *card_note(const struct card *c, int i) { return i < c->n_notes ? c->notes[i] : NULL; }

/* ---- the model */

static void read_tensors(struct card *c)
{
    const char *types = "";

    for (int64_t i = 0; i < ckpt_n_tensors(c->ckpt); i++) {
        const struct ckpt_tensor *t = ckpt_tensor(c->ckpt, i);
        int64_t n = 1;

        if (t->is_optim)
            continue;
        for (int d = 0; d < t->n_dims; d++)
            n *= t->shape[d];
        c->elements += n;
        c->bytes += t->bytes;
        if (!strstr(types, t->type))
            types = arena_printf(c->arena, "%s%s%s", types, *types ? ", " : "", t->type);
    }
    c->types = types;
}

/* A family that is not ours still has its numbers in config.json. */
static int read_config(struct card *c)
{
    struct fs_blob b;
    int rc = ckpt_kind(c->ckpt) == CKPT_ONE_FILE ? ERR_NOINPUT : ckpt_read_file(c->ckpt, "config.json", &b);

    if (rc == ERR_NOINPUT) {
        c->unknown_why = "there is no config.json";
        err_clear();
        return 0;
    }
    TRY(rc);
    rc = json_load_text("config.json", b.data, b.size, &c->config);
    fs_blob_free(&b);
    TRY(rc);
    rc = model_config_read(&c->cfg, fs_join(c->arena, ckpt_path(c->ckpt), "config.json"), 1);
    if (rc < 0) {
        char *why = arena_strdup(c->arena, err_msg());

        why[strcspn(why, "\n")] = '\0';
        c->unknown_why = why;
        err_clear();
        return rc == ERR_USAGE || rc == ERR_DATA ? 0 : rc;
    }
    TRY(params_build(c->arena, &c->cfg, &c->params));
    c->known = 1;
    return 0;
}

static int read_tokenizer(struct card *c)
{
    struct tok_vocab *v;
    struct fs_blob b;
    int rc = ckpt_kind(c->ckpt) == CKPT_ONE_FILE ? ERR_NOINPUT : ckpt_read_file(c->ckpt, "tokenizer.json", &b);

    if (rc == ERR_NOINPUT) {
        err_clear();
        return 0;
    }
    TRY(rc);
    c->has_tokenizer = 1;
    c->tokenizer = hash_bytes(b.data, b.size);
    if (tok_vocab_parse("tokenizer.json", b.data, b.size, &v) == 0) {
        c->tokenizer_size = tok_vocab_size(v);
        tok_vocab_free(v);
    }
    err_clear();                /* of a kind that is not read here: its hash is enough */
    fs_blob_free(&b);
    return 0;
}

/* ---- the training */

/* Rows that cover every step are the measure; else the formula, with each token
 * attending to all before it in its window, which no cut of documents exceeds. */
static void count_flops(struct card *c)
{
    double s = (double)c->in->seq_len;

    if (c->has_rows && c->step >= 0 && c->rows.steps >= c->step) {
        c->flops = c->rows.flops_spent;
        c->flops_measured = 1;
        return;
    }
    if (!c->known || c->tokens <= 0)
        return;
    c->flops = params_flops(&c->params, c->tokens, s > 0 ? (double)c->tokens * (s + 1) / 2 : 0);
    c->flops_upper = s > 0;
    c->flops_no_attention = !(s > 0);
}

static int read_training(struct card *c)
{
    const struct manifest_info *m;

    c->step = c->tokens = -1;
    if (c->manifest) {
        m = &c->manifest->info;
        c->derived = !strncmp(m->tool, "moe-ckpt ", 9);
        c->step = m->step;
        c->tokens = m->tokens;
        c->ranks = c->derived ? 0 : m->replicas * m->efsdp * m->ep;
    }
    if (c->in->metrics) {
        TRY(card_rows_read(c->arena, c->in->metrics, c->step, &c->rows));
        c->has_rows = c->rows.steps > 0;
        if (c->has_rows && c->rows.steps < c->step)
            card_say(c, arena_printf(c->arena, "%s: rows of %lld of %lld steps only; time and energy are of those", c->in->metrics,
                                     (long long)c->rows.steps, (long long)c->step));
    }
    count_flops(c);
    return 0;
}

double card_hours(const struct card *c)
{
    return c->has_rows ? (c->rows.step_s + c->rows.ckpt_s + c->rows.eval_s) / 3600 : NAN;
}

double card_energy_kwh(const struct card *c)
{
    double pue = c->in->pue > 0 ? c->in->pue : 1;

    return c->in->power_w > 0 && c->ranks > 0 ? c->in->power_w * (double)c->ranks * card_hours(c) * pue / 1000 : NAN;
}

int card_make(const struct ckpt *ck, const struct card_input *in, struct card **out)
{
    struct arena *a = arena_new();
    struct card *c = arena_alloc(a, sizeof *c);
    int rc;

    *c = (struct card){ .ckpt = ck, .in = in, .arena = a, .manifest = ckpt_manifest(ck) };
    c->text = arena_alloc(a, sizeof *c->text);
    read_tensors(c);
    TRY_OUT(rc, read_config(c));
    TRY_OUT(rc, read_tokenizer(c));
    TRY_OUT(rc, read_training(c));
    TRY_OUT(rc, card_data_read(c));
    *out = c;
    return 0;
out:
    card_free(c);
    return rc;
}

static void free_sides(struct card_set *v, int n)
{
    for (int i = 0; v && i < n; i++)
        sidecar_free(v[i].side);
}

void card_free(struct card *c)
{
    if (!c)
        return;
    free_sides(c->train, c->n_train);
    free_sides(c->valid, c->n_valid);
    json_decref(c->config);
    json_free(c->json);
    card_text_free(c->text);
    model_config_fini(&c->cfg);
    arena_free(c->arena);
}

/* ---- marks */

/* What stands behind the mark, without the signs around it. */
static const char *what_of(struct arena *a, const char *s, const char *end)
{
    while (s < end && strchr(": ", *s))
        s++;
    while (end > s && strchr("*_ \r", end[-1]))
        end--;
    return arena_printf(a, "%.*s", (int)(end - s), s);
}

/* The heading, or the bold title of a list entry, that a line belongs to. */
static const char *title_of(struct arena *a, const char *s, const char *end, const char *before)
{
    const char *stop;

    if (s < end && *s == '#' && (s + 1 == end || s[1] == '#' || s[1] == ' ')) {
        while (s < end && (*s == '#' || *s == ' '))
            s++;
        return s < end && strncmp(s, CARD_MARK, strlen(CARD_MARK)) ? arena_printf(a, "%.*s", (int)(end - s), s) : before;
    }
    if (end - s > 4 && !strncmp(s, "- **", 4) && (stop = memmem(s + 4, (size_t)(end - s - 4), "**", 2)))
        return arena_printf(a, "%.*s", (int)(stop - s - 4), s + 4);
    return before;
}

int card_marks(struct arena *a, const char *text, size_t n, struct card_mark **out)
{
    const char *heading = "front matter", *stop = text + n;
    int64_t line = 1, room = 0;
    int found = 0;

    *out = NULL;
    for (const char *s = text; s < stop; line++) {
        const char *end = memchr(s, '\n', (size_t)(stop - s)), *at;

        end = end ? end : stop;
        heading = title_of(a, s, end, heading);
        at = memmem(s, (size_t)(end - s), CARD_MARK, strlen(CARD_MARK));
        if (at) {
            *out = grow_arena(a, *out, &room, found + 1, sizeof **out);
            (*out)[found++] = (struct card_mark){ line, heading, what_of(a, at + strlen(CARD_MARK), end) };
        }
        s = end + (end < stop);
    }
    return found;
}
