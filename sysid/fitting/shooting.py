"""One-step, multiple- and single-shooting least squares: one solver, one residual, three lengths of segment.

- `one_step`: every recorded step is predicted from the recorded state before it. Robust and fast; treats measured states as
  exact, so noise on them biases it (errors in variables): a start for longer segments, whose first states are unknowns where
  states are noisy (`FitProblem.free_initial`).
- `multiple_shooting`: segments of a chosen length. Long enough to see slow effects, short enough not to be chaotic.
- `single_shooting`: whole recordings.

Unknown noise is estimated per channel and the fit repeated with those weights. A fit can be interrupted (Ctrl-C) and resumed
from its checkpoint; it then ends in the same numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from softgym_envs.core.errors import DataError, OptionError
from softgym_envs.core.simulator import Array, check_number, is_exact
from softgym_envs.core.spec import SimulatorSpec

from ..diagnostics.diagnose import Ending, diagnose
from ..diagnostics.intervals import IntervalOptions
from ..diagnostics.model_form import half_step_variation
from ..diagnostics.residuals import estimated_noise, is_rounding
from ..diagnostics.result import Ended, FitResult, provenance_of, remaining_share
from ..least_squares.cutting import cut
from ..least_squares.levenberg import (
    FitIteration,
    LevenbergOptions,
    LevenbergState,
    StopReason,
    levenberg_marquardt,
    start_state,
)
from ..least_squares.segments import Segments
from ..least_squares.system import HUBER, ShootingSystem, channel_scale
from ..problem.problem import FitProblem
from . import checkpoint
from .checkpoint import Journal
from .outliers import OUTLIER, Cleaned, spread, without_outliers
from .progressive import Beginning, ProgressiveFits
from .running import Running
from .second_fit import OTHER_STEP, by_two_ways, ranked

Jacobian = Literal["auto", "exact", "differences", "one_sided"]
LOWER = 0.95  # Largest ratio of squared residuals for a fit to replace another minimum.
ROUGHLY = 1e-5  # Relative cost tolerance of a fit that only provides the start of another.
BRIEF = LevenbergOptions(max_iterations=10, cost_tolerance=1e-3)  # Options of the first fit over shorter segments.
NOISE_STAYS = 1e-7  # Relative cost tolerance where starts are unknown: the rest of the cost is noise, which no step removes.
SAVING = 0.05  # Largest share of the time that goes into checkpoints: that of thousands of segments takes half a second.
STAYS = 0.01
"""Standard deviations within which parameters count as converged where starts are unknown: what still lowers the cost are
states at starts of segments, as where a cable begins to pull the sooner or later."""


@dataclass(frozen=True)
class InitialFit:
    """Fits that provide the start of a fit.

    Raises:
        OptionError: A value is not allowed.
    """

    restart_steps: int = 0
    """Rows of short segments. A fit that does not converge, or is not adequate, starts again from a fit over these, which have
    fewer wrong minima; 0: never."""
    short_steps: int = 0
    """Rows of segments for a few iterations that provide the start of a fit, from parameters that are far off; 0: it starts
    from the start parameters. Either way it is compared with these."""
    progressive: tuple[int, ...] = ()
    """Rows of the segments of fits, one after the other, that provide parameters and states for the start of a fit; see
    `.progressive`. Used where states are measured in part."""
    second_progressive: tuple[int, ...] = ()
    """Rows of the segments of a second fit, by differences over `OTHER_STEP` times the step: the lower of both ends is kept,
    and intervals allow for the other; see `.second_fit`. (): there is none."""
    coarse: tuple[Mapping[str, Any], ...] = ()
    """Fields of the simulator, if it has them, that are changed during progressive fits, where that is quicker. A fit that does
    not converge, or is not adequate, is repeated with the next: the better end is kept (`second_fit.ranked`)."""
    ended: Ended | None = None
    """Final state of another fit of the same recordings, whose states and weights are used for the start where starts are
    unknown; there are no progressive fits. None: as the other options say."""

    def __post_init__(self) -> None:
        for name in ("restart_steps", "short_steps"):
            check_number(name, getattr(self, name), low=0, whole=True)
        for name in ("progressive", "second_progressive"):
            for length in getattr(self, name):
                check_number(f"a length in {name}", length, low=1, whole=True)


@dataclass(frozen=True)
class ShootingOptions:
    """Settings of every shooting method.

    Raises:
        OptionError: A value is not allowed.
    """

    jacobian: Jacobian = "auto"
    """Source of derivatives: `Simulator.linearize`, or central differences of rollouts. auto: exact where the simulator offers
    it and it is not slower: reverse mode costs n backward passes, differences two rollouts per unknown. Starts of noisy full
    states do not count: backward passes take five times as long there (SUPERball). "one_sided": differences that are central
    along the parameters only, in half the time where starts are unknown."""
    epsilon: float = 1e-5
    """Step of the differences [fit coordinate, tangent]."""
    segment_steps: int = 100
    """Rows per segment of `multiple_shooting`; the other methods have segments of their own length."""
    reweight: int = 6
    """Most estimates of the noise, each followed by a fit: they stop when the noise that a fit leaves is, within 1 % in every
    channel, the noise that it was weighted with (no effect where the noise is known)."""
    starts: int = 1
    """Number of starts: the problem's own, and the best of 16 times as many random ones within the bounds."""
    seed: int = 0
    """Seed of the random starts."""
    loss: Literal["squares", "robust"] = "squares"
    """"robust": where states are measured in part, Huber's loss first, then squares without outliers; see `.outliers`."""
    errors: Literal["independent", "clustered"] = "independent"
    """Assumption of the covariance about the residuals; "clustered" is right also for a structurally wrong model."""
    initial: InitialFit = field(default_factory=InitialFit)
    intervals: IntervalOptions = field(default_factory=IntervalOptions)
    levenberg: LevenbergOptions = field(default_factory=LevenbergOptions)

    def __post_init__(self) -> None:
        if self.jacobian not in get_args(Jacobian):
            raise OptionError(f"jacobian is {self.jacobian!r}, allowed are {', '.join(map(repr, get_args(Jacobian)))}")
        if self.loss not in ("squares", "robust"):
            raise OptionError(f"loss is {self.loss!r}, allowed are 'squares' and 'robust'")
        if self.errors not in ("independent", "clustered"):
            raise OptionError(f"errors is {self.errors!r}, allowed are 'independent' and 'clustered'")
        for name, least in (("segment_steps", 1), ("reweight", 0), ("starts", 1)):
            check_number(name, getattr(self, name), low=least, whole=True)
        check_number("epsilon", self.epsilon, positive=True)


