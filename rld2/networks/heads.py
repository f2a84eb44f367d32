"""The networks agents use: a denoiser (logits of mu), a critic q(s, a), a value v(s); each takes a state embedding."""

from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from rld2.networks.convolution import DilatedNetwork
from rld2.networks.layers import MLP, Linear, num_parameters
from rld2.networks.mlp import FlatNetwork, IndependentNetwork, matched_hidden
from rld2.networks.transformer import Transformer
from rld2.types import ActionSpec

DENOISERS = ("transformer", "mlp", "independent", "convolutional")
SEQUENTIAL = ("autoregressive", "mat")  # one component after the other: `networks.sequential`
KINDS = (*DENOISERS, *SEQUENTIAL)

Body = Transformer | FlatNetwork | IndependentNetwork | DilatedNetwork


@dataclass(frozen=True)
class Backbone:
    """Sizes of a denoiser or critic. `mlp` is the paper's ablation, with the parameter count of the transformer;
    `independent` sees the state only (with one reverse step: what a policy without dependence is); `convolutional` is
    for long sequences, whose letters mean the same everywhere; `autoregressive` and `mat` are no denoisers but choose
    one component after the other."""

    kind: Literal["transformer", "mlp", "independent", "convolutional", "autoregressive", "mat"] = "transformer"
    width: int = 32
    layers: int = 1
    heads: int = 1
    projection: int = 0  # transformer: width of a linear layer between state and modulation; 0: none
    recompute: bool = True  # convolutional: gradients compute activations again, sequence by sequence, not keep them

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"network kind must be one of {list(KINDS)}, got {self.kind!r}")
        if self.projection < 0 or (self.projection and self.kind not in ("transformer", "mlp")):
            raise ValueError(
                f"projection must be 0 (none) or a width, and is of a transformer (or the mlp of its size), got "
                f"{self.projection} for {self.kind!r}"
            )
        if min(self.width, self.layers, self.heads) < 1 or self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads and all sizes positive, got {self}")

    def build(self, key: Key[Array, ""], spec: ActionSpec, num_condition: int, steps: int | None) -> Body:
        if self.kind in SEQUENTIAL:
            raise ValueError(f"{self.kind!r} neither denoises nor values actions; take one of {list(DENOISERS)}")
        if self.kind == "independent":
            return IndependentNetwork(key, spec.length, num_condition, self.width, self.layers)
        if self.kind == "convolutional":
            sizes = (spec.length, spec.vocab, num_condition, self.width, self.layers, steps)
            return DilatedNetwork(key, *sizes, recompute=self.recompute)

        def transformer() -> Transformer:
            sizes = (spec.length, spec.vocab, num_condition, self.width, self.layers, self.heads, steps)
            return Transformer(key, *sizes, projection=self.projection)

        if self.kind == "transformer":
            return transformer()
        target = num_parameters(eqx.filter_eval_shape(transformer))
        sizes = (spec.length, spec.vocab, num_condition, self.width, max(self.layers, 1))
        return FlatNetwork(key, *sizes, matched_hidden(target, *sizes, steps), steps)


class Denoiser(eqx.Module):
    """f_theta(a^n, n, s): logits of the clean components. Zero-initialised output: the first policy is uniform."""

    body: Body
    head: Linear

    def __init__(
        self, key: Key[Array, ""], spec: ActionSpec, num_condition: int, backbone: Backbone, steps: int | None
    ):
        self.body = backbone.build(key, spec, num_condition, steps)
        self.head = Linear(key, backbone.width, spec.vocab, scale=0.0)

    def condition(self, state: Float[Array, "b *k c"]) -> Float[Array, "b 1 ..."]:
        return self.body.condition(state)

    def __call__(
        self,
        tokens: Int[Array, "b s k"] | Float[Array, "b s k u"],
        condition: Float[Array, "b 1 ..."],
        step: Int[Array, "b s"] | None,
    ) -> Float[Array, "b s k v"]:
        """`tokens` may be relaxed, as probabilities of letters and mask, where the body is one that can read them."""
        return self.head(self.body(tokens, condition, step))


class Critic(eqx.Module):
    """q(s, a) for S actions of each state: a transformer over the action's components, pooled."""

    body: Body
    head: MLP
    baseline: Linear

    def __init__(self, key: Key[Array, ""], spec: ActionSpec, num_condition: int, backbone: Backbone):
        if backbone.kind == "independent":
            raise ValueError(
                "a critic must see the action; its kind must be one of ['convolutional', 'mlp', 'transformer']"
            )
        key_body, key_head, key_baseline = jax.random.split(key, 3)
        self.body = backbone.build(key_body, spec, num_condition, None)
        self.head = MLP(key_head, (backbone.width, backbone.width, 1), final_scale=0.1)
        self.baseline = Linear(key_baseline, num_condition, 1, scale=0.1)

    def __call__(self, state: Float[Array, "b *k c"], action: Int[Array, "b s k"]) -> Float[Array, "b s"]:
        features = jnp.mean(self.body(action, self.body.condition(state), None), axis=-2)
        pooled = state if state.ndim == 2 else jnp.mean(state, axis=1)
        return (self.head(features) + self.baseline(pooled)[:, None])[..., 0]


class Value(eqx.Module):
    """v(s), one number per state (or per position, for embeddings per position)."""

    body: MLP

    def __init__(self, key: Key[Array, ""], num_condition: int, width: int):
        self.body = MLP(key, (num_condition, width, 1), final_scale=0.1)

    def __call__(self, state: Float[Array, "*b c"]) -> Float[Array, "*b"]:
        return self.body(jax.nn.relu(state))[..., 0]
