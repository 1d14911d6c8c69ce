# SPDX-License-Identifier: Apache-2.0
"""weir run in a container, with the options that weir doctor names there: by root, who has no SYS_ADMIN in Docker and
podman, and by an ordinary user."""
import contextlib
import os

import pytest

from world import docker, podman

OPTIONS = {"docker": ("seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined"),
           "podman": ("seccomp=unconfined", "apparmor=unconfined", "unmask=ALL")}
USERS = {"root": "0:0", "ordinary": "1000:1000"}

# What a container's root may write to in /proc, a sandbox of its may not. It is opened, and nothing is written.
OPEN = """
import os
for folder, folders, files in os.walk("/proc"):
    folders[:] = [f for f in folders if not f.isdigit() and f not in ("self", "thread-self", "pressure")]
    for name in files:
        path = os.path.join(folder, name)
        try:
            os.close(os.open(path, os.O_WRONLY))
            print(path)
        except OSError:
            pass
"""


@pytest.fixture(scope="module", params=["docker", "podman"])
def any_container(world, request):
    """Run something in a new container: any_container(user, argv, options)."""
    kind = {"docker": docker, "podman": podman}[request.param]
    if not kind.client_programs():
        pytest.skip(f"no {request.param} here")
    with contextlib.ExitStack() as stack:
        if request.param == "docker":
            engine = stack.enter_context(docker.Engine(world))
            image = engine.app
        else:
            engine = stack.enter_context(podman.Podman(world))
            root = engine.folder / "app"
            for folder in ("usr", "etc", "tmp", "proc", "sys", "dev", "tools", "ca", "run", "work", "root"):
                (root / folder).mkdir(parents=True)
            for link in ("bin", "sbin", "lib", "lib64"):
                (root / link).symlink_to(f"usr/{link}")
            (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/tmp:/bin/sh\n")
            image = engine.load_root("app:test", root)

        def run(user, *argv, options=(), security=OPTIONS[request.param]):
            work = world.workdir()
            uid, gid = map(int, USERS[user].split(":"))
            os.chown(work, uid, gid)
            words = [w for text in security for w in ("--security-opt", text)]
            done = engine.call("run", "--rm", "-e", "HOME=/tmp", "--user", USERS[user], *words, *options, "-v", "/usr:/usr:ro", "-v",
                               "/etc/alternatives:/etc/alternatives:ro", "-v", f"{world.weir_path.parent}:/opt/weir:ro", "-v",
                               f"{work}:/work", "-w", "/work", image, *argv)
            done.work = work
            return done
        yield run


# Podman takes its time, and is like Docker in what these try.
in_docker = pytest.mark.parametrize("any_container", ["docker"], indirect=True)


def weir(*argv, options=()):
    return "/opt/weir/weir", "run", "--no-config", "--upstream", "5.100.53.53", *options, "--", *argv


@pytest.mark.parametrize("user", USERS)
def test_a_command_runs_and_writes_to_its_directory(any_container, user):
    done = any_container(user, *weir("sh", "-c", "id -u; echo x > made; touch /usr/x /etc/x; cat made"))
    assert done.code == 0 and done.text == f"{USERS[user].split(':')[0]}\nx\n" and (done.work / "made").exists(), done
    assert done.messages.count("Read-only file system") == 2, done


@in_docker
@pytest.mark.parametrize("user", USERS)
def test_it_reaches_what_is_allowed_and_nothing_else(world, any_container, user, site, denied):
    script = f"curl -sko /dev/null -w '%{{http_code}} ' https://{site.name}/; curl -sk https://{denied.name}/ || echo closed"
    done = any_container(user, *weir("sh", "-c", script, options=("--allow", f"{site.name}:443")))
    assert done.code == 0 and done.text == "200 closed\n", done
    asked = {q.name for q in world.dns.queries()}
    assert site.name in asked and denied.name not in asked


@in_docker
@pytest.mark.parametrize("user", USERS)
def test_it_writes_to_nothing_of_the_kernels(any_container, user):
    done = any_container(user, *weir("/usr/bin/python3", "-ISc", OPEN))
    assert done.code == 0 and done.text == "", done
    if user == "root":
        assert "/proc/" in any_container(user, "/usr/bin/python3", "-ISc", OPEN).text, "positive control"


@in_docker
@pytest.mark.parametrize("user", USERS)
def test_credentials_are_hidden_there_too(any_container, user):
    script = ("mkdir -p /work/home/.aws && echo needle > /work/home/.aws/credentials && "
              "HOME=/work/home A_TOKEN=needle /opt/weir/weir run --quiet --upstream 5.100.53.53 -- sh -c 'cat home/.aws/credentials; env' ; "
              "cat home/.aws/credentials")
    done = any_container(user, "/bin/sh", "-c", script)
    assert done.text.count("needle") == 1 and done.text.endswith("needle\n"), done


@in_docker
def test_root_without_the_right_to_map_itself_is_told(any_container):
    done = any_container("root", *weir("true"), options=("--cap-drop", "ALL"))
    assert done.code == 125 and "SETFCAP" in done.messages and "ordinary user" in done.messages, done


def test_doctor_names_the_options_that_mend_it(any_container, request):
    """Of the engine's defaults: doctor tries a sandbox itself, and with what it names one starts."""
    done = any_container("ordinary", "/opt/weir/weir", "doctor", "--json", security=())
    row = next(row for row in done.json()["rows"] if row["name"] == "container")
    assert row["state"] == "warning", done
    words = row["mend"]["Debian"].split()
    assert words[:2] == [request.node.callspec.params["any_container"], "run"], row
    named = [words[i + 1] for i, word in enumerate(words) if word == "--security-opt"]
    done = any_container("ordinary", "/opt/weir/weir", "doctor", "--json", security=named)
    row = next(row for row in done.json()["rows"] if row["name"] == "container")
    assert row["state"] == "ok" and row["found"] == f"this is a container of {words[0].replace('docker', 'Docker')}", done
