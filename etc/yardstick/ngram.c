/* ngram.c -- bits per byte of a Witten-Bell n-gram model: the yardstick beside a trained model.
 *
 * A text is a row of symbols: bytes, or the tokens of a .bin file.  The order
 * is the length of the context: order 3 guesses a byte from the three before
 * it, and a bigram of tokens has order 1.  With c(h) the times a context h was
 * seen in the training text and t(h) the number of different symbols that
 * followed it,
 *
 *     P_k(s | h) = (c(hs) + t(h) P_{k-1}(s | h')) / (c(h) + t(h)),
 *
 * h' being h without its first symbol, P_{-1} = 1/alphabet, and P_k = P_{k-1}
 * where h was never seen.  Every order up to the largest is counted once, so
 * several orders cost one pass.
 *
 * Counts are exact: an n-gram is the 64-bit key itself, never a hash of one.
 * It refuses orders that do not fit in there, and it guesses nothing: a file
 * is taken as it is, with no border between the documents inside. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DONE = 0, USAGE = 2, BAD_DATA = 65, NO_INPUT = 66, ABSENT = 69, WRITE_ERROR = 74 };
enum { MAX_ORDER = 7 };

static const char usage[] =
    "usage: ngram [-o ORDER,...] TRAIN... -- HELD...\n"
    "       ngram [-o ORDER,...] -a ALPHABET -w WIDTH TRAIN... -- HELD=BYTES...\n"
    "Learns from TRAIN and prints the bits per byte of each HELD and of all together.\n"
    "  -o ORDER,...   orders to print, 0 to 7: symbols of context (default 2,3)\n"
    "  -w WIDTH       bytes of a symbol: 1, 2 or 4, little endian (default 1)\n"
    "  -a ALPHABET    number of symbols (default 256); with tokens the vocabulary size\n"
    "  HELD=BYTES     the text that the tokens of HELD stand for is so long\n";

__attribute__((noreturn, format(printf, 2, 3))) static void die(int status, const char *fmt, ...)
{
    va_list ap;

    fputs("ngram: ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(status);
}

static void *allocate(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);

    if (!p)
        die(ABSENT, "out of memory");
    return p;
}

/* ---- counts: an open table from key to two numbers; c 0 marks a free slot */
struct slot {
    uint64_t key;
    uint32_t c;         /* times seen */
    uint32_t t;         /* contexts only: different symbols that followed */
};

struct table {
    struct slot *slots;
    size_t mask, used;
};

static struct slot *find(const struct table *t, uint64_t key)
{
    uint64_t h = key * 0x9e3779b97f4a7c15u;

    for (size_t i = (h ^ h >> 32) & t->mask;; i = (i + 1) & t->mask)
        if (t->slots[i].c == 0 || t->slots[i].key == key)
            return &t->slots[i];
}

static void table_init(struct table *t, size_t size)
{
    *t = (struct table){ allocate(size, sizeof *t->slots), size - 1, 0 };
}

static struct slot *count(struct table *t, uint64_t key)
{
    struct slot *s = find(t, key);

    if (s->c == UINT32_MAX)
        die(BAD_DATA, "a symbol is seen too often");
    if (s->c++ > 0)
        return s;
    s->key = key;
    /* At most half full, so that a search stays short. */
    if (++t->used * 2 > t->mask) {
        struct table old = *t;
        table_init(t, 2 * (old.mask + 1));
        t->used = old.used;
        for (size_t i = 0; i <= old.mask; i++)
            if (old.slots[i].c)
                *find(t, old.slots[i].key) = old.slots[i];
        free(old.slots);
        s = find(t, key);
    }
    return s;
}

/* ---- the model */
struct model {
    int order;                          /* the largest */
    int bits;                           /* of a symbol inside a key */
    uint32_t alphabet;
    struct table contexts[MAX_ORDER + 1];       /* [k] contexts of k symbols */
    struct table grams[MAX_ORDER + 1];          /* [k] a context and the symbol after it */
};