def one_step(problem: FitProblem, options: ShootingOptions | None = None, running: Running | None = None) -> FitResult:
    """Fit predictions of single steps; see the module docstring.

    Raises:
        DataError: States are measured in part, or the simulation diverges at the start parameters.
    """
    if not problem.full_state:
        raise DataError("one_step needs every state entry measured in every row; use single_shooting for partial measurements")
    return _fit(problem, "one_step", 1, options or ShootingOptions(), running or Running())


def multiple_shooting(problem: FitProblem, options: ShootingOptions | None = None, running: Running | None = None) -> FitResult:
    """Fit predictions over segments of `options.segment_steps` rows; see the module docstring.

    Raises:
        DataError: The simulation diverges at the start parameters.
    """
    options = options or ShootingOptions()
    return _again(problem, f"multiple_shooting({options.segment_steps})", options.segment_steps, options, running or Running())


def single_shooting(problem: FitProblem, options: ShootingOptions | None = None, running: Running | None = None) -> FitResult:
    """Fit predictions over whole recordings; see the module docstring.

    Raises:
        DataError: The simulation diverges at the start parameters.
    """
    return _again(problem, "single_shooting", None, options or ShootingOptions(), running or Running())


def uses_exact_derivatives(problem: FitProblem, jacobian: str) -> bool:
    """Whether derivatives are exact for this simulator; resolves "auto".

    Raises:
        OptionError: "exact" was requested, but the simulator has no exact derivatives.
    """
    offered = is_exact(problem.simulator) and len(problem.own) == len(problem.free)
    if jacobian == "exact" and not offered:
        what = f"{type(problem.simulator).__name__} has no exact derivatives for {', '.join(problem.free)}"
        raise OptionError(f"{what}; use `jacobian='differences'`")
    if jacobian == "auto":
        starts = problem.estimates_initial and not problem.noisy
        return offered and problem.simulator.n <= 2 * (len(problem.free) + (len(problem.unknown_start) if starts else 0))
    return jacobian == "exact"


