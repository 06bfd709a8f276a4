"""`HindsightMemory`: memory for LangChain's classic chains (`langchain_classic`).

A chain loads what is relevant to its input ahead of the call, and saves input and output behind it.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.prompt_values import PromptValue
from pydantic import BaseModel, Field, PrivateAttr

from langchain_hindsight import fence
from langchain_hindsight.caller import identify
from langchain_hindsight.memory import DualBankMemory
from langchain_hindsight.query import message_text, turn_message

try:
    from langchain_classic.base_memory import BaseMemory
except ImportError as error:
    msg = "HindsightMemory needs the classic chains: pip install 'langchain-hindsight[classic]'."
    raise ImportError(msg) from error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_core.runnables import RunnableConfig

    from langchain_hindsight.recall_result import RecallResult

_STOP = "stop"  # classic chains take it as an input that is no prompt


class HindsightMemory(BaseMemory):
    """Both banks as a classic chain's memory; saving is for the Project Bank alone.

    Example:
        ```python
        memory = HindsightMemory(memory=DualBankMemory(project_bank="acme"))
        chain = ConversationChain(llm=llm, memory=memory)
        ```
    """

    memory: DualBankMemory = Field(exclude=True, repr=False)
    memory_key: str = "history"
    """The prompt variable that the block fills."""
    input_key: str | None = None
    """Which of the chain's inputs is the person's; needed where there are several."""
    output_key: str | None = None
    """Which of the chain's outputs is the answer; needed where there are several."""
    return_messages: bool = False
    """Fill the variable with messages, for a ``MessagesPlaceholder``, instead of a string."""
    config: dict[str, Any] | None = Field(default=None, repr=False)
    """The config that banks are resolved from: chains hand none to their memory. None is that of
    the run that is under way."""
    thread_id: str | None = None
    """The conversation; None is the config's ``thread_id``, else this object's own."""

    _own_thread: str = PrivateAttr(default_factory=lambda: str(uuid.uuid4()))

    @property
    def memory_variables(self) -> list[str]:
        """The one variable that `load_memory_variables` returns."""
        return [self.memory_key]

    def load_memory_variables(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Recall what is relevant to the chain's input.

        Args:
            inputs: The chain's inputs.

        Returns:
            The block under `memory_key`: a string, or a list of one message. ``""`` or ``[]`` when
            nothing is remembered, or the server failed.

        Raises:
            ValueError: If it does not follow which input is meant; set `input_key`.
        """
        return self._loaded(self.memory.recall(self._question(inputs), self._config))

    async def aload_memory_variables(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Recall what is relevant to the chain's input; `load_memory_variables` for async."""
        return self._loaded(await self.memory.arecall(self._question(inputs), self._config))

    def save_context(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Retain the chain's input and output as a turn of the conversation.

        Args:
            inputs: The chain's inputs; the memory's own variable among them is left out.
            outputs: The chain's outputs; what is no text is written as JSON.

        Raises:
            ValueError: If it does not follow which input or output is meant; set `input_key` or
                `output_key`.
        """
        turn = self._exchange(inputs, outputs)
        self.memory.retain(turn, thread_id=self._thread, config=self._config)

    async def asave_context(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Retain the chain's input and output; `save_context` for async."""
        turn = self._exchange(inputs, outputs)
        await self.memory.aretain(turn, thread_id=self._thread, config=self._config)

    def clear(self) -> None:
        """Do nothing: memory outlives a chain, and is deleted in Hindsight's own control plane."""

    async def aclear(self) -> None:
        """Do nothing; see `clear`."""

    @property
    def _config(self) -> RunnableConfig | None:
        return cast("RunnableConfig | None", self.config)

    @property
    def _thread(self) -> str:
        return self.thread_id or identify(self._config).thread_id or self._own_thread

    def _question(self, inputs: Mapping[str, Any]) -> str | Sequence[BaseMessage]:
        value = self._input(inputs)
        messages = _as_messages(value)
        return _as_text(value) if messages is None else messages

    def _loaded(self, result: RecallResult) -> dict[str, Any]:
        if not self.return_messages:
            return {self.memory_key: result.text}
        marked = HumanMessage(content=result.text, additional_kwargs={fence.INJECTED_KEY: True})
        return {self.memory_key: [marked] if result.text else []}

    def _exchange(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> list[BaseMessage]:
        answer = _only(outputs, self.output_key, "output", set())
        return [
            HumanMessage(content=_as_text(_spoken(self._input(inputs))), id=str(uuid.uuid4())),
            AIMessage(content=_as_text(answer), id=str(uuid.uuid4())),
        ]

    def _input(self, inputs: Mapping[str, Any]) -> object:
        return _only(inputs, self.input_key, "input", {self.memory_key, _STOP})


def _only(values: Mapping[str, Any], key: str | None, what: str, other: set[str]) -> object:
    """The value of that key, else of the only key there is."""
    names = [name for name in values if name not in other] if key is None else [key]
    if len(names) == 1 and names[0] in values:
        return values[names[0]]
    found = ", ".join(repr(name) for name in values) or "none"
    wanted = f"{what}_key={key!r} is not among them" if key else f"set {what}_key to one of them"
    msg = f"HindsightMemory needs one {what} to remember; the chain has {found}: {wanted}."
    raise ValueError(msg)


def _as_messages(value: object) -> Sequence[BaseMessage] | None:
    if isinstance(value, PromptValue):
        return value.to_messages()
    if isinstance(value, BaseMessage):
        return [value]
    if isinstance(value, list | tuple) and value and all(isinstance(m, BaseMessage) for m in value):
        return value
    return None


def _spoken(value: object) -> object:
    """Of messages the person's last one; anything else as it is."""
    messages = _as_messages(value)
    return value if messages is None else turn_message(messages) or messages[-1]


def _as_text(value: object) -> str:
    """The words of a value, of messages those of the last one."""
    messages = _as_messages(value)
    if messages is not None:
        return message_text(messages[-1])
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=str)
    return "" if value is None else str(value)
