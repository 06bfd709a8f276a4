"""The one place that talks to the Hindsight server.

Only this module imports ``hindsight_client``, and only it knows about HTTP errors, deadlines and
retries. Its coroutines run on its own background loop, where the HTTP sessions live.

Recall, which every turn waits for, is one request of our own over aiohttp, the client's own HTTP
library; everything else goes through the client, which is imported with the first call that needs
it. Importing its generated models takes longer than all the rest of a first turn, and building
them longer than choosing among the memories.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

from langchain_hindsight._version import __version__
from langchain_hindsight.background_loop import BackgroundLoop
from langchain_hindsight.breaker import Breaker
from langchain_hindsight.errors import ConfigurationError, HindsightError
from langchain_hindsight.fork import abandon, on_fork_in_child
from langchain_hindsight.outbox.address import address_of
from langchain_hindsight.recall_result import RecalledMemory

if TYPE_CHECKING:
    import aiohttp
    from hindsight_client import Hindsight

T = TypeVar("T")

Kind = Literal["unreachable", "timeout", "busy", "auth", "missing", "rejected", "server", "skipped"]

_RETRYABLE: frozenset[Kind] = frozenset({"unreachable", "timeout", "busy", "server", "skipped"})
_BY_STATUS: Mapping[int, Kind] = {
    401: "auth",
    403: "auth",
    404: "missing",
    408: "timeout",
    425: "timeout",
    429: "busy",
    503: "busy",
}
_TOO_LARGE = 413
"""Of a request's size a proxy's word is as good as the server's: it is cut in two."""
_ATTEMPTS = 3
_PAUSE = 0.25
_SHOWN_CHARS = 300
_NUMBERS = (int, float)
_PAGE = 100
_NO_MODEL = "no-mental-model-has-this-id"
_AGENT = f"langchain-hindsight/{__version__}"

_logger = logging.getLogger(__name__)


