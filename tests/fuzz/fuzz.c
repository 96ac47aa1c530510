/* fuzz.c -- the driver of the fuzz targets in make check: deterministic mutation, TAP.
 *
 * First the inputs that were kept in tests/fuzz/corpus/X, then broken copies of
 * them and of the seeds.  It is not coverage-guided (explore.c is): it needs no
 * special compiler and runs in seconds.  FUZZ_N inputs (default 20,000; 2,000,000 under MOE_LONG)
 * or FUZZ_S seconds (default 20; 1,800), FUZZ_SEED picks another sequence.  The
 * input that broke something is left in the file named by the message. */
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "sanitized.h"

enum { MAX_SEEDS = 512, INPUT_MOST = 1 << 20, SLOW_S = 10 };

static struct { uint8_t *data; size_t n; } seeds[MAX_SEEDS];
static int n_seeds;
static uint8_t input[INPUT_MOST];
static size_t input_n;
static char crash_file[512];

/* xorshift64*: the product's own generator is among the things under test. */
static uint64_t state;
static uint64_t next(void)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * UINT64_C(2685821657736338717);
}
static size_t below(size_t n) { return n ? (size_t)(next() >> 11) % n : 0; }

void fuzz_add(const void *data, size_t n)
{
    if (n_seeds == MAX_SEEDS || n > INPUT_MOST / 2) {
        fprintf(stderr, "fuzz: too many seeds, or a seed over %d bytes\n", INPUT_MOST / 2);
        exit(1);
    }
    seeds[n_seeds].data = malloc(n + 1);
    if (!seeds[n_seeds].data)
        exit(1);
    memcpy(seeds[n_seeds].data, data, n);
    seeds[n_seeds++].n = n;
}

void fuzz_add_text(const char *text) { fuzz_add(text, strlen(text)); }

int fuzz_add_file(const char *path)
{
    static uint8_t buf[INPUT_MOST];
    FILE *f = fopen(path, "rb");

    if (!f) {
        fprintf(stderr, "fuzz: %s: %s\n", path, strerror(errno));
        return -1;
    }
    size_t n = fread(buf, 1, sizeof buf, f);
    fclose(f);
    fuzz_add(buf, n);
    return 0;
}

/* Replaces cut bytes at the place by n new ones, as far as there is room. */
static void patch(size_t at, size_t cut, const void *with, size_t n)
{
    static uint8_t copy[INPUT_MOST];

    if (input_n - cut + n > INPUT_MOST)
        return;
    memcpy(copy, with, n);
    memmove(input + at + n, input + at + cut, input_n - at - cut);
    memcpy(input + at, copy, n);
    input_n = input_n - cut + n;
}

static void mutate(void)
{
    static const char bytes[] = "{}[]\",:\\0123456789-+.eE \n\t\0\x01\x7f\x80\xc0\xed\xf4\xff";
    static const char *const words[] = { "99999999999999999999", "-1", "1e999", "null", "true", "\"\"", "{}", "[]",
                                         "\\ud800", "\\u0000", "\xef\xbb\xbf", "[[[[[[[[[[[[[[[[", "nan", "0x10" };
    static const uint64_t edges[] = { 0, 1, 7, 8, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff,
                                      UINT64_C(0x7fffffffffffffff), UINT64_C(0x8000000000000000), UINT64_MAX };
    size_t at = below(input_n + 1), left = input_n - at;
    size_t len = below((left < 32 || next() & 1 ? left : 32) + 1);

    switch (below(10)) {
    case 0:
        if (left)
            input[at] ^= (uint8_t)(1u << below(8));
        break;
    case 1:
        if (left)
            input[at] = (uint8_t)bytes[below(sizeof bytes - 1)];
        break;
    case 2:
        patch(at, 0, &bytes[below(sizeof bytes - 1)], 1);
        break;
    case 3:
        patch(at, len, "", 0);
        break;
    case 4:
        patch(at, 0, input + at, len);
        break;
    case 5: {
        size_t from = below(input_n + 1), n = below(input_n - from + 1);
        patch(at, 0, input + from, n < 256 ? n : 256);
        break;
    }
    case 6: {
        const char *w = words[below(sizeof words / sizeof *words)];
        patch(at, below(2) ? 0 : (len < 8 ? len : 8), w, strlen(w));
        break;
    }
    case 7: {
        uint64_t v = edges[below(sizeof edges / sizeof *edges)] + below(3) - 1;
        size_t n = (size_t)1 << below(4);
        if (left >= n)
            memcpy(input + at, &v, n);
        break;
    }
    case 8:
        if (below(4) == 0)
            input_n = at;
        break;
    default: {
        size_t i = below((size_t)n_seeds), from = below(seeds[i].n + 1), n = below(seeds[i].n - from + 1);
        patch(at, len < n ? len : n, seeds[i].data + from, n);
        break;
    }
    }
}

