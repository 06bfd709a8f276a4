"""Which settings the Hindsight server runs with, and which of them may be shown.

Whatever the user has set as ``HINDSIGHT_API_*`` wins; what is missing gets a value that needs no
model hub, no API key and no network. ``HINDSIGHT_API_URL`` and ``HINDSIGHT_API_KEY`` speak to
clients and never reach the server. The address is always 127.0.0.1.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

LOOPBACK = "127.0.0.1"

_PREFIX = "HINDSIGHT_API_"
_DATABASE_URL = "HINDSIGHT_API_DATABASE_URL"
_EMBEDDINGS_PROVIDER = "HINDSIGHT_API_EMBEDDINGS_PROVIDER"
_RERANKER_PROVIDER = "HINDSIGHT_API_RERANKER_PROVIDER"
_LLM_PROVIDER = "HINDSIGHT_API_LLM_PROVIDER"
_PORT = "HINDSIGHT_API_PORT"
_NOT_FOR_THE_SERVER = frozenset(
    {"HINDSIGHT_API_URL", "HINDSIGHT_API_KEY", "HINDSIGHT_API_HOST", _PORT}
)
_MAY_DIFFER = ("HINDSIGHT_API_LOG_",)

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
_SECRET_TEXT = (
    re.compile(r"(://[^\s:/@]*:)[^\s@]+(?=@)"),
    re.compile(r"(\bBearer\s+)[^\s\"']+", re.IGNORECASE),
    re.compile(
        r"((?:api[_-]?key|token|secret|passw(?:or)?d)[\"']?\s*[:=]\s*[\"']?)[^\s\"',}]+",
        re.IGNORECASE,
    ),
    re.compile(r"(\b(?:sk|pk|gsk|xai|ghp|hf|AIza)[-_])[A-Za-z0-9_-]{8,}"),
)
_SHORTEST_SECRET = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """A part that we start for the server: where it listens, and what opens it."""

    url: str
    secret: str


@dataclass(frozen=True, slots=True)
class ServerEnvironment:
    """The settings of one server, by what the user asked for.

    Args:
        base: The environment of the process that starts the server.
        asked: The ``HINDSIGHT_API_*`` in it that are meant for the server.
    """

    base: Mapping[str, str]
    asked: Mapping[str, str]

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> ServerEnvironment:
        """Read what the user asked for; a blank variable counts as not set."""
        asked = {
            name: value
            for name, value in environ.items()
            if name.startswith(_PREFIX) and name not in _NOT_FOR_THE_SERVER and value.strip()
        }
        return cls(dict(environ), asked)

    @property
    def needs_postgres(self) -> bool:
        """Whether no database of the user's own is named."""
        return _DATABASE_URL not in self.asked

    @property
    def needs_embeddings(self) -> bool:
        """Whether no embeddings provider is named."""
        return _EMBEDDINGS_PROVIDER not in self.asked

    @property
    def port(self) -> str | None:
        """The port in ``HINDSIGHT_API_PORT``, where there is one."""
        return self.base.get(_PORT, "").strip() or None

    def settled(self) -> dict[str, str]:
        """Give the settings that hold wherever the server's parts happen to listen."""
        settings = {
            "HINDSIGHT_API_LOG_LEVEL": "warning",
            _RERANKER_PROVIDER: "rrf",
            # A name that stays, so that a restart takes up work that was cut off.
            "HINDSIGHT_API_WORKER_ID": "langchain-hindsight-embedded",
            # Else each bank, however small, has three vector indexes, which every statement of
            # every bank locks and plans with. The figure is the one that Hindsight's own source
            # recommends to those with thousands of banks.
            "HINDSIGHT_API_VECTOR_INDEX_MIN_ROWS": "10000",
        }
        if not any(name.startswith("HINDSIGHT_API_LLM_") for name in self.asked):
            settings[_LLM_PROVIDER] = "none"
        return {**settings, **self.asked}

    def variables(self, postgres: Piece | None, embeddings: Piece | None) -> dict[str, str]:
        """Give the whole environment of the server's process."""
        variables = {k: v for k, v in self.base.items() if not k.startswith(_PREFIX)}
        if self._works_offline():
            variables.setdefault("HF_HUB_OFFLINE", "1")
        variables.update(_around_proxies(variables))
        variables["PYTHONUNBUFFERED"] = "1"
        if postgres is not None:
            variables[_DATABASE_URL] = postgres.url
        if embeddings is not None:
            variables |= {
                _EMBEDDINGS_PROVIDER: "openai",
                "HINDSIGHT_API_EMBEDDINGS_OPENAI_BASE_URL": embeddings.url,
                "HINDSIGHT_API_EMBEDDINGS_OPENAI_API_KEY": embeddings.secret,
                "HINDSIGHT_API_EMBEDDINGS_OPENAI_MODEL": "wordllama",
            }
        return variables | self.settled()

    def digests(self, salt: str) -> dict[str, str]:
        """Give a salted digest of each setting, by which another start is compared."""
        return {name: _digest(value, salt) for name, value in self.settled().items()}

    def differing(self, running: Mapping[str, str], salt: str) -> list[str]:
        """Name what is asked for here and is otherwise in the running server.

        What is not asked for is taken as it runs, so that a second process need not repeat the
        settings of the first.
        """
        return sorted(
            name
            for name, value in self.asked.items()
            if not name.startswith(_MAY_DIFFER)
            and not hmac.compare_digest(running.get(name, ""), _digest(value, salt))
        )

    def _works_offline(self) -> bool:
        return self.needs_embeddings and self.asked.get(_RERANKER_PROVIDER, "rrf") == "rrf"


def mask(text: str, variables: Mapping[str, str], secrets: Iterable[str] = ()) -> str:
    """Replace every credential in ``text``: the known ones, and what has the look of one."""
    known = {*secrets, *_secrets(variables)}
    for secret in sorted(known, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "***")
    for pattern in _SECRET_TEXT:
        text = pattern.sub(r"\1***", text)
    return text


def _secrets(variables: Mapping[str, str]) -> set[str]:
    found: set[str] = set()
    for name, value in variables.items():
        if _SECRET_NAME.search(name):
            found.add(value)
        if "://" in value:
            found |= _url_secrets(value)
    return found


def _url_secrets(value: str) -> set[str]:
    try:
        password = urlsplit(value).password
    except ValueError:  # not a URL after all, so nothing in it is a URL's password
        return set()
    return {password, unquote(password)} if password else set()


def _digest(value: str, salt: str) -> str:
    return hmac.new(salt.encode(), value.encode(), hashlib.sha256).hexdigest()


def _around_proxies(variables: Mapping[str, str]) -> dict[str, str]:
    """Keep what the server says to its own parts away from a proxy."""
    there = variables.get("NO_PROXY") or variables.get("no_proxy") or ""
    hosts = ",".join(filter(None, (there, LOOPBACK, "localhost")))
    return {"NO_PROXY": hosts, "no_proxy": hosts}
