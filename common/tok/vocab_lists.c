/* vocab_lists.c -- model.vocab and model.merges, pulled.
 *
 * Keys lie in an open table of their hashes; the hash of a key is kept beside
 * it, so that a miss touches no text.  Memory is had by realloc and not from an
 * arena, since all of it goes when the vocabulary stands. */
#include "tok/vocab_lists.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/json_pull.h"

struct tok_lists_table {
    struct arena *arena;        /* keys that had escapes */
    int32_t *slot;              /* [mask + 1] number + 1, or 0; at most half full */
    size_t mask;
    uint64_t seed;              /* anew each time: no file can make it slow */
    int64_t room_keys, room_merges;
    char *pair;                 /* two tokens, one behind the other */
    size_t pair_size;
};

static uint32_t hash_of(const struct tok_lists *l, const char *s, size_t n)
{
    return (uint32_t)XXH3_64bits_withSeed(s, n, l->table->seed);
}

/* The slot of the key, or the free one where it would go. */
static size_t probe(const struct tok_lists *l, const char *s, size_t n, uint32_t hash)
{
    const struct tok_lists_table *t = l->table;
    size_t i = hash & t->mask;
    for (; t->slot[i] != 0; i = (i + 1) & t->mask) {
        const struct tok_lists_key *k = &l->key[t->slot[i] - 1];
        if (k->hash == hash && k->n == n && memcmp(k->s, s, n) == 0)
            break;
    }
    return i;
}

int64_t tok_lists_find(const struct tok_lists *l, const char *s, size_t n)
{
    return (int64_t)l->table->slot[probe(l, s, n, hash_of(l, s, n))] - 1;
}

static void widen(struct tok_lists *l)
{
    struct tok_lists_table *t = l->table;
    size_t slots = 2 * (t->mask + 1);
    free(t->slot);
    t->slot = arena_must(calloc(slots, sizeof *t->slot));
    t->mask = slots - 1;
    for (int64_t i = 0; i < l->n_keys; i++) {
        size_t at = l->key[i].hash & t->mask;
        while (t->slot[at] != 0)
            at = (at + 1) & t->mask;
        t->slot[at] = (int32_t)i + 1;
    }
}

static int add_key(struct tok_lists *l, struct json_pull *j)
{
    struct tok_lists_table *t = l->table;
    const char *at = json_pull_at(j);
    struct json_slice s;
    int64_t id = 0;
    int rc;
    TRY(json_pull_key(j, &s));
    if (l->n_keys == t->room_keys) {
        t->room_keys = t->room_keys > 0 ? 2 * t->room_keys : 1024;
        l->key = arena_must(realloc(l->key, (size_t)t->room_keys * sizeof *l->key));
    }
    if (2 * (size_t)l->n_keys > t->mask)
        widen(l);
    if (s.n >= UINT32_MAX || l->n_keys >= INT32_MAX / 2)
        return err_set(ERR_DATA, "%s: model.vocab: too large", j->where);
    uint32_t hash = hash_of(l, s.s, s.n);
    size_t slot = probe(l, s.s, s.n, hash);
    if (t->slot[slot] != 0)
        return json_pull_fail(j, at, "model.vocab: duplicate key \"%.*s\"", (int)(s.n < 60 ? s.n : 60), s.s);
    if (s.n > 0 && s.s == j->tmp)       /* decoded: gone with the next string */
        s.s = memcpy(arena_alloc(t->arena, s.n), s.s, s.n);
    l->key[l->n_keys] = (struct tok_lists_key){ s.s, (uint32_t)s.n, hash, 0 };
    TRY(rc = json_pull_int(j, &id));
    if (rc == 0)
        return err_set(ERR_DATA, "%s: model.vocab: \"%.*s\": expected an integer", j->where, (int)(s.n < 200 ? s.n : 200), s.s);
    l->key[l->n_keys].id = id;
    l->key_bytes += s.n;
    t->slot[slot] = (int32_t)++l->n_keys;
    return 0;
}

static int read_vocab(struct tok_lists *l, struct json_pull *j)
{
    int rc;
    j->p++;
    for (rc = !json_pull_empty(j, '}'); rc != 0;) {
        TRY(add_key(l, j));
        TRY(rc = json_pull_more(j, '}'));
    }
    return 0;
}

/* The keys of a merge and of what it gives.  Each look-up waits for memory three times, so
 * the three go side by side. */