def _again(problem: FitProblem, method: str, steps: int | None, options: ShootingOptions, running: Running) -> FitResult:
    """The fit, or a better one from a fit over short segments, if the first does not converge or is not adequate.

    A better one is lower than a minimum, or no higher than a fit that did not converge.
    """
    found, rows = _begun(problem, method, steps, options, running), options.initial.restart_steps
    if (found.converged and found.explained) or not rows:
        return found
    once, quiet = replace(options, starts=1), running.without_file
    try:
        coarse = replace(options.levenberg, cost_tolerance=max(options.levenberg.cost_tolerance, ROUGHLY))
        short = _fit(problem, "short", rows, replace(once, intervals=options.intervals.minimal, levenberg=coarse), quiet)
        there = short.ended.states if short.ended is not None and problem.estimates_initial else None
        first = Beginning(problem.replace(start=short.parameters, view=short.view), there)
        once = replace(once, initial=replace(options.initial, ended=short.ended))
        again = _fit(problem, method, steps, once, quiet, first)
    except (DataError, OptionError):
        return found
    if not again.converged or remaining_share(again, found) > (LOWER if found.converged else 1.0):
        return found
    seconds = found.seconds + short.seconds + again.seconds
    again = replace(again, seconds=seconds)
    return again.with_diagnostic("second_fit", "note", how="short", converged=found.converged, rows=rows)


def _begun(problem: FitProblem, method: str, steps: int | None, options: ShootingOptions, running: Running) -> FitResult:
    """The fit, started from another that converges quickly from afar, if there is one; the better of two progressive ones."""
    initial, quiet = options.initial, running.without_file
    progressive = initial.progressive if initial.ended is None and not problem.full_state else ()
    if initial.second_progressive and progressive:
        one = replace(options, initial=replace(initial, second_progressive=()))
        other = replace(initial, progressive=initial.second_progressive, second_progressive=())
        two = replace(options, initial=other, epsilon=OTHER_STEP * options.epsilon)
        fits = (partial(_begun, problem, method, steps, *each) for each in ((one, running), (two, quiet)))
        return by_two_ways(problem, *fits)
    coarse = tuple(
        fields for fields in initial.coarse if progressive and all(hasattr(problem.simulator, name) for name in fields)
    )
    if len(coarse) > 1:
        return _first_adequate(problem, method, steps, replace(options, initial=replace(initial, coarse=coarse)), running)
    begin = time.perf_counter()
    once = replace(options, intervals=options.intervals.minimal)
    first, costs = Beginning(problem), tuple[float, ...]()
    try:
        if initial.ended is not None:
            first = Beginning(problem, initial.ended.states if problem.estimates_initial else None)
        elif progressive:
            exact, one_sided = uses_exact_derivatives(problem, options.jacobian), options.jacobian == "one_sided"
            fields = coarse[0] if coarse else {}
            robust = options.loss == "robust"
            first = ProgressiveFits(progressive, exact, options.epsilon, one_sided, robust, fields).begin(problem)
        elif initial.short_steps:
            short = _fit(problem, "short", initial.short_steps, replace(once, starts=1, levenberg=BRIEF), quiet)
            first = Beginning(problem.replace(start=short.parameters, view=short.view))
        elif problem.noisy:  # a fit from measured starts: biased a little
            near = _fit(problem.replace(free_initial=False), "measured", steps, once, quiet)
            first, costs = Beginning(problem.replace(start=near.parameters, view=near.view)), near.start_costs
            options = replace(options, starts=1)
    except DataError:
        pass
    found = _fit(problem, method, steps, options, running, first)
    return replace(found, start_costs=costs or found.start_costs, seconds=time.perf_counter() - begin)


def _first_adequate(
    problem: FitProblem, method: str, steps: int | None, options: ShootingOptions, running: Running
) -> FitResult:
    """First of the fits with coarse options that converges and is adequate; if none is, the best; see `ranked`."""
    initial = options.initial
    one = replace(options, initial=replace(initial, coarse=initial.coarse[:1]))
    found = _begun(problem, method, steps, one, running)
    if found.converged and found.explained:
        return found
    later = replace(options, initial=replace(initial, coarse=initial.coarse[1:]), starts=1)
    try:
        again = _begun(problem, method, steps, later, running.without_file)
    except DataError:
        return found
    best = again if again.converged and again.explained else ranked(found, again)[0]
    if best is not found:
        best = best.with_diagnostic("second_fit", "note", how="grown", converged=found.converged)
    return replace(best, seconds=found.seconds + again.seconds)


