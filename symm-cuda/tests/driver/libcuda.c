// A CUDA driver in host memory, for tests of what symm-cuda does with a driver: GPUs that run nothing. Memory is a memfd,
// mapped where the caller reserved; streams do what they are given at once; kernels are taken and not run.
//
// Settings, by the environment: FAKE_GPUS (2), FAKE_VERSION (13000), FAKE_CAPABILITY (90), FAKE_FABRIC (0: no fabric handles, 1: they
// work), FAKE_NO_FD (1: no descriptors), FAKE_DMA_BUF (0: none, 1: memory is exported as one, 2: and mapped), FAKE_NO_ATOMICS (1: none
// between GPUs), FAKE_OTHER_MEMORY (1: an import brings other memory than was exported), FAKE_BYTES (of all GPUs together, 1 GiB),
// FAKE_FAIL (CALL=CODE: that call fails; several with commas between them), FAKE_FABRIC_FAIL (the same, where the call is for a fabric
// handle), FAKE_LAUNCHES (file that gets the name of each kernel that is launched, and whether it raises a slot by a store), FAKE_COPIES
// (1: and the bytes of each copy between GPU addresses, with `beside` if its stream has no kernels). `fake_see` does for a thread what
// CUDA_VISIBLE_DEVICES does for a process. Between `fake_begin_capture` and `fake_end_capture` somebody captures a stream in the strictest
// mode: queries by threads that are not relaxed end that capture.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef int Result;
typedef unsigned long long u64;
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101 };

// Attributes of CUdevice_attribute.
enum { MULTIPROCESSORS = 16, MAJOR = 75, MINOR = 76, VMM = 102, FD_HANDLES = 103, FABRIC_HANDLES = 128 };
enum { DMA_BUF = 124, DMA_BUF_MMAP = 152 };
enum { HANDLE_FD = 1, HANDLE_FABRIC = 8 };
enum { NATIVE_ATOMICS = 3 };  // of CUdevice_P2PAttribute

struct Context { int device; };
struct Stream { struct Context* context; int kernels; };
static struct Context contexts[16];
static __thread struct Context* current;
// The GPUs that this thread sees, and how many; 0: all.
static __thread int seen[16], n_seen;

static u64 setting(const char* name, u64 otherwise) {
  const char* value = getenv(name);
  return value ? strtoull(value, NULL, 0) : otherwise;
}

static Result failure_of(const char* call, const char* in) {
  const char* at = getenv(in);
  const size_t length = strlen(call);
  while (at && *at) {
    if (strncmp(at, call, length) == 0 && at[length] == '=') return atoi(at + length + 1);
    at = strchr(at, ',');
    if (at) at++;
  }
  return OK;
}

