"""The model of [Jitosho2021] (arXiv 2011.01917) as a simulator; its program and the kernels are in `stepping`.

Legend: B batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import warp as wp
from numpy.typing import NDArray

from softgym_envs.core.simulator import check_number
from softgym_envs.engines.warp.buffers import KernelProgram
from softgym_envs.engines.warp.engine import WarpEngine
from softgym_envs.engines.warp.simulator import WarpSimulator
from softgym_envs.systems.vine.geometry import shape_arrays

from .memory import World, workspace
from .model import PaperModel
from .parameters import PaperParameters
from .stepping import rollout_kernel

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PaperSimulator(WarpSimulator):
    """The paper's model as a `core.simulator.Simulator`.

    >>> simulator = PaperSimulator()
    >>> states, status = simulator.rollout(simulator.initial_state(2), np.full((2, 5, 1), 0.04))
    >>> states.shape, status.tolist()
    ((2, 6, 180), [0, 0])

    Raises:
        OptionError: Unknown device, dt not positive, no space for contacts.
    """

    system = "vine"
    parameters_class = PaperParameters

    model: PaperModel = field(default_factory=PaperModel)
    """Structure and obstacles."""
    dt: float = 0.01
    """Physics step [s]."""
    max_contacts: int = 64
    """Most gaps that may close in one step; with more the row fails."""
    device: str = "cpu"
    """"cpu", or a CUDA device of Warp."""

    def __post_init__(self) -> None:
        check_number("max_contacts", self.max_contacts, low=1, high=1000, whole=True)
        self.check_options()

    @cached_property
    def engine(self) -> WarpEngine:
        """The Warp side of this simulator; it runs forward only."""
        model, world = self.model, World()
        world.links, world.d, world.radius = model.num_links, model.half_length, 0.5 * model.diameter
        world.heading, world.dt, world.max_growth = model.heading, self.dt, model.max_growth
        world.shapes, _ = shape_arrays(model.obstacles, self.device)
        world.poses = wp.array(model.poses, dtype=wp.vec3d, device=self.device)
        world.corners = wp.array(model.corners, dtype=wp.vec2d, device=self.device)
        program = KernelProgram(rollout_kernel, workspace=workspace(model.num_links, self.max_contacts))
        return WarpEngine(program, [world], self.nx, 1, len(PaperParameters.names()), self.device)
