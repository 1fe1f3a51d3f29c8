"""Vine robots: inflated tubes that grow at their tip, steer, and use contact."""

from ...core.system import System, TaskId
from .model import VineModel, with_obstacles
from .obstacles import Circle, Obstacle, Polygon, Wall, circle, polygon, rectangle, wall
from .parameters import VineBody, VineParameters
from .scene_file import load_scene

_BUILD = "softgym_envs.systems.vine.build"
SYSTEM = System(
    name="vine",
    summary="an inflated tube that grows at its tip and steers with muscles",
    engine="softgym_envs.systems.vine.dynamics:VineSimulator",
    models={"vine": "softgym_envs.systems.vine.model:VineModel"},
    read_model="softgym_envs.systems.vine.scene_file:load_scene",
    ground_truths={"mujoco": "softgym_envs.systems.vine.mujoco:MujocoVine"},
    tasks=(
        TaskId("VineGrow-v0", f"{_BUILD}:grow", 150, "vine"),
        TaskId("VineNavigate-v0", f"{_BUILD}:navigate", 150, "vine"),
        TaskId("VineSqueeze-v0", f"{_BUILD}:squeeze", 150, "vine"),
        TaskId("VineWall-v0", f"{_BUILD}:wall", 150, "vine"),
    ),
    picture="softgym_envs.systems.vine.picture:PICTURE",
    procedure="softgym_envs.systems.vine.procedure:PROCEDURE",
    study="softgym_envs.systems.vine.study:STUDY",
    learning="softgym_envs.systems.vine.learning:LEARNING",
    controllers="softgym_envs.systems.vine.controllers:CONTROLLERS",
    objectives={"reach": "softgym_envs.systems.vine.tasks:REACH"},
    free_structure=("num_sections", "max_length", "initial_length", "max_growth", "max_steering", "base", "obstacles"),
)

__all__ = [
    "SYSTEM",
    "Circle",
    "Obstacle",
    "Polygon",
    "VineBody",
    "VineModel",
    "VineParameters",
    "Wall",
    "circle",
    "load_scene",
    "polygon",
    "rectangle",
    "wall",
    "with_obstacles",
]
