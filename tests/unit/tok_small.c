/* tok_small.c -- see tok_small.h. */
#include "tok_small.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "tok/bytelevel.h"
#include "tok/encode.h"

static size_t write_text(const struct tok_small *s, _Bool bytes, char *text, size_t room)
{
    size_t n = 0;
    int id = 0;
    char shown[8];
    n += (size_t)snprintf(text + n, room - n, "{\"added_tokens\":[%s],\"normalizer\":%s,\"pre_tokenizer\":%s,\"decoder\":%s,\"post_processor\":%s,\"model\":{\"type\":\"BPE\"%s,\"vocab\":{",
                          s->added ? s->added : "", s->normalizer ? s->normalizer : "null", s->pre ? s->pre : "null", s->decoder ? s->decoder : BYTES,
                          s->post ? s->post : "null", s->options ? s->options : "");
    for (int b = 0; bytes && b < 256; b++) {
        uint8_t byte = (uint8_t)b;
        shown[tok_bytes_show(&byte, 1, shown)] = '\0';
        n += (size_t)snprintf(text + n, room - n, "%s\"%s%s\":%d", id > 0 ? "," : "", b == '"' || b == '\\' ? "\\" : "", shown, id);
        id++;
    }
    for (int i = 0; i < 24 && s->tokens[i] != NULL; i++, id++)
        n += (size_t)snprintf(text + n, room - n, "%s\"%s\":%d", id > 0 ? "," : "", s->tokens[i], id);
    n += (size_t)snprintf(text + n, room - n, "},\"merges\":[%s]}}", s->merges ? s->merges : "");
    return n;
}

struct tok_vocab *tok_small_new(const struct tok_small *s, _Bool bytes)
{
    static char text[1 << 16];
    struct tok_vocab *v = NULL;
    int rc = tok_vocab_parse("small", text, write_text(s, bytes, text, sizeof text), &v);
    if (rc < 0)
        print_message("%s\n", err_msg());
    assert_int_equal(rc, 0);
    return v;
}

void tok_small_refused(const struct tok_small *s, _Bool bytes, const char *why)
{
    static char text[1 << 16];
    struct tok_vocab *v = NULL;
    struct tok_encoder *e = NULL;
    int rc = tok_vocab_parse("small", text, write_text(s, bytes, text, sizeof text), &v);
    if (rc == 0)
        rc = tok_encoder_new(v, NULL, &e);
    assert_int_equal(rc, ERR_DATA);
    if (strstr(err_msg(), why) == NULL)
        print_message("\"%s\" does not say \"%s\"\n", err_msg(), why);
    assert_non_null(strstr(err_msg(), why));
    tok_vocab_free(v);
}

int64_t tok_small_encode(const struct tok_vocab *v, const void *s, size_t n, int32_t *out, int64_t most)
{
    int64_t count[2] = { 0 };
    for (int slow = 0; slow < 2; slow++) {
        struct tok_how how = { .threads = 1, .slow = slow };
        struct tok_span doc = { s, n };
        struct tok_encoder *e;
        const int32_t *ids;
        const int64_t *ends;
        uint64_t bad = 0;
        assert_int_equal(tok_encoder_new(v, &how, &e), 0);
        assert_int_equal(tok_encode(e, &doc, 1, &ids, &ends, &bad), 0);
        count[slow] = ends[0];
        for (int64_t i = 0; i < ends[0] && i < most; i++) {
            if (slow)
                assert_int_equal(ids[i], out[i]);
            out[i] = ids[i];
        }
        tok_encoder_free(e);
    }
    assert_int_equal(count[0], count[1]);
    return count[0];
}

void tok_small_gives(const struct tok_vocab *v, const char *text, int n, const int32_t *want)
{
    int32_t ids[64];
    int64_t k = tok_small_encode(v, text, strlen(text), ids, 64);
    for (int i = 0; i < n && i < k; i++)
        assert_int_equal(ids[i], want[i]);
    assert_int_equal(k, n);
}

void tok_small_shows(const struct tok_vocab *v, int n, const int32_t *ids, const char *want)
{
    struct tok_decoder d;
    char *buf = NULL;
    size_t len = 0, cap = 0;
    tok_decode_begin(&d, v);
    assert_int_equal(tok_decode(&d, ids, (size_t)n, 0, &buf, &len, &cap), 0);
    assert_int_equal(tok_decode_end(&d, &buf, &len, &cap), 0);
    assert_string_equal(buf, want);
    free(buf);
}
