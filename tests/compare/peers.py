# SPDX-License-Identifier: Apache-2.0
"""The sandboxes that are compared: how each is told to let one name through, and how it starts a command.

All get the same request: the name of the site on its usual ports, the working directory to write to, and nothing else. What
a peer can't be asked for (names, in one that knows addresses only) is asked for in the nearest words that it has.
"""
import json
import pathlib
import shlex
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
PORTS = (22, 80, 443, 5432, 7007, 8080)
PEER4, GATEWAY4, RESOLVER4 = "5.100.0.3", "5.100.0.1", "5.100.53.53"

CODEX = """\
default_permissions = "compare"
[features]
network_proxy = true
[permissions.compare]
extends = ":workspace"
[permissions.compare.network]
enabled = true
[permissions.compare.network.domains]
"{name}" = "allow"
"""
NFT = """\
table inet handmade {{
	chain output {{
		type filter hook output priority 0; policy drop;
		oif lo accept
		ct state established,related accept
		ip daddr 10.0.2.3 udp dport 53 accept
		ip daddr {v4} accept
		reject with icmpx admin-prohibited
	}}
}}
"""
IPTABLES = """\
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT DROP [0:0]
-A OUTPUT -o lo -j ACCEPT
-A OUTPUT -m state --state ESTABLISHED,RELATED -j ACCEPT
-A OUTPUT -d {resolver} -p udp --dport 53 -j ACCEPT
-A OUTPUT -d {v4} -j ACCEPT
-A OUTPUT -j REJECT
COMMIT
"""


def version(*argv):
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    words = (done.stdout + done.stderr).split()
    return next((w for w in words if w[0].isdigit()), "?")


class Peer:
    """@name for people. start(): the argv that runs a command in it."""
    name = "none"
    mounts = ()     # shell lines that root runs before the command, in a mount namespace of its own

    def __init__(self, world, site, folder, programs):
        self.world, self.site, self.folder, self.programs = world, site, folder, programs
        self.write()

    def write(self):
        """Write the configuration."""

    def start(self, *command):
        return list(command)

    def version(self):
        return ""


class Weir(Peer):
    name = "Weir"

    def start(self, *command):
        ports = ",".join(str(p) for p in PORTS)
        return [self.world.weir_path, "run", "--quiet", "--no-config", "--allow", f"{self.site.name}:{ports}", "--", *command]

    def version(self):
        return version(self.world.weir_path, "--version")


class SandboxRuntime(Peer):
    name = "sandbox-runtime"

    def write(self):
        self.settings = self.folder / "srt.json"
        self.settings.write_text(json.dumps({
            "network": {"allowedDomains": [self.site.name], "deniedDomains": []},
            "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []}}))

    def start(self, *command):
        return [self.programs / "srt", "--settings", self.settings, "-c", shlex.join(map(str, command))]

    def version(self):
        return version(self.programs / "srt", "--version")


class Codex(Peer):
    name = "Codex sandbox"

    def write(self):
        (self.folder / "config.toml").write_text(CODEX.format(name=self.site.name))

    def start(self, *command):
        return ["env", f"CODEX_HOME={self.folder}", self.programs / "codex", "sandbox", "--", *command]

    def version(self):
        return version(self.programs / "codex", "--version")


class Firejail(Peer):
    """Its filter is iptables: an interface of its own, and the address that the name has at the start. Debian lets root alone
    have that; here the administrator has opened it to users."""
    name = "firejail"
    mounts = ("sed 's/^restricted-network yes/restricted-network no/' /etc/firejail/firejail.config >/tmp/firejail.config.$$",
              "mount --bind /tmp/firejail.config.$$ /etc/firejail/firejail.config", "rm /tmp/firejail.config.$$")

    def write(self):
        self.rules = self.folder / "firejail.net"
        self.rules.write_text(IPTABLES.format(v4=self.site.v4, resolver=RESOLVER4))

    def start(self, *command):
        return ["firejail", "--quiet", "--net=up0", f"--ip={PEER4}", f"--defaultgw={GATEWAY4}", f"--netfilter={self.rules}",
                f"--dns={RESOLVER4}", "--", *command]

    def version(self):
        return version("firejail", "--version")


class Handmade(Peer):
    """bubblewrap, slirp4netns and nft, as in `handmade`."""
    name = "bwrap + slirp4netns + nft"

    def write(self):
        self.rules = self.folder / "handmade.nft"
        self.rules.write_text(NFT.format(v4=self.site.v4))

    def start(self, *command):
        return [self.folder / "handmade", self.rules, *command]

    def version(self):
        return version("bwrap", "--version")


class Bare(Peer):
    name = "no sandbox"


PEERS = (Bare, Weir, SandboxRuntime, Codex, Firejail, Handmade)
