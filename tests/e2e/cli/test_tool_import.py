# SPDX-License-Identifier: Apache-2.0
"""`weir policy import`: other tools' lists as a policy that holds no more than they did."""
import json

import pytest

WORKFLOW = """
jobs:
  build:
    steps:
      - uses: some/runner@v2
        with:
          egress-policy: block
          allowed-endpoints: {sign}
            github.com:443
            *.github.com:443 *.github.com:22
            api.github.com:80
            10.0.0.1:8080
            [2600::1]:443
      - run: |
          make
"""


def settings(**network):
    return json.dumps({"model": "m", "sandbox": {"enabled": True, "network": network}})


def domains(allow, deny=(), where="sandbox"):
    network = {"network": {"allowedDomains": allow, "deniedDomains": deny}}
    return json.dumps({"sandbox": network} if where == "sandbox" else network)


TCP = "tcp/1-52,tcp/54-852,tcp/854-65535"  # what these tools' lists open: all of it but name servers, and no UDP
ENDPOINTS = [("github.com", "tcp/443"), ("api.github.com", "tcp/80,tcp/443,tcp/22"), ("10.0.0.1", "tcp/8080"),
             ("2600::1", "tcp/443"), ("*.github.com", "tcp/443,tcp/22")]
IMPORTS = [
    ("a list below sandbox", domains(["a.test", "*.b.test"]), [("allow", "a.test", TCP), ("allow", "*.b.test", TCP)]),
    ("a list below network", domains(["a.test"], where="top"), [("allow", "a.test", TCP)]),
    ("denies before all else", domains(["*.a.test"], ["x.a.test"]),
     [("deny", "x.a.test", None), ("allow", "*.a.test", TCP)]),
    ("an address", domains(["10.0.0.5"]), [("allow", "10.0.0.5", TCP)]),
    ("a name twice", domains(["a.test", "A.test"]), [("allow", "a.test", TCP)]),
    ("YAML", "network:\n  allowedDomains:\n  - a.test\n", [("allow", "a.test", TCP)]),
    ("what says nothing beside it", settings(allowedDomains=["a.test"], allowLocalBinding=False, allowUnixSockets=[]),
     [("allow", "a.test", TCP)]),
    ("an empty list", domains([]), []),
    ("no list at all of two", settings(deniedDomains=["a.test"]), [("deny", "a.test", None)]),
    ("null", "network: {allowedDomains: null}", []),
    ("endpoints, folded", WORKFLOW.format(sign=">"), [("allow", *e) for e in ENDPOINTS]),
    ("endpoints, line by line", WORKFLOW.format(sign="|"), [("allow", *e) for e in ENDPOINTS]),
    ("endpoints as a list", "allowed-endpoints: [a.test:443]", [("allow", "a.test", "tcp/443")]),
    ("no endpoint", "allowed-endpoints: ''", []),
]


@pytest.fixture(name="convert")
def convert_fixture(world):
    def convert(text, name="settings", options=()):
        cwd = world.workdir()
        (cwd / name).write_text(text)
        return world.weir("policy", "import", *options, name, cwd=cwd), cwd
    return convert


@pytest.mark.parametrize("what, text, rules", IMPORTS, ids=[w for w, _, _ in IMPORTS])
def test_every_entry_becomes_a_rule_and_nothing_else(world, convert, what, text, rules):
    done, cwd = convert(text)
    assert done.code == 0 and done.err == b"", done
    (cwd / "policy.yaml").write_bytes(done.out)
    assert world.weir("policy", "check", "policy.yaml", cwd=cwd).code == 0
    shown = world.weir("policy", "show", "--json", "policy.yaml", cwd=cwd).json()
    assert shown["defaultAction"] == "deny"
    got = [(r["action"], r["target"], {str(p) for p in r["ports"]} if "ports" in r else None) for r in shown["egress"]]
    assert got == [(a, t, set(p.split(",")) if p else None) for a, t, p in rules]


