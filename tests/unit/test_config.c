/* test_config.c -- strict configuration: what is read, what is refused and in
 * which words, and that what is printed loads again. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/config.h"
#include "base/err.h"
#include "base/fs.h"

struct set { char *path, *name; double weight; };

struct conf {
    int64_t hidden, layers, steps, seq_len, warmup, cap;
    double lr, alr, eps, std, wd, clip, betas[2];
    _Bool nesterov;
    int kind, dtype;
    char *tokenizer, *note;
    struct config_items train;
};

static const struct config_key set_keys[] = {
    { "path", CONFIG_STR, offsetof(struct set, path), NULL, 0, 0, NULL, "prefix of the files", NULL, 0 },
    { "name", CONFIG_STR, offsetof(struct set, name), "", 0, 0, NULL, "name", NULL, 0 },
    { "weight", CONFIG_FLOAT, offsetof(struct set, weight), "1", 0, INFINITY, NULL, "share", NULL, 0 },
    { NULL, CONFIG_INT, 0, NULL, 0, 0, NULL, NULL, NULL, 0 },
};

#define K(path, kind, field, def, min, max, choices) \
    { path, kind, offsetof(struct conf, field), def, min, max, choices, "doc", NULL, 0 }
static const struct config_key keys[] = {
    K("model.hidden_size", CONFIG_INT, hidden, NULL, 1, 1e6, NULL),
    K("model.num_hidden_layers", CONFIG_INT, layers, "2", 1, 1000, NULL),
    K("model.rms_norm_eps", CONFIG_FLOAT, eps, "1e-6", 0, 1, NULL),
    K("init.std", CONFIG_FLOAT, std, "0.02", 0, 10, NULL),
    K("tokenizer", CONFIG_STR, tokenizer, "", 0, 0, NULL),
    { "data.train", CONFIG_ITEMS, offsetof(struct conf, train), "[]", 0, 0, NULL, "sets", set_keys, sizeof(struct set) },
    K("data.seq_len", CONFIG_INT, seq_len, "256", 1, INFINITY, NULL),
    K("train.steps", CONFIG_INT, steps, "200", 1, INFINITY, NULL),
    K("train.compute_dtype", CONFIG_CHOICE, dtype, "fp32", 0, 0, "fp32|bf16|auto"),
    K("train.note", CONFIG_STR, note, "", 0, 0, NULL),
    K("optim.muon.lr", CONFIG_FLOAT, lr, "3e-3", 0, 1, NULL),
    K("optim.muon.weight_decay", CONFIG_FLOAT, wd, "0.1", 0, INFINITY, NULL),
    K("optim.muon.nesterov", CONFIG_BOOL, nesterov, "true", 0, 0, NULL),
    K("optim.adamw.lr", CONFIG_FLOAT, alr, "3e-3", 0, 1, NULL),
    { "optim.adamw.betas", CONFIG_FLOATS, offsetof(struct conf, betas), "[0.9, 0.95]", 0, 1, NULL, "doc", NULL, 2 },
    K("optim.clip_norm", CONFIG_FLOAT, clip, "1.0", 0, INFINITY, NULL),
    K("optim.schedule.kind", CONFIG_CHOICE, kind, "wsd", 0, 0, "constant|cosine|linear|wsd"),
    K("optim.schedule.warmup", CONFIG_INT, warmup, "20", 0, INFINITY, NULL),
    K("mesh.rows_cap", CONFIG_INT_AUTO, cap, "auto", 1, INFINITY, NULL),
    { NULL, CONFIG_INT, 0, NULL, 0, 0, NULL, NULL, NULL, 0 },
};

static char dir[] = "/tmp/moe-config-XXXXXX";
static struct conf conf;
static struct config *c;
static const char *model;

/* Loads a text as c.yaml with overrides split at '|'. */
static int load_n(const char *text, size_t n, const char *overrides)
{
    char *v[16], copy[1024];
    int count = 0;

    config_free(c);
    c = NULL;
    memset(&conf, 0, sizeof conf);
    if (text)
        assert_int_equal(fs_write_file("c.yaml", text, n), 0);
    snprintf(copy, sizeof copy, "%s", overrides);
    for (char *save, *s = strtok_r(copy, "|", &save); s; s = strtok_r(NULL, "|", &save))
        v[count++] = s;
    err_clear();
    return config_load(text ? "c.yaml" : NULL, v, count, keys, &conf, &model, &c);
}

