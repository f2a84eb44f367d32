"""Playing one environment while keeping all that a replay shows: every reverse chain and every primitive step."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, PyTree

from rld2.agents.policy import Policy
from rld2.domains.base import Env, VectorDomain
from rld2.domains.macro import MacroDomain
from rld2.domains.minatar import MinAtar
from rld2.domains.registry import make_domain
from rld2.report.film import Decision, Recording, Step, render
from rld2.runner.config import TrainConfig
from rld2.runner.run import Setup
from rld2.types import ActSpec, Domain, TimeStep

__all__ = ["Recording", "action_names", "record_play", "render"]

MINATAR_ACTIONS = (("○", "no-op"), ("←", "left"), ("↑", "up"), ("→", "right"), ("↓", "down"), ("✦", "fire"))

Legal = Bool[Array, "1 k v"] | None


def record_play(
    setup: Setup,
    policy: PyTree,
    key: Key[Array, ""],
    *,
    config: TrainConfig,
    macro_steps: int,
    how: ActSpec | None = None,
) -> Recording:
    """Play with `policy` (of one seed) until the episode ends, but for no more than `macro_steps` decisions.

    The same key, policy and `how` give the same episode as `MacroDomain` with one environment would play.
    """
    if macro_steps < 1:
        raise ValueError(f"macro_steps must be 1 or more, got {macro_steps}")
    domain = _primitive(setup.domain, config, macro_steps)
    length, width = config.domain.macro, domain.spec.action.length
    noop = jnp.asarray(getattr(domain, "noop", (0,) * width), jnp.int32)

    @jax.jit
    def decide(policy: PyTree, step: TimeStep, number: Int[Array, ""]) -> tuple[Int[Array, "n k"], Any]:
        """The chain, and a key for each primitive step."""
        key_act, key_step = jax.random.split(jax.random.fold_in(key_play, number))
        model = policy if isinstance(policy, Policy) else policy.policy
        legal = _legal(model.action.valid, step.legal)
        chain = model.sample(key_act, model.torso(step.observation), legal, how=how)
        return chain.tokens[:, 0, 0], jax.random.split(key_step, length)

    @jax.jit
    def play(
        state: Any,
        before: TimeStep,
        plan: Int[Array, " k"],
        keys: Key[Array, " l"],
        number: Int[Array, ""],
    ) -> tuple[Any, TimeStep, Int[Array, " w"]]:
        """Primitive step `number` of the plan; also what was really played."""
        action = plan.reshape(length, width)[number]
        if before.legal is not None:
            allowed = jnp.take_along_axis(before.legal[0], action[:, None], axis=-1)[:, 0]
            action = jnp.where(allowed, action, noop)
        return *domain.step(state, action[None], keys[number]), action

    key_start, key_play = jax.random.split(key)
    state, step = jax.jit(domain.reset)(key_start)
    decisions: list[Decision] = []
    seen, ending = _picture(step.observation), "stopped"
    while len(decisions) < macro_steps and ending == "stopped":
        tokens, keys = decide(policy, step, len(decisions))
        chain = np.asarray(tokens)
        decision = Decision(seen, chain, [])
        for number in range(length):
            state, step, action = play(state, step, chain[-1], keys, number)
            seen = _picture(step.final_observation)
            decision.steps.append(Step(np.asarray(action), seen, float(np.asarray(step.score)[0])))
            if np.asarray(step.terminated)[0] or np.asarray(step.truncated)[0]:
                ending = "terminated" if np.asarray(step.terminated)[0] else "truncated"
                break
        decisions.append(decision)
    glyphs, names = action_names(getattr(domain, "env", None), setup.domain.spec.action.vocab)
    return Recording(config.domain.name, setup.domain.spec.action.mask_token, glyphs, names, decisions, ending)


def action_names(env: Env | None, vocab: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A sign for each token, and what it means where that is known."""
    if not isinstance(env, MinAtar):
        return tuple(str(token) for token in range(vocab)), ()
    full = vocab == len(MINATAR_ACTIONS)
    known = [MINATAR_ACTIONS[int(i)] for i in (range(vocab) if full else env.game.minimal_action_set)]
    return tuple(glyph for glyph, _ in known), tuple(name for _, name in known)


def _primitive(domain: Domain, config: TrainConfig, macro_steps: int) -> Domain:
    """One environment of the run, without macro-actions.

    It always has a step cap, beyond the recording if need be: only then does a domain tell what an episode's last step
    led to, instead of how the next episode begins.
    """
    inner = domain.inner if isinstance(domain, MacroDomain) else domain
    env = inner.env if isinstance(inner, VectorDomain) else None
    cap = config.evaluation_step_cap or macro_steps * config.domain.macro + 1
    return make_domain(dataclasses.replace(config.domain, macro=1, num_envs=1, step_cap=cap), env)


def _legal(valid: Bool[np.ndarray, "k v"], first: Bool[Array, "1 w v"] | None) -> Legal:
    """With macro-actions, what is legal is known for the first of them only."""
    if first is None:
        return None
    return jnp.asarray(valid)[None].at[:, : first.shape[1]].set(first)


def _picture(observation: PyTree) -> np.ndarray:
    """One array to look at: the observation of the only environment, its parts joined if there are several."""
    parts = [np.asarray(leaf)[0] for leaf in jax.tree.leaves(observation)]
    return parts[0] if len(parts) == 1 else np.concatenate([part.ravel().astype(float) for part in parts])
