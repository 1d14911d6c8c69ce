# SPDX-License-Identifier: Apache-2.0
"""`weir run` with the programs that people run: what is allowed works without a setting,
what isn't fails at once, and nothing of it leaves the host."""
import shutil

import pytest

from world import expect
from world.world import RESOLVER4, RESOLVER6

URLOPEN = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=50).read().decode())"
FETCH = ("fetch(process.argv[1]).then(r => r.text()).then(t => console.log(t))"
         ".catch(e => { console.error(e.cause || e); process.exit(1) })")

# what, argv with {name} {v4} {v6} {key}, what it prints when it works, by address too
PROGRAMS = [
    ("curl-https", ["curl", "-sS", "--max-time", "50", "https://{name}/"], '"host": "{name}"'),
    ("curl-http", ["curl", "-sS", "--max-time", "50", "http://{name}:8080/"], '"host": "{name}"'),
    ("curl-v6", ["curl", "-6", "-sS", "--max-time", "50", "https://{name}/"], '"address": "{v6}"'),
    ("curl-v4", ["curl", "-4", "-sS", "--max-time", "50", "https://{name}/"], '"address": "{v4}"'),
    ("python", ["/usr/bin/python3", "-c", URLOPEN, "https://{name}:8443/"], '"host": "{name}"'),
    ("node", ["node", "-e", FETCH, "https://{name}/"], '"host": "{name}"'),
    ("openssl", ["openssl", "s_client", "-brief", "-verify_return_error", "-servername", "{name}",
                 "-connect", "{name}:443"], "CONNECTION ESTABLISHED"),
    ("git-https", ["git", "ls-remote", "https://{name}/git/tree.git"], "refs/heads/"),
    ("git-http", ["git", "ls-remote", "http://{name}/git/tree.git"], "refs/heads/"),
    ("nc", ["nc", "-N", "-w", "40", "{name}", "7007"], "a line for the echo"),
    ("socat", ["socat", "-T40", "-", "TCP:{name}:7007"], "a line for the echo"),
    ("ssh", ["ssh", "-F", "none", "-i", "{key}", "-o", "BatchMode=yes", "-o", "ConnectTimeout=40",
             "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "root@{name}", "hello"],
     "welcome: hello"),
]
# What shows no name on the wire has to have its port in the rule.
PORTS = {"nc": ":7007", "socat": ":7007", "ssh": ":22"}
IDS = [p[0] for p in PROGRAMS]
INPUT = b"a line for the echo\n"


def arguments(world, argv, site, user, ssh_server):
    """@argv filled in; a key that the user may read, when one is asked for."""
    cwd, key = world.workdir(user), None
    if any("{key}" in word for word in argv):
        key = cwd / "key"
        shutil.copy(ssh_server, key)
        shutil.chown(key, user, user)
        key.chmod(0o600)
    if any("/git/" in word for word in argv):
        world.repository()
    filled = [w if "=>" in w or "import" in w else w.format(name=site.name, v4=site.v4, v6=site.v6, key=key)
              for w in argv]
    return filled, cwd


@pytest.mark.parametrize("what, argv, prints", PROGRAMS, ids=IDS)
def test_an_allowed_name_works(world, site, user, ssh_server, what, argv, prints):
    argv, cwd = arguments(world, argv, site, user, ssh_server)
    rule = site.name + PORTS.get(what, "")
    done = world.run(*argv, allow=(rule,), user=user, cwd=cwd, input=INPUT)
    assert done.code == 0, done
    wanted = prints.format(name=site.name, v4=site.v4, v6=site.v6)
    assert wanted in done.text + (done.messages if what == "openssl" else ""), done
    assert "refused" not in done.messages, done


@pytest.mark.parametrize("what, argv, prints", PROGRAMS, ids=IDS)
def test_a_denied_name_fails_at_once_and_leaves_nothing(world, site, denied, user, ssh_server, what, argv, prints):
    argv, cwd = arguments(world, argv, denied, user, ssh_server)
    with world.capture() as capture:
        done = world.run(*argv, allow=(site.name,), user=user, cwd=cwd, input=INPUT)
        assert done.code not in (0, 125), done
        assert denied.name in done.messages, done
        assert capture.packets() == []


BY_ADDRESS = [(what, argv, field) for what, argv, _ in PROGRAMS for field in ("v4", "v6")
              if what not in ("curl-v4", "curl-v6") or what == f"curl-{field}"]


@pytest.mark.parametrize("what, argv, field", BY_ADDRESS, ids=[f"{w}-{f}" for w, _, f in BY_ADDRESS])
def test_a_denied_address_fails_at_once_and_leaves_nothing(world, denied, ssh_server, what, argv, field):
    class Bare:
        name = getattr(denied, field)
        v4, v6 = denied.v4, denied.v6
    if field == "v6" and any("://" in w or ":443" in w or "TCP:" in w for w in argv):
        Bare.name = f"[{denied.v6}]"
    argv, cwd = arguments(world, argv, Bare, "weir-test", ssh_server)
    with world.capture() as capture:
        done = world.run(*argv, user="weir-test", cwd=cwd, input=INPUT)
        assert done.code not in (0, 125), done
        assert capture.packets() == []


def test_dig_sees_answers_and_refusals(world, site, denied, user):
    done = world.run("sh", "-c", f"dig +short {site.name}; dig +short AAAA {site.name}; dig {denied.name}",
                     allow=(site.name,), user=user)
    assert done.text.split()[:2] == [site.v4, site.v6], done
    assert "status: NXDOMAIN" in done.text and "SOA" in done.text and "EDE: 15" in done.text, done
    assert world.dns.count(denied.name) == 0


def test_getent_and_getaddrinfo_agree(world, site, denied):
    done = world.run("sh", "-c", f"getent ahosts {site.name}; getent ahosts {denied.name}; echo $?",
                     allow=(site.name,))
    assert site.v4 in done.text and site.v6 in done.text and done.text.endswith("\n2\n"), done


def test_git_clones_over_https(world, site, user):
    world.repository()
    cwd = world.workdir(user)
    done = world.run("git", "clone", "-q", f"https://{site.name}/git/tree.git", allow=(f"{site.name}:443",),
                     user=user, cwd=cwd)
    assert done.code == 0, done
    assert (cwd / "tree" / "file").read_text() == "content\n"
    assert (cwd / "tree").stat().st_uid == cwd.stat().st_uid


def test_a_redirect_to_a_denied_host_is_not_followed(world, site, denied):
    def redirect(conn, local, peer):
        conn.recv(65536)
        conn.sendall(f"HTTP/1.1 302 Found\r\nLocation: http://{denied.name}/\r\n"
                     "Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
    with world.tcp(8090, redirect):
        done = world.run("curl", "-sSL", "--max-time", "50", f"http://{site.name}:8090/", allow=(site.name,))
    assert done.code == 6 and denied.name in done.messages, done
    assert world.web.reached(denied.name) == []


@pytest.mark.parametrize("direction", ["down", "up"])
def test_much_data_arrives_whole(world, site, user, direction):
    size = 20_000_000
    if direction == "down":
        argv = ["curl", "-sS", "-o", "data", "-w", "%{size_download}", f"https://{site.name}/bytes/{size}"]
    else:
        argv = ["sh", "-c", f"head -c {size} /dev/zero | curl -sS -T - -H 'Transfer-Encoding:' "
                            f"-H 'Content-Length: {size}' http://{site.name}/put"]
    done = world.run(*argv, allow=(site.name,), user=user)
    assert done.code == 0 and str(size) in done.text, done


def test_a_half_closed_connection_still_answers(world, site):
    def answer_at_the_end(conn, local, peer):
        data = b""
        while more := conn.recv(65536):
            data += more
        conn.sendall(b"%d bytes" % len(data))
    with world.tcp(7100, answer_at_the_end):
        done = world.run("nc", "-N", site.name, "7100", allow=(f"{site.name}:7100",), input=b"x" * 300_000)
    assert done.text == "300000 bytes", done


def test_a_server_that_is_not_there_is_an_error_in_time(world, site):
    answer = world.probe(["connect", site.name, 7999, "hi"], allow=(f"{site.name}:7999",))
    expect.tcp_gave_nothing(answer)


def test_a_name_with_many_addresses_and_one_that_works(world):
    name = f"many-{world.number()}.test"
    addresses = [world.address() for _ in range(8)]
    world.dns.add(name, *addresses)
    with world.tcp(7101, address=addresses[5]):
        answer = world.probe(["connect", name, 7101, "hi"], allow=(f"{name}:7101",))
    assert answer.data == "hi", dict(answer)


@pytest.mark.parametrize("upstream", [RESOLVER4, "2a01:5353::53", f"{RESOLVER4}:53", "[2a01:5353::53]:53"])
def test_the_upstream_may_be_any_address(world, site, upstream):
    done = world.run("getent", "hosts", site.name, allow=(site.name,), upstream=upstream)
    assert done.code == 0, done
    wanted = upstream.removesuffix(":53").strip("[]") if upstream != "2a01:5353::53" else upstream
    assert {q.server for q in world.dns.queries(site.name)} == {wanted}


def test_the_second_upstream_answers_when_the_first_does_not(world, site):
    world.dns.on(site.name, lambda q: q.answer(site.v4, site.v6) if q.server == RESOLVER6 else None)
    answer = world.probe(["dns", site.name], allow=(site.name,), options=("--upstream", RESOLVER6))
    assert answer.addresses == [site.v4] and answer.ms < expect.FAST_MS, dict(answer)


def test_without_upstream_the_hosts_resolver_is_asked(world, site, user):
    done = world.run("getent", "hosts", site.name, allow=(site.name,), upstream=None, resolv_conf=True, user=user)
    assert done.code == 0, done
    assert {q.server for q in world.dns.queries(site.name)} == {RESOLVER4}


def test_an_upstream_that_fails_is_an_error_and_no_fallback(world, site):
    world.dns.on(site.name, lambda q: q.answer(rcode="SERVFAIL"))
    answer = world.probe(["dns", site.name], allow=(site.name,))
    assert answer.result == "SERVFAIL" and answer.ms < expect.FAST_MS, dict(answer)
    assert {q.server for q in world.dns.queries(site.name)} == {RESOLVER4}


def test_a_truncated_answer_is_asked_again_over_tcp(world, site):
    def cut(q):
        if q.tcp:
            return q.answer(site.v4)
        reply = q.answer()
        reply.flags |= 0x0200
        return reply
    world.dns.on(site.name, cut)
    answer = world.probe(["dns", site.name], allow=(site.name,))
    assert answer.addresses == [site.v4], dict(answer)


def test_uplink_none_answers_names_and_lets_nothing_through(world, site):
    name, dial = world.probe(["dns", site.name], ["tcp", site.v4, 443], allow=(site.name,),
                             options=("--uplink", "none"))
    expect.tcp_refused(dial)
    assert name.result in ("NOERROR", "NXDOMAIN")
    assert world.web.reached(address=site.v4) == []


@pytest.mark.parametrize("rule", ["{v4}", "{v4}/32", "{v4}:7007", "[{v6}]:7007", "{v6}", "{v6}/128", "2a01:93::/64"])
def test_an_address_rule_opens_its_address(world, site, rule):
    address = site.v4 if "v4" in rule else site.v6
    answer = world.probe(["tcp", address, 7007, "hi"], allow=(rule.format(v4=site.v4, v6=site.v6),))
    assert answer.data == "hi", dict(answer)


def test_a_denied_address_stays_denied_whatever_taught_it(world, site):
    answer = world.probe(["connect", site.name, 7007, "hi"], allow=(f"{site.name}:7007",), deny=(site.v4, site.v6))
    assert answer.result != "ok" and answer.ms < expect.FAST_MS, dict(answer)


def test_deny_comes_before_allow(world, site):
    denied, other = world.probe(["dns", f"gist.{site.name}"], ["lookup", site.name],
                                allow=(f"**.{site.name}",), deny=(f"gist.{site.name}",))
    expect.name_refused(denied)
    assert other.result == "ok"


def test_npm_gives_a_denied_registry_up_before_its_user_does(world, user):
    """It asks again whatever it was told, by itself after 10 and 60 s."""
    name = f"registry-{world.number()}.test"
    done = world.run("npm", "view", "six", f"--registry=https://{name}/", "--cache=/tmp/npm", user=user)
    assert done.code == 1 and "ENOTFOUND" in done.messages and name in done.messages, done
    assert world.dns.count(name) == 0
    done = world.run("sh", "-c", "echo $npm_config_fetch_retry_mintimeout $npm_config_fetch_retry_maxtimeout", user=user,
                     env={"npm_config_fetch_retry_mintimeout": "7"})
    assert done.text == "7 2000\n", done
