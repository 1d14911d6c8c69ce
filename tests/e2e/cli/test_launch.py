# SPDX-License-Identifier: Apache-2.0
"""The launch, with a stand-in for control and engine: each test runs as root and as an
ordinary user. WEIR_BUILD names the build directory."""
import contextlib
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess

import pytest

from world.mounts import SharedMounts, own_mounts
from world.program import comm, descendants, is_alive
from world.sidecar import wait_for
from world.world import make_user

BUILD = os.environ.get("WEIR_BUILD", "build")
DRIVER = os.path.join(BUILD, "tests/drivers/launch_driver")
PYTHON = "/usr/bin/python3"
USER = "weir-test"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


class World:
    """Who launches, from a directory of their own outside of /tmp."""

    def __init__(self, user, home, driver):
        self.user, self.home, self.driver = user, home, driver

    def command(self, *args):
        line = [self.driver, *args]
        if self.user:
            line = ["setpriv", "--reuid", self.user, "--regid", self.user, "--init-groups", *line]
        return line

    def run(self, *args, cwd=None, **more):
        more.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run(self.command(*args), cwd=cwd or self.home, text=True, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)

    def start(self, *args, **more):
        return subprocess.Popen(self.command(*args), cwd=self.home, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, **more)

    def python(self, code, *args, **more):
        return self.run(*args, "--", PYTHON, "-c", code, **more)

    def shell(self, code, *args, **more):
        return self.run(*args, "--", "sh", "-c", code, **more)

    def own(self, path):
        if self.user:
            shutil.chown(path, self.user, self.user)
        return path


@pytest.fixture(params=["root", "user"])
def world(request):
    user = None
    if request.param == "user":
        user = USER
        make_user(user)
    top = f"/var/lib/weir-test-{os.getpid()}-{request.param}"
    home = os.path.join(top, "work")
    os.makedirs(home)
    driver = shutil.copy(DRIVER, top)
    w = World(user, home, driver)
    w.own(home)
    yield w
    shutil.rmtree(top)


# --- the command ---------------------------------------------------------------------

@pytest.mark.parametrize("code,status", [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137),
                                         ("kill -TERM $$", 143)])
def test_the_status_is_the_command_s(world, code, status):
    assert world.shell(code).returncode == status


def test_a_missing_command_is_127_and_an_unrunnable_one_126(world):
    r = world.run("--", "no-such-command")
    assert (r.returncode, r.stderr) == (127, "weir: no-such-command: command not found\n")
    r = world.run("--", "/etc/passwd")
    assert (r.returncode, r.stderr) == (126, "weir: /etc/passwd: permission denied\n")


def test_output_environment_and_directory_pass_through(world):
    r = world.shell('pwd; echo "$WORD"; echo err >&2', env={**os.environ, "WORD": "a b"})
    assert r.stdout == world.home + "\na b\n"
    assert r.stderr == "err\n"


def test_the_caller_s_ids_stay(world):
    r = world.run("--", "id", "-un")
    assert r.stdout.strip() == (world.user or "root")


def test_only_descriptors_0_to_2_reach_the_command(world):
    r, w = os.pipe()
    try:
        out = world.python("import os; print(sorted(int(f) for f in os.listdir('/proc/self/fd')))",
                           pass_fds=(r, w)).stdout
    finally:
        os.close(r)
        os.close(w)
    assert out == "[0, 1, 2, 3]\n"  # 3 is listdir's own


