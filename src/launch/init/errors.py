#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the C library's texts of the system's errors as C: errors.py OUTPUT."""

import errno
import os
import pathlib
import sys


def main():
    texts = {code: os.strerror(code) for code in range(1, max(errno.errorcode) + 10)}
    rows = [f'\t[{code}] = "{text}",' for code, text in texts.items() if not text.startswith("Unknown error")]
    body = ["/* made by errors.py */", "static const char *const errors[] = {", *rows, "};"]
    pathlib.Path(sys.argv[1]).write_text("\n".join(body) + "\n", encoding="ascii")


main()
