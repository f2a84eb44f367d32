"""What a player knows, after Song et al. 2023: numbers from the game's raw observation, and which actions make sense.

Features of one player: legal actions 19, ball 18, closest team mate 7, other team mates 7 each, itself 19, closest
opponent 7, opponents 7 each. Positions are the engine's: x in [-1, 1] towards the opponents' goal, y in [-0.42, 0.42].
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

ACTIONS = (
    *("idle", "left", "top left", "top", "top right", "right", "bottom right", "bottom", "bottom left"),
    *("long pass", "high pass", "short pass", "shot", "sprint", "release direction", "release sprint", "sliding"),
    *("dribble", "release dribble"),
)
_CODE = {name: code for code, name in enumerate(ACTIONS)}
_WITH_BALL = [_CODE[name] for name in ("long pass", "high pass", "short pass", "shot", "dribble")]
_PASSES = [_CODE[name] for name in ("long pass", "high pass", "short pass")]
_FAR_PASSES = _PASSES[:2]
SPRINTING, DRIBBLING = 8, 9  # of the ten sticky actions; those before are directions
GOAL_KICK, CORNER, PENALTY = 2, 4, 6  # game modes; 0 is play
ROLES = 10
NEAR = 0.03  # of the ball: distance at which a player can do something with it
MIDDLE_X, PENALTY_X, PENALTY_Y, END_Y = 0.2, 0.64, 0.27, 0.42

Raw = Mapping[str, Any]  # what gfootball's core observes; arrays, and lists with an entry for each controlled player


def num_features(players: int) -> int:
    """With `players` on the field."""
    return 70 + 7 * (players - 1)


def legal_actions(raw: Raw) -> Bool[np.ndarray, "k v"]:
    """Of every controlled player; what would do nothing, or nothing good, is ruled out."""
    ball_x, ball_y = raw["ball"][:2]
    sticky = np.asarray(raw["left_agent_sticky_actions"], bool)
    legal = np.ones((len(sticky), len(ACTIONS)), bool)
    restart = _restart(raw["game_mode"], ball_x)
    if restart is not None:
        legal[:] = False
        legal[:, [_CODE["idle"], *restart]] = True
        return legal
    theirs = raw["ball_owned_team"] == 1
    near = _ball_distance(raw) <= NEAR
    legal[:, _WITH_BALL] = near[:, None] & (not theirs)
    legal[:, _CODE["sliding"]] = near & theirs & ~sticky[:, DRIBBLING]
    legal[:, _CODE["release sprint"]] = sticky[:, SPRINTING]
    legal[:, _CODE["release dribble"]] = sticky[:, DRIBBLING]
    legal[:, _CODE["release direction"]] = sticky[:, :SPRINTING].any(axis=1)
    if ball_x < PENALTY_X or abs(ball_y) > PENALTY_Y:
        legal[:, _CODE["shot"]] = False
    elif ball_x <= 1.0:  # before the goal there is nobody to pass far to
        legal[:, _FAR_PASSES] = False
    return legal


def _restart(mode: int, ball_x: float) -> list[int] | None:
    """What our goal kick, corner kick or penalty may be taken with, beside waiting."""
    if (mode == GOAL_KICK and ball_x < -0.7) or (mode == CORNER and ball_x > 0.9):
        return _PASSES
    return [_CODE["shot"]] if mode == PENALTY and ball_x > 0.6 else None


def features(raw: Raw, legal: Bool[np.ndarray, "k v"]) -> Float[np.ndarray, "k f"]:
    """Of every controlled player, with what `legal_actions` says."""
    own = np.asarray(raw["left_agent_controlled_player"])
    rows = np.arange(len(own))
    mates = _players(raw, "left_team", own)
    others = np.ones(mates.shape[:2], bool)
    others[rows, own] = False
    mates = mates[others].reshape(len(own), -1, 7)
    opponents = _players(raw, "right_team", own)
    parts = (
        legal,
        _ball(raw, own),
        mates[rows, np.argmin(mates[..., 5], axis=1)],
        mates.reshape(len(own), -1),
        _self(raw, own),
        opponents[rows, np.argmin(opponents[..., 5], axis=1)],
        opponents.reshape(len(own), -1),
    )
    return np.concatenate(parts, axis=1, dtype=np.float32)


def _ball_distance(raw: Raw) -> Float[np.ndarray, " k"]:
    return np.linalg.norm(raw["ball"][:2] - raw["left_team"][raw["left_agent_controlled_player"]], axis=1)


def _players(raw: Raw, team: str, own: np.ndarray) -> Float[np.ndarray, "k n 7"]:
    """A team as each controlled player sees it: place, motion, speed, distance, tiredness."""
    place, motion = raw[team], raw[f"{team}_direction"]
    distance = np.linalg.norm(place - raw["left_team"][own][:, None], axis=2)
    same = np.column_stack([2 * place, 100 * motion, 100 * np.linalg.norm(motion, axis=1)])
    tired = np.broadcast_to(raw[f"{team}_tired_factor"], distance.shape)
    return np.concatenate(
        [np.broadcast_to(same, (len(own), *same.shape)), 2 * distance[..., None], tired[..., None]], axis=2
    )


def _self(raw: Raw, own: np.ndarray) -> Float[np.ndarray, "k 19"]:
    motion = raw["left_team_direction"][own]
    sticky = np.asarray(raw["left_agent_sticky_actions"])
    return np.column_stack(
        [
            raw["left_team"][own],
            100 * motion,
            100 * np.linalg.norm(motion, axis=1),
            np.eye(ROLES)[raw["left_team_roles"][own].astype(int)],
            _ball_distance(raw) > NEAR,
            raw["left_team_tired_factor"][own],
            sticky[:, DRIBBLING],
            sticky[:, SPRINTING],
        ]
    )


def _ball(raw: Raw, own: np.ndarray) -> Float[np.ndarray, "k 18"]:
    ball, motion, owner = raw["ball"], raw["ball_direction"], raw["ball_owned_team"]
    shared = [*ball, *_zone(*ball[:2])]
    moving = [*(20 * motion), 20 * np.hypot(*motion[:2])]
    return np.column_stack(
        [
            np.tile(shared, (len(own), 1)),
            ball[:2] - raw["left_team"][own],
            np.tile(moving, (len(own), 1)),
            _ball_distance(raw),
            np.tile([owner != -1, owner == 0], (len(own), 1)),
        ]
    )


def _zone(x: float, y: float) -> Float[np.ndarray, " 6"]:
    """Which part of the field: our box, our half, the middle, their box, their half, outside."""
    inside, boxed = abs(y) < END_Y, abs(y) < PENALTY_Y
    if -1.0 <= x < -PENALTY_X and boxed:
        zone = 0
    elif -1.0 <= x < -MIDDLE_X and inside:
        zone = 1
    elif -MIDDLE_X <= x <= MIDDLE_X and inside:
        zone = 2
    elif PENALTY_X < x <= 1.0 and boxed:
        zone = 3
    elif MIDDLE_X < x <= 1.0 and inside:
        zone = 4
    else:
        zone = 5
    return np.eye(6)[zone]
