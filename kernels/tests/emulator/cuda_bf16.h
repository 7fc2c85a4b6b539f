// CUDA's bfloat16 conversions, as far as the kernels use them.
#pragma once

#include "shim.h"

struct __nv_bfloat16 {
  unsigned short bits;
};

// To nearest, ties to even; a carry out of the mantissa is the next exponent, so the largest round to infinity.
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  if (value != value) return {0x7fff};
  unsigned bits;
  memcpy(&bits, &value, sizeof bits);
  return {(unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits; }
