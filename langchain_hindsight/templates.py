"""What each bank is for, as Hindsight is told it: missions, and the starter templates around them.

A mission is an instruction in plain words. The missions of a bank that is created here come from
the template of its role and use, unless the configuration words them itself; a bank that exists
already keeps what it has. Mental models are applied only on request.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from langchain_hindsight.settings import HindsightSettings

Role = Literal["project", "life"]

MISSIONS = ("retain_mission", "observations_mission", "reflect_mission")
"""Names of a bank's missions, as Hindsight's bank configuration and this package's write them."""

_MODEL_TOKENS = 512
"""Most tokens of one mental model's text: a page that is read on many turns."""
_SLUG_CHARS = 40


@dataclass(frozen=True, slots=True)
class ModelSeed:
    """A mental model of a template: a question whose answer Hindsight keeps up to date."""

    id: str
    name: str
    source_query: str


@dataclass(frozen=True, slots=True)
class Template:
    """What a bank starts from."""

    name: str
    about: str
    missions: Mapping[str, str]
    models: tuple[ModelSeed, ...]

    def manifest(
        self, missions: Mapping[str, str], *, tag: str | None, models: bool = True
    ) -> dict[str, Any]:
        """The template as Hindsight imports it.

        Args:
            missions: The missions to set; empty leaves the bank's own.
            tag: The project's tag, which holds its mental models to its memories and gives them
                ids of their own in a bank that projects share.
            models: Whether mental models are part of it.
        """
        manifest: dict[str, Any] = {"version": "1"}
        if missions:
            manifest["bank"] = dict(missions)
        if models:
            manifest["mental_models"] = [
                {
                    "id": model_id(one.id, tag),
                    "name": one.name,
                    "source_query": one.source_query,
                    "max_tokens": _MODEL_TOKENS,
                    **trigger_of(tag),
                }
                for one in self.models
            ]
        return manifest


def trigger_of(tag: str | None) -> dict[str, Any]:
    """When a mental model is made anew, and from which memories: strictly those of its project."""
    trigger: dict[str, Any] = {"mode": "delta", "refresh_after_consolidation": True}
    if tag is None:
        return {"trigger": trigger}
    return {"tags": [tag], "trigger": trigger | {"tags_match": "all_strict"}}