def test_signals_are_as_new_and_nohup_stays(world):
    show = "grep -E 'Sig(Blk|Ign)' /proc/self/status"
    assert re.findall(r"\t(\S+)", world.shell(show).stdout) == ["0" * 16, "0" * 16]
    line = world.command("--", "sh", "-c", show)
    out = subprocess.run(["nohup", *line], cwd=world.home, stdin=subprocess.DEVNULL, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    assert re.findall(r"\t(\S+)", out) == ["0" * 16, "0" * 15 + "1"]


# --- no rights ------------------------------------------------------------------------

def test_the_command_has_no_capability_and_can_t_gain_any(world):
    out = world.shell("grep -E 'Cap(Prm|Eff|Bnd|Amb)|NoNewPrivs' /proc/self/status").stdout
    assert re.findall(r"Cap\w+:\t(\w+)", out) == ["0" * 16] * 4
    assert "NoNewPrivs:\t1" in out


@pytest.mark.parametrize("what", ["unshare -U true", "unshare -n true", "unshare -m true",
                                  "nsenter -t 1 -n true", "mount -t tmpfs x /tmp",
                                  "ip link set lo down", "ip addr add 1.2.3.4/32 dev lo"])
def test_namespaces_and_links_can_t_be_changed(world, what):
    if not shutil.which(what.split()[0]):
        pytest.skip("program is missing")
    assert world.shell(what).returncode != 0


def test_proc_sys_can_t_be_written(world):
    code = """
import os
bad = []
for top, dirs, files in os.walk('/proc/sys'):
    for f in files:
        try:
            os.close(os.open(os.path.join(top, f), os.O_WRONLY))
            bad.append(os.path.join(top, f))
        except OSError:
            pass
print(bad)"""
    assert world.python(code).stdout == "[]\n"


def test_the_kernel_uid_is_never_0(world):
    p = world.start("--", "sleep", "30")
    try:
        pid = wait_for(lambda: find_process(p.pid, "sleep"))
        uid = int(re.search(r"Uid:\t(\d+)", open(f"/proc/{pid}/status").read()).group(1))
    finally:
        p.kill()
        p.wait()
    if world.user:
        assert uid == pwd.getpwnam(world.user).pw_uid
    else:
        assert uid >= 0x10000


def test_init_can_t_be_looked_into(world):
    r = world.shell("readlink /proc/1/fd/3 /proc/1/exe /proc/1/ns/net; cat /proc/1/environ; "
                    "kill -9 1; kill -STOP 1; echo alive")
    assert r.stdout == "alive\n"


# --- system calls ---------------------------------------------------------------------

SOCKETS = [
    # what, family, type, protocol, errno or 0
    ("unix", 1, 1, 0, 0), ("tcp", 2, 1, 0, 0), ("tcp6", 10, 1, 0, 0), ("udp", 2, 2, 0, 0),
    ("route", 16, 3, 0, 0), ("raw", 2, 3, 255, 93), ("raw6", 10, 3, 255, 93),
    ("raw icmp", 2, 3, 1, 1), ("raw icmp6", 10, 3, 58, 1), ("seqpacket", 2, 5, 0, 1), ("smc by tcp", 2, 1, 256, 93),
    ("raw with flags", 2, 3 | 0o2000000, 255, 93), ("sock_packet", 2, 10, 0, 1),
    ("packet", 17, 3, 0, 97), ("vsock", 40, 1, 0, 97), ("alg", 38, 5, 0, 97),
    ("bluetooth", 31, 3, 0, 97), ("can", 29, 3, 1, 97), ("qipcrtr", 42, 2, 0, 97),
    ("nfc", 39, 5, 0, 97), ("xdp", 44, 3, 0, 97), ("key", 15, 3, 2, 97), ("tipc", 30, 2, 0, 97),
    ("smc", 43, 1, 0, 97), ("kcm", 41, 2, 0, 97), ("rds", 21, 5, 0, 97),
    ("netfilter", 16, 3, 12, 93), ("generic", 16, 3, 16, 93), ("audit", 16, 3, 9, 93),
    ("high bits, vsock", (1 << 32) | 40, 1, 0, 97), ("high bits, inet", (1 << 32) | 2, 3, 255, 93),
    ("negative", -1, 1, 0, 97),
]


def test_only_four_families_can_be_created(world):
    code = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for what, family, kind, proto, want in {SOCKETS!r}:
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(41), ctypes.c_ulong(family % 2**64), ctypes.c_ulong(kind),
                     ctypes.c_ulong(proto))
    got = 0 if r >= 0 else ctypes.get_errno()
    if got != want:
        print(what, got, want)"""
    r = world.python(code)
    assert (r.stdout, r.stderr) == ("", "")


CALLS = [
    # what, number on x86-64, argument 1, argument 2, errno
    ("io_uring_setup", 425, 8, 0, 38), ("io_uring_enter", 426, 0, 0, 38),
    ("io_uring_register", 427, 0, 0, 38), ("add_key", 248, 0, 0, 1), ("keyctl", 250, 0, 0, 1),
    ("bpf", 321, 0, 0, 1), ("perf_event_open", 298, 0, 0, 1), ("userfaultfd", 323, 0, 0, 1),
    ("finit_module", 313, 0, 0, 1), ("mount", 165, 0, 0, 1), ("fsopen", 430, 0, 0, 1),
    ("TIOCSTI", 16, 0, 0x5412, 1), ("TIOCSTI, high bits", 16, 0, (7 << 32) | 0x5412, 1),
    ("TIOCLINUX", 16, 0, 0x541c, 1), ("KDSETMODE", 16, 0, 0x4b3a, 1), ("KDSKBMODE, high bits", 16, 0, (7 << 32) | 0x4b45, 1),
    ("VT_SETMODE", 16, 0, 0x5602, 1), ("a camera's of the same type", 16, 0, 0x80685600, 25), ("x32 socket", 0x40000000 | 41, 2, 1, 38),
]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86-64")
def test_calls_that_are_a_way_out_are_refused(world):
    code = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for what, nr, a, b, want in {CALLS!r}:
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(nr), ctypes.c_ulong(a), ctypes.c_ulong(b), ctypes.c_ulong(0))
    got = 0 if r >= 0 else ctypes.get_errno()
    if got != want:
        print(what, got, want)"""
    r = world.python(code)
    assert (r.stdout, r.stderr) == ("", "")


