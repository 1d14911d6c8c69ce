# SPDX-License-Identifier: Apache-2.0
"""weir render, render --install and teardown: rules for a user or a cgroup of the host, kept by nobody."""
import contextlib
import json
import os
import pathlib
import re
import shutil

import pytest

from world.sidecar import wait_for
from world.world import ECHO_PORT, HOST4, RESOLVER4

CGROUPS = pathlib.Path("/sys/fs/cgroup")
MEMBER = "weir-test"
FOLDER = "/etc/nftables.d"


@pytest.fixture(name="uid")
def uid_fixture(world):
    return world.user(MEMBER).uid


@pytest.fixture(name="etc")
def etc_fixture(world):
    """A mount that gives a command an /etc of its own, which lasts; and where its files are."""
    folder = world.workdir()
    upper, work = folder / "upper", folder / "work"
    upper.mkdir()
    work.mkdir()
    mount = f"mount -t overlay overlay -o lowerdir=/etc,upperdir={upper},workdir={work} /etc"
    yield {"mounts": (mount,)}, upper / "nftables.d"
    for table in tables(world):
        world.command("nft", "delete", "table", "inet", table)


@pytest.fixture(name="cgroup")
def cgroup_fixture():
    base = CGROUPS / "unified" if (CGROUPS / "unified").is_dir() else CGROUPS
    outer = base / f"weir-render-{os.getpid()}"
    inner = outer / "job"
    inner.mkdir(parents=True)
    yield inner
    inner.rmdir()
    outer.rmdir()


def tables(world):
    listed = world.command("nft", "list", "tables").text
    return re.findall(r"^table inet (weir_\S+)$", listed, re.M)


def render(world, *args, **options):
    return world.weir("render", "--upstream", RESOLVER4, "--resolver", RESOLVER4, *map(str, args), **options)


def tcp(world, address, port, user=MEMBER, cgroup=None, data="hi"):
    """What an echo says to one process; "" when nothing was reached."""
    script = (f"import socket; s = socket.create_connection(('{address}', {port}), 30); s.sendall(b'{data}'); "
              f"print(s.recv(10).decode())")
    argv = ["/usr/bin/python3", "-c", script]
    if cgroup:
        argv = ["sh", "-c", 'echo 0 > "$0/cgroup.procs" && exec "$@"', cgroup, *argv]
    done = world.command(*argv, user=None if cgroup else user)
    if done.text.strip() != data:
        assert "ConnectionRefused" in done.messages, done
    return done.text.strip()


def test_every_fault_is_told_at_once(world):
    done = world.weir("render", "--uid", "0", "--cgroup", "/no/such", "--id", "a b", "--allow", "a..test",
                      "--resolver", "1.2.3.4", "--resolver", "none")
    assert done.code == 2 and done.out == b"", done
    for words in ("give either --cgroup or --uid", "'/no/such' is no control group", "--uid: '0' is root",
                  "'a b' is not a name", "'a..test' is not", "none and an address"):
        assert words in done.messages, done


@pytest.mark.parametrize("policy, words", [
    ("egress:\n  - {action: allow, target: '*.a.test'}\n", "p.yaml:2:5: '*.a.test' is a wildcard"),
    ("verify: tls\n", "p.yaml:1:9: verify: 'tls' needs a process"),
    ("defaultAction: allow\n", "needs defaultAction: deny"),
])
def test_what_rules_alone_can_not_hold_to_is_an_error(world, policy, words):
    cwd = world.workdir()
    (cwd / "p.yaml").write_text(policy)
    done = render(world, "--uid", 1234, "--policy", "p.yaml", cwd=cwd)
    assert done.code == 2 and words in done.messages and done.out == b"", done


def test_a_user_may_be_named(world):
    by_name, by_number = (render(world, "--uid", user, "--id", "one", "--allow", "1.2.3.4", cwd=world.workdir()) for user in ("nobody", 65534))
    assert by_name.code == 0 and "# For the processes of the user 65534." in by_name.text, by_name
    assert by_name.text.replace("nobody", "65534") == by_number.text, by_number
    done = render(world, "--uid", "no-such-user", "--allow", "1.2.3.4", cwd=world.workdir())
    assert done.code == 2 and "'no-such-user' is not a user of this host" in done.messages, done


def test_addresses_alone_need_no_name_server(world, uid):
    empty = world.workdir() / "resolv.conf"
    empty.write_text("")
    done = world.weir("render", "--uid", uid, "--allow", "1.2.3.4", resolv_conf=empty)
    assert done.code == 0 and "# Name servers: none\n" in done.text and "elements = { 1.2.3.4 }" in done.text, done
    done = world.weir("render", "--uid", uid, "--allow", "a.test", resolv_conf=empty)
    assert done.code == 125 and "no usable name server" in done.messages, done


