"""The DNA studies in small: every kind of method on one model and one oracle, and the race against DRAKES."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from rld2.agents.drakes import DrakesConfig
from rld2.agents.finetune import FinetuneConfig
from rld2.agents.oracle import OracleConfig
from rld2.agents.pretrain import PretrainConfig
from rld2.presets import preset
from rld2.report.designs import OURS, OURS_WITH_CRITIC
from rld2.runner.config import TrainConfig
from rld2.runner.designs import best_of, opened
from rld2.runner.reproduce import ReproduceConfig
from rld2.sequences.synthetic import activity
from rld2.studies import dna, dna_cost, dna_races, dna_stages
from rld2.studies.dna_cost import AGAIN, THEIRS, Cost, cost_grid
from rld2.studies.dna_races import RACERS, RIVALS, decided, race_grid
from rld2.studies.dna_stages import SCALES, Scale, stage_config
from rld2.studies.dna_stages import STAGES as STAGE_NAMES

DATA = {"agent__data__number": 600, "agent__data__length": 45}
MODEL = {f"agent__policy__{k}": v for k, v in {"denoiser__width": 8, "denoiser__layers": 2, "steps": 4}.items()}
ORACLE = {"agent__network__filters": 2, "agent__network__channels": 2}
STAGES = {
    "pretrain": {**DATA, **MODEL, "frames": 640},
    "oracle": {**DATA, **ORACLE, "frames": 640},
    "judge": {**DATA, **ORACLE, "frames": 640},
    "design": {"domain__num_envs": 32, "log_frames": 32},
}
TINY = Scale("synthetic", STAGES, calls=64, samples=20, seeds=1, steps=3)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose stages are trained by the first study in it."""
    return tmp_path_factory.mktemp("study")


