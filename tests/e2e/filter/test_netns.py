# SPDX-License-Identifier: Apache-2.0
"""A namespace that somebody else made, guarded from outside."""
import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import time

import pytest

from world import expect
from world.daemon import pid_in
from world.sidecar import Flow, Pod, policy, wait_for
from world.threads import LEADERLESS, has_no_leader

STRANGER = "93.9.9.9"


def reaches(pod, site):
    return pod.probe(["tcp", site.v4, 443]).result == "ok"


def test_it_reaches_what_its_policy_lists_and_nothing_else(daemon, pod, site, denied):
    daemon.attach("one", pod, "--allow", site.name)
    allowed, refused, stranger, udp = pod.probe(["dns", site.name], ["dns", denied.name], ["tcp", STRANGER, 443],
                                                ["udp", STRANGER, 9999, "x"])
    assert allowed.addresses == [site.v4]
    expect.name_refused(refused)
    expect.tcp_refused(stranger)
    expect.udp_refused(udp)
    assert reaches(pod, site)
    assert not [p for p in pod.packets() if p.dst not in (site.v4, site.v6)]
    # the question itself left from the host, and the denied one not at all
    assert pod.queries(site.name) == 0 and daemon.host.queries(site.name) > 0
    assert not daemon.host.world.dns.queries(denied.name)


def test_every_resolver_is_its_own(daemon, pod, site, denied):
    daemon.attach("one", pod, "--allow", site.name)
    for server in ("8.8.8.8", "127.0.0.1", "10.1.2.3"):
        expect.name_refused(pod.probe(["dns", denied.name, {"server": server}]))
    assert not pod.world.dns.queries(denied.name)


def test_two_sandboxes_know_nothing_of_each_other(daemon, pod, other, site, denied):
    daemon.attach("one", pod, "--allow", site.name)
    daemon.attach("two", other, "--allow", denied.name)
    pod.probe(["dns", site.name])
    assert other.probe(["dns", denied.name]).addresses == [denied.v4]
    assert reaches(pod, site) and reaches(other, denied)
    expect.tcp_refused(other.probe(["tcp", site.v4, 443]))
    expect.tcp_refused(pod.probe(["tcp", denied.v4, 443]))
    expect.name_refused(other.probe(["dns", site.name]))
    # what the API tells of counters and denials may be half a second old
    wait_for(lambda: {d["name"] for d in daemon.denies("two") if d["name"]} == {site.name})
    assert all(d["sandbox"] == "two" for d in daemon.denies("two"))
    assert site.name not in {d["name"] for d in daemon.denies("one")}
    wait_for(lambda: daemon.status("two")["counters"]["queries_denied"] == 1)
    assert daemon.status("one")["counters"]["queries_denied"] == 0


def test_two_sandboxes_with_one_policy_share_nothing_learned(daemon, pod, other, site):
    """One plan and one engine serve both, and one process has opened the sockets of both."""
    daemon.attach("one", pod, "--allow", site.name)
    daemon.attach("two", other, "--allow", site.name)
    pod.probe(["dns", site.name])
    assert reaches(pod, site)
    expect.tcp_refused(other.probe(["tcp", site.v4, 443]))
    other.probe(["dns", site.name])
    assert reaches(other, site)
    assert daemon.weir("detach", "one").code == 0
    assert reaches(other, site)
    expect.tcp_refused(other.probe(["tcp", "10.9.8.7", 443]))
    assert "opensandbox" in other.nft("list", "ruleset")


def test_names_that_connections_show(daemon, pod, site, tmp_path):
    """verify: tls goes through the relay, which dials from the host."""
    file = tmp_path / "policy.yaml"
    file.write_text(f"verify: tls\negress:\n  - {{action: allow, target: {site.name}}}\n")
    daemon.attach("one", pod, "--policy", file)
    assert daemon.status("one")["mode"] == "dns+nftables+tls"
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    good, bad = pod.probe(["https", site.v4, 443, site.name], ["https", site.v4, 443, "evil.test"])
    assert good.result == "ok", dict(good)
    expect.tcp_gave_nothing(bad)
    assert not [p for p in pod.packets() if p.dport == 443]


