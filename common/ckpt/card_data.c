/* card_data.c -- sets of text: how much of each, and in which languages.
 *
 * Tokens are those that MANIFEST names by their hash; a sidecar on the disk that
 * has another hash tells of other tokens and is left out.  Languages come from
 * names of files: de.txt, train.de.txt, text/de/0001.txt. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "data/mixture.h"

#include "ckpt/card_impl.h"

/* ---- languages */

static const struct { char code[3]; const char *name; } languages[] = {
    { "bg", "Bulgarian" }, { "cs", "Czech" }, { "da", "Danish" }, { "de", "German" }, { "el", "Greek" }, { "en", "English" },
    { "es", "Spanish" }, { "et", "Estonian" }, { "fi", "Finnish" }, { "fr", "French" }, { "ga", "Irish" }, { "hr", "Croatian" },
    { "hu", "Hungarian" }, { "it", "Italian" }, { "lt", "Lithuanian" }, { "lv", "Latvian" }, { "mt", "Maltese" }, { "nl", "Dutch" },
    { "pl", "Polish" }, { "pt", "Portuguese" }, { "ro", "Romanian" }, { "sk", "Slovak" }, { "sl", "Slovenian" }, { "sv", "Swedish" },
    { "bs", "Bosnian" }, { "ca", "Catalan" }, { "cy", "Welsh" }, { "eu", "Basque" }, { "gl", "Galician" }, { "is", "Icelandic" },
    { "mk", "Macedonian" }, { "nb", "Norwegian Bokmål" }, { "nn", "Norwegian Nynorsk" }, { "no", "Norwegian" }, { "sq", "Albanian" },
    { "sr", "Serbian" }, { "tr", "Turkish" }, { "uk", "Ukrainian" },
};

#define N_LANGUAGES (sizeof languages / sizeof *languages)

const char *card_data_language(const char *code)
{
    for (size_t i = 0; i < N_LANGUAGES; i++)
        if (!strcmp(code, languages[i].code))
            return languages[i].name;
    return NULL;
}

/* ISO 639-1, and 639-3 where there are no two letters. */
_Bool card_data_is_language(const char *code)
{
    size_t n = strspn(code, "abcdefghijklmnopqrstuvwxyz");

    return (n == 2 || n == 3) && !code[n];
}

static const char *known(const char *part, size_t n)
{
    for (size_t i = 0; n == 2 && i < N_LANGUAGES; i++)
        if (!memcmp(part, languages[i].code, 2))
            return languages[i].code;
    return NULL;
}

static _Bool is_ending(const char *part, size_t n)
{
    static const char *const endings[] = { "txt", "text", "md", "json", "jsonl", "csv", "tsv", "gz", "zst", "xz", "bz2", "bin", "idx" };

    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (strlen(endings[i]) == n && !memcmp(part, endings[i], n))
            return 1;
    return 0;
}

/* The code in a name, or NULL.  A country behind it (pt-BR) does not matter. */
static const char *language_of(const char *path)
{
    const char *base = fs_base(path), *end = base + strlen(base), *at = end, *code;

    for (;;) {
        at = end;
        while (at > base && !strchr("._-", at[-1]))
            at--;
        if (at == base || !(is_ending(at, (size_t)(end - at)) || (end - at == 2 && at[0] >= 'A' && at[0] <= 'Z' && at[1] >= 'A' && at[1] <= 'Z')))
            break;
        end = at - 1;
    }
    code = known(at, (size_t)(end - at));
    if (!code && base[0] && base[1] && base[2] == '.')
        code = known(base, 2);
    if (!code && base - path >= 3 && (base - path == 3 || base[-4] == '/'))
        code = known(base - 3, 2);
    return code;
}

static struct card_lang *lang_at(struct card *c, const char *code)
{
    for (int i = 0; i < c->n_langs; i++)
        if (!strcmp(c->langs[i].code, code))
            return &c->langs[i];
    c->langs[c->n_langs] = (struct card_lang){ .code = code };
    return &c->langs[c->n_langs++];
}

/* Tokens of a set with several languages are shared out by bytes. */
static void add_languages(struct card *c, const struct card_set *s)
{
    const struct tokenfile_info *f = &s->side->info;
    const char *whole = language_of(s->path), *first = NULL;
    double bytes = 0;
    _Bool mixed = 0;

    for (int i = 0; i < f->n_inputs; i++) {
        const char *code = language_of(f->inputs[i].path);

        code = code ? code : whole;
        bytes += (double)f->inputs[i].bytes;
        if (i && (!code || !first || strcmp(code, first)))
            mixed = 1;
        first = i ? first : code;
    }
    for (int i = 0; i < f->n_inputs; i++) {
        const char *code = language_of(f->inputs[i].path);
        struct card_lang *l;

        c->text_bytes_all += (int64_t)f->inputs[i].bytes;
        if (!code && !whole)
            continue;
        l = lang_at(c, code ? code : whole);
        l->bytes += (int64_t)f->inputs[i].bytes;
        l->tokens += bytes > 0 ? (double)f->tokens * (double)f->inputs[i].bytes / bytes : 0;
        l->estimated |= mixed;
        c->text_bytes += (int64_t)f->inputs[i].bytes;
    }
}

