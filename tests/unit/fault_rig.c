/* fault_rig.c -- see the header.
 *
 * The library is loaded before the program and struck only in the child: what
 * the parent does to look at the remains is never disturbed. */
#include "unit/fault_rig.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/fs.h"
#include "base/pool.h"
#include "ckpt/convert.h"
#include "ckpt/gc.h"
#include "ckpt/packing.h"
#include "ckpt/rewrite.h"
#include "ckpt/run.h"
#include "ckpt/save.h"
#include "ckpt/verify.h"
#include "model/params.h"
#include "unit/ckpt_toy.h"

void (*rig_plan)(const char *spec, const char *dir);
long (*rig_count)(const char *kind);
void (*rig_trace)(int fd);

static char base[512];
static struct rig_report *report;       /* shared with children */
static const char *cannot;              /* be run: the reason */

static void must(_Bool ok, const char *what)
{
    if (ok)
        return;
    perror(what);
    fprintf(stderr, "%s: %s\n", what, err_msg());
    exit(99);
}

/* ---- the library */

static _Bool find_symbols(void)
{
    *(void **)&rig_plan = dlsym(RTLD_DEFAULT, "fault_plan");
    *(void **)&rig_count = dlsym(RTLD_DEFAULT, "fault_count");
    *(void **)&rig_trace = dlsym(RTLD_DEFAULT, "fault_trace");
    return rig_plan && rig_count && rig_trace;
}

/* NULL when it is there, else the reason why it cannot be. */
static const char *preload(char **argv)
{
    static char self[PATH_MAX], so[PATH_MAX];
    const char *san = getenv("MOE_SAN");
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    if (find_symbols())
        return NULL;
    if (san && *san)
        return "a sanitizer build takes no preload library";
    must(n > 0, "/proc/self/exe");
    self[n] = '\0';
    /* BUILD/unit/test_x -> BUILD/fault/fault.so */
    *strrchr(self, '/') = '\0';
    *strrchr(self, '/') = '\0';
    snprintf(so, sizeof so, "%.*s/fault/fault.so", PATH_MAX - 32, self);
    must(access(so, R_OK) == 0 && !getenv("LD_PRELOAD"), so);
    setenv("LD_PRELOAD", so, 1);
    /* A team of threads does not live on in a child. */
    setenv("OMP_NUM_THREADS", "1", 1);
    execv("/proc/self/exe", argv);
    must(0, "execv");
    return NULL;
}

static const char *place(char *buf, const char *what, const char *name)
{
    snprintf(buf, 640, "%s/%s%s", base, what, name);
    return buf;
}

/* ---- the model */

static const char config_text[] =
    "{\"model_type\": \"qwen3_moe\", \"architectures\": [\"Qwen3MoeForCausalLM\"], \"hidden_size\": 16, \"num_hidden_layers\": 1, "
    "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 8, \"vocab_size\": 24, \"num_experts\": 3, "
    "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 8, \"intermediate_size\": 8, \"norm_topk_prob\": true, "
    "\"tie_word_embeddings\": true, \"torch_dtype\": \"float32\", \"max_position_embeddings\": 64}\n";

#define N_TENSORS 20
#define N_STATE 3               /* of the first tensors */

static struct { struct arena *a; struct model_config cfg; struct param_table t; } model;

static void model_open(void)
{
    char path[640];

    place(path, "config.json", "");
    toy_put(path, config_text, strlen(config_text));
    model.a = arena_new();
    must(model_config_read(&model.cfg, path, 0) == 0, path);
    must(params_build(model.a, &model.cfg, &model.t) == 0 && model.t.n == N_TENSORS, "20 tensors");
}

/* ---- directories */

