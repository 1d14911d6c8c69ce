# SPDX-License-Identifier: Apache-2.0
"""I: what the command may ask of the kernel: protocols, options of sockets, modes of files, limits, terminals."""
import contextlib
import fcntl
import json
import os
import pathlib
import platform
import stat
import subprocess
import tempfile

import pytest

PYTHON = ("/usr/bin/python3", "-ISc")
SEGFAULT = "139"  # the exit status by which a shell tells of one
X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86_64")

PROTOCOLS = """
import json, socket
made = []
for family in (socket.AF_INET, socket.AF_INET6):
    for kind in range(1, 11):
        for protocol in (*range(0, 300), 512, 65535, 65536 + 6, 2 ** 31 - 1):
            try:
                socket.socket(family, kind, protocol).close()
                made.append((family, kind, protocol))
            except OSError:
                pass
print(json.dumps(made))
"""
KNOWN = {(family, kind, protocol) for family, icmp in ((2, 1), (10, 58))
         for kind, protocols in ((1, (0, 6)), (2, (0, 17, icmp))) for protocol in protocols}


def test_I1_only_the_known_protocols_can_be_had(inside):
    """Others send from sockets of the kernel's own: SMC, further connections of MPTCP, SCTP."""
    outside = {tuple(row) for row in json.loads(subprocess.run([*PYTHON, PROTOCOLS], capture_output=True, check=True).stdout)}
    done = inside(*PYTHON, PROTOCOLS)
    inside = {tuple(row) for row in json.loads(done.text)}
    assert inside <= KNOWN and {(2, 1, 6), (2, 2, 17), (10, 1, 0), (10, 2, 0)} <= inside, inside
    if not outside - KNOWN:
        pytest.skip("this kernel has no other")


@X86
def test_I1_the_upper_half_of_an_argument_opens_nothing(attack, attack_program, user):
    """The kernel reads 32 bits. Nothing, one bit and all bits of the upper ones."""
    calls = []
    for protocol in (262, 136, 256):
        kind = 2 if protocol == 136 else 1
        for upper in (0, 1 << 32, 0xffffffff << 32):
            calls += [(41, 2, kind, upper | protocol), (41, 2, upper | kind, protocol), (41, upper | 2, kind, protocol)]
    *refused, works = attack.calls(attack_program, *[("syscall", *map(_signed, c)) for c in (*calls, (41, 2, 1, 6))], user=user)
    for numbers, (word, _) in zip(calls, refused):
        assert word in {"EPROTONOSUPPORT", "EAFNOSUPPORT"}, (numbers, word)
    assert works == ("ok", "0")


@X86
def test_I1_nor_does_the_32_bit_entry(attack, attack_program, has_int80, user):
    for said in attack.calls(attack_program, ("int80", 359, 2, 1, 262), ("int80", 359, 2, 1, 256), user=user):
        assert said == (("EPROTONOSUPPORT", "0") if has_int80 else ("", SEGFAULT))


def _signed(number):
    return number - (1 << 64) if number >> 63 else number


OPTIONS = """
import errno, json, socket, struct
said = {}
def tried(what, call):
    try:
        call()
        said[what] = "ok"
    except OSError as e:
        said[what] = errno.errorcode[e.errno]
tcp, udp = socket.socket(), socket.socket(type=socket.SOCK_DGRAM)
for name, option, value in (("device", 25, b"lo"), ("index", 62, struct.pack("i", 1)), ("dontroute", 5, struct.pack("i", 1)),
                            ("keepalive", socket.SO_KEEPALIVE, struct.pack("i", 1))):
    tried(name, lambda: tcp.setsockopt(1, option, value))
    tried(name + " udp", lambda: udp.setsockopt(1, option, value))
for name, option in (("reuseport", 51), ("reuseport ebpf", 52)):
    tried(name, lambda: udp.setsockopt(1, option, struct.pack("i", 1)))
tried("smc", lambda: tcp.setsockopt(6, 31, b"smc"))
one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)  # where no filter of packets has a say
for flag, name in ((4, "dontroute"), (0, "plain")):
    tried(name + " sendmsg", lambda: one.sendmsg([b"x"], [], flag))
    tried(name + " send", lambda: one.send(b"x", flag))
print(json.dumps(said))
"""


