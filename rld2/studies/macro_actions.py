"""The runs that the paper's macro-action studies are made of."""

from typing import Any

from rld2.domains import atari, minatar
from rld2.presets.atari import SCALED_HEADS
from rld2.runner.queue import Evaluation
from rld2.runner.study import Cell
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
ALL_GAMES = tuple(game for game in atari.GAMES if game != "surround")  # the paper's 56
FOUR_GAMES = ("breakout", "ms_pacman", "seaquest", "space_invaders")  # which four the paper took: not stated in it


def minatar_table(scale: Scale) -> list[Cell]:
    """MinAtar at both scales; at that of the paper with its 20 seeds (its frames are not stated in it)."""
    small = scale is TWO_CORE
    more = {"breakout": 5, "space_invaders": 5}
    return [
        Cell(
            name,
            TWO_CORE.config(method, game, frames=1_000_000 if small else 10_000_000),
            more.get(game, 3) if small else 20,
        )
        for game in minatar.GAMES
        for method, name in MINATAR.items()
    ]


def dqn_reference(scale: Scale) -> list[Cell]:
    """All six actions, as in the published scores; the same at both scales."""
    return [
        Cell("DQN, six actions", TWO_CORE.config("dqn", game, frames=1_000_000, domain__actions="full"), 1)
        for game in minatar.GAMES
    ]


def atari_table(scale: Scale) -> list[Cell]:
    """Two cores: one game, about an hour of a core a run. Paper: 56 games, Surround is not in its table."""
    if scale is TWO_CORE:
        own = scale._replace(domain="atari", frames=250_000)
        return [Cell(MINATAR[m], own.config(m, SMALL_ATARI), seeds=1) for m in ("dqn", "fkl")]
    methods = [method for method in MINATAR if method != "rkl"]
    return [Cell(MINATAR[m], scale.config(m, game), scale.seeds) for game in ALL_GAMES for m in methods]