#define FAILS(name)                              \
  do {                                           \
    const Result failed = failure_of(#name, "FAKE_FAIL"); \
    if (failed != OK) return failed;             \
  } while (0)
#define FAILS_FOR_FABRIC(name, handles)          \
  do {                                           \
    const Result failed = failure_of(#name, "FAKE_FABRIC_FAIL"); \
    if (handles == HANDLE_FABRIC && failed != OK) return failed; \
  } while (0)
#define PUBLIC __attribute__((visibility("default")))

PUBLIC Result cuInit(unsigned flags) {
  (void)flags;
  FAILS(cuInit);
  return setting("FAKE_GPUS", 2) == 0 ? NO_DEVICE : OK;
}
PUBLIC Result cuDriverGetVersion(int* version) { return *version = (int)setting("FAKE_VERSION", 13000), OK; }
PUBLIC void fake_see(const int* devices, int n) {
  memcpy(seen, devices, (size_t)n * sizeof *devices);
  n_seen = n;
}
static int count_of_gpus(void) { return n_seen ? n_seen : (int)setting("FAKE_GPUS", 2); }
PUBLIC Result cuDeviceGetCount(int* count) { return *count = count_of_gpus(), OK; }
PUBLIC Result cuDeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= count_of_gpus()) return INVALID_DEVICE;
  return *device = n_seen ? seen[ordinal] : ordinal, OK;
}
PUBLIC Result cuDeviceGetName(char* name, int room, int device) { return snprintf(name, (size_t)room, "fake GPU %d", device), OK; }
PUBLIC Result cuDeviceTotalMem_v2(size_t* bytes, int device) { return (void)device, *bytes = setting("FAKE_BYTES", 1 << 30), OK; }
PUBLIC Result cuGetErrorString(Result code, const char** text) {
  static __thread char said[32];
  snprintf(said, sizeof said, "fake error %d", code);
  return *text = said, OK;
}
PUBLIC Result cuDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  switch (attribute) {
    case MULTIPROCESSORS: *value = 132; break;
    case MAJOR: *value = (int)setting("FAKE_CAPABILITY", 90) / 10; break;
    case MINOR: *value = (int)setting("FAKE_CAPABILITY", 90) % 10; break;
    case VMM: *value = 1; break;
    case FD_HANDLES: *value = !setting("FAKE_NO_FD", 0); break;
    case FABRIC_HANDLES: *value = (int)setting("FAKE_FABRIC", 0); break;
    case DMA_BUF: *value = setting("FAKE_DMA_BUF", 0) >= 1; break;
    case DMA_BUF_MMAP:
      // A driver that is older than the attribute refuses its number.
      if (setting("FAKE_VERSION", 13000) < 13030) return INVALID_VALUE;
      *value = setting("FAKE_DMA_BUF", 0) >= 2;
      break;
    default: *value = 0;
  }
  return OK;
}
PUBLIC Result cuDeviceGetUuid_v2(char uuid[16], int device) {
  memset(uuid, 0, 16);
  uuid[0] = (char)(device + 1);
  return OK;
}
PUBLIC Result cuDeviceGetP2PAttribute(int* value, int attribute, int a, int b) {
  (void)a, (void)b;
  return *value = attribute != NATIVE_ATOMICS || !setting("FAKE_NO_ATOMICS", 0), OK;
}

PUBLIC Result cuDevicePrimaryCtxRetain(struct Context** context, int device) {
  FAILS(cuDevicePrimaryCtxRetain);
  contexts[device].device = device;
  return *context = &contexts[device], OK;
}
PUBLIC Result cuCtxSetCurrent(struct Context* context) {
  FAILS(cuCtxSetCurrent);
  return current = context, OK;
}
PUBLIC Result cuCtxGetCurrent(struct Context** context) { return *context = current, OK; }
PUBLIC Result cuCtxGetDevice(int* device) { return current ? (*device = current->device, OK) : 201; }
static _Atomic int captured, ended;
static _Thread_local int capture_mode;
PUBLIC void fake_begin_capture(void) {
  ended = 0;
  captured = 1;
}
// Whether the capture was still going on.
PUBLIC int fake_end_capture(void) {
  captured = 0;
  return !ended;
}
PUBLIC Result cuThreadExchangeStreamCaptureMode(int* mode) {
  const int before = capture_mode;
  return capture_mode = *mode, *mode = before, OK;
}
static Result query(void) {
  const int relaxed = 2;
  if (!captured || capture_mode == relaxed) return OK;
  ended = 1;
  return 900;
}

PUBLIC Result cuStreamCreate(struct Stream** stream, unsigned flags) {
  (void)flags;
  *stream = calloc(1, sizeof **stream);
  return (*stream)->context = current, OK;
}
PUBLIC Result cuStreamDestroy_v2(struct Stream* stream) { return free(stream), OK; }
PUBLIC Result cuStreamGetCtx(struct Stream* stream, struct Context** context) {
  // The first numbers are the default streams of whatever context is current.
  return *context = (uintptr_t)stream <= 2 ? current : stream->context, OK;
}
PUBLIC Result cuStreamQuery(struct Stream* stream) { return (void)stream, query(); }
PUBLIC Result cuStreamSynchronize(struct Stream* stream) { return (void)stream, OK; }
PUBLIC Result cuStreamIsCapturing(struct Stream* stream, int* status) { return (void)stream, *status = 0, OK; }
PUBLIC Result cuStreamWaitEvent(struct Stream* stream, void* event, unsigned flags) { return (void)stream, (void)event, (void)flags, OK; }
PUBLIC Result cuEventCreate(void** event, unsigned flags) { return (void)flags, *event = malloc(1), OK; }
PUBLIC Result cuEventDestroy_v2(void* event) { return free(event), OK; }
PUBLIC Result cuEventRecord(void* event, struct Stream* stream) { return (void)event, (void)stream, OK; }
PUBLIC Result cuEventQuery(void* event) { return (void)event, query(); }

