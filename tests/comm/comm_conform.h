/* comm_conform.h -- one list of cases for every back end and number of ranks.
 *
 * A case runs on all ranks of a world and says on each what it found wrong. */
#ifndef COMM_CONFORM_H
#define COMM_CONFORM_H

#include "base/arena.h"
#include "comm/comm.h"

struct comm_conform {
    struct comm *c;
    struct arena *a;            /* empty before each case */
    int rank, size;
    char failure[400];          /* the first one; "" */
};

struct comm_case { const char *name; void (*run)(struct comm_conform *t); };

extern const struct comm_case comm_cases[];         /* ended by a NULL name */

/* What rank 1 does to the others, each in a job of its own; does not return
 * when it works.  Returns an exit status. */
int comm_fault(struct comm *c, const char *name);

void comm_failed(struct comm_conform *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define CHECK(t, cond, ...) do { if (!(cond)) comm_failed(t, __VA_ARGS__); } while (0)
#define OK(t, call) do { int rc_ = (call); if (rc_ < 0) comm_failed(t, "%s returned %d: %s", #call, rc_, err_msg()); } while (0)

#endif
