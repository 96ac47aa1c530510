/* test_data_tokenfile.c -- token files: the format, read by code written from its
 * description alone, and every kind of damage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/hash.h"
#include "data/tokenfile.h"

static char dir[] = "/tmp/test-tokenfile-XXXXXX";

static const char *in_dir(const char *name)
{
    static char path[4][256];
    static int turn;
    char *p = path[turn++ & 3];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

static struct tokenfile_info about(int64_t vocab_size)
{
    static char *argv[] = { "moe-tokenize", "encode" };
    static struct tokenfile_input input = { "a \"b\".txt", 7, { "" } };
    input.hash = hash_bytes("x", 1);
    return (struct tokenfile_info){ .tool = "test 0", .argv = argv, .n_argv = 2, .tokenizer = hash_bytes("t", 1),
        .vocab_size = vocab_size, .eod_id = 3, .eod_token = "<|endoftext|>", .docs = "file", .inputs = &input, .n_inputs = 1 };
}

/* Three documents: 5 tokens, none, 2 tokens. */
static void write_three(const char *prefix, int64_t vocab_size)
{
    const int32_t a[] = { 0, 1, 2, (int32_t)vocab_size - 1, 9 }, b[] = { 3, 4 };
    struct tokenfile_info i = about(vocab_size), done;
    struct tokenfile_writer *w;
    assert_int_equal(tokenfile_create(prefix, &i, &w), 0);
    assert_int_equal(tokenfile_append(w, a, 3), 0);
    assert_int_equal(tokenfile_append(w, a + 3, 2), 0);
    assert_int_equal(tokenfile_end_doc(w, 11), 0);
    assert_int_equal(tokenfile_end_doc(w, 0), 0);
    assert_int_equal(tokenfile_append(w, b, 2), 0);
    assert_int_equal(tokenfile_end_doc(w, 4), 0);
    assert_int_equal(tokenfile_commit(w, 2, &done), 0);
    assert_int_equal(done.documents, 3);
    assert_int_equal(done.tokens, 10);
    assert_int_equal(done.text_bytes, 15);
    assert_int_equal(done.empty, 1);
}

/* ---- an .idx reader from the format's description */
static uint64_t le(const uint8_t *p, int n)
{
    uint64_t v = 0;
    for (int i = n; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

static void check_pair(const char *prefix, int width)
{
    static const int32_t lengths[] = { 6, 1, 3 };
    char path[256];
    struct fs_blob idx, bin;
    snprintf(path, sizeof path, "%s.idx", prefix);
    assert_int_equal(fs_read(path, &idx), 0);
    snprintf(path, sizeof path, "%s.bin", prefix);
    assert_int_equal(fs_read(path, &bin), 0);
    const uint8_t *p = (const uint8_t *)idx.data;
    assert_int_equal(idx.size, 42 + 20 * 3);
    assert_memory_equal(p, "MMIDIDX\0\0", 9);
    assert_int_equal(le(p + 9, 8), 1);
    assert_int_equal(p[17], width == 2 ? 8 : 4);
    assert_int_equal(le(p + 18, 8), 3);
    assert_int_equal(le(p + 26, 8), 4);
    uint64_t at = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(le(p + 34 + 4 * i, 4), lengths[i]);
        assert_int_equal(le(p + 34 + 12 + 8 * i, 8), at);
        at += (uint64_t)lengths[i] * (uint64_t)width;
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(le(p + 34 + 36 + 8 * i, 8), i);
    assert_int_equal(bin.size, at);
    /* every document ends with EOD (3) */
    assert_int_equal(le((const uint8_t *)bin.data + 5 * width, width), 3);
    assert_int_equal(le((const uint8_t *)bin.data + 6 * width, width), 3);
    assert_int_equal(le((const uint8_t *)bin.data + 9 * width, width), 3);
    fs_blob_free(&idx);
    fs_blob_free(&bin);
}

static void an_independent_reader_agrees(void **state)
{
    (void)state;
    const char *small = in_dir("small"), *large = in_dir("large");
    write_three(small, 65499);
    check_pair(small, 2);
    write_three(large, 65500);
    check_pair(large, 4);
    struct tokenfile *f;
    int32_t ids[10];
    static const int32_t want[] = { 0, 1, 2, 65498, 9, 3, 3, 3, 4, 3 };
    assert_int_equal(tokenfile_open(small, &f), 0);
    assert_int_equal(tokenfile_ids(f, 0, 10, ids), 0);
    assert_memory_equal(ids, want, sizeof want);
    static const int64_t doc[] = { 0, 0, 0, 0, 0, 0, 1, 2, 2, 2 }, first[] = { 0, 6, 7, 10 };
    for (int t = 0; t < 10; t++)
        assert_int_equal(tokenfile_doc_of(f, t), doc[t]);
    for (int d = 0; d < 4; d++)
        assert_int_equal(tokenfile_doc_first(f, d), first[d]);
    const struct tokenfile_info *i = tokenfile_about(f);
    assert_int_equal(i->invalid_utf8, 2);
    assert_int_equal(i->n_inputs, 1);
    assert_string_equal(i->inputs[0].path, "a \"b\".txt");
    assert_string_equal(i->docs, "file");
    tokenfile_close(f);
}

static void an_abandoned_writer_leaves_nothing(void **state)
{
    (void)state;
    struct tokenfile_info i = about(100);
    struct tokenfile_writer *w;
    const int32_t ok = 5, bad = 100, negative = -1;
    assert_int_equal(tokenfile_create(in_dir("none"), &i, &w), 0);
    assert_int_equal(tokenfile_append(w, &ok, 1), 0);
    assert_int_equal(tokenfile_append(w, &bad, 1), ERR_DATA);
    assert_non_null(strstr(err_msg(), "id 100 is beyond the vocabulary of 100 tokens"));
    assert_int_equal(tokenfile_append(w, &negative, 1), ERR_DATA);
    tokenfile_abort(w);
    struct tokenfile *f;
    assert_int_equal(tokenfile_open(in_dir("none"), &f), ERR_NOINPUT);
    assert_false(fs_exists(in_dir("none.bin")));
}

static void change(const char *name, off_t at, int byte)
{
    int fd = open(in_dir(name), O_RDWR);
    uint8_t b;
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &b, 1, at), 1);
    b = byte < 0 ? (uint8_t)(b ^ 1) : (uint8_t)byte;
    assert_int_equal(pwrite(fd, &b, 1, at), 1);
    close(fd);
}

