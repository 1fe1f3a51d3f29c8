"""A flexible loop, an inflated bicycle tyre, held by a robot arm and clamped to a table [Caldwell2014]."""

from ..core.room import Room, TaskId

ROOM = Room(
    name="loop",
    summary="an arm with 7 joints that bends a flexible loop, which is clamped to a table",
    engine="softgym_envs.loop.dynamics:LoopSimulator",
    models={
        "baxter12": "softgym_envs.loop.model:baxter12",
        "baxter6": "softgym_envs.loop.model:baxter6",
        "baxter24": "softgym_envs.loop.model:baxter24",
        "hanging12": "softgym_envs.loop.model:hanging12",
    },
    read_model="softgym_envs.loop.loop_file:read_model",
    truths={"mujoco": "softgym_envs.loop.mujoco:LoopTwin", "rod": "softgym_envs.loop.rod:LoopRod"},
    tasks=(
        TaskId("LoopReach-v0", "softgym_envs.loop.build:reach", 200, "baxter12"),
        TaskId("LoopBend-v0", "softgym_envs.loop.build:bend", 200, "baxter12"),
        TaskId("LoopPeg-v0", "softgym_envs.loop.build:peg", 200, "hanging12"),
        TaskId("LoopIdentify-v0", "softgym_envs.loop.build:identify", 200, "baxter12"),
    ),
    picture="softgym_envs.loop.picture:PICTURE",
    recipe="softgym_envs.loop.recipe:RECIPE",
    study="softgym_envs.loop.study:STUDY",
    learning="softgym_envs.loop.learning:LEARNING",
    objectives={"reach": "softgym_envs.loop.study:REACH", "bend": "softgym_envs.loop.study:BEND"},
    controllers="softgym_envs.loop.controllers:CONTROLLERS",
    free_structure=("start", "servo_stiffness", "servo_damping", "command_margin", "command_limit"),
)

__all__ = ["ROOM"]
