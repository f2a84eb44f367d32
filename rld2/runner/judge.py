"""What a sequence run is worth: a model by its held-out likelihood, an oracle by its correlation, a design by both."""

import functools
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int
from rich.console import Console
from rich.table import Table

from rld2.agents.finetune import Start
from rld2.agents.oracle import OracleConfig
from rld2.agents.policy import Policy
from rld2.agents.pretrain import PretrainConfig
from rld2.domains.rewards import BlackBox
from rld2.networks.oracle import Classifier, EvaluationOracle, in_parts, one_hot
from rld2.report.aggregate import Estimate
from rld2.report.tables import over_seeds
from rld2.runner import checkpoint, log, run
from rld2.runner.chosen import Chosen
from rld2.runner.config import TrainConfig
from rld2.runner.designs import Run, best_of, holding, opened, opened_seeds
from rld2.runner.judge_model import Row, judge_model, likelihoods, row
from rld2.runner.sequences import DESIGNS, own_reward
from rld2.runner.train import Trained
from rld2.sequences import metrics, synthetic
from rld2.sequences.data import DataConfig, known_motifs, load
from rld2.sequences.kmers import correlation

OWN_REWARD, OWN_BEST = "reward, own function (median)", "reward, own function (best)"
DESIGNED = 256  # sequences whose likelihood is computed, 128 predictions each