class GatewayError(HindsightError):
    """A call to the server that failed; the message names the server and what to try."""

    def __init__(
        self,
        message: str,
        *,
        kind: Kind,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        """Keep what a caller decides by.

        Args:
            message: A plain sentence, without the key.
            kind: What went wrong.
            status: The HTTP status, where there was one.
            retry_after: Seconds that the server asked to wait.
        """
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        """All of it, so that a receipt can be copied and pickled."""
        return _gateway_error, (str(self), self.kind, self.status, self.retry_after)

    @property
    def retryable(self) -> bool:
        """Whether the same call may succeed later."""
        return self.kind in _RETRYABLE

    @property
    def is_servers_fault(self) -> bool:
        """Whether the server did not answer, or said that it cannot."""
        return self.kind != "skipped" and (self.status is None or self.status >= 500)  # noqa: PLR2004


def _gateway_error(
    message: str, kind: Kind, status: int | None, retry_after: float | None
) -> GatewayError:
    return GatewayError(message, kind=kind, status=status, retry_after=retry_after)


@dataclass(frozen=True, slots=True)
class OperationStatus:
    """How an asynchronous operation stands."""

    status: str
    """``pending``, ``processing``, ``completed``, ``failed``, ``cancelled`` or ``not_found``."""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class MentalModel:
    """A question whose answer Hindsight keeps up to date, and the answer."""

    id: str
    name: str
    question: str
    content: str
    """``""`` until Hindsight has made it."""
    tags: tuple[str, ...] = ()
    refreshed_at: datetime | None = None
    """When it was last made, in UTC."""


class Gateway:
    """A Hindsight server, as coroutines to run on `loop`.

    Constructing it does nothing; what it connects by is imported and built with the first call that
    needs it, closed with `aclose`, and built anew by a call after that.

    Args:
        url: The server.
        api_key: Gives the key, or None; asked with the first call and once more on a 401.
        timeout: Deadline of a call that names none, in seconds.

    Raises:
        ConfigurationError: If the URL is no http or https URL.
    """

    def __init__(self, url: str, api_key: Callable[[], str | None], timeout: float) -> None:
        """Check the URL and start nothing."""
        try:
            parts = urlsplit(url.strip().rstrip("/"))
            usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
            _ = parts.port
        except ValueError:
            usable = False
        if not usable:
            msg = "url must be an http or https URL such as http://localhost:8888."
            raise ConfigurationError(msg)
        self.loop = BackgroundLoop()
        self.url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        self._address = urlunsplit(parts)
        self._api_key = api_key
        self._timeout = timeout
        self._forget()
        on_fork_in_child(self, "_renew")

    def _forget(self) -> None:
        self._connection: _Connection | None = None
        self._key: str | None = None
        self._key_known = False
        self._connecting: asyncio.Task[_Connection] | None = None
        self._retired: list[_Connection] = []
        self._auth_said = False
        self.breaker = Breaker()

    def _renew(self) -> None:
        abandon(self._connection, self._connecting, *self._retired)
        self._forget()

    def address(self) -> str:
        """Whom entries of the outbox are meant for: this server, and the holder of this key.

        Asks for the key if that was not done yet.

        Raises:
            ConfigurationError: If the function that gives the key fails.
        """
        if not self._key_known:
            self._key = self._read_key()
            self._key_known = True
        return address_of(self.url, self._key)

    async def retain(
        self, bank_id: str, items: Sequence[Mapping[str, Any]], *, operation_id: str
    ) -> int:
        """Hand items over to be stored; the same ``operation_id`` again stores nothing new.

        Args:
            bank_id: The bank, which Hindsight creates if need be.
            items: Each with ``content``, ``timestamp`` (aware), ``context``, ``document_id``,
                ``metadata`` (strings), ``tags`` and ``observation_scopes``.
            operation_id: A UUID that names this request, whatever its items.

        Returns:
            How many items the server took; 0 means that nothing was stored.

        Raises:
            GatewayError: If the server did not take them.
        """
        batch = [dict(item) for item in items]
        response = await self._call(
            lambda client: client.aretain_batch(
                bank_id, batch, retain_async=True, operation_id=operation_id
            )
        )
        return int(self._field(response, "items_count"))

    async def operation_status(self, bank_id: str, operation_id: str) -> OperationStatus:
        """How an operation stands.

        Raises:
            GatewayError: If the server did not say.
        """
        response = await self._call(
            lambda client: client.operations.get_operation_status(bank_id, operation_id)
        )
        said = getattr(response, "error_message", None)
        error = None if said is None else _masked(str(said))
        return OperationStatus(str(self._field(response, "status")), error)

    async def extracts_facts(self, bank_id: str) -> bool | None:
        """Whether a bank extracts facts from what it is given, rather than storing chunks.

        Returns:
            None where the bank does not exist yet.

        Raises:
            GatewayError: If the server did not say.
        """
        config = await self.bank_config(bank_id)
        return None if config is None else config.get("retain_extraction_mode") != "chunks"

    async def bank_config(self, bank_id: str) -> Mapping[str, Any] | None:
        """What a bank is set to, missions included; None where there is no such bank.

        Raises:
            GatewayError: If the server did not say.
        """
        try:
            response = await self._call(lambda client: client.banks.get_bank_config(bank_id))
        except GatewayError as error:
            if error.kind == "missing":
                return None
            raise
        config: Mapping[str, Any] = self._field(response, "config")
        return config

    async def recent_banks(self, limit: int = 1000) -> list[str]:
        """Ids of the banks that were written to last.

        Raises:
            GatewayError: If the server did not say.
        """
        response = await self._call(lambda client: client.banks.list_banks(limit=limit))
        return [bank.bank_id for bank in self._field(response, "banks")]

    async def bank_exists(self, bank_id: str) -> bool:
        """Whether there is a bank of exactly this id.

        Raises:
            GatewayError: If the server did not say.
        """
        offset = 0
        while True:
            page = await self._call(partial(_bank_page, q=bank_id, offset=offset))
            banks = self._field(page, "banks")
            if any(bank.bank_id == bank_id for bank in banks):
                return True
            offset += len(banks)
            if not banks or offset >= self._field(page, "total"):
                return False

    async def create_bank(self, bank_id: str, missions: Mapping[str, Any]) -> None:
        """Make a bank with its missions; those of a bank that exists would be replaced.

        Raises:
            GatewayError: If the server did not make it.
        """
        await self._call(lambda client: client.acreate_bank(bank_id, **missions))

    async def set_missions(self, bank_id: str, missions: Mapping[str, Any]) -> None:
        """Replace missions of a bank.

        Raises:
            GatewayError: If the server did not take them.
        """
        await self._call(lambda client: client.aupdate_bank_config(bank_id, **missions))

    async def has_llm(self, bank_id: str) -> bool:
        """Whether the server can make a mental model; asked for one that cannot be, it makes none.

        Raises:
            GatewayError: If the server did not say.
        """
        try:
            await self._call(lambda client: client.arefresh_mental_model(bank_id, _NO_MODEL))
        except GatewayError as error:
            if error.kind == "missing":  # of the model, which is looked for with an LLM alone
                return True
            if error.kind == "rejected":
                return False
            raise
        return True

    async def create_model(self, bank_id: str, **model: Any) -> None:  # noqa: ANN401 - the client's own
        """Make a mental model.

        Raises:
            GatewayError: If the server did not.
        """
        await self._call(lambda client: client.acreate_mental_model(bank_id, **model))

    async def refresh_model(self, bank_id: str, model: str) -> None:
        """Have a mental model made anew.

        Raises:
            GatewayError: If the server did not take it.
        """
        await self._call(lambda client: client.arefresh_mental_model(bank_id, model))

    async def delete_model(self, bank_id: str, model: str) -> None:
        """Delete a mental model.

        Raises:
            GatewayError: If the server did not.
        """
        await self._call(lambda client: client.adelete_mental_model(bank_id, model))

    async def import_template(self, bank_id: str, manifest: Mapping[str, Any]) -> None:
        """Import a template into a bank, which is created if need be.

        Raises:
            GatewayError: If the server did not take it.
        """
        await self._call(partial(_import_template, bank_id=bank_id, manifest=manifest))

    async def recall(
        self,
        bank_id: str,
        query: str,
        *,
        max_tokens: int,
        budget: str,
        types: Sequence[str] | None,
        tag_groups: list[dict[str, Any]] | None,
        prefer_observations: bool | None,
        timeout: float,  # noqa: ASYNC109 - one deadline covers every try and the client's import
    ) -> list[RecalledMemory]:
        """The memories of a bank that a query calls up, best first.

        Args:
            bank_id: The bank.
            query: What to look for; it holds at least one word character.
            max_tokens: Bound of the sum of the memories' texts.
            budget: Hindsight's search effort.
            types: Kinds of memory, or None for the server's own choice.
            tag_groups: The tag filter.
            prefer_observations: Whether an observation stands in for its facts.
            timeout: Deadline in seconds, tries and pauses included.

        Returns:
            Nothing where the bank does not exist yet.

        Raises:
            GatewayError: If the server did not answer, or not as Hindsight does.
        """
        request = {
            "query": query,
            "types": None if types is None else list(types),
            "max_tokens": max_tokens,
            "budget": budget,
            "tag_groups": tag_groups,
            "prefer_observations": prefer_observations,
            "include": {"entities": None},  # left out, it stands for the server's default
        }
        try:
            return await self._exchange(
                lambda connection: connection.recall(bank_id, request),
                timeout=timeout,
                attempts=_ATTEMPTS,
            )
        except GatewayError as error:
            if error.kind == "missing":
                _logger.debug("Bank %s does not exist yet; nothing recalled", bank_id)
                return []
            raise

    async def mental_models(
        self,
        bank_id: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
    ) -> list[MentalModel]:
        """The mental models of a bank, whatever their tags, by name; none where there is no bank.

        Raises:
            GatewayError: If the server did not answer, or not as Hindsight does.
        """
        try:
            return await self._exchange(
                lambda connection: connection.mental_models(bank_id), timeout=timeout
            )
        except GatewayError as error:
            if error.kind == "missing":
                return []
            raise

    async def reflect(
        self, bank_id: str, query: str, *, tag_groups: list[dict[str, Any]] | None
    ) -> str:
        """Hindsight's answer to a question, reasoned over a bank.

        Raises:
            GatewayError: If there is none; a server without an LLM has none.
        """
        response = await self._call(
            lambda client: client.areflect(bank_id, query, tag_groups=tag_groups),
            attempts=_ATTEMPTS,
        )
        return str(self._field(response, "text"))

    async def aclose(self) -> None:
        """Close what connects to the server; a call after this connects anew."""
        if self._connecting is not None:  # its failure is its callers' to tell
            await asyncio.gather(self._connecting, return_exceptions=True)
        connection, retired = self._connection, self._retired
        self._connection, self._retired = None, []
        for one in (connection, *retired):
            if one is not None:
                await one.aclose()

    async def _call(self, send: Callable[[Hindsight], Awaitable[T]], *, attempts: int = 1) -> T:
        """One call of the client's own, within the usual deadline."""

        async def by_client(connection: _Connection) -> T:
            return await send(await connection.client())

        return await self._exchange(by_client, attempts=attempts)

    async def _exchange(
        self,
        send: Callable[[_Connection], Awaitable[T]],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
        attempts: int = 1,
    ) -> T:
        """One call within a deadline; only one that a repeat cannot double names more attempts."""
        seconds = self._timeout if timeout is None else timeout
        running = asyncio.get_running_loop()
        deadline = running.time() + seconds
        try:
            async with asyncio.timeout_at(deadline):
                for attempt in range(1, attempts + 1):
                    try:
                        return await self._send(send)
                    except GatewayError as error:
                        pause = error.retry_after or _PAUSE * attempt
                        if (
                            error.kind != "busy"
                            or attempt == attempts
                            or running.time() + pause >= deadline
                        ):
                            raise
                        await asyncio.sleep(pause)
        except TimeoutError:
            msg = (
                f"Hindsight at {self.url} did not answer within {seconds:g} s. Is it overloaded? "
                "A longer timeout or recall.timeout waits longer."
            )
            raise GatewayError(msg, kind="timeout") from None
        msg = "attempts must be at least 1"
        raise AssertionError(msg)

    async def _send(self, send: Callable[[_Connection], Awaitable[T]]) -> T:
        """One request; a refused key is read anew, and the request sent once more if it changed."""
        connection = await self._connected()
        try:
            answer = await self._translate(send(connection))
        except GatewayError as error:
            if not error.is_servers_fault:
                self.breaker.succeeded()
            if error.status != 401 or not await self._key_changed(connection):  # noqa: PLR2004
                raise
        else:
            self.breaker.succeeded()
            return answer
        return await self._translate(send(await self._connected()))

    async def _key_changed(self, used: _Connection) -> bool:
        """Whether another key is to be had than the one that was refused."""
        if self._connection is not used:
            return True  # another call has renewed it meanwhile
        if await asyncio.to_thread(self._read_key) == self._key or self._connection is not used:
            return self._connection is not used
        self._retired.append(used)
        self._connection = self._connecting = None
        return True

    def _read_key(self) -> str | None:
        try:
            key = self._api_key()
        except Exception as error:  # noqa: BLE001 - the user's own function
            msg = f"The function that gives the API key failed ({type(error).__name__})."
            raise ConfigurationError(msg) from None  # its message may show the key
        return checked_key(key) if key else None

    async def _connected(self) -> _Connection:
        """The connection; callers that come at once share one."""
        if self._connection is not None:
            return self._connection
        if self._connecting is None:
            self._connecting = asyncio.ensure_future(self._connect())
        return await asyncio.shield(self._connecting)

    async def _connect(self) -> _Connection:
        try:
            self._key = await asyncio.to_thread(self._prepare)
            self._key_known = True
            self._connection = _new_connection(self._address, self._key, 2 * self._timeout)
        finally:
            self._connecting = None
        return self._connection

    def _prepare(self) -> str | None:
        """Do what would hold up the loop: the user's own function, and an import."""
        import aiohttp  # noqa: F401 - it is slow

        return self._read_key()

    async def _translate(self, call: Awaitable[T]) -> T:
        """Turn whatever a call raises into a `GatewayError`."""
        import aiohttp

        try:
            return await call
        except TimeoutError:  # `_exchange` says which deadline it was; aiohttp's are of this kind
            raise TimeoutError from None
        except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError) as error:
            raise self._unreachable(error, what="broke off") from None
        except (aiohttp.ClientConnectionError, ConnectionError) as error:
            raise self._unreachable(error, what="cannot be reached") from None
        except HindsightError:
            raise
        except Exception as error:  # what the client raises has a class of its own, and a status
            status = getattr(error, "status", None)
            if status:
                raise self._refused(status, error) from None
            if isinstance(error, aiohttp.ClientError):
                raise self._unreachable(error, what="cannot be spoken to") from None
            # No JSON, or another shape: what breaks the reading is no answer.
            _logger.debug("An answer of %s could not be read", self.url, exc_info=error)
            raise self._nonsense() from None

    def _unreachable(self, error: Exception, *, what: str) -> GatewayError:
        msg = (
            f"Hindsight at {self.url} {what} ({type(error).__name__}). Is it running there? "
            "`langchain-hindsight serve` starts one and says its URL, for url or HINDSIGHT_API_URL."
        )
        return GatewayError(msg, kind="unreachable")

    def _nonsense(self, status: int | None = None) -> GatewayError:
        answer = "What answers" if status is None else f"What answers {status}"
        msg = (
            f"{answer} at {self.url} is not Hindsight, or a proxy answers for it. "
            "Check url or HINDSIGHT_API_URL."
        )
        return GatewayError(msg, kind="server", status=status)

    def _refused(self, status: int, error: Exception) -> GatewayError:
        if status in {401, 403}:
            return self._key_refused(status)
        kind = _BY_STATUS.get(status, "server" if status >= 500 else "rejected")  # noqa: PLR2004
        if kind in {"missing", "rejected"} and status != _TOO_LARGE and not _is_own(error):
            return self._nonsense(status)
        detail = _detail(error)
        msg = f"Hindsight at {self.url} answered {status}" + (f": {detail}" if detail else ".")
        headers = getattr(error, "headers", None) or {}
        wait = _seconds(headers.get("Retry-After"))
        return GatewayError(msg, kind=kind, status=status, retry_after=wait)

    def _key_refused(self, status: int) -> GatewayError:
        what = "refused the API key" if self._key else "asks for an API key, and none was sent"
        msg = f"Hindsight at {self.url} {what} ({status}). Set HINDSIGHT_API_KEY or api_key."
        if not self._auth_said:
            self._auth_said = True
            _logger.error("%s", msg)
        return GatewayError(msg, kind="auth", status=status)

    def _field(self, response: object, name: str) -> Any:  # noqa: ANN401 - the client's own models
        """A field of an answer; an answer without it came from something else."""
        value = getattr(response, name, None)
        if value is None:
            raise self._nonsense()
        return value


