/* fuzz_yaml.c -- base/config: a YAML file against a table with every kind of
 * key; what loads must print, and what is printed must load and print alike. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/err.h"
#include "base/fs.h"
#include "fuzz/fuzz.h"

const char fuzz_what[] = "a YAML text";

struct set { char *path; double weight; };
struct conf {
    int64_t hidden, cap;
    double lr, betas[2];
    _Bool flag;
    int kind;
    char *text;
    struct config_items train;
};

static const struct config_key set_keys[] = {
    { "path", CONFIG_STR, offsetof(struct set, path), NULL, 0, 0, NULL, "path", NULL, 0 },
    { "weight", CONFIG_FLOAT, offsetof(struct set, weight), "1", 0, INFINITY, NULL, "share", NULL, 0 },
    { NULL, CONFIG_INT, 0, NULL, 0, 0, NULL, NULL, NULL, 0 },
};
static const struct config_key keys[] = {
    { "model.hidden_size", CONFIG_INT, offsetof(struct conf, hidden), "8", 1, 1e6, NULL, "size", NULL, 0 },
    { "text", CONFIG_STR, offsetof(struct conf, text), "", 0, 0, NULL, "text", NULL, 0 },
    { "data.train", CONFIG_ITEMS, offsetof(struct conf, train), "[]", 0, 0, NULL, "sets", set_keys, sizeof(struct set) },
    { "optim.muon.lr", CONFIG_FLOAT, offsetof(struct conf, lr), "3e-3", 0, 1, NULL, "rate", NULL, 0 },
    { "optim.muon.flag", CONFIG_BOOL, offsetof(struct conf, flag), "true", 0, 0, NULL, "flag", NULL, 0 },
    { "optim.adamw.betas", CONFIG_FLOATS, offsetof(struct conf, betas), "[0.9, 0.95]", 0, 1, NULL, "betas", NULL, 2 },
    { "optim.kind", CONFIG_CHOICE, offsetof(struct conf, kind), "wsd", 0, 0, "cosine|linear|wsd", "kind", NULL, 0 },
    { "mesh.cap", CONFIG_INT_AUTO, offsetof(struct conf, cap), "auto", 1, INFINITY, NULL, "cap", NULL, 0 },
    { NULL, CONFIG_INT, 0, NULL, 0, 0, NULL, NULL, NULL, 0 },
};

int fuzz_seeds(void)
{
    fuzz_add_text("model:\n  hidden_size: 64Ki\ntext: \"a\\u2028 \\\"b\\\" # c\"\n"
                  "data: {train: [{path: a, weight: 1e-3}, {path: 'x: y'}]}\n"
                  "optim:\n  muon: {lr: 1e-4, flag: off}\n  adamw:\n    betas:\n      - 0.5\n      - 0.25\n  kind: cosine\nmesh: {cap: 3}\n");
    fuzz_add_text("model: hf/config.json  # a path\ntext: |\n  two\n  lines\n? mesh\n: {cap: auto}\n");
    fuzz_add_text("---\n# &a *b !!c <<: [x]: 1\n{text: '*a', \"optim\": , data: {train: [{\"path\": \"\\u0041\\t\"}]}}\n...\n");
    return 0;
}

static char *load(const void *text, size_t n, int *rc)
{
    struct conf conf = { 0 };
    struct config *c = NULL;
    const char *model;
    char *printed = NULL;

    *rc = config_load(fuzz_path(text, n), NULL, 0, keys, &conf, &model, &c);
    if (*rc == 0)
        printed = config_print(c, 0);
    config_free(c);
    return printed;
}

int fuzz_one(const uint8_t *data, size_t n)
{
    int rc, again;
    char *first = load(data, n, &rc);

    if (!first)
        return rc;
    char *second = load(first, strlen(first), &again);
    if (!second || strcmp(first, second))
        abort();
    free(first);
    free(second);
    return 0;
}
