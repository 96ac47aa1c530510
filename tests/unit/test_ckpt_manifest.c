/* test_ckpt_manifest.c -- the text of MANIFEST.json both ways, and every way in
 * which one that was made by hand is refused.
 *
 * Tampering here recomputes the self hash, so each refusal is the parser's own
 * and not the hash's. */
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
#include "base/pool.h"
#include "ckpt/manifest.h"
#include "unit/ckpt_toy.h"

static struct manifest_file files[2];
static struct manifest_tensor tensors[2];
static struct st_part parts[2];

static struct manifest sample(void)
{
    static const int64_t shape[2] = { 4, 3 }, zero[1] = { 0 };
    struct manifest m = { .info = toy_info(12), .files = files, .n_files = 2, .tensors = tensors, .n_tensors = 2 };

    files[0] = (struct manifest_file){ "config.json", 22, 0, hash_bytes("c", 1) };
    files[1] = (struct manifest_file){ "model-00001-of-00001.safetensors", 100, 1, hash_bytes("m", 1) };
    parts[0] = (struct st_part){ 0, 16, hash_bytes("p", 1) };
    parts[1] = (struct st_part){ 16, 48, hash_bytes("q", 1) };
    tensors[0] = (struct manifest_tensor){ "a \"b\"", 1, "F32", 2, shape, parts, 2 };
    tensors[1] = (struct manifest_tensor){ "none", 1, "F32", 1, zero, parts, 0 };
    return m;
}

static char *sample_text(size_t *n)
{
    struct manifest m = sample();
    static char *text;

    assert_int_equal(manifest_format(&m, &text, n), 0);
    return text;
}

static void a_manifest_reads_back_and_writes_the_same_bytes(void **state)
{
    size_t n, n2;
    char *text = sample_text(&n), *again;
    struct manifest *m;

    (void)state;
    assert_int_equal(manifest_parse("M", text, n, &m), 0);
    assert_int_equal(m->info.step, 12);
    assert_int_equal(m->info.data_seed, 7);
    assert_int_equal(m->info.n_argv, 3);
    assert_string_equal(m->tensors[0].name, "a \"b\"");
    assert_int_equal(m->tensors[0].parts[1].end, 48);
    assert_int_equal(m->tensors[1].n_parts, 0);
    assert_true(m->files[1].is_tensors);
    assert_int_equal(manifest_format(m, &again, &n2), 0);
    assert_int_equal(n, n2);
    assert_memory_equal(text, again, n);
    pool_free(again);
    pool_free(text);
    manifest_free(m);
}

static void the_self_hash_covers_every_byte_before_it(void **state)
{
    size_t n;
    char *text = sample_text(&n), *self = strstr(text, "\"self\":\"");
    struct hash want = hash_bytes(text, (size_t)(self - text));
    struct manifest *m;

    (void)state;
    assert_memory_equal(self + 8, want.hex, 32);
    for (size_t i = 0; i < n - 1; i++) {
        text[i] ^= 1;
        assert_int_equal(manifest_parse("M", text, n, &m), ERR_DATA);
        text[i] ^= 1;
    }
    for (size_t i = 0; i < n - 1; i++)
        assert_int_equal(manifest_parse("M", text, i, &m), ERR_DATA);
    assert_int_equal(manifest_parse("M", text, n - 1, &m), 0);
    manifest_free(m);
    pool_free(text);
}

/* Its kind is read back, and found in the first bytes alone. */
static void the_kind_is_there_when_it_is_not_the_ordinary_one(void **state)
{
    static const char *const lead = "{\"format\":\"moe.checkpoint/1\",\"kind\":\"";
    const char *dir = toy_mkdir();

    (void)state;
    for (int k = MANIFEST_FULL; k <= MANIFEST_LIGHT; k++) {
        struct manifest m = sample(), *back;
        enum manifest_kind kind = MANIFEST_LIGHT;
        char *text;
        size_t n;

        m.info.kind = (enum manifest_kind)k;
        assert_int_equal(manifest_format(&m, &text, &n), 0);
        assert_int_equal(!strncmp(text, lead, strlen(lead)), k != MANIFEST_FULL);
        assert_int_equal(manifest_parse("M", text, n, &back), 0);
        assert_int_equal(back->info.kind, k);
        manifest_free(back);
        toy_put(toy_path(dir, "MANIFEST.json"), text, n);
        assert_int_equal(manifest_kind_of(dir, &kind), 0);
        assert_int_equal(kind, k);
        /* One that is cut short is for the loader to find. */
        for (size_t i = 0; i < 100; i += 7) {
            toy_put(toy_path(dir, "MANIFEST.json"), text, i);
            assert_int_equal(manifest_kind_of(dir, &kind), 0);
        }
        pool_free(text);
    }
    unlink(toy_path(dir, "MANIFEST.json"));
    assert_int_equal(manifest_kind_of(dir, &(enum manifest_kind){ MANIFEST_FULL }), ERR_NOINPUT);
    toy_rmdir(dir);
}