def test_a_change_cuts_what_it_forbids(daemon, pod, site, denied, tmp_path):
    daemon.attach("one", pod, "--allow", site.name, "--allow", denied.name)
    pod.probe(["dns", site.name], ["dns", denied.name])
    kept, cut = Flow(pod, site.v4), Flow(pod, denied.v4)
    assert (kept.say(), cut.say()) == ("got", "got")
    file = tmp_path / "policy.json"
    file.write_text(policy(f"allow {site.name}"))
    done = daemon.weir("policy", "set", "one", file)
    assert done.code == 0, done
    assert kept.say() == "got"
    assert cut.say() != "got"
    expect.name_refused(pod.probe(["dns", denied.name]))
    file.write_text(policy(f"allow {denied.name}"))
    assert daemon.weir("policy", "patch", "one", file).code == 0
    assert pod.probe(["dns", denied.name]).addresses == [denied.v4]
    assert kept.say() == "got"


def test_detach_opens_it_and_nothing_is_left(daemon, pod, site):
    daemon.attach("one", pod)
    expect.tcp_refused(pod.probe(["tcp", site.v4, 443]))
    done = daemon.weir("detach", "one")
    assert done.code == 0, done
    assert "opensandbox" not in pod.nft("list", "ruleset")
    assert reaches(pod, site) and daemon.names() == []
    assert list((daemon.run_dir / "sandboxes").iterdir()) == []
    assert daemon.get("/sandboxes/one/status").status == 404
    daemon.attach("one", pod)
    expect.tcp_refused(pod.probe(["tcp", site.v4, 443]))


def test_by_process_until_nobody_lives_there(daemon, pod, site):
    first, second = (pod.start("/bin/sleep", 600) for _ in range(2))
    pid_in(pod, second)
    daemon.attach("one", None, "--allow", site.name, where=pid_in(pod, first))
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    first.kill()
    # the other one lives there still
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    assert daemon.names() == ["one"]
    second.kill()
    wait_for(lambda: daemon.names() == [])
    assert list((daemon.run_dir / "sandboxes").iterdir()) == []
    # whoever holds the namespace all the same finds it closed
    expect.tcp_refused(pod.probe(["tcp", STRANGER, 443]))


def test_several_are_looked_for_at_once(daemon, pod, other, site):
    """The processes that named them have ended. One namespace has others still."""
    named = {"one": (pod, pod.start("/bin/sleep", 600)), "two": (other, other.start("/bin/sleep", 600))}
    stays = pod.start("/bin/sleep", 600)
    pid_in(pod, stays)
    for name, (where, process) in named.items():
        daemon.attach(name, None, "--allow", site.name, where=pid_in(where, process))
    keeps = other.start("/bin/sleep", 600)
    pid_in(other, keeps)
    for _, process in named.values():
        process.kill()
    time.sleep(2.5)
    assert sorted(daemon.names()) == ["one", "two"]
    keeps.kill()
    wait_for(lambda: daemon.names() == ["one"])
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    stays.kill()
    wait_for(lambda: daemon.names() == [])


def test_a_process_without_a_main_thread_lives_there(daemon, pod, site):
    """It can be named, and keeps what it is named for."""
    lives = pod.start("/usr/bin/python3", "-ISc", LEADERLESS + "import time\ngoes_on(lambda: time.sleep(600))")
    pid = lives.process.pid
    wait_for(lambda: has_no_leader(pid))
    daemon.attach("one", None, "--allow", site.name, where=pid)
    named = pod.start("/bin/sleep", 600)
    assert daemon.weir("detach", "one").code == 0
    daemon.attach("one", None, "--allow", site.name, where=pid_in(pod, named))
    named.kill()
    # whoever lives there is looked for, more than once
    time.sleep(2.5)
    assert daemon.names() == ["one"]
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    lives.kill()
    wait_for(lambda: daemon.names() == [])


