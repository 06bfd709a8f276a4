"""The error that the embedded server raises."""

from __future__ import annotations

from langchain_hindsight.errors import HindsightError


class EmbeddedServerError(HindsightError):
    """The embedded Hindsight server did not come up; the message says why and what to do."""
