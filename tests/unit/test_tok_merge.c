/* test_tok_merge.c -- merging by its definition, one pair at a time, beside the scan, the heap and the tables
 * for several pieces; and a cache that forgets but never tells anything false. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "tok/fast_cache.h"
#include "tok/fast_merge.h"
#include "tok/merge.h"

static uint64_t counter;
static uint32_t dice(uint32_t n)
{
    uint32_t w[4];
    struct rng_key key = {{ 3, 9 }};
    rng_block(key, counter++, 0, w);
    return w[0] % n;
}

/* ---- merging */

enum { LETTERS = 6, MOST_MERGES = 4000 };

struct merges { int n; int32_t a[MOST_MERGES], b[MOST_MERGES], rank[MOST_MERGES], product[MOST_MERGES]; };

/* Merges over a few letters, each of things that are there already; the highest id is at least so high. */
static void make_merges(struct merges *m, struct tok_pairs *pairs, int n, int32_t lift)
{
    *pairs = (struct tok_pairs){ 0 };
    m->n = 0;
    assert_int_equal(tok_pairs_reserve(pairs, 8), 0);
    for (int i = 0; i < n; i++) {
        int32_t a = dice(3) == 0 && i > 0 ? m->product[dice((uint32_t)i)] : 'a' + (int32_t)dice(LETTERS);
        int32_t b = dice(3) == 0 && i > 0 ? m->product[dice((uint32_t)i)] : 'a' + (int32_t)dice(LETTERS);
        int k = 0;
        while (k < m->n && !(m->a[k] == a && m->b[k] == b))
            k++;
        m->a[i] = a;
        m->b[i] = b;
        m->rank[i] = k < m->n ? m->rank[k] : i;
        m->product[i] = k < m->n ? m->product[k] : 256 + i + lift;
        assert_int_equal(tok_pairs_add(pairs, a, b, m->rank[i], m->product[i], 0), 0);
        m->n++;
    }
}

/* The definition: the pair of lowest rank, leftmost first, until there is none. */
static size_t by_definition(const struct merges *m, int32_t *ids, size_t n)
{
    for (;;) {
        size_t at = 0;
        int best = -1;
        for (size_t i = 0; i + 1 < n; i++)
            for (int k = 0; k < m->n; k++)
                if (m->a[k] == ids[i] && m->b[k] == ids[i + 1] && (best < 0 || m->rank[k] < m->rank[best])) {
                    best = k;
                    at = i;
                }
        if (best < 0)
            return n;
        ids[at] = m->product[best];
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
        n--;
    }
}

static void alphabet(int32_t byte_id[256])
{
    for (int b = 0; b < 256; b++)
        byte_id[b] = b;
}

static void all_ways_merge_as_the_definition_says(int n_merges, int32_t lift)
{
    struct merges *m = malloc(sizeof *m);
    struct tok_pairs pairs;
    struct tok_near near;
    struct tok_merge_mem mem = { 0 };
    int32_t byte_id[256];
    assert_non_null(m);
    alphabet(byte_id);
    make_merges(m, &pairs, n_merges, lift);
    assert_int_equal(tok_near_new(&pairs, byte_id, &near), 0);
    assert_non_null(near.bucket);
    int over = 0;
    for (int64_t i = 0; i < (int64_t)1 << near.bits; i++)
        over += near.bucket[i][0] == UINT64_MAX - 1;
    assert_true(n_merges < MOST_MERGES || over != 0);       /* some bucket ran over, and its pairs are found all the same */
    for (int round = 0; round < 12; round++) {
        enum { MOST = 70 };
        static uint8_t text[MOST][TOK_NEAR_MAX];
        static int32_t out[MOST][TOK_NEAR_MAX + 1];
        struct tok_near_job job[MOST];
        const size_t n = round == 0 ? 0 : 1 + dice(MOST);
        for (size_t j = 0; j < n; j++) {
            job[j] = (struct tok_near_job){ .s = text[j], .ids = out[j], .n = j % 9 == 0 ? TOK_NEAR_MAX : 1 + dice(TOK_NEAR_MAX) };
            for (uint32_t i = 0; i < job[j].n; i++)
                text[j][i] = (uint8_t)(dice(40) == 0 ? dice(256) : 'a' + dice(LETTERS));
            out[j][job[j].n] = -77;
        }
        tok_near_merge(&near, job, n);
        for (size_t j = 0; j < n; j++) {
            int32_t want[TOK_NEAR_MAX], scan[TOK_NEAR_MAX], heap[TOK_NEAR_MAX];
            size_t k, k_heap;
            for (uint32_t i = 0; i < job[j].n; i++)
                want[i] = scan[i] = heap[i] = text[j][i];
            k = by_definition(m, want, job[j].n);
            assert_int_equal(tok_merge_scan(&pairs, scan, job[j].n), k);
            assert_int_equal(tok_merge_heap(&pairs, &mem, heap, job[j].n, &k_heap), 0);
            assert_int_equal(k_heap, k);
            assert_int_equal(job[j].n_ids, k);
            assert_int_equal(out[j][job[j].n], -77);
            assert_memory_equal(scan, want, k * sizeof *want);
            assert_memory_equal(heap, want, k * sizeof *want);
            assert_memory_equal(out[j], want, k * sizeof *want);
        }
    }
    tok_near_free(&near);
    tok_merge_mem_free(&mem);
    tok_pairs_free(&pairs);
    free(m);
}

