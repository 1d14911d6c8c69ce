# SPDX-License-Identifier: Apache-2.0
"""The words of `weir run`: exit statuses, messages, the report."""
import os
import pathlib
import re
import signal
import subprocess

import pytest

from world.world import HOST4, RESOLVER4


@pytest.mark.parametrize("status", [0, 1, 2, 42, 123, 125, 126, 127, 255])
def test_the_exit_status_is_the_commands(world, user, status):
    done = world.run("sh", "-c", f"exit {status}", user=user)
    assert done.code == status and done.err == b"", done


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGINT, signal.SIGPIPE],
                         ids=lambda n: n.name)
def test_a_command_that_dies_by_a_signal_shows_as_that(world, user, number):
    """Weir dies by it too, which is what a shell reports as 128 + number."""
    done = world.run("sh", "-c", f"kill -{int(number)} $$", user=user)
    assert done.code in (-number, 128 + number), done


NOT_STARTED = [("127", 127, "no-such-program-here"), ("127", 127, "./missing"), ("127", 127, "/nonexistent/program"),
               ("126", 126, "./not-executable"), ("126", 126, "/etc")]


@pytest.mark.parametrize("what, status, command", NOT_STARTED, ids=[n[2] for n in NOT_STARTED])
def test_a_command_that_cannot_start_is_as_in_a_shell(world, user, what, status, command):
    cwd = world.workdir(user)
    (cwd / "not-executable").write_text("#!/bin/sh\n")
    (cwd / "not-executable").chmod(0o644)
    done = world.run(command, user=user, cwd=cwd)
    assert done.code == status, done
    assert command in done.messages and len(done.messages.splitlines()) == 1, done


def test_a_script_without_interpreter_line_is_an_error_not_a_crash(world):
    cwd = world.workdir()
    (cwd / "script").write_text("exit 3\n")
    (cwd / "script").chmod(0o755)
    assert world.run("./script", cwd=cwd).code in (3, 126)


BAD = [
    ("no command", ["run"], "command"),
    ("no command behind --", ["run", "--allow", "a.test", "--"], "command"),
    ("an unknown option", ["run", "--alow", "a.test", "--", "true"], "--alow"),
    ("an option without value", ["run", "--allow"], "--allow"),
    ("an option with the command for its value", ["run", "--allow", "--", "true"], "--allow needs a value"),
    ("a verb too many for help", ["help", "run", "it"], "'it'"),
    ("two faults in what is asked", ["policy", "explain", "a..test", "b.test", "c..test"], "a..test"),
    ("an unknown uplink", ["run", "--uplink", "carrier-pigeon", "--", "true"], "carrier-pigeon"),
    ("an unknown self-test", ["run", "--self-test", "none", "--", "true"], "none"),
    ("an upstream that is a name", ["run", "--upstream", "dns.test", "--", "true"], "dns.test"),
    ("an upstream with a bad port", ["run", "--upstream", "1.1.1.1:99999", "--", "true"], "99999"),
    ("an upstream of nothing", ["run", "--upstream", "0.0.0.0", "--", "true"], "0.0.0.0"),
    ("an upstream of many", ["run", "--upstream", "224.0.0.1", "--", "true"], "224.0.0.1"),
    ("an upstream without its zone", ["run", "--upstream", "fe80::1", "--", "true"], "fe80::1"),
    ("a profile that is none", ["run", "--profile", "no-such", "--", "true"], "no-such"),
    ("a policy that is not there", ["run", "--policy", "no-such.yaml", "--", "true"], "no-such.yaml"),
    ("an unknown verb", ["rum"], "rum"),
    ("no verb", [], "usage"),
    ("two faults", ["run", "--allow", "a..test", "--allow", "b..test", "--", "true"], "b..test"),
]


@pytest.mark.parametrize("what, args, mentions", BAD, ids=[b[0] for b in BAD])
def test_bad_input_is_status_2_with_the_word_that_is_wrong(world, what, args, mentions):
    done = world.weir(*args)
    assert done.code == 2, done
    assert mentions in done.messages and done.out == b"", done


