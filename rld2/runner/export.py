"""A trained policy as one file to share: safetensors, with a JSON header that says what it is; and back."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from rld2.diffusion.sample import Sampler
from rld2.runner.config import TrainConfig, from_json, make_agent, to_json
from rld2.types import ActionSpec, ActSpec, Agent, EnvSpec, beginning

FORMAT = "rld2-policy-1"


def export(path: Path, config: TrainConfig, spec: EnvSpec, policy: PyTree, phase: int = 0) -> None:
    """Write `policy` (of one seed) to `path`; the header holds config, action and observation, and a checksum."""
    tensors = _tensors(policy)
    header = {
        "format": FORMAT,
        "config": to_json(config),
        "nvec": json.dumps(spec.action.nvec),
        "observation": json.dumps(_describe(spec.observation)),
        "discount": repr(spec.discount),
        "can_truncate": json.dumps(spec.can_truncate),
        "team": json.dumps(spec.team),
        "phase": json.dumps(phase),
    }
    header["sha256"] = _digest(header, tensors)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, metadata=header)


@dataclass
class LoadedPolicy:
    """A policy to play with: numpy in, numpy out. Observations may have a leading axis of states or none.

    A recurrent policy remembers the states it was asked about, in order, until `begin` starts a new episode.
    """

    config: TrainConfig
    spec: EnvSpec
    agent: Agent
    parameters: PyTree
    act: Any
    carry: PyTree = None

    def begin(self) -> None:
        """A new episode: forget what was seen."""
        self.carry = None

    def __call__(
        self,
        observation: PyTree,
        *,
        reward: float | np.ndarray = 0.0,
        legal: np.ndarray | None = None,
        seed: int = 0,
        sampler: Sampler | None = None,
        steps: int | None = None,
    ) -> np.ndarray:
        """The action (a tuple of K choices) for one observation, or one each for a batch of them.

        `reward` is of the action before, which a recurrent policy may want to know; others do not look at it.
        """
        single = self._is_single(observation)
        batched = jax.tree.map(lambda x: jnp.asarray(x)[None] if single else jnp.asarray(x), observation)
        lead = () if single else jax.tree.leaves(batched)[0].shape[:1]
        if legal is not None and np.shape(legal) != (*lead, *self.spec.action.valid.shape):
            raise ValueError(
                f"legal has shape {np.shape(legal)}, expected {(*lead, *self.spec.action.valid.shape)}: a row for each "
                f"component, a column for each value"
            )
        allowed = None if legal is None else jnp.asarray(legal)[None] if single else jnp.asarray(legal)
        step = beginning(batched, allowed)
        step = step._replace(reward=jnp.broadcast_to(jnp.asarray(reward, jnp.float32), step.reward.shape))
        carry = self.agent.carry(step.reward.shape[0]) if self.carry is None else self.carry
        acted = self.act(self.parameters, step, carry, jax.random.key(seed), ActSpec(sampler, steps))
        self.carry = acted.carry
        action = np.asarray(acted.action)
        return action[0] if single else action

    def _is_single(self, observation: PyTree) -> bool:
        """Whether this is one observation and not a batch; an error if it is neither."""
        seen, wanted = _shapes(observation), _shapes(self.spec.observation)
        if jax.tree.structure(seen) == jax.tree.structure(wanted):
            pairs = list(zip(jax.tree.leaves(seen), jax.tree.leaves(wanted), strict=True))
            if all(s.shape == w.shape for s, w in pairs):
                return True
            sizes = {s.shape[:1] for s, _ in pairs}
            if all(s.shape[1:] == w.shape and s.shape for s, w in pairs) and len(sizes) == 1:
                return False
        raise ValueError(
            f"observation has shape {jax.tree.map(lambda x: x.shape, seen)}, this policy wants "
            f"{jax.tree.map(lambda x: x.shape, wanted)}, with or without one leading axis"
        )


def load(path: str | Path) -> LoadedPolicy:
    """Open a file written by `export` (or `rld2 export`). A foreign or damaged file is refused."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"no policy file at {path}; `rld2 export RUN` writes one")
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path} is not a readable safetensors file ({error}); export the policy again") from error
    if header.get("format") != FORMAT:
        raise ValueError(f"{path} is not a policy of rld2: format {header.get('format')!r}, expected {FORMAT!r}")
    if header.pop("sha256", None) != _digest(header, tensors):
        raise ValueError(f"{path} is damaged: its checksum does not match its contents; export the policy again")
    config = from_json(header["config"])
    spec = EnvSpec(
        name=config.domain.name,
        observation=_undescribe(json.loads(header["observation"])),
        action=ActionSpec(tuple(json.loads(header["nvec"]))),
        num_envs=config.domain.num_envs,
        can_truncate=json.loads(header["can_truncate"]),
        discount=float(header["discount"]),
        team=json.loads(header.get("team", "false")),
    )
    agent = make_agent(config, spec, json.loads(header.get("phase", "0")))
    shapes = jax.eval_shape(lambda key: agent.policy(agent.init(key)), jax.random.key(0))
    expected = jax.tree_util.tree_leaves_with_path(shapes)
    names = [jax.tree_util.keystr(at) for at, _ in expected]
    if set(names) != set(tensors) or any(
        tensors[n].shape != leaf.shape for n, (_, leaf) in zip(names, expected, strict=True)
    ):
        raise ValueError(f"{path} does not hold the parameters its config describes; export the policy again")
    parameters = jax.tree.unflatten(jax.tree.structure(shapes), [jnp.asarray(tensors[n]) for n in names])
    return LoadedPolicy(config, spec, agent, parameters, jax.jit(agent.act, static_argnums=4))


def _tensors(policy: PyTree) -> dict[str, np.ndarray]:
    return {jax.tree_util.keystr(at): np.asarray(leaf) for at, leaf in jax.tree_util.tree_leaves_with_path(policy)}


def _digest(header: dict[str, str], tensors: dict[str, np.ndarray]) -> str:
    """Of all that is in the file: a header that describes other tensors is as wrong as a changed tensor."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tensor.shape}".encode())
        digest.update(np.ascontiguousarray(tensor).tobytes())
    return digest.hexdigest()


def _shapes(observation: PyTree) -> PyTree[jax.ShapeDtypeStruct]:
    """Shapes in dictionaries and tuples only, as a file keeps them."""
    arrays = jax.tree.map(
        lambda x: x if hasattr(x, "shape") else np.asarray(x), observation, is_leaf=lambda x: x is None
    )
    return _undescribe(_describe(arrays))


def _describe(observation: PyTree) -> Any:
    """An observation of arrays in dictionaries and lists, as JSON."""
    if isinstance(observation, dict):
        return {"dict": {k: _describe(v) for k, v in observation.items()}}
    if isinstance(observation, list | tuple):
        return {"list": [_describe(v) for v in observation]}
    return {"shape": list(observation.shape), "dtype": str(observation.dtype)}


def _undescribe(record: Any) -> PyTree:
    if "dict" in record:
        return {k: _undescribe(v) for k, v in record["dict"].items()}
    if "list" in record:
        return tuple(_undescribe(v) for v in record["list"])
    return jax.ShapeDtypeStruct(tuple(record["shape"]), record["dtype"])
