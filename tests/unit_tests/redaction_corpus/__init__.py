"""Synthetic credentials and their look-alikes, made from seeds so that none is stored as text.

A third of each is held out: the rules were tuned on the rest alone, and both rates are reported.
"""

from __future__ import annotations

from redaction_corpus.lookalikes import LOOKALIKES, LookAlike
from redaction_corpus.positives import POSITIVES, Positive

__all__ = ["LOOKALIKES", "POSITIVES", "LookAlike", "Positive"]