static int load(const char *text, const char *overrides)
{
    return load_n(text, text ? strlen(text) : 0, overrides);
}

#define H "model: {hidden_size: 64}\n"

static void defaults_fill_what_is_not_given(void **state)
{
    (void)state;
    assert_int_equal(load(H, ""), 0);
    assert_int_equal(conf.hidden, 64);
    assert_int_equal(conf.layers, 2);
    assert_true(conf.eps == 1e-6 && conf.lr == 3e-3 && conf.nesterov);
    assert_true(conf.betas[0] == 0.9 && conf.betas[1] == 0.95);
    assert_int_equal(conf.kind, 3);
    assert_int_equal(conf.cap, -1);
    assert_null(conf.tokenizer);
    assert_int_equal(conf.train.n, 0);
    assert_null(model);
    assert_true(config_given(c, "model.hidden_size"));
    assert_false(config_given(c, "optim.muon.lr"));
    assert_string_equal(config_where(c, "model.hidden_size"), "c.yaml:1:22");
    assert_string_equal(config_where(c, "optim.muon.lr"), "default");
    assert_string_equal(config_dir(c), ".");
}

static void types_come_from_the_table(void **state)
{
    (void)state;
    assert_int_equal(load(
        "# a comment\n"
        "model:\n  hidden_size: 010\n  num_hidden_layers: '3'\n"
        "tokenizer: 1e-4\n"
        "data:\n  seq_len: 64Ki\n  train:\n    - path: a b # c\n    - {path: \"x: y\", weight: 1e-1, name: yes}\n"
        "train: {note: 12:30:45, steps: 2k}\n"
        "optim:\n  muon: {lr: 1e-4, nesterov: off}\n  adamw: {betas: [.5, 1]}\n  schedule:\n    kind: cosine\n"
        "mesh: {rows_cap: 7}\ninit:\n", ""), 0);
    assert_int_equal(conf.hidden, 10);
    assert_int_equal(conf.layers, 3);
    assert_string_equal(conf.tokenizer, "1e-4");
    assert_int_equal(conf.seq_len, 65536);
    assert_int_equal(conf.train.n, 2);
    const struct set *s = conf.train.v;
    assert_string_equal(s[0].path, "a b");
    assert_null(s[0].name);
    assert_true(s[0].weight == 1 && s[1].weight == 0.1);
    assert_string_equal(s[1].path, "x: y");
    assert_string_equal(s[1].name, "yes");
    assert_string_equal(conf.note, "12:30:45");
    assert_int_equal(conf.steps, 2000);
    assert_true(conf.lr == 1e-4 && !conf.nesterov && conf.betas[0] == 0.5);
    assert_int_equal(conf.kind, 1);
    assert_int_equal(conf.cap, 7);
}

static void overrides_win_and_are_read_alike(void **state)
{
    (void)state;
    assert_int_equal(load(H, "train.steps=3k|data.train=[{path: x}, {path: y, weight: 2}]|optim.adamw.betas=[0,1]|train.note=a: b # c|mesh.rows_cap=auto|model.hidden_size=8"), 0);
    assert_int_equal(conf.steps, 3000);
    assert_int_equal(conf.hidden, 8);
    assert_int_equal(conf.train.n, 2);
    assert_true(((struct set *)conf.train.v)[1].weight == 2);
    assert_string_equal(conf.note, "a: b # c");
    assert_string_equal(config_where(c, "train.steps"), "command line");
    assert_true(config_given(c, "train.steps"));
    assert_int_equal(load(NULL, "model.hidden_size=5"), 0);
    assert_int_equal(conf.hidden, 5);
}

