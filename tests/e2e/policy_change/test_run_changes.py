# SPDX-License-Identifier: Apache-2.0
"""`weir policy set`, `patch` and `show`, `weir ps` and `weir status` of a `weir run` that is under way; and who can't."""
import contextlib
import json
import os
import pathlib
import re
import signal
import socket

import pytest

from world import expect
from world.guarded import Run
from world.program import children
from world.sidecar import policy, wait_for

CONNECT = ("import socket,sys\nprint('ready',flush=True)\n"
           "for line in sys.stdin:\n"
           " s=socket.socket(socket.AF_UNIX)\n s.settimeout(5)\n"
           " try:\n  s.connect(line.strip()); s.sendall(b'GET /sandboxes/x/policy HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n"
           "  print(len(s.recv(99)),flush=True)\n"
           " except OSError as e: print(type(e).__name__,flush=True)\n")


@pytest.fixture(name="box", params=("run", "run-user"))
def fixture_box(request, world):
    with contextlib.closing(Run(request.param, world, policy())) as box:
        box.probe(["dns", "nowhere.test"])  # the command runs
        yield box


def weir(box, *args, **options):
    return box.world.weir(*args, user=options.pop("user", box.user), **options)


def test_the_verbs_change_a_run(box, world, site):
    folder = world.workdir(box.user)
    file = folder / "policy.yaml"
    file.write_text(f"verify: dns\negress:\n- {{action: allow, target: {site.name}}}\n")
    done = weir(box, "policy", "set", box.id, file)
    assert (done.code, done.messages) == (0, "")
    assert box.probe(["connect", site.name, 7007]).result == "ok"
    file.write_text(f"egress:\n- {{action: deny, target: {site.name}}}\n")
    assert weir(box, "policy", "patch", box.id, file).code == 0
    shown = weir(box, "policy", "show", "--id", box.id).json()
    assert [(r["action"], r["target"]) for r in shown["egress"]] == [("deny", site.name)] and shown["verify"] == "dns"
    expect.name_refused(box.probe(["dns", site.name]))
    box.assert_silent()
    row = next(line.split() for line in weir(box, "ps").text.splitlines() if line.startswith(box.id + " "))
    assert row[:5] == [box.id, "run", "dns+nftables", "enforcing", "1"], row
    assert not [word for word in row if "\\x" in word], "a command of several lines stands on one"
    status = weir(box, "status", box.id).text
    assert re.search(r"^policy +enforcing, rules: 1, generation 3, changes: 2$", status, re.M), status
    listed = weir(box, "status", "--json").json()["sandboxes"]
    assert [s["status"]["counters"]["policy_changes"] for s in listed if s["id"] == box.id] == [2]


def test_a_patch_for_a_time(box, world, site):
    file = world.workdir(box.user) / "policy.yaml"
    file.write_text(f"egress:\n- {{action: allow, target: {site.name}}}\n- {{action: deny, target: x.{site.name}}}\n")
    for last in (["--for", "soon"], ["--for", "0s"], ["--for", "1h", "more"]):
        assert weir(box, "policy", "patch", box.id, file, *last).code == 2, last
    assert weir(box, "policy", "check", "--for", "1h", file).code == 2
    assert not box.probe(["dns", site.name]).addresses
    done = weir(box, "policy", "patch", box.id, file, "--for", "1h")
    assert (done.code, done.messages) == (0, "")
    assert box.probe(["dns", site.name]).addresses
    status = weir(box, "status", box.id).text
    assert re.search(rf"^grant +{site.name}, (59m\d+s|1h0m) left, until \d{{4}}-", status, re.M), status
    rules = weir(box, "policy", "show", "--id", box.id).json()["egress"]
    assert [("until" in r) for r in rules] == [True, False], rules


def test_what_is_wrong_is_said_whole_and_changes_nothing(box, world, site):
    file = world.workdir(box.user) / "policy.yaml"
    box.change(policy(f"allow {site.name}", verify="dns"))
    file.write_text("rw: [/srv]\nhide: [x]\negress:\n- {action: allow, target: a..b}\n")
    done = weir(box, "policy", "set", box.id, file)
    assert done.code == 2 and "policy.yaml:1:1: 'rw' is no part of a policy but an option of weir run" in done.messages, done
    assert "policy.yaml:2:1: 'hide' is" in done.messages and "a..b" in done.messages, done
    assert box.send("PATCH", "/policy", '[{"action":"allow","target":"a..b"}]').status == 400
    assert box.send("PUT", "/status").status == 405 and box.send("GET", "/events").status == 404
    assert box.probe(["connect", site.name, 7007]).result == "ok"
    assert weir(box, "policy", "set", "nobody-is-called-so", file).code != 0
    file.write_text(f"run: {{pass_env: [A_TOKEN]}}\negress:\n- {{action: allow, target: {site.name}}}\n")
    done = weir(box, "policy", "set", box.id, file)
    assert done.code == 0 and "policy.yaml:1: `run` counts in a profile that weir run starts with, ignoring 'A_TOKEN'" in done.messages, done


