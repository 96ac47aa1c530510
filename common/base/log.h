/* log.h -- talk for people, on stderr, one whole line per call.
 *
 * "moe-train[17]: warn: text": lower case, the exact cause, no full stop.  The
 * level and rank are process-wide.  Never called inside a kernel loop. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* prog is borrowed for ever.  The default level is LOG_INFO. */
void log_init(const char *prog, enum log_level level);

/* With size > 1 lines carry the rank, and info comes from rank 0 only. */
void log_set_rank(int rank, int size);

/* While a redrawn line stands on the terminal, each log line wipes it first;
 * whoever draws it (progress.h) says so here. */
void log_set_live(_Bool on_screen);

enum log_level log_get_level(void);
const char *log_prog(void);

void log_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
