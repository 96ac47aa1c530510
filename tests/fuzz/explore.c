/* explore.c -- the targets under libFuzzer: make fuzz.
 *
 * Needs clang.  libFuzzer brings main and mutates by what code an input reaches;
 * the target and the judgement are those of make check.  FUZZ_SEEDS=DIR: the
 * seeds of the target are put there first, for libFuzzer to begin with. */
#include "fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int n_seeds;

void fuzz_add(const void *data, size_t n)
{
    const char *to = getenv("FUZZ_SEEDS");
    char path[4200];

    if (!to)
        return;
    snprintf(path, sizeof path, "%s/seed-%02d", to, n_seeds++);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f) != 0) {
        perror(path);
        exit(1);
    }
}

void fuzz_add_text(const char *text) { fuzz_add(text, strlen(text)); }

int fuzz_add_file(const char *path)
{
    static char buf[1 << 20];
    FILE *f = fopen(path, "rb");

    if (!f) {
        perror(path);
        return -1;
    }
    size_t n = fread(buf, 1, sizeof buf, f);
    fclose(f);
    fuzz_add(buf, n);
    return 0;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    if (fuzz_seeds() < 0) {
        fprintf(stderr, "seeds: %s\n", err_msg());
        exit(1);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    err_clear();
    int rc = fuzz_one(data, n);
    const char *wrong = fuzz_judge(rc);

    if (wrong) {
        fprintf(stderr, "%s (%d): %s\n", wrong, rc, err_msg());
        abort();
    }
    return 0;
}
