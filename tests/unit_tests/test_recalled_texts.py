"""Memories that a tool gives back without the fence are known, and nothing else is."""

from __future__ import annotations

import json
import textwrap

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_hindsight.banks import LifeBank, ProjectBank
from langchain_hindsight.recalled_texts import RecalledTexts, documents_in, without
from langchain_hindsight.transcript import Transcript, content

MEMORY = 'user: The billing service\ndeploys on "Fridays" at noon, says Zoë.'
OTHER = "The page says that it rains."
BANK = ProjectBank("b", "billing")
LAYOUTS = {
    "plain": "\n\n".join,
    "separated": "\n---\n".join,
    "numbered": lambda texts: "\n".join(f"{at}. {one}" for at, one in enumerate(texts, 1)),
    "indented": lambda texts: textwrap.indent("\n".join(texts), "    "),
    "wrapped": lambda texts: "\n".join(
        textwrap.fill(one, 20, break_long_words=False) for one in texts
    ),
    "on one line": lambda texts: " ".join(" ".join(texts).split()),
    "quoted": lambda texts: textwrap.indent("\n".join(texts), "> ", lambda _: True),
    "json": json.dumps,
    "json in json": lambda texts: json.dumps({"found": json.dumps(texts)}),
    "json as it is": lambda texts: json.dumps(texts, ensure_ascii=False, indent=2),
    "python": repr,
}


def our_document(text, bank="project"):
    return Document(page_content=text, metadata={"bank": bank, "bank_id": "b"})


def kept(result, *, recalled=(), artifact=None, **extra):
    """What is kept of a tool's result."""
    messages = [
        HumanMessage("Look it up."),
        AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "c"}]),
        ToolMessage(result, tool_call_id="c", name="look", artifact=artifact, **extra),
        AIMessage("Done."),
    ]
    read = Transcript(
        messages, roles=("human", "ai", "tool"), tools=(), recalled=lambda: list(recalled)
    )
    lines = [read.line(index) for index in read.settled(0)]
    return [content(one, mask=False, max_chars=9_999)[0] for one in lines if one.role == "tool"]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_a_memory_is_taken_out_however_a_tool_lays_it_out(layout):
    left = without(layout([MEMORY, OTHER]), [MEMORY, "A memory that is not there at all."])
    assert "Fridays" not in left
    assert "billing" not in left
    assert "noon" not in left
    assert "rains" in left


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@given(memories=st.lists(words, min_size=1, max_size=5), layout=st.sampled_from([*LAYOUTS]))
@example(memories=["0\\\u00b9"], layout="json")
@example(memories=["0\\\u00b9"], layout="json in json")
@example(memories=["0\\\\\u00b9\u00b9"], layout="json")
def test_no_memory_is_left_of_what_a_tool_returns(memories, layout):
    marked = [f"{one} zyzzyva is the canary of this memory {one}" for one in memories]
    assert "zyzzyva" not in without(LAYOUTS[layout](marked), marked)


@given(text=words, memories=st.lists(words, max_size=5))
def test_a_text_without_a_memory_is_left_as_it_is(text, memories):
    assert without(text, [f"{one} zyzzyva canary memory" for one in memories]) == text


def test_a_short_memory_is_known_where_it_fills_a_line_and_not_amid_other_words():
    assert without("Tea.\n\nIt rains.", ["Tea."]) == "It rains."
    assert without('["Tea.", "It rains."]', ["Tea."]).count("Tea") == 0
    assert without("Who sells tea. Tea. Or coffee", ["Tea."]) == "Who sells tea. Tea. Or coffee"
    assert without("I got 5 items: Tea. and more", ["Tea."], certain=["Tea."]).count("Tea") == 0


def test_a_memory_is_no_part_of_a_longer_word():
    assert without("Tea timetable shows it", ["Tea timetable sh"]) == "Tea timetable shows it"


def test_a_result_that_is_only_memories_is_not_kept_and_one_with_more_keeps_the_rest():
    assert kept(MEMORY, recalled=[MEMORY]) == []
    assert kept(f"{MEMORY}\n\n---\n\n{MEMORY}", recalled=[MEMORY]) == []
    assert kept(f"{OTHER}\n\n{MEMORY}", recalled=[MEMORY]) == [f"look (tool): {OTHER}"]
    assert kept(f"No: {MEMORY}", recalled=[MEMORY], status="error") == ["look (tool): Error: No:"]


@pytest.mark.parametrize("shape", [list, dumpd, lambda docs: [one.model_dump() for one in docs]])
def test_documents_that_a_result_carries_say_what_was_recalled_in_any_process(shape):
    ours = [our_document("Tea."), our_document("Green it is.", "life")]
    found = "A source: Tea. A source: Green it is."
    assert kept(found, artifact=shape(ours)) == []
    mixed = [*ours, Document(page_content="It rains.", metadata={"bank": "a river's"})]
    assert kept(f"{found} It rains.", artifact=shape(mixed)) == [
        "look (tool): A source:  A source:  It rains."
    ]


@pytest.mark.parametrize("artifact", [None, "text", b"x", 3, {}, [], [1, None, "x", {"kwargs": 1}]])
def test_an_artifact_of_any_other_kind_says_nothing(artifact):
    assert documents_in(artifact) == ([], False)
    assert kept("It rains.", artifact=artifact) == ["look (tool): It rains."]


def test_a_result_is_the_same_message_when_its_recall_is_forgotten():
    message = ToolMessage(f"{OTHER} {MEMORY}", tool_call_id="c", name="look")
    prints = {
        Transcript([message], roles=("tool",), tools=(), recalled=lambda known=known: known)
        .line(0)
        .fingerprint
        for known in ([], [MEMORY])
    }
    assert len(prints) == 1


def test_what_is_known_is_bounded_and_the_latest():
    texts = RecalledTexts()
    texts.note(BANK, (str(number) for number in range(1000)))
    texts.note(BANK, ["900"])
    known = texts.of([BANK])
    assert len(known) == 256
    assert known[-2:] == ["999", "900"]
    for number in range(2000):
        texts.note(ProjectBank(str(number), "billing"), ["x"])
    assert texts.of([BANK]) == []


def test_what_one_caller_recalled_says_nothing_to_another():
    texts = RecalledTexts()
    texts.note(BANK, ["a"])
    texts.note(LifeBank("ada"), ["b"])
    assert texts.of([BANK, LifeBank("ada")]) == ["a", "b"]
    assert texts.of([ProjectBank("b", "other"), LifeBank("bob")]) == []