def is_running(pid):
    """It may have ended, and wait to be reaped."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ask(box, method, body="", *headers):
    """(status, what the head says, the body), by the run's socket."""
    words = [word for header in headers for word in ("-H", header)]
    done = box.world.command("curl", "-sS", "-i", "--unix-socket", box.socket, "-X", method, "--data-binary", "@-", *words,
                             f"http://weir/sandboxes/{box.id}/policy", user=box.user, input=body.encode())
    head, _, text = done.text.partition("\r\n\r\n")
    return int(head.split()[1]), head, text


def test_a_change_of_another_policy_than_was_read_is_refused(box, site):
    """As the daemon's API does: of two who read the same, the second changes nothing."""
    body = policy(f"allow {site.name}", verify="dns")
    _, head, text = ask(box, "GET")
    tag = re.search('^ETag: ("[0-9a-f]{32}")\r?$', head, re.M)[1]
    assert f"ETag: {tag}" in ask(box, "GET")[1]
    for method, change in (("POST", body), ("PUT", body), ("PATCH", f'[{{"action":"allow","target":"{site.name}"}}]')):
        for other in ('"x"', f"W/{tag}", tag.strip('"'), f'"{"0" * 32}"', ",", ""):
            status, _, why = ask(box, method, change, f"If-Match: {other}" if other else "If-Match;")
            assert status == 412 and "read it again" in why and ask(box, "GET")[2] == text, (method, other, why)
    assert not box.probe(["dns", site.name]).addresses
    assert ask(box, "PUT", body, f'if-match: "y", {tag}')[0] == 200
    assert box.probe(["connect", site.name, 7007]).result == "ok"
    assert tag not in ask(box, "GET")[1] and ask(box, "PUT", policy(), f"If-Match: {tag}")[0] == 412
    assert box.probe(["connect", site.name, 7007]).result == "ok"
    assert ask(box, "PUT", policy(), "If-Match: *")[0] == 200 == ask(box, "PUT", body)[0]


def test_a_change_is_held_to_the_uplink(world, site):
    name = f"alone-{os.getpid()}"
    file = world.workdir() / "policy.yaml"
    with world.run_start("/usr/bin/python3", "-IS", world.tools / "probe.pyc", "lines", cwd=world.workdir(),
                         options=("--uplink", "none", "--id", name)) as run:
        run.say('[["dns", "nowhere.test"]]\n')
        assert run.line()
        for text, code in (("deniedNames: refuse\n", 2), ("", 0)):
            file.write_text(f"{text}egress:\n- {{action: allow, target: {site.name}}}\n")
            done = world.weir("policy", "set", name, file)
            assert done.code == code and ("needs the relay" in done.messages) == (code == 2), done


def test_what_the_run_was_told_to_keep_stays(world, site):
    """--verify, and what the project's .weir.yaml denies, hold for each policy that comes."""
    folder = world.workdir()
    (folder / ".weir.yaml").write_text(f"deny: [{site.name}]\n")
    with world.run_start("/usr/bin/python3", "-IS", world.tools / "probe.pyc", "lines", cwd=folder,
                         options=("--verify", "tls", "--id", f"kept-{os.getpid()}")) as run:
        run.say('[["dns", "nowhere.test"]]\n')
        assert run.line()
        file = world.workdir() / "policy.yaml"
        file.write_text(f"verify: dns\negress:\n- {{action: allow, target: {site.name}}}\n")
        for verb in ("set", "patch"):
            assert world.weir("policy", verb, f"kept-{os.getpid()}", file).code == 0
            run.say(json.dumps([["dns", site.name]]) + "\n")
            assert json.loads(run.line())["result"] == "NXDOMAIN"
        assert world.weir("policy", "show", "--id", f"kept-{os.getpid()}").json()["verify"] == "tls"


