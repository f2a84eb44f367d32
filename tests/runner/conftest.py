import pytest

from tests.runner.stages import Stages, train_stages


@pytest.fixture(scope="session")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Stages:
    return train_stages(tmp_path_factory.mktemp("stages"))
