/* test_tok_train.c -- the ways of training against a plain form that counts everything anew. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "tok/bpe_train.h"
#include "tok/bytelevel.h"
#include "tok/cutter.h"

enum { LANGS = 3, PIECES = 4000, MERGES = 80 };

/* ---- the plain form */

struct plain { int32_t sym[PIECES][24]; int n_sym[PIECES], n; int64_t bytes; };

static int plain_piece(void *arg, const uint8_t *s, size_t n)
{
    struct plain *p = arg;
    int32_t id[256];
    for (int i = 0; i < 256; i++)
        id[tok_byte_of_order(i)] = i;
    assert_true(p->n < PIECES && n <= 24);
    for (size_t i = 0; i < n; i++)
        p->sym[p->n][i] = id[s[i]];
    p->n_sym[p->n++] = (int)n;
    p->bytes += (int64_t)n;
    return 0;
}

static void plain_read(struct plain *p, const char *text)
{
    struct tok_vocab *v;
    uint64_t invalid = 0;
    memset(p, 0, sizeof *p);
    assert_int_equal(tok_vocab_build(NULL, 0, NULL, 0, &v), 0);
    struct tok_cutter *c = tok_cutter_new(v);
    struct tok_cutter_mem *w = tok_cutter_mem_new();
    assert_int_equal(tok_cutter_run(c, w, (const uint8_t *)text, strlen(text), plain_piece, p, &invalid), 0);
    tok_cutter_mem_free(w);
    tok_cutter_free(c);
    tok_vocab_free(v);
}

static int64_t plain_tokens(const struct plain *p)
{
    int64_t n = 0;
    for (int i = 0; i < p->n; i++)
        n += p->n_sym[i];
    return n;
}

static int64_t plain_count(const struct plain *p, int32_t a, int32_t b)
{
    int64_t n = 0;
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k + 1 < p->n_sym[i]; k++)
            n += p->sym[i][k] == a && p->sym[i][k + 1] == b;
    return n;
}

static void plain_merge(struct plain *p, int32_t a, int32_t b, int32_t to)
{
    for (int i = 0; i < p->n; i++) {
        int w = 0;
        for (int k = 0; k < p->n_sym[i]; w++) {
            _Bool hit = k + 1 < p->n_sym[i] && p->sym[i][k] == a && p->sym[i][k + 1] == b;
            p->sym[i][w] = hit ? to : p->sym[i][k];
            k += hit ? 2 : 1;
        }
        p->n_sym[i] = w;
    }
}

/* The best pair of texts with weights (0: not looked at). */
static _Bool plain_best(const struct plain *p, const int64_t *weight, int n, int64_t min_count, int32_t *a, int32_t *b)
{
    int64_t best = 0;
    for (int l = 0; l < n; l++)
        for (int i = 0; weight[l] > 0 && i < p[l].n; i++)
            for (int k = 0; k + 1 < p[l].n_sym[i]; k++) {
                int32_t x = p[l].sym[i][k], y = p[l].sym[i][k + 1];
                int64_t c = 0;
                for (int m = 0; m < n; m++)
                    c += weight[m] * plain_count(&p[m], x, y);
                if (c > best || (c == best && (x < *a || (x == *a && y < *b)))) {
                    best = c;
                    *a = x;
                    *b = y;
                }
            }
    return best >= min_count;
}

/* ---- text */

static const char *const texts[LANGS] = {
    "der Hund und der Hase und die Hunde und die Hasen in den Wäldern, wo der Wind die Bäume bewegt und der Hund den Hasen sucht "
    "und die Hasen den Hund hören und in den Wäldern und auf den Feldern und bei den Bäumen sind",
    "le chien et le lapin et les chiens et les lapins dans les bois où le vent fait bouger les arbres et le chien cherche le lapin "
    "et les lapins entendent le chien et sont dans les bois et dans les champs et près des arbres",
    "ο σκύλος και ο λαγός και οι σκύλοι και οι λαγοί στα δάση όπου ο άνεμος κινεί τα δέντρα και ο σκύλος ψάχνει τον λαγό",
};
static const char *const devs[LANGS] = {
    "die Hasen und der Wind", "les lapins et le vent", "οι λαγοί και ο άνεμος",
};

