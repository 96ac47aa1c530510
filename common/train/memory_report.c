/* memory_report.c -- see memory_report.h. */
#include "train/memory_report.h"

#include "base/err.h"
#include "base/out.h"
#include "base/units.h"

static int every_buffer(const struct trainer *t, enum table_form form)
{
    static const struct table_col cols[] = {
        { "class", "class", 's', 0 }, { "name", "buffer", 's', 0 }, { "program", "program", 's', 0 },
        { "bytes", "bytes", 'b', 0 }, { "offset", "offset", 'i', 0 }, { "first_op", "first", 'i', 0 },
        { "last_op", "last", 'i', 0 },
    };
    struct table *tab = table_begin(form, "moe.memory-buffer/1", cols, 7);

    for (int i = 0; i < mem_n_rows(t->mem); i++) {
        const struct mem_row *r = mem_row(t->mem, i);
        table_str(tab, mem_class_name(r->c));
        table_str(tab, r->name);
        table_str(tab, r->kept ? "(run)" : r->program);
        table_int(tab, (int64_t)r->bytes);
        table_int(tab, (int64_t)r->offset);
        table_int(tab, r->first_op);
        table_int(tab, r->last_op);
    }
    return table_end(tab);
}

int memory_report(const struct trainer *t, enum table_form form, _Bool each)
{
    static const struct table_col cols[] = {
        { "class", "class", 's', 0 }, { "bytes", "bytes", 'b', 0 }, { "lifetime", "lifetime", 's', 0 },
    };
    char b[2][32];
    const char *largest;
    size_t peak = 0, big = mem_largest(t->mem, &largest);

    if (each)
        return every_buffer(t, form);
    struct table *tab = table_begin(form, "moe.memory/1", cols, 3);
    for (int c = 0; c < MEM_CLASS_N; c++) {
        _Bool kept = 0, taken = 0;
        for (int i = 0; i < mem_n_rows(t->mem); i++) {
            const struct mem_row *r = mem_row(t->mem, i);
            if ((int)r->c == c)
                *(r->kept ? &kept : &taken) = 1;
        }
        if (!kept && !taken)
            continue;
        table_str(tab, mem_class_name((enum mem_class)c));
        table_int(tab, (int64_t)mem_class_bytes(t->mem, (enum mem_class)c));
        table_str(tab, kept && taken ? "run and step" : kept ? "run" : "step");
    }
    table_rule(tab);
    table_str(tab, "reserved");
    table_int(tab, (int64_t)mem_planned(t->mem));
    table_str(tab, "all classes; those of a step share memory");
    TRY(table_end(tab));
    if (form != TABLE_HUMAN)
        return 0;
    const char *program = mem_peak_program(t->mem, &peak);
    TRY(out_printf("most is needed in \"%s\": %s beside what lives for the run\n", program ? program : "nothing",
                   units_bytes(b[0], (double)peak)));
    return out_printf("largest buffer: %s, %s\n", largest, units_bytes(b[1], (double)big));
}
