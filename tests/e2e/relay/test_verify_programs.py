# SPDX-License-Identifier: Apache-2.0
"""verify: tls between real clients and real servers: two names on one address, one of them allowed.

In the sandbox /etc/hosts gives the other name the address too, and the allowed name has been
looked up: only what the connection itself shows is between the program and the server.
Protocols whose first bytes show no name (ssh, PostgreSQL, SMTP) follow the port of the rule.
"""
import asyncio
import json
import pathlib
import shutil
import socket
import subprocess
import tarfile
import threading
import zipfile

import pytest
import websockets

from world.postgres import Postgres

CLIENTS = pathlib.Path(__file__).resolve().parents[2] / "world" / "clients"
PYTHON = "/usr/bin/python3"
USER = "weir-test"


LEARN = 'getent ahosts "$0" >/dev/null || exit 99; exec "$@"'


def attempt(world, pair, argv, rule, **rest):
    """@argv under this rule, once the address of the allowed name is open."""
    return world.run("sh", "-c", LEARN, pair.good, *argv, allow=(rule,),
                     mounts=pair.mounts, user=USER, **rest)


# Servers: each is there while the tests of this file run.

@pytest.fixture(scope="module")
def packages(world):
    """A package index for pip at /simple/ and a registry for npm at /npm/."""
    folder = world.folder / "packages"
    project = folder / "simple" / "weirtest"
    project.mkdir(parents=True)
    with zipfile.ZipFile(project / "weirtest-1.0-py3-none-any.whl", "w") as wheel:
        info = "weirtest-1.0.dist-info/"
        wheel.writestr("weirtest.py", "")
        wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: weirtest\nVersion: 1.0\n")
        wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(info + "RECORD", "")
    (folder / "npm").mkdir()
    (folder / "package.json").write_text('{"name": "weirtest", "version": "1.0.0"}')
    with tarfile.open(folder / "npm" / "weirtest-1.0.0.tgz", "w:gz") as tar:
        tar.add(folder / "package.json", "package/package.json")
    world.web.mount("/simple", folder / "simple")
    world.web.mount("/npm", folder / "npm")
    return folder


def publish(packages, name):
    """The registry's document names the host from which the package itself comes."""
    version = {"name": "weirtest", "version": "1.0.0",
               "dist": {"tarball": f"https://{name}/npm/weirtest-1.0.0.tgz"}}
    document = {"name": "weirtest", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    (packages / "npm" / "weirtest").write_text(json.dumps(document))


@pytest.fixture(scope="module")
def postgres(world):
    """A PostgreSQL server that takes anybody, with and without TLS."""
    server = Postgres(world.internet, listen="*", hba=["host all all all trust"], settings={"ssl": "on"}, start=False)
    for source, target in ((world.ca.certificate("postgres.test"), "server.crt"), (world.ca.leaf_key, "server.key")):
        server.write(f"data/{target}", pathlib.Path(source).read_text())
    server.start()
    server.psql("CREATE ROLE postgres LOGIN")
    yield 5432
    server.end()


@pytest.fixture(scope="module")
def smtp(world):
    """Mail with STARTTLS; what the client says inside of TLS is answered too."""
    def serve(conn, local, peer):
        conn.sendall(b"220 mail.test ESMTP\r\n")
        for reply in (b"250-mail.test\r\n250 STARTTLS\r\n", b"220 go ahead\r\n"):
            conn.recv(4096)
            conn.sendall(reply)
        tls, _ = world.ca.wrap(conn)
        with tls:
            while line := tls.recv(4096):
                tls.sendall(b"221 bye\r\n" if line.lower().startswith(b"quit") else b"250 heard in TLS\r\n")
    with world.tcp(587, serve) as service:
        yield service


@pytest.fixture(scope="module")
def grpc_server(world, wait_served):
    cert = world.ca.certificate("*.pair.test")
    argv = world.internet.command(PYTHON, str(CLIENTS / "grpc_echo.py"), "serve", str(cert), str(world.ca.leaf_key))
    server = subprocess.Popen(argv)
    wait_served(50051, server)
    shutil.copy(CLIENTS / "grpc_echo.py", world.tools)
    yield world.tools / "grpc_echo.py"
    server.terminate()
    server.wait(60)


@pytest.fixture
def websocket(world, pair):
    """ws:// on port 8091 and wss:// on port 8092."""
    loop, servers = asyncio.new_event_loop(), []

    async def echo(connection):
        async for message in connection:
            await connection.send("echo of " + message)

    async def listen():
        for port, tls in ((8091, None), (8092, world.ca.context(pair.good))):
            sock = world.internet.socket(socket.AF_INET6, socket.SOCK_STREAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("::", port))
            servers.append(await websockets.serve(echo, sock=sock, ssl=tls))

    async def close():
        for server in servers:
            server.close()
            await server.wait_closed()

    loop.run_until_complete(listen())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield
    loop.call_soon_threadsafe(loop.stop)
    thread.join(5)
    loop.run_until_complete(close())
    loop.close()


# Programs that show a name: what, argv, port, what they print, how they tell of the refusal

PIP = [PYTHON, "-m", "pip", "--isolated", "--disable-pip-version-check", "--cert", "{ca}", "--retries", "0", "download",
       "--no-deps", "--no-cache-dir", "--index-url", "https://{name}/simple/", "-d", ".", "weirtest"]
NPM = ["npm", "install", "--registry", "https://{name}/npm/", "--cafile", "{ca}", "--fetch-retries=0", "--no-audit",
       "--no-fund", "--no-update-notifier", "--cache", "cache", "weirtest"]
PUSH = """set -e
git clone -q https://{good}/git/{tree}.git tree && cd tree && echo more > more && git add more
git -c user.name=t -c user.email=t@t.test commit -qm two
git push -q https://{name}/git/{tree}.git HEAD:two"""
WEBSOCKET = """import asyncio, websockets
async def talk():
    async with websockets.connect("{url}") as connection:
        await connection.send("this")
        print(await connection.recv())
asyncio.run(talk())"""
CHROMIUM = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
            "--ignore-certificate-errors", "--user-data-dir=profile", "--dump-dom"]

