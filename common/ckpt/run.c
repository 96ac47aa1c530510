/* run.c -- RUN/ckpt/step-NNNNNNNN: naming, listing, removing. */
#include "ckpt/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/fs.h"
#include "base/units.h"

#define TEMP_TAIL ".tmp"

char *ckpt_step_name(char *buf, int64_t step)
{
    snprintf(buf, 32, "step-%08" PRId64, step);
    return buf;
}

int64_t ckpt_step_of(const char *name)
{
    int64_t step = 0;
    char same[32];
    const char *s;

    if (strncmp(name, "step-", 5) || strlen(name) < 13 || strlen(name) > 5 + 18)
        return -1;
    for (s = name + 5; *s; s++) {
        if (*s < '0' || *s > '9')
            return -1;
        step = step * 10 + (*s - '0');
    }
    /* One step has one name: no extra zeros. */
    return strcmp(ckpt_step_name(same, step), name) ? -1 : step;
}

static int by_number(const void *pa, const void *pb)
{
    int64_t a = *(const int64_t *)pa, b = *(const int64_t *)pb;

    return (a > b) - (a < b);
}

int ckpt_list_steps(struct arena *a, const char *run_dir, int64_t **steps, int *n)
{
    const char *dir = fs_join(a, run_dir, "ckpt");
    char **names;
    int n_names;

    *steps = NULL;
    *n = 0;
    if (!fs_is_dir(dir))
        return 0;
    TRY(fs_list(a, dir, &names, &n_names));
    *steps = arena_array(a, (size_t)n_names + 1, sizeof **steps);
    for (int i = 0; i < n_names; i++) {
        int64_t step = ckpt_step_of(names[i]);

        if (step >= 0 && fs_exists(fs_join(a, fs_join(a, dir, names[i]), MANIFEST_NAME)))
            (*steps)[(*n)++] = step;
    }
    qsort(*steps, (size_t)*n, sizeof **steps, by_number);
    return 0;
}

int ckpt_list_kinds(struct arena *a, const char *run_dir, struct ckpt_step **steps, int *n)
{
    int64_t *numbers;
    int n_left = 0;
    char name[32];

    *steps = NULL;
    TRY(ckpt_list_steps(a, run_dir, &numbers, n));
    *steps = arena_array(a, (size_t)*n + 1, sizeof **steps);
    for (int i = 0; i < *n; i++) {
        struct ckpt_step *to = &(*steps)[n_left];
        int rc;

        to->step = numbers[i];
        rc = manifest_kind_of(fs_join(a, fs_join(a, run_dir, "ckpt"), ckpt_step_name(name, numbers[i])), &to->kind);
        if (rc == ERR_NOINPUT)  /* removed since it was listed, by a run that is being looked at */
            err_clear();
        else if (rc < 0)
            return rc;
        else
            n_left++;
    }
    *n = n_left;
    return 0;
}

_Bool ckpt_is_temp(const char *name)
{
    size_t n = strlen(name), tail = sizeof TEMP_TAIL - 1;

    return n > tail && !strcmp(name + n - tail, TEMP_TAIL) && !strncmp(name, "step-", 5);
}

/* What goes must not outlive the mark that it is whole, not even when the power
 * fails in between: first the name, then the mark, each made durable. */
static int remove_dir(struct arena *a, const char *dir)
{
    const char *manifest;
    struct stat sb;

    /* A link goes alone: where it leads to is somebody else's. */
    if (lstat(dir, &sb) == 0 && !S_ISDIR(sb.st_mode))
        return fs_remove_tree(dir);
    if (!ckpt_is_temp(fs_base(dir))) {
        char *aside = arena_printf(a, "%s" TEMP_TAIL, dir);

        TRY(fs_remove_tree(aside));
        TRY(fs_rename(dir, aside));
        dir = aside;
    }
    manifest = fs_join(a, dir, MANIFEST_NAME);
    if (fs_exists(manifest)) {
        TRY(fs_remove_tree(manifest));
        TRY(fs_sync_dir(dir));
    }
    return fs_remove_tree(dir);
}

int ckpt_remove(const char *dir)
{
    struct arena *a = arena_new();
    int rc = remove_dir(a, dir);

    arena_free(a);
    return rc;
}

int ckpt_sweep(const char *run_dir)
{
    struct arena *a = arena_new();
    const char *dir = fs_join(a, run_dir, "ckpt");
    char **names;
    int n = 0, rc = fs_list(a, run_dir, &names, &n);

    for (int i = 0; i < n && rc == 0; i++)
        if (fs_is_temp(names[i]))
            rc = fs_remove_tree(fs_join(a, run_dir, names[i]));
    n = 0;
    if (rc == 0 && fs_is_dir(dir))
        rc = fs_list(a, dir, &names, &n);
    for (int i = 0; i < n && rc == 0; i++)
        if (ckpt_is_temp(names[i]))
            rc = ckpt_remove(fs_join(a, dir, names[i]));
    arena_free(a);
    return rc;
}

int ckpt_room(const char *dir, uint64_t tensor_bytes, int64_t n_tensors)
{
    /* Per tensor: name, type and shape in header, manifest and index; per part
     * a hash.  The rest is configuration and tokenizer. */
    uint64_t beside = (uint64_t)n_tensors * 1024 + tensor_bytes / (1 << 20) * 2 + (32u << 20), have;
    struct arena *a = arena_new();
    const char *at = dir;
    char tensors[32], rest[32], left[32];
    int rc;

    while (!fs_is_dir(at) && strcmp(at, ".") && strcmp(at, "/"))
        at = fs_parent(a, at);
    rc = fs_free_bytes(at, &have);
    if (rc == 0 && have < tensor_bytes + beside)
        rc = err_set(ERR_CREATE, "%s: a checkpoint has %s of tensors and needs up to %s beside them, only %s are free", dir,
                     units_bytes(tensors, (double)tensor_bytes), units_bytes(rest, (double)beside), units_bytes(left, (double)have));
    arena_free(a);
    return rc;
}
