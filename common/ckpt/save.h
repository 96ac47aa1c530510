/* save.h -- writes a checkpoint that is either complete or not there.
 *
 * begin -> add tensors and files -> write -> commit.  Everything goes into a
 * temporary sibling, RUN/ckpt/step-N.tmp; each file is fsynced; MANIFEST.json
 * comes last; then the directory is fsynced and renamed, its parent fsynced,
 * RUN/latest replaced, and RUN fsynced.  A failure or a kill at any point leaves
 * the earlier checkpoints and `latest` as they were; what a killed save left
 * behind is removed by the next one.  Removal of old checkpoints deletes their
 * MANIFEST first, so half a removal is never taken for a checkpoint.
 *
 * The bytes depend only on what is added and in which order: no time, no host,
 * no process id.
 *
 * With several ranks it is one directory and one MANIFEST all the same.  Every
 * rank declares the same tensors in the same order, and who holds which rows of
 * each; from that alone, every rank computes which rank writes which tensor into
 * which file.  Each tensor has one writer and each file too: a tensor that lies
 * whole on several ranks is written by the one that has the fewest bytes to
 * write so far, one that is split by rows goes to a holder of some of them, and
 * the others send theirs in pieces of 64 MiB.  The bytes of a tensor never
 * depend on any of this; which file it lies in does.  Errors are agreed: all
 * ranks leave a call with the same code, and the sentence stands on rank 0.
 *
 * Invariants, each tested by the N-th call of a kind failing or killing
 * (tests/unit/test_fault_product.c, tests/fault.bats):
 * 1 a step directory with a MANIFEST is complete;
 * 2 `latest` names a complete checkpoint whenever one was ever committed;
 * 3 after an error no temporary is left (unless its removal fails too). */
#ifndef CKPT_SAVE_H
#define CKPT_SAVE_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "ckpt/manifest.h"
#include "ckpt/run.h"

#define CKPT_SHARD_BYTES ((uint64_t)5000000000)         /* default limit of tensor bytes in one file */

enum ckpt_group { CKPT_MODEL, CKPT_OPTIM };

struct comm;
struct ckpt_save;

/* Collective.  run_dir is made when absent, the lock on it is the caller's
 * business.  info is borrowed until commit or abort; info->step names the
 * directory.  shard_bytes 0: CKPT_SHARD_BYTES.  c is borrowed, NULL: this
 * process alone.  ckpt_save_begin() is the same for one process. */
int ckpt_save_begin_ranks(struct comm *c, const char *run_dir, const struct manifest_info *info, uint64_t shard_bytes,
                          struct ckpt_save **out);
int ckpt_save_begin(const char *run_dir, const struct manifest_info *info, uint64_t shard_bytes,
                    struct ckpt_save **out);

/* Rows [first_row, first_row + n_rows) of a tensor, which lie on n_holders
 * ranks: holder, holder + stride, ...; owner o of a shard group of s ranks in
 * every replica is { holder = o, stride = s, n_holders = replicas }.  A vector
 * has a row per element, a scalar one row. */
struct ckpt_rows {
    int64_t first_row, n_rows;
    int holder, stride, n_holders;
    const void *data;           /* the first of these rows, on a holder; unused elsewhere */
};

/* One tensor under its global name: for the model the family's Hugging Face
 * name, for the optimizer NAME.momentum, NAME.exp_avg or NAME.exp_avg_sq.  rows
 * [n_rows] tile the tensor in order; a tensor held whole has one.  data is
 * borrowed until ckpt_save_write() returns, the rest is copied.  Files are
 * filled in the order of the calls, which is the same on all ranks.  Not
 * collective: with several ranks an error is kept for ckpt_save_write(). */
int ckpt_save_rows(struct ckpt_save *s, enum ckpt_group group, const char *name, enum dtype dtype,
                   int n_dims, const int64_t *shape, const struct ckpt_rows *rows, int n_rows);

/* As above for a tensor that every rank holds whole. */
int ckpt_save_tensor(struct ckpt_save *s, enum ckpt_group group, const char *name, enum dtype dtype,
                     int n_dims, const int64_t *shape, const void *data);

/* One more file beside them (config.json, tokenizer.json ...); written at once,
 * by rank 0, from its data.  Errors as for tensors. */