PUBLIC Result cuModuleLoadData(void** module, const void* image) {
  (void)image;
  FAILS(cuModuleLoadData);
  return *module = contexts, OK;
}
PUBLIC Result cuModuleGetFunction(void** function, void* module, const char* name) { return (void)module, *function = strdup(name), OK; }
// PadSignalParams of symm/params.cuh.
struct PadSignal { u64 status[2], slot, limit_ns, op, pe, late, claim; unsigned from, to; };

static void listed(const char* what, const char* how) {
  const char* path = getenv("FAKE_LAUNCHES");
  FILE* list = path ? fopen(path, "a") : NULL;
  if (list) fprintf(list, "%s%s\n", what, how), fclose(list);
}
struct LaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  struct Stream* stream;
};
PUBLIC Result cuLaunchKernelEx(const struct LaunchConfig* config, void* function, void** parameters, void** extra) {
  (void)extra;
  FAILS(cuLaunchKernelEx);
  if (!current) return 201;
  if ((uintptr_t)config->stream > 2) config->stream->kernels = 1;
  const int by_store = strcmp(function, "symm_pad_signal") == 0 && ((const struct PadSignal*)parameters[0])->claim != 0;
  return listed(function, by_store ? " by store" : ""), OK;
}

// --- memory: a handle is the descriptor of a memfd, counted by the references that processes hold ---

