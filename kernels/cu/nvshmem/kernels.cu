// The kernels for members that the network reaches, in one unit: it is linked at start with shim.cu and the user's NVSHMEM.
#include "exchange.cuh"
#include "one_sided.cuh"
#include "reduce.cuh"
