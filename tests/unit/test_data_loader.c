/* test_data_loader.c -- batches compared with the definition of moe-formats(5), token by token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/rng.h"
#include "data/loader.h"
#include "data/mixture.h"
#include "data/tokenfile.h"

enum { VOCAB = 50, EOD = 7 };

static char dir[] = "/tmp/test-loader-XXXXXX";
static int32_t byte_len[VOCAB];

static uint64_t counter;
static uint32_t dice(uint32_t n)
{
    uint32_t w[4];
    struct rng_key key = {{ 3, 4 }};
    rng_block(key, counter++, 0, w);
    return w[0] % n;
}

/* A token file of n_docs documents of random length; ids[] and doc[] tell what is in it. */
struct corpus { char path[128]; int32_t ids[100000]; int32_t doc[100000]; int64_t n; };

static void write_corpus(struct corpus *c, const char *name, int n_docs, uint32_t longest)
{
    struct tokenfile_info info = { .tool = "test", .tokenizer = hash_bytes("t", 1), .vocab_size = VOCAB, .eod_id = EOD,
        .eod_token = "<|endoftext|>", .docs = "line" };
    struct tokenfile_writer *w;
    snprintf(c->path, sizeof c->path, "%s/%s", dir, name);
    c->n = 0;
    assert_int_equal(tokenfile_create(c->path, &info, &w), 0);
    for (int d = 0; d < n_docs; d++) {
        uint32_t len = dice(longest);
        for (uint32_t i = 0; i <= len; i++) {
            c->doc[c->n] = d;
            c->ids[c->n++] = i == len ? EOD : (int32_t)dice(VOCAB);     /* EOD's id may stand in text too */
        }
        assert_int_equal(tokenfile_append(w, c->ids + c->n - len - 1, len), 0);
        assert_int_equal(tokenfile_end_doc(w, len), 0);
    }
    assert_int_equal(tokenfile_commit(w, 0, NULL), 0);
}

static struct corpus A, B, C;

static struct batch new_batch(int64_t t)
{
    struct batch b = { 0 };
    b.ids = malloc((size_t)t * 4);
    b.targets = malloc((size_t)t * 4);
    b.doc_start = malloc((size_t)t * 4);
    b.positions = malloc((size_t)t * 4);
    return b;
}

static void free_batch(struct batch *b)
{
    free(b->ids);
    free(b->targets);
    free(b->doc_start);
    free(b->positions);
}

/* Row s of the batch must be window w of c, by the definition. */
static void check_row(const struct batch *b, int64_t s, const struct corpus *c, int64_t w, int64_t *n_valid, int64_t *text)
{
    int64_t len = b->seq_len;
    for (int64_t i = 0; i < len; i++) {
        int64_t t = w * len + i, row = s * len + i, start = t;
        while (start > w * len && c->doc[start - 1] == c->doc[t])
            start--;
        int32_t target = c->doc[t + 1] == c->doc[t] ? c->ids[t + 1] : -1;
        assert_int_equal(b->ids[row], c->ids[t]);
        assert_int_equal(b->targets[row], target);
        assert_int_equal(b->positions[row], t - start);
        assert_int_equal(b->doc_start[row], row - (t - start));
        *n_valid += target >= 0;
        *text += target >= 0 ? byte_len[target] : 0;
    }
}

static struct data_config config(int64_t seq_len, struct data_train_item *t, int n_train, struct data_valid_item *v, int n_valid)
{
    return (struct data_config){ { t, n_train }, { v, n_valid }, seq_len, 5 };
}

static void batches_are_what_the_definition_says(void **state)
{
    (void)state;
    struct data_train_item t[] = { { A.path, 2 }, { B.path, 1 } };
    const struct corpus *corpora[] = { &A, &B };
    struct loader_vocab v = { hash_bytes("t", 1), VOCAB, byte_len };
    for (int64_t len = 1; len <= 64; len = len * 2 + 1) {
        struct data_config c = config(len, t, 2, NULL, 0);
        struct loader *l;
        assert_int_equal(loader_open(&c, &v, LOADER_TRAIN, &l), 0);
        struct batch b = new_batch(len * 9);
        for (int64_t first = 0; first < 3000; first += 9) {
            int64_t n_valid = 0, text = 0, counted;
            assert_int_equal(loader_samples(l, first, 9, &b), 0);
            assert_int_equal(b.n_seqs, 9);
            for (int64_t s = 0; s < 9; s++) {
                struct loader_where w;
                assert_int_equal(loader_where(l, first + s, &w), 0);
                check_row(&b, s, corpora[w.set], w.window, &n_valid, &text);
            }
            assert_int_equal(b.n_valid, n_valid);
            assert_int_equal(b.text_bytes, text);
            assert_int_equal(loader_valid_targets(l, first, 9, &counted), 0);
            assert_int_equal(counted, n_valid);
        }
        free_batch(&b);
        loader_close(l);
    }
}

