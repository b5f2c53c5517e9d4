"""Files of weights: the same policy, no code, and clear words for everything else."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch as th

from benchmarks.faults import same
from sb3_cpp import CVI, MDQN, DeepCPI, DeepCPP, MoDQN
from sb3_cpp.checks import InvalidArgument

SMALL: dict[str, Any] = {"buffer_size": 10, "policy_kwargs": {"net_arch": [8]}}


class Evil:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("executed"),))


@pytest.mark.parametrize("algorithm", [DeepCPP, MDQN, MoDQN, CVI, DeepCPI])
def test_weights_come_back(tmp_path: Path, algorithm: Any) -> None:
    one, two = (algorithm("MlpPolicy", "CartPole-v1", seed=seed, **SMALL) for seed in (1, 2))
    assert not same(one.policy.state_dict(), two.policy.state_dict())
    one.save_weights(tmp_path / "w.pt")
    two.load_weights(tmp_path / "w.pt")
    assert same(one.policy.state_dict(), two.policy.state_dict())
    assert [path.name for path in tmp_path.iterdir()] == ["w.pt"]


def test_a_pickle_is_refused_and_not_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = DeepCPP("MlpPolicy", "CartPole-v1", **SMALL)
    (tmp_path / "pickle.pt").write_bytes(pickle.dumps(Evil()))
    th.save(
        {"format": "sb3_cpp weights", "algorithm": "DeepCPP", "weights": Evil()},
        tmp_path / "torch.pt",
    )
    model.save(tmp_path / "model.zip")
    for name in ("pickle.pt", "torch.pt", "model.zip"):
        with pytest.raises(InvalidArgument, match="path must be a file"):
            model.load_weights(tmp_path / name)
    assert not (tmp_path / "executed").exists()


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    DeepCPP("MlpPolicy", "CartPole-v1", **SMALL).save_weights(tmp_path / "w.pt")
    with pytest.raises(InvalidArgument, match="weights of MDQN, got those of DeepCPP"):
        MDQN("MlpPolicy", "CartPole-v1", **SMALL).load_weights(tmp_path / "w.pt")
    other = DeepCPP("MlpPolicy", "CartPole-v1", buffer_size=10, policy_kwargs={"net_arch": [4]})
    with pytest.raises(
        InvalidArgument, match=r"has size \(4, 4\) in the model, \(8, 4\) in the file"
    ):
        other.load_weights(tmp_path / "w.pt")
    with pytest.raises(InvalidArgument, match="does not exist"):
        other.load_weights(tmp_path / "nothing.pt")
