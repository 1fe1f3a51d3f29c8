"""A flexible loop, an inflated bicycle tyre, held by a robot arm and clamped to a table [Caldwell2014]."""

from ...core.system import System, TaskId

SYSTEM = System(
    name="loop",
    summary="an arm with 7 joints that bends a flexible loop, which is clamped to a table",
    engine="softgym_envs.systems.loop.dynamics:LoopSimulator",
    models={
        "baxter12": "softgym_envs.systems.loop.model:baxter12",
        "baxter6": "softgym_envs.systems.loop.model:baxter6",
        "baxter24": "softgym_envs.systems.loop.model:baxter24",
        "hanging12": "softgym_envs.systems.loop.model:hanging12",
    },
    read_model="softgym_envs.systems.loop.loop_file:read_model",
    ground_truths={
        "mujoco": "softgym_envs.systems.loop.mujoco:MujocoLoop",
        "rod": "softgym_envs.systems.loop.rod:LoopRod",
        "elastica": "softgym_envs.systems.loop.elastica:ElasticaLoop",
    },
    tasks=(
        TaskId("LoopReach-v0", "softgym_envs.systems.loop.build:reach", 200, "baxter12"),
        TaskId("LoopBend-v0", "softgym_envs.systems.loop.build:bend", 200, "baxter12"),
        TaskId("LoopPeg-v0", "softgym_envs.systems.loop.build:peg", 200, "hanging12"),
        TaskId("LoopIdentify-v0", "softgym_envs.systems.loop.build:identify", 200, "baxter12"),
    ),
    picture="softgym_envs.systems.loop.picture:PICTURE",
    procedure="softgym_envs.systems.loop.procedure:PROCEDURE",
    study="softgym_envs.systems.loop.study:STUDY",
    learning="softgym_envs.systems.loop.learning:LEARNING",
    objectives={"reach": "softgym_envs.systems.loop.study:REACH", "bend": "softgym_envs.systems.loop.study:BEND"},
    controllers="softgym_envs.systems.loop.controllers:CONTROLLERS",
    planning="softgym_envs.systems.loop.controllers:PLANNING",
    free_structure=("start", "servo_stiffness", "servo_damping", "command_margin", "command_limit"),
)

__all__ = ["SYSTEM"]
