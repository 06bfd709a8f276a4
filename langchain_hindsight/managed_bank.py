"""One selected bank, looked after on purpose: its missions, its mental models, its template.

Nothing automatic comes here. What a project asks for in a bank that projects share is held to its
tag; missions are the bank's own, and so everybody's in it.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langchain_hindsight.banks import LifeBank, ProjectBank
from langchain_hindsight.errors import HindsightError
from langchain_hindsight.templates import (
    MISSIONS,
    Role,
    Template,
    missions_of,
    model_id,
    template_of,
    trigger_of,
)

if TYPE_CHECKING:
    from langchain_hindsight.gateway import Gateway, MentalModel
    from langchain_hindsight.settings import HindsightSettings

_NEAR = 3
_ALIKE = 0.75

NO_LLM = (
    "This server has no LLM, so it can make no mental models; missions alone can be applied, and "
    "are used once it has one."
)


@dataclass(frozen=True, slots=True)
class BankLook:
    """Whether a bank is there, and how it is set up."""

    role: Role
    bank_id: str
    tag: str | None
    exists: bool
    missions: Mapping[str, str]
    near: tuple[str, ...] = ()
    """Where it does not exist: ids of banks that do, and that look like it."""


@dataclass(frozen=True, slots=True)
class TemplatePlan:
    """What applying a template changes."""

    template: str
    bank_id: str
    exists: bool
    missions: Mapping[str, tuple[str | None, str]]
    """Missions that change, each as it is and as it would be."""
    models: tuple[str, ...]
    """Mental models that are made, or set anew."""
    problem: str | None = None
    """Why it cannot be applied as a whole."""


class ManagedBank:
    """The Project Bank or the Life Bank of a caller. Its coroutines run on the gateway's loop."""

    def __init__(
        self, gateway: Gateway, settings: HindsightSettings, bank: ProjectBank | LifeBank
    ) -> None:
        """Ask nothing yet."""
        self._gateway = gateway
        self._settings = settings
        self.bank_id = bank.bank_id
        self.role: Role = "project" if isinstance(bank, ProjectBank) else "life"
        self.tag = bank.tag if isinstance(bank, ProjectBank) else None

    async def look(self) -> BankLook:
        """Whether the bank is there; where it is not, which ones look like it.

        Raises:
            HindsightError: If the server did not say.
        """
        missions = await self.missions()
        near: Sequence[str] = ()
        if missions is None:
            known = await self._gateway.recent_banks()
            near = difflib.get_close_matches(self.bank_id, known, _NEAR, _ALIKE)
        return BankLook(
            self.role, self.bank_id, self.tag, missions is not None, missions or {}, tuple(near)
        )

    async def missions(self) -> dict[str, str] | None:
        """The missions that the bank has; None where there is no such bank.

        Raises:
            HindsightError: If the server did not say.
        """
        config = await self._gateway.bank_config(self.bank_id)
        if config is None:
            return None
        return {name: config[name] for name in MISSIONS if config.get(name)}

    async def set_missions(self, missions: Mapping[str, str]) -> None:
        """Replace missions of the bank, which has to be there.

        Raises:
            HindsightError: If a name is no mission's, or the bank does not exist.
        """
        unknown = sorted(set(missions) - set(MISSIONS))
        if unknown:
            msg = (
                f"{', '.join(unknown)}: no mission has this name; there are {', '.join(MISSIONS)}."
            )
            raise HindsightError(msg)
        await self._must_exist()
        await self._gateway.set_missions(self.bank_id, missions)

    async def models(self) -> list[MentalModel]:
        """The bank's mental models: of a Project Bank, those of this project.

        Raises:
            HindsightError: If the server did not say.
        """
        return [
            one
            for one in await self._gateway.mental_models(self.bank_id)
            if self.tag is None or self.tag in one.tags
        ]

    async def create_model(self, name: str, question: str) -> str:
        """Have Hindsight keep an answer up to date; gives the mental model's id.

        Raises:
            HindsightError: If the bank does not exist or the server has no LLM.
        """
        await self._must_exist()
        await self._must_have_llm()
        created = model_id(name, self.tag)
        if any(one.id == created for one in await self.models()):
            msg = f"There is a mental model {name!r} already ({created}); refresh or delete it."
            raise HindsightError(msg)
        await self._gateway.create_model(
            self.bank_id, id=created, name=name, source_query=question, **trigger_of(self.tag)
        )
        return created

    async def refresh_model(self, model: str) -> None:
        """Have a mental model made anew.

        Raises:
            HindsightError: If there is none of this id, or the server has no LLM.
        """
        await self._must_be_ours(model)
        await self._must_have_llm()
        await self._gateway.refresh_model(self.bank_id, model)

    async def delete_model(self, model: str) -> None:
        """Delete a mental model; memories stay.

        Raises:
            HindsightError: If there is none of this id.
        """
        await self._must_be_ours(model)
        await self._gateway.delete_model(self.bank_id, model)

    async def plan(self, template: Template | None = None, *, models: bool = True) -> TemplatePlan:
        """What applying a template would change; changes nothing.

        Args:
            template: A template; None is that of the bank's role and use.
            models: Whether its mental models are part of it.

        Raises:
            HindsightError: If the server did not say.
        """
        chosen = template or template_of(self.role, self._settings)
        current = await self.missions()
        wanted = missions_of(self.role, self._settings, chosen)
        there = current or {}
        return TemplatePlan(
            template=chosen.name,
            bank_id=self.bank_id,
            exists=current is not None,
            missions={n: (there.get(n), m) for n, m in wanted.items() if there.get(n) != m},
            models=tuple(one.name for one in chosen.models) if models else (),
            problem=NO_LLM if models and not await self._gateway.has_llm(self.bank_id) else None,
        )

    async def apply(self, template: Template | None = None, *, models: bool = True) -> TemplatePlan:
        """Apply a template; gives what was changed.

        Raises:
            HindsightError: If it cannot be applied as a whole, and then nothing was; or the server
                refused it.
        """
        plan = await self.plan(template, models=models)
        if plan.problem:
            raise HindsightError(plan.problem)
        chosen = template or template_of(self.role, self._settings)
        missions = {name: wanted for name, (_, wanted) in plan.missions.items()}
        manifest = chosen.manifest(missions, tag=self.tag, models=models)
        await self._gateway.import_template(self.bank_id, manifest)
        return plan

    async def _must_exist(self) -> None:
        if await self._gateway.bank_config(self.bank_id) is None:
            msg = f"Bank {self.bank_id!r} does not exist yet: nothing has been retained to it."
            raise HindsightError(msg)

    async def _must_have_llm(self) -> None:
        if not await self._gateway.has_llm(self.bank_id):
            raise HindsightError(NO_LLM)

    async def _must_be_ours(self, model: str) -> None:
        if all(one.id != model for one in await self.models()):
            msg = f"There is no mental model {model!r} here."
            raise HindsightError(msg)
