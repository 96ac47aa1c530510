/* mem.c -- recording, carving and playing of planned memory.
 *
 * The tape of a program is a list of takes and gives.  Playing it is a walk
 * with one cursor: no search, no lock, no allocation.  Packing is mem_pack.c.
 * It refuses to improvise: a take that is not on the tape aborts. */
#include "dev/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/grow.h"
#include "dev/mem_pack.h"

enum state { PLAIN, RECORDING, PLANNED, CARVED };

struct buffer {
    struct mem_row row;
    size_t size;                /* bytes of the plan: rounded up */
    char *fake;                 /* address while recording */
    _Bool live;
};

struct event { int32_t i; _Bool take; };        /* buffer index */

struct program {
    const char *name;
    struct event *events;
    int64_t n_events, cap_events;
    int first, n;               /* buffers [first, first + n) */
    size_t scratch;             /* packed bytes */
};

struct plain { void *p; size_t bytes; const char *name; _Bool kept; };

struct mem {
    enum state state;
    _Bool sealed, poison;
    struct arena *arena;
    struct buffer *bufs;        /* in recorded order */
    int64_t cap_bufs;
    int n_bufs;
    struct program *progs;
    int64_t cap_progs;
    int n_progs;
    int now;                    /* program in progress, or -1 */
    int64_t cursor;             /* its next event when playing */
    int kept_cursor;            /* next kept buffer to play, index into bufs */
    char *fake_next;
    char *base;                 /* the reservation */
    size_t planned, mapped;
    struct plain *plain;        /* live buffers of plain mode */
    int64_t cap_plain;
    int n_plain;
    size_t plain_bytes;
    const char *plain_program;
};

enum { ALIGN = 64, PAGE = 4096, LARGE = 1 << 20 };

/* Outside the canonical addresses of x86-64 and the 48 bits of aarch64: a
 * touch of a recorded buffer faults instead of hitting something. */
#define FAKE_BASE ((uintptr_t)1 << 48)

static const char *const class_names[MEM_CLASS_N] = {
    [MEM_MASTER] = "master", [MEM_STATE] = "state", [MEM_GRAD] = "grad", [MEM_TABLE] = "table",
    [MEM_SLOT] = "slot", [MEM_BATCH] = "batch", [MEM_BOUNDARY] = "boundary", [MEM_ROUTING] = "routing", [MEM_ACT] = "act",
    [MEM_ROWS] = "rows", [MEM_LOGITS] = "logits", [MEM_CACHE] = "cache", [MEM_OPTIM] = "optim",
    [MEM_WS] = "ws", [MEM_SAVE] = "save",
};

const char *mem_class_name(enum mem_class c)
{
    BUG_ON(c >= MEM_CLASS_N);
    return class_names[c];
}

static size_t round_up(size_t n, size_t to)
{
    BUG_ON(n > SIZE_MAX - to);
    return (n + to - 1) / to * to;
}

/* Large buffers begin on a page so that the kernel can move whole pages. */
static size_t align_of(size_t bytes)
{
    return bytes > LARGE ? PAGE : ALIGN;
}

static size_t size_of(size_t bytes)
{
    return round_up(bytes ? bytes : 1, align_of(bytes));
}

struct mem *mem_new(void)
{
    struct arena *a = arena_new();
    struct mem *m = arena_alloc(a, sizeof *m);

    m->arena = a;
    m->now = -1;
    return m;
}

void mem_free(struct mem *m)
{
    if (!m)
        return;
    for (int i = 0; i < m->n_plain; i++)
        free(m->plain[i].p);
    free(m->plain);
    if (m->base)
        munmap(m->base, m->mapped);
    arena_free(m->arena);
}

void mem_poison(struct mem *m, _Bool on)
{
    m->poison = on;
}

static void poison(const struct mem *m, void *p, size_t bytes)
{
    if (m->poison)
        memset(p, 0xff, bytes);         /* a NaN in every float format */
}

/* ---- plain mode */

static void *plain_take(struct mem *m, const char *name, size_t bytes, _Bool kept)
{
    size_t size = size_of(bytes);
    void *p;

    if (grow_plain(&m->plain, &m->cap_plain, m->n_plain + 1, sizeof *m->plain, "buffers") < 0)
        return NULL;
    p = aligned_alloc(ALIGN, size);
    if (!p)
        return NULL;
    if (kept)
        memset(p, 0, size);
    else
        poison(m, p, size);
    m->plain[m->n_plain++] = (struct plain){ p, size, name, kept };
    m->plain_bytes += size;
    return p;
}

