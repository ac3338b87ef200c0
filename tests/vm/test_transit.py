"""Two real nodes on two ports reach each other through the emulator, both ports' profiles applied, beside ghosts; and
with an emulated network between all of them."""
import re

import pytest

from conftest import ADDRESSES, plug, wait_for_link
from emulator import Emulator

ADDED_MS = 2      # each direction of each port: a frame crosses two of them
SLOW = {"both": {"delay": f"{ADDED_MS}ms"}}


def ghost(port):
    return {"name": f"ghost{port}", "mac": f"02:00:00:00:00:{0x40 + port:02x}", "addresses": [f"10.77.0.{64 + port}/24"],
            "personalities": ["rcops"]}


NETWORK = {"topology": {"leaf_spine": {"leaves": 2, "spines": 2, "hosts_per_leaf": 2}}, "host_rate": "10Gb/s",
           "fabric_rate": "10Gb/s"}


@pytest.fixture(scope="module", params=[{}, {"network": NETWORK}], ids=["bridge", "network"])
def emulator(request, node, second_node, reports, sockets):
    ports = {f"p{i}": plug(sockets, i, SLOW, [ghost(i)]) for i in (0, 1)}
    with Emulator(reports / "-".join(["transit", *request.param]), ports, **request.param) as running:
        for one in (node, second_node):
            wait_for_link(one, "10.77.0.64")
        yield running


def test_ping_takes_the_delays_of_both_ports(emulator, node, second_node):
    output = node.run(f"ping -c 5 {second_node.ipv4}", limit_s=30)
    fastest = float(re.search(r"min/avg/max = ([\d.]+)/", output).group(1))
    assert fastest >= 4 * ADDED_MS, output


def test_write_bandwidth(emulator, node, second_node):
    command = "ib_write_bw -d rxe0 -F -n 100 -s 16384 -x"
    server = second_node.spawn(f"{command} {second_node.gid_index(second_node.ipv4)}")
    second_node.run("n=0; until netstat -ltn | grep -q :18515; do n=$((n+1)); [ $n -lt 100 ]; sleep 0.1; done")
    node.run(f"{command} {node.gid_index(node.ipv4)} {second_node.ipv4}")
    server.wait()


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_rping(emulator, node, second_node, family):
    address = getattr(second_node, family)
    server = second_node.spawn(f"rping -s -C 10 -V -a {address}")
    second_node.run("sleep 1")
    assert node.run(f"rping -c -C 10 -V -v -a {address}").count("ping data: rdma-ping-") == 10
    server.wait()


@pytest.mark.parametrize("port", [0, 1])
def test_ghosts_of_either_port_serve_both_nodes(emulator, node, second_node, port):
    for one in (node, second_node):
        assert "PASSED" in one.run(f"rcops -c 10.77.0.{64 + port}")


def test_counters_name_the_transit(emulator):
    assert emulator.ask("counters")["transit_packets"] > 0
    network = emulator.ask("report").get("network")
    assert network is None or sum(row["frames"] for row in network["queues"]) > 0
