"""The real node and the emulated network that disagree about priorities: warned of before the start, counted for each
frame that scapy makes."""
import json
import os
import subprocess
from pathlib import Path

import pytest

scapy = pytest.importorskip("scapy.all")
roce = pytest.importorskip("scapy.contrib.roce")

NBX = Path(os.environ.get("NBX_BIN", Path(__file__).resolve().parents[2] / "build/bin")).resolve() / "nbx"
NODE_MAC, GHOST_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
NODE_IP, GHOST_IP = "10.77.0.1", "10.77.0.2"
CLUSTER = f"""
cluster: classes
ports: [{{name: p0}}]
nodes: [{{name: node, port: p0, mac: "{NODE_MAC}", addresses: {NODE_IP}/24}}]
ghosts:
  - name: g
    mac: "{GHOST_MAC}"
    addresses: [{GHOST_IP}/24]
    dscp: 26
    memory: [{{addr: 0, length: 64KiB, key: 1, access: remote_write}}]
    qps: [{{qpn: 0x11, peer: {{address: {NODE_IP}, qpn: 0x12}}, rq_psn: 0, access: remote_write}}]
network:
  topology: rack
  priorities: [{{priority: 3, lossless: true}}]
"""


def ping(dscp, vlan=None):
    frame = scapy.Ether(dst=GHOST_MAC, src=NODE_MAC)
    if vlan is not None:
        frame /= scapy.Dot1Q(prio=vlan, vlan=0)
    return frame / scapy.IP(src=NODE_IP, dst=GHOST_IP, tos=dscp << 2) / scapy.ICMP()


def write(psn, dscp):
    """An RDMA WRITE only of four bytes that asks for an acknowledgement; the ICRC is scapy's."""
    reth = (0).to_bytes(8, "big") + (1).to_bytes(4, "big") + (4).to_bytes(4, "big")
    return scapy.Ether(dst=GHOST_MAC, src=NODE_MAC) / \
        scapy.IP(src=NODE_IP, dst=GHOST_IP, tos=dscp << 2, flags="DF", id=0) / \
        scapy.UDP(sport=0xc000, dport=4791, chksum=0) / \
        roce.BTH(opcode=0x0a, dqpn=0x11, psn=psn, ackreq=1) / scapy.Raw(reth + b"data")


def replayed(tmp_path, frames, more=""):
    (tmp_path / "cluster.yaml").write_text(CLUSTER + more)
    for n, frame in enumerate(frames):
        frame.time = 1 + n * 1e-3
    scapy.wrpcap(str(tmp_path / "in.pcap"), frames)
    done = subprocess.run([NBX, "replay", "--cluster", "cluster.yaml", "--in", "in.pcap", "--json"], cwd=tmp_path,
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def differences(report):
    return report["network"].get("class_disagreements", [])


def test_ends_that_agree_say_nothing(tmp_path):
    report, said = replayed(tmp_path, [ping(d) for d in range(64)] + [write(0, 26), write(1, 26)],
                            "  node_classes: {priorities: [{priority: 3, lossless: true}]}\n")
    assert said == "" and not differences(report) and "class_disagreements" not in report["counters"]


def test_a_dscp_that_the_node_puts_elsewhere(tmp_path):
    more = "  node_classes: {priorities: [{priority: 3, lossless: true}, {priority: 5, dscp: 26}]}\n"
    report, said = replayed(tmp_path, [ping(d) for d in range(64)], more)
    assert said.splitlines() == ["cluster.yaml:15:17: warning: DSCP 26 is priority 5 (lossy) at the real node and "
                                 "priority 3 (lossless) at the network"]
    assert report["counters"]["class_disagreements"] == 2
    assert differences(report) == [
        {"frames": 1, "direction": "from_node", "network_priority": 3, "node_priority": 5},
        {"frames": 1, "direction": "to_node", "network_priority": 3, "node_priority": 5}]  # the answer to the ping


def test_a_node_that_trusts_the_vlan_tag(tmp_path):
    """Tagged pings: the node goes by PCP, the network by DSCP; they agree where both say the same."""
    pings = [ping(8 * dscp, vlan=pcp) for dscp in range(8) for pcp in range(1, 8)]
    more = "  node_classes: {trust: pcp, priorities: [{priority: 3, lossless: true}]}\n"
    report, said = replayed(tmp_path, pings, more)
    assert "warning: the real node trusts PCP, the network trusts DSCP" in said
    rows = {(r["network_priority"], r["node_priority"]): r["frames"] for r in differences(report)
            if r["direction"] == "from_node"}
    assert rows == {(dscp, pcp): 1 for dscp in range(8) for pcp in range(1, 8) if dscp != pcp}


def test_requests_in_another_class_than_the_ghosts_answers(tmp_path):
    """The ghost acknowledges with its own DSCP; nothing is known of the node's settings."""
    report, said = replayed(tmp_path, [write(0, 26), write(1, 26), write(2, 0), write(3, 0), write(4, 27)])
    assert said == ""
    assert report["counters"]["acks_sent"] == 5
    assert differences(report) == [{"frames": 2, "direction": "from_node", "network_priority": 0, "ghost_priority": 3}]
    assert report["counters"]["class_disagreements"] == 2