struct Properties {
  int type, handles;
  struct { int type, id; } location;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static u64 used;
static unsigned char is_fabric[1 << 16], is_own[1 << 16];

PUBLIC Result cuMemGetAllocationGranularity(size_t* bytes, const void* properties, int option) {
  (void)properties, (void)option;
  return *bytes = 2 << 20, OK;
}
PUBLIC Result cuMemCreate(u64* handle, size_t bytes, const struct Properties* properties, u64 flags) {
  (void)flags;
  FAILS(cuMemCreate);
  FAILS_FOR_FABRIC(cuMemCreate, properties->handles);
  if (properties->handles == HANDLE_FABRIC && !setting("FAKE_FABRIC", 0)) return 801;
  pthread_mutex_lock(&lock);
  const int fits = bytes <= setting("FAKE_BYTES", 1 << 30) - used;
  if (fits) used += bytes;
  pthread_mutex_unlock(&lock);
  if (!fits) return OUT_OF_MEMORY;
  const int fd = memfd_create("fake GPU memory", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) return 999;
  is_fabric[fd] = properties->handles == HANDLE_FABRIC, is_own[fd] = 1;
  return *handle = (u64)fd, OK;
}
PUBLIC Result cuMemRelease(u64 handle) {
  struct stat s;
  fstat((int)handle, &s);
  pthread_mutex_lock(&lock);
  if (is_own[handle]) used -= (u64)s.st_size;
  is_own[handle] = 0;
  pthread_mutex_unlock(&lock);
  close((int)handle);
  return OK;
}
PUBLIC Result cuMemExportToShareableHandle(void* shareable, u64 handle, int type, u64 flags) {
  (void)flags;
  FAILS(cuMemExportToShareableHandle);
  FAILS_FOR_FABRIC(cuMemExportToShareableHandle, type);
  if (type == HANDLE_FABRIC) {
    if (!is_fabric[handle]) return INVALID_VALUE;
    memset(shareable, 0, 64);
    memcpy(shareable, &handle, sizeof handle);
    return OK;
  }
  if (is_fabric[handle]) return INVALID_VALUE;
  return *(int*)shareable = fcntl((int)handle, F_DUPFD_CLOEXEC, 0), OK;
}
PUBLIC Result cuMemImportFromShareableHandle(u64* handle, void* shareable, int type) {
  FAILS(cuMemImportFromShareableHandle);
  FAILS_FOR_FABRIC(cuMemImportFromShareableHandle, type);
  const int from = type == HANDLE_FABRIC ? (int)*(u64*)shareable : (int)(uintptr_t)shareable;
  struct stat s;
  int fd = fcntl(from, F_DUPFD_CLOEXEC, 0);
  if (fd >= 0 && setting("FAKE_OTHER_MEMORY", 0)) {
    fstat(fd, &s);
    close(fd);
    fd = memfd_create("other memory", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, s.st_size) != 0) return 999;
  }
  if (fd < 0) return INVALID_VALUE;
  is_fabric[fd] = type == HANDLE_FABRIC, is_own[fd] = 0;
  return *handle = (u64)fd, OK;
}
PUBLIC Result cuMemAddressReserve(u64* at, size_t bytes, size_t alignment, u64 wanted, u64 flags) {
  (void)alignment, (void)wanted, (void)flags;
  void* range = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return range == MAP_FAILED ? OUT_OF_MEMORY : (*at = (u64)range, OK);
}
PUBLIC Result cuMemMap(u64 at, size_t bytes, size_t offset, u64 handle, u64 flags) {
  (void)flags;
  FAILS(cuMemMap);
  void* mapped = mmap((void*)at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, (int)handle, (off_t)offset);
  return mapped == MAP_FAILED ? INVALID_VALUE : OK;
}
PUBLIC Result cuMemSetAccess(u64 at, size_t bytes, const void* access, size_t count) {
  (void)at, (void)bytes, (void)access, (void)count;
  FAILS(cuMemSetAccess);
  return OK;
}
PUBLIC Result cuMemUnmap(u64 at, size_t bytes) {
  mmap((void*)at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return OK;
}
PUBLIC Result cuMemAddressFree(u64 at, size_t bytes) { return munmap((void*)at, bytes), OK; }

// Only looked up: nothing here is mapped over DMA-BUF.
PUBLIC Result cuMemGetHandleForAddressRange(void* handle, u64 at, size_t bytes, int type, u64 flags) {
  return (void)handle, (void)at, (void)bytes, (void)type, (void)flags, INVALID_VALUE;
}
PUBLIC Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  *total = setting("FAKE_BYTES", 1 << 30), *free = *total - used;
  return OK;
}
PUBLIC Result cuMemAlloc_v2(u64* at, size_t bytes) {
  FAILS(cuMemAlloc_v2);
  return *at = (u64)aligned_alloc(4096, (bytes + 4095) / 4096 * 4096), OK;
}
PUBLIC Result cuMemHostAlloc(void** at, size_t bytes, unsigned flags) {
  (void)flags;
  FAILS(cuMemHostAlloc);
  return *at = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096), OK;
}
PUBLIC Result cuMemHostGetDevicePointer_v2(u64* at, void* host, unsigned flags) { return (void)flags, *at = (u64)host, OK; }
PUBLIC Result cuMemcpyAsync(u64 to, u64 from, size_t bytes, struct Stream* stream) {
  FAILS(cuMemcpyAsync);
  char what[32];
  snprintf(what, sizeof what, "copy %zu", bytes);
  if (setting("FAKE_COPIES", 0)) listed(what, (uintptr_t)stream <= 2 || stream->kernels ? "" : " beside");
  return memmove((void*)to, (void*)from, bytes), OK;
}
PUBLIC Result cuMemcpyHtoDAsync_v2(u64 to, const void* from, size_t bytes, struct Stream* stream) {
  FAILS(cuMemcpyHtoDAsync_v2);
  return (void)stream, memcpy((void*)to, from, bytes), OK;
}
PUBLIC Result cuMemcpyDtoHAsync_v2(void* to, u64 from, size_t bytes, struct Stream* stream) { return (void)stream, memcpy(to, (void*)from, bytes), OK; }
PUBLIC Result cuMemsetD8Async(u64 at, unsigned char value, size_t bytes, struct Stream* stream) { return (void)stream, memset((void*)at, value, bytes), OK; }
PUBLIC Result cuMemsetD32Async(u64 at, unsigned value, size_t count, struct Stream* stream) {
  for (size_t k = 0; k < count; k++) ((unsigned*)at)[k] = value;
  return (void)stream, OK;
}
