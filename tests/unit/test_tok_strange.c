/* test_tok_strange.c -- files that nobody should write and some do: the ids are those of the package, or the file
 * is refused by name.  All of them were found by holding random files against tokenizers and sentencepiece. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "tok/encode.h"
#include "tok/vocab_convert.h"
#include "tok_small.h"

#define ADDED(id, content, flags) "{\"id\":" #id ",\"content\":\"" content "\"" flags "}"

/* What remains where the matches are removed. */
static void leaves(const struct tok_small *s, const char *text, const char *want)
{
    int32_t ids[64];
    struct tok_vocab *v = tok_small_new(s, 1);
    for (size_t i = 0; i < strlen(want); i++)
        ids[i] = (uint8_t)want[i];
    tok_small_gives(v, text, (int)strlen(want), ids);
    tok_vocab_free(v);
}

static void a_word_character_of_latin_1_is_none_in_a_class(void **state)
{
    (void)state;
    leaves(&(struct tok_small){ .pre = SPLIT_HOW("\\\\w", "Removed", "false") }, "a\xc2\xb2\xc2\xbd-", "-");
    leaves(&(struct tok_small){ .pre = SPLIT_HOW("[\\\\w]", "Removed", "false") }, "a\xc2\xb2\xc2\xbd-", "\xc2\xb2\xc2\xbd-");
    leaves(&(struct tok_small){ .pre = SPLIT_HOW("[^\\\\w]", "Removed", "false") }, "a\xc2\xb2\xc2\xbd-", "a");
}

static void a_character_may_be_neither_of_two_kinds(void **state)
{
    (void)state;
    leaves(&(struct tok_small){ .pre = SPLIT_HOW("\\\\P{L}*\\\\P{N}x", "Removed", "false") }, "b$$xc", "bc");
    leaves(&(struct tok_small){ .pre = SPLIT_HOW("\\\\P{Greek}+?\\\\P{Latin}!", "Removed", "false") }, "\xce\xb1$$!-", "\xce\xb1-");
}

static void borders_of_words_hex_digits_and_named_groups_are_known(void **state)
{
    (void)state;
    leaves(&(struct tok_small){ .pre = SPLIT_HOW("\\\\b[a-z]", "Removed", "false") }, "ab c\xc2\xb2" "d,e", "b \xc2\xb2" "d,");
    leaves(&(struct tok_small){ .pre = SPLIT_HOW("\\\\B[a-z]", "Removed", "false") }, "ab c\xc2\xb2" "d,e", "a c\xc2\xb2,e");
    leaves(&(struct tok_small){ .pre = SPLIT_HOW("\\\\h+|[\\\\hx]", "Removed", "false") }, "09afAFgx", "g");
    leaves(&(struct tok_small){ .pre = SPLIT_HOW("(?<two>ab)+|(?<=c)d", "Removed", "false") }, "ababacd", "ac");
    tok_small_refused(&(struct tok_small){ .pre = SPLIT("(?<two>ab)\\\\k<two>") }, 1, "this escape");
}

/* BLOOM's expression leaves signs out: to keep its matches and to isolate them is not the same. */
static void what_an_expression_does_not_match_is_removed_when_only_matches_are_kept(void **state)
{
    (void)state;
#define BLOOM " ?[^(\\\\s|[.,!?\xe2\x80\xa6\xe3\x80\x82\xef\xbc\x8c\xe3\x80\x81\xe0\xa5\xa4\xdb\x94\xd8\x8c])]+"
    leaves(&(struct tok_small){ .pre = SPLIT_HOW(BLOOM, "Removed", "true") }, "one, two.\n (three)", "one twothree");
    leaves(&(struct tok_small){ .pre = SPLIT_HOW(BLOOM, "Isolated", "false") }, "one, two.\n (three)", "one, two.\n (three)");
}

static void a_literal_space_is_no_byte(void **state)
{
    (void)state;
    struct tok_small s = { .pre = QWEN, .tokens = { " ", "\xe4\xb8\xad" } };
    struct tok_vocab *v = tok_small_new(&s, 1);
    tok_small_gives(v, "a b", 3, (int32_t[]){ 'a', ' ', 'b' });
    tok_small_shows(v, 3, (int32_t[]){ 'a', 256, 257 }, "a \xe4\xb8\xad");
    tok_vocab_free(v);
}

