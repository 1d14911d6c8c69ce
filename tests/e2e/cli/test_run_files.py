# SPDX-License-Identifier: Apache-2.0
"""What a sandbox sees of the host: files, sockets, processes."""
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile

import pytest

from world import expect
from world.run import finish
from world.world import GATEWAY6


def test_the_working_directory_is_writable_and_nothing_else(world, user):
    cwd = world.workdir(user)
    home = world.user(user).home
    outside = world.workdir(user)
    for path in (outside / "x", f"{home}/weir-should-not", "/usr/weir-should-not", "/var/lib/weir-should-not",
                 "/etc/weir-should-not", cwd.parent / "x", "/weir-should-not"):
        answer = world.probe(["write", str(path)], user=user, cwd=cwd)
        assert answer.result in ("EROFS", "EACCES", "EPERM"), (path, dict(answer))
        assert not os.path.exists(path)
    assert world.probe(["write", "new"], user=user, cwd=cwd).result == "ok"
    assert (cwd / "new").read_text() == "x"
    assert (cwd / "new").stat().st_uid == cwd.stat().st_uid


def test_rw_makes_more_paths_writable(world, user):
    more = world.workdir(user)
    answer = world.probe(["write", str(more / "new")], user=user, options=("--rw", more))
    assert answer.result == "ok" and (more / "new").read_text() == "x"


def test_rw_takes_a_single_file(world, user):
    more = world.workdir(user)
    for name in ("one", "two"):
        (more / name).write_text("")
        os.chown(more / name, more.stat().st_uid, more.stat().st_gid)
    one, two = world.probe(["write", str(more / "one")], ["write", str(more / "two")], user=user,
                           options=("--rw", more / "one"))
    assert one.result == "ok" and two.result in ("EROFS", "EACCES")


def test_files_of_the_host_can_be_read(world, user):
    assert world.run("cat", "/etc/debian_version", user=user).out == open("/etc/debian_version", "rb").read()
    assert world.run("ls", "/usr/bin", user=user).code == 0


def test_root_reads_and_writes_roots_files(world):
    cwd = world.workdir()
    (cwd / "secret").write_text("mine")
    (cwd / "secret").chmod(0o600)
    done = world.run("sh", "-c", "cat secret; echo more >> secret; stat -c %u secret", cwd=cwd)
    assert done.text == "mine0\n", done
    assert (cwd / "secret").read_text() == "minemore\n" and (cwd / "secret").stat().st_uid == 0


def test_files_of_others_stay_closed(world):
    closed = world.workdir()
    (closed / "secret").write_text("root's")
    (closed / "secret").chmod(0o600)
    answer = world.probe(["read", str(closed / "secret")], user="weir-test")
    assert answer.result == "EACCES"


@pytest.mark.parametrize("place", ["/tmp", "/run", "/var/tmp", "/dev/shm"])
def test_private_places_are_empty_and_forgotten(world, user, place):
    mark = os.path.join(place, f"weir-mark-{world.number()}-{os.getpid()}")
    with open(mark, "w", encoding="ascii"):
        pass
    try:
        listed = world.probe(["listdir", place], user=user)
        assert os.path.basename(mark) not in listed.get("names", []), dict(listed)
    finally:
        os.unlink(mark)


@pytest.mark.parametrize("place", ["/tmp", "/dev/shm"])
def test_private_places_can_be_written(world, user, place):
    name = f"{place}/weir-new-{world.number()}-{os.getpid()}"
    assert world.probe(["write", name], user=user).result == "ok"
    assert not os.path.exists(name)


def test_a_working_directory_below_a_private_place_is_there(world, user):
    folder = tempfile.mkdtemp(prefix=f"weir-cwd-{os.getpid()}-", dir="/tmp")
    try:
        shutil.chown(folder, user, user)
        done = world.run("sh", "-c", "pwd; touch new; ls -A /tmp", user=user, cwd=folder)
        assert done.text.split() == [folder, os.path.basename(folder)], done
        assert os.path.exists(f"{folder}/new")
    finally:
        shutil.rmtree(folder)


def test_processes_of_the_host_are_not_seen(world, user):
    pids = world.probe(["listdir", "/proc"], user=user)
    assert len([name for name in pids.names if name.isdigit()]) <= 4


