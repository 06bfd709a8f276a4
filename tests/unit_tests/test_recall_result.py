"""What a recall gives, and how it shows itself."""

from datetime import UTC, datetime
from io import StringIO

import pytest
from rich.console import Console

from langchain_hindsight import BankRecall, HindsightError, RecalledMemory, RecallResult

DATE = datetime(2026, 3, 1, tzinfo=UTC)
MEMORY = RecalledMemory(
    "m-1", "We deploy on <b>Fridays</b>.", "world", ("project:p",), DATE, {"final": 0.5}, "d-1"
)
AWAY = HindsightError("The Life Bank is away.")
RESULT = RecallResult(
    text="<block>",
    project=BankRecall("coding", (MEMORY,), 40, 800, 12.34, dropped={"blank": 1}),
    life=BankRecall("life", limit=400, error=AWAY),
)


def test_documents_hold_what_a_chain_may_filter_by():
    (document,) = RESULT.documents()
    assert document.id == "m-1"
    assert document.page_content == MEMORY.text
    assert document.metadata == {
        "bank": "project",
        "bank_id": "coding",
        "type": "world",
        "tags": ["project:p"],
        "date": "2026-03-01T00:00:00+00:00",
        "scores": {"final": 0.5},
        "document_id": "d-1",
    }


def test_the_receipt_tells_all_but_the_text():
    receipt = RESULT.receipt()
    assert receipt["project"] == {
        "bank_id": "coding",
        "ids": ["m-1"],
        "tokens": 40,
        "limit": 800,
        "elapsed_ms": 12.3,
        "dropped": {"blank": 1},
        "error": None,
    }
    assert receipt["life"]["error"] == "The Life Bank is away."
    assert "Fridays" not in f"{receipt}{RESULT!r}"


def test_an_error_of_either_bank_is_raised_when_asked_for():
    with pytest.raises(HindsightError, match="away"):
        RESULT.raise_for_error()


def test_a_result_without_an_error_gives_itself():
    result = RecallResult(project=BankRecall("coding"))
    assert result.raise_for_error() is result


def test_the_html_view_escapes_what_it_shows():
    html = RESULT._repr_html_()
    assert "&lt;b&gt;Fridays&lt;/b&gt;" in html
    assert "<b>Fridays" not in html
    assert "40 of 800 tokens" in html
    assert "The Life Bank is away." in html


def test_the_html_view_of_nothing_says_why():
    assert "no words" in RecallResult(reason="The message has no words.")._repr_html_()


def test_a_terminal_shows_a_bar_and_the_memories_of_each_bank():
    out = StringIO()
    Console(file=out, width=80).print(RESULT)
    shown = out.getvalue()
    assert "40 of 800 tokens" in shown
    assert "We deploy on <b>Fridays</b>." in shown
    assert "The Life Bank is away." in shown


HOSTILE = '<script>alert("x")</script> [red]&amp;[/red] \x1b[31m\u202egnol\u202c\x07'


@pytest.mark.parametrize("where", ["memory", "bank_id", "error", "dropped"])
def test_no_view_lets_what_it_shows_become_markup_or_turn_the_terminal(where):
    bank = BankRecall(
        HOSTILE if where == "bank_id" else "coding",
        (RecalledMemory("m-1", HOSTILE),) if where == "memory" else (),
        dropped={HOSTILE: 1} if where == "dropped" else {},
        error=HindsightError(HOSTILE) if where == "error" else None,
    )
    html = RecallResult(project=bank)._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    out = StringIO()
    Console(file=out, width=200, force_terminal=True, no_color=True).print(
        RecallResult(project=bank)
    )
    shown = out.getvalue()
    assert "[red]" in shown
    for one in ("\x1b[31m", "\u202e", "\x07"):
        assert one not in shown
        assert one not in html


def test_the_views_tell_the_day_what_is_an_observation_and_what_was_left_out():
    observed = RecalledMemory("m-2", "Deploys are on Fridays.", "observation", date=DATE)
    result = RecallResult(project=BankRecall("coding", (observed,), dropped={"over_limit": 2}))
    out = StringIO()
    Console(file=out, width=80).print(result)
    assert "2026-03-01 observation Deploys are on Fridays." in out.getvalue()
    for view in (out.getvalue(), result._repr_html_()):
        assert "left out: 2 over limit" in view