static uint64_t low(uint64_t x, int bits) { return bits >= 64 ? x : x & ((UINT64_C(1) << bits) - 1); }

/* Keys of order k, for the symbol s after the history (last symbol lowest). */
static uint64_t context_key(const struct model *m, int k, uint64_t history) { return low(history, k * m->bits); }
static uint64_t gram_key(const struct model *m, int k, uint64_t history, uint32_t s)
{
    return low(history << m->bits | s, (k + 1) * m->bits);
}

static void learn(struct model *m, const uint32_t *s, size_t n)
{
    uint64_t history = 0;

    for (size_t i = 0; i < n; i++) {
        for (int k = 0; k <= m->order && (size_t)k <= i; k++) {
            _Bool first = count(&m->grams[k], gram_key(m, k, history, s[i]))->c == 1;
            struct slot *h = count(&m->contexts[k], context_key(m, k, history));
            h->t += first;
        }
        history = history << m->bits | s[i];
    }
}

/* Adds to bits[k] what order k pays for the text. */
static void measure(const struct model *m, const uint32_t *s, size_t n, double *bits)
{
    uint64_t history = 0;

    for (size_t i = 0; i < n; i++) {
        double p = 1.0 / m->alphabet;
        for (int k = 0; k <= m->order; k++) {
            const struct slot *h = (size_t)k <= i ? find(&m->contexts[k], context_key(m, k, history)) : NULL;
            if (h && h->c) {
                const struct slot *g = find(&m->grams[k], gram_key(m, k, history, s[i]));
                p = (g->c + h->t * p) / ((double)h->c + h->t);
            }
            bits[k] -= log2(p);
        }
        history = history << m->bits | s[i];
    }
}

/* ---- files */
static uint32_t *read_symbols(const char *path, int width, uint32_t alphabet, size_t *n_out)
{
    size_t n = 0, room = 1 << 20, got;
    unsigned char *raw = allocate(room, 1);
    FILE *f = fopen(path, "rb");

    if (!f)
        die(NO_INPUT, "%s: %s", path, strerror(errno));
    while ((got = fread(raw + n, 1, room - n, f)) > 0) {
        n += got;
        if (n == room && !(raw = realloc(raw, room *= 2)))
            die(ABSENT, "out of memory");
    }
    if (ferror(f))
        die(WRITE_ERROR, "%s: %s", path, strerror(errno));
    fclose(f);
    if (n % (size_t)width)
        die(BAD_DATA, "%s: %zu bytes are no whole number of symbols of %d", path, n, width);
    n /= (size_t)width;
    uint32_t *s = allocate(n, sizeof *s);
    for (size_t i = 0; i < n; i++) {
        for (int b = width; b-- > 0;)
            s[i] = s[i] << 8 | raw[i * (size_t)width + (size_t)b];
        if (s[i] >= alphabet)
            die(BAD_DATA, "%s: symbol %" PRIu32 " at %zu is not below %" PRIu32, path, s[i], i, alphabet);
    }
    free(raw);
    *n_out = n;
    return s;
}

/* ---- command line */
static long number(const char *what, const char *text, long min, long max, const char **end)
{
    char *e;
    long v;

    errno = 0;
    v = strtol(text, &e, 10);
    if (e == text || errno || v < min || v > max)
        die(USAGE, "%s: \"%s\" is no number from %ld to %ld", what, text, min, max);
    if (end)
        *end = e;
    else if (*e)
        die(USAGE, "%s: \"%s\" is no number", what, text);
    return v;
}

/* Parses "2,3" into marks; returns the largest. */
static int orders(const char *text, _Bool *want)
{
    int top = 0;

    memset(want, 0, (MAX_ORDER + 1) * sizeof *want);
    for (;; text++) {
        int k = (int)number("-o", text, 0, MAX_ORDER, &text);
        want[k] = 1;
        top = k > top ? k : top;
        if (*text == '\0')
            return top;
        if (*text != ',')
            die(USAGE, "-o: numbers are separated by commas");
    }
}

