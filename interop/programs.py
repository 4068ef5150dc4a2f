"""Starts the servers that comparisons need, and ends them."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

STARTS, ENDS = 10, 20  # seconds that a server may take to start, and to end


class ProgramError(Exception):
    """A program that was compared did not end well."""


@contextlib.contextmanager
def serving(command: list[str], folder: Path, *, strict: bool = False) -> Iterator[str]:
    """Runs a server of agentsim on a free port and yields its URL. If strict it must end with exit code 0."""
    file, log = folder / f"{command[1]}.url", folder / f"{command[1]}.txt"
    file.unlink(missing_ok=True)
    with log.open("wb") as out:
        process = subprocess.Popen([*command, "--listen", "127.0.0.1:0", "--url-file", str(file)], stderr=out)
        try:
            for _ in range(STARTS * 100):
                if file.exists() or process.poll() is not None:
                    break
                time.sleep(0.01)
            if not file.exists():
                raise ProgramError(f"{' '.join(command)} does not answer: {log.read_text()}")
            yield file.read_text().strip()
        finally:
            process.terminate()
            try:
                process.wait(ENDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    if strict and process.returncode:
        raise ProgramError(f"{' '.join(command)}\nexit code {process.returncode}: {log.read_text()}")
