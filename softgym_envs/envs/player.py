"""Plays an environment in a window: keys in, actions to the environment, pictures, videos and recordings out."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from ..core.errors import OptionError
from ..core.simulator import Array
from ..core.trajectory import Trajectory, TrajectorySet
from ..rendering.camera import Camera
from ..rendering.picture import Picture
from ..rendering.pygame_view import Image, PygameRenderer
from ..rendering.scene import Bar, Hud, default_camera
from ..rendering.teleop import keyed_action, ramp
from ..rendering.video import FrameRecorder, write_png, write_video
from .drawing import picture_of, scene_of
from .env import SoftgymEnv

Policy = Callable[[NDArray[Any]], NDArray[np.float32]]
"""Observations (B, no) -> actions (B, na) in -1 ... 1."""

FPS = 30
HELP = (
    "R reset   N next seed   P pause   . step   Tab policy / hand",
    "drag turn   wheel zoom   C camera follows   H help and numbers   S save PNG   V start / stop video   Esc quit",
)
"""Keys that do the same for every robot; those of the robot stand before them."""


@dataclass(frozen=True)
class PlayOptions:
    """Options of a player: what it shows and saves."""

    seed: int = 0
    """Seed of the first episode; N takes the next one."""
    record: Path | None = None
    """Record everything into this .gif or .mp4."""
    dataset: Path | None = None
    """Save states and controls of all episodes into this .h5, a row per control step, for system identification (but of a loop,
    which needs shorter rows)."""
    output: Path = Path("runs/play")
    """Folder of pictures (S) and videos (V)."""
    size: tuple[int, int] = (800, 600)
    """Width and height of the window in pixels."""
    headless_frames: int = 0
    """Draw this many frames without a window, then end; for servers and tests. The command needs record or dataset, too."""

    def check(self) -> None:
        """Refuse options that would fail after the last step.

        Raises:
            OptionError: An ending that cannot be written, or a negative number of frames.
        """
        for name, path, endings in (("record", self.record, (".gif", ".mp4")), ("dataset", self.dataset, (".h5", ".hdf5"))):
            if path is not None and path.suffix.lower() not in endings:
                raise OptionError(f"{name} is {path}, expected a name that ends in {' or '.join(endings)}")
        if self.headless_frames < 0:
            raise OptionError(f"headless_frames is {self.headless_frames}, expected >= 0 (0 opens a window)")


@dataclass
class Episode:
    """Record of an episode since the last reset."""

    seed: int
    states: list[Array]
    controls: list[Array] = field(default_factory=list)
    result: float = 0.0
    terms: dict[str, float] = field(default_factory=dict)
    largest: float = 0.1
    """Largest reward term so far: the range of the bars."""
    info: dict[str, Any] = field(default_factory=dict)
    over: str = ""
    """Reason of its end; empty while it runs."""


class Player:
    """Lets a person or a policy drive a softgym_envs environment; `run` plays until the end.

    Args:
        env: Made by `gym.make` from one of its ids.
        options: What to show and save.
        policy: Policy that drives until Tab is pressed.

    Raises:
        OptionError: The robot cannot be drawn, or an option is not allowed.
        OSError: A folder cannot be made.
    """

    def __init__(self, env: gym.Env[Any, Any], options: PlayOptions | None = None, policy: Policy | None = None) -> None:
        self.options, self.env, self.inner = options or PlayOptions(), env, cast(SoftgymEnv, env.unwrapped)
        self.options.check()
        self.name = env.spec.id if env.spec is not None else type(self.inner.task).__name__
        self.simulator: Any = self.inner.simulator  # a system's simulator: it has a model, too
        self.picture: Picture = picture_of(self.simulator)
        self.task = self.inner.task
        self.period = self.inner.episodes.settings.control_period
        self.frames_per_step = max(1, round(self.period * FPS))
        self.fps = self.frames_per_step / self.period
        self.renderer = PygameRenderer(self.options.size, mode="human", fps=self.fps, title=f"softgym_envs: {self.name}")
        self.policy = policy
        self.policy_drives = policy is not None
        self.pressed: set[str] = set()
        self.paused = self.quit = self.single_step = False
        self.hud_shown = self.following = True
        self.camera = Camera()
        self.video: FrameRecorder | None = FrameRecorder() if self.options.record else None
        self.video_path = self.options.record
        self.frames = 0
        self.saved = 0
        self.speed = 0.0
        self.trail: deque[Array] = deque(maxlen=600)
        self.recorded: list[Trajectory] = []
        self.last_image: Image | None = None
        for path in (self.options.record, self.options.dataset):
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
        self.reset(self.options.seed)

    # --- the loop --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Play until Esc, a closed window, or the given number of frames."""
        try:
            while not self.done:
                if self.next_seed is not None:
                    self.keep_episode()
                    self.reset(self.next_seed)
                if (self.paused and not self.single_step) or self.episode.over:
                    self.draw(self.state)
                else:
                    self.single_step = False
                    self.step()
        finally:
            self.finish()

    @property
    def done(self) -> bool:
        """Whether to end."""
        limit = self.options.headless_frames
        return self.quit or self.renderer.closed or (limit > 0 and self.frames >= limit)

    @property
    def state(self) -> Array:
        """Copy of the environment's state (nx,)."""
        return self.inner.state

    def reset(self, seed: int) -> None:
        """Begin a new episode."""
        self.next_seed: int | None = None
        self.observation, _ = self.env.reset(seed=seed)
        self.episode = Episode(seed, [self.state])
        self.action = self.picture.rest_action(self.simulator.model)
        self.trail.clear()

    def step(self) -> None:
        """Run one control step, shown in several frames."""
        before, started = self.state, time.perf_counter()
        action = self.next_action()
        control = self.task.scale_action(action[None].astype(np.float64))[0]
        self.observation, reward, terminated, truncated, info = self.env.step(action)
        self.speed = 1.0 / max(time.perf_counter() - started, 1e-9)
        now = self.episode
        now.states.append(self.state)
        now.controls.append(control)
        now.result += float(reward)
        now.info = info
        now.terms = {name[7:]: float(value) for name, value in info.items() if name.startswith("reward_")}
        now.largest = max([now.largest, *map(abs, now.terms.values())])
        if terminated or truncated:
            now.over = "simulation failed" if info.get("sim_failed") else "ended" if terminated else "time is up"
        for state in [*self.between(before, control), self.state]:
            if not self.done:
                self.draw(state)

    def next_action(self) -> NDArray[np.float32]:
        """The policy's action, or that of the keys, approached within some tenths of a second."""
        if self.policy_drives and self.policy is not None:
            self.action = self.policy(np.asarray(self.observation)[None])[0].astype(np.float64)
        else:
            view = self.renderer.turned(self.camera).azimuth + np.pi
            wanted = keyed_action(self.picture, self.simulator.model, self.state, self.pressed, view)
            self.action = ramp(self.action, wanted, self.period)
        return np.clip(self.action, -1.0, 1.0).astype(np.float32)

    def between(self, state: Array, control: Array) -> list[Array]:
        """States inside the control step, for a smooth picture: physics is repeated without noise or delay."""
        count = self.frames_per_step
        substeps = round(self.period / self.simulator.dt) // count
        if count == 1 or substeps < 1:
            return []
        controls = np.repeat(control[None, None], count - 1, axis=1)
        return list(self.simulator.rollout(state[None], controls, self.inner.episodes.parameters, substeps=substeps)[0][0, 1:])

    # --- pictures --------------------------------------------------------------------------------------------------

    def draw(self, state: Array) -> None:
        """Draw one frame, into the window or (headless) only into the video."""
        self.trail.append(self.picture.followed(self.simulator.model, state))
        hints = dict(self.task.draw_hints(self.inner.context))
        if len(self.trail) > 1:
            hints["trail"] = np.array(self.trail)
        scene = scene_of(self.simulator, state, hints, parameters=self.inner.episodes.parameters)
        if self.following or self.frames == 0:
            self.camera = default_camera(scene)
        hud = self.hud() if self.hud_shown else None
        self.renderer.overlay = self.hud_shown
        if self.options.headless_frames:
            image: Image | None = self.renderer.rgb(scene, self.camera, hud)
        else:
            image = self.renderer.show(scene, self.camera, hud, self.on_event)
        self.frames += 1
        if image is not None:
            self.last_image = image
            if self.video is not None and self.frames % 2 == 0:
                self.video.add(image)

    def hud(self) -> Hud:
        """Numbers and keys over the picture."""
        now = self.episode
        ends = np.array(self.trail)[-2:]
        velocity = float(np.linalg.norm(ends[-1] - ends[0])) * self.frames_per_step / self.period
        driver = "policy" if self.policy_drives else "hand"
        lines = (
            f"t = {len(now.controls) * self.period:5.1f} s    return {now.result:+.2f}",
            f"speed {velocity:.2f} m/s    success: {'yes' if now.info.get('is_success') else 'no'}",
            f"{driver} drives    {self.speed:.0f} steps/s",
        )
        bars = tuple(Bar(name.replace("_", " "), value, -now.largest, now.largest) for name, value in now.terms.items())
        badge = (
            now.over + ": R resets" if now.over else "paused" if self.paused else "recording" if self.video is not None else ""
        )
        own = "   ".join(f"{key} {what}" for key, what in self.picture.keys.items())
        return Hud(f"{self.name}   seed {now.seed}   {self.inner.backend}", lines, bars, (own, *HELP), badge)

    # --- keys ------------------------------------------------------------------------------------------------------

    def on_event(self, event: Any) -> None:
        """Handle a key that goes down or up."""
        import pygame

        if event.type not in (pygame.KEYDOWN, pygame.KEYUP):
            return
        key = pygame.key.name(event.key)
        if event.type == pygame.KEYUP:
            self.pressed.discard(key)
            return
        self.pressed.add(key)
        commands: dict[str, Callable[[], None]] = {
            "r": lambda: setattr(self, "next_seed", self.episode.seed),
            "n": lambda: setattr(self, "next_seed", self.episode.seed + 1),
            "p": lambda: setattr(self, "paused", not self.paused),
            ".": lambda: self.advance(),
            "h": lambda: setattr(self, "hud_shown", not self.hud_shown),
            "c": lambda: setattr(self, "following", not self.following),
            "s": lambda: self.save_picture(),
            "v": lambda: self.toggle_video(),
            "tab": lambda: setattr(self, "policy_drives", self.policy is not None and not self.policy_drives),
            "escape": lambda: setattr(self, "quit", True),
        }
        if key in commands:
            commands[key]()

    def advance(self) -> None:
        """Pause, and make one control step."""
        self.paused = self.single_step = True

    # --- files -----------------------------------------------------------------------------------------------------

    def save_picture(self) -> None:
        """Save the last frame as a PNG."""
        if self.last_image is not None:
            print("wrote", write_png(self.free_path(".png"), self.last_image))

    def toggle_video(self) -> None:
        """Start a video, or write the running one."""
        if self.video is None:
            self.video, self.video_path = FrameRecorder(), self.free_path(".gif")
        else:
            self.write_video()

    def write_video(self) -> None:
        """Write the running video, if it has frames."""
        if self.video is not None and self.video_path is not None and len(self.video):
            print("wrote", write_video(self.video_path, self.video, 0.5 * self.fps))
        self.video = None

    def free_path(self, ending: str) -> Path:
        """A name in the output folder that is not taken."""
        while True:
            path = self.options.output / f"{self.name}-{self.saved:03d}{ending}"
            self.saved += 1
            if not path.exists():
                return path

    def keep_episode(self) -> None:
        """Add the episode to the dataset, if one is wanted and it has a step."""
        now = self.episode
        if self.options.dataset is None or not now.controls:
            return
        substeps = round(self.period / self.simulator.dt)
        metadata = {"env": self.name, "backend": self.inner.backend, "seed": str(now.seed)}
        states, controls = np.array(now.states), np.array(now.controls)
        self.recorded.append(Trajectory.from_rollout(self.simulator, states, controls, substeps=substeps, metadata=metadata))

    def finish(self) -> None:
        """Write the dataset and the video, and close the window."""
        self.keep_episode()
        if self.options.dataset is not None and self.recorded:
            print("wrote", TrajectorySet(tuple(self.recorded)).save(self.options.dataset))
        self.write_video()
        self.renderer.close()
