# SPDX-License-Identifier: Apache-2.0
"""weir.run, weir.Popen and their twins: what the command reaches, how it ends, and that nothing of it is left."""
import contextlib
import http.server
import os
import pathlib
import shutil
import signal
import socketserver
import threading

import pytest

from seccomp import refuse
from world.run import finish
from world.sidecar import wait_for

CONNECT = "import socket, sys\nfor name in sys.argv[1:]:\n try: socket.create_connection((name, 7007), 20).close(); print('ok')\n" \
          " except OSError as e: print(type(e).__name__)\n"


class Planted(http.server.BaseHTTPRequestHandler):
    """Says that everything is in force."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"] or 0))  # who closes before that resets
        body = b'{"status": "ok", "mode": "deny_all"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self):
        return "unix"

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def serving(server):
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()


def test_what_is_allowed_is_reached_and_the_rest_is_refused_and_said(world, sdk, user, site, denied):
    """The capture outside counts what arrived; the allowed name is the control."""
    with world.capture() as capture:
        [[code, out, refused], [same, again]] = sdk(f"""
words = [sys.executable, "-c", {CONNECT!r}, {site.name!r}, {denied.name!r}]
r = weir.run(words, allow=[{site.name + ':7007,raw'!r}], upstream=upstream)
say(r.returncode, r.stdout, [(x.name, x.action, x.allow, str(x)) for x in r.refused])
a = asyncio.run(aio.run(words, policy=weir.NetworkPolicy(egress=[weir.EgressRule("allow", {site.name!r}, ports=[7007], raw=True)]),
                        upstream=upstream))
say(a.stdout, [x.name for x in a.refused])
""", user=user)
        arrived = {p.dst for p in capture.packets()}
    assert (code, out) == (0, "ok\ngaierror\n") and (same, again) == (out, [denied.name])
    assert refused == [[denied.name, "deny", refused[0][2], f"{denied.name} (no rule allows it)"]]
    assert refused[0][2].startswith(denied.name)
    assert {site.v4, site.v6} & arrived and not {denied.v4, denied.v6} & arrived


def test_how_a_command_ends_is_as_subprocess_has_it(sdk, denied):
    said = sdk(f"""
say(weir.run(["sh", "-c", "echo out; echo err >&2; exit 3"]).returncode, weir.run(["cat"], input="x").stdout)
r = weir.run(["sh", "-c", "kill -TERM $$"]); say(r.returncode, r.report["signal"])
look = ["sh", "-c", "getent hosts {denied.name} || exit 4"]
for words, more in ((look, {{}}), (["sh", "-c", "exit 4"], {{}}), (["sh", "-c", "getent hosts {denied.name}; exit 0"], {{"fail_on_deny": True}})):
    try:
        weir.run(words, check=True, upstream=upstream, **more)
    except subprocess.CalledProcessError as error:
        say(type(error).__name__, error.returncode, [x.name for x in getattr(error, "refused", [])])
def out_of_time(*words, **more):
    for seconds in (0.7, 5, 40):  # a slow machine may need more to begin
        try:
            weir.run(["sh", "-c", *words], timeout=seconds, **more)
        except subprocess.TimeoutExpired as error:
            if error.stdout or seconds == 40:
                return error
error = out_of_time("trap '' TERM; echo begun; sleep 60")
say(error.stdout.decode(), error.result.returncode)
error = out_of_time("getent hosts {denied.name}; echo begun; sleep 60", upstream=upstream)
say(error.stdout.decode(), [x.name for x in error.result.refused])
""")
    assert said == [[3, "x"], [-15, 15], ["Refused", 4, [denied.name]], ["CalledProcessError", 4, []], ["Refused", 123, [denied.name]],
                    ["begun\n", -9], ["begun\n", [denied.name]]]


@pytest.mark.parametrize("words", ["policy={'egress': [{'action': 'perhaps', 'target': 'a.test'}, {'action': 'allow', 'target': 'b..c'}]}",
                                   "allow=['a..b', 'c..d']", "policy='/nowhere.yaml'", "profile='nothing'"])
def test_bad_input_starts_nothing_and_names_each_fault(sdk, world, words):
    folder = world.workdir()
    [[faults]] = sdk(f"try:\n weir.run(['touch', 'begun'], {words})\nexcept weir.InputError as error:\n say(error.faults)", cwd=folder)
    assert len([f for f in faults if f]) >= (2 if ".." in words else 1) and not list(folder.iterdir())


@pytest.mark.parametrize("without", ["netfilter", "namespaces"])
def test_nothing_runs_where_it_cannot_be_guarded(sdk, world, user, without):
    """The kernel refuses weir what a filter takes, as where its module or the right to it is missing."""
    folder = world.workdir(user)
    code = "for run in (weir.run, lambda words: asyncio.run(aio.run(words))):\n try:\n  run(['touch', 'begun'])\n" \
           " except weir.EgressSetupError as error:\n  say(error.status, error.reason)"
    for status, reason in sdk(refuse(without) + code, cwd=folder, user=user):
        assert status == "failed_safety_setup" and reason and not list(folder.iterdir())


def test_a_process_under_way_streams_and_takes_another_policy(sdk, site, denied):
    [[first], [before, mode], [second], [after]] = sdk(f"""
