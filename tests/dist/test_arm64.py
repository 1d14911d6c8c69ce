# SPDX-License-Identifier: Apache-2.0
"""What `make dist-arm64` hands out, and the unit tests of it. qemu runs programs here, and knows too little for a sandbox."""
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def handed_out(tmp_path_factory):
    both = [tmp_path_factory.mktemp(name) for name in ("one", "other")]
    for folder in both:
        subprocess.run([ROOT / "tools/dist-arm64", folder], check=True, stdout=subprocess.DEVNULL)
    return both


def test_two_builds_have_the_same_sums(handed_out):
    sums = [(folder / "SHA256SUMS-arm64").read_text() for folder in handed_out]
    assert sums[0] == sums[1] and len(sums[0].splitlines()) == 5, sums


def test_the_packages_are_for_arm64_and_whole(handed_out, tmp_path):
    for path in handed_out[0].glob("*.deb"):
        assert subprocess.check_output(["dpkg-deb", "-f", path, "Architecture"], text=True) == "arm64\n"
        subprocess.run(["dpkg-deb", "-x", path, tmp_path], check=True)
    for name in ("bin/weir", "libexec/weir/weir-events", "libexec/weir/weir-control"):
        said = subprocess.check_output(["readelf", "-h", tmp_path / "usr" / name], text=True)
        assert "AArch64" in said, said
    assert "weir" in (tmp_path / "usr/share/bash-completion/completions/weir").read_text()


def test_the_program_without_libraries_runs(handed_out, tmp_path):
    tarball, = handed_out[0].glob("*-linux-arm64.tar.gz")
    subprocess.run(["tar", "-C", tmp_path, "--strip-components=1", "-xf", tarball], check=True)
    said = subprocess.check_output(["readelf", "--wide", "--program-headers", "--dynamic", tmp_path / "bin/weir"], text=True)
    assert "NEEDED" not in said and "INTERP" not in said, said
    emulator = ROOT / "build-arm64/usr/bin/qemu-aarch64-static"
    explained = subprocess.run([emulator, tmp_path / "bin/weir", "policy", "explain", "--allow", "bücher.example",
                                "xn--bcher-kva.example:443"], capture_output=True, text=True)
    assert explained.returncode == 0 and "allow" in explained.stdout, explained


def test_the_unit_tests_pass(handed_out):
    done = subprocess.run([ROOT / "tools/dist-arm64", "--test"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    counts = dict(line.split(":") for line in done.stdout.splitlines() if line.startswith(("Ok:", "Fail:")))
    assert int(counts["Ok"]) > 120 and int(counts["Fail"]) == 0, done.stdout[-1000:]
