/* Preloaded into a server, it moves the clocks that the server reads, by as much as a file says at that moment. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* What the file holds, in nanoseconds. */
struct skew {
    int64_t wall;
    int64_t steady;
};

static const volatile struct skew *skew;

__attribute__((constructor)) static void find_skew(void) {
    const char *path = getenv("TENURE_TEST_SKEW");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof *skew, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        skew = mapped;
}

static int64_t ahead(clockid_t clock) {
    if (!skew)
        return 0;
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        return skew->wall;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_BOOTTIME:
        return skew->steady;
    default:
        return 0;
    }
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    int64_t by = failed ? 0 : ahead(clock);
    if (by) {
        int64_t nanos = now->tv_sec * INT64_C(1000000000) + now->tv_nsec + by;
        if (nanos < 0)
            nanos = 0;
        now->tv_sec = nanos / INT64_C(1000000000);
        now->tv_nsec = nanos % INT64_C(1000000000);
    }
    return failed;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    tv->tv_sec = now.tv_sec;
    tv->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
