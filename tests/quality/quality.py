"""How much of what matters is recalled for its tokens, beside `hindsight-langgraph` and the client.

Run with `make quality`. It retains the conversations in `conversations/` into an embedded Hindsight
(or the server named by ``--url``), asks their questions, counts how many pieces of marked evidence
stand in what a model would be given, prints a table and writes `build/quality/quality.json`. It
asserts nothing: a bar that is missed is shown, and the exit code stays 0.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from conversations import Conversation, read_all
from rich.console import Console
from rich.table import Table
from systems import BANK, CLIENT, LANGGRAPH, OURS, Answer, Setup, filled

from langchain_hindsight.budget import count_tokens
from langchain_hindsight.embedded import EmbeddedHindsight

LIMITS = (200, 400, 800, 1600)
BARS = {LANGGRAPH: 2.0, CLIENT: 1.15}
"""At 800 tokens, how many times the evidence of the other is to be found."""
_BAR_LIMIT = 800
_OUT = Path(__file__).resolve().parents[2] / "build" / "quality"
_HOMES = ("HOME", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "XDG_CONFIG_HOME", "XDG_STATE_HOME")


@dataclass(frozen=True, slots=True)
class Score:
    """What a system found within a limit."""

    system: str
    limit: int | None
    """None where the system has no such setting."""
    conversations: str
    """``tuned on``, ``held out``, or ``all``."""
    questions: int
    evidence: int
    found: int
    tokens: int
    """Of all answers together."""

    @property
    def share(self) -> float:
        """The share of the evidence that was found."""
        return self.found / self.evidence

    @property
    def per_thousand(self) -> float:
        """Pieces of evidence found in each thousand tokens."""
        return 1000 * self.found / max(1, self.tokens)


def main() -> None:
    """Measure and report."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--url", help="a running server to use")
    chosen = options.parse_args()
    console = Console(stderr=True)
    with (
        _own_surroundings() as folder,
        console.status("") as status,
        contextlib.ExitStack() as stack,
    ):
        url = chosen.url
        if url is None:
            server = EmbeddedHindsight(folder / "hindsight", on_progress=status.update)
            url = stack.enter_context(server).url
        status.update("Retaining and asking (some minutes)")
        scores = asyncio.run(_measure(Setup(url, folder, f"quality-{uuid.uuid4().hex[:8]}")))
    _show(scores)
    _OUT.mkdir(parents=True, exist_ok=True)
    rows = [asdict(one) | {"share": one.share, "per_thousand": one.per_thousand} for one in scores]
    (_OUT / "quality.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    console.print(f"Written: {_OUT / 'quality.json'}")


async def _measure(setup: Setup) -> list[Score]:
    conversations = read_all()
    groups = {
        "tuned on": [one for one in conversations if not one.held_out],
        "held out": [one for one in conversations if one.held_out],
    }
    scores: list[Score] = []
    async with filled(setup, conversations) as systems:
        for name, answer in systems.items():
            for limit in (None,) if name == LANGGRAPH else LIMITS:
                parts = [
                    await _score(name, answer, limit, group, among)
                    for group, among in groups.items()
                ]
                scores += [*parts, _together(parts)]
    return scores


async def _score(
    system: str, answer: Answer, limit: int | None, group: str, among: Sequence[Conversation]
) -> Score:
    questions = evidence = found = tokens = 0
    for conversation in among:
        for question in conversation.questions:
            text = await answer(conversation, question.text, limit or 0)
            flat = " ".join(text.split())
            questions += 1
            evidence += len(question.evidence)
            found += sum(piece in flat for piece in question.evidence)
            tokens += count_tokens(text)
    return Score(system, limit, group, questions, evidence, found, tokens)


def _together(parts: Sequence[Score]) -> Score:
    first = parts[0]
    return Score(
        first.system,
        first.limit,
        "all",
        sum(one.questions for one in parts),
        sum(one.evidence for one in parts),
        sum(one.found for one in parts),
        sum(one.tokens for one in parts),
    )


def _show(scores: Sequence[Score]) -> None:
    table = Table(title="Evidence found in what a model is given")
    for column in ("system", "conversations"):
        table.add_column(column)
    for column in ("limit", "found", "tokens", "found in 1,000 tokens"):
        table.add_column(column, justify="right")
    for one in scores:
        table.add_row(
            one.system,
            one.conversations,
            "its own" if one.limit is None else str(one.limit),
            f"{one.share:.1%} of {one.evidence}",
            f"{one.tokens / one.questions:.0f}",
            f"{one.per_thousand:.2f}",
        )
    console = Console()
    console = console if console.is_terminal else Console(width=120)
    console.print(table)
    at = {(one.system, one.conversations): one for one in scores if one.limit in {None, _BAR_LIMIT}}
    for other, bar in BARS.items():
        for group in ("tuned on", "held out", "all"):
            ratio = at[OURS, group].share / at[other, group].share
            mark = "[green]pass[/]" if ratio >= bar else "[bold red]miss[/]"
            console.print(f"{OURS} ÷ {other}, {group}: {ratio:.2f} (bar ≥ {bar:g}) {mark}")
    console.print(f"{BANK}: the client's own recall from the banks that {OURS} filled.")


@contextlib.contextmanager
def _own_surroundings() -> Iterator[Path]:
    """A folder to work in, where no setting or home folder of the machine takes part."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        folder = Path(made)
        folder.chmod(0o711)  # PostgreSQL runs as an account of its own under root
        for name in [name for name in os.environ if name.startswith("HINDSIGHT_")]:
            del os.environ[name]
        os.environ |= dict.fromkeys(_HOMES, str(folder))
        try:
            yield folder
        finally:
            os.environ.clear()
            os.environ.update(before)


if __name__ == "__main__":
    main()
