# SPDX-License-Identifier: Apache-2.0
"""What `make dist-arm64` hands out, its unit tests, and a sandbox on an emulated machine with Debian's kernel for arm64."""
import gzip
import os
import pathlib
import shutil
import subprocess

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def handed_out(tmp_path_factory):
    both = [tmp_path_factory.mktemp(name) for name in ("one", "other")]
    for folder in both:
        subprocess.run([ROOT / "tools/dist-arm64", folder], check=True, stdout=subprocess.DEVNULL)
    return both


def test_two_builds_have_the_same_sums(handed_out):
    sums = [(folder / "SHA256SUMS-arm64").read_text() for folder in handed_out]
    assert sums[0] == sums[1] and len(sums[0].splitlines()) == 5, sums


def test_the_packages_are_for_arm64_and_whole(handed_out, tmp_path):
    for path in handed_out[0].glob("*.deb"):
        assert subprocess.check_output(["dpkg-deb", "-f", path, "Architecture"], text=True) == "arm64\n"
        subprocess.run(["dpkg-deb", "-x", path, tmp_path], check=True)
    for name in ("bin/weir", "libexec/weir/weir-events", "libexec/weir/weir-control"):
        said = subprocess.check_output(["readelf", "-h", tmp_path / "usr" / name], text=True)
        assert "AArch64" in said, said
    assert "weir" in (tmp_path / "usr/share/bash-completion/completions/weir").read_text()


def test_the_program_without_libraries_runs(handed_out, tmp_path):
    tarball, = handed_out[0].glob("*-linux-arm64.tar.gz")
    subprocess.run(["tar", "-C", tmp_path, "--strip-components=1", "-xf", tarball], check=True)
    said = subprocess.check_output(["readelf", "--wide", "--program-headers", "--dynamic", tmp_path / "bin/weir"], text=True)
    assert "NEEDED" not in said and "INTERP" not in said, said
    emulator = ROOT / "build-arm64/usr/bin/qemu-aarch64-static"
    explained = subprocess.run([emulator, tmp_path / "bin/weir", "policy", "explain", "--allow", "bücher.example",
                                "xn--bcher-kva.example:443"], capture_output=True, text=True)
    assert explained.returncode == 0 and "allow" in explained.stdout, explained


def test_the_unit_tests_pass(handed_out):
    done = subprocess.run([ROOT / "tools/dist-arm64", "--test"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    counts = dict(line.split(":") for line in done.stdout.splitlines() if line.startswith(("Ok:", "Fail:")))
    assert int(counts["Ok"]) > 120 and int(counts["Fail"]) == 0, done.stdout[-1000:]


KERNEL = "apt-get update -qq && apt-get install -y -qq --no-install-recommends qemu-system-arm && mkdir -p /kernel && cd /kernel && " \
         "apt-get download linux-image-arm64:arm64 busybox-static:arm64 && apt-get download " \
         "$(dpkg-deb -f linux-image-arm64_*.deb Depends | sed 's/ .*//'):arm64 && for p in *.deb; do dpkg-deb -x $p .; done"
MODULES = ("crypto", "arch/arm64/crypto", "lib", "net/netfilter", "net/ipv4", "net/ipv6", "fs/overlayfs", "drivers/net/veth.ko")


def archive(root):
    """The folder @root as the kernel takes a first root file system (cpio, newc)."""
    out, paths = bytearray(), sorted(root.rglob("*"))
    for number, path in enumerate([*paths, None]):
        name = (str(path.relative_to(root)) if path else "TRAILER!!!").encode() + b"\0"
        mode = path.lstat().st_mode if path else 0
        data = b"" if not path or path.is_dir() and not path.is_symlink() else \
            os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
        fields = (number + 1, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
        for part in (b"070701" + b"".join(b"%08X" % field for field in fields) + name, data):
            out += part + bytes(-len(part) % 4)
    return gzip.compress(bytes(out), 1)


@pytest.fixture(scope="module")
def booted(handed_out, tmp_path_factory):
    """What Debian's kernel for arm64 says, with this `weir`, on an emulated machine."""
    build, root = ROOT / "build-arm64", tmp_path_factory.mktemp("machine")
    subprocess.run(["chroot", build, "sh", "-ec", KERNEL], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    kernel, = (build / "kernel/boot").glob("vmlinuz-*")
    modules = pathlib.Path("lib/modules") / kernel.name.removeprefix("vmlinuz-")
    for name in ("bin", "dev", "etc", "lib", "new", "proc", "sys", "usr/local"):
        (root / name).mkdir(parents=True)
    for part in MODULES:
        subprocess.run(["cp", "--archive", "--parents", modules / "kernel" / part, root], cwd=build / "kernel", check=True)
    for path in (build / "kernel" / modules).glob("modules.*"):
        shutil.copy(path, root / modules)
    subprocess.run(["busybox", "depmod", "-b", root, modules.name], check=True)
    shutil.copy(build / "kernel/bin/busybox", root / "bin")
    for source in (HERE / "name_server.c", ROOT / "tests/world/clients/lookup.c"):
        shutil.copy(source, build / "kernel")
        subprocess.run(["chroot", build, "aarch64-linux-gnu-gcc", "-static", "-specs", "/usr/lib/aarch64-linux-musl/musl-gcc.specs", "-o",
                        f"/kernel/{source.stem}", f"/kernel/{source.name}"], check=True)
        shutil.copy(build / "kernel" / source.stem, root / "bin")
    tarball, = handed_out[0].glob("*-linux-arm64.tar.gz")
    subprocess.run(["tar", "-C", root / "usr/local", "--strip-components=1", "-xf", tarball], check=True)
    (root / "bin/hello").write_text("#!/bin/sh\necho reached\n")
    (root / "bin/hello").chmod(0o755)
    (root / "init").write_text("#!/bin/busybox sh\n" + (HERE / "arm64_init.sh").read_text())
    (root / "init").chmod(0o755)
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\n")
    (root / "etc/resolv.conf").write_text("nameserver 93.1.1.53\n")
    (build / "kernel/initrd").write_bytes(archive(root))
    return subprocess.run(["chroot", build, "qemu-system-aarch64", "-M", "virt", "-cpu", "max,pauth-impdef=on", "-smp", "2", "-m", "1200",
                           "-nographic", "-no-reboot", "-net", "none", "-kernel", f"/kernel/boot/{kernel.name}", "-initrd", "/kernel/initrd",
                           "-append", "console=ttyAMA0 rdinit=/init quiet panic=-1"], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=1800).stdout.replace("\r", "")


def test_a_sandbox_holds_on_an_arm64_kernel(booted):
    said = booted.splitlines()
    assert {"outside: reached reached", "machine: aarch64", "names: 93.1.1.1 failed", "allowed: reached", "denied: ",
            "no further namespace", "status: 0"} <= set(said), booted
    assert [line.lower() for line in said if line.startswith("asked: ") and "denied" in line.lower()] == [], booted
    assert [line for line in said if line.lower() == "asked: allowed.test."], booted
