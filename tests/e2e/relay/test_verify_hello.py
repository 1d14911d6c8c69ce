# SPDX-License-Identifier: Apache-2.0
"""verify: tls and a server that asks for a second ClientHello: that one has to show the name of the first.

The servers take keys of one group alone, and the clients offer another one first; so each connection begins with a
HelloRetryRequest. Most servers go by the name in the second hello, which is in the clear like the first.
"""
import pathlib
import shutil
import subprocess

import pytest

CLIENTS = pathlib.Path(__file__).resolve().parents[2] / "world" / "clients"
PYTHON = "/usr/bin/python3"
GET = b"GET / HTTP/1.0\r\nHost: x.test\r\n\r\n"


def openssl(world, folder, port, cert, key):
    return ["openssl", "s_server", "-accept", str(port), "-cert", cert, "-key", key, "-groups", "P-384", "-www"]


def nginx(world, folder, port, cert, key):
    (folder / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors; events {{}}\n"
        f"http {{ access_log off; client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2;\n"
        f"fastcgi_temp_path {folder}/t3; uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;\n"
        f"server {{ listen {port} ssl; listen [::]:{port} ssl; ssl_certificate {cert}; ssl_certificate_key {key};\n"
        'ssl_protocols TLSv1.2 TLSv1.3; ssl_ecdh_curve secp384r1; return 200 "served $ssl_server_name\\n"; } }\n')
    return ["nginx", "-c", folder / "nginx.conf", "-e", folder / "errors"]


def haproxy(world, folder, port, cert, key):
    (folder / "both.pem").write_text(pathlib.Path(cert).read_text() + pathlib.Path(key).read_text())
    (folder / "haproxy.cfg").write_text(
        "defaults\n mode http\n timeout client 9s\n timeout server 9s\n timeout connect 9s\n"
        f"frontend f\n bind :::{port} v4v6 ssl crt {folder}/both.pem curves P-384\n"
        ' http-request return status 200 content-type text/plain lf-string "served %[ssl_fc_sni]"\n')
    return ["haproxy", "-db", "-f", folder / "haproxy.cfg"]


def gnutls(world, folder, port, cert, key):
    return ["gnutls-serv", "--http", "-q", "-p", str(port), "--x509certfile", cert, "--x509keyfile", key,
            "--priority", "NORMAL:-GROUP-ALL:+GROUP-SECP384R1"]


def go(world, folder, port, cert, key):
    env = {"PATH": "/usr/bin:/bin:/usr/local/go/bin", "HOME": "/nowhere", "GO111MODULE": "off",
           "GOCACHE": str(world.folder / "go"), "GOFLAGS": ""}
    subprocess.run(["go", "build", "-o", folder / "server", CLIENTS / "hello_server.go"], check=True, env=env)
    return [folder / "server", str(port), cert, key]


def java(world, folder, port, cert, key):
    subprocess.run(["javac", "-d", folder, CLIENTS / "HelloServer.java"], check=True)
    subprocess.run(["openssl", "pkcs12", "-export", "-in", cert, "-inkey", key, "-out", folder / "store",
                    "-passout", "pass:secret"], check=True)
    return ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-Djdk.tls.namedGroups=secp384r1", "-cp", folder,
            "HelloServer", str(port), folder / "store"]


KINDS = [openssl, nginx, haproxy, gnutls, go, java]


