# SPDX-License-Identifier: Apache-2.0
"""J: the view is entered, and nothing leads back.

The seccomp list refuses most of these before anything else does. So the attacker here comes from outside, past the list: root of
the machine enters all namespaces of the sandbox, the inner user namespace first, and has every capability there that there is.
What then holds is the kernel's: what the outer user namespace owns.
"""
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

from world.program import children, comm, is_alive, link_of
from world.sidecar import wait_for

PYTHON = "/usr/bin/python3"

ENTER = r"""
import ctypes, errno, json, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
pid = int(sys.argv[1])
NEW = {"user": 0x10000000, "mnt": 0x20000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x8000000, "uts": 0x4000000, "cgroup": 0x2000000}
socket.socket().close()
status = open("/proc/%d/status" % pid).read()
maps = [int(open("/proc/%d/%s_map" % (pid, i)).read().split()[0]) for i in ("gid", "uid")]
assert libc.setns(os.pidfd_open(pid), sum(NEW.values())) == 0, os.strerror(ctypes.get_errno())
if os.fork():
    os.wait()
    sys.exit()
libc.syscall(119, *[maps[0]] * 3)
libc.syscall(117, *[maps[1]] * 3)
os.chdir("/")

def said(r):
    return "ok" if r >= 0 else errno.errorcode[ctypes.get_errno()]

def mount(source, target, kind, flags, data=None):
    enc = lambda s: None if s is None else s.encode()
    return said(libc.mount(enc(source), enc(target), enc(kind), ctypes.c_ulong(flags), enc(data)))

RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, MOVE, REC = 1, 2, 4, 8, 32, 4096, 8192, 16384
NAMES = {"ro": RDONLY, "nosuid": NOSUID, "nodev": NODEV, "noexec": NOEXEC}
mounts = [(f[4].encode().decode("unicode_escape"), f[5].split(",")) for f in map(str.split, open("/proc/self/mountinfo"))]
"""

CAPABILITIES = ENTER + """
print(json.dumps([l.split()[1] for l in open("/proc/self/status") if l.startswith("CapEff")] + [os.getuid()]))
"""


