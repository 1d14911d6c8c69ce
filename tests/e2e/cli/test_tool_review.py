# SPDX-License-Identifier: Apache-2.0
"""`weir review`: what was denied waits, once each, until somebody decides."""
import contextlib
import fcntl
import json
import os
import pathlib
import re
import time

import pytest

from tests.world.sidecar import wait_for
from tests.world.terminal import Terminal


@pytest.fixture
def review(world, store):
    def run(*args, **options):
        store.drain()
        return world.weir("review", *args, env={"WEIR_STATE_DIR": str(store.folder)}, **options)
    return run


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "policy.json"
    path.write_text('{"egress": [{"action": "deny", "target": "b.test"}], "defaultAction": "deny"}')
    return path


def tasks(review, *args):
    return {(t["sandbox"], t["destination"]): t for t in review("list", "--json", *args).json()}


def test_one_task_for_each_sandbox_and_destination(review, store):
    store.put("a.test", packets=3)
    store.drain()
    store.put("a.test", packets=4)
    store.put("a.test", sandbox="sb-2")
    store.put(address="192.0.2.7", port=443)
    store.put("never.test", allowable=False)  # no rule could do anything about it
    store.put("let.test", action="allow")
    found = tasks(review)
    assert set(found) == {("sb-1", "a.test"), ("sb-2", "a.test"), ("sb-1", "192.0.2.7")}
    assert (found["sb-1", "a.test"]["packets"], found["sb-1", "a.test"]["events"]) == (7, 2)
    assert found["sb-1", "a.test"]["rule"] == {"action": "allow", "target": "a.test"}
    assert found["sb-1", "192.0.2.7"]["rule"] == {"action": "allow", "target": "192.0.2.7", "ports": ["tcp/443"]}
    assert set(tasks(review, "--sandbox", "sb-2")) == {("sb-2", "a.test")}
    assert review().code == 0 and review().text == review("list").text and "a.test" in review().text


def test_accepting_shows_what_changes_and_writes_it(review, store, policy):
    store.put("b.test")
    task = tasks(review)["sb-1", "b.test"]
    before = policy.read_text()
    done = review("accept", str(task["id"]), "--policy", str(policy), stdin=None)
    assert done.code == 1 and policy.read_text() == before and tasks(review), "nobody said yes"
    done = review("accept", str(task["id"]), "--policy", str(policy), "--yes", "--who", "alice")
    assert done.code == 0 and done.messages.splitlines() == ['- {"action":"deny","target":"b.test"}',
                                                             '+ {"action":"allow","target":"b.test"}']
    assert json.loads(policy.read_text())["egress"] == [{"action": "allow", "target": "b.test"}]
    assert tasks(review) == {}
    (task,) = review("list", "--state", "accepted", "--json").json()
    assert (task["who"], task["state"]) == ("alice", "accepted") and task["decided"]


def test_accepting_for_a_time_writes_the_end(world, review, store, tmp_path):
    store.put("b.test")
    number = str(tasks(review)["sb-1", "b.test"]["id"])
    for name, text, before in (("p.yaml", "egress:\n# first\n- {action: allow, target: a.test}\n", "until: 2"),
                               ("p.json", '{"egress": [{"action": "allow", "target": "a.test"}]}', '"until": "2')):
        file = tmp_path / name
        file.write_text(text)
        assert review("accept", number, "--policy", str(file), "--yes", "--for", "soon").code == 2
        done = review("accept", number, "--for", "10m", "--policy", str(file), "--yes")
        assert done.code == 0 and before in file.read_text() and "b.test" in file.read_text(), (done, file.read_text())
        assert world.weir("policy", "check", str(file)).code == 0
        assert "until 2" in world.weir("policy", "explain", "--policy", str(file), "b.test").text
    assert review("dismiss", number, "--for", "10m").code == 2


def test_what_a_command_left_beside_the_policy_is_not_taken_for_it(review, store, tmp_path):
    """The policy is read-only in a sandbox, and its directory may be writable: a copy there that says that it was decided is not believed."""
    store.put("b.test")
    number = str(tasks(review)["sb-1", "b.test"]["id"])
    file, planted = tmp_path / "p.yaml", tmp_path / ".p.yaml.weir-commit"
    before = "egress:\n- {action: allow, target: a.test}\n"
    file.write_text(before)
    planted.write_text('egress:\n- {action: allow, target: "*.evil.test"}\n')
    done = review("accept", number, "--policy", str(file), "--yes")
    assert done.code == 0 and "evil" not in file.read_text() and "b.test" in file.read_text(), (done, file.read_text())
    assert all(line in file.read_text() for line in before.splitlines()) and planted.exists()


