# SPDX-License-Identifier: Apache-2.0
"""What a policy means for names and addresses, as the app sees it."""
import json

import pytest

from world import expect
from world.sidecar import policy

OPEN, SHUT = "NOERROR", "NXDOMAIN"


@pytest.fixture
def tree(world):
    """Names below one of this test's own: tree("a.b") has addresses in the world's DNS."""
    base = f"t{world.number()}.test"

    def name(label=""):
        full = f"{label}.{base}" if label else base
        world.site(full)
        return full
    return name


def verdicts(pod, *names):
    answers = pod.probe(*[["dns", n] for n in names], ["dns", "nobody-asks.test"])
    return [a.result for a in answers[:-1]]


def test_P1_no_default_action_means_deny(pod, tree):
    a, b = tree("a"), tree("b")
    side = pod.sidecar(rules=json.dumps({"egress": [{"action": "allow", "target": a}]}))
    assert verdicts(pod, a, b) == [OPEN, SHUT]
    assert side.call("POST", "/policy", '{"defaultAction":""}').status == 200
    assert verdicts(pod, a, b) == [SHUT, SHUT]
    assert pod.queries(b) == 0


@pytest.mark.parametrize("rules", [None, "", "{}", "null", " "], ids=str)
def test_P1_no_rules_at_all_deny_everything(pod, tree, rules):
    name = tree()
    side = pod.sidecar(rules=rules)
    assert side.get("/policy").json()["mode"] == "deny_all"
    assert verdicts(pod, name) == [SHUT]
    four, six = pod.probe(["tcp", "93.200.1.1", 443], ["tcp", "2a01:93::1:1", 443])
    expect.tcp_refused(four)
    expect.tcp_refused(six)
    assert pod.queries(name) == 0 and pod.packets() == []


def test_P2_addresses_and_prefixes(pod, guarded):
    guarded("allow 93.201.1.1", "allow 93.202.0.0/16", "deny 93.202.7.0/24", "allow 2a01:93:5::/48",
            "deny 2a01:93:5:1::1")
    probes = [["tcp", a, 7007] for a in ("93.201.1.1", "93.202.1.1", "2a01:93:5:2::1",
                                         "93.201.1.2", "93.202.7.1", "2a01:93:5:1::1", "2a01:93:6::1")]
    answers = pod.probe(*probes)
    assert [a.result for a in answers[:3]] == ["ok"] * 3
    for answer in answers[3:]:
        expect.tcp_refused(answer)
    sent = {p.dst for p in pod.packets()}
    assert sent == {"93.201.1.1", "93.202.1.1", "2a01:93:5:2::1"}


def test_a_denied_address_wins_over_every_allow(pod, guarded, world, tree):
    name = tree()
    site = world.site(name)
    side = guarded(f"allow {name}", f"allow {site.v4}", f"deny {site.v4}")
    answer, four, six = pod.probe(["dns", name], ["tcp", site.v4, 7007], ["dns", name, "AAAA"])
    expect.tcp_refused(four)
    assert pod.packets(dst=site.v4) == []
    side.post(f"deny {site.v4}", default="allow")
    name_again, four = pod.probe(["dns", name], ["tcp", site.v4, 7007])
    expect.tcp_refused(four)


def test_P4_the_first_match_decides(pod, guarded, tree):
    base = tree()
    names = [tree("api"), tree("www"), tree("a.internal"), tree("internal"), base]
    guarded(f"allow *.{base}", f"deny api.{base}", f"allow *.internal.{base}")
    assert verdicts(pod, *names, "unknown.test") == [OPEN] * 4 + [SHUT, SHUT]


def test_P4_a_deny_before_its_wildcard(pod, guarded, tree):
    base = tree()
    guarded(f"deny gist.{base}", f"allow **.{base}")
    assert verdicts(pod, tree("gist"), tree("x"), tree("a.gist"), base) == [SHUT, OPEN, OPEN, OPEN]


def test_P7_wildcards_align_on_dots_and_leave_the_apex_out(pod, guarded, world, tree):
    base = tree()
    world.site(f"not{base}")
    guarded(f"allow *.{base}")
    assert verdicts(pod, tree("svc"), tree("a.b"), base, f"not{base}") == [OPEN, OPEN, SHUT, SHUT]
    answer = pod.probe(["dns", f"SVC.{base}"])
    assert answer.result == OPEN and answer.question == f"SVC.{base}"


def test_P7_an_exact_name_has_no_subdomains_and_no_case(pod, guarded, tree):
    base = tree()
    guarded(f"allow {base.upper()}")
    assert verdicts(pod, base, tree("sub")) == [OPEN, SHUT]


def test_P8_another_policy_counts_at_once(pod, guarded, tree):
    name, other = tree(), tree("other")
    side = guarded()
    for rules, wanted in (((f"allow {name}",), [OPEN, SHUT]), ((f"allow {other}",), [SHUT, OPEN]), ((), [SHUT, SHUT])):
        side.post(*rules)
        assert verdicts(pod, name, other) == wanted
    assert [r["target"] for r in side.get("/policy").json()["policy"]["egress"]] == []


def test_names_are_not_pinned_here_and_that_is_said(pod, guarded, tree):
    name = tree()
    side = guarded(f"allow {name}")
    answer = side.call("POST", "/policy", policy("allow other.test", dns="pinned"))
    assert answer.status == 400 and "'pinned' is not for sidecars" in answer.text
    assert verdicts(pod, name) == [OPEN], "what was in force is"


