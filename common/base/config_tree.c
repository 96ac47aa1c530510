/* config_tree.c -- events of libyaml into nodes. */
#include "base/config_tree.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/err.h"

#define MAX_DEPTH 32
#define MAX_SENTENCE 320

void config_error(struct config_errors *e, const char *where, const char *path, const char *fmt, ...)
{
    char text[MAX_SENTENCE];
    va_list ap;

    if (e->n == CONFIG_MAX_ERRORS) {
        e->more++;
        return;
    }
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n >= (int)sizeof text)
        strcpy(text + sizeof text - 4, "...");
    char *line = arena_printf(e->arena, "%s: %s%s%s", where, path, *path ? ": " : "", text);
    for (char *p = line; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = ' ';
    e->line[e->n++] = line;
}

const char *config_place(struct arena *a, const char *where, _Bool fixed, int line, int col)
{
    return fixed ? where : arena_printf(a, "%s:%d:%d", where, line, col);
}

struct builder {
    struct config_errors *e;
    const char *where, *text;
    _Bool fixed, failed;
    size_t n;
    yaml_parser_t parser;
    yaml_event_t event;
    _Bool held;                 /* event is filled and not yet deleted */
};

static void complain(struct builder *b, yaml_mark_t at, const char *what)
{
    config_error(b->e, config_place(b->e->arena, b->where, b->fixed, (int)at.line + 1, (int)at.column + 1), "", "%s", what);
}

/* Errors below the scanner (bad UTF-8, control characters) have no mark, only
 * a byte offset; and in a bad token the sentence of the library speaks of
 * tokens, where the person has typed a tab. */
static void syntax_error(struct builder *b)
{
    const yaml_parser_t *p = &b->parser;
    yaml_mark_t at = p->problem_mark;
    const char *what = p->problem ? p->problem : "cannot be read";

    b->failed = 1;
    if (p->error == YAML_READER_ERROR) {
        at = (yaml_mark_t){ 0 };
        for (size_t i = 0; i < p->problem_offset && i < b->n; i++) {
            if (b->text[i] == '\n') {
                at.line++;
                at.column = 0;
            } else if (((unsigned char)b->text[i] & 0xc0) != 0x80) {
                at.column++;
            }
        }
        complain(b, at, strstr(what, "control") ? "control characters are not accepted" : "not valid UTF-8");
        return;
    }
    if (at.index < b->n && p->error == YAML_SCANNER_ERROR && strstr(what, "cannot start any token")) {
        /* The mark counts characters: find the byte by line and column. */
        const char *s = b->text, *end = s + b->n;
        for (size_t l = 0; l < at.line && s < end; s++)
            l += *s == '\n';
        for (size_t c = 0; c < at.column && s < end; s++)
            c += s + 1 == end || ((unsigned char)s[1] & 0xc0) != 0x80;
        if (s < end && *s == '\t') {
            complain(b, at, "a tab cannot indent, use spaces");
            return;
        }
        complain(b, at, arena_printf(b->e->arena, "a value cannot begin with \"%c\", quote it", s < end ? *s : '?'));
        return;
    }
    if (!strcmp(what, "could not find expected ':'"))
        what = "a key must be followed by a colon and a space";
    else if (!strcmp(what, "did not find expected key"))
        what = "expected a key here; look at the indentation and the line above";
    else if (!strcmp(what, "did not find expected ',' or ']'"))
        what = arena_printf(b->e->arena, "expected a comma, or ] for the [ in line %d", (int)p->context_mark.line + 1);
    else if (!strcmp(what, "did not find expected ',' or '}'"))
        what = arena_printf(b->e->arena, "expected a comma, or } for the { in line %d", (int)p->context_mark.line + 1);
    else if (!strcmp(what, "found unexpected end of stream") && p->context && strstr(p->context, "quoted")) {
        what = "this quote is never closed";
        at = p->context_mark;
    }
    else if (!strcmp(what, "mapping values are not allowed in this context"))
        what = "a second colon on this line; quote the value, or look at the indentation";
    complain(b, at, what);
}

static void drop(struct builder *b)
{
    if (b->held)
        yaml_event_delete(&b->event);
    b->held = 0;
}

static _Bool next(struct builder *b)
{
    drop(b);
    if (b->failed)
        return 0;
    if (!yaml_parser_parse(&b->parser, &b->event)) {
        syntax_error(b);
        return 0;
    }
    b->held = 1;
    return 1;
}

static struct config_node *new_node(struct builder *b, enum config_node_kind kind)
{
    struct config_node *n = arena_alloc(b->e->arena, sizeof *n);

