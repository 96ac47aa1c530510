/* vocab_load.c -- which kind of vocabulary a file is, told by what it holds. */
#include <ctype.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/json.h"
#include "tok/vocab_read.h"

static int parse_json(const char *name, const char *text, size_t n, struct tok_vocab **out)
{
    _Bool nul = memmem(text, n, "\\u0000", 6) != NULL;
    struct tok_lists l = { 0 };
    json_t *root = NULL;
    int rc;
    TRY_OUT(rc, tok_lists_read(name, text, n, nul, &l, &root));
    _Bool tekken = json_object_get(root, "model") == NULL && json_is_array(json_object_get(root, "vocab")) &&
                   json_object_get(json_object_get(root, "config"), "pattern") != NULL;
    if (nul && !tekken) {       /* where a NUL has no meaning: token_str alone holds one, and is not read */
        json_decref(root);
        tok_lists_free(&l);
        TRY_OUT(rc, tok_lists_read(name, text, n, 0, &l, &root));
    }
    rc = tekken ? tok_read_tekken(name, root, out) : tok_read_json(name, root, &l, out);
out:
    json_decref(root);
    tok_lists_free(&l);
    return rc;
}

/* A line of base64, a space and a digit. */
static _Bool is_ranks(const char *text, size_t n)
{
    size_t i = 0;
    while (i < n && (isalnum((unsigned char)text[i]) || strchr("+/=", text[i]) != NULL) && text[i] != '\0')
        i++;
    return i > 0 && i + 1 < n && text[i] == ' ' && isdigit((unsigned char)text[i + 1]);
}

/* A token with a line feed in it does not make two lines of a sentence about it. */
static int one_line(int rc)
{
    struct err_state e;
    err_take(&e);
    for (char *p = e.msg; *p != '\0'; p++)
        if (*p == '\n')
            *p = '?';
    err_put(&e);
    return rc;
}

int tok_vocab_parse_as(const char *name, const char *text, size_t n, const struct tok_load *how, struct tok_vocab **out)
{
    static const struct tok_load none;
    size_t at = 0;
    int rc;
    if (how == NULL)
        how = &none;
    *out = NULL;
    while (at < n && text[at] != '\0' && strchr(" \t\r\n", text[at]) != NULL)
        at++;
    _Bool ranks = is_ranks(text, n);
    if (!ranks && (how->scheme != NULL || how->specials != NULL))
        return err_set(ERR_USAGE, "%s: --scheme and --special-ids are for rank files of tiktoken; this file says itself how text is split", name);
    if (ranks)
        rc = tok_read_tiktoken(name, text, n, how, out);
    else if (at < n && text[at] == '{')
        rc = parse_json(name, text, n, out);
    else if (n > 0 && text[0] == '\n')          /* field 1, of variable length */
        rc = tok_read_sp(name, text, n, out);
    else if (n > 4 && (memcmp(text, "\x1f\x8b", 2) == 0 || memcmp(text, "\x28\xb5\x2f\xfd", 4) == 0))
        return err_set(ERR_DATA, "%s: packed with %s; unpack it first", name, text[0] == 0x1f ? "gzip" : "zstd");
    else
        return err_set(ERR_DATA, "%s: not a vocabulary of a kind known here", name);
    if (rc < 0)
        return one_line(rc);
    (*out)->hash = hash_bytes(text, n);
    if (ranks) {        /* the file alone is not the vocabulary */
        struct tok_buf b = { 0 };
        struct fs_blob s = { 0 };
        if (how->specials != NULL && (rc = fs_read(how->specials, &s)) < 0) {
            tok_vocab_free(*out);
            *out = NULL;
            return rc;
        }
        tok_buf_put(&b, (*out)->hash.hex, strlen((*out)->hash.hex));
        tok_buf_put(&b, how->scheme, strlen(how->scheme) + 1);
        tok_buf_put(&b, s.data, s.size);
        (*out)->hash = hash_bytes(b.p, b.n);
        tok_buf_free(&b);
        fs_blob_free(&s);
    }
    return 0;
}

int tok_vocab_load_as(const char *path, const struct tok_load *how, struct tok_vocab **out)
{
    struct fs_blob text;
    *out = NULL;
    TRY(fs_read(path, &text));
    int rc = tok_vocab_parse_as(path, text.data, text.size, how, out);
    fs_blob_free(&text);
    return rc;
}

int tok_vocab_parse(const char *name, const char *text, size_t n, struct tok_vocab **out)
{
    return tok_vocab_parse_as(name, text, n, NULL, out);
}

int tok_vocab_load(const char *path, struct tok_vocab **out)
{
    return tok_vocab_load_as(path, NULL, out);
}
