"""PPO and DQN the short way: one function, one scan, plain dictionaries of parameters, one environment hard-wired.

What the agents of this package are measured against: the same sizes, the same games and the same work, without a
contract to keep. It is given our patches + matmul instead of convolutions, which on CPU is worth a factor.
"""

from typing import Any, NamedTuple

import flashbax
import jax
import jax.numpy as jnp
import optax

from rld2.domains.base import VectorDomain
from rld2.domains.minatar import MinAtar

Params = dict[str, Any]
GAMMA = 0.99


class Sizes(NamedTuple):
    """Of a segment: as many frames and updates as the contender of this package runs between two reports."""

    game: str
    num_envs: int
    rollout: int
    iterations: int
    batch: int  # of a minibatch
    updates: int  # dqn: after each collection; ppo: minibatches an epoch
    epochs: int = 4
    embedding: int = 128
    patterns: int = 64
    hidden: int = 128
    capacity: int = 100_000
    sticky: float = 0.1


def _dense(key: jax.Array, num_in: int, num_out: int) -> Params:
    return {"w": jax.random.normal(key, (num_in, num_out)) * num_in**-0.5, "b": jnp.zeros(num_out)}


def _apply(layer: Params, x: jax.Array) -> jax.Array:
    return x @ layer["w"] + layer["b"]


def _patches(x: jax.Array) -> jax.Array:
    height, width = x.shape[-3] - 2, x.shape[-2] - 2
    return jnp.concatenate([x[..., i : i + height, j : j + width, :] for i in range(3) for j in range(3)], axis=-1)


def _init(key: jax.Array, sizes: Sizes, channels: int, outputs: dict[str, tuple[int, ...]]) -> Params:
    keys = jax.random.split(key, 3 + len(outputs))
    params: Params = {
        "conv": _dense(keys[0], 9 * channels, 16),
        "dense": _dense(keys[1], 8 * 8 * 16, sizes.embedding),
        "second": _dense(keys[2], 9 * 16, sizes.patterns),
    }
    for key, (name, widths) in zip(keys[3:], outputs.items(), strict=True):
        chain = (sizes.embedding + sizes.patterns, *widths)
        parts = zip(jax.random.split(key, len(widths)), chain[:-1], chain[1:], strict=True)
        params[name] = [_dense(k, i, o) for k, i, o in parts]
    return params


def _embed(params: Params, observation: jax.Array) -> jax.Array:
    hidden = jax.nn.relu(_apply(params["conv"], _patches(observation.astype(jnp.float32))))
    dense = jax.nn.relu(_apply(params["dense"], hidden.reshape(*hidden.shape[:-3], -1)))
    matches = jnp.max(jax.nn.relu(_apply(params["second"], _patches(hidden))), axis=(-3, -2))
    return jnp.concatenate([dense, matches], axis=-1)


def _head(layers: list[Params], x: jax.Array) -> jax.Array:
    for layer in layers[:-1]:
        x = jax.nn.relu(_apply(layer, x))
    return _apply(layers[-1], x)


def ppo(sizes: Sizes) -> tuple[Any, Any]:
    """(start, segment): `start(key)` makes the state, `segment(state)` runs `iterations` of rollout and epochs."""
    domain = VectorDomain(MinAtar(sizes.game, sticky=sizes.sticky), sizes.num_envs)
    actions, channels = domain.spec.action.vocab, domain.spec.observation.shape[-1]
    optimiser = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-3, eps=1e-5))

    def start(key: jax.Array) -> Any:
        heads = {"actor": (sizes.hidden, actions), "critic": (sizes.embedding, 1)}
        params = _init(key, sizes, channels, heads)
        state, step = domain.reset(key)
        return params, optimiser.init(params), state, step.observation, key

    def forward(params: Params, observation: jax.Array) -> tuple[jax.Array, jax.Array]:
        embedding = _embed(params, observation)
        return jax.nn.log_softmax(_head(params["actor"], embedding)), _head(params["critic"], embedding)[..., 0]

    def loss(params: Params, rows: Any) -> jax.Array:
        observation, action, old, advantage, target = rows
        log_pi, value = forward(params, observation)
        ratio = jnp.exp(jnp.take_along_axis(log_pi, action[:, None], 1)[:, 0] - old)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        actor = -jnp.mean(jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.8, 1.2) * advantage))
        entropy = -jnp.mean(jnp.sum(jnp.exp(log_pi) * log_pi, axis=-1))
        return actor + 0.5 * jnp.mean(jnp.square(value - target)) - 0.01 * entropy

    def iteration(carry: Any, _: None) -> tuple[Any, None]:
        params, opt, env, observation, key = carry
        key, key_play, key_learn = jax.random.split(key, 3)

        def play(carry: Any, key: jax.Array) -> tuple[Any, Any]:
            env, observation = carry
            key_act, key_step = jax.random.split(key)
            log_pi, value = forward(params, observation)
            action = jax.random.categorical(key_act, log_pi)
            env, step = domain.step(env, action[:, None], key_step)
            old = jnp.take_along_axis(log_pi, action[:, None], 1)[:, 0]
            return (env, step.observation), (observation, action, old, value, step.reward, step.terminated)

        (env, last), rows = jax.lax.scan(play, (env, observation), jax.random.split(key_play, sizes.rollout))
        observation, action, old, value, reward, done = rows
        after = jnp.concatenate([value[1:], forward(params, last)[1][None]])

        def back(carry: jax.Array, at: Any) -> tuple[jax.Array, jax.Array]:
            delta, trace = at
            carry = delta + trace * carry
            return carry, carry

        factor = GAMMA * (1.0 - done)
        parts = (reward + factor * after - value, 0.9 * factor)
        advantage = jax.lax.scan(back, jnp.zeros(sizes.num_envs), parts, reverse=True)[1]
        flat = jax.tree.map(
            lambda x: x.reshape(-1, *x.shape[2:]), (observation, action, old, advantage, advantage + value)
        )

        def minibatch(carry: Any, index: jax.Array) -> tuple[Any, None]:
            params, opt = carry
            gradient = jax.grad(loss)(params, jax.tree.map(lambda x: x[index], flat))
            step, opt = optimiser.update(gradient, opt, params)
            return (optax.apply_updates(params, step), opt), None

        def epoch(carry: Any, key: jax.Array) -> tuple[Any, None]:
            order = jax.random.permutation(key, sizes.num_envs * sizes.rollout).reshape(-1, sizes.batch)
            return jax.lax.scan(minibatch, carry, order)

        (params, opt), _ = jax.lax.scan(epoch, (params, opt), jax.random.split(key_learn, sizes.epochs))
        return (params, opt, env, last, key), None

    segment = jax.jit(lambda state: jax.lax.scan(iteration, state, None, length=sizes.iterations)[0], donate_argnums=0)
    return jax.jit(start), segment


