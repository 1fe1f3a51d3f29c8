"""Tensegrity robots: rods that float in a net of cables."""

from ..core.room import Room, TaskId
from .model import TensegrityModel, prism, superball, with_terrain
from .parameters import TensegrityBody, TensegrityParameters
from .structure_file import load_structure
from .terrain import Terrain

_BUILD = "softgym_envs.tensegrity.build"
ROOM = Room(
    name="tensegrity",
    summary="rods that float in a net of cables: the 6-bar SUPERball, the 3-bar prism, or your own",
    engine="softgym_envs.tensegrity.dynamics:TensegritySimulator",
    models={"superball": "softgym_envs.tensegrity.model:superball", "prism": "softgym_envs.tensegrity.model:prism"},
    read_model="softgym_envs.tensegrity.structure_file:load_structure",
    settle="softgym_envs.tensegrity.statics:settle",
    truths={"mujoco": "softgym_envs.tensegrity.mujoco:TensegrityTwin"},
    tasks=(
        TaskId("TensegrityRoll-v0", f"{_BUILD}:roll", 50, "superball"),
        TaskId("TensegrityCrawl-v0", f"{_BUILD}:crawl", 150, "prism"),
        TaskId("TensegrityWaypoint-v0", f"{_BUILD}:waypoint", 300, "superball"),
        TaskId("TensegrityTerrain-v0", f"{_BUILD}:terrain", 100, "superball"),
    ),
    picture="softgym_envs.tensegrity.picture:PICTURE",
    recipe="softgym_envs.tensegrity.recipe:RECIPE",
    study="softgym_envs.tensegrity.study:STUDY",
    learning="softgym_envs.tensegrity.learning:LEARNING",
    controllers="softgym_envs.tensegrity.controllers:CONTROLLERS",
    objectives={"roll": "softgym_envs.tensegrity.tasks:ROLL", "crawl": "softgym_envs.tensegrity.tasks:CRAWL"},
    free_structure=("name", "nodes", "constants", "actuated", "control_limit", "terrain"),
)

__all__ = [
    "ROOM",
    "TensegrityBody",
    "TensegrityModel",
    "TensegrityParameters",
    "Terrain",
    "load_structure",
    "prism",
    "superball",
    "with_terrain",
]
