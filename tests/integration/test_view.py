"""The browser view: its loop without a browser, every robot as shapes, the page in a real Chromium, bad arguments."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from importlib import import_module

import numpy as np
import pytest
from helpers import EVERY_ID, HUNG, ROOT, load_script
from PIL import Image

from softgym_envs.core.errors import DataError, OptionError, ParameterError
from softgym_envs.core.spec import SimulatorSpec
from softgym_envs.core.trajectory import Trajectory, TrajectorySet
from softgym_envs.envs.drawing import scene_of
from softgym_envs.envs.live import SIMPLE, Live, Robot
from softgym_envs.envs.replay import Replay
from softgym_envs.envs.viewer import LiveViewer
from softgym_envs.rendering.colors import FORCE, GOAL, TUBE
from softgym_envs.rendering.scene import Arrow, Face, Marker, Prism, Scene, Segment, Sphere, Trail
from softgym_envs.rendering.shapes import GroundPatch, shapes_of
from softgym_envs.systems import systems

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
BLOCK, ARM = "SlidingBlock-v0", "ArmReach-v0"


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def check_shapes(scene):
    shapes = shapes_of(scene)
    for instances in (shapes.bars, shapes.balls):
        for values in vars(instances).values():
            assert np.isfinite(values).all() and len(values) == len(instances.positions)
        np.testing.assert_allclose(np.linalg.norm(instances.turns, axis=1), 1.0)
    for corners, triangles in shapes.flats.values():
        assert np.isfinite(corners).all() and 0 <= triangles.min() and triangles.max() < len(corners)
    assert len(shapes.balls.positions) + len(shapes.flats) > 0
    (corners, triangles), lines = GroundPatch().follow(shapes.ground)
    assert len(triangles) and len(lines) and np.isfinite(corners).all()
    return shapes


# --- the loop, without a browser --------------------------------------------------------------------------------------------


@EVERY_ID
def test_every_id_is_drawn_between_and_after_steps(env_id):
    live = Live([Robot(env_id, {})], SIMPLE["random"], seed=3)
    begun = live.first.state
    for seconds in (0.0, 1.3 * live.period, 0.4 * live.period):
        live.advance(seconds)
        (scene,) = live.scenes().values()
        check_shapes(scene)
    live.reset(3)
    np.testing.assert_array_equal(live.first.state, begun)
    pytest.importorskip("viser")
    viewer = LiveViewer(live, free_port())
    assert viewer.sliders
    viewer.run(frames=2)


@pytest.mark.parametrize("name", systems())
def test_every_system_is_drawn(name):
    simulator = systems()[name].simulator()
    check_shapes(scene_of(simulator, simulator.initial_state()[0]))


def test_time_passes_at_the_chosen_speed_and_stops_while_paused():
    live = Live([Robot(BLOCK, {})], SIMPLE["random"])
    live.speed = 0.5
    live.advance(4.1 * live.period)
    assert live.first.steps == 3
    before = live.first.state
    live.paused = True
    live.advance(100.0)
    np.testing.assert_array_equal(live.first.state, before)


def test_the_next_episode_begins_after_a_while():
    live = Live([Robot(BLOCK, {"max_episode_steps": 2})], SIMPLE["zero"], seed=7)
    live.advance(5 * live.period)
    assert live.first.over == "time is up" and live.first.steps == 2
    live.advance(0.6)
    live.advance(0.6)
    assert (live.first.seed, live.first.steps, live.first.over) == (8, 0, "")


def test_parameters_change_in_the_running_episode_and_outlast_a_reset():
    robots = [Robot(BLOCK, {}), Robot(BLOCK, {})]
    for robot in robots:
        robot.reset(5)
    robots[0].set_parameter("friction", 1.2)
    for robot in robots:
        robot.push(np.array([1.0, 0.0, 0.0]), 1.0)
        robot.step(np.zeros(2))
    assert robots[0].state[0] < robots[1].state[0]
    robots[0].reset(5)
    assert robots[0].parameters.friction == 1.2
    robots[0].restore_parameters()
    assert robots[0].parameters == robots[1].parameters
    with pytest.raises(ParameterError, match="friction = 9"):
        robots[0].set_parameter("friction", 9.0)


def test_latency_delays_actions_and_the_episode_goes_on():
    robot = Robot(BLOCK, {})
    robot.reset(1)
    robot.step(np.ones(2))
    state = robot.state
    robot.set_latency(2 * robot.inner.episodes.settings.control_period)
    np.testing.assert_array_equal(robot.inner.state, state)
    assert robot.inner.episodes.queue.shape[1] == 2
    with pytest.raises(OptionError, match="action_latency"):
        robot.set_latency(-1.0)
    robot.step(np.ones(2))


@pytest.mark.parametrize("env_id", [BLOCK, ARM, "TensegrityRoll-v0", "VineGrow-v0", "LoopPeg-v0", "UpperBodyReach-v0"])
def test_a_push_moves_the_robot_that_way(env_id):
    robot, way = Robot(env_id, {}), np.array([0.0, 1.0, 0.0]) if env_id == "VineGrow-v0" else np.array([0.6, 0.0, 0.8])
    robot.reset(2)
    control = robot.inner.task.scale_action(robot.picture.rest_action(robot.simulator.model)[None])
    states, places = [robot.state], []
    robot.push(way, 1.0)
    for state in (*states, robot.state):
        after, _ = robot.simulator.step(state[None], control, robot.parameters)
        places.append(robot.picture.followed(robot.simulator.model, after[0]))
    assert (places[1] - places[0]) @ way > 0.1 * robot.simulator.dt  # at least 0.1 m/s
    robot.step(robot.picture.rest_action(robot.simulator.model))


def test_a_ground_truth_runs_beside_the_engine_and_takes_levels():
    robots = [Robot(BLOCK, {}), Robot(BLOCK, {"backend": "mujoco"})]
    live = Live(robots, SIMPLE["random"], seed=2)
    np.testing.assert_array_equal(robots[0].state, robots[1].state[:6])
    assert [robot.has_level for robot in robots] == [False, True]
    robots[1].set_level(3)
    live.reset(2)
    for _ in range(5):
        live.step()
    assert robots[1].simulator.level == 3
    assert np.abs(robots[0].state[:2] - robots[1].state[:2]).max() > 1e-4
    scenes = live.scenes()
    assert list(scenes) == ["native", "mujoco"]
    plain, tinted = shapes_of(scenes["mujoco"]), shapes_of(scenes["mujoco"], (0, 0, 255))
    assert (tinted.balls.colors[:, 2] >= plain.balls.colors[:, 2]).all() and set(plain.flats) != set(tinted.flats)


# --- shapes -----------------------------------------------------------------------------------------------------------------


def test_a_bar_turns_and_stretches_a_cylinder_along_z():
    ends = np.array([0.0, 1.0, 2.0]), np.array([3.0, 1.0, -2.0])
    for start, end in (ends, ends[::-1], (ends[0], ends[0] - [0.0, 0.0, 1.0])):
        bars = shapes_of(Scene((Segment(start, end, 0.2, GOAL),), np.zeros(3), 1.0)).bars
        w, x, y, z = bars.turns[0]
        axis = np.array([2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)])
        np.testing.assert_allclose(bars.positions[0] + 0.5 * bars.scales[0, 2] * axis, end, atol=1e-12)


def test_every_primitive_has_a_shape():
    a, b, outline = np.zeros(3), np.array([0.0, 0.5, 0.0]), np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    parts = {
        Segment(a, b, 0.1, GOAL, dashed=True): (5, 0, 0),
        Segment(a, b, 0.1, GOAL): (1, 2, 0),
        Sphere(a, 0.1, GOAL): (0, 1, 0),
        Trail(np.array([a, b, a]), 0.1, GOAL): (2, 0, 0),
        Marker(a, 0.1, GOAL): (1, 1, 256),
        Arrow(a, b, 0.05, FORCE): (0, 0, 3),
        Arrow(a, a, 0.05, FORCE): (0, 0, 0),
        Prism(outline, 0.1, TUBE): (0, 0, 7),
        Face(np.zeros((4, 3)), TUBE): (0, 0, 2),
    }
    for part, expected in parts.items():
        shapes = shapes_of(Scene((part,), a, 1.0))
        triangles = sum(len(triangles) for _, triangles in shapes.flats.values())
        assert (len(shapes.bars.positions), len(shapes.balls.positions), triangles) == expected, part


# --- recordings -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A recording of a block, and a file of its parameters."""
    folder, simulator = tmp_path_factory.mktemp("block"), systems()["block"].simulator()
    states, _ = simulator.rollout(np.array([[0.0, 0.0, 0.3, 1.0, 0.0, 2.0]]), np.zeros((1, 60, 2)), substeps=1)
    TrajectorySet((Trajectory.from_rollout(simulator, states[0], np.zeros((60, 2))),)).save(folder / "a.h5")
    simulator.default_parameters.save(folder / "fit.toml", simulator=SimulatorSpec.of(simulator).table())
    return folder


