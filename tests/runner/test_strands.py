"""Who is told that both strands are worth the same."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rld2.agents.finetune import FinetuneConfig
from rld2.domains.registry import DomainConfig
from rld2.networks.oracle import OracleNetwork, OracleNetworkConfig, Scale, TuningOracle
from rld2.runner import sequences
from rld2.sequences.data import DataConfig
from rld2.sequences.synthetic import activity_of
from rld2.sequences.vocabulary import DNA


class ToldError(Exception):
    pass


def oracle() -> TuningOracle:
    complement = tuple(int(x) for x in DNA.complement)
    network = OracleNetwork(jax.random.key(0), OracleNetworkConfig(filters=2), complement, DNA.size, [])
    return TuningOracle(network, Scale(jnp.zeros(()), jnp.ones(())))


@pytest.mark.parametrize("symmetric", [True, False])
def test_forward_kl_reads_both_strands_only_where_an_oracle_rewards_them_alike(
    symmetric: bool, monkeypatch: pytest.MonkeyPatch
):
    told: list[Any] = []

    def learner(*arguments: Any) -> None:
        told.append(arguments[-1])
        raise ToldError

    model: Any = SimpleNamespace(action=SimpleNamespace(length=60))
    monkeypatch.setattr(sequences, "opened_design", lambda *_: sequences.Designed(DataConfig(), DNA, model, 1))
    monkeypatch.setattr(sequences, "reward_of", lambda *_: oracle() if symmetric else activity_of)
    monkeypatch.setattr(sequences, "make_finetune", learner)
    nowhere: Any = sequences.opened_design  # never called
    with pytest.raises(ToldError):
        sequences.parts(FinetuneConfig(), DomainConfig("dna/synthetic", num_envs=8), 64, 64, nowhere)
    if symmetric:
        np.testing.assert_array_equal(told[0], DNA.complement)
    else:
        assert told == [None]
