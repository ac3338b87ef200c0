"""A known fault goes in, and the report says what it cost: every millisecond of an operation has one cause."""
import json
import os
import threading
import time

import pytest

from lab import BIN, ROOT, Lab
from lab import run as call

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces")

CAUSES = ["queueing", "serialisation", "propagation", "recovery", "late_ghost", "between_ghosts", "real_ranks"]


def ghosts(folder, ranks, more="", **options):
    return Lab(folder, ranks - 1, f"ranks: {ranks}\nreal: [0]\npatience: 20s\n{more}", **options)


def all_reduce(place, ranks, count, iterations, **environment):
    place.call("collective_test", "--ranks", ranks, "--real", 0, "--op", "allreduce", "--count", count, "--iters",
               iterations, NCCL_ALGO="Ring", NCCL_PROTO="Simple", **environment)
    operations = place.ask("nccl")["operations"]
    for operation in operations:
        parts = operation["explained"]
        assert set(parts) == {f"{cause}_ms" for cause in CAUSES}
        assert all(part >= 0 for part in parts.values()), operation
        assert sum(parts.values()) + operation["behind_ms"] == pytest.approx(operation["time_ms"]), operation
    return operations


def part(operation, cause):
    return operation["explained"][f"{cause}_ms"]


def faults(operation, effect):
    return [fault for fault in operation["faults"] if fault["effect"] == effect]


def test_nothing_is_blamed_for_nothing(tmp_path):
    with ghosts(tmp_path, 2) as place:
        for operation in all_reduce(place, 2, 1000, 5):
            assert part(operation, "real_ranks") + operation["behind_ms"] == pytest.approx(operation["time_ms"])
            assert not operation["faults"]


def test_a_delay_is_propagation(tmp_path):
    """The ghost's clear-to-send and its data each take 5 ms, one after the other."""
    with ghosts(tmp_path, 2, profile="to_node: {delay: 5ms}") as place:
        for operation in all_reduce(place, 2, 1000, 5):
            assert part(operation, "propagation") >= 5
            assert part(operation, "recovery") == part(operation, "serialisation") == 0
            (delay,) = faults(operation, "delay")
            assert (delay["direction"], delay["rule"]) == ("to_node", 1)
            assert delay["cost_ms"] >= 5
        spent = sum(part(operation, "propagation") for operation in place.ask("nccl")["operations"])
        assert spent >= 5 * 9.9, "two ways in each of five operations"


def test_a_slow_link_is_serialisation(tmp_path):
    with ghosts(tmp_path, 2, profile="to_node: {rate: 100Mb/s}") as place:
        for operation in all_reduce(place, 2, 300007, 3):
            alone_ms = operation["bytes_to_real"] * 8 / 100e6 * 1e3
            assert part(operation, "serialisation") >= 0.95 * alone_ms
            assert part(operation, "serialisation") + part(operation, "queueing") < 1.5 * alone_ms


def test_one_lost_packet(tmp_path):
    """Exactly one, of one operation: the only one that waits until its receiver misses the packet and says so. That is
    after a packet behind it has arrived, and the link is long."""
    delay_ms = 100
    loss = f"to_node: {{rate: 1Gb/s, delay: {delay_ms}ms, loss: {{match: {{class: data}}, frames: 31}}}}"
    with ghosts(tmp_path, 2, profile=loss) as place:
        operations = all_reduce(place, 2, 1000, 6)
        (hit,) = [operation for operation in operations if faults(operation, "loss")]
        (lost,) = faults(hit, "loss")
        assert (lost["direction"], lost["rule"], lost["frames"]) == ("to_node", 1, 1)
        assert lost["cost_ms"] >= 0.99 * max(part(hit, "recovery"), delay_ms)
        others = [operation for operation in operations if operation is not hit]
        assert all(part(operation, "recovery") == 0 for operation in others)


def test_a_straggler_is_named(tmp_path):
    late_ms = 400
    with ghosts(tmp_path, 4, f"stragglers: [{{rank: 2, delay: {late_ms}ms, first: 1, every: 1000}}]") as place:
        operations = all_reduce(place, 4, 1000, 3)
        first, late, *_ = operations
        assert part(first, "late_ghost") == 0
        assert late["latest_ghost_rank"] == 2 and late["latest_by_ms"] == late_ms
        assert 0.9 * late_ms <= part(late, "late_ghost") <= late_ms


def test_the_way_between_ghosts(tmp_path):
    with ghosts(tmp_path, 4, "hop: {latency: 10ms}") as place:
        for operation in all_reduce(place, 4, 1000, 3):
            assert part(operation, "between_ghosts") >= 10, "three ghosts in a row, two hops"
            assert part(operation, "late_ghost") == 0


