"""The command line: what it says, how it fails, and one small run from beginning to end."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import rld2
from rld2.cli import COMMANDS, data_named
from rld2.presets import PRESETS, by_line


def test_version(cli):
    code, out, _ = cli("--version")
    assert code == 0
    assert re.fullmatch(r"rld2 (\d+\.\d+\.\d+|\(run from its source folder, not installed\))\n", out)


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help_lists_the_commands(cli, arguments: list[str]):
    code, out, err = cli(*arguments)
    assert (code, err) == (0, "")
    assert out.startswith("usage: rld2 COMMAND")
    assert [name for name in COMMANDS if f"\n  {name} " not in out] == []


@pytest.mark.parametrize("command", ["train", "presets", "evaluate", "sample", "compare", "replay", "export"])
def test_every_command_has_help(cli, command: str):
    code, out, _ = cli(command, "--help")
    assert code == 0
    assert f"rld2 {command}" in out


def test_presets_are_listed(cli):
    code, out, _ = cli("presets")
    assert code == 0
    assert [line for line in by_line() if line not in out] == []
    assert out.count("(default)") == 1


def test_a_preset_of_all_atari_games_is_listed_once(cli):
    _, out, _ = cli("presets")
    kinds = {name.split("/")[-1] for name in PRESETS if name.startswith("atari/")}
    assert [kind for kind in kinds if f" atari/GAME/{kind} (57 games) " not in out] == []
    assert out.count("atari/") == len(kinds)
    assert " football/SCENARIO/paper-fkl (9 scenarios) " in out
    assert " football/SCENARIO/kl-10 (2 scenarios) " in out
    assert sum(len(names) for names in by_line().values()) == len(PRESETS)


# Mistakes. Errors of rld2 itself are one line; the parser of flags puts its own into a box.

MISTAKES = {
    "command": (["fly"], r"command must be one of \['train', .*\], got 'fly'"),
    "preset": (
        ["train", "toy/nothing"],
        r"no preset is called 'toy/nothing'; near it: toy/.*; `rld2 presets` lists",
    ),
    "resume nothing": (["train", "--resume"], "--resume needs the folder of a run"),
    "resume no run": (["train", "--resume", "."], r"\. is not a run folder"),
    "evaluate no run": (
        ["evaluate", "."],
        r"\. is not a run folder \(it has no config\.json\); `rld2 train` makes one",
    ),
    "evaluate nowhere": (["evaluate", "nowhere"], "nowhere is not a run folder"),
    "replay no run": (["replay", "nowhere"], "nowhere is not a run folder"),
    "export no run": (["export", "nowhere"], "nowhere is not a run folder"),
    "episodes": (["evaluate", ".", "--episodes", "0"], "--episodes must be 1 or more, got 0"),
    "step cap": (["evaluate", ".", "--step-cap", "0"], "--step-cap must be 1 or more, got 0"),
    "steps": (["evaluate", ".", "--steps", "-1"], "--steps must be 1 or more, got -1"),
    "sample no run": (["sample", "nowhere"], "nowhere is not a run folder"),
    "no sequences": (["sample", ".", "--n", "0"], "--n must be 1 or more, got 0"),
    "no pretrained model": (
        ["train", "dna/synthetic/fkl"],
        "there is no run runs/dna-synthetic-pretrain-1; a design needs",
    ),
    "demo": (["reproduce", "sampling", "--scale", "demo"], r"the scale demo is for \('dna-table'"),
    "fps": (["replay", ".", "--fps", "0"], "--fps must be 1 or more, got 0"),
    "sampler": (["evaluate", ".", "--sampler", "magic"], r"sampler must be one of \['ancestral', .*got 'magic'"),
    "remask": (["evaluate", ".", "--sampler", "remask-x"], r"remask must be one of \['cap', .*got 'x'"),
    "budget": (
        ["train", "toy/bandit/fkl", "--agent.temperature.budget", "9"],
        r"KL budget 9 is not below log M = .* for M = \d+ samples",
    ),
    "minibatches": (["train", "toy/bandit/rkl", "--agent.minibatches", "7"], r"minibatches=7 must divide rollout"),
    "capacity": (["train", "toy/bandit/fkl", "--agent.capacity", "10"], r"replay capacity 10 must hold the prefill"),
    "embedding": (["train", "toy/bandit/rkl", "--agent.policy.embedding", "0"], "embedding must be 1 or more, got 0"),
    "macro of a team": (
        ["train", "toy/agreement-2/rkl", "--domain.macro", "2"],
        r"no macro-actions: domain\.macro must be 1 on toy/agreement-2, got 2",
    ),
    "plan of a team": (
        ["train", "toy/agreement-2/fkl", "--agent.plan", "2"],
        r"agent\.plan must be 1 on toy/agreement-2, got 2",
    ),
    "heads of a team": (
        ["train", "toy/agreement-2/rkl", "--agent.policy.team.heads", "3"],
        r"embedding must be a multiple of team\.heads, got 32 and 3",
    ),
    "module of a zoo": (
        ["train", "toy/agreement-2/rkl", "--domain.name", "pettingzoo/.x"],
        r"a module's name begins with its package, as in 'mpe2\.simple_spread_v3', got '\.x'",
    ),
    "bench of football": (
        ["bench", "--parts", "football", "--football-preset", "toy/bandit/rkl"],
        r"football_preset must be one of football/SCENARIO/KIND .*got 'toy/bandit/rkl'",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(cli, mistake: str, tmp_path: Path):
    arguments, named = MISTAKES[mistake]
    code, out, err = cli(*arguments)
    assert code == 2
    unboxed = [line.strip("│ ") for line in err.splitlines() if not set(line) <= set("╭─╮╰╯│ ")]
    assert any(re.search(named, line) for line in unboxed), err
    assert "Traceback" not in err
    if err.startswith("rld2: error: "):  # ours; a value a config refuses is told by the parser, with its flag
        assert len(err.splitlines()) == 1
        assert out == ""
    assert not (tmp_path / "runs").exists(), "a mistake leaves no run folder behind"


FLAGS = {
    "unknown": (["train", "toy/bandit/rkl", "--nonsense", "3"], "--nonsense"),
    "number": (["train", "toy/bandit/rkl", "--frames", "many"], "Error parsing --frames"),
    "range": (["train", "toy/bandit/rkl", "--frames", "0"], "frames must be 1 or more, got 0"),
    "choice": (["train", "toy/bandit/rkl", "--domain.actions", "some"], "--domain.actions"),
    "nested": (["train", "toy/bandit/rkl", "--domain.discount", "2"], r"discount must be in \[0, 1\], got 2"),
    "kind of flag": (["evaluate"], "RUN|run"),
    "presets takes none": (["presets", "extra"], "extra"),
}


@pytest.mark.parametrize("flag", FLAGS)
def test_a_bad_flag_is_named(cli, flag: str, tmp_path: Path):
    arguments, named = FLAGS[flag]
    code, _, err = cli(*arguments)
    assert code == 2
    assert re.search(named, err)
    assert not (tmp_path / "runs").exists()


# From beginning to end.

SMALL = [
    *("--domain.num-envs=8", "--agent.rollout=4", "--agent.minibatches=2"),
    *("--log-frames=64", "--evaluation-episodes=5"),
]


def test_data_is_short_for_the_path_of_a_stages_data():
    long = "--agent.data.path"
    assert data_named(["dna/hepg2/oracle", "--data", "x"]) == ["dna/hepg2/oracle", long, "x"]
    assert data_named(["--data=x", "--data.other"]) == [f"{long}=x", "--data.other"]


@pytest.mark.parametrize("study", ["dna-table", "dna-steps", "sampling"])
def test_a_plan_is_no_failure(cli, study: str, tmp_path: Path):
    scale = ["--scale", "demo"] if study.startswith("dna") else []
    code, out, err = cli("reproduce", study, "--plan", *scale)
    assert (code, err) == (0, "")
    assert study in out
    assert list(tmp_path.iterdir()) == []


def test_train_evaluate_export_replay(cli, tmp_path: Path):
    folder = tmp_path / "run"
    said = cli("train", "toy/keydoor/rkl", *SMALL, "--frames", "128", "--seeds", "2", "--out", str(folder))
    assert said.code == 0, said.err
    assert "toy/keydoor/rkl" in said.out
    made = {path.name for path in folder.iterdir()}
    assert made >= {"config.json", "log.jsonl", "checkpoints", "evaluation.json", "curve.png", "replay.gif"}
    record = json.loads((folder / "evaluation.json").read_text())
    assert [row["seed"] for row in record["rows"]] == [0, 1, "all", "random play"]
    assert {row["episodes"] for row in record["rows"][:2]} == {5}

    said = cli("train", "toy/keydoor/rkl", "--out", str(folder))
    assert said.code == 2
    assert f"--resume {folder}" in said.err

    said = cli("evaluate", str(folder), "--episodes", "3", "--step-cap", "7", "--sampler", "greedy", "--steps", "2")
    assert said.code == 0, said.err
    record = json.loads((folder / "evaluation.json").read_text())
    assert (record["step_cap"], record["sampler"], record["steps"]) == (7, "greedy", 2)
    assert all(row["mean_length"] <= 7 for row in record["rows"])

    said = cli("evaluate", str(folder), "--episodes", "2", "--out", "new/folder/e.json")
    assert said.code == 0, said.err
    assert json.loads(Path("new/folder/e.json").read_text())["rows"][0]["episodes"] == 2
    for out, named in (("new", "--out must be a file, got the folder new"), ("film/e.json", "File exists: film")):
        Path("film").touch()
        said = cli("evaluate", str(folder), "--out", out)
        assert (said.code, said.out) == (2, ""), "told before anything is played"
        assert named in said.err

    said = cli("evaluate", str(folder), "--best")
    assert said.code == 2
    assert "--best and --file are for runs of sequences" in said.err

    said = cli("export", str(folder), "--index", "1")
    assert said.code == 0, said.err
    policy = rld2.load(folder / "policy.safetensors")
    assert policy.spec.action.nvec == (3, 2, 3, 2)
    assert policy(np.eye(8)).shape == (8, 4)
    assert cli("export", str(folder), "--index", "2").code == 2

    said = cli("replay", str(folder), "--decisions", "2", "--out", str(tmp_path / "film.gif"))
    assert said.code == 0, said.err
    assert (tmp_path / "film.gif").read_bytes().startswith(b"GIF8")

    said = cli("train", "--resume", str(folder), "--frames", "129", "--no-finale")
    assert said.code == 0, said.err
    said = cli("train", "--resume", str(folder), "--seeds", "3")
    assert said.code == 2
    assert "only --frames and --no-finale may be given with it" in said.err
