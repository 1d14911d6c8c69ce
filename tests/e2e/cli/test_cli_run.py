# SPDX-License-Identifier: Apache-2.0
"""weir run --cgroup and --uid: a command on the host that the daemon guards, from before its first instruction to after
its last process."""
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess

import pytest

from world.capture import Capture
from world.netns import NetNs
from world.program import is_alive
from world.sidecar import wait_for
from world.threads import LEADERLESS, has_no_leader

CGROUPS = next(line.split()[1] for line in pathlib.Path("/proc/self/mounts").read_text().splitlines() if " cgroup2 " in line)
PYTHON = ("/usr/bin/python3", "-ISc")
CONNECT = """
import socket, sys
for name in sys.argv[1:]:
    try:
        socket.create_connection((name, 443), 5).close()
        print("open")
    except OSError as e:
        print(type(e).__name__)
"""


@pytest.fixture
def user(world):
    return world.uid()


@pytest.fixture
def group(world):
    """A path for a cgroup; whoever is in it at the end is killed."""
    path = pathlib.Path(CGROUPS) / f"weir-cli-{os.getpid()}-{world.number()}"
    yield path
    with contextlib.suppress(OSError):
        (path / "cgroup.kill").write_text("1")
        wait_for(lambda: "populated 0" in (path / "cgroup.events").read_text())
        path.rmdir()


def run(daemon, *args, **options):
    return daemon.weir("run", "--no-config", *args, **options)