def test_what_the_project_denies_is_there_once_however_often_something_is_granted(world):
    folder, name, asked = world.workdir(), f"once-{os.getpid()}", [world.site(f"once{world.number()}.test") for _ in range(3)]
    (folder / ".weir.yaml").write_text("deny: [one.test, two.test]\n")
    (folder / "policy.yaml").write_text("egress:\n" + "".join(f"- {{action: ask, target: {site.name}}}\n" for site in asked))

    def ask(path, *words):
        return world.command("curl", "-sS", "--unix-socket", f"/run/weir-0/{name}.sock", *words, f"http://weir/sandboxes/{name}{path}").text
    with world.run_start("/usr/bin/python3", "-IS", world.tools / "probe.pyc", "lines", cwd=folder,
                         options=("--id", name, "--policy", "policy.yaml")) as run:
        for site in asked:
            run.say(json.dumps([["connect", site.name, 80, f"GET / HTTP/1.1\r\nHost: {site.name}\r\nConnection: close\r\n\r\n"]]) + "\n")
            task = wait_for(lambda: [t["id"] for t in json.loads(ask("/review") or "{}").get("tasks", []) if t["state"] == "open"])[0]
            ask(f"/review/{task}/accept", "-X", "POST")
            assert "200 OK" in json.loads(run.line())["data"]
        shown = world.weir("policy", "show", "--id", name).json()["egress"]
        assert sorted(rule["target"] for rule in shown) == sorted(site.name for site in asked), shown
        run.say('[["dns", "one.test"]]\n')
        assert json.loads(run.line())["result"] == "NXDOMAIN"


@pytest.mark.parametrize("spends", [False, True])  # a rule whose budget is used up makes no other policy
def test_a_refusal_is_told_with_the_rule_of_its_moment(world, site, spends):
    before, paid = (world.site(f"before{world.number()}.test") for _ in range(2))
    rule = {"action": "allow", "target": paid.name, "ports": ["tcp/7007"], "budget": {"sent": 100}}
    report, asked = world.workdir() / "report.json", (before.name, site.name)
    box = Run("run", world, policy(f"deny {before.name}", rule), options=("--report", report))
    with contextlib.closing(box):
        if spends:
            assert box.probe(["dns", paid.name]).addresses
            box.probe(["tcp", paid.v4, 7007, "x" * 200])
            wait_for(lambda: not box.probe(["dns", paid.name]).addresses, step=0.1)
        box.probe(*[["dns", before.name]] * 3)  # the last ones are held back to be counted
        box.change(policy("allow other.test", f"deny {site.name}"))
        box.probe(["dns", site.name], ["dns", before.name])
        wait_for(lambda: len([d for d in box.denies() if d["name"] in asked]) >= 3)
        assert box.started.wait().code == 0
    told = {(r["name"], (r["rule"] or {}).get("target")) for r in json.loads(report.read_text())["refusals"] if r["name"] in asked}
    assert told == {(before.name, before.name), (site.name, site.name), (before.name, None)}
    assert json.loads(report.read_text())["policy_updates"] == 1


def test_names_that_are_pinned_later(world, site):
    with contextlib.closing(Run("run", world, policy())) as box:
        box.probe(["dns", "nowhere.test"])
        document = json.loads(policy(f"allow {site.name}", verify="dns"))
        box.change(json.dumps({**document, "dns": "pinned"}))
        wait_for(lambda: box.probe(["connect", site.name, 7007]).result == "ok")
        box.change(policy(f"allow {site.name}", verify="dns"))
        assert box.probe(["connect", site.name, 7007]).result == "ok"


def test_an_id_is_one_runs_alone(world):
    name = f"mine-{os.getpid()}"
    with world.run_start("/bin/cat", options=("--id", name)) as first:
        wait_for(lambda: name in world.weir("ps").text)
        done = world.run("/bin/true", options=("--id", name))
        assert done.code == 125 and f"'{name}' is a run that is under way" in done.messages, done
        first.kill()  # and leaves its socket
    assert name not in world.weir("ps").text
    assert world.run("/bin/true", options=("--id", name)).code == 0
    assert world.run("/bin/true", options=("--id", "../x")).code == 2


