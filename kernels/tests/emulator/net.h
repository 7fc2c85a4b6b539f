// Launches of the kernels that call NVSHMEM, whose PEs are on two hosts by turns: even ranks on one, odd ranks on the other.
#pragma once

#include <memory>

#include "launches.h"
#include "network.h"
#include "nvshmem/kernels.cu"
#include "world.h"

namespace symm {
inline unsigned rank_of(const NetExchangeParams& q) { return q.exchange.rank; }
inline unsigned rank_of(const NetReduceParams& q) { return q.reduce.exchange.rank; }
inline unsigned rank_of(const NetTakeParams& q) { return q.take.reduce.exchange.rank; }
}  // namespace symm

inline u64 named_at(const void* name, int pe) { return network::find((u64)name, (unsigned)pe - FIRST_PE); }

// Those with `block` in their name are called by all threads of a block, which meet before they go on.
extern "C" {
inline void symm_shim_put_block(void* to, void* from, size_t bytes, int pe) {
  if (threadIdx.x == 0) network::send({named_at(to, pe), (u64)from, bytes, 0, 0, 0, false});
}
inline void symm_shim_put_signal_block(void* to, void* from, size_t bytes, void* signal, uint64_t value, int add, int pe) {
  if (threadIdx.x == 0) network::send({named_at(to, pe), (u64)from, bytes, named_at(signal, pe), value, 8, add != 0});
}
inline void symm_shim_get_block(void* from, void* to, size_t bytes, int pe) {
  if (threadIdx.x == 0) network::get((u64)to, named_at(from, pe), bytes);
}
inline void symm_shim_word32(void* to, uint32_t value, int pe) { network::send({0, 0, 0, named_at(to, pe), value, 4, false}); }
inline void symm_shim_word64(void* to, uint64_t value, int pe) { network::send({0, 0, 0, named_at(to, pe), value, 8, false}); }
inline void symm_shim_signal(void* signal, uint64_t value, int add, int pe) {
  network::send({0, 0, 0, named_at(signal, pe), value, 8, add != 0});
}
inline void symm_shim_fence() { network::fence(); }
inline void symm_shim_quiet() { network::quiet(); }
inline void symm_shim_update() {}
}

// The shared memory of a block: the kernel's, behind that of net.cuh.
template <typename Shared>
struct NetMemory {
  alignas(64) uint32_t taken;
  alignas(64) Shared shared;
};

template <typename Shared, typename Params>
class NetLaunches : public Launches<NetMemory<Shared>, Params> {
 public:
  void join() {
    constexpr unsigned NOBODY = ~0u;
    machine::enqueue(machine::new_stream(), {network::run, NOBODY, 1, Order::Together, sizeof(uint64_t), nullptr});
    Launches<NetMemory<Shared>, Params>::join();
    const size_t lost = network::reset();
    EXPECT(lost == 0, "%zu messages were never delivered", lost);
    for (const auto& pe : pes_) {
      EXPECT(pe->activity[0] == pe->activity[1], "calls begun %llu, ended %llu", pe->activity[0], pe->activity[1]);
      for (u64 lock : pe->locks) EXPECT(lock == 0, "a stage is held");
    }
    pes_.clear();
  }

 protected:
  // Launches `kernel`, whose parameters are `q`; `p`, `net` and `remote` are parts of those. Addresses of members on the other host
  // become names.
  void start(void (*kernel)(Params), Params& q, ExchangeParams& p, NetParams& net, uint64_t& remote, unsigned blocks, Order order) {
    pes_.push_back(std::make_unique<Pe>());
    Pe& pe = *pes_.back();
    memset(&net, 0, sizeof net);
    const u64 *regions = (const u64*)p.regions, *buffers = (const u64*)p.out_buffers;
    network::name(p.mine, p.slots + 2 * p.ranks * p.slot_bytes, std::vector<u64>(regions, regions + p.ranks));
    network::name(buffers[p.rank], p.out_bytes, std::vector<u64>(buffers, buffers + p.ranks));
    net.heap = buffers[p.rank], net.heap_bytes = p.out_bytes;
    for (uint32_t r = 0; r < p.ranks; r++) {
      const bool far = (r ^ p.rank) & 1;
      if (far) net.network[r / 64] |= 1ull << r % 64;
      pe.regions.push_back(far ? p.mine : regions[r]);
      pe.buffers.push_back(far ? buffers[p.rank] : buffers[r]);
      pe.remote.push_back(p.mine);
      if (r < NEAR_RANKS) p.near_regions[r] = pe.regions[r], p.near_buffers[r] = pe.buffers[r];
    }
    p.regions = (u64)pe.regions.data(), p.out_buffers = (u64)pe.buffers.data();
    remote = (u64)pe.remote.data();
    net.stage = (u64)pe.stages.data(), net.locks = (u64)pe.locks, net.activity = (u64)pe.activity;
    net.stages = STAGES;
    network::expect(blocks * machine::BLOCK_THREADS);
    this->add_launch(kernel, q, blocks, order);
    model::own(p.rank, pe.stages.data(), pe.stages.size());
  }

 private:
  void add_launch(void (*kernel)(Params), const Params& q, unsigned blocks, Order order) {
    Launches<NetMemory<Shared>, Params>::add(kernel, q, blocks, order);
  }

  static constexpr unsigned STAGES = 3;
  struct Pe {
    std::vector<u64> regions, buffers, remote;
    std::vector<unsigned char> stages = std::vector<unsigned char>(STAGES * net::STAGE_BYTES, POISON);
    u64 locks[STAGES] = {}, activity[2] = {};
  };
  std::vector<std::unique_ptr<Pe>> pes_;
};