PROGRAMS = [
    ("pip", PIP, 443, "Successfully downloaded weirtest", "SSLError"),
    ("npm", NPM, 443, "added 1 package", "SSL alert"),
    ("git clone", ["git", "clone", "https://{name}/git/tree.git"], 443, "Cloning", "fatal: unable to access"),
    ("curl with HTTP/2 over TLS", ["curl", "-sSf", "--http2", "https://{name}/"], 443, '"host": "{name}"', "alert"),
    ("websockets over TLS", [PYTHON, "-c", WEBSOCKET.format(url="wss://{name}:8092")], 8092, "echo of this", "SSL"),
    ("websockets", [PYTHON, "-c", WEBSOCKET.format(url="ws://{name}:8091")], 8091, "echo of this", "HTTP 403"),
    ("gRPC", [PYTHON, "{grpc}", "call", "{name}:50051", "{ca}"], 50051, "echo of this", "UNAVAILABLE"),
    ("chromium over TLS", [*CHROMIUM, "https://{name}/"], 443, '"host": "{name}"', "ERR_SSL"),
    ("chromium", [*CHROMIUM, "http://{name}/"], 80, '"host": "{name}"', "refused by weir"),
    ("java over TLS", ["{java}", "Fetch", "https://{name}/", "{ca}"], 443, '"host": "{name}"', "SSLHandshakeException"),
    ("java", ["{java}", "Fetch", "http://{name}/", "{ca}"], 80, '"host": "{name}"', "response code: 403"),
    ("go over TLS", ["{go}", "https://{name}/"], 443, '"host": "{name}"', "tls: "),
    ("go", ["{go}", "http://{name}/"], 80, '"host": "{name}"', "403"),
]
IDS = [p[0] for p in PROGRAMS]
SHOWN = pytest.mark.parametrize("what, argv, port, prints, says", PROGRAMS, ids=IDS)


@pytest.fixture(scope="module")
def java(world):
    if not shutil.which("javac"):
        pytest.skip("needs a JDK")
    subprocess.run(["javac", "-d", world.tools, CLIENTS / "Fetch.java"], check=True)
    return ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", str(world.tools)]