def test_paths_that_are_not_there_are_said_all_at_once(world, user):
    named = [word for option in ("rw", "ro", "hide") for n in (1, 2) for word in (f"--{option}", f"/no/such/{option}{n}")]
    done = world.run("sh", "-c", "echo started", options=named, user=user)
    assert done.code == 2 and done.out == b"", done
    for option, path in zip(named[::2], named[1::2]):
        assert f"weir: {option}: cannot find '{path}': No such file or directory\n" in done.messages, done
    there = world.workdir(user)
    (there / "shown").mkdir()
    done = world.run("sh", "-c", "echo started", options=("--rw", there, "--ro", there / "shown", "--hide", "/var/log"), user=user)
    assert done.code == 0 and done.text == "started\n", done


def test_a_path_that_a_preset_makes_is_there(world):
    home = world.workdir()
    done = world.run("true", options=("--rw-preset", "cargo", "--rw", home / ".cargo/registry"), env={"HOME": str(home)})
    assert done.code == 0 and (home / ".cargo/registry").is_dir(), done


@pytest.mark.parametrize("option, value", [("--allow", "a.test"), ("--rw", "/usr"), ("--upstream", "9.9.9.9")])
def test_an_option_more_often_than_the_limit_is_an_error(world, option, value):
    done = world.weir("run", *[option, value] * 300, "--", "true")
    assert done.code == 2 and option in done.messages, done


def test_hostile_bytes_in_a_message_are_escaped(world):
    done = world.run("true", allow=("a\x1b[31m..test",))
    assert done.code == 2 and b"\x1b" not in done.err, done


def test_options_may_have_an_equals_sign_and_the_command_keeps_its_own(world, site):
    done = world.weir("run", f"--allow={site.name}", f"--upstream={RESOLVER4}", "--", "echo", "--allow", "x", "--")
    assert done.text == "--allow x --\n", done


def test_arguments_arrive_as_they_were_given(world, user):
    words = ["", " ", "a b", "*", "$HOME", "'", '"', "\\", "\n", "ü", "--", "-"]
    done = world.run("/usr/bin/python3", "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", *words, user=user)
    assert done.json() == words


def test_nothing_refused_means_nothing_said(world, site, user):
    done = world.run("curl", "-sS", f"https://{site.name}/", allow=(site.name,), user=user)
    assert done.code == 0 and done.err == b"", done


def test_a_refused_name_is_reported_with_the_line_to_add(world, denied, user):
    done = world.run("sh", "-c", f"for i in 1 2 3; do getent ahostsv4 {denied.name}; done", user=user)
    lines = [line for line in done.messages.splitlines() if denied.name in line]
    assert any("3 times" in line for line in lines), done
    assert any(f"--allow {denied.name}" in line for line in lines), done
    assert done.out == b""


@pytest.mark.parametrize("field", ["v4", "v6"])
def test_a_refused_address_is_reported_with_the_line_to_add(world, denied, field):
    address = getattr(denied, field)
    done = world.run("curl", "-sS", f"http://{'[' + address + ']' if field == 'v6' else address}:8080/")
    assert address in done.messages and "8080" in done.messages, done
    rule = f"[{address}]:tcp/8080" if field == "v6" else f"{address}:tcp/8080"
    assert rule in done.messages and "--allow" in done.messages, done


def test_the_line_to_add_is_all_that_was_missing(world, denied):
    first = world.run("curl", "-sS", f"https://{denied.name}/")
    rules = re.findall(r"--allow (\S+)", first.messages)
    assert len(rules) == 1, first
    second = world.run("curl", "-sS", f"https://{denied.name}/", allow=rules)
    assert second.code == 0, second


def test_the_line_to_add_for_a_port_is_all_that_was_missing(world, site):
    """Also when another rule for the same name stands already."""
    have = [f"{site.name}:443"]
    first = world.run("curl", "-sS", f"http://{site.name}:8080/", allow=have)
    rules = re.findall(r"--allow (\S+)", first.messages)
    assert len(rules) == 1, first
    second = world.run("curl", "-sS", f"http://{site.name}:8080/", allow=[*have, *rules])
    assert second.code == 0, second