def scores_of(oracle: Any, tokens: Int[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
    """What an oracle of either role predicts."""
    if isinstance(oracle, EvaluationOracle):
        return oracle.judge(tokens)
    return in_parts(jax.jit(lambda part: oracle(one_hot(part, oracle.network.vocab))), tokens)


def held_out_correlation(folder: Path) -> tuple[Any, float]:
    """The oracle of a run, and Pearson's r between its predictions and the scores of the fold it has not seen."""
    return _held_out_correlation(folder, checkpoint.latest(folder / run.CHECKPOINTS))


@functools.lru_cache(maxsize=8)
def _held_out_correlation(folder: Path, frames: int | None) -> tuple[Any, float]:
    """Every design of a study is judged by the same two oracles: found once for what they had learned by `frames`."""
    source = opened(folder)
    agent = source.config.agent
    if not isinstance(agent, OracleConfig):
        raise ValueError(f"{folder} is no oracle; a preset dna/.../oracle or judge makes one")
    return source.learned, _oracle_correlation(agent, source.learned)


def _oracle_correlation(agent: OracleConfig, oracle: Any) -> float:
    corpus = load(agent.data)
    other = corpus.fold != agent.fold
    return float(correlation(scores_of(oracle, corpus.tokens[other]), corpus.known_scores[other]))


def judge_run(source: Run, which: Chosen) -> list[Row]:
    """The rows of a run's table, by what kind of run it is."""
    agent = source.config.agent
    if isinstance(agent, OracleConfig):
        if which.file is not None:
            raise ValueError(f"{source.config.name} is an oracle; a file is judged by a design's run, which names it")
        if which.best:
            best_of(source, which.number)  # it has none, and says so
        if isinstance(source.learned, Classifier):
            return _judge_classifier(agent.data, source.learned)
        r = _oracle_correlation(agent, source.learned)
        return [row("held-out Pearson r", r, f"role {agent.role}, on the fold it has not seen")]
    tokens = which.of(source)
    if isinstance(agent, PretrainConfig):
        return judge_model(agent, source.learned, tokens)
    assert isinstance(agent, DESIGNS)
    base = run.open_run(agent.start.pretrained)
    own = own_reward(source.setup.domain) if which.ask else None
    return judge_design(tokens, base.agent, base.learned, agent.start, own)


def judge_design(
    tokens: Int[np.ndarray, "n k"],
    pretraining: PretrainConfig,
    pretrained: Policy,
    start: Start,
    own: BlackBox | None = None,
) -> list[Row]:
    """Reward on the oracle kept for it and by the user's own function, likelihood under the pretrained model, likeness
    to the best data, diversity."""
    data = pretraining.data
    rows = [] if start.judge is None else [_judged_reward(tokens, start, start.judge)]
    if own is not None:
        before = own.calls
        median = metrics.median(own(tokens))
        rows.append(row(OWN_REWARD, median, f"asked for {own.calls - before:,} more" if own.calls > before else ""))
    if data.name == "synthetic":
        rows.append(row("reward, true (median)", metrics.median(synthetic.activity(tokens))))
    some = np.random.default_rng(0).permutation(len(tokens))[:DESIGNED]  # a population comes best first
    likely = likelihoods(pretrained, tokens[some], pretraining.classes)
    rows.append(row("log-likelihood (median)", metrics.median(likely), f"of {len(likely)} sequences, 128 steps"))
    rows += _likeness(tokens, data) + _cell_type(tokens, data, start.classifier)
    return [
        *rows,
        row("mean pairwise distance", metrics.diversity(tokens)),
        row("unique share", metrics.unique_share(tokens)),
    ]


def _judged_reward(tokens: Int[np.ndarray, "n k"], start: Start, judge: Path) -> Row:
    """With the held-out r of both oracles: how far either can be trusted."""
    oracle, r = held_out_correlation(judge)
    if not isinstance(oracle, EvaluationOracle):
        raise ValueError(f"{judge} is an oracle for tuning and may not judge; train one with role 'evaluation'")
    note = f"its held-out r {r:.3f}"
    if start.reward == "oracle":
        note += f", of the oracle for tuning {held_out_correlation(start.oracle)[1]:.3f}"
    return row("reward, evaluation oracle (median)", metrics.median(oracle.judge(tokens)), note)


def _likeness(tokens: Int[np.ndarray, "n k"], data: DataConfig) -> list[Row]:
    corpus = load(data)
    if corpus.scores is None:
        return []
    best = corpus.tokens[metrics.top_rows(corpus.scores)]
    size = corpus.vocabulary.size
    rows = [row("3-mer correlation, top 1 %", metrics.word_correlation(tokens, best, 3, size))]
    motifs = known_motifs(data)
    if motifs:
        seen = metrics.motif_correlation(tokens, best, motifs, corpus.vocabulary)
        rows.append(row("motif correlation, top 1 %", seen, f"{len(motifs)} motifs"))
    return rows


def _cell_type(tokens: Int[np.ndarray, "n k"], data: DataConfig, folder: Path | None) -> list[Row]:
    """The share of designs that the classifier takes for the type of cell the rewards were measured in."""
    if folder is None:
        return []
    classifier = opened(folder).learned
    if not isinstance(classifier, Classifier):
        raise ValueError(f"{folder} is no classifier; a preset dna/.../classifier makes one")
    names = [name.lower() for name in classifier.classes]
    if data.name not in names:
        raise ValueError(f"{folder} knows the classes {list(classifier.classes)}, the data are {data.name!r}")
    share = float(np.mean(classifier.judge(tokens) == names.index(data.name)))
    return [row(f"share taken for {classifier.classes[names.index(data.name)]}", share, "by the classifier")]


def _judge_classifier(data: DataConfig, classifier: Classifier) -> list[Row]:
    corpus = load(data)
    taken = classifier.judge(corpus.tokens[corpus.held_out])
    labels = corpus.known_labels[corpus.held_out]
    largest = np.bincount(labels).max() / len(labels)
    return [row("held-out accuracy", float(np.mean(taken == labels)), f"{largest:.3f} for the most frequent class")]


def table(rows: list[Row], title: str) -> Table:
    shown = Table("metric", "value", "95 % interval", "", title=title, title_justify="left")
    for entry in rows:
        low, high = entry["low"], entry["high"]
        interval = "-" if low is None else f"{low:.3f} to {high:.3f}"
        shown.add_row(entry["metric"], f"{entry['value']:.3f}", interval, entry["note"])
    return shown


def score(
    folder: Path, which: Chosen, console: Console, out: Path | None = None, sources: list[Run] | None = None
) -> list[Row]:
    """Judge a run folder, print the table, and save it to `out` (None: evaluation.json in the folder, of the best
    evaluation-best.json, of a file evaluation-of-NAME.json). `sources`: its seeds, where they are open already."""
    sources = opened_seeds(folder) if sources is None else sources
    sources = sources[:1] if which.file is not None else sources  # the same for all
    config = sources[0].config
    what = f"{which.number:,} sequences" if which.file is None else str(which.file)
    by_seed = []
    for i, source in enumerate(sources):
        with console.status(f"judging {what}{f', seed {config.seed + i}' if len(sources) > 1 else ''} ..."):
            by_seed.append(judge_run(source, which))
    asked = _calls(folder, config.agent, which.ask) if which.file is None else []
    rows = over_seeds_of(by_seed) + asked
    console.print(table(rows, config.name + which.said))
    record = {"run": config.name, "samples": which.number, "sampler": which.sampler, "steps": which.steps, "rows": rows}
    record |= {"best": True} if which.best else {} if which.file is None else {"file": str(which.file)}
    record |= {"seeds": [{"seed": config.seed + i, "rows": own + asked} for i, own in enumerate(by_seed)]}
    name = "evaluation-best" if which.best else "evaluation"
    path = out or folder / f"{name if which.file is None else f'evaluation-of-{which.file.name}'}.json"
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return rows


def over_seeds_of(by_seed: list[list[Row]]) -> list[Row]:
    """Means over seeds with t-intervals; of one seed its own rows, with intervals over its sequences."""
    if len(by_seed) == 1:
        return by_seed[0]
    rows = []
    for same in zip(*by_seed, strict=True):
        values = [entry["value"] for entry in same]
        notes = dict.fromkeys(entry["note"] for entry in same)
        note = "; ".join([f"{len(values)} seeds", *(notes if len(notes) == 1 and all(notes) else [])])
        rows.append(row(same[0]["metric"], Estimate(*map(np.asarray, over_seeds(values))), note))
    return rows


def _calls(folder: Path, agent: Any, ask: bool) -> list[Row]:
    """Rewards a design has asked for by the end of its log, and how often a user's function was called for them; where
    it is not asked for more, what it said last."""
    if not isinstance(agent, DESIGNS):
        return []
    last = (log.read(folder) or [{}])[-1]
    asked, own = row("reward calls", float(last.get("frames", 0)), "asked for while learning"), last.get("reward_calls")
    if own is None:
        return [asked]
    rows = [asked, *(row("  of different sequences", calls, "asked once for each") for calls in own)]
    said = {} if ask else {"reward_median": (OWN_REWARD, "of its last group"), "best_reward": (OWN_BEST, "asked for")}
    return [*(row(name, last[key][0], note) for key, (name, note) in said.items() if key in last), *rows]


def conclude(trained: Trained, config: TrainConfig, console: Console) -> None:
    """The end of `rld2 train` for sequences: what it is worth, and how to go on."""
    # not opened again: a reward given in Python is only in here
    started = run.read_config(trained.folder)
    sources = [holding(started, trained.setup, trained.state, i) for i in range(started.seeds)]
    score(trained.folder, Chosen(config.evaluation_episodes, ask=False), console, sources=sources)
    more = "" if isinstance(config.agent, OracleConfig) else f"rld2 sample {trained.folder} --n 1000 | "
    more += f"rld2 sample {trained.folder} --best | " if isinstance(config.agent, DESIGNS) else ""
    console.print(f"next            {more}rld2 evaluate {trained.folder} | tensorboard --logdir {trained.folder}")
