"""A config survives being written down, and says what is wrong with it."""

import dataclasses
import json
from pathlib import Path

import pytest

from rld2.agents.fkl import FKLConfig
from rld2.agents.policy import PolicyConfig
from rld2.agents.rkl import RKLConfig
from rld2.diffusion.sample import Sampler
from rld2.domains.registry import DomainConfig
from rld2.networks.heads import Backbone
from rld2.presets import DEFAULT, PRESETS, preset
from rld2.runner import run
from rld2.runner.config import TrainConfig, from_json, how_to_act, kind_of, make_agent, to_json
from rld2.types import Replay, Rollout
from tests.tiny import FKL, RKL, tiny

MANY = {"atari": "breakout", "football": "11_vs_11"}  # whose presets are alike: one of each
ONE_GAME = [name for name in PRESETS if MANY.get(name.split("/")[0], name.split("/")[1]) == name.split("/")[1]]
RKL_AS = ("ppo", "mappo", "ippo", "mat", "autoregressive")
SEARCHES = ("best-of-n", "genetic", "cross-entropy")
KINDS = {
    **dict.fromkeys(RKL_AS, "rkl"),
    **dict.fromkeys(("paper", *(f"paper-scaled-{length}" for length in (4, 8, 16)), "kl-0.1", "kl-1", "kl-10"), "fkl"),
    **dict.fromkeys(SEARCHES, "search"),
    "fkl-critic": "fkl",
    "judge": "oracle",
    "classifier": "oracle",
    "drakes-kl": "drakes",
}


@pytest.mark.filterwarnings("ignore:KL budget 10 is not below")  # test_football.py asks for it
@pytest.mark.parametrize("name", ONE_GAME)
def test_presets_survive_a_round_trip(name: str):
    config = preset(name)
    assert config.name == name
    suite, method = name.split("/")[0], name.rpartition("/")[2]
    kind = KINDS.get(method) or KINDS.get(method.removeprefix("paper-")) or method.removeprefix("paper-")
    kind = "pretrain" if kind.startswith("pretrain") else kind.removesuffix("-macro")
    assert kind_of(config.agent) == ("finetune" if suite == "dna" and kind in ("fkl", "rkl") else kind)
    assert from_json(to_json(config)) == config


def test_every_field_survives_a_round_trip():
    sampler = Sampler("remask", remask="loop", eta=0.3)
    policy = PolicyConfig(7, "polynomial", 1.5, sampler, Backbone("mlp", 16), 24, True)
    for agent in (RKLConfig(policy=policy, kl_penalty="fixed"), FKLConfig(policy=policy, critic=Backbone(layers=2))):
        config = TrainConfig("mine", agent=agent, seeds=4, out=Path("some") / "folder", evaluation_step_cap=None)
        again = from_json(to_json(config))
        assert again == config
        assert again.out == Path("some") / "folder"


def test_the_default_preset_exists():
    assert DEFAULT in PRESETS


def test_unknown_preset_names_those_that_are_near():
    with pytest.raises(ValueError, match=r"no preset is called 'bandit'; near it: toy/bandit/fkl, .*toy/bandit/dqn;"):
        preset("bandit")
    with pytest.raises(ValueError, match=r"'chess'; near it: .*; `rld2 presets` lists them all"):
        preset("chess")


@pytest.mark.parametrize("place", [(), ("domain",), ("agent",), ("agent", "policy"), ("agent", "policy", "sampler")])
def test_unknown_fields_are_named(place: tuple[str, ...]):
    record = json.loads(to_json(tiny()))
    inner = record
    for name in place:
        inner = inner[name]
    inner["surprise"] = 1
    with pytest.raises(ValueError, match="has no field called surprise"):
        from_json(json.dumps(record))


def test_a_field_younger_than_the_file_has_its_default():
    record = json.loads(to_json(dataclasses.replace(tiny(), seed=7)))
    for field in ("seed", "overlap"):
        del record[field]
    del record["agent"]["policy"]["torso"]
    assert from_json(json.dumps(record)) == dataclasses.replace(tiny(), seed=0)


def test_unknown_agent_is_named():
    text = to_json(tiny()).replace('"kind": "rkl"', '"kind": "sarsa"')
    with pytest.raises(
        ValueError, match=r"agent kind must be one of \['dqn', .*, 'fkl', 'fkl-then-rkl', .*\], got 'sarsa'"
    ):
        from_json(text)


@pytest.mark.parametrize("name", ["frames", "seeds", "log_frames", "checkpoint_frames", "evaluation_episodes"])
def test_counts_must_be_positive(name: str):
    with pytest.raises(ValueError, match=f"{name} must be 1 or more, got 0"):
        dataclasses.replace(tiny(), **{name: 0})


def test_an_evaluation_step_cap_must_be_positive():
    with pytest.raises(ValueError, match="evaluation_step_cap must be 1 or more, got 0"):
        tiny(evaluation_step_cap=0)


def test_values_of_a_file_are_checked_too():
    record = json.loads(to_json(tiny()))
    record["domain"]["discount"] = 2.0
    with pytest.raises(ValueError, match=r"discount must be in \[0, 1\], got 2.0"):
        from_json(json.dumps(record))


def test_agents_are_made_from_their_configs():
    spec = run.make_domain(tiny().domain).spec
    assert isinstance(make_agent(tiny(FKL), spec).experience, Replay)
    assert isinstance(make_agent(tiny(RKL), spec).experience, Rollout)


@pytest.mark.parametrize("text", ["", "no json", "[]", "{}", '{"agent": {}}', '{"agent": {"kind": "rkl"}}', "null"])
def test_a_damaged_config_file_is_named(text: str, tmp_path: Path):
    (tmp_path / run.CONFIG).write_text(text)
    with pytest.raises(ValueError, match=r"config\.json cannot be read"):
        run.read_config(tmp_path)


def test_a_folder_without_config_is_no_run(tmp_path: Path):
    with pytest.raises(ValueError, match=r"is not a run folder.*`rld2 train` makes one"):
        run.read_config(tmp_path)


def test_run_folders_are_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    config = tiny(name="toy/some")
    assert [run.create(config) for _ in range(3)] == [Path("runs") / f"toy-some-{i}" for i in (1, 2, 3)]
    assert run.read_config(Path("runs") / "toy-some-2") == config


def test_a_seed_means_the_same_run_alone_and_beside_others():
    beside, alone = run.set_up(tiny(seed=2, seeds=3)).keys, run.set_up(tiny(seed=3)).keys
    assert beside.shape == (3,)
    assert (beside[1:2] == alone).all()
    assert not (beside[0] == alone[0]).all()


@pytest.mark.parametrize("kind", ["dqn", "r2d2"])
def test_what_samples_nothing_has_no_sampler(kind: str):
    config = preset(f"minatar/breakout/{kind}")
    assert how_to_act(config).sampler is None
    for sampler, steps in (("top-p", None), (None, 4)):
        with pytest.raises(ValueError, match="plays the action of the greatest value and samples none"):
            how_to_act(config, sampler, steps)


def test_a_planner_takes_one_action_at_a_time():
    with pytest.raises(ValueError, match=r"with agent\.plan 4, domain\.macro must be 1, got 2"):
        tiny(agent=dataclasses.replace(FKL, plan=4), domain=DomainConfig("toy/keydoor", macro=2))
