/* data_config.h -- the data: section of a configuration. */
#ifndef DATA_DATA_CONFIG_H
#define DATA_DATA_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "base/config.h"

struct data_train_item { char *path; double weight; };
struct data_valid_item { char *name, *path; };

struct data_config {
    struct config_items train;          /* of struct data_train_item */
    struct config_items valid;          /* of struct data_valid_item */
    int64_t seq_len;
    int64_t seed;
};

extern const struct config_key data_config_train_keys[], data_config_valid_keys[];

/* Rows for the configuration table of struct type T whose member m is a
 * struct data_config. */
#define DATA_CONFIG_KEYS(T, m)                                                          \
    { "data.train", CONFIG_ITEMS, offsetof(T, m.train), "[]", 0, 0, NULL,               \
      "token files to train on; operands replace this list", data_config_train_keys,   \
      sizeof(struct data_train_item) },                                                 \
    { "data.valid", CONFIG_ITEMS, offsetof(T, m.valid), "[]", 0, 0, NULL,               \
      "named token files to evaluate on", data_config_valid_keys,                       \
      sizeof(struct data_valid_item) },                                                 \
    { "data.seq_len", CONFIG_INT, offsetof(T, m.seq_len), NULL, 1, 16777216, NULL,      \
      "tokens of one sample", NULL, 0 },                                                \
    { "data.seed", CONFIG_INT, offsetof(T, m.seed), "1", 0, 9007199254740992.0, NULL,   \
      "order of the samples", NULL, 0 }

/* What no single key shows: weights all 0, a name given twice or unfit for a
 * file name.  ERR_USAGE. */
int data_config_check(const struct data_config *d);

#endif
