# SPDX-License-Identifier: Apache-2.0
"""A: names that look like an allowed one and aren't, and spellings of those that are."""
import pytest

from world import expect, probe_wire

DENIED = [
    ("A1", "look-alike suffix", "evilpkg.test"),
    ("A2", "the allowed name as labels of another", "x.pkg.test.evil.test"),
    ("A2", "the exact name as labels of another", "api.ok.test.evil.test"),
    ("A3", "apex under a wildcard", "pkg.test"),
    ("A3", "a name below an exact one", "v1.api.ok.test"),
    ("A3", "the parent of an exact one", "ok.test"),
    ("A8", "a zero byte in a label", ["evil", "x\0", "pkg", "test"]),
    ("A8", "a zero byte that would cut the name", ["api", "ok", "test\0", "evil", "test"]),
    ("A9", "line ends in a label", ["evil", "test\r\n", "pkg", "test"]),
    ("A9", "a space in a label", ["a b", "pkg", "test"]),
    ("A9", "a tab in a label", ["a\tb", "pkg", "test"]),
    ("A12", "a dot inside a label", ["api.ok", "test"]),
    ("A12", "a dot inside a label under a wildcard", ["x.pkg", "test"]),
    ("A12", "a whole name in one label", ["api.ok.test"]),
    ("A12", "a slash in a label", ["a/b", "pkg", "test"]),
    ("A12", "bytes over 127", ["\xc3\xbc", "pkg", "test"]),
    ("A18", "another host's localhost", "localhost.evil.test"),
    ("A24", "a search domain behind an allowed name", "api.ok.test.evil.test"),
    ("A24", "a short name and a search domain", "api.evil.test"),
]
# Names that are invalid by themselves may be called so instead of unknown.
INVALID = {"A8", "A9", "A12"}


@pytest.mark.parametrize("transport", ["udp", "tcp"])
def test_a_name_that_no_rule_allows_gets_nxdomain_and_leaves_nothing(attack, transport):
    answers = attack.probe(*[["dns", name, "A", {"transport": transport}] for *_, name in DENIED])
    for (case, what, _), answer in zip(DENIED, answers):
        if case in INVALID and answer.result in ("FORMERR", "NXDOMAIN"):
            assert answer.addresses == [], (case, what)
        else:
            expect.name_refused(answer)
    attack.assert_silent()


ALLOWED = [
    ("A3", "the apex under a double star", "pkg.test", ("**.pkg.test",)),
    ("A3", "a name below a double star", "x.pkg.test", ("**.pkg.test",)),
    ("A4", "any depth below a wildcard", "a.b.c.pkg.test", ("*.pkg.test",)),
    ("A4", "63 bytes in a label", "x" * 63 + ".pkg.test", ("*.pkg.test",)),
    ("A5", "capitals", "API.OK.TEST", ("api.ok.test",)),
    ("A5", "mixed case", "aPi.oK.tEsT", ("api.ok.test",)),
    ("A5", "capitals under a wildcard", "X.PKG.TEST", ("*.pkg.test",)),
    ("A5", "capitals in the rule", "api.ok.test", ("API.Ok.Test",)),
    ("A6", "a rule with a dot at its end", "api.ok.test", ("api.ok.test.",)),
    ("A15", "underscores", "_acme.pkg.test", ("*.pkg.test",)),
    ("A15", "underscores in the rule", "_acme.pkg.test", ("_acme.pkg.test",)),
    ("A25", "the first rule that matches", "internal.pkg.test", ("*.pkg.test",)),
]


@pytest.mark.parametrize("case, what, name, allow", ALLOWED, ids=[f"{c}-{w}" for c, w, _, _ in ALLOWED])
def test_a_name_that_a_rule_allows_is_answered_in_its_own_case(attack, case, what, name, allow):
    answer = attack.probe(["dns", name, "A"], allow=allow)
    assert answer.result == "NOERROR" and answer.addresses, dict(answer)
    assert answer.question == name
    assert set(attack.names) == {name.lower()}


def test_A6_a_name_with_a_dot_at_its_end_works_in_programs(attack):
    denied, allowed = attack.probe(["connect", "evil.test.", 443], ["lookup", "api.ok.test."])
    expect.lookup_refused(denied)
    assert allowed.result == "ok"
    assert set(attack.names) == {"api.ok.test"}


LONG = [
    ("A11", "a name of 256 octets", ["x" * 62] * 4 + ["ab"]),
    ("A11", "a name of 300 octets", ["x" * 50] * 6),
    ("A11", "a label of 64 octets, which is no label", "y" * 64 + ".pkg.test"),
]


