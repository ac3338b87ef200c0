"""Ten thousand connections come up and go down through the CM, and leave nothing behind."""
import time

from conftest import GHOST_IPV4, SERVER, plug, wait_for_link
from emulator import Emulator

ROUNDS, AT_ONCE = 10, 1000
ROUND_LIMIT_S = 60
TIMEWAIT_LIMIT_S = 30      # a connection's numbers stay reserved for a while after its end
RPING_PORT = 7174


def leftovers(emulator):
    status = emulator.ask("status")
    return {port["name"]: {key: port[key] for key in ("qps", "connections", "frames_in_use")}
            for port in status["ports"]}


def test_ten_thousand_connections_leave_nothing(node, reports, sockets):
    with Emulator(reports / "churn", {"p0": plug(sockets, 0, {}, [SERVER])}) as emulator:
        wait_for_link(node, GHOST_IPV4)
        before = leftovers(emulator)
        for _ in range(ROUNDS):
            node.run(f"cmtime -s {GHOST_IPV4} -p {RPING_PORT} -c {AT_ONCE}", ROUND_LIMIT_S)
        end = time.monotonic() + TIMEWAIT_LIMIT_S
        while leftovers(emulator) != before and time.monotonic() < end:
            time.sleep(0.5)
        assert leftovers(emulator) == before
        counters = emulator.ask("counters")
        assert counters["cm_established"] == counters["cm_disconnected"] == ROUNDS * AT_ONCE