void rig_enter(int argc, char **argv)
{
    const char *tmp = getenv("TMPDIR");
    char dir[256], *real;

    cannot = preload(argv);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    if (cannot)
        return;
    snprintf(dir, sizeof dir, "%s/moe-fault.XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : tmp && *tmp ? tmp : "/tmp");
    must(mkdtemp(dir) != NULL, dir);
    real = realpath(dir, NULL);
    must(real && strlen(real) < sizeof base, dir);
    strcpy(base, real);
    free(real);
    report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(report != MAP_FAILED, "mmap");
    model_open();
}

void rig_need(void)
{
    if (!cannot)
        return;
    printf("skip: %s\n", cannot);
    skip();
}

void rig_leave(void)
{
    if (cannot)
        return;
    model_config_fini(&model.cfg);
    arena_free(model.a);
    must(fs_remove_tree(base) == 0, base);
    munmap(report, sizeof *report);
}

const char *rig_work(void) { static char b[640]; return place(b, "work", ""); }
const char *rig_begin(const struct rig_cmd *c) { static char b[640]; return place(b, "begin.", c->name); }
const char *rig_end(const struct rig_cmd *c) { static char b[640]; return place(b, "end.", c->name); }

void rig_template(const struct rig_cmd *c)
{
    if (fs_exists(rig_end(c)))
        return;
    must(fs_mkdir(rig_begin(c)) == 0, c->name);
    c->prepare(rig_begin(c));
    rig_reset(c);
    rig_run(c, NULL, "any", -1);
    err_set(ERR_BUG, "%s", report->msg);
    must(report->code == 0 && report->signal == 0, c->name);
    rig_copy(rig_work(), rig_end(c));
}

void rig_reset(const struct rig_cmd *c)
{
    must(fs_remove_tree(rig_work()) == 0, rig_work());
    rig_copy(rig_begin(c), rig_work());
}

static void copy_file(const char *from, const char *to)
{
    static char buf[1 << 16];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_EXCL, 0666);
    ssize_t n;

    must(in >= 0, from);
    must(out >= 0, to);
    while ((n = read(in, buf, sizeof buf)) > 0)
        must(write(out, buf, (size_t)n) == n, to);
    must(n == 0, from);
    close(in);
    close(out);
}

