"""What the adapters' tests share: a memory that remembers something, and a look into its banks."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter

from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage
from pydantic import Field

from langchain_hindsight import DualBankMemory, HindsightSettings

NOTES = (
    "The billing service deploys on Fridays at noon.",
    "The billing service deploys from the release branch.",
    "Anna reviews what the billing service deploys.",
)
LIFE_NOTE = "The person likes short answers about what the billing service deploys."
QUESTION = "When does the billing service deploy?"


def open_memory(url, project_bank, life_bank=None, **settings):
    return DualBankMemory(
        url,
        project_bank=project_bank,
        project_id="billing",
        life_bank=life_bank,
        settings=HindsightSettings(**settings),
    )


def remember(memory, *notes, config=None):
    for note in notes:  # a busy server may take longer than a note waits for it
        assert memory.retain(note, config=config).status in {"stored", "queued"}
    assert not memory.flush(120).timed_out


def remember_both(memory):
    assert memory.retain_life(LIFE_NOTE).status in {"stored", "queued"}
    remember(memory, *NOTES)


def stored(url, bank_id):
    """The texts that a bank holds, as Hindsight lists them."""
    quoted = urllib.parse.quote(bank_id, safe="")
    address = f"{url}/v1/default/banks/{quoted}/memories/list?limit=1000"
    try:
        with urllib.request.urlopen(address) as response:
            return [one["text"] for one in json.load(response)["items"]]
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return []
        raise


def count_recalls(memory, monkeypatch):
    """Count, by bank, the recalls that reach the server from here on."""
    asked = Counter()
    recall = memory._gateway.recall

    async def counted(bank_id, *args, **kwargs):
        asked[bank_id] += 1
        return await recall(bank_id, *args, **kwargs)

    monkeypatch.setattr(memory._gateway, "recall", counted)
    return asked


class Model(FakeMessagesListChatModel):
    """A chat model that answers from a list, over and over, and notes what it was sent."""

    sent: list = Field(default_factory=list)

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, *args, **kwargs):
        self.sent.append(list(messages))
        result = super()._generate(messages, *args, **kwargs)
        for one in result.generations:  # the same answer said again is another message
            one.message = one.message.model_copy(update={"id": None})
        return result


def model_of(*answers):
    return Model(
        responses=[one if isinstance(one, AIMessage) else AIMessage(one) for one in answers]
    )


def tool_call(name, **args):
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"call-{name}"}])
