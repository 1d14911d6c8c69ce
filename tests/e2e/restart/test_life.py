# SPDX-License-Identifier: Apache-2.0
"""Starts, ends, crashes and what can't be enforced: nothing opens but by `weir sidecar --remove` (catalogue H4 to H12)."""
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time

import pytest

from world import expect
from world.program import children, is_alive
from world.run import Started
from world.sidecar import SIDE_UID, Flow, Pod, end_input, policy, programs, wait_for

GAP_MS = 5000  # what a client waits before it asks again
HAMMER = f"{__file__.rpartition('/')[0]}/../../world/app_hammer.py"


def closed(pod):
    """Nothing that wasn't allowed passes, by address or by asking somebody else's resolver."""
    before = len(pod.packets())
    four, six = pod.probe(["tcp", "93.9.9.9", 443], ["tcp", "2a01:93::9:9", 443])
    expect.tcp_refused(four)
    expect.tcp_refused(six)
    pod.probe(["dns_raw", "424201000001000000000000046e6f6e650474657374000001 0001".replace(" ", ""), "8.8.8.8",
               {"wait": 0.05}], ["udp", "8.8.8.8", 53, "leak"])
    # the last acknowledgements of an allowed connection may come now
    assert [p for p in pod.packets()[before:] if p.dport != 7007] == []
    assert not [p for p in pod.capture.packets() if p.dport == 53 and p.dst == "8.8.8.8"]


class Asking:
    """The app asks for @name every 2 ms. gap(): the longest time without an answer, in ms."""

    PROGRAM = ("import json,select,socket,sys,time\n"
               "sys.path.insert(0,'/')\nq=bytes.fromhex(sys.argv[1])\nlast=time.monotonic(); worst=0; n=0\n"
               "print('up',flush=True)\n"
               "while not select.select([0],[],[],0)[0]:\n"
               " s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.settimeout(0.1)\n"
               " try:\n"
               "  s.connect(('127.0.0.1',53)); s.send(q); r=s.recv(999)\n"
               "  if r[3]&15==0: t=time.monotonic(); worst=max(worst,t-last); last=t; n+=1\n"
               " except OSError: pass\n"
               " s.close(); time.sleep(0.002)\n"
               "worst=max(worst,time.monotonic()-last)\n"
               "print(json.dumps([worst*1000,n]),flush=True)\n")

    def __init__(self, pod, name):
        wire = b"".join(bytes([len(x)]) + x.encode() for x in name.split("."))
        query = bytes.fromhex("424201000001000000000000") + wire + b"\0\0\1\0\1"
        self.started = pod.start("/usr/bin/python3", "-c", self.PROGRAM, query.hex())
        assert self.started.line() == "up"
        time.sleep(0.05)

    def gap(self):
        end_input(self.started)
        worst, count = json.loads(self.started.line())
        assert count > 10, count
        return worst


# starts

def test_healthy_means_enforced(pod, guarded):
    """An app that tries all the time gets nothing out from the first 200 on."""
    side = guarded(ready=False)
    side.ready()
    closed(pod)
    assert side.get("/status").json()["mode"] == "dns+nftables"


@pytest.mark.parametrize("who", ["ambient", "file", "root"])
def test_whoever_it_runs_as(pod, site, who):
    options = {"ambient": {"uid": SIDE_UID}, "file": {"uid": SIDE_UID, "file_caps": True}, "root": {}}[who]
    side = pod.sidecar(rules=policy(f"allow {site.name}"), **options)
    assert pod.probe(["connect", site.name, 7007]).result == "ok"
    closed(pod)
    for pid in side.children().values():
        status = open(f"/proc/{pid}/status", encoding="ascii").read()
        assert f"Uid:\t{0 if who == 'root' else SIDE_UID}" in status and "NoNewPrivs:\t1" in status
    side.kill_child("engine")
    wait_for(lambda: pod.probe(["dns", site.name]).result == "NOERROR")


def test_the_engine_and_control_keep_what_they_need(guarded):
    side = guarded()
    engine = open(f"/proc/{side.child('engine')}/status", encoding="ascii").read()
    control = open(f"/proc/{side.child('control')}/status", encoding="ascii").read()
    assert "CapEff:\t0000000000001000" in engine and "Seccomp:\t2" in engine   # CAP_NET_ADMIN alone
    assert "CapEff:\t0000000000000000" in control and "CapPrm:\t0000000000000000" in control


