"""Human-normalised scores: the ends of the scale, the names, and some numbers of the published table."""

import pytest

from rld2.report.atari_scores import REFERENCES, game_named, human_normalised, with_human_scale
from rld2.report.paper import load


def test_all_57_games_are_there():
    assert len(REFERENCES) == 57
    assert set(REFERENCES) - {game_named(game) for game in load().games} == {"surround"}
    assert all(random < human for random, human in REFERENCES.values())


def test_sums_of_the_published_columns():
    """A slip in any one number shows here."""
    assert sum(random for random, _ in REFERENCES.values()) == pytest.approx(50864.9)
    assert sum(human for _, human in REFERENCES.values()) == pytest.approx(606494.2)


@pytest.mark.parametrize(
    ("game", "random", "human"),
    [
        ("alien", 227.8, 7127.7),
        ("double_dunk", -18.6, -16.4),
        ("montezuma_revenge", 0.0, 4753.3),
        ("video_pinball", 16256.9, 17667.9),
        ("zaxxon", 32.5, 9173.3),
    ],
)
def test_ends_of_the_scale(game: str, random: float, human: float):
    assert REFERENCES[game] == (random, human)
    assert human_normalised(game, random) == 0.0
    assert human_normalised(game, human) == 1.0
    assert human_normalised(game, random - (human - random)) == pytest.approx(-1.0)


@pytest.mark.parametrize(
    ("written", "name"),
    [
        *(("UpNDown", "up_n_down"), ("up_n_down", "up_n_down"), ("MsPacman", "ms_pacman"), ("Hero", "hero")),
        *(("Jamesbond", "jamesbond"), ("JamesBond", "jamesbond"), ("KungFuMaster", "kung_fu_master")),
        *(("WizardOfWor", "wizard_of_wor"), ("Qbert", "qbert"), ("StarGunner", "star_gunner")),
    ],
)
def test_names_in_both_spellings(written: str, name: str):
    assert game_named(written) == name
    assert human_normalised(written, 100.0) == human_normalised(name, 100.0)


@pytest.mark.parametrize("name", ["Chess", "", "pong2"])
def test_an_unknown_game_is_named(name: str):
    with pytest.raises(ValueError, match=rf"the Atari game '{name}'; it must be one of \['alien', .*in CamelCase"):
        human_normalised(name, 1.0)


def test_rows_of_an_evaluation_get_the_human_scale():
    """Breakout: 1.7 is random play, 30.5 the human."""
    rows = [
        {"seed": 0, "mean": 16.1, "low": 1.7, "high": 30.5},
        {"seed": "all", "mean": 30.5, "low": None, "high": None},
    ]
    scaled = with_human_scale(rows, "atari/breakout")
    assert [row["human_normalised"] for row in scaled] == [
        {"mean": 0.5, "low": 0.0, "high": 1.0},
        {"mean": 1.0, "low": None, "high": None},
    ]
    assert [{name: row[name] for name in rows[0]} for row in scaled] == rows
    assert with_human_scale(rows, "minatar/breakout") == rows
