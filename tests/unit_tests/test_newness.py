"""What is new in a list of messages, however a client builds, names, cuts or repeats it."""

from __future__ import annotations

import itertools
import uuid
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_hindsight.outbox.alignment import Said, overlap
from langchain_hindsight.outbox.recent import Recent
from langchain_hindsight.outbox.scope import Draft, Scope
from langchain_hindsight.outbox.store import Store
from langchain_hindsight.settings import OutboxSettings
from langchain_hindsight.transcript import Transcript

SCOPE = Scope("http://memory.example", "b", "project:p", "t")
examples = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)


class Ledger:
    """A conversation in an outbox, and what was written down of it.

    What was written last is remembered, unless the database is to be asked each time.
    """

    def __init__(self, *, remembers=True):
        self._store = Store(OutboxSettings(url="sqlite://"))
        self._remembers = remembers
        self.kept = []
        self.edits = 0

    def retain(self, messages):
        transcript = Transcript(messages, roles=("human", "ai"), tools=())
        written = []
        asked = []

        def draft(indexes, _hidden):
            if len(asked) == 2:  # what was written first was not to be
                written.clear()
                asked.clear()
            asked.append(len(indexes))
            lines = [(index, transcript.line(index)) for index in indexes]
            written.extend(line.said for _, line in lines)
            return [
                Draft(
                    index=index,
                    message_id=line.message_id,
                    fingerprint=line.fingerprint,
                    speech=line.is_speech,
                    starts_turn=line.starts_turn,
                    payload="{}",
                )
                for index, line in lines
            ]

        if not self._remembers:
            self._store._recent = Recent()
        count = self._store.retain(SCOPE, transcript, draft)
        assert count == len(written)
        self.edits += sum(asked[1:])  # what is fresh is asked for first
        self.kept += written
        return count

    def close(self):
        self._store.close()


@pytest.fixture(params=[True, False], ids=["remembers", "asks"])
def ledger(request):
    opened = Ledger(remembers=request.param)
    yield opened
    opened.close()


def messages(words, ids="kept", kinds=(HumanMessage, AIMessage)):
    """Messages that alternate, with ids kept, issued anew, missing, or each of them by turns."""
    return [named(kinds[at % 2](text, id=f"id-{at}"), ids, at) for at, text in enumerate(words)]


def named(message, ids, at=0):
    if ids == "kept" or (ids == "people's" and message.type == "human"):
        return message
    if ids == "first" and at == 0:
        return message
    fresh = None if ids in {"missing", "people's"} else str(uuid.uuid4())
    return message.model_copy(update={"id": fresh})


every_id = pytest.mark.parametrize("ids", ["kept", "anew", "missing", "people's", "first"])


@every_id
@pytest.mark.parametrize("window", [2, 3, 4, 5, 6, 8, 100])
def test_a_window_that_slides_over_a_conversation_repeats_and_loses_nothing(ledger, window, ids):
    words = [f"w{at}" for at in range(24)]
    for end in range(2, len(words) + 1, 2):
        ledger.retain([named(one, ids) for one in messages(words)[:end]][-window:])
    assert ledger.kept == words


@pytest.mark.parametrize("ids", ["kept", "anew"])
@pytest.mark.parametrize("window", range(2, 10))
def test_the_same_turn_over_and_over_is_kept_as_often_as_it_is_said(ledger, window, ids):
    words = ["go on", "done"] * 8
    for end in range(2, len(words) + 1, 2):
        ledger.retain([named(one, ids) for one in messages(words)[:end]][-window:])
    assert ledger.kept == words


@every_id
@pytest.mark.parametrize("window", [4, 6, 100])
def test_a_window_shown_again_unchanged_brings_nothing_new(ledger, window, ids):
    words = [f"w{at}" for at in range(12)]
    for end in range(2, len(words) + 1, 2):
        for _ in range(2 if end > 2 else 1):
            ledger.retain([named(one, ids) for one in messages(words)[:end]][-window:])
    assert ledger.kept == words


@pytest.mark.parametrize("ids", ["kept", "anew", "missing"])
def test_yes_said_after_yes_is_kept_twice(ledger, ids):
    words = ["Shall I?", "yes", "yes"]
    kinds = (AIMessage, HumanMessage, HumanMessage)
    for end in (2, 3):
        said = [
            kind(word, id=str(at)) for at, (kind, word) in enumerate(zip(kinds, words, strict=True))
        ]
        ledger.retain([named(one, ids) for one in said[:end]])
    assert ledger.kept == words


@pytest.mark.parametrize("ids", ["anew", "missing"])
def test_parts_alone_in_any_order_are_each_kept(ledger, ids):
    parts = [["hi", "hello"], ["a", "b"], ["hi", "hello"], ["c", "b"], ["a", "b"]]
    for part in parts:
        assert ledger.retain(messages(part, ids)) == 2
    assert ledger.kept == list(itertools.chain(*parts))


