/* A wall clock that is off: seconds in the file CLOCK_FILE (or /etc/ddtop-bed/clock) are added to CLOCK_REALTIME.
 * Preloaded: no test may set the machine's own clock, which all beds share. No libc function, so it fits any glibc. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long offset_s(void) {
    const char *path = getenv("CLOCK_FILE");
    char text[24];
    long fd = syscall(SYS_openat, AT_FDCWD, path ? path : "/etc/ddtop-bed/clock", O_RDONLY | O_CLOEXEC), sum = 0;
    if (fd < 0) return 0;
    long n = syscall(SYS_read, fd, text, sizeof text), i = n > 0 && text[0] == '-';
    syscall(SYS_close, fd);
    for (; i < n && text[i] >= '0' && text[i] <= '9'; i++) sum = sum * 10 + (text[i] - '0');
    return n > 0 && text[0] == '-' ? -sum : sum;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    long failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += offset_s();
    return failed ? -1 : 0;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec t;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &t);
    now->tv_sec = t.tv_sec, now->tv_usec = t.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out) *out = t.tv_sec;
    return t.tv_sec;
}

/* The kernel's own receive stamps cannot be moved from here: refused while the clock is off, so that all stamps agree. */
int setsockopt(int fd, int level, int name, const void *value, socklen_t size) {
    int stamps = name == SO_TIMESTAMP || name == SO_TIMESTAMPNS || name == SO_TIMESTAMPING || (name >= 63 && name <= 65);
    if (level == SOL_SOCKET && stamps && offset_s()) {
        errno = ENOPROTOOPT;
        return -1;
    }
    return syscall(SYS_setsockopt, fd, level, name, value, size);
}
