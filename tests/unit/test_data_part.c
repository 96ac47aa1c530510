/* test_data_part.c -- token files that are made over several runs: marks, the
 * journal, and offsets beyond what 32 bits hold. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"
#include "data/journal.h"
#include "data/tokenfile.h"

static char dir[] = "/tmp/test-part-XXXXXX";

static const char *in_dir(const char *name)
{
    static char path[8][256];
    static int turn;
    char *p = path[turn++ & 7];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

static struct tokenfile_info about(void)
{
    static char *argv[] = { "x" };
    static struct tokenfile_input input = { "a", 1, { "" } };
    input.hash = hash_bytes("x", 1);
    return (struct tokenfile_info){ .tool = "test 0", .argv = argv, .n_argv = 1, .tokenizer = hash_bytes("t", 1), .vocab_size = 1000,
        .eod_id = 3, .eod_token = "<e>", .docs = "file", .how = "", .inputs = &input, .n_inputs = 1 };
}

/* Document d: d % 5 ids and the end. */
static void add(struct tokenfile_writer *w, int d)
{
    const int32_t ids[] = { d % 1000, 7, 8, 9 };
    assert_int_equal(tokenfile_append(w, ids, (size_t)(d % 5)), 0);
    assert_int_equal(tokenfile_end_doc(w, 10), 0);
}

static void finish(struct tokenfile_writer *w, const char *part, const char *prefix)
{
    struct tokenfile_counter more = { (char *)(uintptr_t)"odd", 5 };
    struct tokenfile_info done;
    assert_int_equal(tokenfile_part_seal(w, 2, &more, 1, &done), 0);
    assert_int_equal(tokenfile_place(part, prefix), 0);
    assert_int_equal(tokenfile_place(part, prefix), 0);         /* nothing is left to move */
}

static void same_file(const char *a, const char *b)
{
    struct fs_blob x, y;
    assert_int_equal(fs_read(a, &x), 0);
    assert_int_equal(fs_read(b, &y), 0);
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
    fs_blob_free(&x);
    fs_blob_free(&y);
}

static void a_part_goes_on_from_its_mark_whatever_was_written_behind_it(void **state)
{
    (void)state;
    struct tokenfile_info i = about();
    struct tokenfile_writer *w;
    struct tokenfile_mark m;
    struct tokenfile *f;
    assert_int_equal(tokenfile_part_open(in_dir("whole"), &i, NULL, &w), 0);
    for (int d = 0; d < 300; d++)
        add(w, d);
    finish(w, in_dir("whole"), in_dir("whole.set"));
    for (int stop = 0; stop <= 300; stop += 75) {
        assert_int_equal(tokenfile_part_open(in_dir("p"), &i, NULL, &w), 0);
        for (int d = 0; d < stop; d++)
            add(w, d);
        assert_int_equal(tokenfile_part_mark(w, &m), 0);
        assert_int_equal(m.documents, stop);
        for (int d = 0; d < 50; d++)    /* lost */
            add(w, d + 1);
        tokenfile_abort(w);
        assert_int_equal(tokenfile_part_open(in_dir("p"), &i, &m, &w), 0);
        for (int d = stop; d < 300; d++)
            add(w, d);
        finish(w, in_dir("p"), in_dir("set"));
        same_file(in_dir("whole.set.bin"), in_dir("set.bin"));
        same_file(in_dir("whole.set.idx"), in_dir("set.idx"));
        same_file(in_dir("whole.set.json"), in_dir("set.json"));
    }
    assert_int_equal(tokenfile_open(in_dir("set"), &f), 0);
    assert_int_equal(tokenfile_about(f)->documents, 300);
    assert_int_equal(tokenfile_about(f)->n_more, 1);
    assert_string_equal(tokenfile_about(f)->more[0].name, "odd");
    assert_int_equal(tokenfile_about(f)->more[0].n, 5);
    tokenfile_close(f);
}

