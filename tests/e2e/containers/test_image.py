# SPDX-License-Identifier: Apache-2.0
"""The image under a real Docker Engine: sidecar and app as a platform runs them."""
import contextlib
import http.client
import json
import os
import re
import shlex
import shutil
import socket
import subprocess

import pytest

from world import expect
from world.built import PROGRAMS, ROOT
from world.docker import Engine, client_programs
from world.sidecar import policy, request, wait_for
from world.world import RESOLVER4

pytestmark = pytest.mark.skipif(not client_programs(), reason="no Docker Engine here")
GUARDED = ("--cap-drop", "ALL", "--cap-add", "NET_ADMIN", "--read-only")
TOKEN = "tok-en"
ECHO = ("import socket\ns=socket.create_server(('',7007))\nwhile True:\n c=s.accept()[0]\n c.sendall(c.recv(9))\n"
        " c.close()\n")


@pytest.fixture(scope="module")
def engine(world):
    with Engine(world) as e:
        yield e


def staged(world, folder, *options):
    """A build context with the root of the image, from the programs under test."""
    context = folder / f"context{world.number()}"
    context.mkdir()
    subprocess.run([ROOT / "deploy/docker/rootfs", *options, "--tar", context / "root.tar", PROGRAMS, context / "root"],
                   check=True, capture_output=True)
    shutil.rmtree(context / "root")
    return context


@pytest.fixture(scope="module")
def image(engine, world):
    return engine.build("weir:test", staged(world, engine.folder), ROOT / "deploy/docker/Dockerfile.staged")


@pytest.fixture(scope="module")
def compatible(engine, world):
    """The variant with OpenSandbox's paths, and dig, which its smoke tests exec."""
    return engine.build("opensandbox/egress:local", staged(world, engine.folder, "--variant", "opensandbox", "--debug"),
                        ROOT / "deploy/docker/Dockerfile.staged")


@pytest.fixture
def side(engine, image):
    """Start the sidecar's container, healthy: side("allow a.test", options=…). Return: its name."""
    names = []

    def start(*rules, default="deny", options=GUARDED, env=None, ready=True, network="bridge", args=()):
        name = f"side{engine.world.number()}"
        names.append(name)
        settings = {"OPENSANDBOX_EGRESS_RULES": policy(*rules, default=default), "OPENSANDBOX_EGRESS_TOKEN": TOKEN,
                    **(env or {})}
        engine("run", "--detach", "--name", name, "--network", network, *options,
               *[w for k, v in settings.items() for w in ("-e", f"{k}={v}")], image, *args)
        if ready:
            engine.ready(name)
        return name
    yield start
    engine.remove(*names)


def app_of(engine, name, *options):
    return engine.container("--network", f"container:{name}", "--user", "1000", "--cap-drop", "ALL", *options,
                            *engine.app_mounts, engine.app, "/bin/sleep", "600")


def outside(engine, address):
    """Packets that left the engine's host for @address."""
    return [p for p in engine.host.packets() if p.dst == address]


def ended(engine, name):
    """How a container ended, and what it said. Return: (code, text)."""
    code = int(engine("wait", name))
    logs = engine.call("logs", name)
    return code, logs.text + logs.messages


def test_the_app_reaches_what_is_listed_and_nothing_else(engine, side, site, denied):
    name = side(f"allow {site.name}")
    good, lookup, bad, direct = engine.probe(f"container:{name}", ["connect", site.name, 7007], ["dns", denied.name,
                                             {"server": "8.8.8.8"}], ["tcp", "93.9.9.9", 443], ["tcp", denied.v4, 443])
    assert good.result == "ok" and lookup.result == "NXDOMAIN"
    expect.tcp_refused(bad)
    expect.tcp_refused(direct)
    assert outside(engine, "93.9.9.9") == outside(engine, denied.v4) == outside(engine, "8.8.8.8") == []


def test_it_runs_as_nobody_in_particular_on_a_read_only_root(engine, side):
    name = side()
    top = engine("top", name, "-eo", "pid,uid,comm")
    assert {line.split()[1] for line in top.splitlines()[1:]} == {"65532"}, top
    found = engine.inspect(name)
    assert found["HostConfig"]["ReadonlyRootfs"] and found["Config"]["User"] == "65532:65532"
    wait_for(lambda: engine.inspect(name)["State"]["Health"]["Status"] == "healthy", step=0.1)


