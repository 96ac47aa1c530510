/* ckpt_toy.h -- a small checkpoint whose every byte is known, for tests only. */
#ifndef UNIT_CKPT_TOY_H
#define UNIT_CKPT_TOY_H

#include <stddef.h>
#include <stdint.h>

#include "ckpt/manifest.h"

struct toy_tensor { const char *name; int optim, n_dims; int64_t shape[3]; };

extern const struct toy_tensor toy_tensors[];
#define TOY_N 8

/* Element i of tensor t at a step. */
float toy_value(int t, int64_t i, int64_t step);
int64_t toy_count(int t);

/* What the MANIFEST of a toy says; fixed strings. */
struct manifest_info toy_info(int64_t step);

/* Saves the toy of that step in three model files and one optimizer file. */
int toy_save(const char *run, int64_t step, int keep);

/* A fresh directory, removed by toy_rmdir(); owned by the callee until then. */
const char *toy_mkdir(void);
void toy_rmdir(const char *dir);

/* "dir/name" in one of a few static buffers. */
const char *toy_path(const char *dir, const char *name);

/* A file whole; *data is malloc'd. */
void toy_get(const char *path, char **data, size_t *n);
void toy_put(const char *path, const void *data, size_t n);

#endif
