# SPDX-License-Identifier: Apache-2.0
"""The kernel's side: names that tools look for, and what passes."""
import json

import pytest

from world import expect
from world.expect import PATIENCE
from world.sidecar import policy, wait_for
from world.world import RESOLVER4, RESOLVER6


def test_N1_the_names_are_opensandboxs(pod, guarded, site):
    guarded("allow 93.240.0.0/16", "allow 93.241.1.1", "allow 2a01:93:240::/48", "deny 93.242.0.0/16",
            "deny 2a01:93:242::1", f"allow {site.name}")
    listing = json.loads(pod.nft("-j", "list", "table", "inet", "opensandbox"))["nftables"]
    sets = {i["set"]["name"] for i in listing if "set" in i}
    assert {"allow_v4", "allow_v6", "deny_v4", "deny_v6", "dyn_allow_v4", "dyn_allow_v6"} <= sets
    chain = next(i["chain"] for i in listing if i.get("chain", {}).get("name") == "egress")
    assert (chain["type"], chain["hook"], chain["prio"]) == ("filter", "output", 0)
    assert {"93.240.0.0/16", "93.241.1.1"} <= set(pod.set_elements("allow_v4"))
    assert set(pod.set_elements("deny_v4")) == {"93.242.0.0/16"}
    assert set(pod.set_elements("deny_v6")) == {"2a01:93:242::1", "64:ff9b::5df2:0/112"}  # behind NAT64 as well
    pod.probe(["dns", site.name])
    assert set(pod.set_elements("dyn_allow_v4")) == {site.v4}


@pytest.mark.parametrize("default", ["deny", "allow"])
def test_N1_N2_dns_over_tls_is_shut(pod, guarded, default):
    guarded("allow 93.240.1.1", default=default)
    tcp, udp, web = pod.probe(["tcp", "93.240.1.1", 853], ["udp", "93.240.1.1", 853], ["tcp", "93.240.1.1", 443])
    expect.tcp_refused(tcp)
    expect.udp_refused(udp)
    assert web.result == "ok" and not [p for p in pod.packets() if p.dport == 853]


def test_N2_default_allow_lets_the_rest_pass(pod, guarded):
    guarded("deny 93.242.0.0/16", default="allow")
    good, bad, udp = pod.probe(["tcp", "93.243.1.1", 7007, "x"], ["tcp", "93.242.1.1", 7007],
                               ["udp", "93.243.1.1", 7007, {"wait": PATIENCE / 2}])
    assert good.data == "x" and udp.result == "ok"
    expect.tcp_refused(bad)
    for metadata in ("169.254.169.254", "100.100.100.200"):
        assert pod.probe(["tcp", metadata, 80]).result != "ok"
    assert not [p for p in pod.packets() if p.dst in ("93.242.1.1", "169.254.169.254", "100.100.100.200")]


def test_N3_a_start_over_a_table_that_stands(pod, guarded):
    first = guarded("allow 93.240.1.1")
    assert first.stop() == 0
    pod.sidecar(rules=policy("allow 93.241.1.1"))
    old, new = pod.probe(["tcp", "93.240.1.1", 7007], ["tcp", "93.241.1.1", 7007])
    expect.tcp_refused(old)
    assert new.result == "ok"


def test_N3_a_start_over_somebody_elses_table_of_that_name(pod, guarded):
    """OpenSandbox's own sidecar ran here before."""
    pod.nft("add table inet opensandbox; add chain inet opensandbox egress "
            "{ type filter hook output priority 0; policy accept; }; add set inet opensandbox allow_v4 "
            "{ type ipv4_addr; flags interval; elements = { 93.245.1.1 } }; "
            "add rule inet opensandbox egress ip daddr @allow_v4 accept")
    guarded("allow 93.241.1.1")
    old, new = pod.probe(["tcp", "93.245.1.1", 7007], ["tcp", "93.241.1.1", 7007])
    expect.tcp_refused(old)
    assert new.result == "ok"


def test_N4_doh_by_address(pod):
    env = {"OPENSANDBOX_EGRESS_BLOCK_DOH_443": "true", "OPENSANDBOX_EGRESS_DOH_BLOCKLIST": "9.9.9.9, 2001:db8::/32,junk"}
    side = pod.sidecar(rules=policy(default="allow"), env=env)
    doh, plain, other = pod.probe(["tcp", "9.9.9.9", 443], ["tcp", "9.9.9.9", 7007], ["tcp", "93.240.1.1", 443])
    expect.tcp_refused(doh)
    assert plain.result == other.result == "ok"
    assert set(pod.set_elements("doh_block_v4")) >= {"9.9.9.9"} and set(pod.set_elements("doh_block_v6")) >= {"2001:db8::/32"}
    assert side.wait_log("junk", level="warn")


def test_N4_doh_without_a_list_shuts_443(pod):
    pod.sidecar(rules=policy(default="allow"), env={"OPENSANDBOX_EGRESS_BLOCK_DOH_443": "on"})
    web, other = pod.probe(["tcp", "93.240.1.1", 443], ["tcp", "93.240.1.1", 7007])
    expect.tcp_refused(web)
    assert other.result == "ok"