@pytest.mark.parametrize("who", [("--user", "0"), ("--user", "0", "--security-opt", "no-new-privileges"),
                                 ("--user", "4321")], ids=["root", "root, no new privileges", "another"])
def test_other_users_do_as_well(engine, side, site, who):
    name = side(f"allow {site.name}", options=(*GUARDED, *who))
    good, bad = engine.probe(f"container:{name}", ["connect", site.name, 7007], ["tcp", "93.9.9.9", 443])
    assert good.result == "ok"
    expect.tcp_refused(bad)


def test_no_new_privileges_for_an_ordinary_user_says_so(engine, side):
    name = side(options=(*GUARDED, "--security-opt", "no-new-privileges"), ready=False)
    code, text = ended(engine, name)
    assert code != 0 and "NET_ADMIN" in text, text


def test_without_the_capability_it_says_so(engine, side):
    name = side(options=("--cap-drop", "ALL"), ready=False)
    code, text = ended(engine, name)
    assert code != 0 and "NET_ADMIN" in text, text


def test_without_the_capability_open_can_be_spelled(engine, side):
    name = side(options=("--cap-drop", "ALL"), env={"WEIR_ON_UNENFORCEABLE": "open"})
    assert engine.api(name, "GET", "/status", token=TOKEN).json()["mode"] == "disabled"


def test_the_hosts_network_is_refused(engine, side):
    """Not the machine's first namespace, but the engine's: bridges and others' tables tell."""
    name = side(network="host", ready=False)
    code, text = ended(engine, name)
    assert code != 0 and "host" in text and "network" in text, text
    assert "opensandbox" not in engine.host.nft("list", "tables")


APPS = {"docker's defaults": (("--user", "0"), ()), "root without anything": (("--user", "0", "--cap-drop", "ALL"), ()),
        "root with NET_RAW": (("--user", "0", "--cap-drop", "ALL", "--cap-add", "NET_RAW"), ()),
        "a user": (("--user", "1000", "--cap-drop", "ALL"), ())}


@pytest.mark.parametrize("who", APPS)
def test_whoever_the_app_is(engine, side, site, denied, who):
    name = side(f"allow {site.name}")
    answers = engine.probe(f"container:{name}", ["connect", site.name, 7007], ["tcp", denied.v4, 443],
                           ["udp", denied.v4, 443], ["dns", denied.name, {"server": "8.8.8.8"}],
                           ["dns", denied.name, {"server": RESOLVER4, "transport": "tcp"}],
                           ["with_option", 1, 36, 1, denied.v4, 443, "SOCK_STREAM"], options=APPS[who][0])
    assert answers[0].result == "ok"
    expect.tcp_refused(answers[1])
    assert [a.result for a in answers[3:5]] == ["NXDOMAIN"] * 2 and answers[5].result != "ok"
    assert outside(engine, denied.v4) == outside(engine, "8.8.8.8") == []


@pytest.mark.parametrize("how", [("stop", "-t", "5"), ("kill", "-s", "KILL"), ("rm", "-f")], ids=lambda h: h[0])
def test_after_its_end_the_app_stays_shut(engine, side, site, how):
    name = side(f"allow {site.name}")
    with app_of(engine, name) as app:
        assert engine.exec_probe(app, ["connect", site.name, 7007]).result == "ok"
        engine(*how, name)
        # Docker takes the link away as well; what counts is that nothing is open
        four, dns = engine.exec_probe(app, ["tcp", "93.9.9.9", 443], ["udp", "8.8.8.8", 53, "leak"])
        assert four.result != "ok" and four.ms < expect.FAST_MS and dns.result != "ok"
        # started again it has another namespace: the app has to be made anew
        if how[0] == "kill":
            engine("start", name)
            engine.ready(name)
            assert engine.exec_probe(app, ["tcp", "93.9.9.9", 443]).result != "ok"
        assert outside(engine, "93.9.9.9") == outside(engine, "8.8.8.8") == []


def test_stop_is_quick_and_clean(engine, side):
    name = side()
    engine("stop", "-t", "60", name)
    assert engine.inspect(name)["State"]["ExitCode"] == 0


