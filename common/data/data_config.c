/* data_config.c -- the data: section: its rows and what concerns several keys. */
#include "data/data_config.h"

#include <string.h>

#include "base/err.h"

const struct config_key data_config_train_keys[] = {
    { "path", CONFIG_STR, offsetof(struct data_train_item, path), NULL, 0, 0, NULL, "prefix of a token file", NULL, 0 },
    { "weight", CONFIG_FLOAT, offsetof(struct data_train_item, weight), "1", 0, 1e12, NULL, "share of the samples, relative to the other weights", NULL, 0 },
    { 0 },
};

const struct config_key data_config_valid_keys[] = {
    { "name", CONFIG_STR, offsetof(struct data_valid_item, name), NULL, 0, 0, NULL, "name in metrics rows", NULL, 0 },
    { "path", CONFIG_STR, offsetof(struct data_valid_item, path), NULL, 0, 0, NULL, "prefix of a token file", NULL, 0 },
    { 0 },
};

int data_config_check(const struct data_config *d)
{
    const struct data_train_item *t = d->train.v;
    const struct data_valid_item *v = d->valid.v;
    double sum = 0;
    for (int i = 0; i < d->train.n; i++) {
        if (t[i].path == NULL || t[i].path[0] == '\0')
            return err_set(ERR_USAGE, "data.train[%d].path: expected the prefix of a token file", i);
        sum += t[i].weight;
    }
    if (d->train.n > 0 && !(sum > 0))
        return err_set(ERR_USAGE, "data.train: all weights are 0");
    for (int i = 0; i < d->valid.n; i++) {
        if (v[i].path == NULL || v[i].path[0] == '\0')
            return err_set(ERR_USAGE, "data.valid[%d].path: expected the prefix of a token file", i);
        if (v[i].name == NULL || v[i].name[0] == '\0')
            return err_set(ERR_USAGE, "data.valid[%d].name: expected a name", i);
        for (const char *p = v[i].name; *p != '\0'; p++)
            if ((unsigned char)*p <= ' ' || *p == 0x7f)
                return err_set(ERR_USAGE, "data.valid[%d].name: \"%s\" holds white space or a control character", i, v[i].name);
        for (int k = 0; k < i; k++)
            if (strcmp(v[k].name, v[i].name) == 0)
                return err_set(ERR_USAGE, "data.valid: the name \"%s\" is given twice", v[i].name);
    }
    return 0;
}
