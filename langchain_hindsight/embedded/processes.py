"""Processes by pid and start time, so that a pid used again is never taken for the old process."""

from __future__ import annotations

import socket
import sys
from dataclasses import dataclass

import psutil

from langchain_hindsight.embedded.environment import LOOPBACK


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process of this machine, for as long as it runs."""

    pid: int
    started: float

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """Identify a running process; None where there is none."""
        try:
            return cls(pid, psutil.Process(pid).create_time())
        except psutil.Error:
            return None

    def alive(self) -> bool:
        """Whether it still runs; a zombie does not."""
        return self._process() is not None

    def wait(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds for its end; say whether it ended."""
        process = self._process()
        if process is None:
            return True
        try:
            process.wait(timeout)
        except psutil.TimeoutExpired:
            # A zombie that nobody reaps has ended too.
            return not self.alive()
        return True

    def stop(self, timeout: float) -> None:
        """End it and its children: asked first, and killed after ``timeout`` seconds."""
        process = self._process()
        if process is None:
            return
        family = [*_children(process), process]
        _each(family[-1:], "terminate")
        self._wait_for_end(timeout)
        _each(family, "kill")
        psutil.wait_procs(family, timeout=5)

    def _wait_for_end(self, timeout: float) -> None:
        # In short waits, since a zombie that its parent does not reap would be waited for in full.
        step = 0.2
        for _ in range(max(1, int(timeout / step))):
            if self.wait(step):
                return

    def _process(self) -> psutil.Process | None:
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < 1
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.Error:
            return None


def free_port() -> int:
    """Give a TCP port of the loopback address that nobody listens on at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this port of the loopback address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        if sys.platform != "win32":
            # As servers do, so that a port whose last connections linger counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []


def _each(processes: list[psutil.Process], action: str) -> None:
    for process in processes:
        try:
            getattr(process, action)()
        except psutil.NoSuchProcess:
            continue  # it ended by itself, which is what was wanted