static void plain_give(struct mem *m, void *p)
{
    int i = m->n_plain - 1;

    while (i >= 0 && m->plain[i].p != p)        /* mostly the last one taken */
        i--;
    BUG_ON(i < 0 || m->plain[i].kept);
    m->plain_bytes -= m->plain[i].bytes;
    free(p);
    memmove(m->plain + i, m->plain + i + 1, (size_t)(m->n_plain - i - 1) * sizeof *m->plain);
    m->n_plain--;
}

static int plain_end(struct mem *m)
{
    const char *program = m->plain_program;

    if (!program)
        return err_set(ERR_BUG, "memory: end without begin");
    m->plain_program = NULL;
    for (int i = 0; i < m->n_plain; i++)
        if (!m->plain[i].kept)
            return err_set(ERR_BUG, "memory: program \"%s\" ended with \"%s\" not given back",
                           program, m->plain[i].name);
    return 0;
}

/* ---- recording */

void mem_record(struct mem *m)
{
    BUG_ON(m->state != PLAIN || m->n_plain || m->plain_program || m->sealed);
    m->state = RECORDING;
    m->fake_next = (char *)FAKE_BASE;
}

_Bool mem_recording(const struct mem *m)
{
    return m->state == RECORDING;
}

static struct buffer *record_buffer(struct mem *m, enum mem_class c, const char *name, size_t bytes)
{
    struct buffer *b;

    BUG_ON(c >= MEM_CLASS_N || m->n_bufs == INT32_MAX);
    m->bufs = grow_arena(m->arena, m->bufs, &m->cap_bufs, m->n_bufs + 1, sizeof *m->bufs);
    b = &m->bufs[m->n_bufs++];
    *b = (struct buffer){
        .row = { .c = c, .name = arena_strdup(m->arena, name), .bytes = bytes },
        .size = size_of(bytes), .fake = m->fake_next, .live = 1,
    };
    m->fake_next += round_up(b->size, PAGE);
    return b;
}

static void record_event(struct mem *m, struct program *p, int i, _Bool take)
{
    p->events = grow_arena(m->arena, p->events, &p->cap_events, p->n_events + 1, sizeof *p->events);
    p->events[p->n_events++] = (struct event){ i, take };
}

/* Fake addresses ascend with the index. */
static int find_fake(const struct mem *m, const struct program *p, const char *at)
{
    int lo = p->first, hi = p->first + p->n;

    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (m->bufs[mid].fake < at)
            lo = mid + 1;
        else
            hi = mid;
    }
    BUG_ON(lo == p->first + p->n || m->bufs[lo].fake != at || !m->bufs[lo].live);
    return lo;
}

/* ---- keep */

/* Skips to the next kept buffer of the tape; NULL after the last. */
static struct buffer *next_kept(struct mem *m)
{
    while (m->kept_cursor < m->n_bufs && !m->bufs[m->kept_cursor].row.kept)
        m->kept_cursor++;
    return m->kept_cursor < m->n_bufs ? &m->bufs[m->kept_cursor] : NULL;
}

static _Bool is_same(const struct buffer *b, enum mem_class c, const char *name, size_t bytes)
{
    return b->row.c == c && b->row.bytes == bytes && !strcmp(b->row.name, name);
}

int mem_keep(struct mem *m, enum mem_class c, const char *name, size_t bytes, void **out)
{
    struct buffer *b;

    if (m->sealed || m->state == PLANNED || m->now >= 0 || m->plain_program)
        return err_set(ERR_BUG, "memory: \"%s\" is kept at a time when nothing may be", name);
    if (m->state == PLAIN) {
        *out = plain_take(m, name, bytes, 1);
        return *out ? 0 : err_sys(ERR_IO, "memory: %zu bytes for \"%s\" cannot be had", bytes, name);
    }
    if (m->state == RECORDING) {
        b = record_buffer(m, c, name, bytes);
        b->row.kept = 1;
        *out = b->fake;
        return 0;
    }
    b = next_kept(m);
    if (!b || !is_same(b, c, name, bytes))
        return err_set(ERR_BUG, "memory: \"%s\" (%zu bytes) is kept where the plan has \"%s\" (%zu bytes)",
                       name, bytes, b ? b->row.name : "nothing", b ? b->row.bytes : 0);
    m->kept_cursor++;
    *out = m->base + b->row.offset;
    return 0;
}