static int by_bytes(const void *a, const void *b)
{
    const struct card_lang *x = a, *y = b;

    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : strcmp(x->code, y->code);
}

/* ---- sets */

static void read_sidecar(struct card *c, struct card_set *s)
{
    const char *path = arena_printf(c->arena, "%s.json", s->path);
    struct hash is;

    if (sidecar_read(path, &s->side) < 0) {
        card_say(c, arena_printf(c->arena, "%s; its documents, bytes and languages are not in the card", err_msg()));
        err_clear();
        s->side = NULL;
        return;
    }
    is = sidecar_hash(s->side);
    if (s->hash.hex[0] && !hash_eq(&is, &s->hash)) {
        card_say(c, arena_printf(c->arena, "%s: tells of other tokens than the checkpoint was trained on; left out", path));
        sidecar_free(s->side);
        s->side = NULL;
        return;
    }
    s->hash = is;
}

/* Weights are known when the configuration names the same sets. */
static _Bool same_sets(const struct card *c)
{
    if (c->in->n_train != c->n_train)
        return 0;
    for (int i = 0; i < c->n_train; i++)
        if (strcmp(c->in->train[i].path, c->train[i].path))
            return 0;
    return 1;
}

static void share_out(struct card *c)
{
    const struct card_input *in = c->in;
    double *w = arena_array(c->arena, (size_t)c->n_train + 1, sizeof *w), sum = 0;
    struct mixture *m;
    int64_t n;

    if (c->n_train == 1)
        w[0] = 1;
    else if (same_sets(c))
        for (int i = 0; i < c->n_train; i++)
            w[i] = in->train[i].weight;
    for (int i = 0; i < c->n_train; i++)
        sum += w[i];
    if (!(sum > 0))
        return;
    n = c->manifest && in->seq_len > 0 ? c->manifest->info.data_next_step * (in->tokens_per_step / in->seq_len) : -1;
    m = n >= 0 ? mixture_new(c->arena, w, c->n_train) : NULL;
    for (int i = 0; i < c->n_train; i++) {
        c->train[i].share = w[i] / sum;
        if (m)
            c->train[i].samples = c->n_train == 1 ? n : mixture_count(m, i, n);
    }
}

static int own_languages(struct card *c)
{
    const char *s = c->in->languages;

    while (s && *s) {
        size_t n = strcspn(s, ",");
        char *code = arena_alloc(c->arena, n + 1);

        memcpy(code, s, n);
        if (!card_data_is_language(code))
            return err_set(ERR_USAGE, "--languages: \"%s\" is no language code such as de; codes are separated by commas", code);
        lang_at(c, code);
        s += n + (s[n] == ',');
    }
    return 0;
}

int card_data_read(struct card *c)
{
    const struct manifest_info *m = c->manifest ? &c->manifest->info : NULL;
    size_t own = c->in->languages ? strlen(c->in->languages) / 2 + 1 : 0;

    c->n_train = m ? m->n_sets : c->in->n_train;
    c->train = arena_array(c->arena, (size_t)c->n_train + 1, sizeof *c->train);
    for (int i = 0; i < c->n_train; i++) {
        c->train[i] = (struct card_set){ .path = m ? m->sets[i].path : c->in->train[i].path, .share = -1, .samples = -1 };
        if (m) {
            c->train[i].hash = m->sets[i].hash;
            c->train[i].windows = m->sets[i].windows;
        }
        read_sidecar(c, &c->train[i]);
    }
    c->n_valid = c->in->n_valid;
    c->valid = arena_array(c->arena, (size_t)c->n_valid + 1, sizeof *c->valid);
    for (int i = 0; i < c->n_valid; i++) {
        c->valid[i] = (struct card_set){ .name = c->in->valid[i].name, .path = c->in->valid[i].path, .share = -1, .samples = -1 };
        read_sidecar(c, &c->valid[i]);
    }
    share_out(c);
    c->langs = arena_array(c->arena, N_LANGUAGES + own, sizeof *c->langs);
    TRY(own_languages(c));
    for (int i = 0; i < c->n_train; i++)
        if (c->train[i].side)
            add_languages(c, &c->train[i]);
    qsort(c->langs, (size_t)c->n_langs, sizeof *c->langs, by_bytes);
    return 0;
}