@pytest.fixture(scope="module")
def go(world):
    if not shutil.which("go"):
        pytest.skip("needs Go")
    env = {"PATH": "/usr/bin:/bin:/usr/local/go/bin", "HOME": "/nowhere", "GO111MODULE": "off",
           "GOCACHE": str(world.folder / "go"), "GOFLAGS": ""}
    subprocess.run(["go", "build", "-o", world.tools / "fetch-go", CLIENTS / "fetch.go"], check=True, env=env)
    return str(world.tools / "fetch-go")


def fill(world, pair, name, argv, request):
    """@argv for @name, once the servers and programs that it needs are there."""
    words = {"name": name, "good": pair.good, "ca": world.ca.cert}
    text = " ".join(argv)
    if "weirtest" in text:
        publish(request.getfixturevalue("packages"), pair.good)
    if "/git/tree" in text:
        world.repository()
    if "websockets" in text:
        request.getfixturevalue("websocket")
    if "{grpc}" in text:
        words["grpc"] = request.getfixturevalue("grpc_server")
    if "{go}" in text:
        words["go"] = request.getfixturevalue("go")
    if "{java}" in text:
        argv = [*request.getfixturevalue("java"), *argv[1:]]
    return [w.format(**words) for w in argv]


@SHOWN
def test_the_allowed_name_works(world, pair, request, what, argv, port, prints, says):
    done = attempt(world, pair, fill(world, pair, pair.good, argv, request), pair.good)
    assert done.code == 0 and prints.format(name=pair.good) in done.text + done.messages, done


def assert_refused(done, pair, port, prints, says):
    assert says in done.text + done.messages, done
    assert f"--allow {pair.evil}:tcp/{port}" in done.messages, done
    assert prints.format(name=pair.evil) not in done.text, done


@SHOWN
def test_the_other_name_is_refused_at_once_and_nothing_arrives(world, pair, request, what, argv, port, prints, says):
    argv = fill(world, pair, pair.evil, argv, request)
    with world.capture() as capture:
        done = attempt(world, pair, argv, pair.good)
        assert pair.arrived(capture) == []
    assert_refused(done, pair, port, prints, says)


@pytest.mark.parametrize("what, argv, port, prints, says", [p for p in PROGRAMS if p[2] not in (80, 443)],
                         ids=[p[0] for p in PROGRAMS if p[2] not in (80, 443)])
def test_a_server_that_might_have_spoken_first_hears_nothing(world, pair, request, what, argv, port, prints, says):
    """On a listed port that isn't the web's the relay calls before the client speaks, and says nothing."""
    argv = fill(world, pair, pair.evil, argv, request)
    with world.capture() as capture:
        done = attempt(world, pair, argv, f"{pair.good}:{port}")
        assert [p for p in pair.arrived(capture) if p.payload] == []
    assert_refused(done, pair, port, prints, says)


def test_a_push_reaches_the_allowed_name_only(world, pair):
    bare = world.folder / "git" / f"push-{world.number()}.git"
    subprocess.run(["git", "clone", "-q", "--bare", world.repository(), bare], check=True)
    subprocess.run(["git", "-C", bare, "config", "http.receivepack", "true"], check=True)

    def push(name):
        script = PUSH.format(name=name, good=pair.good, tree=bare.stem)
        done = attempt(world, pair, ["sh", "-c", script], f"{pair.good}:443")
        return done, subprocess.run(["git", "-C", bare, "branch"], check=True, capture_output=True).stdout.decode()

    with world.capture() as capture:
        done, branches = push(pair.evil)
        assert not [p for p in pair.arrived(capture) if pair.evil.encode() in p.payload]
    assert done.code != 0 and "two" not in branches, done
    assert "unable to access" in done.messages and f"--allow {pair.evil}:tcp/443" in done.messages, done
    done, branches = push(pair.good)
    assert done.code == 0 and "two" in branches, done


def test_grpc_in_plain_text_needs_a_rule_for_the_address(world, pair, grpc_server):
    """HTTP/2 with prior knowledge: its requests aren't read, so a name's rule doesn't speak for them, on a listed port either."""
    call = [PYTHON, grpc_server, "call", f"{pair.good}:50052"]
    for rule in pair.good, f"{pair.good}:50052":
        done = attempt(world, pair, call, rule)
        assert done.code == 1 and "use verify: dns" in done.messages, done
    for how in {"allow": (pair.good, f"{pair.site.v4}:50052", f"[{pair.site.v6}]:50052")}, \
            {"allow": (f"{pair.good}:50052",), "options": ("--verify", "dns")}:
        done = world.run(*call, **how)
        assert done.code == 0 and "echo of" in done.text and "refused" not in done.messages, done


