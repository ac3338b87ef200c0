"""One scenario file in virtual time, and live with the kernel's soft-RoCE as real node: the two reports beside each other.
The program is perftest in the guest, which reads from a ghost behind a fabric slower than its cables."""
import json
import os
import subprocess
import threading

import pytest
import yaml

from conftest import ADDRESSES, wait_for_link
from emulator import BIN
from realnode import mac_of

GHOST, MESSAGES, MESSAGE, UNDER_WAY = "10.77.0.101", 80, 65536, 4
FABRIC_MBPS, CABLE_MBPS = 30, 100        # soft-RoCE in an emulated machine keeps up with the first
RUN_LIMIT_S = 240


def scenario(socket):
    """As many bytes are under way in each step as perftest asks for; the fault is loss on the node's cable."""
    return {
        "scenario": "slow fabric",
        "cluster": {
            "cluster": "slow-fabric",
            "ports": [{"name": "p0", "device": f"net_vhost0,iface={socket},queues=1", "mtu": 4200}],
            "nodes": [{"name": "real0", "port": "p0", "mac": mac_of(ADDRESSES["real0"]), "addresses": ADDRESSES["real0"]}],
            "ghosts": [{"name": "g", "mac": "02:00:00:00:01:00", "addresses": [f"{GHOST}/24"], "dscp": 26,
                        "personalities": ["perftest"], "qp_defaults": {"timeout": 18}}],
            "network": {"topology": {"leaf_spine": {"leaves": 2, "spines": 1, "hosts_per_leaf": 1}},
                        "host_rate": f"{CABLE_MBPS}Mb/s", "fabric_rate": f"{FABRIC_MBPS}Mb/s", "propagation": "1us",
                        "buffer": "64MiB", "priorities": [{"priority": 3, "dscp": 26}]},
            "memory": {"size": "160MiB"}},
        "job": {"job": "reads", "steps": MESSAGES // UNDER_WAY,
                "each_step": [{"flow": {"from": 1, "to": 0, "bytes": f"{UNDER_WAY * MESSAGE}B"}}]},
        "faults": {"profile.to_node.loss": {"match": {"class": "data"}, "every_nth": 200}},
        "assert": ["no qp errors", "drops >= 6", "drops <= 40", "queue_peak > 100KiB", "queue_peak < 1MiB", "jct > 1.4s"],
        "limit": f"{RUN_LIMIT_S}s"}


@pytest.fixture
def program(node, tmp_path):
    """A shell command that has the node do its part, by way of this process."""
    ask, answer = tmp_path / "ask", tmp_path / "answer"
    for pipe in (ask, answer):
        os.mkfifo(pipe)

    def serve():
        while ask.read_text() == "go\n":
            try:
                wait_for_link(node, GHOST)
                print(node.run(f"ib_read_bw -d rxe0 -F -x {node.gid_index(node.ipv4)} -u 18 -s {MESSAGE} -n {MESSAGES} "
                               f"-o {UNDER_WAY} {GHOST}", RUN_LIMIT_S))
                status = 0
            except Exception as error:      # pylint: disable=broad-exception-caught
                print(error)
                status = 1
            answer.write_text(f"{status}\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"echo go > {ask}; read status < {answer}; exit $status"
    ask.write_text("enough\n")
    thread.join(RUN_LIMIT_S)


def test_the_same_file_in_virtual_time_and_live(program, reports, sockets):
    folder = reports / "live-scenario"
    folder.mkdir()
    file = folder / "slow-fabric.yaml"
    file.write_text(yaml.safe_dump(scenario(sockets / "p0.sock"), sort_keys=False))
    outputs = {}
    for name, words in (("simulated", []), ("live", ["--live", "--program", program])):
        done = subprocess.run([BIN / "nbx", "scenario", file, "--json", *words], capture_output=True, text=True,
                              timeout=2 * RUN_LIMIT_S, check=False)
        outputs[name] = folder / f"{name}.json"
        outputs[name].write_text(done.stdout)
        assert done.returncode == 0, done.stdout[:3000] + done.stderr
    shown = subprocess.run([BIN / "nbx", "scenario", "--compare", outputs["simulated"], outputs["live"]],
                           capture_output=True, text=True, timeout=60, check=False)
    print(shown.stdout)
    assert shown.returncode == 0, shown.stdout
    live, = json.loads(outputs["live"].read_text())
    assert None not in [row["measured"] for row in live["assertions"]]
