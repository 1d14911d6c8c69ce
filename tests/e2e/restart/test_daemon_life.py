# SPDX-License-Identifier: Apache-2.0
"""Whoever dies, and whenever: nothing opens, and the same sandboxes are guarded afterwards."""
import contextlib
import json
import os
import re
import signal
import socket
import stat
import subprocess
import threading
import time

import pytest

from test_cli_tls import make_certificate
from world import expect
from world.daemon import pid_in
from world.expect import STRANGER, is_guarded
from world.member import Member
from world.netns import NetNs
from world.sidecar import Flow, Pod, policy, wait_for
from world.world import ROOT

UID = 1203


@pytest.mark.parametrize("child", ["engine", "control"])
def test_a_child_that_dies(daemon, pod, other, site, denied, child):
    daemon.attach("one", pod, "--allow", site.name)
    daemon.attach("two", other, "--allow", denied.name)
    assert is_guarded(pod, site) and is_guarded(other, denied)
    flow = Flow(pod, site.v4)
    daemon.kill_child(child)
    assert flow.say() == "got"
    assert pod.probe(["tcp", site.v4, 443]).result == "ok", "what was learned is forgotten"
    assert is_guarded(pod, site) and is_guarded(other, denied)
    assert daemon.names() == ["one", "two"]
    daemon.set_policy("one")
    assert flow.say() != "got"
    expect.name_refused(pod.probe(["dns", site.name]))
    assert is_guarded(other, denied)


def handles(pod):
    """The kernel's numbers for the rules of a chain, which are others when they are made anew."""
    return re.findall(r"handle (\d+)", pod.nft("-a", "list", "chain", "inet", "opensandbox", "egress"))


def learned(pod, site):
    return site.v4 in str(pod.set_elements("dyn_allow_v4"))


@pytest.mark.parametrize("verify", ["dns", "tls"])
def test_what_stands_unchanged_is_taken_over(host, pod, site, denied, verify):
    """No table is exchanged under a connection that is just being made."""
    daemon = host.daemon()
    daemon.attach("one", pod, "--allow", site.name)
    daemon.set_policy("one", f"allow {site.name}", verify=verify)
    assert is_guarded(pod, site) and learned(pod, site)
    before = handles(pod)
    for way in ("engine", "restart"):
        if way == "engine":
            daemon.kill_child("engine")
        else:
            assert daemon.stop() == 0
            daemon = host.daemon()
        assert handles(pod) == before, way
        assert learned(pod, site) and is_guarded(pod, site)
        expect.name_refused(pod.probe(["dns", denied.name]))
    flow = Flow(pod, site.v4, 443) if verify == "dns" else None
    daemon.set_policy("one")
    assert handles(pod) != before and not learned(pod, site)
    expect.tcp_refused(pod.probe(["tcp", site.v4, 443]))
    assert not flow or flow.say() != "got"


def as_soon_as_free(pod, command):
    """The table is its owner's until the kernel has closed the last socket of the daemon's that ended."""
    def is_done():
        with contextlib.suppress(AssertionError):
            pod.nft(*command.split())
            return True
    wait_for(is_done, step=0.05)


@pytest.mark.parametrize("harm", ["add rule inet opensandbox egress accept", "insert rule inet opensandbox egress accept",
                                  "flush chain inet opensandbox nat", "delete chain inet opensandbox input"])
def test_what_others_have_changed_meanwhile_is_put_back(host, pod, site, harm):
    daemon = host.daemon()
    daemon.attach("one", pod, "--allow", site.name)
    assert is_guarded(pod, site)
    assert daemon.stop() == 0
    if harm.startswith("delete chain"):
        as_soon_as_free(pod, "flush chain inet opensandbox input")
    as_soon_as_free(pod, harm)
    changed = pod.nft("list", "ruleset")
    daemon = host.daemon()
    wait_for(lambda: pod.nft("list", "ruleset") != changed and is_guarded(pod, site))
    assert daemon.status("one")["fullIsolation"]


