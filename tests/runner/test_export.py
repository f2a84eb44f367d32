"""A policy in a file plays as it did in the run; any other file is refused."""

import dataclasses
import functools
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rld2.diffusion.sample import Sampler
from rld2.runner.config import TrainConfig, make_agent
from rld2.runner.export import LoadedPolicy, export, load
from rld2.types import ActionSpec, ActSpec, Agent, EnvSpec, beginning
from tests.tiny import AGENTS, tiny

VECTOR = jax.ShapeDtypeStruct((5,), jnp.float32)
DICT = {"grid": jax.ShapeDtypeStruct((4, 4, 2), jnp.bool_), "rest": VECTOR}


class Exported(NamedTuple):
    path: Path
    config: TrainConfig
    spec: EnvSpec
    agent: Agent
    policy: Any
    loaded: LoadedPolicy


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory):
    @functools.cache
    def make(kind: str, with_dict: bool = False) -> Exported:
        config = tiny(AGENTS[kind])
        spec = EnvSpec("cases", DICT if with_dict else VECTOR, ActionSpec((4, 2, 3)), 4, True, True, 0.75)
        agent = make_agent(config, spec)
        policy = agent.policy(agent.init(jax.random.key(0)))

        def head(policy: Any) -> Any:
            return (policy if kind == "fkl" else policy.policy).denoiser.head.weight

        policy = eqx.tree_at(head, policy, jax.random.normal(jax.random.key(1), head(policy).shape))  # not uniform
        path = tmp_path_factory.mktemp("export") / "sub" / "policy.safetensors"
        export(path, config, spec, policy)
        return Exported(path, config, spec, agent, policy, load(path))

    return make


def observations(spec: EnvSpec, size: int = 20) -> Any:
    rng = np.random.default_rng(0)
    draw = {"b": lambda s: rng.random(s) < 0.5, "f": lambda s: rng.normal(size=s).astype(np.float32)}
    return jax.tree.map(lambda x: draw[np.dtype(x.dtype).kind]((size, *x.shape)), spec.observation)


@pytest.mark.parametrize("kind", AGENTS)
@pytest.mark.parametrize("with_dict", [False, True])
def test_actions_are_those_of_the_agent(exported: Any, kind: str, with_dict: bool):
    made = exported(kind, with_dict)
    observation = observations(made.spec)
    act = jax.jit(made.agent.act, static_argnums=4)
    for seed in (0, 5):
        expected = act(made.policy, beginning(observation), None, jax.random.key(seed), ActSpec()).action
        np.testing.assert_array_equal(made.loaded(observation, seed=seed), expected)
    assert len(np.unique(expected, axis=0)) > 3
    assert made.loaded.config == made.config
    assert made.loaded.spec == dataclasses.replace(made.spec, name=made.config.domain.name)
    jax.tree.map(np.testing.assert_array_equal, made.loaded.parameters, made.policy)


def test_a_single_observation_is_a_batch_of_one(exported: Any):
    made = exported("fkl", True)
    batch = observations(made.spec, 1)
    single = jax.tree.map(lambda x: x[0], batch)
    action = made.loaded(single, seed=3)
    assert isinstance(action, np.ndarray)
    assert action.shape == (3,)
    np.testing.assert_array_equal(action, made.loaded(batch, seed=3)[0])


def test_sampler_steps_and_legality_can_be_chosen(exported: Any):
    made = exported("fkl")
    observation = observations(made.spec)
    greedy = [made.loaded(observation, seed=seed, sampler=Sampler("greedy"), steps=2) for seed in (0, 1)]
    np.testing.assert_array_equal(*greedy)
    legal = np.broadcast_to(made.spec.action.valid, (20, 3, 4)).copy()
    legal[:, 0, 1:] = False
    assert np.all(made.loaded(observation, legal=legal)[:, 0] == 0)
    assert made.loaded(observation[0], legal=legal[0])[0] == 0
    with pytest.raises(ValueError, match=r"legal has shape \(2, 4\), expected \(20, 3, 4\)"):
        made.loaded(observation, legal=legal[0, :2])


@pytest.mark.parametrize("shape", [(), (4,), (6,), (20, 4), (2, 20, 5), (5, 20), (1, 1, 5)])
def test_observations_of_the_wrong_shape_are_refused(exported: Any, shape: tuple[int, ...]):
    with pytest.raises(ValueError, match=r"this policy wants \(5,\), with or without one leading axis"):
        exported("fkl").loaded(np.zeros(shape))


def test_dictionaries_must_match(exported: Any):
    loaded, grid, rest = exported("fkl", True).loaded, np.zeros((4, 4, 2)), np.zeros(5)
    wrong = [
        {"grid": grid},
        {"grid": grid, "other": rest},
        {"grid": grid, "rest": rest, "more": rest},
        {"grid": grid[None], "rest": rest},
        {"grid": np.zeros((3, 4, 4, 2)), "rest": np.zeros((2, 5))},
        grid,
        None,
    ]
    for observation in wrong:
        with pytest.raises(ValueError, match=r"this policy wants \{'grid': \(4, 4, 2\), 'rest': \(5,\)\}"):
            loaded(observation)


def test_no_file(tmp_path: Path):
    with pytest.raises(ValueError, match=r"no policy file at .*absent; `rld2 export RUN` writes one"):
        load(tmp_path / "absent")


def test_a_foreign_file_is_refused(tmp_path: Path, exported: Any):
    path = tmp_path / "other.safetensors"
    save_file({"weight": np.zeros(3)}, path)
    with pytest.raises(ValueError, match="is not a policy of rld2: format None"):
        load(path)
    save_file(load_file(exported("fkl").path), path, metadata={"format": "rld2-policy-0"})
    with pytest.raises(ValueError, match="format 'rld2-policy-0', expected 'rld2-policy-1'"):
        load(path)
    path.write_text("not even a table")
    with pytest.raises(ValueError, match="is not a readable safetensors file"):
        load(path)


def test_a_truncated_file_is_refused(tmp_path: Path, exported: Any):
    data, path = exported("fkl").path.read_bytes(), tmp_path / "cut.safetensors"
    for length in (0, 5, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(ValueError, match=r"cut\.safetensors is not a readable safetensors file.*export .* again"):
            load(path)


def test_a_flipped_byte_is_refused_wherever_it_is(tmp_path: Path, exported: Any):
    """In the length, in the header (which holds config, action and observation) and in the tensors."""
    data, path = exported("fkl").path.read_bytes(), tmp_path / "flipped.safetensors"
    header = 8 + int.from_bytes(data[:8], "little")
    places = [*range(8), *range(8, header, 7), *range(header, len(data), (len(data) - header) // 50), len(data) - 1]
    for place in places:
        for flip in (0x01, 0x80):
            damaged = bytearray(data)
            damaged[place] ^= flip
            path.write_bytes(damaged)
            with pytest.raises(ValueError, match=r"flipped\.safetensors"):
                load(path)
