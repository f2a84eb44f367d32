"""Every study at both scales is made of configs that can be built; what a study varies is what its runs differ in."""

import dataclasses
from collections import Counter

import pytest

from rld2.agents.fkl import FKLConfig
from rld2.domains.minatar import GAMES
from rld2.studies import STUDIES, study
from rld2.studies.scales import SCALES, vary
from tests.tiny import tiny


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", STUDIES)
def test_cells_differ_from_each_other(name: str, scale: str):
    cells = STUDIES[name].cells(scale)
    assert len({cell.title for cell in cells}) == len(cells)
    configs = [dataclasses.replace(cell.config, name="") for cell in cells]
    assert len(set(configs)) == len(configs) or name == "baseline-search"  # there, draws may repeat
    suites = {"minatar-table": {"minatar"}, "atari-table": {"atari"}, "teams-table": {"toy", "teams"}}
    suites |= {"football-table": {"football"}, "football-temperature": {"football"}}
    usual = {"minatar" if scale == "two-core" else "atari"}
    assert {cell.config.domain.name.partition("/")[0] for cell in cells} == suites.get(name, usual)


def test_the_table_has_every_method_on_every_game():
    cells = STUDIES["minatar-table"].cells("two-core")
    methods = Counter(cell.method for cell in cells)
    assert len(methods) == 9
    assert set(methods.values()) == {len(GAMES)}
    assert min(cell.config.frames for cell in cells) == 1_000_000


def test_the_sampling_study_evaluates_one_policy_in_eighteen_ways():
    (cell,) = STUDIES["sampling"].cells("two-core")
    assert cell.config.domain.macro == 32
    assert len(set(cell.evaluations)) == 18


def test_every_baseline_is_searched_as_often():
    cells = STUDIES["baseline-search"].cells("two-core")
    runs = Counter(cell.config.name.rpartition("/")[2] for cell in cells)
    assert set(runs.values()) == {26}
    assert set(runs) == {"dqn", "dqn-macro", "impala", "impala-macro", "ppo", "r2d2"}


def test_returns_span_the_same_time_whatever_the_length():
    configs = [cell.config for cell in STUDIES["macro-length"].cells("two-core")]
    spans = {c.domain.macro * c.agent.n_step for c in configs if isinstance(c.agent, FKLConfig)}
    assert spans == {32}


def test_vary_reaches_into_records():
    config = vary(tiny(), frames=7, agent__policy__steps=3)
    assert (config.frames, config.agent.policy.steps) == (7, 3)
    assert vary(config, frames=tiny().frames, agent__policy__steps=None) == tiny()


def test_an_unknown_study_is_refused():
    with pytest.raises(ValueError, match=r"study must be one of \['minatar-table', .*\], got 'nonsense'"):
        study("nonsense")
