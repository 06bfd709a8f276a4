"""Where the recalled block travels: ahead of the person's message, or behind the system prompt.

Pure: messages in, new messages out, and none that was handed in is changed. A message keeps its id
and its kind of content, and one that carries a block is marked, so that it is known for what it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeVar

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage

from langchain_hindsight import fence
from langchain_hindsight.query import turn_message

if TYPE_CHECKING:
    from collections.abc import Sequence

Injection = Literal["human", "system"]

_Content = str | list[str | dict[str, Any]]
_Message = TypeVar("_Message", bound=BaseMessage)


def inject_into_messages(
    messages: Sequence[BaseMessage], block: str, *, injection: Injection
) -> list[BaseMessage]:
    """The messages to send to a model: one system message at most, first, and the block in place.

    Args:
        messages: The conversation, with its system messages wherever they stand.
        block: The fenced block; ``""`` injects nothing.
        injection: ``"human"`` puts the block ahead of the text of the turn's human message,
            ``"system"`` behind the system prompt.

    Returns:
        A new list. Where the conversation ends with the person's own message, so does it.
    """
    sent = lead_with_system(messages)
    if injection == "human" or not block:
        return inject_into_human(sent, block)
    head = [one for one in sent if isinstance(one, SystemMessage)]
    return [inject_into_system(head[0] if head else None, block), *sent[len(head) :]]


def inject_into_human(messages: Sequence[BaseMessage], block: str) -> list[BaseMessage]:
    """Put the block ahead of the text of the turn's human message.

    A block that an earlier turn left in the conversation is taken out: the model sees the current
    one alone. Without a message of the person there is nowhere to put it, and nothing is injected.
    """
    human = turn_message(messages)
    return [_with_block(one, block) if one is human else _without_block(one) for one in messages]


def inject_into_system(system: SystemMessage | None, block: str) -> SystemMessage:
    """Append the block to the system prompt as a content block of its own.

    The blocks before it stay as they are, ``cache_control`` included; a prompt that is a string
    becomes a text block.
    """
    if system is None:
        return SystemMessage(content=block, additional_kwargs={fence.INJECTED_KEY: True})
    blocks: list[Any] = _blocks(system.content)
    if system.additional_kwargs.get(fence.INJECTED_KEY):
        blocks = [part for part in map(_part_without_block, blocks) if part is not None]
    return _marked(system, [*blocks, _text_block(block)])


def lead_with_system(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Merge the system messages, wherever they stand, into one at the head.

    Several providers refuse a system message in mid-conversation, others read the first one alone.
    """
    system = [one for one in messages if isinstance(one, SystemMessage)]
    rest = [one for one in messages if not isinstance(one, SystemMessage)]
    return [*_merged(system), *rest]


def _merged(system: Sequence[SystemMessage]) -> Sequence[SystemMessage]:
    if len(system) < 2:  # noqa: PLR2004 - one needs no merging
        return system
    texts = [one.content for one in system if isinstance(one.content, str)]
    content: _Content = (
        "\n\n".join(text for text in texts if text)
        if len(texts) == len(system)
        else [block for one in system for block in _blocks(one.content)]
    )
    return [system[0].model_copy(update={"content": content})]


def _with_block(message: BaseMessage, block: str) -> BaseMessage:
    if block and _begins_with(message.content, block):
        return message  # it was injected into before, in this same turn
    message = _without_block(message)
    if not block:
        return message
    if isinstance(message.content, str):
        return _marked(message, f"{block}\n\n{message.content}")
    return _marked(message, [_text_block(block), *message.content])


def _begins_with(content: _Content, block: str) -> bool:
    if isinstance(content, str):
        return content.startswith(block)
    return bool(content) and content[0] == _text_block(block)


def _without_block(message: BaseMessage) -> BaseMessage:
    if not isinstance(message, HumanMessage) or not message.additional_kwargs.get(
        fence.INJECTED_KEY
    ):
        return message
    if isinstance(message.content, str):
        content: _Content = fence.strip_recalled(message.content)
    else:
        parts = map(_part_without_block, message.content)
        content = [part for part in parts if part is not None]
    kwargs = {
        key: value for key, value in message.additional_kwargs.items() if key != fence.INJECTED_KEY
    }
    return message.model_copy(update={"content": content, "additional_kwargs": kwargs})


def _marked(message: _Message, content: _Content) -> _Message:
    kwargs = {**message.additional_kwargs, fence.INJECTED_KEY: True}
    return message.model_copy(update={"content": content, "additional_kwargs": kwargs})


def _blocks(content: _Content) -> list[str | dict[str, Any]]:
    if isinstance(content, str):
        return [_text_block(content)] if content else []
    return list(content)


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _part_without_block(part: str | dict[str, Any]) -> str | dict[str, Any] | None:
    """A part of a content as it was before; None where it was the block alone."""
    text = part if isinstance(part, str) else str(part.get("text") or "")
    if not fence.contains_block(text):
        return part
    said = fence.strip_recalled(text).strip()
    if not said:
        return None
    return said if isinstance(part, str) else {**part, "text": said}
