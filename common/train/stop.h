/* stop.h -- who may end a run, and how it is asked, see moe(7).
 *
 * TERM USR1 USR2 HUP, RUN/stop and the end of the job: finish the step, save,
 * 75.  INT: the same, 130; a second INT leaves at once.  RUN/save: save and go
 * on.  Handlers set flags only; the loop asks at step borders. */
#ifndef TRAIN_STOP_H
#define TRAIN_STOP_H

#include "base/err.h"

/* Installs the handlers. stop_before_s < 0: no limit.  Else the job's end is
 * read from SLURM_JOB_END_TIME or MOE_STOP_AT (seconds since 1970): ERR_USAGE
 * when neither is set. */
int stop_init(const char *run_dir, double stop_before_s);

/* 0: go on; ERR_STOPPED or ERR_INTERRUPTED with the reason as the sentence.
 * reserve_s: what the next step and a checkpoint are expected to take. */
int stop_asked(double reserve_s);

/* True once per RUN/save file, which is removed. */
_Bool stop_save_asked(void);

/* Removes RUN/stop when the stop was honoured. */
void stop_honoured(void);

#endif