# --- descriptors 0 to 2 ---------------------------------------------------------------

def test_a_network_socket_or_directory_as_stdin_is_refused(world):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
        r = world.run("--", "true", stdin=s)
    assert r.returncode == 125 and "descriptor 0" in r.stderr
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        r = world.run("--", "true", stdin=s)
    assert r.returncode == 125 and "descriptor 0" in r.stderr
    fd = os.open("/", os.O_RDONLY)
    r = world.run("--", "true", stdin=fd)
    os.close(fd)
    assert r.returncode == 125 and "descriptor 0" in r.stderr


def test_a_unix_socket_pair_as_stdin_works(world):
    a, b = socket.socketpair()
    with a, b:
        a.send(b"word\n")
        a.shutdown(socket.SHUT_WR)
        assert world.run("--", "cat", stdin=b).stdout == "word\n"


# --- the view -------------------------------------------------------------------------

def test_only_the_working_directory_and_rw_paths_can_be_written(world):
    more = os.path.join(os.path.dirname(world.home), "more")
    os.mkdir(more)
    world.own(more)
    r = world.shell(f"touch here {more}/there; touch /usr/x /etc/x /var/x /x {more}/../x",
                    "--rw", more)
    assert r.stderr.count("Read-only file system") == 5
    assert os.path.exists(f"{world.home}/here") and os.path.exists(f"{more}/there")
    want = pwd.getpwnam(world.user or "root").pw_uid
    assert os.stat(f"{world.home}/here").st_uid == want
    assert os.stat(f"{more}/there").st_uid == want


def test_a_missing_rw_path_is_an_error(world):
    r = world.run("--rw", "/no/such/path", "--", "true")
    assert r.returncode == 125 and "/no/such/path" in r.stderr


@pytest.mark.parametrize("path", ["/", "/proc", "/sys", "/dev", "/run", "/etc"])
def test_what_holds_the_system_s_sockets_can_t_be_writable(world, path):
    r = world.run("--rw", path, "--", "true")
    assert r.returncode == 125 and "can't be writable" in r.stderr


def test_the_root_as_working_directory_stays_read_only(world):
    r = world.shell("pwd; touch /x", cwd="/")
    assert r.stdout == "/\n" and "Read-only" in r.stderr and "warning:" in r.stderr


def test_tmp_run_and_shm_are_the_sandbox_s_own(world):
    mark = f"/tmp/weir-mark-{os.getpid()}"
    open(mark, "w").close()
    try:
        r = world.shell("ls -A /tmp /var/tmp /dev/shm; for d in /tmp /var/tmp /dev/shm; "
                        "do touch $d/mine || exit 1; done")
    finally:
        os.unlink(mark)
    assert r.returncode == 0 and "weir-mark" not in r.stdout
    for d in ("/tmp", "/var/tmp", "/dev/shm"):
        assert not os.path.exists(f"{d}/mine")