static void a_model_may_be_a_path(void **state)
{
    (void)state;
    assert_int_equal(load("model: hf/config.json\n", ""), 0);
    assert_string_equal(model, "./hf/config.json");
    assert_int_equal(conf.layers, 2);
    assert_true(config_given(c, "model"));
    assert_string_equal(config_where(c, "model"), "c.yaml:1:8");
    char *s = config_print(c, 0);
    assert_true(!strncmp(s, "model: hf/config.json\ninit:\n", 28));
    free(s);
    /* What the caller reads there is shown as a section from then on. */
    assert_int_equal(config_note(c, "model.hidden_size", "64", "hf/config.json"), 0);
    s = config_print(c, 1);
    assert_true(!strncmp(s, "model:\n  hidden_size: 64  # hf/config.json\n", 43));
    free(s);
    assert_int_equal(load(H, "model=/abs/config.json"), ERR_USAGE);
    assert_string_equal(err_msg(), "c.yaml:1:22: model.hidden_size: cannot be given as well, the model comes from /abs/config.json");
    assert_int_equal(load(NULL, "model=/abs/config.json"), 0);
    assert_string_equal(model, "/abs/config.json");
}

static const struct { const char *text, *overrides, *want; } broken[] = {
    /* keys */
    { H "train:\n  stpes: 5\n", "", "c.yaml:3:3: train.stpes: unknown key (did you mean \"steps\"?)" },
    { H "trian:\n  steps: 5\n", "", "c.yaml:2:1: trian: unknown key (did you mean \"train\"?)" },
    { H "learning_rate: 1\n", "", "c.yaml:2:1: learning_rate: unknown key (it is called \"lr\" here and belongs under optim.muon or optim.adamw)" },
    { H "optim: {muon: {learning_rate: 1}}\n", "", "c.yaml:2:16: optim.muon.learning_rate: unknown key (it is called \"lr\" here)" },
    { H "train: {lr: 1}\n", "", "c.yaml:2:9: train.lr: unknown key (\"lr\" belongs under optim.muon or optim.adamw)" },
    { H "train: {warmpu: 1}\n", "", "c.yaml:2:9: train.warmpu: unknown key (\"warmup\" belongs under optim.schedule)" },
    { H "optim: {tokenizer: a}\n", "", "c.yaml:2:9: optim.tokenizer: unknown key (\"tokenizer\" belongs at the top level)" },
    { H "banana: 1\n", "", "c.yaml:2:1: banana: unknown key" },
    { H "train.steps: 5\n", "", "c.yaml:2:1: train.steps: unknown key (a file nests keys: write each part on its own level, without dots)" },
    { H "data: {train: [{pth: a}]}\n", "", "c.yaml:2:17: data.train[0].pth: unknown key (did you mean \"path\"?)\nc.yaml:2:16: data.train[0].path: missing, expected a text" },
    { H "train: {steps: 1, steps: 2}\n", "", "c.yaml:2:19: train.steps: given twice, first in line 2" },
    { H "train: {steps: 1}\ntrain: {note: x}\n", "", "c.yaml:3:1: train: given twice, first in line 2" },
    { H "data: {train: [{path: a, path: b}]}\n", "", "c.yaml:2:26: data.train[0].path: given twice" },
    { "train: {steps: 5}\n", "", "c.yaml:1:1: model.hidden_size: missing, expected a whole number" },
    { "\nmodel: {num_hidden_layers: 2}\n", "", "c.yaml:2:1: model.hidden_size: missing, expected a whole number" },
    { "", "", "c.yaml:1:1: model.hidden_size: missing, expected a whole number" },
    /* values */
    { H "train: {steps: many}\n", "", "c.yaml:2:16: train.steps: expected a whole number (units k M G T are powers of 1000, Ki Mi Gi Ti of 1024), not \"many\"" },
    { H "train: {steps: 1.5}\n", "", "c.yaml:2:16: train.steps: expected a whole number (units k M G T are powers of 1000, Ki Mi Gi Ti of 1024), not \"1.5\"" },
    { H "train:\n  steps:\n", "", "c.yaml:3:9: train.steps: expected a whole number, found nothing" },
    { H "data: {train: [{path: }]}\n", "", "c.yaml:2:23: data.train[0].path: expected a text, found nothing" },
    { H "train: {steps: 0}\n", "", "c.yaml:2:16: train.steps: 0 is too small, expected at least 1" },
    { H "init: {std: 11}\n", "", "c.yaml:2:13: init.std: 11 is out of range, expected 0 to 10" },
    { H "init: {std: nan}\n", "", "c.yaml:2:13: init.std: expected a number, not \"nan\"" },
    { H "init: {std: 10%}\n", "", "c.yaml:2:13: init.std: expected a number, not \"10%\"" },
    { H "optim: {muon: {nesterov: maybe}}\n", "", "c.yaml:2:26: optim.muon.nesterov: expected true or false, not \"maybe\"" },
    { H "train: {compute_dtype: bf61}\n", "", "c.yaml:2:24: train.compute_dtype: expected fp32, bf16 or auto, not \"bf61\" (did you mean \"bf16\"?)" },
    { H "mesh: {rows_cap: some}\n", "", "c.yaml:2:18: mesh.rows_cap: expected a whole number or auto, not \"some\"" },
    { H "mesh: {rows_cap: -1}\n", "", "c.yaml:2:18: mesh.rows_cap: -1 is too small, expected at least 1" },
    { H "optim: {adamw: {betas: 0.9}}\n", "", "c.yaml:2:24: optim.adamw.betas: expected a list of 2 numbers, not a single value" },
    { H "optim: {adamw: {betas: [0.9]}}\n", "", "c.yaml:2:24: optim.adamw.betas: expected a list of 2 numbers, not 1" },
    { H "optim: {adamw: {betas: [0.9, x]}}\n", "", "c.yaml:2:30: optim.adamw.betas: expected a number, not \"x\"" },
    { H "optim: {adamw: {betas: [0.9, 2]}}\n", "", "c.yaml:2:30: optim.adamw.betas: 2 is out of range, expected 0 to 1" },
    { H "train: {steps: [1]}\n", "", "c.yaml:2:16: train.steps: expected a whole number, not a list" },
    { H "train: 5\n", "", "c.yaml:2:8: train: expected a section with keys, not a single value" },
    { H "tokenizer: {a: b}\n", "", "c.yaml:2:12: tokenizer: expected a text, not a section" },
    { H "data: {train: a}\n", "", "c.yaml:2:15: data.train: expected a list of maps, not a single value" },
    { H "data: {train: [a]}\n", "", "c.yaml:2:16: data.train[0]: expected a map such as {path: ...}, not a single value" },
    { H "data: {train: [{path: a, weight: heavy}]}\n", "", "c.yaml:2:34: data.train[0].weight: expected a number, not \"heavy\"" },
    { "- a\n", "", "c.yaml:1:1: expected keys and sections, not a list\nc.yaml:1:1: model.hidden_size: missing, expected a whole number" },
    /* YAML that strict configuration has no use for */
    { H "train: &a {steps: 1}\n", "", "c.yaml:2:8: anchors are not accepted" },
    { H "train: {steps: *a}\n", "", "c.yaml:2:16: aliases are not accepted" },
    { H "train: {steps: !!int 5}\n", "", "c.yaml:2:16: tags such as tag:yaml.org,2002:int are not accepted, types follow from the key" },
    { H "train: {<<: {steps: 1}}\n", "", "c.yaml:2:9: merge keys are not accepted" },
    { H "? [a]\n: 1\n", "", "c.yaml:2:3: a key must be a plain word" },
    { H "---\n" H, "", "c.yaml:2:1: a second document is not accepted" },
    { H "tokenizer: \"a\\0b\"\n", "", "c.yaml:2:12: a NUL character is not accepted" },
    { H "a: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]\n", "", "c.yaml:2:35: nested more than 32 deep" },
    /* not YAML at all */
    { H "train:\n\tsteps: 5\n", "", "c.yaml:3:1: a tab cannot indent, use spaces" },
    { H "train:\n  steps: 5\n bad\n", "", "c.yaml:4:2: expected a key here; look at the indentation and the line above" },
    { H "train:\n  steps: 5\n  note\n", "", "c.yaml:5:1: a key must be followed by a colon and a space" },
    { H "train:\n  steps: 5\n   note: x\n", "", "c.yaml:4:8: a second colon on this line; quote the value, or look at the indentation" },
    { H "train: {steps: 5\n", "", "c.yaml:3:1: expected a comma, or } for the { in line 2" },
    { H "tokenizer: @x\n", "", "c.yaml:2:12: a value cannot begin with \"@\", quote it" },
    { H "tokenizer: \"x\n", "", "c.yaml:2:12: this quote is never closed" },
    { H "tokenizer: \xff\n", "", "c.yaml:2:12: not valid UTF-8" },
    { H "tokenizer: \xc3\xa9\x01\n", "", "c.yaml:2:13: control characters are not accepted" },
    /* the command line */
    { H, "train.steps", "command line: expected key.path=value, not \"train.steps\"" },
    { H, "=5", "command line: expected key.path=value, not \"=5\"" },
    { H, "train.stpes=5", "command line: train.stpes: unknown key (did you mean \"steps\"?)" },
    { H, "lr=5", "command line: lr: unknown key (\"lr\" belongs under optim.muon or optim.adamw)" },
    { H, "learning_rate=5", "command line: learning_rate: unknown key (it is called \"lr\" here and belongs under optim.muon or optim.adamw)" },
    { H, "optim=5", "command line: optim: is a section, give one of its keys, such as optim.muon.lr=VALUE" },
    { H, "data.train.path=x", "command line: data.train.path: a list is given whole, such as data.train=[{path: ...}]" },
    { H, "data.train[0].path=x", "command line: data.train[0].path: a list is given whole, such as data.train=[{path: ...}]" },
    { H, "data.train=[{pth: x}]", "command line: data.train[0].pth: unknown key (did you mean \"path\"?)\ncommand line: data.train[0].path: missing, expected a text" },
    { H, "data.train=[{path: x", "command line: data.train: expected a comma, or } for the { in line 1" },
    { H, "data.train=", "command line: data.train: expected a list of maps, found nothing" },
    { H, "train.steps=0", "command line: train.steps: 0 is too small, expected at least 1" },
    { H, "train.steps=1|train.steps=2", "command line: train.steps: given twice" },
    { H, "train.note=\xff", "command line: an override is not valid UTF-8" },
    { NULL, "train.steps=5", "command line: model.hidden_size: missing, expected a whole number" },
    /* several at once, in the order of the file */
    { H "train: {steps: 0, banana: 1}\ninit: {std: x}\n", "mesh.rows_cap=no",
      "c.yaml:2:16: train.steps: 0 is too small, expected at least 1\n"
      "c.yaml:2:19: train.banana: unknown key\n"
      "c.yaml:3:13: init.std: expected a number, not \"x\"\n"
      "command line: mesh.rows_cap: expected a whole number or auto, not \"no\"" },
};

