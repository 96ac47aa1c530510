/* mapguard.c -- see mapguard.h.
 *
 * The table has a fixed size and names are copied into it, since the handler may
 * neither allocate nor lock: it reads what was complete before the range was
 * published by its address. */
#include "base/mapguard.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"

struct range { _Atomic uintptr_t at; size_t n; char path[232]; };       /* at 0: free */

static struct range ranges[MAPGUARD_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Bool installed;

static size_t append(char *line, size_t n, size_t room, const char *s)
{
    for (; *s && n < room; s++)
        line[n++] = (unsigned char)*s < 0x20 || *s == 0x7f ? '?' : *s;
    return n;
}

static void on_bus(int sig, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)info->si_addr;
    char line[512];
    size_t n = 0;

    (void)context;
    for (int i = 0; i < MAPGUARD_MAX; i++) {
        uintptr_t from = atomic_load(&ranges[i].at);

        if (!from || at < from || at - from >= ranges[i].n)
            continue;
        n = append(line, n, sizeof line - 1, log_prog());
        n = append(line, n, sizeof line - 1, ": ");
        n = append(line, n, sizeof line - 1, ranges[i].path);
        n = append(line, n, sizeof line - 1, ": was cut short while it was being read");
        line[n++] = '\n';
        if (write(STDERR_FILENO, line, n) < 0)
            _exit(err_status(ERR_DATA));
        _exit(err_status(ERR_DATA));
    }
    signal(sig, SIG_DFL);       /* and the access comes again */
}

void mapguard_add(const void *p, size_t n, const char *path)
{
    struct sigaction act = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO };

    pthread_mutex_lock(&lock);
    if (!installed && sigaction(SIGBUS, &act, NULL) == 0)
        installed = 1;
    for (int i = 0; i < MAPGUARD_MAX; i++)
        if (!atomic_load(&ranges[i].at)) {
            ranges[i].n = n;
            strncpy(ranges[i].path, path, sizeof ranges[i].path - 1);
            atomic_store(&ranges[i].at, (uintptr_t)p);
            break;
        }
    pthread_mutex_unlock(&lock);
}

void mapguard_remove(const void *p)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAPGUARD_MAX; i++)
        if (atomic_load(&ranges[i].at) == (uintptr_t)p) {
            atomic_store(&ranges[i].at, 0);
            break;
        }
    pthread_mutex_unlock(&lock);
}
