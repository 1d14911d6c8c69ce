#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a script can judge of the style: licence lines, banned functions, lengths, headers, commented
descriptions, clang-format."""

import pathlib
import re
import statistics
import subprocess
import sys

FUNCTION_MAX = 100
FILE_MAX = 1000
BANNED = re.compile(r"\b(strcpy|strcat|strncpy|sprintf|strtok|atoi|atol|strto[a-z]+|sscanf|gets|alloca|"
                    r"strdupa|system|popen|signal|sleep|usleep|dup|getaddrinfo|gethostbyname|inet_addr|"
                    r"inet_ntoa|rand|random|exit|abort|mktemp)\s*\(")
# The one place where leaving at once is the contract, and names that only look like the banned ones.
ALLOWED = re.compile(r"\b_exit\(")
# Functions that glibc declares in more headers than musl, whose programs are handed out.
OWN_HEADER = ((re.compile(r"\b(?:[bl]e(?:16|32|64)toh|hto[bl]e(?:16|32|64))\s*\("), "<endian.h>"),)
COMMENT_OR_STRING = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'', re.S)


def blanked(text):
    return COMMENT_OR_STRING.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def function_lengths(text):
    """(first line, length) of each function: it opens with '{' and closes with '}' in column 0."""
    start = None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("{"):
            start = number
        elif line == "}" and start:
            yield start, number - start - 1
            start = None


def is_call(text, match):
    """Not a member (x->random(...)), not a declaration of a pointer to function."""
    before = text[: match.start()].rstrip()
    return not before.endswith(("->", ".", "*"))


def faults_of_source(path, name, lengths):
    text = path.read_text()
    code = blanked(text)
    if text.count("\n") > FILE_MAX:
        yield f"{name}: {text.count(chr(10))} lines, over {FILE_MAX}"
    for match in BANNED.finditer(code):
        line = code.count("\n", 0, match.start()) + 1
        if is_call(code, match):
            yield f"{name}:{line}: {match.group(1)}() is banned"
    for function, header in OWN_HEADER:
        if (match := function.search(code)) and f"#include {header}" not in text:
            yield f"{name}:{code.count(chr(10), 0, match.start()) + 1}: {match.group()}) is used without {header}"
    for start, length in function_lengths(code):
        lengths.append(length)
        if length > FUNCTION_MAX:
            yield f"{name}:{start}: a function of {length} lines, over {FUNCTION_MAX}"
    if path.suffix == ".h" and "#pragma once" not in text:
        yield f"{name}: no #pragma once"
    if path.suffix == ".h" and not re.match(r"[^\n]*\n/\* ", text):
        yield f"{name}: a header opens with what it is for"


def spdx_faults(root, names):
    for name in names:
        path = root / name
        if path.suffix not in (".c", ".h", ".py", ".sh", ".build") and not (
                path.is_file() and path.read_bytes()[:2] == b"#!"):
            continue
        if "SPDX-License-Identifier: Apache-2.0" not in path.read_text(errors="replace")[:200]:
            yield f"{name}: no SPDX line"


def header_faults(root, names):
    for name in names:
        if not (name.startswith("src/") and name.endswith(".h")):
            continue
        run = subprocess.run(["gcc", "-std=gnu17", "-D_GNU_SOURCE", "-fsyntax-only", "-Wall", "-Werror",
                              "-I", root / "src", "-x", "c", "-"], input=f'#include "{name[4:]}"\n',
                             text=True, capture_output=True)
        if run.returncode:
            yield f"{name}: doesn't compile alone: {run.stderr.splitlines()[0]}"


def format_faults(root, names):
    sources = [n for n in names if n.endswith((".c", ".h"))]
    version = subprocess.run(["clang-format", "--version"], text=True, capture_output=True).stdout
    if " 14." not in version:
        print(f"the format is clang-format 14's, here is {version.strip()}: not looked at")
        return
    run = subprocess.run(["clang-format", "--dry-run", *sources], cwd=root, text=True, capture_output=True)
    seen = sorted({line.split(":")[0] for line in run.stderr.splitlines() if "code should be" in line})
    for name in seen:
        yield f"{name}: clang-format would change it"


def main(root):
    root = pathlib.Path(root)
    names = subprocess.run(["git", "ls-files"], cwd=root, text=True, capture_output=True, check=True)
    names = [n for n in names.stdout.split("\n") if n and (root / n).is_file()]
    lengths, faults = [], []
    for name in names:
        if name.startswith("src/") and name.endswith((".c", ".h")):
            faults += faults_of_source(root / name, name, lengths)
    faults += [*spdx_faults(root, names), *header_faults(root, names), *format_faults(root, names)]
    print("\n".join(faults))
    if lengths:
        print(f"{len(lengths)} functions, {statistics.median(lengths):.0f} lines on the median, "
              f"{sorted(lengths)[len(lengths) * 9 // 10]} at nine in ten")
    return 1 if faults or not lengths else 0


sys.exit(main(sys.argv[-1]))