def start(daemon, *args, **options):
    argv = daemon.host.ns.command(str(daemon.program), "run", "--no-config", *map(str, args))
    return subprocess.Popen(argv, env=daemon._env, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def kinds(group, user):
    return [("--uid", user), ("--cgroup", group, "--uid", user)]


@pytest.mark.parametrize("kind", [0, 1], ids=["uid", "cgroup"])
def test_it_reaches_what_its_policy_lists(daemon, group, user, site, denied, kind):
    done = run(daemon, *kinds(group, user)[kind], "--allow", site.name, "--verify", "dns", "--",
               *PYTHON, CONNECT, site.name, denied.name, "93.9.9.9")
    assert done.text.split()[1:] == ["gaierror", "ConnectionRefusedError"], f"{done}\n{daemon}"
    assert daemon.host.queries(denied.name) == 0
    assert re.search(rf"weir:   {re.escape(denied.name)} +\d times", done.messages), done
    assert f"weir:   --allow {denied.name}\n" in done.messages and "--allow 93.9.9.9:tcp/443" in done.messages
    # and nothing is left
    assert daemon.names() == [] and not group.exists()
    # who isn't guarded is not touched
    free = subprocess.run(daemon.host.ns.command(*PYTHON, CONNECT, denied.name), capture_output=True, text=True, check=True)
    assert "gaierror" not in free.stdout


def test_how_the_command_starts(daemon, group, user):
    inherited = socket.socket()
    show = ("import os, socket\n"
            "print(os.getresuid(), os.getresgid(), os.getgroups())\n"
            "print(sorted(os.listdir('/proc/self/fd')))\n"
            "print([l.split()[1] for l in open('/proc/self/status') if l[:4] in ('CapE', 'CapP', 'CapB', 'CapA', 'NoNe')])\n"
            "print(open('/proc/self/cgroup').read().splitlines()[-1])\n"
            "for family in (socket.AF_VSOCK, socket.AF_PACKET):\n"
            "    try: socket.socket(family)\n"
            "    except OSError as e: print('closed')\n")
    started = start(daemon, "--cgroup", group, "--uid", user, "--", *PYTHON, show, pass_fds=[inherited.fileno()])
    out, messages = started.communicate(timeout=60)
    nothing = "0" * 16
    assert out.splitlines() == [f"({user}, {user}, {user}) (65534, 65534, 65534) []",
                                "['0', '1', '2', '3']",  # the last is the listing's own
                                f"['{nothing}', '{nothing}', '{nothing}', '{nothing}', '1']",
                                f"0::/{group.name}", "closed", "closed"], messages


def test_a_socket_as_standard_input_starts_nothing(daemon, user):
    with socket.socket() as sock:
        started = start(daemon, "--uid", user, "--", "echo", "started", stdin=sock)
        out, messages = started.communicate(timeout=60)
    assert started.returncode == 125 and out == "" and "failed_safety_setup" in messages
    assert daemon.names() == []


def test_what_is_left_in_a_cgroup_of_its_own_is_killed(daemon, group, user):
    done = run(daemon, "--cgroup", group, "--uid", user, "--", "sh", "-c", "setsid sleep 60 >/dev/null 2>&1 & echo $!; exit 3")
    assert done.code == 3 and not is_alive(int(done.text))
    assert daemon.names() == [] and not group.exists()


@pytest.mark.parametrize("kind", [0, 1], ids=["uid", "cgroup"])
def test_who_is_left_elsewhere_stays_guarded(daemon, group, user, denied, kind):
    group.mkdir()
    script = (f"import os, sys, time, socket\n"
              "if os.fork(): print('gone', flush=True); os._exit(0)\n"
              "os.setsid(); os.dup2(os.open('/dev/null', os.O_RDWR), 1); os.dup2(1, 2)\ntime.sleep(60)\n")
    done = run(daemon, *kinds(group, user)[kind], "--", *PYTHON, script)
    name, = daemon.names()
    assert done.code == 0 and f"weir detach {name}" in done.messages, done
    if kind == 1:
        (group / "cgroup.kill").write_text("1")
        wait_for(lambda: "populated 0" in (group / "cgroup.events").read_text())
    else:
        subprocess.run(["pkill", "-KILL", "-u", str(user)], check=True)
    assert daemon.weir("detach", name).code == 0 and group.exists()


def test_who_is_left_where_nothing_is_mounted_any_more_stays_guarded(daemon, group, user):
    group.mkdir()
    argv = daemon.host.ns.command("unshare", "--mount", str(daemon.program), "run", "--no-config", "--cgroup", str(group),
                                  "--uid", str(user), "--", "sh", "-c", "setsid sleep 60 >/dev/null 2>&1 & echo; read line")
    with subprocess.Popen(argv, env=daemon._env, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        started.stdout.readline()
        subprocess.run(["nsenter", f"--mount=/proc/{started.pid}/ns/mnt", "umount", "-l", CGROUPS], check=True)
        messages = started.communicate(b"\n", timeout=60)[1].decode()
    name, = daemon.names()
    assert f"weir detach {name}" in messages
    (group / "cgroup.kill").write_text("1")
    wait_for(lambda: "populated 0" in (group / "cgroup.events").read_text())
    assert daemon.weir("detach", name).code == 0 and group.exists()


def test_who_is_left_without_a_main_thread_stays_guarded(daemon, user, site):
    """/proc/PID/status calls it a zombie; it sends what it likes as fast as it likes."""
    send = """
import os, socket, sys, time
if child := os.fork():
    while open(f'/proc/{child}/stat').read().rsplit(')', 1)[1].split()[0] != 'Z':
        time.sleep(0.01)
    os._exit(0)
os.setsid(); os.dup2(os.open('/dev/null', os.O_RDWR), 1); os.dup2(1, 2)
def send():
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    while True:
        for address in sys.argv[1:]:
            try: sock.sendto(b'x', (address, 9999))
            except OSError: pass
        time.sleep(0.01)
goes_on(send)
"""
    stranger = "93.9.9.9"
    try:
        done = run(daemon, "--uid", user, "--allow", f"{site.v4}:udp/9999", "--verify", "dns", "--",
                   "/usr/bin/python3", "-ISc", LEADERLESS + send, site.v4, stranger)
        wait_for(lambda: any(map(has_no_leader, subprocess.check_output(["pgrep", "-u", str(user)], text=True).split())))
        # what it may send arrives, after the run as well
        before = len(daemon.host.packets(dst=site.v4))
        wait_for(lambda: len(daemon.host.packets(dst=site.v4)) > before + 20)
        assert not daemon.host.packets(dst=stranger)
        name, = daemon.names()
        assert done.code == 0 and f"weir detach {name}" in done.messages, done
    finally:
        subprocess.run(["pkill", "-KILL", "-u", str(user)], check=True)
    assert daemon.weir("detach", name).code == 0


def test_a_killed_run_sets_nobody_free(daemon, group, user):
    started = start(daemon, "--cgroup", group, "--uid", user, "--", "sh", "-c", "sleep 60 & echo $! $$; wait")
    child, command = map(int, started.stdout.readline().split())
    started.kill()
    started.wait()
    wait_for(lambda: not is_alive(command))
    assert is_alive(child)
    name, = daemon.names()
    assert daemon.get(f"/sandboxes/{name}").json()["cgroup"].endswith(group.name)
    (group / "cgroup.kill").write_text("1")
    assert daemon.weir("detach", name).code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_are_the_commands(daemon, user, number):
    started = start(daemon, "--uid", user, "--", *PYTHON,
                    f"import signal, sys, time\nsignal.signal({int(number)}, lambda *a: sys.exit(7))\n"
                    # a signal that comes just before a sleep is seen after it
                    "print('up', flush=True)\nfor i in range(600): time.sleep(0.1)\n", start_new_session=True)
    assert started.stdout.readline() == "up\n"
    started.send_signal(number)
    assert started.wait(timeout=60) == 7 and daemon.names() == []


def test_the_status_is_the_commands(daemon, user):
    assert run(daemon, "--uid", user, "--", "sh", "-c", "exit 9").code == 9
    assert run(daemon, "--uid", user, "--", "sh", "-c", "kill -KILL $$").code in (137, -9)
    assert run(daemon, "--uid", user, "--", "no-such-program").code == 127
    assert run(daemon, "--uid", user, "--", "/etc/passwd").code == 126
    done = run(daemon, "--uid", user, "--fail-on-deny", "--", *PYTHON, CONNECT, "denied.test")
    assert done.code == 123, done
    assert daemon.names() == []


def test_nothing_starts_unguarded(daemon, group, user, world):
    file = world.folder / f"started-{world.number()}"
    assert daemon.stop() == 0
    for where in (["--uid", user], ["--cgroup", group, "--uid", user]):
        done = run(daemon, *where, "--", "touch", file)
        assert done.code == 125 and "failed_safety_setup" in done.messages, done
    assert not file.exists() and not group.exists()


def test_a_self_test_that_fails_starts_nothing(daemon, group, user, world):
    # what others have put there swallows what the test asks
    daemon.host.nft("add table inet other; add chain inet other o { type filter hook output priority 50; }; "
                    "add rule inet other o udp dport 15353 drop")
    for where in (["--uid", user], ["--cgroup", group, "--uid", user]):
        done = run(daemon, *where, "--", "echo", "started")
        assert done.code == 125 and "failed_safety_setup" in done.messages and done.text == "", done
    assert daemon.names() == [] and not group.exists()


def test_root_and_the_groups_of_the_api_are_refused(daemon, group, world):
    for where, code in ((["--cgroup", group], 125), (["--cgroup", group, "--uid", "root"], 2), (["--uid", "0"], 2),
                        (["--uid", "nobody-of-that-name"], 2)):
        done = run(daemon, *where, "--", "echo", "started")
        assert done.code == code and done.text == "", done
    # the group of nobody's may ask the daemon: nobody is not to be run
    os.chown(daemon.socket, 0, 65534)
    done = run(daemon, "--uid", "nobody", "--", "echo", "started")
    assert done.code == 125 and "of the group that may" in done.messages, done
    assert daemon.names() == [] and not group.exists()


@pytest.mark.parametrize("option", [("--uplink", "relay"), ("--upstream", "192.0.2.1"), ("--repin-interval", "1h"), ("--rw", "/x"),
                                    ("--self-test", "full"), ("--state-dir", "/x")])
def test_options_of_a_namespace_are_errors(daemon, user, option):
    done = run(daemon, "--uid", user, *option, "--", "echo", "started")
    assert done.code == 2 and f"{option[0]} means nothing with --uid" in done.messages and done.text == ""
    done = run(daemon, "--cgroup", "/x", *option, "--", "echo", "started")
    assert done.code == 2 and f"{option[0]} means nothing with --cgroup" in done.messages


def test_what_is_denied_again_and_again_is_counted_to_the_end(daemon, user, denied):
    done = run(daemon, "--uid", user, "--", *PYTHON, CONNECT, *[denied.name] * 20, *["93.9.9.9"] * 5)
    assert re.search(rf"^weir:   {re.escape(denied.name)} +40 times", done.messages, re.M), done
    assert re.search(r"^weir:   93\.9\.9\.9 tcp/443 +5 times", done.messages, re.M), done


def test_what_is_denied_just_before_the_end_is_counted(daemon, user):
    """The filter alone has counted all but the first."""
    done = run(daemon, "--uid", user, "--", *PYTHON, CONNECT, *["93.9.9.9"] * 5)
    assert re.search(r"^weir:   93\.9\.9\.9 tcp/443 +5 times", done.messages, re.M), done


def test_a_report_is_written(daemon, user, denied, tmp_path):
    done = run(daemon, "--uid", user, "--report", tmp_path / "r.json", "--", *PYTHON, CONNECT, denied.name)
    assert done.code == 0
    report = json.loads((tmp_path / "r.json").read_text())
    one, = report["refusals"]
    assert (one["name"], one["allow"], one["times"]) == (denied.name, denied.name, report["counters"]["queries_denied"]), report


ACT = """
import ctypes, os, socket, sys
pid = int(sys.argv[1])
def tried(what, call):
    try:
        call()
        print(what, "done")
    except OSError as e:
        print(what, type(e).__name__)
libc = ctypes.CDLL(None, use_errno=True)
def syscall(*args):
    if libc.syscall(*args) < 0:
        raise OSError(ctypes.get_errno(), "")
tried("memory", lambda: open(f"/proc/{pid}/mem", "r+b"))
tried("trace", lambda: syscall(101, 16, pid, 0, 0))
tried("descriptor", lambda: syscall(438, os.pidfd_open(pid), 0, 0))
tried("namespace", lambda: os.open(f"/proc/{pid}/ns/net", os.O_RDONLY))
tried("move", lambda: (os.mkdir("/tmp/%s-a" % pid), os.mkdir("/tmp/%s-b" % pid), open("/tmp/%s-a/x" % pid, "w"),
                       os.rename("/tmp/%s-a/x" % pid, "/tmp/%s-b/x" % pid)))
"""


def test_it_can_not_act_through_another_process_of_its_user(daemon, group, user):
    """Not even one that the user could do everything to."""
    other = subprocess.Popen(["setpriv", f"--reuid={user}", "--regid=65534", "--clear-groups", "--", "sleep", "60"])
    wait_for(lambda: pathlib.Path(f"/proc/{other.pid}/comm").read_text() == "sleep\n")
    free = subprocess.run(["setpriv", f"--reuid={user}", "--regid=65534", "--clear-groups", "--", *PYTHON, ACT, str(other.pid)],
                          capture_output=True, text=True, check=True)
    assert free.stdout.count("done") == 5, free
    subprocess.run(["rm", "-r", f"/tmp/{other.pid}-a", f"/tmp/{other.pid}-b"], check=True)
    done = run(daemon, "--cgroup", group, "--uid", user, "--", *PYTHON, ACT, other.pid)
    subprocess.run(["rm", "-r", f"/tmp/{other.pid}-a", f"/tmp/{other.pid}-b"], check=True)
    other.kill()
    other.wait()
    assert done.text.splitlines() == ["memory PermissionError", "trace PermissionError", "descriptor PermissionError",
                                      "namespace PermissionError", "move done"], done


# Threads that make their successor and end, faster than anybody looks at them, among others that sleep.
CHURN = """
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static pthread_attr_t detached;
static void *chain(void *data)
{
    pthread_t next;
    while (pthread_create(&next, &detached, chain, data) != 0)
        usleep(10);
    return NULL;
}
static void *idle(void *data)
{
    pause();
    return data;
}
int main(void)
{
    pthread_t thread;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&detached, 32768);
    for (int i = 0; i < 300; i++)
        pthread_create(&thread, &detached, idle, NULL);
    for (int i = 0; i < 6; i++)
        chain(NULL);
    puts("ready");
    fclose(stdout);
    pause();
}
"""


def test_who_makes_threads_all_the_time_keeps_no_other_users_sandbox(daemon, user, tmp_path):
    subprocess.run(["cc", "-pthread", "-xc", "-", "-o", tmp_path / "churn"], input=CHURN.encode(), check=True)
    churner = subprocess.Popen([tmp_path / "churn"], stdout=subprocess.PIPE, text=True)
    try:
        assert churner.stdout.readline() == "ready\n"
        for _ in range(10):
            done = run(daemon, "--uid", user, "--", "true")
            assert done.code == 0 and "processes are left" not in done.messages, done
        assert daemon.names() == []
    finally:
        churner.kill()
        churner.wait()


def test_in_another_network_namespace_nothing_starts(daemon, pod, group, user):
    """The host's filter would not meet it."""
    for where in (["--uid", user], ["--cgroup", group, "--uid", user]):
        done = subprocess.run(pod.ns.command(str(daemon.program), "run", "--no-config", *map(str, where), "--", "echo", "started"),
                              env=daemon._env, capture_output=True, text=True, check=False)
        assert done.returncode == 125 and done.stdout == "", done
        assert "failed_safety_setup: this is another network namespace" in done.stderr
    assert daemon.names() == [] and not group.exists()


@pytest.mark.parametrize("kind", [0, 1], ids=["uid", "cgroup"])
def test_too_many_denials_end_it_with_a_status_of_its_own(daemon, group, user, denied, kind, tmp_path):
    tmp_path.chmod(0o755)
    policy = tmp_path / "policy.yaml"
    policy.write_text("on_denies: {count: 3, window: 1m, action: stop}\n")
    asks = "".join(f"getent hosts n{i}.{denied.name}; " for i in range(8))
    done = run(daemon, *kinds(group, user)[kind], "--policy", policy, "--", "sh", "-c", asks + "exec sleep 300")
    assert done.code == 122, f"{done}\n{daemon}"
    assert "the command was ended: the policy's on_denies says stop" in done.messages


def test_the_readmes_recipe(daemon, group, user):
    readme = (pathlib.Path(__file__).resolve().parents[3] / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^    weir run (--cgroup .*) -- make$", readme, re.M)
    args = line.replace("/jobs.slice/1", str(group)).replace("--uid jobs", f"--uid {user}").split()
    assert str(group) in args and str(user) in args
    done = run(daemon, *args, "--", "cat", "/proc/self/cgroup")
    assert done.code == 0 and f"0::/{group.name}\n" in done.text, done


@pytest.fixture
def neighbour(host):
    """Another namespace on a link of the host's, which says that any address is its own. Gives what arrives there."""
    there = NetNs()
    host.ns.ip("link add near type veth peer name far", "link set near up", "address add 198.18.7.1/24 dev near")
    subprocess.run(host.ns.command("ip", "link", "set", "far", "netns", there.path), check=True)
    there.ip("link set far up", "address add 198.18.7.2/24 dev far", "route add default via 198.18.7.1")
    there.sysctl(ipv4__conf__far__proxy_arp=1)
    there.ip("route add local 93.0.0.0/8 dev lo")
    with Capture(there, "far") as capture:
        yield capture
    there.close()


PAST_THE_ROUTES = """
import socket, struct
def tried(call):
    try:
        call()
    except OSError as e:
        print(type(e).__name__)
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    for option, value in ((25, b"near"), (62, struct.pack("i", socket.if_nametoindex("near"))), (None, None)):
        s = socket.socket(socket.AF_INET, kind)
        s.settimeout(1)
        if option:
            tried(lambda: s.setsockopt(socket.SOL_SOCKET, option, value))
        tried(lambda: s.connect(("93.9.9.9", 443)))
        tried(lambda: s.send(b"secret"))
"""


def test_it_sends_nothing_to_a_neighbour_who_claims_an_allowed_address(daemon, user, neighbour):
    """An address rule opens the address wherever it leads: the route, and not who sends, is to choose the link."""
    argv = (*PYTHON, PAST_THE_ROUTES)
    free = subprocess.run(daemon.host.ns.command("setpriv", f"--reuid={user}", "--regid=65534", "--clear-groups", "--", *argv),
                          capture_output=True, text=True, check=True)
    before = len(neighbour.packets(dst="93.9.9.9"))
    assert before > 0, free
    done = run(daemon, "--uid", user, "--verify", "dns", "--allow", "93.9.9.9", "--", *argv)
    assert len(neighbour.packets(dst="93.9.9.9")) == before, done
    assert done.code == 0 and done.text.count("PermissionError") >= 4, done


PEEK = """
import glob, os
print(sorted(n for n in os.environ if "NEEDLE" in n))
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
    try:
        text = open(path, "rb").read()
    except OSError:
        continue
    if b"needle-" + b"1" in text:
        print("seen in", path, text[:200])
"""


@pytest.mark.parametrize("kind", [0, 1], ids=["uid", "cgroup"])
def test_G31_the_secrets_of_the_callers_environment_stay_outside(daemon, group, user, kind):
    """Neither are they in another process's that the command sees."""
    env = {**daemon._env, "NEEDLE_TOKEN": "needle-1", "NEEDLE": "plain", "WEIR_NEEDLE": "needle-1"}
    argv = daemon.host.ns.command(str(daemon.program), "run", "--no-config", *map(str, kinds(group, user)[kind]))

    def seen(*options):
        return subprocess.run([*argv, *options, "--", *PYTHON, PEEK], env=env, cwd="/", capture_output=True, text=True, timeout=60)
    done = seen()
    assert done.stdout == "['NEEDLE']\n" and "NEEDLE_TOKEN" in done.stderr, done
    done = seen("--env", "all")
    assert "['NEEDLE', 'NEEDLE_TOKEN']" in done.stdout and "seen in" in done.stdout, done


def test_the_first_denials_are_said_while_the_command_runs(daemon, user):
    script = CONNECT + "sys.stdin.read()\n"
    started = start(daemon, "--uid", user, "--allow", "api.ok.test", "--", *PYTHON, script, "one.denied.test", "two.denied.test",
                    stdin=subprocess.PIPE)
    said = [started.stderr.readline() for _ in range(2)]
    assert sorted(line.split(":")[1] for line in said) == [" refused one.denied.test", " refused two.denied.test"], said
    assert started.poll() is None
    rest = started.communicate(timeout=60)[1]
    assert rest.startswith("weir: refused:\n") and rest.count("  one.denied.test ") == 1, rest
    quiet = start(daemon, "--quiet", "--uid", user, "--", *PYTHON, CONNECT, "one.denied.test")
    assert quiet.communicate(timeout=60) == ("gaierror\n", "")


def test_a_stream_that_the_command_closes_does_not_end_weir(daemon, user):
    ours, theirs = socket.socketpair()
    close = "socket.socket(fileno=2).shutdown(socket.SHUT_WR); sys.exit(3)"
    with ours, theirs:
        argv = daemon.host.ns.command(str(daemon.program), "run", "--no-config", "--uid", str(user), "--", *PYTHON, CONNECT + close, "one.denied.test")
        done = subprocess.run(argv, env=daemon._env, cwd="/", stdout=subprocess.PIPE, stderr=theirs, timeout=60)
    assert done.returncode == 3 and done.stdout == b"gaierror\n", done


@pytest.mark.parametrize("how", [signal.SIG_DFL, signal.SIG_IGN])
def test_what_the_command_does_about_a_closed_pipe_is_the_callers(daemon, user, how):
    started = start(daemon, "--uid", user, "--", "grep", "SigIgn", "/proc/self/status", restore_signals=False,
                    preexec_fn=lambda: signal.signal(signal.SIGPIPE, how))
    ignored = int(started.communicate(timeout=60)[0].split()[1], 16)
    assert (ignored >> (signal.SIGPIPE - 1) & 1) == (how == signal.SIG_IGN)
