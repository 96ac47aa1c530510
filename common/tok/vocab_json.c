/* vocab_json.c -- tokenizer.json written in one way. */
#include "tok/vocab_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"
#include "tok/bytelevel.h"
#include "tok/vocab.h"
#include "tok/vocab_store.h"

/* ---- writing */

void vocab_json_bytelevel(struct json_out *j, const char *key, _Bool trim_offsets)
{
    json_obj(j, key);
    json_put_str(j, "type", "ByteLevel");
    json_put_bool(j, "add_prefix_space", 0);
    json_put_bool(j, "trim_offsets", trim_offsets);
    json_put_bool(j, "use_regex", 0);
    json_obj_end(j);
}

void vocab_json_special(struct json_out *j, int32_t id, const char *content)
{
    json_obj(j, NULL);
    json_put_int(j, "id", id);
    json_put_str(j, "content", content);
    json_put_bool(j, "single_word", 0);
    json_put_bool(j, "lstrip", 0);
    json_put_bool(j, "rstrip", 0);
    json_put_bool(j, "normalized", 0);
    json_put_bool(j, "special", 1);
    json_obj_end(j);
}

static void put_shown(struct json_out *j, const struct tok_vocab *v, int32_t id, char *buf)
{
    json_put_strn(j, NULL, buf, tok_bytes_show(v->bytes[id], v->len[id], buf));
}

/* NFC or nothing, splits, bytes: what recipe.c makes. */
static void put_steps(struct json_out *j, const struct tok_vocab *v)
{
    if (v->n_norm > 0) {
        json_obj(j, "normalizer");
        json_put_str(j, "type", "NFC");
        json_obj_end(j);
    } else {
        json_put_null(j, "normalizer");
    }
    json_obj(j, "pre_tokenizer");
    json_put_str(j, "type", "Sequence");
    json_arr(j, "pretokenizers");
    for (int i = 0; i < v->n_pre - 1; i++) {
        json_obj(j, NULL);
        json_put_str(j, "type", "Split");
        json_obj(j, "pattern");
        json_put_str(j, "Regex", v->pre[i].expression);
        json_obj_end(j);
        json_put_str(j, "behavior", "Isolated");
        json_put_bool(j, "invert", 0);
        json_obj_end(j);
    }
    vocab_json_bytelevel(j, NULL, 0);
    json_arr_end(j);
    json_obj_end(j);
}

char *tok_vocab_text(const struct tok_vocab *v, size_t *n)
{
    size_t longest = 1;
    for (int32_t i = 0; i < v->size; i++)
        if (v->len[i] > longest)
            longest = v->len[i];
    char *buf = malloc(2 * longest + 1);
    struct json_out *j = json_new_pretty();
    arena_must(buf);
    json_obj(j, NULL);
    json_put_str(j, "version", "1.0");
    json_put_null(j, "truncation");
    json_put_null(j, "padding");
    json_arr(j, "added_tokens");
    for (int i = 0; i < v->n_specials; i++)
        vocab_json_special(j, v->special[i], (const char *)v->bytes[v->special[i]]);
    json_arr_end(j);
    put_steps(j, v);
    json_put_null(j, "post_processor");
    vocab_json_bytelevel(j, "decoder", 0);
    json_obj(j, "model");
    json_put_str(j, "type", "BPE");
    json_put_null(j, "dropout");
    json_put_null(j, "unk_token");
    json_put_null(j, "continuing_subword_prefix");
    json_put_null(j, "end_of_word_suffix");
    json_put_bool(j, "fuse_unk", 0);
    json_put_bool(j, "byte_fallback", 0);
    json_put_bool(j, "ignore_merges", 0);
    json_obj(j, "vocab");
    for (int32_t i = 0; i < v->size; i++) {
        if (tok_vocab_is_special(v, i)) {
            json_put_int(j, (const char *)v->bytes[i], i);
            continue;
        }
        buf[tok_bytes_show(v->bytes[i], v->len[i], buf)] = '\0';
        json_put_int(j, buf, i);
    }
    json_obj_end(j);
    json_arr(j, "merges");
    for (int64_t i = 0; i < v->n_merges; i++) {
        json_arr(j, NULL);
        put_shown(j, v, v->merges[i].a, buf);
        put_shown(j, v, v->merges[i].b, buf);
        json_arr_end(j);
    }
    json_arr_end(j);
    json_obj_end(j);
    json_obj_end(j);
    const char *text = json_text(j, n);
    char *copy = malloc(*n + 2);
    arena_must(copy);
    memcpy(copy, text, *n);
    if (*n == 0 || copy[*n - 1] != '\n')
        copy[(*n)++] = '\n';
    copy[*n] = '\0';
    json_free(j);
    free(buf);
    return copy;
}