static void every_mistake_has_its_place_and_its_sentence(void **state)
{
    int wrong = 0;
    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        int rc = load(broken[i].text, broken[i].overrides);
        if (rc != ERR_USAGE || strcmp(err_msg(), broken[i].want)) {
            print_error("%s%s\n  got  %s\n  want %s\n", broken[i].text ? broken[i].text : "", broken[i].overrides, rc < 0 ? err_msg() : "success", broken[i].want);
            wrong++;
        }
        assert_true(rc == 0 || c == NULL);
    }
    assert_int_equal(wrong, 0);
}

static void twenty_errors_are_told_and_the_rest_counted(void **state)
{
    char text[2048] = H "train:\n";
    int lines = 1;
    (void)state;
    for (int i = 0; i < 25; i++)
        sprintf(text + strlen(text), "  x%dxxxxxxxx: 1\n", i);
    assert_int_equal(load(text, ""), ERR_USAGE);
    for (const char *s = err_msg(); *s; s++)
        lines += *s == '\n';
    assert_int_equal(lines, 21);
    assert_string_equal(strrchr(err_msg(), '\n'), "\nand 5 more errors");
}

static void a_missing_file_is_no_input(void **state)
{
    (void)state;
    assert_int_equal(config_load("absent.yaml", NULL, 0, keys, &conf, &model, &c), ERR_NOINPUT);
    assert_string_equal(err_msg(), "absent.yaml: No such file or directory");
    assert_int_equal(config_load("/", NULL, 0, keys, &conf, &model, &c), ERR_NOINPUT);
}

