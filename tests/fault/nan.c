/* nan.c -- one logarithm that is not a number.
 *
 *   LD_PRELOAD=.../nan.so MOE_NAN=log:700 moe-train ...
 *
 * MOE_NAN      FUNCTION:N: the N-th call of log or logf, from 1.  A broken core
 *              or memory does this to one rank of many; the program's own code has
 *              no such switch
 * MOE_NAN_LOG  file that gets "FUNCTION COUNT" lines when the program ends */
#include <dlfcn.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static atomic_long calls[2];

static void tell(void) __attribute__((destructor));
static void tell(void)
{
    const char *path = getenv("MOE_NAN_LOG");
    FILE *f = path ? fopen(path, "w") : NULL;

    if (!f)
        return;
    fprintf(f, "log %ld\nlogf %ld\n", atomic_load(&calls[0]), atomic_load(&calls[1]));
    fclose(f);
}

static int broken(int i, const char *name)
{
    const char *s = getenv("MOE_NAN");
    size_t n = strlen(name);
    long at = s && strncmp(s, name, n) == 0 && s[n] == ':' ? atol(s + n + 1) : 0;

    return atomic_fetch_add(&calls[i], 1) + 1 == at;
}

double log(double x)
{
    static double (*real)(double);

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "log");
    return broken(0, "log") ? NAN : real(x);
}

float logf(float x)
{
    static float (*real)(float);

    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "logf");
    return broken(1, "logf") ? NAN : real(x);
}