def test_one_that_goes_is_there_until_its_name_is_free(daemon, pod, other):
    """A container that is started again is attached under its name as soon as that may be."""
    lives = pod.start("/bin/sleep", 600)
    daemon.attach("one", None, where=pid_in(pod, lives))
    engine = daemon.children()["engine"]
    os.kill(engine, signal.SIGSTOP)
    lives.kill()
    wait_for(lambda: "is gone" in str(daemon))
    # unless the engine was replaced meanwhile, because it doesn't answer
    assert daemon.names() == ["one"] or daemon.children().get("engine") != engine
    with contextlib.suppress(ProcessLookupError):
        os.kill(engine, signal.SIGCONT)
    wait_for(lambda: daemon.names() == [])
    daemon.attach("one", other)


def test_by_path_until_that_leads_elsewhere(daemon, pod, site, tmp_path):
    path = tmp_path / "netns"
    path.touch()
    subprocess.run(["mount", "--bind", pod.ns.path, path], check=True)
    try:
        daemon.attach("one", None, where=path)
        expect.tcp_refused(pod.probe(["tcp", site.v4, 443]))
    finally:
        subprocess.run(["umount", path], check=True)
    wait_for(lambda: daemon.names() == [])


@pytest.mark.parametrize("where", ["/etc/passwd", "/proc/self/ns/mnt", "/nowhere", "999999999", "0", "", "relative/path"])
def test_what_is_no_namespace_is_refused(daemon, where):
    done = daemon.weir("attach", "--id", "one", "--netns", where)
    assert done.code in (2, 125) and done.err, done
    assert daemon.names() == [] and daemon.healthy()


def test_what_is_no_namespace_is_not_even_opened(daemon, tmp_path):
    """The daemon is root: to open a device can do something (a watchdog reboots the machine)."""
    libc, file, pipe = ctypes.CDLL(None, use_errno=True), tmp_path / "file", tmp_path / "pipe"
    file.touch()
    os.mkfifo(pipe)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    assert libc.inotify_add_watch(watch, bytes(tmp_path), 0x20) > 0  # IN_OPEN
    for path in (file, pipe):
        done = daemon.weir("attach", "--id", "x", "--netns", path)
        assert done.code == 125 and f"'{path}' is no network namespace" in done.messages, done
    with pytest.raises(BlockingIOError):
        print(os.read(watch, 4096))
    file.read_text()
    assert os.read(watch, 4096)
    os.close(watch)


def test_the_hosts_own_namespace_is_refused(daemon):
    done = daemon.weir("attach", "--id", "one", "--netns", daemon.pid)
    assert done.code == 125 and "own network namespace" in done.messages
    assert "failed_safety_setup" in done.messages


def test_one_namespace_is_one_sandbox(daemon, pod, site):
    daemon.attach("one", pod, "--allow", site.name)
    for name in ("one", "two"):
        done = daemon.weir("attach", "--id", name, "--netns", pod.ns.path)
        assert done.code == 125, done
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    assert daemon.names() == ["one"]


@pytest.mark.parametrize("name", ["../x", ".x", "a/b", "a b", "", "x" * 64, "ä"])
def test_an_id_is_letters_and_digits(daemon, pod, name):
    assert daemon.weir("attach", "--id", name, "--netns", pod.ns.path).code == 2
    assert daemon.names() == []


def test_a_bad_policy_attaches_nothing(daemon, pod, tmp_path):
    file = tmp_path / "policy.yaml"
    file.write_text("egress:\n  - {action: allow, target: 'a..b'}\n")
    done = daemon.weir("attach", "--id", "one", "--netns", pod.ns.path, "--policy", file)
    assert done.code == 2 and "a..b" in done.messages
    reply = daemon.call("PUT", "/sandboxes/one", {"netns": pod.ns.path, "policy": {"egress": [{"action": "x"}]}})
    assert reply.status == 400, reply
    assert "opensandbox" not in pod.nft("list", "ruleset")


def test_who_is_there_already_is_not_pushed_out(daemon, pod, site):
    """A sidecar guards the namespace: its table is its own."""
    pod.sidecar(rules=policy(f"allow {site.name}"))
    done = daemon.weir("attach", "--id", "one", "--netns", pod.ns.path)
    assert done.code == 125 and "failed_safety_setup" in done.messages
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    assert daemon.names() == []


