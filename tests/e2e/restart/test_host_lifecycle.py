# SPDX-License-Identifier: Apache-2.0
"""H: what changes, ends and begins again under those whom a real daemon guards, of each kind."""
import json
import subprocess

import pytest

import test_host_daemon as host_daemon
from test_host_daemon import STRANGER, UID, attach
from world import expect
from world.member import Member, cgroup_root
from world.sidecar import Flow, end_input, policy, wait_for

KINDS = pytest.mark.parametrize("kind", ["cgroup", "uid", "netns"])
pytestmark = pytest.mark.skipif(not cgroup_root(), reason="no cgroup v2 here")


def someone(kind, host, tree, pod):
    """Who is of that kind, where that is for the daemon, and the namespace whose link it sends by."""
    if kind == "netns":
        return pod, {"netns": pod.ns.path}, pod
    app, _, who = host_daemon.attached(host, tree, kind)
    return app, who, host


@KINDS
def test_H6_a_flow_that_a_change_forbids_is_cut(host, tree, pod, site, denied, kind):
    app, who, _ = someone(kind, host, tree, pod)
    daemon = host.daemon()
    attach(daemon, "one", f"allow {site.name}", f"allow {denied.name}", **who)
    app.probe(["dns", site.name], ["dns", denied.name])
    kept, cut = Flow(app, site.v4), Flow(app, denied.v4)
    assert (kept.say(), cut.say()) == ("got", "got")
    daemon.set_policy("one", f"allow {site.name}")
    assert kept.say() == "got" and cut.say() != "got"
    expect.tcp_refused(app.probe(["tcp", denied.v4, 443]))


def test_H7_C17_an_address_that_expires_begins_nothing_and_goes_on(host, tree, pod, world):
    name, address = f"brief-{world.number()}.test", world.address()
    world.dns.add(name, address, ttl=1)
    daemon = host.daemon()
    group = Member(host, tree.cgroup("slice").below("job"))
    members = {"space": (pod, {"netns": pod.ns.path}), "user": (Member(host, uid=UID), {"uid": UID}),
               "group": (group, {"cgroup": str(group.cgroup.path)})}
    for which, (_, who) in members.items():
        body = {**who, "policy": {"egress": [{"action": "allow", "target": name}], "limits": {"min_lifetime": "1s", "grace": "1s"}}}
        reply = daemon.call("PUT", f"/sandboxes/{which}", body)
        assert reply.status == 201, f"{reply}\n{daemon}"
    flows = {}
    for which, (app, _) in members.items():
        assert app.probe(["dns", name]).addresses == [address]
        flows[which] = Flow(app, address)
        assert flows[which].say() == "got"
    for which, (app, _) in members.items():
        wait_for(lambda app=app: app.probe(["tcp", address, 7007]).result == "refused", step=0.2)
        assert flows[which].say() == "got"


# Says "leak" to a stranger as often as it can; a line of input ends it, and it says how often that was.
SENDER = """
import select, socket, sys
address, said = (sys.argv[1], 9999), 0
print("sends", flush=True)
while not select.select([sys.stdin], [], [], 0.002)[0]:
    said += 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.sendto(b"leak", address)
        except OSError:
            pass
    with socket.socket() as s:
        s.setblocking(False)
        s.connect_ex(address)
print(said, flush=True)
"""


@KINDS
def test_H8_H11_rules_that_take_the_place_of_live_ones_have_no_gap(host, tree, pod, site, denied, kind):
    """Changes, the same attach again, another engine, another daemon: not one packet passes meanwhile."""
    app, who, link = someone(kind, host, tree, pod)
    daemon = host.daemon()
    assert app.probe(["udp", STRANGER, 9999, "free"]).result and link.packets(dst=STRANGER, payload=b"free")
    attach(daemon, "one", f"allow {site.name}", **who)
    app.probe(["dns", site.name])
    flow = Flow(app, site.v4)
    before = len(link.packets(dst=STRANGER))
    sender = app.start("/usr/bin/python3", "-IS", "-c", SENDER, STRANGER)
    assert sender.line() == "sends"
    for turn in range(12):
        daemon.set_policy("one", f"allow {site.name}", *([f"allow {denied.name}"] if turn % 2 else []))
        assert flow.say() == "got"
    daemon.kill_child("engine")
    daemon.set_policy("one", f"allow {site.name}", "allow 10.0.0.0/8")
    assert flow.say() == "got"
    daemon.kill()
    daemon = host.daemon()
    assert daemon.names() == ["one"] and flow.say() == "got"
    assert daemon.stop() == 0
    daemon = host.daemon()
    assert flow.say() == "got"
    sender.say("\n")
    assert int(sender.line()) > 5  # a busy machine leaves it little
    assert link.packets(dst=STRANGER)[before:] == []
    assert app.probe(["dns", site.name]).addresses == [site.v4]


