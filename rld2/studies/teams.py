"""Joint actions of K players: RL-D2 beside what chooses them one after the other, and what chooses them alone."""

from rld2.presets import preset
from rld2.runner.config import TrainConfig, vary
from rld2.runner.study import Cell
from rld2.studies.scales import SCALES, Scale

METHODS = {
    "rkl": "RL-D2 RKL",
    "fkl": "RL-D2 FKL",
    "fkl-then-rkl": "FKL, then RKL",
    "mat": "MAT",
    "autoregressive": "autoregressive",
    "mappo": "MAPPO",
    "ippo": "IPPO",
}
PLAYERS = range(2, 9)
# frames at two-core scale: until reverse KL stands still in foraging; what a core plays in two minutes elsewhere.
# In jumanji's own warehouse nobody learns in what two cores can play (docs/teams.md): a smaller one stands for it.
FRAMES = {"foraging": 200_000, "connector": 60_000, "small-warehouse": 300_000}
EPISODES = {"connector": 2000}  # 500 elsewhere; its boards differ so much that 500 leave a mean uncertain by a fifth


def teams_table(scale: Scale) -> list[Cell]:
    """The agreement game with its known optimum, and three games of jumanji."""
    games = [
        Cell(title, vary(preset(f"toy/agreement-{players}/{method}"), evaluation_episodes=500), seeds=3)
        for players in PLAYERS
        for method, title in METHODS.items()
    ]
    teams = [
        Cell(title, sized(preset(f"teams/{team}/{method}"), team, scale, EPISODES.get(team, 500)), seeds=5)
        for team in FRAMES
        for method, title in METHODS.items()
    ]
    return games + teams


def sized(config: TrainConfig, team: str, scale: Scale, episodes: int | None = None) -> TrainConfig:
    frames = FRAMES[team] * (1 if scale is SCALES["two-core"] else 20)
    episodes = episodes or config.evaluation_episodes
    return vary(config, frames=frames, log_frames=frames // 20, evaluation_episodes=episodes)