@pytest.mark.parametrize("ids", ["anew", "missing"])
def test_parts_alone_and_the_whole_between_them_are_each_kept_once(ledger, ids):
    words = ["hi", "hello", "a", "b", "hi", "hello", "c", "d"]
    assert ledger.retain(messages(words[:2], ids)) == 2
    assert ledger.retain(messages(words[2:4], ids)) == 2
    assert ledger.retain(messages(words[:4], ids)) == 0
    assert ledger.retain(messages(words[4:6], ids)) == 2
    assert ledger.retain(messages(words[:6], ids)) == 0
    assert ledger.retain(messages(words, ids)) == 2
    assert ledger.kept == words


@every_id
def test_a_summary_in_place_of_the_beginning_repeats_and_loses_nothing(ledger, ids):
    words = [*"abcdef"]
    ledger.retain(messages(words, ids))
    marked = HumanMessage("so far ...", id="s", additional_kwargs={"lc_source": "summarization"})
    rest = messages([*words, "g", "h"])[3:]
    assert ledger.retain([marked, *(named(one, ids) for one in rest)]) == 2
    unmarked = AIMessage("what was said: ...", id="u")
    rest = messages([*words, "g", "h", "i", "j"])[5:]
    assert ledger.retain([unmarked, *(named(one, ids) for one in rest)]) == 3
    assert sorted(ledger.kept) == sorted([*"abcdefghij", "what was said: ..."])


@pytest.mark.parametrize("ids", ["kept", "anew", "missing"])
def test_a_fork_keeps_what_is_different(ledger, ids):
    ledger.retain(messages("abcdef", ids))
    assert ledger.retain(messages("abxyz!", ids) if ids != "kept" else fork("ab", "xyz!")) == 4
    assert ledger.retain(messages("abcdefgh", ids)) == 2


def fork(common, other):
    kinds = (HumanMessage, AIMessage)
    return messages(common) + [kinds[at % 2](word, id=word) for at, word in enumerate(other)]


def test_what_was_hidden_by_a_later_message_that_is_known_is_not_lost(ledger):
    known = messages("abcd")
    answer = AIMessage("the sub-agent's answer", id="answer")
    ledger.retain(known)
    ledger.retain([HumanMessage("a sub-agent's task", id="task"), answer])
    asked = HumanMessage("the person's question", id="asked")
    assert ledger.retain([*known, asked, answer]) == 1
    assert ledger.kept[-1] == "the person's question"
    assert ledger.retain([*known, asked, answer]) == 0


def test_the_first_turn_of_a_thread_is_not_hidden_either(ledger):
    answer = AIMessage("the answer", id="answer")
    ledger.retain([HumanMessage("continue", id="task"), answer])
    assert ledger.retain([HumanMessage("and a question", id="asked"), answer]) == 1
    assert ledger.retain([HumanMessage("continue", id="x"), *messages("ab")]) == 3


def test_tool_traffic_under_new_ids_is_not_repeated_with_the_turn_that_it_belongs_to(ledger):
    def turn(number):
        call = {"name": "look", "args": {"n": number}, "id": f"c{number}"}
        return [
            HumanMessage(f"q{number}"),
            AIMessage("", tool_calls=[call]),
            ToolMessage("broken", tool_call_id=f"c{number}", status="error"),
            AIMessage(f"a{number}"),
        ]

    said = list(itertools.chain(*(turn(number) for number in range(6))))
    for end in range(4, len(said) + 1, 4):
        ledger.retain([named(one, "anew") for one in said[:end]][-8:])
        assert ledger.retain([named(one, "missing") for one in said[:end]][-8:]) == 0
    assert len(ledger.kept) == len(said)


def test_two_messages_under_one_id_are_two_and_no_edit_of_each_other(ledger):
    twins = [HumanMessage("a", id="1"), AIMessage("b", id="1")]
    assert ledger.retain(twins) == 2
    assert ledger.retain(twins) == 0


@pytest.mark.parametrize("people", ["named", "unnamed"])
@pytest.mark.parametrize("window", [2, 4, 100])
def test_a_server_that_gives_all_its_answers_one_id_loses_none(ledger, people, window):
    said = []
    for at in range(8):
        said.append(HumanMessage(f"q{at}", id=f"q{at}" if people == "named" else None))
        said.append(AIMessage(f"a{at}", id="chatcmpl-0"))
        assert ledger.retain(said[-window:]) == 2
        assert ledger.retain(said[-window:]) == 0
    assert ledger.kept == [one.content for one in said]
    assert ledger.edits == 0


def test_a_message_that_stands_twice_in_a_list_is_kept_once(ledger):
    first, answer = HumanMessage("a", id="1"), AIMessage("b", id="2")
    ledger.retain([first, answer])
    longer = [first, answer, answer, HumanMessage("c", id="3"), AIMessage("d", id="4")]
    assert ledger.retain(longer) == 2
    assert ledger.retain(longer) == 0


