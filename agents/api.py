"""Public functions: plan, train, evaluate, benchmark, export, transfer; the command line calls them and decides nothing itself.

An environment is named by its id, with or without "softgym_envs:" in front. `params` are parameters of the native engine: a
fit.toml, or what `gym.make(..., params=)` takes. Further keywords are those of `gym.make` (model, level, action_memory, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from softgym_envs.core.errors import OptionError, ParameterError, shown
from softgym_envs.core.files import git_commit, write_json
from softgym_envs.core.interface import Interface
from softgym_envs.core.simulator import Array, check_choice, check_number
from softgym_envs.core.system import NATIVE
from softgym_envs.core.trajectory import whole_steps
from softgym_envs.systems import system_of_task

if TYPE_CHECKING:
    from .control.optimal import OptimalMotion
    from .control.plan import Plan, PlanLog
    from .learning.evaluation import Evaluation
    from .learning.rl import Trained, Training
    from .transfer_study.summary import Summary

Print = Callable[[str], None]
KNOTS = 10
"""Most knots of a plan's first controls."""
INTERFACE = tuple(entry.name for entry in fields(Interface))
"""Keywords of the interface between robot and controller."""
ON_DEVICE = ("dtype", "starts")
"""Keywords that say how environments run on a device, not what they are."""
TRAINING_ONLY = ("disturbance", *INTERFACE, "randomize")
"""Keywords that make a training robust, and are left out where it is evaluated."""


def _say(text: str) -> None:
    print(text, flush=True)


def _full_id(id: str) -> str:
    """Id with the package in front, so that no import is needed; `OptionError` if no system has it."""
    system_of_task(id)
    return id if ":" in id else f"softgym_envs:{id}"


def plan(
    id: str,
    params: Any = None,
    *,
    method: Literal["ilqg", "gps", "optimal"] = "ilqg",
    end: Sequence[float] | Array | None = None,
    horizon: int = 50,
    period: float = 0.1,
    iterations: int = 8,
    restarts: int = 1,
    seed: int = 0,
    callback: Callable[[PlanLog], None] | None = None,
) -> Plan | OptimalMotion:
    """Plan a motion of a task's robot in our engine.

    Args:
        id: Environment whose system declares a study of it; for "optimal" any whose engine has a symbolic step.
        params: Parameters of the engine; None: the system's initial guess ("optimal": the engine's defaults).
        method: "ilqg" (derivatives), "gps" (rollouts only), or "optimal" (direct transcription with IPOPT).
        end: "optimal": the final state (nx,), NaN where it is free.
        horizon: Control steps.
        period: Length of a control step [s]; "optimal": of a physics step.
        iterations: Iterations of "ilqg" and "gps".
        restarts: Random first controls; the plan with the lowest cost is kept.
        seed: Seed of start and first controls.
        callback: Called after every iteration.

    Returns:
        A `Plan` with its feedback gains, or an `OptimalMotion`.

    Raises:
        OptionError: Unknown id or method, a number out of its range, or no study of this task.
        ParameterError: `params` are another robot's, or one is unknown or out of bounds.
        UnstablePlanError: The simulation fails under the first controls.
    """
    system, name = system_of_task(id), id.rpartition(":")[2]
    check_number("seed", seed, low=0, whole=True)
    for what, value in (("horizon", horizon), ("iterations", iterations), ("restarts", restarts)):
        check_number(what, value, low=1, whole=True)
    check_number("period", period, positive=True, unit="s")
    if method == "optimal":
        from .control.optimal import Manoeuvre, plan_motion

        if end is None:
            raise OptionError("end is None: method 'optimal' needs the final state, NaN where it is free")
        engine: Any = system.simulator(system.task(name).model, dt=period)
        start = engine.initial_state(1)[0]
        manoeuvre = Manoeuvre(start, np.asarray(end, dtype=np.float64), horizon, engine.control_bounds)
        return plan_motion(engine, manoeuvre, parameters=_parameters(engine, params))
    from .control.gps import GPSOptions, plan_gps
    from .control.ilqg import ILQGOptions, plan_ilqg
    from .control.plan import random_controls
    from .transfer_study.task import TransferTask

    if method not in ("ilqg", "gps"):
        raise OptionError(f"method is {method!r}, allowed are 'ilqg', 'gps', 'optimal'")
    task = TransferTask(system, name)
    engine, rng = task.native(), np.random.default_rng(seed)
    shared: dict[str, Any] = {"substeps": whole_steps("period", period, engine.dt), "callback": callback}
    shared["parameters"] = task.default() if params is None else _parameters(engine, params)
    start, cost = task.starts(np.random.default_rng(seed), 1)[0], task.cost(engine)
    ilqg = ILQGOptions(max_iterations=iterations, trust=0.3, difference_step=task.scenario.difference_step)
    found = []
    for _ in range(restarts):
        controls = random_controls(engine, horizon, rng=rng, amplitude=0.5, knots=min(KNOTS, horizon))
        if method == "gps":
            found.append(plan_gps(engine, cost, start, controls=controls, rng=rng, options=GPSOptions(iterations), **shared))
        else:
            found.append(plan_ilqg(engine, cost, start, controls=controls, options=ilqg, **shared))
    return min(found, key=lambda one: one.cost)


