"""Agents of two frameworks with three tools that must run once, killed with SIGKILL at random moments until done."""

import pytest

from tests.adapters.killing import trials
from tests.conftest import ALL

PROGRAMS = [f"tests.adapters.{framework}.killed_shop" for framework in ("openai_agents", "pydantic_ai")]
ONCE = {"charge": 1, "ship": 1, "mail": 1}


@pytest.mark.parametrize("mode", ["quiet", "noisy"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_effect_happens_once_however_often_the_process_is_killed(program, mode):
    found = trials(program, mode, seed=7, count=40 if ALL else 4, kills=4)
    for one in found:
        assert {name: one.get(name) for name in ONCE} == ONCE, one
        assert 3 <= one["model"] <= 3 + one["killed"], one  # the model is asked again only if its reply was not saved
    assert sum(one["killed"] for one in found) >= len(found)


@pytest.mark.parametrize("program", PROGRAMS)
def test_without_the_adapter_effects_are_repeated(program):
    found = trials(program, "control", seed=7, count=40 if ALL else 4, kills=4)
    assert any(one.get(name, 0) > 1 for one in found for name in ONCE), found
