"""What banks start from."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_hindsight import HindsightSettings
from langchain_hindsight.templates import MISSIONS, TEMPLATES, missions_of, model_id, template_of

every_template = pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES.keys())
every_role = pytest.mark.parametrize("role", ["project", "life"])


@every_role
@pytest.mark.parametrize("use", ["coding", "conversation"])
def test_each_role_and_use_has_a_template(role, use):
    template = template_of(role, HindsightSettings(use=use))
    assert template.name == f"{role}-{use}"
    assert missions_of(role, HindsightSettings(use=use)) == template.missions


@every_template
def test_a_template_has_every_mission_and_some_mental_model(template):
    assert tuple(template.missions) == MISSIONS
    assert all(mission.strip() for mission in template.missions.values())
    assert template.models


@every_template
def test_no_template_has_credentials_kept(template):
    assert "Never keep passwords" in template.missions["retain_mission"]


@every_role
def test_the_configurations_own_words_win_one_by_one(role):
    settings = HindsightSettings(banks={role: {"retain_mission": "Only tea."}})
    found = missions_of(role, settings)
    template = template_of(role, settings)
    assert found == {**template.missions, "retain_mission": "Only tea."}


@every_role
def test_a_blank_mission_leaves_it_to_the_server(role):
    settings = HindsightSettings(banks={role: {"reflect_mission": " "}})
    assert set(missions_of(role, settings)) == {"retain_mission", "observations_mission"}


def test_words_for_one_bank_are_none_for_the_other():
    settings = HindsightSettings(banks={"life": {"retain_mission": "Only tea."}})
    assert missions_of("project", settings) == TEMPLATES["project-coding"].missions


@every_template
def test_a_projects_mental_models_are_held_to_its_memories(template):
    manifest = template.manifest({}, tag="project:billing")
    for model in manifest["mental_models"]:
        assert model["tags"] == ["project:billing"]
        assert model["trigger"]["tags_match"] == "all_strict"
    assert "bank" not in manifest


@every_template
def test_without_mental_models_the_missions_are_left(template):
    manifest = template.manifest(template.missions, tag=None, models=False)
    assert manifest == {"version": "1", "bank": template.missions}


tags = st.one_of(st.none(), st.text(min_size=1).map(lambda one: f"project:{one}"))
names = st.one_of(st.text(min_size=1, max_size=80), st.sampled_from(["a b", "a-b", "A b"]))


@given(names, tags)
def test_a_mental_models_id_is_one_that_hindsight_takes(name, tag):
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", model_id(name, tag))


@given(st.tuples(names, tags), st.tuples(names, tags))
def test_two_mental_models_never_share_an_id(one, other):
    assert (model_id(*one) == model_id(*other)) == (one == other)