def test_a_refusal_by_a_rule_names_the_rule_and_its_line(world, denied):
    cwd = world.workdir()
    (cwd / "policy.yaml").write_text(f"egress:\n  - {{action: deny, target: {denied.name}}}\n")
    done = world.run("getent", "hosts", denied.name, options=("--policy", "policy.yaml"), cwd=cwd)
    assert "policy.yaml" in done.messages and ":2" in done.messages, done
    assert done.messages.count("policy.yaml:2") == 1, "the rule is said once"


@pytest.mark.parametrize("uplink, probe", [("none", ("-z",)), ("relay", ("-u",))])
def test_no_rule_is_suggested_where_the_uplink_is_what_is_missing(world, site, uplink, probe):
    command = f"getent hosts {site.name} >/dev/null; echo x | nc {' '.join(probe)} -w1 {site.name} 7007; true"
    done = world.run("sh", "-c", command, allow=(site.name,), options=("--uplink", uplink))
    assert "--uplink" in done.messages and "--allow " not in done.messages, done


def test_a_refused_port_of_an_allowed_name_is_reported_by_name(world, site):
    done = world.run("curl", "-sS", f"http://{site.name}:8080/", allow=(f"{site.name}:443",))
    assert done.code != 0 and "8080" in done.messages, done


def test_a_host_address_is_opened_by_a_rule_of_its_own(world):
    cwd = world.workdir()
    (cwd / "p.yaml").write_text("defaultAction: allow\n")
    done = world.run("nc", "-w50", HOST4, "80", options=("--policy", "p.yaml"), cwd=cwd)
    assert "an address of the host" in done.messages and f"--allow {HOST4}:tcp/80" in done.messages, done


@pytest.mark.parametrize("verify, status", [("", 2), ("verify: tls", 2), ("verify: dns", 0)])
def test_no_option_weakens_a_policy_that_requires_full_isolation(world, verify, status):
    cwd = world.workdir()
    (cwd / "p.yaml").write_text(f"require_full_isolation: true\n{verify}\n")
    options = ("--policy", "p.yaml", "--verify", "dns")
    done = world.run("touch", "started", options=options, cwd=cwd)
    assert done.code == status and (cwd / "started").exists() == (status == 0), done
    assert world.run("true", options=options[:2], cwd=cwd).code == 0


def test_quiet_says_nothing(world, denied, user):
    done = world.run("getent", "hosts", denied.name, options=("--quiet",), user=user)
    assert done.code == 2 and done.err == b"", done


def test_fail_on_deny_is_123_only_when_something_was_refused(world, site, denied, user):
    options = ("--fail-on-deny",)
    lookup = ["sh", "-c", f"getent hosts {denied.name}; exit 0"]
    assert world.run(*lookup, user=user).code == 0
    done = world.run(*lookup, user=user, options=options)
    assert done.code == 123 and denied.name in done.messages, done
    assert world.run("true", user=user, options=options).code == 0
    assert world.run("sh", "-c", "exit 7", user=user, options=options).code == 7
    assert world.run("curl", "-sS", f"https://{site.name}/", user=user, options=options, allow=(site.name,)).code == 0


def test_fail_on_deny_counts_packets_too(world, denied):
    done = world.run("sh", "-c", f"nc -z -w50 {denied.v4} 443; exit 0", options=("--fail-on-deny", "--quiet"))
    assert done.code == 123 and done.err == b"", done


def test_the_self_test_is_neither_reported_nor_a_refusal(world, user):
    done = world.run("true", user=user, options=("--fail-on-deny",))
    assert done.code == 0 and done.err == b"", done


@pytest.mark.parametrize("mode, status", [("full", 0), ("strict", 125)])
def test_a_first_host_that_cannot_be_reached_warns_or_refuses(world, mode, status):
    cwd = world.workdir()
    name = f"dead-{world.number()}.test"
    world.dns.add(name, world.address())
    done = world.run("touch", "started", allow=(f"{name}:9999",), options=("--self-test", mode), cwd=cwd)
    assert done.code == status, done
    assert name in done.messages, done
    assert (cwd / "started").exists() == (status == 0)