static void an_epoch_takes_every_window_once_in_another_order_each_time(void **state)
{
    (void)state;
    struct data_train_item t[] = { { A.path, 1 } };
    struct data_config c = config(16, t, 1, NULL, 0);
    struct loader *l;
    assert_int_equal(loader_open(&c, NULL, LOADER_TRAIN, &l), 0);
    int64_t n = loader_train_set(l, 0).windows, same = 0, in_place = 0;
    assert_int_equal(n, (A.n - 1) / 16);
    int64_t *order = malloc((size_t)n * sizeof *order);
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        char *seen = calloc((size_t)n, 1);
        for (int64_t i = 0; i < n; i++) {
            struct loader_where w;
            assert_int_equal(loader_where(l, epoch * n + i, &w), 0);
            assert_int_equal(w.epoch, epoch);
            assert_int_equal(seen[w.window]++, 0);
            same += epoch > 0 && order[i] == w.window;
            in_place += w.window == i;
            order[i] = w.window;
        }
        free(seen);
    }
    assert_true(same < n / 4 && in_place < n / 4);
    assert_true(fabs(loader_epochs(l, 0, 2 * n) - 2) < 1e-12);
    free(order);
    loader_close(l);
}

static void same_place(struct loader_where a, struct loader_where b)
{
    assert_int_equal(a.set, b.set);
    assert_int_equal(a.epoch, b.epoch);
    assert_int_equal(a.window, b.window);
}

static void samples_do_not_depend_on_the_order_of_asking_nor_on_other_loaders(void **state)
{
    (void)state;
    struct data_train_item t[] = { { A.path, 0.3 }, { B.path, 0.5 }, { C.path, 0.2 } };
    struct data_config c = config(8, t, 3, NULL, 0), other = c;
    struct loader *l, *fresh;
    other.seed = 6;
    assert_int_equal(loader_open(&c, NULL, LOADER_TRAIN, &l), 0);
    struct loader_where a, b;
    int differs = 0;
    for (int i = 0; i < 300; i++) {
        int64_t n = dice(i % 10 == 0 ? 300000 : 2000);
        assert_int_equal(loader_where(l, n, &a), 0);
        if (i % 30 == 0) {
            assert_int_equal(loader_open(&c, NULL, LOADER_TRAIN, &fresh), 0);
            assert_int_equal(loader_where(fresh, n, &b), 0);
            same_place(a, b);
            loader_close(fresh);
        }
        assert_int_equal(loader_where(l, n, &b), 0);
        same_place(a, b);
    }
    assert_int_equal(loader_open(&other, NULL, LOADER_TRAIN, &fresh), 0);
    for (int64_t n = 0; n < 100; n++) {
        loader_where(l, n, &a);
        loader_where(fresh, n, &b);
        assert_int_equal(a.set, b.set);
        differs += a.window != b.window;
    }
    assert_true(differs > 50);
    loader_close(fresh);
    loader_close(l);
}

static void a_mixture_is_never_one_sample_away_from_its_shares(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        double w[24] = { 0 }, sum = 0;
        int n_sets = 1 + (int)dice(24);
        int64_t count[24] = { 0 };
        for (int i = 0; i < n_sets; i++) {
            w[i] = round % 3 == 0 ? 1 : round % 3 == 1 ? dice(5) : pow(10, -0.01 * (double)dice(400));
            sum += w[i];
        }
        if (!(sum > 0))
            continue;
        struct arena *a = arena_new();
        struct mixture *m = mixture_new(a, w, n_sets);
        for (int64_t n = 0; n < 5000; n++) {
            int64_t before;
            int set = mixture_set(m, n, &before);
            assert_int_equal(before, count[set]);
            count[set]++;
            for (int i = 0; i < n_sets; i++)
                assert_true(fabs((double)count[i] - (double)(n + 1) * w[i] / sum) < 1);
        }
        assert_int_equal(mixture_count(m, 0, 5000), count[0]);
        arena_free(a);
    }
}

