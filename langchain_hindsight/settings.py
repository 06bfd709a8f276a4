"""The whole configuration, as one tree whose names are promises.

Sources, highest first: keyword arguments, environment variables (``HINDSIGHT_*``, nested names with
``__``), ``.hindsight.toml`` or ``[tool.langchain-hindsight]`` in ``pyproject.toml`` of the project,
``config.toml`` in the user's configuration folder, and the defaults below. Names are written in
snake_case; camelCase is read. Times are seconds, sizes are tokens unless a name says characters or
bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tomllib import TOMLDecodeError
from typing import Any, Literal

from platformdirs import user_config_path
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    PyprojectTomlConfigSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from langchain_hindsight.errors import ConfigurationError

BankTemplate = str | Callable[[Mapping[str, Any]], "str | None"]
"""A bank id, a template over the caller's context (``"life-{user_id}"``), or a function of it."""

Profile = Literal["project-only", "project+life", "life-only", "recall-only"]


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _read_camel_case(data: Any) -> Any:  # noqa: ANN401 - pydantic hands over whatever was given
    if not isinstance(data, dict):
        return data
    return {_snake(k) if isinstance(k, str) and "-" not in k else k: v for k, v in data.items()}


class _Section(BaseModel):
    """One table of the tree: unknown keys are refused, camelCase is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    _camel = model_validator(mode="before")(_read_camel_case)


class BankSettings(_Section):
    """One bank: the Project Bank or the Life Bank."""

    enabled: bool | None = None
    """Whether the bank takes part. None follows the profile and whether a bank id is given."""
    bank_id: BankTemplate | None = None
    """Its id, a template such as ``"life-{user_id}"``, or a function of the caller's context."""
    retain_mission: str | None = None
    """What Hindsight should extract into this bank, given to it when the bank is created."""
    observations_mission: str | None = None
    """What Hindsight should observe over its facts, given to it when the bank is created."""
    reflect_mission: str | None = None
    """How Hindsight should reflect over this bank, given to it when the bank is created."""


class BanksSettings(_Section):
    """The two banks."""

    project: BankSettings = BankSettings()
    life: BankSettings = BankSettings()


class ScopeSettings(_Section):
    """Which project this is, and how it is held apart from others in the Project Bank."""

    mode: Literal["domain-tagged", "isolated-bank"] = "domain-tagged"
    """One Project Bank shared by many projects under tags, or one bank for this project alone."""
    project_id: BankTemplate | None = None
    """Pins who this project is, as a value or a template over the caller's context."""
    project_id_strategy: Literal["auto", "git-remote", "folder"] = "auto"
    """Where an unpinned project id comes from; ``auto`` is the git remote, else the folder."""
    include_shared: bool = False
    """Also recall the Project Bank's shared memories, which carry no tag."""
    legacy_tags: tuple[str, ...] = ()
    """Older tags that recall accepts beside the project's own while a move is under way."""
    life_tags: tuple[str, ...] = ()
    """Tags that narrow the Life Bank; none holds it by its bank alone."""


class RecallSettings(_Section):
    """What is recalled, and how much of it reaches the model."""

    enabled: bool = True
    """Whether anything is recalled."""
    max_tokens: int = Field(default=800, ge=0)
    """Cap of the Project section of the injected block, in tokens, headings included."""
    life_max_tokens: int | None = Field(default=None, ge=0)
    """Cap of the Life section, in tokens; None is half of ``max_tokens``, rounded down."""
    budget: Literal["low", "mid", "high"] = "mid"
    """Hindsight's own search effort."""
    types: tuple[Literal["world", "experience", "observation"], ...] | None = None
    """Kinds of memory to recall; None is the server's own choice."""
    prefer_observations: bool | None = None
    """Let an observation stand in for the facts under it; None is the bank's own setting."""
    candidate_tokens: int = Field(default=4096, ge=0)
    """What is asked of the server at the least, in tokens; the best of it is chosen here."""
    context_turns: int = Field(default=2, ge=0)
    """How many turns before the person's message join the query."""
    max_query_chars: int = Field(default=1200, ge=1)
    """Cap of the query, in characters; head and tail of a longer message are kept."""
    query_preamble: str = ""
    """Put ahead of the query to the Project Bank; more often it costs evidence than finds any."""
    life_query_preamble: str = ""
    """The same for the Life Bank."""
    timeout: float = Field(default=10.0, gt=0)
    """Deadline of one recall of all banks together, in seconds."""
    cache_ttl: float = Field(default=60.0, ge=0)
    """How long the same question is answered from memory, in seconds; 0 turns it off."""
    min_scores: dict[Literal["semantic", "keyword", "reranker", "final"], float] = Field(
        default_factory=dict
    )
    """Floors of a memory's scores; a score that the server does not give passes."""
    injection: Literal["human", "system"] = "human"
    """Where the block travels: ahead of the person's message, or behind the system prompt."""

    @property
    def life_limit(self) -> int:
        """The Life section's cap in tokens."""
        return self.max_tokens // 2 if self.life_max_tokens is None else self.life_max_tokens