# A connection that says something all the time; a line of input ends it, and it says how that was.
TALK = """
import select, socket, sys
s = socket.socket(); s.settimeout(10); s.connect((sys.argv[1], 7007)); said = 0
print("open", flush=True)
try:
    while not select.select([sys.stdin], [], [], 0.0005)[0]:
        s.send(b"x"); assert s.recv(9); said += 1
    print("ok" if said else "nothing", flush=True)
except (OSError, AssertionError) as e:
    print(repr(e), flush=True)
"""

# Says "leak" to a denied address inside of an allowed range, without a pause, each time as a new flow.
HAMMER = """
import select, socket, sys
print("sends", flush=True)
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(100):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            try:
                s.sendto(b"leak", (sys.argv[1], 9999))
            except OSError:
                pass
print("done", flush=True)
"""


COUNT = f"""add table inet left
add chain inet left out {{ type filter hook postrouting priority 300; policy accept; }}
add rule inet left out ip daddr {STRANGER} counter"""


@KINDS
def test_what_is_said_while_rules_take_the_place_of_others_is_judged_by_all_of_them(host, tree, pod, site, kind):
    """The kernel has the ranges of a set a moment after the rules of the same transaction."""
    app, who, link = someone(kind, host, tree, pod)
    daemon = host.daemon()
    rules = "allow 93.0.0.0/8", f"deny {STRANGER}"
    attach(daemon, "one", f"allow {site.name}", *rules, **who)
    app.probe(["dns", site.name])
    talks = [app.start("/usr/bin/python3", "-IS", "-c", TALK, site.v4) for _ in range(3)]
    assert [t.line() for t in talks] == ["open"] * 3
    hammers = [app.start("/usr/bin/python3", "-IS", "-c", HAMMER, STRANGER) for _ in range(2)]
    assert [h.line() for h in hammers] == ["sends"] * 2
    # a capture would lose some of so many
    subprocess.run(link.ns.command("nft", COUNT), check=True)
    for turn in range(100):
        daemon.set_policy("one", f"allow {site.name}", *rules, *(["allow 10.0.0.0/8"] if turn % 2 else []))
        if turn % 20 == 0:
            daemon.kill_child("engine")
    for each in (*talks, *hammers):
        each.say("\n")
    assert [t.line() for t in talks] == ["ok"] * 3
    assert [h.line() for h in hammers] == ["done"] * 2
    left = subprocess.run(link.ns.command("nft", "list", "table", "inet", "left"), capture_output=True, text=True, check=True).stdout
    assert "counter packets 0 bytes 0" in left, left


CONNECTS = ("import json,select,socket,struct,sys\nsent=again=0; errors=[]\nprint('up',flush=True)\n"
            "while not select.select([0],[],[],0.004)[0]:\n"
            " s=socket.socket(); s.settimeout(10)\n"
            " try: s.connect((sys.argv[1],7007)); sent+=1\n"
            " except OSError as e: errors.append(e.strerror or repr(e))\n"
            " again+=struct.unpack_from('I',s.getsockopt(6,11,104),100)[0]>0; s.close()\n"
            "print(json.dumps([sent,again,errors]),flush=True)\n")


@KINDS
def test_an_engines_death_drops_no_new_connection(host, tree, pod, site, denied, kind):
    """While its successor takes over, each connects at once; one that has to send again has lost a second."""
    app, who, outside = someone(kind, host, tree, pod)
    daemon = host.daemon()
    rules = json.loads(policy(f"allow {site.name}", verify="dns"))
    assert daemon.call("PUT", "/sandboxes/one", {**who, "policy": rules}).status == 201
    assert app.probe(["dns", site.name]).addresses == [site.v4]
    many = [app.start("/usr/bin/python3", "-c", CONNECTS, site.v4) for _ in range(2)]
    stranger = app.start("/usr/bin/python3", "-c", CONNECTS, STRANGER)
    assert [each.line() for each in (*many, stranger)] == ["up"] * 3
    for _ in range(8):
        daemon.kill_child("engine")
    for each in (*many, stranger):
        end_input(each)
    for each in many:
        sent, again, errors = json.loads(each.line())
        # What is on its way through the old table in that very moment may be refused, at once.
        assert sent > 20 and again == 0 and len(errors) <= 4, (sent, again, errors)
        assert set(errors) <= {"Connection reset by peer", "Connection refused"}, errors
    sent, again, errors = json.loads(stranger.line())
    assert sent == 0 and len(errors) > 20 and not outside.packets(dst=STRANGER)
    expect.name_refused(app.probe(["dns", denied.name]))
