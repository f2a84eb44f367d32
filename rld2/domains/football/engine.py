"""A game of football as a worker process plays it: the real engine, one episode after the other, every one by its seed.

It speaks to gfootball's core, below the wrappers that copy every observation once for each player. Rewards and episodes
are those of the wrapped environment.
"""

import contextlib
import importlib
import importlib.util
import io
from typing import Any, NamedTuple

import numpy as np

from rld2.domains.football.features import features, legal_actions
from rld2.domains.football.scenarios import SCENARIOS

LARGEST_SEED = 2_000_000_000  # gfootball's own
CHECKPOINTS, CHECKPOINT_REWARD = 10, 0.1
FARTHEST, STRETCH = 0.99, 0.8  # from the goal's middle: where the first checkpoint is, and how far the last is from it


class Scene(NamedTuple):
    """What a picture of the field shows."""

    left: np.ndarray  # n, 2: where our team is
    right: np.ndarray  # likewise the opponents
    ball: np.ndarray  # 3
    controlled: np.ndarray  # k: indices into `left`
    goals: tuple[int, int]  # ours, theirs


class View(NamedTuple):
    """What the players of one game are given."""

    features: np.ndarray  # k, f
    legal: np.ndarray  # k, v
    scene: Scene


class Played(NamedTuple):
    """What a step led to; `first` is the beginning of the next episode if this one ended."""

    view: View
    reward: float
    done: bool
    first: View | None

    @property
    def won(self) -> bool:
        own, other = self.view.scene.goals
        return own > other


def is_installed() -> bool:
    return importlib.util.find_spec("gfootball") is not None


class Engine:
    """`reset(seed)` begins a sequence of episodes that is the same for the same seed; `step` plays on in it.

    `step_cap`: steps after which an episode is left, though the game goes on.
    """

    def __init__(self, scenario: str, step_cap: int | None = None):
        self.scenario, self.step_cap = SCENARIOS[scenario], step_cap
        self.scenario.register()
        with contextlib.redirect_stderr(io.StringIO()):  # the Gym it needs complains of its age
            config = importlib.import_module("gfootball.env.config")
            core = importlib.import_module("gfootball.env.football_env_core")
        self.config: Any = config.Config(
            {
                "level": self.scenario.level,
                "players": [f"agent:left_players={self.scenario.agents},right_players=0"],
                "game_engine_random_seed": 0,
                "reverse_team_processing": False,
            }
        )
        self.core: Any = core.FootballEnvCore(self.config)
        self.seed, self.episode = 0, 0

    def reset(self, seed: int) -> View:
        self.seed, self.episode = seed, 0
        return self._begin()

    def _begin(self) -> View:
        """The next episode: engine, order of the teams and who kicks off come from its seed alone."""
        draw = np.random.default_rng([self.seed, self.episode]).integers(LARGEST_SEED)
        self.episode += 1
        self.config["game_engine_random_seed"] = int(draw)
        self.config["reverse_team_processing"] = bool(draw % 2)
        self.config["episode_number"] = int(draw // 2 % 2)
        self.core.reset(inc=0)
        self.steps, self.collected = 0, [0] * self.scenario.agents
        return self._view()

    def step(self, action: np.ndarray) -> Played:
        raw, scored, over, _ = self.core.step(action.tolist())
        self.steps += 1
        reward = self._reward(raw, scored)
        view = self._view()
        capped = self.steps == self.step_cap
        return Played(view, reward, over, self._begin() if over or capped else None)

    def _reward(self, raw: dict[str, Any], scored: int) -> float:
        """Goals and checkpoints of every player, summed: whoever first carries the ball over one of ten lines before
        the goal earns it, and a goal brings each player what it has left."""
        total = scored * self.scenario.agents
        if scored == 1:
            total += CHECKPOINT_REWARD * sum(CHECKPOINTS - collected for collected in self.collected)
            self.collected = [CHECKPOINTS] * self.scenario.agents
        elif raw["ball_owned_team"] == 0 and raw["ball_owned_player"] in raw["left_agent_controlled_player"]:
            player = raw["left_agent_controlled_player"].index(raw["ball_owned_player"])
            distance = np.hypot(raw["ball"][0] - 1.0, raw["ball"][1])
            while (collected := self.collected[player]) < CHECKPOINTS and distance <= _line(collected):
                self.collected[player] += 1
                total += CHECKPOINT_REWARD
        return float(total)

    def _view(self) -> View:
        raw = self.core._observation
        legal = legal_actions(raw)
        scene = Scene(
            raw["left_team"],
            raw["right_team"],
            raw["ball"],
            np.asarray(raw["left_agent_controlled_player"]),
            tuple(raw["score"]),
        )
        return View(features(raw, legal), legal, scene)


def _line(number: int) -> float:
    return FARTHEST - STRETCH / (CHECKPOINTS - 1) * number