def test_H4_what_was_open_before_is_judged_too(pod, guarded):
    bad, good = Flow(pod, "93.9.9.9"), Flow(pod, "93.253.1.1")
    assert bad.say() == good.say() == "got"
    guarded("allow 93.253.1.1")
    before = len(pod.packets())
    assert bad.say("secret") == "ConnectionResetError"
    assert not [p for p in pod.packets()[before:] if b"secret" in p.payload]
    assert good.say() == "got"


def test_token_only_denies_everything_until_the_first_post(pod, site):
    """The second way to start: no rules in the environment."""
    side = pod.sidecar()
    closed(pod)
    expect.name_refused(pod.probe(["dns", site.name]))
    assert side.call("POST", "/policy", policy(f"allow {site.name}"), outside=True).status == 200
    assert pod.probe(["connect", site.name, 7007]).result == "ok"


# what can't be enforced

def test_without_the_capability_the_start_ends(pod):
    side = pod.sidecar(caps=(), ready=False)
    assert side.ended() != 0 and "NET_ADMIN" in str(side)


def test_no_new_privileges_and_a_file_capability_are_told(pod):
    side = pod.sidecar(uid=SIDE_UID, file_caps=True, nnp=True, ready=False)
    assert side.ended() != 0 and "NET_ADMIN" in str(side)


def test_open_has_to_be_spelled_and_is_shown(pod, site):
    side = pod.sidecar(caps=(), rules=policy(f"allow {site.name}"), env={"WEIR_ON_UNENFORCEABLE": "open"})
    status = side.get("/status").json()
    assert status["mode"] == "disabled" and not status["fullIsolation"] and status["degradations"]
    assert side.get("/healthz").status == 200
    wait_for(lambda: "on-unenforceable" in str(side))
    assert pod.probe(["dns", site.name, {"port": 15353}]).result == "NXDOMAIN"
    assert pod.probe(["tcp", "93.9.9.9", 443]).result == "ok"


@pytest.mark.parametrize("asks", [{"require_full_isolation": True}, {"limits": {"sent_total": "1M"}}], ids=["isolation", "budget"])
def test_a_policy_that_needs_the_filter_gets_it_or_nothing(pod, asks):
    rules = policy("allow a.test", **asks)
    side = pod.sidecar(caps=(), rules=rules, env={"WEIR_ON_UNENFORCEABLE": "open"}, ready=False)
    assert side.ended() != 0
    side = pod.sidecar(mode="dns", rules=rules, ready=False)
    assert side.ended() != 0


def test_the_hosts_network_is_refused(world):
    """Tried without the capability, so that a mistake couldn't do harm."""
    done = world_command(world, [programs(world), "sidecar"])
    assert done.code != 0 and "host" in done.messages + done.text and "network" in done.messages + done.text, done


def world_command(world, argv):
    from world.run import finish, start
    return finish(start(["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--", *map(str, argv)],
                        env={"PATH": "/usr/bin:/bin"}))


# ends

@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_orderly_end_leaves_every_rule(pod, guarded, site, number):
    side = guarded(f"allow {site.name}", "allow 93.253.1.1")
    pod.probe(["dns", site.name])
    flow = Flow(pod, site.v4)
    assert side.stop(number) == 0
    closed(pod)
    static, learned = pod.probe(["tcp", "93.253.1.1", 7007], ["tcp", site.v4, 7007])
    assert static.result == learned.result == "ok" and flow.say() == "got"
    assert wait_for(lambda: not side.children())


def test_a_killed_keeper_takes_its_processes_and_leaves_the_rules(pod, guarded, site):
    side = guarded(f"allow {site.name}")
    pod.probe(["dns", site.name])
    children = list(side.children().values())
    side.process.kill()
    side.process.wait()
    wait_for(lambda: not any(is_alive(child) for child in children))
    closed(pod)
    assert pod.probe(["tcp", site.v4, 7007]).result == "ok"
    again = pod.sidecar(rules=policy(f"allow {site.name}"))
    closed(pod)
    assert pod.probe(["connect", site.name, 7007]).result == "ok" and again.get("/healthz").status == 200


def test_a_killed_engine_is_back_with_what_it_had_learned(pod, guarded, site):
    side = guarded(f"allow {site.name}")
    pod.probe(["dns", site.name], ["dns", site.name, "AAAA"])
    flow = Flow(pod, site.v4)
    asking = Asking(pod, site.name)
    for _ in range(3):
        time.sleep(1.1)  # what ends sooner than a second after its start waits a while
        old = side.kill_child("engine")
        side.wait_replaced("engine", old)
        closed(pod)
        four, six = pod.probe(["tcp", site.v4, 7007], ["tcp", site.v6, 7007])
        assert four.result == six.result == "ok" and flow.say() == "got"
    gap = asking.gap()
    assert gap < GAP_MS, f"DNS was away for {gap:.0f} ms"
    wait_for(side.healthy)
    side.post()
    assert flow.say() == "ConnectionResetError"
    expect.tcp_refused(pod.probe(["tcp", site.v4, 7007]))


