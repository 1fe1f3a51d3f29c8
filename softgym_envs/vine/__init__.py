"""Vine robots: inflated tubes that grow at their tip, steer, and use contact."""

from ..core.room import Room, TaskId
from .model import VineModel, with_obstacles
from .obstacles import Circle, Obstacle, Polygon, Wall, circle, polygon, rectangle, wall
from .parameters import VineBody, VineParameters
from .scene_file import load_scene

_BUILD = "softgym_envs.vine.build"
ROOM = Room(
    name="vine",
    summary="an inflated tube that grows at its tip and steers with muscles",
    engine="softgym_envs.vine.dynamics:VineSimulator",
    models={"vine": "softgym_envs.vine.model:VineModel"},
    read_model="softgym_envs.vine.scene_file:load_scene",
    truths={"mujoco": "softgym_envs.vine.mujoco:VineTwin"},
    tasks=(
        TaskId("VineGrow-v0", f"{_BUILD}:grow", 150, "vine"),
        TaskId("VineNavigate-v0", f"{_BUILD}:navigate", 150, "vine"),
        TaskId("VineSqueeze-v0", f"{_BUILD}:squeeze", 150, "vine"),
        TaskId("VineWall-v0", f"{_BUILD}:wall", 150, "vine"),
    ),
    picture="softgym_envs.vine.picture:PICTURE",
    recipe="softgym_envs.vine.recipe:RECIPE",
    study="softgym_envs.vine.study:STUDY",
    learning="softgym_envs.vine.learning:LEARNING",
    controllers="softgym_envs.vine.controllers:CONTROLLERS",
    objectives={"reach": "softgym_envs.vine.tasks:REACH"},
    free_structure=("num_sections", "max_length", "initial_length", "max_growth", "max_steering", "base", "obstacles"),
)

__all__ = [
    "ROOM",
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
