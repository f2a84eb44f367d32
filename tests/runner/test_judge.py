"""What `rld2 evaluate` and `rld2 compare` say of sequences: every seed, files, and what was paid for but once."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import rld2
from rld2.report.tables import over_seeds
from rld2.runner import judge, log
from rld2.runner.chosen import Chosen
from rld2.runner.designs import draw, opened
from rld2.sequences.files import read, write_fasta
from tests.runner.stages import Stages, design

pytestmark = pytest.mark.dna


def share_of_g(sequences: Any) -> list[float]:
    return [sequence.count("G") / len(sequence) for sequence in sequences]


def values(rows: list[dict[str, Any]]) -> dict[str, float]:
    return {row["metric"]: row["value"] for row in rows}


def test_a_file_is_judged_as_the_sequences_of_the_run_are(cli, stages: Stages, tmp_path: Path):
    folder = rld2.train(design(stages, "fkl", tmp_path)).folder
    source = opened(folder)
    tokens = draw(source, 20, 7)
    write_fasta(tmp_path / "own.fasta", source.vocabulary.decode(tokens), [str(i) for i in range(20)])
    code, said, _ = cli("evaluate", folder, "--file", tmp_path / "own.fasta")
    assert code == 0
    assert "own.fasta" in said
    assert "reward calls" not in said  # nobody knows how the file was made
    found = values(json.loads((folder / "evaluation-of-own.fasta.json").read_text())["rows"])
    assert found == pytest.approx(values(judge.judge_run(source, Chosen(20, 7))))
    assert not (folder / "evaluation.json").exists()

    write_fasta(tmp_path / "short.fasta", ["ACGT"], ["s"])
    (tmp_path / "wrong.fasta").write_text(">a\nAC!T\n")
    for arguments, words in (
        ((folder, "--file", tmp_path / "short.fasta"), "must hold sequences of 45 letters"),
        ((folder, "--file", tmp_path / "wrong.fasta"), "wrong.fasta line"),
        ((folder, "--file", tmp_path / "none.fasta"), "no file at"),
        ((folder, "--file", tmp_path / "short.fasta", "--best"), "leave out --file"),
        ((stages.start.oracle, "--file", tmp_path / "own.fasta"), "is an oracle"),
    ):
        code, _, err = cli("evaluate", *arguments)
        assert code == 2
        assert words in " ".join(err.split())


def test_every_seed_of_a_run_is_judged_and_compared(cli, stages: Stages, tmp_path: Path):
    two = rld2.train(design(stages, "fkl", tmp_path / "two", seeds=2, seed=5)).folder
    one = rld2.train(design(stages, "best-of-n", tmp_path / "one")).folder
    for folder in (two, one):
        assert cli("evaluate", folder, "--episodes", 20).code == 0
    record = json.loads((two / "evaluation.json").read_text())
    assert [seed["seed"] for seed in record["seeds"]] == [5, 6]
    each = [values(seed["rows"]) for seed in record["seeds"]]
    assert each[0] != each[1]
    likely = "log-likelihood (median)"
    row = next(row for row in record["rows"] if row["metric"] == likely)
    expected = over_seeds([seed[likely] for seed in each])
    assert (row["value"], row["low"], row["high"]) == pytest.approx(tuple(expected))

    code, said, _ = cli("compare", two, one, "--labels", "ours", "search", "--out", tmp_path / "compared")
    assert code == 0
    assert "ours" in said
    rows = json.loads((tmp_path / "compared" / "comparison.json").read_text())["results"]
    assert [(row["method"], row["seed"], row["reward_calls"]) for row in rows] == [
        ("ours", 5, 128.0), ("ours", 6, 128.0), ("search", 0, 128.0),
    ]  # fmt: skip
    assert (tmp_path / "compared" / "tradeoff.png").is_file()
    record.pop("seeds")
    (two / "evaluation.json").write_text(json.dumps(record))
    code, _, err = cli("compare", two, one)
    assert code == 2
    assert "rld2 evaluate" in err


def test_the_end_of_training_asks_for_no_reward_that_training_did_not(stages: Stages, tmp_path: Path):
    asked: list[str] = []

    def reward(sequences: Any) -> list[float]:
        asked.extend(sequences)
        return share_of_g(sequences)

    config = design(stages, "fkl", tmp_path)
    trained = rld2.train(config, reward)
    paid = len(asked)
    judge.conclude(trained, config, Console())
    assert len(asked) == paid
    rows = values(json.loads((trained.folder / "evaluation.json").read_text())["rows"])
    last = log.read(trained.folder)[-1]
    assert rows["reward, own function (median)"] == pytest.approx(last["reward_median"][0])
    assert rows["reward, own function (best)"] == pytest.approx(max(share_of_g(asked)))
    assert rows["reward calls"] == 128


@pytest.mark.parametrize("name", ["fkl", "genetic"])
def test_a_design_by_a_python_function_goes_on_as_if_it_had_not_stopped(stages: Stages, tmp_path: Path, name: str):
    whole = rld2.train(design(stages, name, tmp_path / "whole"), share_of_g).folder
    config = design(stages, name, tmp_path / "half")
    half = rld2.train(config, share_of_g, on_log=lambda record: record["frames"] < 64).folder
    assert log.read(half)[-1]["frames"] == 64
    rld2.train(config, share_of_g, resume=half)
    ends = [log.read(folder)[-1] for folder in (whole, half)]
    assert ends[0]["best_reward"] == ends[1]["best_reward"]
    np.testing.assert_array_equal(draw(opened(whole), 20, 0), draw(opened(half), 20, 0))


def test_particles_are_weighed_by_a_function_of_strings(
    cli, stages: Stages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The more, the stronger; each sequence is asked for once, and an error is told as elsewhere."""
    (tmp_path / "mine.py").write_text(
        "asked = []\n"
        "def share_of_g(sequences):\n"
        "    asked.extend(sequences)\n"
        "    return [s.count('G') / len(s) for s in sequences]\n"
        "def broken(sequences):\n"
        "    raise RuntimeError('no reagents')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import mine  # pyright: ignore[reportMissingImports]

    def led(reward: str, kind: str = "smc") -> Any:
        arguments = ("--guide", kind, "--strength", 200, "--particles", 4, "--oracle", f"mine:{reward}")
        return cli("sample", stages.start.pretrained, "--n", 30, "--out", tmp_path / "led.fasta", *arguments)

    code, said, _ = led("share_of_g")
    assert code == 0
    assert "asked for 480 rewards" in " ".join(said.split())  # 30 sequences, 4 particles, 4 steps
    assert 0 < len(mine.asked) == len(set(mine.asked)) <= 480
    source = opened(stages.start.pretrained)
    plain = np.mean(share_of_g(source.vocabulary.decode(draw(source, 30, 0))))
    assert np.mean(share_of_g(source.vocabulary.decode(read(tmp_path / "led.fasta").tokens))) > plain + 0.1
    for reward, kind, words in (
        ("broken", "smc", "mine:broken failed: RuntimeError: no reagents"),
        ("share_of_g", "tds", "can weigh the particles of smc"),
    ):
        code, _, err = led(reward, kind)
        assert code == 2
        assert words in " ".join(err.split())
