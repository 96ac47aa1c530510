/* dev.c -- devices by name.
 *
 * The one place that knows which back ends are built in.  It never puts one
 * device in the place of another: an unknown name is ERR_ABSENT. */
#include "dev/dev.h"

#include <string.h>

#include "base/err.h"
#include "dev/backends.h"

static const struct {
    const char *name;
    int (*open)(const struct dev_options *o, struct dev *out);
} devices[] = {
    { "ref", ref_open },
    { "cpu", cpu_open },
};

#define N_DEVICES (sizeof devices / sizeof *devices)

int dev_open(const char *name, const struct dev_options *o, struct dev *out)
{
    static const struct dev_options all = { 0 };

    for (size_t i = 0; i < N_DEVICES; i++)
        if (!strcmp(devices[i].name, name))
            return devices[i].open(o ? o : &all, out);
    return err_set(ERR_ABSENT, "device \"%s\" is not built in", name);
}

void dev_close(struct dev *d)
{
    if (d && d->ops)
        d->ops->close(d);
    if (d)
        *d = (struct dev){ 0 };
}

const char *const *dev_names(void)
{
    static const char *names[N_DEVICES + 1];

    for (size_t i = 0; i < N_DEVICES; i++)
        names[i] = devices[i].name;
    return names;
}
