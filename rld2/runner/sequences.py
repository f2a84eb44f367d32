"""From the config of a sequence run to its parts: data, reward, agent, loop. Other runs are opened by whoever asks."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from rld2.agents.drakes import DrakesConfig, make_drakes
from rld2.agents.finetune import FinetuneConfig, Start, make_finetune
from rld2.agents.oracle import OracleConfig, make_oracle
from rld2.agents.policy import Policy
from rld2.agents.pretrain import PretrainConfig, make_pretrain
from rld2.agents.search import SearchConfig, make_search
from rld2.domains.registry import DomainConfig
from rld2.domains.rewards import BlackBox, Differentiable, Scores, function_named, reward_from
from rld2.domains.sequences import SequenceDomain
from rld2.networks.oracle import TuningOracle, check_tuning
from rld2.runner.config import SequenceConfig
from rld2.runner.dataset_loop import build_dataset
from rld2.runner.host_loop import build_host
from rld2.runner.loop import Loop, build
from rld2.sequences import synthetic
from rld2.sequences.data import DataConfig, known_motifs, load, pretraining_sequences
from rld2.sequences.metrics import top_rows
from rld2.sequences.vocabulary import Vocabulary
from rld2.types import Agent, Transition

OWN = "own"
DESIGNS = (FinetuneConfig, SearchConfig, DrakesConfig)


class Opened(NamedTuple):
    """Another run: the config of its agent, and what it learned."""

    agent: Any
    learned: Any
    length: int  # letters of its sequences


Open = Callable[[Path], Opened]


class Parts(NamedTuple):
    domain: SequenceDomain
    agent: Agent
    loop: Loop


class Designed(NamedTuple):
    """What a design starts from."""

    data: DataConfig
    vocabulary: Vocabulary
    pretrained: Policy
    classes: int


def parts(
    agent: SequenceConfig,
    domain: DomainConfig,
    frames: int,
    log_frames: int,
    open_run: Open,
    reward: Scores | None = None,
) -> Parts:
    """`reward`: a Python function that takes the place of the one the config names."""
    if isinstance(agent, PretrainConfig):
        return _pretraining(agent, domain, frames, log_frames)
    if isinstance(agent, OracleConfig):
        return _oracle(agent, domain, frames, log_frames)
    return _design(agent, domain, frames, log_frames, open_run, reward)


def rows_of(tokens: np.ndarray, reward: np.ndarray, observation: np.ndarray) -> Transition:
    """Sequences with scores and what is said of them, as experience."""
    yes, ones = jnp.ones(len(tokens), bool), jnp.ones(len(tokens), jnp.int32)
    return Transition(
        observation=jnp.asarray(observation, jnp.float32),
        legal=None,
        action=jnp.asarray(tokens, jnp.uint8 if tokens.max(initial=0) < 256 else jnp.int32),
        memory=None,
        reward=jnp.asarray(reward, jnp.float32),
        terminated=yes,
        truncated=~yes,
        duration=ones,
        final_observation=None,
    )


def nothing_to_draw(classes: int) -> Transition:
    """For a learner that makes its own data: a row that says nothing."""
    return rows_of(np.zeros((1, 1), np.int32), np.zeros(1), np.zeros((1, classes)))


def _nothing(letters: Any) -> Any:
    return jnp.zeros(letters.shape[0])


def _pretraining(agent: PretrainConfig, domain: DomainConfig, frames: int, log_frames: int) -> Parts:
    vocabulary, tokens, _, scores = pretraining_sequences(agent.data)
    observation = np.zeros((len(tokens), agent.classes), np.float32)
    if agent.conditional:
        known = np.flatnonzero(np.isfinite(scores))
        if not len(known):
            raise ValueError("a conditional model needs scores to tell what is active; name the column that holds them")
        observation[known] = [1.0, 0.0]
        observation[known[top_rows(scores[known], agent.active_share)]] = [0.0, 1.0]
    place = SequenceDomain(domain.name, vocabulary, tokens.shape[1], domain.num_envs, _nothing, agent.classes)
    complement = jnp.asarray(vocabulary.complement) if vocabulary.has_strands else None
    learner = make_pretrain(agent, place.spec, frames, complement)
    rows = rows_of(tokens, np.zeros(len(tokens)), observation)
    return Parts(place, learner, build_dataset(rows, learner, max(1, log_frames // agent.batch_size)))


def _oracle(agent: OracleConfig, domain: DomainConfig, frames: int, log_frames: int) -> Parts:
    corpus = load(agent.data)
    if agent.role == "classifier":
        own, targets = ~corpus.held_out, corpus.known_labels.astype(np.float32)
    else:
        own, targets = corpus.fold == agent.fold, corpus.known_scores
    tokens, targets = corpus.tokens[own], targets[own]
    vocabulary = corpus.vocabulary
    place = SequenceDomain(domain.name, vocabulary, corpus.length, domain.num_envs, _nothing)
    complement = tuple(int(x) for x in vocabulary.complement) if vocabulary.has_strands else None
    motifs = [motif.log_odds for motif in known_motifs(agent.data)]
    classes = corpus.label_names if agent.role == "classifier" else ()
    learner = make_oracle(agent, place.spec, frames, complement, motifs, tokens, targets, classes)
    rows = rows_of(tokens, targets, np.zeros((len(tokens), 1)))
    return Parts(place, learner, build_dataset(rows, learner, max(1, log_frames // agent.batch_size)))


def opened_design(start: Start, open_run: Open) -> Designed:
    """The pretrained model and what it was trained on."""
    found = open_run(start.pretrained)
    if not isinstance(found.agent, PretrainConfig):
        raise ValueError(f"{start.pretrained} is not a pretrained model; give the run of a preset dna/.../pretrain")
    if start.steps is not None and found.agent.policy.step_conditioning:
        raise ValueError(
            f"{start.pretrained} is told the number of each of its reverse steps and cannot be tuned with other ones; "
            f"leave start.steps out, or pretrain a model without step_conditioning"
        )
    return Designed(found.agent.data, found.agent.data.vocabulary, found.learned, found.agent.classes)


def reward_of(start: Start, data: DataConfig, length: int, open_run: Open) -> Differentiable | BlackBox:
    """The reward a design asks for. An evaluation oracle is refused here."""
    if start.reward == "oracle":
        return check_tuning(open_run(start.oracle).learned, f"start.oracle {start.oracle}")
    if start.reward == "true":
        if data.name != "synthetic":
            raise ValueError(f"the true reward is known for synthetic data only, these are {data.name!r}")
        return synthetic.activity_of
    if start.reward == OWN:
        return BlackBox(None, data.vocabulary)
    return reward_from(function_named(start.reward, "'oracle', 'true' or "), data.vocabulary, length)


def own_reward(domain: Any) -> BlackBox | None:
    """The user's function behind a design's reward, if it has one and the function is at hand."""
    reward = domain.reward if isinstance(domain, SequenceDomain) else None
    return reward if isinstance(reward, BlackBox) and reward.function is not None else None


def with_own_reward(agent: Any) -> Any:
    """The config of a design whose reward is a function given in Python: the run remembers that, not the function."""
    if not isinstance(agent, DESIGNS):
        raise ValueError("a reward can only be given to a design, such as the presets dna/.../fkl")
    return dataclasses.replace(agent, start=dataclasses.replace(agent.start, reward=OWN))


def _design(
    agent: FinetuneConfig | SearchConfig | DrakesConfig,
    domain: DomainConfig,
    frames: int,
    log_frames: int,
    open_run: Open,
    function: Scores | None,
) -> Parts:
    data, vocabulary, pretrained, classes = opened_design(agent.start, open_run)
    length = pretrained.action.length
    if function is None:
        reward = reward_of(agent.start, data, length, open_run)
    else:
        reward = reward_from(function, vocabulary, length)
    place = SequenceDomain(domain.name, vocabulary, length, domain.num_envs, reward, classes)
    iterations = max(1, log_frames // domain.num_envs)
    if isinstance(agent, DrakesConfig):
        if isinstance(reward, BlackBox):
            raise ValueError(
                "DRAKES back-propagates through the reward: it needs an oracle, the true function, or a function of "
                "letters' probabilities marked `relaxed = True` (docs/dna.md)"
            )
        learner = make_drakes(agent, place.spec, frames, pretrained, reward)
        loop = build_dataset(nothing_to_draw(classes), learner, iterations)
        return Parts(place, learner, loop._replace(group=domain.num_envs))
    if isinstance(agent, FinetuneConfig):
        if agent.divergence == "rkl" and pretrained.sampler.kind != "ancestral":
            raise ValueError(
                f"reverse KL learns from ratios of ancestral steps, {agent.start.pretrained} draws with "
                f"{pretrained.sampler.kind!r}; tune it with forward KL, or pretrain with policy.sampler.kind ancestral"
            )
        symmetric = vocabulary.has_strands and isinstance(reward, TuningOracle)  # which reads both strands alike
        complement = jnp.asarray(vocabulary.complement) if symmetric else None
        learner = make_finetune(agent, place.spec, frames, pretrained, complement)
    else:
        learner = make_search(agent, place.spec, frames, pretrained)
    if place.spec.traceable:
        loop = build(place, learner, iterations)
    else:
        loop = build_host(place, learner, iterations, overlap=False)
    return Parts(place, learner, loop._replace(group=domain.num_envs))