def model_id(name: str, tag: str | None) -> str:
    """A mental model's id: lowercase words, and a mark of the project that it belongs to.

    The mark is a hash of the tag, so that no two projects of a bank share a model.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")[:_SLUG_CHARS].strip("-")
    marked = f"{name}\0{tag}" if tag is not None or slug != name else None
    if marked is None:
        return slug
    digest = hashlib.sha256(marked.encode()).hexdigest()[:10]
    return f"{slug or 'model'}-{digest}"


def template_of(role: Role, settings: HindsightSettings) -> Template:
    """The template of a role for what the agent is used for."""
    return TEMPLATES[f"{role}-{settings.use}"]


def missions_of(
    role: Role, settings: HindsightSettings, template: Template | None = None
) -> dict[str, str]:
    """A bank's missions: the configuration's own words, else the template's; blank leaves one out.

    Args:
        role: Which bank.
        settings: The whole configuration.
        template: The template; None is that of the role and use.
    """
    bank = settings.banks.project if role == "project" else settings.banks.life
    worded = {
        "retain_mission": bank.retain_mission,
        "observations_mission": bank.observations_mission,
        "reflect_mission": bank.reflect_mission,
    }
    start = (template or template_of(role, settings)).missions
    chosen = {name: start[name] if own is None else own for name, own in worded.items()}
    return {name: mission for name, mission in chosen.items() if mission.strip()}


_PROJECT_CODING = Template(
    name="project-coding",
    about="Project Bank of an agent that works on software.",
    missions={
        "retain_mission": (
            "Keep what somebody who joins this software project next month would need. Keep: "
            "decisions and the reasons for them, also what was rejected and why; architecture and "
            "how the parts depend on each other; conventions for code, names, branches, reviews "
            "and releases; constraints such as versions, platforms, limits, licenses and "
            "deadlines; commands, paths and settings that were found to work; errors with their "
            "cause and the fix that held. Say what each is about by its full name: the service, "
            "module, file or person, never 'it' or 'this'. Keep the settled state rather than the "
            "way to it: where something was proposed and then decided, keep the decision; what is "
            "still open is kept as open. Leave out greetings, thanks and small talk, narration of "
            "steps that led nowhere, guesses that were not confirmed, code that the repository "
            "holds anyway, and what is personal to somebody. Never keep passwords, keys, tokens "
            "or other credentials, not even in part."
        ),
        "observations_mission": (
            "Observe what holds of this project over time: how a decision changed and which one "
            "stands now, conventions that show in several places, errors that come back and what "
            "they have in common, constraints that keep shaping the work, who is responsible for "
            "what. When newer facts contradict older ones, say what holds now and since when. Do "
            "not generalize from a single event, and observe nothing about anybody's character."
        ),
        "reflect_mission": (
            "You know the history of this software project. Answer as a careful senior engineer "
            "would for a colleague: what is decided, why, and what is still open. Prefer the "
            "newest settled decision over older ones and over proposals, and name the date where "
            "it matters. Where memories disagree or do not say, say so plainly instead of filling "
            "the gap."
        ),
    },
    models=(
        ModelSeed(
            "decisions",
            "Decisions in force",
            "Which decisions about architecture, tools and processes are in force now, and what "
            "was the reason for each? Leave out what has been replaced.",
        ),
        ModelSeed(
            "conventions",
            "Conventions and constraints",
            "Which conventions and constraints must any change to this project respect?",
        ),
        ModelSeed(
            "pitfalls",
            "Errors and their fixes",
            "Which errors and pitfalls have come up in this project, what caused each, and which "
            "fix held?",
        ),
    ),
)

_PROJECT_CONVERSATION = Template(
    name="project-conversation",
    about="Project Bank of an agent that people talk to about a shared matter.",
    missions={
        "retain_mission": (
            "Keep what the next conversation about this matter should start from. Keep: what was "
            "decided or agreed, by whom and why; facts that were established, with names, dates, "
            "numbers and places in full; plans and the steps promised, with who promised them and "
            "by when; constraints and conditions; problems that came up and what solved them; "
            "questions that are still open. Say whom and what each is about, never 'it' or 'they'. "
            "Keep the settled state rather than the discussion that led to it. Leave out "
            "greetings, thanks and small talk, what the assistant only suggested and nobody took "
            "up, and general knowledge. Never keep passwords, keys, tokens, card numbers or other "
            "credentials, not even in part."
        ),
        "observations_mission": (
            "Observe how this matter develops: what stands now after it changed, which questions "
            "keep coming back, which promises are kept or still open, what several conversations "
            "agree on. When newer facts contradict older ones, say what holds now and since when. "
            "Do not generalize from a single remark."
        ),
        "reflect_mission": (
            "You know what has been said about this matter. Answer from it plainly and shortly: "
            "what is settled, what is promised and by when, what is open. Prefer the newest "
            "settled state, and say so where memories disagree or do not tell."
        ),
    },
    models=(
        ModelSeed(
            "state",
            "Where things stand",
            "What is decided or agreed now, and what is still open?",
        ),
        ModelSeed(
            "promises",
            "Promises and dates",
            "Which steps have been promised, by whom and by when, and which are done?",
        ),
    ),
)

_LIFE_OBSERVATIONS = (
    "Observe what stays true of this person across time and projects: preferences that several "
    "facts support, habits and the situations in which they show, and what has changed. When a "
    "newer statement contradicts an older one, the newer one holds. Never infer health, beliefs, "
    "origin or other sensitive matters that the person has not stated themselves, and never judge."
)

_LIFE_CODING = Template(
    name="life-coding",
    about="Life Bank of a person who works on software with an agent.",
    missions={
        "retain_mission": (
            "Keep what stays true of this person in every project. Keep: durable preferences for "
            "how they want answers, code, reviews and explanations; tools, languages and settings "
            "that they favor; recurring workflows and habits; standing instructions and things "
            "never to do; commitments that reach beyond one project. Word each as a sentence about "
            "the person that makes sense without the conversation. Leave out everything about a "
            "particular repository or task: its architecture, decisions, files, names and errors; "
            "also moods, one-time wishes and small talk. Never keep passwords, keys, tokens or "
            "other credentials."
        ),
        "observations_mission": _LIFE_OBSERVATIONS,
        "reflect_mission": (
            "You know how this person likes to work. Answer what they would want, from what they "
            "said themselves; a newer statement outweighs an older one. Say so where nothing is "
            "known of it, and never extend one preference to another matter."
        ),
    },
    models=(
        ModelSeed(
            "working-style",
            "How this person works",
            "Which preferences, habits and standing instructions of this person should shape how "
            "an agent works and answers in any project?",
        ),
    ),
)

_LIFE_CONVERSATION = Template(
    name="life-conversation",
    about="Life Bank of a person who talks with an assistant.",
    missions={
        "retain_mission": (
            "Keep what stays true of this person in every conversation. Keep: durable preferences "
            "such as language, tone and length of answers; what they like, avoid or need; "
            "recurring plans, routines and habits; the people and things that matter to them, as "
            "far as they want it remembered; commitments and standing instructions, with dates in "
            "full. Word each as a sentence about the person that makes sense without the "
            "conversation. Leave out moods, one-time wishes, small talk, general knowledge, what "
            "belongs to a single piece of work or a code repository, and what others said of "
            "them. Never keep passwords, keys, tokens, card numbers or other credentials."
        ),
        "observations_mission": _LIFE_OBSERVATIONS,
        "reflect_mission": (
            "You know this person from what they chose to have remembered. Answer kindly and "
            "plainly from that alone; a newer statement outweighs an older one. Say so where "
            "nothing is known of it, and draw no conclusions about sensitive matters."
        ),
    },
    models=(
        ModelSeed(
            "about",
            "What this person prefers",
            "Which preferences, routines, commitments and standing instructions of this person "
            "should an assistant know in every conversation?",
        ),
    ),
)

TEMPLATES: Mapping[str, Template] = {
    one.name: one
    for one in (_PROJECT_CODING, _PROJECT_CONVERSATION, _LIFE_CODING, _LIFE_CONVERSATION)
}
"""The bundled starter templates, by name."""