static struct tok_vocab *train(struct tok_train_how how, _Bool dev, struct tok_train_stats *st, struct tok_trainer **keep)
{
    struct tok_vocab *v = NULL;
    how.vocab_size = 256 + MERGES;
    how.min_count = 2;
    how.n_langs = LANGS;
    assert_int_equal(tok_trainer_new(&how, keep), 0);
    struct tok_tally *y = tok_tally_new(*keep);
    for (int l = 0; l < LANGS; l++) {
        assert_int_equal(tok_tally_add(y, l, 0, (const uint8_t *)texts[l], strlen(texts[l])), 0);
        assert_int_equal(tok_trainer_take(*keep, y), 0);
        if (dev) {
            assert_int_equal(tok_tally_add(y, l, 1, (const uint8_t *)devs[l], strlen(devs[l])), 0);
            assert_int_equal(tok_trainer_take(*keep, y), 0);
        }
    }
    tok_tally_free(y);
    int rc = tok_trainer_run(*keep, NULL, NULL, &v, st);
    if (rc < 0)
        print_message("%s\n", err_msg());
    assert_int_equal(rc, 0);
    return v;
}

static void same_merges(const struct tok_vocab *v, const struct tok_merge *m)
{
    assert_int_equal(tok_vocab_n_merges(v), MERGES);
    for (int i = 0; i < MERGES; i++) {
        assert_int_equal(tok_vocab_merges(v)[i].a, m[i].a);
        assert_int_equal(tok_vocab_merges(v)[i].b, m[i].b);
    }
}

static int plain_worst(const struct plain *text, const struct plain *dev, const _Bool *done)
{
    int worst = -1;
    for (int l = 0; l < LANGS; l++) {
        if (done[l])
            continue;
        double x = dev != NULL ? (double)plain_tokens(&dev[l]) : (double)plain_tokens(&text[l]) / (double)text[l].bytes;
        double y = worst < 0 ? -1 : dev != NULL ? (double)plain_tokens(&dev[worst]) : (double)plain_tokens(&text[worst]) / (double)text[worst].bytes;
        if (x > y)
            worst = l;
    }
    return worst;
}

static void parity(_Bool with_dev, int after)
{
    struct plain *text = calloc(LANGS, sizeof *text), *dev = calloc(LANGS, sizeof *dev);
    struct tok_merge m[MERGES];
    _Bool done[LANGS] = { 0 };
    int64_t served[LANGS] = { 0 };
    for (int l = 0; l < LANGS; l++) {
        plain_read(&text[l], texts[l]);
        plain_read(&dev[l], devs[l]);
    }
    for (int i = 0; i < MERGES;) {
        int64_t weight[LANGS] = { 1, 1, 1 };
        int l = i < after ? -1 : plain_worst(text, with_dev ? dev : NULL, done);
        for (int k = 0; l >= 0 && k < LANGS; k++)
            weight[k] = k == l;
        m[i] = (struct tok_merge){ 0, 0, 256 + i };
        if (!plain_best(text, weight, LANGS, 2, &m[i].a, &m[i].b)) {
            assert_true(l >= 0);
            done[l] = 1;
            continue;
        }
        if (l >= 0)
            served[l]++;
        for (int k = 0; k < LANGS; k++) {
            plain_merge(&text[k], m[i].a, m[i].b, m[i].product);
            plain_merge(&dev[k], m[i].a, m[i].b, m[i].product);
        }
        i++;
    }
    struct tok_train_stats st;
    struct tok_trainer *t;
    struct tok_vocab *v = train((struct tok_train_how){ .parity = 1, .parity_after = after }, with_dev, &st, &t);
    same_merges(v, m);
    for (int l = 0; l < LANGS; l++) {
        assert_int_equal(st.lang[l].merges, served[l]);
        assert_int_equal(st.lang[l].tokens, plain_tokens(&text[l]));
        assert_int_equal(st.lang[l].dev_tokens, with_dev ? plain_tokens(&dev[l]) : 0);
    }
    tok_vocab_free(v);
    tok_trainer_free(t);
    free(text);
    free(dev);
}

