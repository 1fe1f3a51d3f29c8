"""OpenSim's side: runs in an interpreter that has `opensim` (pip), without our package; prints JSON as its last line.

python opensim_side.py paths ARM26.osim ANGLES.json     # muscle lengths and moment arms of arm26 at elbow angles
python opensim_side.py moco ASKED.json                  # a rest-to-rest motion of our two-muscle arm by OpenSim Moco
"""

from __future__ import annotations

import json
import math
import sys
import time
from typing import Any

import opensim as osim

MUSCLES = ("TRIlong", "TRIlat", "TRImed", "BIClong", "BICshort", "BRA")


def paths(file: str, angles: list[float]) -> dict[str, Any]:
    """Lengths and moment arms [m] of all muscles of arm26, shoulder at 0."""
    model = osim.Model(file)
    state = model.initSystem()
    model.getCoordinateSet().get("r_shoulder_elev").setValue(state, 0.0)
    elbow = model.getCoordinateSet().get("r_elbow_flex")
    found: dict[str, Any] = {name: {"length": [], "arm": []} for name in MUSCLES}
    for angle in angles:
        elbow.setValue(state, angle)
        model.realizePosition(state)
        for name in MUSCLES:
            muscle = model.getMuscles().get(name)
            found[name]["length"].append(muscle.getLength(state))
            found[name]["arm"].append(muscle.computeMomentArm(state, elbow))
    return {"range": [elbow.getRangeMin(), elbow.getRangeMax()], "muscles": found}


def arm(asked: dict[str, Any]) -> Any:
    """Our two-muscle arm with OpenSim's muscles of [DeGroote2016]."""
    model = osim.Model()
    model.setGravity(osim.Vec3(0, 0, -asked["gravity"]))
    forearm, load = asked["forearm"], asked["load"]
    body = osim.Body("forearm", forearm["mass"], osim.Vec3(*forearm["com"]), osim.Inertia(*forearm["inertia"], 0, 0, 0))
    held = osim.Body("load", load["mass"], osim.Vec3(0), osim.Inertia(1e-9, 1e-9, 1e-9, 0, 0, 0))
    turned = osim.Vec3(math.pi / 2, 0, 0)  # a pin turns about z, which then is our axis (0, -1, 0)
    pin = osim.PinJoint("elbow", model.getGround(), osim.Vec3(0), turned, body, osim.Vec3(0), turned)
    pin.updCoordinate().setName("angle")
    grip = osim.WeldJoint("grip", body, osim.Vec3(*load["place"]), osim.Vec3(0), held, osim.Vec3(0), osim.Vec3(0))
    for part in (body, held):
        model.addBody(part)
    for joint in (pin, grip):
        model.addJoint(joint)
    for muscle in asked["muscles"]:
        round_, made = osim.WrapCylinder(), osim.DeGrooteFregly2016Muscle()
        round_.setName(muscle["name"] + "_round")
        round_.set_radius(muscle["radius"])
        round_.set_length(0.2)
        round_.set_xyz_body_rotation(turned)
        round_.set_quadrant(muscle["quadrant"])
        model.updGround().addWrapObject(round_)
        made.setName(muscle["name"])
        made.addNewPathPoint("origin", model.updGround(), osim.Vec3(*muscle["origin"]))
        made.addNewPathPoint("insertion", body, osim.Vec3(*muscle["insertion"]))
        made.updGeometryPath().addPathWrap(round_)
        made.set_max_isometric_force(muscle["force"])
        made.set_optimal_fiber_length(muscle["optimal"])
        made.set_tendon_slack_length(muscle["slack"])
        made.set_pennation_angle_at_optimal(0.0)
        made.set_max_contraction_velocity(asked["speed"])
        made.set_activation_time_constant(asked["rise"])
        made.set_deactivation_time_constant(asked["fall"])
        made.set_ignore_tendon_compliance(True)
        made.set_fiber_damping(0.0)
        made.setMinControl(0.0)
        model.addForce(made)
    damper = osim.SpringGeneralizedForce("angle")
    damper.setName("damper")
    damper.setStiffness(0.0)
    damper.setViscosity(asked["damping"])
    model.addForce(damper)
    model.finalizeConnections()
    return model


def moco(asked: dict[str, Any], scheme: str, intervals: int) -> dict[str, Any]:
    """Least effort from rest to rest; the integral of the squared excitations."""
    began, processor = time.perf_counter(), time.process_time()
    study = osim.MocoStudy()
    problem = study.updProblem()
    problem.setModel(arm(asked))
    problem.setTimeBounds(0.0, asked["seconds"])
    value, speed = "/jointset/elbow/angle/value", "/jointset/elbow/angle/speed"
    problem.setStateInfo(value, list(asked["range"]), asked["start"], asked["end"])
    problem.setStateInfo(speed, [-50.0, 50.0], 0.0, 0.0)
    for muscle in asked["muscles"]:
        problem.setStateInfo(f"/forceset/{muscle['name']}/activation", [0.0, 1.0], asked["activation"])
        problem.setControlInfo(f"/forceset/{muscle['name']}", [0.0, 1.0])
    problem.addGoal(osim.MocoControlGoal("effort", 1.0))
    solver = study.initCasADiSolver()
    solver.set_num_mesh_intervals(intervals)
    solver.set_transcription_scheme(scheme)
    solver.set_optim_convergence_tolerance(1e-6)
    solver.set_optim_constraint_tolerance(1e-6)
    solver.set_optim_max_iterations(1000)
    solver.set_parallel(1)
    solver.set_verbosity(0)
    built = time.perf_counter(), time.process_time()
    found = study.solve()
    ended = time.perf_counter(), time.process_time()
    solved = found.success()
    found.unseal()
    names = [muscle["name"] for muscle in asked["muscles"]]
    return {
        "scheme": scheme, "intervals": intervals, "solved": solved, "status": found.getStatus(), "cost": found.getObjective(),
        "iterations": found.getNumIterations(), "seconds": ended[0] - began, "processor_seconds": ended[1] - processor,
        "build": built[1] - processor, "solve": ended[1] - built[1], "times": list(found.getTimeMat()),
        "angle": list(found.getStateMat(value)), "speed": list(found.getStateMat(speed)),
        "activations": [list(found.getStateMat(f"/forceset/{name}/activation")) for name in names],
        "excitations": [list(found.getControlMat(f"/forceset/{name}")) for name in names],
    }  # fmt: skip


def main(arguments: list[str]) -> None:
    """See the module docstring."""
    osim.Logger.setLevelString("error")
    if arguments[0] == "paths":
        with open(arguments[2]) as file:
            found: Any = paths(arguments[1], json.load(file))
    else:
        with open(arguments[1]) as file:
            asked = json.load(file)
        found = [moco(asked, scheme, intervals) for scheme, intervals in asked["meshes"]]
    print(json.dumps({"opensim": osim.GetVersion(), "found": found}))


if __name__ == "__main__":
    main(sys.argv[1:])
