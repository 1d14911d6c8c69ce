# SPDX-License-Identifier: Apache-2.0
"""What `make dist` hands out: built twice with the same sums, clean, and with the programs that it says."""
import hashlib
import pathlib
import re
import stat
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = {
    "weir": {"usr/bin/weir", "usr/libexec/weir/weir-events", "usr/share/man/man1/weir-run.1.gz", "usr/share/doc/weir/README.md",
             "usr/share/bash-completion/completions/weir"},
    "weir-daemon": {"usr/lib/sysusers.d/weir-daemon.conf", "usr/libexec/weir/weir-control", "usr/libexec/weir/weir-webhook", "usr/lib/systemd/system/weir.service"},
    "python3-weir": {"usr/lib/python3/dist-packages/weir/__init__.py", "usr/lib/python3/dist-packages/weir/py.typed"},
    "weir-postgres": {"usr/libexec/weir/weir-postgres"},
}


def package(folder, name):
    found, = folder.glob(f"{name}_*.deb")
    return found


def unpack(built, name, where):
    subprocess.run(["dpkg-deb", "-x", package(built[0], name), where], check=True)
    return {str(path.relative_to(where)) for path in where.rglob("*") if not path.is_dir()}


def test_two_builds_have_the_same_sums(built):
    sums = [(folder / "SHA256SUMS").read_text() for folder in built]
    assert sums[0] == sums[1] and len(sums[0].splitlines()) == sum(path.is_file() for path in built[0].rglob("*")) - 1
    for line in sums[0].splitlines():
        digest, name = line.split()
        assert hashlib.sha256((built[1] / name).read_bytes()).hexdigest() == digest


def test_debian_s_packages_alone_are_the_same_and_take_the_place_of_what_was_there(built, tmp_path):
    (tmp_path / "old.deb").touch(), (tmp_path / "kept").touch()
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  old.deb\n")
    subprocess.run([ROOT / "tools/dist", "--deb", tmp_path], check=True, stdout=subprocess.DEVNULL)
    whole = (built[0] / "SHA256SUMS").read_text().splitlines()
    assert (tmp_path / "SHA256SUMS").read_text().splitlines() == [line for line in whole if line.endswith(".deb")]
    assert {path.name for path in tmp_path.iterdir()} == {"SHA256SUMS", "kept", *(path.name for path in built[0].glob("*.deb"))}


# what the pages name and only the source has
OF_THE_SOURCE = ("action.yml", "deploy", "deploy/prometheus", "sdk/", "specs/", "tests/", "LICENSE", "NEWS", "CONTRIBUTING.md")


def test_what_the_pages_name_is_in_the_package(built, tmp_path):
    unpack(built, "weir", tmp_path)
    top = tmp_path / "usr/share/doc/weir"
    named = {(page.parent / link).resolve().relative_to(top.resolve()) for page in (top / "README.md", *top.glob("docs/*.md"))
             for link in re.findall(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)", page.read_text())}
    missing = [str(link) for link in named if not (top / link).exists()]
    assert len(named) > 15 and [name for name in missing if name not in OF_THE_SOURCE and not name.endswith(".webp")
                                and not name.startswith(tuple(part for part in OF_THE_SOURCE if part.endswith("/")))] == []


def test_the_source_is_the_commit_s(built, tmp_path):
    source, = (path for path in built[0].glob("*.tar.gz") if "-linux-" not in path.name)
    subprocess.run(["tar", "-C", tmp_path, "-xf", source], check=True)
    top, = tmp_path.iterdir()
    names = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).split("\n")[:-1]
    assert {str(path.relative_to(top)) for path in top.rglob("*") if not path.is_dir() or path.is_symlink()} == set(names)


def test_npm_s_package_has_what_is_built_and_nothing_else(built):
    package, = built[0].glob("weir-sdk-*.tgz")
    names = subprocess.check_output(["tar", "-tf", package], text=True).split()
    assert {"package/dist/index.js", "package/dist/index.d.ts", "package/package.json", "package/README.md"} <= set(names)
    assert not [name for name in names if name.endswith(".ts") and not name.endswith(".d.ts") or "schema.py" in name], names


def test_helm_takes_the_chart(built):
    package, = built[0].glob("weir-chart-*.tgz")
    said = [subprocess.check_output(["helm", "template", "app", chart]) for chart in (package, ROOT / "deploy/helm/weir")]
    assert said[0] == said[1] and b"kind: Deployment" in said[0]


@pytest.mark.parametrize("name", PACKAGES)
def test_lintian_finds_nothing(built, name):
    done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error,warning", package(built[0], name)],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_has_its_files_and_starts_nothing(built, name, tmp_path):
    files = unpack(built, name, tmp_path)
    assert PACKAGES[name] <= files, files
    assert not [path for path in files if path.startswith("etc/") or ".wants/" in path]
    scripts = subprocess.check_output(["dpkg-deb", "--ctrl-tarfile", package(built[0], name)])
    said = subprocess.run(["tar", "-xOf", "-", "./postinst"], input=scripts, stdout=subprocess.PIPE).stdout.decode()
    for word in ("deb-systemd-invoke", "systemctl start", "deb-systemd-helper enable"):
        assert word not in said, said
    # the group that may use the daemon's socket
    assert ("systemd-sysusers" in said) == (name == "weir-daemon")


def test_no_package_has_another_one_s_file(built, tmp_path):
    seen = set()
    for name in PACKAGES:
        (tmp_path / name).mkdir()
        files = unpack(built, name, tmp_path / name)
        assert not files & seen, files & seen
        seen |= files


def test_the_program_is_stripped_and_runs(built, tmp_path):
    unpack(built, "weir", tmp_path)
    program = tmp_path / "usr/bin/weir"
    assert "weir 0." in subprocess.check_output([program, "version"], text=True)
    assert program.stat().st_mode & stat.S_IXOTH
    assert b".debug_info" not in subprocess.check_output(["readelf", "-S", program])


def test_what_is_loaded_later_is_depended_on(built):
    said = subprocess.check_output(["dpkg-deb", "-f", package(built[0], "weir"), "Depends"], text=True)
    assert "libidn2-0" in said and "libpsl5" in said, said


@pytest.mark.parametrize("words, message", [
    ([], "--package is missing"), (["--package"], "needs a value"), (["--package", "x.deb", "--sha256", "0" * 63], "64 hexadecimal"),
    (["--package", "/nowhere/x.deb", "--sha256", "0" * 64], "/nowhere/x.deb"), (["--force"], "'--force'"),
    (["--package", "http://x.test/x.deb", "--sha256", "0" * 64], "http://x.test"),
], ids=["nothing", "no value", "short sum", "no file", "unknown", "plain http"])
def test_the_installer_names_what_is_wrong(words, message):
    done = subprocess.run([ROOT / "tools/install.sh", *words], capture_output=True, text=True)
    assert done.returncode == 2 and message in done.stderr, done


def test_the_installer_installs_nothing_with_another_sum(built):
    done = subprocess.run([ROOT / "tools/install.sh", "--yes", "--package", package(built[0], "weir"), "--sha256", "0" * 64],
                          capture_output=True, text=True)
    assert done.returncode == 1 and "nothing was installed" in done.stderr, done
    assert "installs it" not in done.stdout
