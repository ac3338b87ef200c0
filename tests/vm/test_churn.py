"""Ten thousand connections come up and go down through the CM, and leave nothing behind."""
import time

from conftest import GHOST_IPV4, SERVER, plug, wait_for_link
from emulator import Emulator

CONNECTIONS = 10_000
CHURN_LIMIT_S = 240
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
        output = node.run(f"cmchurn {GHOST_IPV4} {RPING_PORT} {CONNECTIONS}", CHURN_LIMIT_S)
        assert f"{CONNECTIONS} of {CONNECTIONS} connections" in output
        end = time.monotonic() + TIMEWAIT_LIMIT_S
        while leftovers(emulator) != before and time.monotonic() < end:
            time.sleep(0.5)
        assert leftovers(emulator) == before
        assert emulator.ask("counters")["cm_established"] == CONNECTIONS
