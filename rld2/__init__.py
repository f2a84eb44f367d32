"""rld2: reinforcement learning over combinatorial discrete actions with masked discrete diffusion policies (RL-D2)."""

from rld2.agents.fkl import FKLConfig as FKLConfig
from rld2.agents.policy import PolicyConfig as PolicyConfig
from rld2.agents.rkl import RKLConfig as RKLConfig
from rld2.diffusion.sample import Sampler as Sampler
from rld2.domains.base import Env as Env
from rld2.domains.base import Outcome as Outcome
from rld2.domains.registry import DomainConfig as DomainConfig
from rld2.presets import preset as preset
from rld2.runner.config import TrainConfig as TrainConfig
from rld2.runner.export import LoadedPolicy as LoadedPolicy
from rld2.runner.export import export as export
from rld2.runner.export import load as load
from rld2.runner.finale import evaluate as evaluate
from rld2.runner.train import Trained as Trained
from rld2.runner.train import train as train
from rld2.types import ActionSpec as ActionSpec
from rld2.types import ActSpec as ActSpec
