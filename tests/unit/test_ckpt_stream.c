/* test_ckpt_stream.c -- safetensors written and read back: files, pieces in any
 * order, streams through a pipe. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/hash.h"
#include "ckpt/load.h"
#include "ckpt/safetensors.h"
#include "unit/ckpt_toy.h"

static unsigned char byte_of(int t, uint64_t i) { return (unsigned char)((uint64_t)t * 31 + i * 7 + (i >> 9)); }

static void fill(unsigned char *dst, int t, uint64_t first, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = byte_of(t, first + i);
}

/* Four tensors of mixed widths; the widest must come first in the file. */
static struct st_writer *mixed(void)
{
    struct st_writer *w = st_writer_new();

    st_writer_meta(w, "format", "pt");
    st_writer_meta(w, "note", "a \"quote\",\n\xc3\xa9");
    assert_int_equal(st_writer_add(w, "half", DT_BF16, 1, (int64_t[]){ 3 }), 0);
    assert_int_equal(st_writer_add(w, "float", DT_F32, 2, (int64_t[]){ 3, 5 }), 1);
    assert_int_equal(st_writer_add(w, "none", DT_F32, 2, (int64_t[]){ 0, 5 }), 2);
    assert_int_equal(st_writer_add(w, "long", DT_I64, 1, (int64_t[]){ 4 }), 3);
    assert_int_equal(st_writer_add(w, "scalar", DT_U8, 0, NULL), 4);
    return w;
}

static const size_t mixed_bytes[5] = { 6, 60, 0, 32, 1 };
static const int mixed_order[4] = { 3, 1, 0, 4 };

static void check_mixed(const struct st_header *h)
{
    assert_int_equal(h->n_tensors, 5);
    assert_string_equal(h->tensors[0].name, "long");
    assert_string_equal(h->tensors[4].name, "scalar");
    assert_string_equal(st_meta_get(h, "note"), "a \"quote\",\n\xc3\xa9");
    assert_int_equal(h->data_start % 8, 0);
    for (int64_t i = 0; i < h->n_tensors; i++)
        assert_int_equal(h->tensors[i].begin % dtype_size(h->tensors[i].dtype), 0);
}

static void a_file_reads_back_whatever_the_order_of_its_pieces(void **state)
{
    const char *dir = toy_mkdir();
    char *first_file = NULL;
    size_t first_bytes = 0;

    (void)state;
    for (int round = 0; round < 3; round++) {
        const char *path = toy_path(dir, "x.safetensors");
        struct st_writer *w = mixed();
        unsigned char buf[64], got[64];
        struct st_file *f;
        char *all;
        size_t n;

        st_writer_cut(w, 1, 20);        /* round 2 fills the parts back to front */
        st_writer_cut(w, 1, 40);
        st_writer_cut(w, 1, 20);
        unlink(path);
        assert_int_equal(st_writer_begin(w, path), 0);
        for (int k = 0; k < 5; k++) {
            int t = round == 0 ? k : 4 - k;

            fill(buf, t, 0, mixed_bytes[t]);
            if (round == 2 && t == 1) {
                assert_int_equal(st_writer_put(w, t, 40, buf + 40, 20), 0);
                assert_int_equal(st_writer_put(w, t, 0, buf, 7), 0);
                assert_int_equal(st_writer_put(w, t, 7, buf + 7, 33), 0);
            } else {
                assert_int_equal(st_writer_put(w, t, 0, buf, mixed_bytes[t]), 0);
            }
        }
        assert_int_equal(st_writer_end(w), 0);
        assert_int_equal(st_open(path, &f), 0);
        check_mixed(st_head(f));
        assert_int_equal(st_file_bytes(f), st_writer_bytes(w));
        for (int t = 0; t < 5; t++) {
            static const char *const names[] = { "half", "float", "none", "long", "scalar" };
            const struct st_tensor *x = st_find(st_head(f), names[t]);
            const struct st_part *p;
            int n_parts;

            assert_int_equal(x->end - x->begin, mixed_bytes[t]);
            assert_int_equal(st_read(f, x, 0, mixed_bytes[t], got), 0);
            fill(buf, t, 0, mixed_bytes[t]);
            assert_memory_equal(got, buf, mixed_bytes[t]);
            p = st_writer_parts(w, t, &n_parts);
            assert_int_equal(n_parts, t == 1 ? 3 : t == 2 ? 0 : 1);
            for (int i = 0; i < n_parts; i++) {
                struct hash want = hash_bytes(buf + p[i].begin, (size_t)(p[i].end - p[i].begin));

                assert_true(hash_eq(&want, &p[i].hash));
            }
        }
        st_close(f);
        st_writer_free(w);
        toy_get(path, &all, &n);
        if (first_file) {
            assert_int_equal(n, first_bytes);
            assert_memory_equal(all, first_file, n);
            free(all);
        } else {
            first_file = all;
            first_bytes = n;
        }
    }
    free(first_file);
    toy_rmdir(dir);
}