def test_a_pause_opens_nothing_and_goes_over(engine, side, site):
    name = side(f"allow {site.name}")
    with app_of(engine, name) as app:
        engine("pause", name)
        bad, dns = engine.exec_probe(app, ["tcp", "93.9.9.9", 443], ["udp", "8.8.8.8", 53, "leak"])
        expect.tcp_refused(bad)
        engine("unpause", name)
        assert engine.exec_probe(app, ["connect", site.name, 7007]).result == "ok"
    assert outside(engine, "93.9.9.9") == outside(engine, "8.8.8.8") == []


def test_its_own_processes_are_replaced_inside_the_container(engine, side, site):
    name = side(f"allow {site.name}")
    with app_of(engine, name) as app:
        for _ in range(3):
            pids = [int(line.split()[0]) for line in engine("top", name, "-eo", "pid,ppid").splitlines()[1:]]
            supervisor = engine.inspect(name)["State"]["Pid"]
            for pid in pids:
                if pid != supervisor:
                    with contextlib.suppress(ProcessLookupError):  # it ends with its parent
                        os.kill(pid, 9)
            expect.tcp_refused(engine.exec_probe(app, ["tcp", "93.9.9.9", 443]))
            engine.ready(name)
            assert engine.exec_probe(app, ["connect", site.name, 7007]).result == "ok"


# as OpenSandbox's server and SDK do it

def server_creates(engine, image, rules, mode="dns+nft", extra=()):
    """The container that its server makes: no command, no user, default capabilities and NET_ADMIN."""
    name = f"sandbox-egress-{engine.world.number()}"
    engine("run", "--detach", "--name", name, "--network", "bridge", "--cap-add", "NET_ADMIN",
           "--label", "opensandbox.io/egress-sidecar-for=x", "-p", "0.0.0.0::44772", "-p", "0.0.0.0::8080",
           "-p", "0.0.0.0::18080", "-e", f"OPENSANDBOX_EGRESS_RULES={rules}", "-e", f"OPENSANDBOX_EGRESS_MODE={mode}",
           "-e", f"OPENSANDBOX_EGRESS_TOKEN={TOKEN}", *extra, image)
    return name


@pytest.mark.parametrize("mode", ["dns", "dns+nft"])
@pytest.mark.parametrize("ipv6", [True, False], ids=["IPv6", "no IPv6"])
def test_S_the_calls_of_opensandbox(engine, compatible, site, denied, world, mode, ipv6):
    off = [] if ipv6 else [w for n in ("all", "default", "lo") for w in ("--sysctl", f"net.ipv6.conf.{n}.disable_ipv6=1")]
    name = server_creates(engine, compatible, policy(f"allow {site.name}"), mode, off)
    host = engine.host.ns

    def call(method, body=None, path="/policy", token=TOKEN):
        headers = {"OPENSANDBOX-EGRESS-AUTH": token, "X-Forwarded-For": "1.2.3.4", "X-Forwarded-Proto": "http"}
        return request(host, engine.published(name), method, path, body and json.dumps(body), headers)

    def polled():
        try:
            return call("GET", path="/healthz").status == 200
        except OSError:
            return False
    try:
        wait_for(polled, step=0.05)
        drops = ("--cap-drop", "NET_ADMIN", "--cap-drop", "NET_RAW", "--cap-drop", "SYS_ADMIN", "--cap-drop", "SYS_PTRACE")
        with engine.container("--network", f"container:{name}", *drops, *engine.app_mounts, engine.app,
                              "/bin/sleep", "600") as app:
            good, bad = engine.exec_probe(app, ["connect", site.name, 7007], ["lookup", denied.name])
            assert good.result == "ok"
            expect.lookup_refused(bad)
            got = call("GET").json()
            assert got["policy"] == {"egress": [{"action": "allow", "target": site.name}], "defaultAction": "deny"}
            assert got["enforcementMode"] == mode and got["mode"] == "enforcing"
            assert call("PATCH", [{"action": "allow", "target": denied.name},
                                  {"action": "deny", "target": site.name}]).status == 200
            bad, good = engine.exec_probe(app, ["lookup", site.name], ["connect", denied.name, 7007])
            assert good.result == "ok"
            expect.lookup_refused(bad)
            assert call("DELETE", [denied.name, "nonexistent.test"]).status == 200
            again = call("DELETE", [denied.name])
            assert again.status == 200 and "no matching targets found" in again.text
            assert call("GET").json()["policy"]["defaultAction"] == "deny"
            expect.lookup_refused(engine.exec_probe(app, ["lookup", denied.name]))
            assert call("GET", token="wrong").status == 401
    finally:
        engine.remove(name)


