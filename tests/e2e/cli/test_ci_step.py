# SPDX-License-Identifier: Apache-2.0
"""What the action of action.yml does on a runner, and the include for GitLab: its script is run as they run it."""
import html
import pathlib
import re
import shutil
import textwrap

import pytest

yaml = pytest.importorskip("yaml")
ROOT = pathlib.Path(__file__).resolve().parents[3]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))


@pytest.fixture
def step(world, user):
    """Run the action's step with these inputs, as a runner that has set the others to their defaults."""
    folder = world.workdir(user)
    script = folder / ACTION["runs"]["steps"][0]["run"].strip('"').removeprefix("$GITHUB_ACTION_PATH/")
    script.parent.mkdir(parents=True)
    shutil.copy(ROOT / script.relative_to(folder), script)

    def start(**inputs):
        known = {name: str(one.get("default", "")) for name, one in ACTION["inputs"].items()}
        assert set(inputs) <= {name.replace("-", "_") for name in known}
        known |= {name.replace("_", "-"): value for name, value in inputs.items()}
        known.setdefault("weir", "")
        known["weir"] = known["weir"] or str(world.weir_path)
        known["options"] += "\n--upstream=5.100.53.53\n"
        env = {name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: known[m[1]], value)
               for name, value in ACTION["runs"]["steps"][0]["env"].items()}
        work = world.workdir(user)
        done = world.command("bash", str(script), cwd=work, user=user,
                             env={**env, "GITHUB_STEP_SUMMARY": str(work / "summary.md"), "HOME": str(folder)})
        summary = work / "summary.md"
        return done, summary.read_text() if summary.exists() else ""
    return start


def assert_only(capture, site, denied):
    """Packets went to @site, and none to @denied."""
    reached = {packet.dst for packet in capture.packets()}
    assert reached & {site.v4, site.v6} and not reached & {denied.v4, denied.v6}, reached


def test_what_is_allowed_is_reached_and_the_rest_is_annotated(world, step, site, denied):
    with world.capture() as capture:
        done, summary = step(run=f"curl -sS http://{site.name}/ >got\ncurl -sS http://{denied.name}/ || echo refused\n",
                             allow=f"{site.name}:80\n")
        assert_only(capture, site, denied)
    assert done.code == 123 and "refused" in done.text, done
    assert re.search(rf"^::(error|warning) .*{denied.name}", done.text, re.M) and denied.name in html.unescape(summary), (done, summary)


def test_a_step_that_is_refused_nothing_has_its_own_status(step, site):
    done, _ = step(run=f"curl -sSf http://{site.name}/\nexit 7", allow=f"{site.name}:80", profile="default\npip")
    assert done.code == 7, done
    done, _ = step(run="curl -sS http://nobody.test/ || true", fail_on_deny="false")
    assert done.code == 0, done


def test_the_first_command_that_fails_ends_the_step(step):
    done, _ = step(run="false\necho went on")
    assert done.code == 1 and "went on" not in done.text, done


def test_what_the_commands_print_is_no_command_to_the_runner(step):
    done, _ = step(run="echo '::error::made up'; echo '::add-mask::x' >&2; printf 'no end of the line'")
    token = re.search(r"^::stop-commands::([0-9a-f]{32})$", done.text, re.M)
    assert token and done.code == 0, done
    inside = done.text[token.end():done.text.index(f"\n::{token[1]}::\n")]
    assert "::error::made up" in inside and "::add-mask::x" in inside and "add-mask" not in done.messages


@pytest.mark.parametrize("inputs, code, message", [
    ({"run": "touch ran"}, 125, "can't enforce"),
    ({"run": ""}, 125, "'run' is empty"),
    ({"run": "touch ran", "fail_on_deny": "yes"}, 125, "'yes'"),
    ({"run": "touch ran", "policy": "missing.yaml"}, 2, "missing.yaml"),
    ({"run": "touch ran", "allow": "*.com"}, 2, "*.com"),
], ids=["no namespaces", "nothing to run", "fail-on-deny", "policy", "allow"])
def test_when_it_cannot_enforce_nothing_runs(world, step, inputs, code, message, user):
    def ran():
        return set(world.folder.glob("work/*/ran"))
    before = ran()  # of other tests in this world
    if message == "can't enforce":
        broken = world.workdir(user) / "weir"
        broken.write_text("#!/bin/sh\n[ \"$1\" != run ] || touch ran\necho no namespaces >&2; exit 125\n")
        broken.chmod(0o755)
        inputs = {**inputs, "weir": str(broken)}
    done, _ = step(**inputs)
    assert done.code == code and message in done.text + done.messages, done
    assert ran() == before


