# SPDX-License-Identifier: Apache-2.0
"""The daemon's API over TCP: nobody without TLS and the token; asked by real programs."""
import json
import signal
import subprocess

import pytest

from world.sidecar import wait_for

TOKEN = "a-token-of-many-letters"
WHERE = "https://weir.test:9443"


def make_certificate(folder, name="one"):
    cert, key = folder / f"{name}.crt", folder / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:weir.test", "-keyout", key, "-out", cert],
                   check=True, capture_output=True)
    return cert, key


@pytest.fixture
def files(host):
    cert, key = make_certificate(host.folder)
    token = host.folder / "token"
    token.write_text(TOKEN + "\n")
    return {"--listen": "127.0.0.1:9443", "--tls-cert": cert, "--tls-key": key, "--token-file": token}


@pytest.fixture
def secure(host, files):
    return host.daemon(*[word for pair in files.items() for word in pair])


def curl(host, path, *args, token=TOKEN, cacert=None, where=WHERE):
    """(curl's exit status, the HTTP status, the body)"""
    headers = ["-H", f"Authorization: Bearer {token}"] if token else []
    done = subprocess.run(host.ns.command("curl", "-sS", "-m", "50", "--resolve", "weir.test:9443:127.0.0.1", "--cacert",
                                          str(cacert or host.folder / "one.crt"), "-w", "\n%{http_code}", *headers, *args, where + path),
                          capture_output=True, text=True, check=False)
    body, _, status = done.stdout.rpartition("\n")
    return done.returncode, int(status or 0), body


def test_who_has_the_token_is_served_as_over_the_socket(host, secure, pod, site, denied):
    assert curl(host, "/sandboxes") == (0, 200, '{"sandboxes":[]}\n')
    code, status, body = curl(host, "/sandboxes/one", "-X", "PUT", "-d",
                              json.dumps({"netns": pod.ns.path, "policy": {"egress": [{"action": "allow", "target": site.name}]}}))
    assert (code, status) == (0, 201), f"{body}\n{secure}"
    pod.probe(["dns", site.name], ["dns", denied.name])
    wait_for(lambda: denied.name in curl(host, "/sandboxes/one/denies")[2])
    wait_for(lambda: secure.get("/sandboxes").json()["sandboxes"][0]["denies"] == 1)  # counted later than written
    assert json.loads(curl(host, "/sandboxes")[2])["sandboxes"] == secure.get("/sandboxes").json()["sandboxes"]
    assert curl(host, "/sandboxes/one/policy", "-X", "PATCH", "-d", '[{"action":"allow","target":"more.test"}]')[1] == 200
    assert curl(host, "/sandboxes/one", "-X", "DELETE")[1] == 200 and secure.names() == []
    assert curl(host, "/sandboxes", "-H", "OPENSANDBOX-EGRESS-AUTH: " + TOKEN, token=None)[1] == 200


def test_events_come_over_both(host, secure, pod, denied):
    secure.attach("one", pod)
    reader = subprocess.Popen(host.ns.command("curl", "-sSN", "-m", "50", "--resolve", "weir.test:9443:127.0.0.1", "--cacert",
                                              str(host.folder / "one.crt"), "-H", f"Authorization: Bearer {TOKEN}", WHERE + "/events"),
                              stdout=subprocess.PIPE, text=True)
    assert reader.stdout.readline()
    pod.probe(["dns", denied.name])
    assert any(denied.name in line for line in iter(reader.stdout.readline, ""))
    reader.kill()
    reader.wait()


@pytest.mark.parametrize("path, method", [("/sandboxes", "GET"), ("/sandboxes/one", "PUT"), ("/sandboxes/one", "DELETE"),
                                          ("/status", "GET"), ("/metrics", "GET"), ("/events", "GET"),
                                          ("/sandboxes/one/policy", "POST"), ("/sandboxes/none/healthz", "GET")])
def test_nobody_else_is(host, secure, pod, path, method):
    secure.attach("one", pod)
    for token in (None, "wrong", TOKEN + "x", TOKEN[:-1]):
        assert curl(host, path, "-X", method, token=token)[:2] == (0, 401)
    assert secure.names() == ["one"]