def test_I2_no_socket_chooses_its_link(inside):
    done = inside(*PYTHON, OPTIONS)
    said = json.loads(done.text)
    refused = {name for name, result in said.items() if result == "EPERM"}
    assert refused == {"device", "device udp", "index", "index udp", "dontroute", "dontroute udp", "dontroute sendmsg",
                       "dontroute send"}, said
    assert {said.pop("reuseport"), said.pop("reuseport ebpf")} == {"ENOPROTOOPT"}  # I9
    assert said.pop("smc") == "ENOENT" and {said[name] for name in said.keys() - refused} == {"ok"}, said


MODES = """
import ctypes, json, os, stat
libc = ctypes.CDLL(None, use_errno=True)
def syscall(*args):
    if libc.syscall(*args) < 0:
        raise OSError(ctypes.get_errno(), "")
def opened(flags):
    os.close(os.open("opened", flags, mode))
def unnamed():
    fd = os.open(".", os.O_TMPFILE | os.O_RDWR, mode)
    syscall(265, -100, b"/proc/self/fd/%d" % fd, -100, b"unnamed", 0x400)
def descriptor():
    fd = os.open("descriptor", os.O_CREAT | os.O_RDWR, 0o755)
    os.fchmod(fd, mode)
def again(number, *args):
    os.close(os.open("again", os.O_CREAT | os.O_RDWR, 0o755))
    syscall(number, *args)
def how():
    syscall(437, -100, b"how", (ctypes.c_ulonglong * 3)(os.O_CREAT | os.O_RDWR, mode, 0), 24)
old = lambda: syscall(85, b"old", mode)
said = {}
for mode in (0o4755, 0o2755, 0o6755, 0o755):
    for name, call in (("create", lambda: opened(os.O_CREAT | os.O_RDWR)), ("unnamed", unnamed), ("descriptor", descriptor),
                       ("node", lambda: os.mknod("node", stat.S_IFREG | mode)), ("chmod", lambda: again(90, b"again", mode)),
                       ("fchmodat", lambda: again(268, -100, b"again", mode)),
                       ("fchmodat2", lambda: again(452, -100, b"again", mode, 0)), ("openat2", how), ("creat", old)):
        os.umask(0)
        try:
            call()
            said[f"{name} {mode:o}"] = "ok"
        except OSError as e:
            said[f"{name} {mode:o}"] = e.errno
        for left in os.listdir("."):
            if left.startswith("set-"):
                continue
            if os.stat(left).st_mode & 0o6000:
                os.rename(left, f"set-{name}-{mode:o}")
            else:
                os.unlink(left)
print(json.dumps(said))
"""


@X86
def test_I3_no_file_is_left_that_gives_its_owners_rights(inside):
    folder = inside.folder()
    done = inside(*PYTHON, MODES, cwd=folder)
    said = json.loads(done.text)
    left = [path.name for path in folder.rglob("*") if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)]
    assert left == [] and len(said) == 36, (left, said)
    works = {name.split()[0] for name, result in said.items() if result == "ok"}
    assert works == {"create", "unnamed", "descriptor", "node", "chmod", "fchmodat", "creat"}, said
    assert {name.split()[1] for name, result in said.items() if result == "ok"} == {"755"}, said


def test_I3_that_is_how_such_files_are_made(tmp_path):
    """Without a sandbox each of these ways works, so that the test before it means something."""
    done = subprocess.run([*PYTHON, MODES], cwd=tmp_path, capture_output=True, text=True, check=True)
    made = {path.name.split("-")[1] for path in tmp_path.iterdir() if path.name.startswith("set-")}
    assert {"create", "unnamed", "descriptor", "node", "chmod", "fchmodat", "openat2", "creat"} <= made, done


def test_I3_programs_that_keep_modes_work(attack, world, user):
    """In a directory that hands its group on, as teams have them."""
    folder = world.workdir(user)
    os.chmod(folder, 0o2775)
    script = ("set -e; mkdir -p a/b; echo x > a/b/f; chmod 755 a/b/f; tar cf t.tar a; mkdir x; tar xpf t.tar -C x --no-same-owner || test $? = 2; "
              "test -x x/a/b/f; git init -q g; cd g; git -c user.name=x -c user.email=x@x commit -q --allow-empty -m x; cd ..; "
              "git clone -q g h; python3 -m venv --without-pip v; cp -R a y; install -m 755 a/b/f z; "
              "python3 -c 'import shutil; shutil.copytree(\"y\", \"w\", copy_function=shutil.copyfile)' || :; echo done")
    done = attack.run("sh", "-c", script, cwd=folder, user=user)
    assert done.text.splitlines()[-1] == "done", done


