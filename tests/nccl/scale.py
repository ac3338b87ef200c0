#!/usr/bin/python3
"""What many ghost ranks cost: for each number of ranks, one of them real, the time to connect, nbxd's memory, and the
time per step of a ring AllReduce. Needs root and what tests/nccl/prepare makes.

    tests/nccl/scale.py [RANKS...]        without arguments: 2 64 1024 10000
"""
import sys
import tempfile
from pathlib import Path

from lab import Lab

COUNT = 1000
COLUMNS = "{:>7} {:>14} {:>12} {:>16} {:>18} {:>16}"


def resident_kib(pid):
    return next(int(line.split()[1]) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                if line.startswith("VmRSS"))


def measure(ranks):
    with tempfile.TemporaryDirectory() as folder, Lab(Path(folder), ranks - 1, f"ranks: {ranks}\nreal: [0]",
                                                      memory="256MiB") as place:
        before = resident_kib(place.process.pid)
        place.call("collective_test", "--ranks", ranks, "--real", 0, "--op", "allreduce", "--count", COUNT,
                   NCCL_ALGO="Ring", NCCL_PROTO="Simple", limit_s=500)
        after = resident_kib(place.process.pid)
        answer = place.ask("nccl")
    return before, after, answer["communicators"][-1]["connect_ms"], answer["operations"][-1]["time_ms"]


def main():
    print(COLUMNS.format("ranks", "connect [ms]", "nbxd [KiB]", "at start [KiB]", "per ghost [KiB]", "step [us]"))
    for ranks in [int(word) for word in sys.argv[1:]] or [2, 64, 1024, 10000]:
        before, after, connect_ms, time_ms = measure(ranks)
        print(COLUMNS.format(ranks, f"{connect_ms:.0f}", after, before, f"{(after - before) / (ranks - 1):.1f}",
                             f"{time_ms * 1000 / (2 * (ranks - 1)):.0f}"), flush=True)


if __name__ == "__main__":
    main()
