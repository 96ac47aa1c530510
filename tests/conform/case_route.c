/* case_route.c -- rows by expert, and the way back to tokens. */
#include "conform.h"

struct route_arg { const char *name; int64_t n; int k, experts, used; int64_t width; enum dtype dt; };

static const struct route_arg cases[] = {
    { "no tokens", 0, 2, 4, 4, 5, DT_F32 },
    { "one token", 1, 1, 1, 1, 1, DT_F32 },
    { "one expert used", 33, 1, 8, 1, 7, DT_F32 },
    { "some empty experts", 65, 2, 16, 5, 65, DT_F32 },
    { "all experts", 130, 4, 16, 16, 257, DT_F32 },
    { "more experts than rows", 3, 2, 384, 384, 64, DT_F32 },
    { "BF16", 65, 2, 16, 9, 65, DT_BF16 },
};

static struct route_map draw_map(struct conform *c, const struct route_arg *a)
{
    size_t slots = (size_t)(a->n * a->k);
    uint16_t *idx = conform_alloc(c, slots, sizeof *idx);

    for (int64_t t = 0; t < a->n; t++) {
        int first = conform_draw_int(c, 0, a->used - 1);
        for (int s = 0; s < a->k; s++)
            idx[t * a->k + s] = (uint16_t)((a->experts - 1) - (first + s) % a->used);
    }
    return (struct route_map){
        .n_tokens = a->n, .top_k = a->k, .n_experts = a->experts, .idx = idx,
        .row_of = conform_alloc(c, slots, sizeof(int32_t)), .token_of = conform_alloc(c, slots, sizeof(int32_t)),
        .offsets = conform_alloc(c, (size_t)a->experts + 1, sizeof(int32_t)),
    };
}

/* The moves run on a map that does not come from the device (trace writes
 * none): row i of the slots in reverse order. */
static void moves(struct conform *c, const struct route_arg *a)
{
    int64_t slots = a->n * a->k;
    int32_t *row_of = conform_alloc(c, (size_t)slots, sizeof *row_of);
    int32_t *token_of = conform_alloc(c, (size_t)slots, sizeof *token_of);
    struct mat x = conform_in(c, a->dt, a->n, a->width, 3, FILL_UNIT);
    struct mat xs = conform_mat(c, a->dt, slots, a->width, 1, FILL_NAN);
    struct mat ys = conform_in(c, a->dt, slots, a->width, 2, FILL_UNIT);
    struct mat w = conform_in(c, DT_F32, a->n, a->k, 0, FILL_UNIT);
    struct mat wr = conform_mat(c, DT_F32, slots, 1, 0, FILL_NAN);
    struct mat back = conform_mat(c, DT_F32, a->n, a->k, 0, FILL_NAN), none = { .p = NULL };

    for (int64_t i = 0; i < slots; i++) {
        row_of[i] = (int32_t)(slots - 1 - i);
        token_of[row_of[i]] = (int32_t)(i / a->k);
    }
    OP(c)->rows_gather(conform_dev(c), xs, x, token_of);
    OP(c)->slots_to_rows(conform_dev(c), wr, w, row_of, 0);
    OP(c)->rows_to_slots(conform_dev(c), back, wr, row_of, 0);
    /* Two windows make the whole; what a window does not hold stays as it was. */
    struct mat parts = conform_mat(c, DT_F32, slots, 1, 0, FILL_NAN), apart = conform_mat(c, DT_F32, a->n, a->k, 0, FILL_NAN);
    int64_t cut = slots / 3;
    OP(c)->slots_to_rows(conform_dev(c), mat_rows(parts, 0, cut), w, row_of, 0);
    OP(c)->slots_to_rows(conform_dev(c), mat_rows(parts, cut, slots - cut), w, row_of, cut);
    OP(c)->rows_to_slots(conform_dev(c), apart, mat_rows(parts, cut, slots - cut), row_of, cut);
    OP(c)->rows_to_slots(conform_dev(c), apart, mat_rows(parts, 0, cut), row_of, 0);
    conform_out(c, parts, tol_exact(), "weights of rows in two windows");
    conform_out(c, apart, tol_exact(), "weights of slots from two windows");
    conform_out(c, xs, tol_exact(), "gathered rows");
    conform_out(c, wr, tol_exact(), "weights of rows");
    conform_out(c, back, tol_exact(), "weights of slots");
    for (int beta = 0; beta < 2; beta++) {
        /* y collects in F32 whatever the rows are. */
        struct mat y = conform_mat(c, DT_F32, a->n, a->width, 0, beta ? FILL_UNIT : FILL_NAN);
        struct mat u = conform_mat(c, a->dt, a->n, a->width, 1, beta ? FILL_UNIT : FILL_NAN);
        struct mat v = conform_mat(c, DT_F32, a->n, a->width, 0, beta ? FILL_UNIT : FILL_NAN);
        struct mat gate = conform_in(c, DT_F32, a->n, 1, 0, FILL_UNIT);
        OP(c)->rows_combine(conform_dev(c), y, ys, w, row_of, 0, a->k, beta);
        OP(c)->rows_combine(conform_dev(c), u, ys, none, row_of, 0, a->k, beta);
        OP(c)->rows_combine(conform_dev(c), v, x, gate, NULL, 0, 1, beta);
        struct mat z = conform_mat(c, DT_F32, a->n, a->width, 1, beta ? FILL_UNIT : FILL_NAN);
        OP(c)->rows_combine(conform_dev(c), z, mat_rows(ys, cut, slots - cut), w, row_of, cut, a->k, beta);
        OP(c)->rows_combine(conform_dev(c), z, mat_rows(ys, 0, cut), w, row_of, 0, a->k, 1);
        conform_out(c, z, tol_sum(a->k, 1), "combined in two windows (beta %d)", beta);
        conform_out(c, y, tol_sum(a->k, 1), "combined (beta %d)", beta);
        conform_out(c, u, tol_sum(a->k, 1), "combined without weights (beta %d)", beta);
        conform_out(c, v, tol_sum(1, 1), "combined row by row (beta %d)", beta);
    }
}

static void route_case(struct conform *c, const void *arg)
{
    const struct route_arg *a = arg;
    size_t slots = (size_t)(a->n * a->k);
    struct route_map m;

    if (!conform_takes(c, a->dt))
        return;
    m = draw_map(c, a);
    OP(c)->route_sort(conform_dev(c), &m);
    conform_out_bits(c, m.row_of, slots * sizeof *m.row_of, "row_of");
    conform_out_bits(c, m.token_of, slots * sizeof *m.token_of, "token_of");
    conform_out_bits(c, m.offsets, ((size_t)a->experts + 1) * sizeof *m.offsets, "offsets");
    moves(c, a);
}

void cases_route(struct conform_list *l)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        conform_add(l, route_case, &cases[i], "route %s", cases[i].name);
}
