# SPDX-License-Identifier: Apache-2.0
"""`weir policy diff` and `explain`, `weir profile`: what they say and how they end."""
import re

import pytest


def write(folder, name, *rules, **settings):
    lines = [f"{key}: {value}" for key, value in settings.items()]
    lines += ["egress:" if rules else "egress: []", *(f"  - {{{rule}}}" for rule in rules)]
    (folder / name).write_text("\n".join(lines) + "\n")


def allow(target, ports=None):
    return f'action: allow, target: "{target}"' + (f", ports: [{ports}]" if ports else "")


def deny(target):
    return f'action: deny, target: "{target}"'


def ask(target, ports):
    return f'action: ask, target: "{target}", ports: [{ports}]'


DIFFERENCES = [
    ("nothing", [allow("a.test")], [allow("a.test")], []),
    ("another order that decides the same", [allow("a.test"), allow("b.test")], [allow("b.test"), allow("a.test")], []),
    ("a rule that is never reached", [allow("*.a.test")], [allow("*.a.test"), deny("x.a.test")], []),
    ("a name more", [], [allow("a.test", 443)], [("a.test", "gains", None, "443")]),
    ("a name less", [allow("a.test", 443)], [], [("a.test", "loses", "443", None)]),
    ("another port", [allow("a.test", 443)], [allow("a.test", "443, 22")], [("a.test", "changes", "443", "22,443")]),
    ("a deny before a wildcard", [allow("*.a.test", 443)], [deny("x.a.test"), allow("*.a.test", 443)],
     [("x.a.test", "loses", "443", None)]),
    ("a name and all below it", [], [allow("**.a.test", 443)],
     [("*.a.test", "gains", None, "443"), ("a.test", "gains", None, "443")]),
    ("a wildcard for a list of names", [allow("x.a.test", 443)], [allow("*.a.test", 443)],
     [("*.a.test", "gains", None, "443")]),
    ("an address in a range", [allow("9.9.9.0/24", 443)], [allow("9.9.9.0/24", 443), deny("9.9.9.9")],
     [("9.9.9.9/32", "loses", "443", None)]),
    ("a range for its two halves", [allow("9.0.0.0/9", 443), allow("9.128.0.0/9", 443)], [allow("9.0.0.0/8", 443)], []),
    ("most of a range", [allow("9.0.0.0/9", 443)], [allow("9.0.0.0/8", 443)], [("9.0.0.0/8", "gains", None, "443")]),
    ("a budget less", [allow("a.test", 443) + ", budget: {sent: 1M, per: 1h}"], [allow("a.test", 443)],
     [("a.test", "changes", "443, budget 1M sent, any received in 1h", "443")]),
    ("a larger budget of an address", [allow("9.9.9.9", "tcp/443") + ", budget: {received: 1M}"],
     [allow("9.9.9.9", "tcp/443") + ", budget: {received: 2M, action: event}"],
     [("9.9.9.9", "changes", "tcp/443, budget any sent, 1M received in all",
       "tcp/443, budget any sent, 2M received in all, reported alone")]),
    ("names without a meter", [allow("*.a.test", 443)], [allow("*.a.test", 443) + ", unmetered: true"],
     [("*.a.test", "changes", "443", "443, unmetered")]),
    ("a name that is asked for", [], [ask("a.test", 443)], [("a.test", "gains", None, "ask 443")]),
    ("a name that asked", [ask("a.test", 443)], [allow("a.test", 443)], [("a.test", "changes", "ask 443", "443")]),
    ("a name that asks by now", [allow("a.test", 443)], [ask("a.test", 443)], [("a.test", "changes", "443", "ask 443")]),
    ("an address that asks", [allow("9.9.9.0/24", 443)], [allow("9.9.9.0/24", 443), ask("9.9.9.0/24", 22)],
     [("9.9.9.0/24", "changes", "443", "443; ask 22")]),
    ("ports of two rules for one's", [allow("9.9.9.9", "tcp/443"), allow("9.9.9.0/24", "tcp/22, tcp/443")],
     [allow("9.9.9.0/24", "tcp/22, tcp/443")], []),
    ("an address of the cloud's in a range", [], [allow("169.254.169.254/31", 80)], [("169.254.169.254/31", "gains", None, "80")]),
    ("a name that is needed", [allow("a.test", 443)], [allow("a.test", 443) + ", required: true"],
     [("a.test", "changes", "443", "443, required")]),
    ("IPv6", [allow("2600::/16", 443)], [allow("2600::/17", 443), allow("2600:8000::/17", 443)], []),
]