def test_a_name_over_the_limits_is_malformed_and_the_next_one_is_served(attack):
    answers = attack.probe(*[probe for *_, name in LONG for probe in (["dns_raw", probe_wire.query_hex(name)], ["dns", "api.ok.test"])])
    for (case, what, _), answer, next_one in zip(LONG, answers[::2], answers[1::2]):
        assert answer.result in ("FORMERR", "timeout") and next_one.result == "NOERROR", (case, what, dict(answer))
    assert set(attack.names) == {"api.ok.test"}


def test_A14_an_international_name_matches_its_ascii_form(attack, world):
    world.site("xn--bcher-kva.test")
    world.site("xn--bchr-8sb2b.test")
    same, other = attack.probe(["dns", "xn--bcher-kva.test"], ["dns", "xn--bchr-8sb2b.test"],
                               allow=("bücher.test",))
    assert same.result == "NOERROR" and same.addresses
    expect.name_refused(other)
    assert set(attack.names) == {"xn--bcher-kva.test"}


def test_A16_an_address_never_matches_a_wildcard_of_digits(attack):
    done = attack.run("true", allow=("*.0.0.1",))
    if done.code == 2:  # refused as a rule: nothing is left to match
        return
    for answer in attack.probe(*[["dns", name] for name in ("10.0.0.1", "93.0.0.1", "0.0.1")], allow=("*.0.0.1",)):
        expect.name_refused(answer)
    attack.assert_silent()


def test_A17_spellings_of_addresses_are_no_names(attack):
    names = ["127.1", "0x7f.0.0.1", "2130706433", "017700000001", "0x5d646464"]
    answers = attack.probe(*[probe for name in names for probe in (["dns", name], ["connect", name, 443])])
    for name, asked, looked_up in zip(names, answers[::2], answers[1::2]):
        expect.name_refused(asked)
        assert looked_up.result in ("EAI_NONAME", "refused"), (name, dict(looked_up))
    attack.assert_silent()


def test_A18_localhost_is_the_sandbox_never_the_host(attack, world):
    names = ["localhost", "localhost.", "LOCALHOST", "foo.localhost", "localhost.localdomain", "ip6-localhost"]
    with world.tcp(4180, where=world.host) as service:
        for name, answer in zip(names, attack.probe(*[["connect", name, 4180, "secret"] for name in names])):
            assert answer.result in ("refused", "EAI_NONAME", "EAI_AGAIN"), (name, dict(answer))
        assert service.connections == []
    attack.assert_silent()


BAD_RULES = [
    ("A7", "api.ok.test.."), ("A7", "api..ok.test"), ("A7", ".api.ok.test"), ("A7", "."), ("A7", ""),
    ("A8", "evil.test\\0.pkg.test"), ("A9", "evil.test\n.pkg.test"), ("A9", "api.ok.test "),
    ("A9", "api.ok .test"), ("A9", "api.ok\t.test"), ("A9", "api.ok.test\r\n"),
    ("A11", "x" * 64 + ".test"), ("A11", ".".join(["x" * 60] * 5)),
    ("A17", "127.1"), ("A17", "0x7f.0.0.1"), ("A17", "2130706433"), ("A17", "017700000001"),
    ("A20", "[api.ok.test]"), ("A20", "[[::1]]"), ("A20", "[::1"), ("A20", "::1]"), ("A20", "fe80::1%eth0"),
    ("A22", "*"), ("A22", "**"), ("A22", "*.com"), ("A22", "*.co.uk"), ("A22", "**.com"), ("A22", "*."),
    ("A22", "*.*"), ("A22", "a*.pkg.test"), ("A22", "*a.pkg.test"), ("A22", "x.*.test"),
    ("H2", "10.0.0.0/33"), ("H2", "10.0.0.256"), ("H2", "::/129"), ("H2", "10.0.0.0/8x"),
    ("H2", "api.ok.test:0"), ("H2", "api.ok.test:65536"), ("H2", "api.ok.test:44a"),
    ("H2", "api.ok.test:"), ("H2", "api.ok.test:443-80"), ("H2", "https://api.ok.test/"),
]


@pytest.mark.parametrize("case, rule", BAD_RULES, ids=[f"{c}-{r[:24]!r}" for c, r in BAD_RULES])
def test_a_rule_that_could_be_misread_is_refused_before_anything_starts(attack, case, rule):
    done = attack.run("touch", "started", allow=(rule,))
    assert done.code == 2, done
    assert "--allow" in done.messages, done
    attack.assert_silent()


def test_A25_the_first_match_decides_and_the_check_warns_with_both_lines(world):
    policy = world.workdir() / "policy.yaml"
    policy.write_text("egress:\n"
                      "  - {action: allow, target: '*.pkg.test'}\n"
                      "  - {action: deny, target: internal.pkg.test}\n")
    done = world.weir("policy", "check", policy)
    assert done.code == 0, done
    said = done.text + done.messages
    assert ":3:" in said and ("line 2" in said or ":2" in said), done