words = [sys.executable, "-uc", "import socket\\nwhile True:\\n name = input()\\n try: socket.getaddrinfo(name, 1); print('found')\\n except OSError: print('none')"]
with weir.Popen(words, allow=[{site.name!r}], upstream=upstream, stdin=-1, stdout=-1, stderr=-1) as p:
    def ask(name):
        p.stdin.write(name.encode() + b"\\n"); p.stdin.flush()
        return p.stdout.readline().decode().strip()
    say([ask({site.name!r}), ask({denied.name!r})])
    say([r.target for r in p.policy().egress], p.client.patch_policy([weir.EgressRule("allow", {denied.name!r}), weir.EgressRule("deny", {site.name!r})])["status"])
    say([ask({site.name!r}), ask({denied.name!r})])
    p.terminate(); p.communicate()
    say([x.name for x in p.refused()])
""")
    assert first == ["found", "none"] and second == ["none", "found"]
    assert before == [site.name] and mode == "ok" and after == [denied.name, site.name]


ASKING = "weir-asks"  # whose runs' directory no other test looks at


@pytest.mark.parametrize("whose, mode", [("root", 0o755), (ASKING, 0o755), (ASKING, 0o700)])
def test_a_run_is_asked_in_a_directory_of_the_callers_own_alone(sdk, world, whose, mode):
    """Whoever else may make a socket there would say that a policy is in force. The last row is the control: it is asked."""
    caller, owner = world.user(ASKING), world.user(whose)
    folder = pathlib.Path(f"/tmp/weir-{caller.uid}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    folder.chmod(mode)
    os.chown(folder, owner.uid, owner.gid)
    server = socketserver.UnixStreamServer(str(folder / "mine.sock"), Planted)
    os.chmod(folder / "mine.sock", 0o777)
    try:
        with serving(server):
            [[said]] = sdk("""
from weir.client import RunServer, SandboxClient
try:
    say(SandboxClient(RunServer("mine"), "mine").set_policy(None)["status"])
except weir.ApiError as error:
    say(error.http_status)
""", user=ASKING)
    finally:
        server.server_close()
        shutil.rmtree(folder)
    assert said == ("ok" if mode == 0o700 else 0)


def test_what_is_cancelled_has_ended(sdk, world):
    folder = world.workdir()
    [[error, ended]] = sdk(f"""
async def main():
    task = asyncio.ensure_future(aio.run(["sh", "-c", "echo $$ > begun; sleep 600"], rw=["{folder}"]))
    while not os.path.exists("begun"):
        await asyncio.sleep(0.02)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        say("CancelledError", subprocess.run(["pgrep", "-P", str(os.getpid()), "weir"], capture_output=True).stdout.decode())
asyncio.run(main())
""", cwd=folder)
    assert (error, ended) == ("CancelledError", "") and world.leftovers() == []


def runs_of(world):
    return [pid for pid in world.processes() if "--end-with" in world.describe(pid)[1]]


@pytest.mark.parametrize("end, user, trap", [(signal.SIGKILL, "root", "trap '' TERM;"), (signal.SIGKILL, "weir-test", ""),
                                             (signal.SIGTERM, "weir-test", ""), (signal.SIGINT, "root", "")])
def test_no_run_outlives_its_caller(sdk, world, end, user, trap):
    """Whatever ends the caller, and a command that takes no SIGTERM; nothing of it is left."""
    temporary = world.workdir(user)
    started = sdk.start(f"""
with weir.Popen(["sh", "-c", "{trap} echo begun; while :; do sleep 1; done"], stdout=-1) as p:
    say(p.stdout.readline().decode())
    p.wait()
""", user=user, env={"TMPDIR": str(temporary)})
    assert started.line() == '["begun\\n"]'
    assert runs_of(world)
    os.kill(started.pid, end)
    finish(started)
    wait_for(lambda: not runs_of(world))
    assert world.leftovers() == [] and os.listdir(temporary) == []


def test_a_run_ends_with_its_parent_alone(world):
    """`weir run --end-with` of somebody else's number is an error, and nothing is started."""
    done = world.weir("run", "--no-config", "--end-with", "1", "--", "true")
    assert done.code == 125 and "process 1 is not the parent" in done.messages, done
    assert world.weir("run", "--no-config", "--end-with", "0", "--", "true").code == 2


def test_a_thread_that_ends_ends_no_run(sdk):
    """Of all threads the process counts."""
    assert sdk("""
import threading
made = []
t = threading.Thread(target=lambda: made.append(weir.Popen(["sh", "-c", "read line; echo $line"], stdin=-1, stdout=-1, stderr=-1)))
t.start(); t.join(); time.sleep(0.3)
with made[0] as p:
    say(p.communicate(b"still here\\n")[0].decode())
""") == [["still here\n"]]


def test_options_of_the_caller_do_not_widen_a_call(sdk, world, denied):
    """Variables and configuration of the command line mean nothing to a call, unless it asks for them."""
    home = world.workdir()
    (home / ".config/weir").mkdir(parents=True)
    (home / ".config/weir/config.yaml").write_text("verify: dns\n")
    code = "for more in ({}, {'config': True}):\n say(weir.run(['true'], upstream=upstream, **more).report['policy'])"
    [[first], [second]] = sdk(code, env={"WEIR_ALLOW": denied.name, "HOME": str(home), "WEIR_DENY": "x.test"})
    assert (first["rules"], first["verify"]) == (0, "tls") and second["rules"] > 0
