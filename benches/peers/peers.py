"""PyTorch's symmetric memory and NCCL, row by row as benches/gpu measures this project: same names, same shapes, same way.

usage: python3 -m torch.distributed.run --standalone --nproc-per-node N benches/peers/peers.py CUDA|NVSHMEM FILE [workloads]

CUDA has the rows of torch's CUDA backend and NCCL's, NVSHMEM those of all_to_all_vdev_2d: a process can have one backend only.
Rank 0 writes FILE: {"versions": ..., "rows": {row: {"torch" or "nccl": {"graph_us", "eager_us"} or {"error"}}}}. NCCL's vdev rows
are all_to_all_single with splits that the host knows. With `workloads` the rows are those of benches/gpu/workloads.json. Multicast must be off (the variables are set by ci/gpu).
"""
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

REPEATS, WARM_UP, CALLS = 21, 5, 10

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
backend, path, *more = sys.argv[1:]
rows = {}


class Timer:
    """Median over repeats of the µs of a call, the maximum over ranks."""

    def __init__(self):
        self.word = torch.zeros(1, device=device)
        self.stream = torch.cuda.Stream()
        # As benches/gpu/timer.rs: so many fills of memory that leaves most of the cache to the calls.
        self.filled = torch.empty(8 << 20, dtype=torch.uint8, device=device)
        self.busy = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.busy):
            for _ in range(24):
                self.filled.zero_()

    def median(self, before, body):
        times = []
        for repeat in range(WARM_UP + REPEATS):
            dist.barrier()
            torch.cuda.synchronize()
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            before()
            start.record()
            body()
            end.record()
            end.synchronize()
            micros = torch.tensor(start.elapsed_time(end) * 1e3, device=device)
            dist.all_reduce(micros, op=dist.ReduceOp.MAX)
            if repeat >= WARM_UP:
                times.append(micros.item())
        return sorted(times)[len(times) // 2]

    def gpus_meet(self):
        # Busy until the host has enqueued the replay; then no GPU begins before all have come so far.
        self.busy.replay()
        dist.all_reduce(self.word)

    def both(self, call):
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                call()
        torch.cuda.synchronize()
        dist.barrier()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(CALLS):
                call()
        return {"graph_us": round(self.median(self.gpus_meet, graph.replay) / CALLS, 3),
                "eager_us": round(self.median(lambda: None, call), 3)}


def measure(row, who, call):
    """A row that a peer refuses is a finding, not a failure."""
    try:
        figures = timer.both(call)
    except Exception as error:  # torch raises many kinds
        figures = {"error": str(error).splitlines()[0][:200]}
    rows.setdefault(row, {})[who] = figures
    if rank == 0:
        print(row, who, figures, flush=True)


def size(count):
    return f"{count >> 10}KiB" if count < 1 << 20 else f"{count >> 20}MiB"


def symmetric(*shape, dtype):
    tensor = symm_mem.empty(*shape, dtype=dtype, device=device)
    symm_mem.rendezvous(tensor, group)
    return tensor


def sums():
    for count in (4 << 10, 64 << 10, 1 << 20, 16 << 20):
        tensor = symmetric(count // 2, dtype=torch.bfloat16).fill_(1)
        plain = torch.ones(count // 2, dtype=torch.bfloat16, device=device)
        if count <= 1 << 20:
            measure(f"one_shot_{size(count)}", "torch",
                    lambda: torch.ops.symm_mem.one_shot_all_reduce(tensor, "sum", group.group_name))
            measure(f"one_shot_{size(count)}", "nccl", lambda: dist.all_reduce(plain))
        measure(f"two_shot_{size(count)}", "torch",
                lambda: torch.ops.symm_mem.two_shot_all_reduce_(tensor, "sum", group.group_name))
        measure(f"two_shot_{size(count)}", "nccl", lambda: dist.all_reduce(plain))


def equal_blocks(counts):
    for count in counts:
        source = torch.randint(0, 255, (count,), dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        measure(f"all_to_all_{size(count)}", "nccl", lambda: dist.all_to_all_single(target, source))


def routed(name, tokens, hidden, top_k, experts, align=8):
    torch.manual_seed(1 + rank)
    chosen = torch.rand(tokens, experts, device=device).topk(top_k, dim=1).indices.flatten()
    splits = torch.bincount(chosen, minlength=experts).to(torch.int64)
    total, here = tokens * top_k, experts // world
    source = torch.randn(total, hidden, dtype=torch.bfloat16, device=device)
    if backend == "NVSHMEM":
        try:
            held = symmetric(total, hidden, dtype=torch.bfloat16).copy_(source)
            out = symmetric(total * world + max(64, align) * experts, hidden, dtype=torch.bfloat16)
            home = symmetric(total * world, hidden, dtype=torch.bfloat16)
            wanted = symmetric(experts, dtype=torch.int64).copy_(splits)
            there, back = (symmetric(2, experts, dtype=torch.int64) for _ in range(2))
        except Exception as error:
            rows.setdefault(f"vdev_2d_{name}", {})["torch"] = {"error": str(error).splitlines()[0][:200]}
            return
        measure(f"vdev_2d_{name}", "torch", lambda: torch.ops.symm_mem.all_to_all_vdev_2d(
            held, out, wanted, there, group.group_name, major_align=align))
        measure(f"vdev_2d_offset_{name}", "torch", lambda: torch.ops.symm_mem.all_to_all_vdev_2d_offset(
            out, home, there, back, group.group_name))
        return
    sent = splits.view(world, here).sum(1)
    came = torch.empty_like(sent)
    dist.all_to_all_single(came, sent)
    sent, came = sent.tolist(), came.tolist()
    target = torch.empty(sum(came), hidden, dtype=torch.bfloat16, device=device)
    measure(f"vdev_2d_{name}", "nccl", lambda: dist.all_to_all_single(target, source, came, sent))
    measure(f"vdev_2d_offset_{name}", "nccl", lambda: dist.all_to_all_single(source, target, sent, came))


torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
group = dist.group.WORLD
if backend != "CUDA":
    symm_mem.set_backend(backend)
began = time.perf_counter()
first = symmetric(256 << 20, dtype=torch.uint8)
rendezvous_ms = (time.perf_counter() - began) * 1e3
timer = Timer()
if more == ["workloads"]:
    all_of_them = json.loads((pathlib.Path(__file__).parent.parent / "gpu" / "workloads.json").read_text())
    if backend == "CUDA":
        equal_blocks([mib << 20 for mib in all_of_them["equal_mib"]])
    for r in all_of_them["routed"]:
        routed(r["name"], r["tokens"], r["hidden"], r["top_k"], r["experts"] * (world if r["each"] else 1), r["align"])
else:
    if backend == "CUDA":
        handle = symm_mem.rendezvous(first, group)
        measure("barrier", "torch", handle.barrier)
        sums()
        equal_blocks((64 << 20, 256 << 20))
    for shape in (("4096", 4096, 7168, 8, 32), ("512", 512, 7168, 8, 32), ("128", 128, 7168, 8, 32), ("16", 16, 7168, 8, 32),
                  ("1", 1, 7168, 8, 32), ("4096_e256", 4096, 7168, 8, 256), ("4096x4096_top2_e8", 4096, 4096, 2, 8),
                  ("4096x4096_top1_e8", 4096, 4096, 1, 8)):
        routed(*shape)
if rank == 0:
    versions = {"torch": torch.__version__, "nccl": ".".join(map(str, torch.cuda.nccl.version()))}
    with open(path, "w") as out:
        json.dump({"versions": versions, "first_rendezvous_256MiB_ms": round(rendezvous_ms, 1), "rows": rows}, out, indent=1)
torch.cuda.synchronize()
dist.barrier()
# Symmetric memory that graphs still hold makes torch's own clean-up fail.
os._exit(0)
