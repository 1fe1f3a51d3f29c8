"""Tensegrity robots: rods that float in a net of cables."""

from ...core.system import System, TaskId
from .model import TensegrityModel, prism, superball, with_terrain
from .parameters import TensegrityBody, TensegrityParameters
from .structure_file import load_structure
from .terrain import Terrain

_BUILD = "softgym_envs.systems.tensegrity.build"
SYSTEM = System(
    name="tensegrity",
    summary="rods that float in a net of cables: the 6-bar SUPERball, the 3-bar prism, or your own",
    engine="softgym_envs.systems.tensegrity.dynamics:TensegritySimulator",
    models={
        "superball": "softgym_envs.systems.tensegrity.model:superball",
        "prism": "softgym_envs.systems.tensegrity.model:prism",
    },
    read_model="softgym_envs.systems.tensegrity.structure_file:load_structure",
    settle="softgym_envs.systems.tensegrity.statics:settle",
    ground_truths={"mujoco": "softgym_envs.systems.tensegrity.mujoco:MujocoTensegrity"},
    tasks=(
        TaskId("TensegrityRoll-v0", f"{_BUILD}:roll", 50, "superball"),
        TaskId("TensegrityCrawl-v0", f"{_BUILD}:crawl", 150, "prism"),
        TaskId("TensegrityWaypoint-v0", f"{_BUILD}:waypoint", 300, "superball"),
        TaskId("TensegrityTerrain-v0", f"{_BUILD}:terrain", 100, "superball"),
    ),
    picture="softgym_envs.systems.tensegrity.picture:PICTURE",
    procedure="softgym_envs.systems.tensegrity.procedure:PROCEDURE",
    study="softgym_envs.systems.tensegrity.study:STUDY",
    learning="softgym_envs.systems.tensegrity.learning:LEARNING",
    controllers="softgym_envs.systems.tensegrity.controllers:CONTROLLERS",
    planning="softgym_envs.systems.tensegrity.controllers:PLANNING",
    objectives={"roll": "softgym_envs.systems.tensegrity.tasks:ROLL", "crawl": "softgym_envs.systems.tensegrity.tasks:CRAWL"},
    free_structure=("name", "nodes", "parameter_values", "actuated", "control_limit", "terrain"),
)

__all__ = [
    "SYSTEM",
    "TensegrityBody",
    "TensegrityModel",
    "TensegrityParameters",
    "Terrain",
    "load_structure",
    "prism",
    "superball",
    "with_terrain",
]