def test_a_terminal_is_asked(world, store, review, policy):
    store.put("a.test")
    number = str(tasks(review)["sb-1", "a.test"]["id"])
    argv = [world.weir_path, "review", "accept", number, "--policy", policy, "--state-dir", store.folder]
    with Terminal(world, argv) as terminal:
        terminal.expect(r"\+ .*a\.test")
        terminal.expect(r"add it\? \[y/N\]")
        terminal.type("n\n")
        assert terminal.started.process.wait(60) == 1
    assert "a.test" not in policy.read_text() and tasks(review)
    with Terminal(world, argv) as terminal:
        terminal.expect(r"add it\?")
        terminal.type("y\n")
        assert terminal.started.process.wait(60) == 0
    assert "a.test" in policy.read_text() and not tasks(review)


@pytest.mark.parametrize("name, before, after", [
    ("p.json", '{"egress": []}', '{"egress": [{"action": "deny", "target": "c.test"}]}'),
    ("p.yaml", "egress: []\n", "egress:\n- {action: deny, target: c.test}\n")])
def test_what_changed_while_it_was_asked_stays(world, store, review, tmp_path, name, before, after):
    """Somebody denies a name in an editor while the question stands there: the denial is not written over."""
    file = tmp_path / name
    file.write_text(before)
    store.put("a.test")
    number = str(tasks(review)["sb-1", "a.test"]["id"])
    with Terminal(world, [world.weir_path, "review", "accept", number, "--policy", file, "--state-dir", store.folder]) as terminal:
        terminal.expect(r"add it\? \[y/N\]")
        file.write_text(after)
        terminal.type("y\n")
        terminal.expect("has changed meanwhile")
        assert terminal.started.process.wait(60) == 125
    assert file.read_text() == after and ("sb-1", "a.test") in tasks(review)
    assert [f.name for f in tmp_path.iterdir() if f.name.endswith(".weir-new")] == []


def test_of_two_who_accept_at_once_none_loses_its_rule(world, store, review, policy):
    names = [f"at-once{n}.test" for n in range(6)]
    for name in names:
        store.put(name)
    found = tasks(review)
    started = [world.start([world.weir_path, "review", "accept", str(found["sb-1", name]["id"]), "--policy", policy, "--yes",
                            "--state-dir", store.folder]) for name in names]
    done = [one.wait().code for one in started]
    waiting, rules = tasks(review), policy.read_text()
    assert set(done) <= {0, 125} and 0 in done, done
    assert [name in rules for name in names] == [("sb-1", name) not in waiting for name in names] == [code == 0 for code in done]


def is_open_for_writing(path):
    """In another process."""
    for fd in pathlib.Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if (fd.parts[2] != str(os.getpid()) and os.readlink(fd) == str(path)
                    and int(re.search(r"flags:\s*(\d+)", (fd.parents[1] / "fdinfo" / fd.name).read_text())[1], 8) & os.O_RDWR):
                return True
    return False


def test_who_waited_for_a_file_that_was_replaced_waits_for_the_new_one(world, store, review, policy):
    """Else two write at once, and what the other one has prepared is lost."""
    store.put("late.test")
    number = str(tasks(review)["sb-1", "late.test"]["id"])
    prepared = policy.with_name(f".{policy.name}.weir-new")
    with policy.open("r+") as old:
        fcntl.flock(old, fcntl.LOCK_EX)
        begun = world.start([world.weir_path, "review", "accept", number, "--policy", policy, "--yes", "--state-dir", store.folder])
        wait_for(lambda: is_open_for_writing(policy))
        new = policy.with_name("new")
        new.write_text(policy.read_text())
        with new.open("r+") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            new.rename(policy)
            prepared.write_text("another's")
            before = policy.read_text()
            fcntl.flock(old, fcntl.LOCK_UN)
            done = begun.wait()
            assert done.code == 125 and "another process has it locked" in done.messages, done
            assert policy.read_text() == before and prepared.read_text() == "another's"


