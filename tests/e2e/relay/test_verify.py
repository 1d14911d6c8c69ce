# SPDX-License-Identifier: Apache-2.0
"""verify: tls with real programs and real servers: two names on one address, one of them allowed."""
import base64
import hashlib
import json
import shutil

import pytest

from world.expect import in_time

PYTHON = ("/usr/bin/python3", "-c")


GET = "import urllib.request as u; print(u.urlopen('{url}', timeout=50).read().decode())"
NODE = "fetch('{url}').then(r => r.text()).then(console.log).catch(e => {{ console.error(e.cause); process.exit(1) }})"
PROGRAMS = [
    ("curl", ["curl", "-sSf", "--max-time", "50", "{url}"]),
    ("curl over IPv4", ["curl", "-4sSf", "--max-time", "50", "{url}"]),
    ("wget", ["wget", "-qO-", "--no-check-certificate", "--tries=1", "--timeout=50", "{url}"]),
    ("python", [*PYTHON, GET]),
    ("node", ["node", "-e", NODE]),
]


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("what, argv", PROGRAMS, ids=[p[0] for p in PROGRAMS])
def test_the_allowed_name_answers(world, pair, user, scheme, what, argv):
    done = world.run(*[w.format(url=f"{scheme}://{pair.good}/x") for w in argv], allow=(pair.good,), user=user)
    assert done.code == 0 and json.loads(done.text)["host"] == pair.good, done
    assert "refused" not in done.messages, done


@pytest.mark.parametrize("scheme, port", [("http", 80), ("https", 443)])
def test_the_other_name_of_the_address_does_not(world, pair, user, scheme, port):
    with world.capture() as capture:
        done = world.run("curl", "-sSf", "--connect-to", f"{pair.evil}:{port}:{pair.good}:{port}",
                         f"{scheme}://{pair.evil}/", allow=(pair.good,), user=user)
        # Only the look-up of the allowed name left.
        assert {p.dport for p in capture.packets()} == {53}
    assert done.code in (22, 35), done
    assert f"--allow {pair.evil}:tcp/{port}" in done.messages, done
    assert world.web.reached(pair.evil) == []


def test_git_over_https(world, pair, user):
    world.repository()
    good = world.run("git", "ls-remote", f"https://{pair.good}/git/tree.git", allow=(f"{pair.good}:443",), user=user)
    assert good.code == 0 and "refs/heads" in good.text, good
    bad = world.run("git", "-c", f"http.curloptResolve={pair.evil}:443:{pair.site.v4}", "ls-remote",
                    f"https://{pair.evil}/git/tree.git", allow=(f"{pair.good}:443",), user=user)
    assert bad.code != 0, bad


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium")
def test_chromium_loads_the_allowed_page(world, pair):
    done = world.run("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
                     "--ignore-certificate-errors", "--user-data-dir=profile", "--dump-dom",
                     f"https://{pair.good}/x", allow=(f"{pair.good}:443",))
    assert pair.good in done.text, done


def test_the_refusal_says_what_and_why(world, pair):
    done = world.run("curl", "-sS", "-H", f"Host: {pair.evil}", f"http://{pair.good}/", allow=(f"{pair.good}:80",))
    body = json.loads(done.text)
    assert body["error"] == "refused by weir" and body["name"] == pair.evil
    assert body["allow"] == f"--allow {pair.evil}:tcp/80" and "default action" in body["rule"]
    assert pair.evil in done.messages, done


CLIENT = """
import socket, sys, time
s = socket.create_connection(('{name}', {port}), 50)
def ask(text): s.sendall(text.replace('\\n', '\\r\\n').encode())
"""


def client(world, name, port, script, **rest):
    return world.run(*PYTHON, CLIENT.format(name=name, port=port) + script, **rest)


