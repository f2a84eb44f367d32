"""What holds for every training loop: one program for all lines of a log."""

import jax
import jax.numpy as jnp
import pytest

from rld2.domains.base import VectorDomain
from rld2.runner.dataset_loop import build_dataset
from rld2.runner.host_loop import build_host
from rld2.runner.loop import Loop, build
from rld2.runner.sequences import nothing_to_draw
from rld2.types import Dataset, Updated
from tests.tiny import Hosted, Walk, scripted


@pytest.mark.parametrize("kind", ["traced", "data", "host"])
def test_a_line_is_compiled_once_whatever_the_first_state_is_made_of(kind: str):
    traces = []

    def update(state, batch, key):
        traces.append(state)
        return Updated(state + jnp.ones(2), {"sum": jnp.sum(state)})

    def choose(policy, observation, legal, key):
        return jnp.zeros((observation.shape[0], 2), jnp.int32)

    agent = scripted(choose)._replace(init=lambda key: jnp.full(2, 0.0), update=update)  # of a weak type
    domain = VectorDomain(Walk(), 3)
    loop: Loop
    if kind == "data":
        loop = build_dataset(nothing_to_draw(1), agent._replace(experience=Dataset(3)), 2)
    elif kind == "host":
        loop = build_host(Hosted(domain), agent, 2, overlap=False)
    else:
        loop = build(domain, agent, 2)
    state = loop.init(jax.random.split(jax.random.key(0), 1))
    once = None
    for _ in range(3):
        state, _ = loop.advance(state)
        once = once or len(traces)
    assert len(traces) == once
    loop.close()