def test_a_policy_that_was_exchanged_meanwhile_cuts_what_it_forbids(host, pod, site, denied):
    """The rules of both are the same, for only a name differs, and what the first one taught is forgotten."""
    daemon = host.daemon()
    daemon.attach("one", pod, "--allow", site.name)
    daemon.set_policy("one", f"allow {site.name}", verify="dns")
    pod.probe(["dns", site.name])
    flow = Flow(pod, site.v4)
    assert flow.say() == "got" and daemon.stop() == 0
    kept = daemon.run_dir / "sandboxes" / "one"
    text = (kept / "policy.json").read_text(encoding="ascii")
    for name in (site.name, denied.name):  # the same one first: the flow goes on
        for learned_set in ("dyn_allow_v4", "dyn_allow_v6"):
            as_soon_as_free(pod, f"flush set inet opensandbox {learned_set}")
        (kept / "image").unlink()
        (kept / "policy.json").write_text(text.replace(site.name, name), encoding="ascii")
        daemon = host.daemon()
        assert (flow.say() == "got") == (name == site.name)
        assert daemon.stop() == 0


def test_what_a_dead_engine_has_not_told_of_is_undone(host, pod, site, denied):
    """A table that was made of another policy, which nobody else knows, is not taken over."""
    daemon = host.daemon()
    daemon.attach("one", pod, "--allow", site.name)
    assert is_guarded(pod, site)
    for _ in range(5):
        os.kill(daemon.pid, signal.SIGSTOP)  # it is not told that the policy is in force
        before, engine = handles(pod), daemon.children()["engine"]
        asked = threading.Thread(target=lambda: contextlib.suppress(OSError).__enter__() or
                                 daemon.call("POST", "/sandboxes/one/policy", policy(f"allow {denied.name}")), daemon=True)
        asked.start()
        wait_for(lambda: handles(pod) != before)
        os.kill(engine, signal.SIGKILL)
        os.kill(daemon.pid, signal.SIGCONT)
        asked.join()
        wait_for(daemon.healthy)
        now = daemon.get("/sandboxes/one/policy").json()
        allowed = site if site.name in str(now) else denied
        refused = denied if allowed is site else site
        assert pod.probe(["dns", allowed.name]).addresses == [allowed.v4]
        expect.name_refused(pod.probe(["dns", refused.name]))
        assert not learned(pod, refused)
        daemon.set_policy("one", f"allow {site.name}")


def test_a_dead_daemon_leaves_it_closed_and_the_next_guards_it(host, pod, other, site, denied):
    daemon = host.daemon()
    daemon.attach("one", pod, "--allow", site.name)
    daemon.attach("two", other)
    daemon.set_policy("two", f"allow {denied.name}")
    assert is_guarded(pod, site)
    flow = Flow(pod, site.v4)
    daemon.kill()
    known, unknown, lookup = pod.probe(["tcp", site.v4, 443], ["tcp", STRANGER, 443], ["dns", denied.name])
    assert known.result == "ok" and flow.say() == "got"
    expect.tcp_refused(unknown)
    assert lookup.result != "NOERROR"
    again = host.daemon()
    assert again.names() == ["one", "two"]
    assert again.status("one")["counters"]["adopted"] > 0
    assert flow.say() == "got"
    assert pod.probe(["tcp", site.v4, 443]).result == "ok"
    assert is_guarded(pod, site) and is_guarded(other, denied)
    expect.name_refused(other.probe(["dns", site.name]))


def test_a_daemon_that_is_stopped_removes_nothing(host, pod, site):
    daemon = host.daemon()
    daemon.attach("one", pod, "--allow", site.name)
    assert daemon.stop() == 0
    assert not daemon.socket.exists()
    expect.tcp_refused(pod.probe(["tcp", STRANGER, 443]))
    assert is_guarded_by(host.daemon(), pod, site)