#define SP_STEPS "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"" SPACE "\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" SPACE "\"}]}"

static void what_is_dropped_brings_its_neighbours_together(void **state)
{
    (void)state;
    struct tok_small s = { .normalizer = SP_STEPS, .decoder = SP_DECODER, .tokens = { SPACE, "a", SPACE SPACE, "<unk>" }, .merges = "\"" SPACE " " SPACE "\"" };
    struct tok_vocab *v = tok_small_new(&s, 0);
    tok_small_gives(v, "a Z a", 4, (int32_t[]){ 0, 1, 2, 1 });
    tok_vocab_free(v);
    s.options = ",\"unk_token\":\"<unk>\"";
    v = tok_small_new(&s, 0);
    tok_small_gives(v, "a Z a", 6, (int32_t[]){ 0, 1, 0, 3, 0, 1 });
    tok_vocab_free(v);
}

static void an_unknown_token_waits_while_bytes_pass(void **state)
{
    (void)state;
    struct tok_small s = { .normalizer = SP_STEPS, .decoder = SP_DECODER, .tokens = { SPACE, "a", "<unk>", "<0x0D>", "<0x0A>" },
                           .options = ",\"unk_token\":\"<unk>\",\"byte_fallback\":true" };
    struct tok_vocab *v = tok_small_new(&s, 0);
    tok_small_gives(v, "Z\r\na", 5, (int32_t[]){ 0, 3, 4, 2, 1 });
    tok_small_gives(v, "\rZ a", 5, (int32_t[]){ 0, 3, 2, 0, 1 });
    tok_vocab_free(v);
}

/* ---- SentencePiece: a model written by hand */

static size_t piece(char *out, const char *s, uint8_t score, int type)
{
    size_t n = strlen(s), k = 0;
    const char head[] = { 0x0a, (char)(n + 9), 0x0a, (char)n };
    memcpy(out, head, 4);
    memcpy(out + 4, s, n);
    k = 4 + n;
    const char tail[] = { 0x15, 0, 0, (char)score, (char)0xc0, 0x18, (char)type };       /* -2, -3 ... by the third byte */
    memcpy(out + k, tail, 7);
    return k + 7;
}

static void a_mark_that_is_only_part_of_tokens_is_unknown(void **state)
{
    (void)state;
    static const char specs[] = { 0x12, 2, 0x18, 2, 0x1a, 4, 0x18, 0, 0x20, 0 };         /* BPE; no dummy prefix, spaces stay */
    char model[256];
    size_t n = 0;
    struct tok_vocab *v;
    n += piece(model + n, "<unk>", 0, 2);
    n += piece(model + n, "a", 0, 1);
    n += piece(model + n, SPACE "!", 0, 1);
    memcpy(model + n, specs, sizeof specs);
    assert_int_equal(tok_vocab_parse("model", model, n + sizeof specs, &v), 0);
    tok_small_gives(v, "aZ a !", 4, (int32_t[]){ 1, 0, 1, 2 });
    tok_vocab_free(v);
}

static struct tok_vocab *by_scores(const char *const *pieces, const uint8_t *score, int n_pieces)
{
    static const char specs[] = { 0x12, 2, 0x18, 2, 0x1a, 4, 0x18, 0, 0x20, 0 };
    char model[512];
    size_t n = piece(model, "<unk>", 0, 2);
    struct tok_vocab *v = NULL;
    for (int i = 0; i < n_pieces; i++)
        n += piece(model + n, pieces[i], score[i], 1);
    memcpy(model + n, specs, sizeof specs);
    assert_int_equal(tok_vocab_parse("model", model, n + sizeof specs, &v), 0);
    return v;
}

