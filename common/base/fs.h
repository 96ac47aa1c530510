/* fs.h -- all file output of the project, so that every write is checked,
 * every name is replaced whole and every directory entry is made durable.
 *
 * write(2) and pwrite(2) only, no FILE.  Short writes and EINTR are retried,
 * an fsync failure is never retried.  Sentences name the file. */
#ifndef BASE_FS_H
#define BASE_FS_H

#include <stddef.h>
#include <stdint.h>

/* A whole file in memory: read or mapped.  data is followed by a NUL byte when
 * it was read.  fs_map() is read-only and private; an empty file maps to NULL, 0. */
struct fs_blob { char *data; size_t size; _Bool mapped; };
int fs_read(const char *path, struct fs_blob *out);         /* "-" is stdin */
int fs_map(const char *path, struct fs_blob *out);          /* regular files only, else ERR_DATA; see mapguard.h */
void fs_blob_free(struct fs_blob *b);
/* Pages of a mapped file leave our memory; what is touched again is read again. */
void fs_blob_forget(const struct fs_blob *b);
void fs_blob_forget_part(const struct fs_blob *b, size_t at, size_t n);         /* whole pages within */

/* Output that appears whole or not at all: written to a temporary sibling,
 * then fsync, rename, fsync of the directory by commit.  Until then an abort
 * (or a crash) leaves the old file.  Buffered; fs_out_at() writes anywhere.
 * One thread at a time.  A symbolic link is followed and stays a link; a pipe
 * or a device is written to in place.  A failed write is remembered: every
 * later call fails, and commit removes the temporary. */
struct fs_out;
int fs_out_open(const char *path, struct fs_out **out);
int fs_out_write(struct fs_out *f, const void *data, size_t n);
int fs_out_at(struct fs_out *f, uint64_t offset, const void *data, size_t n);
int fs_out_reserve(struct fs_out *f, uint64_t bytes);       /* fallocate(2); EOPNOTSUPP tolerated; ENOSPC is an error now, not later */
uint64_t fs_out_size(const struct fs_out *f);
const char *fs_out_path(const struct fs_out *f);            /* the final path */
/* Frees f whatever happens.  ERR_IO: the old file is still there, unless the
 * very last fsync, that of the directory, failed. */
int fs_out_commit(struct fs_out *f);
void fs_out_abort(struct fs_out *f);                        /* removes the temporary; NULL is accepted */

/* Inside a directory that itself is renamed later: same interface, no
 * temporary name, fsync at commit, file must not exist (O_EXCL|O_NOFOLLOW). */
int fs_out_create(const char *path, struct fs_out **out);

/* A file that is written over several runs: what is there is cut to size bytes
 * and continued (ERR_DATA when it is shorter); size 0 makes it.  No temporary
 * name; commit syncs, abort leaves the file as it is. */
int fs_out_resume(const char *path, uint64_t size, struct fs_out **out);
int fs_out_sync(struct fs_out *f);                          /* all so far is on the disk */
int fs_out_read(struct fs_out *f, uint64_t offset, void *buf, size_t n);    /* what was written; not of a pipe */

int fs_write_file(const char *path, const void *data, size_t n);        /* open + write + commit */

/* Appends one line (with its newline) in one write(2), fsync when sync.  A line
 * that does not fit is taken back.  Symbolic links are refused. */
int fs_append_line(const char *path, const char *line, size_t n, _Bool sync);

int fs_mkdir(const char *path);                 /* existing directory is fine; ERR_CREATE */
int fs_mkdirs(const char *path);                /* and its parents */
int fs_sync_dir(const char *path);
int fs_rename(const char *from, const char *to);            /* then fsync of to's parent */
int fs_exchange(const char *a, const char *b);              /* both names at once, then fsync of b's parent; ERR_ABSENT where the file system cannot */
int fs_symlink_replace(const char *target, const char *link);   /* temporary link, rename, fsync */
int fs_remove_tree(const char *path);           /* never follows symlinks; absent is fine */
int fs_free_bytes(const char *path, uint64_t *out);
_Bool fs_exists(const char *path);
/* For an open(2) or stat(2) that failed: ERR_NOINPUT when errno says that there
 * is no such name, ERR_DATA for a link to itself or a pipe without an end, else
 * ERR_IO.  What cannot be opened for want of descriptors or rights must not pass
 * for absent or damaged. */
int fs_no_input(const char *path);
_Bool fs_is_dir(const char *path);
int fs_file_size(const char *path, uint64_t *out);          /* regular file, else ERR_NOINPUT / ERR_DATA */

/* Names in a directory, without . and .., sorted bytewise. names[i] in arena a. */
struct arena;
int fs_list(struct arena *a, const char *path, char ***names, int *n);

/* "dir/name"; parent of "a/b" is "a", of "b" is "."; both in the arena. */
char *fs_join(struct arena *a, const char *dir, const char *name);
char *fs_parent(struct arena *a, const char *path);
const char *fs_base(const char *path);

/* True when the name of a directory entry is one of our temporaries, left by a
 * process that died. */
_Bool fs_is_temp(const char *name);

/* Whole read at an offset: fewer bytes is ERR_DATA "short by N bytes". */
int fs_pread(int fd, const char *path, void *buf, size_t n, uint64_t offset);

#endif
