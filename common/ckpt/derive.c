/* derive.c -- provenance of what is made from checkpoints. */
#include "ckpt/derive.h"

#include <string.h>
#include <sys/stat.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/fs.h"

static int add_file(struct arena *a, const struct ckpt *c, const char *file, struct hash_stream *h)
{
    const char *path = ckpt_kind(c) == CKPT_ONE_FILE ? ckpt_path(c) : fs_join(a, ckpt_path(c), file), *text;
    struct stat sb;

    if (stat(path, &sb) < 0)
        return err_sys(ERR_IO, "%s", path);
    text = arena_printf(a, "%s %lld %lld.%09ld\n", file, (long long)sb.st_size, (long long)sb.st_mtim.tv_sec, sb.st_mtim.tv_nsec);
    hash_add(h, text, strlen(text));
    return 0;
}

int derive_digest(const struct ckpt *c, struct hash_stream *h)
{
    const struct manifest *m = ckpt_manifest(c);
    struct arena *a;
    const char *last = "";
    int rc = 0;

    if (m) {
        hash_add(h, m->self.hex, 32);
        return 0;
    }
    a = arena_new();
    if (ckpt_kind(c) != CKPT_ONE_FILE && fs_exists(fs_join(a, ckpt_path(c), "config.json")))
        rc = add_file(a, c, "config.json", h);
    for (int64_t i = 0; i < ckpt_n_tensors(c) && rc == 0; i++) {
        const char *file = ckpt_tensor(c, i)->file;

        if (strcmp(last, file))
            rc = add_file(a, c, file, h);
        last = file;
    }
    arena_free(a);
    return rc;
}

void derive_info(const struct ckpt *c, const struct derive_maker *by, const struct hash *recipe, struct manifest_info *out)
{
    const struct manifest *m = ckpt_manifest(c);
    const struct hash none = hash_bytes("", 0);

    *out = m ? m->info : (struct manifest_info){ .run_id = none, .config = none };
    out->kind = MANIFEST_FULL;
    out->tool = by->tool;
    out->argv = by->argv;
    out->n_argv = by->argc;
    out->plan = *recipe;
    out->replicas = out->efsdp = out->ep = out->threads = 1;
    out->kernels = by->how;
}

int derive_files(const struct ckpt *c, _Bool config, struct modeldir *d)
{
    static const char *const names[] = {
        "config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
        "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json", "generation_config.json",
    };

    for (size_t i = config ? 0 : 1; i < sizeof names / sizeof *names; i++) {
        struct fs_blob b;
        int rc = ckpt_read_file(c, names[i], &b);

        if (rc == ERR_NOINPUT)
            continue;
        if (rc < 0)
            return rc;
        modeldir_file(d, names[i], b.data, b.size);
        fs_blob_free(&b);
    }
    return 0;
}

int derive_check_place(const struct ckpt *c, const char *to)
{
    struct stat a, b;

    if (stat(to, &a) == 0 && stat(ckpt_path(c), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        return err_set(ERR_USAGE, "%s: is the input", to);
    return 0;
}