def dqn(sizes: Sizes) -> tuple[Any, Any]:
    """As `ppo`: double Q-learning with flashbax's prioritised buffer of single transitions."""
    domain = VectorDomain(MinAtar(sizes.game, sticky=sizes.sticky), sizes.num_envs)
    actions, channels = domain.spec.action.vocab, domain.spec.observation.shape[-1]
    optimiser = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(5e-4, eps=1e-5))
    buffer = flashbax.make_prioritised_flat_buffer(
        max_length=sizes.capacity, min_length=sizes.batch, sample_batch_size=sizes.batch,
        add_sequences=False, add_batch_size=sizes.num_envs, priority_exponent=0.6,
    )  # fmt: skip

    def start(key: jax.Array) -> Any:
        params = _init(key, sizes, channels, {"q": (actions,)})
        state, step = domain.reset(key)
        one = {
            "observation": step.observation[0],
            "action": jnp.zeros((), jnp.int32),
            "reward": jnp.zeros(()),
            "done": jnp.zeros((), bool),
        }
        return (
            params,
            params,
            optimiser.init(params),
            state,
            step.observation,
            buffer.init(one),
            jnp.zeros((), int),
            key,
        )

    def q_of(params: Params, observation: jax.Array) -> jax.Array:
        return _head(params["q"], _embed(params, observation))

    def learn(carry: Any, key: jax.Array) -> tuple[Any, None]:
        params, target, opt, replay, count = carry
        drawn = buffer.sample(replay, key)
        first, second = drawn.experience.first, drawn.experience.second
        best = jnp.argmax(q_of(params, second["observation"]), axis=-1)
        after = jnp.take_along_axis(q_of(target, second["observation"]), best[:, None], 1)[:, 0]
        goal = first["reward"] + GAMMA * (1.0 - first["done"]) * after
        weight = (jnp.min(drawn.probabilities) / drawn.probabilities) ** 0.4

        def loss(params: Params) -> tuple[jax.Array, jax.Array]:
            q = jnp.take_along_axis(q_of(params, first["observation"]), first["action"][:, None], 1)[:, 0]
            return jnp.mean(weight * optax.huber_loss(q, goal)), jnp.abs(q - goal)

        gradient, error = jax.grad(loss, has_aux=True)(params)
        step, opt = optimiser.update(gradient, opt, params)
        params = optax.apply_updates(params, step)
        replay = buffer.set_priorities(replay, drawn.indices, error + 1e-6)
        target = jax.tree.map(lambda t, p: jnp.where(count % 250 == 0, p, t), target, params)
        return (params, target, opt, replay, count + 1), None

    def iteration(carry: Any, _: None) -> tuple[Any, None]:
        params, target, opt, env, observation, replay, count, key = carry
        key, key_random, key_step, key_learn = jax.random.split(key, 4)
        greedy = jnp.argmax(q_of(params, observation), axis=-1)
        key_explore, key_action = jax.random.split(key_random)
        explores = jax.random.uniform(key_explore, greedy.shape) < 0.01
        action = jnp.where(explores, jax.random.randint(key_action, greedy.shape, 0, actions), greedy)
        env, step = domain.step(env, action[:, None], key_step)
        replay = buffer.add(
            replay, {"observation": observation, "action": action, "reward": step.reward, "done": step.terminated}
        )
        carry = (params, target, opt, replay, count)
        (params, target, opt, replay, count), _ = jax.lax.scan(learn, carry, jax.random.split(key_learn, sizes.updates))
        return (params, target, opt, env, step.observation, replay, count, key), None

    segment = jax.jit(lambda state: jax.lax.scan(iteration, state, None, length=sizes.iterations)[0], donate_argnums=0)
    return jax.jit(start), segment
