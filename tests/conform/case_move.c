/* case_move.c -- zero, copy, cast, add, scale. */
#include <string.h>

#include "conform.h"

struct size { int64_t rows, cols; };

static const struct size sizes[] = { { 0, 5 }, { 5, 0 }, { 1, 1 }, { 3, 7 }, { 17, 64 }, { 65, 257 }, { 2, 1031 } };

static void bytes_case(struct conform *c, const void *arg)
{
    static const size_t counts[] = { 0, 1, 63, 4096, 100003 };

    (void)arg;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        size_t n = counts[i];
        unsigned char *a = conform_alloc(c, n, 1), *b = conform_alloc(c, n, 1), *z = conform_alloc(c, n, 1);
        for (size_t k = 0; k < n; k++)
            a[k] = z[k] = (unsigned char)(k * 7 + 1);
        OP(c)->copy(conform_dev(c), b, a, n);
        OP(c)->zero(conform_dev(c), z, n);
        conform_out_bits(c, b, n, "copy");
        conform_out_bits(c, z, n, "zero");
    }
}

static void cast_case(struct conform *c, const void *arg)
{
    static const enum dtype types[] = { DT_F32, DT_BF16 };
    const struct size *s = arg;

    if (!conform_takes(c, DT_BF16))
        return;
    for (int from = 0; from < 2; from++)
        for (int to = 0; to < 2; to++) {
            struct mat x = conform_in(c, types[from], s->rows, s->cols, 3, FILL_WIDE);
            struct mat y = conform_mat(c, types[to], s->rows, s->cols, 1, FILL_NAN);
            OP(c)->cast(conform_dev(c), y, x);
            conform_out(c, y, tol_exact(), "%s to %s", dtype_name(types[from]), dtype_name(types[to]));
        }
}

/* Values half way between two bf16 go to the even one; infinities stay. */
static void cast_ties_case(struct conform *c, const void *arg)
{
    static const float v[] = { 1.00390625f, 1.01171875f, -1.00390625f, 1.0039063f, 3.3895314e38f, 3.4e38f, 0, -0.0f,
                               1e-40f, 0x1p-133f, 0x1p-134f };
    enum { N = sizeof v / sizeof *v };
    struct mat x, y;

    (void)arg;
    if (!conform_takes(c, DT_BF16))
        return;
    x = conform_in(c, DT_F32, 1, N, 0, FILL_UNIT);
    y = conform_mat(c, DT_BF16, 1, N, 0, FILL_NAN);
    memcpy(x.p, v, sizeof v);
    OP(c)->cast(conform_dev(c), y, x);
    conform_out(c, y, tol_exact(), "cast");
}

static void add_case(struct conform *c, const void *arg)
{
    static const enum dtype types[] = { DT_F32, DT_BF16 };
    const struct size *s = arg;

    for (int i = 0; i < 2; i++) {
        struct mat a, b, y;
        if (i && !conform_takes(c, DT_BF16))
            return;
        a = conform_in(c, types[i], s->rows, s->cols, 0, FILL_UNIT);
        b = conform_in(c, types[i], s->rows, s->cols, 5, FILL_UNIT);
        y = conform_mat(c, types[i], s->rows, s->cols, 2, FILL_NAN);
        OP(c)->add(conform_dev(c), y, a, b);
        conform_out(c, y, tol_exact(), "add %s", dtype_name(types[i]));
        y = conform_mat(c, types[i], s->rows, s->cols, 2, FILL_UNIT);
        OP(c)->add(conform_dev(c), y, y, b);
        conform_out(c, y, tol_exact(), "add in place %s", dtype_name(types[i]));
        y = conform_mat(c, types[i], s->rows, s->cols, 2, FILL_UNIT);
        OP(c)->scale(conform_dev(c), y, 0.3);
        conform_out(c, y, tol(2, 0), "scale %s", dtype_name(types[i]));
        y = conform_mat(c, types[i], s->rows, s->cols, 0, FILL_INT);
        OP(c)->scale(conform_dev(c), y, -0.5);
        conform_out(c, y, tol_exact(), "scale exact %s", dtype_name(types[i]));
    }
}

void cases_move(struct conform_list *l)
{
    conform_add(l, bytes_case, NULL, "move zero and copy");
    conform_add(l, cast_ties_case, NULL, "move cast ties to even");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const struct size *s = &sizes[i];
        conform_add(l, cast_case, s, "move cast %lldx%lld", (long long)s->rows, (long long)s->cols);
        conform_add(l, add_case, s, "move add scale %lldx%lld", (long long)s->rows, (long long)s->cols);
    }
}