class Inside:
    """A sandbox that sleeps, and root of the machine in all of its namespaces."""

    def __init__(self, world, run, cwd):
        self.world, self.run, self.cwd = world, run, cwd
        self.init = wait_for(lambda: next((p for p in children(run.process.pid) if [comm(c) for c in children(p)] == ["sleep"]), None))

    def python(self, code):
        done = subprocess.run([PYTHON, "-ISc", ENTER + code, str(self.init), self.cwd], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and not done.stderr, done
        return done.stdout


@pytest.fixture
def inside(world, user):
    cwd = world.workdir(user)
    (cwd / "policy.yaml").write_text("egress: []\n")
    os.chown(cwd / "policy.yaml", cwd.stat().st_uid, cwd.stat().st_gid)
    (cwd / "secret").mkdir()
    (cwd / "secret/file").write_text("needle")
    options = ("--policy", "policy.yaml", "--hide", cwd / "secret")
    with world.run_start("sleep", "300", user=user, cwd=cwd, options=options) as run:
        yield Inside(world, run, cwd)


def test_J1_the_attacker_has_every_right_of_the_inner_namespace(inside):
    """The control of those below."""
    out = inside.python("print([l.split()[1] for l in open('/proc/self/status') if l.startswith('CapEff')], "
                        "mount('none', '/tmp', 'tmpfs', 0), len(mounts) > 15)")
    caps, rest = out.split("]")
    assert int(caps.strip("['"), 16) > 0x1ffffffffff >> 1 and rest.split() == ["ok", "True"], out


def test_J1_no_mount_can_be_taken_away(inside):
    out = inside.python("for path, _ in mounts:\n  for flags in (0, 2):\n    print(path, said(libc.umount2(path.encode(), flags)))")
    assert len(out.splitlines()) > 30 and {line.split()[-1] for line in out.splitlines()} <= {"EINVAL", "EBUSY"}, out
    for path in ("/proc/sys", inside.cwd / "secret", inside.cwd / "policy.yaml"):
        assert f"{path} EINVAL" in out


def test_J1_no_flag_of_a_mount_can_be_taken_away(inside):
    """Each by itself: one remount that fails as a whole would hide it."""
    out = inside.python("""
for path, words in mounts:
    have = [w for w in words if w in NAMES]
    for gone in have:
        flags = sum(NAMES[w] for w in have if w != gone)
        print(path, gone, mount(None, path, None, REMOUNT | BIND | flags))
        attr = (ctypes.c_uint64 * 4)(0, NAMES[gone], 0, 0)
        print(path, gone, said(libc.syscall(442, -100, path.encode(), 0, attr, 32)))
    print(path, "nothing", mount(None, path, None, REMOUNT | BIND | sum(NAMES[w] for w in have)))""")
    rows = [line.rsplit(" ", 2) for line in out.splitlines()]
    assert len(rows) > 60 and {r[2] for r in rows if r[1] != "nothing"} == {"EPERM"}, out
    assert {r[2] for r in rows if r[1] == "nothing"} == {"ok"}, out
    for path in ("/", "/proc/sys", "/sys", inside.cwd / "secret", inside.cwd / "policy.yaml"):
        assert [str(path), "ro", "EPERM"] in rows


def test_J1_no_copy_of_a_mount_shows_what_is_below_another(inside):
    """Alone, without what is mounted in it; or all of it, and then taken apart."""
    out = inside.python("""
top, copy = sys.argv[2], "/tmp/copy"
os.mkdir(copy)
os.mkdir("/tmp/other")
print(mount("/", copy, None, BIND), mount("/proc", copy, None, BIND), mount(top, copy, None, BIND))
print(mount(top, copy, None, BIND | REC), mount("/proc", "/tmp/other", None, BIND | REC))
print(said(libc.umount2(b"/tmp/copy/secret", 2)), said(libc.umount2(b"/tmp/other/sys", 2)), mount("/tmp/other/sys", "/mnt", None, MOVE))
print(os.listdir(copy + "/secret"), os.path.exists(copy + "/policy.yaml"))
for path in (copy + "/policy.yaml", "/tmp/other/sys/user/max_user_namespaces", "/proc/sys/user/max_user_namespaces"):
    try:
        print(len(open(path, "r+").read()))
    except OSError as e:
        print(errno.errorcode[e.errno])""")
    first, second, third, control, *last = out.splitlines()
    assert set(first.split()) == {"EINVAL"} and second == "ok ok" and set(third.split()) == {"EINVAL"}, out
    assert control == "[] True" and last == ["EROFS"] * 3, out


def test_J1_there_is_no_way_back_to_the_hosts_root(inside):
    """Neither on top of the root nor below it; not by the working directory, and not by what init has open."""
    out = inside.python("""
print(said(libc.umount2(b"/", 2)), said(libc.umount2(b"/", 0)), said(libc.syscall(155, b"/tmp", b"/tmp")))
print(len([p for p, _ in mounts if p == "/"]))
for path in ("/proc/1/root", "/proc/1/cwd", "/../..", "/proc/self/root/.."):
    here, there = os.stat("/"), os.stat(path)
    print(path, (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino) or os.path.exists(path + "/policy.yaml"))""")
    lines = out.splitlines()
    assert set(lines[0].split()) <= {"EINVAL", "EBUSY"} and lines[1] == "1" and all(line.endswith("True") for line in lines[2:]), out


KERNELS = [("proc", "EPERM"), ("sysfs", "EPERM"), ("mqueue", "EPERM"), ("cgroup2", "EPERM")]


@pytest.mark.parametrize("kind, error", KERNELS, ids=[k for k, _ in KERNELS])
def test_J2_none_of_the_kernels_file_systems_can_be_mounted_anew(inside, kind, error):
    out = inside.python(f"print(mount('x', '/tmp', '{kind}', 0), mount('x', '/tmp', 'tmpfs', 0))")
    assert out.split() == [error, "ok"], out


def test_J2_what_the_outer_namespace_owns_stays_closed(inside):
    out = inside.python("""
print(said(libc.unshare(NEW["user"])), said(libc.unshare(NEW["net"] | NEW["user"])))
print(said(libc.sethostname(b"x", 1)), said(libc.syscall(308, os.open("/proc/1/ns/net", os.O_RDONLY), 0)))
for make in (lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW), lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)):
    try:
        make(); print("made")
    except OSError as e:
        print(errno.errorcode[e.errno])
s = socket.socket(16, 3, 12)
s.bind((0, 0))
import struct
# NFNL_MSG_BATCH_BEGIN, NFT_MSG_DELTABLE of all, NFNL_MSG_BATCH_END
head = lambda kind, flags, seq, body: struct.pack("=IHHII", 16 + len(body), kind, flags, seq, 0) + body
s.send(head(16, 1, 1, struct.pack("!BBH", 0, 0, 10)) + head(0xa02, 5, 2, struct.pack("!BBH", 0, 0, 0)) + head(17, 1, 3, struct.pack("!BBH", 0, 0, 10)))
print(errno.errorcode[-struct.unpack("=i", s.recv(4096)[16:20])[0]])
try:
    open("/proc/sys/user/max_user_namespaces", "w")
except OSError as e:
    print(errno.errorcode[e.errno])""")
    namespaces, names, packet, raw, table, limit = out.splitlines()
    assert namespaces.split() == ["ENOSPC", "ENOSPC"] and names.split() == ["EPERM", "EPERM"], out
    assert (packet, raw, table, limit) == ("EPERM", "EPERM", "EPERM", "EROFS"), out


def test_J3_init_holds_its_channel_and_nothing_of_the_hosts(inside):
    """No descriptor, no mapping, no variable, no directory of what started it."""
    proc = pathlib.Path(f"/proc/{inside.init}")
    links = {}

    def has_let_go():  # of the pipe over which it told the command's process to go, too
        links.clear()
        links.update((int(p.name), link_of(p)) for p in (proc / "fd").iterdir())
        return len(links) <= 5
    wait_for(has_let_go)
    assert sorted(links)[:4] == [0, 1, 2, 3] and len(links) == 5, links
    assert links[3].startswith("socket:") and [links[n] for n in links if n > 3] == ["anon_inode:[signalfd]"], links
    mapped = {re.sub(r" \(deleted\)$", "", line[73:]) for line in (proc / "maps").read_text().splitlines() if line[73:74] == "/"}
    assert mapped == {"/memfd:weir-init", "/memfd:weir-orders"}, mapped
    assert (proc / "environ").read_bytes().strip(b"\0") == b""
    for name in ("root", "cwd"):
        assert os.stat(proc / name).st_dev != os.stat("/").st_dev or name == "cwd"


def test_J3_a_run_keeps_no_mount_namespace_of_the_sandbox(inside):
    """It has the outer one until the command runs, so that nobody waits for its end. The control: init's own is there to be opened."""
    pid = inside.run.process.pid
    wait_for(lambda: not [p for p in pathlib.Path(f"/proc/{pid}/fd").iterdir() if link_of(p).startswith("mnt:")])
    assert os.readlink(f"/proc/{inside.init}/ns/mnt") != os.readlink("/proc/self/ns/mnt")


def test_J3_every_mount_inside_is_nosuid_and_without_devices_but_those_of_dev(inside):
    rows = [line.split() for line in pathlib.Path(f"/proc/{inside.init}/mountinfo").read_text().splitlines()]
    assert len(rows) > 15 and not [r for r in rows if "nosuid" not in r[5].split(",")], rows
    assert {r[4] for r in rows if "nodev" not in r[5].split(",")} <= {f"/dev/{n}" for n in
                                                                        ("null", "zero", "full", "random", "urandom", "tty", "pts", "console")}, rows
    assert not [r for r in rows if any(word.startswith(("shared:", "master:")) for word in r[6:])], "nothing propagates"


def test_J4_a_launcher_that_is_killed_at_any_moment_leaves_nothing(world, user):
    """PR_SET_PDEATHSIG misses a parent that has died before, and the kernel forgets it at a change of user."""
    for step in range(12):
        with world.run_start("sleep", "300", user=user) as run:
            family = set()
            end = time.monotonic() + (0.0005 * 1.6 ** step)
            while time.monotonic() < end:
                family.update(children(run.process.pid))
            run.process.send_signal(signal.SIGSTOP)
            family.update(children(run.process.pid))
            run.process.kill()
            run.process.wait(60)
        for pid in family:
            wait_for(lambda: not is_alive(pid))
        assert world.leftovers() == []


def test_J5_a_terminal_takes_no_input_from_inside(world, user):
    """CVE-2017-5226: TIOCSTI types for whoever has the terminal after the command."""
    code = ("import fcntl, os, struct\nfd = os.open('/dev/tty', os.O_RDWR)\n"
            "for call, arg in ((0x5412, b'x'), (0x541c, b'\\x03'), (0x1_0000_5412, b'x')):\n"
            "    try: fcntl.ioctl(fd, call & 0xffffffff, arg); print('typed')\n"
            "    except OSError as e: print(e.errno)\n")
    line = ["script", "-qec", " ".join(f"'{a}'" for a in (world.weir_path, "run", "--upstream", "5.100.53.53", "--", PYTHON, "-IS", "t.py")),
            "/dev/null"]
    cwd = world.workdir(user)
    (cwd / "t.py").write_text(code)
    done = world.command(*line, user=user, cwd=cwd)
    assert done.code == 0 and "typed" not in done.text and done.text.split().count("1") == 3, done
