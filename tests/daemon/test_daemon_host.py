# SPDX-License-Identifier: Apache-2.0
"""Sandboxes of the host's own network in the whole daemon, known by cgroup or by user id."""
import pytest

from world import expect
from world.member import Member, Tree, cgroup_root
from world.sidecar import Flow, wait_for

STRANGER = "93.9.9.9"
pytestmark = pytest.mark.skipif(not cgroup_root(), reason="no cgroup v2 here")


@pytest.fixture
def tree(host):  # after the host's processes have ended
    tree = Tree()
    yield tree
    for started in host._started:
        started.kill()
    for daemon in host.daemons:
        daemon.kill()
    tree.close()


@pytest.fixture
def app(host, tree):
    return Member(host, tree.cgroup("a"))


@pytest.fixture
def other(host, tree):
    return Member(host, tree.cgroup("b"))


def attach(daemon, name, member, *args):
    how = ["--cgroup", member.cgroup.path] if member.cgroup else ["--uid", member.uid]
    done = daemon.weir("attach", "--id", name, *how, *args)
    assert done.code == 0, f"{done}\n{daemon}"


def is_guarded(app, site):
    """Its name is answered, its address open, and a stranger's closed."""
    lookup, tcp, stranger = app.probe(["dns", site.name], ["tcp", site.v4, 443], ["tcp", STRANGER, 443])
    expect.tcp_refused(stranger)
    return lookup.addresses == [site.v4] and tcp.result == "ok"


@pytest.mark.parametrize("kind", ["cgroup", "uid"])
def test_it_is_guarded_from_attach_to_detach(daemon, host, tree, site, denied, kind):
    app = Member(host, tree.cgroup("a")) if kind == "cgroup" else Member(host, uid=1203)
    attach(daemon, "one", app, "--allow", site.name)
    assert is_guarded(app, site)
    expect.name_refused(app.probe(["dns", denied.name]))
    assert not [p for p in host.packets() if p.dst == STRANGER]
    assert not host.world.dns.queries(denied.name)
    wait_for(lambda: daemon.status("one")["counters"]["queries_denied"] == 1)
    assert daemon.status("one")["fullIsolation"] is True
    assert denied.name in {d["name"] for d in daemon.denies("one")}
    done = daemon.weir("detach", "one")
    assert done.code == 0, done
    assert app.probe(["tcp", STRANGER, 443]).result == "ok"
    assert daemon.names() == []


def test_two_know_nothing_of_each_other(daemon, app, other, site, denied):
    attach(daemon, "one", app, "--allow", site.name)
    attach(daemon, "two", other, "--allow", denied.name)
    assert is_guarded(app, site) and is_guarded(other, denied)
    expect.tcp_refused(other.probe(["tcp", site.v4, 443]))
    expect.tcp_refused(app.probe(["tcp", denied.v4, 443]))
    expect.name_refused(other.probe(["dns", site.name]))


@pytest.mark.parametrize("child", ["engine", "control"])
def test_a_child_that_dies(daemon, app, other, site, denied, child):
    attach(daemon, "one", app, "--allow", site.name)
    attach(daemon, "two", other, "--allow", denied.name)
    assert is_guarded(app, site) and is_guarded(other, denied)
    flow = Flow(app, site.v4)
    daemon.kill_child(child)
    assert flow.say() == "got"
    assert app.probe(["tcp", site.v4, 443]).result == "ok", "what was learned is forgotten"
    assert is_guarded(app, site) and is_guarded(other, denied)
    daemon.set_policy("one")
    assert flow.say() != "got"
    expect.name_refused(app.probe(["dns", site.name]))
    assert is_guarded(other, denied)


def test_a_dead_daemon_leaves_it_closed_and_the_next_guards_it(host, app, other, site, denied):
    daemon = host.daemon()
    attach(daemon, "one", app, "--allow", site.name)
    attach(daemon, "two", other, "--allow", denied.name)
    assert is_guarded(app, site)
    flow = Flow(app, site.v4)
    daemon.kill()
    known, unknown = app.probe(["tcp", site.v4, 443], ["tcp", STRANGER, 443])
    assert known.result == "ok" and flow.say() == "got"
    expect.tcp_refused(unknown)
    expect.tcp_refused(other.probe(["tcp", STRANGER, 443]))
    again = host.daemon()
    assert again.names() == ["one", "two"]
    assert again.status("one")["counters"]["adopted"] > 0
    assert flow.say() == "got"
    assert app.probe(["tcp", site.v4, 443]).result == "ok"
    assert is_guarded(app, site) and is_guarded(other, denied)
    assert not [p for p in host.packets() if p.dst == STRANGER]


def test_beside_a_namespace(daemon, app, pod, site, denied):
    """All three kinds in one engine."""
    user = Member(app.host, uid=1203)
    attach(daemon, "one", app, "--allow", site.name)
    daemon.attach("two", pod, "--allow", denied.name)
    attach(daemon, "three", user, "--allow", denied.name)
    assert is_guarded(app, site) and is_guarded(pod, denied) and is_guarded(user, denied)
    daemon.kill_child("engine")
    assert is_guarded(app, site) and is_guarded(pod, denied) and is_guarded(user, denied)


def test_names_that_connections_show(daemon, app, site, tmp_path):
    file = tmp_path / "policy.yaml"
    file.write_text(f"verify: tls\negress:\n  - {{action: allow, target: {site.name}}}\n")
    attach(daemon, "one", app, "--policy", file)
    assert app.probe(["dns", site.name]).addresses == [site.v4]
    good, bad = app.probe(["https", site.v4, 443, site.name], ["https", site.v4, 443, "evil.test"])
    assert good.result == "ok", dict(good)
    expect.tcp_gave_nothing(bad)
