// A kernel that reaches a peer through NVSHMEM's device functions: put with signal, put, fence, signal, quiet.
#include <nvshmem.h>
#include <nvshmemx.h>

extern "C" __global__ void remote(char *buffer, uint64_t *signal, size_t bytes, int peer) {
    nvshmemx_putmem_signal_nbi_block(buffer + bytes, buffer, bytes, signal, 1, NVSHMEM_SIGNAL_SET, peer);
    nvshmemx_putmem_nbi_block(buffer + bytes, buffer, bytes, peer);
    if (threadIdx.x == 0) {
        nvshmem_fence();
        nvshmemx_signal_op(signal, 1, NVSHMEM_SIGNAL_ADD, peer);
        nvshmem_quiet();
    }
}
