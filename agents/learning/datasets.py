"""Datasets of episodes in the format of Minari, for offline learning, and the same episodes as recordings, for `sysid`.

A dataset is a folder softgym/<id>/<kind>-v0 of Minari's folder: data/ is Minari's, recordings.h5 is what `sysid.load` reads.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from softgym_envs.core.errors import MissingDependencyError, OptionError, shown
from softgym_envs.core.simulator import check_number
from softgym_envs.core.trajectory import Trajectory, TrajectorySet

from ..policies import pretrained

DESCRIPTIONS = {
    "expert": "by the policy of the package",
    "medium": "by the policy of the package, half of whose actions are drawn at random",
    "random": "by random actions",
}
KINDS = tuple(DESCRIPTIONS)
RANDOM = {"expert": 0.0, "medium": 0.5, "random": 1.0}
"""Share of random actions."""
SHIPPED = Path(__file__).parents[1] / "datasets"
"""Datasets that come with the package."""
RECORDINGS, SUCCESS = "recordings.h5", "is_success"
Action = NDArray[np.float32]


def dataset(id: str, kind: str = "expert", *, episodes: int | None = None, seed: int = 0) -> Any:
    """`agents.dataset`, with a full id."""
    try:
        import minari
        from minari.storage.datasets_root_dir import get_dataset_path
    except ImportError as error:
        raise MissingDependencyError("datasets need minari: pip install 'softgym-envs[datasets]'") from error
    if kind not in KINDS:
        raise OptionError(f"kind is {shown(kind)}, allowed are {', '.join(KINDS)}")
    short = id.rpartition(":")[2]
    name = f"softgym/{short.lower().removesuffix('-v0')}/{kind}-v0"
    own = Path(get_dataset_path(name))
    if episodes is None:
        found = [folder / "data" for folder in (own, SHIPPED / name) if (folder / "data").is_dir()]
        if not found:
            raise OptionError(f"there is no dataset {own}, and none in the package: give episodes, and it is made")
        return minari.MinariDataset(found[0])
    check_number("episodes", episodes, low=1, whole=True)
    check_number("seed", seed, low=0, whole=True)
    if own.exists():
        raise OptionError(f"there is already a dataset {own}: delete that folder, or leave out episodes to load it")
    env = gym.make(id, **({} if kind == "random" else dict(pretrained(short).keywords)))
    buffers, recordings = [], []
    for number in range(seed, seed + episodes):
        buffer, recording = _episode(env, _driver(short, kind, number), number)
        buffers.append(minari.data_collector.EpisodeBuffer(seed=number, **buffer))
        recordings.append(recording)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of authors, links and reference scores that are not given
        made = minari.create_dataset_from_buffers(
            name,
            buffers,
            env=env,
            algorithm_name=kind,
            description=f"{short}, {DESCRIPTIONS[kind]}",
            requirements=["softgym-envs"],
        )
    TrajectorySet(tuple(recordings)).save(own / RECORDINGS)
    env.close()
    return made


def _driver(id: str, kind: str, seed: int) -> Callable[[Any, gym.Env[Any, Any]], Action]:
    """Observation, environment -> action."""
    rng = np.random.default_rng(seed)
    policy = None if kind == "random" else pretrained(id)

    def act(observation: Any, env: gym.Env[Any, Any]) -> Action:
        drawn = rng.uniform(-1.0, 1.0, env.action_space.shape).astype(np.float32)
        return drawn if policy is None or rng.uniform() < RANDOM[kind] else policy(observation)

    return act


def _episode(
    env: gym.Env[Any, Any], driver: Callable[[Any, gym.Env[Any, Any]], Action], seed: int
) -> tuple[dict[str, Any], Trajectory]:
    """One episode: the entries of Minari's buffer, and full states and controls as a recording."""
    inner: Any = env.unwrapped
    observation, info = env.reset(seed=seed)
    observations, infos, states = [observation], [info], [inner.state.copy()]
    actions, controls, rewards, terminations, truncations, over = [], [], [], [], [], False
    while not over:
        actions.append(driver(observation, env))
        controls.append(inner.task.scale_action(actions[-1][None].astype(np.float64))[0])
        observation, reward, terminated, truncated, info = env.step(actions[-1])
        over = terminated or truncated
        observations.append(observation)
        infos.append(info)
        states.append(inner.state.copy())
        rewards.append(float(reward))
        terminations.append(terminated)
        truncations.append(truncated)
    substeps = round(inner.task.control_period / inner.simulator.dt)
    metadata = {"env": env.spec.id if env.spec else "", "seed": str(seed)}
    recording = Trajectory.from_rollout(
        inner.simulator, np.array(states), np.array(controls), substeps=substeps, metadata=metadata
    )
    buffer = {
        "observations": np.stack(observations), "actions": np.stack(actions), "rewards": rewards,
        "terminations": terminations, "truncations": truncations,
        "infos": {SUCCESS: np.stack([each[SUCCESS] for each in infos])},
    }  # fmt: skip
    return buffer, recording
