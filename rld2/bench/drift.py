"""How fast updates without any advantage make the components of a policy independent, by enumeration.

python -m rld2.bench.drift --out results/drift.json
"""

import argparse
import json
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from rld2.diffusion.schedule import Schedule
from rld2.types import ActionSpec

COMMAND = "python -m rld2.bench.drift --out results/drift.json"
UPDATES = (0, 1, 2, 5, 10, 20)
STEPS = (1, 2, 4, 8, 16, 32)


Mu = Float[np.ndarray, "s k v"]
Matrix = Float[np.ndarray, "s s"]


class Start(NamedTuple):
    """A correlated distribution over `spec.all_actions()`."""

    spec: ActionSpec
    joint: Float[np.ndarray, " a"]


class Row(NamedTuple):
    length: int
    sampler: str  # ancestral or one-by-one
    steps: int
    pairs: str  # forward: (a^n, a^0) of the forward process; chain: of the sampler's own chain
    total_correlation: list[float]  # in nats, after each of `UPDATES`


def agreeing(length: int, agreement: float = 0.8) -> Start:
    """All components equal with this probability (either value as likely), else independent coins."""
    spec = ActionSpec((2,) * length)
    equal = np.all(spec.all_actions() == spec.all_actions()[:, :1], axis=-1)
    return Start(spec, agreement * equal / 2 + (1.0 - agreement) / spec.num_actions)


def partly_masked(spec: ActionSpec) -> Int[np.ndarray, "s k"]:
    return ActionSpec((spec.vocab + 1,) * spec.length).all_actions()


def total_correlation(start: Start) -> float:
    """KL of the joint to the product of its marginals, in nats: 0 where components are independent."""
    spec, joint = start
    product = np.ones_like(joint)
    for column in spec.all_actions().T:
        product *= np.bincount(column, joint)[column]
    terms = np.where(joint > 0.0, joint * np.log(np.maximum(joint, 1e-300) / product), 0.0)
    return max(0.0, float(np.sum(terms)))


def conditionals(start: Start) -> Mu:
    """What FKL with forward pairs learns from samples of `joint`: its exact conditionals, whatever is masked."""
    spec, joint = start
    return _share(np.einsum("sa,a,akv->skv", _agree(spec), joint, _values(spec)))


def chain_conditionals(mu: Mu, spec: ActionSpec, schedule: Schedule) -> Mu:
    """What it learns from pairs (a^n, a^0) of the sampler's chains: E[a^0 | a^n], steps weighed by abar_n."""
    steps = [ancestral(mu, spec, schedule, n) for n in range(schedule.steps, 0, -1)]
    reach = [_start_law(spec)]
    for step in steps[:-1]:
        reach.append(reach[-1] @ step)
    finish, mass = np.eye(len(reach[0]))[:, _clean(spec)], np.zeros(mu.shape)
    for n, (law, step) in enumerate(zip(reversed(reach), reversed(steps), strict=True), start=1):
        finish = step @ finish
        mass += schedule.abar[n] * np.einsum("s,sa,akv->skv", law, finish, _values(spec))
    return _share(mass)


def ancestral(mu: Mu, spec: ActionSpec, schedule: Schedule, n: int) -> Matrix:
    """The transition matrix of reverse step n: every masked component by itself with probability abar_n."""
    return _transition(mu, spec, schedule.abar[n], 1.0 - schedule.abar[n])


def one_by_one(mu: Mu, spec: ActionSpec, schedule: Schedule, n: int) -> Matrix:
    """A fixed number of components, which ones at random."""
    masked = np.sum(partly_masked(spec) == spec.mask_token, axis=-1)
    left = schedule.masked_counts(spec.length)[n - 1]
    ways = np.array([max(1, math.comb(int(m), int(left))) for m in masked])
    chosen = (masked[None] == left) / ways[:, None]
    return _transition(mu, spec, 1.0, 1.0) * chosen


SAMPLERS = {"ancestral": ancestral, "one-by-one": one_by_one}


def sampled(mu: Mu, spec: ActionSpec, schedule: Schedule, sampler: str) -> Start:
    """The distribution the sampler draws from."""
    law = _start_law(spec)
    for n in range(schedule.steps, 0, -1):
        law = law @ SAMPLERS[sampler](mu, spec, schedule, n)
    return Start(spec, law[_clean(spec)])


def drift(start: Start, schedule: Schedule, sampler: str = "ancestral", pairs: str = "forward") -> Row:
    """Total correlation of what is sampled, update after update; before the first, mu are the start's conditionals."""
    mu, measured = conditionals(start), [total_correlation(start)]
    for _ in range(max(UPDATES)):
        now = sampled(mu, start.spec, schedule, sampler)
        measured.append(total_correlation(now))
        mu = conditionals(now) if pairs == "forward" else chain_conditionals(mu, start.spec, schedule)
    return Row(start.spec.length, sampler, schedule.steps, pairs, [round(measured[i], 6) for i in UPDATES])


def _transition(mu: Mu, spec: ActionSpec, unmask: float, stay: float) -> Matrix:
    tokens = partly_masked(spec)
    is_masked = tokens == spec.mask_token
    kernel = np.concatenate([unmask * mu, np.full((*tokens.shape, 1), stay)], axis=-1)
    kernel = np.where(is_masked[..., None], kernel, np.eye(spec.vocab + 1)[tokens])
    return np.prod([kernel[:, k][:, tokens[:, k]] for k in range(spec.length)], axis=0)


def _share(mass: Mu) -> Mu:
    """Normalised; uniform where nothing was ever seen."""
    total = mass.sum(axis=-1, keepdims=True)
    return np.where(total > 0.0, mass / np.where(total > 0.0, total, 1.0), 1.0 / mass.shape[-1])


def _values(spec: ActionSpec) -> Bool[np.ndarray, "a k v"]:
    return spec.all_actions()[..., None] == np.arange(spec.vocab)


def _agree(spec: ActionSpec) -> Bool[np.ndarray, "s a"]:
    tokens = partly_masked(spec)[:, None]
    return np.all((tokens == spec.mask_token) | (tokens == spec.all_actions()), axis=-1)


def _clean(spec: ActionSpec) -> Int[np.ndarray, " a"]:
    """Where the actions stand among the partly masked ones."""
    return spec.all_actions() @ (spec.vocab + 1) ** np.arange(spec.length)[::-1]


def _start_law(spec: ActionSpec) -> Float[np.ndarray, " s"]:
    return np.all(partly_masked(spec) == spec.mask_token, axis=-1).astype(np.float64)


def measure() -> list[Row]:
    rows = []
    for length in (2, 4):
        start = agreeing(length)
        rows += [drift(start, Schedule(n), "ancestral", "forward") for n in STEPS]
        rows += [drift(start, Schedule(n), "one-by-one", "forward") for n in sorted({length // 2, length})]
        rows += [drift(start, Schedule(n), "ancestral", "chain") for n in STEPS]
    return rows


def table(rows: list[Row]) -> str:
    lines = [
        "| K | sampler | pairs | N | " + " | ".join(f"after {u}" for u in UPDATES) + " |",
        "|" + "---|" * (4 + len(UPDATES)),
    ]
    for row in rows:
        values = " | ".join(f"{x:.3f}" for x in row.total_correlation)
        lines.append(f"| {row.length} | {row.sampler} | {row.pairs} | {row.steps} | {values} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    out = parser.parse_args().out
    rows = measure()
    print(table(rows))
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        record = {"command": COMMAND, "updates": UPDATES, "unit": "nats", "rows": [row._asdict() for row in rows]}
        out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
