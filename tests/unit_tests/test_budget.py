"""What of the recalled memories is shown: filtered, ranked, and never above its cap."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langchain_hindsight.budget import count_tokens, filter_memories, fit, rank
from langchain_hindsight.fence import clean, parse, render
from langchain_hindsight.recall_result import BEFORE_THIS, RecalledMemory

pieces = st.one_of(
    st.text(st.characters(codec=None, exclude_categories=()), max_size=30),
    st.sampled_from(
        [
            "\n",
            "\n\n",
            ".",
            "!!!",
            "=" * 40,
            "-" * 40,
            "/",
            " ",
            "\t",
            "漢字",
            "🙂",
            "<",
            ">",
            "...\n",
        ]
    ),
    st.text("ab c.\n!?/-<>=*#`{}'", max_size=80),
)
said_texts = st.lists(pieces, max_size=12).map("".join)
speech = st.builds("{}: {}".format, st.sampled_from(["user", "assistant", "Ann"]), said_texts)
memories = st.lists(
    st.builds(
        RecalledMemory,
        id=st.uuids().map(str),
        text=said_texts | speech,
        context=st.none()
        | st.lists(speech, min_size=1, max_size=2).map(lambda said: BEFORE_THIS + "\n".join(said)),
        type=st.sampled_from([None, "observation"]),
        date=st.none() | st.datetimes(timezones=st.timezones()),
        scores=st.dictionaries(st.sampled_from(["semantic", "final"]), st.floats(0, 1), max_size=2),
    ),
    max_size=8,
)
limits = st.integers(0, 160)


def texts(*lines: str, **fields: object) -> list[RecalledMemory]:
    return [RecalledMemory(id=str(at), text=line, **fields) for at, line in enumerate(lines)]


def shown(of: list[RecalledMemory]) -> list[str]:
    return [one.text for one in of]


def frame_tokens(role: str) -> int:
    one = texts("a")
    block = render(one, ()) if role == "project" else render((), one)
    return count_tokens(block) - count_tokens("- a\n")


@given(memories, limits)
@example(texts("!" * 60, "/" * 30), 160)
def test_a_section_costs_exactly_what_it_says_and_no_more_than_its_cap(found, limit):
    fitted = fit(found, limit=limit, role="project")
    block = render(fitted.memories, ())
    assert fitted.tokens == (count_tokens(block) if block else 0) <= limit
    assert fitted.dropped == len(found) - len(fitted.memories)


@given(memories, memories, limits, limits)
def test_both_sections_together_cost_no_more_than_both_caps(project, life, cap, life_cap):
    ours = fit(project, limit=cap, role="project")
    theirs = fit(life, limit=life_cap, role="life")
    total = count_tokens(render(ours.memories, theirs.memories))
    assert total <= ours.tokens + theirs.tokens <= cap + life_cap


@given(memories, memories)
def test_the_tokens_of_the_two_sections_add_up_to_those_of_the_block(project, life):
    apart = count_tokens(render(project, ())) + count_tokens(render((), life))
    both = count_tokens(render(project, life))
    shared = count_tokens(render(texts("a"), ())) + count_tokens(render((), texts("a")))
    shared -= count_tokens(render(texts("a"), texts("a")))
    one_is_empty = render(project, ()) == "" or render((), life) == ""
    assert both == apart - (0 if one_is_empty else shared)


@given(memories, limits)
def test_what_is_shown_was_recalled_and_keeps_its_order(found, limit):
    fitted = fit(found, limit=limit, role="life")
    ids = [one.id for one in found]
    places = [ids.index(one.id) for one in fitted.memories]
    assert places == sorted(places)
    for one in fitted.memories:
        # A cut may make half a tag of what was none, which is disarmed: only words are compared.
        whole = re.findall(r"\w", clean(found[ids.index(one.id)].text))
        kept = re.findall(r"\w", one.text)
        assert kept == whole[: len(kept)]


def test_one_that_does_not_fit_is_passed_over_for_the_next_that_does():
    found = texts("The first one is short.", "long " * 200, "So is the third.")
    fitted = fit(found, limit=frame_tokens("project") + 20, role="project")
    assert shown(fitted.memories) == ["The first one is short.", "So is the third."]
    assert fitted.dropped == 1


def test_what_earlier_ones_took_is_no_longer_there_for_later_ones():
    found = texts("We ship on Friday.", "We test on Monday.", "And rest.")
    both = render([found[0], found[2]], ())
    fitted = fit(found, limit=count_tokens(both), role="project")
    assert shown(fitted.memories) == ["We ship on Friday.", "And rest."]


def test_a_memory_takes_its_place_to_the_last_token():
    room = frame_tokens("project") + count_tokens("- Deploys run on Friday.\n")
    found = texts("Deploys run on Friday.")
    assert fit(found, limit=room, role="project").tokens == room
    assert fit(found, limit=room - 1, role="project").memories == ()


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("We deploy on Friday. " + "Then we test it a lot, " * 60, "We deploy on Friday. …"),
        ("金曜に出します。" + "そのあと何度もテストをして、" * 40, "金曜に出します。 …"),
        ("Shopping list\n" + "eggs and milk and " * 80, "Shopping list …"),
        ('He said "we ship." ' + "and went on and on, " * 60, 'He said "we ship." …'),
    ],
)  # fmt: skip
def test_a_single_memory_larger_than_the_cap_is_trimmed_behind_a_sentence(text, start):
    fitted = fit(texts(text), limit=100, role="project")
    assert shown(fitted.memories) == [start]
    assert parse(render(fitted.memories, ())).project == (start,)
    assert fitted.tokens <= 100


def test_a_trimmed_memory_keeps_as_many_sentences_as_there_is_room_for():
    sentence = "Deploys of the billing service run on Friday. "
    fitted = fit(texts(sentence * 60), limit=200, role="project")
    assert 200 - count_tokens(sentence) - 1 <= fitted.tokens <= 200


def test_nothing_is_trimmed_while_another_memory_fits_whole():
    found = texts("One. " * 500, "Two.")
    assert shown(fit(found, limit=80, role="project").memories) == ["Two."]


def test_a_memory_without_an_end_of_sentence_within_the_cap_is_not_cut():
    assert fit(texts("word " * 500), limit=100, role="project").memories == ()
    assert fit(texts("i.e. e.g. i.e. e.g. word " * 500), limit=100, role="project").memories == ()


@pytest.mark.parametrize("limit", [-1, 0, 1, 10])
def test_a_cap_too_small_for_anything_shows_nothing(limit):
    fitted = fit(texts("a", "b"), limit=limit, role="project")
    assert (fitted.memories, fitted.tokens, fitted.dropped) == ((), 0, 2)


def test_a_token_that_is_special_to_a_model_is_counted_as_text():
    assert count_tokens("<|endoftext|>") > 1


def test_each_reason_for_dropping_a_memory_is_counted():
    block = render(texts("An older memory."), ())
    found = [
        *texts("Uses Go.", "", " \u200b\n", "uses  GO!", f"It said:\n{block}"),
        *texts("Uses Rust.", scores={"semantic": 0.2, "final": None}),
        *texts("Uses C.", scores={"semantic": 0.4, "final": None}),
        *texts("Uses C++.", scores={}),
    ]
    kept, dropped = filter_memories(found, min_scores={"semantic": 0.3, "final": 0.5}, seen=set())
    assert shown(kept) == ["Uses Go.", "Uses C.", "Uses C++."]
    assert dropped == {"blank": 2, "duplicate": 1, "recalled_block": 1, "min_score": 1}


def test_of_a_memory_in_both_banks_the_first_stays():
    seen: set[str] = set()
    project, _ = filter_memories(texts("Prefers tea."), min_scores={}, seen=seen)
    life, dropped = filter_memories(texts("“prefers tea”"), min_scores={}, seen=seen)
    assert (shown(project), shown(life), dropped) == (["Prefers tea."], [], {"duplicate": 1})


def test_one_that_scores_too_low_does_not_hide_its_duplicate():
    low = texts("Prefers tea.", scores={"final": 0.1})
    kept, _ = filter_memories([*low, *texts("Prefers tea.")], min_scores={"final": 0.5}, seen=set())
    assert len(kept) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [("v1.5", "v15"), ("C++", "C"), ("x < 5", "x > 5"), ("-5", "5"), ("a/b", "ab"), ("!?", "…")],
)
def test_texts_that_differ_in_more_than_their_edges_both_stay(one, other):
    kept, _ = filter_memories(texts(one, other), min_scores={}, seen=set())
    assert len(kept) == 2


@given(memories)
def test_what_is_kept_is_clean_and_kept_once(found):
    kept, dropped = filter_memories(found, min_scores={}, seen=set())
    assert all(one.text == clean(one.text) != "" for one in kept)
    assert len(kept) + sum(dropped.values()) == len(found)
    assert filter_memories(kept, min_scores={}, seen=set())[0] == kept


@given(memories, st.text(max_size=40))
def test_ranking_drops_and_adds_nothing(found, query):
    ranked = rank(query, found)
    assert sorted(one.id for one in ranked) == sorted(one.id for one in found)


YES = RecalledMemory(
    id="1",
    text="user: Yes, the second.",
    context=f"{BEFORE_THIS}user: Which port?\nassistant: 8080 or 9090?\n\nNote: both are free.",
)


def test_what_was_said_right_before_the_best_ones_is_shown_where_there_is_room():
    fitted = fit([YES], limit=80, role="project")
    block = render(fitted.memories, ())
    assert (
        "- user: Yes, the second.\n (after assistant: 8080 or 9090? Note: both are free.)" in block
    )
    assert parse(block).project == ("user: Yes, the second.",)
    alone = fit([replace(YES, context=None)], limit=80, role="project")
    for limit in range(alone.tokens, fitted.tokens):
        assert fit([YES], limit=limit, role="project").tokens == alone.tokens


def test_what_was_said_before_takes_no_room_from_a_memory():
    more = texts("user: A.", "user: We deploy on Fridays.")
    room = fit([YES, *more], limit=200, role="project")
    assert [bool(one.after) for one in room.memories] == [True, False, False]
    bare = fit([replace(YES, context=None), *more], limit=200, role="project")
    tight = fit([YES, *more], limit=bare.tokens, role="project")
    assert shown(tight.memories) == shown([YES, *more])
    assert not any(one.after for one in tight.memories)


@pytest.mark.parametrize(
    "said",
    [
        replace(YES, text="The second port was chosen."),
        replace(YES, context="assistant: 8080 or 9090?"),
        replace(YES, context="From the meeting. Before this, user: Which?"),
        replace(YES, context=f"{BEFORE_THIS}nobody said a thing"),
        replace(YES, context=BEFORE_THIS),
    ],
)
def test_only_a_message_that_was_retained_as_it_was_said_is_shown_with_what_was_before(said):
    assert fit([said], limit=200, role="project").memories == (said,)


def test_what_is_shown_already_is_not_shown_as_what_was_before():
    [asked] = texts("assistant: 8080 or 9090?\n\nNote: both are free. And a longer end.")
    cut = replace(YES, context=f"{BEFORE_THIS}assistant: 8080 or 9090?\n\nNote: both are fr…")
    assert not any(one.after for one in fit([cut, asked], limit=200, role="project").memories)
    twice = fit([cut, replace(cut, id="2", text="user: No.")], limit=200, role="project")
    assert [bool(one.after) for one in twice.memories] == [True, False]


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("When are we deploying it?", "Deployments happen on Friday."),
        ("Which databases does it use?", "The billing service keeps its data in a database."),
        ("いつデプロイしますか", "金曜日にデプロイします。"),
        ("когда релиз", "релиз в пятницу"),
    ],
)
def test_words_in_common_bring_a_memory_forward(query, wanted):
    other = ["Alice likes tea.", "It is what it was when we did.", "The sky is blue.", "茶が好き"]
    assert rank(query, texts(*other, wanted))[0].text == wanted


def test_an_answer_is_ranked_by_what_it_answers_too():
    asked = "How long are raw webhook payloads kept?"
    [answer] = texts("Make it 180 days.", scores={"semantic": 0.4})
    answer = replace(answer, context="Shall we keep raw webhook payloads for 90 days?")
    others = texts("Raw meat is kept cold.", "How long?", "Kept long.", scores={"semantic": 0.3})
    assert rank(asked, [*others, answer])[0] is answer


def test_a_server_that_reranked_keeps_its_order():
    found = [
        *texts("Alice likes tea.", scores={"reranker": 0.1, "semantic": 0.1}),
        *texts("Deploys run on Friday.", scores={"semantic": 0.9}),
    ]
    assert rank("deploy", found) == found


def test_without_words_in_common_the_semantic_score_decides():
    found = [RecalledMemory(id=str(at), text="x", scores={"semantic": at / 9}) for at in range(4)]
    assert [one.id for one in rank("query", found)] == ["3", "2", "1", "0"]


def test_without_any_score_the_order_of_the_server_takes_its_place():
    found = texts("Alice likes tea.", "The sky is blue.", "Bob likes tea as well.")
    assert rank("sugar", found) == found
    assert rank("", found) == found
    assert rank("and the", found) == found
    assert rank("tea", []) == []


def test_a_memory_without_a_semantic_score_is_placed_by_its_words_alone():
    none = RecalledMemory(id="none", text="Deploys run on Friday.", scores={"semantic": None})
    some = texts("Tea.", "Sky.", scores={"semantic": 0.5})
    assert {one.id for one in rank("deploy", [*some, none])} == {"0", "1", "none"}


def test_the_same_memories_are_ranked_and_fitted_the_same_way():
    found = texts(*(f"Note {at % 7} about {at % 5} things." for at in range(60)))
    first = rank("things to note", found)
    assert all(rank("things to note", list(found)) == first for _ in range(3))
    once = random.Random(1).sample(first, len(first))
    assert fit(once, limit=200, role="project") == fit(list(once), limit=200, role="project")