def test_a_killed_control_is_back_with_the_last_policy(pod, guarded, site, denied):
    side = guarded()
    side.post(f"allow {site.name}")
    asking = Asking(pod, site.name)
    for _ in range(3):
        time.sleep(1.1)
        old = side.kill_child("control")
        closed(pod)
        side.wait_replaced("control", old)
        wait_for(side.healthy)
        assert [r["target"] for r in side.get("/policy").json()["policy"]["egress"]] == [site.name]
    assert asking.gap() < GAP_MS
    side.patch(f"allow {denied.name}")
    assert pod.probe(["dns", denied.name]).addresses == [denied.v4]


def test_both_killed_at_once(pod, guarded, site):
    side = guarded(f"allow {site.name}")
    pod.probe(["dns", site.name])
    for _ in range(3):
        old = side.kill_child("engine"), side.kill_child("control")
        closed(pod)
        side.wait_replaced("engine", old[0])
        side.wait_replaced("control", old[1])
        wait_for(side.healthy)
        assert pod.probe(["connect", site.name, 7007]).result == "ok"


def test_a_crash_loop_stays_closed(pod, guarded):
    side = guarded()
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        pid = side.children().get("engine")
        if pid:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        expect.tcp_refused(pod.probe(["tcp", "93.9.9.9", 443]))
    closed(pod)
    assert side.process.poll() is None
    wait_for(side.healthy)


@pytest.mark.parametrize("name", ["engine", "control"])
def test_a_stopped_process_opens_nothing(pod, guarded, site, name):
    side = guarded(f"allow {site.name}")
    pod.probe(["dns", site.name])
    pid = side.child(name)
    os.kill(pid, signal.SIGSTOP)
    try:
        closed(pod)
        assert pod.probe(["tcp", site.v4, 7007]).result == "ok"
    finally:
        with contextlib.suppress(ProcessLookupError):   # an engine that doesn't answer is replaced
            os.kill(pid, signal.SIGCONT)
    wait_for(lambda: pod.probe(["dns", site.name]).result == "NOERROR")


def test_a_hung_engine_is_replaced(pod, guarded, site):
    """One that is stopped, never to go on; and the next one, too."""
    side = guarded(f"allow {site.name}")
    assert pod.probe(["dns", site.name]).addresses == [site.v4]
    for n in range(1, 3):
        pid = side.kill_child("engine", signal.SIGSTOP)
        side.wait_replaced("engine", pid)
        wait_for(side.healthy)
        assert side.get("/status").json()["engineRestarts"] == n
        wait_for(lambda: str(side).count("does not answer") >= n)
        assert pod.probe(["tcp", site.v4, 7007], ["dns", site.name])[0].result == "ok"
        closed(pod)
    side.post()
    expect.name_refused(pod.probe(["dns", site.name]))


def test_an_engine_without_descriptors_loses_no_policy(pod, guarded, site, denied):
    """The plan of a change is one more: its channel to control breaks, and the next engine can be told again."""
    side = guarded(f"allow {site.name}", f"allow {denied.name}")
    for n in range(1, 3):
        pid = side.child("engine")
        used = {int(fd) for fd in os.listdir(f"/proc/{pid}/fd")}
        free = min(set(range(len(used) + 1)) - used)
        subprocess.run(["prlimit", f"--pid={pid}", f"--nofile={free}:{free}"], check=True)
        wait_for(lambda: side.call("POST", "/policy", policy(f"allow {site.name}")).status == 200)
        assert side.child("engine") != pid and side.get("/status").json()["engineRestarts"] == n
        expect.name_refused(pod.probe(["dns", denied.name]))
        assert pod.probe(["dns", site.name]).addresses == [site.v4]
        closed(pod)


def test_H11_a_restart_over_live_rules_has_no_gap(pod, guarded, site):
    """Ten restarts under load; what never was allowed never left."""
    guarded(f"allow {site.name}")
    hammer = pod.start("/usr/bin/python3", "-IS", HAMMER, "8.8.8.8", f"{site.name}={site.v4}",
                       "leak.test=93.254.1.1", "2a01:93:254::1")
    assert hammer.line() == "up"
    for n in range(10):
        side = pod.sidecars[-1]
        assert side.stop(signal.SIGTERM) == 0 if n % 2 else side.stop(signal.SIGKILL) == -9
        pod.sidecar(rules=policy(f"allow {site.name}"))
        time.sleep(0.05)
    end_input(hammer)
    counts = json.loads(hammer.line())
    assert counts[site.v4][0] > 0
    assert counts["93.254.1.1"][0] == counts["2a01:93:254::1"][0] == 0
    assert not [p for p in pod.packets() if p.dst in ("93.254.1.1", "2a01:93:254::1", "8.8.8.8")]
    assert pod.queries("leak.test") == 0


