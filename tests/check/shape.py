#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The shape of src/, folder by folder: shape.py ROOT prints a table, shape.py --check ROOT also holds the limits.

A line of code is one that has something besides blanks and comments. A small single-use static is a static function of
at most 8 lines that its file calls once and names nowhere else. The limits: the lines of a file; no static name twice in a
folder; no global name twice, of which a static library silently takes one; no global function that no program calls.
"""

import collections
import pathlib
import re
import statistics
import sys

SMALL = 8
FILE_MAX = 1000
# Not of the library: the linker or a library calls what they define.
APART = ("launch/init/libc.c", "outputs/webhook/main.c")
COMMENT_OR_STRING = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
NAME = re.compile(r"([A-Za-z_]\w*)\s*\(")
ATTRIBUTE = re.compile(r"__attribute__\(\(.*?\)\)|PRINTF_LIKE\(.*?\)")
WORD = re.compile(r"[A-Za-z_]\w*")


def without_comments(text):
    """Comments become blanks, strings keep their lines."""
    def blank(match):
        found = match.group(0)
        return found if found[0] in "\"'" else re.sub(r"[^\n]", " ", found)
    return COMMENT_OR_STRING.sub(blank, text)


def code_lines(text):
    return sum(1 for line in without_comments(text).splitlines() if line.strip())


def functions(code):
    """(name, is static, lines of the body) of each function that opens with '{' in column 0."""
    lines, start = code.splitlines(), None
    for number, line in enumerate(lines):
        if line.startswith("{"):
            start = number
        elif line == "}" and start is not None:
            first = start - 1
            while first > 0 and lines[first - 1].strip() and lines[first - 1][-1] not in ";}{":
                first -= 1
            head = ATTRIBUTE.sub("", " ".join(lines[first:start])).strip()
            if match := NAME.search(head):
                yield match.group(1), head.startswith("static"), number - start - 1
            start = None


class Folder:
    def __init__(self, name):
        self.name, self.files, self.code, self.lengths, self.small, self.twice = name, 0, 0, [], 0, []
        self.statics = {}

    def add(self, path):
        text = path.read_text()
        code = without_comments(text)
        self.files += 1
        self.code += code_lines(text)
        for name, is_static, length in functions(code):
            self.lengths.append(length)
            if not is_static:
                continue
            self.statics.setdefault(name, set()).add(path.name)
            if length <= SMALL and len(re.findall(rf"\b{name}\b", code)) == 2 == len(
                    re.findall(rf"\b{name}\(", code)):
                self.small += 1

    def shared_names(self):
        return {name: sorted(files) for name, files in self.statics.items() if len(files) > 1}

    def row(self):
        count = len(self.lengths)
        return (f"{self.name:12} {self.files:6} {self.code:7} {count:6} {statistics.median(self.lengths or [0]):7.0f} "
                f"{1000 * count / max(self.code, 1):9.1f} {100 * self.small / max(count, 1):8.1f} {len(self.shared_names()):7}")


def measure(root):
    source, found = pathlib.Path(root) / "src", {}
    for path in sorted(source.rglob("*.[ch]")):
        name = path.relative_to(source).parts[0] if path.parent != source else "."
        found.setdefault(name, Folder(name)).add(path)
    return found


def words_of(paths):
    return collections.Counter(w for p in paths for w in WORD.findall(without_comments(p.read_text())))


def faults_of_globals(root):
    source, tests = root / "src", words_of((root / "tests").rglob("*.[ch]"))
    of_headers, of_files, homes = words_of(source.rglob("*.h")), words_of(source.rglob("*.c")), {}
    for path in sorted(source.rglob("*.c")):
        name = str(path.relative_to(source))
        if name not in APART:
            for function, is_static, _ in functions(without_comments(path.read_text())):
                if not is_static and function != "main":
                    homes.setdefault(function, []).append(name)
    for function, files in homes.items():
        calls = of_files[function] - len(files) + max(of_headers[function] - 1, 0)
        if len(files) > 1:
            yield f"{' and '.join(files)}: both have a global function {function}()"
        elif calls == 0:
            yield f"{files[0]}: {function}() is global, and " + ("only tests call it" if tests[function] else "nothing does")


def main(arguments):
    check = arguments[0] == "--check"
    root = arguments[-1]
    found = measure(root)
    total = Folder("all")
    print(f"{'folder':12} {'files':>6} {'code':>7} {'funcs':>6} {'median':>7} {'per 1000':>9} {'small %':>8} {'twice':>7}")
    for folder in found.values():
        print(folder.row())
        total.files += folder.files
        total.code += folder.code
        total.lengths += folder.lengths
        total.small += folder.small
    print(f"{total.row()[:-7]}{sum(len(f.shared_names()) for f in found.values()):7}")
    if "--names" in arguments:
        for folder in found.values():
            for name, files in sorted(folder.shared_names().items()):
                print(f"{folder.name}: {name}: {' '.join(files)}")
    faults = []
    if check:
        root = pathlib.Path(root)
        faults += [f"{p}: over {FILE_MAX} lines" for p in sorted((root / "src").rglob("*.[ch]"))
                   if p.read_text().count("\n") > FILE_MAX]
        faults += [f"{folder.name}: {' and '.join(files)}: both have a static function {name}()"
                   for folder in found.values() for name, files in sorted(folder.shared_names().items())]
        faults += faults_of_globals(root)
    for fault in faults:
        print(fault)
    return 1 if faults or not found else 0


sys.exit(main(sys.argv[1:]))