static void refused(const char *says)
{
    struct tokenfile *f;
    int rc = tokenfile_open(in_dir("d"), &f);
    assert_int_equal(rc, ERR_DATA);
    if (strstr(err_msg(), says) == NULL)
        print_message("%s\n", err_msg());
    assert_non_null(strstr(err_msg(), says));
    assert_null(strchr(err_msg(), '\n'));
    write_three(in_dir("d"), 1000);
}

static void every_damage_is_one_line_and_bad_data(void **state)
{
    (void)state;
    write_three(in_dir("d"), 1000);
    assert_int_equal(truncate(in_dir("d.bin"), 19), 0);
    refused("d.bin: truncated: 19 bytes, where 10 tokens of 2 bytes need 20");
    assert_int_equal(truncate(in_dir("d.bin"), 0), 0);
    refused("d.bin: truncated");
    assert_int_equal(truncate(in_dir("d.bin"), 22), 0);
    refused("d.bin: too long");
    assert_int_equal(truncate(in_dir("d.idx"), 101), 0);
    refused("d.idx: truncated");
    assert_int_equal(truncate(in_dir("d.idx"), 20), 0);
    refused("d.idx: truncated");
    change("d.bin", 7, -1);
    refused("d.bin: bytes 0 to 20: checksum differs from");
    change("d.idx", 0, 'X');
    refused("does not begin like");
    change("d.idx", 9, 2);
    refused("version 2");
    change("d.idx", 17, 4);
    refused("dtype code 4");
    change("d.idx", 18, 4);
    refused("4 sequences");
    change("d.idx", 34, 5);
    refused("does not begin where");
    change("d.idx", 38, 0);
    refused("length 0");
    change("d.idx", 34 + 3, 0x80);
    refused("length -2147483642");
    change("d.idx", 34 + 12, 2);
    refused("document 0 does not begin");
    change("d.idx", 34 + 36, 1);
    refused("document 0 is not sequence 0");
    change("d.idx", 34 + 36 + 24, 9);
    refused("last document");
    unlink(in_dir("d.json"));
    refused("no sidecar");
    assert_int_equal(fs_write_file(in_dir("d.json"), "{\"format\":\"moe.tokens/2\"}", 25), 0);
    refused("moe.tokens/2");
    assert_int_equal(fs_write_file(in_dir("d.json"), "{", 1), 0);
    refused("d.json");
    /* every prefix of the sidecar, and each of its bytes changed: an error or the same facts */
    struct fs_blob good;
    assert_int_equal(fs_read(in_dir("d.json"), &good), 0);
    for (size_t n = 0; n + 2 < good.size; n++) {
        struct tokenfile *f;
        assert_int_equal(fs_write_file(in_dir("d.json"), good.data, n), 0);
        assert_int_equal(tokenfile_open(in_dir("d"), &f), ERR_DATA);
    }
    for (size_t n = 0; n < good.size; n++) {
        struct tokenfile *f;
        int32_t ids[10];
        good.data[n] ^= 1;
        assert_int_equal(fs_write_file(in_dir("d.json"), good.data, good.size), 0);
        if (tokenfile_open(in_dir("d"), &f) == 0) {
            (void)tokenfile_ids(f, 0, tokenfile_about(f)->tokens, ids);
            tokenfile_close(f);
        }
        good.data[n] ^= 1;
    }
    fs_blob_free(&good);
}

static void an_id_beyond_the_vocabulary_is_found_when_read(void **state)
{
    (void)state;
    /* A sidecar that promises fewer tokens than the file uses: all hashes are right. */
    struct fs_blob json;
    struct tokenfile *f;
    int32_t ids[10];
    write_three(in_dir("v"), 1000);
    assert_int_equal(fs_read(in_dir("v.json"), &json), 0);
    char *p = strstr(json.data, "\"vocab_size\":1000");
    assert_non_null(p);
    memcpy(p, "\"vocab_size\":0999", 17);
    memcpy(p, "\"vocab_size\": 999", 17);
    assert_int_equal(fs_write_file(in_dir("v.json"), json.data, json.size), 0);
    assert_int_equal(tokenfile_open(in_dir("v"), &f), 0);
    assert_int_equal(tokenfile_ids(f, 4, 6, ids), 0);
    assert_int_equal(tokenfile_ids(f, 0, 10, ids), ERR_DATA);
    assert_non_null(strstr(err_msg(), "token 3: id 999 is beyond the vocabulary of 999 tokens"));
    tokenfile_close(f);
    fs_blob_free(&json);
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(dir) == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    return fs_remove_tree(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_independent_reader_agrees),
        cmocka_unit_test(an_abandoned_writer_leaves_nothing),
        cmocka_unit_test(every_damage_is_one_line_and_bad_data),
        cmocka_unit_test(an_id_beyond_the_vocabulary_is_found_when_read),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