@pytest.mark.parametrize("top", ["/tmp", "/dev/shm", "/var/tmp"])
def test_a_working_directory_in_a_private_place_is_there(world, top):
    path = world.own(subprocess.check_output(["mktemp", "-d", "-p", top], text=True).strip())
    world.own(path)
    try:
        r = world.shell("pwd; touch x; ls ..", cwd=path)
        assert r.stdout == f"{path}\n{os.path.basename(path)}\n"
        assert os.path.exists(f"{path}/x")
    finally:
        shutil.rmtree(path)


def test_resolv_conf_names_our_server_whatever_the_host_has(world):
    for state in ("file", "link", "dangling", "absent"):
        r = world_with_etc(world, state)
        assert r.stdout.startswith("nameserver 127.0.0.1\n"), state


def world_with_etc(world, state):
    """Launch from a mount namespace with another /etc."""
    top = os.path.dirname(world.home)
    etc = os.path.join(top, f"etc-{state}")
    os.mkdir(etc, 0o755)
    for name in ("passwd", "group", "nsswitch.conf", "ld.so.cache", "hosts"):
        shutil.copy2(f"/etc/{name}", etc)
    if state == "file":
        open(f"{etc}/resolv.conf", "w").write("nameserver 9.9.9.9\n")
    elif state == "link":
        os.symlink("../run/systemd/resolve/stub-resolv.conf", f"{etc}/resolv.conf")
    elif state == "dangling":
        os.symlink("/nowhere/at/all", f"{etc}/resolv.conf")
    line = world.command("--", "cat", "/etc/resolv.conf")
    return subprocess.run(["unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc && exec "$@"',
                           etc, *line], cwd=world.home, text=True, capture_output=True,
                          stdin=subprocess.DEVNULL)


CONNECT = """
import errno, socket, sys
s = socket.socket(socket.AF_UNIX)
try:
    s.connect(sys.argv[1])
    print('connected')
except OSError as e:
    print(errno.errorcode[e.errno])"""


def listen(path):
    s = socket.socket(socket.AF_UNIX)
    s.bind(path)
    os.chmod(path, 0o777)
    s.listen()
    return s


def connect_inside(world, path, *args):
    return world.run(*args, "--", PYTHON, "-c", CONNECT, path).stdout.strip()


@pytest.mark.parametrize("where", ["work/s", "s", "work/a/b/s"])
def test_a_host_socket_can_t_be_reached_through_a_file(world, where):
    path = os.path.join(os.path.dirname(world.home), where)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with listen(path):
        assert connect_inside(world, path) == "ECONNREFUSED"


@pytest.mark.parametrize("how", ["relative", "renamed", "linked"])
def test_a_host_socket_under_another_name_can_t_be_reached(world, how):
    path = os.path.join(world.home, "other")
    old = os.getcwd()
    os.chdir(world.home)
    try:
        s = listen("other" if how == "relative" else os.path.join(world.home, "first"))
    finally:
        os.chdir(old)
    with s:
        if how == "renamed":
            os.rename(os.path.join(world.home, "first"), path)
        elif how == "linked":
            os.link(os.path.join(world.home, "first"), path)
        assert connect_inside(world, path) == "ECONNREFUSED"


def test_a_socket_of_the_sandbox_s_own_works(world):
    code = """
import socket
a = socket.socket(socket.AF_UNIX); a.bind('mine'); a.listen()
b = socket.socket(socket.AF_UNIX); b.connect('mine'); print('works')"""
    assert world.python(code).stdout == "works\n"


def test_read_only_files_in_a_writable_directory_stay(world):
    conf = os.path.join(world.home, "conf")
    os.makedirs(conf)
    world.own(conf)
    policy = os.path.join(conf, "policy.yaml")
    open(policy, "w").write("old")
    world.own(policy)
    world.shell(f"echo new > {policy}; rm -f {policy}; mv {policy} x; mv {conf} away; "
                f"mkdir -p {conf}; ln -f {policy} y; touch z; mv z {policy}", "--ro", policy)
    assert open(policy).read() == "old"
    assert os.listdir(conf) == ["policy.yaml"]


