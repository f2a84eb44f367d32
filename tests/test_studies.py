"""Every study at both scales is made of configs that can be built; what a study varies is what its runs differ in."""

import dataclasses
from collections import Counter

import equinox as eqx
import jax
import pytest

from rld2.agents.fkl import FKLConfig
from rld2.agents.rkl import RKLConfig
from rld2.domains.minatar import GAMES
from rld2.domains.registry import make_domain
from rld2.networks.heads import Denoiser
from rld2.networks.layers import num_parameters
from rld2.presets import preset
from rld2.presets.atari import SCALED_HEADS
from rld2.runner.config import TrainConfig, make_agent, vary
from rld2.studies import STUDIES, study
from rld2.studies.scales import SCALES
from rld2.types import ActionSpec
from tests.tiny import tiny


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", STUDIES)
def test_cells_differ_from_each_other(name: str, scale: str):
    cells = STUDIES[name].cells(scale)
    assert len({cell.title for cell in cells}) == len(cells)
    configs = [dataclasses.replace(cell.config, name="") for cell in cells]
    assert len(set(configs)) == len(configs) or name.endswith("-search")  # a draw may be the preset
    suites = {"minatar-table": {"minatar"}, "atari-table": {"atari"}, "teams-table": {"toy", "teams"}}
    suites |= {"dqn-reference": {"minatar"}, "teams-search": {"teams"}}
    suites |= {"football-table": {"football"}, "football-temperature": {"football"}}
    usual = {"minatar" if scale == "two-core" else "atari"}
    assert {cell.config.domain.name.partition("/")[0] for cell in cells} == suites.get(name, usual)


def test_the_table_has_every_method_on_every_game():
    cells = STUDIES["minatar-table"].cells("two-core")
    methods = Counter(cell.method for cell in cells)
    assert len(methods) == 8
    assert set(methods.values()) == {len(GAMES)}
    assert min(cell.config.frames for cell in cells) == 1_000_000


def test_the_sampling_study_evaluates_one_policy_in_eighteen_ways():
    (cell,) = STUDIES["sampling"].cells("two-core")
    assert cell.config.domain.macro == 32
    assert len(set(cell.evaluations)) == 18


def test_every_baseline_is_searched_as_often():
    cells = STUDIES["baseline-search"].cells("two-core")
    runs = Counter(cell.config.name.rpartition("/")[2] for cell in cells)
    assert set(runs.values()) == {36}
    assert set(runs) == {"dqn", "dqn-macro", "impala", "impala-macro", "ppo", "r2d2"}
    teams = Counter(cell.config.name for cell in STUDIES["teams-search"].cells("two-core"))
    numbers = {(name.split("/")[1], number) for name, number in teams.items()}
    assert numbers == {("foraging", 4), ("connector", 12), ("small-warehouse", 5)}
    assert len(teams) == 3 * 6
    # the search begins where it began, whatever it led to
    start = next(cell.config for cell in STUDIES["teams-search"].cells("two-core") if cell.method == "rkl start")
    tuned = preset(start.name)
    assert isinstance(start.agent, RKLConfig)
    assert isinstance(tuned.agent, RKLConfig)
    assert (start.agent.rollout, tuned.agent.rollout) == (32, 16)


def test_returns_span_the_same_time_whatever_the_length():
    configs = [cell.config for cell in STUDIES["macro-length"].cells("two-core")]
    spans = {c.domain.macro * c.agent.n_step for c in configs if isinstance(c.agent, FKLConfig)}
    assert spans == {32}


@pytest.mark.parametrize("scale", SCALES)
def test_a_batch_is_as_large_as_its_name_says(scale: str):
    """Transitions on two cores; at the paper's scale trajectories, four of which are drawn for each inserted."""
    for cell in STUDIES["fkl-vs-rkl"].cells(scale):
        agent, envs, size = cell.config.agent, cell.config.domain.num_envs, int(cell.method.rpartition(" ")[2])
        if isinstance(agent, FKLConfig):
            assert agent.batch_size == size
            assert scale == "two-core" or samples_per_insert(cell.config) == 4
        else:
            assert isinstance(agent, RKLConfig)
            rows = envs * (agent.rollout if scale == "two-core" else 1) // agent.minibatches
            assert rows == size
            assert agent.piece == (32 if scale == "two-core" else 0)