static int parts(const struct tok_lists *l, const char *name, const char *pair, size_t cut, size_t n, int64_t rank, struct tok_merge *m)
{
    const struct tok_lists_table *t = l->table;
    const struct json_slice s[3] = { { pair, cut }, { pair + cut, n - cut }, { pair, n } };
    int32_t *out[3] = { &m->a, &m->b, &m->product };
    uint32_t hash[3];
    for (int i = 0; i < 3; i++) {
        hash[i] = hash_of(l, s[i].s, s[i].n);
        __builtin_prefetch(&t->slot[hash[i] & t->mask]);
    }
    for (int i = 0, k; i < 3; i++)
        if ((k = t->slot[hash[i] & t->mask]) != 0)
            __builtin_prefetch(&l->key[k - 1]);
    for (int i = 0, k; i < 3; i++)
        if ((k = t->slot[hash[i] & t->mask]) != 0)
            __builtin_prefetch(l->key[k - 1].s);
    for (int i = 0; i < 3; i++) {
        const int32_t k = t->slot[probe(l, s[i].s, s[i].n, hash[i])] - 1;
        if (k < 0)
            return err_set(ERR_DATA, "%s: model.merges[%lld]: \"%.*s\" is not in the vocabulary", name, (long long)rank, (int)(s[i].n < 200 ? s[i].n : 200), s[i].s);
        *out[i] = k;
    }
    return 0;
}

/* Puts s behind the first n bytes of the pair. */
static void put_pair(struct tok_lists_table *t, size_t n, struct json_slice s)
{
    if (t->pair_size < n + s.n + 1)
        t->pair = arena_must(realloc(t->pair, t->pair_size = 2 * (n + s.n + 1)));
    memcpy(t->pair + n, s.s, s.n);
}

/* Both spellings: ["a", "b"] and "a b".  The two parts behind each other go to
 * the pair; *cut is the length of the first.  1, or 0 when it is no pair. */
static int read_pair(struct tok_lists *l, struct json_pull *j, size_t *cut, size_t *n)
{
    struct json_slice s;
    const char *space;
    if (json_pull_peek(j) == '"') {
        TRY(json_pull_string(j, "a merge", &s));
        space = memchr(s.s, ' ', s.n);
        if (space == NULL)
            return s.n >= 8 && memcmp(s.s, "#version", 8) == 0 ? 2 : 0;
        *cut = (size_t)(space - s.s);
        *n = s.n - 1;
        put_pair(l->table, 0, (struct json_slice){ s.s, *cut });
        put_pair(l->table, *cut, (struct json_slice){ space + 1, *n - *cut });
        if (s.n >= 8 && memcmp(s.s, "#version", 8) == 0)
            return 2;
        return *cut > 0 && *n > *cut && memchr(space + 1, ' ', *n - *cut) == NULL;
    }
    if (json_pull_peek(j) != '[')
        return 0;
    j->p++;
    if (json_pull_peek(j) != '"')
        return 0;
    TRY(json_pull_string(j, "a token", &s));
    *cut = s.n;
    put_pair(l->table, 0, s);
    if (json_pull_peek(j) != ',')
        return 0;
    j->p++;
    if (json_pull_peek(j) != '"')
        return 0;
    TRY(json_pull_string(j, "a token", &s));
    *n = *cut + s.n;
    put_pair(l->table, *cut, s);
    return json_pull_empty(j, ']') && *cut > 0 && *n > *cut;
}

static int read_merges(struct tok_lists *l, struct json_pull *j)
{
    struct tok_lists_table *t = l->table;
    size_t cut = 0, n = 0;
    int rc, ok;
    j->p++;
    rc = !json_pull_empty(j, ']');
    for (int64_t i = 0; rc != 0; i++) {
        TRY(ok = read_pair(l, j, &cut, &n));
        if (ok == 0)
            return err_set(ERR_DATA, "%s: model.merges[%lld]: expected two tokens", j->where, (long long)i);
        if (l->n_merges == INT32_MAX / 2)
            return err_set(ERR_DATA, "%s: too many merges", j->where);
        if (l->n_merges == t->room_merges) {
            t->room_merges = t->room_merges > 0 ? 2 * t->room_merges : 1024;
            l->merges = arena_must(realloc(l->merges, (size_t)t->room_merges * sizeof *l->merges));
        }
        if (ok == 1)
            TRY(parts(l, j->where, t->pair, cut, n, i, &l->merges[l->n_merges++]));
        TRY(rc = json_pull_more(j, ']'));
    }
    return 0;
}