def test_default_allow_denies_what_it_lists(pod, guarded, world, tree):
    name, denied = tree(), tree("denied")
    site, hidden = world.site(name), world.site(denied)
    guarded(f"deny {denied}", "deny 93.210.0.0/16", default="allow")
    assert verdicts(pod, name, denied) == [OPEN, SHUT]
    good, bad, any_address = pod.probe(["tcp", site.v4, 7007], ["tcp", "93.210.5.5", 7007], ["tcp", "93.211.5.5", 7007])
    assert good.result == any_address.result == "ok"
    expect.tcp_refused(bad)
    assert pod.queries(denied) == 0 and hidden.v4 not in {p.dst for p in pod.packets()}


def test_an_address_that_nobody_resolved_stays_shut(pod, guarded, world, tree):
    name = tree()
    site = world.site(name)
    guarded(f"allow {name}")
    expect.tcp_refused(pod.probe(["tcp", site.v4, 7007]))
    assert pod.packets() == []
    lookup, four, six = pod.probe(["dns", name], ["tcp", site.v4, 7007], ["tcp", site.v6, 7007])
    assert lookup.addresses == [site.v4] and four.result == "ok"
    expect.tcp_refused(six)  # only the A record was asked for


def test_what_an_app_does_works(pod, guarded, tree, world):
    """getaddrinfo() and connect(), both families, TLS with the world's certificate."""
    name = tree()
    guarded(f"allow {name}")
    done = pod.run("curl", "-sS", "--max-time", "30", f"https://{name}/x")
    assert done.code == 0 and json.loads(done.text)["host"] == name, done
    done = pod.run("curl", "-sS", "--max-time", "30", f"https://{tree('no')}/x")
    assert done.code == 6, done


def test_X1_the_dns_smoke_test(pod, world, tmp_path):
    """smoke-dns: mode dns, the policy from a file, which wins over the environment's."""
    for name in ("google.com", "api.github.com"):
        world.site(name)
    file = world.workdir() / "policy.json"
    file.write_text('{"defaultAction":"deny","egress":[{"action":"allow","target":"*.github.com"}]}')
    pod.sidecar(mode="dns", rules=policy("allow google.com"), env={"OPENSANDBOX_EGRESS_POLICY_FILE": str(file)})
    bad, good = (pod.run("curl", "-sS", "--max-time", "30", f"https://{n}") for n in ("google.com", "api.github.com"))
    assert bad.code == 6 and good.code == 0, (bad, good)


def test_X2_the_nft_smoke_test(pod, world, guarded):
    """smoke-nft.sh in its order."""
    def curl(url):
        return pod.run("curl", "-sSk", "-o", "/dev/null", "--max-time", "30", url).code == 0

    for name in ("google.com", "api.github.com", "www.cloudflare.com", "www.mozilla.org", "a.example.org", "b.example.org"):
        world.site(name)
    side = guarded("deny *.github.com", "deny 10.0.0.0/8", default="allow")
    assert curl("https://google.com") and not curl("https://api.github.com")
    assert curl("https://1.1.1.1") and not curl("http://10.0.0.1")
    expect.tcp_refused(pod.probe(["tcp", "1.1.1.1", 853]))
    side.post("deny *.cloudflare.com", default="allow")
    assert not curl("https://www.cloudflare.com")
    side.patch("allow www.cloudflare.com")
    assert curl("https://www.cloudflare.com")
    side.post("allow *.mozilla.org")
    assert curl("https://www.mozilla.org")
    side.patch("deny www.mozilla.org")
    assert not curl("https://www.mozilla.org")
    side.post("deny a.example.org", "deny b.example.org", default="allow")
    assert not curl("https://a.example.org")
    assert side.delete("a.example.org").status == 200
    assert curl("https://a.example.org") and not curl("https://b.example.org")
    again = side.delete("a.example.org")
    assert again.status == 200 and "no matching targets found" in again.text
    assert side.call("DELETE", "/policy", "").status == 400


def test_X3_the_dynamic_address_smoke_test(pod, world, guarded):
    for name in ("google.com", "api.github.com"):
        world.site(name)
    guarded("allow google.com")
    codes = [pod.run("curl", "-sSk", "-o", "/dev/null", "--max-time", "30", url).code
             for url in ("https://google.com", "https://api.github.com", "http://1.1.1.1")]
    assert codes[0] == 0 and codes[1] == 6 and codes[2] == 7
    assert "1.1.1.1" not in {p.dst for p in pod.packets()}


def test_mode_dns_filters_names_alone_and_says_so(pod, world, tree):
    """Addresses are open, resolvers aren't; a rule for an address is a warning and in /status."""
    name = tree()
    side = pod.sidecar(mode="dns", rules=policy(f"allow {name}", "deny 93.220.0.0/16"))
    lookup, shut, address = pod.probe(["dns", name], ["dns", tree("no")], ["tcp", "93.220.1.1", 7007])
    assert lookup.result == OPEN and shut.result == SHUT and address.result == "ok"
    status = side.get("/status").json()
    assert status["mode"] == "dns-only" and not status["fullIsolation"]
    assert "93.220.0.0/16" in json.dumps(status["degradations"])
    assert side.wait_log("93.220.0.0/16", level="warn")


def test_mode_dns_nft_tls_judges_the_name_of_a_connection(pod, world, tree):
    name = tree()
    site = world.site(name)
    side = pod.sidecar(mode="dns+nft+tls", rules=policy(f"allow {name}"))
    _, good, bad, raw = pod.probe(["dns", name], ["https", site.v4, 443, name], ["https", site.v4, 443, "evil.test"],
                                  ["tcp", site.v4, 443, "no hello\r\n\r\n"])
    assert good.result == "ok" and side.get("/status").json()["mode"] == "dns+nftables+tls"
    expect.tcp_gave_nothing(bad)
    expect.tcp_gave_nothing(raw)
    assert world.web.reached("evil.test", site.v4) == []
