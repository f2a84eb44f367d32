"""Features and legal actions by hand, on observations made up here: no engine."""

from typing import Any

import numpy as np
import pytest

from rld2.domains.football.features import ACTIONS, features, legal_actions, num_features
from rld2.domains.football.scenarios import PAPER, SCENARIOS

KICKS = {"long pass", "high pass", "short pass", "shot", "dribble"}
RELEASES = {"release direction", "release sprint", "release dribble"}
ALWAYS = set(ACTIONS) - KICKS - RELEASES - {"sliding"}


def raw(**changes: Any) -> dict[str, Any]:
    """A keeper and two players of ours, of which player 2 stands at the ball; a keeper and one of theirs."""
    seen: dict[str, Any] = {
        "ball": np.array([0.5, 0.1, 0.25]),
        "ball_direction": np.array([0.03, -0.04, 0.5]),
        "ball_owned_team": 0,
        "game_mode": 0,
        "left_team": np.array([[-1.0, 0.0], [0.2, -0.3], [0.48, 0.1]]),
        "left_team_direction": np.array([[0.0, 0.0], [0.003, 0.004], [0.0, -0.01]]),
        "left_team_tired_factor": np.array([0.0, 0.125, 0.25]),
        "left_team_roles": np.array([0, 5, 9]),
        "right_team": np.array([[1.0, 0.0], [0.6, 0.1]]),
        "right_team_direction": np.array([[0.0, 0.0], [-0.006, 0.008]]),
        "right_team_tired_factor": np.array([0.5, 0.75]),
        "left_agent_controlled_player": [1, 2],
        "left_agent_sticky_actions": [np.zeros(10, np.uint8), np.zeros(10, np.uint8)],
    }
    return seen | changes


def sticky(*on: int) -> np.ndarray:
    return np.isin(np.arange(10), on).astype(np.uint8)


def allowed(player: int, **changes: Any) -> set[str]:
    return {name for name, legal in zip(ACTIONS, legal_actions(raw(**changes))[player], strict=True) if legal}


