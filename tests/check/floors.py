#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Each folder under src/ includes itself and lower floors only; floors 0 to 2 make no system calls.

sys is the exception: it wraps calls that every folder above may need."""

import pathlib
import re
import sys

FLOORS = {"base": 0, "sys": 1, "dns": 1, "wire": 1, "policy": 2, "filter": 3, "net": 3, "store": 3, "launch": 3,
          "sandbox": 4, "ipc": 5, "cli": 5, "api": 5, "main": 6, "webhook": 6,
          "control": 6, "events": 6, "postgres": 6}
IMPURE = re.compile(r'#include <(sys/(epoll|mman|prctl|random|signalfd|stat|syscall|timerfd|wait|un)|'
                    r'fcntl|time|signal|poll|pthread|netdb|dirent)\.h>')
# The clock and the log are floor 0's two edges; addr.h needs sys/socket.h for the kernel's structs only.
EDGES = {"base/clock.c", "base/log.c"}
INCLUDE = re.compile(r'#include "([^"]+)"')


def faults_of(path, relative):
    folder = relative.split("/")[0]
    for number, line in enumerate(path.read_text().splitlines(), 1):
        include = INCLUDE.match(line)
        if include:
            if "/" not in include.group(1):
                continue  # made by the build, for this folder
            other = include.group(1).split("/")[0]
            if other not in FLOORS:
                yield f"{relative}:{number}: '{include.group(1)}' is not in a folder of src/"
            elif other != folder and FLOORS[other] >= FLOORS[folder]:
                yield f"{relative}:{number}: {folder} (floor {FLOORS[folder]}) may not include {other}"
        elif FLOORS[folder] <= 2 and folder != "sys" and relative not in EDGES and IMPURE.match(line):
            yield f"{relative}:{number}: floors 0 to 2 are pure: {line.strip()}"


def main(root):
    source = pathlib.Path(root) / "src"
    files = [p for p in sorted(source.rglob("*.[ch]"))]
    faults = []
    for path in files:
        relative = path.relative_to(source).as_posix()
        if relative.split("/")[0] not in FLOORS:
            faults.append(f"{relative}: its folder has no floor")
        else:
            faults += faults_of(path, relative)
    print("\n".join(faults) or f"{len(files)} files stand on their floors")
    return 1 if faults or not files else 0


sys.exit(main(sys.argv[1]))
