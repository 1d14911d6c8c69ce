# SPDX-License-Identifier: Apache-2.0
"""`weir doctor`: on a machine where all is well, and on machines where one thing is missing."""
import shutil
import socket

import pytest

from world.mounts import MASKED_PROC

SYSTEMS = ("Debian", "Ubuntu", "Fedora")
# The limit belongs to the user namespace that it is set in; the machine's stays as it is.
NO_NAMESPACES = "echo 0 > /proc/sys/user/max_user_namespaces; exec"


def doctor(world, *args, **options):
    options.setdefault("resolv_conf", True)
    return world.weir("doctor", *args, **options)


def rows(done):
    return {row["name"]: row for row in done.json()["rows"]}


def limited(world, *args):
    """weir where no user namespace can be made any more."""
    return world.command("unshare", "--user", "--map-root-user", "sh", "-c", f'{NO_NAMESPACES} "$@"', "sh",
                         world.weir_path, *args, user="weir-test", resolv_conf=True)


def test_a_good_machine_passes(world, user):
    done = doctor(world, "--json", user=user)
    assert done.code == 0 and done.err == b"" and done.json()["works"] is True, done
    assert not [r for r in rows(done).values() if r["state"] in ("failed", "untried")], done


def test_text_and_json_tell_of_the_same_rows(world, user):
    text = doctor(world, "--all", user=user)
    assert text.code == 0 and "weir run works here" in text.text, text
    for name in rows(doctor(world, "--json", user=user)):
        assert f"  {name}  " in text.text


def test_lines_fit_a_terminal_of_80_columns(world):
    for line in doctor(world).text.splitlines():
        assert len(line) <= 80, line


def test_a_masked_proc_fails_with_the_options_that_a_container_needs(world, user):
    done = doctor(world, "--json", user=user, mounts=MASKED_PROC)
    row = rows(done)["proc"]
    assert done.code == 1 and done.json()["works"] is False and row["state"] == "failed", done
    assert "systempaths=unconfined" in row["follows"] and "unmask=ALL" in row["follows"], row


def test_forbidden_namespaces_fail_with_the_sysctl_that_forbids_them(world):
    done = limited(world, "doctor", "--json")
    row = rows(done)["user namespaces"]
    assert done.code == 1 and row["state"] == "failed" and row["follows"], done
    for system in SYSTEMS:
        assert "user.max_user_namespaces" in row["mend"][system], row


def test_what_stands_on_a_missing_feature_is_not_tried(world):
    states = {name: row["state"] for name, row in rows(limited(world, "doctor", "--json")).items()}
    assert states["nf_tables"] == states["NFLOG"] == states["overlay"] == "untried", states


def test_a_machine_without_name_servers_fails(world):
    done = doctor(world, "--json", resolv_conf="/dev/null")
    assert done.code == 1 and rows(done)["name servers"]["state"] == "failed", done


def test_silent_name_servers_are_a_warning(world):
    silent = world.workdir() / "resolv.conf"
    silent.write_text("nameserver 5.100.0.2\n")
    done = doctor(world, "--json", resolv_conf=silent)
    assert done.code == 0 and rows(done)["name servers"]["state"] == "warning", done


def test_an_uplink_without_its_device_is_not_ok(world, tun):
    there = {program for program in ("slirp4netns", "pasta") if shutil.which(program)}
    found = rows(doctor(world, "--json", user="weir-test", mounts=tun))
    assert all(found[program]["state"] == "ok" for program in there), found
    no_device = {"user": "weir-test", "mounts": ("mount -t tmpfs none /dev/net",)}
    found = rows(doctor(world, "--json", **no_device))
    for row in (found[program] for program in there):
        assert row["state"] == "absent" and "/dev/net/tun can't be opened: No such file" in row["found"], row
        assert "modprobe tun" in row["mend"]["Debian"], row
    short, all_ = doctor(world, **no_device), doctor(world, "--all", **no_device)
    assert all_.code == 0 and all_.text.count("modprobe tun") == len(there), all_
    assert short.code == 0 and "modprobe" not in short.text and "only `--uplink`" not in short.text, short
    assert "  -     not needed        slirp4netns, pasta; `weir doctor --all` says more\n" in short.text, short
    assert "  -     not needed" not in all_.text and (not there or "weir doctor --all" not in all_.text), all_


def test_a_directory_that_was_removed_is_said(world):
    folder = world.workdir("weir-test")
    done = world.command("sh", "-c", 'mkdir "$0/gone" && cd "$0/gone" && rmdir "$0/gone" && exec "$1" doctor --json', folder, world.weir_path,
                         user="weir-test", resolv_conf=True)
    row = rows(done)["directory"]
    assert done.code == 1 and row["state"] == "failed" and row["found"] == "it has been removed", done
    assert row["mend"]["Debian"].startswith("cd "), row


def test_a_container_engine_that_the_user_may_use_is_a_warning(world):
    path = world.workdir() / "docker.sock"
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(path))
        path.chmod(0o666)
        mounts = ("mount -t tmpfs none /run", "touch /run/docker.sock", f"mount --bind {path} /run/docker.sock")
        done = doctor(world, "--json", user="weir-test", mounts=mounts)
    row = rows(done)["container engine"]
    assert done.code == 0 and row["state"] == "warning" and "docker.sock" in row["found"], done


def test_a_run_that_fails_for_the_machine_points_to_the_doctor(world, user):
    done = world.run("true", user=user, mounts=MASKED_PROC)
    assert done.code == 125 and done.messages.splitlines()[-1] == "weir: `weir doctor` says more", done
    done = limited(world, "run", "--", "true")
    assert done.code == 125 and done.messages.splitlines()[-1] == "weir: `weir doctor` says more", done


@pytest.mark.parametrize("options, command", [(("--rw", "/no/such/path"), ("true",)), ((), ("sh", "-c", "exit 125"))],
                         ids=["a bad option", "the command's own 125"])
def test_a_run_that_fails_otherwise_does_not(world, user, options, command):
    done = world.run(*command, options=options, user=user)
    assert done.code == (2 if options else 125) and "doctor" not in done.messages, done


def test_bad_usage_is_status_2(world):
    assert world.weir("doctor", "--jsn").code == 2
    assert world.weir("doctor", "more").code == 2


def test_there_is_no_colour_without_a_terminal(world):
    assert b"\x1b" not in doctor(world, env={"TERM": "xterm"}).out
