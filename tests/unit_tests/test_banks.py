"""Which bank follows from who is asking."""

from enum import Enum
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_hindsight import (
    BankResolutionError,
    ConfigurationError,
    HindsightSettings,
    LifeBankDisabledError,
)
from langchain_hindsight.banks import (
    MAX_ID_BYTES,
    BankPolicy,
    LifeBank,
    ProjectBank,
    life_tag_groups,
    project_tag_groups,
)


def policy(**settings):
    settings.setdefault("scope", {"project_id": "billing-api"})
    return BankPolicy(HindsightSettings(**settings), identify_project=lambda: "from-the-folder")


def with_project(bank_id, **scope):
    return policy(
        banks={"project": {"bank_id": bank_id}}, scope={"project_id": "billing-api", **scope}
    )


def with_life(bank_id, **more):
    return policy(
        banks={"project": {"bank_id": "coding"}, "life": {"bank_id": bank_id, **more}},
    )


def test_a_literal_id_is_the_bank():
    assert with_project("acme-coding").project({}) == ProjectBank("acme-coding", "billing-api")


def test_the_tag_names_the_project():
    assert with_project("acme-coding").project({}).tag == "project:billing-api"


def test_without_a_pinned_project_id_the_project_is_looked_up_once():
    asked = []

    def look():
        asked.append(1)
        return "found"

    settings = HindsightSettings(banks={"project": {"bank_id": "coding"}})
    banks = BankPolicy(settings, identify_project=look)
    assert [banks.project({}).project_id, banks.project({}).project_id] == ["found", "found"]
    assert len(asked) == 1


def test_a_shared_project_bank_without_an_id_is_a_configuration_error_that_says_what_to_set():
    with pytest.raises(ConfigurationError, match="HINDSIGHT_BANKS__PROJECT__BANK_ID"):
        policy()


def test_an_isolated_bank_derives_its_id_from_the_project():
    banks = policy(scope={"mode": "isolated-bank", "project_id": "billing-api"})
    assert banks.project({}).bank_id == "project-billing-api"


def test_an_isolated_bank_is_still_recalled_under_its_tag():
    banks = policy(scope={"mode": "isolated-bank", "project_id": "billing-api"})
    bank = banks.project({})
    assert project_tag_groups(bank, HindsightSettings()) == [
        {"tags": ["project:billing-api"], "match": "any_strict"}
    ]


def test_shared_memories_join_only_when_asked_for():
    settings = HindsightSettings(scope={"include_shared": True, "legacy_tags": ["old:billing"]})
    bank = ProjectBank("coding", "billing-api")
    assert project_tag_groups(bank, settings) == [
        {
            "or": [
                {"tags": ["project:billing-api", "old:billing"], "match": "any_strict"},
                {"tags": [], "match": "exact"},
            ]
        }
    ]


def test_the_life_bank_is_held_by_its_bank_alone_unless_tags_narrow_it():
    assert life_tag_groups(LifeBank("life")) is None
    assert life_tag_groups(LifeBank("life", ("work",))) == [
        {"tags": ["work"], "match": "any_strict"}
    ]


@pytest.mark.parametrize(
    "bank_id", ["", "   ", "a/b", ".", "..", "x" * (MAX_ID_BYTES + 1), "я" * 97, "a\nb", "a\u202eb"]
)
@pytest.mark.parametrize("which", ["project", "life"])
def test_a_literal_id_that_hindsight_would_not_take_is_refused_by_name(bank_id, which):
    build = with_project if which == "project" else with_life
    with pytest.raises(ConfigurationError, match=f"banks\\.{which}\\.bank_id"):
        build(bank_id)


@pytest.mark.parametrize("bank_id", ["мой проект", "a%2Fb", "a?b#c", "команда:1", "x" * 192])
def test_an_odd_literal_id_that_hindsight_takes_stays_as_it_is(bank_id):
    assert with_project(bank_id).project({}).bank_id == bank_id


@pytest.mark.parametrize(
    "template", ["life-{user_id", "life-{}", "{0}", "{a.b}", "{a[0]}", "{a!r}", "{a:>9}"]
)
def test_a_template_that_can_never_work_is_refused(template):
    with pytest.raises(ConfigurationError, match=r"banks\.life\.bank_id"):
        with_life(template)


@pytest.mark.parametrize("template", ["life-{{user_id}}", "{{ user_id }}", "{a}-{{b}}", "{{{a}}}"])
def test_a_field_in_doubled_braces_is_refused_and_never_one_id_for_everybody(template):
    for build in (
        with_life,
        with_project,
        lambda project_id: with_project("coding", project_id=project_id),
    ):
        with pytest.raises(ConfigurationError, match="doubles its braces"):
            build(template)


def test_doubled_braces_around_no_field_are_literal_ones():
    assert with_project("a{{b-c}}").project({}).bank_id == "a{b-c}"


