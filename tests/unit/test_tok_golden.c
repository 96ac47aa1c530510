/* test_tok_golden.c -- a vocabulary and ids that the package tokenizers made (tests/oracle/make_tok_golden.py). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/fs.h"
#include "tok/bpe_train.h"
#include "tok/encode.h"
#include "tok/vocab.h"

static struct fs_blob text, ids;
static struct tok_vocab *theirs;

static int set_up(void **state)
{
    (void)state;
    if (fs_read("tests/golden/tok/text.txt", &text) < 0 || fs_read("tests/golden/tok/ids.bin", &ids) < 0 ||
        tok_vocab_load("tests/golden/tok/tokenizer.json", &theirs) < 0) {
        print_message("%s\n", err_msg());
        return 1;
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    fs_blob_free(&text);
    fs_blob_free(&ids);
    tok_vocab_free(theirs);
    return 0;
}

static void their_file_gives_their_ids(void **state)
{
    (void)state;
    struct tok_encoder *e;
    assert_int_equal(tok_encoder_new(theirs, &(struct tok_how){ .threads = 2 }, &e), 0);
    struct tok_span doc = { (const uint8_t *)text.data, text.size };
    const int32_t *got;
    const int64_t *ends;
    uint64_t bad = 0;
    assert_int_equal(tok_encode(e, &doc, 1, &got, &ends, &bad), 0);
    assert_int_equal(bad, 0);
    assert_int_equal(ends[0] * 4, ids.size);
    for (int64_t i = 0; i < ends[0]; i++) {
        int32_t want;
        memcpy(&want, ids.data + 4 * i, 4);
        assert_int_equal(got[i], want);
    }
    tok_encoder_free(e);
}

/* Their special token comes first, ours after the bytes; bytes and products are
 * the same in the same order. */
static void our_training_gives_their_merges(void **state)
{
    (void)state;
    static const char *const specials[] = { TOK_EOD };
    struct tok_vocab *ours;
    struct tok_train_stats st;
    struct tok_train_how how = { .vocab_size = tok_vocab_size(theirs), .min_count = 2, .specials = specials, .n_specials = 1 };
    struct tok_trainer *t;
    assert_int_equal(tok_trainer_new(&how, &t), 0);
    struct tok_tally *tally = tok_tally_new(t);
    assert_int_equal(tok_tally_add(tally, 0, 0, (const uint8_t *)text.data, text.size), 0);
    assert_int_equal(tok_trainer_take(t, tally), 0);
    tok_tally_free(tally);
    assert_int_equal(tok_trainer_run(t, NULL, NULL, &ours, &st), 0);
    assert_int_equal(tok_vocab_n_merges(ours), tok_vocab_n_merges(theirs));
    for (int64_t i = 0; i < tok_vocab_n_merges(ours); i++) {
        const struct tok_merge *a = &tok_vocab_merges(ours)[i], *b = &tok_vocab_merges(theirs)[i];
        const int32_t mine[] = { a->a, a->b, a->product }, other[] = { b->a, b->b, b->product };
        for (int k = 0; k < 3; k++) {
            size_t n, m;
            const uint8_t *x = tok_vocab_bytes(ours, mine[k], &n), *y = tok_vocab_bytes(theirs, other[k], &m);
            assert_int_equal(n, m);
            assert_memory_equal(x, y, n);
        }
    }
    tok_vocab_free(ours);
    tok_trainer_free(t);
}

static void decoding_their_ids_gives_the_text(void **state)
{
    (void)state;
    struct tok_decoder d;
    char *buf = NULL;
    size_t len = 0, cap = 0;
    tok_decode_begin(&d, theirs);
    for (size_t i = 0; i < ids.size; i += 4) {
        int32_t id;
        memcpy(&id, ids.data + i, 4);
        assert_int_equal(tok_decode(&d, &id, 1, 0, &buf, &len, &cap), 0);
    }
    assert_int_equal(tok_decode_end(&d, &buf, &len, &cap), 0);
    assert_int_equal(len, text.size);
    assert_memory_equal(buf, text.data, len);
    free(buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(their_file_gives_their_ids),
        cmocka_unit_test(our_training_gives_their_merges),
        cmocka_unit_test(decoding_their_ids_gives_the_text),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