SRT = """{
  "network": {
    "allowedDomains": ["github.com", "*.github.com", "registry.npmjs.org:443", "[2001:db8::1]:8443"],
    "deniedDomains": ["gist.github.com", "github.com:22", "ssh.github.com:443", "*:25"],
    "strictAllowlist": true,
    "allowLocalBinding": true,
    "allowUnixSockets": ["/var/run/docker.sock"]
  },
  "filesystem": {"denyRead": ["~/.ssh"], "allowWrite": ["."], "denyWrite": [".env"]}
}
"""
WEB = "tcp/1-24,tcp/26-52,tcp/54-852,tcp/854-65535"
CLAUDE = """{
  "permissions": {
    "allow": ["Bash(npm run test:*)", "WebFetch(domain:docs.python.org)", "WebSearch", "WebFetch"],
    "ask": ["WebFetch(domain:asked.test)"],
    "deny": ["Read(./.env)", "WebFetch(domain:bad.test)"]
  },
  "sandbox": {
    "enabled": true, "autoAllowBashIfSandboxed": true, "excludedCommands": ["docker"],
    "network": {"allowedDomains": ["github.com", "*.npmjs.org"], "allowUnixSockets": ["~/.ssh/agent-socket"]}
  }
}
"""
CODEX = """model = "gpt-5"
default_permissions = "work"
approval_policy = "on-request"

[projects."/home/me/src"]
trust_level = "trusted"

[permissions.work]
extends = ":workspace"

[permissions.work.filesystem]
":project_roots" = { "." = "write", "**/*.env" = "none" }

[permissions.work.network]
enabled = true
mode = "full"
enable_socks5 = false
allow_local_binding = true

[permissions.work.network.domains]
"api.openai.com" = "allow"
"**.example.test" = "allow" # the domain, too
"*.internal.example.test" = "deny"

[permissions.other.network]
enabled = true
[permissions.other.network.domains]
"elsewhere.test" = "allow"

[[mcp_servers.docs.tools]]
name = 'x'
"""
CODEX_OLD = """[network_proxy]
enabled = true
proxy_url = "http://127.0.0.1:3128"
mode = "full"

[network_proxy.policy]
allowed_domains = [
  "*.openai.com",
]
denied_domains = ["evil.example.test"]
allow_local_binding = false
"""
CODEX_OFF = '[sandbox_workspace_write]\nnetwork_access = false\nwritable_roots = ["/x"]\n'
KUBERNETES = """apiVersion: v1
kind: ServiceAccount
metadata: {name: agent}
---
# the pod's own policy
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: agent-egress
  namespace: default
spec:
  podSelector:
    matchLabels:
      role: agent
  policyTypes:
    - Ingress
    - Egress
  ingress:
    - from:
        - ipBlock: {cidr: 172.17.0.0/16}
  egress:
    - to:
        - ipBlock:
            cidr: 10.0.0.0/30
            except:
              - 10.0.0.2/32
      ports:
        - protocol: TCP
          port: 32000
          endPort: 32768
        - port: 5978
    - to:
        - namespaceSelector: {matchLabels: {name: kube-system}}
      ports:
        - {protocol: UDP, port: 53}
    - ports:
        - {protocol: UDP, port: 53}
        - {protocol: TCP, port: 53}
    - to:
        - ipBlock: {cidr: 2001:db8::/32}
"""
KUBERNETES_DENY = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: no}\nspec: {podSelector: {}, policyTypes: [Egress]}\n"
CILIUM = """apiVersion: "cilium.io/v2"
kind: CiliumNetworkPolicy
metadata:
  name: "fqdn"
spec:
  endpointSelector:
    matchLabels: {org: empire}
  egress:
    - toEndpoints:
        - matchLabels: {"k8s:io.kubernetes.pod.namespace": kube-system, "k8s:k8s-app": kube-dns}
      toPorts:
        - ports: [{port: "53", protocol: ANY}]
          rules:
            dns:
              - matchPattern: "*"
    - toFQDNs:
        - matchName: "api.github.com"
        - matchPattern: "**.example.test"
      toPorts:
        - ports:
            - {port: "443", protocol: TCP}
            - {port: "8000", endPort: 8010, protocol: TCP}
    - toCIDR: [20.1.1.1/32]
    - toCIDRSet:
        - cidr: 10.0.0.0/8
          except: [10.96.0.0/12, 10.0.0.0/9]
      toPorts:
        - ports: [{port: "80"}]
  egressDeny:
    - toCIDR: ["20.1.1.0/24"]
"""
CILIUM_LABEL = """apiVersion: cilium.io/v2
kind: CiliumClusterwideNetworkPolicy
metadata: {name: labels}
spec:
  endpointSelector: {}
  egress:
    - toFQDNs: [{matchPattern: "*.cilium.test"}]
"""
# what, the file, the options of import, the rules, the places of what is left out
REAL = [
    ("sandbox-runtime", SRT, (), [
        ("deny", "gist.github.com", None), ("allow", "github.com", WEB.replace("tcp/1-24", "tcp/1-21,tcp/23-24")),
        ("allow", "registry.npmjs.org", "tcp/443"), ("allow", "2001:db8::1", "tcp/8443"),
        ("allow", "ssh.github.com", WEB.replace("tcp/54-852", "tcp/54-442,tcp/444-852")), ("allow", "*.github.com", WEB)],
     ["settings:6:26: warning: network.allowLocalBinding", "settings:7:5: warning: network.allowUnixSockets"]),
    ("Claude Code", CLAUDE, (), [
        ("deny", "bad.test", None), ("allow", "docs.python.org", TCP), ("allow", "github.com", TCP), ("allow", "*.npmjs.org", TCP)],
     ["settings:9:66: warning: sandbox.network.allowUnixSockets", "settings:3:88: warning: permissions.allow[3]: 'WebFetch' is left out",
      "settings:4:13: warning: permissions.ask[0]: "]),
    ("Codex", CODEX, (), [
        ("deny", "*.internal.example.test", None), ("allow", "api.openai.com", TCP), ("allow", "**.example.test", TCP)],
     ["settings:18:23: warning: permissions.work.network.allow_local_binding"]),
    ("Codex, another profile", CODEX, ("--at", "permissions.other.network"), [("allow", "elsewhere.test", TCP)], []),
    ("Codex's network_proxy", CODEX_OLD, (), [("deny", "evil.example.test", None), ("allow", "*.openai.com", TCP)], []),
    ("Codex without network", CODEX_OFF, (), [], []),
    ("Codex' network that is off", CODEX.replace("enabled = true\nmode", "mode"), (), [],
     ["settings:14:26: warning: permissions.work.network: this is left out: it is not enabled"]),
    ("NetworkPolicy", KUBERNETES, (), [
        ("allow", a, "tcp/32000-32768,tcp/5978") for a in ("10.0.0.0/31", "10.0.0.3")] + [("allow", "2001:db8::/32", None)],
     ["settings:33:11: warning: spec.egress[1].to[0]: this is left out", "settings:36:7: warning: spec.egress[2]: this is left out"]),
    ("NetworkPolicy that allows nothing", KUBERNETES_DENY, (), [], []),
    ("CiliumNetworkPolicy", CILIUM, (), [
        ("deny", "20.1.1.0/24", None), ("allow", "api.github.com", "tcp/443,tcp/8000-8010"), ("allow", "20.1.1.1/32", None),
        ("allow", "10.128.0.0/9", "80"), ("allow", "*.example.test", "tcp/443,tcp/8000-8010")],
     ["settings:9:7: warning: spec.egress[0].toEndpoints"]),
    ("Cilium's world, a port of a name, and no port", CILIUM_LABEL.replace("toFQDNs: [{matchPattern: \"*.cilium.test\"}]", "toEntities: [world]") +
     """    - toCIDR: [10.0.0.1/32]
      toPorts: [{ports: [{port: http}, {port: "0", protocol: UDP}]}, {ports: []}]
""", (), [("allow", "10.0.0.1", "udp/1-65535")],
     ["settings:7:7: warning: spec.egress[0].toEntities", "settings:9:26: warning: spec.egress[1].toPorts[0].ports[0]",
      "settings:9:70: warning: spec.egress[1].toPorts[1]"]),
    ("Cilium's labels", CILIUM_LABEL, ("--any-depth",), [("allow", "*.cilium.test", None)], []),
    ("a workflow of two jobs", WORKFLOW.format(sign=">") + WORKFLOW.format(sign=">").replace("jobs:\n", "").replace("build", "test").replace(
        "github.com", "gitlab.com"), ("--from", "harden-runner", "--at", "jobs.build.steps[0].with.allowed-endpoints"),
     [("allow", *e) for e in ENDPOINTS], []),
]


