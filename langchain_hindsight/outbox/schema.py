"""The outbox's tables.

A row of ``entries`` is a message or a note. It holds a payload until Hindsight has it; what is left
of the row is the ledger by which the same message is known again. ``lanes`` are banks, each
delivered by one process at a time under a lease; ``batches`` are requests, recorded before they are
sent; ``threads`` are conversations.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from langchain_hindsight.outbox.foreign import VERSION_TABLE

WAITING, BATCHED, DELIVERED, DEAD = "waiting", "batched", "delivered", "dead"
WITHHELD = "withheld"
"""Known, and never to be kept: the run in which it was said kept nothing."""
RECORDED, ACCEPTED, DONE, FAILED = "recorded", "accepted", "done", "failed"

metadata = MetaData()

_Large = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows by itself only in an INTEGER, which holds as much there."""

version = Table(VERSION_TABLE, metadata, Column("version", Integer, nullable=False))

usage = Table(
    "hindsight_outbox_usage",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("entries", Integer, nullable=False),
    Column("bytes", _Large, nullable=False),
)

# ``server`` is an address (see `address`); ``ledger`` the one under which its conversations were
# first known, where it was another.
lanes = Table(
    "hindsight_outbox_lanes",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("server", Text, nullable=False),
    Column("bank", Text, nullable=False),
    Column("owner", String(64)),
    Column("lease_until", Float, nullable=False, default=0.0),
    Column("due", Float, nullable=False, default=0.0),
    Column("failures", Integer, nullable=False, default=0),
    Column("paused", Boolean, nullable=False, default=False),
    Column("error", Text),
    Column("failed_at", Float),
    Column("delivered", _Large, nullable=False, default=0),
    Column("ledger", Text),
    UniqueConstraint("server", "bank"),
)

threads = Table(
    "hindsight_outbox_threads",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("scope", String(36), nullable=False, unique=True),
    Column("lane", ForeignKey("hindsight_outbox_lanes.id"), nullable=False),
    Column("version", Integer, nullable=False, default=0),
    Column("last_seq", Integer, nullable=False, default=0),
    Column("length", Integer, nullable=False, default=0),
)

batches = Table(
    "hindsight_outbox_batches",
    metadata,
    Column("operation_id", String(36), primary_key=True),
    Column("lane", ForeignKey("hindsight_outbox_lanes.id"), nullable=False),
    Column("state", String(16), nullable=False),
    Column("entries", Integer, nullable=False),
    Column("created", Float, nullable=False),
    Column("finished", Float),
    Column("error", Text),
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("due", Float, nullable=False, server_default="0"),
    Index("hindsight_outbox_batches_lane", "lane", "state"),
)

entries = Table(
    "hindsight_outbox_entries",
    metadata,
    Column("id", _Large, primary_key=True),
    Column("lane", ForeignKey("hindsight_outbox_lanes.id"), nullable=False),
    Column("thread", ForeignKey("hindsight_outbox_threads.id")),
    Column("seq", Integer, nullable=False),
    Column("parent", Integer),
    Column("message_id", Text),
    Column("fingerprint", String(32), nullable=False),
    Column("speech", Boolean, nullable=False),
    Column("starts_turn", Boolean, nullable=False),
    Column("document", String(36), nullable=False),
    Column("regrouped", Boolean, nullable=False, default=False),
    Column("revision", Integer, nullable=False, default=0),
    Column("state", String(16), nullable=False),
    Column("batch", String(36)),
    Column("payload", Text),
    Column("next_payload", Text),
    Column("size", Integer, nullable=False),
    Column("created", Float, nullable=False),
    Column("error", Text),
    UniqueConstraint("thread", "seq"),
    UniqueConstraint("thread", "message_id"),
    Index("hindsight_outbox_entries_fingerprint", "thread", "fingerprint"),
    Index("hindsight_outbox_entries_state", "lane", "state", "id"),
    Index("hindsight_outbox_entries_batch", "batch"),
    Index("hindsight_outbox_entries_document", "document"),
)
