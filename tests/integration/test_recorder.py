"""A filter and the flight recorder between a Linux kernel and a ghost; what they wrote is read by tshark. Needs root, for
network namespaces."""
import os
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from nbxd import Nbxd, run, veth_pair  # noqa: E402

NODE, EMULATOR = f"nbx-rec-node-{os.getpid()}", f"nbx-rec-emu-{os.getpid()}"
GHOST = "10.77.0.9"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")

CLUSTER = """
cluster: recorder
ports:
  - {{name: p0, device: "net_af_packet0,iface=emu0", mtu: 1500, profile: ./lossy.yaml}}
ghosts:
  - {{name: ghost0, addresses: [10.77.0.9/24]}}
recorder: {{file: {folder}/flight.pcapng, size: 1MiB, after: 500ms, triggers: event, apart: 1min, dumps_max: 2, filter: icmp}}
memory: {{size: 64MiB}}
control: {{socket: {folder}/nbxd.sock}}
"""
PROFILE = """
both: {rate: 1Gb/s}
events:
  - {name: fifth-ping, direction: from_node, match: {ghost: ghost0, class: other, nth: 5}, do: drop}
"""


@pytest.fixture
def nbxd(tmp_path):
    (tmp_path / "cluster.yaml").write_text(CLUSTER.format(folder=tmp_path))
    (tmp_path / "lossy.yaml").write_text(PROFILE)
    with veth_pair(EMULATOR, NODE):
        one = Nbxd(EMULATOR, tmp_path)
        one.start()
        yield one
        if one.process.poll() is None:
            one.stop()


def ping(count):
    run("ip", "netns", "exec", NODE, "ping", "-n", "-c", count, "-i", "0.1", "-W", "1", GHOST, check=False)


def shark(file, *fields):
    words = [word for field in fields for word in ("-e", field)]
    return [line.split("\t") for line in run("tshark", "-r", file, "-T", "fields", *words).stdout.splitlines()]


def test_an_events_dump_has_the_frames_before_and_after(nbxd, tmp_path):
    ping(14)
    dump, = nbxd.ask("status")["recorder"]
    assert (dump["trigger"], dump["port"], dump["lost"]) == ("event", "p0", 0)
    assert dump["file"] == str(tmp_path / "flight.1.pcapng")
    frames = shark(dump["file"], "icmp.type", "icmp.seq", "frame.comment")
    assert len(frames) == dump["frames"]
    hit = [i for i, (_, _, comment) in enumerate(frames) if "dropped event" in comment]
    assert [frames[i][:2] for i in hit] == [["8", "5"]], "the request of the fifth ping, alone"
    assert {seq for kind, seq, _ in frames[:hit[0]] if kind == "0"} == {"1", "2", "3", "4"}, "answered before"
    assert {"6", "7", "8"} <= {seq for kind, seq, _ in frames[hit[0]:] if kind == "0"}, "and after"
    assert "14" not in {seq for _, seq, _ in frames}, "half a second is over by then"
    assert all(kind for kind, _, _ in frames), "the filter leaves out ARP"
    said = run("capinfos", dump["file"]).stdout
    assert re.search(r"nbx: trigger=event port=p0 time=\d+\.\d{9} lost=0 passed_over=0", said), said
    assert f"flight recorder: event at port p0: {len(frames)} frames in {dump['file']}" in nbxd.said()


def test_by_command_and_not_without_end(nbxd, tmp_path):
    ping(2)
    dump = nbxd.ask("capture", "trigger")
    assert dump["trigger"] == "command" and dump["frames"] == 4
    ping(4)  # its third request is dropped: too soon
    counters = nbxd.ask("counters")
    assert counters["recorder_triggers"] == 1 and counters["recorder_passed_over"] == 1
    assert nbxd.ask("capture", "trigger")["passed_over"] == 1
    refused = nbxd.nbx("capture", "trigger", check=False)
    assert refused.returncode == 1 and "has written its 2 dumps; raise recorder.dumps_max" in refused.stderr
    assert nbxd.stop() == 0


def test_a_capture_by_a_filter(nbxd, tmp_path):
    file = tmp_path / "arp.pcapng"
    nbxd.nbx("capture", "start", file, "--filter", "arp or (icmp and icmp[icmptype] = icmp-echoreply)")
    ping(4)
    nbxd.nbx("capture", "stop")
    kinds = [kind for kind, in shark(file, "icmp.type")]
    assert kinds.count("0") == 4 and "8" not in kinds and "" in kinds, "answers, no requests, and ARP"
    assert nbxd.ask("counters")["capture_filtered"] >= 4
    refused = nbxd.nbx("capture", "start", file, "--filter", "udp prot 4791", check=False)
    assert refused.returncode == 1 and "syntax error" in refused.stderr
