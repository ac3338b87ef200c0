#!/usr/bin/python3
"""Builds the image of the real node: Debian's own kernel and a small initramfs with soft-RoCE and the usual programs.

Nothing is installed: packages are downloaded and unpacked into the cache, ${XDG_CACHE_HOME:-~/.cache}/neuronabox/vm-HASH.
HASH is that of this folder, so a changed recipe builds anew and an unchanged one costs nothing. The path of the image
is the last line printed. The kernel is stored uncompressed: unpacking it in the emulated guest would cost seconds.
"""
import bz2
import hashlib
import lzma
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

RECIPE = Path(__file__).resolve().parent
LIB = "lib/x86_64-linux-gnu"
PACKAGES = """busybox-static perftest ibverbs-utils rdmacm-utils iproute2 ibverbs-providers libibverbs1 librdmacm1
    libibumad3 libnl-3-200 libnl-route-3-200 libpci3 libudev1 libmnl0 libbsd0 libmd0 libcap2 libbpf1 libelf1 zlib1g
    libc6 libgcc-s1 libibverbs-dev librdmacm-dev""".split()
PROGRAMS = """ibv_devinfo ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ib_write_bw ib_write_lat ib_read_bw
    ib_read_lat ib_send_bw ib_send_lat ib_atomic_bw ib_atomic_lat rping udaddy cmtime rstream rdma ip""".split()
MODULES = """virtio_pci virtio_net virtio_console crc32_generic ib_uverbs ib_cm rdma_cm rdma_ucm rdma_rxe""".split()
COMMAND_LIMIT_S = 300