static void a_part_that_is_not_what_the_mark_says_is_refused(void **state)
{
    (void)state;
    struct tokenfile_info i = about();
    struct tokenfile_writer *w;
    struct tokenfile_mark m;
    assert_int_equal(tokenfile_part_open(in_dir("q"), &i, NULL, &w), 0);
    for (int d = 0; d < 100; d++)
        add(w, d);
    assert_int_equal(tokenfile_part_mark(w, &m), 0);
    tokenfile_abort(w);
    int fd = open(in_dir("q.bin"), O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, 17), 1);
    close(fd);
    assert_int_equal(tokenfile_part_open(in_dir("q"), &i, &m, &w), ERR_DATA);
    assert_non_null(strstr(err_msg(), "q.bin: is not what was written"));
    assert_int_equal(truncate(in_dir("q.bin"), 20), 0);
    assert_int_equal(tokenfile_part_open(in_dir("q"), &i, &m, &w), ERR_DATA);
    assert_non_null(strstr(err_msg(), "fewer than"));
}

static uint64_t le(const uint8_t *p, int n)
{
    uint64_t v = 0;
    for (int i = n; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

/* Two documents of nearly 2^31 tokens stand in a file with a hole, and two are
 * added: the offsets of the index need more than 32 bits. */
static void offsets_are_of_64_bits(void **state)
{
    (void)state;
    struct tokenfile_info i = about();
    struct tokenfile_writer *w;
    struct tokenfile_mark m = { .documents = 2, .text_bytes = 1, .n_bin = 127 };
    const int32_t length[] = { INT32_MAX - 99, 2113929216 };
    struct fs_blob idx;
    m.tokens = (int64_t)length[0] + length[1];
    m.n_bin = (int)(2 * m.tokens / TOKENFILE_CHUNK);
    m.bin = calloc((size_t)m.n_bin, sizeof *m.bin);
    for (int k = 0; k < m.n_bin; k++)
        m.bin[k] = hash_bytes(&k, sizeof k);
    size_t tail = (size_t)(2 * m.tokens % TOKENFILE_CHUNK);
    void *zero = calloc(1, tail + 1);
    m.tail = hash_bytes(zero, tail);
    free(zero);
    int fd = open(in_dir("big.bin"), O_RDWR | O_CREAT, 0666);
    if (fd < 0 || ftruncate(fd, 2 * m.tokens) < 0) {
        puts("skip: no file of 8 GB with a hole can be made here");
        skip();
    }
    close(fd);
    char head[34 + 8] = { 0 };
    memcpy(head + 34, length, 8);
    assert_int_equal(fs_write_file(in_dir("big.idx"), head, sizeof head), 0);
    assert_int_equal(tokenfile_part_open(in_dir("big"), &i, &m, &w), 0);
    add(w, 4);
    add(w, 0);
    finish(w, in_dir("big"), in_dir("big.set"));
    assert_int_equal(fs_read(in_dir("big.set.idx"), &idx), 0);
    const uint8_t *p = (const uint8_t *)idx.data;
    assert_int_equal(idx.size, 42 + 20 * 4);
    assert_int_equal(le(p + 18, 8), 4);
    assert_int_equal(le(p + 34, 4), length[0]);
    assert_int_equal(le(p + 38, 4), length[1]);
    assert_int_equal(le(p + 42, 4), 5);
    assert_int_equal(le(p + 50, 8), 0);
    assert_int_equal(le(p + 58, 8), 2 * (uint64_t)length[0]);
    assert_int_equal(le(p + 66, 8), 2 * (uint64_t)m.tokens);
    assert_int_equal(le(p + 74, 8), 2 * (uint64_t)m.tokens + 10);
    fs_blob_free(&idx);
    fd = open(in_dir("big.set.bin"), O_RDONLY);
    uint8_t last[12];
    assert_int_equal(pread(fd, last, 12, (off_t)(2 * m.tokens)), 12);
    assert_int_equal(le(last, 2), 4);
    assert_int_equal(le(last + 10, 2), 3);
    close(fd);
    free(m.bin);
}

static struct journal_head head(const char *how)
{
    return (struct journal_head){ .tool = "test 0", .tokenizer = hash_bytes("t", 1), .how = how, .inputs = hash_bytes("l", 1), .n_inputs = 5, .n_outputs = 2 };
}

static void a_journal_gives_back_what_was_added_and_no_torn_line(void **state)
{
    (void)state;
    const char *path = in_dir("journal");
    struct journal_head h = head("a");
    struct journal_state *s;
    const char *why;
    struct hash bin[3] = { hash_bytes("0", 1), hash_bytes("1", 1), hash_bytes("2", 1) };
    struct tokenfile_mark m[2] = { { 1, 2, 3, 4, bin, 1, hash_bytes("x", 1) }, { 5, 6, 7, 8, bin, 0, hash_bytes("y", 1) } };
    struct journal_input in[3] = { { 10, 11, hash_bytes("a", 1) }, { 20, -1, hash_bytes("b", 1) }, { 30, 31, hash_bytes("c", 1) } };
    int64_t counts[2] = { 70, 80 };
    int was[2] = { 0, 0 };
    assert_int_equal(journal_read(path, &h, &s, &why), 0);
    assert_string_equal(why, "");
    assert_int_equal(journal_create(path, &h), 0);
    assert_int_equal(journal_add(path, in, 2, m, was, 2, counts, 2), 0);
    m[0].n_bin = 3;
    m[0].documents = 100;
    counts[1] = 81;
    assert_int_equal(journal_add(path, in + 2, 1, m, was, 2, counts, 2), 0);
    assert_int_equal(was[0], 3);
    int fd = open(path, O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, "{\"inputs\":[[1", 13), 13);
    close(fd);
    assert_int_equal(journal_read(path, &h, &s, &why), 1);
    assert_int_equal(s->n_done, 3);
    assert_int_equal(s->input[1].mtime_ns, -1);
    assert_int_equal(s->input[2].bytes, 30);
    assert_int_equal(s->mark[0].documents, 100);
    assert_int_equal(s->mark[0].n_bin, 3);
    assert_true(hash_eq(&s->mark[0].bin[2], &bin[2]));
    assert_int_equal(s->mark[1].empty, 8);
    assert_int_equal(s->n_counts, 2);
    assert_int_equal(s->count[1], 81);
    assert_false(s->ready);
    journal_free(s);
    m[1].tokens = 600;
    assert_int_equal(journal_add(path, in, 1, m, was, 2, counts, 2), 0);
    assert_int_equal(journal_read(path, &h, &s, &why), 1);
    assert_int_equal(s->n_done, 4);
    assert_int_equal(s->mark[1].tokens, 600);
    journal_free(s);
    struct journal_head other = head("b");
    assert_int_equal(journal_read(path, &other, &s, &why), 0);
    assert_string_equal(why, "the options are others");
    /* More inputs than there are, or words for numbers. */
    for (int k = 0; k < 4; k++) {
        static const char *const bad[] = { "{}\n", "[1]\n", "{\"inputs\":[[1,2,\"x\"]],\"marks\":[[],[]],\"counts\":[]}\n", "{\"inputs\":[],\"marks\":[1,2],\"counts\":[]}\n" };
        assert_int_equal(journal_create(path, &h), 0);
        assert_int_equal(fs_append_line(path, bad[k], strlen(bad[k]), 0), 0);
        assert_int_equal(journal_read(path, &h, &s, &why), 0);
        assert_string_equal(why, "its journal cannot be read");
    }
    assert_int_equal(journal_create(path, &h), 0);
    assert_int_equal(journal_ready(path), 0);
    assert_int_equal(journal_read(path, &h, &s, &why), 1);
    assert_true(s->ready);
    journal_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_goes_on_from_its_mark_whatever_was_written_behind_it),
        cmocka_unit_test(a_part_that_is_not_what_the_mark_says_is_refused),
        cmocka_unit_test(offsets_are_of_64_bits),
        cmocka_unit_test(a_journal_gives_back_what_was_added_and_no_torn_line),
    };
    if (mkdtemp(dir) == NULL)
        return 1;
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    fs_remove_tree(dir);
    return rc;
}