def test_no_device_of_the_host_is_there(world, user):
    done = world.probe(["listdir", "/dev"], user=user)
    assert not {n for n in done.names if n.startswith(("sd", "vd", "loop", "kvm", "mem", "net", "nvme", "kmsg"))}, done


UNIX_PLACES = ["/run", "/tmp", "/var/tmp", "/var/lib", "/root", "home", "cwd", "cwd/deep/er", "/dev/shm", "/opt", "rw"]


@pytest.mark.parametrize("place", UNIX_PLACES)
@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM", "SOCK_SEQPACKET"])
def test_unix_sockets_of_the_host_are_out_of_reach(world, user, place, kind):
    """docker.sock, D-Bus, X11, ssh-agent, wherever they are."""
    cwd = world.workdir(user)
    more = world.workdir(user)
    folder = {"home": world.user(user).home, "cwd": str(cwd), "cwd/deep/er": str(cwd / "deep/er"),
              "rw": str(more)}.get(place, place)
    os.makedirs(folder, exist_ok=True)
    path = f"{folder}/weir-test-{os.getpid()}-{world.number()}.sock"
    with listening(world, path, kind) as reached:
        answer = world.probe(["unix", path, kind], user=user, cwd=cwd, options=("--rw", more))
        assert answer.result != "ok", dict(answer)
        assert not reached()


@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM", "SOCK_SEQPACKET"])
def test_abstract_unix_sockets_of_the_host_are_out_of_reach(world, user, kind):
    path = f"@weir-test-{os.getpid()}-{world.number()}"
    with listening(world, path, kind) as reached:
        answer = world.probe(["unix", path, kind], user=user)
        assert answer.result == "refused", dict(answer)
        assert not reached()


@pytest.mark.xfail(strict=True, reason="the kernel has no right for unix sockets by path (Landlock will): what the "
                                       "host listens on in a writable place after the start can be reached")
@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM"])
def test_a_socket_that_appears_in_the_working_directory_later_is_out_of_reach(world, user, kind):
    cwd = world.workdir(user)
    path = str(cwd / "late.sock")
    script = ("import socket, sys; print('ready', flush=True); sys.stdin.readline()\n"
              f"s = socket.socket(socket.AF_UNIX, socket.{kind})\n"
              "try:\n    s.connect('late.sock'); s.send(b'x'); print('reached')\nexcept OSError as e: print(e)\n")
    with world.run_start("/usr/bin/python3", "-c", script, user=user, cwd=cwd) as run:
        assert run.line() == "ready"
        with listening(world, path, kind) as reached:
            run.say("\n")
            assert run.line() != "reached"
            assert not reached()


def test_unix_sockets_of_the_sandboxs_own_work(world, user):
    script = ("import os, socket\nfor path in ('/tmp/own.sock', 'own.sock', '\\0own'):\n"
              "    s = socket.socket(socket.AF_UNIX); s.bind(path); s.listen()\n"
              "    c = socket.socket(socket.AF_UNIX); c.connect(path)\n"
              "    s.accept()[0].send(b'x'); assert c.recv(1) == b'x'\n"
              "a, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'\nprint('ok')\n")
    done = world.run("/usr/bin/python3", "-c", script, user=user)
    assert done.text == "ok\n", done


class listening:
    """A unix socket of the host at @path; entered, it tells whether anybody came."""

    def __init__(self, world, path, kind):
        with world.host.entered():
            self._sock = socket.socket(socket.AF_UNIX, getattr(socket, kind))
        self._path = path
        self._sock.bind("\0" + path[1:] if path.startswith("@") else path)
        if kind != "SOCK_DGRAM":
            self._sock.listen()
        if not path.startswith("@"):
            os.chmod(path, 0o777)

    def __enter__(self):
        return self._reached

    def _reached(self):
        self._sock.setblocking(False)
        try:
            if self._sock.type == socket.SOCK_DGRAM:
                self._sock.recv(1)
            else:
                self._sock.accept()
            return True
        except BlockingIOError:
            return False

    def __exit__(self, *exc):
        self._sock.close()
        if not self._path.startswith("@"):
            os.unlink(self._path)


