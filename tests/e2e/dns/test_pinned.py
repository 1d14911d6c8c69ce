# SPDX-License-Identifier: Apache-2.0
"""dns: pinned in the real world: every name is asked for once before the command starts, and nothing leaves after."""
import json
import signal

from world.sidecar import wait_for
from world.world import ECHO_PORT

PROBE = ("/usr/bin/python3", "-IS")


def rules(*targets, more=""):
    lines = "".join(f"  - {{action: allow, {target}}}\n" for target in targets)
    return f"dns: pinned\n{more}egress:\n{lines}"


def policy_in(world, text, user="root"):
    cwd = world.workdir(user)
    (cwd / "p.yaml").write_text(text)
    return {"options": ("--policy", "p.yaml"), "cwd": cwd, "user": user}


def test_each_name_is_asked_for_once_and_nothing_leaves_after(world, denied, user):
    sites = [world.site(f"pin-{world.number()}.test") for _ in range(3)]
    where = policy_in(world, rules(*(f"target: {s.name}, ports: [{ECHO_PORT}]" for s in sites)), user)
    probes = [["dns", sites[0].name, kind] for kind in ("A", "AAAA", "TXT") for _ in range(3)]
    probes += [["dns", denied.name, "A"], ["dns", f"x.{sites[1].name}", "A"], ["dns", "1.0.0.127.in-addr.arpa", "PTR"]]
    before = world.dns.count()
    with world.capture() as capture:
        answers = world.probe(*probes, **where)
        left = capture.packets()
    asked = [(q.name, q.type) for s in sites for q in world.dns.queries(s.name)]
    assert sorted(asked) == sorted((s.name, kind) for s in sites for kind in ("A", "AAAA"))
    assert world.dns.count(denied.name) == 0 and world.dns.count(f"*.{sites[1].name}") == 0
    # Nothing but those questions: no packet for anything else.
    assert world.dns.count() == before + 6 and {p.dport for p in left} == {53}, left
    assert answers[0].addresses == [sites[0].v4] and answers[3].addresses == [sites[0].v6], answers
    assert [a.result for a in answers] == ["NOERROR"] * 9 + ["NXDOMAIN", "NXDOMAIN", "NXDOMAIN"], answers
    assert all(a.answers[0][2] == 60 for a in answers[:6]), answers


def test_the_pinned_address_is_open_on_its_ports_and_no_other(world, user):
    site, other = world.site(f"pin-{world.number()}.test"), world.site(f"pin-{world.number()}.test")
    where = policy_in(world, rules(f"target: {site.name}, ports: [{ECHO_PORT}]", more="verify: dns\n"), user)
    echo, web, stranger = world.probe(["tcp", site.v4, ECHO_PORT, "hello"], ["tcp", site.v4, 80],
                                      ["tcp", other.v4, ECHO_PORT], **where)
    # Without a query: it was pinned before.
    assert (echo.result, echo.data) == ("ok", "hello")
    assert (web.result, stranger.result) == ("refused", "refused")


def test_a_name_that_does_not_resolve_is_a_warning(world, user):
    site, gone = world.site(f"pin-{world.number()}.test"), f"gone-{world.number()}.test"
    done = world.run("getent", "ahostsv4", site.name, **policy_in(world, rules(f"target: {gone}", f"target: {site.name}"),
                                                                  user))
    assert done.code == 0 and site.v4 in done.text, done
    assert f"cannot resolve {gone}: the name does not exist" in done.messages, done


def test_a_required_name_that_does_not_resolve_ends_the_launch(world, user):
    gone = f"gone-{world.number()}.test"
    where = policy_in(world, rules(f"target: {gone}, required: true"), user)
    done = world.run("touch", "ran", **where)
    assert done.code == 125 and f"cannot resolve {gone}: the name does not exist (the rule says required)" in \
        done.messages, done
    assert not (where["cwd"] / "ran").exists()


def test_an_upstream_that_is_silent_costs_five_seconds_at_most(world):
    site, silent = world.site(f"pin-{world.number()}.test"), f"silent-{world.number()}.test"
    world.dns.on(silent, lambda q: None)
    done = world.run("getent", "ahostsv4", site.name, **policy_in(world, rules(f"target: {silent}",
                                                                               f"target: {site.name}")))
    assert done.code == 0 and f"cannot resolve {silent}" in done.messages, done