NAMESPACES = """
import ctypes, errno, functools, os, signal
print = functools.partial(print, flush=True)
libc = ctypes.CDLL(None, use_errno=True)
def said(r):
    return "ok" if r >= 0 else errno.errorcode[ctypes.get_errno()]
if os.fork() == 0:
    print("unshare", said(libc.unshare(0x10000000)))
    os._exit(0)
os.wait()
r = libc.syscall(56, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
if r == 0:
    os._exit(0)
print("clone", said(r))
args = (ctypes.c_ulonglong * 8)(0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
r = libc.syscall(435, args, 64)
if r == 0:
    os._exit(0)
print("clone3", said(r))
print("setns", said(libc.setns(os.open("/proc/self/ns/uts", os.O_RDONLY), 0)))
import threading, subprocess
t = threading.Thread(target=lambda: print("thread"))
t.start(); t.join()
subprocess.run(["echo", "child"], check=True)
"""


@X86
def test_I4_no_user_namespace(inside):
    done = inside(*PYTHON, NAMESPACES)
    assert done.text.splitlines() == ["unshare EPERM", "clone EPERM", "clone3 ENOSYS", "setns EPERM", "thread", "child"], done
    assert inside.free(*PYTHON, NAMESPACES).splitlines()[:3] == ["unshare ok", "clone ok", "clone3 ok"]


OTHERS = """
import ctypes, errno, os, resource
libc = ctypes.CDLL(None, use_errno=True)
def said(what, r):
    print(what, "ok" if r == 0 or ctypes.get_errno() == errno.ESRCH else errno.errorcode[ctypes.get_errno()], flush=True)
def limit(pid):
    return libc.prlimit(pid, resource.RLIMIT_NOFILE, (ctypes.c_ulonglong * 2)(50, 50), None)
there, here = os.pipe()
child = os.fork()
if child == 0:
    os.close(here)
    os.read(there, 1)
    os._exit(0)
os.setpgid(0, 0)
said("limit of another", limit(child))
said("limits are read", libc.prlimit(child, resource.RLIMIT_NOFILE, None, (ctypes.c_ulonglong * 2)()))
said("group", libc.setpriority(os.PRIO_PGRP, 0, 19))
said("io of the group", libc.syscall(251, 2, 0, 3 << 13))
said("user", libc.setpriority(os.PRIO_USER, 54321, 19))  # who has no process
said("io of the user", libc.syscall(251, 3, 54321, 3 << 13))
said("own limit", limit(0))
said("own", libc.setpriority(os.PRIO_PROCESS, 0, 19))
said("own io", libc.syscall(251, 1, 0, 3 << 13))
"""


@X86
def test_I13_other_processes_keep_their_limits_and_priorities(inside):
    """Those of the caller's process group, which the command shares; on the host all of its user's. CPU time as a limit kills."""
    free = [line.rsplit(" ", 1) for line in inside.free(*PYTHON, OTHERS).splitlines()]
    assert len(free) == 9 and {result for _, result in free} == {"ok"}, free
    done = inside(*PYTHON, OTHERS)
    refused = [line.rsplit(" ", 1)[0] for line in done.text.splitlines() if line.endswith("EPERM")]
    assert refused == ["limit of another", "group", "io of the group", "user", "io of the user"]
    assert done.text.count(" ok\n") == 4, done


@X86
def test_I5_calls_that_nobody_has_looked_at_do_not_exist(attack, attack_program, user):
    *unknown, quotactl_fd, cachestat = attack.calls(attack_program, *[("syscall", n, -1, 0, 0) for n in (463, 470, 500, 5000, 443, 451)], user=user)
    assert {word for word, _ in unknown} == {"ENOSYS"}
    assert quotactl_fd[0] == "EPERM", "as quotactl()"
    assert cachestat[0] != "ENOSYS", "it has been looked at; there is no such descriptor"


SUBVOLUMES = """
import errno, fcntl, os
fd = os.open(".", os.O_RDONLY)
for name, request in (("btrfs copy", 0x50009401), ("btrfs copy v2", 0x50009417), ("btrfs remove", 0x5000940f),
                      ("btrfs remove by number", 0x5000943f),
                      ("bcachefs copy", 0x4020bc10), ("bcachefs copy, longer", 0x4030bc1d), ("clone of a file", 0x40049409)):
    try:
        fcntl.ioctl(fd, request, bytearray(8192))
        print(name, "ok")
    except OSError as e:
        print(name, errno.errorcode[e.errno])
"""