class RetainSettings(_Section):
    """What is kept of a conversation, for the Project Bank alone."""

    enabled: bool | None = None
    """Automatic retain; None follows the profile."""
    unit: Literal["auto", "message", "turn"] = "auto"
    """How messages go out; ``auto`` is a turn where the bank extracts facts, else a message."""
    roles: tuple[Literal["human", "ai", "tool"], ...] = ("human", "ai")
    """Whose messages are kept. Tool errors are always kept, tool results only with ``tool``."""
    tools: tuple[str, ...] = ()
    """Names of tools whose results are kept too."""
    tags: tuple[str, ...] = ()
    """Tags put on what is retained, beside the project's own."""
    redact: bool = True
    """Mask credentials before anything is written down."""
    max_chars: int = Field(default=100_000, ge=1)
    """Longest text kept of one message, in characters; the rest is cut and marked."""


class LifeRetainSettings(_Section):
    """How the Life Bank is written to: only when somebody deliberately does so."""

    mode: Literal["explicit-only"] = "explicit-only"
    """The only mode there is."""


class OutboxSettings(_Section):
    """The durable queue between the agent and Hindsight."""

    url: str | None = Field(default=None, repr=False)
    """SQLAlchemy URL; None is SQLite in the platform's state folder."""
    shutdown_timeout: float = Field(default=2.0, ge=0)
    """How long closing and interpreter exit wait for delivery, in seconds."""
    retry_for: float = Field(default=7 * 86_400.0, gt=0)
    """How long an entry is tried again before it becomes a dead letter, in seconds."""
    retry_max_delay: float = Field(default=300.0, gt=0)
    """Longest pause between two tries, in seconds."""
    batch_size: int = Field(default=50, ge=1)
    """Most entries that share one request."""
    max_entries: int = Field(default=100_000, ge=1)
    """Most entries that may wait; more are refused."""
    max_bytes: int = Field(default=1_000_000_000, ge=1)
    """Most bytes of content that may wait; more are refused."""
    keep_receipts: float = Field(default=7 * 86_400.0, ge=0)
    """How long a delivered batch's record is kept, in seconds."""
    synchronous: Literal["normal", "full"] = "normal"
    """SQLite's own setting: ``full`` also survives a power cut, at an fsync a turn."""


class MentalModelSettings(_Section):
    """Hindsight's mental models of the selected banks."""

    inject: bool = True
    """Whether they are injected beside the memories."""
    max_tokens: int = Field(default=400, ge=0)
    """Cap of their section, in tokens."""
    cache_ttl: float = Field(default=300.0, ge=0)
    """How long they are held, in seconds."""


@dataclass(frozen=True, slots=True)
class Switches:
    """What takes part, after profile and switches set by hand are put together."""

    project: bool
    life: bool
    recall: bool
    automatic_retain: bool


def _files() -> str:
    found = (_project_file(".hindsight.toml"), _project_file("pyproject.toml"), _user_file())
    return ", ".join(str(one) for one in found if one is not None and one.is_file())


def _user_file() -> Path:
    return user_config_path("langchain-hindsight") / "config.toml"


def _project_file(name: str) -> Path | None:
    """The nearest file of that name from the working directory up to the repository's root."""
    try:
        here = Path.cwd()
    except OSError:  # the working directory is gone
        return None
    for folder in (here, *here.parents):
        if (folder / name).is_file():
            return folder / name
        if (folder / ".git").exists():
            return None
    return None