/* Llama's runs of spaces have one score: the leftmost two that are a token together merge. */
static void runs_of_one_score_become_a_list(void **state)
{
    (void)state;
    static const char *const runs[] = { SPACE, "a", SPACE SPACE, SPACE SPACE SPACE, SPACE SPACE SPACE SPACE SPACE }, *const two[] = { "a", "b", "ab", "ba" };
    char *text;
    size_t n;
    struct tok_vocab *v = by_scores(runs, (const uint8_t[]){ 0x20, 0x20, 0x10, 0x10, 0x10 }, 5), *copy = NULL;
    assert_int_equal(tok_vocab_to_json(v, &text, &n), 0);
    assert_int_equal(tok_vocab_parse("copy", text, n, &copy), 0);
    assert_int_equal(tok_vocab_equal(v, copy), 0);
    tok_small_gives(copy, "a     a    a", 6, (int32_t[]){ 2, 5, 2, 4, 1, 2 });
    tok_small_gives(v, "a     a    a", 6, (int32_t[]){ 2, 5, 2, 4, 1, 2 });
    free(text);
    tok_vocab_free(copy);
    tok_vocab_free(v);
    v = by_scores(two, (const uint8_t[]){ 0x20, 0x20, 0x10, 0x10 }, 4);
    assert_int_equal(tok_vocab_to_json(v, &text, &n), ERR_DATA);
    assert_non_null(strstr(err_msg(), "tokens 3 and 4 have the same score"));
    tok_vocab_free(v);
}

/* ---- added tokens */

static void added_tokens_that_are_one_text_are_refused(void **state)
{
    (void)state;
    tok_small_refused(&(struct tok_small){ .pre = QWEN, .normalizer = "{\"type\":\"Lowercase\"}", .added = ADDED(256, "TOK", ",\"normalized\":true") "," ADDED(257, "Tok", ",\"normalized\":true") },
                      1, "added tokens 256 and 257 are the same text when normalized: not supported");
    tok_small_refused(&(struct tok_small){ .pre = QWEN, .added = ADDED(256, "TOK", "") "," ADDED(257, "TOK", ",\"special\":true") },
                      1, "added tokens 256 and 257 are the same text: not supported");
}

static void added_tokens_are_read_as_what_they_were_found_as(void **state)
{
    (void)state;
    /* Gemma's runs of spaces are added tokens, and merging yields them as well. */
    struct tok_small s = { .normalizer = "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" SPACE "\"}", .decoder = SP_DECODER,
                           .tokens = { SPACE, "a", SPACE SPACE, "<unk>" }, .merges = "\"" SPACE " " SPACE "\"",
                           .added = ADDED(2, SPACE SPACE, "") "," ADDED(4, " x", ",\"normalized\":true") "," ADDED(3, "<unk>", ",\"special\":true") };
    struct tok_vocab *v = tok_small_new(&s, 0);
    tok_small_gives(v, "a  a xa", 5, (int32_t[]){ 1, 2, 1, 4, 1 });
    tok_small_shows(v, 5, (int32_t[]){ 1, 2, 1, 4, 1 }, "a  a xa");
    tok_vocab_free(v);
    s = (struct tok_small){ .pre = QWEN, .normalizer = "{\"type\":\"Lowercase\"}", .added = ADDED(256, "TOK", ",\"normalized\":true") };
    v = tok_small_new(&s, 1);
    tok_small_gives(v, "ToK", 1, (int32_t[]){ 256 });
    tok_small_shows(v, 1, (int32_t[]){ 256 }, "tok");
    tok_vocab_free(v);
}

/* U+00E9 is the byte E9 in the alphabet of bytes, and a character outside of it. */
static void a_token_of_two_meanings_does_not_keep_the_text(void **state)
{
    (void)state;
    struct tok_small s = { .pre = QWEN, .added = ADDED(233, "\xc3\xa9", "") };
    struct tok_vocab *v = tok_small_new(&s, 1);
    assert_false(tok_vocab_keeps_text(v));
    tok_vocab_free(v);
    s.added = ADDED(97, "a", "");
    v = tok_small_new(&s, 1);
    assert_true(tok_vocab_keeps_text(v));
    tok_vocab_free(v);
}