@pytest.mark.parametrize("value", [None, "", "  \t", True, False, 1.5, ["u"], {"id": "u"}, b"u"])
def test_a_missing_blank_or_composite_value_is_no_bank(value):
    with pytest.raises(BankResolutionError, match="user_id"):
        with_life("life-{user_id}").life({"user_id": value})


def test_a_number_that_is_too_long_to_be_written_is_no_bank():
    with pytest.raises(BankResolutionError, match="user_id"):
        with_life("life-{user_id}").life({"user_id": 10**5000})


def test_no_value_at_all_is_no_bank():
    with pytest.raises(BankResolutionError, match=r'config\["configurable"\]\["user_id"\]'):
        with_life("life-{user_id}").life({})


class Team(Enum):
    BLUE = "blue"


@pytest.mark.parametrize(
    ("value", "bank_id"),
    [
        (42, "life-42"),
        ("anna", "life-anna"),
        ("анна", "life-анна"),
        (UUID(int=7), "life-00000000-0000-0000-0000-000000000007"),
        (Team.BLUE, "life-blue"),
    ],
)
def test_a_plain_value_is_used_as_it_is(value, bank_id):
    assert with_life("life-{user_id}").life({"user_id": value}).bank_id == bank_id


@pytest.mark.parametrize("value", ["a/b", "..", "x" * 400, "a\nb", " anna", "u~" + "0" * 32])
def test_a_value_that_cannot_be_used_as_it_is_gets_an_id_of_its_own(value):
    banks = with_life("{user_id}")
    derived = banks.life({"user_id": value}).bank_id
    assert derived != value
    assert len(derived.encode()) <= MAX_ID_BYTES
    assert "/" not in derived


def test_two_values_that_fill_two_placeholders_alike_do_not_meet():
    banks = with_life("{a}-{b}")
    one = banks.life({"a": "x-y", "b": "z"}).bank_id
    other = banks.life({"a": "x", "b": "y-z"}).bank_id
    assert one != other


def test_a_value_that_imitates_a_derived_id_does_not_meet_it():
    banks = with_life("{user_id}")
    derived = banks.life({"user_id": "a/b"}).bank_id
    assert banks.life({"user_id": derived}).bank_id != derived


@pytest.mark.parametrize(
    ("project_id", "hashed"),
    [
        ("{a}", {"a": "team/" + "a" * 250}),
        (lambda values: values["a"], {"a": "ac\nme"}),
        ("{a}~{b}", {"a": "~", "b": "z"}),
    ],
)
def test_a_project_id_that_imitates_a_derived_one_does_not_meet_it(project_id, hashed):
    banks = with_project("coding", project_id=project_id)
    derived = banks.project(hashed)
    head, _, tail = derived.project_id.rpartition("~")
    imitation = {"a": head, "b": tail} if "b" in hashed else {"a": derived.project_id}
    assert banks.project(imitation).project_id != derived.project_id


scalars = st.one_of(
    st.integers(),
    st.text(min_size=1, max_size=300).filter(str.strip),
    st.sampled_from(["a-b", "a"]),
)


@given(st.tuples(scalars, scalars), st.tuples(scalars, scalars))
@pytest.mark.parametrize("template", ["{a}{b}", "{a}-{b}", "x{b}:{a}", "{a}_{b}", "{a}~{b}"])
def test_two_callers_never_meet_in_one_bank(template, one, other):
    banks = with_life(template)

    def bank_of(values):
        return banks.life(dict(zip("ab", values, strict=True))).bank_id

    same = tuple(map(str, one)) == tuple(map(str, other))
    assert (bank_of(one) == bank_of(other)) == same


@given(st.tuples(scalars, scalars), st.tuples(scalars, scalars))
@pytest.mark.parametrize("template", ["{a}{b}", "{a}-{b}", "{a}~{b}", "{a}/{b}"])
def test_two_callers_never_meet_under_one_tag(template, one, other):
    banks = with_project("coding", project_id=template)

    def tag_of(values):
        return banks.project(dict(zip("ab", values, strict=True))).tag

    same = tuple(map(str, one)) == tuple(map(str, other))
    assert (tag_of(one) == tag_of(other)) == same


@given(st.text(min_size=1, max_size=400).filter(str.strip))
@pytest.mark.parametrize("template", ["{u}", "life-{u}", "~{u}", "bank~{u}", "{u}~0"])
def test_every_derived_id_is_one_that_hindsight_takes(template, value):
    bank_id = with_life(template).life({"u": value}).bank_id
    assert bank_id.strip()
    assert "/" not in bank_id
    assert bank_id not in {".", ".."}
    assert len(bank_id.encode()) <= MAX_ID_BYTES


