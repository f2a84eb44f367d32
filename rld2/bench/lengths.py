"""Longer macro-actions: what an update of RL-D2 and of DQN-Macro takes, until DQN-Macro refuses to list them all."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from rich.table import Table

from rld2.bench.timing import Call, Timing, blocking, interleave
from rld2.domains.registry import make_domain
from rld2.experience.rollout import collect, start
from rld2.presets import preset
from rld2.runner.config import TrainConfig, make_agent
from rld2.types import Batch, Replay

GAME, LENGTHS = "breakout", (1, 2, 4, 8, 16, 32)
METHODS = {"RL-D2 FKL": "fkl", "DQN-Macro": "dqn-macro"}


class LengthRow(NamedTuple):
    """One method at one length; where the agent refuses, only why."""

    method: str
    length: int
    num_actions: int
    batch: int = 0
    parameter_bytes: int = 0
    update_bytes: int = 0  # that the compiled update needs at once: learner, batch and everything between
    timing: Timing | None = None
    refused: str = ""


def measure_lengths(repeats: int, lengths: tuple[int, ...] = LENGTHS) -> list[LengthRow]:
    """Every update takes its turn in one run; batches are of real play with all six actions."""
    rows: list[LengthRow] = []
    calls: dict[str, tuple[Call, int]] = {}
    for length in lengths:
        for method, name in METHODS.items():
            base = preset(f"minatar/{GAME}/{name}")
            domain = dataclasses.replace(base.domain, macro=length, actions="full")
            row, call = prepare(method, dataclasses.replace(base, domain=domain))
            rows.append(row)
            if call is not None:
                calls[f"{method} {length}"] = (call, 1)
    timings = interleave(calls, repeats)
    return [row._replace(timing=timings.get(f"{row.method} {row.length}")) for row in rows]


def prepare(method: str, config: TrainConfig) -> tuple[LengthRow, Call | None]:
    """A row without its timing, and the update to time; None where the agent refuses."""
    domain = make_domain(config.domain)
    row = LengthRow(method, config.domain.macro, domain.spec.action.num_actions)
    try:
        agent = make_agent(config, domain.spec)
    except ValueError as error:
        return row._replace(refused=str(error)), None
    experience = agent.experience
    assert isinstance(experience, Replay)
    domain = make_domain(dataclasses.replace(config.domain, num_envs=experience.batch_size))
    learner = jax.jit(agent.init)(jax.random.key(0))

    def play(learner: Any) -> Any:
        collector = start(domain, agent, jax.random.key(1))
        data = collect(domain, agent, agent.policy(learner), collector, jax.random.key(2), experience.sequence)[1]
        return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), data)

    batch = Batch(jax.jit(play)(learner), None, jnp.zeros((), jnp.int32))
    update = jax.jit(agent.update).lower(learner, batch, jax.random.key(3)).compile()
    memory = update.memory_analysis()
    assert memory is not None
    parameters = sum(x.nbytes for x in jax.tree.leaves(agent.policy(learner)) if hasattr(x, "nbytes"))
    taken = memory.argument_size_in_bytes + memory.output_size_in_bytes + memory.temp_size_in_bytes
    row = row._replace(batch=experience.batch_size, parameter_bytes=parameters, update_bytes=taken)
    return row, blocking(update, learner, batch, jax.random.key(3))


def lengths_table(rows: list[LengthRow]) -> Table:
    title = f"One update on MinAtar {GAME.capitalize()}, six actions, by macro length"
    table = Table("", "K", "actions", "batch", "policy, MiB", "update, MiB", "ms", title=title)
    for row in rows:
        size = f"{row.num_actions:,}" if row.num_actions < 1e9 else f"{row.num_actions:.1e}"
        if row.timing is None:
            table.add_row(row.method, str(row.length), size, "refused")
            continue
        sizes = [f"{count / 2**20:.1f}" for count in (row.parameter_bytes, row.update_bytes)]
        table.add_row(row.method, str(row.length), size, str(row.batch), *sizes, f"{1e3 * row.timing.median:.1f}")
    return table


def lengths_record(rows: list[LengthRow]) -> list[dict[str, Any]]:
    return [
        {k: v for k, v in row._asdict().items() if k != "timing"}
        | {"milliseconds": None if row.timing is None else 1e3 * row.timing.median}
        for row in rows
    ]