static void few_merges_and_many_give_what_the_definition_gives(void **state)
{
    (void)state;
    all_ways_merge_as_the_definition_says(0, 0);
    all_ways_merge_as_the_definition_says(5, 0);
    all_ways_merge_as_the_definition_says(300, 0);
    all_ways_merge_as_the_definition_says(MOST_MERGES, 0);
}

static void high_ids_are_merged_too(void **state)
{
    (void)state;
    all_ways_merge_as_the_definition_says(300, (1 << TOK_NEAR_BITS) - 1000);
}

static void what_the_tables_cannot_hold_is_left_to_others(void **state)
{
    (void)state;
    struct tok_pairs pairs = { 0 };
    struct tok_near near;
    int32_t byte_id[256];
    alphabet(byte_id);
    assert_int_equal(tok_pairs_add(&pairs, 'a', 'b', 0, 1 << TOK_NEAR_BITS, 0), 0);
    assert_int_equal(tok_near_new(&pairs, byte_id, &near), 0);
    assert_null(near.bucket);
    tok_pairs_free(&pairs);
    assert_int_equal(tok_pairs_add(&pairs, 'a', 'b', 7, 300, 0), 0);
    assert_int_equal(tok_pairs_add(&pairs, 'b', 'c', 7, 301, 0), 0);        /* one rank, two products */
    assert_int_equal(tok_near_new(&pairs, byte_id, &near), 0);
    assert_null(near.bucket);
    byte_id['x'] = -1;
    tok_pairs_free(&pairs);
    assert_int_equal(tok_pairs_reserve(&pairs, 8), 0);
    assert_int_equal(tok_near_new(&pairs, byte_id, &near), 0);
    assert_null(near.bucket);
    tok_pairs_free(&pairs);
}

/* ---- the cache */

/* A piece by its number, of many lengths; its ids follow from the number too. */
static size_t piece_of(uint32_t i, uint8_t s[TOK_WIDE + 49], int32_t ids[TOK_WIDE], size_t *n_ids)
{
    const size_t lengths[] = { 4, 9, TOK_SHORT, TOK_SHORT + 1, 30, TOK_LONG, TOK_LONG + 1, 90, TOK_WIDE };
    const size_t n = lengths[i % 9];
    memset(s, 'x', TOK_WIDE + 49);
    memcpy(s, &i, sizeof i);
    *n_ids = 1 + i / 9 % n;
    for (size_t k = 0; k < *n_ids; k++)
        ids[k] = (int32_t)(i * 7 + k) & (i % 5 == 0 ? INT32_MAX : (1 << TOK_PACKED_BITS) - 1);
    return n;
}

static _Bool look_up(const struct tok_cache *c, const uint8_t *s, size_t n, int32_t *ids, size_t *n_ids)
{
    uint64_t key[6];
    const int32_t *p;
    if (n <= TOK_SHORT) {
        uint64_t few[2];
        tok_short_key(s, n, few);
        const struct tok_short *x = tok_short_find(c, tok_short_place(c, few), few, n_ids);
        if (x == NULL)
            return 0;
        if (*n_ids <= TOK_PACKED_IDS) {
            tok_short_ids(x, *n_ids, ids);
            return 1;
        }
        assert_int_equal(*n_ids, TOK_ELSEWHERE);
    }
    if (n > TOK_LONG) {
        p = tok_wide_find(c, s, n, n_ids);
    } else {
        tok_long_key(s, n, key);
        p = tok_long_find(c, tok_long_place(c, key), key, n_ids);
    }
    if (p != NULL)
        memcpy(ids, p, *n_ids * sizeof *p);
    return p != NULL;
}

static void a_piece_that_is_found_has_its_own_ids(void **state)
{
    (void)state;
    enum { PIECES = 600000 };
    struct tok_cache c;
    uint8_t s[TOK_WIDE + 49];
    int32_t ids[TOK_WIDE], got[TOK_WIDE];
    size_t n_ids, n_got, n, found = 0, fresh = 0;
    assert_int_equal(tok_cache_new(&c), 0);
    for (uint32_t i = 0; i < PIECES; i++) {
        n = piece_of(i, s, ids, &n_ids);
        tok_cache_grow(&c);
        tok_cache_put(&c, s, n, ids, n_ids);
        tok_cache_put(&c, s, n, ids, n_ids);        /* again: nothing changes */
        fresh += look_up(&c, s, n, got, &n_got);
    }
    for (uint32_t i = 0; i < PIECES; i++) {
        n = piece_of(i, s, ids, &n_ids);
        if (!look_up(&c, s, n, got, &n_got))
            continue;
        found++;
        assert_int_equal(n_got, n_ids);
        assert_memory_equal(got, ids, n_ids * sizeof *ids);
    }
    /* All but those of more ids than fit are there once put, and most of the short ones stay. */
    assert_true(fresh > PIECES / 2);
    assert_true(found > PIECES / 4);
    for (uint32_t i = PIECES; i < PIECES + 10000; i++) {
        n = piece_of(i, s, ids, &n_ids);
        assert_false(look_up(&c, s, n, got, &n_got));
    }
    tok_cache_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_merges_and_many_give_what_the_definition_gives),
        cmocka_unit_test(high_ids_are_merged_too),
        cmocka_unit_test(what_the_tables_cannot_hold_is_left_to_others),
        cmocka_unit_test(a_piece_that_is_found_has_its_own_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
