"""Black-box search over sequences: best of n, a genetic algorithm, the cross-entropy method. None learns a policy that
depends on what was drawn before it; all start from samples of the pretrained model and see rewards only."""

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from rld2 import checks
from rld2.agents.best import Best, none_yet
from rld2.agents.finetune import Start
from rld2.agents.policy import Policy
from rld2.agents.pretrain import generator, held
from rld2.types import Acted, ActSpec, Agent, Batch, EnvSpec, Rollout, TimeStep, Updated, beginning

METHODS = ("best-of-n", "genetic", "cross-entropy")


@dataclass(frozen=True)
class SearchConfig:
    """Frames are rewards asked for. What is kept: the best `population` sequences, or the letters' frequencies."""

    start: Start = field(default_factory=Start)
    method: Literal["best-of-n", "genetic", "cross-entropy"] = "best-of-n"
    population: int = 1000
    mutations: float = 2.0  # letters changed in a child, on average
    crossover: float = 0.5  # share of children with two parents
    elite_share: float = 0.1  # cross-entropy: the best of a group, whose letters are counted
    rate: float = 0.3  # by which frequencies move towards theirs
    least: float = 0.005  # frequency of any letter

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method of search must be one of {list(METHODS)}, got {self.method!r}")
        checks.at_least(2, self, "population")
        checks.shares(self, "elite_share", "rate", zero=False)
        checks.shares(self, "crossover")
        checks.at_least(0, self, "mutations", "least")


class SearchState(NamedTuple):
    best: Best
    frequency: Float[Array, "k v"]
    proposed: Int[Array, "e k"]  # the next group to be valued
    updates: Int[Array, ""]


def make_search(config: SearchConfig, spec: EnvSpec, total_frames: int, pretrained: Policy) -> Agent:
    length, vocab = spec.action.length, spec.action.vocab
    generate = generator(config.start.schedule_for(pretrained).steps)

    def drawn(key: Key[Array, ""]) -> Int[Array, "e k"]:
        nothing_said = beginning(jnp.zeros((spec.num_envs, *spec.observation.shape)))
        return generate(held(pretrained), nothing_said, None, key, None).action

    def init(key: Key[Array, ""]) -> SearchState:
        """No sequence has been valued: the first group are samples of the pretrained model."""
        return SearchState(
            best=none_yet(config.population, length),
            frequency=jnp.full((length, vocab), 1.0 / vocab),
            proposed=drawn(key),
            updates=jnp.zeros((), jnp.int32),
        )

    def children(state: SearchState, key: Key[Array, ""]) -> Int[Array, "e k"]:
        number = spec.num_envs
        key_parent, key_cut, key_two, key_place, key_letter = jax.random.split(key, 5)
        # the better of two, twice: rows are sorted, so the smaller number wins
        picked = jax.random.randint(key_parent, (2, 2, number), 0, jnp.maximum(state.best.known, 1))
        mother, father = state.best.tokens[jnp.min(picked, axis=0)]
        cut = jax.random.randint(key_cut, (number, 1), 1, length)
        two = jax.random.bernoulli(key_two, config.crossover, (number, 1))
        child = jnp.where(two & (jnp.arange(length) >= cut), father, mother)
        changed = jax.random.bernoulli(key_place, min(1.0, config.mutations / length), child.shape)
        # a different letter, each as likely
        other = (child + jax.random.randint(key_letter, child.shape, 1, vocab)) % vocab
        return jnp.where(changed, other, child)

    def from_frequency(state: SearchState, number: int, key: Key[Array, ""]) -> Int[Array, "e k"]:
        return jax.random.categorical(key, jnp.log(state.frequency), shape=(number, length))

    def act(state: SearchState, step: TimeStep, carry: Any, key: Key[Array, ""], how: ActSpec | None) -> Acted:
        """While searching, the next group to be valued; else what was found."""
        number = step.reward.shape[0]
        if how is None:
            return Acted(state.proposed)
        if config.method == "cross-entropy":
            return Acted(from_frequency(state, number, key))
        return Acted(state.best.tokens[jnp.arange(number) % jnp.maximum(state.best.known, 1)])

    def propose(state: SearchState, key: Key[Array, ""]) -> Int[Array, "e k"]:
        if config.method == "best-of-n":
            return drawn(key)
        if config.method == "genetic":
            return children(state, key)
        return from_frequency(state, spec.num_envs, key)

    def update(state: SearchState, batch: Batch, key: Key[Array, ""]) -> Updated:
        tokens, reward = batch.data.action[0], batch.data.reward[0]
        order = jnp.argsort(-reward)
        elite = tokens[order[: max(1, round(config.elite_share * len(reward)))]]
        seen = jnp.mean(jax.nn.one_hot(elite, vocab), axis=0)
        rate = jnp.where(state.updates == 0, 1.0, config.rate)
        frequency = jnp.maximum(state.frequency + rate * (seen - state.frequency), config.least)
        best = state.best.among(tokens, reward)
        state = state._replace(
            best=best,
            frequency=frequency / jnp.sum(frequency, axis=-1, keepdims=True),
            updates=state.updates + 1,
        )
        state = state._replace(proposed=propose(state, key))
        total = jnp.sum(jnp.where(best.reward > -jnp.inf, best.reward, 0.0))
        mean = total / jnp.maximum(best.known, 1)
        return Updated(state, {"kept_reward": mean, "best_reward": best.reward[0]})

    return Agent(
        init=init,
        policy=lambda state: state,
        act=act,
        update=update,
        experience=Rollout(length=1),
        best=lambda state: state.best,
    )