static void a_wrong_type_is_named_with_its_place_in_one_line(void **state)
{
    (void)state;
    tok_small_refused(&(struct tok_small){ .pre = QWEN, .added = ADDED(256, "xx", "") "," ADDED(257, "yy", ",\"lstrip\":1") }, 1, "added_tokens[1]: \"lstrip\": expected true or false");
    tok_small_refused(&(struct tok_small){ .pre = QWEN, .added = "{\"content\":\"x\"}" }, 1, "added_tokens[0]: \"id\" is missing");
    tok_small_refused(&(struct tok_small){ .pre = QWEN, .normalizer = "{\"type\":\"Prepend\"}" }, 1, "normalizer: \"prepend\" is missing");
    tok_small_refused(&(struct tok_small){ .pre = QWEN, .options = ",\"dropout\":0.1" }, 1, "model.dropout: 0.1 is not supported");
    tok_small_refused(&(struct tok_small){ .pre = SPLIT_HOW("a", "Joined", "false") }, 1, "pre_tokenizer.pretokenizers[0].behavior: \"Joined\" is not supported");
    tok_small_refused(&(struct tok_small){ .pre = QWEN, .added = ADDED(10, "x\\ny", "") "," ADDED(10, "x\\nz", "") }, 1, "id 10 is given twice");
    tok_small_refused(&(struct tok_small){ .pre = QWEN, .added = ADDED(3, "x\\ny", ""), .tokens = { "x\\ny" } }, 1, "\"x?y\" has id 3 in added_tokens, but 256 in model.vocab");
}

/* ---- steps */

static void the_first_piece_is_not_guessed(void **state)
{
    (void)state;
#define METASPACE(scheme) "{\"type\":\"Metaspace\",\"replacement\":\"" SPACE "\",\"prepend_scheme\":\"" scheme "\",\"split\":true}"
    struct tok_small s = { .decoder = SP_DECODER, .tokens = { SPACE, "a", "b" }, .normalizer = "{\"type\":\"Prepend\",\"prepend\":\"b\"}",
                           .pre = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"String\":\"b\"},\"behavior\":\"Isolated\",\"invert\":false}," METASPACE("first") "]}" };
    tok_small_refused(&s, 0, "pre_tokenizer.pretokenizers[1]: {\"type\":\"Metaspace\"");
    s.normalizer = NULL;
    struct tok_vocab *v = tok_small_new(&s, 0);
    tok_small_gives(v, "ba", 3, (int32_t[]){ 0, 2, 1 });
    tok_vocab_free(v);
    s.pre = "{\"type\":\"Sequence\",\"pretokenizers\":[" METASPACE("always") "," METASPACE("first") "]}";
    tok_small_refused(&s, 0, "pre_tokenizer.pretokenizers[1]: {\"type\":\"Metaspace\"");
}

