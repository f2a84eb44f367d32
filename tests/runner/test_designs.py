"""A design from beginning to end, in small: stages as runs, samples as files, roles that cannot be exchanged."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rld2
from rld2.agents.finetune import FinetuneConfig
from rld2.agents.pretrain import PretrainConfig
from rld2.domains.rewards import BlackBox
from rld2.domains.sequences import SequenceDomain
from rld2.presets import PRESETS, preset
from rld2.runner import checkpoint, judge, log, run
from rld2.runner.chosen import Chosen
from rld2.runner.config import from_json, to_json, vary
from rld2.runner.designs import Guide, best_of, draw, holding, opened
from rld2.runner.host_loop import CollectorError
from rld2.sequences.data import FOLDER_VARIABLE, DataConfig, pretraining_sequences
from rld2.sequences.files import read
from rld2.sequences.kmers import correlation, word_counts
from rld2.sequences.vocabulary import Vocabulary
from tests.runner.stages import DATA, MODEL, Stages, design, small


@pytest.mark.parametrize("name", sorted(n for n in PRESETS if n.startswith("dna/")))
def test_presets_are_saved_and_read(name: str):
    config = preset(name)
    assert from_json(to_json(config)) == config


@pytest.mark.dna
def test_a_model_is_judged_beside_what_unseen_sequences_reach(stages: Stages):
    """Of fewer sequences held out than drawn all count, so the value is known."""
    source = opened(stages.folder / "pretrain")
    agent = source.config.agent
    assert isinstance(agent, PretrainConfig)
    rows = {row["metric"].strip(): row for row in judge.judge_run(source, Chosen(100, 0))}
    vocabulary, training, held_out, _ = pretraining_sequences(agent.data)
    words = next(int(name[0]) for name in rows if name.endswith("-mer correlation of samples"))
    wanted = word_counts(np.concatenate([training, vocabulary.reverse_complement(training)]), words, 4)
    found = rows["of the held-out sequences"]
    assert found["value"] == pytest.approx(float(correlation(word_counts(held_out, words, 4), wanted)))
    assert found["note"].startswith(f"{len(held_out)} of them")
    assert len(held_out) < 100


@pytest.mark.dna
@pytest.mark.parametrize(
    "name", ["fkl", "fkl-critic", "rkl", "drakes", "drakes-kl", "best-of-n", "genetic", "cross-entropy"]
)
def test_every_design_trains_draws_and_is_judged(stages: Stages, tmp_path: Path, name: str):
    trained = rld2.train(design(stages, name, tmp_path))
    assert trained.finished
    source = opened(trained.folder)
    rows = {row["metric"]: row for row in judge.judge_run(source, Chosen(20, 0))}
    assert 0.0 < rows["unique share"]["value"] <= 1.0
    assert rows["reward, true (median)"]["low"] <= rows["reward, true (median)"]["value"]
    assert "its held-out r" in rows["reward, evaluation oracle (median)"]["note"]
    assert rows["log-likelihood (median)"]["value"] < 0.0
    np.testing.assert_array_equal(draw(source, 5, 3), draw(source, 5, 3))
    tokens, rewards = best_of(source, 1000)  # of 128, some of them copies
    assert 20 < len(tokens) <= 128
    assert np.all(np.diff(rewards) <= 0.0)
    oracle = opened(stages.start.oracle).learned
    np.testing.assert_allclose(rewards, judge.scores_of(oracle, tokens), rtol=1e-3, atol=1e-4)
    assert len(best_of(source, 7)[0]) == 7
    if name in ("best-of-n", "genetic"):  # a population of 128 or so, no sequence twice
        assert len(np.unique(draw(source, 110, 0), axis=0)) == 110


@pytest.mark.dna
@pytest.mark.parametrize("kind", ["cg", "cfg", "smc", "tds"])
def test_every_guide_draws(stages: Stages, kind: Any):
    source = opened(stages.folder / ("pretrain-conditional" if kind == "cfg" else "pretrain"))
    oracle = None if kind == "cfg" else stages.start.oracle
    tokens = draw(source, 7, 0, guide=Guide(kind, 1.0, 2), oracle=oracle, steps=3)
    assert tokens.shape == (7, 45)
    assert tokens.max() < 4


@pytest.mark.dna
@pytest.mark.parametrize("kind", ["cg", "smc"])
def test_a_guide_leads_by_its_strength(stages: Stages, kind: Any):
    """One program draws at every strength, so a strength that it did not hear of would change nothing."""
    source, oracle = opened(stages.folder / "pretrain"), stages.start.oracle
    weak, strong = (draw(source, 20, 0, guide=Guide(kind, s, 4), oracle=oracle, steps=3) for s in (1e-3, 50.0))
    assert np.any(weak != strong)


@pytest.mark.dna
def test_roles_cannot_be_exchanged(stages: Stages, tmp_path: Path):
    start = stages.start
    exchanged = dataclasses.replace(start, oracle=start.judge)
    with pytest.raises(ValueError, match="kept for evaluation and cannot be optimised against"):
        rld2.train(design(stages, "fkl", tmp_path, agent__start=exchanged))
    source = opened(start.pretrained)
    with pytest.raises(ValueError, match="kept for evaluation"):
        draw(source, 2, 0, guide=Guide("cg"), oracle=start.judge)
    mistaken = dataclasses.replace(start, judge=start.oracle)
    assert isinstance(source.config.agent, PretrainConfig)
    with pytest.raises(ValueError, match="for tuning and may not judge"):
        judge.judge_design(draw(source, 4, 0), source.config.agent, source.learned, mistaken)
    with pytest.raises(ValueError, match="is not a pretrained model"):
        rld2.train(design(stages, "fkl", tmp_path, agent__start=dataclasses.replace(start, pretrained=start.oracle)))
    with pytest.raises(ValueError, match="there is no run"):
        run.open_run(tmp_path / "nothing")
    with pytest.raises(ValueError, match="cfg needs a model that was told"):
        draw(source, 2, 0, guide=Guide("cfg"))
    with pytest.raises(ValueError, match="needs an oracle of role tuning"):
        draw(source, 2, 0, guide=Guide("smc"))


@pytest.mark.dna
@pytest.mark.parametrize("name", ["fkl", "fkl-critic"])
def test_a_function_of_ones_own(stages: Stages, tmp_path: Path, name: str):
    asked: list[str] = []

    def share_of_g(sequences: Any) -> list[float]:
        asked.extend(sequences)
        return [sequence.count("G") / len(sequence) for sequence in sequences]

    trained = rld2.train(design(stages, name, tmp_path), share_of_g)
    assert len(asked) == len(set(asked)) > 0
    agent = run.read_config(trained.folder).agent
    assert isinstance(agent, FinetuneConfig)
    assert agent.start.reward == "own"
    source = opened(trained.folder)
    assert draw(source, 3, 0).shape == (3, 45)
    assert log.read(trained.folder)[-1]["reward_asked"] == [128.0]
    assert log.read(trained.folder)[-1]["reward_calls"] == [float(len(asked))]
    known = holding(source.config, trained.setup, trained.state)
    rows = {row["metric"]: row["value"] for row in judge.judge_run(known, Chosen(20, 0))}
    assert 0.0 <= rows["reward, own function (median)"] <= 1.0
    assert "reward, own function (median)" not in {row["metric"] for row in judge.judge_run(source, Chosen(20, 0))}
    paid, domain = len(asked), source.setup.domain
    assert isinstance(domain, SequenceDomain)
    domain.reward = BlackBox(share_of_g, source.vocabulary)
    best = {row["metric"]: row["value"] for row in judge.judge_run(source, Chosen(20, best=True))}
    assert best["reward, own function (median)"] == pytest.approx(np.median(best_of(source, 20)[1]))
    assert len(asked) == paid  # these rewards are known
    with pytest.raises(ValueError, match="only be given to a design"):
        rld2.train(small("pretrain", tmp_path / "again", 64, **DATA), share_of_g)


@pytest.mark.dna
def test_a_design_can_do_without_a_judge_but_not_with_a_wrong_one(stages: Stages, tmp_path: Path):
    start = stages.start
    alone = rld2.train(design(stages, "fkl", tmp_path, agent__start=dataclasses.replace(start, judge=None)))
    rows = [row["metric"] for row in judge.judge_run(opened(alone.folder), Chosen(20, 0))]
    assert "reward, evaluation oracle (median)" not in rows
    assert "reward, true (median)" in rows
    for judged_by, words in (
        (tmp_path / "nowhere", r"start.judge .*nowhere is no run; .* or do without: --agent.start.judge None"),
        (start.oracle, "is not of the role 'evaluation'"),
        (start.pretrained, "is not of the role 'evaluation'"),
    ):
        with pytest.raises(ValueError, match=words):
            rld2.train(design(stages, "rkl", tmp_path, agent__start=dataclasses.replace(start, judge=judged_by)))
    other = rld2.train(small("judge", tmp_path, 64, **DATA, agent__data__seed=1, agent__network__filters=2)).folder
    with pytest.raises(ValueError, match="learned from different data: one may have seen"):
        rld2.train(design(stages, "rkl", tmp_path, agent__start=dataclasses.replace(start, judge=other)))


@pytest.mark.dna
def test_sequences_of_another_length_are_refused(stages: Stages, tmp_path: Path):
    start, data = stages.start, {**DATA, "agent__data__length": 40}
    short = rld2.train(small("oracle", tmp_path, 64, **data, agent__network__filters=2)).folder
    with pytest.raises(ValueError, match=r"writes 45 letters a sequence, .* learned from 40; .* --agent.start.oracle"):
        rld2.train(design(stages, "fkl", tmp_path, agent__start=dataclasses.replace(start, oracle=short)))
    with pytest.raises(ValueError, match=r"the model writes 45 letters, .* learned from sequences of 40"):
        draw(opened(start.pretrained), 2, 0, guide=Guide("cg"), oracle=short)


@pytest.mark.dna
def test_proteins(tmp_path: Path):
    letters = "ACDEFGHIKLMNPQRSTVWY"
    rng = np.random.default_rng(0)
    rows = ["".join(rng.choice(list(letters), 12)) for _ in range(200)]
    (tmp_path / "proteins.tsv").write_text("\n".join(["sequence", *rows]) + "\n")
    data = DataConfig("file", tmp_path / "proteins.tsv", vocabulary=Vocabulary(letters, ""))
    model = {f"agent__policy__{name}": value for name, value in MODEL.items()}
    trained = rld2.train(small("pretrain", tmp_path, 128, agent__data=data, **model))
    names = [row["metric"] for row in judge.judge_run(opened(trained.folder), Chosen(20, 0))]
    assert {"  Markov chain of order 2", "3-mer correlation of samples"} <= set(names)


@pytest.mark.dna
@pytest.mark.parametrize("name", ["fkl", "fkl-critic"])
def test_a_stopped_design_goes_on_where_it_was(stages: Stages, tmp_path: Path, name: str):
    config = design(stages, name, tmp_path / "whole")
    whole = rld2.train(config)
    parted = dataclasses.replace(config, out=tmp_path / "parted")
    first = rld2.train(parted, on_log=lambda record: record["frames"] < 64)
    assert not first.finished
    second = rld2.train(parted, resume=first.folder)
    assert second.finished
    np.testing.assert_array_equal(draw(opened(whole.folder), 8, 0), draw(opened(second.folder), 8, 0))
    np.testing.assert_array_equal(best_of(opened(whole.folder), 8)[1], best_of(opened(second.folder), 8)[1])


def share_of_g(sequences: Any) -> list[float]:
    return [sequence.count("G") / len(sequence) for sequence in sequences]


@pytest.mark.dna
@pytest.mark.parametrize(("name", "own"), [("best-of-n", None), ("best-of-n", share_of_g), ("drakes", None)])
def test_a_design_asks_for_no_more_than_whole_groups(
    stages: Stages, tmp_path: Path, capsys: pytest.CaptureFixture, name: str, own: Any
):
    """Not for whole lines of the log, be groups compiled, of a function on the host, or made by the learner."""
    config = dataclasses.replace(design(stages, name, tmp_path), frames=70, log_frames=64)
    trained = rld2.train(config, own)
    assert [record["frames"] for record in log.read(trained.folder)] == [64, 96]
    assert "70 frames (96 in whole groups of 32, see --domain.num-envs)" in " ".join(capsys.readouterr().out.split())
    longer = rld2.train(dataclasses.replace(config, frames=160), own, resume=trained.folder)
    assert longer.frames == 160
    said = " ".join(capsys.readouterr().out.split())
    assert "160 frames, seeds" in said
    config = dataclasses.replace(config, frames=20, log_frames=1280, out=tmp_path / "short")
    assert rld2.train(config, own).frames == 32


@pytest.mark.dna
def test_what_was_paid_for_is_saved_when_a_reward_fails(stages: Stages, tmp_path: Path):
    """In the midst of a line, and as a line begins; the run then goes on with a function that was mended."""
    config = dataclasses.replace(design(stages, "best-of-n", tmp_path), frames=320, log_frames=128)
    calls: list[int] = []

    def breaks(at: int) -> Any:
        def reward(sequences: Any) -> list[float]:
            calls.append(len(sequences))
            if len(calls) == at:
                raise OSError("the machine is out of reagents")
            return share_of_g(sequences)

        return reward

    for at, frames in ((6, 160), (11, 288)):  # the second run's calls begin with the seventh
        folder = config.out if calls else None
        with pytest.raises(CollectorError, match="out of reagents"):
            rld2.train(config, breaks(at), resume=folder)
        assert checkpoint.latest(config.out / run.CHECKPOINTS) == frames
        last = log.read(config.out)[-1]
        assert (last["frames"], last["reward_asked"]) == (frames, [float(frames)])
        tokens, rewards = best_of(opened(config.out), 1000)
        assert len(tokens) > frames // 2
        assert last["best_reward"] == [pytest.approx(rewards[0])]
    assert rld2.train(config, share_of_g, resume=config.out).frames == 320


@pytest.mark.dna
def test_commands(cli, stages: Stages, tmp_path: Path):
    out = tmp_path / "x.fasta"
    code, said, _ = cli("sample", stages.start.pretrained, "--n", 12, "--out", out)
    assert code == 0
    assert "wrote 12 sequences" in said
    assert read(out).tokens.shape == (12, 45)
    for stage, words in (("pretrain", "Markov chain of order 6"), ("judge", "held-out Pearson r")):
        out = tmp_path / stage / "made" / "e.json"
        code, said, _ = cli("evaluate", stages.folder / stage, "--episodes", 20, "--out", out)
        assert code == 0
        assert words in said
        assert json.loads(out.read_text())["rows"]
        assert not (stages.folder / stage / "evaluation.json").exists()
    for command in ("replay", "export"):
        code, _, err = cli(command, stages.start.pretrained)
        assert code == 2
        assert "plays no game" in err
    for arguments, words in (
        ((stages.start.oracle, "--n", 3), "makes none"),
        ((stages.start.pretrained, "--oracle", stages.start.oracle), "say by what with --guide cg, cfg, smc or tds"),
        ((stages.start.pretrained, "--strength", 3), "say by what with --guide cg, cfg, smc or tds"),
    ):
        code, _, err = cli("sample", *arguments)
        assert code == 2
        assert words in " ".join(err.split())
    searched = rld2.train(design(stages, "best-of-n", tmp_path)).folder
    code, said, _ = cli("sample", searched, "--n", 300)
    found = len({sequence.tobytes() for sequence in read(searched / "samples.fasta").tokens})
    assert code == 0
    assert found <= 128  # it has seen no more
    assert f"wrote 300 sequences, {found} of them different" in " ".join(said.split())
    code, _, err = cli("sample", searched, "--steps", 3)
    assert code == 2
    assert "leave out --sampler and --steps" in " ".join(err.split())


@pytest.mark.dna
def test_the_best_are_written_with_their_rewards(cli, stages: Stages, tmp_path: Path):
    folder = rld2.train(design(stages, "fkl", tmp_path)).folder
    code, said, _ = cli("sample", folder, "--best", "--n", 10)
    assert code == 0
    assert "wrote the best 10 sequences" in said
    written, (tokens, rewards) = read(folder / "best.fasta", score="score"), best_of(opened(folder), 10)
    np.testing.assert_array_equal(written.tokens, tokens)
    assert written.scores is not None
    np.testing.assert_allclose(written.scores, rewards, rtol=1e-4)
    assert "it keeps no more" in cli("sample", folder, "--best", "--n", 500)[1].replace("\n", " ")
    code, said, _ = cli("evaluate", folder, "--best", "--episodes", 10)
    assert code == 0
    assert "the best it asked for" in said
    assert json.loads((folder / "evaluation-best.json").read_text())["best"]
    for arguments, words in (
        (("sample", folder, "--best", "--guide", "cg", "--steps", 3), "leave out --steps, --guide"),
        (("evaluate", folder, "--best", "--sampler", "greedy"), "leave out --sampler"),
        (("sample", stages.start.pretrained, "--best"), "asks for no rewards"),
        (("evaluate", stages.start.oracle, "--best"), "asks for no rewards"),
    ):
        code, _, err = cli(*arguments)
        assert code == 2
        assert words in " ".join(err.split())


@pytest.mark.dna
@pytest.mark.skipif(
    not os.environ.get(FOLDER_VARIABLE), reason=f"{FOLDER_VARIABLE} does not name the folder of the real DNA data"
)
def test_an_oracle_of_real_enhancers_learns(tmp_path: Path):
    """Seconds, not the ten minutes an oracle is given: better than nothing on the fold it has not seen."""
    config = vary(preset("dna/hepg2/oracle"), frames=3200, log_frames=1600, finale=False, agent__network__filters=0)
    trained = rld2.train(dataclasses.replace(config, out=tmp_path / "oracle"))
    assert judge.held_out_correlation(trained.folder)[1] > 0.3
