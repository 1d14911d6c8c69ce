#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What nft prints of a ruleset, beside the file that a person has read and approved.

usage: filter.py DRIVER [--update]

A case is a file cases/NAME.policy of lines for filter_driver; NAME.nft is what the kernel must hold
afterwards. --update writes the .nft files; read the difference before committing it. Text depends on
the version of nft: another one than the files were written with skips (exit 77).
"""
import difflib
import os
import pathlib
import subprocess
import sys

CASES = pathlib.Path(__file__).resolve().parent / "filter"
WRITTEN_WITH = "nftables v1.0.6"
SKIP = 77


def nft_version():
    try:
        return subprocess.run(["nft", "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def ruleset(driver, lines):
    """Install @lines in a fresh namespace and list it from inside while the driver lives."""
    # As an ordinary user would: a user namespace as well, so that no right is needed.
    script = '"$0" <&3 >&4 & read -r go; nft list ruleset; kill $!'
    read, write = os.pipe()
    answers, into = os.pipe()
    with subprocess.Popen(["unshare", "-Urn", "sh", "-c", f"exec 3<&{read} 4>&{into}; {script}", driver],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          pass_fds=(read, into)) as shell:
        os.close(read)
        os.close(into)
        with open(write, "w", encoding="ascii") as commands, \
                open(answers, encoding="ascii") as replies:
            for line in lines:
                print(line, file=commands, flush=True)
                reply = replies.readline().strip()
                if reply != "ok":
                    shell.stdin.close()
                    raise RuntimeError(f"{line}: {reply}")
            out, _ = shell.communicate("go\n")
    # Who owns the table depends on the kernel; filter_verify() compares that.
    return out.replace(" # progname filter_driver", "").replace("\tflags owner\n", "")


def check(case, driver, update):
    lines = [line for line in case.read_text(encoding="ascii").splitlines()
             if line and not line.startswith("#")]
    got = ruleset(driver, lines)
    golden = case.with_suffix(".nft")
    if update:
        golden.write_text(got, encoding="ascii")
        return True
    want = golden.read_text(encoding="ascii")
    sys.stdout.writelines(difflib.unified_diff(want.splitlines(True), got.splitlines(True),
                                               str(golden), "the kernel"))
    return got == want


def main():
    driver, update = sys.argv[1], "--update" in sys.argv[2:]
    if WRITTEN_WITH not in nft_version():
        print(f"this is not {WRITTEN_WITH}")
        return SKIP
    cases = sorted(CASES.glob("*.policy"))
    good = [check(case, driver, update) for case in cases]
    print(f"{sum(good)} of {len(cases)} rulesets as expected")
    return 0 if cases and all(good) else 1


sys.exit(main())