# who holds its ports

HELD = "import socket\ns=socket.create_connection(('127.0.0.1',53)); s.send(b'\\0'); print('held',flush=True); input()"
TAKEN = ("import socket,sys\nlevel,kinds=sys.argv[1],sys.argv[2:]\nheld=[]\n"
         "for kind,port in ((int(k.split(':')[0]),int(k.split(':')[1])) for k in kinds):\n"
         " s=socket.socket(socket.AF_INET,kind)\n s.setsockopt(1,2,1)\n s.setsockopt(1,15,1)\n"
         " try:\n  s.bind(('127.0.0.1',port))\n  if kind==1 and level=='listen': s.listen()\n  print('mine',flush=True)\n"
         " except OSError as e: print(e.strerror,flush=True)\n held.append(s)\ninput()")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_connection_that_is_held_delays_no_restart(pod, guarded, site, number):
    """The kernel keeps it for a minute, and with it the port."""
    side = guarded(f"allow {site.name}")
    held = pod.start("/usr/bin/python3", "-c", HELD)
    assert held.line() == "held"
    for _ in range(2):
        side.stop(number)
        side = guarded(f"allow {site.name}")
        assert pod.probe(["dns", site.name]).addresses == [site.v4]
        assert pod.probe(["dns", site.name, {"transport": "tcp"}]).addresses == [site.v4]


@pytest.mark.parametrize("kind", ["1:15353", "2:15353", "1:15354"])
def test_nobody_shares_its_ports(pod, guarded, site, kind):
    """Neither a stranger who allows it, before and after, nor another sidecar."""
    thief = pod.start("/usr/bin/python3", "-c", TAKEN, "listen", kind)
    assert thief.line() == "mine"
    side = guarded(f"allow {site.name}", mode="dns+nft+tls", ready=False)
    assert side.ended() == 125 and f"port {kind[2:]}: Address already in use" in str(side)
    thief.kill()
    guarded(f"allow {site.name}", mode="dns+nft+tls")
    late = pod.start("/usr/bin/python3", "-c", TAKEN, "listen", "1:15353", "2:15353", "1:15354")
    assert [late.line() for _ in range(3)] == ["Address already in use"] * 3
    second = guarded(f"allow {site.name}", ready=False, env={"OPENSANDBOX_EGRESS_HTTP_ADDR": ":18081"}, api_port=18081)
    assert second.ended() == 125 and "Address already in use" in str(second)
    assert pod.probe(["dns", site.name]).addresses == [site.v4]


POLLED = ("import json,select,socket,sys\nrefused=answered=left=0\nprint('up',flush=True)\n"
          "while not select.select([0],[],[],0.001)[0]:\n"
          " s=socket.socket(); s.settimeout(20)\n"
          " try: s.connect((sys.argv[1],18080))\n"
          " except ConnectionRefusedError: refused+=1; continue\n"
          " try:\n  s.send(b'GET /healthz HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nConnection: close\\r\\n\\r\\n'); got=s.recv(99)\n"
          " except TimeoutError: got=b''; left+=1\n"
          " except OSError: got=b''\n"
          " s.close()\n"
          " answered+=got.startswith(b'HTTP/1.1 ')\n"
          "print(json.dumps([refused,answered,left]),flush=True)\n")


def test_who_asks_before_the_rules_stand_is_refused_at_once(pod, guarded):
    """A connection that the kernel takes before is answered by nobody: the filter takes it for the sandbox's own."""
    polls = Started(pod.world.internet.command("/usr/bin/python3", "-c", POLLED, pod.ip4), env={}, cwd="/")
    assert polls.line() == "up"
    for _ in range(8):
        side = guarded("allow a.test")
        assert side.get("/healthz", outside=True).status == 200
        side.stop()
        assert pod.sidecar("--remove", ready=False).ended() == 0
    end_input(polls)
    refused, answered, hanging = json.loads(polls.line())
    assert refused > 0 and answered > 0 and hanging == 0, (refused, answered, hanging)


CROWD = ("import socket\nheld=[]\nfor _ in range(1500):\n"
         " s=socket.socket(); s.setblocking(False); s.connect_ex(('127.0.0.1',18080)); held.append(s)\n"
         "print('there',flush=True); input()")


