#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Each folder under src/ includes itself and lower floors only; the pure folders make no system calls."""

import pathlib
import re
import sys

# "" is src/ itself: main() and the table of verbs.
FLOORS = {"base": 0, "sys": 1, "event": 2, "dns": 3, "proto": 3, "policy": 4, "filter": 5, "sandbox": 6, "relay": 7, "resolver": 7,
          "events": 8, "opensandbox": 9, "settings": 10, "engine": 11, "api": 12, "outputs": 12, "control": 13,
          "supervisor": 14, "launch": 15, "run": 16, "sidecar": 16, "daemon": 16, "container": 16, "tools": 16, "": 17}
PURE = {"base", "event", "dns", "policy"}
IMPURE = re.compile(r'#include <(sys/(epoll|mman|prctl|random|signalfd|stat|syscall|timerfd|wait|un)|'
                    r'fcntl|time|signal|poll|pthread|netdb|dirent)\.h>')
# The clock and the log are floor 0's two edges, how a time is written is event's, the reader of policy files is policy's;
# addr.h needs sys/socket.h for the kernel's structs only.
EDGES = {"base/clock.c", "base/log.c", "event/json.c", "policy/load.c"}
INCLUDE = re.compile(r'#include "([^"]+)"')


def folder_of(name):
    return name.split("/")[0] if "/" in name else ""


def faults_of(path, relative):
    folder = folder_of(relative)
    for number, line in enumerate(path.read_text().splitlines(), 1):
        include = INCLUDE.match(line)
        if include:
            other = folder_of(include.group(1))
            if other not in FLOORS:
                yield f"{relative}:{number}: '{include.group(1)}' is not in a folder of src/"
            elif other != folder and FLOORS[other] >= FLOORS[folder]:
                yield f"{relative}:{number}: {folder} (floor {FLOORS[folder]}) may not include {include.group(1)}"
        elif folder in PURE and relative not in EDGES and IMPURE.match(line):
            yield f"{relative}:{number}: {folder} is pure: {line.strip()}"


def main(root):
    source = pathlib.Path(root) / "src"
    files = [p for p in sorted(source.rglob("*.[ch]"))]
    faults = []
    for path in files:
        relative = path.relative_to(source).as_posix()
        if folder_of(relative) not in FLOORS:
            faults.append(f"{relative}: its folder has no floor")
        else:
            faults += faults_of(path, relative)
    print("\n".join(faults) or f"{len(files)} files stand on their floors")
    return 1 if faults or not files else 0


sys.exit(main(sys.argv[-1]))