static void parts_are_cut_at_64_mib_and_hash_what_lies_there(void **state)
{
    const char *dir = toy_mkdir(), *path = toy_path(dir, "big.safetensors");
    const uint64_t bytes = ST_PART_BYTES + 5;
    unsigned char *all = malloc((size_t)bytes);
    struct st_writer *w = st_writer_new();
    const struct st_part *p;
    struct hash want;
    int n;

    (void)state;
    assert_non_null(all);
    fill(all, 1, 0, (size_t)bytes);
    assert_int_equal(st_writer_add(w, "big", DT_U8, 1, (int64_t[]){ (int64_t)bytes }), 0);
    assert_int_equal(st_writer_begin(w, path), 0);
    assert_int_equal(st_writer_put(w, 0, 0, all, 1000), 0);
    assert_int_equal(st_writer_put(w, 0, 1000, all + 1000, (size_t)bytes - 1000), 0);
    assert_int_equal(st_writer_end(w), 0);
    p = st_writer_parts(w, 0, &n);
    assert_int_equal(n, 2);
    assert_int_equal(p[0].end, ST_PART_BYTES);
    assert_int_equal(p[1].begin, ST_PART_BYTES);
    want = hash_bytes(all, ST_PART_BYTES);
    assert_string_equal(p[0].hash.hex, want.hex);
    want = hash_bytes(all + ST_PART_BYTES, 5);
    assert_string_equal(p[1].hash.hex, want.hex);
    st_writer_free(w);
    free(all);
    toy_rmdir(dir);
}

static void an_unfinished_file_is_not_left_and_a_missing_byte_is_our_bug(void **state)
{
    const char *dir = toy_mkdir(), *path = toy_path(dir, "x.safetensors");

    (void)state;
    for (int replace = 0; replace < 2; replace++) {
        struct st_writer *w = mixed();

        assert_int_equal(replace ? st_writer_begin_replace(w, path) : st_writer_begin(w, path), 0);
        assert_int_equal(st_writer_put(w, 1, 0, "abcd", 4), 0);
        assert_int_equal(st_writer_end(w), ERR_BUG);
        st_writer_free(w);
        assert_false(fs_exists(path));
    }
    toy_rmdir(dir);
}

static void names_that_we_would_not_read_are_not_written(void **state)
{
    static const char *const names[] = { "", "a/b", "a\nb", "same" };

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct st_writer *w = st_writer_new();

        assert_int_equal(st_writer_add(w, "same", DT_U8, 0, NULL), 0);
        assert_int_equal(st_writer_add(w, names[i], DT_U8, 0, NULL), 1);
        assert_int_equal(st_writer_begin(w, "/nonexistent/x"), ERR_BUG);
        st_writer_free(w);
    }
}