@pytest.mark.parametrize("what, before, after, changes", DIFFERENCES, ids=[d[0] for d in DIFFERENCES])
def test_diff_tells_what_is_decided_differently(world, what, before, after, changes):
    cwd = world.workdir()
    write(cwd, "a.yaml", *before)
    write(cwd, "b.yaml", *after)
    done = world.weir("policy", "diff", "--json", "a.yaml", "b.yaml", cwd=cwd)
    found = done.json()
    got = [(t["target"], t["change"], t["before"], t["after"]) for t in found["targets"]]
    plain = [(t.replace("9.9.9.9/32", "9.9.9.9"), *rest) for t, *rest in changes]
    assert got in (changes, plain), done
    assert done.code == (1 if changes else 0) and found["equal"] == (not changes), done


def test_diff_in_words_has_a_sign_for_each_change(world):
    cwd = world.workdir()
    write(cwd, "a.yaml", allow("gone.test"), allow("ports.test", 443))
    write(cwd, "b.yaml", allow("new.test"), allow("ports.test", 80), verify="dns")
    done = world.weir("policy", "diff", "a.yaml", "b.yaml", cwd=cwd)
    signs = {line.split(":")[0] for line in done.text.splitlines()}
    assert done.code == 1 and signs == {"- gone.test", "+ new.test", "~ ports.test", "  verify"}, done


def test_diff_tells_of_limits(world):
    """A policy that lets more be sent isn't the same, though each target is decided alike."""
    cwd = world.workdir()
    write(cwd, "a.yaml", allow("a.test"), limits="{sent_total: 1M, new_names_per_minute: 20, flows: 4096}")
    write(cwd, "b.yaml", allow("a.test"), limits="{new_names_per_minute: unlimited}")
    done = world.weir("policy", "diff", "--json", "a.yaml", "b.yaml", cwd=cwd)
    found = [(s["name"], s["before"], s["after"]) for s in done.json()["settings"]]
    assert done.code == 1 and found == [("limits.new_names_per_minute", "20", "unlimited"),
                                        ("limits.sent_total", "1M", "unlimited")], done


def test_diff_shows_the_default_beside_the_ports(world):
    """Under defaultAction: allow a rule for some ports closes no other."""
    cwd = world.workdir()
    write(cwd, "a.yaml", defaultAction="allow")
    write(cwd, "b.yaml", allow("9.9.8.0/24", "tcp/443"), allow("a.test", 443), defaultAction="allow")
    done = world.weir("policy", "diff", "a.yaml", "b.yaml", cwd=cwd)
    assert done.code == 1 and done.text.splitlines() == [
        "~ a.test: allowed on 443, was allowed on all but 53 and 853 (and udp/443)",
        "~ 9.9.8.0/24: allowed on the default; tcp/443, was allowed on the default"], done


def test_diff_tells_of_a_port_behind_many_others(world):
    """Rules for one address open more ports together than one of them could list."""
    cwd = world.workdir()
    lists = [range(start, start + 128, 2) for start in (10001, 20001, 30001)]
    rules = [allow("9.9.9.9", ", ".join(f"tcp/{port}" for port in ports)) for ports in lists]
    write(cwd, "a.yaml", *rules)
    write(cwd, "b.yaml", *rules[:2], rules[2].replace("tcp/30127", "tcp/40127"))
    done = world.weir("policy", "diff", "--json", "a.yaml", "b.yaml", cwd=cwd)
    changed = done.json()["targets"]
    assert done.code == 1 and len(changed) == 1, done
    assert changed[0]["before"].endswith(",tcp/30127") and changed[0]["after"].endswith(",tcp/40127"), done


def test_diff_tells_of_what_pinned_names_need(world):
    cwd = world.workdir()
    write(cwd, "a.yaml", allow("a.test"), dns="pinned")
    write(cwd, "b.yaml", allow("a.test"), dns="pinned", repin="10m")
    done = world.weir("policy", "diff", "a.yaml", "b.yaml", cwd=cwd)
    assert done.code == 1 and done.text == "  repin: 10m, was never\n", done


def test_diff_takes_profiles_and_says_when_there_is_no_difference(world):
    done = world.weir("policy", "diff", "default", "default")
    assert done.code == 0 and "the same" in done.text, done
    assert world.weir("policy", "diff", "default", "notebook").code == 1


@pytest.mark.parametrize("words", [(), ("default",), ("a", "b", "c"), ("default", "no-such"), ("default", "./no.yaml")])
def test_diff_needs_two_policies(world, words):
    assert world.weir("policy", "diff", *words).code == 2


def test_check_lists_every_fault_as_json(world):
    cwd = world.workdir()
    write(cwd, "bad.yaml", allow("a..test"), allow("*"), allow("ok.test"))
    done = world.weir("policy", "check", "--json", "bad.yaml", cwd=cwd)
    found = done.json()
    assert done.code == 2 and done.err == b"" and found["valid"] is False and found["more"] == 0, done
    assert [(f["level"], f["line"], f["path"]) for f in found["faults"]] == [
        ("error", 2, "egress[0].target"), ("error", 3, "egress[1].target")], done


