# SPDX-License-Identifier: Apache-2.0
"""How the self-test's probe says what it found, whatever becomes of the standard streams."""
from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import threading
from typing import Optional

LONGEST = 65536


class Verdict:
    """One line, by a named pipe: weir passes no descriptor on to a command.

    The probe waits until a thread here has taken the line, and becomes the command then. So the command can neither take it
    back nor say another.
    """

    def __init__(self, user: Optional[int]) -> None:
        self._user = user
        self.said = b""
        self.directory = self.path = ""

    def __enter__(self) -> Verdict:
        # Others can't list the directory, nor guess the name in it.
        self.directory = os.path.realpath(tempfile.mkdtemp(prefix="weir-self-test-"))
        self.path = f"{self.directory}/{secrets.token_hex(16)}"
        try:
            os.chmod(self.directory, 0o711)
            os.mkfifo(self.path, 0o600)
            if self._user is not None and os.geteuid() == 0:
                os.chown(self.path, self._user, -1)
            self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()
        return self

    def _take(self) -> None:
        while not self.said.endswith(b"\n") and len(self.said) < LONGEST:
            self.said += os.read(self._fd, 4096)

    def __exit__(self, *_: object) -> None:
        if self._thread.is_alive():
            os.write(self._fd, b"\n")
            self._thread.join()
        os.close(self._fd)
        shutil.rmtree(self.directory, ignore_errors=True)