def test_a_slow_sender_is_read_to_the_end(world, pair):
    done = client(world, pair.good, 80, f"""
for c in 'GET / HTTP/1.1\\r\\nHost: {pair.good}\\r\\nConnection: close\\r\\n\\r\\n':
    s.sendall(c.encode()); time.sleep(0.02)
print(s.recv(65536).decode())
""", allow=(f"{pair.good}:80",))
    assert "200" in done.text, done


def test_a_name_that_does_not_come_in_time_is_no_name(world, pair):
    done = client(world, pair.good, 80, """
began = time.time()
s.sendall(b'GET / HT')
try: print(repr(s.recv(100)))
except ConnectionResetError: print('reset', time.time() - began > 4)
""", allow=(f"{pair.good}:80",))
    assert "reset True" in done.text, done


def serve_smtp(conn, local, peer):
    conn.sendall(b"220 mail\r\n")
    for reply in (b"250-mail\r\n250 STARTTLS\r\n", b"220 go ahead\r\n"):
        conn.recv(4096)
        conn.sendall(reply)
    assert conn.recv(4096)[:1] == b"\x16"
    conn.sendall(b"tls")


def test_a_server_may_speak_first(world, pair):
    """STARTTLS: what comes behind the first bytes is the protocol's own."""
    def attempt(_):
        done = client(world, pair.good, 2525, """
began = time.time()
print(s.recv(100), time.time() - began < 4)
ask('EHLO x\\n'); print(s.recv(100))
ask('STARTTLS\\n'); print(s.recv(100))
s.sendall(b'\\x16\\x03\\x01'); print(s.recv(100))
""", allow=(f"{pair.good}:2525",))
        assert done.text.split("\n")[0] == "b'220 mail\\r\\n' True", done
        assert "b'tls'" in done.text, done
    with world.tcp(2525, serve_smtp):
        in_time(attempt)


def test_a_server_that_waits_for_nobody_is_not_reached_where_the_port_is_not_listed(world, pair):
    with world.tcp(2526, serve_smtp) as service:
        done = client(world, pair.good, 2526, """
ask('EHLO x\\n')
try: print(s.recv(100))
except OSError as e: print('refused', e)
""", allow=(pair.good,))
        assert "refused" in done.text and f"--allow {pair.good}:default,tcp/2526" in done.messages, done
        assert service.connections == []