def is_guarded_by(daemon, pod, site):
    return daemon.names() == ["one"] and is_guarded(pod, site)


def test_a_namespace_that_went_meanwhile(host, world, site):
    daemon = host.daemon()
    with Pod(world) as pod:
        daemon.attach("one", pod, "--allow", site.name)
        daemon.kill()
    again = host.daemon()
    assert again.names() == []
    assert list((again.run_dir / "sandboxes").iterdir()) == []
    assert [line for line in again.errors if "sandbox 'one' is gone" in line]


@pytest.mark.parametrize("how", ["its process has ended", "its path is gone", "another process has its number",
                                 "a thread has its number"])
def test_a_namespace_that_only_processes_lead_to_is_guarded_again(host, pod, site, tmp_path, how):
    named, lives = (pod.start("/bin/sleep", 600) for _ in range(2))
    path = tmp_path / "netns"
    path.touch()
    subprocess.run(["mount", "--bind", pod.ns.path, path], check=True)
    pid_in(pod, lives)
    daemon = host.daemon()
    try:
        daemon.attach("one", None, "--allow", site.name, where=path if how == "its path is gone" else pid_in(pod, named))
    finally:
        subprocess.run(["umount", path], check=True)
    named.kill()
    time.sleep(1.5)  # it is looked for
    assert is_guarded_by(daemon, pod, site)
    daemon.kill()
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    if how.endswith("has its number"):
        with in_its_folder(daemon) as kept:
            kept["netns"] = str(other.native_id if how.startswith("a thread") else os.getpid())
    try:
        again = host.daemon()
        assert is_guarded_by(again, pod, site)
    finally:
        done.set()
        other.join()
    lives.kill()
    wait_for(lambda: again.names() == [])
    assert list((again.run_dir / "sandboxes").iterdir()) == []


@pytest.mark.parametrize("harm", ["gone", "short"])
def test_a_budget_whose_count_is_lost_is_used_up(host, pod, site, denied, harm):
    daemon = host.daemon()
    spend = {"action": "allow", "target": site.name, "budget": {"sent": "2K"}}
    reply = daemon.call("PUT", "/sandboxes/one", {"netns": pod.ns.path, "policy": json.loads(policy(spend, f"allow {denied.name}"))})
    assert reply.status == 201 and pod.probe(["dns", site.name]).addresses, reply
    daemon.kill()
    image = daemon.run_dir / "sandboxes" / "one" / "image"
    if harm == "gone":
        image.unlink()
    else:
        os.truncate(image, 1000)
    for _ in range(2):
        daemon = host.daemon()
        spent, free = pod.probe(["dns", site.name], ["dns", denied.name])
        expect.name_refused(spent)
        assert free.addresses
        daemon.kill()


@contextlib.contextmanager
def in_its_folder(daemon):
    """What is kept of sandbox one, to be changed."""
    file = daemon.run_dir / "sandboxes" / "one" / "attach.json"
    kept = json.loads(file.read_text())
    yield kept
    file.write_text(json.dumps(kept))


def test_a_namespace_that_has_the_inode_of_one_that_is_gone_is_another_one(host, pod, site):
    """The kernel gives the inode to the next namespace that is made, whoever makes it."""
    daemon = host.daemon()
    daemon.attach("one", pod, "--allow", site.name)
    daemon.kill()
    with in_its_folder(daemon) as kept:
        assert kept["cookie"] > 0
        kept["cookie"] += 1
    again = host.daemon()
    assert again.names() == [] and again.healthy()
    assert [line for line in again.errors if "sandbox 'one' is gone: it is another network namespace by now" in line]
    assert list((again.run_dir / "sandboxes").iterdir()) == []
    again.attach("two", pod, "--allow", site.name)
    assert is_guarded(pod, site)