def test_check_counts_a_valid_policy_and_keeps_its_hints(world):
    cwd = world.workdir()
    write(cwd, "good.yaml", allow("*.a.test"), allow("10.0.0.0/8"))
    done = world.weir("policy", "check", "--json", "good.yaml", cwd=cwd)
    found = done.json()
    assert done.code == 0 and (found["valid"], found["names"], found["addresses"]) == (True, 1, 1), done
    assert {f["level"] for f in found["faults"]} <= {"warning", "hint"}


@pytest.mark.parametrize("words, said", [
    (("check",), "name the file that is to be checked"), (("check", "a", "b"), "one file, not 2"),
    (("check", "none.yaml"), "policy: cannot open none.yaml"), ((), "policy needs one of check,"),
    (("chekc",), "policy: 'chekc' is not one of check,"), (("check", "--bad", "--id"), "'--bad' is not an option here\nweir: --id needs a value")])
def test_what_is_asked_wrongly_is_named(world, words, said):
    """An empty "$FILE" in a script is no valid policy either."""
    done = world.weir("policy", *words, cwd=world.workdir())
    assert done.code == 2 and said in done.messages and not done.text, done


QUESTIONS = [("https://api.test/x?y#z", "allow"), ("http://api.test/", "deny"), ("https://user:pw@api.test", "allow"),
             ("https://api.test:8443/", "deny"), ("ssh://git@api.test/x", "deny"), ("HTTPS://api.test", "allow"),
             ("https://api.test@evil.test/", "deny"), ("https://9.9.9.9/", "allow"), ("https://[2600::1]/", "allow"),
             ("https://[2600::1]:80/", "deny"), ("api.test:443", "allow"), ("api.test", "allow")]


@pytest.mark.parametrize("question, action", QUESTIONS, ids=[q[0] for q in QUESTIONS])
def test_explain_judges_host_and_port_of_a_url(world, question, action):
    rules = ("--allow", "api.test:443", "--allow", "9.9.9.9:443", "--allow", "[2600::1]:443")
    done = world.weir("policy", "explain", "--json", *rules, question)
    assert done.code == 0 and done.json()[0]["action"] == action, done


@pytest.mark.parametrize("question", ["gopher://a.test/", "https://", "https:///x", "https://a..test/",
                                      "https://a.test:0/", "https://a.test:x/", "://a.test"])
def test_explain_refuses_what_is_no_url(world, question):
    assert world.weir("policy", "explain", question).code == 2


@pytest.mark.parametrize("addr, said", [
    ("8.8.8.8", "while an allowed name resolves"),
    ("10.0.0.5", "while a name whose rule says private: true resolves"),
    ("169.254.169.254", "none opens it"),
])
def test_explain_says_which_names_can_open_an_address(world, addr, said):
    [line] = re.findall("names: .*", world.weir("policy", "explain", "--allow", "a.test", addr).text)
    assert said in line


@pytest.mark.parametrize("rule, question, note", [
    ("git.test", "ssh://git@git.test/x", "TLS and HTTP alone"),
    ("git.test", "git.test:443", ""),
    ("git.test", "git.test", ""),
    ("git.test:22", "git.test:22", ""),
    ("127.0.0.1:5432", "127.0.0.1:5432", "own loopback"),
    ("93.1.1.1:5432", "93.1.1.1:5432", ""),
    ("git.test:443", "git.test:22", ""),
])
def test_explain_says_what_allow_leaves_out(world, rule, question, note):
    done = world.weir("policy", "explain", "--allow", rule, question)
    assert ("note: " in done.text) == bool(note) and note in done.text, done
    (answer,) = world.weir("policy", "explain", "--json", "--allow", rule, question).json()
    assert note in (answer["note"] or "") and bool(answer["note"]) == bool(note)


@pytest.mark.parametrize("rule, question, action, limited, advice", [
    ("git.test", "git.test:22", "allow", True, "git.test:default,tcp/22"),
    ("git.test", "ssh://git@git.test/x", "deny", False, "git.test:default,tcp/22"),
    ("git.test", "https://git.test/x", "allow", False, None),
    ("git.test:443", "git.test:80", "deny", False, "git.test:tcp/80,443"),
    ("git.test:8080", "git.test:8080", "allow", True, None),
    ("git.test:8080", "ssh://git.test:8080", "deny", False, None),
    ("git.test:443", "ssh://git.test:443", "deny", False, None),
    ("git.test:443", "https://git.test", "allow", False, None),
    ("git.test", "other.test", "deny", False, "other.test"),
    ("git.test", "10.0.0.5:5432", "deny", False, "10.0.0.5:tcp/5432"),
    ("git.test", "169.254.169.254:80", "deny", False, None),
])
def test_explain_answers_for_what_will_happen_and_says_what_would_change_it(world, rule, question, action, limited, advice):
    done = world.weir("policy", "explain", "--allow", rule, question)
    first = done.text.splitlines()[0]
    assert f": {action}" in first and ("TLS and HTTP only" in first) == limited, done
    assert re.findall("to open it: --allow (.*)", done.text) == ([advice] if advice else []), done
    (answer,) = world.weir("policy", "explain", "--json", "--allow", rule, question).json()
    assert (answer["action"], answer["allow"]) == (action, advice)
    if advice:  # and it does
        again = world.weir("policy", "explain", "--json", "--allow", rule, "--allow", advice, question).json()
        assert (again[0]["action"], again[0]["allow"]) == ("allow", None)


