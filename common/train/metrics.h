/* metrics.h -- one JSON row a step, in the order of moe-formats(5).
 *
 * Rows are appended to RUN/metrics.jsonl with one write each and nothing is
 * ever removed from it: after a restart the rows of repeated steps come again
 * with the next value of "restart".  A row torn by a crash is cut off at the
 * next start.  After metrics_open() nothing is allocated. */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include <stdint.h>

#include "train/trainer.h"

struct metrics;

/* run_dir NULL: no file.  peak_gflops: measured or from a machine file, of the whole process. */
int metrics_open(const char *run_dir, const struct trainer *t, int64_t restart, double peak_gflops,
                 struct metrics **out);
void metrics_close(struct metrics *m);          /* NULL is accepted */

/* Seconds spent beside the step itself since the last row. */
struct metrics_extra { double step_s, ckpt_s, eval_s; };

/* Appends the row; *json (borrowed until the next call, no newline) may be NULL. */
int metrics_step(struct metrics *m, const struct step_facts *f, const struct metrics_extra *x, const char **json);
int metrics_eval(struct metrics *m, int64_t step, const struct eval_facts *e, const char **json);

/* The same for a person: one line, buf of n bytes.  Header line for a terminal. */
const char *metrics_human(const struct metrics *m, const struct step_facts *f, const struct metrics_extra *x,
                          double eta_s, char *buf, int n);
const char *metrics_human_eval(const struct eval_facts *e, char *buf, int n);

double metrics_eval_loss(const struct eval_facts *e);           /* mean nll per target token */
double metrics_bits_per_byte(const struct eval_facts *e);  /* NaN without byte counts */

/* RUN/heartbeat.json, replaced whole: what status and top read.  state:
 * running, stopped, done, failed. */
struct heartbeat {
    struct hash run_id;
    char state[16];
    int64_t restart, step, steps, started_at, tokens;
    double loss, tok_s;
    double time;                /* seconds since 1970; set by the writer */
    _Bool barren;               /* the last start made no step */
};
int metrics_heartbeat_write(const char *run_dir, struct heartbeat *h);
int metrics_heartbeat_read(const char *run_dir, struct heartbeat *h);           /* ERR_NOINPUT when there is none */

#endif
