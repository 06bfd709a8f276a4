"""Which chat model talks: the one that was asked for, or the demo model where there is none.

What is missing is said in plain sentences: the package to install, or the variable to set.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

_PAUSE = 0.02
"""Seconds between two words of the demo model, so that a person sees it stream."""

_KEYS = {
    "anthropic": "ANTHROPIC_API_KEY",
    "cohere": "COHERE_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "fireworks": "FIREWORKS_API_KEY",
    "google_genai": "GOOGLE_API_KEY",
    "groq": "GROQ_API_KEY",
    "mistralai": "MISTRAL_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "perplexity": "PPLX_API_KEY",
    "together": "TOGETHER_API_KEY",
    "xai": "XAI_API_KEY",
}
"""Where each provider's package looks for its key."""


class ModelUnavailableError(Exception):
    """The model that was asked for cannot be used; the message says what to do."""


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """A model, what to call it, and what a person should know about the choice."""

    model: BaseChatModel
    name: str
    note: str | None = None


def choose_model(asked: str | None, *, watched: bool) -> ChosenModel:
    """Make the chat model.

    Args:
        asked: An ``init_chat_model`` string, such as ``openai:gpt-5``; None is the demo model.
        watched: Whether a person looks on while it answers.

    Raises:
        ModelUnavailableError: If a package is missing or nobody knows the model.
    """
    from demo_model import DESCRIPTION, DemoModel

    demo = DemoModel(pause=_PAUSE if watched else 0.0)
    if not asked or not asked.strip():
        note = (
            "No --model was given. Try --model openai:..., anthropic:... or ollama:...; with make, "
            'ARGS="--model ..."'
        )
        return ChosenModel(demo, DESCRIPTION, note)
    key = _missing_key(asked.strip())
    if key:
        note = f"{key} is not set, so {asked} cannot be asked. The demo model answers instead."
        return ChosenModel(demo, DESCRIPTION, note)
    return ChosenModel(_made(asked.strip()), asked.strip())


def _missing_key(asked: str) -> str | None:
    """The variable that the model's provider needs and that is not set."""
    key = _KEYS.get(asked.partition(":")[0].replace("-", "_"))
    return key if key and not os.environ.get(key, "").strip() else None


def _made(asked: str) -> BaseChatModel:
    from langchain.chat_models import init_chat_model

    try:
        return init_chat_model(asked)
    except ImportError as error:
        package = _package(str(error))
        msg = f"{asked} needs a package that is not installed. {package or error}"
        raise ModelUnavailableError(msg) from error
    except Exception as error:  # each provider's package has errors of its own
        first = str(error).strip().partition("\n")[0]
        msg = f"{asked} cannot be used: {first or type(error).__name__}"
        raise ModelUnavailableError(msg) from error


def _package(told: str) -> str | None:
    """The command that installs what an import error of LangChain's names."""
    _, found, rest = told.partition("pip install ")
    if not found:
        return None
    package = rest.replace("-U ", "").strip("`'\" .").split()[0].strip("`'\"")
    python = Path(sys.executable)
    if python.is_relative_to(Path.cwd()):
        python = python.relative_to(Path.cwd())
    return f"Install it with: {python} -m pip install {package}"
