"""What the short commands take; `rld2 COMMAND --help` is made of these. The longer ones have configs of their own."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Evaluate:
    """Score a trained run: the first episode of each of EPISODES environments, with a 95 % interval."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder made by `rld2 train`."""
    episodes: int | None = None
    """Episodes to play for each seed, sequences to draw; None: as the run's config says."""
    step_cap: int | Literal["none"] | None = None
    """Primitive steps after which an episode is cut; none lets a policy that never loses play on; None: as the run's
    config says."""
    sampler: str | None = None
    """ancestral, one-by-one, greedy, top-p, remask-cap / -rescale / -conf / -loop; None: as the run's config says."""
    steps: int | None = None
    """Reverse steps N; None: as trained."""
    seed: int = 1_000
    """Of the evaluation's randomness."""
    best: bool = False
    """Of a design: judge the best sequences that it asked a reward for, instead of new ones."""
    file: Path | None = None
    """Of sequences: judge those of this .fasta, .tsv or .csv, whoever made them (`rld2 sample --guide`, another tool),
    as the run's own are."""
    out: Path | None = None
    """File of the result; None: evaluation.json in the run folder."""


@dataclass(frozen=True)
class Replay:
    """Film a trained policy: the game, and next to it the action being unmasked step by step; football from above."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder made by `rld2 train`."""
    out: Path | None = None
    """A .gif or .mp4 file; None: replay.gif in the run folder."""
    decisions: int | None = None
    """(Macro-)actions to show at most; the film ends with the episode. None: 60, of football 400."""
    fps: int = 8
    """Pictures a second."""
    sampler: str | None = None
    """As in `rld2 evaluate`."""
    steps: int | None = None
    """As in `rld2 evaluate`."""
    index: int = 0
    """Which of the run's seeds plays."""
    seed: int = 0
    """Of the film's randomness."""


@dataclass(frozen=True)
class Export:
    """Write a trained policy as one safetensors file; `rld2.load(FILE)` opens it anywhere."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder made by `rld2 train`."""
    out: Path | None = None
    """None: policy.safetensors in the run folder."""
    index: int = 0
    """Which of the run's seeds."""


@dataclass(frozen=True)
class Sample:
    """Draw sequences from a run of sequences, and write them as FASTA."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder made by `rld2 train dna/...`: pretrained, fine-tuned or searched."""
    n: int = 1000
    """Sequences to draw."""
    best: bool = False
    """Of a design: no new sequences but the best that it asked a reward for (it keeps 1,000), with their rewards."""
    out: Path | None = None
    """A .fasta file, gzipped if it ends in .gz; None: samples.fasta (best.fasta) in the run folder."""
    sampler: str | None = None
    """As in `rld2 evaluate`."""
    steps: int | None = None
    """Reverse steps N; None: as trained."""
    guide: Literal["none", "cg", "cfg", "smc", "tds"] = "none"
    """Lead a pretrained model: by an oracle's gradient, classifier-free, by particles, by particles with gradients."""
    strength: float = 1.0
    """Of the guidance; of particles: one over the temperature."""
    particles: int = 8
    """Of which one becomes a sequence."""
    every: int = 1
    """Particles are weighed in one of so many reverse steps: fewer rewards."""
    oracle: Path | None = None
    """What guides: the run of an oracle, role tuning, or a function package.module:function of letters' probabilities
    that is marked `relaxed = True`."""
    index: int = 0
    """Which of the run's seeds."""
    seed: int = 0
    """Of the drawing."""


@dataclass(frozen=True)
class Presets:
    """List the presets of `rld2 train`."""