/* The bytes of the stream form, by way of a pipe; at most what a pipe holds. */
static size_t stream_bytes(char *dst, size_t room)
{
    struct st_writer *w = mixed();
    unsigned char buf[64];
    int fd[2], k = 0, t;
    ssize_t n;

    assert_int_equal(pipe(fd), 0);
    assert_int_equal(st_writer_begin_stream(w, fd[1], "a pipe"), 0);
    while ((t = st_writer_next(w)) >= 0) {
        assert_int_equal(t, mixed_order[k++]);
        fill(buf, t, 0, mixed_bytes[t]);
        assert_int_equal(st_writer_put(w, t, 0, buf, 1), 0);
        assert_int_equal(st_writer_put(w, t, 1, buf + 1, mixed_bytes[t] - 1), 0);
    }
    assert_int_equal(k, 4);
    assert_int_equal(st_writer_end(w), 0);
    st_writer_free(w);
    close(fd[1]);
    n = read(fd[0], dst, room);
    close(fd[0]);
    assert_true(n > 0 && (size_t)n < room);
    return (size_t)n;
}

static int open_bytes(const char *bytes, size_t n)
{
    int fd[2];

    assert_int_equal(pipe(fd), 0);
    assert_int_equal(write(fd[1], bytes, n), n);
    close(fd[1]);
    return fd[0];
}

static void a_stream_holds_the_same_bytes_as_a_file_and_reads_in_order(void **state)
{
    const char *dir = toy_mkdir(), *path = toy_path(dir, "x.safetensors");
    struct st_writer *w = mixed();
    struct st_stream *s;
    unsigned char buf[64], got[64];
    char bytes[4096], *file;
    size_t n = stream_bytes(bytes, sizeof bytes), m;
    int fd;

    (void)state;
    assert_int_equal(st_writer_begin_replace(w, path), 0);
    for (int t = 0; t < 5; t++) {
        fill(buf, t, 0, mixed_bytes[t]);
        assert_int_equal(st_writer_put(w, t, 0, buf, mixed_bytes[t]), 0);
    }
    assert_int_equal(st_writer_end(w), 0);
    st_writer_free(w);
    toy_get(path, &file, &m);
    assert_int_equal(n, m);
    assert_memory_equal(bytes, file, n);
    free(file);

    fd = open_bytes(bytes, n);
    assert_int_equal(st_stream_open(fd, "standard input", &s), 0);
    check_mixed(st_stream_head(s));
    for (int k = 0; k < 4; k++) {
        fill(buf, mixed_order[k], 0, mixed_bytes[mixed_order[k]]);
        assert_int_equal(st_stream_read(s, got, mixed_bytes[mixed_order[k]]), 0);
        assert_memory_equal(got, buf, mixed_bytes[mixed_order[k]]);
    }
    assert_int_equal(st_stream_end(s), 0);
    st_stream_close(s);
    close(fd);
    toy_rmdir(dir);
}

static void a_stream_that_is_cut_or_goes_on_is_refused(void **state)
{
    char bytes[4096];
    size_t n = stream_bytes(bytes, sizeof bytes), data = 99, head = n - data;
    unsigned char got[128];

    (void)state;
    bytes[n] = 'x';
    for (size_t size = 0; size <= n + 1; size++) {
        int fd = open_bytes(bytes, size), rc;
        struct st_stream *s;

        rc = st_stream_open(fd, "standard input", &s);
        assert_int_equal(rc, size < head ? ERR_DATA : 0);
        if (rc == 0) {
            rc = st_stream_read(s, got, data);
            assert_int_equal(rc, size < n ? ERR_DATA : 0);
            if (rc == 0)
                rc = st_stream_end(s);
            assert_int_equal(rc, size == n ? 0 : ERR_DATA);
            if (size == n - 2)
                assert_non_null(strstr(err_msg(), "standard input: ends early, short by 2 bytes"));
            st_stream_close(s);
        }
        close(fd);
    }
    assert_non_null(strstr(err_msg(), "standard input: extra bytes after the last tensor"));
}