static void evaluation_goes_through_the_windows_in_order(void **state)
{
    (void)state;
    struct data_valid_item v[] = { { "a", A.path }, { "c", C.path } };
    struct data_config c = config(10, NULL, 0, v, 2);
    struct loader_vocab vocab = { hash_bytes("t", 1), VOCAB, byte_len };
    struct loader *l;
    assert_int_equal(loader_open(&c, &vocab, LOADER_VALID, &l), 0);
    assert_int_equal(loader_n_valid_sets(l), 2);
    assert_string_equal(loader_valid_set(l, 1).name, "c");
    struct batch b = new_batch(70);
    int64_t n = loader_valid_set(l, 1).windows;
    for (int64_t w = 0; w < n; w += 7) {
        int64_t k = n - w < 7 ? n - w : 7, n_valid = 0, text = 0;
        assert_int_equal(loader_valid_windows(l, 1, w, k, &b), 0);
        for (int64_t s = 0; s < k; s++)
            check_row(&b, s, &C, w + s, &n_valid, &text);
        assert_int_equal(b.n_valid, n_valid);
        assert_int_equal(b.text_bytes, text);
    }
    free_batch(&b);
    loader_close(l);
}

static void refused(struct data_config c, const struct loader_vocab *v, int what, int status, const char *says)
{
    struct loader *l;
    assert_int_equal(loader_open(&c, v, what, &l), status);
    if (strstr(err_msg(), says) == NULL)
        print_message("%s\n", err_msg());
    assert_non_null(strstr(err_msg(), says));
}

static void what_cannot_be_loaded_is_refused_with_numbers(void **state)
{
    (void)state;
    struct data_train_item t[] = { { C.path, 1 }, { A.path, 1 } }, zero[] = { { A.path, 0 } }, absent[] = { { "absent/set", 1 } };
    struct data_valid_item twice[] = { { "a", A.path }, { "a", C.path } };
    struct loader_vocab other = { hash_bytes("u", 1), VOCAB, NULL }, small = { hash_bytes("t", 1), VOCAB - 1, NULL };
    char says[256];
    snprintf(says, sizeof says, "seq_len %lld is longer than the %lld tokens of %s", (long long)C.n + 1, (long long)C.n, C.path);
    refused(config(C.n + 1, t, 2, NULL, 0), NULL, LOADER_TRAIN, ERR_DATA, says);
    refused(config(C.n, t, 2, NULL, 0), NULL, LOADER_TRAIN, ERR_DATA, "look-ahead");
    refused(config(8, t, 2, NULL, 0), &other, LOADER_TRAIN, ERR_DATA, "another tokenizer");
    refused(config(8, t, 2, NULL, 0), &small, LOADER_TRAIN, ERR_DATA, "a vocabulary of 50 tokens, more than the 49 expected");
    refused(config(8, NULL, 0, NULL, 0), NULL, LOADER_TRAIN, ERR_USAGE, "no token file to train on");
    refused(config(8, zero, 1, NULL, 0), NULL, LOADER_TRAIN, ERR_USAGE, "all weights are 0");
    refused(config(8, NULL, 0, twice, 2), NULL, LOADER_VALID, ERR_USAGE, "given twice");
    refused(config(8, absent, 1, NULL, 0), NULL, LOADER_TRAIN, ERR_NOINPUT, "absent/set");
}

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < VOCAB; i++)
        byte_len[i] = i == EOD ? 0 : 1 + i % 5;
    if (mkdtemp(dir) == NULL)
        return 1;
    write_corpus(&A, "a", 400, 60);
    write_corpus(&B, "b", 3, 9000);
    write_corpus(&C, "c", 300, 3);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return fs_remove_tree(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_what_the_definition_says),
        cmocka_unit_test(an_epoch_takes_every_window_once_in_another_order_each_time),
        cmocka_unit_test(samples_do_not_depend_on_the_order_of_asking_nor_on_other_loaders),
        cmocka_unit_test(a_mixture_is_never_one_sample_away_from_its_shares),
        cmocka_unit_test(evaluation_goes_through_the_windows_in_order),
        cmocka_unit_test(what_cannot_be_loaded_is_refused_with_numbers),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