# Each prepares /etc in a mount namespace of the test's own; @ is the world's resolv.conf.
ETC = "mkdir /run/etc && cp -a /etc/. /run/etc/ && rm -f /run/etc/resolv.conf && mount --bind /run/etc /etc"
RESOLV_CONF = [
    ("a file", []),
    ("a link into /run", ["mkdir -p /run/systemd/resolve", "cp @ /run/systemd/resolve/stub-resolv.conf",
                          "ln -s ../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf"]),
    ("an absolute link into /run", ["cp @ /run/resolv.conf", "ln -s /run/resolv.conf /etc/resolv.conf"]),
    ("a link to a file elsewhere", ["cp @ /etc/other.conf", "ln -s other.conf /etc/resolv.conf"]),
    ("a link to a link", ["cp @ /run/a", "ln -s /run/a /run/b", "ln -s /run/b /etc/resolv.conf"]),
    ("a dangling link", ["ln -s /run/nowhere/resolv.conf /etc/resolv.conf"]),
    ("a dangling link below a missing directory", ["ln -s /mnt/nowhere/resolv.conf /etc/resolv.conf"]),
    ("absent", ["true"]),
    ("read-only", ["cp @ /etc/resolv.conf", "mount -o remount,bind,ro /etc"]),
    ("a bind mount", ["touch /etc/resolv.conf", "mount --bind @ /etc/resolv.conf"]),
]


@pytest.mark.parametrize("what, steps", RESOLV_CONF, ids=[w for w, _ in RESOLV_CONF])
def test_names_resolve_whatever_resolv_conf_is(world, site, denied, user, what, steps):
    mounts = []
    if steps:
        mounts = ["mount -t tmpfs none /run", ETC, *(s.replace("@", f"'{world.resolv_conf}'") for s in steps)]
    done = world.run("sh", "-c", f"getent ahostsv4 {site.name}; getent ahostsv4 {denied.name}; exit 0",
                     allow=(site.name,), user=user, mounts=mounts)
    assert done.code == 0 and site.v4 in done.text and denied.v4 not in done.text, done
    assert world.dns.count(denied.name) == 0


def test_the_hosts_resolv_conf_is_as_it_was(world, site):
    before = subprocess.run(["cat", "/etc/resolv.conf"], capture_output=True, check=True).stdout
    world.run("sh", "-c", "echo nameserver 6.6.6.6 > /etc/resolv.conf; rm -f /etc/resolv.conf; true")
    assert open("/etc/resolv.conf", "rb").read() == before


def test_ipv6_is_there_when_the_host_has_it(world, site):
    aaaa, dial = world.probe(["dns", site.name, "AAAA"], ["tcp", site.v6, 7007, "six"], allow=(f"{site.name}:7007",))
    assert aaaa.addresses == [site.v6] and dial.data == "six"


def test_without_ipv6_on_the_host_names_have_ipv4_only(world, site, denied):
    """NODATA for AAAA, and programs go on with IPv4 at once."""
    world.host.ip("route del default", family=6)
    try:
        aaaa, four, name = world.probe(["dns", site.name, "AAAA"], ["connect", site.name, 7007, "four"],
                                       ["dns", denied.name, "AAAA"], allow=(f"{site.name}:7007",))
        expect.no_data(aaaa)
        assert four.data == "four" and four.ms < expect.FAST_MS
        expect.name_refused(name)
    finally:
        world.host.ip(f"route add default via {GATEWAY6}", family=6)


def test_limits_and_niceness_are_the_callers(world, user):
    show = "ulimit -n; ulimit -u; ulimit -f; ulimit -s; umask; nice"
    script = "ulimit -Sn 512; ulimit -s 4096; umask 077; exec nice -n 3 "
    inside = world.command("sh", "-c", f"{script} '{world.weir_path}' run -- sh -c '{show}'", user=user)
    outside = world.command("sh", "-c", f"{script} sh -c '{show}'", user=user)
    assert inside.text == outside.text and inside.code == 0, inside


def test_long_arguments_and_environments_arrive(world, user):
    done = world.run("sh", "-c", "echo ${#1} ${#LONG}", "sh", "a" * 120_000, user=user, env={"LONG": "b" * 120_000})
    assert done.text == "120000 120000\n", done


def test_a_directory_by_a_link_is_the_same_directory(world, user):
    real, place = world.workdir(user), world.workdir(user)
    (place / "link").symlink_to(real)
    done = world.run("sh", "-c", "touch new && echo made", user=user, cwd=place / "link")
    assert done.text == "made\n" and (real / "new").exists(), done