def checked_key(key: str) -> str | None:
    """The key without blanks around it; None when nothing is left.

    Raises:
        ConfigurationError: If no HTTP header can hold it; the message shows nothing of it.
    """
    bare = key.strip()
    if not bare.isprintable() or not bare.isascii():
        msg = "The API key holds a character that no HTTP header can; check HINDSIGHT_API_KEY."
        raise ConfigurationError(msg)
    return bare or None


class _Refusal(Exception):  # noqa: N818 - a status, as the client's own exception has it
    """An answer to a request of ours that is none."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.headers = headers


def _import_template(
    client: Hindsight, *, bank_id: str, manifest: Mapping[str, Any]
) -> Awaitable[Any]:
    from hindsight_client_api.api.bank_templates_api import BankTemplatesApi
    from hindsight_client_api.models.bank_template_manifest import BankTemplateManifest

    api = BankTemplatesApi(client.banks.api_client)
    return api.import_bank_template(bank_id, BankTemplateManifest.model_validate(dict(manifest)))


def _bank_page(client: Hindsight, *, q: str, offset: int) -> Awaitable[Any]:
    return client.banks.list_banks(q=q, offset=offset)


class _Connection:
    """What one key is sent by: a session for recalls, and the client for everything else."""

    def __init__(
        self, address: str, session: aiohttp.ClientSession, make_client: Callable[[], Hindsight]
    ) -> None:
        self._address = address
        self._session = session
        self._make_client = make_client
        self._client: asyncio.Future[Hindsight] | None = None

    async def client(self) -> Hindsight:
        """The client; callers that come at once share one."""
        if self._client is None or (self._client.done() and self._client.exception()):
            self._client = asyncio.ensure_future(asyncio.to_thread(self._make_client))
        return await asyncio.shield(self._client)

    async def recall(self, bank_id: str, request: Mapping[str, Any]) -> list[RecalledMemory]:
        """Send a recall, as the client would."""
        url = f"{self._bank(bank_id)}/memories/recall"
        body = await self._answer(self._session.post(url, data=json.dumps(request)))
        return [_memory(found) for found in body["results"]]

    async def mental_models(self, bank_id: str) -> list[MentalModel]:
        """List a bank's mental models, page by page, as the client would."""
        found: list[MentalModel] = []
        while True:
            page = f"detail=content&limit={_PAGE}&offset={len(found)}"
            url = f"{self._bank(bank_id)}/mental-models?{page}"
            items = (await self._answer(self._session.get(url)))["items"]
            found += [_mental_model(one) for one in items]
            if len(items) < _PAGE:
                return sorted(found, key=lambda model: (model.name, model.id))

    def _bank(self, bank_id: str) -> str:
        return f"{self._address}/v1/default/banks/{quote(bank_id, safe='')}"

    async def _answer(self, sent: AbstractAsyncContextManager[aiohttp.ClientResponse]) -> Any:  # noqa: ANN401 - JSON
        async with sent as response:
            body = await response.read()
            if response.status != 200:  # noqa: PLR2004
                raise _Refusal(response.status, body, response.headers)
            return json.loads(body.decode(response.charset or "utf-8"))

    async def aclose(self) -> None:
        """Close both."""
        await self._session.close()
        if self._client is not None:
            (client,) = await asyncio.gather(self._client, return_exceptions=True)
            if not isinstance(client, BaseException):
                await client.aclose()  # type: ignore[no-untyped-call] # the client's own