def test_a_lookalike_is_shown_and_asked_for_twice(world, store, review, policy):
    """A name that could be taken for an allowed one: one yes is not enough."""
    store.put("githud.com", like="github.com")
    store.put("plain.test")
    found = tasks(review)
    assert found["sb-1", "githud.com"]["looks_like"] == "github.com" and found["sb-1", "plain.test"]["looks_like"] is None
    listed = {line.split()[-1]: line for line in review("list").text.splitlines()}
    assert listed["(allowed)"].endswith("githud.com, looks like github.com (allowed)") and "plain.test" in listed
    number = str(found["sb-1", "githud.com"]["id"])
    assert "looks like   github.com (allowed)\n" in review("show", number).text
    argv = [world.weir_path, "review", "accept", number, "--policy", policy, "--state-dir", store.folder]
    for second, code in (("n\n", 1), ("y\n", 0)):
        with Terminal(world, argv) as terminal:
            terminal.expect(r"weir: 'githud.com' looks like 'github.com', which is allowed")
            terminal.expect(r"add it\? \[y/N\]")
            terminal.type("y\n")
            terminal.expect(r"githud.com is not github.com. add it all the same\? \[y/N\]")
            assert "githud" not in policy.read_text()
            terminal.type(second)
            assert terminal.started.process.wait(60) == code
    assert "githud.com" in policy.read_text()
    store.put("githup.com", like="github.com")
    number = str(tasks(review)["sb-1", "githup.com"]["id"])
    done = review("accept", number, "--policy", str(policy), "--yes")
    assert done.code == 0 and "'githup.com' looks like 'github.com'" in done.messages and "githup.com" in policy.read_text()


def test_what_is_dismissed_stays_so_and_what_was_accepted_comes_back(review, store):
    for name in ("no.test", "yes.test"):
        store.put(name)
    found = tasks(review)
    assert review("dismiss", str(found["sb-1", "no.test"]["id"])).code == 0
    said = review("accept", str(found["sb-1", "yes.test"]["id"]))
    assert said.code == 0 and '{"action":"allow","target":"yes.test"}' in said.text
    store.put("no.test")
    store.put("yes.test")  # denied just before, and written after
    assert tasks(review) == {}
    store.drain()
    time.sleep(5.1)
    store.put("no.test")
    store.put("yes.test")
    assert set(tasks(review)) == {("sb-1", "yes.test")}
    assert {t["destination"]: t["packets"] for t in review("list", "--state", "all", "--json").json()} == {
        "no.test": 3, "yes.test": 3}


def test_a_sandbox_that_asks_for_everything_has_so_many_tasks_and_hides_nobodys(review, store):
    for i in range(1200):
        store.put(f"n{i}.test", sandbox="loud")
        if i % 200 == 199:
            store.drain()
    store.put("a.test", sandbox="quiet")
    loud = tasks(review, "--sandbox", "loud")
    assert 500 <= len(loud) <= 800 and ("loud", None) in loud
    assert loud["loud", None]["rule"] is None and sum(t["packets"] for t in loud.values()) == 1200
    assert ("quiet", "a.test") in tasks(review, "--sandbox", "quiet")
    assert review("accept", str(loud["loud", None]["id"])).code == 2


def test_what_matters_has_its_task_however_many_there_are(review, store):
    """Before, amid and after a flood: of names below one domain, of domains, of addresses."""
    store.put("early.evil.example")
    store.drain()
    floods = (lambda i: {"name": f"n{i}.flood.test"}, lambda i: {"name": f"n{i}.example"},
              lambda i: {"address": f"93.9.{i % 7}.{i // 7}", "port": 443})
    for n, denied in enumerate(floods):
        for i in range(700):
            store.put(**denied(i))
            if i == 600:
                store.put(f"api.evil{n}.other")
        store.drain()
        store.put(f"after{n}.test")
        store.drain()
    found = {name for _, name in tasks(review)}
    wanted = {"early.evil.example", *(f"api.evil{n}.other" for n in range(3)), *(f"after{n}.test" for n in range(3))}
    assert wanted <= found, wanted - found
    assert len(found) <= 501 and sum(t["packets"] for t in tasks(review).values()) == 2100 + 7


