// CUDA's float16 conversions, as far as the kernels use them; by hand, since not every C++ compiler has the type.
#pragma once

#include <cmath>

#include "shim.h"

struct __half {
  unsigned short bits;
};

inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
inline unsigned short __half_as_ushort(__half value) { return value.bits; }

inline float __half2float(__half value) {
  const int exponent = value.bits >> 10 & 31, mantissa = value.bits & 1023;
  float size = std::ldexp((float)(exponent == 0 ? mantissa : mantissa + 1024), (exponent == 0 ? 1 : exponent) - 25);
  if (exponent == 31) size = mantissa == 0 ? INFINITY : NAN;
  return value.bits & 0x8000 ? -size : size;
}

// To nearest, ties to even, as the host rounds unless told otherwise.
inline __half __float2half_rn(float value) {
  if (value != value) return {0x7fff};
  const unsigned short sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::fabs(value);
  if (size >= 65520) return {(unsigned short)(sign | 0x7c00)};
  // Below the smallest normal number all have its exponent.
  const int exponent = size < std::ldexp(1.0f, -14) ? -14 : std::ilogb(size);
  const int mantissa = (int)std::nearbyint(std::ldexp(size, 10 - exponent));
  // Normal numbers' leading bit adds one to the exponent; a mantissa that was rounded up to 2048 adds two.
  return {(unsigned short)(sign | (((exponent + 14) << 10) + mantissa))};
}