int ckpt_save_file(struct ckpt_save *s, const char *name, const void *data, size_t n);

/* Collective, once all is declared, before ckpt_save_write().  Rows that lie on
 * several ranks must be the same bytes there: ERR_BUG names the tensor and two
 * ranks where they are not, that is, replicas that drifted. */
int ckpt_save_check_replicas(struct ckpt_save *s);

/* Collective.  Writes and fsyncs all shards and indexes; then rank 0 looks that
 * every file is there in full length.  ERR_BUG when the ranks declared different
 * tensors.  After an error of this or of the check, ckpt_save_abort(). */
int ckpt_save_write(struct ckpt_save *s);

/* Collective.  By rank 0: MANIFEST, rename, latest; then keeps the newest `keep`
 * checkpoints up to this step that are not light and removes older ones, but no
 * major one (0: keeps all).  `latest` never names a light one.  An error
 * before the rename leaves everything as it was; one after it (latest, removal)
 * leaves the new checkpoint in place.  Frees s whatever happens. */
int ckpt_save_commit(struct ckpt_save *s, int keep);

/* Before the commit, or the start: how many light checkpoints to keep, in the
 * same way.  0, and without this call: all. */
void ckpt_save_keep_light(struct ckpt_save *s, int keep);

/* ---- a save that is written while the caller goes on: begin -> beside -> add
 * tensors and files -> start -> copied, and then next between steps until done */

struct ckpt_writer;

/* A thread that writes, and the memory that it writes from: stage [bytes] is
 * borrowed until the free, its pages are touched by the thread.  One for any
 * number of saves, one at a time. */
int ckpt_writer_new(void *stage, size_t bytes, struct ckpt_writer **out);
void ckpt_writer_free(struct ckpt_writer *w);           /* with no save in hand; NULL is accepted */
/* Until it has nothing to do. */
void ckpt_writer_wait(struct ckpt_writer *w);

/* What stage must hold for rank of size ranks: declare the tensors to a
 * rehearsal, which has no directory and meets nobody, ask, and ckpt_save_abort(). */
struct ckpt_save *ckpt_save_rehearse(int rank, int size);
size_t ckpt_save_stage_bytes(struct ckpt_save *s);

/* Right after begin: w will write s.  ckpt_save_file() then copies its data. */
void ckpt_save_beside(struct ckpt_save *s, struct ckpt_writer *w);

/* Collective, instead of ckpt_save_write() and ckpt_save_commit().  From here on
 * the tensors are copied to the stage of their writers; after an error
 * ckpt_save_abort().  What was declared may be read at any time, and changed when
 * ckpt_save_copied(), which is not collective, has returned. */
int ckpt_save_start(struct ckpt_save *s, int keep);
void ckpt_save_copied(struct ckpt_save *s);

/* Not collective.  True while this rank works on the phase at hand. */
_Bool ckpt_save_busy(const struct ckpt_save *s);

struct ckpt_save_facts {
    uint64_t bytes;             /* of tensors, all ranks */
    double write_s, commit_s;   /* writing, of the slowest rank; MANIFEST to removal, of rank 0 */
};

/* Collective.  Waits for this rank's phase and enters the next one: 1, call
 * again when no rank is busy.  0: the checkpoint is there, as after
 * ckpt_save_commit().  An error: as there.  With 0 or an error s is freed, and
 * *facts (or NULL) filled in, on rank 0. */
int ckpt_save_next(struct ckpt_save *s, struct ckpt_save_facts *facts);

/* What to pool_reserve() so that saving needs no memory from the system; whole
 * tensors are never copied.  The second form is for several ranks: n_rows counts
 * the struct ckpt_rows of all tensors, largest_split is the bytes of the largest
 * tensor that has more than one (0: none). */
size_t ckpt_save_memory(int64_t n_tensors);
size_t ckpt_save_memory_ranks(int64_t n_tensors, int64_t n_rows, int n_ranks, uint64_t largest_split);

/* Removes the temporary (rank 0 does) and frees s; keeps the recorded error.
 * After a collective call that failed, or on all ranks before the first one, or
 * at the end of a process that other ranks no longer wait for: a thread that
 * still writes is waited for.  NULL is accepted. */
void ckpt_save_abort(struct ckpt_save *s);

#endif