class Api:
    """Docker's API as OpenSandbox's server calls it."""

    def __init__(self, engine):
        self.engine = engine

    def __call__(self, method, path, body=None, status=(200, 201, 204)):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(60)
            sock.connect(str(self.engine.socket))
            connection = http.client.HTTPConnection("docker")
            connection.sock = sock
            connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            data = answer.read()
        assert answer.status in status, (method, path, data)
        return json.loads(data) if data else None


def test_S_the_servers_calls_in_their_order(engine, compatible, site, denied):
    """Create, start, health, the app's container, POST of the policy, patch, delete, restart, remove: by the engine's API."""
    api, host, name = Api(engine), engine.host.ns, f"sandbox-egress-{engine.world.number()}"
    ports = ("44772/tcp", "8080/tcp", "18080/tcp")
    side = api("POST", f"/containers/create?name={name}", {
        "Image": compatible, "Labels": {"opensandbox.io/egress-sidecar-for": "x"}, "ExposedPorts": {p: {} for p in ports},
        "Env": [f"OPENSANDBOX_EGRESS_RULES={policy(f'allow {site.name}')}", "OPENSANDBOX_EGRESS_MODE=dns+nft",
                f"OPENSANDBOX_EGRESS_TOKEN={TOKEN}"],
        "HostConfig": {"NetworkMode": "bridge", "CapAdd": ["NET_ADMIN"], "PortBindings": {p: [{"HostIp": "0.0.0.0", "HostPort": ""}] for p in ports},
                       "Sysctls": {f"net.ipv6.conf.{n}.disable_ipv6": "1" for n in ("all", "default", "lo")}}})["Id"]

    def call(method, body=None, path="/policy"):
        return request(host, engine.published(side), method, path, body and json.dumps(body), {"OPENSANDBOX-EGRESS-AUTH": TOKEN})

    def healthy():
        with contextlib.suppress(OSError):
            return call("GET", path="/healthz").status == 200

    def reached():
        """Of the two names, as the app finds them."""
        return [engine.exec_probe(app, ["lookup", n]).result == "ok" for n in (site.name, denied.name)]
    app = None
    try:
        api("POST", f"/containers/{side}/start")
        wait_for(healthy, step=0.05)
        binds = [f"{a}:{b}:ro" for a, b in (w.split(":")[:2] for w in engine.app_mounts[1::2])]
        app = api("POST", f"/containers/create?name={name}-app", {
            "Image": engine.app, "Cmd": ["/bin/sleep", "600"], "Labels": {"opensandbox.io/egress-auth-token": TOKEN},
            "HostConfig": {"NetworkMode": f"container:{side}", "Binds": binds,
                           "CapDrop": ["NET_ADMIN", "NET_RAW", "SYS_ADMIN", "SYS_PTRACE"]}})["Id"]
        api("POST", f"/containers/{app}/start")
        assert reached() == [True, False]
        assert call("POST", {"defaultAction": "deny", "egress": [{"action": "allow", "target": denied.name}]}).status == 200
        assert reached() == [False, True]
        assert call("PATCH", [{"action": "allow", "target": site.name}]).status == 200
        assert reached() == [True, True]
        assert call("DELETE", [denied.name]).status == 200
        assert reached() == [True, False]
        # started again it is as it was created; the app joins its new namespace when it is started again
        api("POST", f"/containers/{side}/restart?t=5")
        wait_for(healthy, step=0.05)
        assert call("GET").json()["policy"]["egress"] == [{"action": "allow", "target": site.name}]
        api("POST", f"/containers/{app}/restart?t=0")
        assert reached() == [True, False]
        assert call("PATCH", [{"action": "deny", "target": site.name}]).status == 200
        assert reached() == [False, False]
    finally:
        for container in filter(None, (app, side)):
            api("DELETE", f"/containers/{container}?force=1&v=1")


