# SPDX-License-Identifier: Apache-2.0
"""`weir events` and `weir denies`: what a store has, for people and for programs."""
import datetime
import json
import re

import pytest

from tests.world.store import Store
from tests.world.terminal import Terminal

HOSTILE = [b"\x1b]0;owned\x07\x1b[2J.test", b"<script>alert(1)</script>.test", b"'); DROP TABLE event;--.test", b"x" * 253,
           b"bad\xff\xc0.test", "\u202etxt.test".encode(), b"%s%n.test", b"two\nlines.test", b'"quoted\\".test']


@pytest.fixture
def weir(world, store):
    def run(verb, *args, env=None, **options):
        store.drain()
        return world.weir(verb, *args, env={"WEIR_STATE_DIR": str(store.folder), **(env or {})}, **options)
    return run


def events(done):
    assert done.code == 0 and done.err == b"", done
    return [json.loads(line) for line in done.text.splitlines()]


def names(done):
    return [event["name"] for event in events(done)]


def test_events_come_oldest_first_with_everything_that_is_known(weir, store):
    store.put("a.test", packets=3)
    store.drain()
    store.put(address="192.0.2.7", port=443, rule="deny192.0.2.0/24", command="curl")
    first, second = events(weir("events", "--json"))
    assert {"ts", "sandbox", "action", "layer", "remote_ip", "remote_port", "protocol", "name", "rule", "packets"} <= set(first)
    assert (first["name"], first["packets"], first["remote_ip"], first["layer"]) == ("a.test", 3, None, "dns")
    assert (second["remote_ip"], second["remote_port"], second["protocol"]) == ("192.0.2.7", 443, "tcp")
    assert (second["rule"], second["command"]) == ("deny192.0.2.0/24", "curl")
    lines = weir("events").text.splitlines()
    assert re.fullmatch(r"\S+Z  sb-1 +deny +a\.test x3", lines[0])
    assert re.fullmatch(r"\S+Z  sb-1 +deny +192\.0\.2\.7 tcp/443: deny192\.0\.2\.0/24 \[curl\]", lines[1])


# What OCSF 1.3.0 asks of a class: its name, the activities that Weir has, and one of these keys.
OCSF = {4001: ({4: "Fail", 5: "Refuse", 6: "Traffic"}, {"src_endpoint", "dst_endpoint"}), 4003: ({1: "Query"}, {"query"}),
        0: ({99: "change"}, {"message"})}
OCSF_REQUIRED = {"activity_id", "category_uid", "class_uid", "metadata", "severity_id", "time", "type_uid"}


def test_ocsf_has_a_class_for_each_event_and_what_it_requires(weir, store):
    store.put("a.test", packets=3)
    store.put(address="192.0.2.7", port=443, rule="deny192.0.2.0/24", command="curl")
    store.put("gone.test", address="192.0.2.8", port=443, action="fail")
    store.put("b.test", address="192.0.2.9", port=443, action="allow")
    store.put("", action="change")
    rows = events(weir("events", "--format", "ocsf"))
    assert sorted(row["class_uid"] for row in rows) == [0, 4001, 4001, 4001, 4003]
    for row in rows:
        activities, needs = OCSF[row["class_uid"]]
        assert OCSF_REQUIRED <= set(row) and needs <= set(row) and row["category_uid"] == row["class_uid"] // 1000, row
        assert row["activity_name"] == activities[row["activity_id"]], row
        assert row["type_uid"] == row["class_uid"] * 100 + row["activity_id"]
        assert {"version", "product"} <= set(row["metadata"]) and {"name", "vendor_name"} <= set(row["metadata"]["product"])
        assert None not in row.values()
    (lookup,) = [row for row in rows if row["class_uid"] == 4003]
    assert lookup["query"]["hostname"] == "a.test" and lookup["count"] == 3 and lookup["action_id"] == 2
    (refused,) = [row for row in rows if row["activity_id"] == 5]
    assert refused["dst_endpoint"] == {"ip": "192.0.2.7", "port": 443} and refused["firewall_rule"]["name"] == "deny192.0.2.0/24"
    assert refused["connection_info"]["protocol_num"] == 6 and refused["actor"]["process"]["name"] == "curl"
    assert refused["src_endpoint"]["uid"] == "sb-1"


@pytest.mark.parametrize("args, says", [(("--format", "xml"), "'xml' is not one of text, json, ocsf"),
                                        (("--json", "--format", "ocsf"), "use one of them")])