/* Replaces the first `from` by `to` and puts the right self hash at the end. */
static char *tamper(const char *from, const char *to, size_t *n)
{
    char *text = sample_text(n), *at = strstr(text, from), *out, *self;
    struct hash h;

    assert_non_null(at);
    out = malloc(*n + strlen(to) + 1);
    assert_non_null(out);
    *n = (size_t)snprintf(out, *n + strlen(to) + 1, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    self = strstr(out, "\"self\":\"");
    h = hash_bytes(out, (size_t)(self - out));
    memcpy(self + 8, h.hex, 32);
    pool_free(text);
    return out;
}

static void every_tampered_manifest_is_refused_with_its_cause(void **state)
{
    static const struct { const char *from, *to, *want; } t[] = {
        { "moe.checkpoint/1", "moe.checkpoint/2", "M: the format is not moe.checkpoint/1" },
        { "\"format\":\"moe.checkpoint/1\",", "", "M: \"format\" is missing" },
        { "\"format\":\"moe.checkpoint/1\"", "\"format\":1", "M: \"format\": expected a string" },
        { "\"tool\":", "\"tool\":\"x\",\"tool\":", "duplicate" },
        { "\"tool\":", "\"kind\":\"full\",\"tool\":", "M: \"kind\" is neither major nor light" },
        { "\"tool\":", "\"kind\":\"Light\",\"tool\":", "M: \"kind\" is neither major nor light" },
        { "\"tool\":", "\"kind\":1,\"tool\":", "M: \"kind\": expected a string" },
        { "\"tool\":", "\"kind\":\"light\",\"kind\":\"light\",\"tool\":", "duplicate" },
        { "\"tool\":", "\"extra\":1,\"tool\":", "M: holds a key that this format does not have" },
        { "\"restart\":2,", "", "M: \"restart\" is missing" },
        { "\"restart\":2", "\"restart\":-2", "M: \"restart\" is negative" },
        { "\"step\":12", "\"step\":12.5", "M: \"step\": expected an integer" },
        { "\"step\":12", "\"step\":\"12\"", "M: \"step\": expected an integer" },
        { "\"run_id\":\"", "\"run_id\":\"x", "M: \"run_id\" is not a hash of 32 hex digits" },
        { "\"argv\":[", "\"argv\":[1,", "M: \"argv\": expected strings" },
        { "\"mesh\":{", "\"mesh\":{\"pp\":1,", "M: mesh: holds a key" },
        { "\"efsdp\":2", "\"efsdp\":-2", "M: \"efsdp\" is negative" },
        { "\"windows\":99", "\"windows\":-1", "M: data.sets: \"windows\" is negative" },
        { "\"seed\":7", "\"seed\":null", "M: \"seed\": expected an integer" },
        { "\"config.json\":", "\"../config.json\":", "M: files: a name that is not one inside the directory" },
        { "\"config.json\":", "\"/etc/passwd\":", "M: files: a name that is not one inside the directory" },
        { "\"config.json\":", "\"a//b\":", "M: files: a name that is not one inside the directory" },
        { "\"config.json\":", "\"a/../b\":", "M: files: a name that is not one inside the directory" },
        { "\"config.json\":", "\"\":", "M: files: a name that is not one inside the directory" },
        { "\"config.json\":", "\"a\\u001bb\":", "M: files: a name that is not one inside the directory" },
        { "\"config.json\":", "\"MANIFEST.json\":", "M: files: a name that is not one inside the directory" },
        { "\"bytes\":22", "\"bytes\":-22", "M: files: config.json: \"bytes\" is negative" },
        { "\"bytes\":22,", "", "M: files: config.json: \"bytes\" is missing" },
        { "\"bytes\":22", "\"mode\":1,\"bytes\":22", "M: files: config.json: holds a key" },
        { "\"header\":", "\"hash\":", "M: tensor \"a \"b\"\": its file is not among the listed tensor files" },
        { "\"file\":\"model-00001", "\"file\":\"model-00002", "M: tensor \"a \"b\"\": its file is not among the listed tensor files" },
        { "\"dtype\":\"F32\"", "\"dtype\":\"F31\"", "M: tensor \"a \"b\"\": unknown type" },
        { "\"shape\":[4,3]", "\"shape\":[4,-3]", "M: tensor \"a \"b\"\": a dimension that is no number, negative or too large" },
        { "\"shape\":[4,3]", "\"shape\":[4,3.0]", "M: tensor \"a \"b\"\": a dimension that is no number, negative or too large" },
        { "\"shape\":[4,3]", "\"shape\":[4611686018427387904,4611686018427387904]", "M: tensor \"a \"b\"\": a dimension that is no number, negative or too large" },
        { "\"shape\":[4,3]", "\"shape\":[4,4]", "M: tensor \"a \"b\"\": its parts do not tile its 64 bytes" },
        { "[0,16,", "[4,16,", "M: tensor \"a \"b\"\": its parts do not tile its 48 bytes" },
        { "[16,48,", "[16,16,", "M: tensor \"a \"b\"\": its parts do not tile its 48 bytes" },
        { "[16,48,", "[12,48,", "M: tensor \"a \"b\"\": its parts do not tile its 48 bytes" },
        { "[16,48,", "[16,52,", "M: tensor \"a \"b\"\": its parts do not tile its 48 bytes" },
        { "[16,48,", "[-16,48,", "M: tensor \"a \"b\"\": its parts do not tile its 48 bytes" },
        { "[16,48,", "[16,48.0,", "M: tensor \"a \"b\"\": part 1 is not [begin, end, hash]" },
        { "[16,48,", "[16,48,1,", "M: tensor \"a \"b\"\": part 1 is not [begin, end, hash]" },
        { "[16,48,", "[16,48,\"", "" },
        { "\"tensors\":{", "\"tensors\":{\"a\\u0007\":{},", "M: a control character in a tensor name" },
        { "\"none\":{", "\"a \\\"b\\\"\":{", "M: \"tensors\": duplicate key \"a \"b\"\"" },
        { "\"config.json\":", "\"model-00001-of-00001.safetensors\":", "M: \"files\": duplicate key \"model-" },
        { "\"seed\":7", "\"seed\":7,\"seed\":7", "duplicate key \"seed\"" },
        { "\"bytes\":22", "\"header\":\"0123456789abcdef0123456789abcdef\",\"bytes\":22", "M: files: config.json: holds a key" },
        { "\"step\":12", "\"step\":12,\"x\":{\"a\":1,\"a\":2}", "duplicate" },
        { "\"step\":12", "\"step\":99999999999999999999", "64 bits" },
        { "\"step\":12", "\"step\":012", "leading zero" },
        { "\"step\":12", "\"step\":12,", "expected a key in quotes" },
    };
    struct manifest *m;

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        size_t n;
        char *text = tamper(t[i].from, t[i].to, &n);
        int rc = manifest_parse("M", text, n, &m);

        if (rc != ERR_DATA || !strstr(err_msg(), t[i].want))
            print_message("# %s -> %s: status %d, %s\n", t[i].from, t[i].to, rc, err_msg());
        assert_int_equal(rc, ERR_DATA);
        assert_non_null(strstr(err_msg(), t[i].want));
        pool_free(text);
    }
}

