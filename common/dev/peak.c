/* peak.c -- see peak.h. */
#include "dev/peak.h"

#include <stdlib.h>

#include "base/clock.h"

#define SIDE 1024
#define BUDGET_S 0.1
#define RUNS 5

double dev_gemm_peak(struct dev *d)
{
    size_t n = (size_t)SIDE * SIDE;
    float *m = malloc(3 * n * sizeof *m);
    double best = 0, flops = 2.0 * SIDE * SIDE * SIDE, begin = clock_s();

    if (!m || !d->ops->takes(DT_F32)) {
        free(m);
        return 0;
    }
    for (size_t i = 0; i < 2 * n; i++)
        m[i] = (float)((i * 2654435761u) % 1000) / 1000.0f - 0.5f;
    struct mat a = mat(m, DT_F32, SIDE, SIDE), b = mat(m + n, DT_F32, SIDE, SIDE), c = mat(m + 2 * n, DT_F32, SIDE, SIDE);
    /* A slow device (ref) answers with its first run. */
    for (int i = 0; i <= RUNS && (i == 0 || clock_s() - begin < 5 * BUDGET_S); i++) {
        double t0 = clock_s();
        d->ops->gemm(d, c, a, 0, b, 1, 0);
        if (d->ops->sync(d) < 0)
            break;
        double rate = flops / (clock_s() - t0) * 1e-9;
        if (i > 0 || rate < flops / BUDGET_S * 1e-9)
            best = rate > best ? rate : best;
    }
    free(m);
    return best;
}

double dev_copy_peak(struct dev *d)
{
    size_t bytes = (size_t)64 << 20;
    char *p = aligned_alloc(64, 2 * bytes);
    double best = 0;

    if (!p)
        return 0;
    /* Touched first, or the page faults would be timed. */
    d->ops->zero(d, p, 2 * bytes);
    for (int i = 0; i < RUNS; i++) {
        double t0 = clock_s();
        d->ops->copy(d, p + bytes, p, bytes);
        if (d->ops->sync(d) < 0)
            break;
        double rate = 2 * (double)bytes / (clock_s() - t0) * 1e-9;
        best = rate > best ? rate : best;
    }
    free(p);
    return best;
}
