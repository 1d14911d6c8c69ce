# SPDX-License-Identifier: Apache-2.0
"""From the package to the first guarded command, on a Debian that has nothing else."""
import hashlib
import pathlib
import shutil
import subprocess

import pytest

from world.world import ECHO_PORT

HERE = pathlib.Path(__file__).parent


def install(root, path):
    """By the installer, as the README says."""
    for file in (path, HERE.parents[1] / "tools/install.sh"):
        shutil.copy(file, root / "root")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    done = subprocess.run(["chroot", root, "/root/install.sh", "--yes", "--package", f"/root/{path.name}", "--sha256", digest],
                          capture_output=True, text=True)
    assert done.returncode == 0 and "weir 0." in done.stdout, done


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def root(request, built):
    found = request.getfixturevalue(request.param)
    for name in ("weir", "weir-daemon"):
        path, = built[0].glob(f"{name}_*.deb")
        install(found, path)
    return found


def enter(world, root, *argv):
    return world.command("/usr/bin/python3", "-I", HERE / "enter.py", root, *argv)


@pytest.mark.parametrize("user", ["root", "nobody"])
def test_a_command_reaches_what_is_allowed_and_nothing_else(world, root, user, site, denied):
    (root / "etc/resolv.conf").write_text(world.resolv_conf.read_text())
    script = "".join(f"(exec 3<>/dev/tcp/{name}/{ECHO_PORT} && echo said-{name} >&3 && head -n 1 <&3); " for name in (site.name, denied.name, denied.v4))
    become = ("/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--") if user == "nobody" else ()
    with world.capture() as seen:
        done = enter(world, root, *become, "/usr/bin/weir", "run", "--allow", f"{site.name}:{ECHO_PORT}", "--", "/bin/bash", "-c", script)
        assert not seen.packets(dst=denied.v4) + seen.packets(dst=denied.v6), done
        assert seen.packets(dst=site.v4) + seen.packets(dst=site.v6), done
    assert done.text == f"said-{site.name}\n", done
    assert f"--allow {denied.name}" in done.messages, done


def test_the_machine_can_enforce(world, root):
    done = enter(world, root, "/usr/bin/weir", "doctor")
    assert done.code == 0 and "weir run works here" in done.text + done.messages, done


def test_nothing_was_enabled_or_started(root):
    assert (root / "usr/lib/systemd/system/weir.service").exists() or (root / "lib/systemd/system/weir.service").exists()
    assert not [path for path in (root / "etc").rglob("*weir*.service")]
    for name in ("weir-events", "weir-control", "weir-webhook"):
        assert (root / "usr/libexec/weir" / name).stat().st_mode & 0o777 == 0o111
    for process in pathlib.Path("/proc").glob("[0-9]*/root"):
        try:
            assert process.resolve() != root.resolve(), (process.parent / "cmdline").read_text()
        except OSError:
            pass
