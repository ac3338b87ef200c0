"""The real node: a QEMU machine whose Linux kernel runs soft-RoCE, its NIC wired to a vhost-user socket of the emulator.

    with RealNode(folder, "node0", ["10.77.0.1/24", "fd77::1/64"], net="vhost:/path/p0.sock") as node:
        print(node.run("ibv_devinfo"))
        server = node.spawn("rcops -s 10.77.0.1")       # in the background
        node.run("rcops -c 10.77.0.9")
        print(server.wait())

Needs no KVM and no privileges. Every wait is bounded, and its error names what was waited for. Files below the folder:
NAME.console (the guest's kernel), NAME.qemu (what QEMU said).
"""
import base64
import ipaddress
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "image"))
from build_image import image  # noqa: E402

BOOT_LIMIT_S = 90        # 4 s on a quiet host
ANSWER_MARGIN_S = 15     # the guest ends a command by itself; this is for the answer to come through
STOP_LIMIT_S = 10
KERNEL_PARAMETERS = """console=ttyS0 quiet loglevel=4 mitigations=off nokaslr tsc=reliable no_timer_check audit=0
    apparmor=0 random.trust_cpu=on 8250.nr_uarts=1 rcupdate.rcu_expedited=1 cryptomgr.notests=1 panic=-1 reboot=t"""
# Complete frames on the link: no checksum or segmentation is left to a device that does not exist.
NIC_OPTIONS = """csum=off,guest_csum=off,gso=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,
    host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off,mrg_rxbuf=on,rx_queue_size=1024,romfile="""


class NodeError(Exception):
    """The node, or a command in it, did not do what was asked."""


def mac_of(addresses):
    """The MAC address that a node with these addresses has."""
    return f"52:54:00:00:00:{int(ipaddress.ip_interface(addresses[0]).ip) & 0xff:02x}"


class Job:
    """A command that runs in the node."""

    def __init__(self, node, command, limit_s):
        self.node, self.command, self.limit_s = node, command, limit_s
        self.done = threading.Event()
        self.status, self.output = None, ""

    def finish(self, status, output):
        self.status, self.output = status, output
        self.done.set()

    def wait(self, expect=0):
        """The output, once the command has ended; NodeError when its status is not `expect` (None: any)."""
        if not self.done.wait(self.limit_s + ANSWER_MARGIN_S):
            raise NodeError(f"{self.node.name}: no answer to '{self.command}' within {self.limit_s} s: "
                            f"{self.node.last_words()}")
        if expect is not None and self.status != expect:
            cause = f"still running after {self.limit_s} s" if self.status == 143 else f"status {self.status}"
            raise NodeError(f"{self.node.name}: '{self.command}': {cause}\n{self.output}")
        return self.output