@pytest.mark.dna
def test_a_table_from_its_stages_to_its_page(study: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(SCALES, "demo", TINY)
    screen = io.StringIO()
    methods = [
        m for m in dna.methods_of_table(TINY) if m.name in ("pretrained", "RL-D2 fkl, budget 2", "cg, strength 1")
    ]
    monkeypatch.setitem(dna.TABLES, "dna-table", lambda _: iter(methods))
    options = ReproduceConfig("dna-table", "demo", out=study, jobs=1, data=study)  # synthetic data ask for no folder
    assert dna.reproduce(options, Console(file=screen, width=200))
    record = json.loads((study / "results.json").read_text())
    calls = {row["method"]: row["reward_calls"] for row in record["results"]}
    fkl = {"RL-D2 fkl, budget 2": 64, "RL-D2 fkl (best seen), budget 2": 64}
    assert calls == {"pretrained": 0, **fkl, "cg, strength 1": 20 * 3}
    best, _ = best_of(opened(study / "runs" / "rl-d2-fkl--budget-2-seed0"), 20)
    true = {row["metric"]: row["value"] for row in record["results"][2]["rows"]}["reward, true (median)"]
    assert true == pytest.approx(float(np.median(activity(best))))
    assert {row["made_by"]["steps"] for row in record["results"]} == {3}
    page = (study / "README.md").read_text()
    assert all(row in page for method in methods for row in method.rows)
    assert (study / "tradeoff.png").is_file()

    log = study / "runs" / "pretrain" / "log.jsonl"
    before = log.read_bytes()
    assert dna.reproduce(options, Console(file=screen, width=200))  # nothing is done twice
    assert log.read_bytes() == before

    lines = (study / "runs" / "rl-d2-fkl--budget-2-seed0" / "log.jsonl").read_text().splitlines()
    assert all("reward_median" in json.loads(line) for line in lines)  # what a race is decided by

    result = study / "results" / "rl-d2-fkl--budget-2-seed0.json"
    changed = json.loads(result.read_text()) | {"made_by": {}}
    result.write_text(json.dumps(changed))
    with pytest.raises(ValueError, match="is of other settings"):
        dna.reproduce(options, Console(file=screen, width=200))


def test_results_without_a_critic_are_not_of_other_settings_when_those_of_critics_change():
    plain, critic = (dna.made_with(dna.Method("m"), preset(f"dna/synthetic/{kind}")) for kind in ("fkl", "fkl-critic"))
    assert "critic" not in plain["agent"]
    assert critic["agent"]["critic"]["budget"] == 0.5


def test_a_frontier_begins_with_the_preset_and_few_particles_ask_for_few_rewards():
    fkl, drakes = (preset(f"dna/synthetic/{kind}").agent for kind in ("fkl", "drakes-kl"))
    assert isinstance(fkl, FinetuneConfig)
    assert isinstance(drakes, DrakesConfig)
    assert (dna.BUDGETS[0], dna.ANCHORS[0]) == (fkl.temperature.budget, drakes.anchor)
    for data in ("synthetic", "hepg2"):
        critic = preset(f"dna/{data}/fkl-critic").agent
        assert isinstance(critic, FinetuneConfig)
        assert critic.critic.budget == dna.STEP_BUDGETS[0]
        assert critic.anchor == 0.0
    demo = SCALES["demo"]
    few = [method.guide for method in dna.methods_of_table(demo) if "few" in method.name]
    for guide in few:
        assert guide is not None
        steps = demo.changes["pretrain"]["agent__policy__steps"]
        assert 0.5 <= demo.samples * guide.reward_calls(steps) / demo.calls <= 2.0
    assert len(few) == 8


def test_a_table_that_is_not_thorough_leaves_out_what_is_weak_or_dear():
    small = [method.name for method in dna.methods_of_table(SCALES["two-core"])]
    every = [method.name for method in dna.methods_of_table(SCALES["demo"])]
    assert set(small) < set(every)
    assert {name.partition(",")[0] for name in every} - {name.partition(",")[0] for name in small} == {"smc", "tds"}
    assert [name for name in small if name.startswith("cg")] == [
        "cg, strength 10",
        "cg, strength 30",
        "cg, strength 100",
    ]


def test_the_folder_of_real_data_reaches_every_stage():
    for stage in STAGE_NAMES:
        agent = stage_config(SCALES["two-core"], stage, Path("study"), Path("data")).agent
        assert isinstance(agent, PretrainConfig | OracleConfig)
        assert agent.data.path == Path("data")


def test_a_stop_in_the_last_moment_of_a_stage_stops_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The stage is done, what follows is not begun."""
    config = stage_config(TINY, "pretrain", tmp_path)
    folder = tmp_path / "runs" / "pretrain"
    folder.mkdir(parents=True)
    monkeypatch.setattr(dna_stages, "train", lambda *_, **__: SimpleNamespace(finished=True, stopped="SIGTERM"))
    with pytest.raises(dna_stages.StoppedError):
        dna_stages.trained(config)
    assert dna_stages.trained(config) == folder


def test_methods_are_shared_out_to_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Stages first, then every method and seed; a stop among the stages begins no method."""
    calls = []

    def note(call, tasks, cores, output, asked, tell):
        calls.append((call, [task[2:] for task in tasks], len(cores)))
        return call is not stopped

    monkeypatch.setattr(dna, "side_by_side", note)
    monkeypatch.setattr(dna.os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    options = ReproduceConfig("dna-table", "demo", jobs=2, seeds=2, only="best-of-n", out=tmp_path)
    stopped = dna.train_stage
    assert not dna.reproduce(options, Console(file=io.StringIO()))
    assert calls == [(dna.train_stage, [("pretrain",), ("oracle",), ("judge",)], 2)]
    stopped = dna.make_result
    assert not dna.reproduce(options, Console(file=io.StringIO()))
    assert calls[2] == (dna.make_result, [("best-of-n", 0), ("best-of-n", 1)], 2)


def test_costs_are_compared_like_for_like():
    """What keeps its activations with what keeps them, what computes them again with what does so too."""
    measured = [Cost(OURS, 8, 10.0, 1.0), Cost(OURS_WITH_CRITIC, 8, 35.0, 1.5), Cost(THEIRS, 8, 70.0, 3.0)]
    measured += [Cost(OURS + AGAIN, 8, 2.0, 0.5), Cost(THEIRS + AGAIN, 8, 3.0, 2.0)]
    rows = [[cell.text for cell in row] for row in cost_grid(measured, "costs").rows]
    assert rows[0] == ["RL-D2 fkl, N = 8", "10", "7.00", "1,000", "3.00"]
    assert rows[1] == ["RL-D2 fkl with critic, N = 8", "35", "2.00", "1,500", "2.00"]
    assert rows[2] == ["DRAKES, N = 8", "70", "1.00", "3,000", "1.00"]
    assert rows[3] == ["RL-D2 fkl, rematerialised, N = 8", "2", "1.50", "500", "4.00"]


def lines(compiling: float, each: float, *rewards: float) -> list[dict]:
    return [
        {"frames": i, "seconds": compiling + each * i, "reward_median": [reward]}
        for i, reward in enumerate(rewards, start=1)
    ]


@pytest.mark.parametrize(("reward", "each", "runs"), [(2.0, 3.1, [1, 1]), (0.5, 3.1, [1, 1, 3]), (0.5, 0.9, [1, 1]),
                                                    (0.5, 99.0, [1, 1, 8])])  # fmt: skip
def test_a_lost_race_is_run_with_as_many_rewards_as_drakes_had_time_for(
    reward: float, each: float, runs: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    designs, names = [], []

    def train(config: TrainConfig) -> Path:
        assert config.out is not None
        assert config.seed == 7
        designs.append(config.frames // 100)
        names.append(config.out.name)
        return config.out

    def read(out: Path) -> list[dict]:
        theirs = "drakes" in out.name
        return lines(0, each if theirs else 1.0, *[9.0 if theirs else reward] * 4)

    monkeypatch.setattr(dna_races, "trained", train)
    monkeypatch.setattr(dna_races, "drawn_reward", lambda *_: 1.0)  # its last model draws less than it learned from
    monkeypatch.setattr(dna_races.log, "read", read)
    ended = dna_races.race(tmp_path, SCALES["demo"], OURS_WITH_CRITIC, "DRAKES with KL", 16, 7, 100)
    assert designs == runs
    assert names[0] == "drakes-kl-n16-seed7"
    assert all(name.startswith("fkl-critic-n16-seed7") for name in names[1:])
    assert (ended.rld2 is None) == (reward < 1.0)
    assert (ended.reward, ended.relaxed) == (1.0, 9.0)


def test_a_race_is_decided_by_the_logs():
    drakes, fkl = lines(30.0, 10.0, 0.0, 5.0, 1.0, 2.0), lines(20.0, 2.0, 1.0, 1.5, 2.5, 3.0)
    won = decided(OURS, "DRAKES", 64, 0, 1.6, drakes, fkl)
    assert won == (OURS, "DRAKES", 64, 0, 1.6, 2.0, 20.0, 40.0, 6.0, 3.0, 8.0)
    assert won.said.endswith("RL-D2 fkl reached it in 6 s: DRAKES took 6.67 times as long.")
    same = decided(OURS, "DRAKES", 64, 0, 2.0, drakes, drakes)
    assert (same.ratio, same.first_ratio) == (2.0, 1.0)  # its run goes on for as long again
    lost = decided(OURS, "DRAKES", 64, 1, 1.6, drakes, fkl[:2])
    assert "did not reach" in lost.said

    def shown(*races: dna_races.Race) -> list[str]:
        (row,) = race_grid(races).rows
        return [cell.text for cell in row]

    assert shown(won, lost, won) == [
        "RL-D2 fkl against DRAKES, N = 64",
        "1.60, 1.60, 1.60",
        "40, 40, 40",
        "20, 20, 20",
        "6, > 4, 6",
        "6.67",
        "3.33",
    ]
    assert shown(won, lost._replace(given=80.0))[-2:] == ["< 0.50", "< 0.25"]


@pytest.mark.dna
def test_costs_and_races_from_their_stages_to_their_page(study: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(SCALES, "demo", TINY)
    monkeypatch.setattr(dna_races, "LINES", 2)
    monkeypatch.setitem(dna_cost.SIZES, "demo", dna_cost.Size(20, 16, 4, 1, (3,), (3,), 64, 1))
    (study / "results.json").unlink(missing_ok=True)  # of the other study in this folder, for its stages
    assert dna.reproduce(ReproduceConfig("dna-cost", "demo", out=study), Console(file=io.StringIO(), width=200))
    record = json.loads((study / "results.json").read_text())
    methods = (OURS, OURS_WITH_CRITIC, THEIRS)
    assert [cost["method"] for cost in record["costs"]] == [*methods, *(method + AGAIN for method in methods)]
    ran = [(race["rival"], race["racer"], race["seed"]) for race in record["races"]]
    assert ran == [(rival, racer, 0) for rival in RIVALS for racer in RACERS]
    page = (study / "README.md").read_text()
    assert all(
        title in page for title in ("| RL-D2 fkl, N = 3 |", "| RL-D2 fkl with critic against DRAKES with KL, N = 3 |")
    )

    monkeypatch.setattr(dna_cost, "costs", None)  # nothing is measured twice
    options = ReproduceConfig("dna-cost", "demo", out=study, only="critic against drakes with")
    assert dna.reproduce(options, Console(file=io.StringIO(), width=200))
    assert json.loads((study / "results.json").read_text()) == record


def test_races_that_nobody_knows_are_refused_with_the_names_of_all(tmp_path: Path):
    with pytest.raises(ValueError, match=r"'smc' fits no race of dna-cost; they are .*RL-D2 fkl against DRAKES, N = 8"):
        dna.reproduce(ReproduceConfig("dna-cost", "demo", out=tmp_path, only="smc"), Console(file=io.StringIO()))


def test_costs_of_other_sizes_machines_or_versions_are_kept_apart(tmp_path: Path):
    size, cost = dna_cost.SIZES["demo"], Cost(OURS, 8, 1.0, 1.0)
    raced = dna_races.Race(OURS, "DRAKES", 8, 0, 1.0, 1.0, 2.0, 3.0, 1.0, 2.0, 4.0)
    dna_cost.write_page(tmp_path, "demo", size, [cost, cost._replace(method=THEIRS)], [raced])
    assert dna_cost.earlier(tmp_path, size)[0][0] == cost
    assert dna_cost.earlier(tmp_path, size)[1] == {(raced.title, 0): raced}
    assert dna_cost.earlier(tmp_path, size._replace(races=(8,)))[0][0] == cost
    assert dna_cost.earlier(tmp_path / "nothing", size) == ([], {})
    with pytest.raises(ValueError, match=r"was measured on another machine .*; move it away, or choose another --out"):
        dna_cost.earlier(tmp_path, size._replace(batch=7))
    path = tmp_path / "results.json"
    record = json.loads(path.read_text())
    for change in ({"machine": {}}, {"races": [{"rival": "DRAKES"}]}):
        path.write_text(json.dumps(record | change))
        with pytest.raises(ValueError, match="was measured on another machine"):
            dna_cost.earlier(tmp_path, size)
