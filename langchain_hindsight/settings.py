"""The whole configuration, as one tree whose names are promises.

Sources, highest first: keyword arguments, environment variables (``HINDSIGHT_*``, nested names with
``__``), the file that ``HINDSIGHT_CONFIG_FILE`` names, ``.hindsight.toml`` or
``[tool.langchain-hindsight]`` in ``pyproject.toml`` of the project, ``config.toml`` in the user's
configuration folder, and the defaults below. Names are written in snake_case; camelCase and older
words are read. Times are seconds, sizes are tokens unless a name says characters or bytes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from langchain_hindsight.errors import ConfigurationError
from langchain_hindsight.older_settings import snake_case
from langchain_hindsight.settings_sources import (
    MASK,
    Fault,
    Reading,
    explain,
    is_masked,
    masked_url,
    read,
)

BankTemplate = str | Callable[[Mapping[str, Any]], "str | None"]
"""A bank id, a template over the caller's context (``"life-{user_id}"``), or a function of it."""

Profile = Literal["project-only", "project+life", "life-only", "recall-only"]

T = TypeVar("T")

_logger = logging.getLogger(__name__)


def _read_camel_case(data: Any) -> Any:  # noqa: ANN401 - pydantic hands over whatever was given
    if not isinstance(data, dict):
        return data
    return {snake_case(k) if isinstance(k, str) else k: v for k, v in data.items()}


class _Fixed:
    """What cannot be changed, and says so without the value: pydantic's own error would show it."""

    def __setattr__(self, name: str, value: object) -> None:
        try:
            super().__setattr__(name, value)
        except ValidationError:
            msg = f"{name} cannot be set: settings are fixed once they are made; make others."
            raise ConfigurationError(msg) from None


class _Section(_Fixed, BaseModel):
    """One table of the tree: unknown keys are refused, camelCase is read."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,  # it may be a key or a URL with a password
    )

    _camel = model_validator(mode="before")(_read_camel_case)


class EnvironmentKey(_Section):
    """An API key that stands in a variable, read there each time it is needed."""

    source: Literal["env"]
    """Where the key stands; a variable is the only place there is."""
    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """The variable's name."""

    def read(self) -> str | None:
        """The key as it is now; None where the variable is not set."""
        return os.environ.get(self.name)


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
    """Longest text kept of one message or note, in characters; the rest is cut and marked."""


class LifeRetainSettings(_Section):
    """How the Life Bank is written to: only when somebody deliberately does so."""

    mode: Literal["explicit-only"] = "explicit-only"
    """The only mode there is."""


class OutboxSettings(_Section):
    """The durable queue between the agent and Hindsight."""

    def __getstate__(self) -> dict[Any, Any]:
        """What a pickle holds: no password."""
        return _without_passwords(super().__getstate__())

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