def test_without_tls_nothing_is_said(host, secure):
    code, status, body = curl(host, "/sandboxes", where="http://weir.test:9443")
    assert code != 0 and status == 0 and body == ""
    old = subprocess.run(host.ns.command("openssl", "s_client", "-connect", "127.0.0.1:9443", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"),
                         capture_output=True, text=True, input="", check=False)
    assert old.returncode != 0 and "Cipher is (NONE)" in old.stdout, old
    for version in ("-tls1_2", "-tls1_3"):
        good = subprocess.run(host.ns.command("openssl", "s_client", "-connect", "127.0.0.1:9443", version, "-CAfile",
                                              str(host.folder / "one.crt")), capture_output=True, text=True, input="", check=False)
        assert good.returncode == 0 and "Verify return code: 0 (ok)" in good.stdout, good


def test_guessing_is_answered_no_more(host, secure):
    assert [curl(host, "/sandboxes", token=f"guess-{i}")[1] for i in range(12)] == [401] * 10 + [429] * 2
    done = curl(host, "/sandboxes", "-D", "-", token=TOKEN)
    assert done[1] == 429 and 0 < int(done[2].lower().split("retry-after: ")[1].split()[0]) <= 60
    # what needs no token, and the unix socket, go on
    assert curl(host, "/healthz", token=None)[1] == 200 and secure.names() == []


def test_who_shows_no_token_locks_nobody_out(host, secure):
    """A page of another site can have a browser ask, as often as it likes, but not with a token."""
    assert [curl(host, "/sandboxes", token=None)[1] for _ in range(12)] == [401] * 12
    assert curl(host, "/sandboxes")[1] == 200


@pytest.mark.parametrize("without", ["--tls-cert", "--tls-key", "--token-file", "--listen"])
def test_there_is_no_tcp_without_all_of_it(host, files, without):
    del files[without]
    daemon = host.daemon(*[word for pair in files.items() for word in pair], ready=False)
    assert daemon.ended() == 2
    said = "--listen is needed" if without == "--listen" else f"{without} is needed"
    wait_for(lambda: any(said in line for line in daemon.errors))


@pytest.mark.parametrize("file, text", [("--tls-cert", "no certificate"), ("--tls-key", ""), ("--token-file", "short"),
                                        ("--token-file", "two words of many letters")])
def test_what_is_wrong_with_a_file_is_told_and_nobody_is_served(host, files, file, text):
    files[file].write_text(text)
    daemon = host.daemon(*[word for pair in files.items() for word in pair])
    assert curl(host, "/healthz", token=None)[1] == 0
    one, = daemon.get("/status").json()["degradations"]
    assert one["what"] == "tls" and str(files[file]) in one["reason"] and "no request is served over TCP" in one["reason"]
    wait_for(lambda: any("no request is served over TCP" in line for line in daemon.lines))
    # until there are good ones
    good = {"--token-file": TOKEN, **dict(zip(("--tls-cert", "--tls-key"), [f.read_text() for f in make_certificate(host.folder, "x")]))}
    for place, content in good.items():
        files[place].write_text(content)
    daemon.process.send_signal(signal.SIGHUP)
    wait_for(lambda: curl(host, "/sandboxes")[1] == 200)
    assert daemon.get("/status").json()["degradations"] == []


def test_new_files_are_taken_and_bad_ones_are_not(host, files, secure):
    cert, key = make_certificate(host.folder, "two")
    old = curl(host, "/sandboxes")
    for new, place in ((cert, "--tls-cert"), (key, "--tls-key")):
        new.rename(files[place])
    files["--token-file"].write_text("another-token-of-letters\n")
    secure.process.send_signal(signal.SIGHUP)
    wait_for(lambda: curl(host, "/sandboxes", token="another-token-of-letters") == old)
    assert curl(host, "/sandboxes", token=TOKEN)[1] == 401
    files["--tls-key"].write_text("nothing")
    secure.process.send_signal(signal.SIGHUP)
    wait_for(lambda: secure.get("/status").json()["degradations"])
    assert "those before serve on" in secure.get("/status").json()["degradations"][0]["reason"]
    assert curl(host, "/sandboxes", token="another-token-of-letters") == old


def test_it_is_served_again_when_control_is_replaced(host, secure):
    secure.kill_child("control")
    assert curl(host, "/sandboxes") == (0, 200, '{"sandboxes":[]}\n')