int mem_seal(struct mem *m)
{
    struct buffer *b;

    if (m->state != PLAIN && m->state != CARVED)
        return err_set(ERR_BUG, "memory: sealed before it was carved");
    b = m->state == CARVED ? next_kept(m) : NULL;
    if (b)
        return err_set(ERR_BUG, "memory: \"%s\" of the plan was not taken before the seal", b->row.name);
    m->sealed = 1;
    return 0;
}

/* ---- programs */

static int find_program(const struct mem *m, const char *name)
{
    for (int i = 0; i < m->n_progs; i++)
        if (!strcmp(m->progs[i].name, name))
            return i;
    return -1;
}

int mem_begin(struct mem *m, const char *program)
{
    int at = find_program(m, program);

    if (m->now >= 0 || m->plain_program)
        return err_set(ERR_BUG, "memory: program \"%s\" begins inside \"%s\"", program,
                       m->now >= 0 ? m->progs[m->now].name : m->plain_program);
    switch (m->state) {
    case PLAIN:
        m->plain_program = program;
        return 0;
    case RECORDING:
        if (at >= 0)
            return err_set(ERR_BUG, "memory: program \"%s\" is recorded twice", program);
        m->progs = grow_arena(m->arena, m->progs, &m->cap_progs, m->n_progs + 1, sizeof *m->progs);
        m->now = m->n_progs++;
        m->progs[m->now] = (struct program){ .name = arena_strdup(m->arena, program), .first = m->n_bufs };
        return 0;
    case CARVED:
        if (at < 0)
            return err_set(ERR_BUG, "memory: program \"%s\" is not in the plan", program);
        m->now = at;
        m->cursor = 0;
        return 0;
    case PLANNED:
        break;
    }
    return err_set(ERR_BUG, "memory: program \"%s\" begins between plan and carve", program);
}

void *mem_take(struct mem *m, enum mem_class c, const char *name, size_t bytes)
{
    struct program *p;
    struct buffer *b;
    void *at;

    if (m->state == PLAIN) {
        at = plain_take(m, name, bytes, 0);
        BUG_ON(!at);
        return at;
    }
    BUG_ON(m->now < 0);
    p = &m->progs[m->now];
    if (m->state == RECORDING) {
        b = record_buffer(m, c, name, bytes);
        b->row.program = p->name;
        b->row.first_op = p->n_events;
        p->n++;
        record_event(m, p, m->n_bufs - 1, 1);
        return b->fake;
    }
    BUG_ON(m->cursor == p->n_events || !p->events[m->cursor].take);
    b = &m->bufs[p->events[m->cursor].i];
    BUG_ON(!is_same(b, c, name, bytes));
    m->cursor++;
    at = m->base + b->row.offset;
    poison(m, at, b->size);
    return at;
}

void mem_give(struct mem *m, void *at)
{
    struct program *p;
    struct buffer *b;

    if (m->state == PLAIN) {
        plain_give(m, at);
        return;
    }
    BUG_ON(m->now < 0);
    p = &m->progs[m->now];
    if (m->state == RECORDING) {
        int i = find_fake(m, p, at);
        m->bufs[i].live = 0;
        m->bufs[i].row.last_op = p->n_events;
        record_event(m, p, i, 0);
        return;
    }
    BUG_ON(m->cursor == p->n_events || p->events[m->cursor].take);
    b = &m->bufs[p->events[m->cursor].i];
    BUG_ON(m->base + b->row.offset != (char *)at);
    m->cursor++;
    poison(m, at, b->size);
}

int mem_end(struct mem *m)
{
    struct program *p;

    if (m->state == PLAIN)
        return plain_end(m);
    if (m->now < 0)
        return err_set(ERR_BUG, "memory: end without begin");
    p = &m->progs[m->now];
    m->now = -1;
    if (m->state == CARVED)
        return m->cursor == p->n_events ? 0 :
               err_set(ERR_BUG, "memory: program \"%s\" ended before its tape", p->name);
    for (int i = p->first; i < p->first + p->n; i++)
        if (m->bufs[i].live)
            return err_set(ERR_BUG, "memory: program \"%s\" ended with \"%s\" not given back",
                           p->name, m->bufs[i].row.name);
    return 0;
}