def test_an_allowed_loopback_address_is_told_whose_it_is(world):
    for address in ("127.0.0.1:5432", "[::1]:5432", "127.0.0.0/8"):
        done = world.weir("policy", "check", "--allow", address)
        assert done.code == 0 and "is a sandbox's own loopback" in done.messages, done
    assert "loopback" not in world.weir("policy", "check", "--allow", "10.0.0.1:5432").messages


def test_explain_says_what_a_connection_then_meets(world, site):
    """A server that speaks first, on a port that the rule doesn't list, and on one that it does."""
    code = f"import socket; s = socket.create_connection(('{site.name}', 7007), 10); s.sendall(b'hello'); print(s.recv(9))"
    for rule, code_wanted in ((site.name, 1), (f"{site.name}:7007", 0)):
        done = world.run("/usr/bin/python3", "-c", code, allow=(rule,))
        assert done.code == code_wanted, done


def test_explain_says_what_becomes_of_a_denied_loopback(world):
    """No rule counts for a sandbox's own: explain says so, and it is so."""
    code = ("import socket; server = socket.create_server(('127.0.0.1', 0)); port = server.getsockname()[1]\n"
            "for name in ('localhost', 'x.localhost', '127.0.0.1'): socket.create_connection((name, port), 10)")
    done = world.run("/usr/bin/python3", "-c", code, options=("--deny", "localhost", "--deny", "x.localhost", "--deny", "127.0.0.0/8"))
    assert done.code == 0, done
    told = world.weir("policy", "explain", "--deny", "localhost", "--deny", "127.0.0.0/8", "localhost:80", "x.localhost", "127.0.0.1:80").text
    assert told.count("own loopback, which is always open") == 3, told


def test_explain_reads_a_file_of_questions(world):
    cwd = world.workdir()
    (cwd / "asked").write_text("# what the build needs\nhttps://a.test/x  # page\n\n  b.test:22\n")
    done = world.weir("policy", "explain", "--json", "--allow", "a.test", "--file", "asked", cwd=cwd)
    assert [(a["query"], a["action"]) for a in done.json()] == [("https://a.test/x", "allow"), ("b.test:22", "deny")]
    assert world.weir("policy", "explain", "--file", "asked", "c.test", cwd=cwd).code == 2
    assert world.weir("policy", "explain", "--file", "no-such", cwd=cwd).code == 2


def test_profiles_are_listed_with_what_they_are_for(world):
    listed = {p["name"]: p for p in world.weir("profile", "list", "--json").json()}
    assert {"none", "default", "notebook"} <= set(listed)
    text = world.weir("profile", "list").text
    for profile in listed.values():
        assert profile["title"] and profile["name"] in text


def test_the_users_profile_hides_the_built_in_one(world):
    home = world.workdir("weir-test")
    folder = home / ".config" / "weir" / "profiles"
    folder.mkdir(parents=True)
    (folder / "default.yaml").write_text("# default: mine\negress: []\n")
    (folder / "others.yaml").write_text("egress: []\n")
    (folder / "others.yaml").chmod(0o666)
    mine = {"env": {"HOME": str(home)}, "user": "weir-test"}
    done = world.weir("profile", "list", "--json", **mine)
    listed = {p["name"]: p for p in done.json()}
    assert listed["default"]["title"] == "mine" and listed["default"]["path"] == str(folder / "default.yaml")
    assert "others" not in listed and "others than its owner may write to it" in done.messages, done
    assert world.weir("profile", "show", "default", **mine).text == "# default: mine\negress: []\n"
    shown = world.weir("profile", "show", "--json", "default", **mine).json()
    assert shown["text"].startswith("# default: mine"), shown
    done = world.weir("profile", "show", "others", **mine)
    assert done.code == 2 and "others than its owner may write to it" in done.messages, done


@pytest.mark.parametrize("words", [(), ("shew",), ("show",), ("show", "no-such"), ("show", "../x"), ("show", "a", "b"),
                                   ("list", "x"), ("list", "--jsn")])
def test_bad_usage_of_profile_is_status_2(world, words):
    assert world.weir("profile", *words).code == 2