def _new_connection(address: str, key: str | None, timeout: float) -> _Connection:
    import aiohttp

    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    headers["User-Agent"] = _AGENT
    if key:
        headers["Authorization"] = f"Bearer {key}"
    session = aiohttp.ClientSession(
        headers=headers, timeout=aiohttp.ClientTimeout(total=None), trust_env=True
    )

    def make_client() -> Hindsight:
        from hindsight_client import Hindsight

        return Hindsight(address, api_key=key, timeout=timeout, user_agent=_AGENT, max_attempts=1)

    return _Connection(address, session, make_client)


def _memory(found: Mapping[str, Any]) -> RecalledMemory:
    """A result of the server's, held to what Hindsight's own schema says of it.

    Raises:
        Exception: If it is none.
    """
    memory_id, text = found["id"], found["text"]
    if not (isinstance(memory_id, str) and isinstance(text, str)):
        msg = "A memory's id and text are strings."
        raise TypeError(msg)
    scores = found.get("scores") or {}
    return RecalledMemory(
        id=memory_id,
        text=text,
        type=found.get("type"),
        tags=tuple(found.get("tags") or ()),
        date=_aware(found.get("occurred_start") or found.get("mentioned_at")),
        scores={name: score for name, score in scores.items() if isinstance(score, _NUMBERS)},
        document_id=found.get("document_id"),
        context=found.get("context"),
    )


