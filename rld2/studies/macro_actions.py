"""The runs that the paper's macro-action studies are made of."""

from typing import Any

from rld2.domains import atari, minatar
from rld2.runner.queue import Evaluation
from rld2.runner.reproduce import Cell
from rld2.studies.scales import SCALES, Scale

MINATAR = {
    "dqn": "DQN",
    "dqn-macro": "DQN-Macro",
    "impala": "IMPALA",
    "impala-macro": "IMPALA-Macro",
    "ppo": "PPO",
    "r2d2": "R2D2",
    "fkl": "RL-D2 FKL",
    "rkl": "RL-D2 RKL",
}
SMALL_ATARI = "kung_fu_master"  # its score shows within an hour whether anything is learned
TWO_CORE = SCALES["two-core"]


def minatar_table(scale: Scale) -> list[Cell]:
    """MinAtar at both scales; at that of the paper with its 20 seeds (its frames are not stated in it)."""
    small = scale is TWO_CORE
    more = {"breakout": 5, "space_invaders": 5}
    reference = [
        Cell("DQN, six actions", TWO_CORE.config("dqn", game, frames=1_000_000, domain__actions="full"), 1)
        for game in minatar.GAMES
    ]
    return [
        Cell(
            name,
            TWO_CORE.config(method, game, frames=1_000_000 if small else 10_000_000),
            more.get(game, 3) if small else 20,
        )
        for game in minatar.GAMES
        for method, name in MINATAR.items()
    ] + reference


def atari_table(scale: Scale) -> list[Cell]:
    """Two cores: one game, about an hour of a core a run. Paper: 56 games, Surround is not in its table."""
    if scale is TWO_CORE:
        own = scale._replace(domain="atari", frames=250_000)
        return [Cell(MINATAR[m], own.config(m, SMALL_ATARI), seeds=1) for m in ("dqn", "fkl")]
    games = [game for game in atari.GAMES if game != "surround"]
    methods = [method for method in MINATAR if method != "rkl"]
    return [Cell(MINATAR[m], scale.config(m, game), scale.seeds) for game in games for m in methods]


def fkl_vs_rkl(scale: Scale) -> list[Cell]:
    """Curves are drawn by minutes; two-core frames are a guess at what takes a core five of them."""
    small = scale is TWO_CORE
    sizes = {64: 16, 128: 8, 256: 4} if small else {256: 16, 512: 8, 1024: 4}  # batch: minibatches of a rollout
    frames = {"fkl": {64: 900_000, 128: 600_000, 256: 350_000}, "rkl": dict.fromkeys(sizes, 1_400_000)}
    cells = []
    for game in scale.games:
        for size, minibatches in sizes.items():
            for method, batch in (("fkl", {"agent__batch_size": size}), ("rkl", {"agent__minibatches": minibatches})):
                config = scale.config(method, game, frames=frames[method][size] if small else None, **batch)
                cells.append(Cell(f"{method.upper()}, batch {size}", config, scale.seeds))
    return cells


def macro_length(scale: Scale) -> list[Cell]:
    """The same network and frames whatever the length."""
    return [
        Cell(f"{MINATAR[method]}, K = {length}", scale.config(method, game, length=length), scale.seeds)
        for game in scale.games
        for length in (1, 2, 4, 8, 16, 32)
        for method in ("fkl", "impala-macro")
    ]


def scaling(scale: Scale) -> list[Cell]:
    """Heads (and width with them), batch and frames grow with the length as in the paper's appendix."""
    small, cells = scale is TWO_CORE, []
    for game in scale.games:
        for length, heads in ((4, 2), (8, 4), (16, 6)):
            for grown in sorted({2, heads}):
                sizes = {"width": grown * scale.head_width, "heads": grown}
                changes: dict[str, Any] = {
                    f"agent__{network}__{size}": value
                    for network in ("policy__denoiser", "critic")
                    for size, value in sizes.items()
                }
                if grown > 2:
                    changes |= {
                        "agent__batch_size": 256 if small else 128,
                        "frames": scale.frames * (1 if small else 5),
                    }
                config = scale.config("fkl", game, length=length, **changes)
                cells.append(Cell(f"K = {length}, {grown} heads", config, scale.seeds))
    return cells


def sampling(scale: Scale) -> list[Cell]:
    """One policy a seed, for K = 32 with N = 32; the ways to sample differ in its evaluation only.

    On two cores Space Invaders: in Breakout a blind plan of 32 moves cannot hit the ball, so nothing is learned.
    """
    small = scale is TWO_CORE
    games = ("space_invaders",) if small else scale.games
    changes: dict[str, Any] = {"agent__batch_size": 64} if small else {}
    ways = [Evaluation(name, steps) for name in ("ancestral", "top-p", "remask-cap") for steps in (1, 2, 4, 8, 16, 32)]
    return [
        Cell("FKL, K = 32", scale.config("fkl", game, length=32, **changes), scale.seeds, tuple(ways)) for game in games
    ]


def temperature(scale: Scale) -> list[Cell]:
    def how(game: str, **changes: Any) -> Any:
        own = {f"agent__temperature__{name}": value for name, value in changes.items()}
        return scale.config("fkl", game, **own)

    share = scale.frames // 2
    ways: dict[str, dict[str, Any]] = {
        "exact, budget 0.1": {"mode": "exact", "schedule": "constant", "budget": 0.1},
        "exact, budget 0.3": {"mode": "exact", "schedule": "constant", "budget": 0.3},
        "exact, budget 1": {"mode": "exact", "schedule": "constant", "budget": 1.0},
        "exact, budget 1 to 0.1": {
            "mode": "exact", "schedule": "linear", "budget": 1.0, "final_budget": 0.1, "decay_frames": share
        },
        "dual, budget 0.3": {"mode": "dual", "schedule": "constant", "budget": 0.3},
        **{f"fixed {value:g}": {"mode": "fixed", "initial": value} for value in (0.01, 0.1, 1.0)},
    }  # fmt: skip
    return [Cell(name, how(game, **changes), scale.seeds) for game in scale.games for name, changes in ways.items()]


def on_policy_diffusion(scale: Scale) -> list[Cell]:
    return [
        Cell(name, scale.config("fkl", game, length=8, agent__pairs=pairs), scale.seeds)
        for game in scale.games
        for name, pairs in (("chains as sampled", "chain"), ("noised again", "count"))
    ]


def planner(scale: Scale) -> list[Cell]:
    """A plan is drawn in at most 8 reverse steps (the paper does not state how many)."""
    frames = 150_000 if scale is TWO_CORE else None
    return [
        Cell(
            f"plan of {plan}",
            scale.config("fkl", game, length=1, frames=frames, agent__plan=plan, agent__policy__steps=min(plan, 8)),
            scale.seeds,
        )
        for game in scale.games
        for plan in (1, 2, 4, 8, 16, 32)
    ]


def architecture(scale: Scale) -> list[Cell]:
    return [
        Cell(
            name,
            scale.config("fkl", game, length=8, agent__policy__denoiser__kind=kind, agent__critic__kind=kind),
            scale.seeds,
        )
        for game in scale.games
        for name, kind in (("transformer", "transformer"), ("MLP", "mlp"))
    ]