def train(
    id: str,
    params: Any = None,
    *,
    steps: int | None = None,
    algorithm: Literal["ppo", "sac"] = "ppo",
    learner: Literal["sb3", "rsl"] = "sb3",
    backend: str = NATIVE,
    num_envs: int | None = None,
    seed: int = 0,
    episodes: int = 50,
    checkpoint_every: int = 100_000,
    resume: bool = False,
    device: str = "cpu",
    out: str | Path | None = None,
    progress: Print = _say,
    **keywords: Any,
) -> Trained:
    """Train a policy, evaluate it in our engine and the system's first ground truth, draw its learning curve.

    The folder gets policy.zip, checkpoints, progress.csv, TensorBoard files, curve.png and evaluation.json. It holds one
    training. Ctrl-C leaves a checkpoint there. The interface of a fit (latency, bias, gain, noise) is played in the training
    and in every evaluation; one that is given by keywords, disturbances and `randomize` in the training only.

    Args:
        id: Environment.
        params: Parameters of the backend.
        steps: Control steps of all rows together, rounded up to whole updates; None: the id's setting, or 1,000,000.
        algorithm: "ppo" or "sac".
        learner: "sb3" is Stable-Baselines3; "rsl" is PPO of rsl-rl-lib on tensors that stay on `device`, for thousands of rows:
            its folder gets policy.npz and model_<N>.pt. Keywords are then those of `gym.make_vec` with output "torch", too.
        backend: Simulator of the training.
        num_envs: Rows; None: the id's setting, or 64 for PPO and 16 for SAC; 4096 for "rsl".
        seed: Seed of everything.
        episodes: Episodes of each evaluation.
        checkpoint_every: Control steps between checkpoints.
        resume: Continue from the newest checkpoint of the folder.
        device: PyTorch's device of the networks: "cpu", "cuda", "cuda:1", ...; with "rsl" of the environments, too.
        out: Folder; None: runs/train/<id>_<algorithm>_<backend>_<seed>.
        progress: Called with lines of progress.
        **keywords: Keywords of `gym.make_vec`: model, randomize, sensor_noise, action_latency, level, ...

    Returns:
        The trained policy, its learning curve and evaluations, and the folder.

    Raises:
        OptionError: A setting is not allowed, or the folder already holds a training.
        FileFormatError: There is no checkpoint to resume from, or it belongs to another run.
        MissingDependencyError: PyTorch, Stable-Baselines3 or rsl-rl-lib is not installed.
    """
    from .learning.checkpoints import kept
    from .learning.curve import draw_curve
    from .learning.evaluation import evaluate as evaluate_policy
    from .learning.evaluation import interface_played
    from .learning.policy import policy_of
    from .learning.rl import LearningPoint, Trained, Training, begun, settings
    from .learning.rl import train as learn

    system, name = system_of_task(id), id.rpartition(":")[2]
    folder = Path(out or Path("runs") / "train" / f"{name}_{algorithm}_{Path(backend).name}_{seed}")
    progress(f"seed {seed}, commit {git_commit()}, folder {folder}")
    given = {} if params is None else {"params": params}
    check_choice("learner", learner, ("sb3", "rsl"))
    check_number("episodes", episodes, low=1, whole=True)
    for key in ON_DEVICE:
        if key in keywords and learner != "rsl":
            raise OptionError(f"{key} is {shown(keywords[key])}, which needs learner 'rsl'")
    own = system.learning_of(name, algorithm)
    training = Training(
        _full_id(id), settings(algorithm, own)["steps"] if steps is None else steps, algorithm,
        {"backend": backend, **keywords, **given}, num_envs, seed=seed, checkpoint_every=checkpoint_every, overrides=own,
        device=device,
    )  # fmt: skip

    def report(point: LearningPoint) -> None:
        scores = f"return {point.mean_return:9.3f}  success {100.0 * point.success:3.0f} %"
        progress(f"{point.steps:10d} steps  {point.seconds:7.0f} s  {scores}")

    try:
        if learner == "rsl":
            own = {**training.keywords, "device": device}
            policy: Any = _learned_on_device(replace(training, keywords=own), folder, progress, resume=resume)
            found = Trained(policy, ())
        else:
            if resume:
                begun(training, folder, progress)
            found = learn(training, folder, resume=resume, report=report)
            policy = policy_of(found.model)
        plain = {key: value for key, value in keywords.items() if key not in (*TRAINING_ONLY, *ON_DEVICE)}
        robot = interface_played(training.env_id, {**plain, **given, "backend": backend}) if given else {}
        evaluations = {}
        for world in dict.fromkeys((NATIVE, *list(system.ground_truths)[:1], backend)):
            own = {**robot, **plain, "backend": world, **(given if world == backend else {})}
            evaluations[world] = evaluate_policy(policy, training.env_id, episodes=episodes, seed=10_000_019, keywords=own)
            progress(f"{world:8s} {evaluations[world]}")
        write_json(folder / "evaluation.json", {world: one.table() for world, one in evaluations.items()})
        draw_curve(folder, evaluations)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(kept(folder)) from None
    return found._replace(evaluations=evaluations, folder=folder)


