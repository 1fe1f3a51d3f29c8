"""A rigid box that is thrown on a table: it strikes, slides, tips and bounces."""

from ...core.system import System
from .model import BoxModel
from .parameters import BoxParameters

SYSTEM = System(
    name="box",
    summary="a rigid box that is thrown on a table: it strikes, slides, tips and bounces",
    engine="softgym_envs.systems.box.dynamics:BoxSimulator",
    models={"cube": "softgym_envs.systems.box.model:cube", "square": "softgym_envs.systems.box.model:square"},
    read_model="softgym_envs.systems.box.scene_file:load_box",
    ground_truths={"mujoco": "softgym_envs.systems.box.mujoco:MujocoBox"},
    picture="softgym_envs.systems.box.picture:PICTURE",
    procedure="softgym_envs.systems.box.procedure:PROCEDURE",
    free_structure=("force_limit",),
)

__all__ = ["SYSTEM", "BoxModel", "BoxParameters"]