def test_a_link_that_the_command_can_change_is_not_followed(world):
    outside = os.path.join(os.path.dirname(world.home), "outside.yaml")
    open(outside, "w").write("x")
    os.symlink(outside, os.path.join(world.home, "policy.yaml"))
    for option, says in (("--ro", "is a link in a directory"), ("--rw", "is a link, which an earlier command")):
        r = world.run(option, "policy.yaml", "--", "true")
        assert r.returncode == 125 and says in r.stderr
    link = os.path.dirname(world.home) + "/link"
    os.symlink(world.home, link)
    assert world.run("--rw", link, "--rw", world.home, "--", "true").returncode == 0


MOUNTED = """
set -e
mkdir -p {top}/fs {top}/deep/er
mount -t tmpfs -o mode=755 t {top}/fs
mkdir {top}/fs/sub && echo seen > {top}/fs/sub/file
mkdir '{top}/o:d,d\\\\' && echo odd > '{top}/o:d,d\\\\/file'
mount -t proc p {top}/deep/er
exec "$@"
"""


def test_what_is_mounted_is_seen_read_only_and_its_sockets_refuse(world):
    top = os.path.dirname(world.home)
    code = (f"cat {top}/fs/sub/file {top}/o*/file; touch {top}/fs/sub/new; ls {top}/deep/er; "
            f"{PYTHON} -c \"{CONNECT}\" {top}/fs/sub/s")
    make = f"""
import socket, os, sys
s = socket.socket(socket.AF_UNIX); s.bind('{top}/fs/sub/s'); os.chmod('{top}/fs/sub/s', 0o777)
s.listen(); s.set_inheritable(True)
os.execvp(sys.argv[1], sys.argv[1:])"""
    line = ["unshare", "-m", "sh", "-c", MOUNTED.format(top=top), "x", PYTHON, "-c", make,
            *world.command("--", "sh", "-c", code)]
    r = subprocess.run(line, cwd=world.home, text=True, capture_output=True,
                       stdin=subprocess.DEVNULL)
    assert r.stdout == "seen\nodd\nECONNREFUSED\n"
    assert "Read-only" in r.stderr


FOREIGN = r"""
#include <stdio.h>
static long call(long nr, long a, long b, long c)
{
	long r;
	__asm__ volatile("int $0x80" : "=a"(r) : "a"(nr), "b"(a), "c"(b), "d"(c) : "memory");
	return r;
}
int main(void)
{
	printf("%ld %ld %ld %ld\n", call(102, 1, 0, 0), call(359, 40, 1, 0), call(359, 2, 3, 255),
	       call(425, 8, 0, 0));
	return 0;
}
"""


@pytest.mark.skipif(os.uname().machine != "x86_64" or not shutil.which("gcc"),
                    reason="needs x86-64 and a compiler")
def test_calls_of_the_other_architecture_are_refused_too(world):
    source = os.path.join(world.home, "foreign.c")
    open(source, "w").write(FOREIGN)
    program = os.path.join(world.home, "foreign")
    subprocess.run(["gcc", "-o", program, source], check=True)
    # On some virtual machines the instruction is a fault, for everybody.
    exists = subprocess.run([program], capture_output=True, check=False).returncode == 0
    assert world.run("--", "./foreign").stdout == ("-38 -97 -93 -38\n" if exists else "")


@pytest.mark.parametrize("world", ["root"], indirect=True)
def test_root_keeps_its_own_files(world):
    path = os.path.join(world.home, "secret")
    open(path, "w").write("mine")
    os.chmod(path, 0o600)
    assert world.shell("cat secret; echo more > secret; stat -c %u secret").stdout == "mine0\n"
    assert os.stat(path).st_uid == 0


# --- the self-test --------------------------------------------------------------------

@pytest.mark.parametrize("args,why", [
    (["--silent"], "no answer from the name server"),
    (["--denied-answer", "0"], "instead of NXDOMAIN"),
    (["--open"], "reached 192.0.2.1:4444, which the policy denies"),
    (["--self-test", "strict"], "'first.test'"),
])
def test_nothing_starts_when_the_self_test_fails(world, args, why):
    r = world.shell("touch started", *args)
    assert r.returncode == 125 and why in r.stderr
    assert not os.path.exists(os.path.join(world.home, "started"))


def test_an_engine_that_is_late_is_waited_for(world):
    """As on a machine that is busy: that is no reason to run nothing."""
    r = world.run("--late", "--", "true")
    assert r.returncode == 0 and r.stderr == "", r.stderr


