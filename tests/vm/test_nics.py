"""Ghosts with the NIC of a file, on live traffic of the kernel's soft-RoCE: the capture shows when they answer a gap,
when they send again to a node that does not acknowledge, and what selective repeat is to a kernel that goes back N."""
import re
import subprocess

import pytest
import yaml

from conftest import GHOST_IPV4, SERVER, plug, wait_for_link
from emulator import ROOT, Emulator

RUN_LIMIT_S = 60
INBOUND, OUTBOUND = 1, 2
SEND_ONLY, ACKNOWLEDGE = 4, 17      # IBTA table 38
NAK_SEQUENCE_ERROR = 0x60           # syndrome, IBTA table 44
LOST = 10                           # distance from the first PSN
NAK_LATENCY_S = 0.02
LATE_S = 0.05                       # how late a worker may be on a busy host


def pingpong(node, reports, sockets, name, profile, nic, options):
    """A pingpong of the node with a ghost of that NIC: its output, and the RoCE packets of the capture as (seconds,
    direction, opcode, PSN, syndrome, MigReq)."""
    emulator = Emulator(reports / name, {"p0": plug(sockets, 0, profile, [{**SERVER, "nic": str(nic)}])})
    with emulator:
        wait_for_link(node, GHOST_IPV4)
        gid = node.gid_index(node.ipv4)
        job = node.spawn(f"timeout 5 ibv_rc_pingpong -d rxe0 -g {gid} {options} {GHOST_IPV4}", RUN_LIMIT_S)
        output = job.wait(expect=None)
    fields = ["frame.time_relative", "frame.packet_flags_direction", "infiniband.bth.opcode", "infiniband.bth.psn",
              "infiniband.aeth.syndrome", "infiniband.bth.m"]
    done = subprocess.run(["tshark", "-r", emulator.capture, "-Y", "infiniband", "-T", "fields",
                           *(word for field in fields for word in ("-e", field))],
                          capture_output=True, text=True, timeout=120, check=True)
    rows = [(line.split("\t") + [""] * 6)[:6] for line in done.stdout.splitlines()]
    return output, [(float(at), int(way, 0), int(opcode), int(psn), int(syndrome or "0", 0), migrated in ("1", "True"))
                    for at, way, opcode, psn, syndrome, migrated in rows]


def test_a_nak_takes_as_long_as_the_file_says(node, reports, sockets):
    nic = reports / "slow-nak.yaml"
    nic.write_text(yaml.safe_dump({"nic": "slow-nak", "nak_latency": f"{NAK_LATENCY_S * 1e3:g}ms"}))
    profile = {"events": [{"name": "gap", "direction": "from_node", "do": "drop",
                           "match": {"ghost": "server", "qp": 1, "psn_offset": LOST, "transmission": 1}}]}
    output, packets = pingpong(node, reports, sockets, "slow-nak", profile, nic, "-n 100 -s 4096")
    assert "100 iters" in output, output
    psn = (int(re.search(r"local address:.*PSN (0x[0-9a-f]+)", output).group(1), 16) + LOST) & 0xffffff
    naks = [at for at, way, opcode, named, syndrome, _ in packets
            if (way, opcode, named, syndrome) == (OUTBOUND, ACKNOWLEDGE, psn, NAK_SEQUENCE_ERROR)]
    assert len(naks) == 1
    gap = next(at for at, way, opcode, number, _, _ in packets
               if way == INBOUND and opcode < ACKNOWLEDGE and number == (psn + 1) & 0xffffff)
    print(f"NAK {1e3 * (naks[0] - gap):.3f} ms after the packet behind the gap")
    assert NAK_LATENCY_S <= naks[0] - gap < NAK_LATENCY_S + LATE_S


# linux-rdma/perftest issue 251: 2, 4, 8, 16 ms; in powers of two of 4 us.
CONNECTX_GAPS_S = [0.002048, 0.004096, 0.008192, 0.016384]


@pytest.mark.parametrize("nic, gaps, migrated", [
    ("connectx-5", CONNECTX_GAPS_S, True),
    ("rxe", [4.096e-6 * 2 ** 14] * 3, False)])
