/* synthetic.c -- see synthetic.h.
 *
 * Lengths of documents are uniform in [1, 2 seq_len], so that a window holds one
 * or two as a rule.  An id is uniform below a power of two that is itself
 * uniform: each octave of ranks is as frequent as the next, nearly Zipf's law. */
#include "train/synthetic.h"

#include "base/rng.h"

static int32_t id_of(uint32_t which, uint32_t where, int64_t vocab)
{
    uint32_t octaves = 1;

    while (octaves < 31 && ((int64_t)1 << octaves) < vocab)
        octaves++;
    uint32_t octave = which % (octaves + 1);
    return (int32_t)((int64_t)(where & ((1u << octave) - 1)) % vocab);
}

/* Returns the targets of the window; s is where it begins in b. */
static int64_t window(const struct run_config *c, int64_t sample, const struct batch *b, int64_t s)
{
    struct rng_key ids = rng_key((uint64_t)c->data.seed, "synthetic ids"), docs = rng_key((uint64_t)c->data.seed, "synthetic documents");
    int64_t seq = c->data.seq_len, start = 0, end = 0, n_doc = 0, valid = 0;
    int32_t next = 0;
    uint32_t w[4];

    for (int64_t t = 0; t < seq; t++) {
        if (t == end) {
            start = t;
            rng_block(docs, (uint64_t)sample, (uint64_t)n_doc++, w);
            end = t + 1 + (int64_t)(w[0] % (uint64_t)(2 * seq));
        }
        _Bool has_target = t + 1 < end;
        valid += has_target;
        if (!b)
            continue;
        if (t == 0) {
            rng_block(ids, (uint64_t)sample, 0, w);
            next = id_of(w[0], w[1], c->model.vocab_size);
        }
        b->ids[s + t] = next;
        rng_block(ids, (uint64_t)sample, (uint64_t)t + 1, w);
        next = id_of(w[0], w[1], c->model.vocab_size);
        b->targets[s + t] = has_target ? next : -1;
        b->doc_start[s + t] = (int32_t)(s + start);
        b->positions[s + t] = (int32_t)(t - start);
    }
    return valid;
}

void synthetic_samples(const struct run_config *c, int64_t first, int64_t n, struct batch *b)
{
    b->n_seqs = n;
    b->seq_len = c->data.seq_len;
    b->n_valid = b->text_bytes = 0;
    for (int64_t i = 0; i < n; i++)
        b->n_valid += window(c, first + i, b, i * c->data.seq_len);
}

int64_t synthetic_valid_targets(const struct run_config *c, int64_t first, int64_t n)
{
    int64_t valid = 0;

    for (int64_t i = 0; i < n; i++)
        valid += window(c, first + i, NULL, 0);
    return valid;
}
