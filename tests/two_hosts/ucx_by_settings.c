// Stands in for one function of UCX, loaded before it: with this, UCX_TLS says over what PEs of made-up hosts meet.
//
// NVSHMEM 3.4 to 3.7 names UCX's transports itself, whatever UCX_TLS says: shared memory, and InfiniBand. (3.8 does where UCX_TLS is not
// set.) On a machine without a NIC the hosts would then have one memory between them, and nothing of a network. Nor is a get of it to be
// relied on: ucx_flush.c.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

// Statuses of UCX.
enum { OK = 0, UNSUPPORTED = -22 };

int ucp_config_modify(void *config, const char *name, const char *value) {
  if (strcmp(name, "TLS") == 0) return OK;
  // Where the caller has its other functions from; opened by it, so it stays.
  void *ucp = dlopen("libucp.so.0", RTLD_LAZY | RTLD_NOLOAD);
  int (*modify)(void *, const char *, const char *) = ucp ? (int (*)(void *, const char *, const char *))dlsym(ucp, "ucp_config_modify") : NULL;
  return modify ? modify(config, name, value) : UNSUPPORTED;
}
