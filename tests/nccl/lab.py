"""A real node and its ghosts on one machine: a network namespace with unmodified NCCL on the phantom GPU and the net
plugin, a veth, and nbxd on the other end. Needs root, for the namespaces."""
import itertools
import json
import os
import signal
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("NBX_BIN", ROOT / "build/bin"))
START_LIMIT_S, STOP_LIMIT_S, COMMAND_LIMIT_S = 60, 20, 30
FIRST_GHOST = 100  # 10.77.0.100 and up, or 10.77.x.y for many
MTU = 1500
LABS = itertools.count()


def run(*command, limit_s=COMMAND_LIMIT_S, check=True, **options):
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=limit_s, check=False,
                              **options)
    except subprocess.TimeoutExpired as late:
        raise AssertionError(f"{words}: ended after {limit_s} s\n{text(late.stdout)}\n{text(late.stderr)}") from late
    assert not check or done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done


def text(output):
    return (output or b"").decode(errors="replace")[-4000:]


def phantom_missing():
    """Why NCCL cannot be run here; None when it can."""
    if os.geteuid() != 0:
        return "needs root for network namespaces"
    done = run(ROOT / "tests/nccl/prepare", limit_s=1500, check=False)
    return done.stderr.strip().splitlines()[-1] if done.returncode else None


class Lab:
    """One namespace per real rank in `nodes`, behind a bridge when there are several."""

    def __init__(self, folder, ghosts, nccl, profile="{}", nodes=(0,), seed=1, memory="128MiB"):
        self.folder, self.nodes = folder, nodes
        self.prefix = f"nbx{os.getpid()}-{next(LABS)}-"
        self.emu = f"{self.prefix}emu"
        self.socket, self.log = folder / "nbxd.sock", folder / "nbxd.log"
        self.capture = folder / "wire.pcapng"
        (folder / "profile.yaml").write_text(profile)
        settings = "\n".join(f"  {line}" for line in nccl.strip().splitlines())
        (folder / "cluster.yaml").write_text(f"""
cluster: nccl
seed: {seed}
ports:
  - name: p0
    device: "net_af_packet0,iface=emu0"
    mtu: {MTU}
    profile: ./profile.yaml
ghosts:
  - {{name: g, count: {ghosts}, port: p0, addresses: [10.77.0.{FIRST_GHOST}/16]}}
nccl:
  ghosts: g
{settings}
memory: {{size: {memory}}}
control: {{socket: {self.socket}}}
report: {folder}/report.json
capture: {self.capture}
""")
        self.process = None

    def node(self, rank=0):
        return f"{self.prefix}{rank}"

    @staticmethod
    def address(rank=0):
        return f"10.77.0.{rank + 1}"

    def __enter__(self):
        run("ip", "netns", "add", self.emu)
        for rank in self.nodes:
            run("ip", "netns", "add", self.node(rank))
        try:
            self._wire()
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.process is not None and self.process.poll() is None:
            self.stop()
        for name in [self.emu] + [self.node(rank) for rank in self.nodes]:
            run("ip", "netns", "delete", name, check=False)

    def _wire(self):
        emu = ["ip", "-n", self.emu]
        bridged = len(self.nodes) > 1
        if bridged:
            run(*emu, "link", "add", "emu0", "mtu", MTU, "type", "veth", "peer", "name", "br-emu")
            run(*emu, "link", "add", "br0", "mtu", MTU, "type", "bridge")
            run(*emu, "link", "set", "br-emu", "mtu", MTU, "master", "br0")
        for rank in self.nodes:
            outer = f"up{rank}" if bridged else "emu0"
            run(*emu, "link", "add", outer, "mtu", MTU, "type", "veth", "peer", "name", "eth0", "netns",
                self.node(rank))
            if bridged:
                run(*emu, "link", "set", outer, "master", "br0", "up")
            node = ["ip", "-n", self.node(rank)]
            run(*node, "link", "set", "lo", "up")
            run(*node, "link", "set", "eth0", "mtu", MTU)
            run(*node, "address", "add", f"{self.address(rank)}/16", "dev", "eth0")
            run(*node, "link", "set", "eth0", "up")
            run("ip", "netns", "exec", self.node(rank), "ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso",
                "off")
        for name in ["emu0"] + (["br-emu", "br0"] if bridged else []):
            run(*emu, "link", "set", name, "up")

    def _start(self):
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(["ip", "netns", "exec", self.emu, BIN / "nbxd", self.folder / "cluster.yaml"],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        end = time.monotonic() + START_LIMIT_S
        while "nbxd: ready" not in self.said():
            assert self.process.poll() is None and time.monotonic() < end, self.said()
            time.sleep(0.05)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_LIMIT_S)

    def kill_node(self, rank=0):
        for pid in run("ip", "netns", "pids", self.node(rank)).stdout.split():
            os.kill(int(pid), signal.SIGKILL)

    def said(self):
        return self.log.read_text(errors="replace")

    def nbx(self, *command):
        return run(BIN / "nbx", *command, "--control", self.socket)

    def ask(self, *command):
        return json.loads(self.nbx(*command, "--json").stdout)

    def command(self, *program, node=0, options=(), **environment):
        """The command line of a program under `nbx run` on a real node."""
        variables = [f"{name}={value}" for name, value in
                     {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_SHM_DISABLE": 1, **environment}.items()]
        return ["ip", "netns", "exec", self.node(node), "env", *variables, BIN / "nbx", "run", "--announce",
                f"10.77.0.{FIRST_GHOST}:4790", "--net", "plugin", *options, "--", ROOT / "tests/nccl/phantom-run",
                *program]

    def start(self, *program, **options):
        return subprocess.Popen([str(word) for word in self.command(*program, **options)], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def call(self, *program, limit_s=120, check=True, **options):
        return run(*self.command(*program, **options), limit_s=limit_s, check=check)
