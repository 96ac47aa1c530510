/* problems.c -- the first problem held back, the others told. */
#include "base/problems.h"

#include <string.h>

#include "base/log.h"
#include "base/progress.h"

void problems_add(void *ctx, const char *sentence)
{
    struct problems *p = ctx;
    if (p->n++ == 0) {
        memcpy(p->first, sentence, strlen(sentence) + 1);
        return;
    }
    if (p->n == 2)
        log_error("%s", p->first);
    if (p->n <= PROBLEMS_TOLD)
        log_error("%s", sentence);
}

void problems_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct problems *p = ctx;
    if (p->bar == NULL)
        p->bar = progress_begin("verify", total, "B");
    progress_set(p->bar, done);
}

void problems_progress_end(struct problems *p)
{
    if (p->bar != NULL)
        progress_end(p->bar);
    p->bar = NULL;
}