def test_a_flood_that_has_gone_takes_nothing_with_it(review, store):
    """What came alone in the minute of a flood stays, when the flood goes, before what came in many minutes."""
    minute = 60000
    for i in range(250):
        store.put(f"n{i}.flood.test", ago=90 * minute)
    store.put("api.evil.other", ago=90 * minute)
    store.drain()
    for i in range(249):
        store.put(f"one.top{i}", ago=(30 + i // 10) * minute)
    store.drain()
    for i in range(256):
        store.put(f"two.top{i}a", ago=i // 10 * minute)
    found = {name for _, name in tasks(review)}
    assert "api.evil.other" in found and len(found) <= 501


def test_the_number_of_a_task_that_went_is_never_anothers(review, store):
    for i in range(520):
        store.put(f"n{i}.flood.test")
    store.drain()
    before = {t["id"]: name for (_, name), t in tasks(review).items()}
    for i in range(10):
        store.put(f"api.evil{i}.example")
        store.drain()
    after = {t["id"]: name for (_, name), t in tasks(review).items()}
    assert {"api.evil%d.example" % i for i in range(10)} <= set(after.values())
    assert all(before.get(number, name) == name for number, name in after.items())
    assert min(number for number, name in after.items() if name and "evil" in name) > max(before)


@pytest.mark.parametrize("name", [b"\x1b[2J.test", b"a b", b"*.test", b'"}],"x":["', b"1.2.3.4", b"<b>.test", b"bad\xff"])
def test_a_hostile_name_is_no_rule(review, store, name):
    store.put(name)
    (task,) = review("list", "--json").json()
    assert task["rule"] is None
    assert review("accept", str(task["id"])).code == 2
    for args in (("list",), ("show", str(task["id"]))):
        assert re.fullmatch(rb"[ -~\n]*", review(*args).out)


@pytest.mark.parametrize("args", [("lst",), ("show",), ("show", "x"), ("show", "0"), ("show", "1", "2"), ("list", "1"),
                                  ("list", "--state", "done"), ("accept", "1", "--yes", "x", "y")])
def test_bad_usage_is_status_2(review, store, args):
    store.put("a.test")
    done = review(*args)
    assert done.code == 2 and done.messages.startswith("weir: "), done


def test_what_is_not_there_is_bad_input_and_a_guard_that_is_not_a_failure(review, store, tmp_path):
    store.put("a.test")
    number = str(tasks(review)["sb-1", "a.test"]["id"])
    assert review("show", "99").code == 2
    assert review("accept", number, "--policy", "x.yaml", "--live").code == 2
    assert review("accept", number, "--live", "--socket", str(tmp_path / "none.sock"), "--yes").code == 125
    assert review("accept", number, "--policy", str(tmp_path / "none.json"), "--yes").code == 2
    assert tasks(review)


RULE = '{action: allow, target: "b.test"}'
YAML = {
    "a block": ("# ours\nverify: dns\negress:   # in order\n  # the first\n  - action: deny\n    target: c.test\n  # more\n"
                "  - {action: allow, target: d.test, ports: [443]} # why\nlimits: {flows: 12}\n",
                lambda t: t.replace("in order\n", f"in order\n  - {RULE}\n")),
    "a block that isn't indented": ("egress:\n- {action: deny, target: c.test}\n",
                                    lambda t: t.replace("egress:\n", f"egress:\n- {RULE}\n")),
    "a list in brackets": ('egress: [{action: deny, target: c.test}] # é\n', lambda t: t.replace("[", f"[{RULE}, ", 1)),
    "no rules": ("egress: []\ndefaultAction: deny\n", lambda t: t.replace("[]", f"[{RULE}]")),
    "no list": ("# nothing\nverify: tls", lambda t: t + f"\negress:\n  - {RULE}\n"),
    "nothing at all": ("", lambda t: f"egress:\n  - {RULE}\n"),
    "a wrapper": ("network_policy:\n    egress:\n      - {action: deny, target: c.test}\n",
                  lambda t: t.replace("egress:\n", f"egress:\n      - {RULE}\n")),
    "what it extends": ("extends: [none]\negress:\n  - {action: deny, target: c.test}\n",
                        lambda t: t.replace("egress:\n", f"egress:\n  - {RULE}\n")),
    "lines of another system": ("egress:\r\n  - {action: deny, target: c.test}\r\n",
                                lambda t: t.replace("egress:\r\n", f"egress:\r\n  - {RULE}\r\n")),
    "a mapping in braces": ("{verify: dns}\n", lambda t: '{"egress": [' + RULE + "], verify: dns}\n"),
    "JSON in a wrapper": ('{"network_policy": {"verify": "tls", "limits": {"sent_total": "1M"},\n "egress": [\n  {"action": "deny", "target": "c.test"}]}}\n',
                          lambda t: t.replace('"egress": [', '"egress": [{"action":"allow","target":"b.test"}, ')),
    "JSON for weir run": ('{"run": {"pass_env": ["LANG"]}, "on_denies": {"count": 9, "window": "1h", "action": "stop"}, "egress": []}\n',
                          lambda t: t.replace('"egress": [', '"egress": [{"action":"allow","target":"b.test"}')),
    "JSON that extends": ('{"extends": ["none"],\n "egress": [\n  {"action": "deny", "target": "c.test"}]}\n',
                          lambda t: t.replace('"egress": [', '"egress": [{"action":"allow","target":"b.test"}, ')),
}


@pytest.mark.parametrize("what", YAML, ids=list(YAML))
def test_a_rule_is_put_into_the_text_that_is_there(review, store, tmp_path, what):
    text, expected = YAML[what]
    path = tmp_path / ("policy.json" if "JSON" in what else "policy.yaml")
    path.write_bytes(text.encode())
    path.chmod(0o640)
    store.put("b.test")
    number = str(tasks(review)["sb-1", "b.test"]["id"])
    done = review("accept", number, "--policy", str(path), stdin=None)
    assert done.code == 1 and path.read_bytes() == text.encode() and tasks(review), done
    done = review("accept", number, "--policy", str(path), "--yes")
    assert done.code == 0, done
    got = path.read_bytes().decode()
    assert got == expected(text), done
    assert path.stat().st_mode & 0o777 == 0o640
    assert any(line.startswith("+ - {") for line in done.messages.splitlines()) and tasks(review) == {}
    again = review("accept", number, "--policy", str(path), "--yes")
    assert again.code == 0 and "has this rule already" in again.messages and path.read_bytes().decode() == got


def test_an_address_keeps_its_port_and_a_known_way_out_is_told(world, review, store, tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text("egress:\n  - {action: deny, target: c.test}\n")
    store.put(address="2001:db8::7", port=443)
    store.put("api.github.com")
    found = tasks(review)
    assert review("accept", str(found["sb-1", "2001:db8::7"]["id"]), "--policy", str(path), "--yes").code == 0
    done = review("accept", str(found["sb-1", "api.github.com"]["id"]), "--policy", str(path), "--yes")
    assert done.code == 0 and "policy.yaml:2:5: warning: 'api.github.com' is a known way out" in done.messages, done
    assert path.read_text().splitlines()[1:3] == ['  - {action: allow, target: "api.github.com"}',
                                                  '  - {action: allow, target: "2001:db8::7", ports: [tcp/443]}']
    told = world.weir("policy", "explain", "--policy", str(path), "[2001:db8::7]:443", "api.github.com")
    assert [line.split(": ")[1] for line in told.text.splitlines() if not line.startswith(" ")] == ["allow (tcp only)", "allow"]


LEFT = {
    "a deny of the address": ("egress:\n  - {action: deny, target: 2001:db8::/32}\n", "a deny of this address counts all the same"),
    "a list at no place that can be told": ("network_policy:\n  verify: dns\n", "there is no place in it"),
    "a policy that isn't valid": ("egress:\n  - {action: deny, target: a..b}\n", "policy.yaml:2:28: egress[0].target"),
    "a dash on a line of its own": ("network_policy: {verify: dns,\n  egress: !!seq []}\n", "tags (!name)"),
}


@pytest.mark.parametrize("name", ["p.json", "p.yaml"])
def test_a_rule_with_a_budget_is_left_to_a_person_in_either_language(review, store, tmp_path, name):
    path, rule = tmp_path / name, '{"action": "allow", "target": "a.test", "ports": ["tcp/443"], "budget": {"sent": "1M"}}'
    path.write_text(f'{{"egress": [{rule}]}}' if name == "p.json" else f"egress:\n- {rule}\n")
    text = path.read_text()
    store.put("a.test")
    done = review("accept", str(tasks(review)["sb-1", "a.test"]["id"]), "--policy", str(path), "--yes")
    assert done.code == 2 and "has a budget" in done.messages and path.read_text() == text and tasks(review), done


@pytest.mark.parametrize("what", LEFT, ids=list(LEFT))
def test_what_cannot_be_done_is_refused_with_the_line_to_add(review, store, tmp_path, what):
    text, why = LEFT[what]
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    store.put(address="2001:db8::7", port=443)
    done = review("accept", str(tasks(review)["sb-1", "2001:db8::7"]["id"]), "--policy", str(path), "--yes")
    assert done.code == 2 and why in done.messages and path.read_text() == text and tasks(review), done
    if "deny" in what or "place" in what:
        assert '- {action: allow, target: "2001:db8::7", ports: [tcp/443]}' in done.messages


@pytest.mark.parametrize("words, said", [
    (("list", "--state", "nope"), "--state: 'nope' is not one of open, accepted, dismissed, all"),
    (("dismiss", "1", "--policy", "x"), "--policy goes with accept alone"), (("show", "1", "--live"), "--live goes with accept and dismiss"),
    (("show", "1", "--state", "all"), "--state goes with list alone")])
def test_what_would_be_passed_over_is_bad_usage(world, words, said):
    done = world.weir("review", *words, "--state-dir", "/nonexistent")
    assert done.code == 2 and said in done.messages, done