static void what_is_printed_loads_again_byte_for_byte(void **state)
{
    static const char *const texts[] = {
        H,
        "model: {hidden_size: 64Ki}\ntokenizer: 'null'\ntrain: {note: \"a \\\"b\\\" \\\\ # ' \\u2028 \\x7f \\n \xc3\xa9\"}\ndata: {train: [{path: 'a, b]', weight: 0.30000000000000004}, {path: c, name: '~'}]}\n",
        "model: '../a b/config.json'\noptim: {adamw: {betas: [1e-300, 0]}, clip_norm: 1e300}\nmesh: {rows_cap: 3}\n",
        "model: {hidden_size: 1}\ntokenizer: '...'\ntrain: {note: '-'}\n",
    };
    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(load(texts[i], ""), 0);
        char *first = config_print(c, 0), *origins = config_print(c, 1);
        char *note = conf.note ? strdup(conf.note) : NULL;
        struct hash h = config_digest(c);
        assert_int_equal(load(first, ""), 0);
        char *second = config_print(c, 0);
        assert_string_equal(first, second);
        struct hash h2 = config_digest(c);
        assert_true(hash_eq(&h, &h2));
        assert_int_equal(note == NULL, conf.note == NULL);
        if (note)
            assert_string_equal(note, conf.note);
        assert_int_equal(load(origins, ""), 0);
        char *third = config_print(c, 0);
        assert_string_equal(first, third);
        free(first), free(second), free(third), free(origins), free(note);
    }
}