def ranges(text):
    return text and set(text.split(","))


@pytest.mark.parametrize("what, text, options, rules, left", REAL, ids=[r[0] for r in REAL])
def test_a_file_of_each_tool_becomes_a_policy_that_opens_no_more(world, convert, what, text, options, rules, left):
    done, cwd = convert(text, options=options)
    assert done.code == 0, done
    (cwd / "policy.yaml").write_bytes(done.out)
    assert world.weir("policy", "check", "policy.yaml", cwd=cwd).code == 0
    shown = world.weir("policy", "show", "--json", "policy.yaml", cwd=cwd).json()
    assert shown["defaultAction"] == "deny"
    got = [(r["action"], r["target"], {str(p) for p in r["ports"]} if "ports" in r else None) for r in shown["egress"]]
    # neighbouring ranges are shown as one
    assert [(a, t) for a, t, _ in got] == [(a, t.removesuffix("/32") if "." in t else t) for a, t, _ in rules]
    assert [p for _, _, p in got] == [ranges(p) for _, _, p in rules]
    lines = done.messages.splitlines()
    assert len(lines) == len(left) and all(line.startswith(place) for line, place in zip(lines, left)), done
    assert all(f"# {line}" in done.text for line in lines), "what is left out stands in the policy"


FAULTS = [
    ("Codex' star", CODEX.replace('"api.openai.com"', '"*"'), "settings:21:", "'*'"),
    ("Codex' other globs", CODEX.replace('"api.openai.com"', '"region*.x.test"'), "settings:21:", "region*"),
    ("Codex' limited mode", CODEX.replace('"full"', '"limited"'), "settings:16:", "'limited' lets only"),
    ("a mode that Codex doesn't have", CODEX.replace('"full"', '"Limited"'), "settings:16:", "'Limited' is not limited or full"),
    ("what Codex opens", CODEX_OFF.replace("false", "true"), "settings:2:18:", "opens everything"),
    ("more tables than are read", "".join(f"[a{i}]\n" for i in range(5000)), "settings:4098:", "too many keys"),
    ("what isn't TOML", CODEX + "x = \n", "settings:32:", "not TOML"),
    ("Claude Code's star", CLAUDE.replace("docs.python.org", "*"), "settings:3:", "'*'"),
    ("managed names alone", CLAUDE.replace('"network": {', '"network": {"allowManagedDomainsOnly": true, '), "settings:9:",
     "can't be said"),
    ("a filter of a proxy", SRT.replace('"strictAllowlist"', '"filterRequest"'), "settings:5:", "can't be said"),
    ("a port of none", SRT.replace(":443", ":0"), "settings:3:", "is not host:port"),
    ("a selector that isn't known", KUBERNETES.replace("namespaceSelector", "tenantSelector"), "settings:33:", "can't be said"),
    ("a NetworkPolicy of ingress", KUBERNETES.replace("    - Egress\n", "").replace("  egress:", "  x:"), "settings:", "not about egress"),
    ("no CIDR", KUBERNETES.replace("10.0.0.0/30", "10.0.0.1/30"), "settings:23:", "'10.0.0.1/30' is not a CIDR"),
    ("an except that is none", KUBERNETES.replace("10.0.0.2/32", "x"), "settings:26:", "'x' is not a CIDR"),
    ("a range that ends before it begins", KUBERNETES.replace("32768", "5"), "settings:30:", "'5' is not the end"),
    ("two NetworkPolicies", KUBERNETES + "---\n" + KUBERNETES_DENY, "settings:45:", "--at agent-egress"),
    ("a label's star", CILIUM_LABEL, "settings:7:", "--any-depth"),
    ("every name", CILIUM_LABEL.replace("*.cilium.test", "*"), "settings:7:", "'*'"),
    ("a star in a label", CILIUM_LABEL.replace("*.cilium.test", "a*.cilium.test"), "settings:7:", "can't be said"),
    ("HTTP paths", CILIUM.replace("8010, protocol: TCP}", "8010, protocol: TCP}\n          rules: {http: [{method: GET}]}"), "settings:23:",
     "rules.http: this can't be said"),
    ("server names", CILIUM.replace("- ports: [{port: \"80\"}]", "- ports: [{port: \"80\"}]\n          serverNames: [a.test]"), "settings:29:",
     "can't be said"),
    ("a denied port", CILIUM + "      toPorts: [{ports: [{port: \"80\"}]}]\n", "settings:30:", "a deny of some ports"),
    ("a denied port with a name", CILIUM + "      toPorts: [{ports: [{port: http}]}]\n", "settings:30:", "a deny of some ports"),
    ("a denied port of SCTP", CILIUM + '      toPorts: [{ports: [{port: "80", protocol: SCTP}]}]\n', "settings:30:", "a deny of some ports"),
    ("denied ports, none of them", CILIUM + "      toPorts: [{ports: []}]\n", "settings:30:", "a deny of some ports"),
    ("an except of another family", KUBERNETES.replace("10.0.0.2/32", '"::ffff:10.0.0.2/128"'), "settings:26:", "is not within the block"),
    ("an except beside the block", KUBERNETES.replace("10.0.0.2/32", "192.0.2.0/24"), "settings:26:", "is not within the block"),
    ("a misspelt end of a range", KUBERNETES.replace("endPort", "endport"), "settings:30:", "can't be said"),
    ("a selector beside a block", KUBERNETES.replace("- ipBlock: {cidr: 2001:db8::/32}", "- {ipBlock: {cidr: 2001:db8::/32}, podSelector: {}}"),
     "podSelector", "can't be said"),
    ("a document on the mark's line", KUBERNETES_DENY + "--- {kind: NetworkPolicy, metadata: {name: b}, spec: {egress: [{}]}}\n", "settings", ""),
    ("a name that is no mapping", CILIUM.replace('- matchName: "api.github.com"', "- api.github.com"), "settings:17:", "not a mapping"),
    ("a deny of pods", CILIUM.replace('toCIDR: ["20.1.1.0/24"]', "toEntities: [host]"), "settings:30:", "can't be said"),
    ("a block of addresses", SRT.replace("github.com", "10.0.0.0/8", 1), "settings:3:", "is not a name"),
    ("a block of Codex'", CODEX.replace("api.openai.com", "10.0.0.0/8"), "settings:21:", "is not a name"),
    ("two stars", SRT.replace("*.github.com", "**.github.com"), "settings:3:", "is not a name"),
    ("a number among Codex' names", CODEX_OLD.replace('"evil.example.test"', "3"), "settings:10:", "not a name"),
    ("a rule that is no mapping", KUBERNETES_DENY.replace("[Egress]", "[Egress], egress: [all]"), "settings:4:", "not a mapping"),
    ("a port that is no mapping", KUBERNETES.replace("- port: 5978", "- 5978"), "settings:31:", "not a mapping"),
    ("port 0", KUBERNETES.replace("port: 5978", "port: 0"), "settings:31:", "'0' is not a port"),
    ("a name with a star", CILIUM.replace('"api.github.com"', '"*.github.com"'), "settings:17:", "a name has no star"),
    ("the world", CILIUM_LABEL.replace("toFQDNs: [", "toFQDNs: []\n    - toCIDRSet: [{cidrGroupRef: x}]\n    - toFQDNs: ["), "settings:8:", "can't be said"),
    ("a star", domains(["a.test", "*"]), "network.allowedDomains", "'*'"),
    ("a pattern over a suffix", domains(["*.com"]), "settings:1:", "*.com"),
    ("a name that is none", domains(["a..test"]), "network.allowedDomains", "a..test"),
    ("a number", domains([3]), "network.allowedDomains", "not a name"),
    ("no list", "network: {allowedDomains: a.test}", "network.allowedDomains", "not a list"),
    ("what a policy can't say", settings(allowedDomains=[], httpProxyPort=8080), "network.httpProxyPort", "can't be said"),
    ("an endpoint without port", "allowed-endpoints: a.test", "allowed-endpoints", "host:port"),
    ("an endpoint with port 0", "allowed-endpoints: a.test:0", "allowed-endpoints", "host:port"),
    ("two places", "a: {network: {allowedDomains: []}}\nb: {network: {allowedDomains: []}}", "settings:2:", "a.network"),
    ("no place", "network: {other: 1}", "settings", "allowedDomains"),
    ("an empty file", "", "settings", "allowedDomains"),
    ("bad JSON", '{"network": ', "settings:1:", ""),
]