@pytest.mark.parametrize("who", ["root", MEMBER])
def test_the_text_has_the_names_addresses_and_nft_takes_it(world, uid, who):
    site, private = world.site(f"render-{world.number()}.test"), f"render-{world.number()}.test"
    world.dns.add(private, "10.1.2.3", cname=None)
    before = world.dns.count()
    done = render(world, "--uid", uid, "--allow", f"{site.name}:443", "--allow", private, user=who)
    assert done.code == 0, done
    assert f"#   {site.v4} {site.name}\n" in done.text and f"#   {site.v6} {site.name}\n" in done.text, done
    assert "10.1.2.3" not in done.text and f"cannot resolve {private}" in done.messages, done
    asked = [(q.name.lower(), q.type) for q in world.dns.queries()[before:]]
    assert set(asked) == {(name, kind) for name in (site.name, private) for kind in ("A", "AAAA")} and len(asked) < 8, asked  # of each, once
    file = world.workdir() / "x.nft"
    file.write_text(done.text)
    assert world.command("nft", "-c", "-f", file).code == 0
    assert tables(world) == [], "printing installs nothing"


def test_a_required_name_without_an_address_ends_it(world, uid):
    cwd = world.workdir()
    (cwd / "p.yaml").write_text("egress:\n  - {action: allow, target: gone.render.test, required: true}\n")
    done = render(world, "--uid", uid, "--policy", "p.yaml", cwd=cwd)
    assert done.code == 125 and done.out == b"" and "gone.render.test" in done.messages, done


def test_install_guards_the_user_and_nobody_else(world, uid, etc):
    options, folder = etc
    site, other = world.site(f"render-{world.number()}.test"), world.site(f"render-{world.number()}.test")
    assert tcp(world, other.v4, ECHO_PORT) == "hi", "open before"
    done = render(world, "--uid", uid, "--id", "job", "--allow", f"{site.name}:{ECHO_PORT}", "--install", **options)
    assert done.code == 0 and FOLDER in done.messages, done
    assert [p.name for p in folder.iterdir()] == ["weir-job.nft"]
    assert tables(world) == ["weir_job"]
    assert tcp(world, site.v4, ECHO_PORT) == "hi" and tcp(world, site.v6, ECHO_PORT) == "hi"
    with world.capture() as capture:
        for address, port in ((other.v4, ECHO_PORT), (other.v6, ECHO_PORT), (site.v4, 80), ("8.8.8.8", 53)):
            assert tcp(world, address, port) == ""
        assert capture.count() == 0, "nothing arrived"
    assert tcp(world, other.v4, ECHO_PORT, user="root") == "hi"
    # The name server, and no other.
    assert world.command("dig", "+tries=1", "+time=20", "+short", f"@{RESOLVER4}", site.name,
                         user=MEMBER).text.strip() == site.v4 or not shutil.which("dig")
    # Listeners of the host are closed.
    with world.tcp(7017, where=world.host):
        assert tcp(world, "127.0.0.1", 7017) == "" and tcp(world, HOST4, 7017) == ""
        assert tcp(world, "127.0.0.1", 7017, user="root") == "hi"


def test_another_policy_takes_its_place_and_teardown_opens(world, uid, etc):
    options, folder = etc
    one, two = world.site(f"render-{world.number()}.test"), world.site(f"render-{world.number()}.test")
    for site in (one, two):
        done = render(world, "--uid", uid, "--id", "job", "--allow", site.name, "--install", **options)
        assert done.code == 0, done
    assert (tcp(world, one.v4, ECHO_PORT), tcp(world, two.v4, ECHO_PORT)) == ("", "hi")
    assert tables(world) == ["weir_job"]
    done = world.weir("teardown", "job", **options)
    assert done.code == 0 and done.err == b"", done
    assert tables(world) == [] and list(folder.iterdir()) == []
    assert tcp(world, one.v4, ECHO_PORT) == "hi"
    done = world.weir("teardown", "job", **options)
    assert done.code == 125 and "nothing of that id" in done.messages, done


def test_what_is_somebody_else_s_is_left_alone(world, uid, etc):
    options, folder = etc
    folder.mkdir()
    (folder / "weir-mine.nft").write_text("table inet mine { }\n")
    done = render(world, "--uid", uid, "--id", "mine", "--allow", "1.2.3.4", "--install", **options)
    assert done.code == 125 and "is not one of Weir's" in done.messages, done
    done = world.weir("teardown", "mine", **options)
    assert done.code == 125 and "is not one of Weir's" in done.messages, done
    assert (folder / "weir-mine.nft").read_text() == "table inet mine { }\n" and tables(world) == []
    world.command("nft", "add", "table", "inet", "weir_other")
    done = render(world, "--uid", uid, "--id", "other", "--allow", "1.2.3.4", "--install", **options)
    assert done.code == 125 and "there is a table inet weir_other" in done.messages, done
    assert "chain" not in world.command("nft", "list", "table", "inet", "weir_other").text


def test_only_root_installs(world, uid, etc):
    done = render(world, "--uid", uid, "--allow", "1.2.3.4", "--install", user=MEMBER)
    assert done.code == 125 and "needs root" in done.messages and tables(world) == [], done
    done = world.weir("teardown", "job", user=MEMBER)
    assert done.code == 125 and "needs root" in done.messages, done


