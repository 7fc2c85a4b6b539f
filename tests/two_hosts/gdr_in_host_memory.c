// A stand-in for libgdrapi.so.2, for tests over made-up hosts only, where NVSHMEM's heap is in host memory
// (NVSHMEM_HEAP_KIND=SYSMEM): the CPU's mapping of such a buffer is the buffer. It is wrong for a heap in GPU memory, which the
// CPU cannot reach without GDRCopy's driver. The declarations are those that NVSHMEM's transports look up by name.
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// What a handle names.
typedef struct {
  unsigned long at;
  size_t size;
} pinned_t;

typedef struct {
  unsigned long h;
} gdr_mh_t;

typedef struct {
  uint64_t va, mapped_size;
  uint32_t page_size;
  uint64_t tm_cycles;
  uint32_t cycles_per_ms;
  unsigned mapped : 1, wc_mapping : 1;
  int type;
} gdr_info_t;

static int handle;

void *gdr_open(void) { return &handle; }

int gdr_close(void *g) {
  (void)g;
  return 0;
}

int gdr_pin_buffer(void *g, unsigned long addr, size_t size, uint64_t p2p_token, uint32_t va_space, gdr_mh_t *h) {
  (void)g, (void)p2p_token, (void)va_space;
  pinned_t *pinned = malloc(sizeof *pinned);
  if (!pinned) return ENOMEM;
  pinned->at = addr, pinned->size = size;
  h->h = (unsigned long)pinned;
  return 0;
}

int gdr_unpin_buffer(void *g, gdr_mh_t h) {
  (void)g;
  free((void *)h.h);
  return 0;
}

int gdr_map(void *g, gdr_mh_t h, void **va, size_t size) {
  (void)g, (void)size;
  *va = (void *)((pinned_t *)h.h)->at;
  return 0;
}

int gdr_unmap(void *g, gdr_mh_t h, void *va, size_t size) {
  (void)g, (void)h, (void)va, (void)size;
  return 0;
}

int gdr_get_info_v2(void *g, gdr_mh_t h, gdr_info_t *info) {
  (void)g;
  memset(info, 0, sizeof *info);
  // NVSHMEM 3.8 looks whether the mapping has all that it asked for.
  info->va = ((pinned_t *)h.h)->at;
  info->mapped_size = ((pinned_t *)h.h)->size;
  info->page_size = 65536;
  info->mapped = 1;
  return 0;
}

int gdr_get_info(void *g, gdr_mh_t h, gdr_info_t *info) { return gdr_get_info_v2(g, h, info); }

int gdr_copy_to_mapping(gdr_mh_t h, void *to, const void *from, size_t n) {
  (void)h;
  memcpy(to, from, n);
  return 0;
}

int gdr_copy_from_mapping(gdr_mh_t h, void *to, const void *from, size_t n) {
  (void)h;
  memcpy(to, from, n);
  return 0;
}

void gdr_runtime_get_version(int *major, int *minor) { *major = 2, *minor = 99; }

int gdr_driver_get_version(void *g, int *major, int *minor) {
  (void)g;
  *major = 2, *minor = 99;
  return 0;
}