def test_what_is_in_its_folder_is_checked(host, pod, site):
    daemon = host.daemon()
    daemon.attach("one", pod, "--allow", site.name)
    daemon.kill()
    folder = daemon.run_dir / "sandboxes"
    for name, text in (("two", "{"), ("three", '{"id": 70000, "netns": "/x", "dev": 1, "ino": 1}'),
                       ("four", '{"id": 1, "netns": "/etc/passwd", "dev": 1, "ino": 1}')):
        (folder / name).mkdir()
        (folder / name / "attach.json").write_text(text)
        (folder / name / "policy.json").write_text("{}")
    (folder / "one" / "image").write_bytes(os.urandom(1000))
    again = unwell(host)
    assert again.names() == ["one"]
    assert is_guarded(pod, site)


def unwell(host):
    """A daemon that doesn't serve everything that was guarded before, and says so."""
    daemon = host.daemon(ready=False)
    wait_for(daemon.answers)
    return unwell_of(daemon)


def unwell_of(daemon):
    wait_for(lambda: [d for d in daemon.get("/status").json()["degradations"] if d["what"] == "sandboxes"])
    assert daemon.get("/healthz").status == 503 and not daemon.get("/status").json()["fullIsolation"]
    return daemon


def test_no_pipe_in_its_folder_keeps_it_waiting(host, pod, site):
    daemon = host.daemon()
    daemon.attach("one", pod, "--allow", site.name)
    folder = daemon.run_dir / "sandboxes"
    os.mkfifo(folder / "one" / ".new")
    reply = daemon.call("POST", "/sandboxes/one/policy", policy(f"allow {site.name}"))
    assert reply.status == 200, reply
    daemon.kill()
    for name, pipe in (("two", "attach.json"), ("three", "policy.json"), ("four", "image")):
        (folder / name).mkdir()
        (folder / name / "attach.json").write_bytes((folder / "one" / "attach.json").read_bytes())
        (folder / name / "policy.json").write_text("{}")
        (folder / name / pipe).unlink(missing_ok=True)
        os.mkfifo(folder / name / pipe)
    again = unwell(host)
    assert again.names() == ["one"] and is_guarded(pod, site)


@pytest.mark.parametrize("whose", ["a user's", "everybody's", "a group's", "a user's below", "a link"])
def test_a_folder_that_others_can_change_is_not_used(host, whose):
    """Whoever can change it can say what is guarded, and stand in for the socket."""
    run = host.folder / "run"
    run.mkdir(0o755)
    (run / "sandboxes").mkdir(0o700)
    if whose.startswith("a user's"):
        os.chown(run / "sandboxes" if whose.endswith("below") else run, 1000, 0)
    elif whose == "a link":
        run.rename(host.folder / "elsewhere")
        os.chown(host.folder / "elsewhere", 1000, 0)
        run.symlink_to("elsewhere")
    else:
        run.chmod(0o777 if whose == "everybody's" else 0o775)
    daemon = host.daemon(ready=False)
    assert daemon.ended() == 125
    wait_for(lambda: any("root's alone" in line for line in daemon.errors))


def test_a_change_that_cant_be_kept_is_none(host, pod, site, denied):
    """A restart would bring the old policy back: so the new one is not in force before, either."""
    daemon = host.daemon()
    daemon.attach("one", pod, "--allow", site.name)
    flow = (pod.probe(["dns", site.name]), Flow(pod, site.v4))[1]
    folder = daemon.run_dir / "sandboxes" / "one"
    (folder / ".new").mkdir()
    reply = daemon.call("POST", "/sandboxes/one/policy", policy(f"allow {denied.name}"))
    assert reply.status == 500 and reply.text.startswith("failed to persist policy"), reply
    assert is_guarded(pod, site) and flow.say() == "got"
    expect.name_refused(pod.probe(["dns", denied.name]))
    assert daemon.get("/sandboxes/one/policy").json()["policy"]["egress"][0]["target"] == site.name
    (folder / ".new").rmdir()
    daemon.set_policy("one", f"allow {denied.name}")
    assert is_guarded(pod, denied)