def test_steps_are_recognised(tmp_path):
    with ghosts(tmp_path, 2, profile="both: {loss: 0.5%}") as place:
        steps = ["sum", "avg", "group"] * 4
        place.call("/usr/bin/python3", ROOT / "tests/nccl/program.py", 2, 0, tmp_path / "id", *steps, "destroy")
        end = time.monotonic() + 10
        while len((said := place.ask("nccl"))["steps"]) < 4 and time.monotonic() < end:
            pass  # the last message is not acknowledged yet
        assert [step["operations"] for step in said["steps"]] == [4] * 4, "a sum, an average, and a group of two"
        for step in said["steps"]:
            assert sum(step["explained"].values()) == pytest.approx(step["in_operations_ms"])
            assert step["in_operations_ms"] <= step["time_ms"] * 1.001
        text = place.nbx("nccl").stdout
        assert "steps:" in text and "recovery" in text


def job_under_way(place, ranks=2, **environment):
    job = place.begin("collective_test", "--ranks", ranks, "--real", 0, "--op", "allreduce", "--count", 1000, "--iters",
                      1000000, NCCL_DEBUG="WARN", **environment)
    while not place.ask("nccl")["operations"]:
        assert job.poll() is None
    return job


def done_operations(place):
    return place.ask("nccl")["communicators"][-1]["operations"]


def test_a_flap_that_nccl_survives(tmp_path):
    """Retries last 8 x 67 ms at either end."""
    with ghosts(tmp_path, 2, "timeout: 14\nretry_cnt: 7") as place:
        job = job_under_way(place, NCCL_IB_TIMEOUT=14, NCCL_IB_RETRY_CNT=7)
        threading.Thread(target=job.stdout.read, daemon=True).start()  # it says more than a pipe holds
        deadline = time.monotonic() + 20
        while not place.ask("counters")["link_down"]:
            assert job.poll() is None and time.monotonic() < deadline
            place.nbx("link", "down", "p0", "--for", "150ms")
            time.sleep(0.3)
        before = done_operations(place)
        time.sleep(1)
        assert job.poll() is None and done_operations(place) > before
        place.kill_node()
        job.wait()


def test_a_flap_that_nccl_does_not_survive(tmp_path):
    """Retries last 4 x 67 ms."""
    with ghosts(tmp_path, 2, "timeout: 14\nretry_cnt: 3") as place:
        job = job_under_way(place, NCCL_IB_TIMEOUT=14, NCCL_IB_RETRY_CNT=3)
        place.nbx("link", "down", "p0", "--for", "3s")
        output, _ = job.communicate(timeout=120)
        assert job.returncode != 0 and "IBV_WC_RETRY_EXC_ERR(12)" in output


def test_error_12_shows_the_lost_packets(tmp_path):
    with ghosts(tmp_path, 2) as place:
        job = job_under_way(place, NCCL_IB_TIMEOUT=14, NCCL_IB_RETRY_CNT=3)
        place.nbx("profile", "load", "p0", "retry-exceeded")
        output, _ = job.communicate(timeout=120)
        assert job.returncode != 0 and "IBV_WC_RETRY_EXC_ERR(12)" in output
        hit = [operation for operation in place.ask("nccl")["operations"] if faults(operation, "loss")][-1]
        assert not hit["done"]
        (lost,) = faults(hit, "loss")
        counted = place.ask("counters")["loss"]
        place.stop()
    assert lost["direction"] == "from_node" and lost["frames"] >= 4, "sent once, and three times again"
    seen = json.loads(call(BIN / "nbx", "inspect", "--qps", 0, "--json", place.capture).stdout)
    assert seen["interfaces"][0]["inbound"]["dropped_by_reason"]["loss"] == counted
    (flow,) = [flow for flow in seen["flows"] if flow["dest_qpn"] == lost["first"]["dest_qpn"]
               and flow["treatment"]["dropped"]]
    assert flow["retransmissions"] >= 3


def test_an_event_on_an_edge_between_ranks(tmp_path):
    """Rank 0 is real: the third packet with data that it sends to rank 1 on channel 0, and no other, is lost."""
    lose = ("events: [{name: third, direction: from_node, do: drop, "
            "match: {nccl: {from: 0, to: 1, channel: 0}, class: data, nth: 3}}]")
    with ghosts(tmp_path, 3, profile=lose) as place:
        job = job_under_way(place, 3, NCCL_MIN_NCHANNELS=2, NCCL_MAX_NCHANNELS=2, NCCL_ALGO="Ring")
        edges = {(qp["ghost"], qp["qpn"]): qp["nccl"] for qp in place.ask("qps")["qps"]}
        deadline = time.monotonic() + 20
        while not place.ask("events")["firings"]:
            assert job.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        place.kill_node()
        job.wait()
        (fired,) = place.ask("events")["firings"]
        place.stop()
    ring = {"0->1 channel 0", "0->1 channel 1", "2->0 channel 0", "2->0 channel 1"}
    assert ring <= set(edges.values()) and len(set(edges.values())) == len(edges), "and those of trees"
    assert edges[fired["ghost"], fired["dest_qpn"]] == "0->1 channel 0" and "write" in fired["opcode"].lower()
    seen = json.loads(call(BIN / "nbx", "inspect", "--qps", 0, "--json", place.capture).stdout)
    dropped = [flow["dest_qpn"] for flow in seen["flows"] if flow["treatment"]["dropped"]]
    assert dropped == [fired["dest_qpn"]]
