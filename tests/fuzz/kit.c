/* kit.c -- what both drivers of the fuzz targets share: files for parsers that
 * want paths, and the judgement of an answer. */
#include "fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fs.h"

static void must(int ok, const char *what)
{
    if (!ok) {
        perror(what);
        exit(1);
    }
}

const char *fuzz_path(const uint8_t *data, size_t n)
{
    static char path[64];
    static int fd = -1;

    if (fd < 0)
        must((fd = memfd_create("fuzz", 0)) >= 0, "fuzz: memfd");
    must(ftruncate(fd, 0) == 0 && pwrite(fd, data, n, 0) == (ssize_t)n, "fuzz: memfd");
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return path;
}

/* Removed when the process ends; one that crashes leaves it for a look. */
static char dir[64];
static pid_t owner;

static void remove_dir(void)
{
    if (getpid() == owner)
        fs_remove_tree(dir);
}

const char *fuzz_dir(void)
{
    if (!dir[0]) {
        strcpy(dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/moe-fuzz-XXXXXX" : "/tmp/moe-fuzz-XXXXXX");
        must(mkdtemp(dir) != NULL, "fuzz: a folder for files");
        owner = getpid();
        atexit(remove_dir);
    }
    return dir;
}

const char *fuzz_file(const char *name, const void *data, size_t n)
{
    static char path[512];

    snprintf(path, sizeof path, "%s/%s", fuzz_dir(), name);
    FILE *f = fopen(path, "wb");
    must(f && fwrite(data, 1, n, f) == n && fclose(f) == 0, path);
    return path;
}

const char *fuzz_judge(int rc)
{
    const char *m = err_msg();

    if (rc >= 0)
        return NULL;
    if (rc != ERR_DATA && rc != ERR_USAGE && rc != ERR_NOINPUT && rc != ERR_NO && rc != ERR_ABSENT)
        return "a code that bad input must not have";
    if (err_last() != rc || !*m)
        return "a failure without its sentence";
    for (; *m; m++)
        if (((unsigned char)*m < ' ' && *m != '\n') || *m == 0x7f)
            return "a control character in the sentence";
    return NULL;
}

/* The sanitizers end with exit(1) unless told to abort, and then a handler
 * could not keep the input. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "abort_on_error=1"; }
const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void) { return "abort_on_error=1:print_stacktrace=1"; }
