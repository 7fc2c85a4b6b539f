// The one place that calls NVSHMEM's device library, behind functions of our own names.
//
// The calls are those that the library's headers make for a peer without a load/store path. They are declared here, so that
// neither its headers nor a release of it is needed to build, and nothing of its internal state is compiled in: that all
// lies in the user's libnvshmem_device.a, with which this is linked at start. The library changed their parameters twice, so
// this file is compiled once for each generation (SYMM_NVSHMEM_ABI) and the host links the one that belongs to the release:
// 34 for 3.4, 35 for 3.5 to 3.7, 38 for 3.8 and later. A wrong one does not link: C++ names carry the parameters.
#include <stddef.h>
#include <stdint.h>

// The library's names and values, which are part of its symbols.
enum threadgroup_t { SCOPE_THREAD = 0, SCOPE_BLOCK = 3 };
enum nvshmemi_op_t { OP_PUT = 1, OP_GET = 4 };
enum nvshmemi_amo_t { AMO_SIGNAL_SET = 9, AMO_SIGNAL_ADD = 10 };

#if SYMM_NVSHMEM_ABI == 34
#define SYMM_QP_PARAMETER
#define SYMM_QP
#define SYMM_ORDER_PARAMETERS
#define SYMM_ORDER
#else
// The default queue pair; all peers, all queue pairs.
#define SYMM_QP_PARAMETER , int qp
#define SYMM_QP , 1
#define SYMM_ORDER_PARAMETERS int pe, int* qps, int n_qps
#define SYMM_ORDER 1 << 15, nullptr, 0x7fffffff
#endif

#if SYMM_NVSHMEM_ABI == 38
enum nvshmemi_region_operation_t { REGION_NONE = 0, REGION_NBI = 1 };
template <threadgroup_t S, nvshmemi_op_t O, nvshmemi_region_operation_t R>
__device__ void nvshmemi_transfer_rma_nbi(void*, void*, size_t, int SYMM_QP_PARAMETER);
template <threadgroup_t S>
__device__ void nvshmemi_transfer_put_signal_dispatch(void*, void*, size_t, void*, uint64_t, nvshmemi_amo_t, int, bool SYMM_QP_PARAMETER);
#else
template <threadgroup_t S, nvshmemi_op_t O>
__device__ void nvshmemi_transfer_rma_nbi(void*, void*, size_t, int SYMM_QP_PARAMETER);
template <threadgroup_t S>
__device__ void nvshmemi_transfer_put_signal(void*, void*, size_t, void*, uint64_t, nvshmemi_amo_t, int, bool SYMM_QP_PARAMETER);
#endif
template <threadgroup_t S, nvshmemi_op_t O>
__device__ void nvshmemi_transfer_rma(void*, void*, size_t, int SYMM_QP_PARAMETER);
template <typename T>
__device__ void nvshmemi_transfer_rma_p(void*, const T, int SYMM_QP_PARAMETER);
template <typename T>
__device__ void nvshmemi_transfer_amo_nonfetch(void*, const T, int, nvshmemi_amo_t SYMM_QP_PARAMETER);
#if SYMM_NVSHMEM_ABI == 34
template <threadgroup_t S>
__device__ void nvshmemi_transfer_quiet(bool);
#else
template <threadgroup_t S>
__device__ void nvshmemi_transfer_quiet(bool, SYMM_ORDER_PARAMETERS);
#endif
template <threadgroup_t S>
__device__ void nvshmemi_transfer_fence(SYMM_ORDER_PARAMETERS);
__device__ void nvshmemi_transfer_syncapi_update_mem();

// See net.cuh for what each does.
extern "C" {

__device__ void symm_shim_put_block(void* to, void* from, size_t bytes, int pe) {
#if SYMM_NVSHMEM_ABI == 38
  nvshmemi_transfer_rma_nbi<SCOPE_BLOCK, OP_PUT, REGION_NBI>(to, from, bytes, pe SYMM_QP);
#else
  nvshmemi_transfer_rma_nbi<SCOPE_BLOCK, OP_PUT>(to, from, bytes, pe SYMM_QP);
#endif
}

__device__ void symm_shim_put_signal_block(void* to, void* from, size_t bytes, void* signal, uint64_t value, int add, int pe) {
  const nvshmemi_amo_t op = add ? AMO_SIGNAL_ADD : AMO_SIGNAL_SET;
#if SYMM_NVSHMEM_ABI == 38
  nvshmemi_transfer_put_signal_dispatch<SCOPE_BLOCK>(to, from, bytes, signal, value, op, pe, true SYMM_QP);
#else
  nvshmemi_transfer_put_signal<SCOPE_BLOCK>(to, from, bytes, signal, value, op, pe, true SYMM_QP);
#endif
}

__device__ void symm_shim_get_block(void* from, void* to, size_t bytes, int pe) {
  nvshmemi_transfer_rma<SCOPE_BLOCK, OP_GET>(from, to, bytes, pe SYMM_QP);
}

__device__ void symm_shim_word32(void* to, uint32_t value, int pe) { nvshmemi_transfer_rma_p<uint32_t>(to, value, pe SYMM_QP); }

__device__ void symm_shim_word64(void* to, uint64_t value, int pe) { nvshmemi_transfer_rma_p<uint64_t>(to, value, pe SYMM_QP); }

__device__ void symm_shim_signal(void* signal, uint64_t value, int add, int pe) {
  nvshmemi_transfer_amo_nonfetch<uint64_t>(signal, value, pe, add ? AMO_SIGNAL_ADD : AMO_SIGNAL_SET SYMM_QP);
}

__device__ void symm_shim_fence() { nvshmemi_transfer_fence<SCOPE_THREAD>(SYMM_ORDER); }

__device__ void symm_shim_quiet() {
#if SYMM_NVSHMEM_ABI == 34
  nvshmemi_transfer_quiet<SCOPE_THREAD>(true);
#else
  nvshmemi_transfer_quiet<SCOPE_THREAD>(true, SYMM_ORDER);
#endif
}

__device__ void symm_shim_update() { nvshmemi_transfer_syncapi_update_mem(); }

}  // extern "C"