def test_who_asks_at_the_end_costs_the_run_nothing(world):
    """The engine is asked behind its last order, and ends with that unread."""
    name = f"ends-{os.getpid()}"
    with world.run_start("/bin/sh", "-c", "echo up; exec cat", options=("--id", name)) as run, socket.socket(socket.AF_UNIX) as asking:
        assert run.line() == "up"
        _, engine = world.guards(run.pid)
        inside = set(children(run.pid)) - {engine}
        os.kill(engine, signal.SIGSTOP)
        run.process.stdin.close()
        wait_for(lambda: not any(is_running(pid) for pid in inside))  # cat has ended, and the engine is to end
        asking.connect(f"/run/weir-0/{name}.sock")
        asking.sendall(f"GET /sandboxes/{name} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        asking.settimeout(0.5)  # far longer than control takes to ask the engine
        with contextlib.suppress(OSError):
            asking.recv(99)
        run.signal(signal.SIGSTOP)
        os.kill(engine, signal.SIGCONT)
        wait_for(lambda: not is_running(engine))
        run.signal(signal.SIGCONT)
        assert run.process.wait(60) == 0, run.process.stderr.read()


def test_G35_no_sandbox_reaches_a_socket(world):
    """Not even one that was given the directory, of a run that is younger than its masks; nor does whoever lives in
    another user namespace."""
    user = world.user("weir-test")
    directory = f"/tmp/weir-{user.uid}"
    world.run("/bin/true", user="weir-test")  # the directory is there
    inside = ("/usr/bin/python3", "-IS", "-c", CONNECT)
    with world.run_start(*inside, user="weir-test", options=("--rw", directory)) as given, \
         world.run_start(*inside, user="weir-test") as plain, contextlib.closing(Run("run-user", world, policy())) as box:
        assert (given.line(), plain.line()) == ("ready", "ready")
        box.probe(["dns", "nowhere.test"])
        assert box.send("GET", "/policy").status == 200  # the user himself
        for started, wanted in ((plain, {"FileNotFoundError"}), (given, {"0", "BrokenPipeError", "ConnectionResetError", "ConnectionRefusedError"})):
            started.say(box.socket + "\n")
            assert started.line() in wanted
        asks = ("curl", "-sS", "--unix-socket", box.socket, f"http://weir/sandboxes/{box.id}/policy")
        assert world.command(*asks, user="weir-test").code == 0
        assert world.command("unshare", "--user", "--map-root-user", *asks, user="weir-test").code != 0
        assert box.send("GET", "/policy").status == 200


CONFINED = ("import ctypes,os,sys\nlibc = ctypes.CDLL(None)\ncode = ctypes.create_string_buffer(b'\\6\\0\\0\\0\\0\\0\\xff\\x7f')\n"
            "class Program(ctypes.Structure): _fields_ = [('count', ctypes.c_ushort), ('code', ctypes.c_void_p)]\n"
            "assert libc.prctl(38, 1, 0, 0, 0) == 0\n"
            "assert sys.argv[1] == 'free' or libc.prctl(22, 2, ctypes.byref(Program(1, ctypes.addressof(code)))) == 0\n"
            "os.execvp(sys.argv[2], sys.argv[2:])\n")


def test_G35_who_is_confined_more_than_the_run_does_not_ask(world):
    """As a command on the host is, `weir run --cgroup`: it has its caller's user, and no namespace of its own."""
    with contextlib.closing(Run("run-user", world, policy())) as box:
        box.probe(["dns", "nowhere.test"])
        asks = ("curl", "-sS", "--unix-socket", box.socket, f"http://weir/sandboxes/{box.id}/policy")
        codes = [world.command("/usr/bin/python3", "-ISc", CONFINED, how, *asks, user="weir-test").code for how in ("free", "confined")]
        assert codes[0] == 0 and codes[1] in (7, 52, 55, 56), codes
        done = world.command("/usr/bin/python3", "-ISc", CONFINED, "confined", world.weir_path, "policy", "show", "--id", box.id, user="weir-test")
        assert done.code == 125 and "a run answers its own user alone, outside of sandboxes" in done.messages, done


def test_G35_no_other_user_asks(world):
    with contextlib.closing(Run("run-user", world, policy())) as box:
        box.probe(["dns", "nowhere.test"])
        assert box.send("GET", "/policy").status == 200
        assert box.send("GET", "/policy", user="root").status == 0  # not even root, who needs no socket
        assert box.id not in world.weir("ps").text
        assert oct(os.stat(os.path.dirname(box.socket)).st_mode & 0o777) == "0o700"


def test_a_directory_of_somebody_elses_is_not_used(world):
    user = world.user("weir-test")
    mounts = ("mount -t tmpfs -o mode=1777 none /tmp", f"mkdir -m 777 /tmp/weir-{user.uid}")
    done = world.weir("run", "--id", "x", "--", "/bin/true", user="weir-test", mounts=mounts)
    assert done.code == 125 and "there is no safe place for its socket" in done.messages, done
    assert world.weir("run", "--", "/bin/true", user="weir-test", mounts=mounts).code == 0
