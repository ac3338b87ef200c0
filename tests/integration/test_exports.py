"""What `nbx sim` writes for other tools: messages as CSV, connections as OTG's metrics, and ports as pcapng, read by tshark."""
import csv
import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NBX = Path(os.environ.get("NBX_BIN", ROOT / "build/bin")) / "nbx"
RANKS, STEPS, CHUNK = 4, 2, 16384


@pytest.fixture
def sim(tmp_path):
    (tmp_path / "cluster.yaml").write_text(f"""
cluster: exports
ports: [{{name: p0}}]
ghosts: [{{name: g, count: {RANKS - 1}, addresses: [10.77.0.9/24], dscp: 26}}]
network: {{topology: rack, host_rate: 100Gb/s}}
""")
    (tmp_path / "job.yaml").write_text(f"""
job: ring
steps: {STEPS}
each_step: [{{all_reduce: {RANKS * CHUNK}B, name: "ring, first"}}]
""")

    def run(*options):
        return subprocess.run([NBX, "sim", "cluster.yaml", "--job", "job.yaml", "--json", *options], cwd=tmp_path,
                              capture_output=True, text=True, timeout=60, check=False)
    return run


def test_every_message_and_every_connection(sim, tmp_path):
    done = sim("--flows", "flows.csv", "--otg", "otg.json")
    assert done.returncode == 0, done.stderr
    with (tmp_path / "flows.csv").open(newline="", encoding="utf-8") as file:
        messages = list(csv.DictReader(file))
    assert len(messages) == STEPS * RANKS * 2 * (RANKS - 1)      # a ring's steps
    assert {(row["operation"], row["bytes"], row["resent"]) for row in messages} == {("ring, first", str(CHUNK), "0")}
    assert all(int(row["to"]) == (int(row["from"]) + 1) % RANKS for row in messages)
    assert all(abs(int(row["end_ns"]) - int(row["start_ns"]) - int(row["fct_ns"])) <= 1 for row in messages)
    end = max(int(row["end_ns"]) for row in messages)
    assert end == int(json.loads(done.stdout)["virtual_time_us"] * 1000)
    metrics = json.loads((tmp_path / "otg.json").read_text())
    assert metrics["choice"] == "rocev2_flow_per_qp_metrics"
    rows = metrics["rocev2_flow_per_qp_metrics"]
    assert [(row["port_tx"], row["port_rx"]) for row in rows] == [("node", "g0"), ("g0", "g1"), ("g1", "g2"), ("g2", "node")]
    per_connection = len(messages) // RANKS
    names = ["node", *(f"g{i}" for i in range(RANKS - 1))]
    for row in rows:
        assert row["message_tx"] == row["message_complete_rx"] == row["ack_rx"] == per_connection
        latencies = [int(message["fct_ns"]) for message in messages if names[int(message["from"])] == row["port_tx"]]
        assert (row["min_latency"], row["max_latency"]) == (min(latencies), max(latencies))
        assert abs(row["avg_latency"] - sum(latencies) / len(latencies)) <= 1
        assert row["tx_bytes"] == row["rx_bytes"] == per_connection * CHUNK and row["frame_delta"] == 0


def test_tshark_reads_any_port(sim, tmp_path):
    done = sim(*(word for port in ("p0", "node", "g1") for word in ("--pcap", f"{port}={port}.pcapng")))
    assert done.returncode == 0, done.stderr
    packets = {}
    for port in ("p0", "node", "g1"):
        shown = subprocess.run(["tshark", "-r", tmp_path / f"{port}.pcapng", "-T", "fields", "-e", "ip.src", "-e", "ip.dst",
                                "-e", "infiniband.bth.opcode", "-e", "frame.time_epoch", "-e", "frame.packet_flags_direction"],
                               capture_output=True, text=True, timeout=60, check=True)
        packets[port] = [line.split("\t") for line in shown.stdout.splitlines()]
    data = STEPS * 2 * (RANKS - 1) * CHUNK // 4096               # to the next rank, and as many from the one before
    acknowledge = STEPS * 2 * (RANKS - 1)
    for port, rows in packets.items():
        assert len(rows) == 2 * (data + acknowledge)
        assert sum(int(opcode) == 17 for _, _, opcode, _, _ in rows) == 2 * acknowledge      # IBTA table 38
        times = [float(row[3]) for row in rows]
        assert times == sorted(times) and times[0] < 1e-3
    assert all("10.77.0.10" in row[:2] for row in packets["g1"]), "only what this ghost sends or gets"
    # Both ends of one cable see the same frames, the other way round.
    assert sorted(row[:3] for row in packets["p0"]) == sorted(row[:3] for row in packets["node"])
    ways = {port: [row[4] for row in rows if row[0] == "10.77.0.12"] for port, rows in packets.items()}
    assert set(ways["p0"]) != set(ways["node"])


@pytest.mark.parametrize("options, status, complaint", [
    (["--pcap", "g9=x.pcapng"], 1, "there is no port 'g9' of the emulator, the real node or a ghost; did you mean 'g0'?"),
    (["--pcap", "p0"], 2, "'p0' is not PORT=FILE"),
    (["--flows", "none/x.csv"], 2, "cannot write 'none/x.csv'"),
    (["--otg", "none/x.json"], 2, "cannot write 'none/x.json'"),
])
def test_mistakes(sim, options, status, complaint):
    done = sim(*options)
    assert done.returncode == status and complaint in done.stderr, done.stderr