PAGE = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
BLOCKS = [textwrap.dedent(block) for block in re.findall(r"((?:^    .*\n)+)", PAGE, re.M)]
EGRESS = next(block for block in BLOCKS if block.startswith("# egress.yaml"))
STEPS = [one for block in BLOCKS if block.startswith("- ") for one in yaml.safe_load(block)]


@pytest.mark.parametrize("one", [one for one in STEPS if "uses" in one], ids=lambda one: "-".join(one["with"]))
def test_a_step_of_the_page_s_is_one(world, user, step, one):
    folder = world.workdir(user)
    (folder / "egress.yaml").write_text(EGRESS)
    inputs = {**one["with"], "run": "echo ran"}
    if "policy" in inputs:
        inputs["policy"] = str(folder / inputs["policy"])
    done, _ = step(**inputs)
    assert done.code == 0 and "ran" in done.text.splitlines(), done


BY_HAND = [one["run"] for one in STEPS if "run" in one] + [
    yaml.safe_load(block)["test"]["script"] for block in BLOCKS if block.startswith("test:")]


@pytest.mark.parametrize("line", BY_HAND, ids=["GitHub", "GitLab"])
def test_a_line_by_hand_reports_what_was_refused(world, user, line):
    folder = world.workdir(user)
    (folder / "egress.yaml").write_text(EGRESS)
    (folder / "Makefile").write_text("test:\n\t-@getent hosts refused.test\n")
    (folder / "weir").write_text(f'#!/bin/sh\nshift\nexec {world.weir_path} run --upstream 5.100.53.53 "$@"\n')
    (folder / "weir").chmod(0o755)
    env = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(world.workdir(user)), "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    done = world.command("sh", "-ec", line, cwd=folder, user=user, env=env)
    assert done.code == 123, done
    reports = [done.text, *((folder / name).read_text() for name in ("summary.md", "weir.xml") if (folder / name).exists())]
    assert len(reports) == 2 and "refused.test" in html.unescape(reports[1]) and ("--report github:-" not in line or "::error" in done.text), done


def test_gitlab_s_include_runs_the_command_under_its_policy(world, user, site, denied):
    job = yaml.safe_load((ROOT / "deploy/ci/gitlab.yml").read_text(encoding="utf-8"))[".weir"]
    folder = world.workdir(user)
    (folder / "egress.yaml").write_text(f"egress: [{{action: allow, target: {site.name}, ports: [80]}}]\n")
    # on a runner the machine's own name servers are asked
    (folder / "weir").write_text(f'#!/bin/sh\nw={world.weir_path}\n[ "$1" = run ] || exec $w "$@"\nshift\n'
                                 'exec $w run --upstream 5.100.53.53 "$@"\n')
    (folder / "weir").chmod(0o755)
    env = {**job["variables"], "GUARDED_COMMAND": f"curl -sSf http://{site.name}/; curl -sS http://{denied.name}/ || true",
           "PATH": f"{folder}:/usr/bin:/bin", "HOME": str(folder)}
    with world.capture() as capture:
        done = world.command("sh", "-ec", "\n".join(job["script"]), cwd=folder, user=user, env=env)
        assert_only(capture, site, denied)
    assert done.code == 123 and denied.name in (folder / job["artifacts"]["reports"]["junit"]).read_text(), done
    assert "ignoring" not in done.messages, done
    done = world.command("sh", "-ec", "\n".join(job["script"]), cwd=folder, user=user, env={**env, "GUARDED_COMMAND": ""})
    assert done.code == 2, done