/* Calls f for every entry; stops where it is not 0. */
static int each(const char *dir, int (*f)(void *ctx, const char *dir, const char *name), void *ctx)
{
    DIR *d = opendir(dir);
    int rc = 0;

    must(d != NULL, dir);
    for (struct dirent *e; rc == 0 && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            rc = f(ctx, dir, e->d_name);
    closedir(d);
    return rc;
}

static int copy_entry(void *ctx, const char *dir, const char *name)
{
    char from[PATH_MAX], to[PATH_MAX];

    snprintf(from, sizeof from, "%s/%s", dir, name);
    snprintf(to, sizeof to, "%s/%s", (const char *)ctx, name);
    rig_copy(from, to);
    return 0;
}

void rig_copy(const char *from, const char *to)
{
    char target[PATH_MAX];
    struct stat sb;
    ssize_t n;

    must(lstat(from, &sb) == 0, from);
    if (S_ISREG(sb.st_mode)) {
        copy_file(from, to);
    } else if (S_ISLNK(sb.st_mode)) {
        n = readlink(from, target, sizeof target - 1);
        must(n > 0, from);
        target[n] = '\0';
        must(symlink(target, to) == 0, to);
    } else {
        must(mkdir(to, 0777) == 0, to);
        each(from, copy_entry, (void *)(uintptr_t)to);
    }
}

static int same_entry(void *ctx, const char *dir, const char *name)
{
    char a[PATH_MAX], b[PATH_MAX];

    snprintf(a, sizeof a, "%s/%s", dir, name);
    snprintf(b, sizeof b, "%s/%s", (const char *)ctx, name);
    return !rig_same(a, b);
}

static int there(void *ctx, const char *dir, const char *name)
{
    char b[PATH_MAX];
    struct stat sb;

    (void)dir;
    snprintf(b, sizeof b, "%s/%s", (const char *)ctx, name);
    return lstat(b, &sb) < 0;
}

_Bool rig_same(const char *a, const char *b)
{
    struct stat sa, sb;
    char ta[PATH_MAX], tb[PATH_MAX];
    ssize_t n, m;
    char *da, *db;
    size_t na, nb;
    _Bool same;

    if (lstat(a, &sa) < 0)
        return lstat(b, &sb) < 0;
    if (lstat(b, &sb) < 0 || (sa.st_mode & S_IFMT) != (sb.st_mode & S_IFMT))
        return 0;
    if (S_ISDIR(sa.st_mode))
        return each(a, same_entry, (void *)(uintptr_t)b) == 0 && each(b, there, (void *)(uintptr_t)a) == 0;
    if (S_ISLNK(sa.st_mode)) {
        n = readlink(a, ta, sizeof ta);
        m = readlink(b, tb, sizeof tb);
        return n == m && n > 0 && !memcmp(ta, tb, (size_t)n);
    }
    if (sa.st_size != sb.st_size)
        return 0;
    toy_get(a, &da, &na);
    toy_get(b, &db, &nb);
    same = na == nb && !memcmp(da, db, na);
    free(da);
    free(db);
    return same;
}

/* ---- its values */

static int64_t count(const struct param *p) { return p->rows * p->cols; }

/* Element i of tensor t (its state: t + 100) at a step; BF16 keeps it not. */
static float value(int t, int64_t i, int64_t step) { return (float)(t + 1) * 0.371f + (float)i * 0.0625f - (float)step * 1.5f; }

static float *fill(struct arena *a, int t, int64_t n, int64_t step)
{
    float *v = arena_array(a, (size_t)n, sizeof *v);

    for (int64_t i = 0; i < n; i++)
        v[i] = value(t, i, step);
    return v;
}

static int save_step(const char *run, int64_t step, int keep)
{
    struct manifest_info info = toy_info(step);
    struct arena *a = arena_new();
    struct ckpt_save *s;
    int rc;

    rc = ckpt_save_begin(run, &info, 4000, &s);
    if (rc < 0)
        goto out;
    rc = ckpt_save_file(s, "config.json", config_text, strlen(config_text));
    for (int i = 0; i < N_TENSORS + N_STATE && rc == 0; i++) {
        int t = i % N_TENSORS;
        const struct param *p = &model.t.v[t];
        const char *name = i < N_TENSORS ? p->name : arena_printf(a, "%s.exp_avg", p->name);
        int64_t shape[2] = { p->rows, p->cols };

        rc = ckpt_save_tensor(s, i < N_TENSORS ? CKPT_MODEL : CKPT_OPTIM, name, DT_F32, p->n_dims, shape,
                              fill(a, i < N_TENSORS ? t : t + 100, count(p), step));
    }
    if (rc == 0)
        rc = ckpt_save_write(s);
    if (rc == 0)
        rc = ckpt_save_commit(s, keep);
    else
        ckpt_save_abort(s);
out:
    arena_free(a);
    return rc;
}

/* Every value of an open checkpoint is that of its step. */
static int check_values(const struct ckpt *c)
{
    int64_t step = ckpt_manifest(c)->info.step;
    struct arena *a = arena_new();
    int rc = 0;

    for (int i = 0; i < N_TENSORS + N_STATE && rc == 0; i++) {
        int t = i % N_TENSORS;
        const struct param *p = &model.t.v[t];
        const char *name = i < N_TENSORS ? p->name : arena_printf(a, "%s.exp_avg", p->name);
        int64_t shape[2] = { p->rows, p->cols }, n = count(p);
        float *got = arena_array(a, (size_t)n, sizeof *got);
        const struct ckpt_tensor *found;

        rc = ckpt_need(c, name, p->n_dims, shape, &found);
        if (rc == 0)
            rc = ckpt_read_f32(c, found, 0, n, got);
        if (rc == 0 && memcmp(got, fill(a, i < N_TENSORS ? t : t + 100, n, step), (size_t)n * sizeof *got))
            rc = err_set(ERR_NO, "%s: tensor \"%s\": other values than at step %d", ckpt_path(c), name, (int)step);
    }
    arena_free(a);
    return rc;
}

static void keep_first(void *ctx, const char *sentence)
{
    if (!*(char *)ctx)
        snprintf(ctx, ERR_MSG_MAX, "%s", sentence);
}

static int verify(const char *dir)
{
    char first[ERR_MSG_MAX] = "";
    struct ckpt_verify v = { .problem = keep_first, .ctx = first };

    TRY(ckpt_verify(dir, &v));
    return v.n_problems ? err_set(ERR_DATA, "%s", first) : 0;
}

static int load(const char *run, unsigned flags, int64_t *step, _Bool *fell_back)
{
    struct ckpt *c;
    int rc;

    TRY(ckpt_open(run, CKPT_NEED_MANIFEST | flags, &c));
    rc = check_values(c);
    *step = ckpt_manifest(c)->info.step;
    *fell_back = ckpt_note(c) != NULL;
    ckpt_close(c);
    return rc;
}

/* ---- the commands */

static const char *const argv[] = { "moe-ckpt" };
static const struct derive_maker maker = { "moe-ckpt 0", argv, 1, "test" };

static void one_step(const char *dir) { must(save_step(toy_path(dir, "run"), 1, 0) == 0, "save"); }
static void two_steps(const char *dir) { one_step(dir); must(save_step(toy_path(dir, "run"), 2, 0) == 0, "save"); }
static void three_steps(const char *dir) { two_steps(dir); must(save_step(toy_path(dir, "run"), 3, 0) == 0, "save"); }

static int save(const char *dir) { return save_step(toy_path(dir, "run"), 2, 0); }
static int save_first(const char *dir) { return save_step(toy_path(dir, "run"), 1, 0); }
static int save_again(const char *dir) { return save_step(toy_path(dir, "run"), 2, 1); }
static int save_keep(const char *dir) { return save_step(toy_path(dir, "run"), 3, 1); }
static void nothing(const char *dir) { (void)dir; }

static int open_step(const char *dir, struct ckpt **c) { return ckpt_open(toy_path(dir, "run/ckpt/step-00000001"), 0, c); }

static int to_bf16(const char *dir)
{
    struct convert v = { .to = toy_path(dir, "out"), .replace = 1, .family = MODEL_TYPE_N, .dtype = DT_BF16, .shard_bytes = 3000, .by = maker };
    struct ckpt *c;
    int rc;

    TRY(open_step(dir, &c));
    rc = convert_run(c, &v);
    ckpt_close(c);
    return rc;
}

/* An older conversion is there, which is replaced. */
static void converted(const char *dir)
{
    struct convert v = { .to = toy_path(dir, "out"), .family = MODEL_TYPE_N, .dtype = DT_N, .by = maker };
    struct ckpt *c;

    one_step(dir);
    must(open_step(dir, &c) == 0, "open");
    must(convert_run(c, &v) == 0, "convert");
    ckpt_close(c);
}

static int reshard(const char *dir)
{
    struct rewrite r = { .to = toy_path(dir, "out"), .n_files = 2, .by = maker };
    struct ckpt *c;
    int rc;

    TRY(open_step(dir, &c));
    rc = rewrite_reshard(c, &r);
    ckpt_close(c);
    return rc;
}

static int average(const char *dir)
{
    static const double weights[2] = { 0.25, 0.75 };
    struct rewrite r = { .to = toy_path(dir, "out"), .shard_bytes = 6000, .by = maker };
    struct ckpt *c[2] = { NULL, NULL };
    int rc = open_step(dir, &c[0]);

    if (rc == 0)
        rc = ckpt_open(toy_path(dir, "run/ckpt/step-00000002"), 0, &c[1]);
    if (rc == 0)
        rc = rewrite_average(c, weights, 2, &r);
    ckpt_close(c[0]);
    ckpt_close(c[1]);
    return rc;
}

static int to_file(void *ctx, const void *data, size_t n) { return fs_out_write(ctx, data, n); }

static int pack_to(const char *dir, const char *name)
{
    struct packing p = { .tool = "moe-ckpt 0" };
    struct ckpt *c;
    struct fs_out *f;
    int rc;

    TRY(open_step(dir, &c));
    rc = fs_out_open(toy_path(dir, name), &f);
    if (rc == 0) {
        rc = packing_write(c, to_file, f, &p);
        if (rc == 0)
            rc = fs_out_commit(f);
        else
            fs_out_abort(f);
    }
    ckpt_close(c);
    return rc;
}

static int pack(const char *dir) { return pack_to(dir, "out"); }

static void packed(const char *dir)
{
    one_step(dir);
    must(pack_to(dir, "in") == 0, "pack");
    must(fs_remove_tree(toy_path(dir, "run")) == 0, "run");
}

static int unpack(const char *dir)
{
    struct packing p = { .base = NULL };
    const char *in = toy_path(dir, "in");
    int fd = open(in, O_RDONLY | O_CLOEXEC), rc;

    if (fd < 0)
        return fs_no_input(in);
    rc = packing_read(fd, in, toy_path(dir, "out"), &p);
    close(fd);
    return rc;
}

static int collect(const char *dir)
{
    static const struct gc_rules rules = { .keep = 1, .every = 2 };
    struct arena *a = arena_new();
    struct gc_item *items;
    int n, rc = gc_plan(a, toy_path(dir, "run"), &rules, &items, &n);

    if (rc == 0)
        rc = gc_apply(toy_path(dir, "run"), items, n);
    arena_free(a);
    return rc;
}

/* A step that it falls back to is told of and counts as found. */
static int load_run(const char *dir)
{
    int64_t step;
    _Bool fell_back;

    TRY(load(toy_path(dir, "run"), 0, &step, &fell_back));
    return step == 2 || fell_back ? 0 : err_set(ERR_BUG, "step %d is loaded in silence", (int)step);
}

static int verify_step(const char *dir) { return verify(toy_path(dir, "run/ckpt/step-00000002")); }

static const struct rig_cmd cmds[] = {
    { "save", one_step, save, "run", NULL, "run/ckpt/step-00000001" },
    { "save_first", nothing, save_first, "run", NULL, "none" },
    { "save_again", two_steps, save_again, "run", NULL, "none" },
    { "save_keep", two_steps, save_keep, "run", NULL, "none" },
    { "convert", one_step, to_bf16, NULL, "out", "run" },
    { "convert_over", converted, to_bf16, NULL, "out", "run" },
    { "reshard", one_step, reshard, NULL, "out", "run" },
    { "average", two_steps, average, NULL, "out", "run" },
    { "pack", one_step, pack, NULL, "out", "run" },
    { "unpack", packed, unpack, NULL, "out", "in" },
    { "gc", three_steps, collect, "run", NULL, "run/ckpt/step-00000003" },
    { "load", two_steps, load_run, "run", NULL, "run" },
    { "verify", two_steps, verify_step, "run", NULL, "run" },
};

const struct rig_cmd *rig_named(const char *name)
{
    for (size_t i = 0; i < sizeof cmds / sizeof *cmds; i++)
        if (!strcmp(cmds[i].name, name))
            return &cmds[i];
    fail_msg("no command %s", name);
    return NULL;
}

/* ---- children */

const struct rig_report *rig_run(const struct rig_cmd *c, const char *spec, const char *kind, int trace)
{
    int status;
    pid_t pid;

    *report = (struct rig_report){ .code = 0 };
    fflush(NULL);
    pid = fork();
    must(pid >= 0, "fork");
    if (pid == 0) {
        /* Talk of the child; what matters is in the report. */
        if (!freopen("/dev/null", "w", stderr))
            _exit(99);
        err_clear();
        rig_plan(spec, rig_work());
        rig_trace(trace);
        report->code = c->run(rig_work());
        report->calls = rig_count(kind);
        rig_plan(NULL, "/");
        snprintf(report->msg, sizeof report->msg, "%s", err_msg());
        _exit(0);
    }
    must(waitpid(pid, &status, 0) == pid, "waitpid");
    report->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    /* A library that ends the process for want of memory says so with 74. */
    if (!report->signal && WEXITSTATUS(status))
        report->code = -WEXITSTATUS(status);
    return report;
}

/* ---- what is left */

/* first: nothing was ever committed here, so that there may be nothing yet, or
 * a step that `latest` does not name yet. */
static int sound_run(const char *run, _Bool first, int64_t *step)
{
    struct arena *a = arena_new();
    char name[32];
    _Bool fell_back;
    int64_t *steps;
    int n, rc = ckpt_list_steps(a, run, &steps, &n);

    if (rc == 0 && !(first && n == 0))
        rc = load(run, first && !fs_exists(arena_printf(a, "%s/latest", run)) ? 0 : CKPT_NO_FALLBACK, step, &fell_back);
    for (int i = 0; rc == 0 && i < n; i++)
        rc = verify(arena_printf(a, "%s/ckpt/%s", run, ckpt_step_name(name, steps[i])));
    arena_free(a);
    return rc;
}

int rig_sound(const struct rig_cmd *c, const char *dir, int64_t *step)
{
    *step = 0;
    if (!rig_same(toy_path(dir, c->kept), toy_path(rig_begin(c), c->kept)))
        return err_set(ERR_NO, "%s was changed", c->kept);
    if (c->out && !rig_same(toy_path(dir, c->out), toy_path(rig_begin(c), c->out)) &&
        !rig_same(toy_path(dir, c->out), toy_path(rig_end(c), c->out)))
        return err_set(ERR_NO, "%s is neither what it was nor what it should become", c->out);
    if (!c->run_dir)
        return 0;
    return sound_run(toy_path(dir, c->run_dir), !fs_exists(toy_path(rig_begin(c), c->run_dir)), step);
}

_Bool rig_done(const struct rig_cmd *c)
{
    if (c->out)
        return rig_same(toy_path(rig_work(), c->out), toy_path(rig_end(c), c->out));
    return rig_same(toy_path(rig_work(), "run/latest"), toy_path(rig_end(c), "run/latest"));
}

struct walk { const char *begin, *end; int n; };

static int look(void *ctx, const char *dir, const char *name)
{
    const struct walk *w = ctx;
    struct walk deeper = { .n = 0 };
    char a[PATH_MAX], b[PATH_MAX], e[PATH_MAX];
    struct stat sb;

    if (fs_is_temp(name) || ckpt_is_temp(name)) {
        ((struct walk *)ctx)->n++;
        return 0;
    }
    snprintf(a, sizeof a, "%s/%s", dir, name);
    snprintf(b, sizeof b, "%s/%s", w->begin, name);
    snprintf(e, sizeof e, "%s/%s", w->end, name);
    if (lstat(b, &sb) < 0 && lstat(e, &sb) < 0)
        return err_set(ERR_NO, "%s is left", a);
    must(lstat(a, &sb) == 0, a);
    if (!S_ISDIR(sb.st_mode))
        return 0;
    deeper.begin = b;
    deeper.end = e;
    TRY(each(a, look, &deeper));
    ((struct walk *)ctx)->n += deeper.n;
    return 0;
}

int rig_leftovers(const struct rig_cmd *c)
{
    struct walk w = { rig_begin(c), rig_end(c), 0 };

    return each(rig_work(), look, &w) < 0 ? -1 : w.n;
}
