"""Retain: messages, what is new, what may be kept, masked, outbox, and later delivered.

What is retained is on disk before a method returns, and delivered by a task of its own. Automatic
retain takes a `ProjectBank` and nothing else; `Retainer.retain_note`, the deliberate one, is the
only way to a Life Bank.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from cachetools import LRUCache

from langchain_hindsight.background_thread import BackgroundThread, in_a_thread
from langchain_hindsight.banks import LifeBank, ProjectBank
from langchain_hindsight.errors import ConfigurationError, HindsightError, reason
from langchain_hindsight.fork import abandon, on_fork_in_child
from langchain_hindsight.outbox.address import address_of, server_in
from langchain_hindsight.outbox.default_file import default_file, plain_file
from langchain_hindsight.recall_result import BEFORE_THIS
from langchain_hindsight.receipts import FlushReport, OutboxStatus, RetainReceipt
from langchain_hindsight.templates import Role
from langchain_hindsight.transcript import (
    CONTEXT_MESSAGES,
    Line,
    Transcript,
    clean,
    content,
    note_content,
    shortened,
)

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

    from langchain_hindsight.gateway import Gateway
    from langchain_hindsight.outbox.delivery import Delivery
    from langchain_hindsight.outbox.enqueue import Drafting, Findings
    from langchain_hindsight.outbox.look import Counts
    from langchain_hindsight.outbox.scope import Draft, Scope
    from langchain_hindsight.outbox.store import Store
    from langchain_hindsight.settings import HindsightSettings

T = TypeVar("T")

_CONTEXT_CHARS = 300
"""What is kept as context of one earlier message."""
_CONTEXT_SOURCE_CHARS = 8_000
_SHOWN = 1_024
"""How many messages' contexts are remembered."""
_NAMES = 1_024
_LEFT_OUT = "are not kept before the outbox can be read and they are passed again"
_HAND_OFF_THREADS = 4
_HAND_OFF_WAIT = 10.0
"""How long what is being written down is waited for at the end, in seconds."""
_LOOK_EVERY = 0.2
_STOP_GRACE = 0.2

_logger = logging.getLogger(__name__)