@pytest.fixture(scope="module", params=KINDS, ids=[k.__name__ for k in KINDS])
def server(world, wait_served, request):
    """A server of the internet for names below retry.test. Return: (its kind, its port)."""
    port, folder = 7450 + KINDS.index(request.param), world.workdir()
    cert, key = str(world.ca.certificate("*.retry.test")), str(world.ca.leaf_key)
    argv = request.param(world, folder, port, cert, key)
    process = subprocess.Popen(world.internet.command(*map(str, argv)), cwd=folder, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_served(port, process)
    yield request.param.__name__, port
    process.kill()
    process.wait()


def payload(capture):
    return b"".join(p.payload for p in capture.packets())


def two_hellos(world, pair, port, first, second, *words, verify="tls", allow=None):
    """What the server said to each hello, and all that arrived at it."""
    program = world.tools / "two_hellos.py"
    shutil.copy(CLIENTS / "two_hellos.py", program)
    with world.capture() as capture:
        done = world.run(PYTHON, program, pair.good, str(port), first, second, *words, allow=(allow or pair.good,),
                         options=("--verify", verify))
        return done.text.split(), payload(capture), done


# Go's and Java's know no early data, and end the connection at it.
@pytest.mark.parametrize("server, early", [(kind, early) for kind in KINDS for early in ((), ("early",))
                                           if not early or kind.__name__ not in ("go", "java")], indirect=["server"])
def test_a_second_hello_for_another_name_never_arrives(world, pair, server, early):
    kind, port = server
    said, arrived, done = two_hellos(world, pair, port, pair.good, pair.good, *early)
    assert said == ["retry", "hello"], done
    assert arrived.count(pair.good.encode()) >= 2 and pair.evil.encode() not in arrived
    said, arrived, done = two_hellos(world, pair, port, pair.good, pair.evil, *early)
    assert said == ["retry", "alert"] and "another name" in done.messages, done
    assert pair.good.encode() in arrived and pair.evil.encode() not in arrived
    # and it is the check that stops it
    said, arrived, done = two_hellos(world, pair, port, pair.good, pair.evil, *early, verify="dns")
    assert said[0] == "retry" and pair.evil.encode() in arrived, done
    if kind in ("openssl", "nginx", "haproxy"):
        assert said == ["retry", "hello"], done


@pytest.mark.parametrize("server", [go], indirect=True)
@pytest.mark.parametrize("major", [0, 2, 4, 15])
def test_a_record_of_another_version_hides_no_name(world, pair, server, major):
    """Go's servers read its hello. The rule lists the port, so that bytes which show nothing may pass there."""
    _, port = server
    said, arrived, done = two_hellos(world, pair, port, pair.evil, pair.evil, f"major={major}", allow=f"{pair.good}:{port}")
    assert said[0] != "retry" and pair.evil.encode() not in arrived, done
    assert "malformed TLS ClientHello" in done.messages, done
    said, arrived, done = two_hellos(world, pair, port, pair.evil, pair.evil, f"major={major}", verify="dns")
    assert said[0] == "retry" and pair.evil.encode() in arrived, done


CLIENT = ["openssl", "s_client", "-quiet", "-ign_eof", "-verify_return_error", "-groups", "X25519:P-384"]


def test_a_real_client_that_is_asked_again_works(world, pair, server):
    kind, port = server
    with world.capture() as capture:
        done = world.run(*CLIENT, "-servername", pair.good, "-connect", f"{pair.good}:{port}", allow=(pair.good,), input=GET)
        assert payload(capture).count(pair.good.encode()) >= 2, "no second hello was asked for"
    assert "200" in done.text and "refused" not in done.messages, (kind, done)


RESUME = """(for i in $(seq 100); do test -s session && break; sleep 0.1; done; echo Q) | openssl s_client -groups {first} -servername {name} -connect {name}:{port} -sess_out session >/dev/null
(echo late; sleep 1) | openssl s_client -groups {groups} -servername {name} -connect {name}:{port} -sess_in session -early_data early"""


@pytest.mark.parametrize("groups, asked", [("P-384", False), ("X25519:P-384", True)], ids=["at once", "asked again"])
def test_early_data_works(world, wait_served, pair, groups, asked):
    """Early data comes between the first hello and what the server says to it; a server that asks again takes none."""
    cwd = world.workdir()
    (cwd / "early").write_bytes(b"E" * 5000)
    argv = ["openssl", "s_server", "-accept", "7440", "-cert", world.ca.certificate("*.retry.test"), "-key", world.ca.leaf_key,
            "-groups", "P-384", "-early_data", "-max_early_data", "16384"]
    with (cwd / "heard").open("wb") as out:
        server = subprocess.Popen(world.internet.command(*map(str, argv)), stdin=subprocess.PIPE, stdout=out)
    try:
        wait_served(7440, server)
        script = RESUME.replace("{name}", pair.good).replace("{port}", "7440").replace("{first}", "P-384")
        done = world.run("sh", "-c", script.replace("{groups}", groups), allow=(pair.good,), cwd=cwd)
    finally:
        server.kill()
        server.communicate()
    heard = (cwd / "heard").read_bytes()
    assert "refused" not in done.messages and ("Early data was rejected" if asked else "Early data was accepted") in done.text, done
    assert heard.count(b"E" * 5000) == (0 if asked else 1) and b"late" in heard, done


# Java's takes its own key's curve in TLS 1.3 alone.
@pytest.mark.parametrize("server", [kind for kind in KINDS if kind.__name__ != "java"], indirect=True)
def test_a_session_of_tls_1_2_is_resumed(world, pair, server):
    """Its client sends ChangeCipherSpec and an encrypted message, which may begin like anything."""
    kind, port = server
    done = world.run("openssl", "s_client", "-tls1_2", "-reconnect", "-servername", pair.good, "-connect",
                     f"{pair.good}:{port}", allow=(pair.good,), input=b"")
    assert done.text.count("New, ") + done.text.count("Reused, ") == 6, (kind, done)
    assert "refused" not in done.messages, done