def test_retransmissions_follow_the_nics_timer(node, reports, sockets, nic, gaps, migrated):
    deaf = {"from_node": {"loss": {"probability": 1, "match": {"class": "ack"}}}}
    _, packets = pingpong(node, reports, sockets, nic, deaf, nic, "-n 1000000 -s 64")
    sent = [(at, psn) for at, way, opcode, psn, _, _ in packets if (way, opcode) == (OUTBOUND, SEND_ONLY)]
    oldest = [at for at, psn in sent if psn == sent[0][1]]
    seen = [later - earlier for earlier, later in zip(oldest, oldest[1:])]
    print(f"{nic}: sent again after " + ", ".join(f"{1e3 * gap:.3f}" for gap in seen) + " ms")
    assert len(seen) >= len(gaps)
    for gap, least in zip(seen, gaps):
        assert least <= gap < least + LATE_S
    assert {bit for _, way, opcode, _, _, bit in packets if (way, opcode) == (OUTBOUND, SEND_ONLY)} == {migrated}


TOTAL_TIMEOUT = 13      # 4 us * 2^13 = 32.768 ms


def test_a_ghost_gives_up_after_the_files_total_timeout(node, reports, sockets):
    nic = reports / "impatient.yaml"
    nic.write_text(yaml.safe_dump({"nic": "impatient", "adaptive": {
        "timeout_init_low_bound": 9, "timeout_range": {"range_low_bound": 9, "range_size": 3},
        "retx_total_timeout": TOTAL_TIMEOUT}}))
    deaf = {"from_node": {"loss": {"probability": 1, "match": {"class": "ack"}}}}
    _, packets = pingpong(node, reports, sockets, "impatient", deaf, nic, "-n 1000000 -s 64")
    sent = [(at, psn) for at, way, opcode, psn, _, _ in packets if (way, opcode) == (OUTBOUND, SEND_ONLY)]
    oldest = [at for at, psn in sent if psn == sent[0][1]]
    print(f"sent {len(oldest)} times within {1e3 * (oldest[-1] - oldest[0]):.3f} ms")
    assert 2 <= len(oldest) <= 1 + len(CONNECTX_GAPS_S)      # the fourth timeout ends at 30.7 ms
    assert oldest[-1] - oldest[0] < 4e-6 * 2 ** TOTAL_TIMEOUT + LATE_S


SEND_FIRST, SEND_MIDDLE, CNP = 0, 1, 129


def test_acknowledgements_nobody_asked_for_and_a_notification_with_the_nak(node, reports, sockets):
    """The kernel asks at the end of a message, or after 64 packets; these have 32."""
    nic = reports / "talkative.yaml"
    nic.write_text(yaml.safe_dump({"nic": "talkative", "ack_every": 4, "cnp_on_nak": True}))
    profile = {"events": [{"name": "gap", "direction": "from_node", "do": "drop",
                           "match": {"ghost": "server", "qp": 1, "psn_offset": LOST, "transmission": 1}}]}
    output, packets = pingpong(node, reports, sockets, "talkative", profile, nic, "-n 20 -s 32768 -m 1024")
    assert "20 iters" in output, output
    inside = {psn for _, way, opcode, psn, _, _ in packets if way == INBOUND and opcode in (SEND_FIRST, SEND_MIDDLE)}
    acknowledged = [psn for _, way, opcode, psn, syndrome, _ in packets
                    if (way, opcode) == (OUTBOUND, ACKNOWLEDGE) and syndrome < 0x20]
    naks = [at for at, way, opcode, _, syndrome, _ in packets
            if (way, opcode, syndrome) == (OUTBOUND, ACKNOWLEDGE, NAK_SEQUENCE_ERROR)]
    notified = [at for at, way, opcode, *_ in packets if (way, opcode) == (OUTBOUND, CNP)]
    print(f"{len(inside.intersection(acknowledged))} of {len(inside)} packets inside messages acknowledged, "
          f"{len(naks)} NAKs, {len(notified)} notifications")
    assert inside.intersection(acknowledged)
    assert len(naks) == len(notified) == 1