def test_special_addresses_are_not_pinned(world):
    private, open_ = f"pin-{world.number()}.test", f"pin-{world.number()}.test"
    world.dns.add(private, "10.9.9.9")
    world.dns.add(open_, "10.9.9.10")
    where = policy_in(world, rules(f"target: {private}", f"target: {open_}, private: true", more="verify: dns\n"))
    with world.capture() as capture:
        refused, told = world.probe(["tcp", "10.9.9.9", ECHO_PORT], ["tcp", "10.9.9.10", ECHO_PORT], **where)
        assert capture.count(dst="10.9.9.9") == 0 and capture.count(dst="10.9.9.10") > 0
    assert (refused.result, told.result) == ("refused", "ok")


def test_what_can_not_be_pinned_is_an_error_with_its_place(world):
    where = policy_in(world, "dns: pinned\ndefaultAction: allow\negress:\n"
                             "  - {action: allow, target: '*.a.test'}\n"
                             "  - {action: allow, target: b.test, types: [TXT]}\n"
                             "  - {action: deny, target: '*.c.test'}\n")
    done = world.run("true", **where)
    assert done.code == 2, done
    assert "p.yaml:4:" in done.messages and "'*.a.test' is a wildcard, but dns: pinned" in done.messages, done
    assert "p.yaml:5:" in done.messages and "'b.test' has types" in done.messages, done
    assert "p.yaml:1:6: dns: 'pinned' needs defaultAction: deny" in done.messages, done
    assert "c.test" not in done.messages, done


def test_connections_that_have_to_show_a_name_find_it_among_the_pins(world, user):
    site, evil = world.site(f"pin-{world.number()}.test"), f"evil-{world.number()}.test"
    where = policy_in(world, rules(f"target: {site.name}, ports: [443]"), user)
    done = world.run("sh", "-c", "curl -sS $0 && curl -sS $0", f"https://{site.name}/x", **where)
    assert done.code == 0 and done.text.count('"sni"') == 2, done
    assert world.dns.count(site.name) == 2, "A and AAAA, before the start"
    done = world.run("curl", "-sS", "--connect-to", f"{evil}:443:{site.name}:443", f"https://{evil}/", **where)
    assert done.code != 0 and world.web.reached(evil) == [], done


def test_the_self_test_finds_what_is_pinned(world):
    site = world.site(f"pin-{world.number()}.test")
    where = policy_in(world, rules(f"target: {site.name}, ports: [443]"))
    where["options"] += ("--self-test", "full")
    done = world.run("true", **where)
    assert done.code == 0 and done.err == b"", done


def test_a_signal_ends_the_wait(world):
    silent = f"silent-{world.number()}.test"
    world.dns.on(silent, lambda q: None)
    with world.run_start("touch", "ran", **policy_in(world, rules(f"target: {silent}"))) as command:
        wait_for(lambda: world.dns.count(silent) > 0)
        command.signal(signal.SIGTERM)
        assert command.wait().code == -signal.SIGTERM


HOLD = """
import json, socket, sys
first = socket.create_connection((socket.gethostbyname(sys.argv[1]), %d), 50)
print("open", flush=True)
sys.stdin.readline()
first.sendall(b"still")
print(json.dumps([first.recv(100).decode(), socket.gethostbyname(sys.argv[1])]), flush=True)
""" % ECHO_PORT


def test_names_are_pinned_again_without_cutting_flows(world):
    name, before, after = f"pin-{world.number()}.test", world.address(), world.address()
    world.dns.add(name, before)
    where = policy_in(world, rules(f"target: {name}, ports: [{ECHO_PORT}]", more="verify: dns\n"))
    where["env"] = {"WEIR_REPIN_INTERVAL": "10s"}
    with world.run_start(*PROBE, "-c", HOLD, name, **where) as command:
        assert command.line() == "open"
        world.dns.add(name, after)
        wait_for(lambda: world.dns.count(name, "A") >= 2, step=0.2)
        command.say("\n")
        assert json.loads(command.line()) == ["still", after]
