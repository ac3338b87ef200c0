"""Ghosts among themselves in an emulated rack: eight send to one, are told to slow down, and share its cable; what
`nbx trace` and `nbx traffic` say of it. Needs root, for network namespaces."""
import csv
import io
import os
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from nbxd import Nbxd, run  # noqa: E402

EMULATOR = f"nbx-cc-emu-{os.getpid()}"
SENDERS = 8
LINE = 80_000_000       # bit/s: 9,000 packets a second are little work
FAIR = LINE / SENDERS
RATES_ONLY = ("cut", "rate_timer", "byte_counter")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")

# The paper's algorithm at a five-hundredth of its rate, every time five hundred times as long; but for the smallest
# R_AI, which is twelve times the paper's then, so that each increase has to wait longer.
DCQCN = {"preset": "paper", "rp_time_reset": 55_000, "rp_byte_reset": 0, "rp_threshold": 1, "rp_ai_rate": 1,
         "rp_hai_rate": 1, "rp_dce_tcp_rtt": 27_500, "rp_dce_tcp_g": 992, "rp_min_rate": 1}


def mac(number):
    return f"02:00:00:00:02:{number:02x}"


def sender(number):
    """RC WRITEs of 512 MiB: longer than any test."""
    return {"name": f"s{number}", "mac": mac(number), "addresses": [f"10.77.0.{100 + number}/24"],
            "memory": [{"key": 1, "addr": 0, "length": "1GiB", "backing": "sink"}],
            "qps": [{"type": "rc", "qpn": 0x100 + number,
                     "peer": {"address": "10.77.0.200", "mac": mac(200), "qpn": 0x200 + number},
                     "path_mtu": 1024, "timeout": 18,
                     "requests": [{"at": "0s", "op": "rdma_write", "local": {"key": 1, "addr": 0, "length": "512MiB"},
                                   "remote": {"addr": 0, "rkey": 1}}]}]}


def receiver():
    return {"name": "receiver", "mac": mac(200), "addresses": ["10.77.0.200/24"],
            "memory": [{"key": 1, "addr": 0, "length": "1GiB", "backing": "sink"}],
            "qps": [{"type": "rc", "qpn": 0x200 + n,
                     "peer": {"address": f"10.77.0.{100 + n}", "mac": mac(n), "qpn": 0x100 + n},
                     "path_mtu": 1024} for n in range(SENDERS)]}


@pytest.fixture
def start(tmp_path):
    """Starts nbxd with these sections beside the port."""
    running = []

    def run_with(**sections):
        cluster = {"cluster": "congestion",
                   "ports": [{"name": "p0", "device": "net_af_packet0,iface=emu0", "mtu": 1500}],
                   "memory": {"size": "64MiB"}, "control": {"socket": str(tmp_path / "nbxd.sock")}, **sections}
        (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(cluster, sort_keys=False))
        one = Nbxd(EMULATOR, tmp_path)
        one.start()
        running.append(one)
        return one

    run("ip", "netns", "add", EMULATOR)
    try:
        run("ip", "-n", EMULATOR, "link", "add", "emu0", "type", "veth", "peer", "name", "eth0")
        for name in ("emu0", "eth0"):
            run("ip", "-n", EMULATOR, "link", "set", name, "up")
        yield run_with
        for one in running:
            one.stop()
    finally:
        run("ip", "netns", "delete", EMULATOR)


NETWORK = {"topology": "rack", "host_rate": f"{LINE}b/s", "propagation": "1us",
           "priorities": [{"priority": 0, "ecn": {"kmin": "20KiB", "kmax": "320KiB", "pmax": "10%"}}]}


def read_trace(text):
    flows = defaultdict(list)
    for row in csv.DictReader(io.StringIO(text)):
        flows[row["ghost"]].append({**row, "time_ps": int(row["time_ps"]), "current_bps": int(row["current_bps"]),
                                    "target_bps": int(row["target_bps"]), "alpha": float(row["alpha"])})
    return flows


