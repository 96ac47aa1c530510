/* main.c -- moe-tokenize: text to token files and back.
 *
 * Wiring only: options to calls of tok/ and data/. */
#include <omp.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/err.h"
#include "tokenize.h"

enum text_docs tokenize_docs(const char *name)
{
    static const char *const names[] = { "auto", "file", "line", "blank", "jsonl" };
    static const enum text_docs docs[] = { TEXT_AUTO, TEXT_FILE, TEXT_LINE, TEXT_BLANK, TEXT_JSONL };
    int i = 0;
    while (strcmp(names[i], name) != 0)
        i++;
    return docs[i];
}

int tokenize_threads(int64_t threads)
{
    return threads > 0 ? (int)threads : omp_get_max_threads();
}

int tokenize_text(const char *path, struct fs_blob *out)
{
    uint64_t size;
    if (strcmp(path, "-") == 0 || fs_file_size(path, &size) < 0)
        return fs_read(path, out);
    return fs_map(path, out);
}

int tokenize_vocab(const char *path, const struct tok_load *how, struct tok_vocab **out)
{
    if (path == NULL)
        return err_set(ERR_USAGE, "no vocabulary: give one with -t tok.json");
    return tok_vocab_load_as(path, how, out);
}

int tokenize_eod(const struct tok_vocab *v, int32_t *id, const char **content)
{
    if (tok_vocab_n_specials(v) == 0)
        return err_set(ERR_DATA, "%s has no special token to end documents with", tok_vocab_name(v));
    *id = tok_vocab_special(v, 0, content);
    return 0;
}

int tokenize_look_at(const char *path, struct stat *st)
{
    struct stat here;
    if (st == NULL)
        st = &here;
    memset(st, 0, sizeof *st);
    if (strcmp(path, "-") == 0)
        return 0;
    if (stat(path, st) < 0 || access(path, R_OK) < 0)
        return err_sys(ERR_NOINPUT, "%s", path);
    return S_ISDIR(st->st_mode) ? err_set(ERR_NOINPUT, "%s: is a directory", path) : 0;
}

int tokenize_check_prefix(const char *prefix)
{
    size_t n = strlen(prefix);
    if (n == 0)
        return err_set(ERR_USAGE, "--output: expected a prefix");
    return prefix[n - 1] == '/' ? err_set(ERR_USAGE, "--output %s: a prefix has a name behind its last \"/\"", prefix) : 0;
}

_Bool tokenize_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && S_ISREG(x.st_mode) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

_Bool tokenize_has_sidecar(const char *prefix)
{
    struct arena *a = arena_new();
    _Bool there = fs_exists(arena_printf(a, "%s.json", prefix));
    arena_free(a);
    return there;
}

int main(int argc, char **argv)
{
    const struct opt_cmd cmds[] = { tokenize_encode_cmd, tokenize_decode_cmd, tokenize_train_cmd, tokenize_info_cmd, tokenize_import_cmd, tokenize_export_cmd, tokenize_verify_cmd, tokenize_stats_cmd, tokenize_merge_cmd };

    return opt_main("moe-tokenize", "text to token files and back", cmds, (int)(sizeof cmds / sizeof *cmds), argc, argv);
}