# Programs whose first bytes show no name: what, argv, port, what they print, how they tell of the refusal

PSQL = ["psql", "-X", "-t", "-c", "select 'ssl ' || ssl from pg_stat_ssl where pid = pg_backend_pid()",
        "host={name} user=postgres dbname=postgres connect_timeout=50 sslmode="]
OPENSSL = ["openssl", "s_client", "-brief", "-starttls", "smtp", "-verify_return_error", "-servername", "{name}",
           "-connect", "{name}:587"]
SMTPLIB = """import smtplib, ssl
with smtplib.SMTP("{name}", 587, timeout=50) as s:
    s.starttls(context=ssl.create_default_context())
    print(s.noop())"""
SSH = ["ssh", "-F", "none", "-i", "{key}", "-o", "BatchMode=yes", "-o", "ConnectTimeout=40",
       "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "root@{name}", "hello"]

NAMELESS = [
    ("psql with TLS", [*PSQL[:-1], PSQL[-1] + "require"], 5432, "ssl true", "connection to server"),
    ("psql without TLS", [*PSQL[:-1], PSQL[-1] + "disable"], 5432, "ssl false", "connection to server"),
    ("openssl s_client -starttls smtp", OPENSSL, 587, "CONNECTION ESTABLISHED", "errno=104"),
    ("smtplib", [PYTHON, "-c", SMTPLIB], 587, "heard in TLS", "Error"),
    ("ssh", SSH, 22, "welcome: hello", "onnection"),
]
UNSHOWN = pytest.mark.parametrize("what, argv, port, prints, says", NAMELESS, ids=[p[0] for p in NAMELESS])
SERVERS = {5432: "postgres", 587: "smtp", 22: "ssh_server"}


def fill_nameless(world, name, argv, request, port):
    """@argv for @name and where to start it; a key that the user may read, when one is asked for."""
    server, cwd = request.getfixturevalue(SERVERS[port]), world.workdir(USER)
    if port == 22:
        shutil.copy(server, cwd / "key")
        shutil.chown(cwd / "key", USER, USER)
        (cwd / "key").chmod(0o600)
    return [w.format(name=name, key=cwd / "key") for w in argv], cwd


@UNSHOWN
def test_a_listed_port_needs_no_name(world, pair, request, what, argv, port, prints, says):
    argv, cwd = fill_nameless(world, pair.good, argv, request, port)
    done = attempt(world, pair, argv, f"{pair.good}:{port}", cwd=cwd)
    assert done.code == 0 and prints in done.text + done.messages, done


CLIENT_FIRST = [p for p in NAMELESS if p[2] != 587]


@pytest.mark.parametrize("which", ["good", "evil"])
@pytest.mark.parametrize("what, argv, port, prints, says", CLIENT_FIRST, ids=[p[0] for p in CLIENT_FIRST])
def test_a_port_that_is_not_listed_is_refused_at_the_first_bytes(world, pair, request, which, what, argv, port, prints, says):
    argv, cwd = fill_nameless(world, getattr(pair, which), argv, request, port)
    with world.capture() as capture:
        done = attempt(world, pair, argv, pair.good, cwd=cwd)
        assert pair.arrived(capture) == []
    assert done.code != 0, done
    assert says in done.messages and f"--allow {pair.good}:default,tcp/{port}" in done.messages, done


def test_a_client_that_waits_for_the_server_is_told_after_five_seconds(world, pair, smtp):
    """Whether it would have shown a name is not known before."""
    with world.capture() as capture:
        done = attempt(world, pair, [PYTHON, "-c", SMTPLIB.format(name=pair.evil)], pair.good)
        assert pair.arrived(capture) == []
    assert done.code == 1 and 4.5 < done.seconds, done
    assert "no name came in 5 s" in done.messages and f"--allow {pair.good}:default,tcp/587" in done.messages, done