def test_I29_no_subvolume_is_copied_or_removed(inside):
    """A copy (snapshot) of a home has its hidden keys, as files of their own. By its number one goes that lies elsewhere, by its name
    with what is read-only in it."""
    free = [line.rsplit(" ", 1) for line in inside.free(*PYTHON, SUBVOLUMES).splitlines()]
    assert len(free) == 7 and "EPERM" not in {result for _, result in free}, free
    done = inside(*PYTHON, SUBVOLUMES, cwd=inside.folder())
    said = dict(line.rsplit(" ", 1) for line in done.text.splitlines())
    assert said.pop("clone of a file") != "EPERM" and set(said.values()) == {"EPERM"} and len(said) == 6, done


CRASH = """
import os, resource, signal
for limit in ((0, 0), (resource.RLIM_INFINITY, resource.RLIM_INFINITY)):
    try:
        resource.setrlimit(resource.RLIMIT_CORE, limit)
    except (OSError, ValueError):
        pass
    if os.fork() == 0:
        os.kill(os.getpid(), signal.SIGSEGV)
    os.wait()
print(resource.getrlimit(resource.RLIMIT_CORE))
"""


@contextlib.contextmanager
def _handler():
    """A handler of crashes for the machine, which writes down whose they were. What it is told of others is lost."""
    pattern = pathlib.Path("/proc/sys/kernel/core_pattern")
    with tempfile.TemporaryDirectory(prefix="weir-core-", dir="/tmp") as folder, open("/tmp/weir-core.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        program = pathlib.Path(folder) / "h"
        program.write_text(f"#!/bin/sh\necho \"$1\" $(readlink /proc/$2/cwd) >> {folder}/seen\nexec cat >/dev/null\n")
        program.chmod(0o755)
        before = pattern.read_text()
        if "weir-core-" in before:  # of a test that was killed
            before = "core\n"
        try:
            pattern.write_text(f"|{program} %e %P")
        except OSError:
            pytest.skip("the machine's handler can't be set here")
        try:
            yield lambda: (pathlib.Path(folder) / "seen").read_text().split() if (pathlib.Path(folder) / "seen").exists() else []
        finally:
            pattern.write_text(before)


def test_I6_a_crash_starts_nothing_outside(inside):
    """Neither the command's own, nor that of Weir, which ends as its command does."""
    folder = inside.folder()
    with _handler() as seen:
        done = inside(*PYTHON, CRASH, cwd=folder)
        died = inside("sh", "-c", "kill -SEGV $$", cwd=folder)
        before = seen()
        subprocess.run([*PYTHON, CRASH], check=True, capture_output=True, cwd=folder)
        after = seen()
    assert died.code in (139, -11) and str(folder) not in before and str(folder) in after, (before, after, done, died)
    assert done.text == "(1, 1)\n", done


SYS = """
import json, os, socket
print(json.dumps([sorted(os.listdir("/sys/class/net")), sorted(name for _, name in socket.if_nameindex()),
                  sorted(os.listdir("/sys/fs/cgroup")), os.path.exists("/sys/devices/virtual/net/" + os.listdir("/sys/class/net")[0])]))
"""


def test_I8_sys_shows_the_sandboxs_own_links(attack, world, user):
    """The machine's control groups are there, for programs that look for their limits."""
    outside = json.loads(subprocess.run([*PYTHON, SYS], capture_output=True, check=True).stdout)
    links, own, groups, _ = json.loads(attack.run(*PYTHON, SYS, user=user).text)
    assert links == own and own != outside[1] and groups == outside[2], (links, own, outside)


def test_I8_sys_is_read_only(attack, user):
    done = attack.run("sh", "-c", "cat /proc/mounts; touch /sys/x /sys/fs/cgroup/x", user=user)
    mounts = [line.split() for line in done.text.splitlines() if line.split()[1].startswith("/sys")]
    assert mounts and all("ro" in fields[3].split(",") for fields in mounts) and done.err.count(b"Read-only") == 2, done


def test_I8_where_sys_is_partly_hidden_no_links_are_listed(world, user):
    """As in containers, where the kernel allows no other."""
    done = world.run(*PYTHON, "import os; print(os.listdir('/sys/class/net'), os.listdir('/sys/kernel/mm'))", user=user,
                     mounts=("mount -t tmpfs none /sys/kernel/mm",))
    assert done.text == "[] []\n", done