/* Any other member becomes part of the tree. */
static int add_member(struct json_pull *j, const char *at, struct json_slice key, json_t *to)
{
    json_t *value;
    char *copy;
    int rc = 0;
    if (json_object_getn(to, key.s, key.n) != NULL)
        return json_pull_fail(j, at, "duplicate key \"%.*s\"", (int)(key.n < 60 ? key.n : 60), key.s);
    copy = arena_must(malloc(key.n + 1));       /* the value has strings too */
    memcpy(copy, key.s, key.n);
    rc = json_pull_tree(j, &value);
    if (rc == 0)
        json_object_setn_new_nocheck(to, copy, key.n, value);
    free(copy);
    return rc;
}

/* Merges name tokens.  When those have not come yet, they are passed over, and
 * *later says where they stand. */
static int read_model(struct tok_lists *l, struct json_pull *j, json_t *model, struct json_pull *later)
{
    int rc;
    j->p++;
    for (rc = !json_pull_empty(j, '}'); rc != 0;) {
        const char *at = json_pull_at(j);
        struct json_slice key;
        TRY(json_pull_key(j, &key));
        _Bool known = json_object_getn(model, key.s, key.n) != NULL;
        if (!known && json_slice_is(key, "vocab") && json_pull_peek(j) == '{') {
            json_object_set_new(model, "vocab", json_object());
            TRY(read_vocab(l, j));
        } else if (!known && json_slice_is(key, "merges") && json_pull_peek(j) == '[') {
            json_object_set_new(model, "merges", json_array());
            if (json_is_object(json_object_get(model, "vocab"))) {
                TRY(read_merges(l, j));
            } else {
                json_t *passed;
                *later = *j;
                TRY(json_pull_tree(j, &passed));
                json_decref(passed);
            }
        } else {
            TRY(add_member(j, at, key, model));
        }
        TRY(rc = json_pull_more(j, '}'));
    }
    return 0;
}

static int read_all(struct tok_lists *l, struct json_pull *j, json_t *root)
{
    struct json_pull later = { 0 };
    int rc;
    TRY(json_pull_take(j, '{', "of a tokenizer"));
    for (rc = !json_pull_empty(j, '}'); rc != 0;) {
        const char *at = json_pull_at(j);
        struct json_slice key;
        TRY(json_pull_key(j, &key));
        if (json_slice_is(key, "model") && json_pull_peek(j) == '{' && json_object_get(root, "model") == NULL) {
            json_t *model = json_object();
            json_object_set_new(root, "model", model);
            TRY(read_model(l, j, model, &later));
        } else {
            TRY(add_member(j, at, key, root));
        }
        TRY(rc = json_pull_more(j, '}'));
    }
    TRY(json_pull_finish(j));
    if (later.text == NULL || !json_is_object(json_object_get(json_object_get(root, "model"), "vocab")))
        return 0;
    j->p = later.p;
    return read_merges(l, j);
}

int tok_lists_read(const char *name, const char *text, size_t n, _Bool nul, struct tok_lists *l, json_t **rest)
{
    struct tok_lists_table *t = arena_must(calloc(1, sizeof *t));
    struct json_pull j;
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    t->arena = arena_new();
    t->seed = (uint64_t)ts.tv_nsec * UINT64_C(0x9e3779b97f4a7c15) ^ (uintptr_t)t;
    t->mask = 1023;
    t->slot = arena_must(calloc(t->mask + 1, sizeof *t->slot));
    *l = (struct tok_lists){ .table = t };
    json_pull_start(&j, name, text, n);
    j.nul = nul;
    *rest = json_object();
    int rc = read_all(l, &j, *rest);
    json_pull_done(&j);
    if (rc < 0) {
        json_decref(*rest);
        *rest = NULL;
        return rc;
    }
    return 0;
}

void tok_lists_free(struct tok_lists *l)
{
    if (l->table == NULL)
        return;
    arena_free(l->table->arena);
    free(l->table->slot);
    free(l->table->pair);
    free(l->table);
    free(l->key);
    free(l->merges);
    *l = (struct tok_lists){ 0 };
}