def test_features_by_hand():
    seen = raw(left_agent_sticky_actions=[sticky(4, 8), sticky(9)])
    legal = legal_actions(seen)
    got = features(seen, legal)
    assert got.shape == (2, num_features(5)) == (2, 98)
    assert got.dtype == np.float32
    far, near = np.hypot(0.3, 0.4), 0.02
    ball = [0.5, 0.1, 0.25, 0, 0, 0, 0, 1, 0]
    motion = [0.6, -0.8, 10.0, 1.0]
    keeper = [-2.0, 0.0, 0, 0, 0]
    mate = [0.96, 0.2, 0.0, -1.0, 1.0, 2 * np.hypot(0.28, 0.4), 0.25]
    their_keeper, their_player = [2.0, 0.0, 0, 0, 0], [1.2, 0.2, -0.6, 0.8, 1.0]
    to_keeper, to_player = 2 * np.hypot(0.8, 0.3), 2 * np.hypot(0.4, 0.4)
    first = [
        *legal[0],
        *(*ball, 0.3, 0.4, *motion, far, 1, 1),
        *mate,
        *(*keeper, 2 * np.hypot(1.2, 0.3), 0.0, *mate),
        *(0.2, -0.3, 0.3, 0.4, 0.5, *np.eye(10)[5], 1, 0.125, 0, 1),
        *(*their_player, to_player, 0.75),
        *(*their_keeper, to_keeper, 0.5, *their_player, to_player, 0.75),
    ]
    np.testing.assert_allclose(got[0], first, rtol=1e-6)
    np.testing.assert_allclose(got[1, 19 + 9 : 19 + 18], [0.02, 0.0, *motion, near, 1, 1], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(got[1, 37 + 5], 2 * np.hypot(0.28, 0.4), rtol=1e-6)  # the mate, not the keeper
    np.testing.assert_allclose(got[1, 58:77], [0.48, 0.1, 0.0, -1.0, 1.0, *np.eye(10)[9], 0, 0.25, 1, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("place", "zone"),
    [
        ((-0.9, 0.0), 0),
        ((-0.9, 0.3), 1),
        ((-0.64, 0.0), 1),
        ((-0.2, 0.0), 2),
        ((0.2, -0.4), 2),
        ((0.64, 0.0), 4),
        ((0.65, 0.26), 3),
        ((0.65, 0.27), 4),
        ((1.01, 0.0), 5),
        ((0.0, 0.42), 5),
    ],
)
def test_zones_of_the_field(place: tuple[float, float], zone: int):
    seen = raw(ball=np.array([*place, 0.0]))
    assert np.flatnonzero(features(seen, legal_actions(seen))[0, 22:28]).tolist() == [zone]


def test_who_has_the_ball():
    owned = [features(raw(ball_owned_team=team), np.ones((2, 19), bool))[0, 35:37].tolist() for team in (-1, 0, 1)]
    assert owned == [[0, 0], [1, 1], [1, 0]]


def test_only_who_is_at_our_ball_kicks():
    assert allowed(0) == ALWAYS
    assert allowed(1) == ALWAYS | KICKS - {"shot"}
    assert allowed(1, ball_owned_team=-1) == ALWAYS | KICKS - {"shot"}


def test_only_who_is_at_their_ball_slides():
    assert allowed(0, ball_owned_team=1) == ALWAYS
    assert allowed(1, ball_owned_team=1) == ALWAYS | {"sliding"}
    dribbling = [sticky(), sticky(9)]
    assert allowed(1, ball_owned_team=1, left_agent_sticky_actions=dribbling) == ALWAYS | {"release dribble"}


def test_what_is_held_can_be_released():
    assert allowed(0, left_agent_sticky_actions=[sticky(3, 8, 9), sticky()]) == ALWAYS | RELEASES
    assert allowed(0, left_agent_sticky_actions=[sticky(8), sticky()]) == ALWAYS | {"release sprint"}


def test_before_the_goal_one_shoots_and_passes_short():
    near_goal = {"ball": np.array([0.7, 0.1, 0.0]), "left_team": np.array([[-1.0, 0.0], [0.2, 0.0], [0.7, 0.1]])}
    assert allowed(1, **near_goal) == ALWAYS | {"short pass", "shot", "dribble"}
    near_goal |= {"ball": np.array([0.7, -0.3, 0.0]), "left_team": np.array([[-1.0, 0.0], [0.2, 0.0], [0.7, -0.3]])}
    assert allowed(1, **near_goal) == ALWAYS | KICKS - {"shot"}


@pytest.mark.parametrize(
    ("mode", "ball_x", "kicks"),
    [
        (2, -0.9, {"long pass", "high pass", "short pass"}),
        (4, 0.99, {"long pass", "high pass", "short pass"}),
        (6, 0.8, {"shot"}),
    ],
)
def test_our_kicks_from_a_dead_ball(mode: int, ball_x: float, kicks: set[str]):
    assert allowed(0, game_mode=mode, ball=np.array([ball_x, 0.0, 0.0])) == {"idle"} | kicks
    assert allowed(0, game_mode=mode, ball=np.array([-ball_x, 0.0, 0.0])) == ALWAYS  # theirs


def test_scenarios_of_the_paper():
    assert (
        *("pass_and_shoot", "run_pass_and_shoot", "3_vs_1", "counterattack_easy", "counterattack_hard", "corner"),
        *("5_vs_5", "11_vs_11"),
    ) == PAPER
    agents = [SCENARIOS[name].agents for name in PAPER]
    assert agents == [2, 2, 3, 10, 10, 10, 4, 10]
    assert [SCENARIOS[name].difficulty for name in ("5_vs_5", "11_vs_11", "11_vs_11_easy")] == [1.0, 1.0, 0.05]