def samples_per_insert(config: TrainConfig) -> float:
    """Sequences drawn for one that was inserted; they begin every half of one."""
    agent = config.agent
    assert isinstance(agent, FKLConfig)
    inserted = config.domain.num_envs * agent.collect_steps / ((agent.unroll + agent.burn_in) // 2)
    return agent.updates * agent.batch_size / inserted


def test_larger_networks_are_not_given_more_samples_of_the_same_data():
    for name in ("scaling", "macro-length", "temperature"):
        for cell in STUDIES[name].cells("paper"):
            if isinstance(cell.config.agent, FKLConfig):
                assert samples_per_insert(cell.config) == 4, cell.title


def test_every_macro_length_is_learned_from_as_often_on_two_cores():
    """As many frames a collection, in the replay, and before the first update; at the paper's scale as it is."""
    configs = [cell.config for cell in STUDIES["macro-length"].cells("two-core")]
    assert {c.domain.num_envs * c.domain.macro for c in configs} == {256}
    forward = [(c.agent, c.domain.macro) for c in configs if isinstance(c.agent, FKLConfig)]
    assert {agent.prefill * macro for agent, macro in forward} == {20_000}
    assert {agent.capacity * macro for agent, macro in forward} == {120_000}
    for config in configs:
        make_agent(config, make_domain(config.domain).spec)
    paper = STUDIES["macro-length"].cells("paper")
    assert {c.config.domain.num_envs for c in paper if isinstance(c.config.agent, FKLConfig)} == {16}


def test_the_scaled_presets_are_the_cells_of_the_study():
    cells = {cell.method: cell.config for cell in STUDIES["scaling"].cells("paper") if "breakout" in cell.config.name}
    for length, heads in SCALED_HEADS.items():
        own = preset(f"atari/breakout/paper-scaled-{length}")
        studied = cells[f"K = {length}, {heads} heads"]
        assert dataclasses.replace(studied, name=own.name) == own


def test_rivals_of_scaled_networks_get_as_many_frames():
    cells = {c.method: c.config.frames for c in STUDIES["scaling"].cells("paper") if "breakout" in c.config.name}
    for length, heads in SCALED_HEADS.items():
        assert cells[f"IMPALA-Macro, K = {length}"] == cells[f"K = {length}, {heads} heads"]


def test_budgets_are_compared_without_a_floor_that_hides_them():
    agents = {c.method: c.config.agent for c in STUDIES["temperature"].cells("two-core")}
    floors = {name: agent.temperature.floor for name, agent in agents.items() if isinstance(agent, FKLConfig)}
    assert floors.pop("exact, budget 0.3, floor 0.1") == 0.1
    assert set(floors.values()) == {0.0}


def test_the_papers_transformer_has_four_hundred_thousand_parameters():
    agent = preset("atari/breakout/paper").agent
    assert isinstance(agent, FKLConfig)
    make = eqx.Partial(Denoiser, jax.random.key(0), ActionSpec((18,) * 4), 512, agent.policy.denoiser, None)
    assert 3.6e5 < num_parameters(eqx.filter_eval_shape(make)) < 4.4e5


def test_the_papers_budgets():
    agents = {cell.method: cell.config.agent for cell in STUDIES["temperature"].cells("paper")}
    cells = {method: agent.temperature for method, agent in agents.items() if isinstance(agent, FKLConfig)}
    falling = cells["dual, budget 1 to 0.1"]
    assert (falling.mode, falling.schedule, falling.budget, falling.final_budget) == ("dual", "linear", 1.0, 0.1)
    assert falling.decay_frames == cells["exact, budget 1 to 0.1"].decay_frames == 10_000_000
    assert {cells[f"dual, budget {b}"].schedule for b in ("0.1", "1")} == {"constant"}


def test_at_the_papers_scale_every_method_has_a_preset_of_it():
    for cell in STUDIES["atari-table"].cells("paper"):
        assert "paper" in cell.config.name or cell.method == "R2D2"
        assert cell.config.evaluation_episodes == 100


def test_vary_reaches_into_records():
    config = vary(tiny(), frames=7, agent__policy__steps=3)
    assert (config.frames, config.agent.policy.steps) == (7, 3)
    assert vary(config, frames=tiny().frames, agent__policy__steps=None) == tiny()


def test_boards_that_differ_much_are_evaluated_more_often():
    episodes = {}
    for cell in STUDIES["teams-table"].cells("two-core"):
        episodes.setdefault(cell.config.domain.name, set()).add(cell.config.evaluation_episodes)
    assert episodes.pop("teams/connector") == {2000}
    assert set.union(*episodes.values()) == {500}


def test_an_unknown_study_is_refused():
    with pytest.raises(ValueError, match=r"study must be one of \['minatar-table', .*\], got 'nonsense'"):
        study("nonsense")
