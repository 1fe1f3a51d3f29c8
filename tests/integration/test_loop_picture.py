"""The loop's picture: the force on the clamp is what holds the loop there."""

import gymnasium as gym
import numpy as np

from softgym_envs.envs.drawing import scene_of
from softgym_envs.rendering import PygameRenderer, default_camera
from softgym_envs.rendering.colors import FORCE
from softgym_envs.systems.loop.bend import PERIOD, TIME
from softgym_envs.systems.loop.build import held
from softgym_envs.systems.loop.model import LoopModel
from softgym_envs.systems.loop.parameters import LoopParameters
from softgym_envs.systems.loop.picture import clamp_force, loop_scene


def test_the_force_on_the_clamp_is_that_of_statics():
    """At rest the loop's weight is carried by hand and clamp: the multipliers of the rest are the forces."""
    model = held(LoopModel())
    found = model.mechanism.rest(model.rest_state()[None, : model.n], model.hold[None], model.defaults)
    statics = found.multipliers[0, :3] + found.multipliers[0, 6:9]
    np.testing.assert_allclose(clamp_force(model, model.rest_state(), LoopParameters()), statics, rtol=1e-4, atol=1e-4)
    lifted, _ = model.relax(np.array([model.start]) + np.array([0.0, -0.05, 0.0, 0.0, 0.0, 0.0, 0.0]), model.defaults[None])
    pulled = clamp_force(model, np.pad(lifted[0], (0, model.n)), LoopParameters())
    assert pulled[2] > statics[2] + 0.5  # who lifts the hand pulls the clamp up
    open_chain = np.pad(lifted[0], (0, model.n))
    open_chain[10] += 0.02  # as a rod's polygon is, a little
    np.testing.assert_array_equal(clamp_force(model, open_chain, LoopParameters()), np.zeros(3))


def test_scenes_show_force_goal_and_peg():
    model = held(LoopModel())
    lifted, _ = model.relax(np.array([model.start]) + np.array([0.1, -0.05, 0.0, 0.0, 0.0, 0.0, 0.0]), model.defaults[None])
    state = np.pad(lifted[0], (0, model.n))
    parts = loop_scene(model, state, LoopParameters(), goal=np.array([0.5, 0.5, 0.0])).overlay
    assert any(getattr(part, "color", None) == FORCE for part in parts)
    env = gym.make("softgym_envs:LoopPeg-v0", render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().std() > 5.0


def test_the_profile_that_is_to_be_bent_along_is_drawn_over_the_hand():
    """From where the hand starts to its place in the middle of a period, half a period of the goal's own way."""
    env = gym.make("softgym_envs:LoopBend-v0").unwrapped
    env.reset(seed=0)
    task, context = env.task, env.context
    way = task.draw_hints(context)["way"]
    np.testing.assert_allclose(way[0], task.draw_hints(context)["goal"], atol=1e-9)
    context[TIME] = 0.5 * context[PERIOD]
    np.testing.assert_allclose(way[-1], task.draw_hints(context)["goal"], atol=1e-9)
    assert np.linalg.norm(way[-1] - way[0]) > 0.01
    shown, bare = (PygameRenderer().rgb(scene_of(env.simulator, env.state, hints)) for hints in ({"way": way}, {}))
    changed = (shown != bare).any(axis=-1)
    camera = default_camera(scene_of(env.simulator, env.state))
    pixels = np.round(camera.project(way, (640, 480))[0]).astype(int)
    assert changed[pixels[:, 1], pixels[:, 0]].all()
