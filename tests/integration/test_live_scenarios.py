"""One scenario file in virtual time and live, against a Linux kernel; the two beside each other. Needs root, for network
namespaces."""
import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from nbxd import BIN, run, veth_pair  # noqa: E402

NODE, EMULATOR = f"nbx-live-node-{os.getpid()}", f"nbx-live-emu-{os.getpid()}"
NBX = BIN / "nbx"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")

SCENARIO = """
scenario: one ghost
cluster:
  cluster: live
  ports: [{name: p0, device: "net_af_packet0,iface=emu0", mtu: 1500}]
  ghosts: [{name: g, addresses: [10.77.0.2/24]}]
  network: {topology: rack, host_rate: 1Gb/s, propagation: 2ms}
  memory: {size: 64MiB}
job: {job: echo, steps: 4, each_step: [{flow: {from: 0, to: 1, bytes: 56B}}, {flow: {from: 1, to: 0, bytes: 56B}}]}
changes: {profile.both.rate: 1Gb/s}
faults: {profile.both.delay: 20ms}
assert:
  - no drops
  - no qp errors
  - counter.rx_packets_phy >= 4
  - jct > 160ms
  - jct_ratio > 1.05
limit: 30s
"""
PING = f"ip netns exec {NODE} ping -n -c 4 -i 0.05 -W 2 10.77.0.2"


@pytest.fixture
def scenario(tmp_path):
    with veth_pair(EMULATOR, NODE):
        (tmp_path / "one.yaml").write_text(SCENARIO)
        yield tmp_path / "one.yaml"


def live(scenario, program, check=True):
    return run("ip", "netns", "exec", EMULATOR, NBX, "scenario", scenario, "--json", "--live", "--program", program,
               limit_s=120, check=check)


def test_the_same_file_holds_in_virtual_time_and_live(scenario, tmp_path):
    for name, done in (("simulated", run(NBX, "scenario", scenario, "--json", limit_s=60)),
                       ("live", live(scenario, PING))):
        (tmp_path / f"{name}.json").write_text(done.stdout)
    measured = {}
    for name in ("simulated", "live"):
        verdict, = json.loads((tmp_path / f"{name}.json").read_text())
        assert verdict["holds"], verdict["assertions"]
        measured[name] = {row["assertion"]: row["measured"] for row in verdict["assertions"]}
    assert list(measured["simulated"]) == list(measured["live"]) and None not in measured["live"].values()
    ping, = json.loads((tmp_path / "live.json").read_text())
    assert ping["report"]["program"]["command"] == PING
    assert ping["report"]["program"]["time_us"] > ping["baseline"]["program"]["time_us"], "40 ms there and back"
    files = (tmp_path / "simulated.json", tmp_path / "live.json")
    rows = json.loads(run(NBX, "scenario", "--compare", *files, "--json").stdout)
    assert [row["assertion"] for row in rows] == list(measured["live"])
    assert "jct_ratio > 1.05" in run(NBX, "scenario", "--compare", *files).stdout
    verdict, = json.loads(files[1].read_text())
    verdict["assertions"][0]["holds"] = False
    files[1].write_text(json.dumps([verdict]))
    assert run(NBX, "scenario", "--compare", *files, check=False).returncode == 1


def test_what_goes_wrong_is_said(scenario, tmp_path):
    scenario.write_text(SCENARIO.replace("  - jct_ratio > 1.05\n", ""))
    failed = live(scenario, "false", check=False)
    verdict, = json.loads(failed.stdout)
    assert failed.returncode == 1 and verdict["report"] == {"failure": "the program ended with status 1"}
    scenario.write_text(SCENARIO.replace("  - jct_ratio > 1.05\n", "").replace("limit: 30s", "limit: 500ms"))
    verdict, = json.loads(live(scenario, "sleep 60", check=False).stdout)
    assert verdict["report"] == {"failure": "the program ran past the limit"}
    scenario.write_text(SCENARIO.replace("iface=emu0", "iface=none0"))
    assert "nbxd ended" in live(scenario, PING, check=False).stderr
    assert run(NBX, "scenario", scenario, "--live", check=False).returncode == 2
    assert run(NBX, "scenario", "--compare", scenario, scenario, check=False).returncode == 2