def test_full_warns_and_goes_on(world):
    r = world.run("--self-test", "full", "--", "true")
    assert r.returncode == 0 and "warning: the allowed host 'first.test'" in r.stderr


def test_nothing_starts_when_prepare_fails(world):
    r = world.run("--", "true", env={**os.environ, "DRIVER_PREPARE_FAILS": "1"})
    assert r.returncode == 125 and "the prepare step failed" in r.stderr


def test_nothing_starts_when_confirm_fails(world):
    r = world.run("--", "sh", "-c", "echo started",
                  env={**os.environ, "DRIVER_CONFIRM_FAILS": "1"})
    assert r.returncode == 125 and "the confirm step failed" in r.stderr
    assert "started" not in r.stdout


def test_nothing_but_weir_is_executed(world):
    """Neither bwrap nor any other program: the driver has all of it."""
    hide = "mount -t tmpfs t /usr/sbin; for f in bwrap sh; do mount --bind /dev/null /usr/bin/$f; done"
    line = ["unshare", "-m", "/usr/bin/dash", "-c", f'{hide}; exec "$@"', "x", *world.command("--", "true")]
    r = subprocess.run(line, cwd=world.home, text=True, capture_output=True,
                       stdin=subprocess.DEVNULL)
    assert (r.returncode, r.stderr) == (0, "")


# --- signals and ends -----------------------------------------------------------------

def find_process(top, name):
    return next((pid for pid in descendants(top) if comm(pid) == name), None)


def test_a_signal_reaches_the_command_s_trap(world):
    p = world.start("--", "sh", "-c",
                    "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.05; done")
    assert p.stdout.readline() == "ready\n"
    p.terminate()
    assert p.stdout.read() == "caught\n" and p.wait(60) == 3


def test_a_stop_is_reported_and_continues(world):
    p = world.start("--", "sh", "-c", "kill -STOP $$; sleep 0.5; exit 4")
    assert p.stderr.readline() == f"stopped {int(signal.SIGSTOP)}\n"
    os.kill(find_process(p.pid, "sh"), signal.SIGCONT)
    assert p.wait(60) == 4 and "continued" in p.stderr.read()


def test_orphans_are_reaped_and_end_with_the_command(world):
    p = world.start("--", "sh", "-c", "(sh -c 'exit 0' &) ; (sleep 77 &) ; sleep 2; "
                    "grep -l '^State:.Z' /proc/[0-9]*/status; exit 0")
    pid = wait_for(lambda: find_process(p.pid, "sleep"))
    out = p.stdout.read()
    assert p.wait(60) == 0 and out == ""
    wait_for(lambda: not is_alive(pid))


@pytest.mark.parametrize("victim", ["control", "init"])
def test_killing_any_process_ends_all_of_it(world, victim):
    runs = [world.start("--", "sh", "-c", "sleep 88 & echo up; exec sleep 99") for _ in range(3)]
    for p in runs:
        assert p.stdout.readline() == "up\n"
    pids = [(p, [p.pid, *descendants(p.pid)]) for p in runs]
    with contextlib.ExitStack() as held:  # the kernel gives no held namespace's number to another one
        nets = set()
        for _, family in pids:
            file = held.enter_context(open(f"/proc/{family[-1]}/ns/net", encoding="utf-8"))
            nets.add(os.fstat(file.fileno()).st_ino)
        for p, family in pids:
            assert len(family) == 4
            os.kill({"control": family[0], "init": family[1]}[victim], signal.SIGKILL)
        for p, family in pids:
            p.wait(60)
            wait_for(lambda: not any(is_alive(pid) for pid in family[1:]))
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                assert os.stat(f"/proc/{entry}/ns/net").st_ino not in nets


def test_the_host_s_mounts_are_untouched(world):
    """On a machine of its own, whose mounts are shared: on this one other tests mount as well."""
    with SharedMounts() as machine:
        line = own_mounts("", *world.command("--", "true"), cwd=world.home)
        done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and not machine.gone() and not machine.new(), done


def test_ten_at_once(world):
    runs = [world.start("--", "sh", "-c", f"exit {n}") for n in range(10)]
    assert [p.wait(60) for p in runs] == list(range(10))