def fkl_vs_rkl(scale: Scale) -> list[Cell]:
    """A batch counts transitions on two cores, trajectories of 32 steps at the paper's scale. Curves are drawn by
    minutes; two-core frames are a guess at what takes a core three of them."""
    if scale is TWO_CORE:
        ways = {
            size: {
                "fkl": {"agent__batch_size": size, "frames": frames},
                "rkl": {"agent__minibatches": 1_024 // size, "frames": 800_000},
            }
            for size, frames in {64: 500_000, 128: 350_000, 256: 200_000}.items()
        }
    else:
        ways = {size: {"fkl": drawn(size), "rkl": {"domain__num_envs": size}} for size in (256, 512, 1_024)}
    return [
        Cell(f"{method.upper()}, batch {size}", scale.config(method, game, **changes), scale.seeds)
        for game in scale.games
        for size, methods in ways.items()
        for method, changes in methods.items()
    ]


def drawn(batch: int) -> dict[str, Any]:
    """A batch of so many sequences at the paper's scale: as many environments as keep four samples to an insert."""
    return {"agent__batch_size": batch, "domain__num_envs": batch // 4}


def macro_length(scale: Scale) -> list[Cell]:
    """The same network and frames whatever the length. On two cores up to 16, which are drawn in 8 steps: a run with 32
    actions takes a core half an hour."""
    small, cells = scale is TWO_CORE, []
    for game in scale.games if small else ALL_GAMES:
        for length in (1, 2, 4, 8, 16) if small else (1, 2, 4, 8, 16, 32):
            forward = scale.config("fkl", game, length=length, **few_steps(scale, length))
            rival = scale.config("impala-macro", game, length=length)
            cells += [Cell(f"{MINATAR['fkl']}, K = {length}", forward, scale.seeds)]
            cells += [Cell(f"{MINATAR['impala-macro']}, K = {length}", rival, scale.seeds)]
    return cells


def few_steps(scale: Scale, length: int) -> dict[str, Any]:
    """At most 8 reverse steps where time is short."""
    return {"agent__policy__steps": 8} if scale is TWO_CORE and length > 8 else {}


def scaling(scale: Scale) -> list[Cell]:
    """Heads (and width with them), batch and frames grow with the length as in the paper's appendix; beside
    IMPALA-Macro, which has nothing to grow."""
    small, cells = scale is TWO_CORE, []
    for game in scale.games if small else FOUR_GAMES:
        for length, heads in SCALED_HEADS.items():
            for grown in sorted({2, heads}):
                sizes = {"width": grown * scale.head_width, "heads": grown}
                changes: dict[str, Any] = {
                    f"agent__{network}__{size}": value
                    for network in ("policy__denoiser", "critic")
                    for size, value in sizes.items()
                }
                frames = scale.frames
                if grown > 2:
                    frames = frames if small else 5 * frames
                    changes |= {} if small else drawn(128)
                if small:
                    changes |= {"agent__batch_size": 64 if grown == 2 else 128, **few_steps(scale, length)}
                config = scale.config("fkl", game, length=length, frames=frames, **changes)
                cells.append(Cell(f"K = {length}, {grown} heads", config, scale.seeds))
            frames = scale.frames if small or heads == 2 else 5 * scale.frames
            rival = scale.config("impala-macro", game, length=length, frames=frames)
            cells.append(Cell(f"IMPALA-Macro, K = {length}", rival, scale.seeds))
    return cells


def sampling(scale: Scale) -> list[Cell]:
    """One policy a seed, for K = 32; the ways to sample differ in its evaluation only.

    On two cores Space Invaders: in Breakout a blind plan of 32 moves cannot hit the ball, so nothing is learned. A KL
    budget for four actions moves 32 of them too little, and trained with N = 8 a run takes a third of the time.
    """
    small = scale is TWO_CORE
    games = ("space_invaders",) if small else FOUR_GAMES
    changes: dict[str, Any] = {}
    if small:
        changes = {"agent__batch_size": 64, "agent__policy__steps": 8, "agent__entropy": 0.05}
        changes |= {"agent__temperature__budget": 0.7, "agent__capacity": 200_000}
    ways = [Evaluation(name, steps) for name in ("ancestral", "top-p", "remask-cap") for steps in (1, 2, 4, 8, 16, 32)]
    return [
        Cell("FKL, K = 32", scale.config("fkl", game, length=32, **changes), scale.seeds, tuple(ways)) for game in games
    ]


PAPER_BUDGETS: dict[str, dict[str, Any]] = {
    "dual, budget 0.1": {"schedule": "constant", "budget": 0.1},
    "dual, budget 1": {"schedule": "constant", "budget": 1.0},
    "dual, budget 1 to 0.1": {},  # the preset
}


def temperature(scale: Scale) -> list[Cell]:
    """Without the floor under lambda that two-core presets have, but for one cell."""

    def how(game: str, **changes: Any) -> Any:
        changes = {"floor": 0.0, **changes}
        own = {f"agent__temperature__{name}": value for name, value in changes.items()}
        return scale.config("fkl", game, **own)

    share = scale.frames // 2 if scale is TWO_CORE else 10_000_000
    ways: dict[str, dict[str, Any]] = {
        "exact, budget 0.1": {"mode": "exact", "schedule": "constant", "budget": 0.1},
        "exact, budget 0.3": {"mode": "exact", "schedule": "constant", "budget": 0.3},
        "exact, budget 0.3, floor 0.1": {"mode": "exact", "schedule": "constant", "budget": 0.3, "floor": 0.1},
        "exact, budget 1": {"mode": "exact", "schedule": "constant", "budget": 1.0},
        "exact, budget 1 to 0.1": {
            "mode": "exact", "schedule": "linear", "budget": 1.0, "final_budget": 0.1, "decay_frames": share
        },
        "dual, budget 0.3": {"mode": "dual", "schedule": "constant", "budget": 0.3},
        **(PAPER_BUDGETS if scale is not TWO_CORE else {}),
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
    """A plan is drawn in at most 8 reverse steps (the paper does not state how many). Beside plans, macro-actions that
    are played to the end. On two cores plans of 16 at most, and twice as many batches as in `macro-length`, of 64."""
    small = scale is TWO_CORE
    cells = []
    for game in scale.games:
        for plan in (1, 2, 4, 8, 16) if small else (1, 2, 4, 8, 16, 32):
            changes = {"agent__plan": plan, "agent__policy__steps": min(plan, 8)}
            few: dict[str, Any] = {"domain__macro": 1}
            if small:
                few = {"length": 1, "frames": 150_000, "domain__num_envs": 128, "agent__batch_size": 64}
            cells.append(Cell(f"plan of {plan}", scale.config("fkl", game, **few, **changes), scale.seeds))
        for length in (4, 16):
            few = {"agent__policy__steps": min(length, 8)}
            if small:
                few |= {"frames": 150_000, "domain__num_envs": 128 // length, "agent__batch_size": 64}
            config = scale.config("fkl", game, length=length, **few)
            cells.append(Cell(f"macro-action of {length}", config, scale.seeds))
    return cells


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