#define STEPS(steps) "{\"type\":\"Sequence\",\"pretokenizers\":[" steps ",{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":false}]}"
static void steps_of_other_names_are_splits(void **state)
{
    (void)state;
    static const struct { const char *steps, *text, *pieces; } cases[] = {       /* each piece begins with a space */
        { STEPS("{\"type\":\"Punctuation\"}"), "a(!b", " a ( ! b" },
        { STEPS("{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"}"), "a(!b$_\xd8\x9d", " a (! b $_ \xd8\x9d" },        /* U+061D came later */
        { STEPS("{\"type\":\"Whitespace\"}"), "don't  go\xc2\xb2", " don ' t go \xc2\xb2" },
        { STEPS("{\"type\":\"WhitespaceSplit\"}"), "don't  go\xc2\x85it", " don't go it" },
        { STEPS("{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"},{\"type\":\"Digits\",\"individual_digits\":false},"     /* Falcon's */
                "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[0-9][0-9][0-9]\"},\"behavior\":\"Isolated\",\"invert\":false}"), "v12345!", " v 123 45 !" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        leaves(&(struct tok_small){ .pre = cases[i].steps }, cases[i].text, cases[i].pieces);
    tok_small_refused(&(struct tok_small){ .pre = STEPS("{\"type\":\"UnicodeScripts\"}") }, 1, "pre_tokenizer.pretokenizers[0]: {\"type\":\"UnicodeScripts\"} is not supported");
}

static void the_frames_of_roberta_and_bert_are_templates(void **state)
{
    (void)state;
    struct tok_small s = { .pre = QWEN, .tokens = { "<s>", "</s>" },
                           .post = "{\"type\":\"RobertaProcessing\",\"sep\":[\"</s>\",257],\"cls\":[\"<s>\",256],\"trim_offsets\":true,\"add_prefix_space\":false}" };
    for (int k = 0; k < 2; k++) {
        struct tok_how how = { .threads = 1, .template = 1 };
        struct tok_encoder *e;
        const int32_t *ids;
        const int64_t *ends;
        uint64_t bad = 0;
        struct tok_vocab *v = tok_small_new(&s, 1);
        assert_int_equal(tok_encoder_new(v, &how, &e), 0);
        assert_int_equal(tok_encode(e, &(struct tok_span){ (const uint8_t *)"a", 1 }, 1, &ids, &ends, &bad), 0);
        assert_int_equal(ends[0], 3);
        assert_memory_equal(ids, ((int32_t[]){ 256, 'a', 257 }), 12);
        tok_encoder_free(e);
        tok_vocab_free(v);
        s.post = "{\"type\":\"BertProcessing\",\"sep\":[\"</s>\",257],\"cls\":[\"<s>\",256]}";
    }
    s.post = "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"B\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{}}";
    tok_small_refused(&s, 1, "post_processor.single: [{\"Sequence\":{\"id\":\"B\"");
    s.added = ADDED(300, "x y", "");
    s.post = "{\"type\":\"BertProcessing\",\"sep\":[\"</s>\",299],\"cls\":[\"<s>\",256]}";
    tok_small_refused(&s, 1, "post_processor: id 299 is no token");
    s.added = NULL;
    s.post = "{\"type\":\"BertProcessing\",\"sep\":[\"</s>\",258],\"cls\":[\"<s>\",256]}";
    tok_small_refused(&s, 1, "post_processor: {\"type\":\"BertProcessing\"");
}

static void a_token_for_the_unknown_may_be_missing_where_nothing_is(void **state)
{
    (void)state;
    struct tok_small s = { .pre = QWEN, .options = ",\"unk_token\":\"<unk>\"" };
    struct tok_vocab *v = tok_small_new(&s, 1);
    tok_small_gives(v, "a\xc3\xa9", 3, (int32_t[]){ 'a', 0xc3, 0xa9 });
    tok_vocab_free(v);
    s.decoder = SP_DECODER;
    s.pre = NULL;
    s.tokens[0] = "a";
    tok_small_refused(&s, 0, "model.unk_token: \"<unk>\" is not in model.vocab");
}

/* The text of a token is known all the same: training counts bits per byte of it. */
static void a_decoder_that_is_not_supported_changes_no_text(void **state)
{
    (void)state;
    struct tok_small s = { .pre = QWEN, .tokens = { "ab" }, .merges = "\"a b\"",
                           .decoder = "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"ccc\"},{\"type\":\"CTC\"}]}" };
    struct tok_vocab *v = tok_small_new(&s, 1);
    struct tok_decoder d;
    char *buf = NULL;
    size_t n, len = 0, cap = 0;
    assert_memory_equal(tok_vocab_bytes(v, 256, &n), "ab", 2);
    assert_int_equal(n, 2);
    tok_decode_begin(&d, v);
    assert_int_equal(tok_decode(&d, (int32_t[]){ 256 }, 1, 0, &buf, &len, &cap), ERR_DATA);
    assert_non_null(strstr(err_msg(), "decoder: {\"type\":\"Sequence\""));
    free(buf);
    tok_vocab_free(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word_character_of_latin_1_is_none_in_a_class),
        cmocka_unit_test(a_character_may_be_neither_of_two_kinds),
        cmocka_unit_test(borders_of_words_hex_digits_and_named_groups_are_known),
        cmocka_unit_test(what_an_expression_does_not_match_is_removed_when_only_matches_are_kept),
        cmocka_unit_test(a_literal_space_is_no_byte),
        cmocka_unit_test(what_is_dropped_brings_its_neighbours_together),
        cmocka_unit_test(an_unknown_token_waits_while_bytes_pass),
        cmocka_unit_test(a_mark_that_is_only_part_of_tokens_is_unknown),
        cmocka_unit_test(runs_of_one_score_become_a_list),
        cmocka_unit_test(added_tokens_that_are_one_text_are_refused),
        cmocka_unit_test(a_wrong_type_is_named_with_its_place_in_one_line),
        cmocka_unit_test(added_tokens_are_read_as_what_they_were_found_as),
        cmocka_unit_test(a_token_of_two_meanings_does_not_keep_the_text),
        cmocka_unit_test(the_first_piece_is_not_guessed),
        cmocka_unit_test(steps_of_other_names_are_splits),
        cmocka_unit_test(the_frames_of_roberta_and_bert_are_templates),
        cmocka_unit_test(a_token_for_the_unknown_may_be_missing_where_nothing_is),
        cmocka_unit_test(a_decoder_that_is_not_supported_changes_no_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