def test_a_form_that_there_is_not_is_an_error(weir, args, says):
    done = weir("events", *args)
    assert done.code == 2 and done.out == b"" and says in done.messages, done


def test_each_option_tells_apart(weir, store):
    store.put("old.test", ago=3 * 3600)
    store.put("older.test", ago=49 * 3600)
    store.put("other.test", sandbox="sb-2")
    store.put("let.test", action="allow")
    store.put(address="192.0.2.7", port=443)
    assert names(weir("events", "--json", "--sandbox", "sb-2")) == ["other.test"]
    assert names(weir("events", "--json", "--action", "allow")) == ["let.test"]
    assert names(weir("events", "--json", "--name", "OLD.test.")) == ["old.test"]
    assert [e["remote_ip"] for e in events(weir("events", "--json", "--address", "192.0.2.7"))] == ["192.0.2.7"]
    assert "older.test" not in names(weir("events", "--json"))
    assert "older.test" in names(weir("events", "--json", "--since", "3d"))
    assert "old.test" not in names(weir("events", "--json", "--since", "2h"))
    assert names(weir("events", "--json", "--since", "3d", "--until", "2h")) == ["old.test", "older.test"]
    then = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=4)
    assert "old.test" in names(weir("events", "--json", "--since", then.strftime("%Y-%m-%dT%H:%M:%SZ")))
    assert len(events(weir("events", "--json", "--limit", "2"))) == 2


def test_more_than_a_page_is_all_there(weir, store):
    store("add 0 1750")
    assert names(weir("events", "--json")) == [f"n{i}.test" for i in range(1750)]
    assert names(weir("events", "--json", "--limit", "600")) == [f"n{i}.test" for i in range(1150, 1750)]


def test_following_tells_what_comes(world, store):
    store.put("before.test")
    store.drain()
    with world.start([world.weir_path, "events", "--follow", "--json", "--state-dir", store.folder]) as following:
        assert json.loads(following.line())["name"] == "before.test"
        for i in range(3):
            store.put(f"later{i}.test")
            assert json.loads(following.line())["name"] == f"later{i}.test"
        following.process.terminate()
        assert following.process.wait(60) != 0


def test_following_goes_on_when_the_file_was_replaced(world, tmp_path):
    tmp_path.chmod(0o755)
    folder = tmp_path / "state"
    old = Store(folder)
    old.put("old.test")
    old.end()
    with world.start([world.weir_path, "events", "--follow", "--json", "--state-dir", folder]) as following:
        assert json.loads(following.line())["name"] == "old.test"
        for path in folder.iterdir():
            path.rename(tmp_path / path.name)
        with Store(folder) as new:
            new.put("new.test")
            assert json.loads(following.line())["name"] == "new.test"


def test_hostile_names_move_no_cursor_and_break_no_line(weir, store):
    for name in HOSTILE:
        store.put(name)
    lines = weir("events").out.splitlines()
    assert len(lines) == len(HOSTILE)
    table = weir("denies").out.splitlines()
    assert len(table) == len(HOSTILE) + 1
    for line in lines + table:
        assert re.fullmatch(rb"[ -~]*", line), line
    assert len(events(weir("events", "--json"))) == len(HOSTILE)
    assert len(weir("denies", "--json").json()) == len(HOSTILE)
    for word in ("events", "denies"):
        assert re.fullmatch(rb"[ -~\n]*", weir(word, "--json").out)
        assert b"<" not in weir(word, "--json").out


def test_denies_are_counted_by_each_property(weir, store):
    for i in range(3):
        store.put("a.test", packets=5, command=f"cmd{i}")
    store.put("b.test", sandbox="sb-2", rule="deny-b.test")
    store.put(address="192.0.2.7", port=443, packets=7)
    store.put("let.test", action="allow", packets=100)

    def by(*args):
        done = weir("denies", "--json", *args).json()
        assert all(set(row) - {"packets", "events", "last"} == {args[1]} for row in done)
        return [(row[args[1]], row["packets"]) for row in done]
    assert by("--by", "destination") == [("a.test", 15), ("192.0.2.7", 7), ("b.test", 1)]
    assert by("--by", "address") == [("192.0.2.7", 7)]
    assert by("--by", "name") == [("a.test", 15), ("b.test", 1)]
    assert by("--by", "sandbox") == [("sb-1", 22), ("sb-2", 1)]
    assert by("--by", "rule") == [(None, 22), ("deny-b.test", 1)]
    assert by("--by", "process") == [(None, 8), ("cmd0", 5), ("cmd1", 5), ("cmd2", 5)]
    assert by("--by", "name", "--sandbox", "sb-2") == [("b.test", 1)]
    assert by("--by", "name", "--limit", "1") == [("a.test", 15)]
    text = weir("denies", "--by", "rule").text
    assert re.search(r"^ +22 +4  \S+Z  \(the default action\)$", text, re.M), text