static void keep_input(void)
{
    int fd = open(crash_file, O_WRONLY | O_CREAT | O_TRUNC, 0644);

    if (fd >= 0 && write(fd, input, input_n) == (ssize_t)input_n)
        close(fd);
}

static void fatal(int sig)
{
    const char *text = sig == SIGALRM ? "not ok 3 - took too long, input kept in " : "not ok 3 - crashed, input kept in ";

    keep_input();
    if (write(1, text, strlen(text)) < 0 || write(1, crash_file, strlen(crash_file)) < 0 || write(1, "\n", 1) < 0)
        _exit(3);
    if (sig == SIGALRM)
        _exit(1);
    signal(sig, SIG_DFL);
    raise(sig);
}

static long env(const char *name, long small, long large)
{
    const char *v = getenv(name);

    return v && *v ? strtol(v, NULL, 10) : getenv("MOE_LONG") ? large : small;
}

/* One input in a block of its exact size, so that a sanitizer sees one byte too
 * far.  NULL, or what is wrong. */
static const char *answer(int *rc)
{
    uint8_t *exact = malloc(input_n ? input_n : 1);

    if (!exact)
        return "no memory";
    memcpy(exact, input, input_n);
    err_clear();
    alarm(SLOW_S);
    *rc = fuzz_one(exact, input_n);
    alarm(0);
    free(exact);
    return fuzz_judge(*rc);
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

/* corpus/X of the target fuzz_X; they are seeds of mutation too. */
static int replay(const char *target)
{
    struct dirent **names;
    char path[512];
    int kept = 0, rc, n;

    snprintf(path, sizeof path, "tests/fuzz/corpus/%s", target);
    n = scandir(path, &names, NULL, by_name);
    for (int i = 0; i < n; i++) {
        if (names[i]->d_name[0] != '.') {
            snprintf(path, sizeof path, "tests/fuzz/corpus/%s/%s", target, names[i]->d_name);
            if (fuzz_add_file(path) < 0)
                return -1;
            memcpy(input, seeds[n_seeds - 1].data, input_n = seeds[n_seeds - 1].n);
            const char *wrong = answer(&rc);
            if (wrong) {
                printf("not ok 2 - %s: %s (%d): %s\n", path, wrong, rc, err_msg());
                return -1;
            }
            kept++;
        }
        free(names[i]);
    }
    if (n >= 0)
        free(names);
    printf("ok 2 - the %d inputs that are kept get a clean answer\n", kept);
    return 0;
}

int main(int argc, char **argv)
{
    const char *logs = getenv("CHECK_LOGS"), *target = argc > 0 ? strstr(argv[0], "fuzz_") : NULL;
    long n = env("FUZZ_N", 20000, 2000000), limit_s = env("FUZZ_S", 20, 1800), i, good = 0;
    time_t start = time(NULL);

    state = (uint64_t)env("FUZZ_SEED", 1, 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    snprintf(crash_file, sizeof crash_file, "%s/fuzz-%ld.input", logs ? logs : "/tmp", (long)getpid());
    /* A sanitizer reserves terabytes of addresses and takes no limit on them. */
    if (!SANITIZED) {
        struct rlimit as = { (rlim_t)1 << 31, (rlim_t)1 << 31 };
        setrlimit(RLIMIT_AS, &as);
    }
    for (const int *s = (const int[]){ SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM, 0 }; *s; s++)
        signal(*s, fatal);

    puts("1..3");
    if (fuzz_seeds() < 0 || n_seeds == 0) {
        printf("not ok 1 - seeds: %s\n", err_msg());
        return 1;
    }
    for (i = 0; i < n_seeds; i++) {
        memcpy(input, seeds[i].data, input_n = seeds[i].n);
        int rc = fuzz_one(input, input_n);
        if (rc < 0) {
            printf("not ok 1 - seed %ld is %s: %s\n", i, fuzz_what, err_msg());
            return 1;
        }
    }
    printf("ok 1 - the %d seeds are read\n", n_seeds);
    fflush(stdout);
    while (target && strstr(target + 1, "fuzz_"))
        target = strstr(target + 1, "fuzz_");
    if (replay(target ? target + 5 : "") < 0)
        return 1;
    fflush(stdout);

    for (i = 0; i < n && time(NULL) - start < limit_s; i++) {
        size_t s = below((size_t)n_seeds);
        int rc;
        memcpy(input, seeds[s].data, input_n = seeds[s].n);
        for (size_t k = 1 + below(below(2) ? 2 : 16); k > 0; k--)
            mutate();
        const char *wrong = answer(&rc);
        if (wrong) {
            keep_input();
            printf("not ok 3 - %s (%d): %s; input %ld kept in %s\n", wrong, rc, err_msg(), i, crash_file);
            return 1;
        }
        good += rc >= 0;
    }
    printf("ok 3 - %ld broken copies of %s get a clean answer (%ld are still good)\n", i, fuzz_what, good);
    for (i = 0; i < n_seeds; i++)
        free(seeds[i].data);
    return 0;
}