def test_a_first_host_that_no_name_server_answers_for_is_said_so(world):
    done = world.run("true", allow=("a.test:443",), options=("--self-test", "strict"), upstream="5.100.53.54:5300")
    assert done.code == 125 and "no name server has answered" in done.messages, done


@pytest.mark.parametrize("mode", ["deny", "full", "strict"])
def test_a_first_host_that_can_be_reached_is_fine(world, site, mode):
    done = world.run("true", allow=(f"{site.name}:443",), options=("--self-test", mode))
    assert done.code == 0 and done.err == b"", done


def test_no_upstream_is_needed_when_no_name_is_allowed(world):
    empty = world.workdir() / "empty"
    empty.touch()
    assert world.run("true", upstream=None, resolv_conf=empty).code == 0
    done = world.run("true", upstream=None, resolv_conf=empty, allow=("a.test",))
    assert done.code == 125 and "--upstream" in done.messages, done


def test_help_and_version(world):
    for args in (["help"], ["--help"], ["help", "run"], ["run", "--help"], ["version"], ["--version"]):
        done = world.weir(*args)
        assert done.code == 0 and done.out and not done.err, done


def test_a_flood_of_refusals_is_counted_not_printed(world):
    script = ("import socket\nfor i in range(3000):\n    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
              "    try: s.sendto(b'x', ('93.3.%d.%d' % (i // 250, i % 250), 99))\n    except OSError: pass\n"
              "    s.close()\n")
    done = world.run("/usr/bin/python3", "-c", script)
    assert done.code == 0, done
    assert len(done.messages.splitlines()) < 1500 and "more" in done.messages.splitlines()[-1], done


def test_a_file_size_limit_is_an_error_in_words(world):
    """Weir's own memory files count: it says so, and starts nothing."""
    done = world.command("sh", "-c", "ulimit -f 0; exec \"$0\" run -- echo ran", world.weir_path)
    assert done.code == 125 and b"File too large" in done.err and done.out == b"", done


@pytest.mark.parametrize("prepare", ["sh -c : ", "mount -o remount,hidepid=2 /proc"])
def test_where_the_hosts_proc_shows_few_processes(world, user, prepare):
    """In a container's process id namespace, whose second process is long gone; and where /proc hides those of others."""
    who = world.user(user).become()
    line = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", prepare + '; "$@"; exit $?', "sh", *who,
            world.weir_path, "run", "--upstream", "5.100.53.53", "--", "sh", "-c", "cat /proc/1/comm; ls -d /proc/2"]
    done = subprocess.run(world.host.command(*map(str, line)), capture_output=True, text=True, timeout=60, cwd=world.workdir(user),
                          env={"PATH": "/usr/bin:/bin:/usr/sbin", "LANG": "C.UTF-8"})
    assert done.returncode == 0 and done.stdout.startswith("weir-init"), done


def test_a_chroot_is_named_where_it_may_be_the_reason(world):
    line = ["unshare", "--mount", "sh", "-ec", 'mount --rbind / "$0"; exec chroot "$0" "$@"', world.workdir(), world.weir_path,
            "run", "--upstream", RESOLVER4, "--", "true"]
    done = world.command(*line)
    assert done.code == 125 and "in a chroot there are none" in done.messages, done


def test_a_run_maps_no_library_that_it_does_not_use(world, user):
    """The loader's work for each is a part of every start. The control: a pattern needs the list of public suffixes, and gets it."""
    with world.run_start("sh", "-c", "echo ready; sleep 300", user=user) as run:
        assert run.line() == "ready"
        mapped = {os.path.basename(line.split()[-1]) for line in pathlib.Path(f"/proc/{run.process.pid}/maps").read_text().splitlines() if "/" in line}
    assert "weir" in mapped and not {n for n in mapped if re.match("lib(idn2|psl|unistring|jansson|yaml|sqlite3|z)[-.]", n)}, mapped
    for target, code in (("*.co.uk", 2), ("*.ok.test", 0), ("b\u00fccher.test", 0)):
        done = world.command(world.weir_path, "policy", "check", "--allow", target, user=user)
        assert done.code == code and (b"under this suffix" in done.err) == (code == 2), done
