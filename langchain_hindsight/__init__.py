"""Dual-bank memory on a Hindsight server, for LangChain and LangGraph agents.

A name is loaded when it is first used, so that importing this package costs next to nothing and
an extra is needed only by what needs it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from langchain_hindsight._version import __version__

if TYPE_CHECKING:
    from langchain_hindsight.classic import HindsightMemory
    from langchain_hindsight.errors import (
        BankResolutionError,
        ConfigurationError,
        HindsightError,
        LifeBankDisabledError,
    )
    from langchain_hindsight.memory import DualBankMemory
    from langchain_hindsight.middleware import HindsightMiddleware
    from langchain_hindsight.nodes import (
        MemoryState,
        ainject_memory,
        create_recall_node,
        create_retain_node,
        inject_memory,
    )
    from langchain_hindsight.recall_result import BankRecall, RecalledMemory, RecallResult
    from langchain_hindsight.receipts import FlushReport, OutboxStatus, RetainReceipt
    from langchain_hindsight.retriever import HindsightRetriever
    from langchain_hindsight.settings import HindsightSettings
    from langchain_hindsight.tools import create_hindsight_tools

_HOME = {
    "BankRecall": "recall_result",
    "BankResolutionError": "errors",
    "ConfigurationError": "errors",
    "DualBankMemory": "memory",
    "FlushReport": "receipts",
    "HindsightError": "errors",
    "HindsightMemory": "classic",
    "HindsightMiddleware": "middleware",
    "HindsightRetriever": "retriever",
    "HindsightSettings": "settings",
    "LifeBankDisabledError": "errors",
    "MemoryState": "nodes",
    "OutboxStatus": "receipts",
    "RecallResult": "recall_result",
    "RecalledMemory": "recall_result",
    "RetainReceipt": "receipts",
    "ainject_memory": "nodes",
    "create_hindsight_tools": "tools",
    "create_recall_node": "nodes",
    "create_retain_node": "nodes",
    "inject_memory": "nodes",
}

__all__ = [
    "BankRecall",
    "BankResolutionError",
    "ConfigurationError",
    "DualBankMemory",
    "FlushReport",
    "HindsightError",
    "HindsightMemory",
    "HindsightMiddleware",
    "HindsightRetriever",
    "HindsightSettings",
    "LifeBankDisabledError",
    "MemoryState",
    "OutboxStatus",
    "RecallResult",
    "RecalledMemory",
    "RetainReceipt",
    "__version__",
    "ainject_memory",
    "create_hindsight_tools",
    "create_recall_node",
    "create_retain_node",
    "inject_memory",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
    if name not in _HOME:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