@pytest.mark.parametrize("alone", [True, False])
def test_an_answer_that_was_edited_under_its_id_is_an_edit_where_its_question_is_known(
    ledger, alone
):
    question, answer = HumanMessage("q", id="1"), AIMessage("a", id="2")
    ledger.retain([question, answer])
    edited = AIMessage("a, and more", id="2")
    assert ledger.retain([edited] if alone else [question, edited]) == 1
    assert ledger.edits == 1


words = st.one_of(st.sampled_from(["yes", "go on", "ok"]), st.uuids().map(str))
turns = st.lists(st.tuples(words, st.lists(words, min_size=1, max_size=1)), min_size=1, max_size=14)


@pytest.mark.parametrize("remembers", [True, False])
@examples
@given(turns=turns, window=st.integers(2, 10), ids=st.sampled_from(["kept", "anew"]))
def test_whatever_is_said_in_turns_is_kept_once_through_any_window(turns, window, ids, remembers):
    ledger, said = Ledger(remembers=remembers), []
    for number, (asked, answers) in enumerate(turns):
        said.append(HumanMessage(asked, id=f"h{number}"))
        said += [AIMessage(one, id=f"a{number}-{at}") for at, one in enumerate(answers)]
        ledger.retain([named(one, ids) for one in said][-window:])
    ledger.close()
    assert ledger.kept == [one.content for one in said]


different = st.lists(st.sampled_from(["turn", "again", "trim", "summary"]), min_size=2, max_size=12)


@pytest.mark.parametrize("remembers", [True, False])
@examples
@given(
    steps=different,
    ids=st.lists(st.sampled_from(["kept", "anew", "missing", "people's"]), min_size=12),
    window=st.integers(4, 9),
    answers=st.integers(1, 3),
)
def test_different_words_are_kept_once_whatever_becomes_of_ids_and_list(
    steps, ids, window, answers, remembers
):
    ledger, shown, said = Ledger(remembers=remembers), [], []
    for step, naming in zip(steps, ids, strict=False):
        if step == "turn":
            new = [HumanMessage(f"q{len(said)}", id=f"m{len(said)}")]
            new += [AIMessage(f"a{len(said)}-{n}", id=f"m{len(said)}-{n}") for n in range(answers)]
            said += new
            shown = [*shown, *new]
        elif step == "trim":
            shown = shown[-window:]
        elif step == "summary" and len(shown) > window:
            marked = HumanMessage("...", additional_kwargs={"lc_source": "summarization"})
            shown = [marked, *shown[-window:]]
        # A single turn shown again under other ids is what a person may well have said again; a
        # summary before it is nobody's turn.
        asked = [one for one in shown if one.type == "human" and not one.additional_kwargs]
        alone = step != "turn" and len(asked) == 1
        ledger.retain([named(one, "missing" if alone else naming) for one in shown])
    ledger.close()
    assert Counter(ledger.kept) == Counter(one.content for one in said)


def test_the_same_words_said_again_behind_a_summary_are_kept(ledger):
    """What a summary left in place keeps its ids, so that ids of its own make a turn a new one."""
    ledger.retain([HumanMessage("Go on.", id="1"), AIMessage("Done.", id="2")])
    marked = HumanMessage("...", additional_kwargs={"lc_source": "summarization"})
    again = [marked, HumanMessage("Go on.", id="3"), AIMessage("Done.", id="4")]
    assert ledger.retain(again) == 2
    assert ledger.retain(again) == 0


def lines(text, *, ids=True):
    """People are written in capitals."""
    return [Said(one.lower() + str(one.isupper()), one.isupper(), ids) for one in text]


@pytest.mark.parametrize(
    ("passed", "known", "start", "length"),
    [
        ("CdEf", "AbCd", 0, 2),
        ("bCd", "AbCd", 0, 3),
        ("dEf", "AbCd", 0, 1),
        ("AbXy", "AbCdEf", 0, 2),
        ("sEfGh", "AbCdEf", 1, 2),
        ("sXEfGh", "AbCdEf", 2, 2),
        ("CdEf", "AbCdEf", 0, 4),
        ("AbAbAb", "AbAb", 0, 4),
        ("AbAb", "AbAb", 0, 2),
    ],
)
def test_a_run_that_is_known_in_order_is_the_old_window(passed, known, start, length):
    found = overlap(lines(passed), [one.fingerprint for one in lines(known)], is_all=True)
    assert (found.start, found.length) == (start, length)


@pytest.mark.parametrize(
    ("passed", "known"), [("Ab", "AbCd"), ("Cd", "AbCd"), ("Xb", "Ab"), ("XyCb", "Ab"), ("b", "Ab")]
)
def test_a_turn_of_its_own_is_new_whatever_was_said_before(passed, known):
    assert overlap(lines(passed), [one.fingerprint for one in lines(known)], is_all=True) is None