/* ---- plan and carve */

static void plan_program(struct mem *m, struct program *p, size_t base)
{
    struct mem_item *items = arena_array(m->arena, (size_t)p->n, sizeof *items);

    for (int i = 0; i < p->n; i++) {
        const struct buffer *b = &m->bufs[p->first + i];
        items[i] = (struct mem_item){ .bytes = b->size, .align = align_of(b->row.bytes),
                                      .first = b->row.first_op, .last = b->row.last_op };
    }
    p->scratch = mem_pack(items, p->n, NULL);
    for (int i = 0; i < p->n; i++)
        m->bufs[p->first + i].row.offset = base + items[i].offset;
}

int mem_plan(struct mem *m)
{
    long page = sysconf(_SC_PAGESIZE);
    size_t kept = 0, scratch = 0;

    if (m->state != RECORDING || m->now >= 0)
        return err_set(ERR_BUG, "memory: planned without a finished recording");
    for (int i = 0; i < m->n_bufs; i++)
        if (m->bufs[i].row.kept) {
            kept = round_up(kept, align_of(m->bufs[i].row.bytes));
            m->bufs[i].row.offset = kept;
            kept += m->bufs[i].size;
        }
    kept = round_up(kept, PAGE);        /* so that offsets of programs are aligned in the whole */
    for (int i = 0; i < m->n_progs; i++) {
        plan_program(m, &m->progs[i], kept);
        if (m->progs[i].scratch > scratch)
            scratch = m->progs[i].scratch;
    }
    m->planned = round_up(kept + scratch, page > PAGE ? (size_t)page : PAGE);
    m->state = PLANNED;
    return 0;
}

int mem_carve(struct mem *m)
{
    void *p;

    if (m->state != PLANNED)
        return err_set(ERR_BUG, "memory: carved without a plan");
    if (m->planned) {
        p = mmap(NULL, m->planned, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            return err_sys(ERR_IO, "memory: the planned %zu bytes cannot be had", m->planned);
        m->base = p;
        m->mapped = m->planned;
        /* Fewer page faults and TLB misses; a kernel without it is as right. */
        (void)madvise(p, m->planned, MADV_HUGEPAGE);
    }
    m->kept_cursor = 0;
    m->state = CARVED;
    return 0;
}

/* ---- what the plan says */

size_t mem_planned(const struct mem *m)
{
    return m->planned;
}

size_t mem_used(const struct mem *m)
{
    return m->state == PLAIN ? m->plain_bytes : m->mapped;
}

int mem_n_rows(const struct mem *m)
{
    return m->n_bufs;
}

const struct mem_row *mem_row(const struct mem *m, int i)
{
    BUG_ON(i < 0 || i >= m->n_bufs);
    return &m->bufs[i].row;
}

size_t mem_class_bytes(const struct mem *m, enum mem_class c)
{
    size_t kept = 0, peak = 0;

    for (int i = 0; i < m->n_bufs; i++)
        if (m->bufs[i].row.kept && m->bufs[i].row.c == c)
            kept += m->bufs[i].size;
    for (int i = 0; i < m->n_progs; i++) {
        const struct program *p = &m->progs[i];
        size_t live = 0;
        for (int64_t e = 0; e < p->n_events; e++) {
            const struct buffer *b = &m->bufs[p->events[e].i];
            if (b->row.c != c)
                continue;
            live = p->events[e].take ? live + b->size : live - b->size;
            if (live > peak)
                peak = live;
        }
    }
    return kept + peak;
}

const char *mem_peak_program(const struct mem *m, size_t *bytes)
{
    const char *name = NULL;

    *bytes = 0;
    for (int i = 0; i < m->n_progs; i++)
        if (!name || m->progs[i].scratch > *bytes) {
            name = m->progs[i].name;
            *bytes = m->progs[i].scratch;
        }
    return name;
}

size_t mem_largest(const struct mem *m, const char **name)
{
    size_t most = 0;

    if (name)
        *name = NULL;
    for (int i = 0; i < m->n_bufs; i++)
        if (m->bufs[i].row.bytes > most) {
            most = m->bufs[i].row.bytes;
            if (name)
                *name = m->bufs[i].row.name;
        }
    return most;
}
