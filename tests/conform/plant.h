/* plant.h -- mistakes that the list has to notice: ref with one entry broken. */
#ifndef CONFORM_PLANT_H
#define CONFORM_PLANT_H

#include "dev/dev.h"

struct plant {
    const char *name;                   /* what is wrong */
    const char *filter;                 /* the cases of which one must fail */
    void (*apply)(struct dev_ops *ops);
};

extern const struct plant plants[];     /* ends with a NULL name */

/* The sound table that broken entries call. */
void plant_over(const struct dev_ops *sound);

#endif