class RealNode:
    """One machine. `net` is vhost:SOCKET (the emulator listens), listen:SOCKET or connect:SOCKET (two machines, no
    emulator between them), or tap:NAME, a tap in the network namespace that is given. `files`: of this host, by their
    paths in the node; they take of its memory."""

    def __init__(self, folder, name, addresses, net, mtu=4200, memory_mb=256, files=None, namespace=None):
        self.folder, self.name = Path(folder), name
        interfaces = [ipaddress.ip_interface(address) for address in addresses]
        self.ipv4 = next((str(i.ip) for i in interfaces if i.version == 4), None)
        self.ipv6 = next((str(i.ip) for i in interfaces if i.version == 6), None)
        self.mac = mac_of(addresses)
        self.console = self.folder / f"{name}.console"
        self.agent_path = self.folder / f"{name}.agent"
        self.process = self.agent = None
        self.jobs, self.next_id, self.lock = {}, 1, threading.Lock()
        kernel, parameters = image(), " ".join(KERNEL_PARAMETERS.split())
        self.command = [
            *(["ip", "netns", "exec", namespace] if namespace else []), "qemu-system-x86_64", "-M", "pc", "-accel", "tcg", "-cpu", "max", "-m", str(memory_mb),
            "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", f"file:{self.console}",
            "-object", f"memory-backend-memfd,id=ram,share=on,size={memory_mb}M", "-machine", "memory-backend=ram",
            "-kernel", str(kernel / "vmlinux"), "-initrd", str(self._initrd(kernel / "initrd.cpio", files or {})),
            "-append", f"{parameters} node_addresses={','.join(addresses)} node_mtu={mtu}",
            "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name=agent",
            "-chardev", f"socket,id=agent,server=on,wait=off,path={self.agent_path}",
            *self._network(net, max(mtu, 1500))]

    def _initrd(self, image_initrd, files):
        """The image's archive; with files, a copy that a second archive follows: Linux unpacks both."""
        if not files:
            return image_initrd
        tree, initrd = self.folder / f"{self.name}.files", self.folder / f"{self.name}.initrd"
        for name, source in files.items():
            target = tree / name.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
        names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
        shutil.copy(image_initrd, initrd)
        with open(initrd, "ab") as archive:
            subprocess.run(["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"], cwd=tree, input=names.encode(),
                           stdout=archive, check=True)
        shutil.rmtree(tree)
        return initrd

    def _network(self, net, mtu):
        kind, _, path = net.partition(":")
        nic = f"virtio-net-pci,netdev=n0,mac={self.mac},host_mtu={mtu}," + "".join(NIC_OPTIONS.split())
        if kind == "vhost":      # without KVM, QEMU 7.2 crashes when a vhost-user NIC uses MSI-X
            return ["-chardev", f"socket,id=vhost,reconnect=1,path={path}",
                    "-netdev", "vhost-user,id=n0,chardev=vhost", "-device", nic + ",vectors=0"]
        if kind == "tap":
            return ["-netdev", f"tap,id=n0,ifname={path},script=no,downscript=no", "-device", nic]
        server = {"listen": "on", "connect": "off"}[kind]
        return ["-netdev", f"stream,id=n0,server={server},addr.type=unix,addr.path={path}", "-device", nic]

    def start(self):
        """Starts the machine and waits until rxe0 is there."""
        self.launch()
        self.wait_ready()
        return self

    def launch(self):
        """Starts the machine; several can boot side by side before wait_ready()."""
        self.agent_path.unlink(missing_ok=True)
        self.jobs["ready"] = self.ready = Job(self, "boot", BOOT_LIMIT_S)
        with open(self.folder / f"{self.name}.qemu", "wb") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def wait_ready(self):
        end = time.monotonic() + BOOT_LIMIT_S
        while self.agent is None:
            agent = socket.socket(socket.AF_UNIX)
            try:
                agent.connect(str(self.agent_path))
                self.agent = agent
            except OSError:
                agent.close()
                if time.monotonic() > end or self.process.poll() is not None:
                    raise NodeError(f"{self.name}: QEMU did not start: {self.last_words()}") from None
                time.sleep(0.05)
        threading.Thread(target=self._read_answers, daemon=True).start()
        self.ready.wait()

    def spawn(self, command, limit_s=60):
        """Starts a shell command in the node, which ends it after limit_s seconds."""
        with self.lock:
            job, name = Job(self, command, limit_s), str(self.next_id)
            self.next_id += 1
            self.jobs[name] = job
            self.agent.sendall(f"{name} {limit_s} {base64.b64encode(command.encode()).decode()}\n".encode())
        return job

    def run(self, command, limit_s=60, expect=0):
        return self.spawn(command, limit_s).wait(expect)

    def get(self, path):
        """The text of a file in the node."""
        return self.run(f"cat {path}")

    def hw_counters(self):
        """What rxe counted since the machine booted."""
        lines = self.run("cd /sys/class/infiniband/rxe0/ports/1/hw_counters && grep . *").splitlines()
        return {name: int(value) for name, _, value in (line.partition(":") for line in lines) if value.isdigit()}

    def set_mtu(self, mtu):
        """The MTU of eth0; the path MTU of RDMA follows it (1500 gives 1024, 4200 gives 4096)."""
        self.run(f"ip link set eth0 mtu {mtu}")

    def gid_index(self, address):
        """The index in rxe0's GID table that stands for an address of this node."""
        ip = ipaddress.ip_address(address)
        gid = ip if ip.version == 6 else ipaddress.IPv6Address(int(ip) | 0xffff << 32)    # IPv4-mapped
        for line in self.run("cd /sys/class/infiniband/rxe0/ports/1/gids && grep . *").splitlines():
            index, _, text = line.partition(":")
            if ipaddress.ip_address(text) == gid:
                return int(index)
        raise NodeError(f"{self.name}: rxe0 has no GID for {address}")

    def stop(self):
        """Powers the machine off, or ends its process when it does not answer."""
        if self.process is None:
            return
        try:
            if self.agent is not None:
                self.agent.sendall(b"0 0 POWEROFF\n")
                self.process.wait(STOP_LIMIT_S)
        except (OSError, subprocess.TimeoutExpired):
            pass
        finally:
            self.process.kill()
            self.process.wait()
            if self.agent is not None:
                self.agent.close()
            self.agent_path.unlink(missing_ok=True)

    def last_words(self):
        """The end of what QEMU and the guest's kernel said, for error messages."""
        logs = [self.folder / f"{self.name}.qemu", self.console]
        return "\n".join(path.read_text(errors="replace")[-500:] for path in logs if path.exists()).strip() or "silence"

    def _read_answers(self):
        buffered = b""
        while True:
            try:
                received = self.agent.recv(65536)
            except OSError:
                received = b""
            if not received:
                break
            *lines, buffered = (buffered + received).split(b"\n")
            for line in lines:
                name, status, *output = line.decode().split(" ")
                with self.lock:
                    job = self.jobs.pop(name, None)
                if job:
                    job.finish(int(status), base64.b64decode(output[0]).decode(errors="replace") if output else "")
        for job in list(self.jobs.values()):
            job.finish(-1, f"the machine ended: {self.last_words()}")

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_):
        self.stop()
