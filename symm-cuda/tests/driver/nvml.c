// NVML beside the driver in host memory. FAKE_NVML: 1 GPUs have NVLink with atomics, 0 neither, 2 it does not know; unset: it does
// not start.
#include <stdlib.h>
#include <string.h>

enum { OK = 0, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9 };
static int started, shut_down;

static int setting(void) {
  const char* value = getenv("FAKE_NVML");
  return value ? atoi(value) : -1;
}
int nvmlInit_v2(void) { return setting() < 0 ? DRIVER_NOT_LOADED : (started++, OK); }
int nvmlShutdown(void) { return shut_down++, OK; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** gpu) {
  // The driver's UUIDs differ in their first byte, which is never 0.
  const int n = started > shut_down && strncmp(uuid, "GPU-0", 5) == 0 ? uuid[5] - '0' : 0;
  return n > 0 ? (*gpu = (void*)(long)n, OK) : NOT_FOUND;
}
int nvmlDeviceGetMemoryInfo(void* gpu, unsigned long long memory[3]) {
  (void)gpu;
  memory[0] = 1 << 30, memory[1] = 3 << 28, memory[2] = 1 << 28;
  return OK;
}
int nvmlDeviceGetP2PStatus(void* a, void* b, unsigned what, unsigned* status) {
  (void)a, (void)b;
  if (what != 2 && what != 3) return NOT_FOUND;
  return *status = setting() == 1 ? 0 : setting() == 0 ? 5 : 6, OK;
}
