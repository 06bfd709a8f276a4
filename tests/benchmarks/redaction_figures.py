"""What masking credentials costs, and how often it is wrong."""

from __future__ import annotations

from figures import Bar, Figure
from material import memories
from redaction_corpus import LOOKALIKES, POSITIVES
from redaction_rates import missed
from side_by_side import side_by_side

from langchain_hindsight.redaction import redact

_CHARS = 500
_TEXTS = 200


async def speed(runs: int) -> list[Figure]:
    """A message of 500 characters without a credential, and one with."""
    plain = " ".join(memories(20 * _TEXTS, "redaction"))
    pieces = [plain[start : start + _CHARS] for start in range(0, _TEXTS * _CHARS, _CHARS)]
    kinds = [positive.text for positive in POSITIVES]

    async def clean(number: int) -> object:
        return redact(pieces[number])

    async def secret(number: int) -> object:
        credential = kinds[number % len(kinds)]
        return redact((credential + pieces[number])[:_CHARS])

    sides = {"clean": clean, "secret": secret}
    times = await side_by_side(sides, [range(_TEXTS)] * (runs + 1))
    return [
        times.milliseconds(f"masking {_CHARS} characters without a credential", "clean", None),
        times.milliseconds(f"masking {_CHARS} characters with a credential", "secret", None),
    ]


def rates() -> list[Figure]:
    """Credentials missed and look-alikes masked, over the whole corpus."""
    lost = sum(missed(positive, redact) for positive in POSITIVES)
    false = sum(redact(alike.text) != alike.text for alike in LOOKALIKES)
    return [
        Figure(
            f"credentials missed of {len(POSITIVES)}", (100 * lost / len(POSITIVES),), "%", Bar(0)
        ),
        Figure(
            f"look-alikes masked of {len(LOOKALIKES)}",
            (100 * false / len(LOOKALIKES),),
            "%",
            Bar(1),
        ),
    ]
