"""The reverse process: one loop from all masks to a clean action; samplers differ only in one step of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from rld2.diffusion.elbo import Predict
from rld2.diffusion.schedule import Schedule
from rld2.types import ILLEGAL_LOGIT, ActionSpec

SAMPLERS = ("ancestral", "one-by-one", "greedy", "top-p", "remask")
REMASKS = ("cap", "rescale", "conf", "loop")


@dataclass(frozen=True)
class Sampler:
    """How one reverse step picks positions and tokens.

    ancestral   the reverse process of the paper: each masked position with probability abar_n
    one-by-one  random positions, a fixed count a step (one if N = K): no step is empty
    greedy      most probable tokens, most confident positions first, a fixed count a step
    top-p       ancestral, tokens from the smallest set whose probability reaches `top_p`
    remask      unmasked positions may be masked again (ReMDM); `remask` chooses the strength sigma:
                cap (at most eta), rescale (eta of the maximum), conf (the maximum, shared out to the least confident
                positions), loop (cap, inside a window of the chain during which alpha stands still)
    """

    kind: Literal["ancestral", "one-by-one", "greedy", "top-p", "remask"] = "ancestral"
    top_p: float = 0.98
    remask: Literal["cap", "rescale", "conf", "loop"] = "cap"
    eta: float = 0.1
    loop_on: float = 0.55  # the loop window, as times of the chain (1 = all masked, 0 = clean)
    loop_off: float = 0.05

    def __post_init__(self) -> None:
        if self.kind not in SAMPLERS:
            raise ValueError(f"sampler must be one of {list(SAMPLERS)}, got {self.kind!r}")
        if self.remask not in REMASKS:
            raise ValueError(f"remask must be one of {list(REMASKS)}, got {self.remask!r}")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")
        if not 0.0 <= self.eta <= 1.0:
            raise ValueError(f"eta must be in [0, 1], got {self.eta}")
        if not 0.0 < self.loop_off < self.loop_on < 1.0:
            raise ValueError(f"need 0 < loop_off < loop_on < 1, got loop_off={self.loop_off}, loop_on={self.loop_on}")

    @property
    def restricts(self) -> bool:
        """Whether tokens come from a kept set smaller than the legal one, so that ratios must use that set too."""
        return self.kind == "top-p"


def sampler_named(name: str) -> Sampler:
    """A sampler by its name on the command line: a kind, or remask-cap, remask-rescale, remask-conf, remask-loop."""
    kind, _, strength = name.partition("-") if name.startswith("remask-") else (name, "", "cap")
    return Sampler(cast(Any, kind), remask=cast(Any, strength))


class Chain(NamedTuple):
    """The whole reverse chain in the order it was drawn: tokens[0] = a^N (all masks) ... tokens[N] = a^0."""

    tokens: Int[Array, "n+1 *b k"]
    log_prob: Float[Array, "n *b k"]  # of each token drawn in step N - i under the distribution it came from; else 0
    kept: Bool[Array, "n *b k v"] | None  # the sets tokens were drawn from, where smaller than the legal ones

    @property
    def action(self) -> Int[Array, "*b k"]:
        return self.tokens[-1]


class Chosen(NamedTuple):
    """Which sample goes on in the place of each of its state, and what it promises."""

    source: Int[Array, "b m"]
    promise: Float[Array, "b m"]


class Moved(NamedTuple):
    """A step that was drawn: from `before`, with `promise`, to `after`; `step` is the number n of `before`."""

    before: Int[Array, "b m k"]
    after: Int[Array, "b m k"]
    log_prob: Float[Array, "b m k"]
    step: Int[Array, ""]
    promise: Float[Array, "b m"]


Choose = Callable[[Key[Array, ""], Moved], Chosen]  # of particle methods: after every step


class _Times(NamedTuple):
    """Per reverse step, in drawing order: what the network is told, and how likely positions change."""

    step: Any
    chance: Any  # that a masked position is unmasked
    sigma: Any  # that an unmasked one is masked again, before `conf` shares it out
    masked_after: Any


def top_p_set(logits: Float[Array, "*b v"], top_p: float) -> Bool[Array, "*b v"]:
    """The smallest set of tokens whose cumulative probability reaches `top_p`; never empty, never a padded token."""
    prob = jax.nn.softmax(logits)
    order = jnp.argsort(-prob, axis=-1)
    ranked = jnp.take_along_axis(prob, order, axis=-1)
    reached_before = jnp.cumsum(ranked, axis=-1) - ranked
    kept_ranked = (reached_before < top_p) & (ranked > 0.0)
    return jnp.take_along_axis(kept_ranked, jnp.argsort(order, axis=-1), axis=-1)


def restrict(logits: Float[Array, "*b v"], kept: Bool[Array, "*b v"] | None) -> Float[Array, "*b v"]:
    return logits if kept is None else jnp.where(kept, logits, ILLEGAL_LOGIT)


def remask_strength(sampler: Sampler, alpha_from: np.ndarray, alpha_to: np.ndarray) -> np.ndarray:
    """sigma of a step from alpha_from to alpha_to, at most the largest that keeps the marginals of the process."""
    with np.errstate(divide="ignore", invalid="ignore"):
        largest = np.where(alpha_from > 0.0, np.minimum(1.0, (1.0 - alpha_to) / alpha_from), 1.0)
    if sampler.remask == "rescale":
        return sampler.eta * largest
    if sampler.remask == "conf":
        return largest
    return np.minimum(sampler.eta, largest)


def _times(schedule: Schedule, sampler: Sampler, length: int) -> _Times:
    steps = np.arange(schedule.steps, 0, -1)
    masked_from, masked_to = schedule.masked[steps], schedule.masked[steps - 1]
    sigma = np.zeros(schedule.steps)
    if sampler.kind == "remask" and sampler.remask == "loop":
        time = np.arange(schedule.steps, -1, -1) / schedule.steps
        inside = (time <= sampler.loop_on) & (time >= sampler.loop_off)
        warped = np.where(time < sampler.loop_off, time * sampler.loop_on / sampler.loop_off, time)
        warped = np.where(inside, sampler.loop_on, warped)
        masked = np.interp(warped, np.arange(schedule.steps + 1) / schedule.steps, schedule.masked)
        masked_from, masked_to = masked[:-1], masked[1:]
        strength = remask_strength(sampler, 1.0 - masked_from, 1.0 - masked_to)
        sigma = np.where(masked_from == masked_to, strength, 0.0)
        steps = np.clip(np.round(warped[:-1] * schedule.steps), 1, schedule.steps).astype(int)
    elif sampler.kind == "remask":
        sigma = remask_strength(sampler, 1.0 - masked_from, 1.0 - masked_to)
    # of a masked position; `conf` gives all of sigma to unmasked ones. Exactly 1 in the last step.
    own = 0.0 if sampler.remask == "conf" else sigma
    chance = (masked_from - masked_to + own * (1.0 - masked_from)) / masked_from
    return _Times(steps, chance, sigma, schedule.masked_counts(length)[::-1][1:])


def _lowest(score: Float[Array, "*b k"], count: Int[Array, ""]) -> Bool[Array, "*b k"]:
    """True at the `count` smallest scores."""
    return jnp.argsort(jnp.argsort(score, axis=-1), axis=-1) < count


def _reverse_step(
    sampler: Sampler,
    mask_token: int,
    key: Key[Array, ""],
    tokens: Int[Array, "*b k"],
    logits: Float[Array, "*b k v"],
    confidence: Float[Array, "*b k"],
    at: _Times,
) -> tuple[Int[Array, "*b k"], Float[Array, "*b k"], Float[Array, "*b k"], Bool[Array, "*b k v"] | None]:
    """One step a^n -> a^{n-1}: next tokens, their log-probabilities, updated confidences, kept sets."""
    key_position, key_token = jax.random.split(key)
    is_masked = tokens == mask_token
    kept = top_p_set(logits, sampler.top_p) if sampler.restricts else None
    log_mu = jax.nn.log_softmax(restrict(logits, kept))
    greedy = sampler.kind == "greedy"
    proposal = jnp.argmax(log_mu, axis=-1) if greedy else jax.random.categorical(key_token, log_mu)
    log_prob = jnp.take_along_axis(log_mu, proposal[..., None], axis=-1)[..., 0]

    noise = jax.random.uniform(key_position, tokens.shape)
    if sampler.kind in ("greedy", "one-by-one"):
        # what stays masked: the least confident (greedy) or random positions among the masked ones
        score = jnp.max(log_mu, axis=-1) if sampler.kind == "greedy" else noise
        unmask = is_masked & ~_lowest(jnp.where(is_masked, score, jnp.inf), at.masked_after)
        remask = jnp.zeros_like(is_masked)
    else:
        sigma = at.sigma * jnp.ones_like(noise)
        if sampler.kind == "remask" and sampler.remask == "conf":
            share = jax.nn.softmax(jnp.where(is_masked, -jnp.inf, -jnp.exp(confidence)), axis=-1)
            sigma = jnp.where(is_masked, 0.0, at.sigma * jnp.nan_to_num(share))
        unmask = is_masked & (noise < at.chance)
        remask = ~is_masked & (noise < sigma)
    drawn = jnp.where(unmask, log_prob, 0.0)
    confidence = jnp.where(unmask, log_prob, confidence)
    return jnp.where(unmask, proposal, jnp.where(remask, mask_token, tokens)), drawn, confidence, kept


def sample(
    key: Key[Array, ""],
    predict: Predict,
    spec: ActionSpec,
    schedule: Schedule,
    sampler: Sampler,
    num_states: int,
    num_samples: int = 1,
    *,
    first_steps: int | None = None,
    choose: Choose | None = None,
) -> Chain:
    """Draw `num_samples` actions for each of `num_states` states; the arrays of the chain have leading axes (n, b, m).

    `predict(tokens[b, m, k], step[b, m])` returns legal logits: illegal and padded values at `ILLEGAL_LOGIT`. All
    samples of a state start from the same masks, so the first step calls it once per state, with m = 1.
    `first_steps`: only so many of the reverse steps are taken. `choose` lets samples of a state replace each other
    after every step; the rows of the chain are then no histories, only its end means something.
    """
    times = _times(schedule, sampler, spec.length)
    shape = (num_states, num_samples)
    key_first, key_rest = jax.random.split(key)

    def at(i: Int[Array, ""] | int) -> _Times:
        return _Times(*(jnp.asarray(x, jnp.float32 if x.dtype == np.float64 else jnp.int32)[i] for x in times))

    def chosen(key: Key[Array, ""], moved: Moved, confidence: Float[Array, "b m k"]) -> tuple[Array, Array, Array]:
        if choose is None:
            return moved.after, confidence, moved.promise
        source, promise = choose(jax.random.fold_in(key, 1), moved)
        rows = source[..., None]
        return jnp.take_along_axis(moved.after, rows, 1), jnp.take_along_axis(confidence, rows, 1), promise

    start = jnp.full((*shape, spec.length), spec.mask_token)
    first = at(0)
    logits = predict(start[:, :1], jnp.broadcast_to(first.step, (num_states, 1))).astype(jnp.float32)
    logits = jnp.broadcast_to(logits, (*start.shape, logits.shape[-1]))
    tokens, log_prob, confidence, kept = _reverse_step(
        sampler, spec.mask_token, key_first, start, logits, jnp.zeros(start.shape), first
    )
    moved = Moved(start, tokens, log_prob, first.step, jnp.zeros(shape))
    tokens, confidence, promise = chosen(key_first, moved, confidence)

    def step(carry, i):
        tokens, confidence, promise = carry
        now = at(i)
        logits = predict(tokens, jnp.broadcast_to(now.step, shape)).astype(jnp.float32)
        key_step = jax.random.fold_in(key_rest, i)
        after, log_prob, confidence, kept = _reverse_step(
            sampler, spec.mask_token, key_step, tokens, logits, confidence, now
        )
        moved = Moved(tokens, after, log_prob, now.step, promise)
        after, confidence, promise = chosen(key_step, moved, confidence)
        return (after, confidence, promise), (after, log_prob, kept)

    steps = jnp.arange(1, schedule.steps if first_steps is None else first_steps)
    _, (more_tokens, more_log_prob, more_kept) = jax.lax.scan(step, (tokens, confidence, promise), steps)
    return Chain(
        tokens=jnp.concatenate([jnp.stack([start, tokens]), more_tokens]),
        log_prob=jnp.concatenate([log_prob[None], more_log_prob]),
        kept=None if kept is None or more_kept is None else jnp.concatenate([kept[None], more_kept]),
    )


def legal_logits(
    logits: Float[Array, "*b k v"], spec: ActionSpec, legal: Bool[Array, "*#b k v"] | None
) -> Float[Array, "*b k v"]:
    """Logits with padding, and what `legal` forbids, at `ILLEGAL_LOGIT`: probability exactly zero."""
    allowed = jnp.asarray(spec.valid) if legal is None else legal & spec.valid
    return jnp.where(allowed, logits, ILLEGAL_LOGIT)


def entropy(logits: Float[Array, "*b v"]) -> Float[Array, "*b"]:
    log_mu = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.exp(log_mu) * jnp.where(log_mu > ILLEGAL_LOGIT / 2, log_mu, 0.0), axis=-1)
