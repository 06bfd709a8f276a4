"""Made-up memories and questions about them, the same in every run."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

_THINGS = (
    *("invoice importer", "search index", "login page", "nightly export", "payment webhook"),
    *("mobile build", "audit log", "rate limiter", "currency table", "customer portal"),
    *("mail queue", "report generator", "image cache", "session store", "billing cron"),
)
_DEEDS = (
    *("moved to the new cluster", "got a second replica", "lost its feature flag"),
    *("was rewritten in Rust", "failed twice over the weekend", "now runs behind the gateway"),
    *("needs a migration before release", "was handed to another team", "got slower by a third"),
)
_REASONS = (
    *("because the old disk filled up", "after the load test in spring", "to cut the monthly bill"),
    *(
        "since nobody answered the alarm",
        "so that auditors can follow it",
        "as agreed with support",
    ),
)
_ASKED = (
    *("What happened to the {}", "Who should look after the {}", "Why did we change the {}"),
    *(
        "When was the {} last touched",
        "Is there a risk with the {}",
        "What did we decide on the {}",
    ),
)


def memories(count: int, seed: str) -> list[str]:
    """Statements of some 35 tokens, no two alike."""
    chance = random.Random(seed)
    return [
        f"Note {number} of {seed}: the {chance.choice(_THINGS)} {chance.choice(_DEEDS)} "
        f"{chance.choice(_REASONS)}; the {chance.choice(_THINGS)} {chance.choice(_DEEDS)} too, "
        f"ticket {chance.randrange(10_000, 99_999)}."
        for number in range(count)
    ]


def questions() -> Iterator[str]:
    """Questions without end, no two alike and all with something to find."""
    kinds = itertools.cycle(itertools.product(_ASKED, _THINGS))
    for number, (asked, thing) in enumerate(kinds):
        yield f"{asked.format(thing)} as of week {number}?"


def turns() -> Iterator[tuple[str, str]]:
    """What a person said and what was answered, without end and no two alike."""
    for number, question in enumerate(questions()):
        yield question, f"We settled that in meeting {number}: it stays, and we look again in May."


def runs_of(source: Iterator[str], runs: int, calls: int) -> list[list[str]]:
    """The inputs of several runs."""
    return [list(itertools.islice(source, calls)) for _ in range(runs)]