def test_the_counts_are_those_of_the_events(weir, store):
    """Whatever hour it is: sums of hours and parts of hours add up to what is stored."""
    for hour in range(30):
        store.put(f"n{hour % 7}.test", ago=hour * 3600, packets=hour + 1)
        store.drain()  # what is equal in a window would be one row
    for since in ("24h", "90m", "59m", "1d"):
        listed = {}
        for event in events(weir("events", "--json", "--since", since)):
            listed[event["name"]] = listed.get(event["name"], 0) + event["packets"]
        counted = {row["name"]: row["packets"] for row in weir("denies", "--by", "name", "--json", "--since", since).json()}
        assert counted == listed and listed, since


def test_nothing_denied_is_said(weir, store):
    store.put("let.test", action="allow")
    assert weir("denies").text == "nothing was denied\n"
    assert weir("denies", "--json").json() == []
    assert weir("events", "--sandbox", "none").text == ""


@pytest.mark.parametrize("args", [("events", "--since", "yesterday"), ("events", "--until", "2026-13-01T00:00:00Z"),
                                  ("events", "--name", "a..b"), ("events", "--action", "denied"), ("events", "x"),
                                  ("events", "--address", "300.1.1.1"), ("events", "--limit", "0"), ("denies", "--by", "port"),
                                  ("denies", "--follow"), ("events", "--until", "1h", "--follow")])
def test_bad_usage_is_status_2_and_names_the_text(weir, args):
    done = weir(*args)
    assert done.code == 2 and done.out == b"" and args[-1].lstrip("-") in done.messages, done


def test_without_a_store_it_is_status_125(world, tmp_path):
    for verb in ("events", "denies"):
        done = world.weir(verb, "--state-dir", str(tmp_path / "nothing"))
        assert done.code == 125 and "nothing: no events are stored here; --state-dir says where" in done.messages, done
    (tmp_path / "events.db").write_bytes(b"no database " * 1000)
    assert world.weir("events", "--state-dir", str(tmp_path)).code == 125


def test_the_default_is_where_the_user_keeps_state(world, tmp_path):
    home = world.workdir("weir-test")
    for env, wanted in (({"HOME": str(home)}, ".local/state/weir"), ({"XDG_STATE_HOME": str(home / "xdg")}, "xdg/weir")):
        done = world.weir("events", env=env, user="weir-test")
        assert done.code == 125 and wanted in done.messages, done
    # whatever the machine itself has kept there
    empty = "[ ! -e /var/lib/weir ] || mount -t tmpfs none /var/lib/weir"
    done = world.weir("events", mounts=(empty,))
    assert done.code == 125 and "/var/lib/weir" in done.messages, done


def test_a_terminal_gets_colour_and_width(world, store):
    store.put("b" * 60 + ".test", rule="d" * 60)
    store.drain()
    argv = [world.weir_path, "events", "--state-dir", store.folder]
    with Terminal(world, argv, env={"TERM": "xterm"}) as terminal:
        coloured = terminal.rest()
    with Terminal(world, argv, env={"TERM": "xterm", "NO_COLOR": "1"}) as terminal:
        plain = terminal.rest()
    assert "\x1b[31mdeny" in coloured and "\x1b[" not in plain
    assert len(plain.splitlines()) > 1, "it is wrapped"
    piped = world.weir("events", "--state-dir", str(store.folder), env={"TERM": "xterm"})
    assert len(piped.text.splitlines()) == 1 and "\x1b" not in piped.text


def test_a_reader_holds_up_no_writer(world, store):
    store("add 0 3000")
    store.drain()
    with world.start([world.weir_path, "events", "--state-dir", store.folder]) as slow:
        assert slow.line()  # and no more: its pipe is full
        store("add 10000 2000")
        store.drain()
        assert store.state()["lost_rows"] == 0 and store.state()["rows"] == 5000
