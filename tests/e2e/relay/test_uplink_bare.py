# SPDX-License-Identifier: Apache-2.0
"""The scheme that others use, and what it leaves open: bubblewrap, slirp4netns, and a name
server that answers for allowed names alone. Each hole is shown to be there, with the programs
alone, and to be closed under Weir with the same uplink and the same list.
"""
import json
import socket
import subprocess

import pytest

from world import expect
from world.listen import TcpService, UdpService
from world.run import finish, read_answers
from world.sidecar import wait_for
from world.world import ECHO_PORT, RESOLVER4

OTHER_SERVER, ADDRESS = "93.99.53.53", "93.99.99.98"


@pytest.fixture(name="scheme")
def scheme_fixture(world, tun, site, denied):
    """probe(*probes): in the bare scheme, where @site is all that may be reached."""
    resolver = subprocess.Popen(
        world.host.command("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-hosts", "--no-resolv",
                           "--listen-address=127.0.0.1", "--bind-interfaces", "--pid-file", "--user=root",
                           f"--server=/{site.name}/{RESOLVER4}", "--address=/#/"),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    conf = world.workdir() / "resolv.conf"
    conf.write_text("nameserver 10.0.2.2\n")

    def probe(*probes):
        sandbox = world.start(["sh", "-c", 'exec bwrap --info-fd 3 "$@" 3>&1', "sh", "--unshare-net",
                               "--unshare-pid", "--dev-bind", "/", "/", "--", "sh", "-c", 'echo up; read -r go; exec "$@"', "sh",
                               "/usr/bin/python3", "-IS", world.tools / "probe.pyc"],
                              mounts=(*tun, f"mount --bind '{conf}' /etc/resolv.conf"))
        info = ""
        while not info.endswith("}"):
            info += sandbox.line()
        # slirp4netns sets the loopback device up as well, and bwrap fails where it comes second.
        assert sandbox.line() == "up"
        slirp = world.start(["slirp4netns", "--configure", "--ready-fd=1", str(json.loads(info)["child-pid"]), "tap0"],
                            mounts=tun, stderr=subprocess.DEVNULL)
        with slirp:
            assert slirp.process.stdout.read(1) == b"1"
            return read_answers(finish(sandbox, b"go\n" + json.dumps(probes).encode()), len(probes))

    def is_up():
        with world.host.socket(socket.AF_INET, socket.SOCK_STREAM) as s:
            return s.connect_ex(("127.0.0.1", 53)) == 0
    wait_for(is_up)
    yield probe
    resolver.kill()
    resolver.wait()


@pytest.fixture(name="weir")
def weir_fixture(world, tun, site):
    def probe(*probes):
        answers = world.probe(*probes, user="weir-test", mounts=tun, allow=[site.name],
                              options=("--uplink", "slirp4netns"))
        return answers if isinstance(answers, list) else [answers]
    return probe


def test_the_list_is_kept_as_far_as_names_go(scheme, weir, site, denied):
    """What the scheme promises, both do."""
    for probe in (scheme, weir):
        allowed, refused = probe(["lookup", site.name], ["lookup", denied.name])
        assert allowed.result == "ok" and refused.result != "ok"


def test_raw_addresses(scheme, weir):
    probes = (["tcp", ADDRESS, ECHO_PORT, "secret"], ["udp", ADDRESS, ECHO_PORT, "secret", 30])
    assert [a.result for a in scheme(*probes)] == ["ok", "ok"]
    tcp, udp = weir(*probes)
    expect.tcp_refused(tcp)
    expect.udp_refused(udp)


def test_another_resolver(world, scheme, weir, denied):
    probes = (["dns", denied.name, "A", OTHER_SERVER, "udp"], ["dns", denied.name, "A", OTHER_SERVER, "tcp"])
    assert [a.addresses for a in scheme(*probes)] == [[denied.v4]] * 2
    before = world.dns.count(denied.name)
    for answer in weir(*probes):
        expect.name_refused(answer)
    assert world.dns.count(denied.name) == before


def test_the_hosts_loopback_behind_the_gateway(world, scheme, weir):
    probes = (["tcp", "10.0.2.2", 9019, "secret"], ["udp", "10.0.2.2", 9019, "secret", 30])
    with TcpService(world.host, 9019, address="127.0.0.1") as tcp, UdpService(world.host, 9019) as udp:
        assert [a.result for a in scheme(*probes)] == ["ok", "ok"]
        heard = len(tcp.connections), len(udp.datagrams)
        closed_tcp, closed_udp = weir(*probes)
        expect.tcp_refused(closed_tcp)
        expect.udp_refused(closed_udp)
        assert (len(tcp.connections), len(udp.datagrams)) == heard


def test_the_name_server_of_the_uplink(world, scheme, weir, denied):
    """slirp4netns's own forwards to the host's resolver, which knows no list."""
    probes = (["dns", denied.name, "A", "10.0.2.3", "udp"],)
    before = world.dns.count(denied.name)
    expect.name_refused(weir(*probes)[0])
    assert world.dns.count(denied.name) == before


def test_another_name_on_an_allowed_address(world, scheme, weir, site, denied):
    world.dns.add(denied.name, site.v4)
    probes = (["connect", site.name, 443], ["https", site.v4, 443, denied.name])
    assert [a.result for a in scheme(*probes)] == ["ok", "ok"]
    allowed, refused = weir(*probes)
    assert allowed.result == "ok"
    expect.tcp_gave_nothing(refused)
