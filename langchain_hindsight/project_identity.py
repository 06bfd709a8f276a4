"""Who this project is: the git remote ``origin``, else the folder's name.

Files are read, no program is run: git is often missing where agents are, and one that asks for a
password hangs. What git's own configuration would rewrite (``insteadOf``, ``include``) is not
followed, so that one repository has one id for everybody who works on it.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

Strategy = Literal["auto", "git-remote", "folder"]

_SCP_LIKE = re.compile(
    r"(?:[^@/\s]+@)?(?P<host>\[[^\]]+\]|(?<=@)[^@/:\s]|[^/:\s]{2,}):(?!//)(?P<path>[^\s]+)"
)
_SECTION = re.compile(r'\[\s*(?i:remote)\s+"origin"\s*\]')
_URL = re.compile(r'^\s*url\s*=\s*(?:"([^"]*)"|(.*?))\s*(?:\s[#;].*)?$', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FoundProject:
    """A project's id, and what it was taken from."""

    project_id: str
    origin: Literal["the git remote origin", "the folder's name"]


def identify_project(folder: Path, strategy: Strategy = "auto") -> str:
    """The id of the project that a folder belongs to.

    Args:
        folder: Any folder of the project.
        strategy: ``git-remote`` and ``auto`` take the remote ``origin`` where there is one; all
            fall back to the name of the repository's root folder, else of ``folder``.

    Returns:
        ``github-com-owner-name`` for a remote, else the folder's name in the same form.
    """
    return find_project(folder, strategy).project_id


def find_project(folder: Path, strategy: Strategy = "auto") -> FoundProject:
    """`identify_project`, with what the id was taken from."""
    root = next((one for one in (folder, *folder.parents) if is_repository(one)), None)
    if root is not None and strategy != "folder":
        remote = _origin(root)
        normalized = normalize_remote(remote) if remote else ""
        if normalized:
            return FoundProject(normalized, "the git remote origin")
    name = _slug((root or folder).resolve().name) or "project"
    return FoundProject(name, "the folder's name")


def normalize_remote(url: str) -> str:
    """A git remote's URL as a project id: ``github-com-owner-name``.

    User, password and port are left out; https, ssh, git and scp-like URLs of one repository give
    one id. A local path gives its last folder's name.
    """
    scp = None if "://" in url else _SCP_LIKE.fullmatch(url)
    if scp:
        host, path = scp["host"], scp["path"]
        if host.count(":") == 1:  # in brackets, with a port
            host = host.partition(":")[0]
    elif "://" in url:
        try:
            parts = urlsplit(url)
            host, path = parts.hostname or "", parts.path
        except ValueError:  # an address in brackets that is none
            return ""
    else:
        host, path = "", re.split(r"[/\\]", url.rstrip("/\\"))[-1]
    path = re.sub(r"\.git/*$", "", path.rstrip("/"), flags=re.IGNORECASE)
    return _slug(f"{host}/{path}")


def _slug(text: str) -> str:
    """A text as an id: small letters in one form of Unicode, with their marks, and hyphens."""
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    kept = [
        one if re.match(r"\w", one) or unicodedata.category(one)[0] == "M" else "-" for one in text
    ]
    slug = re.sub("-+", "-", "".join(kept)).strip("-")
    return slug if re.search(r"\w", slug) else ""  # marks of signs alone name nothing


def _origin(root: Path) -> str | None:
    """The URL of the remote ``origin`` in a repository's config."""
    try:
        config = _plain_file(_git_folder(root / ".git") / "config")
        lines = config.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    except (OSError, ValueError):  # none there, or none that can be read
        return None
    inside = False
    for line in lines:
        said = line.strip()
        if said.startswith("["):
            section = _SECTION.match(said)
            inside = section is not None
            said = said[section.end() :] if section else ""
        if inside and (found := _URL.match(said)):
            return found[1] or found[2] or None
    return None


def is_repository(folder: Path) -> bool:
    """Whether a folder is a repository's root; one that may not be looked into is none."""
    try:
        return (folder / ".git").exists()
    except OSError:
        return False


def _plain_file(path: Path) -> Path:
    """The path of a plain file; reading anything else might never end.

    Raises:
        OSError: If it is none.
    """
    if not path.is_file():
        raise FileNotFoundError(path)
    return path


def _git_folder(dot_git: Path) -> Path:
    """The folder with the repository's config, also for a worktree or a submodule."""
    if dot_git.is_dir():
        return dot_git
    content = _plain_file(dot_git).read_text(encoding="utf-8", errors="replace").strip()
    folder = (dot_git.parent / content.removeprefix("gitdir:").strip()).resolve()
    common = folder / "commondir"
    if common.is_file():
        return (folder / common.read_text(encoding="utf-8").strip()).resolve()
    return folder
