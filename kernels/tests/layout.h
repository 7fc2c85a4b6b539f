// Where a context's words lie, for programs that run kernels without the library around them: those of emulator/ and of benches/gpu.
// That these are the numbers of symm_core::layout::ContextLayout, emulator.rs checks.
#pragma once

#include "symm/exchange.cuh"

namespace symm {

struct ContextLayout {
  u64 arrival = 128, done, gathered, aborted, notes, pushed, slots, slot_bytes, room, room_bytes, shared_room, bytes;

  // Room for pushed elements: `parity` bytes for each parity of the epoch, `shared` for all epochs.
  constexpr ContextLayout(u64 ranks, u64 max_splits, u64 parity = 0, u64 shared = 0)
      : done(up(arrival + 8 * ranks, 64)),
        gathered(up(done + 8 * ranks, 64)),
        aborted(up(gathered + 8 * ranks, 64)),
        notes(up(aborted + 16 * ranks, 256)),
        pushed(notes + 2 * ranks * NOTE_BYTES),
        slots(up(pushed + 8 * ranks * MAX_PUSHERS, 256)),
        slot_bytes(up(sizeof(Header) + 8 * max_splits, 64)),
        room(up(slots + 2 * ranks * slot_bytes, 256)),
        room_bytes(up(parity, 256)),
        shared_room(room + 2 * room_bytes),
        bytes(shared_room + up(shared, 256)) {}

 private:
  static constexpr u64 up(u64 value, u64 to) { return (value + to - 1) / to * to; }
};

}  // namespace symm
