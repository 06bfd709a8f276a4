"""`HindsightRetriever`: both banks' memories as LangChain documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from langchain_core.retrievers import BaseRetriever
from pydantic import AfterValidator, Field

from langchain_hindsight.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.callbacks import (
        AsyncCallbackManagerForRetrieverRun,
        CallbackManagerForRetrieverRun,
    )
    from langchain_core.documents import Document
    from langchain_core.runnables import RunnableConfig

    from langchain_hindsight.memory import DualBankMemory as Memory
else:

    def _memory(given: object) -> object:
        """A memory, told without importing it with this module: whoever has one has done so."""
        from langchain_hindsight.memory import checked_memory

        try:
            return checked_memory(given)
        except ConfigurationError as error:  # pydantic makes a ValidationError of a ValueError
            raise ValueError(str(error)) from None

    Memory = Annotated[Any, AfterValidator(_memory)]


class HindsightRetriever(BaseRetriever):
    """Recall from both banks, as documents, the Project Bank's first.

    `k` counts documents after the recall; what bounds the recall itself is ``recall.max_tokens``
    and ``recall.life_max_tokens`` of the memory's settings. A third of `k` is the Life Bank's; what
    either bank leaves free goes to the other. A bank that fails gives no documents; the memory logs
    why.

    Example:
        ```python
        retriever = HindsightRetriever(memory=memory, k=4)
        retriever.invoke("How do we deploy?", config={"configurable": {"user_id": "ada"}})
        ```
    """

    memory: Memory = Field(exclude=True, repr=False)
    k: int = Field(default=8, ge=1)
    """Most documents to return; ``invoke(query, k=…)`` sets it for one call."""

    def invoke(
        self,
        input: str,  # noqa: A002 - the name is LangChain's
        config: RunnableConfig | None = None,
        **kwargs: Any,  # noqa: ANN401 - passed through
    ) -> list[Document]:
        """Recall for one query.

        Args:
            input: The query.
            config: The run's config, from which tenants are resolved.
            **kwargs: ``k``, the most documents of this call.

        Returns:
            At most `k` documents; see `RecallResult.documents` for their metadata.
        """
        # BaseRetriever keeps the config to itself, and the banks follow from it.
        return super().invoke(input, config, caller=config, **kwargs)

    async def ainvoke(
        self,
        input: str,  # noqa: A002 - the name is LangChain's
        config: RunnableConfig | None = None,
        **kwargs: Any,  # noqa: ANN401 - passed through
    ) -> list[Document]:
        """Recall for one query; `invoke` for async callers."""
        return await super().ainvoke(input, config, caller=config, **kwargs)

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002 - the signature is LangChain's
        caller: RunnableConfig | None = None,
        k: int | None = None,
    ) -> list[Document]:
        documents = self.memory.recall(query, caller).documents()
        return choose(documents, self.k if k is None else k)

    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,  # noqa: ARG002 - the signature is LangChain's
        caller: RunnableConfig | None = None,
        k: int | None = None,
    ) -> list[Document]:
        documents = (await self.memory.arecall(query, caller)).documents()
        return choose(documents, self.k if k is None else k)


def choose(documents: Sequence[Document], k: int) -> list[Document]:
    """The first `k`: a third for the Life Bank, one at least where there is room for two.

    Raises:
        ValueError: If `k` is less than 1.
    """
    if k < 1:
        msg = f"k must be 1 or more, found {k}; it counts the documents to return."
        raise ValueError(msg)
    project = [one for one in documents if one.metadata["bank"] == "project"]
    life = [one for one in documents if one.metadata["bank"] == "life"]
    share = max(k // 3, min(1, k - 1))
    taken = min(len(life), max(share, k - len(project)))
    return [*project[: k - taken], *life[:taken]]