def test_a_directory_that_is_gone_is_an_error(world, user):
    cwd = world.workdir(user)
    script = f"mkdir gone && cd gone && rmdir '{cwd}/gone' && exec '{world.weir_path}' run -- echo started"
    done = finish(world.start(["sh", "-c", script], user=user, cwd=cwd))
    assert done.code == 125 and done.out == b"" and "directory" in done.messages, done


def test_a_directory_that_cannot_be_written_is_no_problem(world):
    cwd = world.workdir()
    done = world.run("sh", "-c", "ls; touch x 2>/dev/null || echo closed", user="weir-test", cwd=cwd)
    assert done.text == "closed\n", done


def test_everything_of_a_tree_can_be_made_changed_and_removed(world, user):
    """What builds do: links, fifos, renames, modes, times, many files."""
    script = ("mkdir -p a/b && echo 1 > a/b/f && ln a/b/f hard && ln -s a/b/f soft && mkfifo pipe && mv a c && "
              "chmod 700 c && touch -d 2020-01-01 c/b/f && cat soft 2>/dev/null; cat hard && "
              "for i in $(seq 500); do echo $i > c/$i; done && rm -r c hard soft pipe && ls -A | wc -l")
    done = world.run("sh", "-c", script, user=user)
    assert done.text == "1\n0\n", done


def test_a_home_directory_in_tmp_is_seen_read_only(world, user):
    """As working directory it isn't writable unasked; but it is there, and sockets in it aren't."""
    who = world.user(user)
    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        os.chmod(home, 0o755)
        os.chown(home, who.uid, who.gid)
        pathlib.Path(home, "file").write_text("seen\n")
        code = "import socket; socket.socket(socket.AF_UNIX).connect('sock')"
        with listening(world, f"{home}/sock", "SOCK_STREAM") as reached:
            done = world.run("sh", "-c", f"cat file; touch new; /usr/bin/python3 -IS -c \"{code}\"", cwd=home,
                             env={"HOME": home}, user=user)
            assert not reached(), done
        assert done.text == "seen\n" and "Read-only" in done.messages and "Error" in done.messages, done
        assert not os.path.exists(f"{home}/new")


def test_a_machine_with_many_mounts_is_no_problem(world, user):
    folder = world.workdir(user)
    for n in range(1500):
        (folder / str(n)).mkdir()
    bind = f"[ctypes.CDLL(None).mount(b'/usr', b'{folder}/%d' % n, None, 4096, None) for n in range(1500)]"
    done = world.run("ls", f"{folder}/1499/bin/env", mounts=(f'/usr/bin/python3 -c "import ctypes; {bind}"',), user=user)
    assert done.code == 0, done


def test_a_mount_in_a_very_large_directory_takes_nothing_away(world, user):
    """An ordinary user's view is then made of its entries: the files and directories are seen, the sockets refuse."""
    folder = world.workdir() / "large"
    for n in range(1500):
        (folder / f"folder{n}").mkdir(parents=True)
        (folder / f"file{n}").write_text(f"{n}\n", encoding="ascii")
    (folder / "folder7/seen").write_text("seen\n", encoding="ascii")
    mounts = (f"mount -t tmpfs none {folder}/folder0", f"echo mounted > {folder}/folder0/file")
    code = f"import socket; socket.socket(socket.AF_UNIX).connect('{folder}/folder8/sock')"
    script = f'ls {folder} | wc -l; cat {folder}/file1499 {folder}/folder7/seen {folder}/folder0/file; /usr/bin/python3 -IS -c "{code}"'
    with listening(world, f"{folder}/folder8/sock", "SOCK_STREAM") as reached:
        done = world.run("sh", "-c", script, user=user, mounts=mounts)
        assert not reached(), done
    assert done.text == "3000\n1499\nseen\nmounted\n" and "ConnectionRefusedError" in done.messages, done


DIRECTORIES = r"""
cd "$0"; ls -A empty closed enter listed full
cat closed/file enter/file listed/file full/file
touch empty/new closed/new; chmod 755 closed; ls closed
echo mounts: $(cut -d' ' -f5 /proc/self/mountinfo | grep "^$0/" | sed "s|.*/||" | sort)
"""


