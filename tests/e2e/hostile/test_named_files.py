# SPDX-License-Identifier: Apache-2.0
"""Files that are named from outside, in each product: what blocks or has no end is refused at once."""
import os
import stat

import pytest

PIPE, ENDLESS = "a pipe", "/dev/zero"


@pytest.fixture(params=[PIPE, ENDLESS])
def odd(world, request):
    if request.param != PIPE:
        return request.param
    path = world.workdir() / "pipe"
    os.mkfifo(path)
    return path


@pytest.mark.parametrize("product", ["run", "doctor", "sidecar", "daemon"])
def test_a_resolv_conf_that_is_no_file_is_refused_at_once(world, odd, product):
    if product in ("run", "doctor"):
        argv = {"run": ("run", "--allow", "a.test", "--", "true"), "doctor": ("doctor",)}[product]
        done = world.weir(*argv, resolv_conf=odd)
        named, code = "/etc/resolv.conf", {"run": 125, "doctor": 1}[product]
    else:
        done = world.weir(product, "--resolv-conf", odd)
        named, code = str(odd), 2
    assert done.code == code and f"{named}: it is not a regular file" in done.messages + done.text, done


def test_a_resolv_conf_that_is_a_file_is_read(world, site):
    """The control of the test above: the same command, and it is the file that names the server."""
    done = world.run("curl", "-sS", f"https://{site.name}/", allow=(site.name,), upstream=None, resolv_conf=True)
    assert done.code == 0, done


@pytest.mark.parametrize("what", ["policy", "extends", "profile", "config", ".weir.yaml"])
def test_a_pipe_in_a_files_place_keeps_no_run_waiting(world, odd, what):
    cwd, etc = world.workdir(), world.workdir()
    places = {"policy": cwd / "p.yaml", "extends": cwd / "p.yaml", "profile": etc / "profiles" / "p.yaml",
              "config": etc / "config.yaml", ".weir.yaml": cwd / ".weir.yaml"}
    (etc / "profiles").mkdir()
    (cwd / "e.yaml").write_text("extends: [./p.yaml]\n")
    places[what].touch()
    mounts = (f"mount --bind '{odd}' '{places[what]}'", "mkdir -p /etc/weir", f"mount --rbind '{etc}' /etc/weir")
    options = {"policy": ("--policy", "p.yaml"), "extends": ("--policy", "e.yaml"), "profile": ("--profile", "p")}.get(what, ())
    assert not stat.S_ISREG(os.stat(odd).st_mode)
    done = world.run("touch", "started", cwd=cwd, options=options, mounts=mounts)
    assert done.code == 2 and not (cwd / "started").exists(), done
    assert "is not a regular file" in done.messages or "cannot trust '/etc/weir" in done.messages, done
