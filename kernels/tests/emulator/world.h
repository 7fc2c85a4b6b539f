// PEs of one process: their contexts, buffers and status records.
#pragma once

#include "../layout.h"
#include "symm/exchange.cuh"
#include "symm/params.cuh"
#include "symm/status.cuh"

using namespace symm;

constexpr unsigned FIRST_PE = 10;
constexpr unsigned char POISON = 0xEE;

struct Pe {
  std::vector<u64> context, local, regions, buffers, members;
  std::vector<unsigned char> out, in, sums;
  std::vector<long long> splits, result;
  LaunchRecord record{};
  StatusRecord device{}, host{};
};

struct World {
  unsigned ranks;
  ContextLayout layout;
  std::vector<Pe> pe;

  World(unsigned ranks, u64 max_splits, size_t out_bytes, u64 room_bytes = 0)
      // As much for all epochs together as for one parity.
      : ranks(ranks), layout(ranks, max_splits, room_bytes, room_bytes), pe(ranks) {
    for (Pe& q : pe) {
      q.context.assign(layout.bytes / 8, 0);
      q.local.assign(sizeof(ContextLocal) / 8 + max_splits, 0);
      q.out.assign(out_bytes, POISON);
    }
    for (Pe& q : pe) {
      for (unsigned r = 0; r < ranks; r++) {
        q.regions.push_back((u64)pe[r].context.data());
        q.buffers.push_back((u64)pe[r].out.data());
        q.members.push_back(FIRST_PE + r);
      }
    }
  }

  // Everything but the splits and the shape of the call.
  ExchangeParams params(unsigned rank) {
    Pe& q = pe[rank];
    ExchangeParams p;
    memset(&p, 0, sizeof p);
    p.status = {(u64)&q.device, (u64)&q.host};
    for (unsigned r = 0; r < ranks && r < NEAR_RANKS; r++) {
      p.near_regions[r] = q.regions[r];
      p.near_buffers[r] = q.buffers[r];
    }
    p.record = (u64)&q.record;
    p.regions = (u64)q.regions.data();
    p.members = (u64)q.members.data();
    p.out_buffers = (u64)q.buffers.data();
    p.mine = q.regions[rank];
    p.local = (u64)q.local.data();
    p.arrival = layout.arrival;
    p.done = layout.done;
    p.aborted = layout.aborted;
    p.slots = layout.slots;
    p.slot_bytes = layout.slot_bytes;
    p.notes = layout.notes;
    p.pushed = layout.pushed;
    p.dtype = 3;
    p.ne = p.major_align = 1;
    p.out_bytes = q.out.size();
    p.out_id = 7;
    p.limit_ns = 60000000000ull;
    p.ranks = ranks;
    p.rank = rank;
    return p;
  }
};