def test_an_incast_of_ghosts_is_told_slows_down_and_shares(start, tmp_path):
    nbxd = start(ghosts=[sender(n) for n in range(SENDERS)] + [receiver()], network=NETWORK,
                 transport={"line_rate": f"{LINE}b/s", "cnp_interval": "25ms", "dcqcn": DCQCN})
    nbxd.nbx("trace", "--for", "10s", "--out", tmp_path / "trace.csv")
    first, began = nbxd.ask("qps")["qps"], time.monotonic()
    time.sleep(8)
    second, took = nbxd.ask("qps")["qps"], time.monotonic() - began
    counters = nbxd.ask("counters")
    flows = read_trace((tmp_path / "trace.csv").read_text())
    # Every ghost that sends was cut by the mark of its first CNP and by no more than alpha / 2.
    assert sorted(flows) == [f"s{n}" for n in range(SENDERS)]
    for steps in flows.values():
        assert [step["time_ps"] for step in steps] == sorted(step["time_ps"] for step in steps)
        cuts = [i for i, step in enumerate(steps) if step["cause"] == "cut"]
        assert len(cuts) > 3
        for i in cuts[1:]:
            before, cut = steps[i - 1], steps[i]
            least = before["current_bps"] * (1 - before["alpha"] / 2)
            assert cut["current_bps"] == pytest.approx(max(least, 1e6), rel=1e-3)
    # The receiver's notifications are those that the senders heard of; nothing was lost.
    assert counters["np_ecn_marked_roce_packets"] > 0
    assert 0 <= counters["np_cnp_sent"] - counters["rp_cnp_handled"] <= SENDERS, "under way"
    assert not [name for name in counters if name.startswith("network_") and counters[name]]
    sent = {qp["ghost"]: qp["payload_bytes_tx"] for qp in first if qp["ghost"] != "receiver"}
    rates = [(qp["payload_bytes_tx"] - sent[qp["ghost"]]) * 8 * (1024 + 82) / 1024 / took
             for qp in second if qp["ghost"] != "receiver"]
    print("Mb/s:", [round(rate / 1e6, 1) for rate in rates], "CNPs:", counters["np_cnp_sent"])
    assert 0.5 * LINE < sum(rates) < 1.02 * LINE
    assert max(rates) < 2 * FAIR and min(rates) > FAIR / 2


def test_a_trace_needs_something_to_trace(start):
    nbxd = start(ghosts=[{"name": "g", "addresses": ["10.77.0.9/24"]}])
    refused = nbxd.nbx("trace", "--for", "1s", check=False)
    assert refused.returncode == 1 and "transport.dcqcn" in refused.stderr


def test_a_trace_of_an_unknown_ghost_is_refused(start):
    nbxd = start(ghosts=[{"name": "g", "addresses": ["10.77.0.9/24"]}],
                 transport={"line_rate": "1Gb/s", "dcqcn": "paper"})
    refused = nbxd.nbx("trace", "--ghost", "h", "--for", "1s", check=False)
    assert refused.returncode == 1 and "'h'" in refused.stderr
    assert nbxd.ask("trace", "--ghost", "g", "--for", "200ms") == {"steps": [], "dropped": 0}


@pytest.mark.parametrize("pattern, to", [("incast", "receiver"), ("permutation", None), ("all_to_all", None)])
def test_background_traffic_is_what_was_asked_for(start, pattern, to):
    traffic = {"name": "background", "pattern": pattern, "from": "s", "load": "10%", "sizes": {"exponential": "32KiB"}}
    nbxd = start(ghosts=[{"name": "s", "count": 4, "addresses": ["10.77.0.100/24"]},
                         {"name": "receiver", "addresses": ["10.77.0.200/24"]}],
                 network=NETWORK, traffic=[{**traffic, "to": to} if to else traffic])
    time.sleep(10)
    said = nbxd.ask("traffic")["traffic"][0]
    print(said)
    assert said["asked_mbit_per_s"] == pytest.approx(4 * 0.1 * LINE / 1e6)
    # Of n exponential sizes at Poisson times the sum deviates by sqrt(2 / n) of itself; an incast's come by fours.
    independent = said["flows"] / (4 if pattern == "incast" else 1)
    assert said["offered_mbit_per_s"] == pytest.approx(said["asked_mbit_per_s"], rel=5 * (2 / independent) ** 0.5)
    assert said["achieved_mbit_per_s"] == pytest.approx(said["offered_mbit_per_s"], rel=0.1)
    assert said["flows"] - said["completed"] - said["damaged"] < 50, "under way"
    assert said["fct_p99_us"] >= said["fct_median_us"] > 0
