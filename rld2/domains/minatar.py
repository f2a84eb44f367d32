"""The five MinAtar games through pgx-minatar (an extra, GPL-3: imported only when asked for)."""

import importlib
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from rld2.domains.base import Outcome
from rld2.types import ActionSpec

GAMES = {
    "asterix": "MinAtarAsterix",
    "breakout": "MinAtarBreakout",
    "freeway": "MinAtarFreeway",
    "seaquest": "MinAtarSeaquest",
    "space_invaders": "MinAtarSpaceInvaders",
}


class MinAtar:
    """One game. `sticky`: chance that the previous action is repeated; `minimal`: only actions that do something."""

    def __init__(self, game: str, *, sticky: float = 0.1, minimal: bool = True):
        if game not in GAMES:
            raise ValueError(f"MinAtar game must be one of {sorted(GAMES)}, got {game!r}")
        if not 0.0 <= sticky <= 1.0:
            raise ValueError(f"sticky must be a probability, got {sticky}")
        try:
            module = importlib.import_module(f"pgx_minatar.{game}")
        except ImportError as error:
            raise ValueError(f"MinAtar game {game!r} needs the extra 'minatar': pip install 'rld2[minatar]'") from error
        self.game = getattr(module, GAMES[game])(use_minimal_action_set=minimal, sticky_action_prob=sticky)
        self.action = ActionSpec((int(self.game.legal_action_mask.shape[0]),))

    def reset(self, key: Key[Array, ""]) -> tuple[Any, Bool[Array, "10 10 c"]]:
        state = self.game.init(jax.random.key_data(key))
        return state, state.observation

    def step(self, state: Any, action: Int[Array, " 1"], key: Key[Array, ""]) -> Outcome:
        after = self.game.step(state, action[0], jax.random.key_data(key))
        return Outcome(after, after.observation, after.rewards[0].astype(jnp.float32), after.terminated)