class Retainer:
    """Writes to the outbox, and has it delivered.

    Constructing it opens nothing and starts nothing.

    Args:
        gateway: The server.
        settings: The whole configuration.
        on_accepted: Called with a bank's id when the bank has taken or stored something new, on the
            gateway's loop.

    Raises:
        ConfigurationError: If ``outbox.url`` names no place that can work.
    """

    def __init__(
        self,
        gateway: Gateway,
        settings: HindsightSettings,
        *,
        on_accepted: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Check the settings; the database is opened with the first entry."""
        self._gateway = gateway
        self._settings = settings
        self._on_accepted = on_accepted
        self._disk: _Outlet | None = None
        self._memory: _Outlet | None = None
        self._disk_error: str | None = None
        self._written_as: str | None = None
        self._guard = threading.Lock()
        self._changed = threading.Condition()
        self._shown = _Shown()
        self._hand_offs: BackgroundThread | None = None
        self._hand_offs_guard = threading.Lock()
        self._stores_lock = threading.RLock()
        _check_outbox(settings)
        on_fork_in_child(self, "_renew")

    def _renew(self) -> None:
        """A forked child has its own outlets; what waits in the parent's memory is the parent's."""
        abandon(self._memory, self._guard, self._changed, self._hand_offs)
        if self._disk is not None:
            abandon(self._disk.delivery)
            self._disk.store.renew_after_fork()
        if self._memory is not None:
            self._memory.store.renew_after_fork()
        self._disk = self._memory = None
        self._guard = threading.Lock()
        self._changed = threading.Condition()
        self._shown = _Shown()
        self._hand_offs = None
        self._hand_offs_guard = threading.Lock()
        self._stores_lock = threading.RLock()

    def retain_transcript(
        self,
        bank: ProjectBank,
        messages: Sequence[BaseMessage],
        *,
        thread_id: str | None,
        keep: bool = True,
        recalled: Callable[[], Iterable[str]] = tuple,
    ) -> RetainReceipt:
        """Write down what is new in a conversation.

        Args:
            bank: The Project Bank.
            messages: The conversation, or its new part.
            thread_id: Which conversation; None derives one from how it begins.
            keep: Whether it is kept. What is not is written down as known, without its words, so
                that no later run takes it for new.
            recalled: Gives what was recalled lately, which no tool's result is kept with.

        Returns:
            ``queued`` once it is written down, ``skipped`` where nothing is new, or ``failed``.

        Raises:
            TypeError: If the bank is no Project Bank, which is a mistake of the program.
        """
        if not isinstance(bank, ProjectBank):
            msg = f"Automatic retain takes a ProjectBank, not a {type(bank).__name__}."
            raise TypeError(msg)
        kept = self._settings.retain
        transcript = Transcript(
            messages,
            roles=kept.roles,
            tools=kept.tools,
            recalled=recalled,
            mask=kept.redact,
        )

        def write(store: Store, beside: Store | None) -> RetainReceipt:
            thread = thread_id or _unnamed(transcript)
            if thread is None:
                return RetainReceipt("skipped", "there is nothing to keep", bank.bank_id)
            scope = _scope(self._address(), bank, thread)
            drafts = _Drafts(transcript, bank, thread, self._settings, keep=keep, shown=self._shown)
            earlier = 0
            if self._memory is not None and store is not self._memory.store:
                memory = self._memory.store
                earlier = store.learn(scope, transcript, drafts.at, memory, keep=keep)
            new, left_out = _retained(store, beside, scope, transcript, drafts.at, keep=keep)
            new += earlier
            unsure = f"{left_out} earlier messages {_LEFT_OUT}" if left_out else None
            if not keep:
                nothing = "the memory mode of this run keeps nothing"
                return RetainReceipt("skipped", nothing, bank.bank_id)
            if not new:
                nothing = unsure or "there is nothing new to keep"
                return RetainReceipt("skipped", nothing, bank.bank_id)
            return RetainReceipt("queued", unsure, bank.bank_id, items=new)

        written = self._write(bank.bank_id, write)
        if isinstance(written, RetainReceipt):
            return written
        outlet, receipt = written
        if receipt.status == "queued":
            self._wake(outlet)
        if receipt.status == "queued" and outlet is self._memory:
            reasons = [f"not durable: {self._disk_error}", receipt.reason]
            receipt = replace(receipt, reason="; ".join(one for one in reasons if one))
        return receipt

    async def aretain_transcript(
        self,
        bank: ProjectBank,
        messages: Sequence[BaseMessage],
        *,
        thread_id: str | None,
        keep: bool = True,
        recalled: Callable[[], Iterable[str]] = tuple,
    ) -> RetainReceipt:
        """As `retain_transcript`, without blocking the caller's loop."""
        return await self._handed_off(
            partial(
                self.retain_transcript,
                bank,
                messages,
                thread_id=thread_id,
                keep=keep,
                recalled=recalled,
            )
        )

    def retain_note(
        self,
        bank: ProjectBank | LifeBank,
        text: str,
        *,
        wait: float,
        call: tuple[str, str] | None = None,
    ) -> RetainReceipt:
        """Write down one note that somebody deliberately asked for, and wait for Hindsight.

        Args:
            bank: Either bank.
            text: What to remember.
            wait: How long to wait for Hindsight to have stored it, in seconds.
            call: The thread and the tool call that it is written by: the same note of the same call
                is written once, however often it is run. None is a note of its own each time.

        Returns:
            ``stored`` once Hindsight has it, ``queued`` with the reason where it does not yet,
            ``skipped`` for a blank text, or ``failed``.
        """
        deadline = time.monotonic() + wait
        note = self._write_note(bank, text, call)
        while not isinstance(note, RetainReceipt):
            remaining = deadline - time.monotonic()
            settled = self._settled(note, late=remaining <= 0)
            if settled is not None:
                return settled
            self._pause(remaining)
        return note

    async def aretain_note(
        self,
        bank: ProjectBank | LifeBank,
        text: str,
        *,
        wait: float,
        call: tuple[str, str] | None = None,
    ) -> RetainReceipt:
        """As `retain_note`, without blocking the caller's loop, or a thread while it waits."""
        deadline = time.monotonic() + wait
        write = partial(self._write_note, bank, text, call)
        note = await self._handed_off(write)
        while not isinstance(note, RetainReceipt):
            late = time.monotonic() >= deadline
            settled = await self._handed_off(partial(self._settled, note, late=late))
            if settled is not None:
                return settled
            await asyncio.sleep(_LOOK_EVERY / 2)
        return note

    def _handed_off(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Work done on a thread of our own; a caller that is cancelled meanwhile loses nothing."""
        with self._hand_offs_guard:  # so that stopping comes before or after
            if self._hand_offs is None:
                self._hand_offs = BackgroundThread(_HAND_OFF_THREADS)
            return self._hand_offs.call(work)

    def _write_note(
        self, bank: ProjectBank | LifeBank, text: str, call: tuple[str, str] | None
    ) -> RetainReceipt | _Note:
        """Write a note down and have it delivered at once."""
        text = clean(text).strip()
        if not text:
            return RetainReceipt("skipped", "the text is blank", bank.bank_id)
        payload = _note(bank, text, self._settings)
        started = time.time()
        name = uuid4().hex if call is None else json.dumps([*call, json.loads(payload)["content"]])
        written = self._write(
            bank.bank_id,
            lambda store, _: store.add_note(_scope(self._address(), bank), payload, name),
        )
        if isinstance(written, RetainReceipt):
            return written
        outlet, document = written
        try:
            with _plainly():
                outlet.store.hurry(self._address(), bank.bank_id)
                self._wake(outlet)
        except HindsightError as error:  # it is written down all the same
            return RetainReceipt("queued", str(error), bank.bank_id, items=1)
        return _Note(outlet, bank.bank_id, document, started)

    def flush(self, timeout: float) -> FlushReport:
        """Wait until what is due is stored.

        Args:
            timeout: How long at most, in seconds.

        Raises:
            HindsightError: If the outbox cannot be read.
        """
        return self._flush(_Patience(timeout))

    def _flush(self, patience: _Patience) -> FlushReport:
        before = self._counted(patience)
        started = time.time()
        for outlet, counts in before.items():
            if counts.waiting + counts.in_flight:
                self._wake(outlet, now=True)
        while True:
            with _plainly():
                address = self._address()
                left = sum(outlet.store.left(address, started) for outlet in before)
            remaining = patience.remaining
            if not left or remaining <= 0:
                break
            self._pause(remaining)
        with _plainly():
            after = [outlet.store.counts(address) for outlet in before]
        earlier = list(before.values())
        return FlushReport(
            delivered=_sum(after, "delivered") - _sum(earlier, "delivered"),
            waiting=_sum(after, "waiting") + _sum(after, "in_flight"),
            dead=max(0, _sum(after, "dead") - _sum(earlier, "dead")),
            timed_out=bool(left),
            elsewhere=sum(sum(counts.other_servers.values()) for counts in after),
        )

    def _counted(self, patience: _Patience) -> dict[_Outlet, Counts]:
        """How each outlet stands, once it is known which entries of other keys are one's own."""
        counted, _ = self._counts()
        server = server_in(self._address())
        unclear = [
            outlet
            for outlet, counts in counted.items()
            if any(server_in(address) == server for address in counts.other_servers)
            and not outlet.delivery.has_looked
        ]
        for outlet in unclear:
            self._wake(outlet, now=True)
        while any(not outlet.delivery.has_looked for outlet in unclear):
            remaining = patience.remaining
            if remaining <= 0:
                break
            self._pause(remaining)
        return self._counts()[0] if unclear else counted

    async def aflush(self, timeout: float) -> FlushReport:  # noqa: ASYNC109 - a promise of the surface
        """As `flush`, without blocking the caller's loop; cancelled, no thread waits on."""
        patience = _Patience(timeout)
        try:
            return await in_a_thread(self._flush, patience)
        finally:
            patience.give_up()

    def status(self) -> OutboxStatus:
        """How the outbox stands for this server.

        Raises:
            HindsightError: If the outbox cannot be read.
        """
        outlets, unread = self._counts()
        disk_error = unread or self._disk_error
        found = list(outlets.values())
        in_memory = any(
            counts.waiting + counts.in_flight
            for outlet, counts in outlets.items()
            if outlet is self._memory
        )
        ages = [counts.oldest for counts in found if counts.oldest is not None]
        errors = [counts.last_error for counts in found if counts.last_error]
        return OutboxStatus(
            waiting=_sum(found, "waiting"),
            in_flight=_sum(found, "in_flight"),
            delivered=_sum(found, "delivered"),
            dead=_sum(found, "dead"),
            oldest_age=max(0.0, time.time() - min(ages)) if ages else None,
            last_error=disk_error or next(iter(errors), None),
            paused=tuple(dict.fromkeys(bank for counts in found for bank in counts.paused)),
            other_servers=found[0].other_servers if found else {},
            durable=disk_error is None and not in_memory,
            address=self._address(),
            place=self._on_disk().store.place,
        )

    async def astatus(self) -> OutboxStatus:
        """As `status`, without blocking the caller's loop."""
        return await in_a_thread(self.status)

    def start(self) -> None:
        """Deliver what an earlier process left behind, where there is an outbox already."""
        url = self._settings.outbox.url
        file = default_file() if url is None else plain_file(url)
        if file is not None and not file.exists():
            return  # nothing was ever retained here, so not even a database library is loaded
        disk = self._on_disk()
        with _plainly():
            there = disk.store.exists()
        if there:
            self._wake(disk)

    def stop(self, timeout: float) -> None:
        """Deliver for at most a time, then stop; the rest stays on disk. Again is harmless.

        Args:
            timeout: How long at most, in seconds.
        """
        with self._hand_offs_guard:
            hand_offs, self._hand_offs = self._hand_offs, None
        if hand_offs is not None:
            hand_offs.stop()
            hand_offs.join(_HAND_OFF_WAIT)
        with self._guard:
            outlets = [one for one in (self._disk, self._memory) if one is not None]
        if any(outlet.delivery.is_running for outlet in outlets) and timeout > 0:
            with contextlib.suppress(HindsightError):  # logged where it happened; it stays on disk
                self.flush(timeout)
        end = time.monotonic() + _STOP_GRACE
        for outlet in outlets:
            outlet.delivery.stop(max(0.0, end - time.monotonic()))
        if self._memory is not None:
            self._say_lost(self._memory)
        if self._disk is not None:
            self._disk.store.close()

    async def astop(self, timeout: float) -> None:  # noqa: ASYNC109 - as above
        """As `stop`, without blocking the caller's loop."""
        await in_a_thread(self.stop, timeout)

    def _write(
        self, bank_id: str, write: Callable[[Store, Store | None], T]
    ) -> tuple[_Outlet, T] | RetainReceipt:
        """Write to disk; where that fails to memory, and say so loudly."""
        from sqlalchemy import exc

        try:
            outlet = self._on_disk()
            memory = self._memory
            try:
                written = write(outlet.store, None if memory is None else memory.store)
            except (exc.SQLAlchemyError, OSError) as error:
                self._say_not_durable(error)
            else:
                self._disk_error = None
                return outlet, written
            memory = self._in_memory()
            return memory, write(memory.store, outlet.store)
        except HindsightError as error:
            _logger.error("Nothing was retained: %s", error)  # noqa: TRY400 - the message says it all
            return RetainReceipt("failed", str(error), bank_id, error=error)
        except Exception as fault:  # noqa: BLE001 - memory never breaks the agent
            _logger.error("Nothing was retained: %s", type(fault).__name__)  # noqa: TRY400 - a trace may quote
            failure = HindsightError(f"Retain failed within this package: {type(fault).__name__}.")
            return RetainReceipt("failed", str(failure), bank_id, error=failure)

    def _say_not_durable(self, error: Exception) -> None:
        said = reason(error)
        if self._disk_error is None:
            _logger.error(
                "The outbox cannot be written (%s). What is retained now waits in memory and is "
                "lost if this process ends before Hindsight takes it.",
                said,
            )
        self._disk_error = said

    def _say_lost(self, memory: _Outlet) -> None:
        counts = memory.store.counts(self._address())
        lost = counts.waiting + counts.in_flight + counts.dead
        if lost:
            _logger.error(
                "%d entries that could not be written to disk were not delivered, and are lost "
                "(%d of them were dead letters).",
                lost,
                counts.dead,
            )

    def _settled(self, note: _Note, *, late: bool) -> RetainReceipt | None:
        """What became of a note; None while there is reason, and time, to wait."""
        try:
            with _plainly():
                found = note.outlet.store.note_state(note.document)
        except HindsightError as error:  # it is written down all the same
            return RetainReceipt("queued", str(error), note.bank_id, items=1)
        if found is None:
            failure = HindsightError("The note is no longer in the outbox.")
            return RetainReceipt("failed", str(failure), note.bank_id, error=failure)
        operations = () if found.operation_id is None else (found.operation_id,)
        if found.state == "delivered":
            return RetainReceipt("stored", None, note.bank_id, 1, operations)
        if found.state == "dead":
            refusal = HindsightError(found.error or "Hindsight refused it.")
            return RetainReceipt("failed", str(refusal), note.bank_id, 1, operations, refusal)
        failed = found.lane_failed_at is not None and found.lane_failed_at >= note.started
        if failed or late:
            why = found.lane_error if failed else "Hindsight has not finished with it yet"
            if note.outlet is self._memory:
                why = f"not durable: {self._disk_error or 'it waits in memory'}; {why}"
            return RetainReceipt("queued", why, note.bank_id, 1, operations)
        return None

    def _pause(self, remaining: float) -> None:
        with self._changed:
            self._changed.wait(min(remaining, _LOOK_EVERY))

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _wake(self, outlet: _Outlet, *, now: bool = False) -> None:
        with contextlib.suppress(RuntimeError):  # the interpreter is ending; it stays on disk
            outlet.delivery.wake(now=now)

    def _counts(self) -> tuple[dict[_Outlet, Counts], str | None]:
        """How each outlet stands, and why the disk cannot be read where memory has taken over.

        An outbox that is not there yet holds nothing, and is not made to say so.
        """
        found = {}
        error = None
        try:
            with _plainly():
                disk = self._on_disk()
                if disk.store.exists():
                    found[disk] = disk.store.counts(self._address())
        except HindsightError as unread:
            if self._memory is None:
                raise
            error = str(unread)
        if self._memory is not None:
            found[self._memory] = self._memory.store.counts(self._address())
        return found, error

    def _address(self) -> str:
        """Whom entries are meant for; what this memory wrote under an earlier key comes along.

        While the key cannot be had, what is retained is nobody's but this memory's own.
        """
        before = self._written_as
        try:
            address = self._gateway.address()
        except ConfigurationError:  # the delivery asks too, and says so
            return self._keyless(before)
        if before not in {None, address}:
            from sqlalchemy import exc

            try:
                for outlet in (self._disk, self._memory):
                    if outlet is not None:
                        outlet.store.readdress(str(before), address)
            except (exc.SQLAlchemyError, OSError):  # the disk is away: it comes along later
                return address
        self._written_as = address
        return address

    def _keyless(self, before: str | None) -> str:
        if before is None:
            before = self._written_as = address_of(self._gateway.url, uuid4().hex)
        return before

    def _on_disk(self) -> _Outlet:
        if self._disk is None:
            with self._guard:
                self._disk = self._disk or self._outlet(None)
        return self._disk

    def _in_memory(self) -> _Outlet:
        if self._memory is None:
            with self._guard:
                self._memory = self._memory or self._outlet("sqlite://")
        return self._memory

    def _outlet(self, url: str | None) -> _Outlet:
        from langchain_hindsight.outbox.delivery import Delivery
        from langchain_hindsight.outbox.store import Store

        store = Store(self._settings.outbox, url, lock=self._stores_lock)
        delivery = Delivery(
            self._gateway,
            store,
            self._settings,
            address=self._address,
            on_accepted=self._on_accepted,
            on_change=self._notify,
        )
        return _Outlet(store, delivery)


class _Outlet:
    """A store and its delivery."""

    __slots__ = ("delivery", "store")

    def __init__(self, store: Store, delivery: Delivery) -> None:
        self.store = store
        self.delivery = delivery


@dataclass(frozen=True, slots=True)
class _Note:
    """A note that was written down, and may not have been delivered yet."""

    outlet: _Outlet
    bank_id: str
    document: str
    started: float


class _Patience:
    """How long somebody waits: for a time, or until they give up."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._given_up = threading.Event()

    @property
    def remaining(self) -> float:
        """Seconds that are left; none once given up."""
        return 0.0 if self._given_up.is_set() else self._deadline - time.monotonic()

    def give_up(self) -> None:
        """Wait no longer."""
        self._given_up.set()


class _Drafts:
    """Makes what is written down of a conversation's messages: masked, cut, in context."""

    def __init__(
        self,
        transcript: Transcript,
        bank: ProjectBank,
        thread: str,
        settings: HindsightSettings,
        *,
        keep: bool,
        shown: _Shown,
    ) -> None:
        self._transcript = transcript
        self._bank = bank
        self._thread = thread
        self._kept = settings.retain
        self._keep = keep
        self._shown = shown
        self._texts: dict[tuple[int, int], tuple[str, int]] = {}
        self._now = datetime.now(UTC)

    def at(self, indexes: Sequence[int], hidden: Container[int]) -> list[Draft]:
        """The drafts of the messages at some positions, without a word of hidden ones."""
        from langchain_hindsight.outbox.scope import Draft

        drafts = []
        for order, index in enumerate(indexes):
            line = self._transcript.line(index)
            if line is None:
                continue
            said_at = self._transcript.said_at(index)
            said_at = said_at or self._now + timedelta(microseconds=order)
            payload = self._payload(index, line, said_at, hidden) if self._keep else None
            drafts.append(
                Draft(
                    index=index,
                    message_id=line.message_id,
                    fingerprint=line.fingerprint,
                    speech=line.is_speech and line.role in self._kept.roles,
                    starts_turn=line.starts_turn,
                    payload=payload,
                )
            )
        return drafts

    def _payload(self, index: int, line: Line, said_at: datetime, hidden: Container[int]) -> str:
        metadata = {
            "thread": self._masked(self._thread),
            "role": line.role,
            "speaker": self._masked(line.speaker) if line.name else line.speaker,
        }
        text, lost = self._text(index, line, self._kept.max_chars)
        self._shown.put(line, text)
        if lost:
            _logger.warning("A message was cut by %d characters (retain.max_chars)", lost)
        if line.message_id:
            metadata["message_ids"] = line.message_id
        payload = {
            "role": "project",
            "content": text,
            "context": self._context(index, hidden),
            "metadata": metadata,
            "tags": [self._bank.tag, *(self._masked(tag) for tag in self._kept.tags)],
            "scopes": [[self._bank.tag]],
            "said_at": said_at.isoformat(),
        }
        return json.dumps(payload)

    def _masked(self, text: str) -> str:
        return _masked_name(text) if self._kept.redact else clean(text)

    def _text(self, index: int, line: Line, limit: int) -> tuple[str, int]:
        """A message as it is written down, and how many characters were cut."""
        if len(line.said) <= limit:  # the same as without a limit of its own
            limit = self._kept.max_chars
        if (index, limit) not in self._texts:
            self._texts[index, limit] = content(line, mask=self._kept.redact, max_chars=limit)
        return self._texts[index, limit]

    def _context(self, index: int, hidden: Container[int]) -> str | None:
        """What was said before, so that a lone "yes, do that" can be understood and found."""
        limit = min(_CONTEXT_SOURCE_CHARS, self._kept.max_chars)
        before = itertools.islice(self._transcript.speech(index), CONTEXT_MESSAGES)
        shown = itertools.takewhile(lambda one: one[0] not in hidden, before)
        said = [
            self._shown.get(line) or self._shown.put(line, self._text(at, line, limit)[0])
            for at, line in shown
        ]
        return BEFORE_THIS + "\n".join(reversed(said)) if said else None


@lru_cache(_NAMES)  # a thread's, a speaker's and the tags come with every message
def _masked_name(name: str) -> str:
    from langchain_hindsight.redaction import redact  # its patterns are slow to compile

    return redact(clean(name))


class _Shown:
    """How messages of late are shown as context of the next ones: each is masked once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: LRUCache[str, str] = LRUCache(_SHOWN)

    def get(self, line: Line) -> str | None:
        with self._lock:
            return self._texts.get(line.fingerprint)

    def put(self, line: Line, text: str) -> str:
        """Remember a message by its text as it is written down; how it is shown."""
        with self._lock:
            shown = self._texts[line.fingerprint] = shortened(text, _CONTEXT_CHARS)
        return shown


def _check_outbox(settings: HindsightSettings) -> None:
    """See that ``outbox.url`` can work, without a database library where it plainly can."""
    if settings.outbox.url is None:
        return
    from langchain_hindsight.outbox.foreign import refuse_foreign

    path = plain_file(settings.outbox.url)
    if path is None:
        from langchain_hindsight.outbox.place import is_file, outbox_url

        url = outbox_url(settings.outbox)
        path = Path(str(url.database)) if is_file(url) else None
    if path is not None:
        refuse_foreign(path)


def _scope(server: str, bank: ProjectBank | LifeBank, thread: str = "") -> Scope:
    from langchain_hindsight.outbox.scope import Scope

    tag = bank.tag if isinstance(bank, ProjectBank) else ""
    return Scope(server, bank.bank_id, tag, thread)


def _retained(
    store: Store,
    beside: Store | None,
    scope: Scope,
    transcript: Transcript,
    draft: Drafting,
    *,
    keep: bool,
) -> tuple[int, int]:
    """Write down what neither of two outboxes knows.

    Returns:
        How many messages were new or edited, and how many were left out since nobody can say.
    """
    left_out = 0

    def narrow(found: Findings) -> Findings:
        nonlocal left_out
        if beside is not None:
            found = beside.without_known(scope, transcript, found, keep=keep)
            left_out = found.left_out
        return found

    return store.retain(scope, transcript, draft, keep=keep, narrow=narrow), left_out


def _unnamed(transcript: Transcript) -> str | None:
    """A thread's name from how it begins, whatever ids it has; None where nothing is to be kept."""
    for index in range(len(transcript)):
        line = transcript.line(index)
        if line is not None:
            return f"unnamed-{line.fingerprint}"
    return None


def _note(bank: ProjectBank | LifeBank, text: str, settings: HindsightSettings) -> str:
    from langchain_hindsight.redaction import redact  # its patterns are slow to compile

    def masked(value: str) -> str:
        return redact(value) if settings.retain.redact else value

    role: Role
    if isinstance(bank, ProjectBank):
        role = "project"
        tags = [bank.tag, *(masked(tag) for tag in settings.retain.tags)]
        scopes = [[bank.tag]]
    else:
        role = "life"
        tags = list(bank.tags)
        scopes = [tags] if tags else []
    kept = settings.retain
    said, lost = note_content(text, mask=kept.redact, max_chars=kept.max_chars)
    if lost:
        _logger.warning("A note was cut by %d characters (retain.max_chars)", lost)
    payload: dict[str, Any] = {
        "role": role,
        "content": said,
        "context": None,
        "metadata": {"kind": "note"},
        "tags": tags,
        "scopes": scopes,
        "said_at": datetime.now(UTC).isoformat(),
    }
    return json.dumps(payload)


def _sum(counts: Sequence[Counts], name: str) -> int:
    return sum(int(getattr(one, name)) for one in counts)


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    """Raise what a database says as this package's own error."""
    from sqlalchemy import exc

    try:
        yield
    except (exc.SQLAlchemyError, OSError) as error:
        msg = f"The outbox cannot be read: {reason(error)}."
        raise HindsightError(msg) from None