static void equal_meaning_has_an_equal_digest(void **state)
{
    (void)state;
    assert_int_equal(load("model: {hidden_size: 64k}\n", ""), 0);
    struct hash a = config_digest(c);
    assert_int_equal(load("optim: {muon: {lr: 0.003}}\nmodel:\n  hidden_size: 64000\n", ""), 0);
    struct hash b = config_digest(c);
    assert_true(hash_eq(&a, &b));
    assert_int_equal(load("model: {hidden_size: 64001}\n", ""), 0);
    struct hash d = config_digest(c);
    assert_false(hash_eq(&a, &d));
}

static void printed_values_carry_their_origin(void **state)
{
    (void)state;
    assert_int_equal(load(H "train:\n  steps: 5\n", "optim.clip_norm=2"), 0);
    assert_int_equal(config_note(c, "mesh.rows_cap", "12", "auto"), 0);
    assert_int_equal(config_note(c, "tokenizer", "a b", "data"), 0);
    assert_int_equal(config_note(c, "nothing", "12", "auto"), ERR_BUG);
    assert_int_equal(config_note(c, "train.steps", "x", "auto"), ERR_BUG);
    char *s = config_print(c, 1);
    assert_string_equal(s,
        "model:\n  hidden_size: 64  # c.yaml:1:22\n  num_hidden_layers: 2  # default\n  rms_norm_eps: 1e-6  # default\n"
        "init:\n  std: 0.02  # default\ntokenizer: \"a b\"  # data\n"
        "data:\n  train: []  # default\n  seq_len: 256  # default\n"
        "train:\n  steps: 5  # c.yaml:3:10\n  compute_dtype: fp32  # default\n  note: \"\"  # default\n"
        "optim:\n  muon:\n    lr: 0.003  # default\n    weight_decay: 0.1  # default\n    nesterov: true  # default\n"
        "  adamw:\n    lr: 0.003  # default\n    betas: [0.9, 0.95]  # default\n  clip_norm: 2  # command line\n"
        "  schedule:\n    kind: wsd  # default\n    warmup: 20  # default\nmesh:\n  rows_cap: 12  # auto\n");
    free(s);
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(dir) ? chdir(dir) : -1;
}

static int tear_down(void **state)
{
    (void)state;
    config_free(c);
    return chdir("/") == 0 ? fs_remove_tree(dir) : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_fill_what_is_not_given),
        cmocka_unit_test(types_come_from_the_table),
        cmocka_unit_test(overrides_win_and_are_read_alike),
        cmocka_unit_test(a_model_may_be_a_path),
        cmocka_unit_test(every_mistake_has_its_place_and_its_sentence),
        cmocka_unit_test(twenty_errors_are_told_and_the_rest_counted),
        cmocka_unit_test(a_missing_file_is_no_input),
        cmocka_unit_test(what_is_printed_loads_again_byte_for_byte),
        cmocka_unit_test(equal_meaning_has_an_equal_digest),
        cmocka_unit_test(printed_values_carry_their_origin),
    };
    return cmocka_run_group_tests_name("config", tests, set_up, tear_down);
}
