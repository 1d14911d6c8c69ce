# SPDX-License-Identifier: Apache-2.0
"""The DNS programs that are measured: how each is configured and started.

A program is a function of the world that returns a Server. All of them answer below
allowed.example.com from the upstream and deny denied.example.com by themselves.
"""
import dataclasses

UPSTREAM = ("127.0.0.9", "5300")
ALLOWED, DENIED = "allowed.example.com", "denied.example.com"

POLICY = f"""\
defaultAction: deny
egress:
  - {{action: allow, target: "*.{ALLOWED}"}}
limits:
  queries_per_second: unlimited
  queries_burst: unlimited
  new_names_per_minute: unlimited
  queries_in_flight: 4096
"""
UNBOUND = """\
server:
  directory: "{dir}"
  chroot: ""
  username: ""
  pidfile: "{dir}/unbound.pid"
  use-syslog: no
  interface: 127.0.0.1@{port}
  do-not-query-localhost: no
  num-threads: 1
  module-config: "iterator"
  outgoing-range: 4096
  num-queries-per-thread: 2048
  so-rcvbuf: 0
  local-zone: "{denied}." always_nxdomain
remote-control:
  control-enable: no
forward-zone:
  name: "."
  forward-addr: {upstream[0]}@{upstream[1]}
"""
DNSDIST = """\
setSecurityPollSuffix("")
setLocal("127.0.0.1:{port}")
newServer({{address="{upstream[0]}:{upstream[1]}", sockets=4}})
getPool(""):setCache(newPacketCache(20000))
addAction("{denied}.", RCodeAction(DNSRCode.NXDOMAIN))
"""
# What questions and answers have to pass, as those to Weir pass its filter; the set is
# what dnsmasq puts addresses into.
NFT = """\
table inet bench {
  set learned4 { type ipv4_addr; flags timeout; timeout 1h; }
  chain output {
    type filter hook output priority 0; policy drop;
    ct state established accept
    oif lo accept
    ip daddr @learned4 accept
  }
}
"""


@dataclasses.dataclass
class Server:
    command: list
    port: str
    side: str = "nft"    # the namespace it runs in
    client: str = "nft"  # the one its client is in


def bare(world):
    return Server([world.bench / "relay_bare", "127.0.0.1", "5301", *UPSTREAM], "5301",
                  "out", "out")


def weir(world):
    policy = world.dir / "policy.yaml"
    policy.write_text(POLICY)
    return Server([world.bench / "dns_harness", world.netns("in"), ":".join(UPSTREAM), policy],
                  "53", "out", "in")


def _dnsmasq(port, *options):
    return ["dnsmasq", "-k", "-p", port, "-C", "/dev/null", "--listen-address=127.0.0.1",
            "--bind-interfaces", "-R", "-h", f"--server={UPSTREAM[0]}#{UPSTREAM[1]}",
            "--cache-size=10000", "--dns-forward-max=10000", "--user=root",
            f"--local=/{DENIED}/", "--pid-file=", *options]


def dnsmasq(_world):
    return Server(_dnsmasq("5302"), "5302")


def dnsmasq_nftset(world):
    return Server(_dnsmasq("5302", f"--nftset=/{ALLOWED}/4#inet#bench#learned4"), "5302", "nft", "nft")


def unbound(world):
    config = world.dir / "unbound.conf"
    config.write_text(UNBOUND.format(dir=world.dir, port="5303", upstream=UPSTREAM, denied=DENIED))
    return Server(["unbound", "-d", "-c", config], "5303")


def dnsdist(world):
    config = world.dir / "dnsdist.conf"
    config.write_text(DNSDIST.format(port="5304", upstream=UPSTREAM, denied=DENIED))
    return Server(["dnsdist", "--supervised", "--disable-syslog", "-C", config], "5304")


@dataclasses.dataclass
class Program:
    make: object
    needs: str = ""                                    # an executable, unless it is ours
    cases: tuple = ("new names", "cached", "denied")   # those that it can do


PROGRAMS = {
    # Without any filter: the least that a hop can cost.
    "relay_bare": Program(bare, cases=("new names",)),
    "weir": Program(weir),
    "dnsmasq": Program(dnsmasq, "dnsmasq"),
    "dnsmasq nftset": Program(dnsmasq_nftset, "dnsmasq", ("new names",)),
    "unbound": Program(unbound, "unbound"),
    "dnsdist": Program(dnsdist, "dnsdist"),
}
