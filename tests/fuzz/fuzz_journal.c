/* fuzz_journal.c -- data/journal: what an earlier run left is read or not, but never an error. */
#include <stdio.h>

#include "base/err.h"
#include "data/journal.h"
#include "fuzz/fuzz.h"

const char fuzz_what[] = "a journal of an encode";

static struct journal_head head(void)
{
    return (struct journal_head){ .tool = "t", .tokenizer = hash_bytes("t", 1), .how = "h", .inputs = hash_bytes("l", 1), .n_inputs = 3, .n_outputs = 2 };
}

int fuzz_seeds(void)
{
    struct journal_head h = head();
    const char *x = h.tokenizer.hex;
    char text[4096];
    snprintf(text, sizeof text,
             "{\"format\":\"" JOURNAL_FORMAT "\",\"tool\":\"t\",\"tokenizer\":\"%s\",\"how\":\"h\",\"inputs\":\"%s\",\"n_inputs\":3,\"n_outputs\":2}\n"
             "{\"inputs\":[[10,11,\"%s\"]],\"counts\":[70,80],\"marks\":[[1,2,3,4,\"%s\",\"%s\"],[5,6,7,8,\"%s\"]]}\n"
             "{\"inputs\":[[20,-1,\"%s\"]],\"counts\":[71,81],\"marks\":[[1,2,3,4,\"%s\"],[9,9,9,9,\"%s\",\"%s\"]]}\n{\"ready\":true}\n",
             x, h.inputs.hex, x, x, x, x, x, x, x, x);
    fuzz_add_text(text);
    return 0;
}

int fuzz_one(const uint8_t *data, size_t n)
{
    struct journal_head h = head();
    struct journal_state *s;
    const char *why;
    int rc = journal_read(fuzz_path(data, n), &h, &s, &why);
    if (rc == 0)
        return err_set(ERR_DATA, "not continued: %s", why);
    rc = s->n_done >= 0 && s->n_done <= 3 ? 0 : ERR_BUG;
    journal_free(s);
    return rc;
}
