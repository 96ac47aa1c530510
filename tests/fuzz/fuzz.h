/* fuzz.h -- a parser, its seeds, and a great many broken copies of them.
 *
 * A file tests/fuzz/fuzz_X.c defines the three names below.  Two drivers hold
 * the parser to promise P7: whatever the bytes, it ends with 0 or with one of
 * our codes and a sentence that can be printed; no crash, no endless loop, no
 * memory out of proportion.  fuzz.c, in make check, gives it the inputs kept in
 * corpus/X and mutates them and the seeds, the same way in every run; explore.c,
 * in make fuzz, is libFuzzer, which looks for new ones.  Under sanitizers leaks
 * and overruns count too. */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* ---- defined by the target */
extern const char fuzz_what[];                  /* "a JSON text" */
int fuzz_seeds(void);                           /* calls the two below; 0 or a negative code */
int fuzz_one(const uint8_t *data, size_t n);    /* parses and frees; what the parser returned */

/* ---- offered by the driver, within fuzz_seeds() */
void fuzz_add(const void *data, size_t n);      /* copied */
void fuzz_add_text(const char *text);
int fuzz_add_file(const char *path);            /* relative to the top folder; 0, or -1 when unreadable */

/* ---- offered by kit.c */

/* For parsers that want a path: a file that holds the data until the next call. */
const char *fuzz_path(const uint8_t *data, size_t n);

/* For those that want several: a folder of this process, and a file in it; the
 * path is borrowed until the next call. */
const char *fuzz_dir(void);
const char *fuzz_file(const char *name, const void *data, size_t n);

/* What is wrong with an answer of fuzz_one(), or NULL. */
const char *fuzz_judge(int rc);

#endif