def test_a_failed_self_test_is_no_attach(daemon, pod, site):
    """Somebody answers before the daemon does: the rules stand, and nothing is said to be guarded."""
    pod.nft("add table inet thief; add chain inet thief nat { type nat hook output priority -190; }; "
            "add rule inet thief nat udp dport 53 redirect to :5555")
    for _ in range(5):      # whoever is refused may ask for the same again at once
        done = daemon.weir("attach", "--id", "one", "--netns", pod.ns.path, "--allow", site.name)
        assert done.code == 125 and "self-test" in done.messages, done
    assert daemon.names() == []
    expect.tcp_refused(pod.probe(["tcp", STRANGER, 443]))
    # mended, it can be attached
    pod.nft("delete table inet thief")
    daemon.attach("one", pod, "--allow", site.name)
    assert pod.probe(["dns", site.name]).addresses == [site.v4]


def test_a_flushed_ruleset_is_put_back(daemon, pod, site):
    daemon.attach("one", pod, "--allow", site.name)
    # the table has an owner, so this flushes what others have
    subprocess.run(pod.ns.command("nft", "flush", "ruleset"), check=False)
    subprocess.run(pod.ns.command("nft", "add table inet mine"), check=True)
    wait_for(lambda: "opensandbox" in pod.nft("list", "ruleset"))
    expect.tcp_refused(pod.probe(["tcp", STRANGER, 443]))
    assert pod.probe(["dns", site.name]).addresses == [site.v4]


def test_a_namespace_with_loopback_down(daemon, world, host):
    """As `ip netns add` makes it."""
    name = f"weir-test-{os.getpid()}-{world.number()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        daemon.attach("one", None, where=f"/run/netns/{name}")
        assert daemon.status("one")["fullIsolation"] is True
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)
    wait_for(lambda: daemon.names() == [])


def test_sockets_that_go_round_the_filter_are_told(daemon, pod, other, site):
    daemon.attach("one", pod, "--allow", site.name)
    daemon.attach("two", other, "--allow", site.name)
    program = "import socket\ns=socket.socket({}); print('open',flush=True); input()"
    packet = pod.start("/usr/bin/python3", "-c", program.format("17,3,0x300"), uid=0, caps=("net_raw",))
    raw = other.start("/usr/bin/python3", "-c", program.format("2,3,1"), uid=0, caps=("net_raw",))
    assert packet.line() == raw.line() == "open"
    for name, what in (("one", "packet-sockets"), ("two", "raw-sockets")):
        status = wait_for(lambda name=name: (s := daemon.status(name))["degradations"] and s)
        assert [d["what"] for d in status["degradations"]] == [what] and status["fullIsolation"] is False
    packet.kill()
    wait_for(lambda: daemon.status("one")["fullIsolation"])


DIALLER = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.settimeout(0.2)
print("open", flush=True)
for line in sys.stdin:
    try:
        if line == "hear first\\n":
            s.recv(99)
    except OSError:
        pass
    try:
        s.send(b"secret")
    except OSError:
        pass
    print("said", flush=True)
"""


@pytest.mark.parametrize("first", ["server", "app"])
def test_what_was_open_before_is_judged_anew(daemon, pod, site, first):
    """Whoever speaks first afterwards: the kernel has not seen the connection's beginning."""
    with pod.world.internet.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((STRANGER, 7999))
        listener.listen()
        listener.settimeout(5)
        app = pod.start("/usr/bin/python3", "-c", DIALLER, STRANGER, 7999)
        assert app.line() == "open"
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(5)
            app.say("speak\n")
            assert app.line() == "said" and peer.recv(99) == b"secret"
            daemon.attach("one", pod, "--allow", site.name)
            arrived = len(pod.packets(payload=b"secret"))
            if first == "server":
                peer.send(b"go on")
            app.say("hear first\n" if first == "server" else "speak\n")
            assert app.line() == "said"
            assert len(pod.packets(settle=0.3, payload=b"secret")) == arrived
            peer.setblocking(False)
            with contextlib.suppress(OSError):
                assert peer.recv(99) == b""