struct result { const char *set; double symbols, bytes, bits[MAX_ORDER + 1]; };

static struct result measure_file(const struct model *m, char *arg, int width)
{
    struct result r = { .set = arg };
    size_t n;

    if (width > 1) {
        char *eq = strrchr(arg, '=');
        if (!eq)
            die(USAGE, "%s: tokens need the length of their text: FILE=BYTES", arg);
        *eq = '\0';
        r.bytes = (double)number(arg, eq + 1, 1, LONG_MAX, NULL);
    }
    uint32_t *s = read_symbols(arg, width, m->alphabet, &n);
    if (n == 0)
        die(BAD_DATA, "%s: is empty", arg);
    measure(m, s, n, r.bits);
    free(s);
    r.symbols = (double)n;
    if (width == 1)
        r.bytes = r.symbols;
    return r;
}

static void print_rows(const struct result *r, const _Bool *want)
{
    for (int k = 0; k <= MAX_ORDER; k++)
        if (want[k])
            printf("%s\t%d\t%.0f\t%.0f\t%.3f\t%.4f\n", r->set, k, r->symbols, r->bytes, r->bits[k], r->bits[k] / r->bytes);
}

int main(int argc, char **argv)
{
    _Bool want[MAX_ORDER + 1] = { 0 };
    struct model m = { .order = orders("2,3", want), .alphabet = 256 };
    struct result all = { .set = "all" };
    int width = 1, c, i, n_held;
    size_t n;

    while ((c = getopt(argc, argv, "+ho:w:a:")) != -1)
        switch (c) {
        case 'o': m.order = orders(optarg, want); break;
        case 'w': width = (int)number("-w", optarg, 1, 4, NULL); break;
        case 'a': m.alphabet = (uint32_t)number("-a", optarg, 1, INT_MAX, NULL); break;
        case 'h': fputs(usage, stdout); return fflush(stdout) ? WRITE_ERROR : DONE;
        default: fputs(usage, stderr); return USAGE;
        }
    if (width == 3)
        die(USAGE, "-w: 1, 2 or 4");
    while ((m.alphabet - 1) >> m.bits)
        m.bits++;
    if ((m.order + 1) * m.bits > 64)
        die(USAGE, "order %d is too much for symbols of %d bits", m.order, m.bits);
    for (int k = 0; k <= m.order; k++) {
        table_init(&m.grams[k], 1 << 12);
        table_init(&m.contexts[k], 1 << 12);
    }
    for (i = optind; i < argc && strcmp(argv[i], "--"); i++) {
        uint32_t *s = read_symbols(argv[i], width, m.alphabet, &n);
        learn(&m, s, n);
        free(s);
    }
    if (i == optind || i + 1 >= argc)
        die(USAGE, "TRAIN... -- HELD... are needed; ngram -h says more");
    n_held = argc - ++i;
    struct result *held = allocate((size_t)n_held, sizeof *held);
    for (int h = 0; h < n_held; h++) {
        held[h] = measure_file(&m, argv[i + h], width);
        all.symbols += held[h].symbols;
        all.bytes += held[h].bytes;
        for (int k = 0; k <= m.order; k++)
            all.bits[k] += held[h].bits[k];
    }
    puts("#set\torder\tsymbols\tbytes\tbits\tbits_per_byte");
    for (int h = 0; h < n_held; h++)
        print_rows(&held[h], want);
    print_rows(&all, want);
    free(held);
    for (int k = 0; k <= m.order; k++) {
        free(m.grams[k].slots);
        free(m.contexts[k].slots);
    }
    if (fflush(stdout) || ferror(stdout))
        die(WRITE_ERROR, "standard output: %s", strerror(errno));
    return DONE;
}
