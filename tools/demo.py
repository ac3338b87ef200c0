#!/usr/bin/python3
"""The body of tools/demo: the same programs under two profiles, their own figures beside the emulator's counters."""
import collections
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/vm"))
from emulator import Emulator, Port  # noqa: E402
from realnode import RealNode  # noqa: E402

DEMO = ROOT / "build/demo"
GHOST = "10.77.0.9"
COMMAND_LIMIT_S = 60
BANDWIDTH = (r"^ *\d+ +\d+ +[\d.]+ +([\d.]+)", "MB/s")
LATENCY = (r"^ *\d+ +\d+ +[\d.]+ +[\d.]+ +([\d.]+)", "us, half round trip")
TESTS = {      # name: (command in the real node, (pattern of its figure, unit))
    "ib_write_bw": (f"ib_write_bw -d rxe0 -F -x 1 -n 300 {GHOST}", BANDWIDTH),
    "ib_read_bw": (f"ib_read_bw -d rxe0 -F -x 1 -n 300 {GHOST}", BANDWIDTH),
    "ib_send_lat": (f"ib_send_lat -d rxe0 -F -x 1 -e -n 100 {GHOST}", LATENCY),
    "rping": (f"rping -c -C 20 -S 1000 -V -v -a {GHOST} | grep -c 'ping data'", (r"^(\d+)", "pings, data right")),
    "ibv_rc_pingpong": (f"ibv_rc_pingpong -d rxe0 -g 1 -e -c -n 100 {GHOST}", (r"= ([\d.]+) usec", "us/iteration")),
}
COUNTERS = ("rx_roce_packets", "tx_roce_packets", "loss", "impair_delayed", "duplicate_request", "out_of_sequence",
            "naks_sent", "retransmitted_packets")


def measure(emulator, node, command, pattern):
    """The program's own figure, and what the emulator counted meanwhile."""
    before = emulator.ask("counters")
    output = node.run(command, COMMAND_LIMIT_S)
    after = emulator.ask("counters")
    figure = re.search(pattern, output, re.MULTILINE)
    return figure.group(1) if figure else "?", {name: after.get(name, 0) - before.get(name, 0) for name in COUNTERS}


def run_profile(name, node, socket):
    """All tests under one profile; boots the node when this is its first emulator. The rows and the capture."""
    port = Port(socket, ROOT / f"profiles/{name}.yaml", [{"name": "real0", "mac": node.mac, "addresses": ["10.77.0.1/24"]}],
                [{"name": "ghost0", "mac": "02:00:00:00:00:09", "addresses": [f"{GHOST}/24"],
                  "personalities": ["perftest", "pingpong", "rping"]}])
    with Emulator(DEMO / name, {"p0": port}) as emulator:
        if node.process is None:
            node.start()
        node.run(f"n=0; until ping -c 1 -W 1 {GHOST} >/dev/null; do n=$((n+1)); [ $n -lt 20 ] || exit 1; done")
        rows = []
        for test, (command, (pattern, unit)) in TESTS.items():
            figure, counted = measure(emulator, node, command, pattern)
            rows.append((test, name, figure, unit, counted))
    return rows, emulator.capture


def table(rows):
    lines = [f"{'test':<16} {'profile':<14} {'the real node says':<32} the emulator counted"]
    for test, profile, figure, unit, counted in rows:
        what = ", ".join(f"{count} {name}" for name, count in counted.items() if count)
        lines.append(f"{test:<16} {profile:<14} {figure + ' ' + unit:<32} {what}")
    return "\n".join(lines)


def opcodes(capture):
    """How many packets of each opcode tshark sees."""
    done = subprocess.run(["tshark", "-r", capture, "-Y", "infiniband", "-T", "fields", "-e", "_ws.col.Info"],
                          capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=True)
    seen = collections.Counter(line.split(" QP=")[0].strip() for line in done.stdout.splitlines())
    return "\n".join(f"{count:8}  {name}" for name, count in seen.most_common())


def main():
    profiles = ["ideal", *(sys.argv[1:2] or ["wan-30ms"])]
    shutil.rmtree(DEMO, ignore_errors=True)
    DEMO.mkdir(parents=True)
    sockets = Path(tempfile.mkdtemp(prefix="nbx-demo-"))
    node = RealNode(DEMO, "real0", ["10.77.0.1/24"], net=f"vhost:{sockets / 'p0.sock'}")
    rows, captures = [], []
    try:
        for name in profiles:
            print(f"running {', '.join(TESTS)} under {name} ...", flush=True)
            measured, capture = run_profile(name, node, sockets / "p0.sock")
            rows += measured
            captures.append(capture)
    finally:
        node.stop()
        shutil.rmtree(sockets, ignore_errors=True)
    report = "\n\n".join([table(rows), *(f"{path.relative_to(ROOT)}, opcodes by tshark:\n{opcodes(path)}"
                                         for path in captures)])
    (DEMO / "report.txt").write_text(report + "\n")
    print(f"\n{report}\n\nreport: {(DEMO / 'report.txt').relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
