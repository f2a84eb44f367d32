"""Playing one environment while keeping all that a replay shows: every reverse chain and every primitive step."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, PyTree

from rld2.domains.atari import Atari
from rld2.domains.base import Env, VectorDomain
from rld2.domains.football.domain import Football
from rld2.domains.football.features import ACTIONS
from rld2.domains.macro import MacroDomain
from rld2.domains.minatar import MinAtar
from rld2.domains.registry import make_domain
from rld2.report.film import Decision, Recording, Step, render
from rld2.report.pitch import pitch
from rld2.runner.config import TrainConfig
from rld2.runner.evaluate import with_envs
from rld2.runner.run import Setup
from rld2.types import ActSpec, Domain, TimeStep

__all__ = ["Recording", "action_names", "record_play", "render"]

ARROWS = {
    "up": "↑",
    "right": "→",
    "left": "←",
    "down": "↓",
    "upright": "↗",
    "upleft": "↖",
    "downright": "↘",
    "downleft": "↙",
}
LEGEND = 9  # names that a film has room for
MINATAR_ACTIONS = (("○", "no-op"), ("←", "left"), ("↑", "up"), ("→", "right"), ("↓", "down"), ("✦", "fire"))

FOOTBALL_SIGNS = dict(zip("○←↖↑↗→↘↓↙LHS✦»■«TDd", ACTIONS, strict=True))

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

    action_spec, gamma = setup.domain.spec.action, setup.domain.spec.discount

    @jax.jit
    def decide(policy: PyTree, step: TimeStep, carry: PyTree, number: Int[Array, ""]) -> tuple[Any, PyTree, Any]:
        """The chain (of a policy without one: all masks, then the action), the carry, a key for each primitive step."""
        key_act, key_step = jax.random.split(jax.random.fold_in(key_play, number))
        legal = _legal(action_spec.valid, step.legal)
        acted = setup.agent.act(policy, step._replace(legal=legal), carry, key_act, how)
        masks = jnp.full_like(acted.action, action_spec.mask_token)
        chain = jnp.stack([masks, acted.action]) if acted.chain is None else acted.chain
        return chain[:, 0], acted.carry, jax.random.split(key_step, length)

    def play(
        state: Any,
        before: TimeStep,
        plan: Int[Array | np.ndarray, " k"],
        keys: Key[Array, " l"],
        number: Int[Array, ""] | int,
    ) -> tuple[Any, TimeStep, Int[Array | np.ndarray, " w"]]:
        """Primitive step `number` of the plan; also what was really played."""
        action = plan.reshape(length, width)[number]
        if before.legal is not None:
            allowed = jnp.take_along_axis(before.legal[0], action[:, None], axis=-1)[:, 0]
            action = jnp.where(allowed, action, noop)
        return *domain.step(state, action[None], keys[number]), action

    compiled = jax.jit if domain.spec.traceable else lambda function: function
    play = compiled(play)
    key_start, key_play = jax.random.split(key)
    state, step = compiled(domain.reset)(key_start)
    carry = setup.agent.carry(1)
    decisions: list[Decision] = []
    watch = _watch(domain)
    seen, ending = watch(state, step.observation), "stopped"
    while len(decisions) < macro_steps and ending == "stopped":
        tokens, carry, keys = decide(policy, step, carry, len(decisions))
        chain, reward = np.asarray(tokens), 0.0
        decision = Decision(seen, chain, [])
        for number in range(length):
            state, step, action = play(state, step, chain[-1, : length * width], keys, number)
            seen = watch(state, step.final_observation)
            decision.steps.append(Step(np.asarray(action), seen, float(np.asarray(step.score)[0])))
            reward = reward + gamma**number * step.reward
            if np.asarray(step.terminated)[0] or np.asarray(step.truncated)[0]:
                ending = "terminated" if np.asarray(step.terminated)[0] else "truncated"
                break
        decisions.append(decision)
        step = step._replace(reward=reward)  # what the next decision is told: that of the whole macro-action
    glyphs, names = action_names(getattr(domain, "env", domain), action_spec.vocab)
    recording = Recording(config.domain.name, action_spec.mask_token, glyphs, names, decisions, ending)
    if isinstance(domain, Football):
        meanings = [f"{sign} {name}" for sign, name in FOOTBALL_SIGNS.items() if sign not in ARROWS.values()]
        legend = "\n".join("   ".join(line) for line in (meanings[:6], meanings[6:]))
        return recording._replace(screen=functools.partial(pitch, legend=legend), unmasking=False)
    return recording


def action_names(env: Env | Domain | None, vocab: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A sign for each token, and what it means where that is known."""
    if isinstance(env, Atari):
        signs = {"": "○", **ARROWS} | {f"{name}fire": f"{arrow}✦" for name, arrow in {"": "", **ARROWS}.items()}
        glyphs = tuple(signs["" if name == "noop" else name] for name in env.action_names)
        return glyphs, env.action_names if vocab <= LEGEND else ()
    if isinstance(env, Football):
        return tuple(FOOTBALL_SIGNS), ()
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
    return make_domain(dataclasses.replace(with_envs(config.domain, 1, cap), macro=1), env)


def _legal(valid: Bool[np.ndarray, "k v"], first: Bool[Array, "1 w v"] | None) -> Legal:
    """With macro-actions, what is legal is known for the first of them only."""
    if first is None:
        return None
    return jnp.asarray(valid)[None].at[:, : first.shape[1]].set(first)


def _watch(domain: Domain) -> Callable[[Any, PyTree], Any]:
    """What there is to see of the only environment, from the domain's state and what the last step led to."""
    if isinstance(domain, Football):
        return lambda state, observation: domain.scene(state)
    return lambda state, observation: _picture(observation)


def _picture(observation: PyTree) -> np.ndarray:
    """One array to look at: the observation of the only environment, its parts joined if there are several."""
    parts = [np.asarray(leaf)[0] for leaf in jax.tree.leaves(observation)]
    return parts[0] if len(parts) == 1 else np.concatenate([part.ravel().astype(float) for part in parts])
