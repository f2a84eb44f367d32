"""The paper's studies by name: what it claims, what is smaller here, and the runs."""

from collections.abc import Callable

from rld2.report.compare_plots import Axis
from rld2.runner.study import Cell, Study
from rld2.studies import dna, football, macro_actions, search, teams
from rld2.studies.scales import SCALES, Scale

_BREAKOUT = "MinAtar Breakout instead of Atari, 0.3M frames, the two-core networks."


def _study(claim: str, smaller: str, cells: Callable[[Scale], list[Cell]], axis: Axis = "frames") -> Study:
    return Study(claim, smaller, lambda scale: cells(SCALES[scale]), axis)


STUDIES: dict[str, Study] = {
    "minatar-table": _study(
        "RL-D2 with macro-actions of 4 leads DQN, DQN-Macro, IMPALA and IMPALA-Macro on most games, by large factors "
        "on Breakout and Space Invaders (20 seeds).",
        "1M frames, 3 seeds (5 on Breakout and Space Invaders). The paper does not state its frames; its scores "
        "(Breakout 20,600) need episodes far beyond the step cap of 10,000 used here.",
        macro_actions.minatar_table,
    ),
    "dqn-reference": _study(
        "Nothing: this is DQN beside the published scores of the MinAtar repository's DQN at 1M frames (about 7 in "
        "Asterix, 9 in Breakout, 47 in Freeway, 1 in Seaquest, 33 in Space Invaders).",
        "All six actions, sticky actions 0.1, 1M frames, one seed; evaluation episodes are cut after 10,000 steps.",
        macro_actions.dqn_reference,
    ),
    "atari-table": _study(
        "RL-D2 has the highest mean human-normalised score of 56 games and is ahead on 36 of them (100M samples, 3 "
        "seeds; docs/paper-statistics.md computes these numbers again).",
        "Kung Fu Master, DQN and RL-D2 with their two-core presets, 0.25M actions, one seed.",
        macro_actions.atari_table,
    ),
    "fkl-vs-rkl": _study(
        "At equal wall time forward KL learns faster on Atari; reverse KL needs larger batches.",
        "MinAtar Breakout, about three minutes of one core a run.",
        macro_actions.fkl_vs_rkl,
        "minutes",
    ),
    "macro-length": _study(
        "With network and data fixed, performance peaks at macro-actions of 4.", _BREAKOUT, macro_actions.macro_length
    ),
    "scaling": _study(
        "With network and batch grown with the length, longer macro-actions keep improving.",
        _BREAKOUT,
        macro_actions.scaling,
    ),
    "sampling": _study(
        "For K = 32, top-p sampling keeps performance with few steps (4, 8); remasking is best where the number of "
        "steps is near the length.",
        "MinAtar Space Invaders instead of four Atari games, 0.3M frames, batches of 64. One policy a seed, trained "
        "with N = 8, evaluated in 18 ways.",
        macro_actions.sampling,
    ),
    "temperature": _study(
        "A temperature set by a KL budget beats fixed ones; one decaying from 1 to 0.1 learns fast and stays stable.",
        _BREAKOUT,
        macro_actions.temperature,
    ),
    "on-policy-diffusion": _study(
        "Training on the chains that were sampled beats noising the sampled actions again (K = 8).",
        _BREAKOUT,
        macro_actions.on_policy_diffusion,
    ),
    "planner": _study(
        "Executing only the first action of a plan is more robust, and improves with the plan's length.",
        "MinAtar Breakout instead of Atari, 0.15M frames, the two-core networks.",
        macro_actions.planner,
    ),
    "architecture": _study(
        "A transformer beats an MLP with as many parameters (K = 8).", _BREAKOUT, macro_actions.architecture
    ),
    "dqn-macro-search": _study(
        "DQN's default settings are also the best for DQN-Macro.", _BREAKOUT, search.dqn_macro_search
    ),
    "teams-table": _study(
        "(On football.) Reverse KL leads MAT and MAPPO on most scenarios; forward KL learns faster at first.",
        "The agreement game, where independent players provably fall short, and three games of jumanji; 5 seeds there, "
        "3 in the agreement game. Football has a study of its own.",
        teams.teams_table,
    ),
    "football-table": _study(
        "RL-D2's two variants have the highest mean win rates of all scenarios; forward KL leads by far with a "
        "tenth of the steps (11_vs_11_sm); a plain autoregressive policy lags behind.",
        "Three academy scenarios with two or three players, 1M steps, one seed.",
        football.football_table,
    ),
    "football-temperature": _study(
        "Forward KL collapses with the larger of the KL budgets 0.1, 1 and 10, perhaps as the policy turns "
        "deterministic and its data lose diversity (11_vs_11, 5 seeds).",
        "pass_and_shoot instead of the full game, 1M steps, one seed. No 16 samples can spend 10 nats (at most "
        "log 16 = 2.8): that run improves greedily.",
        football.football_temperature,
    ),
    "baseline-search": _study(
        "Nothing: this is how the baselines' presets were chosen, with as many runs as RL-D2's.",
        "MinAtar Breakout and Asterix, 0.2M frames, one seed: each baseline's preset and 17 random draws.",
        search.baseline_search,
    ),
    "teams-search": _study(
        "Nothing: this is how the presets of the teams are chosen, with as many runs for every method.",
        "The three games of jumanji as in teams-table, one seed: where each method's search begins and 3 random draws "
        "(11 in Connector, 4 in the warehouse).",
        search.teams_search,
    ),
}


def study(name: str) -> Study:
    if name not in STUDIES:
        raise ValueError(f"study must be one of {[*STUDIES, *dna.STUDIES]}, got {name!r}")
    return STUDIES[name]
