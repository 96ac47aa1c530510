/* mixture.c -- fair turns (R. Tijdeman, "The chairman assignment problem", 1980).
 *
 * With k sets and d = 1 - 1/(2k-2), sample n goes to that set, among those with
 * n share - count >= 1 - d, which has the least (d - n share + count) / share.
 * Then |count - n share| <= d < 1 after every n.  Simpler rules (largest lag,
 * random draws, rounding of n share) do not keep this promise for three sets. */
#include "data/mixture.h"

#include <string.h>

#include "base/err.h"

/* A place on the way: how many samples each set has given before n. */
struct place { int64_t n; int64_t *count; };

/* ORIGIN stays 0; MID and OLD follow NOW at a distance, so that going back by up
 * to DISTANCE samples (a step is walked twice) never starts at the beginning. */
enum { ORIGIN, OLD, MID, NOW, N_PLACES };
enum { DISTANCE = 1 << 16 };

struct mixture {
    int n_sets, n_live;
    double *share;
    struct place at[N_PLACES];
};

struct mixture *mixture_new(struct arena *a, const double *weights, int n_sets)
{
    struct mixture *m = arena_alloc(a, sizeof *m);
    double sum = 0;
    m->n_sets = n_sets;
    m->share = arena_array(a, (size_t)n_sets, sizeof *m->share);
    for (int i = 0; i < n_sets; i++)
        sum += weights[i];
    BUG_ON(!(sum > 0));
    for (int i = 0; i < n_sets; i++) {
        m->share[i] = weights[i] / sum;
        m->n_live += weights[i] > 0;
    }
    for (int p = 0; p < N_PLACES; p++)
        m->at[p].count = arena_array(a, (size_t)n_sets, sizeof *m->at[p].count);
    return m;
}

static int choose(const struct mixture *m, const struct place *p)
{
    double d = m->n_live > 1 ? 1 - 1.0 / (2 * m->n_live - 2) : 0.5, n = (double)p->n + 1, best = 0, most = 0;
    int set = -1, behind = -1;
    for (int i = 0; i < m->n_sets; i++) {
        if (!(m->share[i] > 0))
            continue;
        double lag = n * m->share[i] - (double)p->count[i], urgency = (d - lag) / m->share[i];
        if (behind < 0 || lag > most) {
            behind = i;
            most = lag;
        }
        if (lag >= 1 - d - 1e-6 && (set < 0 || urgency < best)) {
            set = i;
            best = urgency;
        }
    }
    return set >= 0 ? set : behind;
}

static void copy_place(const struct mixture *m, struct place *to, const struct place *from)
{
    to->n = from->n;
    memcpy(to->count, from->count, (size_t)m->n_sets * sizeof *to->count);
}

static const struct place *walk_to(struct mixture *m, int64_t n)
{
    struct place *at = m->at, *now = &m->at[NOW];
    if (n < at[OLD].n) {
        copy_place(m, &at[OLD], &at[ORIGIN]);
        copy_place(m, &at[MID], &at[ORIGIN]);
    }
    if (n < now->n)
        copy_place(m, now, n >= at[MID].n ? &at[MID] : &at[OLD]);
    if (m->n_live == 1) {               /* nothing to walk */
        for (int i = 0; i < m->n_sets; i++)
            now->count[i] = m->share[i] > 0 ? n : 0;
        now->n = n;
    }
    while (now->n < n) {
        if (now->n - at[MID].n >= DISTANCE) {
            copy_place(m, &at[OLD], &at[MID]);
            copy_place(m, &at[MID], now);
        }
        now->count[choose(m, now)]++;
        now->n++;
    }
    return now;
}

int mixture_set(struct mixture *m, int64_t n, int64_t *before)
{
    const struct place *p = walk_to(m, n);
    int set = choose(m, p);
    *before = p->count[set];
    return set;
}

int64_t mixture_count(struct mixture *m, int i, int64_t n)
{
    return walk_to(m, n)->count[i];
}