@given(scalars, scalars)
@pytest.mark.parametrize(
    ("project", "life"),
    [
        ("coding", "{user}"),
        ("{tenant}", "{user}"),
        ("{tenant}", "life-{user}"),
        ("{tenant}-{a}", "x-{user}"),
        (None, "{user}"),
        (None, "project-{user}"),
    ],
)
def test_no_callers_life_bank_is_anothers_project_bank(project, life, tenant, user):
    banks = policy(
        banks={"project": {"bank_id": project}, "life": {"bank_id": life}},
        scope={"project_id": "{tenant}", "mode": "isolated-bank"},
    )
    values = {"tenant": tenant, "a": user, "user": user}
    for other in (values, values | {"user": tenant}, values | {"user": f"project-{tenant}"}):
        assert banks.life(other).bank_id != banks.project(values).bank_id


def test_a_person_named_like_the_project_bank_gets_a_life_bank_all_the_same():
    banks = policy(banks={"project": {"bank_id": "coding"}, "life": {"bank_id": "{user}"}})
    assert banks.life({"user": "coding"}).bank_id.startswith("coding~")
    assert banks.life({"user": "anna"}).bank_id == "anna"


@pytest.mark.parametrize(
    "project",
    ["acme", "acme-{tenant}", "{tenant}", "life-{tenant}", "{tenant}-coding", "life-{user_id}"],
)
def test_a_persons_life_bank_is_the_same_beside_whatever_project_bank(project):
    banks = policy(
        banks={"project": {"bank_id": project}, "life": {"bank_id": "life-{user_id}"}},
    )
    caller = {"tenant": "life-5", "user_id": "5"}
    assert banks.life(caller).bank_id == "life-5"
    assert banks.project(caller).bank_id != "life-5"


@given(tenant=st.text(min_size=1, max_size=8).filter(str.strip))
def test_a_project_that_is_nobodys_life_bank_keeps_its_plain_id_when_life_is_switched_on(tenant):
    def project(**life):
        banks = policy(banks={"project": {"bank_id": "coding-{tenant}"}, **life})
        return banks.project({"tenant": tenant})

    assert project() == project(life={"bank_id": "life-{user_id}"})


def test_a_life_bank_that_no_project_can_have_keeps_its_plain_id():
    banks = policy(banks={"project": {"bank_id": "coding-{t}"}, "life": {"bank_id": "life-{u}"}})
    assert banks.life({"u": "anna"}).bank_id == "life-anna"


@pytest.mark.parametrize(
    "odd", ["acme\x1b", "acme\x7f", "ac\0me", "ac\ud800me", "acme\u200b", "acme" * 5000]
)
def test_a_project_id_that_the_server_would_tidy_into_anothers_is_one_of_its_own(odd):
    banks = policy(banks={"project": {"bank_id": "coding"}}, scope={"project_id": lambda v: v["t"]})
    template = policy(banks={"project": {"bank_id": "coding"}}, scope={"project_id": "{t}"})
    for one in (banks, template):
        tag = one.project({"t": odd}).tag
        assert tag.isprintable()
        assert tag != "project:acme"
        assert len(tag.encode()) <= 300  # what the server was seen to take


def test_a_function_decides_from_the_callers_values():
    banks = with_life(lambda values: f"life-{values['user_id']}")
    assert banks.life({"user_id": "anna"}).bank_id == "life-anna"


@pytest.mark.parametrize("function", [lambda v: v["user_id"], lambda _: None, lambda _: " "])
def test_a_function_without_an_answer_is_no_bank(function):
    with pytest.raises(BankResolutionError, match=r"banks\.life\.bank_id"):
        with_life(function).life({})


def test_a_project_id_may_depend_on_the_caller():
    banks = policy(banks={"project": {"bank_id": "coding"}}, scope={"project_id": "{repository}"})
    assert banks.project({"repository": "owner/name"}).tag == "project:owner/name"
    with pytest.raises(BankResolutionError, match="repository"):
        banks.project({})


@pytest.mark.parametrize(
    ("project", "life"), [({}, {}), ({"enabled": False}, {}), ({}, {"enabled": False})]
)
def test_one_bank_for_both_is_refused_exactly_where_both_take_part(project, life):
    banks = {"project": {"bank_id": "b", **project}, "life": {"bank_id": "b", **life}}
    if project or life:
        assert policy(banks=banks)
        return
    with pytest.raises(ConfigurationError, match=r"banks\.life\.bank_id = 'b' is the Project"):
        policy(banks=banks)


def test_no_life_bank_is_said_plainly():
    with pytest.raises(LifeBankDisabledError, match="life_bank"):
        with_project("coding").life({"user_id": "anna"})


@pytest.mark.parametrize("profile", ["project-only"])
def test_a_profile_set_by_hand_leaves_the_life_bank_out(profile):
    banks = policy(
        profile=profile,
        banks={"project": {"bank_id": "coding"}, "life": {"bank_id": "life"}},
    )
    assert not banks.has_life
