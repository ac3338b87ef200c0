"""A dragonfly with minimal routes and no virtual channels can deadlock (Kim et al. 2008, section 4.2, after Dally and
Seitz 1987): `nbx replay` finds it and names the cycle. The same traffic on a leaf-spine, whose routes go up and then
down, is carried to the end.
"""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from ring import DRAGONFLY, FLOWS, LEAF_SPINE, RING, address, cluster, mac  # noqa: E402

scapy = pytest.importorskip("scapy.all")

NBX = Path(os.environ.get("NBX_BIN", Path(__file__).resolve().parents[2] / "build/bin")).resolve() / "nbx"


def replayed(tmp_path, config):
    (tmp_path / "cluster.yaml").write_text(json.dumps(config))
    frame = scapy.Ether(dst=mac(1), src=mac(0xff)) / scapy.IP(src="10.77.0.1", dst=address(1)) / scapy.ICMP()
    scapy.wrpcap(str(tmp_path / "in.pcap"), [frame])
    done = subprocess.run([NBX, "replay", "--cluster", "cluster.yaml", "--in", "in.pcap", "--linger", "10ms", "--json"],
                          cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_ring_of_cables_deadlocks_and_is_named(tmp_path):
    report = replayed(tmp_path, cluster(DRAGONFLY))
    cycle = report["network"]["deadlock"].split(" -> ")
    assert cycle[0] == cycle[-1] and len(cycle) == 7, cycle
    routers = [place.split()[0] for place in cycle[:-1]]
    start = routers.index(RING[0])
    assert routers[start:] + routers[:start] == RING
    assert all("priority 3" in place for place in cycle)
    assert len([c for c in report["completions"] if c["status"] == "success"]) < len(FLOWS)


def test_up_and_down_does_not(tmp_path):
    report = replayed(tmp_path, cluster(LEAF_SPINE))
    assert report["network"]["deadlock"] == "none"
    done = [c for c in report["completions"] if c["opcode"] == "rdma_write"]
    assert len(done) == len(FLOWS) and all(c["status"] == "success" for c in done)
    assert not [name for name in report["drops"] if name.startswith("network_")]


def test_a_watchdog_breaks_it(tmp_path):
    config = cluster(DRAGONFLY)
    config["network"]["watchdog"] = {"detection_time": "1ms", "restoration_time": "1ms"}
    report = replayed(tmp_path, config)
    assert report["network"]["deadlock"] == "none"
    storms = report["network"]["watchdogs"]
    assert sum(row["storms"] for row in storms) >= 1 and report["drops"]["network_pfc_watchdog"] >= 1
