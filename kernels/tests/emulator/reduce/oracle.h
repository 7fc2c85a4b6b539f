// Element types, random elements of them, and their sums in rank order as the host adds them.
#pragma once

#include <algorithm>

#include "reduce.cu"

using namespace symm;
using namespace symm::reduce;

typedef std::vector<unsigned char> Bytes;

struct Type {
  u64 dtype, size;
  void (*kernel)(ReduceParams);
  void (*fill)(unsigned char* at);  // one random element
  Bytes (*sum)(const std::vector<Bytes>& inputs, u64 bytes, unsigned by);  // divided by a number, which integers are not
};

template <typename Stored>
void put(unsigned char* at, Stored v) {
  memcpy(at, &v, sizeof v);
}

// Far enough apart that sums depend on the order, near enough that none overflows; -0 more often than by chance.
inline double random_number(int exponents) {
  if (below(8) == 0) return -0.0;
  return std::ldexp((double)below(4000) - 2000, -(int)below(exponents));
}

// Adds the ranks' elements in `Wide`, from the first one on, and divides.
template <typename Stored, typename Wide, typename Widen, typename Round>
Bytes add_in_order(const std::vector<Bytes>& inputs, u64 bytes, unsigned by, Widen widen, Round round) {
  Bytes sums(bytes);
  for (u64 at = 0; at < bytes; at += sizeof(Stored)) {
    Wide sum{};
    for (size_t r = 0; r < inputs.size(); r++) {
      Stored v;
      memcpy(&v, &inputs[r][at], sizeof v);
      sum = r == 0 ? widen(v) : (Wide)(sum + widen(v));
    }
    put<Stored>(&sums[at], round(by == 1 ? sum : (Wide)(sum / (Wide)by)));
  }
  return sums;
}

template <typename T>
Bytes add_plainly(const std::vector<Bytes>& inputs, u64 bytes, unsigned by) {
  const auto same = [](T v) { return v; };
  return add_in_order<T, T>(inputs, bytes, by, same, same);
}

inline unsigned short half_bits(float v) { return __half_as_ushort(__float2half_rn(v)); }
inline unsigned short bfloat_bits(float v) { return __bfloat16_as_ushort(__float2bfloat16_rn(v)); }

inline Bytes add_halves(const std::vector<Bytes>& inputs, u64 bytes, unsigned by) {
  return add_in_order<unsigned short, float>(inputs, bytes, by, [](unsigned short v) { return __half2float({v}); }, half_bits);
}

inline Bytes add_bfloats(const std::vector<Bytes>& inputs, u64 bytes, unsigned by) {
  return add_in_order<unsigned short, float>(inputs, bytes, by, [](unsigned short v) { return __uint_as_float((unsigned)v << 16); }, bfloat_bits);
}

inline const Type TYPES[] = {
    {DTYPE_F16, 2, symm_reduce_f16, [](unsigned char* at) { put(at, half_bits((float)random_number(24))); }, add_halves},
    {DTYPE_BF16, 2, symm_reduce_bf16, [](unsigned char* at) { put(at, bfloat_bits((float)random_number(30))); }, add_bfloats},
    {DTYPE_F32, 4, symm_reduce_f32, [](unsigned char* at) { put(at, (float)random_number(40) * 1.1f); }, add_plainly<float>},
    {DTYPE_F64, 8, symm_reduce_f64, [](unsigned char* at) { put(at, random_number(80) * 1.1); }, add_plainly<double>},
    {DTYPE_I32, 4, symm_reduce_i32, [](unsigned char* at) { put(at, (uint32_t)random_words()); }, add_plainly<uint32_t>},
    {DTYPE_I64, 8, symm_reduce_i64, [](unsigned char* at) { put(at, (u64)random_words()); }, add_plainly<u64>},
};