@pytest.mark.parametrize("what, text, place, says", FAULTS, ids=[f[0] for f in FAULTS])
def test_what_cant_be_said_is_an_error_with_its_place(convert, what, text, place, says):
    done, _ = convert(text)
    assert done.code == 2 and done.out == b"", done
    assert place in done.messages and says in done.messages, done


def test_a_place_that_is_none_drops_no_denies(convert):
    text = CLAUDE.replace('"allowedDomains"', '"deniedDomains": ["x.python.org"], "allowedDomains"').replace("docs.python.org", "*.python.org")
    done, _ = convert(text, options=("--at", "sandbox.netwrk"))
    assert done.code == 2 and done.out == b"" and "--at" in done.messages, done


def test_more_than_can_be_listed_is_counted_in_the_policy(convert):
    peers = ", ".join(["{podSelector: {}}"] * 101)
    done, _ = convert(KUBERNETES_DENY.replace("[Egress]", f"[Egress], egress: [{{to: [{peers}]}}]"))
    assert done.code == 0 and "# and 1 more" in done.text, done


DENY_ALL = domains(["a.test", "*.b.test:443"], ["*"])


def test_a_star_among_denies_denies_everything(world, convert):
    done, cwd = convert(DENY_ALL)
    assert done.code == 0 and "'*' denies everything" in done.messages, done
    (cwd / "policy.yaml").write_bytes(done.out)
    assert world.weir("policy", "show", "--json", "policy.yaml", cwd=cwd).json()["egress"] == []