def _fit(
    problem: FitProblem,
    method: str,
    steps: int | None,
    options: ShootingOptions,
    running: Running,
    beginning: Beginning | None = None,
) -> FitResult:
    """Minimise and diagnose; `beginning` is the start of the first minimisation."""
    begin, (first, states) = time.perf_counter(), beginning or Beginning(problem)
    exact = uses_exact_derivatives(problem, options.jacobian)
    # Two noisy rows determine neither state nor parameters: single steps start from measured states unless set otherwise.
    free = problem.estimates_initial and not (steps == 1 and problem.noisy)
    one_sided = options.jacobian == "one_sided"
    segments = cut(
        first, problem.split.train, steps, free=free, exact=exact, epsilon=options.epsilon, one_sided=one_sided, states=states
    )
    scale, robust = channel_scale(segments), options.loss == "robust" and not problem.full_state
    known = problem.known_noise
    begun = scale if options.initial.ended is None else options.initial.ended.noise
    system = ShootingSystem(segments, begun if known is None else known, HUBER if robust else np.inf)
    identity = f"{problem.fingerprint} {method} {options.starts} {options.seed} {options.reweight} {exact} {options.loss}"
    thetas = _starts(first, system, options)
    if robust:
        system = system.with_sigma(np.maximum(system.sigma if known is not None else 0.0, spread(segments, thetas[0], scale)))
    journal = Journal(0, system.sigma, (), None)
    if running.resume and running.checkpoint:
        journal = checkpoint.read(running.checkpoint, identity, problem.spec)
    phases = len(thetas) + (options.reweight if known is None else int(robust))
    cleaned = Cleaned(problem, segments, 0.0)
    total = phases * options.levenberg.max_iterations
    with _Reporter(running, total, identity, problem.spec, phases) as reporter:
        while journal.phase < phases and not (known is None and _settled(cleaned.segments, journal, len(thetas), scale)):
            if robust and journal.phase >= len(thetas) and system.huber < np.inf:
                best = _best(journal.done[: len(thetas)])
                cleaned = without_outliers(segments, best.theta, best.blocks)
                sigma = system.sigma if cleaned.problem.known_noise is None else cleaned.problem.known_noise
                system = ShootingSystem(cleaned.segments, sigma)
                journal = replace(journal, sigma=sigma if journal.state is None else journal.sigma)
            journal = _run_phase(system, journal, thetas, scale, options, reporter)
    ends = journal.done
    last = ends[-1] if len(ends) > len(thetas) else _best(ends)
    outcome = last.outcome or StopReason.ITERATIONS
    costs = tuple(state.cost for state in ends[: len(thetas)])
    log = _one_log(ends if len(thetas) == 1 else (_best(ends[: len(thetas)]), *ends[len(thetas) :]))
    ending = Ending(
        method, last.theta, last.blocks, outcome.converged, outcome.message, log, costs, time.perf_counter() - begin
    )
    own = cleaned.problem if first is problem else cleaned.problem.replace(start=problem.start, view=problem.view)
    segments = replace(cleaned.segments, epsilon=options.intervals.difference_step or options.epsilon)
    found = diagnose(
        own, ShootingSystem(segments, journal.sigma), ending, options.intervals, errors=options.errors,
        varied=half_step_variation(cleaned.segments) if options.intervals.half_step else None,
        lengthened=options.intervals.model_error and not (options.initial.progressive or options.initial.restart_steps),
    )  # fmt: skip
    if running.checkpoint is not None:  # only now: diagnostics may last, and be interrupted
        running.checkpoint.unlink(missing_ok=True)
    found = replace(found, ended=Ended(segments.whole(last.theta, last.blocks), journal.sigma))
    if cleaned.share == 0.0:
        return found
    return replace(found, provenance=provenance_of(problem)).with_diagnostic("outliers", "note", "", cleaned.share, OUTLIER)


def _settled(segments: Segments, journal: Journal, starts: int, scale: Array) -> bool:
    """Whether all starts are done and another estimate of the noise would change nothing.

    That is so if the best start predicts everything to rounding (there is no noise), or if the last minimisation leaves the
    noise that it was weighted with. Else the weights of a poor local minimum would enter the result.
    """
    if journal.phase < starts:
        return False
    if journal.phase == starts:
        best = _best(journal.done)
        return is_rounding(segments.residuals(best.theta[None], best.blocks)[0][0], scale)
    noise = estimated_noise(segments, journal.done[-1].theta, journal.done[-1].blocks, scale)
    return bool((np.abs(noise - journal.sigma) <= 0.01 * journal.sigma).all())