def test_what_stands_in_the_way_of_a_restart(host, pod, site):
    """The sandbox takes the port of the daemon that is away: it stays closed, and is guarded when it lets go."""
    daemon = host.daemon()
    daemon.attach("one", pod, "--allow", site.name)
    daemon.kill()
    thief = pod.start("/usr/bin/python3", "-c", "import socket\ns=socket.socket(2,2); s.bind(('127.0.0.1',15353))\n"
                      "print('mine',flush=True); input()")
    assert thief.line() == "mine"
    again = host.daemon("--listen", "127.0.0.1:9443", *tls_files(host), ready=False)
    where = (socket.AF_UNIX, str(again.socket)), (socket.AF_INET, ("127.0.0.1", 9443))
    # while it tries, who asks is refused at once; then all that can be served is, and the rest is told
    said = "cannot guard 'one' again"
    while not [line for line in again.errors if said in line]:
        for family, address in where:
            assert not connects(host, family, address) or wait_for(lambda: said in str(again), seconds=3), address
    wait_for(lambda: all(connects(host, *each) for each in where))
    assert unwell_of(again) and again.names() == []
    expect.tcp_refused(pod.probe(["tcp", STRANGER, 443]))
    thief.kill()
    wait_for(lambda: again.names() == ["one"])
    wait_for(again.healthy)
    assert again.get("/status").json()["degradations"] == []
    assert is_guarded(pod, site)


def connects(host, family, address):
    with host.ns.socket(family, socket.SOCK_STREAM) as sock:
        sock.settimeout(2)
        return sock.connect_ex(address) == 0


def tls_files(host):
    cert, key = make_certificate(host.folder)
    token = host.folder / "token"
    token.write_text("a-token-of-many-letters\n")
    return ["--tls-cert", cert, "--tls-key", key, "--token-file", token]


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_connection_that_is_held_delays_no_restart(host, pod, other, site, how):
    """Each asks over TCP and goes on holding it: the next daemon serves the namespace and the user at once."""
    app = Member(host, uid=UID)
    daemon = host.daemon()
    daemon.attach("one", pod, "--allow", site.name)
    assert daemon.weir("attach", "--id", "u", "--uid", UID, "--allow", site.name).code == 0
    program = "import socket\ns=socket.create_connection(('%s',53)); s.send(b'\\0'); print('held',flush=True); input()"
    held = [who.start("/usr/bin/python3", "-c", program % address) for who, address in ((pod, "127.0.0.1"), (app, "8.8.8.8"))]
    assert [each.line() for each in held] == ["held"] * 2
    for _ in range(2):
        getattr(daemon, how)()
        daemon = host.daemon()
        for who in (pod, app):
            assert who.probe(["dns", site.name]).addresses == [site.v4]
            assert who.probe(["dns", site.name, {"transport": "tcp"}]).addresses == [site.v4]
            expect.tcp_refused(who.probe(["tcp", STRANGER, 443]))


def test_nobody_shares_its_ports(host, pod, site):
    """A stranger who allows it, with a port of the host's or of the namespace's; and another daemon."""
    program = ("import socket,sys\ns=socket.socket(socket.AF_INET,int(sys.argv[1])); s.setsockopt(1,2,1); s.setsockopt(1,15,1)\n"
               "s.bind(('127.0.0.1',int(sys.argv[2])))\nif sys.argv[1]=='1': s.listen()\nprint('mine',flush=True); input()")
    daemon = host.daemon()
    for kind, port in ((1, 15353), (2, 15353), (1, 15354)):
        thieves = [who.start("/usr/bin/python3", "-c", program, kind, port) for who in (host, pod)]
        assert [thief.line() for thief in thieves] == ["mine"] * 2
        for where in (["--uid", UID], ["--netns", pod.ns.path]):
            done = daemon.weir("attach", "--id", "one", *where, "--allow", site.name)
            assert done.code == 125 and f"port {port}: Address already in use" in done.messages, str(done)
        for thief in thieves:
            thief.kill()
    assert daemon.weir("attach", "--id", "one", "--uid", UID, "--allow", site.name).code == 0
    (host.folder / "second").mkdir()
    second = host.daemon(folder=host.folder / "second")
    done = second.weir("attach", "--id", "two", "--uid", UID + 1, "--allow", site.name)
    assert done.code == 125 and "Address already in use" in done.messages, str(done)
    assert Member(host, uid=UID).probe(["dns", site.name]).addresses == [site.v4]


