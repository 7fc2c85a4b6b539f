#!/usr/bin/env python3
"""Joins the figures of benches/gpu with those of benches/peers of the same run.

usage: table.py OURS CUDA NVSHMEM     prints {..., "rows": [{row, ours, torch, nccl, target, floor, ratios}]}
"""
import json
import pathlib
import sys


def load(path):
    file = pathlib.Path(path)
    return json.loads(file.read_text()) if file.is_file() else None


def ratio(a, b):
    return round(a / b, 3) if a and b else None


ours, *peers = map(load, sys.argv[1:])
if ours is None:
    sys.exit("table.py: no figures of our own")
theirs = {}
for peer in filter(None, peers):
    for name, figures in peer["rows"].items():
        theirs.setdefault(name, {}).update(figures)

table = []
for name, row in ours.pop("rows").items():
    joined = {"row": name, **row}
    best = []
    for who, figures in sorted(theirs.get(name, {}).items()):
        joined[who] = figures
        if "graph_us" in figures:
            best.append(figures["graph_us"])
    joined["of_target"] = ratio(row["graph_us"], row.get("target_us"))
    joined["of_floor"] = ratio(row["graph_us"], row["floor_us"])
    joined["of_best_peer"] = ratio(row["graph_us"], min(best, default=None))
    joined["of_best_peer_eager"] = ratio(row["eager_us"], min(
        (f["eager_us"] for f in theirs.get(name, {}).values() if "eager_us" in f), default=None))
    table.append(joined)

first = [p for p in peers if p]
print(json.dumps({
    **ours,
    "peers": {"versions": first[0]["versions"] if first else None,
              "torch_first_rendezvous_256MiB_ms": first[0]["first_rendezvous_256MiB_ms"] if first else None},
    "rows": table,
}, indent=1))
