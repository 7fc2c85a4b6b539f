// Element types that add up, and vectors of them.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "symm/memory.cuh"

namespace symm {
namespace reduce {

// symm_core::DType
enum DType : uint32_t { DTYPE_F16 = 2, DTYPE_BF16 = 3, DTYPE_F32 = 4, DTYPE_F64 = 5, DTYPE_I32 = 8, DTYPE_I64 = 9 };

// Bytes of an element; 0 for types that do not add up.
__device__ __forceinline__ u64 element_bytes(u64 dtype) {
  switch (dtype) {
    case DTYPE_F16:
    case DTYPE_BF16: return 2;
    case DTYPE_F32:
    case DTYPE_I32: return 4;
    case DTYPE_F64:
    case DTYPE_I64: return 8;
    default: return 0;
  }
}

// An element type: how it is stored, what sums are kept in, and both conversions. Additions are rounded to nearest
// by themselves; integers add as unsigned ones, which wrap. A sum begins with `nothing`, which changes no number that is
// added to it: for floats that is -0, since 0 would make a sum of -0 one of 0.
struct F32 {
  typedef float Stored;
  typedef float Wide;
  static __device__ __forceinline__ Wide nothing() { return -0.0f; }
  static __device__ __forceinline__ Wide widen(Stored v) { return v; }
  static __device__ __forceinline__ Wide add(Wide a, Wide b) { return __fadd_rn(a, b); }
  static __device__ __forceinline__ Stored round(Wide v) { return v; }
};

struct F64 {
  typedef double Stored;
  typedef double Wide;
  static __device__ __forceinline__ Wide nothing() { return -0.0; }
  static __device__ __forceinline__ Wide widen(Stored v) { return v; }
  static __device__ __forceinline__ Wide add(Wide a, Wide b) { return __dadd_rn(a, b); }
  static __device__ __forceinline__ Stored round(Wide v) { return v; }
};

struct F16 {
  typedef unsigned short Stored;
  typedef float Wide;
  static __device__ __forceinline__ Wide nothing() { return -0.0f; }
  static __device__ __forceinline__ Wide widen(Stored v) { return __half2float(__ushort_as_half(v)); }
  static __device__ __forceinline__ Wide add(Wide a, Wide b) { return __fadd_rn(a, b); }
  static __device__ __forceinline__ Stored round(Wide v) { return __half_as_ushort(__float2half_rn(v)); }
};

struct BF16 {
  typedef unsigned short Stored;
  typedef float Wide;
  static __device__ __forceinline__ Wide nothing() { return -0.0f; }
  static __device__ __forceinline__ Wide widen(Stored v) { return __uint_as_float((uint32_t)v << 16); }
  static __device__ __forceinline__ Wide add(Wide a, Wide b) { return __fadd_rn(a, b); }
  static __device__ __forceinline__ Stored round(Wide v) { return __bfloat16_as_ushort(__float2bfloat16_rn(v)); }
};

struct I32 {
  typedef uint32_t Stored;
  typedef uint32_t Wide;
  static __device__ __forceinline__ Wide nothing() { return 0; }
  static __device__ __forceinline__ Wide widen(Stored v) { return v; }
  static __device__ __forceinline__ Wide add(Wide a, Wide b) { return a + b; }
  static __device__ __forceinline__ Stored round(Wide v) { return v; }
};

struct I64 {
  typedef u64 Stored;
  typedef u64 Wide;
  static __device__ __forceinline__ Wide nothing() { return 0; }
  static __device__ __forceinline__ Wide widen(Stored v) { return v; }
  static __device__ __forceinline__ Wide add(Wide a, Wide b) { return a + b; }
  static __device__ __forceinline__ Stored round(Wide v) { return v; }
};

// Sixteen bytes of elements.
template <typename E>
union Vector {
  static constexpr int COUNT = 16 / sizeof(typename E::Stored);
  int4 raw;
  typename E::Stored elements[COUNT];
};

}  // namespace reduce
}  // namespace symm