PROFILES: Mapping[Profile, Switches] = {
    "project-only": Switches(project=True, life=False, recall=True, automatic_retain=True),
    "project+life": Switches(project=True, life=True, recall=True, automatic_retain=True),
    "life-only": Switches(project=False, life=True, recall=True, automatic_retain=False),
    "recall-only": Switches(project=True, life=True, recall=True, automatic_retain=False),
}
"""The switches of each profile. The explicit Life Bank write goes with the Life Bank in all."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """A configuration as it was found, also where it does not hold."""

    settings: HindsightSettings | None
    """None where it cannot be used."""
    reading: Reading
    faults: tuple[Fault, ...]


class HindsightSettings(_Fixed, BaseSettings):
    """The whole configuration of a `DualBankMemory`.

    A choice that nobody knows falls back to its default, with a warning. Pickled, it holds neither
    the API key nor a password; where it is unpickled they are read again.

    Raises:
        ConfigurationError: If a value has the wrong type or range, a name is none of the tree's, or
            a file cannot be read; the message names the place of each.
    """

    model_config = SettingsConfigDict(
        env_prefix="HINDSIGHT_",
        env_nested_delimiter="__",
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
    )

    url: str = Field(default="http://localhost:8888", repr=False)
    """The Hindsight server; also read from ``HINDSIGHT_API_URL`` and ``HINDSIGHT_BASE_URL``."""
    api_key: Annotated[SecretStr | EnvironmentKey | None, NoDecode] = Field(
        default=None, repr=False
    )
    """The server's key, or ``{ source = "env", name = "VARIABLE" }``: where it stands."""
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
        reading = read(type(self), values)
        faults = [*reading.faults, *_fill(self, reading)]
        errors = [str(one) for one in faults if one.is_error]
        if errors:
            msg = "The Hindsight configuration does not hold. " + "; ".join(errors)
            raise ConfigurationError(msg)
        for one in faults:
            _logger.warning("%s", one)

    @classmethod
    def inspect(cls, reading: Reading | None = None) -> Inspection:
        """A configuration without an error or a warning for what is wrong with it.

        Args:
            reading: What was read; else all sources of this place are.
        """
        reading = reading or read(cls, {})
        settings = cls.__new__(cls)
        faults = (*reading.faults, *_fill(settings, reading))
        usable = not any(one.is_error for one in faults)
        return Inspection(settings if usable else None, reading, faults)

    def __getstate__(self) -> dict[Any, Any]:
        """What a pickle holds: no key, no password."""
        state = _without_passwords(super().__getstate__())
        if isinstance(self.api_key, SecretStr):
            state["__dict__"]["api_key"] = MASK
        return state

    def __setstate__(self, state: dict[Any, Any]) -> None:
        """Take a pickle's, with the credentials that are configured where it is unpickled."""
        fields = state["__dict__"]
        outbox = fields["outbox"]
        if fields["api_key"] == MASK or is_masked(fields["url"]) or is_masked(outbox.url):
            here = type(self)()
            fields["url"] = _with_password(fields["url"], here.url, "url")
            url = _with_password(outbox.url, here.outbox.url, "outbox.url")
            fields["outbox"] = outbox.model_copy(update={"url": url})
            if fields["api_key"] == MASK:
                fields["api_key"] = here.api_key
        super().__setstate__(state)

    def overridden(
        self,
        *,
        url: str | None = None,
        project_bank: BankTemplate | None = None,
        project_id: BankTemplate | None = None,
        life_bank: BankTemplate | None = None,
    ) -> HindsightSettings:
        """This configuration with what a caller passed by hand; naming a Life Bank opts in.

        Raises:
            ConfigurationError: If something passed is of another type.
        """
        _check_text("url", url)
        for name, given in (
            ("project_bank", project_bank),
            ("project_id", project_id),
            ("life_bank", life_bank),
        ):
            _check_text(name, given, "a text or a function")
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
        profile, life = PROFILES[self.profile], self.banks.life
        may_have_life = profile.life or not self._profile_is_set
        project = _by_hand(self.banks.project.enabled, profile.project)
        return Switches(
            project=project,
            life=life.bank_id is not None and _by_hand(life.enabled, may_have_life),
            recall=self.recall.enabled,
            automatic_retain=project and _by_hand(self.retain.enabled, profile.automatic_retain),
        )

    @property
    def lacks_life_bank(self) -> bool:
        """Whether a Life Bank is asked for, by hand or by the profile, and none is named."""
        asked = self._profile_is_set and self.profile in {"project+life", "life-only"}
        return self.banks.life.bank_id is None and _by_hand(self.banks.life.enabled, asked)

    @property
    def _profile_is_set(self) -> bool:
        return "profile" in self.model_fields_set

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the signature is pydantic's
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """One: all sources are put together ahead of it, so that each value keeps its origin."""
        return (init_settings,)


def _fill(settings: HindsightSettings, reading: Reading) -> list[Fault]:
    """Validate what was read into the settings; what does not hold is told by its place."""
    try:
        BaseSettings.__init__(settings, **reading.values)
    except ValidationError as error:
        return explain(error, HindsightSettings, reading)
    return []


def _check_text(name: str, given: object, expected: str = "a text") -> None:
    if given is None or isinstance(given, str) or (callable(given) and "function" in expected):
        return
    msg = f"{name} must be {expected}, found {type(given).__name__}."
    raise ConfigurationError(msg)


def _by_hand(switch: bool | None, otherwise: bool) -> bool:  # noqa: FBT001 - a switch is a bool
    return otherwise if switch is None else switch


def _without_passwords(state: dict[Any, Any]) -> dict[Any, Any]:
    """A model's state with the password of its URL masked."""
    fields = dict(state["__dict__"])
    if fields["url"] is not None:
        fields["url"] = masked_url(fields["url"])
    return {**state, "__dict__": fields}


def _with_password(url: T, here: str | None, name: str) -> T | str:
    """A URL of a pickle with the password that is configured here for the same place.

    Raises:
        ConfigurationError: If none is.
    """
    if not is_masked(url):
        return url
    if here is not None and masked_url(here) == url:
        return here
    msg = (
        f"A pickle holds no passwords, and the one of {name} = {url!r} is not configured here; "
        f"set HINDSIGHT_{name.replace('.', '__').upper()} to the whole URL where it is unpickled."
    )
    raise ConfigurationError(msg)