def _run_phase(
    system: ShootingSystem, journal: Journal, thetas: Array, scale: Array, options: ShootingOptions, reporter: _Reporter
) -> Journal:
    """Run one minimisation: from start number `phase`, or reweighted from the end of the best one."""
    segments, sigma = system.segments, journal.sigma
    if journal.phase >= len(thetas) and journal.state is None:
        previous = _best(journal.done) if journal.phase == len(thetas) else journal.done[-1]
        if segments.problem.known_noise is None:
            sigma = estimated_noise(segments, previous.theta, previous.blocks, scale)
    weighted = system.with_sigma(sigma)
    state = journal.state
    if state is None:
        if journal.phase < len(thetas):
            theta, blocks = thetas[journal.phase], segments.starts
        else:
            theta, blocks = previous.theta, previous.blocks
        if not np.isfinite(weighted.cost(theta, blocks)):
            where = segments.problem.decode(theta)
            raise DataError(f"the simulation diverges at the start parameters {where}: start nearer, or take shorter segments")
        state = start_state(weighted, theta, blocks, options.levenberg)
    under_way = replace(journal, sigma=sigma, state=state)

    def on_iteration(current: LevenbergState) -> None:
        reporter.iteration(replace(under_way, state=current))

    on_start = replace(under_way, state=state)
    reporter.phase(on_start)
    bounds, levenberg = segments.problem.theta_bounds, options.levenberg
    own = levenberg.cost_tolerance != LevenbergOptions.cost_tolerance  # set by the user
    if segments.free and (segments.problem.noisy or not own):
        tolerance = max(levenberg.cost_tolerance, NOISE_STAYS)
        levenberg = replace(levenberg, cost_tolerance=tolerance, deviations=levenberg.deviations or STAYS)
    end = levenberg_marquardt(weighted, state, bounds, options=levenberg, on_iteration=on_iteration)
    return Journal(journal.phase + 1, sigma, (*journal.done, end), None)


def _starts(problem: FitProblem, system: ShootingSystem, options: ShootingOptions) -> Array:
    """Fit coordinates to start from, (starts, p): the problem's own first, then the cheapest random ones."""
    own = problem.encode(problem.initial_parameters)[None]
    if options.starts == 1:
        return own
    rng = np.random.default_rng(options.seed)
    candidates = rng.uniform(*problem.theta_bounds, size=(16 * (options.starts - 1), own.shape[1]))
    costs = system.costs(candidates, system.segments.starts)
    order = [i for i in np.argsort(costs, kind="stable") if np.isfinite(costs[i])]
    return np.concatenate([own, candidates[order[: options.starts - 1]]])


def _best(ends: tuple[LevenbergState, ...]) -> LevenbergState:
    return min(ends, key=lambda state: state.cost)


def _one_log(ends: tuple[LevenbergState, ...]) -> tuple[FitIteration, ...]:
    """Logs of consecutive minimisations as one, with consecutive numbers and times."""
    log: list[FitIteration] = []
    for end in ends:
        count, seconds = len(log), log[-1].seconds if log else 0.0
        log += [replace(entry, iteration=count + entry.iteration, seconds=seconds + entry.seconds) for entry in end.log]
    return tuple(log)


# --- progress and checkpoints ---------------------------------------------------------------------------------------


class _Reporter:
    """Writes iteration lines, a progress bar and checkpoints."""

    def __init__(self, running: Running, total: int, identity: str, spec: SimulatorSpec, phases: int) -> None:
        self.running, self.total, self.identity, self.spec, self.phases = running, total, identity, spec, phases
        self.write: Callable[[str], None] = lambda line: None
        self.bar: Any = None
        self.unsaved: Journal | None = None
        self.saved_next = 0.0  # [s] on the clock of time.monotonic

    def __enter__(self) -> _Reporter:
        stream = self.running.progress
        if stream is not None:
            from tqdm import tqdm

            self.bar = tqdm(total=self.total, file=stream, unit="it", desc="fit", leave=False)
            self.write = lambda line: tqdm.write(line, file=stream)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()
        if kind is not None and issubclass(kind, KeyboardInterrupt) and self.running.checkpoint is not None:
            if self.unsaved is not None:
                checkpoint.save(self.running.checkpoint, self.identity, self.spec, self.unsaved)
            self.write(f"interrupted; go on with resume from {self.running.checkpoint}")

    def phase(self, journal: Journal) -> None:
        """Report that a minimisation starts or is resumed."""
        self.write(f"minimisation {journal.phase + 1} of at most {self.phases}")
        self._save(journal)

    def iteration(self, journal: Journal) -> None:
        """Report one finished iteration."""
        state = journal.state
        if state is None:
            return
        self.write(state.log[-1].line())
        if self.bar is not None:
            self.bar.update(1)
            self.bar.set_postfix_str(f"cost {state.cost:.4g}")
        self._save(journal)

    def _save(self, journal: Journal) -> None:
        """Write the checkpoint, unless that would take more than SAVING of the time; an interruption writes what is left."""
        self.unsaved = journal
        if self.running.checkpoint is not None and (began := time.monotonic()) >= self.saved_next:
            checkpoint.save(self.running.checkpoint, self.identity, self.spec, journal)
            self.unsaved, ended = None, time.monotonic()
            self.saved_next = ended + (ended - began) / SAVING
