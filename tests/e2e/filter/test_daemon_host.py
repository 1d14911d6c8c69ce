# SPDX-License-Identifier: Apache-2.0
"""Sandboxes of the host's own network in the whole daemon, known by cgroup or by user id."""
import pytest

from world import expect
from world.dnsd import DnsServer
from world.expect import is_guarded
from world.member import Member, cgroup_root
from world.sidecar import Flow, wait_for

pytestmark = pytest.mark.skipif(not cgroup_root(), reason="no cgroup v2 here")


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


def test_two_know_nothing_of_each_other(daemon, app, other, site, denied):
    attach(daemon, "one", app, "--allow", site.name)
    attach(daemon, "two", other, "--allow", denied.name)
    assert is_guarded(app, site) and is_guarded(other, denied)
    expect.tcp_refused(other.probe(["tcp", site.v4, 443]))
    expect.tcp_refused(app.probe(["tcp", denied.v4, 443]))
    expect.name_refused(other.probe(["dns", site.name]))


@pytest.mark.parametrize("child, kind", [("engine", "cgroup"), ("engine", "uid"), ("control", "cgroup")])
def test_a_child_that_dies(daemon, host, app, other, site, denied, child, kind):
    app = Member(host, uid=1203) if kind == "uid" else app
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


@pytest.fixture
def own(host, site):
    """A resolver of the host's own, on its loopback, and the file that names it."""
    server = DnsServer(host.ns)
    server.add(site.name, site.v4)
    server.conf = host.folder / "resolv.conf"
    server.conf.write_text("nameserver 127.0.0.53\noptions edns0\n")
    yield server
    server.close()


def test_a_name_server_on_the_hosts_loopback(host, app, pod, site, own):
    """systemd-resolved's: asked by the daemon, and by no sandbox; and nobody else is."""
    daemon = host.daemon("--resolv-conf", own.conf, upstream=None)
    attach(daemon, "one", app, "--allow", site.name)
    daemon.attach("two", pod, "--allow", site.name)
    assert is_guarded(app, site) and is_guarded(pod, site)
    assert own.queries(site.name) and not host.world.dns.queries(site.name)
    expect.name_refused(app.probe(["dns", "other.test", {"server": "127.0.0.53"}]))
    assert not own.queries("other.test")


def test_without_a_name_server_there_is_no_start(host):
    """Nobody who was not named is asked."""
    conf = host.folder / "resolv.conf"
    conf.write_text("search a.test\n")
    daemon = host.daemon("--resolv-conf", conf, upstream=None, ready=False)
    assert daemon.ended() == 125
    wait_for(lambda: any("resolv.conf names no usable name server: name one with --upstream" in line for line in daemon.errors))
    assert not daemon.socket.exists()