def test_N6_overlapping_prefixes_are_merged(pod, guarded):
    guarded("allow 100.64.0.0/10", "allow 100.100.2.136", "allow 100.100.2.138", "allow 93.240.0.0/16",
            "allow 93.240.7.0/24", "allow 93.240.7.7", "allow 93.240.0.1/16")
    allowed = set(pod.set_elements("allow_v4"))
    assert {"100.64.0.0/10", "93.240.0.0/16"} <= allowed and not allowed & {"100.100.2.136", "93.240.7.0/24", "93.240.7.7"}
    assert pod.probe(["tcp", "100.100.2.136", 7007]).result == "ok"


def test_N7_a_deny_of_loopback_does_not_break_dns(pod, world, site):
    rules = world.workdir()
    (rules / "deny.always").write_text("127.0.0.0/8\n::1\n")
    side = pod.sidecar("--always-dir", rules, rules=policy(f"allow {site.name}"))
    for server in ("127.0.0.1", "8.8.8.8", "::1"):
        assert pod.probe(["dns", site.name, {"server": server}]).addresses == [site.v4]
    assert side.get("/healthz").status == 200


def test_resolvers_are_the_sidecars_alone(pod, guarded, site):
    """On no other port either: on some clouds the resolver is the metadata server."""
    guarded(f"allow {site.name}")
    for server in (RESOLVER4, RESOLVER6):
        for port in (80, 443, 7007, 853):
            expect.tcp_refused(pod.probe(["tcp", server, port]))
    assert pod.packets() == [] and not [p for p in pod.capture.packets() if p.dport not in (53,)]


def test_F8_an_exempt_name_server_is_asked_directly(pod, world, site, denied):
    env = {"OPENSANDBOX_EGRESS_NAMESERVER_EXEMPT": "5.100.53.77, 2a01:5353::77 ,invalid, 10.0.0.0/8, ,"}
    pod.sidecar(rules=policy(f"allow {site.name}"), env=env)
    for server in ("5.100.53.77", "2a01:5353::77"):
        assert pod.probe(["dns", denied.name, {"server": server}]).addresses == [denied.v4]
    expect.name_refused(pod.probe(["dns", denied.name, {"server": "10.0.0.53"}]))
    expect.tcp_refused(pod.probe(["tcp", "5.100.53.77", 443]))
    assert {q.server for q in world.dns.queries(denied.name)} == {"5.100.53.77", "2a01:5353::77"}


def test_refusals_are_immediate_and_typed(pod, guarded):
    guarded()
    tcp4, tcp6, udp4, udp6 = pod.probe(["tcp", "93.9.9.9", 80], ["tcp", "2a01:93::9:9", 80],
                                       ["udp", "93.9.9.9", 123], ["udp", "2a01:93::9:9", 123])
    for answer in (tcp4, tcp6):
        expect.tcp_refused(answer)
    for answer in (udp4, udp6):
        expect.udp_refused(answer)
    ping = pod.run("ping", "-c", "1", "-W", "1", "93.9.9.9", uid=0, caps=("net_raw",))
    assert ping.code != 0 and pod.packets() == []


def test_denials_are_logged_and_counted(pod, guarded, denied):
    side = guarded()
    pod.probe(["dns", denied.name], ["tcp", "93.9.9.9", 81])
    lookup = side.wait_log(opensandbox__event="egress.denied")
    assert denied.name in json.dumps(lookup)
    wait_for(lambda: "93.9.9.9" in json.dumps(side.log(opensandbox__event="egress.denied")))
    denies = side.get("/denies").text
    assert denied.name in denies and "93.9.9.9" in denies


@pytest.mark.parametrize("family", [4, 6])
def test_inbound_connections_are_answered_under_deny_all(pod, guarded, world, family):
    """A published port: the app serves the platform, though it may call nobody."""
    guarded()
    server = pod.start("/usr/bin/python3", "-c",
                       "import socket\ns=socket.create_server(('::',9000),family=socket.AF_INET6,dualstack_ipv6=True)\n"
                       "print('up',flush=True)\nwhile 1:\n c=s.accept()[0]; c.sendall(c.recv(99)); c.close()\n")
    assert server.line() == "up"
    import socket
    address = pod.ip4 if family == 4 else pod.ip6
    with world.internet.socket(socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_STREAM) as s:
        s.settimeout(30)
        s.connect((address, 9000))
        s.sendall(b"hello")
        assert s.recv(99) == b"hello"


def test_loopback_services_go_on_under_deny_all(pod, guarded):
    """A Jupyter kernel, a database: everything on loopback, and on the pod's own address."""
    guarded()
    for address in ("127.0.0.1", "127.5.5.5", "::1", pod.ip4, pod.ip6):
        assert pod.probe(["loopback", address]).data == "inside", address


def test_the_api_is_reached_over_loopback_and_the_pods_address(guarded):
    side = guarded()
    for outside in (False, True):
        assert side.get("/healthz", token=None, outside=outside).text == "ok"
        assert side.get("/policy", outside=outside).json()["mode"] == "deny_all"
        assert side.get("/policy", token=None, outside=outside).status == 401