def test_the_compatible_variant_has_what_smoke_tests_exec(engine, compatible, site, denied):
    name = server_creates(engine, compatible, policy(f"allow {site.name}"))
    try:
        engine.ready(name)
        assert site.v4 in engine("exec", name, "dig", "+short", "+time=20", site.name)
        assert "NXDOMAIN" in engine("exec", name, "dig", "+time=20", denied.name)
        engine("exec", name, "ls", "/opt/opensandbox-egress/egress", "/opt/opensandbox-egress/supervisor",
               "/opt/opensandbox-egress/cleanup.sh", "/egress", "/var/egress/rules")
        assert "chain egress" in engine("exec", "--user", "0", name, "nft", "list", "table", "inet", "opensandbox")
    finally:
        engine.remove(name)


@pytest.mark.parametrize("entry", [["/opt/opensandbox-egress/egress"], ["/egress"],
                                   ["/opt/opensandbox-egress/supervisor",
                                    "--pre-start=/opt/opensandbox-egress/cleanup.sh", "--name=egress",
                                    "--grace-period=20s", "--", "/opt/opensandbox-egress/egress"]], ids=lambda e: e[0])
def test_whoever_names_the_old_programs_gets_weir(engine, compatible, site, entry):
    with engine.container("--cap-add", "NET_ADMIN", "--entrypoint", entry[0], "-e",
                          f"OPENSANDBOX_EGRESS_RULES={policy(f'allow {site.name}')}", compatible, *entry[1:]) as name:
        engine.ready(name)
        good, bad = engine.probe(f"container:{name}", ["connect", site.name, 7007], ["tcp", "93.9.9.9", 443])
        assert good.result == "ok"
        expect.tcp_refused(bad)


def test_the_old_cleanup_opens_nothing(engine, compatible, site):
    name = server_creates(engine, compatible, policy(f"allow {site.name}"))
    try:
        engine.ready(name)
        engine("exec", name, "/opt/opensandbox-egress/cleanup.sh")
        expect.tcp_refused(engine.probe(f"container:{name}", ["tcp", "93.9.9.9", 443]))
    finally:
        engine.remove(name)


def test_a_policy_file_that_is_mounted_is_kept(engine, side, world, site):
    folder = world.workdir()
    (folder / "policy.json").write_text(policy("allow file.test"))
    for path in (folder, folder / "policy.json"):
        os.chown(path, 65532, 65532)
    name = side(options=(*GUARDED, "-v", f"{folder}/policy.json:/etc/egress.json"),
                env={"OPENSANDBOX_EGRESS_POLICY_FILE": "/etc/egress.json"})
    assert engine.api(name, "PATCH", "/policy", [{"action": "allow", "target": site.name}], TOKEN).status == 200
    kept = json.loads((folder / "policy.json").read_text())
    assert [r["target"] for r in kept["egress"]] == [site.name, "file.test"]
    assert engine.probe(f"container:{name}", ["connect", site.name, 7007]).result == "ok"


def test_the_webhook_works_in_the_image(engine, side, hook, denied):
    name = side(env={"OPENSANDBOX_EGRESS_DENY_WEBHOOK": hook.url, "OPENSANDBOX_EGRESS_SANDBOX_ID": "in-docker"})
    engine.probe(f"container:{name}", ["dns", denied.name])
    wait_for(lambda: hook.calls)
    assert hook.calls[0][2]["hostname"] == denied.name and hook.calls[0][2]["sandboxId"] == "in-docker"


# networks with a resolver of their own

def test_dockers_resolver_answers_the_sidecar_alone(engine, side, site, denied):
    network = f"n{engine.world.number()}"
    engine("network", "create", network)
    name = None
    try:
        name = side(f"allow {site.name}", network=network, env={"OPENSANDBOX_EGRESS_DNS_UPSTREAM": RESOLVER4})
        with app_of(engine, name) as app:
            config = engine.exec_probe(app, ["read", "/etc/resolv.conf"]).data
            good, bad, ports = engine.exec_probe(app, ["connect", site.name, 7007],
                                                 ["dns", denied.name, {"server": "127.0.0.11"}],
                                                 ["read", "/proc/net/udp"])
            assert good.result == "ok" and bad.result == "NXDOMAIN" and "127.0.0.11" in config
            found = [int(m, 16) for m in re.findall(r": 0B00007F:([0-9A-F]{4}) ", ports.data)]
            assert found, ports.data
            for port in found:
                assert engine.exec_probe(app, ["dns", denied.name, {"server": "127.0.0.11", "port": port}]).result \
                    not in ("NOERROR", "NXDOMAIN")
        assert engine.host.queries(denied.name) == 0
    finally:
        if name:
            engine.remove(name)
        engine.call("network", "rm", network)