def test_who_is_root_over_the_namespace_changes_no_rule(daemon, site, denied):
    """A user's own namespace, as rootless containers have: its root has every capability over it."""
    probe = daemon.host.world.tools / "probe.pyc"
    argv = ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "unshare", "--user", "--map-root-user", "--net"]
    with subprocess.Popen([*argv, "sh", "-c", "echo here; exec sleep 600"], stdout=subprocess.PIPE) as app:
        try:
            assert app.stdout.readline() == b"here\n"

            def inside(*words, input=None):
                return subprocess.run(["nsenter", "-t", str(app.pid), "--user", "--net", "-S", "0", "-G", "0", *words],
                                      input=input, capture_output=True, text=True, check=False)

            daemon.attach("one", None, "--allow", site.name, where=app.pid)
            before = inside("nft", "list", "table", "inet", "opensandbox").stdout
            assert "egress" in before, inside("nft", "list", "ruleset")
            for command in ("delete table inet opensandbox", "flush table inet opensandbox", "flush chain inet opensandbox egress",
                            "flush ruleset", "insert rule inet opensandbox egress accept"):
                inside("nft", command)
            after = inside("nft", "list", "table", "inet", "opensandbox").stdout
            assert [line for line in before.splitlines() if "expires" not in line and "counter" not in line] == [
                line for line in after.splitlines() if "expires" not in line and "counter" not in line]
            done = inside("/usr/bin/python3", "-IS", probe, input=json.dumps([["dns", site.name], ["dns", denied.name]]))
            allowed, refused = (json.loads(line) for line in done.stdout.splitlines())
            assert allowed["addresses"] == [site.v4] and refused["result"] == "NXDOMAIN"
        finally:
            app.kill()
    wait_for(lambda: daemon.names() == [])


def test_two_of_one_namespace_are_refused(daemon, pod, site):
    daemon.attach("one", pod, "--allow", site.name)
    done = daemon.weir("attach", "--id", "two", "--netns", pod.ns.path)
    assert done.code == 125 and "sandbox 'one' is that network namespace already" in done.messages, done
    assert daemon.names() == ["one"] and pod.probe(["dns", site.name]).addresses == [site.v4]


def test_its_log_says_whom_it_is_about(daemon, pod, other, site, denied):
    """`weir daemon` has many of them, and is no other program's stand-in."""
    daemon.attach("one", pod, "--allow", site.name)
    daemon.attach("two", other, "--allow", denied.name)
    pod.probe(["dns", site.name], ["dns", denied.name])
    other.probe(["dns", site.name])
    daemon.set_policy("two")

    def lines():
        return [json.loads(line) for line in list(daemon.lines)]

    def said(**fields):
        return any(all(line.get(key) == value for key, value in fields.items()) for line in lines())
    for event, sandbox, name in (("egress.outbound", "one", site.name), ("egress.denied", "one", denied.name),
                                 ("egress.denied", "two", site.name), ("egress.updated", "two", None)):
        wanted = {"event": event, "sandbox_id": sandbox, **({"target.host": name} if name else {})}
        wait_for(lambda wanted=wanted: said(**wanted))
    assert {line["logger"] for line in lines()} == {"weir"}
    assert not any("opensandbox" in key for line in lines() for key in line)


def test_nothing_holds_a_namespace_that_has_ended(daemon, world):
    """Whoever looked into it for the process behind a denial has left: else its links would stay."""
    with Pod(world) as pod:
        daemon.attach("one", pod)
        pod.probe(["dns", "evil.test"], ["udp", STRANGER, 9999, "x"])
        wait_for(lambda: daemon.denies("one"))
        assert daemon.weir("detach", "one").code == 0
        # the end of its link that is outside goes with it
        outside = world.internet.command("ip", "link", "show", pod.net)
        assert subprocess.run(outside, capture_output=True, check=False).returncode == 0
        pod.ns.close()
        wait_for(lambda: subprocess.run(outside, capture_output=True, check=False).returncode != 0)
