// Counts the allocations of a process in a file that it shares with the one who reads them. Loaded before the C library.
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static _Atomic unsigned long *count;

__attribute__((constructor)) static void begin(void) {
  // Servers that it starts are not counted.
  unsetenv("LD_PRELOAD");
  const char *path = getenv("TENURE_BENCH_HEAP");
  int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *shared = mmap(NULL, sizeof(unsigned long), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (shared != MAP_FAILED) count = shared;
}

static void one(void) {
  if (count) atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
}

void *malloc(size_t size) { one(); return __libc_malloc(size); }
void *calloc(size_t n, size_t size) { one(); return __libc_calloc(n, size); }
void *realloc(void *old, size_t size) { one(); return __libc_realloc(old, size); }
void *memalign(size_t align, size_t size) { one(); return __libc_memalign(align, size); }
void *aligned_alloc(size_t align, size_t size) { one(); return __libc_memalign(align, size); }
int posix_memalign(void **out, size_t align, size_t size) {
  one();
  void *made = __libc_memalign(align, size);
  if (!made) return 12;
  *out = made;
  return 0;
}
