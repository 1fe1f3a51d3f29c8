"""One side of benchmarks/rows_between.py: steps rows of one id in whatever checkout PYTHONPATH names; imports nothing newer.

Standard input: a line of JSON with id, rows, steps, keywords, path; then a line per round. Standard output: a line of JSON when
ready, then one per round, [processor time, time by the clock] in seconds.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np


def main() -> None:
    """Runs the protocol; answers have their own stream: what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    asked = json.loads(sys.stdin.readline())
    import softgym_envs

    here = Path(softgym_envs.__file__).resolve()
    if Path(asked["path"]).resolve() not in here.parents:
        raise SystemExit(f"softgym_envs is {here}, not under {asked['path']}")
    envs: Any = gym.make_vec(asked["id"], num_envs=asked["rows"], vectorization_mode="vector_entry_point", **asked["keywords"])
    rng = np.random.default_rng(0)
    shape = (asked["steps"], asked["rows"], *envs.single_action_space.shape)
    envs.reset(seed=0)
    answer: object = "ready"
    while True:
        actions = rng.uniform(-1.0, 1.0, shape).astype(np.float32)
        begin = time.process_time(), time.perf_counter()
        for action in actions:
            envs.step(action)
        if answer != "ready":
            answer = [time.process_time() - begin[0], time.perf_counter() - begin[1]]
        print(json.dumps(answer), file=answers, flush=True)
        if not sys.stdin.readline():
            return
        answer = None


if __name__ == "__main__":
    main()
