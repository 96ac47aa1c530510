/* screen.h -- the rows of a run on standard output.
 *
 * In a file or a pipe every row is a line.  For a person at a terminal the newest
 * step is redrawn in place, at most six times a second, and one every ten seconds
 * stays, with the first, the last and those before an evaluation, so that a long
 * run reads as a table and not as a flood.  It refuses to draw where a line could
 * not be taken back: several ranks, whose output passes through a launcher, a
 * terminal that does not know its width, and TERM=dumb. */
#ifndef TRAIN_SCREEN_H
#define TRAIN_SCREEN_H

struct screen {
    int columns;                /* of the terminal; 0: every row is a line */
    _Bool wipes;                /* log lines go to a terminal too */
    double kept, drawn;         /* when; 0: never */
    char held[256];             /* the newest row, unless it stays; "" */
};

/* alone: no launcher is between us and the terminal. */
void screen_open(struct screen *r, _Bool human, _Bool alone);

/* A row of a step; the last one of the run stays. */
int screen_step(struct screen *r, const char *line, _Bool last);

/* Another row, which stays. */
int screen_add(struct screen *r, const char *line);

/* What was held stays; the terminal is as it was. */
int screen_end(struct screen *r);

#endif