class HindsightSettings(BaseSettings):
    """The whole configuration of a `DualBankMemory`.

    Raises:
        ConfigurationError: If a value has the wrong type or range; the message names each one.
    """

    model_config = SettingsConfigDict(
        env_prefix="HINDSIGHT_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        pyproject_toml_table_header=("tool", "langchain-hindsight"),
    )

    url: str = Field(default="http://localhost:8888", repr=False)
    """The Hindsight server; also read from ``HINDSIGHT_API_URL`` and ``HINDSIGHT_BASE_URL``."""
    api_key: SecretStr | None = None
    """The server's key; read from ``HINDSIGHT_API_KEY``."""
    timeout: float = Field(default=60.0, gt=0)
    """Deadline of one explicit call or delivery, in seconds."""
    profile: Profile = "project-only"
    """A named set of switches; one that is set by hand wins over it."""
    use: Literal["coding", "conversation"] = "coding"
    """What the agent is for, which chooses the missions of a bank that is created."""
    banks: BanksSettings = BanksSettings()
    scope: ScopeSettings = ScopeSettings()
    recall: RecallSettings = RecallSettings()
    retain: RetainSettings = RetainSettings()
    life_retain: LifeRetainSettings = LifeRetainSettings()
    outbox: OutboxSettings = OutboxSettings()
    mental_models: MentalModelSettings = MentalModelSettings()

    _camel = model_validator(mode="before")(_read_camel_case)

    def __init__(self, **values: Any) -> None:  # noqa: ANN401 - the fields above
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigurationError(_plain(error)) from None
        except TOMLDecodeError as error:
            msg = f"A configuration file is no TOML: {error}. Looked at: {_files()}."
            raise ConfigurationError(msg) from None
        except SettingsError as error:  # its cause may show a value
            msg = f"The Hindsight configuration cannot be read: {error}."
            raise ConfigurationError(msg) from None

    def overridden(
        self,
        *,
        url: str | None = None,
        project_bank: BankTemplate | None = None,
        project_id: BankTemplate | None = None,
        life_bank: BankTemplate | None = None,
    ) -> HindsightSettings:
        """This configuration with what a caller passed by hand; naming a Life Bank opts in."""
        project = {} if project_bank is None else {"bank_id": project_bank}
        life = {} if life_bank is None else {"bank_id": life_bank, "enabled": True}
        banks = self.banks.model_copy(
            update={
                "project": self.banks.project.model_copy(update=project),
                "life": self.banks.life.model_copy(update=life),
            }
        )
        scope = {} if project_id is None else {"project_id": project_id}
        changes: dict[str, Any] = {
            "banks": banks,
            "scope": self.scope.model_copy(update=scope),
        }
        return self.model_copy(update=changes if url is None else {**changes, "url": url})

    @property
    def switches(self) -> Switches:
        """What takes part: a switch set by hand wins, else the profile decides.

        The Life Bank takes part once it is named, unless the profile, set by hand, leaves it out.
        """
        profile_is_set = "profile" in self.model_fields_set
        life, project = self.banks.life, self.banks.project
        wants_life = not profile_is_set or self.profile != "project-only"
        retains = self.profile not in {"life-only", "recall-only"}
        wants_project = self.profile != "life-only"
        project_on = wants_project if project.enabled is None else project.enabled
        return Switches(
            project=project_on,
            life=life.bank_id is not None
            and (wants_life if life.enabled is None else life.enabled),
            recall=self.recall.enabled,
            automatic_retain=project_on
            and (retains if self.retain.enabled is None else self.retain.enabled),
        )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is pydantic's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The order of the sources, highest first."""
        user = _user_file()
        return (
            init_settings,
            env_settings,
            _ClientVariables(settings_cls),
            TomlConfigSettingsSource(settings_cls, _project_file(".hindsight.toml")),
            # Told of no file, pydantic looks in the working directory, which may be gone.
            PyprojectTomlConfigSettingsSource(
                settings_cls, _project_file("pyproject.toml") or user
            ),
            TomlConfigSettingsSource(settings_cls, user),
        )


class _ClientVariables(PydanticBaseSettingsSource):
    """The variables by which other Hindsight clients know the server."""

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:  # noqa: ANN401, ARG002
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        import os

        url = os.environ.get("HINDSIGHT_API_URL") or os.environ.get("HINDSIGHT_BASE_URL")
        return {"url": url} if url else {}


def _plain(error: ValidationError) -> str:
    """What was wrong, without pydantic's links and without the value where it may be a secret."""
    from langchain_hindsight.redaction import redact  # its patterns take a while to compile

    lines = []
    for one in error.errors(include_url=False, include_context=False, include_input=True):
        name = ".".join(str(part) for part in one["loc"]) or "settings"
        found = "" if "key" in name else f", found {redact(repr(one['input']))[:200]}"
        lines.append(f"{name}: {one['msg']}{found}")
    return "The Hindsight configuration does not hold. " + "; ".join(lines)