static void length_words_that_lie_are_refused_at_once(void **state)
{
    static const struct { const char *word, *want; } t[] = {
        { "\xff\xff\xff\xff\xff\xff\xff\xff", "a header of 18446744073709551615 bytes, over the limit of 100000000" },
        { "\0\0\0\0\0\0\0\x80", "a header of 9223372036854775808 bytes, over the limit of 100000000" },
        { "\x01\xe1\xf5\x05\0\0\0\0", "a header of 100000001 bytes, over the limit of 100000000" },
        { "\0\xe1\xf5\x05\0\0\0\0", "a header of 100000000 bytes in a file of 8" },
        { "\1\0\0\0\0\0\0\0", "a header of 1 bytes in a file of 8" },
        { "\0\0\0\0\0\0\0\0", "header: expected '{' at once" },
    };
    const char *dir = toy_mkdir(), *path = toy_path(dir, "x.safetensors");
    struct st_file *f;

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        toy_put(path, t[i].word, 8);
        assert_int_equal(st_open(path, &f), ERR_DATA);
        if (!strstr(err_msg(), t[i].want))
            print_message("# %s\n", err_msg());
        assert_non_null(strstr(err_msg(), t[i].want));
    }
    for (size_t n = 0; n < 8; n++) {
        toy_put(path, t[0].word, n);
        assert_int_equal(st_open(path, &f), ERR_DATA);
        assert_non_null(strstr(err_msg(), "too short for a safetensors file"));
    }
    assert_int_equal(st_open(toy_path(dir, "none"), &f), ERR_NOINPUT);
    assert_int_equal(st_open(dir, &f), ERR_DATA);
    toy_rmdir(dir);
}

static void sixteen_bit_floats_widen_exactly(void **state)
{
    static const uint16_t bf16[4] = { 0x3f80, 0xc049, 0x0001, 0x7f80 }, f16[4] = { 0x3c00, 0xc248, 0x0001, 0x7c00 };
    static const float want[4] = { 1, -3.140625f, 0x1p-133f, __builtin_inff() };
    static const float want16[4] = { 1, -3.140625f, 0x1p-24f, __builtin_inff() };
    const char *dir = toy_mkdir(), *path = toy_path(dir, "x.safetensors");
    struct st_writer *w = st_writer_new();
    struct ckpt *c;
    float got[4];

    (void)state;
    st_writer_add(w, "b", DT_BF16, 1, (int64_t[]){ 4 });
    st_writer_add(w, "h", DT_F16, 1, (int64_t[]){ 4 });
    st_writer_add(w, "i", DT_I32, 1, (int64_t[]){ 1 });
    assert_int_equal(st_writer_begin_replace(w, path), 0);
    assert_int_equal(st_writer_put(w, 0, 0, bf16, 8), 0);
    assert_int_equal(st_writer_put(w, 1, 0, f16, 8), 0);
    assert_int_equal(st_writer_put(w, 2, 0, "1234", 4), 0);
    assert_int_equal(st_writer_end(w), 0);
    st_writer_free(w);
    assert_int_equal(ckpt_open(path, 0, &c), 0);
    for (int first = 0; first < 4; first++) {
        assert_int_equal(ckpt_read_f32(c, ckpt_find(c, "b"), first, 4 - first, got), 0);
        assert_memory_equal(got, want + first, (size_t)(4 - first) * 4);
        assert_int_equal(ckpt_read_f32(c, ckpt_find(c, "h"), first, 4 - first, got), 0);
        assert_memory_equal(got, want16 + first, (size_t)(4 - first) * 4);
    }
    assert_int_equal(ckpt_read_f32(c, ckpt_find(c, "i"), 0, 1, got), ERR_DATA);
    assert_non_null(strstr(err_msg(), "is I32; F32, BF16 or F16 was expected"));
    ckpt_close(c);
    toy_rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_reads_back_whatever_the_order_of_its_pieces),
        cmocka_unit_test(parts_are_cut_at_64_mib_and_hash_what_lies_there),
        cmocka_unit_test(an_unfinished_file_is_not_left_and_a_missing_byte_is_our_bug),
        cmocka_unit_test(names_that_we_would_not_read_are_not_written),
        cmocka_unit_test(a_stream_holds_the_same_bytes_as_a_file_and_reads_in_order),
        cmocka_unit_test(a_stream_that_is_cut_or_goes_on_is_refused),
        cmocka_unit_test(length_words_that_lie_are_refused_at_once),
        cmocka_unit_test(sixteen_bit_floats_widen_exactly),
    };
    return cmocka_run_group_tests_name("ckpt_stream", tests, NULL, NULL);
}
