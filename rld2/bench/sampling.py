"""One joint action of K players: a diffusion policy in N steps, beside an autoregressive one that takes K.

Both have the same torso, width, layers and heads; the autoregressive one keeps the keys and values of the players that
have chosen.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from rich.table import Table

from rld2.agents.policy import PolicyConfig, make_policy
from rld2.bench.timing import Call, Timing, blocking, interleave
from rld2.networks.heads import Backbone
from rld2.networks.team import TeamConfig
from rld2.types import ActionSpec, EnvSpec

PLAYERS, VALUES, FEATURES, STATES = (4, 10, 16), 8, 32, 64
CALLS = 10  # samples in a measurement


class SamplingRow(NamedTuple):
    players: int
    steps: int | None  # N; None: one player after the other
    timing: Timing
    ratio: float  # autoregressive seconds by this row's, median over rounds


def call(players: int, steps: int | None) -> Call:
    kind: Any = "autoregressive" if steps is None else "transformer"
    config = PolicyConfig(steps=steps, denoiser=Backbone(width=64, heads=4), embedding=64, team=TeamConfig(heads=4))
    config = replace(config, denoiser=replace(config.denoiser, kind=kind))
    observation = jax.ShapeDtypeStruct((players, FEATURES), jnp.float32)
    spec = EnvSpec("team", observation, ActionSpec((VALUES,) * players), STATES, team=True)
    policy = make_policy(jax.random.key(0), spec, config)
    # other states in every call: what does not change in a loop, a compiler takes out of it
    seen = jax.random.normal(jax.random.key(1), (CALLS, STATES, players, FEATURES))

    @eqx.filter_jit
    def sample(policy: Any, seen: jax.Array) -> jax.Array:
        def one(call: tuple[jax.Array, jax.Array]) -> jax.Array:
            key, seen = call
            return policy.sample(key, policy.torso(seen), None).action

        return jax.lax.map(one, (jax.random.split(jax.random.key(2), CALLS), seen))

    return blocking(sample, policy, seen)


def measure_sampling(repeats: int, players: tuple[int, ...] = PLAYERS) -> list[SamplingRow]:
    rows = []
    for count in players:
        numbers = [None, *(n for n in (1, 2, 4, 8) if n < count), count]
        timings = interleave({str(n): (call(count, n), CALLS) for n in numbers}, repeats)
        after = timings["None"]
        rows += [SamplingRow(count, n, timings[str(n)], after.ratio_to(timings[str(n)])) for n in numbers]
    return rows


def sampling_table(rows: list[SamplingRow]) -> Table:
    title = f"One joint action in each of {STATES} states, {VALUES} values a player"
    table = Table("players", "policy", "ms", "times as fast", title=title)
    for row in rows:
        first = row.steps is None
        name = "one after the other" if first else f"diffusion, N = {row.steps}"
        milliseconds = f"{1e3 * row.timing.median:.2f} ± {100 * row.timing.spread:.0f} %"
        table.add_row(str(row.players) if first else "", name, milliseconds, "" if first else f"{row.ratio:.2f}")
    return table


def sampling_record(rows: list[SamplingRow]) -> list[dict[str, Any]]:
    return [
        {"players": r.players, "steps": r.steps, "milliseconds": 1e3 * r.timing.median, "ratio": round(r.ratio, 3)}
        for r in rows
    ]