/* No writer of ours does it, but keys of an object have no order. */
static void tensors_may_come_before_the_files_they_lie_in(void **state)
{
    size_t n;
    char *text = sample_text(&n), *f = strstr(text, "\"files\":"), *t = strstr(text, "\"tensors\":"), *self;
    char *other = malloc(n + 1);
    struct manifest *m;
    struct hash h;

    (void)state;
    assert_non_null(other);
    snprintf(other, n + 1, "%.*s%.*s%.*s%s", (int)(f - text), text, (int)(strstr(t, "\"self\"") - t), t,
             (int)(t - f), f, strstr(t, "\"self\""));
    self = strstr(other, "\"self\":\"");
    h = hash_bytes(other, (size_t)(self - other));
    memcpy(self + 8, h.hex, 32);
    assert_int_equal(manifest_parse("M", other, n, &m), 0);
    assert_int_equal(m->n_tensors, 2);
    assert_int_equal(m->tensors[0].i_file, 1);
    assert_int_equal(m->tensors[0].parts[1].end, 48);
    manifest_free(m);
    free(other);
    pool_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_manifest_reads_back_and_writes_the_same_bytes),
        cmocka_unit_test(the_self_hash_covers_every_byte_before_it),
        cmocka_unit_test(the_kind_is_there_when_it_is_not_the_ordinary_one),
        cmocka_unit_test(every_tampered_manifest_is_refused_with_its_cause),
        cmocka_unit_test(tensors_may_come_before_the_files_they_lie_in),
    };
    return cmocka_run_group_tests_name("ckpt_manifest", tests, NULL, NULL);
}
