# SPDX-License-Identifier: Apache-2.0
"""The programs that need no library: in a root file system that has none."""
import os
import pathlib
import shutil
import subprocess

import pytest

from world.world import ECHO_PORT

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="module")
def unpacked(built, tmp_path_factory):
    tarball, = built[0].glob("weir-*-linux-amd64.tar.gz")
    folder = tmp_path_factory.mktemp("static")
    subprocess.run(["tar", "-C", folder, "--strip-components=1", "-xf", tarball], check=True)
    return folder


def test_nothing_is_loaded_and_each_start_is_elsewhere(unpacked):
    for name in ("bin/weir", "libexec/weir/weir-events"):
        said = subprocess.check_output(["readelf", "--wide", "--program-headers", "--dynamic", unpacked / name], text=True)
        assert "NEEDED" not in said and "INTERP" not in said and "Elf file type is DYN" in said, said


def test_the_tarball_names_the_libraries_in_it(unpacked):
    folder = unpacked / "share/doc/weir/libraries"
    names = {line.split()[0] for line in (folder / "VERSIONS").read_text().splitlines()}
    assert names == {"jansson", "libidn2", "libpsl", "libyaml", "musl", "sqlite3"}
    assert {path.name for path in folder.iterdir()} == names | {"VERSIONS"}


@pytest.fixture(scope="module")
def bare(world, unpacked):
    """enter(*argv): a program in a root with Weir, busybox and a client of DNS, and not one library; its Result."""
    root = world.folder / "bare"
    for name in ("bin", "etc", "root", "tmp"):
        (root / name).mkdir(parents=True)
    shutil.copytree(unpacked, root / "usr/local")
    shutil.copy("/bin/busybox", root / "bin/busybox")
    (root / "bin/sh").symlink_to("busybox")
    subprocess.run(["musl-gcc", "-static", "-o", root / "bin/lookup", HERE.parent / "world/clients/lookup.c"], check=True)
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    (root / "etc/resolv.conf").write_text(world.resolv_conf.read_text())
    assert not [path for path in root.rglob("*") if ".so" in path.name]
    assert b"statically linked" in subprocess.check_output(["file", root / "bin/busybox"]), "the test needs busybox-static"
    return lambda *argv, **options: world.command("/usr/bin/python3", "-I", HERE / "enter.py", root, *argv, **options)


def weir(*words):
    return ("/usr/local/bin/weir", "run", *words)


def test_what_is_allowed_is_reached_and_nothing_else(world, bare, site, denied):
    script = f"lookup {site.name} {denied.name}; for a in {site.v4} {denied.v4}; do echo said-$a | busybox nc -w 5 $a {ECHO_PORT}; done"
    with world.capture() as seen:
        done = bare(*weir("--allow", f"{site.name}:{ECHO_PORT}", "--", "/bin/sh", "-c", script))
        assert not seen.packets(dst=denied.v4) and seen.packets(dst=site.v4), done
    names, addresses = done.text.splitlines()[:2], done.text.splitlines()[2:]
    assert site.v4 in names[0] and "failed" in names[1], done
    assert addresses == [f"said-{site.v4}"], done


def test_names_outside_ascii_and_public_suffixes_are_known(bare):
    done = bare("/usr/local/bin/weir", "policy", "check", "--allow", "bücher.example", "--allow", "*.co.uk")
    assert "co.uk" in done.messages and "bücher" not in done.messages, done
    told = bare("/usr/local/bin/weir", "policy", "explain", "--allow", "bücher.example", "xn--bcher-kva.example:443")
    assert told.code == 0 and "allow" in told.text, told


def test_events_are_stored_and_shown(bare, denied):
    script = ("/usr/local/bin/weir run --state-dir /tmp/state -- /bin/lookup " + denied.name +
              "; exec /usr/local/bin/weir denies --state-dir /tmp/state --by name")
    done = bare("/bin/sh", "-c", script)
    assert done.code == 0 and denied.name in done.text, done


def test_what_it_lacks_says_so(bare):
    done = bare("/usr/local/bin/weir", "daemon", timeout=60)
    assert done.code == 125 and "weir-control; install it (package weir-daemon)" in done.messages, done


def test_the_same_attacks_fail(unpacked, tmp_path):
    """The heart of the world's tests, with this program in place of the build's: of all products, it can `weir run`."""
    for name in ("bin/weir", "libexec/weir/weir-events"):
        shutil.copy(unpacked / name, tmp_path)
    done = subprocess.run(["/usr/bin/python3", "-m", "pytest", "-q", "-k", "not test_ways_out or run", "tests/e2e/cli/test_run_programs.py",
                           "tests/e2e/relay/test_verify.py", "tests/e2e/hostile/test_ways_out.py"], cwd=HERE.parents[1], env={**os.environ, "WEIR": str(tmp_path / "weir")},
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:]