def call(*command, **options):
    """Runs a command; a failure ends the build and shows what the command said."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=COMMAND_LIMIT_S, check=False, **options)
    if done.returncode:
        sys.exit(f"build_image: {command[0]} failed ({done.returncode}):\n{done.stdout}")
    return done.stdout


def cache_folder():
    digest = hashlib.sha256()
    for path in sorted(p for p in RECIPE.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
        digest.update(str(path.relative_to(RECIPE)).encode() + b"\0" + path.read_bytes())
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "neuronabox" / f"vm-{digest.hexdigest()[:16]}"


def kernel_package():
    """linux-image-amd64 is a name for the newest kernel; refreshes the package lists when they are not there."""
    for attempt in range(2):
        found = re.search(r"Depends: (linux-image-\S+)", call("apt-cache", "depends", "linux-image-amd64")
                          if attempt or call("apt-cache", "search", "--names-only", "^linux-image-amd64$") else "")
        if found:
            return found.group(1)
        call("apt-get", "update", "-qq")
    sys.exit("build_image: apt knows no linux-image-amd64")


def unpack_packages(work, packages):
    debs, unpacked = work / "debs", work / "unpacked"
    debs.mkdir()
    call("apt-get", "download", "-qq", *packages, cwd=debs)
    for deb in debs.iterdir():
        call("dpkg", "-x", deb, unpacked)
    return unpacked


def extract_vmlinux(bzimage, target):
    """The ELF kernel inside a bzImage (Documentation/arch/x86/boot.rst: setup_sects, payload_offset, payload_length)."""
    image = bzimage.read_bytes()
    setup_sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    payload = image[(setup_sectors + 1) * 512 + offset:][:length]
    unpackers = {b"\xfd7zXZ\0": lambda data: lzma.LZMADecompressor().decompress(data),
                 b"\x1f\x8b": lambda data: zlib.decompressobj(31).decompress(data),
                 b"BZh": bz2.decompress}
    kernel = next((unpack(payload) for magic, unpack in unpackers.items() if payload.startswith(magic)), b"")
    if not kernel.startswith(b"\x7fELF"):
        sys.exit(f"build_image: no ELF kernel in {bzimage.name}, payload starts with {payload[:6]!r}")
    target.write_bytes(kernel)


def needed_libraries(path):
    """The DT_NEEDED names of a 64-bit ELF file; none for anything else."""
    data = path.read_bytes()
    if data[:5] != b"\x7fELF\x02":
        return []
    table, = struct.unpack_from("<Q", data, 32)
    entry_size, entries = struct.unpack_from("<HH", data, 54)
    loads, dynamic = [], None
    for i in range(entries):
        kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", data, table + i * entry_size)
        if kind == 1:
            loads.append((address, size, offset))
        elif kind == 2:
            dynamic = data[offset:offset + size // 16 * 16]
    if dynamic is None:
        return []
    tags = list(struct.iter_unpack("<QQ", dynamic))
    strings_at = next(value for tag, value in tags if tag == 5)
    strings = next(offset + strings_at - address for address, size, offset in loads
                   if address <= strings_at < address + size)
    return [data[strings + value:data.index(b"\0", strings + value)].decode() for tag, value in tags if tag == 1]


def copy_libraries(unpacked, tree):
    """Copies what the programs in the tree need, and what those need in turn."""
    index = {path.name: path for path in unpacked.rglob("*.so*") if "lib" in path.relative_to(unpacked).as_posix()}
    queue = [path for path in tree.rglob("*") if path.is_file() and not path.is_symlink() and path.suffix != ".ko"]
    done = {"ld-linux-x86-64.so.2"}
    while queue:
        for name in needed_libraries(queue.pop()):
            if name in done:
                continue
            done.add(name)
            if name not in index:
                sys.exit(f"build_image: library {name} is in none of the packages")
            queue.append(Path(shutil.copy(index[name].resolve(), tree / LIB / name)))


def copy_modules(unpacked, tree, version):
    source, target = unpacked / "lib/modules" / version, tree / "lib/modules" / version
    busybox = unpacked / "bin/busybox"
    call(busybox, "depmod", "-b", unpacked, version)
    needs = {}
    for line in (source / "modules.dep").read_text().splitlines():
        module, _, rest = line.partition(":")
        needs[module] = rest.split()
    by_name = {Path(module).stem.replace("-", "_"): module for module in needs}
    queue, seen = [by_name[name] for name in MODULES], set()
    while queue:
        module = queue.pop()
        if module not in seen:
            seen.add(module)
            queue += needs[module]
    for module in (*seen, "modules.builtin", "modules.order"):
        (target / module).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / module, target / module)
    call(busybox, "depmod", "-b", tree, version)


def build_tree(unpacked, tree, version):
    for folder in ("bin", "sbin", "dev", "proc", "sys", "tmp", "etc/libibverbs.d", "lib64", f"{LIB}/libibverbs", "usr"):
        (tree / folder).mkdir(parents=True)
    (tree / "usr/bin").symlink_to("../bin")
    (tree / "usr/lib").symlink_to("../lib")
    (tree / "etc/libibverbs.d/rxe.driver").write_text("driver rxe\n")
    (tree / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
    (tree / "etc/hosts").write_text("127.0.0.1 localhost\n")

    busybox = unpacked / "bin/busybox"
    shutil.copy(busybox, tree / "bin/busybox")
    (tree / "sbin/modprobe").symlink_to("../bin/busybox")
    for applet in set(call(busybox, "--list").split()) - {"busybox", "ip"}:
        (tree / "bin" / applet).symlink_to("busybox")
    shutil.copy(RECIPE / "guest/init", tree / "init")

    for program in PROGRAMS:
        places = [unpacked / folder / program for folder in ("usr/bin", "bin", "sbin", "usr/sbin")]
        shutil.copy(next(p for p in places if p.is_file() and not p.is_symlink()), tree / "bin" / program)
    for source in sorted((RECIPE / "guest").glob("*.c")):
        call("gcc", "-O2", "-Wall", "-Werror", f"-I{unpacked}/usr/include", "-o", tree / "bin" / source.stem, source,
             f"-L{unpacked}/usr/{LIB}", f"-Wl,-rpath-link,{unpacked}/usr/{LIB}", "-lrdmacm", "-libverbs")

    shutil.copy(next(unpacked.rglob("librxe-rdmav*.so")), tree / LIB / "libibverbs")
    shutil.copy(next(unpacked.rglob("ld-linux-x86-64.so.2")).resolve(), tree / "lib64/ld-linux-x86-64.so.2")
    shutil.copy(next(unpacked.rglob("libgcc_s.so.1")), tree / LIB)    # dlopened by pthread_exit
    copy_libraries(unpacked, tree)
    copy_modules(unpacked, tree, version)


def build(work):
    kernel = kernel_package()
    version = kernel.removeprefix("linux-image-")
    unpacked, tree = unpack_packages(work, [kernel, *PACKAGES]), work / "tree"
    extract_vmlinux(unpacked / f"boot/vmlinuz-{version}", work / "vmlinux")
    build_tree(unpacked, tree, version)
    listing = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
    with open(work / "initrd.cpio", "wb") as archive:        # not compressed: unpacking is a copy
        subprocess.run([unpacked / "bin/busybox", "cpio", "-o", "-H", "newc", "-R", "0:0"], cwd=tree, check=True,
                       input=listing.encode(), stdout=archive, stderr=subprocess.DEVNULL, timeout=COMMAND_LIMIT_S)
    for folder in (work / "debs", unpacked, tree):
        shutil.rmtree(folder)


def image():
    """The folder with vmlinux and initrd.cpio, built when it is not there. Two builders at once do no harm."""
    folder = cache_folder()
    if not folder.exists():
        print("building the real node's image (half a minute) ...", file=sys.stderr, flush=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="building-", dir=folder.parent))
        try:
            build(work)
            work.rename(folder)
        except OSError:
            if not folder.exists():                          # otherwise another builder was faster
                raise
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return folder


if __name__ == "__main__":
    print(image())