SERVE = """
import socket, sys
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept()
    c.sendall(c.recv(10))
    c.close()
"""


def test_a_cgroup_reaches_itself_and_no_other_listener(world, etc, cgroup):
    options, _ = etc
    site = world.site(f"render-{world.number()}.test")
    done = render(world, "--cgroup", cgroup, "--allow", f"{site.name}:{ECHO_PORT}", "--install", **options)
    assert done.code == 0 and tables(world) == ["weir_job"], done
    with contextlib.ExitStack() as stack:
        inside = stack.enter_context(world.start(["sh", "-c", 'echo 0 > "$0/cgroup.procs"; exec "$@"', cgroup,
                                                  "/usr/bin/python3", "-c", SERVE]))
        outside = stack.enter_context(world.start(["/usr/bin/python3", "-c", SERVE]))
        ours, theirs = int(inside.line()), int(outside.line())
        assert tcp(world, site.v4, ECHO_PORT, cgroup=cgroup) == "hi"
        assert tcp(world, site.v4, 80, cgroup=cgroup) == ""
        assert tcp(world, "127.0.0.1", ours, cgroup=cgroup) == "hi"
        assert tcp(world, "127.0.0.1", theirs, cgroup=cgroup) == ""
        # Who is no member meets none of it.
        assert tcp(world, "127.0.0.1", ours, user="root") == "hi"
        assert tcp(world, "127.0.0.1", theirs, user="root") == "hi"


ECHO = """
import socket
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept()
    while data := c.recv(10):
        c.sendall(data)
"""
TALK = """
import socket, sys
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for line in sys.stdin:
    try:
        s.sendall(line.encode())
        print(s.recv(10).decode().strip(), flush=True)
    except OSError as e:
        print(type(e).__name__, flush=True)
"""


def test_a_listener_that_is_taken_back_ends_what_is_open_to_it(world, etc, cgroup):
    """A connection within the group goes on all the same."""
    options, _ = etc

    def member(program, *args):
        return world.start(["sh", "-c", 'echo 0 > "$0/cgroup.procs"; exec "$@"', cgroup, "/usr/bin/python3", "-c", program,
                            *map(str, args)])

    with contextlib.ExitStack() as stack:
        outside = stack.enter_context(world.start(["/usr/bin/python3", "-c", ECHO]))
        theirs = int(outside.line())
        assert render(world, "--cgroup", cgroup, "--allow", f"127.0.0.1:{theirs}", "--install", **options).code == 0
        inside = stack.enter_context(member(ECHO))
        talks = [stack.enter_context(member(TALK, port)) for port in (theirs, int(inside.line()))]
        for talk in talks:
            talk.say("one\n")
            assert talk.line() == "one"
        assert render(world, "--cgroup", cgroup, "--allow", "1.2.3.4", "--install", **options).code == 0
        for talk, answer in zip(talks, ("ConnectionResetError", "two")):
            talk.say("two\n")
            assert talk.line() == answer


def test_what_is_refused_is_reported(world, uid, etc):
    options, _ = etc
    assert render(world, "--uid", uid, "--id", "job", "--allow", "1.2.3.4", "--install", **options).code == 0
    driver = pathlib.Path(os.environ.get("WEIR", "build/weir")).parent / "tests" / "drivers" / "filter_driver"
    with world.start([driver.resolve()]) as collector:
        collector.say("generation\n")
        assert collector.line().startswith("ok")
        assert tcp(world, "93.1.2.3", 4711) == ""
        collector.say("events\n")
        events = collector.line()
    assert f"93.1.2.3:4711|6|{uid}|" in events, events


def test_collect_prints_what_is_refused_one_program_at_a_time(world, uid, etc):
    site = world.site(f"render-{world.number()}.test")
    done = render(world, "--uid", uid, "--id", "seen", "--allow", f"{site.name}:{ECHO_PORT}", "--install", **etc[0])
    assert done.code == 0, done
    with world.start([world.weir_path, "events", "--collect", "--limit", "1", "--json", "--sandbox", "seen"]) as collector:
        def is_taken():
            return "root" in world.weir("events", "--collect", "--limit", "1", user=MEMBER).messages and \
                world.command("cat", "/proc/net/netfilter/nfnetlink_log").text.split()[:1] == ["100"]
        wait_for(is_taken)
        second = world.weir("events", "--collect", "--limit", "1")
        assert second.code == 125 and "log group 100 can't be read" in second.messages, second
        assert tcp(world, site.v4, ECHO_PORT) == "hi" and tcp(world, site.v4, 443) == ""
        done = collector.wait()
    assert done.code == 0, done
    event = json.loads(done.text)
    assert (event["sandbox"], event["action"], event["remote_ip"], event["remote_port"], event["uid"]) == \
        ("seen", "deny", site.v4, 443, uid), done


def test_collect_has_no_past_and_no_names(world):
    for option in (("--since", "1h"), ("--name", "a.test"), ("--follow",)):
        done = world.weir("events", "--collect", *option)
        assert done.code == 2 and f"{option[0]}: not with --collect" in done.messages, done