def test_empty_and_closed_directories_show_nothing_and_are_no_mounts(world):
    """An ordinary user's view, where something is mounted beside them: a mount is what such a directory costs."""
    folder = world.workdir()
    for name, mode in (("empty", 0o755), ("closed", 0o700), ("enter", 0o711), ("listed", 0o744), ("full", 0o755), ("mounted", 0o755)):
        (folder / name).mkdir()
        if name not in ("empty", "mounted"):
            (folder / name / "file").write_text(f"{name}\n", encoding="ascii")
        (folder / name).chmod(mode)
    done = world.run("sh", "-c", DIRECTORIES, str(folder), user="weir-test", mounts=(f"mount -t tmpfs none {folder}/mounted",))
    assert done.text.splitlines() == ["empty:", "", "enter:", "", "full:", "file", "", "listed:", "file", "enter", "full",
                                      "mounts: enter full listed mounted"], done
    for what in ("'closed': Permission", "'enter': Permission", "closed/file: Permission", "listed/file: Permission",
                 "'empty/new': Read-only", "'closed/new': Permission", "'closed': Read-only"):
        assert what in done.messages, (what, done)
    assert done.messages.count("'closed': Permission") == 2, done


def test_a_mount_below_var_takes_nothing_away(world, user):
    """/var is then made of its entries."""
    mounts = ("mount -t tmpfs none /var/opt", "mkdir /var/opt/there")
    script = 'test -d /var/opt/there && touch /var/tmp/mine && readlink /var/run || ls -ld /var/run'
    done = world.run("sh", "-c", script, user=user, mounts=mounts)
    assert done.code == 0 and done.text in ("/run\n", "../run\n"), done


CHURN = """
echo churns
while [ ! -e "$0/stop" ]; do
    mkdir "$0/place"; mount -t tmpfs -o size=1m none "$0/place"; umount -l "$0/place"; rmdir "$0/place"
    for i in 1 2 3; do echo x > "$0/file$i"; ln -s x "$0/link$i"; mkdir "$0/folder$i"; done; rm -rf "$0"/[fl]*[123]
done
"""


def test_mounts_and_files_that_come_and_go_stop_no_start(world, user):
    """As those of containers do, on a host that has some."""
    folder = world.workdir(user)
    churn = subprocess.Popen(["sh", "-c", CHURN, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert churn.stdout.readline() == b"churns\n"
        ended = [world.run("true", user=user) for _ in range(40 if user == "root" else 20)]
    finally:
        (folder / "stop").touch()
        churn.wait(60)
    assert [str(done) for done in ended if done.code != 0 or b"is empty in the sandbox" in done.err] == []


# An overlay of /usr fails once, as where the directory was removed and has been made again by the next look at it.
AWAY = r"""
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
int mount(const char *source, const char *target, const char *type, unsigned long flags, const void *data)
{
	static int away;
	int (*really)(const char *, const char *, const char *, unsigned long, const void *) = dlsym(RTLD_NEXT, "mount");
	if (type && !strcmp(type, "overlay") && strstr(data, ":/usr") && !away++) {
		errno = ENOENT;
		return -1;
	}
	return really(source, target, type, flags, data);
}
"""


def test_a_directory_that_was_away_for_a_moment_is_not_empty(world):
    library = world.workdir() / "away.so"
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-xc", "-", "-o", library], input=AWAY.encode(), check=True)
    done = world.run("/usr/bin/true", user="weir-test", env={"LD_PRELOAD": str(library)})
    assert done.code == 0 and b"empty" not in done.err, done


@pytest.mark.parametrize("options", [(), ("--rw", ".")])
def test_root_in_another_users_directory_is_told(world, options):
    """Without a right over files of others it writes there as little as another user does."""
    folder = world.workdir("weir-test")
    done = world.run("sh", "-c", "cat file; touch new", cwd=folder, options=options)
    assert done.code == 1 and not (folder / "new").exists(), done
    told = [line for line in done.messages.splitlines() if line.startswith("weir: ")]
    assert len(told) == 1 and "belongs to 'weir-test'" in told[0] and "can't write" in told[0], done
    assert "weir: " not in world.run("touch", "new", cwd=folder, options=(*options, "--quiet")).messages
    folder.chmod(0o777)
    done = world.run("touch", "new", cwd=folder, options=options)
    assert done.code == 0 and done.err == b"", done
