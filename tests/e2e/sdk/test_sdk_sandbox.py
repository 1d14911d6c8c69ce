# SPDX-License-Identifier: Apache-2.0
"""weir.Sandbox.create with a real Docker Engine and podman: the proposal's example, changes while it runs, and nothing left."""
import json
import subprocess

import pytest

from world.engine_api import KINDS, ApiEngine


class Programs:
    """Programs with the package, on the engine's host."""

    def __init__(self, sdk, engine):
        self.sdk, self.engine = sdk, engine
        self.env = {**engine.variables, **sdk.environment()}
        mounts = ["/usr:/usr:ro", "/etc/alternatives:/etc/alternatives:ro", f"{sdk.world.tools}:/tools:ro"]
        self.head = "from weir import EgressRule, NetworkPolicy, Sandbox\n" \
                    f"how = dict(image='app:test', volumes={mounts!r}, engine={engine.kind!r}, guard='sidecar')\n"

    def start(self, code):
        return subprocess.Popen(self.engine.host.ns.command(*self.sdk.argv(self.head + code)), env=self.env, cwd="/",
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __call__(self, code):
        process = self.start(code)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0 and b"Warning" not in err, err.decode()
        return [json.loads(line) for line in out.decode().splitlines()]


@pytest.fixture(scope="module", params=KINDS)
def programs(request, world, sdk):
    if not KINDS[request.param].client_programs():
        pytest.skip(f"no {request.param} here")
    with ApiEngine(world, request.param) as engine:
        yield Programs(sdk, engine)


LOOK = "import socket, sys\nfor place in sys.argv[1:]:\n host, port = place.rsplit(':', 1)\n try:\n  socket.create_connection((host, int(port)), 20).close()" \
       "; print('ok')\n except OSError as e: print(type(e).__name__)\n"


def test_the_example_as_it_stands(world, programs):
    """A name, a wildcard, an address and a CIDR are reached; nothing else is, neither DoH nor raw addresses."""
    api, sub, other = world.site("api.github.com"), world.site("files.pkg.example"), world.site(f"other-{world.number()}.test")
    doh = world.site("dns.google")
    address, block = world.address(), world.address()
    before = len(programs.engine.host.packets())
    [[identity, code, out], [denied], [default, first], [seen, again], [mode]] = programs(f"""
look = lambda *places: ["/usr/bin/python3", "-c", {LOOK!r}, *places]
async def main():
    sandbox = await Sandbox.create(network_policy=NetworkPolicy(
        egress=[EgressRule(action="allow", target="api.github.com"), EgressRule(action="allow", target="*.pkg.example"),
                EgressRule(action="allow", target="{address}"), EgressRule(action="allow", target="{block}/32")],
        defaultAction="deny", require_full_isolation=False, verify="dns"), **how)
    async with sandbox:
        r = await sandbox.run(look("api.github.com:7007", "files.pkg.example:7007", "{address}:7007", "{block}:7007",
                                   "{other.name}:7007", "dns.google:443", "{other.v4}:7007", "8.8.8.8:853"))
        say(sandbox.id, r.returncode, r.stdout.split())
        events = sandbox.events()
        waiting = asyncio.ensure_future(events.__anext__())
        say(sorted(d["name"] or d["remote_ip"] for d in (await sandbox.denies())["denies"]))
        policy = await sandbox.policy()
        say(policy.defaultAction, policy.egress[0].target)
        await sandbox.patch_policy([EgressRule("allow", "{other.name}")])
        r = await sandbox.run(look("{other.name}:7007", "nothing.example:1"))
        say(r.stdout.split(), (await waiting).action)
        await events.aclose()
        say((await sandbox.status())["policyMode"])
asyncio.run(main())
""")
    assert code == 0 and out[:4] == ["ok"] * 4 and "ok" not in out[4:] and len(out) == 8, out
    assert {other.name, "dns.google", other.v4, "8.8.8.8"} <= set(denied)
    assert (default, first, seen[0], seen[1] != "ok", mode) == ("deny", "api.github.com", "ok", True, "enforcing") and again in ("allow", "deny", "change")
    gone_to = {p.dst for p in programs.engine.host.packets()[before:]}
    assert {api.v4, address, block} <= gone_to and not {doh.v4, "8.8.8.8"} & gone_to and sub.v4 in gone_to and identity
    programs.engine.nothing_left()


@pytest.mark.parametrize("programs", ["docker"], indirect=True)
def test_plain_streams_status_and_a_server_on_loopback(programs):
    """What a notebook's server does: it listens on loopback, and its pages come from there."""
    serve = "import http.server, threading, urllib.request as u\ns = http.server.HTTPServer(('127.0.0.1', 8888), http.server.SimpleHTTPRequestHandler)\n" \
            "threading.Thread(target=s.serve_forever, daemon=True).start()\nprint(u.urlopen('http://127.0.0.1:8888/').status)"
    [[code, out, err], [status], [said], [error]] = programs(f"""
with Sandbox.create(**how) as sandbox:
    r = sandbox.run(["/bin/sh", "-c", "echo out; echo err >&2; exit 3"])
    say(r.returncode, r.stdout, r.stderr)
    say(sandbox.run(["/usr/bin/python3", "-c", {serve!r}], workdir="/tmp").stdout)
    say([r.target for r in sandbox.policy().egress])
    try:
        sandbox.run(["/bin/false"], check=True)
    except subprocess.CalledProcessError as error:
        say(error.returncode)
""")
    assert (code, out, err, status, said, error) == (3, "out\n", "err\n", "200\n", [], 1)
    programs.engine.nothing_left()


@pytest.mark.parametrize("programs", ["docker"], indirect=True)
def test_faults_come_before_anything_starts(programs):
    [[faults], [reason]] = programs("""
try:
    Sandbox.create(network_policy=NetworkPolicy(egress=[EgressRule("perhaps", "a.test"), EgressRule("allow", "b..c")]), **how)
except weir.InputError as error:
    say(error.faults)
try:
    Sandbox.create(**{**how, "image": "not-there:1"})
except weir.EgressSetupError as error:
    say(error.reason)
""")
    assert len(faults) == 2 and "not-there" in reason
    assert not programs.engine.containers()


@pytest.mark.parametrize("end", ["raise RuntimeError('x')", "os.kill(os.getpid(), 9)"])
def test_nothing_is_left_of_it(programs, end):
    process = programs.start(f"with Sandbox.create(**how) as sandbox:\n say(sandbox.run(['/bin/echo', 'runs']).stdout)\n {end}\n")
    out, _ = process.communicate(timeout=120)
    assert out == b'["runs\\n"]\n' and process.returncode != 0
    programs.engine.nothing_left()


def test_without_an_engine_it_says_so(sdk):
    [[kind, reason]] = sdk("try:\n weir.Sandbox.create('app:test')\nexcept weir.WeirError as error:\n say(type(error).__name__, str(error))",
                           env={"DOCKER_HOST": "unix:///nowhere.sock", "CONTAINER_HOST": "unix:///nowhere.sock"})
    assert kind == "EgressSetupError" and "nowhere.sock" in reason


@pytest.mark.parametrize("programs", ["docker"], indirect=True)
def test_the_end_of_the_output_is_not_the_end_of_the_command(programs):
    """A variable that names a daemon doesn't count for a sidecar. What goes on past the timeout is the control."""
    [[status], [late]] = programs("""
os.environ["WEIR_SOCKET"] = "/nowhere.sock"
with Sandbox.create(**how) as sandbox:
    say(sandbox.run(["/bin/sh", "-c", "exec >/dev/null 2>&1; sleep 0.5; exit 3"]).returncode)
    try:
        sandbox.run(["/bin/sh", "-c", "exec >/dev/null 2>&1; sleep 600"], timeout=0.2)
    except subprocess.TimeoutExpired as error:
        say(error.timeout)
""")
    assert (status, late) == (3, 0.2)
    programs.engine.nothing_left()


# The wait says when it has begun, and begins its last part over and over: there it is interrupted.
HELD = """
import threading, _thread
begun, wait = threading.Event(), Sandbox._wait
Sandbox._wait = lambda self: (begun.set(), wait(self))
Sandbox._is_started = lambda *_: False
left = lambda: subprocess.run(["/bin/ps", "-o", "comm=", "--ppid", str(os.getpid())], stdout=subprocess.PIPE, text=True).stdout.split()
"""
PLAIN = """
threading.Thread(target=lambda: (begun.wait(), _thread.interrupt_main())).start()
try:
    Sandbox.create(**how)
except KeyboardInterrupt:
    say(left())
"""
CANCELLED = """
async def main():
    task = asyncio.ensure_future(Sandbox.create(**how)._made())
    await aio.in_thread(begun.wait)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        say(left())
asyncio.run(main())
"""


@pytest.mark.parametrize("programs", ["docker"], indirect=True)
@pytest.mark.parametrize("code", [PLAIN, CANCELLED], ids=["plain", "asyncio"])
def test_an_interrupted_start_leaves_nothing(programs, code):
    """Once the interruption arrives, what was started has ended: the only child is the ps that looks."""
    assert programs(HELD + code) == [[["ps"]]]
    programs.engine.nothing_left()