def test_only_one_daemon(host, daemon):
    second = host.daemon(ready=False)
    assert second.ended() == 125
    assert daemon.healthy()


def test_systemd_is_told(host):
    path = host.folder / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(path))
        sock.settimeout(60)
        daemon = host.daemon(env={"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "200000"})
        assert sock.recv(100) == b"READY=1"
        assert [sock.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        assert daemon.stop() == 0
        while (word := sock.recv(100)) == b"WATCHDOG=1":
            pass
        assert word == b"STOPPING=1"


def test_the_watchdog_is_fed_by_one_that_is_ready(host):
    path = host.folder / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(path))
        sock.settimeout(60)
        host.daemon(env={"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "4000"})
        assert sock.recv(100) == b"READY=1"
        assert sock.recv(100) == b"WATCHDOG=1"


def test_systemd_waits_as_long_as_sandboxes_come_back(host):
    """A start with thousands takes longer than systemd waits for one."""
    path = host.folder / "notify"
    with contextlib.ExitStack() as spaces, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        daemon = host.daemon()
        for number in range(20):
            space = spaces.enter_context(contextlib.closing(NetNs()))
            assert daemon.call("PUT", f"/sandboxes/s{number}", {"netns": space.path, "policy": {}}).status == 201
        daemon.kill()
        sock.bind(str(path))
        sock.settimeout(60)
        host.daemon(env={"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "4000"})
        assert sock.recv(100) == b"EXTEND_TIMEOUT_USEC=30000000"


class Hanging:
    """Each engine of that number hangs, from its start on; seen: their process ids."""

    def __init__(self, daemon, engine):
        self.seen, self._over = [], threading.Event()
        self._thread = threading.Thread(target=self._hold, args=(daemon, engine), daemon=True)
        self._thread.start()

    def _hold(self, daemon, engine):
        while not self._over.is_set():
            pid = daemon.children(engine).get("engine")
            if pid and pid not in self.seen:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                    self.seen.append(pid)
            time.sleep(0.002)

    def end(self):
        self._over.set()
        self._thread.join()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.seen[-1], signal.SIGCONT)


def is_quiet(sock):
    try:
        return not sock.recv(100)
    except TimeoutError:
        return True


@pytest.mark.parametrize("engine", [0, 1])
def test_a_hung_engine_is_replaced(host, pod, other, site, engine):
    """While each that comes hangs, systemd hears that something is wrong."""
    path = host.folder / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(path))
        sock.settimeout(60)
        daemon = host.daemon("--engines", 2, env={"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "200000"})
        daemon.attach("one", pod, "--allow", site.name)
        daemon.attach("two", other, "--allow", site.name)
        assert sock.recv(100) == b"READY=1" and sock.recv(100) == b"WATCHDOG=1"
        sock.settimeout(1)
        hanging = Hanging(daemon, engine)
        wait_for(lambda: len(hanging.seen) >= 3)
        wait_for(lambda: is_quiet(sock))
        wait_for(lambda: not daemon.healthy() and "does not answer" in str(daemon))
        expect.tcp_refused((pod, other)[engine].probe(["tcp", STRANGER, 443]))
        assert is_guarded(*((other, pod)[engine], site))
        hanging.end()
        wait_for(daemon.healthy)
        assert is_guarded(pod, site) and is_guarded(other, site)
        wait_for(lambda: not is_quiet(sock))


def test_an_engine_without_descriptors_loses_no_policy(daemon, pod, site, denied):
    """The plan of a change is one more: its channel to control breaks, and the next engine can be told again."""
    daemon.attach("one", pod, "--allow", denied.name)
    pid = daemon.children()["engine"]
    used = {int(fd) for fd in os.listdir(f"/proc/{pid}/fd")}
    free = min(set(range(len(used) + 1)) - used)
    subprocess.run(["prlimit", f"--pid={pid}", f"--nofile={free}:{free}"], check=True)
    wait_for(lambda: daemon.call("POST", "/sandboxes/one/policy", policy(f"allow {site.name}")).status == 200)
    assert daemon.children()["engine"] != pid
    expect.name_refused(pod.probe(["dns", denied.name]))
    assert is_guarded(pod, site)


def test_the_unit_gives_it_what_it_needs(host, pod, site):
    """No capability but those of deploy/systemd/weir.service."""
    unit = (ROOT / "deploy/systemd/weir.service").read_text()
    caps = re.search(r"^CapabilityBoundingSet=(.*)$", unit, re.M).group(1).lower().replace("cap_", "+").replace(" ", ",")
    assert "NoNewPrivileges=yes" in unit
    daemon = host.daemon(way=["setpriv", f"--bounding-set=-all,{caps}", "--inh-caps=-all", "--no-new-privs"])
    app = pod.start("/bin/sleep", 600)
    daemon.attach("one", pod, "--allow", site.name)
    assert is_guarded(pod, site)
    daemon.kill_child("engine")
    assert is_guarded(pod, site) and daemon.status("one")["fullIsolation"]
    assert daemon.weir("detach", "one").code == 0
    daemon.attach("two", None, where=pid_in(pod, app))
    expect.tcp_refused(pod.probe(["tcp", STRANGER, 443]))


def test_a_crash_between_engine_and_control(host, pod, site):
    """The engine is given a policy that nobody kept: the one that was kept comes back."""
    daemon = host.daemon()
    daemon.attach("one", pod, "--allow", site.name)
    before = json.loads((daemon.run_dir / "sandboxes" / "one" / "policy.json").read_text())
    daemon.set_policy("one", "allow other.test")
    kept = json.loads((daemon.run_dir / "sandboxes" / "one" / "policy.json").read_text())
    assert before != kept and kept["egress"][0]["target"] == "other.test"
    daemon.kill_child("engine")
    daemon.kill_child("control")
    wait_for(lambda: daemon.get("/sandboxes/one/policy").json()["policy"] == kept)
    expect.name_refused(pod.probe(["dns", site.name]))


def test_a_policy_that_somebody_has_emptied(daemon, pod, other, site):
    """The next control can't show that sandbox, says so, and serves the others."""
    daemon.attach("one", pod, "--allow", site.name)
    daemon.attach("two", other, "--allow", site.name)
    (daemon.run_dir / "sandboxes" / "one" / "policy.json").write_text("")
    daemon.kill_child("control")
    wait_for(daemon.healthy)
    assert daemon.names() == ["two"]
    wait_for(lambda: any("cannot read a policy: it is empty" in line for line in daemon.lines))
    assert is_guarded(pod, site) and is_guarded(other, site)


def test_a_second_daemon_with_the_same_run_directory_does_not_start(host, daemon, pod, site):
    """Though it has a socket of its own: they would take each other's sandboxes."""
    daemon.attach("one", pod)
    daemon.set_policy("one", f"allow {site.name}")
    second = host.daemon("--socket", host.folder / "other.sock", ready=False)
    assert second.ended() == 125
    wait_for(lambda: any("another daemon keeps its state in" in line for line in second.errors))
    assert daemon.healthy() and pod.probe(["dns", site.name]).addresses == [site.v4]
    # and when the first is killed another one has the directory at once
    daemon.kill()
    again = host.daemon()
    wait_for(lambda: again.names() == ["one"])
    assert pod.probe(["dns", site.name]).addresses == [site.v4]


@pytest.mark.parametrize("what", ["socket", "run-dir"])
@pytest.mark.parametrize("harm", ["others", "anybodys", "link"])
def test_it_serves_nothing_where_others_can_take_its_place(host, what, harm):
    """Who may exchange the socket chooses which file the group is given, and answers in the daemon's place."""
    theirs, target = host.folder / "theirs", host.folder / "target"
    target.mkdir()
    if harm == "link":
        theirs.symlink_to(target)
    else:
        theirs.mkdir()
    os.lchown(theirs, *(2 * [0 if harm == "anybodys" else 1000]))
    if harm == "anybodys":
        theirs.chmod(0o777)
    args = ("--socket", theirs / "weir.sock") if what == "socket" else ("--run-dir", theirs / "run")
    daemon = host.daemon(*args, ready=False)
    assert daemon.ended() == 125
    wait_for(lambda: any("cannot trust" in line for line in daemon.errors))
    assert not daemon.healthy()


def test_it_serves_in_a_directory_where_nobody_takes_anothers_files_away(host, pod, site):
    shared = host.folder / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    daemon = host.daemon("--socket", shared / "weir.sock", env={"WEIR_SOCKET": str(shared / "weir.sock")}, ready=False)
    daemon.socket = shared / "weir.sock"
    daemon.ready()
    daemon.attach("one", pod, "--allow", site.name)
    assert is_guarded(pod, site) and stat.S_IMODE(daemon.socket.stat().st_mode) == 0o660


def put(daemon, name, pod, **options):
    return daemon.call("PUT", f"/sandboxes/{name}", {"netns": pod.ns.path, "policy": json.loads(policy(**options))})


def each_has_its_own_policy(daemon, pod):
    """That of "one" denies all, that of "two" denies nothing; so it is behind the next engine as well."""
    wait_for(lambda: daemon.names() == ["one", "two"])
    for name, mode in (("one", "deny_all"), ("two", "allow_all")):
        assert daemon.get(f"/sandboxes/{name}/policy").json()["mode"] == mode, name
    daemon.kill_child("engine")
    expect.tcp_refused(pod.probe(["tcp", STRANGER, 443]))


def test_an_answer_that_comes_too_late_is_not_the_next_ones(daemon, pod, other):
    """Control has given up on the first sandbox, and asks for the second, when the daemon goes on."""
    os.kill(daemon.pid, signal.SIGSTOP)
    assert put(daemon, "one", pod).status == 500
    asked = threading.Thread(target=put, args=(daemon, "two", other), kwargs={"default": "allow"})
    asked.start()
    time.sleep(0.5)  # it waits for its answer
    os.kill(daemon.pid, signal.SIGCONT)
    asked.join()
    each_has_its_own_policy(daemon, pod)


def test_an_answer_to_the_control_before_is_not_the_next_ones(daemon, pod, other):
    """The daemon has begun with the first sandbox, and its engine does so after control's successor asks for the second."""
    os.kill(daemon.children()["engine"], signal.SIGSTOP)  # it is replaced

    def ask():
        with contextlib.suppress(OSError):
            put(daemon, "one", pod)
    asked = threading.Thread(target=ask)
    asked.start()
    wait_for(lambda: (daemon.run_dir / "sandboxes" / "one").exists())
    control = daemon.children()["control"]
    os.kill(control, signal.SIGKILL)
    asked.join()

    def is_attached():
        with contextlib.suppress(OSError):
            return put(daemon, "two", other, default="allow").status == 201
    wait_for(is_attached)
    each_has_its_own_policy(daemon, pod)