def serve_websocket(conn, local, peer):
    head = b""
    while b"\r\n\r\n" not in head:
        head += conn.recv(4096)
    key = next(line.split(b": ")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key"))
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    conn.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n\x81\x05hello")
    while data := conn.recv(4096):
        conn.sendall(data)


def test_a_websocket_is_a_tunnel(world, pair):
    with world.tcp(8088, serve_websocket):
        done = client(world, pair.good, 8088, f"""
ask('GET / HTTP/1.1\\nHost: {pair.good}:8088\\nConnection: Upgrade\\nUpgrade: websocket\\nSec-WebSocket-Key: eHh4\\n\\n')
data = b''
while not data.endswith(b'hello'): data += s.recv(4096)
s.sendall(bytes(range(256)))
print(data[-7:], s.recv(4096) == bytes(range(256)))
""", allow=(f"{pair.good}:8088",))
    assert "hello' True" in done.text, done


@pytest.mark.parametrize("word", ["h2c", "h2c-14", "foo, H2C-16", "h2", "HTTP/2.0"])
def test_no_upgrade_to_http2_is_a_tunnel(world, pair, word):
    """Whichever of its names the server takes: the frames behind it name a host each, which nobody reads."""
    heard = []

    def serve(conn, local, peer):
        while data := conn.recv(4096):
            if not heard:
                conn.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
            heard.append(data)

    with world.tcp(8090, serve):
        done = client(world, pair.good, 8090, f"""
ask('GET / HTTP/1.1\\nHost: {pair.good}:8090\\nConnection: Upgrade, HTTP2-Settings\\nUpgrade: {word}\\nHTTP2-Settings: AAMAAABk\\n\\n')
time.sleep(0.5)
try: ask('PRI * HTTP/2.0\\n\\nSM\\n\\n'); time.sleep(0.5)
except OSError as e: print(e)
""", allow=(f"{pair.good}:8090",))
    assert len(heard) == 1 and heard[0].startswith(b"GET / "), (heard, done)
    assert "refused" in done.messages, done


@pytest.mark.parametrize("offer, body", [("h2c", "PRI * HTTP/2.0\\n\\nSM\\n\\n"), ("TLS/1.0", "\\x16\\x03\\x01\\x00\\x05abcde")])
def test_no_body_is_what_its_request_offers(world, pair, offer, body):
    """A server that goes over to it at once would read the body in it, and name another host by that."""
    heard = []

    def serve(conn, local, peer):
        while data := conn.recv(4096):
            heard.append(data)

    with world.tcp(8092, serve):
        done = client(world, pair.good, 8092, f"""
ask('POST / HTTP/1.1\\nHost: {pair.good}:8092\\nConnection: Upgrade\\nUpgrade: {offer}\\nContent-Length: 30\\n\\n{body}')
print(s.recv(100))
""", allow=(f"{pair.good}:8092",))
    body_heard = b"".join(heard).partition(b"\r\n\r\n")[2]
    assert body_heard == b"" and "400 Bad Request" in done.text and "refused" in done.messages, (heard, done)


def test_a_body_that_waits_for_100_continue_arrives_behind_an_offer_of_http2(world, pair):
    def serve(conn, local, peer):
        conn.recv(4096)
        conn.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = conn.recv(4096)
        conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    with world.tcp(8094, serve):
        done = client(world, pair.good, 8094, f"""
ask('POST / HTTP/1.1\\nHost: {pair.good}:8094\\nConnection: Upgrade\\nUpgrade: h2c\\nExpect: 100-continue\\nContent-Length: 30\\n\\n')
print(s.recv(100))
s.sendall(b'x' * 30)
print(s.recv(100))
""", allow=(f"{pair.good}:8094",))
    assert "100 Continue" in done.text and "x" * 30 in done.text and done.messages == "", done


@pytest.mark.parametrize("begins", ["GET", "REPORT", "\\x05\\x01"])
def test_a_tunnel_is_none_because_the_server_says_so(world, pair, begins):
    """E19: it says 200 to a CONNECT, and reads the next request."""
    heard = []

    def serve(conn, local, peer):
        while data := conn.recv(4096):
            heard.append(data)
            conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with world.tcp(8888, serve):
        done = client(world, pair.good, 8888, f"""
ask('CONNECT {pair.good}:8888 HTTP/1.1\\nHost: {pair.good}:8888\\n\\n')
while not s.recv(4096).endswith(b'ok'): pass
try:
    s.sendall(b'{begins}'); time.sleep(0.5)
    s.sendall(b' / HTTP/1.1\\r\\nHost: {pair.evil}\\r\\n\\r\\n'); print(s.recv(4096))
except OSError as e: print(e)
""", allow=(pair.good,))
    assert len(heard) == 1 and heard[0].startswith(b"CONNECT"), (heard, done)
    assert "refused" in done.messages, done


def test_an_answer_that_is_still_on_its_way_opens_nothing(world, pair):
    """E19: the rest of what the server says to the CONNECT looks like the answer to an Upgrade."""
    heard = []

    def serve(conn, local, peer):
        while data := conn.recv(4096):
            heard.append(data.split(b"\r\n")[0])
            conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n" if data.startswith(b"CONNECT")
                         else b"HTTP/1.1 101 X\r\n\r\n" b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with world.tcp(8888, serve):
        done = client(world, pair.good, 8888, f"""
for head in ('CONNECT {pair.good}:8888 HTTP/1.1\\nHost: {pair.good}:8888',
             'GET /1 HTTP/1.1\\nHost: {pair.good}:8888\\nConnection: Upgrade\\nUpgrade: x', 'GET /2 HTTP/1.1\\nHost: {pair.evil}'):
    try: ask(head + '\\n\\n'); time.sleep(0.2)
    except OSError as e: print(e)
""", allow=(pair.good,))
    assert heard == [b"CONNECT " + f"{pair.good}:8888".encode() + b" HTTP/1.1"], (heard, done)


def test_many_requests_on_one_connection_pass(world, pair):
    done = world.run("curl", "-sSf", "-d", "x" * 5000, *[f"http://{pair.good}/{i}" for i in range(20)], "-w", "%{num_connects}\n",
                     allow=(f"{pair.good}:80",))
    assert done.code == 0, done


def test_verify_dns_and_tls_can_be_chosen(world, pair):
    argv = ("curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H", f"Host: {pair.evil}", f"http://{pair.good}/")
    policy = world.workdir() / "policy.yaml"
    for text, options, code in (("", (), "403"), ("verify: dns", (), "200"), ("verify: tls", (), "403"),
                                ("verify: tls", ("--verify", "dns"), "200"), ("verify: dns", ("--verify", "tls"), "403")):
        policy.write_text(f"{text}\negress:\n  - {{action: allow, target: {pair.good}}}\n")
        done = world.run(*argv, options=("--policy", policy, *options))
        assert done.text == code, (text, options, done)


def serve_twice(conn, local, peer):
    """HTTP/1.1 that keeps the connection and takes no upgrade."""
    data = b""
    while more := conn.recv(4096):
        data += more
        while b"\r\n\r\n" in data:
            _, data = data.split(b"\r\n\r\n", 1)
            conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def serve_upload(conn, local, peer):
    """HTTP/1.1 that takes no upgrade, and answers when it has the whole body."""
    data = b""
    while not data.endswith(b"0\r\n\r\n") and (more := conn.recv(4096)):
        data += more
    conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" if b"Upgrade: h2c" in data and b"hello" in data
                 else b"HTTP/1.1 500 no\r\nContent-Length: 0\r\n\r\n")


