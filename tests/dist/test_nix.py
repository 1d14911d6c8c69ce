# SPDX-License-Identifier: Apache-2.0
"""What Nix builds of deploy/nix, with Debian's compiler and libraries in the place of nixpkgs."""
import pathlib
import subprocess

from world.nix import Nix
from world.world import ECHO_PORT, RESOLVER4

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_nix_builds_what_guards_a_command(world, site, denied):
    folder, source = world.workdir(), world.workdir() / "weir"
    source.mkdir()
    archive = subprocess.Popen(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-C", source, "-x"], stdin=archive.stdout, check=True)
    out = pathlib.Path(Nix(folder)("nix-build", "--no-out-link", source=source).strip())
    names = {str(path.relative_to(out)) for path in out.rglob("*") if not path.is_dir()}
    assert {"bin/weir", "libexec/weir/weir-control", "libexec/weir/weir-events", "lib/systemd/system/weir.service",
            "share/man/man1/weir-run.1", "share/weir/weir-runc"} <= names
    assert str(out / "bin/weir") in (out / "lib/systemd/system/weir.service").read_text()
    said = subprocess.check_output(["readelf", "--dynamic", out / "bin/weir"], text=True)
    assert "/inputs/libidn2/lib:/inputs/libpsl/lib" in said
    script = f"for n in {site.name} {denied.name}; do (exec 3<>/dev/tcp/$n/{ECHO_PORT} && echo said-$n >&3 && head -n 1 <&3); done"
    done = world.command(out / "bin/weir", "run", "--upstream", RESOLVER4, "--allow", f"{site.name}:{ECHO_PORT}", "--", "bash", "-c", script)
    assert done.text == f"said-{site.name}\n" and f"--allow {denied.name}" in done.messages, done
