"""Checkpoints on the disk: complete or not there, checked when read, no larger than what is new."""

import shutil
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer

from sb3_cpp import CheckpointCallback, DeepCPP
from sb3_cpp.atari import FrameReplayBuffer
from sb3_cpp.checkpointing import CheckpointStore, DamagedCheckpoint, buffer, resume, store
from sb3_cpp.checks import InvalidArgument

SMALL: dict[str, Any] = {
    "buffer_size": 300,
    "learning_starts": 40,
    "seed": 1,
    "policy_kwargs": {"net_arch": [8]},
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "checkpoint"
    DeepCPP("MlpPolicy", "CartPole-v1", **SMALL).learn(120, callback=CheckpointCallback(folder, 40))
    assert [store.read_manifest(entry)["timesteps"] for entry in store.entries(folder)] == [40, 80]
    return folder


def files_of(folder: Path, entry: Path) -> list[Path]:
    """The files of a checkpoint, those of the replay buffer included."""
    needed = buffer.segments_of(store.read_manifest(entry)["arrays"])
    return [*sorted(entry.iterdir()), *(folder / buffer.FOLDER / name for name in sorted(needed))]


def test_two_checkpoints_are_kept_and_nothing_else(saved: Path) -> None:
    old, new = store.entries(saved)
    everything = {path for path in saved.rglob("*") if path.is_file()}
    assert everything == {*files_of(saved, old), *files_of(saved, new)}


def test_damage_is_detected_and_the_previous_one_offered(saved: Path, tmp_path: Path) -> None:
    """100 cases: bit flips and truncations, spread over all files of the newest checkpoint."""
    rng = np.random.default_rng(0)
    sizes = [path.stat().st_size for path in files_of(saved, store.entries(saved)[-1])]
    for case in range(100):
        folder = tmp_path / f"case{case}"
        shutil.copytree(saved, folder)
        old, new = store.entries(folder)
        path = files_of(folder, new)[case % len(sizes)]
        data = bytearray(path.read_bytes())
        if case % 3 == 0:
            data = data[: rng.integers(0, len(data))]
        else:
            data[rng.integers(0, len(data))] ^= 1 << int(rng.integers(0, 8))
        path.write_bytes(data)
        with pytest.raises(DamagedCheckpoint) as error:
            DeepCPP.resume(folder)
        assert str(error.value).count("\n") == 0
        assert f"the one before is intact: resume from {old}" in str(error.value)
        if case % 20 == 0:
            assert DeepCPP.resume(old).num_timesteps == 40
        shutil.rmtree(folder)


def test_a_missing_file_is_damage(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "c")
    old, new = store.entries(tmp_path / "c")
    (new / store.STATE).unlink()
    with pytest.raises(DamagedCheckpoint, match=r"state\.pkl cannot be read"):
        DeepCPP.resume(tmp_path / "c")
    for path in files_of(tmp_path / "c", old):
        path.write_bytes(b"")
    with pytest.raises(DamagedCheckpoint, match="no earlier one is intact"):
        DeepCPP.resume(tmp_path / "c")


@pytest.mark.parametrize("damage", ["manifest missing", "manifest empty", "model damaged"])
def test_a_damaged_newest_one_does_not_block_the_folder(
    saved: Path, tmp_path: Path, damage: str
) -> None:
    """It stays where it is until the next checkpoint, which builds upon the intact one."""
    folder = tmp_path / "c"
    shutil.copytree(saved, folder)
    old, new = store.entries(folder)
    if damage == "manifest missing":
        (new / store.MANIFEST).unlink()
    else:
        (new / (store.MANIFEST if damage == "manifest empty" else store.MODEL)).write_bytes(b"")
    before = sorted(folder.rglob("*"))
    with pytest.raises(DamagedCheckpoint, match="is intact: resume from"):
        DeepCPP.resume(folder)
    model = DeepCPP.resume(old)
    assert sorted(folder.rglob("*")) == before  # reading changes nothing
    model.learn(callback=CheckpointCallback(folder, 40))
    assert [path.name for path in store.entries(folder)] == [old.name, "000003"]
    assert [store.verify(entry)["timesteps"] for entry in store.entries(folder)] == [40, 80]
    assert DeepCPP.resume(folder).num_timesteps == 80


def test_a_loaded_model_does_not_replace_the_checkpoints_of_another_run(
    saved: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "c"
    shutil.copytree(saved, folder)
    before = store.entries(folder)
    PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8).learn(8).save(tmp_path / "model")
    model = PPO.load(tmp_path / "model", env=gym.make("CartPole-v1"))

    def learn(path: Path) -> None:
        model.learn(16, callback=CheckpointCallback(path, 8), reset_num_timesteps=False)

    with pytest.raises(InvalidArgument, match=r"checkpoints of another run, got .*resume\(\)"):
        learn(folder)
    assert store.entries(folder) == before
    for _ in range(2):  # the second time the folder holds what this model wrote
        learn(tmp_path / "own")
    assert len(store.entries(tmp_path / "own")) == 2


def test_a_checkpoint_from_elsewhere_is_announced(
    saved: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    DeepCPP.resume(saved)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(store, "origin", lambda: "somebody else")
    DeepCPP.resume(saved)
    assert "can run any code" in capsys.readouterr().err


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("moment", ["_write", "rename"])
def test_what_goes_wrong_while_writing_leaves_the_previous_one(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, moment: str
) -> None:
    folder = tmp_path / "c"
    shutil.copytree(saved, folder)
    model = DeepCPP.resume(folder)

    def fail(*args: Any) -> None:
        raise error

    if moment == "_write":
        monkeypatch.setattr(CheckpointStore, "_write", fail)
    else:
        monkeypatch.setattr(store.os, "replace", fail)
    with pytest.raises(type(error)):
        CheckpointStore(folder).save(model)
    monkeypatch.undo()
    assert [store.read_manifest(entry)["timesteps"] for entry in store.entries(folder)] == [40, 80]
    assert not list(folder.rglob("*.part"))
    store.verify(store.entries(folder)[-1])
    assert DeepCPP.resume(folder).num_timesteps == 80


# --- the replay buffer, incrementally -------------------------------------------------------------

BOX, ACTIONS = gym.spaces.Box(-1, 1, (50,), np.float32), gym.spaces.Discrete(3)
FRAMES = gym.spaces.Box(0, 255, (3, 20, 20), np.uint8)


class Rollout:
    """Adds transitions of an endless random walk to a buffer."""

    def __init__(self, kind: str, size: int) -> None:
        self.kind, self.rng, self.steps = kind, np.random.default_rng(0), 0
        if kind == "dict":
            self.buffer: Any = DictReplayBuffer(
                size, gym.spaces.Dict({"a": BOX, "b": BOX}), ACTIONS, n_envs=2
            )
        elif kind == "frames":
            self.buffer = FrameReplayBuffer(size, FRAMES, ACTIONS, n_envs=2)
        else:
            self.buffer = ReplayBuffer(
                size,
                BOX,
                ACTIONS,
                n_envs=2,
                optimize_memory_usage=kind == "optimized",
                handle_timeout_termination=kind == "box",
            )
        self.last = self._observe(None)

    def _observe(self, last: Any) -> Any:
        if self.kind == "frames":
            new = self.rng.integers(1, 255, (2, 1, 20, 20), dtype=np.uint8)
            old = np.zeros((2, 3, 20, 20), np.uint8) if last is None else last
            return np.concatenate([old[:, 1:], new], axis=1)
        vector = lambda: self.rng.normal(size=(2, 50)).astype(np.float32)  # noqa: E731
        return {"a": vector(), "b": vector()} if self.kind == "dict" else vector()

    def add(self, n: int) -> None:
        for _ in range(n):
            new = self._observe(self.last)
            done = self.rng.random(2) < 0.1
            self.buffer.add(
                self.last,
                new,
                self.rng.integers(0, 3, (2, 1)),
                self.rng.normal(size=2),
                done,
                [{}, {}],
            )
            self.last, self.steps = new, self.steps + 1


@pytest.mark.parametrize("kind", ["box", "optimized", "dict", "frames"])
def test_only_what_changed_is_written_and_all_of_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(buffer, "SMALL", 0)
    monkeypatch.setattr(buffer, "BLOCK_BYTES", 2000)
    rollout = Rollout(kind, 1000)
    saved, sizes = None, []
    for number, steps in enumerate([100, 250, 30, 200, 0, 600, 30]):  # wraps around twice
        rollout.add(steps)
        saved, written = buffer.write(
            tmp_path, f"{number}.bin", rollout.buffer, rollout.steps, saved
        )
        sizes.append(written)
        read = buffer.read(tmp_path, saved.arrays, {})
        for name, live in buffer.arrays_of(rollout.buffer).items():
            used = buffer.rows_in_use(rollout.buffer, name, live)
            np.testing.assert_array_equal(read[name][:used], live[:used])
    assert sizes[2] < 0.4 * sizes[1]
    assert sizes[4] < 0.1 * sizes[1]
    assert sizes[6] < 0.2 * sizes[5]


def test_a_buffer_that_was_changed_behind_our_back_is_compared_block_by_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffer, "SMALL", 0)
    monkeypatch.setattr(buffer, "BLOCK_BYTES", 2000)
    rollout = Rollout("box", 400)
    rollout.add(150)
    saved, _ = buffer.write(tmp_path, "0.bin", rollout.buffer, rollout.steps)
    rollout.add(5)
    rollout.steps -= 3  # the caller counts otherwise than the buffer
    rollout.buffer.rewards[10] = 7.0
    saved, _ = buffer.write(tmp_path, "1.bin", rollout.buffer, rollout.steps, saved)
    assert buffer.read(tmp_path, saved.arrays, {})["rewards"][10, 0] == 7.0


@pytest.mark.slow
def test_kills_while_writing_leave_a_checkpoint_not_older_than_announced(tmp_path: Path) -> None:
    """The study itself makes 200 of them: benchmarks/faults.py --write-kills 200."""
    from benchmarks.faults import kill_writers

    outcome = kill_writers(tmp_path, 10, seed=0)
    assert outcome.kills == 10
    assert outcome.held, outcome


def test_steps_between_resume_and_callback_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first checkpoint of a resumed model builds upon the one it came from, not upon the buffer
    as it is when the callback starts."""
    monkeypatch.setattr(buffer, "SMALL", 0)
    monkeypatch.setattr(buffer, "BLOCK_BYTES", 200)
    settings = {"buffer_size": 300, "learning_starts": 10_000, "seed": 1}
    model = DQN("MlpPolicy", "CartPole-v1", **settings)
    model.learn(700, callback=CheckpointCallback(tmp_path, 300))
    model = resume(DQN, tmp_path)
    model.learn(40, reset_num_timesteps=False)
    model.learn(64, callback=CheckpointCallback(tmp_path, 700), reset_num_timesteps=False)
    assert store.verify(store.locate(tmp_path))["timesteps"] == 700
    restored, live = resume(DQN, tmp_path).replay_buffer, model.replay_buffer
    for name in ("observations", "actions", "rewards", "dones"):
        rows = np.arange(600, 700) % 300
        np.testing.assert_array_equal(getattr(restored, name)[rows], getattr(live, name)[rows])