def _learned_on_device(training: Training, folder: Path, progress: Print, *, resume: bool) -> Any:
    """The policy of a training by rsl-rl-lib."""
    from .learning.rsl import DeviceTraining, begun
    from .learning.rsl import train as learn

    if training.algorithm != "ppo":
        raise OptionError(f"algorithm is {training.algorithm!r}, learner 'rsl' allows 'ppo'")
    names = ("env_id", "steps", "keywords", "num_envs", "seed", "checkpoint_every", "overrides")
    own = DeviceTraining(**{name: getattr(training, name) for name in names})
    if resume:
        begun(own, folder, progress)
    return learn(own, folder, resume=resume)


def evaluate(
    policy: Any,
    id: str,
    *,
    backend: str = NATIVE,
    params: Any = None,
    episodes: int = 100,
    seed: int = 20_000_003,
    **keywords: Any,
) -> Evaluation:
    """Run whole episodes of a policy, episode i from seed + i on every backend.

    There is no noise but that of the keywords, and of the interface that a fit.toml holds.

    Args:
        policy: A `Network`, a function from observations (B, no) to actions (B, na), a file (policy.zip of PPO, A2C or SAC
            with an MLP, or .npz), "pretrained", or None: no action. "package.module:function" names a controller of your own:
            it gets the vector environment, which it may copy but not step, and returns a function from observations to actions.
        id: Environment.
        backend: Simulator of the episodes; "": the system's first ground truth.
        params: Parameters of the backend.
        episodes: Number of episodes.
        seed: Seed of the first one; no training starts from it.
        **keywords: Keywords of `gym.make_vec`. What the policy observes is known from its file.

    Returns:
        Returns, successes and failed simulations (E,).

    Raises:
        OptionError: Unknown id, a number out of its range, no such controller, or one that steps or resets the environment.
        FileFormatError: The file holds no policy.
        ShapeError: The policy takes other observations, or a controller's actions are not (B, na).
    """
    from .learning.evaluation import controller_of, evaluate_controller
    from .learning.evaluation import evaluate as evaluate_policy
    from .learning.policy import load_policy

    full = _full_id(id)
    own = {"backend": backend or first_ground_truth(id), **keywords}
    own |= {} if params is None else {"params": params}
    if isinstance(policy, (str, Path)):
        if ":" in str(policy) and not Path(policy).exists():
            return evaluate_controller(controller_of(str(policy)), full, episodes=episodes, seed=seed, keywords=own)
        policy = load_policy(Path(policy), full)
    own = {**getattr(policy, "keywords", {}), **own}
    return evaluate_policy(policy, full, episodes=episodes, seed=seed, keywords=own)


def export(policy: Any, id: str = "", *, out: str | Path = "policy.onnx") -> Path:
    """Write a policy as ONNX with its contract in the metadata, and run_policy.py beside it, which runs it on a robot.

    Args:
        policy: A `Network`, a file (policy.zip of PPO, A2C or SAC with an MLP, or .npz), or "pretrained".
        id: Environment that it was trained in; "": as in its contract.
        out: The .onnx file.

    Returns:
        The file.

    Raises:
        OptionError: The contract does not fit the environment, or there is neither; or controls cannot be described.
        FileFormatError: The file holds no policy that can be exported (a recurrent one, say).
        MissingDependencyError: onnx or onnxruntime is not installed.
    """
    from .learning.export import contract_with, export_network
    from .learning.policy import load_policy

    full = _full_id(id) if id else ""
    network = load_policy(Path(policy), full) if isinstance(policy, (str, Path)) else policy
    return export_network(network, contract_with(network, full), Path(out))