def refused_for_want_of_room(pod):
    """How many connections found a full backlog, in this namespace."""
    with pod.ns.entered(), open("/proc/thread-self/net/netstat", encoding="ascii") as f:
        rows = [line.split() for line in f if line.startswith("TcpExt:")]
    return int(dict(zip(*rows))["ListenOverflows"])


def test_a_crowd_that_says_nothing_takes_nobodys_place(pod, guarded):
    """1,500 connections at once, while nobody accepts: there is room for the operator's, and later for his question."""
    side = guarded("allow a.test")
    control = side.kill_child("control", signal.SIGSTOP)
    crowd = pod.start("/usr/bin/python3", "-c", CROWD)
    assert crowd.line() == "there"
    with pod.world.internet.socket(socket.AF_INET, socket.SOCK_STREAM) as caller:
        caller.settimeout(60)
        caller.connect((pod.ip4, 18080))
        os.kill(control, signal.SIGCONT)
        caller.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert caller.recv(99).startswith(b"HTTP/1.1 200")
    assert refused_for_want_of_room(pod) == 0
    # they are silent, each for ten seconds and no longer than there is somebody else
    assert side.get("/healthz").status == 200 and side.child("control") == control


def test_remove_is_what_opens(pod, guarded):
    side = guarded()
    side.stop()
    closed(pod)
    remove = pod.sidecar("--remove", ready=False)
    assert remove.ended() == 0
    assert pod.probe(["tcp", "93.9.9.9", 443]).result == "ok"
    assert "opensandbox" not in pod.nft("list", "tables")
    again = pod.sidecar("--remove", ready=False)
    assert again.ended() == 0, "removing what isn't there is no error"


def test_remove_needs_the_right_to(pod, guarded):
    guarded().stop()
    done = pod.run(programs(pod.world), "sidecar", "--remove")
    assert done.code != 0
    closed(pod)


# around it

def test_the_health_check_asks_and_says_nothing(pod, guarded):
    program = programs(pod.world)
    down = pod.run(program, "sidecar", "--healthy")
    assert down.code == 1
    guarded()
    up = pod.run(program, "sidecar", "--healthy")
    assert up.code == 0 and up.text == ""


def test_orphans_are_reaped(pod, guarded):
    """PID 1's duty: nothing stays a zombie below it."""
    side = guarded()
    for _ in range(5):
        old = side.kill_child("control")
        side.wait_replaced("control", old)
    wait_for(lambda: all(is_alive(child) for child in side.children().values()))
    assert side.children().keys() - {"socket owner"} == {"engine", "control"}


def test_two_pods_do_not_know_each_other(world, site):
    with Pod(world) as one, Pod(world) as two:
        one.sidecar(rules=policy(f"allow {site.name}"))
        two.sidecar(rules=policy())
        assert one.probe(["connect", site.name, 7007]).result == "ok"
        expect.tcp_refused(two.probe(["tcp", site.v4, 7007]))


@pytest.mark.parametrize("text", ['{"defaultAction": "deny", "egress": [{"action": "allow", "target": "%s"}]}',
                                  '{"defaultAction":"deny",\n"egress":[\n  {"target": "%s", "action":"allow"}\n]}\n'])
def test_a_start_installs_its_policy_once(pod, site, text):
    """Control reads what the supervisor has compiled, and finds that the engine has it."""
    def generation():
        return int(re.search(r"generation (\d+)", pod.nft("list", "table", "inet", "opensandbox"))[1])
    assert pod.sidecar(rules=text % site.name).stop() == 0
    before = generation()
    side = pod.sidecar(rules=text % site.name)
    assert generation() == before + 1, side
    side.post(f"allow {site.name}", "allow other.test")
    assert generation() == before + 2


def test_the_end_of_its_input_is_read_once(pod):
    """It ends with that, and does nothing while it waits for control, which stands still here."""
    started = pod.start(programs(pod.world), "sidecar", "--end-with-stdin", uid=0, caps=pod.caps,
                        env={"OPENSANDBOX_EGRESS_RULES": policy(), "OPENSANDBOX_EGRESS_TOKEN": "token"})

    def control():
        found = [c for c in children(started.pid) if pathlib.Path(f"/proc/{c}/comm").read_text() == "weir-control\n"]
        return found and pod.nft("list", "ruleset") and found[0]
    os.kill(wait_for(control), signal.SIGSTOP)
    started.process.stdin.close()
    time.sleep(2)
    fields = pathlib.Path(f"/proc/{started.pid}/stat").read_text().rpartition(")")[2].split()
    assert (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") < 0.5
    assert started.process.wait(60) == 0
