"""The outbox: entries, leases and what became of them, each step one transaction.

Every method is synchronous and safe to call from any thread; what it does is on disk when it
returns, or not done at all. Several processes, on one machine or many, may share the database. What
a step does is in the module named after it: `enqueue`, `leases`, `requests`, `settle`, `look`,
`dead_letters`.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from uuid import uuid4

from sqlalchemy import exc

from langchain_hindsight.errors import HindsightError
from langchain_hindsight.outbox import (
    dead_letters,
    enqueue,
    leases,
    look,
    readdress,
    requests,
    settle,
)
from langchain_hindsight.outbox.batching import Batch, Unit
from langchain_hindsight.outbox.database import Database
from langchain_hindsight.outbox.dead_letters import DeadLetter
from langchain_hindsight.outbox.leases import Lane
from langchain_hindsight.outbox.look import Counts, Listed, NoteState
from langchain_hindsight.outbox.readdress import Stranger
from langchain_hindsight.outbox.recent import Recent, RecentThread
from langchain_hindsight.outbox.scope import Scope
from langchain_hindsight.settings import OutboxSettings
from langchain_hindsight.transcript import Transcript

_TRIES = 6
_APART = 2
"""How many tries read and write apart; whoever is overtaken as often does both at once."""


class Store:
    """The outbox of one place, opened with its first use.

    Args:
        settings: Where it is and how much it may hold.
        url: Another place than the settings name, such as memory.
        lock: Held by each transaction. Outboxes that are looked into from each other's transactions
            share one, so that neither waits for the other; by default it is the outbox's own.

    Raises:
        ConfigurationError: If the settings name no place that can work.
    """

    def __init__(
        self,
        settings: OutboxSettings,
        url: str | None = None,
        *,
        lock: threading.RLock | None = None,
    ) -> None:
        """Check where the outbox is; open nothing."""
        self._settings = settings
        self._stands_in = url is not None
        self._database = Database(
            settings if url is None else settings.model_copy(update={"url": url}), lock
        )
        self._longest_wait = max(3600.0, 2 * settings.retry_max_delay)
        self._recent = Recent()
        self.owner = uuid4().hex

    def renew_after_fork(self) -> None:
        """Leave what was inherited alone; this process opens its own."""
        self._database.renew_after_fork()
        self._recent = Recent()
        self.owner = uuid4().hex

    @property
    def place(self) -> str:
        """Where it is, without a password."""
        return self._database.place

    def exists(self) -> bool:
        """Whether there is an outbox already; looking makes none.

        Raises:
            SQLAlchemyError: If the database cannot be reached.
        """
        return self._database.exists()

    def close(self) -> None:
        """Close the connections; a use after this opens them again."""
        self._database.close()

    def retain(
        self,
        scope: Scope,
        transcript: Transcript,
        draft: enqueue.Drafting,
        *,
        keep: bool = True,
        narrow: enqueue.Narrowing = lambda found: found,
    ) -> int:
        """Write down what is new in a conversation, and remember that it was.

        Args:
            scope: Whose conversation it is.
            transcript: The conversation, or its new part.
            draft: Makes what is written down of the messages at some positions; told which others
                were withheld, and so are nobody's context.
            keep: Whether the messages are kept, or only known, so that nothing keeps them later.
            narrow: Leaves out of what is new what another outbox of this process knows.

        Returns:
            How many messages were new or edited.

        Raises:
            OutboxFullError: If the caps leave no room.
            SQLAlchemyError: If the database cannot be written.
            OSError: If the file cannot be made.
        """
        for attempt in range(_TRIES):
            try:
                if attempt < _APART:
                    written, count = self._read_and_write(
                        scope, transcript, draft, narrow, keep=keep
                    )
                else:
                    work = partial(
                        enqueue.find_and_write,
                        scope=scope,
                        transcript=transcript,
                        draft=draft,
                        caps=self._settings,
                        narrow=narrow,
                        keep=keep,
                    )
                    written, count = self._database.run(work, size=len(transcript))
            except enqueue.OvertakenError:
                continue
            if count:
                self._recent.put(scope, written)
            return count
        msg = "The conversation is being retained by too many others at once."
        raise HindsightError(msg)

    def _read_and_write(
        self,
        scope: Scope,
        transcript: Transcript,
        draft: enqueue.Drafting,
        narrow: enqueue.Narrowing,
        *,
        keep: bool,
    ) -> tuple[RecentThread | None, int]:
        """Two transactions, of which the second locks others out for as long as writing takes."""
        found = narrow(self._found(scope, transcript, keep=keep))
        if found.is_nothing:
            return None, 0
        work = enqueue.Writing.of(scope, found, draft)
        self._recent.put(scope, None)
        write = partial(enqueue.write, work=work, caps=self._settings)
        rows = len(work.fresh) + len(work.edits)
        return self._database.run(write, size=rows), work.count

    def _found(self, scope: Scope, transcript: Transcript, *, keep: bool) -> enqueue.Findings:
        """What is new: told from what was written last where that is enough, else read."""
        recent = self._recent.get(scope) if keep else None
        news = recent.news(transcript) if recent else None
        if news is not None:
            return enqueue.Findings(news, recent)
        return self._database.run(
            lambda c: enqueue.find_news(c, scope, transcript, keep=keep),
            reads=True,
            size=len(transcript),
        )

    def without_known(
        self, scope: Scope, transcript: Transcript, found: enqueue.Findings, *, keep: bool
    ) -> enqueue.Findings:
        """What is new elsewhere without what is known here.

        Where that cannot be read, only the newest turn is certain to be new.
        """
        if found.is_nothing or self._database.is_missing:
            return found
        if self._database.is_open:
            with contextlib.suppress(exc.SQLAlchemyError, OSError):
                return self._database.run(
                    lambda c: enqueue.narrowed(
                        c, scope, transcript, found, keep=keep, is_whole=not self._stands_in
                    ),
                    reads=True,
                    size=len(transcript),
                )
        return enqueue.newest_turn(transcript, found) if keep else found

    def learn(
        self,
        scope: Scope,
        transcript: Transcript,
        draft: enqueue.Drafting,
        memory: Store,
        *,
        keep: bool,
    ) -> int:
        """Write down as known what memory delivered or withheld of a conversation meanwhile.

        With it goes what was left out before it, which is still to be delivered.

        Args:
            scope: Whose conversation it is.
            transcript: The conversation, or its new part.
            draft: As for `retain`.
            memory: The outbox that stood in for this one.
            keep: Whether what was left out is kept.

        Returns:
            How many messages had been left out.
        """

        def settled(found: enqueue.Findings) -> enqueue.Findings:
            return memory._database.run(
                lambda c: enqueue.settled(c, scope, transcript, found, keep=keep), reads=True
            )

        if settled(self._found(scope, transcript, keep=True)).is_nothing:
            return 0
        self._recent.put(scope, None)
        work = partial(
            enqueue.find_and_write,
            scope=scope,
            transcript=transcript,
            draft=draft,
            caps=self._settings,
            narrow=settled,
            keep=True,
        )
        with contextlib.suppress(enqueue.OvertakenError):  # another process knows better
            return self._database.run(work, size=len(transcript))[1]
        return 0

    def add_note(self, scope: Scope, payload: str, name: str | None = None) -> str:
        """Write down one explicit note, or find the one of that name.

        Args:
            scope: Whose note it is.
            payload: What is written down.
            name: What makes it that note; None makes it another than all others. A transaction
                that is run again, since nobody knows whether it was committed, is the same note.

        Returns:
            Its document, by which `note_state` finds it.
        """
        named = name or uuid4().hex
        return self._database.run(
            lambda c: enqueue.write_note(c, scope, payload, named, self._settings)
        )

    def note_state(self, document: str) -> NoteState | None:
        """How a note stands; None if there is none."""
        return self._database.run(lambda c: look.note_state(c, document), reads=True)

    def claim(self, server: str) -> list[Lane]:
        """Take the banks of a server that have work, are due and are nobody's."""
        return self._database.run(lambda c: leases.claim(c, server, self.owner, self._longest_wait))

    def keep(self, lane_ids: Sequence[int]) -> None:
        """Give a sign of life for banks that this process delivers to."""
        self._database.run(lambda c: leases.keep(c, lane_ids, self.owner))

    def release(self, lane_ids: Sequence[int]) -> None:
        """Leave banks to whoever wants them."""
        self._database.run(lambda c: leases.release(c, lane_ids, self.owner))

    def next_due(self, server: str, but: Collection[int] = ()) -> float | None:
        """Seconds until a bank with work is worth a look; None without one.

        Args:
            server: Whose banks.
            but: Banks that are being delivered to.
        """
        return self._database.run(
            lambda c: leases.next_due(c, server, self.owner, self._longest_wait, but), reads=True
        )

    def hurry(self, server: str, bank_id: str | None = None) -> None:
        """Make banks due now, whatever they were waiting for."""
        self._database.run(lambda c: leases.hurry(c, server, bank_id))

    def next_batch(self, lane: Lane, *, unit: Unit, limit: int) -> Batch | None:
        """The next request to a bank: one recorded before, else one formed and recorded.

        One that failed waits for its own time, and keeps only its own documents waiting.
        """
        return self._database.run(
            lambda c: requests.next_batch(
                c, lane, unit=unit, limit=limit, longest_wait=self._longest_wait
            )
        )

    def role(self, lane: Lane) -> str | None:
        """The role in which a bank is written to; None where nothing waits for it."""
        return self._database.run(lambda c: requests.role(c, lane), reads=True)

    def accepted(self, lane: Lane) -> list[str]:
        """Operations of a bank that were accepted and have not ended, oldest first."""
        return self._database.run(lambda c: requests.accepted(c, lane), reads=True)

    def mark_accepted(self, lane: Lane, operation: str) -> None:
        """Hindsight has taken a request; its bank is well again."""
        self._database.run(lambda c: settle.mark_accepted(c, lane, operation))

    def mark_lost(self, operation: str) -> None:
        """Hindsight does not know a request: it is sent again as it was."""
        self._database.run(lambda c: settle.mark_lost(c, operation))

    def mark_done(self, lane: Lane, operation: str) -> int:
        """Hindsight has stored a request: its content leaves the outbox."""
        return self._database.run(lambda c: settle.mark_done(c, lane, operation))

    def mark_failed(
        self, lane: Lane, operation: str, *, delay: Callable[[int], float], error: str
    ) -> bool:
        """The server failed over a request: it waits, and is cut in two once it is suspected.

        Args:
            lane: The bank.
            operation: The request.
            delay: The seconds to wait, from how often it failed before.
            error: What the server said.

        Returns:
            Whether the request is suspected, rather than the server.
        """
        return self._database.run(
            lambda c: settle.mark_failed(
                c, lane, operation, delay=delay, error=error, longest_wait=self._longest_wait
            )
        )

    def mark_refused(self, lane: Lane, operation: str, reason: str) -> int:
        """Hindsight will not take a request: cut it in two to find why, or lay it by.

        Returns:
            How many entries became dead letters.
        """
        return self._database.run(lambda c: settle.mark_refused(c, lane, operation, reason))

    def mark_expired(self, operation: str, reason: str) -> int:
        """A request was tried for as long as it may be: lay it by as a whole."""
        return self._database.run(lambda c: settle.lay_by(c, operation, reason))

    def postpone(
        self,
        lane: Lane,
        *,
        delay: Callable[[int], float],
        error: str,
        paused: bool,
        counts: bool = True,
    ) -> bool:
        """A bank cannot be delivered to for now.

        Args:
            lane: The bank.
            delay: The seconds to wait, from how often it failed before.
            error: Why.
            paused: Whether only a person can help.
            counts: Whether the next pause is to be longer.

        Returns:
            Whether it was paused before.
        """
        return self._database.run(
            lambda c: settle.postpone(
                c,
                lane,
                delay=delay,
                error=error,
                paused=paused,
                counts=counts,
                longest_wait=self._longest_wait,
            )
        )

    def strangers(self, address: str) -> list[Stranger]:
        """The other addresses of a server that nobody delivers to, last used first."""
        return self._database.run(lambda c: readdress.strangers(c, address), reads=True)

    def has_worked(self, address: str) -> bool:
        """Whether the server ever took something under an address."""
        return self._database.run(lambda c: readdress.has_worked(c, address), reads=True)

    def readdress(self, source: str, target: str) -> int:
        """Give all entries of an address another one; how many wait or are dead letters.

        Raises:
            HindsightError: If another process is delivering them at this moment.
        """
        return self._database.run(
            lambda c: readdress.readdress(c, source, target, self.owner), size=math.inf
        )

    def prune(self) -> None:
        """Forget records of requests that are older than is asked for."""
        before = time.time() - self._settings.keep_receipts
        self._database.run(lambda c: settle.prune(c, before), size=math.inf)

    def left(self, server: str, since: float) -> int:
        """How many entries a flush waits for: not those of banks that are paused since it began."""
        return self._database.run(lambda c: look.left(c, server, since), reads=True)

    def counts(self, server: str) -> Counts:
        """How the outbox stands, for one server."""
        return self._database.run(lambda c: look.counts(c, server), reads=True)

    def list_entries(self, states: Sequence[str], limit: int) -> list[Listed]:
        """Entries that stand somewhere, of every address, oldest first, without their content."""
        return self._database.run(lambda c: look.list_entries(c, states, limit), reads=True)

    def entry(self, entry_id: int) -> Listed | None:
        """One entry, without its content; None if there is none."""
        return self._database.run(lambda c: look.entry(c, entry_id), reads=True)

    def addresses(self) -> list[str]:
        """Whom there are entries for."""
        return self._database.run(look.addresses, reads=True)

    def dead_among(self, ids: Sequence[int] | None) -> set[int]:
        """Those of some entries, or of all, that are dead letters."""
        return self._database.run(lambda c: dead_letters.dead_among(c, ids), reads=True)

    def dead_letters(self, limit: int = 1000) -> list[DeadLetter]:
        """What cannot be delivered, oldest first, for every server."""
        return self._database.run(lambda c: dead_letters.dead_letters(c, limit), reads=True)

    def content(self, entry_id: int) -> str | None:
        """What an entry holds, for a person who asks to see it; None once it is delivered."""
        return self._database.run(lambda c: dead_letters.content(c, entry_id), reads=True)

    def retry(self, ids: Sequence[int] | None = None) -> int:
        """Let dead letters wait for delivery again; all of them, or some and their documents."""
        return self._database.run(lambda c: dead_letters.retry(c, ids), size=math.inf)

    def drop(self, ids: Sequence[int] | None = None) -> int:
        """Give up dead letters; that they were seen is remembered."""
        return self._database.run(lambda c: dead_letters.drop(c, ids), size=math.inf)
