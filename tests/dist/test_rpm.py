# SPDX-License-Identifier: Apache-2.0
"""The source RPM, and the packages that rpmbuild makes of it."""
import json
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = {
    "weir": {"/usr/bin/weir", "/usr/libexec/weir/weir-events", "/usr/share/man/man1/weir-run.1", "/usr/share/man/man5/weir-policy.5",
             "/usr/share/bash-completion/completions/weir"},
    "weir-daemon": {"/usr/lib/sysusers.d/weir-daemon.conf", "/usr/libexec/weir/weir-control", "/usr/libexec/weir/weir-webhook",
                    "/usr/lib/systemd/system/weir.service"},
    "weir-postgres": {"/usr/libexec/weir/weir-postgres"},
}


def rpm(*words):
    return subprocess.check_output(["rpm", *words], text=True)


@pytest.fixture(scope="module")
def packages(built, tmp_path_factory):
    """Built as another distribution builds them, but that Debian's packages are no RPMs' requirements."""
    top = tmp_path_factory.mktemp("rpm")
    source, = built[0].glob("*.src.rpm")
    subprocess.run(["rpmbuild", "--rebuild", "--nodeps", "--quiet", "--define", f"_topdir {top}", source], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return {rpm("-qp", "--queryformat", "%{NAME}", path): path for path in top.glob("RPMS/*/*.rpm")}


def test_the_spec_has_the_version_of_the_source():
    version = re.search(r"^  version: '(.*)'", (ROOT / "meson.build").read_text(), re.M).group(1)
    assert f"\nVersion: {version}\n" in (ROOT / "deploy/rpm/weir.spec").read_text()
    assert json.loads((ROOT / "deploy/devcontainer/devcontainer-feature.json").read_text())["version"] == version


def test_each_package_has_its_files(packages):
    assert set(packages) == set(PACKAGES)
    seen = set()
    for name, path in packages.items():
        # Fedora's rpmbuild compresses the manuals, Debian's doesn't.
        files = {file.removesuffix(".gz") for file in rpm("-qlp", path).split()}
        assert PACKAGES[name] <= files, files
        assert not [file for file in files if file.startswith("/etc/") or ".wants/" in file]
        assert not files & seen, files & seen
        seen |= files
        for line in rpm("-qlvp", path).splitlines():
            assert "/libexec/weir/weir-" not in line or line.startswith("---x--x--x"), line


def test_no_script_starts_or_enables_anything(packages):
    for name, path in packages.items():
        said = rpm("-qp", "--scripts", path)
        for word in (" start", "restart", "enable", "preset"):
            assert word not in said, said
        assert ("systemd-sysusers" in said) == (name == "weir-daemon"), said


def test_what_is_loaded_later_is_required(packages):
    needs = rpm("-qp", "--requires", packages["weir"])
    assert "libidn2.so.0" in needs and "libpsl.so.5" in needs, needs
    assert "python" not in rpm("-qp", "--requires", packages["weir-daemon"])
