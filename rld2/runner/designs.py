"""Drawing sequences from a run, as it was trained or guided while drawing."""

import contextlib
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from rld2 import checks
from rld2.agents.best import Best
from rld2.agents.oracle import OracleConfig
from rld2.agents.policy import Policy
from rld2.agents.pretrain import PretrainConfig
from rld2.agents.search import SearchConfig
from rld2.diffusion.guidance import classifier_free, reward_guided
from rld2.diffusion.particles import particles
from rld2.diffusion.sample import Sampler, sample, sampler_named
from rld2.diffusion.schedule import Schedule
from rld2.domains.rewards import BlackBox, Differentiable, function_named, is_relaxed, reward_from
from rld2.domains.sequences import SequenceDomain
from rld2.networks.oracle import check_tuning
from rld2.runner import run
from rld2.runner.config import SequenceConfig, TrainConfig
from rld2.runner.loop import LoopState
from rld2.sequences.vocabulary import Vocabulary
from rld2.types import ActSpec, beginning

AT_ONCE = 100  # sequences drawn by one program

Kind = Literal["none", "cg", "cfg", "smc", "tds"]
GUIDES = get_args(Kind)


@dataclass(frozen=True)
class Guide:
    """How a pretrained model is led while it draws.

    cg     classifier guidance by the oracle's gradient        smc   particles, weighed by the oracle
    cfg    classifier-free, of a model pretrained conditional  tds   particles drawn with guidance, corrected for it
    """

    kind: Kind = "none"
    strength: float = 1.0  # of guidance; of particles: 1 / temperature
    particles: int = 8  # of which one goes on to be a sequence
    every: int = 1  # of so many reverse steps, particles are weighed in one

    def __post_init__(self) -> None:
        if self.kind not in GUIDES:
            raise ValueError(f"guide must be one of {list(GUIDES)}, got {self.kind!r}")
        if not 0.0 <= self.strength < float("inf") or (self.strength == 0.0 and self.kind != "cfg"):
            raise ValueError(f"strength must be positive (of cfg, 0 or more), got {self.strength}")
        checks.at_least(1, self, "particles", "every")

    def reward_calls(self, steps: int) -> int:
        """Rewards (or gradients of one) asked for a sequence that is drawn in `steps` reverse steps."""
        weighed = self.particles * -(-steps // self.every)
        led = self.particles * steps  # by gradients, in every step
        return {"none": 0, "cfg": 0, "cg": steps, "smc": weighed, "tds": weighed + led}[self.kind]


class Run(NamedTuple):
    """A sequence run, opened."""

    config: TrainConfig
    setup: run.Setup
    learned: Any
    best: Best | None  # of a design: what rewards were asked for, the best of it

    @property
    def vocabulary(self) -> Vocabulary:
        domain = self.setup.domain
        assert isinstance(domain, SequenceDomain)
        return domain.vocabulary

    @property
    def length(self) -> int:
        return self.setup.domain.spec.action.length


def opened(folder: Path, index: int = 0) -> Run:
    return holding(*_restored(folder), index)


def opened_seeds(folder: Path) -> list[Run]:
    """Every seed of a run."""
    config, setup, state = _restored(folder)
    return [holding(config, setup, state, index) for index in range(config.seeds)]


def _restored(folder: Path) -> tuple[TrainConfig, run.Setup, LoopState]:
    config = run.read_config(folder)
    if not isinstance(config.agent, SequenceConfig):
        raise ValueError(f"{folder} is no run of sequences but of {config.domain.name}; see `rld2 evaluate`")
    setup = run.set_up(config)
    return config, setup, run.restore(folder, setup)


def holding(config: TrainConfig, setup: run.Setup, state: LoopState, index: int = 0) -> Run:
    """A run from its state."""
    best = None if setup.agent.best is None else run.of_seed(setup, setup.agent.best(state.learner), index)
    return Run(config, setup, run.policy_of(setup, state, index), best)


def best_of(source: Run, number: int) -> tuple[Int[np.ndarray, "n k"], Float[np.ndarray, " n"]]:
    """The best `number` sequences that the run asked a reward for, best first, and these rewards; fewer where it has
    not kept so many."""
    if source.best is None:
        raise ValueError(
            f"{source.config.name} asks for no rewards, so none of its sequences is known to be the best; --best is "
            f"for designs: the presets dna/.../fkl, rkl, drakes, best-of-n, genetic, cross-entropy"
        )
    known = min(number, int(source.best.known))
    if not known:
        raise ValueError(f"{source.config.name} has asked for no reward yet; go on with it, then ask for its best")
    return np.asarray(source.best.tokens[:known], np.int32), np.asarray(source.best.reward[:known])


def draw(
    source: Run,
    number: int,
    seed: int,
    *,
    sampler: str | None = None,
    steps: int | None = None,
    guide: Guide | None = None,
    oracle: Path | None = None,
) -> Int[np.ndarray, "n k"]:
    """`number` sequences of the run; `oracle` is what guides: a run of role tuning, or package.module:function (of
    letters' probabilities in JAX; particles without gradients can be weighed by one of strings too)."""
    if isinstance(source.config.agent, OracleConfig):
        raise ValueError("an oracle judges sequences and makes none; sample from a pretrained or a design's run")
    if isinstance(source.config.agent, SearchConfig) and (sampler, steps) != (None, None):
        raise ValueError("a search keeps sequences and draws none, in whatever steps; leave out --sampler and --steps")
    how = ActSpec(None if sampler is None else sampler_named(sampler), steps)
    parts, clear = -(-number // AT_ONCE), contextlib.nullcontext()
    at_once = -(-number // parts)  # no more than asked for, as rewards are
    if guide is None or guide.kind == "none":
        # a population is not drawn from but read, from its best on: all at once, or every part would be the same
        parts, at_once = (1, number) if isinstance(source.config.agent, SearchConfig) else (parts, AT_ONCE)
        program = _as_trained(source, how, at_once)
    else:
        if not isinstance(source.learned, Policy):
            raise ValueError("only diffusion models can be guided; this run is a search")
        reward = None if oracle is None else guiding(oracle, source, guide)
        if isinstance(reward, BlackBox):
            reward, clear = reward.likeliest, reward.clear_errors()
        program = _guided(source, how, guide, reward, at_once)
    key = jax.random.key(seed)
    with clear:
        chunks = [np.asarray(program(jax.random.fold_in(key, i))) for i in range(parts)]
    return np.concatenate(chunks)[:number].astype(np.int32)


def guiding(oracle: Path, source: Run, guide: Guide) -> Differentiable | BlackBox:
    """A run of role tuning that reads the same letters, or a user's function; one that can be differentiated, where
    gradients lead."""
    if ":" in str(oracle) and not oracle.exists():
        function: Any = function_named(str(oracle))
        if not is_relaxed(function) and guide.kind != "smc":
            raise ValueError(
                f"guide {guide.kind!r} needs a reward of letters' probabilities, written in JAX and marked `relaxed = "
                f"True`; {oracle} is of strings, which can weigh the particles of smc (docs/dna.md)"
            )
        return reward_from(function, source.vocabulary, source.length)
    found = run.open_run(oracle)
    letters = found.agent.data.vocabulary.letters if isinstance(found.agent, OracleConfig) else None
    if letters not in (None, source.vocabulary.letters):
        raise ValueError(f"the model writes the letters {source.vocabulary.letters}, {oracle} reads {letters}")
    tuning = check_tuning(found.learned, str(oracle))
    if found.length != source.length:
        raise ValueError(f"the model writes {source.length} letters, {oracle} learned from sequences of {found.length}")
    return tuning


def _nothing_said(source: Run, number: int) -> Float[Array, "n c"]:
    return jnp.zeros((number, *source.setup.domain.spec.observation.shape))


def _as_trained(source: Run, how: ActSpec, number: int) -> Any:
    act = source.setup.agent.act
    step = beginning(_nothing_said(source, number))
    program = jax.jit(lambda learned, key: act(learned, step, None, key, how).action)
    return lambda key: program(source.learned, key)


def _guided(source: Run, how: ActSpec, guide: Guide, reward: Differentiable | None, number: int) -> Any:
    policy: Policy = source.learned
    trained = policy.schedule
    schedule = Schedule(how.steps or trained.steps, trained.kind, trained.power)
    told = isinstance(source.config.agent, PretrainConfig) and source.config.agent.policy.step_conditioning
    if told and schedule != trained:
        raise ValueError("this model is told the number of each reverse step: it can only be guided in as many")
    told_active = isinstance(source.config.agent, PretrainConfig) and source.config.agent.conditional
    if guide.kind == "cfg" and not told_active:
        raise ValueError("cfg needs a model that was told what is active: a preset dna/.../pretrain-conditional")
    if guide.kind != "cfg" and reward is None:
        raise ValueError(f"guide {guide.kind!r} needs an oracle of role tuning; give its run with --oracle")
    asked = (jnp.asarray(guide.strength, jnp.float32), dataclasses.replace(guide, strength=1.0))
    nothing = _nothing_said(source, number)
    return lambda key: _draw_guided(policy, reward, nothing, key, *asked, schedule, how.sampler or Sampler())


@eqx.filter_jit
def _draw_guided(
    policy: Policy,
    reward: Any,
    nothing: Float[Array, "n c"],
    key: Key[Array, ""],
    strength: Float[Array, ""],
    guide: Guide,
    schedule: Schedule,
    sampler: Sampler,
) -> Int[Array, "n k"]:
    """Compiled once for a kind of guide, whatever its strength."""
    number, mask_token = nothing.shape[0], policy.action.mask_token
    predict = policy.predict(policy.torso(nothing), None)
    bent, choose = predict, None
    if guide.kind == "cfg":
        active = jnp.tile(jnp.array([0.0, 1.0]), (number, 1))
        bent = classifier_free(policy.predict(policy.torso(active), None), predict, strength)
    if guide.kind in ("cg", "tds"):
        bent = reward_guided(predict, reward, strength, mask_token)
    with_particles = guide.kind in ("smc", "tds")
    if with_particles:
        twisted = guide.kind == "tds"
        choose = particles(predict, reward, 1.0 / strength, mask_token, twisted=twisted, every=guide.every)
    samples = guide.particles if with_particles else 1
    chain = sample(key, bent, policy.action, schedule, sampler, number, samples, choose=choose)
    return chain.action[:, 0]
