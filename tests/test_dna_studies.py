"""The DNA studies in small: every kind of method on one model and one oracle, and the race against DRAKES."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from rld2.runner.reproduce import ReproduceConfig
from rld2.studies import dna
from rld2.studies.dna_cost import decided
from rld2.studies.dna_stages import SCALES, Scale

DATA = {"agent__data__number": 600, "agent__data__length": 45}
MODEL = {f"agent__policy__{k}": v for k, v in {"denoiser__width": 8, "denoiser__layers": 2, "steps": 4}.items()}
ORACLE = {"agent__network__filters": 2, "agent__network__channels": 2}
STAGES = {
    "pretrain": {**DATA, **MODEL, "frames": 640},
    "oracle": {**DATA, **ORACLE, "frames": 640},
    "judge": {**DATA, **ORACLE, "frames": 640},
    "design": {"domain__num_envs": 32, "log_frames": 32},
}
TINY = Scale("synthetic", STAGES, calls=64, samples=20, seeds=1)


@pytest.mark.dna
def test_a_table_from_its_stages_to_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(SCALES, "demo", TINY)
    screen = io.StringIO()
    methods = [m for m in dna.methods_of_table() if m.name in ("pretrained", "RL-D2 fkl, budget 0.5", "cg, strength 1")]
    monkeypatch.setitem(dna.TABLES, "dna-table", lambda: iter(methods))
    options = ReproduceConfig("dna-table", "demo", out=tmp_path)
    assert dna.reproduce(options, Console(file=screen, width=200))
    record = json.loads((tmp_path / "results.json").read_text())
    calls = {row["method"]: row["reward_calls"] for row in record["results"]}
    assert calls == {"pretrained": 0, "RL-D2 fkl, budget 0.5": 64, "cg, strength 1": 20 * 4}
    page = (tmp_path / "README.md").read_text()
    assert all(method.name in page for method in methods)
    assert (tmp_path / "tradeoff.png").is_file()

    log = tmp_path / "runs" / "pretrain" / "log.jsonl"
    before = log.read_bytes()
    assert dna.reproduce(options, Console(file=screen, width=200))  # nothing is done twice
    assert log.read_bytes() == before


def test_a_race_is_decided_by_the_logs():
    drakes = [{"frames": f, "seconds": 10.0 * f, "reward": [r]} for f, r in ((1, 0.0), (2, 5.0), (3, 1.0), (4, 2.0))]
    fkl = [{"frames": f, "seconds": 2.0 * f, "return": [r]} for f, r in ((1, 1.0), (2, None), (3, 2.5), (4, 3.0))]
    race = decided(drakes, fkl)
    assert race == (2.0, 40.0, 6.0, 3.0)
    assert race.said.startswith("DRAKES's final reward 2.000 took it 40 s and RL-D2 6 s: 6.67 times as long")
    assert "did not reach" in decided(drakes, fkl[:1]).said