def test_recordings_are_shown_beside_the_fit(files):
    view = load_script("scripts/view.py")
    pytest.importorskip("viser")
    viewer = view.recorded(view.Args("block", data=(files / "a.h5",), params=files / "fit.toml", port=free_port()))
    try:
        replay = viewer.replay
        assert set(replay.scenes(0, 0.3)) == {"recorded", "fit"}
        for seconds in (0.0, 0.5 * replay.length(0), replay.length(0)):
            for scene in replay.scenes(0, seconds).values():
                check_shapes(scene)
        viewer.run(frames=3)
        assert viewer.slider.value > 0
    finally:
        viewer.panel.browser.close()


def test_points_are_shown_by_the_system_or_as_balls():
    class Path:
        label, times = "a", np.array([0.0, 0.1])
        measured = np.array([[0.0, 0.0, 0.1, np.nan], [0.0, 0.0, 0.1, 0.02]])
        predicted = np.array([[0.0, 0.0, 0.1, 0.01], [0.0, 0.0, 0.1, 0.03]])

    for name, loose in (("vine", 2), ("tensegrity", 4)):
        simulator = systems()[name].simulator()
        names = ("point0.x", "point0.y", "point1.x", "point1.y")
        replay = Replay(simulator, simulator.default_parameters, names, [Path()])
        shapes = check_shapes(replay.scenes(0, 0.1)["recorded"])
        assert len(shapes.balls.positions) - 2 * len(shapes.bars.positions) == loose
        with pytest.raises(DataError, match="nothing can be drawn"):
            Replay(simulator, simulator.default_parameters, ("heat",), [Path()])