@pytest.mark.parametrize("deny, closed, is_open", [
    (["x.a.test:443"], "x.a.test:443", "y.a.test:443"), (["*.x.a.test:443"], "y.x.a.test:443", "x.a.test:443"),
    (["*:443"], "b.test:443", "b.test:80"), (["b.test:80", "b.test:443"], "b.test:443", "b.test:22")])
def test_a_denied_port_is_closed_and_no_other(world, convert, deny, closed, is_open):
    done, cwd = convert(domains(["*.a.test:443", "b.test"], deny))
    assert done.code == 0, done
    (cwd / "policy.yaml").write_bytes(done.out)
    answers = [world.weir("policy", "explain", "--policy", "policy.yaml", "--json", target, cwd=cwd).text for target in (closed, is_open)]
    assert '"deny"' in answers[0] and '"allow"' in answers[1], (done.text, answers)


@pytest.mark.parametrize("options, says", [(("--from", "tor"), "'tor' is not one of"), (("--from", "codex"), "not TOML"),
                                           (("--from", "cilium"), "no list that is known"), (("--at", "x"), "--at names no place")])
def test_what_is_asked_for_and_isnt_there_is_an_error(convert, options, says):
    done, _ = convert(CILIUM.replace("Cilium", "") if "cilium" in options else KUBERNETES, options=options)
    assert done.code == 2 and done.out == b"" and says in done.messages, done


@pytest.mark.parametrize("options", [("--from", "codex"), ("--at", "x"), ("--any-depth",)])
def test_the_options_of_import_mean_nothing_to_other_verbs(world, options):
    done = world.weir("policy", "show", *options)
    assert done.code == 2 and f"{options[0]} goes with import alone" in done.messages, done


def test_a_missing_file_is_an_error(world):
    done = world.weir("policy", "import", "nowhere")
    assert done.code == 2 and "nowhere" in done.messages


def test_an_imported_policy_is_enforced(world, convert, user, site, denied):
    done, cwd = convert(domains([site.name]))
    policy = cwd / "policy.yaml"
    policy.write_bytes(done.out)
    yes, no = world.probe(["lookup", site.name], ["lookup", denied.name], options=("--policy", policy))
    assert yes.result == "ok" and no.result == "EAI_NONAME"
