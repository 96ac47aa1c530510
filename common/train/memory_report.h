/* memory_report.h -- the planned memory of a trainer as a table on stdout. */
#ifndef TRAIN_MEMORY_REPORT_H
#define TRAIN_MEMORY_REPORT_H

#include "base/table.h"
#include "train/trainer.h"

/* Bytes by class, the program that needs most, the largest buffer and the
 * total; each: every buffer of the plan instead. */
int memory_report(const struct trainer *t, enum table_form form, _Bool each);

#endif
