"""How many credentials are missed and look-alikes masked: our rules beside detect-secrets.

Run with `python tests/benchmarks/redaction_rates.py [--list]`. detect-secrets is optional: without
it only our own rates are given. It names the secrets that it finds in a file or, more eagerly, in a
line; a positive counts as found when no part of its secrets is left once those are masked, and a
look-alike as masked when it names any.
"""

# A benchmark prints, and the corpus is found beside the tests that assert on it.
# ruff: noqa: T201, E402

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

sys.path[:0] = [str(Path(__file__).parents[1] / "unit_tests"), str(Path(__file__).parents[2])]

from redaction_corpus import LOOKALIKES, POSITIVES, Positive

from langchain_hindsight.redaction import redact

Redact = Callable[[str], str]
_PIECE = 8
_MARKER = re.compile(r"\[redacted[a-z0-9:-]*\]")


def survives(secret: str, text: str) -> bool:
    """Whether a piece of a secret long enough to tell is still in the text."""
    if len(secret) <= _PIECE:
        return secret in text
    return any(secret[i : i + _PIECE] in text for i in range(len(secret) - _PIECE + 1))


def missed(positive: Positive, mask: Redact) -> bool:
    """Whether masking leaves any part of any credential."""
    masked = _MARKER.sub(" ", mask(positive.text))
    return any(survives(secret, masked) for secret in positive.secrets)


def with_detect_secrets() -> dict[str, Redact]:
    """Masking by detect-secrets, with all its detectors and without those of high entropy."""
    try:
        from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
        from detect_secrets.core.scan import scan_file, scan_line
        from detect_secrets.settings import transient_settings
    except ImportError:
        return {}

    names = sorted({plugin.__name__ for plugin in get_mapping_from_secret_type_to_class().values()})
    shapes = [name for name in names if "HighEntropy" not in name]
    folder = TemporaryDirectory()
    path = Path(folder.name) / "message.txt"

    def masking(plugins: list[str], *, as_file: bool) -> Redact:
        chosen = {"plugins_used": [{"name": name} for name in plugins]}

        def mask(text: str, _keep: TemporaryDirectory[str] = folder) -> str:
            with transient_settings(chosen):
                if as_file:
                    path.write_text(text, encoding="utf-8")
                    found = list(scan_file(str(path)))
                else:
                    found = [secret for line in text.splitlines() for secret in scan_line(line)]
            for secret in found:
                text = text.replace(secret.secret_value or "\0", "[redacted]")
            return text

        return mask

    return {
        "detect-secrets, a file, all detectors": masking(names, as_file=True),
        "detect-secrets, a file, no entropy": masking(shapes, as_file=True),
        "detect-secrets, line by line, all detectors": masking(names, as_file=False),
        "detect-secrets, line by line, no entropy": masking(shapes, as_file=False),
    }


def report(name: str, mask: Redact, *, listed: bool) -> None:
    """Print both rates, over all and over what was held out."""
    start = perf_counter()
    lost = [p for p in POSITIVES if missed(p, mask)]
    false = [a for a in LOOKALIKES if mask(a.text) != a.text]
    seconds = perf_counter() - start
    print(f"{name} ({seconds:.1f} s)")
    for which, out in (("all", None), ("tuned on", False), ("held out", True)):
        positives = [p for p in POSITIVES if out in (None, p.held_out)]
        alikes = [a for a in LOOKALIKES if out in (None, a.held_out)]
        n_lost = sum(out in (None, p.held_out) for p in lost)
        n_false = sum(out in (None, a.held_out) for a in false)
        print(
            f"  {which:<9} missed {n_lost:>3} of {len(positives)} ({n_lost / len(positives):6.1%})"
            f"   false {n_false:>3} of {len(alikes)} ({n_false / len(alikes):6.1%})"
        )
    if not listed:
        return
    for positive in lost:
        if not positive.held_out:
            print(f"  missed {positive.name}: {mask(positive.text)[:160]!r}")
    for alike in false:
        if not alike.held_out:
            print(f"  false {alike.text[:100]!r} -> {mask(alike.text)[:100]!r}")
    for kind, count in Counter(p.kind for p in lost).most_common():
        print(f"  {count:>3} missed of kind {kind}")


def main() -> None:
    """Report on our rules, and on detect-secrets where it is installed."""
    listed = "--list" in sys.argv
    kinds = {p.kind for p in POSITIVES}
    print(f"{len(POSITIVES)} positives of {len(kinds)} kinds, {len(LOOKALIKES)} look-alikes")
    report("langchain-hindsight", redact, listed=listed)
    others = with_detect_secrets()
    if not others:
        print("Not compared: detect-secrets is not installed (pip install detect-secrets)")
    for name, mask in others.items():
        report(name, mask, listed=False)


if __name__ == "__main__":
    main()
