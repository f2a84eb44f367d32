"""The PyTorch versions that `rld2 bench` times do the same work: same weights, batch and draws give the same update."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.bench.problem import Problem, Sizes, draws_of, make_problem

pytestmark = pytest.mark.bench
SIZES = Sizes(K=3, M=4, B=5, width=16, layers=2, heads=2, vocab=4)


def filled(problem: Problem) -> Problem:
    """Weights of an untrained network hide faults (its output layer is zero): add noise to them all."""
    leaves, tree = jax.tree.flatten(problem.state.online)
    keys = jax.random.split(jax.random.key(7), len(leaves))
    online = jax.tree.unflatten(
        tree, [x + 0.2 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
    )
    target = jax.tree.map(lambda x: 0.9 * x, online)
    return problem._replace(state=problem.state._replace(online=online, target=target))


def same_states(problem: Problem) -> Problem:
    """s = s' and nothing ends: what is learned at s (first version) is what is learned at s' (ours)."""
    data = problem.batch.data
    observation = jnp.broadcast_to(data.observation[:, :1], data.observation.shape)
    data = data._replace(observation=observation, terminated=jnp.zeros_like(data.terminated))
    return problem._replace(batch=problem.batch._replace(data=data))


@pytest.mark.parametrize("tricks", [True, False], ids=["tricks", "first-version"])
@pytest.mark.parametrize("sizes", [SIZES, replace(SIZES, N=1), replace(SIZES, N=5)], ids=["N=K", "N=1", "N=5"])
def test_updates_agree_with_pytorch(sizes: Sizes, tricks: bool):
    torch = pytest.importorskip("torch", reason="the comparison needs PyTorch: pip install 'rld2[bench]'")
    from rld2.bench.torch_agent import TorchAgent, torch_batch
    from rld2.bench.torch_networks import named_arrays

    pairs = "chain" if tricks else "step"
    problem = filled(make_problem(sizes, pairs=pairs))
    if not tricks:
        problem = same_states(problem)
    other = TorchAgent(problem, problem.state, tricks=tricks, compiled=False)
    batch = torch_batch(problem.batch, problem.sizes.spec.discount)
    update, state = jax.jit(problem.agent.update), problem.state
    for i in range(3):
        key = jax.random.key(i)
        state, metrics, _ = update(state, problem.batch, key)
        loss = metrics["critic_loss"] + problem.config.policy_weight * metrics["policy_loss"]
        draws = draws_of(key, sizes, pairs)
        draws = type(draws)(*map(torch.tensor, draws))
        got = other.update(batch, (draws,) if tricks else (draws, draws))
        np.testing.assert_allclose(float(got), float(loss), rtol=1e-3)
        for network, module in ((state.online, other.online), (state.target, other.target)):
            wanted, found = named_arrays(network), module.state_dict()
            assert wanted.keys() == found.keys()
            for name, value in wanted.items():
                # a step of Adam moves a weight by up to 1e-3, whatever the size of its gradient: a gradient that is
                # nearly zero may differ in its sign. How many do depends on the processor (a mean of 2.2e-5 has been
                # seen); steps in other directions would be 1e-3 apart
                difference = np.abs(found[name].numpy() - value)
                assert difference.mean() < 5e-5, name
                assert difference.max() < 5e-3, name
