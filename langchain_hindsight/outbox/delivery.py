"""The delivery of the outbox: one task on the gateway's loop, one more for each bank with work.

It starts with the first entry, sleeps while there is nothing to do, and survives whatever a server
or a database does. A slow bank holds up no other. The database is used from a thread of its own, so
that the loop never waits for a disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from langchain_hindsight.background_thread import BackgroundThread
from langchain_hindsight.banks import may_be_life
from langchain_hindsight.errors import HindsightError
from langchain_hindsight.gateway import Gateway, GatewayError
from langchain_hindsight.outbox import leases
from langchain_hindsight.outbox.batching import Batch, Unit
from langchain_hindsight.outbox.leases import Lane
from langchain_hindsight.outbox.polls import Polls
from langchain_hindsight.outbox.readdress import Stranger
from langchain_hindsight.outbox.store import Store
from langchain_hindsight.settings import HindsightSettings
from langchain_hindsight.templates import missions_of

T = TypeVar("T")

LINGER = (0.02, 0.2)
"""How long a wake-up waits for more to share a request, and how long where more keeps coming, in
seconds."""
IDLE = 30.0
"""How often an idle process looks for what others left behind, in seconds."""
PROBE = 60.0
"""How often a bank that refused the key is tried again, in seconds."""
FIRST_PAUSE = 0.5
_MAX_ACCEPTED = 8
_ENDED_BADLY = {"failed", "cancelled"}
_FAULT_PAUSE = 5.0
_FEWEST_TRIES = 5
"""How often a request is tried at the least before it is given up, however old it is."""
_LIFE_NOW = (
    "The configuration makes this bank a Life Bank, which only an explicit call writes to; what "
    "was retained for a Project Bank of this id is not sent."
)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Served:
    """A bank that is being delivered to, and what tells it of more work and of haste."""

    task: asyncio.Task[None]
    wanted: asyncio.Event
    polls: Polls


class Delivery:
    """Delivers the entries of one server from one store.

    Args:
        gateway: The server.
        store: Where the entries are.
        address: Gives whom the entries are meant for; asked anew with each round, since a key may
            be replaced.
        settings: How long to try and how much to send at once.
        on_accepted: Called with a bank's id when it has taken or stored something.
        on_change: Called when something was settled or failed; must not block.
    """

    def __init__(
        self,
        gateway: Gateway,
        store: Store,
        settings: HindsightSettings,
        *,
        address: Callable[[], str],
        on_accepted: Callable[[str], None],
        on_change: Callable[[], None],
    ) -> None:
        """Start nothing."""
        self._gateway = gateway
        self._store = store
        self._settings = settings
        self._on_accepted = on_accepted
        self._on_change = on_change
        self._address = address
        self._looked_at: str | None = None
        self._look_again = 0.0
        self._looking: asyncio.Task[None] | None = None
        self._guard = threading.Lock()
        self._running: Future[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wanted: asyncio.Event | None = None
        self._database: BackgroundThread | None = None
        self._lanes: dict[int, _Served] = {}
        self._units: dict[str, Unit] = {}
        self._woken = False
        self._wakes = 0
        self._hurried = False
        self._stopping = False

    def wake(self, *, now: bool = False) -> None:
        """Say that there is work; starts the task if it is not running.

        Args:
            now: Whether to deliver at once what was waiting for a better time too.
        """
        self._hurried = self._hurried or now
        self._wakes += 1
        if self._running is None or self._running.done():
            self._start()
        elif not self._woken:
            self._woken = True
            self._signal()

    def _start(self) -> None:
        with self._guard:
            if self._running is None or self._running.done():
                self._stopping = False
                self._running = self._gateway.loop.spawn(self._deliver())

    def _signal(self) -> None:
        loop, wanted = self._loop, self._wanted
        if loop is not None and wanted is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(wanted.set)

    @property
    def is_running(self) -> bool:
        """Whether the task runs in this process."""
        return self._running is not None and not self._running.done()

    def stop(self, timeout: float) -> None:
        """End the task, leaving what is not delivered; waits for it no longer than a timeout."""
        running = self._running
        if running is None:
            return
        self._stopping = True
        self._signal()
        with contextlib.suppress(Exception, asyncio.CancelledError):
            running.result(timeout)
        running.cancel()
        self._running = None

    async def _deliver(self) -> None:
        """The task: claim banks that have work, deliver to each, sleep."""
        self._loop = asyncio.get_running_loop()
        self._wanted = asyncio.Event()
        self._database = BackgroundThread()
        self._lanes = {}
        self._looked_at = self._looking = None
        self._woken = False
        try:
            await self._survive(self._resume)
            heart = asyncio.create_task(self._beat())
            try:
                while not self._stopping:
                    await self._wait(await self._survive(self._round))
            finally:
                await self._end(heart)
        finally:
            self._database.stop()

    async def _resume(self) -> float:
        """A new process may hold the key that a bank was waiting for."""
        address = await self._database_call(self._address)
        await self._database_call(self._store.hurry, address)
        await self._database_call(self._store.prune)
        return 0.0

    async def _take_over(self, address: str) -> None:
        """Take over what was written under an earlier key, once it is certain to be one's own."""
        self._look_again = time.monotonic() + IDLE
        try:
            others = await self._database_call(self._store.strangers, address)
            # A key that worked, this one too, shows that the outbox may serve several tenants.
            lone = not any(one.worked for one in others) and not await self._database_call(
                self._store.has_worked, address
            )
            for one in others:
                if await self._is_own(one, lone=lone):
                    await self._database_call(self._store.readdress, one.address, address)
                    _logger.info("What was retained under an earlier key is delivered from now on")
            self._look_again = math.inf
        except HindsightError as error:
            _logger.debug("Whose the entries of other keys are is not known yet: %s", error)
        except Exception as error:  # noqa: BLE001 - the delivery outlives every fault
            _logger.warning("The outbox cannot be read: %s", _plain(error))
        finally:
            self._looked_at = address
            self._changed()
            self._signal()

    async def _is_own(self, other: Stranger, *, lone: bool) -> bool:
        """Whether another address leads to the same memory.

        It does where the server knows, under this key, a request that it took under the other. Of a
        key that the server refused, and never took anything from, there is nothing to be known: it
        is taken for a mistyped one where no other key was ever good for anything, and only in the
        outbox of one person's own: where several share another place, each may be a tenant. No key
        at all is nobody's.
        """
        if other.operation_id is not None:
            found = await self._gateway.operation_status(other.bank_id, other.operation_id)
            return found.status != "not_found"
        own = self._settings.outbox.url is None or "#" not in other.address
        if other.refused and lone and own:
            await self._gateway.extracts_facts(other.bank_id)  # raises where this key is no good
            return True
        return False

    async def _survive(self, work: Callable[[], Awaitable[float]]) -> float:
        """Do it, and whatever it raises, go on later."""
        try:
            return await work()
        except Exception as error:  # noqa: BLE001 - the delivery outlives every fault
            _logger.warning("Delivery from the outbox failed: %s", _plain(error))
            self._changed()
            return _FAULT_PAUSE

    async def _round(self) -> float:
        """Start what can be started; the seconds to sleep."""
        address = await self._database_call(self._address)
        if self._hurried:
            self._hurried = False
            await self._database_call(self._store.hurry, address)
            for one in self._lanes.values():
                one.polls.hurry()
        self._look_for_own(address)
        for one in self._lanes.values():
            one.wanted.set()
        for lane in await self._database_call(self._store.claim, address):
            if lane.id not in self._lanes:
                wanted, polls = asyncio.Event(), Polls()
                task = asyncio.create_task(self._serve(lane, wanted, polls))
                self._lanes[lane.id] = _Served(task, wanted, polls)
                task.add_done_callback(partial(self._left, lane.id))
        served = list(self._lanes)
        wait = await self._database_call(self._store.next_due, address, but=served)
        return IDLE if wait is None else min(max(wait, 0.05), IDLE)

    def _look_for_own(self, address: str) -> None:
        """Look once, beside everything else, whether other keys' entries are one's own."""
        if self._looking is not None and not self._looking.done():
            return
        if address != self._looked_at or time.monotonic() >= self._look_again:
            self._looking = asyncio.create_task(self._take_over(address))

    @property
    def has_looked(self) -> bool:
        """Whether it was asked already which entries of other keys are one's own."""
        return self._looked_at is not None

    def _left(self, lane_id: int, _: asyncio.Task[None]) -> None:
        self._lanes.pop(lane_id, None)
        if self._wanted is not None:
            self._wanted.set()

    async def _wait(self, seconds: float) -> None:
        wanted = self._wanted
        if wanted is None:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(wanted.wait(), seconds)
            await self._linger()
        self._woken = False  # first, so that whoever comes now sets the event again
        wanted.clear()

    async def _linger(self) -> None:
        """Wait until nothing more comes, for a while at most; whoever is in a hurry is not kept."""
        pause, longest = LINGER
        end = time.monotonic() + longest
        heard = None
        while heard != self._wakes and time.monotonic() < end:
            if self._hurried or self._stopping:
                return
            heard = self._wakes
            await asyncio.sleep(pause)

    async def _beat(self) -> None:
        """Keep the leases of the banks that are being delivered to."""
        while True:
            await asyncio.sleep(leases.LEASE / 3)
            if self._lanes:
                with contextlib.suppress(Exception):  # a lost lease repeats nothing
                    await self._database_call(self._store.keep, list(self._lanes))

    async def _end(self, heart: asyncio.Task[None]) -> None:
        heart.cancel()
        tasks = [one.task for one in self._lanes.values()]
        if self._looking is not None:
            tasks.append(self._looking)
        for task in tasks:
            task.cancel()
        await asyncio.gather(heart, *tasks, return_exceptions=True)

    async def _serve(self, lane: Lane, wanted: asyncio.Event, polls: Polls) -> None:
        """Deliver to one bank until it has no more work or has to wait."""
        try:
            await self._drain(lane, wanted, polls)
        except _PutOffError:
            return
        except GatewayError as error:
            await self._put_off(lane, error)
        except Exception as error:  # noqa: BLE001 - one bank's fault is no other's
            _logger.warning("Delivery to bank %s failed: %s", lane.bank_id, _plain(error))
            with contextlib.suppress(Exception):  # logged above; the lease runs out by itself
                await self._database_call(
                    self._store.postpone,
                    lane,
                    delay=lambda _: _FAULT_PAUSE,
                    error=_plain(error),
                    paused=False,
                )
        finally:
            with contextlib.suppress(Exception):  # the lease runs out by itself
                await self._database_call(self._store.release, [lane.id])
            self._changed()

    async def _drain(self, lane: Lane, wanted: asyncio.Event, polls: Polls) -> None:
        limit = self._settings.outbox.batch_size
        while not self._stopping:
            wanted.clear()
            accepted = await self._database_call(self._store.accepted, lane)
            batch = None
            if len(accepted) < _MAX_ACCEPTED:
                unit = await self._unit(lane)
                form = self._store.next_batch
                batch = await self._database_call(form, lane, unit=unit, limit=limit)
            if batch is not None:
                await self._send(lane, batch)
            elif not accepted:
                return
            for operation in polls.due(accepted):
                if not await self._poll(lane, operation):
                    polls.put_off(operation)
            if batch is None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(wanted.wait(), polls.wait())

    async def _unit(self, lane: Lane) -> Unit:
        """How a bank is served best; asked once it is there, and made sure of before that."""
        if lane.bank_id not in self._units:
            facts = await self._found_or_created(lane)
            chosen = self._settings.retain.unit
            unit: Unit = chosen if chosen != "auto" else "turn" if facts else "message"
            if facts is None:
                return unit
            self._units[lane.bank_id] = unit
        return self._units[lane.bank_id]

    async def _found_or_created(self, lane: Lane) -> bool | None:
        """Whether a bank extracts facts, created first if need be; None where that is not known.

        A server that would rather not be asked loses nothing by it: the request itself shows what
        is wrong, or creates the bank without missions.
        """
        try:
            facts = await self._gateway.extracts_facts(lane.bank_id)
            if facts is None and await self._create(lane):
                facts = await self._gateway.extracts_facts(lane.bank_id)
        except GatewayError as error:
            if error.retryable:
                raise
            return None
        return facts

    async def _create(self, lane: Lane) -> bool:
        """Create a bank that is retained to for the first time, with the missions of its role.

        Two processes that do so at once say the same to the server.
        """
        role = await self._database_call(self._store.role, lane)
        if role is None or self._is_misdirected(role, lane):
            return False
        if await self._gateway.bank_exists(lane.bank_id):
            return False
        missions = missions_of("life" if role == "life" else "project", self._settings)
        try:
            await self._gateway.create_bank(lane.bank_id, missions)
        except GatewayError as error:
            if not error.retryable:
                _logger.warning("Bank %s is created without missions: %s", lane.bank_id, error)
            raise
        _logger.info("Bank %s was created with its missions", lane.bank_id)
        return True

    async def _send(self, lane: Lane, batch: Batch) -> None:
        """Send one recorded request, and record what became of it."""
        if not batch.items:
            await self._database_call(self._store.mark_done, lane, batch.operation_id)
            return
        if self._is_misdirected(batch.role, lane):
            await self._refuse(lane, batch.operation_id, _LIFE_NOW)
            return
        try:
            count = await self._gateway.retain(
                batch.bank_id, batch.request(), operation_id=batch.operation_id
            )
        except GatewayError as error:
            if error.retryable and self._gave_up(lane, batch):
                reason = f"not delivered within outbox.retry_for: {error}"
                await self._database_call(self._store.mark_expired, batch.operation_id, reason)
                raise
            if error.kind == "server":
                await self._doubt(lane, batch, error)
                return
            if error.retryable or error.kind == "auth":
                raise
            await self._refuse(lane, batch.operation_id, str(error))
            return
        if not count:
            msg = "Hindsight answered that it stored nothing (are retains suspended?); tried again."
            raise GatewayError(msg, kind="server")
        await self._database_call(self._store.mark_accepted, lane, batch.operation_id)
        self._tell(lane.bank_id)

    def _is_misdirected(self, role: str, lane: Lane) -> bool:
        """Whether what was retained for a project would reach a Life Bank.

        It was written while this was a Project Bank, or by a program that takes it for one.
        """
        return role != "life" and may_be_life(self._settings, lane.bank_id)

    def _gave_up(self, lane: Lane, batch: Batch) -> bool:
        """Whether it waits for longer than it may; what waited while nobody ran is tried first."""
        tries = max(lane.failures, batch.failures) + 1
        old = time.time() - batch.newest > self._settings.outbox.retry_for
        return old and tries >= _FEWEST_TRIES

    async def _poll(self, lane: Lane, operation: str) -> bool:
        """Whether an accepted request has ended, well or not."""
        found = await self._gateway.operation_status(lane.bank_id, operation)
        if found.status == "completed":
            await self._database_call(self._store.mark_done, lane, operation)
            self._tell(lane.bank_id)
        elif found.status in _ENDED_BADLY:
            reason = f"Hindsight took it and failed: {found.error or found.status}"
            await self._refuse(lane, operation, reason)
        elif found.status == "not_found":
            await self._database_call(self._store.mark_lost, operation)
        else:
            return False
        return True

    async def _refuse(self, lane: Lane, operation: str, reason: str) -> None:
        dead = await self._database_call(self._store.mark_refused, lane, operation, reason)
        if dead:
            _logger.error(
                "%d entries for bank %s cannot be delivered and are kept as dead letters: %s",
                dead,
                lane.bank_id,
                reason,
            )
        self._changed()

    async def _doubt(self, lane: Lane, batch: Batch, error: GatewayError) -> None:
        """A server that fails may be ill, or may choke on this request: let others show which.

        The request waits with its own growing pause. The bank waits too, longer with each failure
        while the server is to blame, and only shortly where the request is.
        """
        delay = partial(self._pause_after, error)
        suspected = await self._database_call(
            self._store.mark_failed, lane, batch.operation_id, delay=delay, error=str(error)
        )
        if not suspected:
            raise error
        await self._put_off(lane, error, counts=False)
        raise _PutOffError

    def _pause_after(self, error: GatewayError, failures: int) -> float:
        """Longer with each failure, and as long as the server asks for."""
        longest = self._settings.outbox.retry_max_delay
        seconds = min(FIRST_PAUSE * 2.0 ** min(failures, 20), longest)
        jittered = seconds * random.uniform(0.5, 1.0)  # noqa: S311 - it only spreads load
        return max(jittered, error.retry_after or 0.0)

    async def _put_off(self, lane: Lane, error: GatewayError, *, counts: bool = True) -> None:
        """Leave the bank alone for a while."""
        paused = error.kind == "auth"

        def delay(failures: int) -> float:
            return PROBE if paused else self._pause_after(error, failures if counts else 0)

        was_paused = await self._database_call(
            self._store.postpone, lane, delay=delay, error=str(error), paused=paused, counts=counts
        )
        if paused and not was_paused:
            _logger.error("Delivery to bank %s is paused: %s", lane.bank_id, error)
        self._changed()

    def _changed(self) -> None:
        """Tell whoever waits; from the database's thread, since that takes a lock."""
        if self._database is not None:
            self._database.post(self._on_change)

    def _tell(self, bank_id: str) -> None:
        self._changed()
        try:
            self._on_accepted(bank_id)
        except Exception:
            _logger.exception("What was to be told of a retain to bank %s failed", bank_id)

    async def _database_call(self, work: Callable[..., T], *args: Any, **named: Any) -> T:  # noqa: ANN401
        if self._database is None:
            msg = "The delivery is not running."
            raise HindsightError(msg)
        return await self._database.call(work, *args, **named)


class _PutOffError(Exception):
    """A bank was left alone for a while, and that is recorded."""


def _plain(error: BaseException) -> str:
    """An error without the values of a statement, which are somebody's words."""
    original = getattr(error, "orig", None)
    return f"{type(error).__name__}: {original if original is not None else error}"