static void every_merge_for_parity_is_the_best_of_the_language_that_is_worst_off(void **state)
{
    (void)state;
    parity(0, 0);
}

static void with_development_text_its_tokens_say_who_is_worst_off(void **state)
{
    (void)state;
    parity(1, 0);
}

static void the_first_merges_may_go_by_frequency(void **state)
{
    (void)state;
    parity(1, 30);
}

static void in_a_window_no_language_gets_more_than_twice_its_share(void **state)
{
    (void)state;
    struct tok_train_stats st;
    struct tok_trainer *t;
    struct tok_train_how how = { .parity = 1 };
    struct tok_vocab *free_choice = train(how, 0, &st, &t);
    int64_t most = 0;
    for (int l = 0; l < LANGS; l++)
        most = st.lang[l].merges > most ? st.lang[l].merges : most;
    tok_vocab_free(free_choice);
    tok_trainer_free(t);
    how.parity_window = 9;
    struct tok_vocab *v = train(how, 0, &st, &t);
    /* of any 9 merges at most 6: of 80 not more than 60 */
    for (int l = 0; l < LANGS; l++)
        assert_true(st.lang[l].merges <= MERGES * 6 / 9 + 6);
    assert_true(most > 0);
    tok_vocab_free(v);
    tok_trainer_free(t);
}

static void a_weight_is_as_if_the_text_came_so_many_times(void **state)
{
    (void)state;
    static const int64_t weight[LANGS] = { 1000, 2500, 3000 };
    struct plain *text = calloc(LANGS, sizeof *text);
    struct tok_merge m[MERGES];
    for (int l = 0; l < LANGS; l++)
        plain_read(&text[l], texts[l]);
    for (int i = 0; i < MERGES; i++) {
        m[i] = (struct tok_merge){ 0, 0, 256 + i };
        assert_true(plain_best(text, weight, LANGS, 2000, &m[i].a, &m[i].b));
        for (int k = 0; k < LANGS; k++)
            plain_merge(&text[k], m[i].a, m[i].b, m[i].product);
    }
    struct tok_train_stats st;
    struct tok_trainer *t;
    struct tok_vocab *v = train((struct tok_train_how){ .weight = weight }, 0, &st, &t);
    same_merges(v, m);
    tok_vocab_free(v);
    tok_trainer_free(t);
    free(text);
}

static void development_text_of_some_languages_alone_is_refused(void **state)
{
    (void)state;
    struct tok_train_how how = { .vocab_size = 300, .n_langs = 2, .parity = 1 };
    struct tok_train_stats st;
    struct tok_trainer *t;
    struct tok_vocab *v;
    assert_int_equal(tok_trainer_new(&how, &t), 0);
    struct tok_tally *y = tok_tally_new(t);
    for (int l = 0; l < 2; l++) {
        assert_int_equal(tok_tally_add(y, l, 0, (const uint8_t *)texts[l], strlen(texts[l])), 0);
        assert_int_equal(tok_trainer_take(t, y), 0);
    }
    assert_int_equal(tok_tally_add(y, 1, 1, (const uint8_t *)devs[1], strlen(devs[1])), 0);
    assert_int_equal(tok_trainer_take(t, y), 0);
    assert_int_equal(tok_trainer_run(t, NULL, NULL, &v, &st), ERR_USAGE);
    assert_non_null(strstr(err_msg(), "1 of 2"));
    tok_tally_free(y);
    tok_trainer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_merge_for_parity_is_the_best_of_the_language_that_is_worst_off),
        cmocka_unit_test(with_development_text_its_tokens_say_who_is_worst_off),
        cmocka_unit_test(the_first_merges_may_go_by_frequency),
        cmocka_unit_test(in_a_window_no_language_gets_more_than_twice_its_share),
        cmocka_unit_test(a_weight_is_as_if_the_text_came_so_many_times),
        cmocka_unit_test(development_text_of_some_languages_alone_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
