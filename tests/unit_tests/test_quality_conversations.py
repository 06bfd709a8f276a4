"""The conversations that recall is judged by are what they say they are."""

from __future__ import annotations

import pytest
from conversations import read_all

CONVERSATIONS = read_all()


def test_there_are_enough_of_both_kinds_and_a_third_is_held_out():
    kinds = [one.kind for one in CONVERSATIONS]
    assert kinds.count("coding") >= 6
    assert kinds.count("personal") >= 6
    assert 3 * sum(one.held_out for one in CONVERSATIONS) == len(CONVERSATIONS)


@pytest.mark.parametrize("one", CONVERSATIONS, ids=lambda one: one.name)
def test_a_conversation_is_long_and_asks_what_its_messages_answer(one):
    assert 60 <= len(one.messages) <= 200
    assert len(one.questions) >= 8
    assert all(question.evidence for question in one.questions)
    assert [message.type for message in one.messages[:2]] == ["human", "ai"]