def test_services_and_names_outside_through_dockers_resolver(engine, side, site, denied):
    """Nothing is set: 127.0.0.11 knows the service, and asks others from inside the namespace that is guarded."""
    network = f"n{engine.world.number()}"
    engine("network", "create", network)
    name = None
    try:
        with engine.container("--network", network, "--network-alias", "db", *engine.app_mounts, engine.app,
                              "/usr/bin/python3", "-c", ECHO) as service:
            name = side(f"allow {site.name}", {"action": "allow", "target": "db", "private": True}, network=network)
            with app_of(engine, name) as app:
                def ask(_):
                    answers = engine.exec_probe(app, ["connect", "db", 7007], ["connect", site.name, 7007], ["dns", denied.name],
                                                ["dns", denied.name, {"server": "127.0.0.11"}], ["dns", "db"])
                    assert [a.result for a in answers] == ["ok", "ok", "NXDOMAIN", "NXDOMAIN", "NOERROR"], answers
                    assert answers[4].addresses == [engine.address(service)]
                    assert max(a.ms for a in answers) < 3500, "something waited for a timeout"
                expect.in_time(ask)
            assert f"asked of {RESOLVER4}:53" in engine("logs", name)
        assert engine.host.queries(denied.name) == 0 and not engine.world.dns.queries("*.invalid")
    finally:
        if name:
            engine.remove(name)
        engine.call("network", "rm", network)


@pytest.mark.skipif(not shutil.which("docker-compose"), reason="docker-compose is not installed")
def test_the_compose_file(engine, image, site, denied, world):
    folder = world.workdir()
    text = (ROOT / "deploy/docker/compose.yaml").read_text()
    text = text.replace("pypi.org", site.name, 1).replace('- "127.0.0.1:18080:18080"', '- "18080"')
    (folder / "compose.yaml").write_text(text)
    (folder / "override.yaml").write_text(json.dumps({"services": {"app": {
        "user": "1000", "volumes": engine.app_mounts[1::2],
        "command": ["/usr/bin/python3", "-c", "import socket,time\n"
                    f"print(socket.create_connection(('{site.name}',7007),30).getpeername()[0],flush=True)\n"
                    f"try: socket.create_connection(('{denied.name}',7007),30); print('OPEN',flush=True)\n"
                    "except OSError: print('shut',flush=True)\ntime.sleep(600)"]}}}))
    env = dict(engine._env, WEIR_IMAGE=image, APP_IMAGE=engine.app, WEIR_TOKEN=TOKEN)

    def compose(*args):
        done = subprocess.run(["docker-compose", "-p", "t", "-f", folder / "compose.yaml", "-f", folder / "override.yaml",
                               *args], env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout
    try:
        compose("up", "-d")
        log = wait_for(lambda: "shut" in (out := compose("logs", "app")) and out, step=0.2)
        assert site.v4 in log or site.v6 in log, log
        assert "OPEN" not in log and outside(engine, denied.v4) == []
    finally:
        compose("down", "-t", "1")


def test_what_readme_shows(engine, image, site, world):
    """Its two `docker run` lines, with the test's image, name and app in them."""
    text = (ROOT / "README.md").read_text().replace("\\\n", "")
    side, app = (shlex.split(line) for line in re.findall(r"^    (docker run .*)$", text, re.M))
    name = f"readme{world.number()}"
    side = [w.replace("pypi.org", site.name) for w in side[1:-1]] + [image]
    side[side.index("side")] = name
    try:
        engine(*side)
        engine.ready(name)
        app = [w.replace("container:side", f"container:{name}") for w in app[1:-1]]
        text = engine(*app, "-i", *engine.app_mounts, engine.app, "/usr/bin/python3", "-IS", "/tools/probe.pyc",
                      input=json.dumps([["connect", site.name, 7007], ["tcp", "93.9.9.9", 443]]).encode())
        good, bad = [json.loads(line) for line in text.splitlines()]
        assert good["result"] == "ok" and bad["result"] == "refused"
    finally:
        engine.remove(name)