# --- the page ---------------------------------------------------------------------------------------------------------------


class Page:
    """A page in Chromium, driven through its DevTools protocol."""

    def __init__(self, url, folder):
        from websockets.sync.client import connect

        flags = ["--headless=new", "--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
        command = [CHROMIUM, *flags, "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        found = next(filter(None, (re.search(r"ws://([\d.:]+)/", line) for line in self.process.stderr)))
        targets = json.load(urllib.request.urlopen(f"http://{found[1]}/json"))
        address = next(each for each in targets if each["type"] == "page")["webSocketDebuggerUrl"]
        self.socket, self.calls = connect(address, max_size=None), 0
        self.call("Emulation.setDeviceMetricsOverride", width=900, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Page.navigate", url=url)

    def call(self, method, **parameters):
        self.calls += 1
        self.socket.send(json.dumps({"id": self.calls, "method": method, "params": parameters}))
        while (answer := json.loads(self.socket.recv(timeout=HUNG))).get("id") != self.calls:
            pass
        return answer["result"]

    def evaluate(self, expression):
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def picture(self):
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).astype(float)

    def close(self):
        self.socket.close()
        self.process.terminate()
        self.process.wait()


def until(condition, seconds=HUNG):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.2)


FOCUS = """(() => {
  const rows = [...document.querySelectorAll("[role=slider]")];
  const near = (node) => { while (node && !node.innerText?.includes("friction")) node = node.parentElement; return node };
  const all = rows.map(row => [row, near(row)]).filter(([row, box]) => box);
  all.sort((a, b) => a[1].innerText.length - b[1].innerText.length);
  if (!all.length) return false;
  all[0][0].focus();
  return true
})()"""
"""Focus the slider whose row names friction."""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
def test_a_slider_of_the_page_changes_the_robot(tmp_path):
    pytest.importorskip("viser")
    robots = [Robot(BLOCK, {}), Robot(BLOCK, {"backend": "mujoco"})]
    viewer, stopped = LiveViewer(Live(robots, SIMPLE["random"]), free_port()), threading.Event()

    def loop():
        while not stopped.is_set():
            viewer.frame(0.03)
            time.sleep(0.03)

    thread = threading.Thread(target=loop)
    thread.start()
    page = Page(viewer.panel.browser.url, tmp_path)
    try:
        until(lambda: page.evaluate(FOCUS))
        before, state = robots[0].parameters.friction, robots[0].state
        page.press("ArrowRight")
        until(lambda: robots[0].parameters.friction > before)
        assert robots[0].inner.get_state()["parameter_values"][0, 0] != before
        until(lambda: not np.array_equal(robots[0].state, state))

        def painted():
            scene = page.picture()[:, :500]
            return len(np.unique(scene.reshape(-1, 3), axis=0)) > 100 and scene.std() > 2

        until(painted)
    finally:
        page.close()
        stopped.set()
        thread.join()
        viewer.close()


# --- bad arguments, and the end ---------------------------------------------------------------------------------------------


def run(*words):
    return import_module("scripts.__main__").main(words)


def test_bad_arguments_get_a_sentence(capsys, monkeypatch, files, tmp_path):
    assert run("view", "TensegrityRol-v0") == 2
    assert "is it TensegrityRoll-v0?" in capsys.readouterr().err
    assert run("view", BLOCK, "--policy", str(tmp_path / "none.zip")) == 2
    assert "none.zip" in capsys.readouterr().err
    assert run("view", BLOCK, "--beside", "native") == 2
    assert "--beside is 'native'" in capsys.readouterr().err
    assert run("view", "block", "--data", str(files / "a.h5")) == 2
    assert "--params" in capsys.readouterr().err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run("view", BLOCK, "--port", str(port)) == 2
    assert f"port {port} cannot be used" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "viser", None)
    assert run("view", BLOCK) == 2
    assert "pip install 'softgym-envs[viewer]'" in capsys.readouterr().err


AGAIN = 20.0
"""[s] After which the signal is sent once more."""


def test_ctrl_c_ends_the_page():
    pytest.importorskip("viser")
    port = free_port()
    command = [sys.executable, str(ROOT / "scripts"), "view", BLOCK, "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert f"http://localhost:{port}" in process.stdout.readline()
        assert b"<html" in urllib.request.urlopen(f"http://localhost:{port}").read()
        process.terminate()  # raised like Ctrl-C, which runs in the background ignore
        for _ in range(round(HUNG / AGAIN)):
            with contextlib.suppress(subprocess.TimeoutExpired):
                out, err = process.communicate(timeout=AGAIN)
                break
            process.terminate()
        else:
            process.kill()
    assert (process.returncode, out) == (0, "closed\n"), err