def _mental_model(found: Mapping[str, Any]) -> MentalModel:
    """A mental model of the server's.

    Raises:
        Exception: If it is none.
    """
    return MentalModel(
        id=str(found["id"]),
        name=str(found["name"]),
        question=found.get("source_query") or "",
        content=found.get("content") or "",
        tags=tuple(found.get("tags") or ()),
        refreshed_at=_aware(found.get("last_refreshed_at")),
    )


def _aware(stamp: str | None) -> datetime | None:
    """A time in UTC; one that the server gave without a zone is in it already."""
    if not stamp:
        return None
    try:
        parsed = datetime.fromisoformat(stamp)
        return parsed.astimezone(UTC) if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _is_own(error: Exception) -> bool:
    """Whether a refusal is Hindsight's own, which says why in JSON, and no proxy's page."""
    if getattr(error, "body", None):
        return _said(error) is not None
    headers = getattr(error, "headers", None) or {}
    return str(headers.get("Content-Type", "")).startswith("application/json")


def _said(error: Exception) -> Any:  # noqa: ANN401 - whatever the server says
    """The server's reason; None where what answered gave none."""
    body = getattr(error, "body", None)
    try:
        return json.loads(body)["detail"] if body else None
    except (ValueError, KeyError, TypeError):
        return None


def _detail(error: Exception) -> str:
    """The server's reason, short and masked; never what it echoes of the request."""
    detail = _said(error)
    if isinstance(detail, list):
        detail = "; ".join(str(one.get("msg", "")) for one in detail if isinstance(one, dict))
    return _masked(str(detail or "")[: 4 * _SHOWN_CHARS])[:_SHOWN_CHARS]


def _masked(text: str) -> str:
    from langchain_hindsight.redaction import redact

    return redact(text)


def _seconds(retry_after: str | None) -> float | None:
    """``Retry-After`` in seconds, from either of its two forms."""
    if not retry_after:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (aware - datetime.now(UTC)).total_seconds())
