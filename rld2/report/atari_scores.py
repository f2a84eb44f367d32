"""What 0 and 1 mean in a human-normalised Atari score: the published scores of random play and of a human tester.

Wang et al. 2016, "Dueling network architectures for deep reinforcement learning" (starts after up to 30 no-ops), in the
edition that Agent57 and DeepMind's dqn_zoo use. In Video Pinball the two are so close that one game can rule a mean.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

ATARI = "atari/"  # how the names of its tasks begin


class Reference(NamedTuple):
    random: float
    human: float


REFERENCES = {  # by ALE's name
    name: Reference(random, human)
    for name, random, human in (
        *(("alien", 227.8, 7127.7), ("amidar", 5.8, 1719.5), ("assault", 222.4, 742.0)),
        *(("asterix", 210.0, 8503.3), ("asteroids", 719.1, 47388.7), ("atlantis", 12850.0, 29028.1)),
        *(("bank_heist", 14.2, 753.1), ("battle_zone", 2360.0, 37187.5), ("beam_rider", 363.9, 16926.5)),
        *(("berzerk", 123.7, 2630.4), ("bowling", 23.1, 160.7), ("boxing", 0.1, 12.1)),
        *(("breakout", 1.7, 30.5), ("centipede", 2090.9, 12017.0), ("chopper_command", 811.0, 7387.8)),
        *(("crazy_climber", 10780.5, 35829.4), ("defender", 2874.5, 18688.9), ("demon_attack", 152.1, 1971.0)),
        *(("double_dunk", -18.6, -16.4), ("enduro", 0.0, 860.5), ("fishing_derby", -91.7, -38.7)),
        *(("freeway", 0.0, 29.6), ("frostbite", 65.2, 4334.7), ("gopher", 257.6, 2412.5)),
        *(("gravitar", 173.0, 3351.4), ("hero", 1027.0, 30826.4), ("ice_hockey", -11.2, 0.9)),
        *(("jamesbond", 29.0, 302.8), ("kangaroo", 52.0, 3035.0), ("krull", 1598.0, 2665.5)),
        *(("kung_fu_master", 258.5, 22736.3), ("montezuma_revenge", 0.0, 4753.3), ("ms_pacman", 307.3, 6951.6)),
        *(("name_this_game", 2292.3, 8049.0), ("phoenix", 761.4, 7242.6), ("pitfall", -229.4, 6463.7)),
        *(("pong", -20.7, 14.6), ("private_eye", 24.9, 69571.3), ("qbert", 163.9, 13455.0)),
        *(("riverraid", 1338.5, 17118.0), ("road_runner", 11.5, 7845.0), ("robotank", 2.2, 11.9)),
        *(("seaquest", 68.4, 42054.7), ("skiing", -17098.1, -4336.9), ("solaris", 1236.3, 12326.7)),
        *(("space_invaders", 148.0, 1668.7), ("star_gunner", 664.0, 10250.0), ("surround", -10.0, 6.5)),
        *(("tennis", -23.8, -8.3), ("time_pilot", 3568.0, 5229.2), ("tutankham", 11.4, 167.6)),
        *(("up_n_down", 533.4, 11693.2), ("venture", 0.0, 1187.5), ("video_pinball", 16256.9, 17667.9)),
        *(("wizard_of_wor", 563.5, 4756.5), ("yars_revenge", 3092.9, 54576.9), ("zaxxon", 32.5, 9173.3)),
    )
}


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


BY_PLAIN_NAME = {_plain(name): name for name in REFERENCES}


def game_named(name: str) -> str:
    """ALE's name of a game given as UpNDown or up_n_down."""
    if _plain(name) not in BY_PLAIN_NAME:
        raise ValueError(
            f"no human score is known for the Atari game {name!r}; it must be one of {list(REFERENCES)}, "
            "as written here or in CamelCase"
        )
    return BY_PLAIN_NAME[_plain(name)]


def human_normalised(game: str, score: float) -> float:
    """0 is random play, 1 the human; both published, neither played here."""
    random, human = REFERENCES[game_named(game)]
    return (score - random) / (human - random)


def with_human_scale(rows: Sequence[Mapping[str, Any]], task: str) -> list[dict[str, Any]]:
    """Rows of an evaluation; of an Atari game, with `human_normalised`: their mean and interval on that scale."""
    if not task.startswith(ATARI):
        return [dict(row) for row in rows]

    def scaled(value: float | None) -> float | None:
        return None if value is None else round(human_normalised(task.removeprefix(ATARI), value), 4)

    return [{**row, "human_normalised": {end: scaled(row[end]) for end in ("mean", "low", "high")}} for row in rows]