def test_an_upload_of_unknown_length_that_offers_http2_arrives(world, pair):
    script = f"printf hello | curl -sSf --max-time 30 --http2 -H Expect: -T - http://{pair.good}:8091/"
    with world.tcp(8091, serve_upload):
        done = world.run("sh", "-c", script, allow=(f"{pair.good}:8091",))
    assert done.code == 0 and done.text == "ok" and done.messages == "", done


JAVA = """import java.net.http.*; import java.net.URI;
class J {{ public static void main(String[] a) throws Exception {{
    var client = HttpClient.newHttpClient();
    for (int i = 0; i < 3; i++)
        System.out.println(client.send(HttpRequest.newBuilder(URI.create("{url}")).build(),
                                       HttpResponse.BodyHandlers.ofString()).body());
}} }}"""


@pytest.mark.parametrize("argv, count", [(["curl", "-sSf", "--http2", "{url}", "{url}"], 2),
                                         (["java", "J.java"], 3)], ids=["curl", "java"])
def test_clients_that_offer_http2_in_each_request_go_on(world, pair, argv, count):
    if not shutil.which(argv[0]):
        pytest.skip(f"needs {argv[0]}")
    cwd, url = world.workdir(), f"http://{pair.good}:8089/"
    (cwd / "J.java").write_text(JAVA.format(url=url))
    with world.tcp(8089, serve_twice):
        done = world.run(*[w.format(url=url) for w in argv], allow=(pair.good,), cwd=cwd)
    assert done.code == 0 and done.text.count("ok") == count and done.messages == "", done


def test_postgres_asks_for_tls_on_a_listed_port(world, pair):
    """Its first bytes are neither TLS nor HTTP; what follows is the protocol's own."""
    with world.tcp(5432, lambda conn, local, peer: conn.sendall(b"N" if conn.recv(8)[4:] == b"\x04\xd2\x16\x2f" else b"")):
        done = client(world, pair.good, 5432, "s.sendall(bytes.fromhex('0000000804d2162f')); print(s.recv(1))",
                      allow=(f"{pair.good}:5432",))
    assert "b'N'" in done.text, done