def dataset(id: str, kind: str = "expert", *, episodes: int | None = None, seed: int = 0) -> Any:
    """A Minari dataset of an id: the one that exists, or a new one of so many episodes.

    Datasets are in Minari's folder (MINARI_DATASETS_PATH, else ~/.minari/datasets); the experts of ArmReach and SlidingBlock
    come with the package. Beside the data stands recordings.h5: states and controls of the same episodes, for `sysid.load`.

    Args:
        id: Environment.
        kind: "expert": by the policy of the package; "medium": half of its actions are drawn at random; "random".
        episodes: Episodes of a new dataset; None: the existing one.
        seed: Seed of the first episode; episode i begins from seed + i.

    Returns:
        A `minari.MinariDataset`.

    Raises:
        OptionError: Unknown id or kind, no policy comes with the package, there is no such dataset, or there is one already.
        MissingDependencyError: minari is not installed.
    """
    from .learning.datasets import dataset as made

    return made(_full_id(id), kind, episodes=episodes, seed=seed)


def first_ground_truth(id: str) -> str:
    """The first ground truth of an id's system; our engine if it has none."""
    return next(iter(system_of_task(id).ground_truths), NATIVE)


def benchmark(
    ids: Sequence[str] = (),
    controllers: Sequence[str] = (),
    *,
    out: str | Path = Path("runs") / "benchmark",
    budgets: int | Sequence[int] = (100,),
    training_steps: int | None = None,
    episodes: int = 30,
    options: str = "",
    executor: Literal["serial", "processes", "ray"] = "serial",
    workers: int | None = None,
    progress: Print = _say,
) -> list[dict[str, Any]]:
    """Compare controllers at equal budgets; cells that `out` has are not run again.

    Writes benchmark.md, a picture per system and numbers.json into `out`. Published cells of the same ids stand beside the
    new ones. Equal cells are equal but for times, alone or in a table, on any executor.

    Args:
        ids: Environments, or one; (): all.
        controllers: Names of `agents.benchmark_study.controllers.ROWS`, "package.module:function" of your own (it gets the
            vector environment, which it may copy but not step, and returns a function from observations (B, no) to actions
            (B, na)), or policy files; or one of these; (): all.
        out: Folder.
        budgets: Simulated control steps per executed one, of planners; several, or one.
        training_steps: Control steps of PPO and SAC; None: those of each id's settings.
        episodes: Episodes per cell.
        options: Keywords of the environments as words key=value with spaces between them.
        executor: "serial", "processes", or "ray": a cluster that shares `out`.
        workers: Processes; None: one per processor.
        progress: Called with lines of progress.

    Returns:
        The record of every cell of the folder; "reason" says why a cell is empty.

    Raises:
        OptionError: Unknown id or controller, a number out of its range, a cell of the folder that was made otherwise, or a
            cell failed.
        FileFormatError: A cell of the folder cannot be read.
        StorageError: `out` cannot be written.
    """
    from .benchmark_study.run import benchmark as compared

    return compared(
        ids, controllers, out=out, budgets=budgets, training_steps=training_steps, episodes=episodes, options=options,
        executor=executor, workers=workers, progress=progress,
    )  # fmt: skip


def transfer(
    study: str | Path,
    out: str | Path | None = None,
    *,
    executor: Literal["serial", "processes", "ray"] = "processes",
    workers: int | None = None,
    seeds: int | None = None,
    datasets: int | None = None,
    starts: int | None = None,
    conditions: Sequence[str] = (),
    video: bool = True,
    progress: Print = _say,
) -> Summary:
    """Run or continue a transfer study: how well do controllers from the identified model work on the ground truth?

    Args:
        study: TOML file of a study, the name of one that comes with a system ("smoke"), or the folder of one that ran: then
            its report is written again.
        out: Folder; None: runs/transfer_<name>.
        executor: "serial", "processes", or "ray": a cluster; the numbers are the same.
        workers: Processes; None: one per processor.
        seeds: Seeds; None: the study's own. Likewise `datasets` and `starts`.
        datasets: See `seeds`.
        starts: See `seeds`.
        conditions: Only these; (): the study's own.
        video: Whether to draw the identified condition beside the nominal one.
        progress: Called with lines of progress.

    Returns:
        All numbers of the study; `Summary.complete` is False if runs failed.

    Raises:
        OptionError: The study cannot be run, or the folder holds another one.
        FileFormatError: A file is damaged.
    """
    from .transfer_study.run import run_study

    counts = {"seeds": seeds, "datasets": datasets, "starts": starts}
    return run_study(
        Path(study), None if out is None else Path(out), executor=executor, workers=workers, conditions=tuple(conditions),
        video=video, progress=progress, **counts,
    )  # fmt: skip


def _parameters(engine: Any, params: Any) -> Any:
    """Parameters of an engine from a file, a mapping or an object; None: the engine's own."""
    default = engine.default_parameters
    if isinstance(params, Mapping):
        return default.replace(**params)
    if not isinstance(params, (str, Path, type(default), type(None))):
        expected = f"{type(default).__name__}, a mapping of its names to numbers, or a file of it"
        raise ParameterError(f"params is {shown(params)}, expected {expected}")
    return type(default).load(params) if isinstance(params, (str, Path)) else params