    n->kind = kind;
    n->line = (int)b->event.start_mark.line + 1;
    n->col = (int)b->event.start_mark.column + 1;
    return n;
}

static void refuse_properties(struct builder *b, const unsigned char *anchor, const unsigned char *tag)
{
    if (anchor)
        complain(b, b->event.start_mark, "anchors are not accepted");
    if (tag)
        complain(b, b->event.start_mark, arena_printf(b->e->arena, "tags such as %s are not accepted, types follow from the key", (const char *)tag));
}

static struct config_node *build(struct builder *b, int depth);

static struct config_node *build_map(struct builder *b, int depth)
{
    struct config_node *map = new_node(b, CONFIG_MAP), **tail = &map->child;

    while (next(b) && b->event.type != YAML_MAPPING_END_EVENT) {
        yaml_mark_t at = b->event.start_mark;
        struct config_node *key = build(b, depth + 1);
        if (!key || !next(b))
            break;
        struct config_node *value = build(b, depth + 1);
        if (!value)
            break;
        if (key->kind != CONFIG_SCALAR) {
            if (key->kind != CONFIG_BAD)
                complain(b, at, "a key must be a plain word");
            continue;
        }
        if (!strcmp(key->text, "<<") && key->plain) {
            complain(b, at, "merge keys are not accepted");
            continue;
        }
        value->key = key->text;
        value->key_line = key->line;
        value->key_col = key->col;
        *tail = value;
        tail = &value->next;
    }
    return b->failed ? NULL : map;
}

static struct config_node *build_list(struct builder *b, int depth)
{
    struct config_node *list = new_node(b, CONFIG_LIST), **tail = &list->child;

    while (next(b) && b->event.type != YAML_SEQUENCE_END_EVENT) {
        struct config_node *item = build(b, depth + 1);
        if (!item)
            break;
        *tail = item;
        tail = &item->next;
    }
    return b->failed ? NULL : list;
}

/* The node that begins with the event at hand. */
static struct config_node *build(struct builder *b, int depth)
{
    const yaml_event_t *v = &b->event;
    struct config_node *n;

    if (depth > MAX_DEPTH) {
        complain(b, v->start_mark, "nested more than 32 deep");
        b->failed = 1;
        return NULL;
    }
    switch (v->type) {
    case YAML_MAPPING_START_EVENT:
        refuse_properties(b, v->data.mapping_start.anchor, v->data.mapping_start.tag);
        return build_map(b, depth);
    case YAML_SEQUENCE_START_EVENT:
        refuse_properties(b, v->data.sequence_start.anchor, v->data.sequence_start.tag);
        return build_list(b, depth);
    case YAML_SCALAR_EVENT:
        refuse_properties(b, v->data.scalar.anchor, v->data.scalar.tag);
        n = new_node(b, CONFIG_SCALAR);
        n->plain = v->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
        n->text = arena_strdup(b->e->arena, (const char *)v->data.scalar.value);
        if (strlen(n->text) != v->data.scalar.length) {
            complain(b, v->start_mark, "a NUL character is not accepted");
            n->kind = CONFIG_BAD;
        }
        return n;
    case YAML_ALIAS_EVENT:
        complain(b, v->start_mark, "aliases are not accepted");
        return new_node(b, CONFIG_BAD);
    default:
        BUG_ON(1);
    }
    return NULL;
}

struct config_node *config_tree(struct config_errors *e, const char *where, _Bool fixed,
                                const char *text, size_t n)
{
    struct builder b = { .e = e, .where = where, .fixed = fixed, .text = text, .n = n };
    struct config_node *root = NULL;

    arena_must(yaml_parser_initialize(&b.parser) ? &b : NULL);
    yaml_parser_set_input_string(&b.parser, (const unsigned char *)text, n);
    yaml_parser_set_encoding(&b.parser, YAML_UTF8_ENCODING);
    while (next(&b) && b.event.type != YAML_STREAM_END_EVENT) {
        if (b.event.type == YAML_DOCUMENT_START_EVENT && root) {
            complain(&b, b.event.start_mark, "a second document is not accepted");
            break;
        }
        if (b.event.type == YAML_STREAM_START_EVENT || b.event.type == YAML_DOCUMENT_START_EVENT
            || b.event.type == YAML_DOCUMENT_END_EVENT)
            continue;
        root = build(&b, 1);
    }
    drop(&b);
    yaml_parser_delete(&b.parser);
    return b.failed ? NULL : root;
}
