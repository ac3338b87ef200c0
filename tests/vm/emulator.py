"""One run of nbxd: writes its cluster file and profiles, starts it, asks it, stops it.

    emulator = Emulator(folder, {"p0": Port(socket, profile="ideal", nodes=[...], ghosts=[...])})
    emulator.start(); print(emulator.counters()); emulator.stop()

Every wait is bounded and ends with what nbxd said. Files below the folder: cluster.yaml, PORT.yaml, nbxd.log, out.pcapng.
"""
import json
import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("NBX_BIN", ROOT / "build/bin"))
START_LIMIT_S = 60      # half a second on a quiet host
STOP_LIMIT_S = 15
ASK_LIMIT_S = 10


class EmulatorError(Exception):
    """nbxd, or a command that talks to it, did not do what was asked."""


@dataclass
class Port:
    """A vhost-user socket on which a real node's NIC is plugged in."""
    socket: Path
    profile: dict | Path                    # the profile itself, or a file
    nodes: list = field(default_factory=list)
    ghosts: list = field(default_factory=list)


class Emulator:
    def __init__(self, folder, ports, seed=1, **sections):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.ports, self.process = ports, None
        self.log, self.capture = self.folder / "nbxd.log", self.folder / "out.pcapng"
        self.control = next(iter(ports.values())).socket.with_name("nbxd.sock")
        cluster = {"cluster": "vm-suite", "seed": seed, "ports": [], "nodes": [], "ghosts": [],
                   "capture": {"file": str(self.capture)}, "control": {"socket": str(self.control)}, "memory": {"size": "256MiB"},
                   **sections}
        for number, (name, port) in enumerate(ports.items()):
            profile = port.profile
            if isinstance(profile, dict):
                profile = self.folder / f"{name}.yaml"
                profile.write_text(yaml.safe_dump(port.profile, sort_keys=False))
            cluster["ports"].append({"name": name, "device": f"net_vhost{number},iface={port.socket},queues=1",
                                     "profile": str(profile), "mtu": 4200})
            cluster["nodes"] += [{**node, "port": name} for node in port.nodes]
            cluster["ghosts"] += [{**ghost, "port": name} for ghost in port.ghosts]
        self.cluster = self.folder / "cluster.yaml"
        self.cluster.write_text(yaml.safe_dump(cluster, sort_keys=False))

    def start(self):
        """Starts nbxd and waits until it answers on its control socket."""
        for stale in (self.control, *(port.socket for port in self.ports.values())):
            stale.unlink(missing_ok=True)
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([BIN / "nbxd", self.cluster], cwd=self.folder, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log)
        end = time.monotonic() + START_LIMIT_S
        while subprocess.run(self._command("status"), capture_output=True, timeout=ASK_LIMIT_S, check=False).returncode:
            if self.process.poll() is not None:
                raise EmulatorError(f"nbxd ended with status {self.process.returncode}: {self.last_words()}")
            if time.monotonic() > end:
                self.stop()
                raise EmulatorError(f"nbxd did not answer within {START_LIMIT_S} s: {self.last_words()}")
            time.sleep(0.1)
        return self

    def ask(self, question):
        """What `nbx QUESTION --json` says."""
        done = subprocess.run(self._command(question), capture_output=True, text=True, timeout=ASK_LIMIT_S, check=False)
        if done.returncode:
            raise EmulatorError(f"nbx {question}: status {done.returncode}: {done.stderr or done.stdout}")
        return json.loads(done.stdout)

    def stop(self):
        """Ends nbxd as a user would, by SIGTERM; its exit status."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.terminate()
        try:
            status = self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise EmulatorError(f"nbxd did not end within {STOP_LIMIT_S} s of SIGTERM: {self.last_words()}") from None
        finally:
            self.process = None
        return status

    def last_words(self):
        return self.log.read_text(errors="replace")[-2000:] or "silence"

    def _command(self, question):
        return [BIN / "nbx", question, "--json", "--control", self.control]

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()