OPERATION_BYTES = 500_000
READ_REQUEST, READ_RESPONSES = 12, range(13, 17)      # Linux answers a part of one packet with a LAST


def parts_of_reads(capture):
    """READ requests of the ghost that end before the READ does, and those of them that the kernel answered, by PSN."""
    fields = ["frame.packet_flags_direction", "infiniband.bth.opcode", "infiniband.bth.psn", "infiniband.reth.va",
              "infiniband.reth.dmalen"]
    done = subprocess.run(["tshark", "-r", capture, "-Y", "infiniband", "-T", "fields",
                           *(word for field in fields for word in ("-e", field))],
                          capture_output=True, text=True, timeout=120, check=True)
    asked, answered, end = set(), set(), None
    for line in done.stdout.splitlines():
        way, opcode, psn, address, length = (line.split("\t") + [""] * 5)[:5]
        way, opcode, psn = int(way, 0), int(opcode), int(psn)
        if way == OUTBOUND and opcode == READ_REQUEST:
            here = int(address, 0) + int(length, 0)
            end = max(end or 0, here)       # one READ at a time, and the whole one first
            if here < end:
                asked.add(psn)
        elif way == INBOUND and opcode in READ_RESPONSES and psn in asked:
            answered.add(psn)
    return asked, answered


@pytest.mark.parametrize("recovery", ["go_back_n", "selective_repeat"])
def test_kernel_and_ghost_under_loss(node, reports, sockets, recovery):
    """Each in turn requests every RC operation of the other; both check all data. The kernel knows nothing of marks."""
    nic = reports / f"{recovery}.yaml"
    nic.write_text(yaml.safe_dump({"nic": recovery, "recovery": recovery}))
    asks = {"name": "asks", "addresses": "10.77.0.30/24", "nic": str(nic),
            "qp_defaults": {"path_mtu": 1024, "timeout": 16},
            "personalities": [{"rcops": {"connect": "10.77.0.1", "port": 7490, "length": f"{OPERATION_BYTES}B"}}]}
    emulator = Emulator(reports / f"under-loss-{recovery}",
                        {"p0": plug(sockets, 0, ROOT / "profiles/lossy-1pct-data.yaml",
                                    [{**SERVER, "nic": str(nic), "qp_defaults": {"path_mtu": 1024}}, asks])})
    before = node.hw_counters()
    serves = node.spawn(f"rcops -s 10.77.0.1 7490 {OPERATION_BYTES}", RUN_LIMIT_S)
    with emulator:
        wait_for_link(node, GHOST_IPV4)
        assert "PASSED" in serves.wait()
        assert "PASSED" in node.run(f"rcops -c {GHOST_IPV4} 7471 {OPERATION_BYTES}", RUN_LIMIT_S)
        ours = emulator.ask("counters")
        ghosts = {ghost["name"]: " ".join(ghost["personalities"]) for ghost in emulator.ask("ghosts")["ghosts"]}
    kernel = {name: count - before[name] for name, count in node.hw_counters().items()}
    names = ["loss", "out_of_sequence", "out_of_order_kept", "out_of_seq_request", "naks_sent", "duplicate_request",
             "selective_repeat_fallbacks", "retransmitted_packets"]
    print(recovery, {name: ours.get(name, 0) for name in names}, "kernel", kernel)
    assert "1 done, 0 failed" in ghosts["server"] and "1 done, 0 failed" in ghosts["asks"]
    kept, discarded, fallbacks = (ours.get(name, 0) for name in ("out_of_order_kept", "out_of_seq_request",
                                                                 "selective_repeat_fallbacks"))
    if recovery == "selective_repeat":
        assert kept > 0 and discarded == 0
        assert fallbacks == ours["packet_seq_err"] > 0      # the kernel discards: each of its NAKs
        asked, answered = parts_of_reads(emulator.capture)
        print(f"{len(asked)} parts of READs asked for, {len(answered)} answered")
        assert answered
    else:
        assert kept == fallbacks == 0 < discarded
