"""Gradients that are written out against autograd, and PPO's update against that of stable-baselines3. Policies in files: the
one loader against stable-baselines3, and files that hold none. One network for all motors: turned and relabelled robots,
either end of a cable, saving and loading. Costs against differences of their own value, on a manifold, and bad input."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from agents_models import Linear, Pendulum
from stable_baselines3 import PPO
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

import softgym_envs  # noqa: F401  (registers the ids)
from agents.control.cost import FeatureCost
from agents.control.ilqg import ILQGOptions, plan_ilqg
from agents.learning.chain import Chain, flat_gradients
from agents.learning.checkpoints import load_checkpoint, newest_checkpoint
from agents.learning.policy import load_policy, policy_of, save_policy
from agents.learning.ppo import LOGGED, LeanPPO
from agents.learning.rl import Training, devices, new_model, train
from agents.learning.scaling import Scaling
from agents.learning.shared_policy import SharedNetwork, SharedPolicy
from softgym_envs.core.errors import FileFormatError, OptionError, ShapeError
from softgym_envs.systems import system_of_task
from softgym_envs.systems.tensegrity import superball

VIEWS = np.array([[[0, 1], [2, 1]], [[1, 0], [1, 2]], [[0, 2], [2, 0]]])


class Line(gym.Env):
    """A point on a line is to stay at zero; an episode ends after 7 steps, or beyond 2."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.steps = self.np_random.uniform(-1, 1, 3).astype(np.float32), 0
        return self.at.copy(), {}

    def step(self, action):
        self.at[:2] += 0.3 * action
        self.steps += 1
        far = bool(np.abs(self.at).max() > 2.0)
        return self.at.copy(), -float(np.square(self.at).sum()), far, self.steps == 7 and not far, {}


def model(kind=LeanPPO, policy="MlpPolicy", **keywords):
    envs = DummyVecEnv([lambda: gym.wrappers.RecordEpisodeStatistics(Line())] * 4)
    return kind(policy, envs, n_steps=32, batch_size=48, n_epochs=2, seed=0, device="cpu", **keywords)


SHARED = {"policy": SharedPolicy, "policy_kwargs": {"views": VIEWS, "net_arch": {"pi": [8, 8], "vf": [8]}}}


@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
def test_gradients_of_a_chain_are_those_of_autograd(activation):
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(4, 6), activation(), nn.Linear(6, 5), activation()), nn.Linear(5, 2)
    network = nn.Sequential(*layers)
    chain, weights = Chain(*layers), list(network.parameters())
    for rows in (9, 5):  # fewer rows use part of the same memory
        inputs, slope = torch.randn(rows, 4), torch.randn(rows, 2)
        result = network(inputs)
        expected = torch.autograd.grad(result, weights, slope)
        flat = flat_gradients(weights)
        torch.testing.assert_close(chain(inputs), result.detach())
        chain.backward(slope)
        for weight, gradient in zip(weights, expected, strict=True):
            torch.testing.assert_close(weight.grad, gradient)
        assert flat.abs().sum() > 0


def test_only_layers_that_are_known_make_a_chain():
    with pytest.raises(OptionError, match="holds GELU, allowed there is Tanh, ReLU"):
        Chain(nn.Linear(2, 2), nn.GELU(), nn.Linear(2, 1))


@pytest.mark.parametrize("own", [{}, SHARED], ids=["plain", "shared"])
def test_gradients_of_the_loss_are_those_of_stable_baselines(own):
    """Of an actor that is frozen there are none, as teachers of critics need it."""
    learner = model(ent_coef=0.01, **own)
    policy, clip = learner.policy, 0.2
    torch.manual_seed(1)
    seen, action, advantage, returns = torch.randn(60, 3), torch.randn(60, 2), torch.randn(60), torch.randn(60)
    with torch.no_grad():
        old = policy.evaluate_actions(seen, action)[1] + 0.3 * torch.randn(60)
    value, density, entropy = policy.evaluate_actions(seen, action)
    ratio, scaled = (density - old).exp(), (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    gain = -torch.min(scaled * ratio, scaled * ratio.clamp(1 - clip, 1 + clip)).mean()
    loss = gain - 0.01 * entropy.mean() + 0.5 * nn.functional.mse_loss(returns, value.flatten())
    loss.backward()
    expected = {name: weight.grad.clone() for name, weight in policy.named_parameters()}
    flat_gradients(list(policy.parameters()))
    with torch.no_grad():
        found = learner._gradients(seen, action, old, advantage, returns, clip=clip)
        parts = dict(zip(LOGGED, learner._parts(*found, clip=clip), strict=True))
    for name, weight in policy.named_parameters():
        torch.testing.assert_close(weight.grad, expected[name], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(parts["loss"], loss.detach())
    torch.testing.assert_close(parts["clip_fraction"], ((ratio.detach() - 1).abs() > clip).float().mean())
    frozen = [weight for name, weight in policy.named_parameters() if "value" not in name and "critic" not in name]
    for weight in frozen:
        weight.requires_grad_(False)
    before = [weight.clone() for weight in frozen]
    learner.learn(128)
    assert all(torch.equal(a, b) for a, b in zip(before, frozen, strict=True))


def test_a_collection_is_that_of_stable_baselines():
    """The same actions, values, advantages and returns, with a bootstrap where time ends an episode."""
    mine, theirs = model(), model(PPO)
    for learner in (mine, theirs):
        learner._setup_learn(128)
        learner.set_random_seed(3)
        learner.collect_rollouts(learner.env, learner._init_callback(None), learner.rollout_buffer, 32)
    for name in ("observations", "actions", "rewards", "episode_starts", "values", "log_probs", "advantages", "returns"):
        found, expected = getattr(mine.rollout_buffer, name), getattr(theirs.rollout_buffer, name)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=name)
    assert mine.num_timesteps == theirs.num_timesteps == 128
    assert [each["r"] for each in mine.ep_info_buffer] == [each["r"] for each in theirs.ep_info_buffer]


def test_what_is_not_implemented_or_not_there_is_refused():
    with pytest.raises(OptionError, match=r"clip_range_vf is 0\.1, allowed is to leave it out"):
        model(clip_range_vf=0.1)
    with pytest.raises(OptionError, match=rf"device is 'cuda:99', allowed are {', '.join(devices())}"):
        Training("VineGrow-v0", 10, device="cuda:99")


def test_an_update_ends_where_the_policy_has_moved_far():
    """As in stable-baselines3; the log holds the last minibatches."""
    near, far = model(learning_rate=0.03), model(learning_rate=0.03, target_kl=1e-3)
    moved = []
    for learner in (far, near):
        before = learner.policy.action_net.weight.clone()
        learner.learn(128)
        moved.append((learner.policy.action_net.weight - before).abs().max().item())
    assert 0.0 < moved[0] < 0.7 * moved[1]


def test_scales_are_means_and_deviations_and_change_no_value():
    torch.manual_seed(0)
    scaling, head = Scaling(Line.observation_space), nn.Linear(4, 1)
    parts = [torch.randn(size, 3) * torch.tensor([1.0, 20.0, 0.0]) + 5.0 for size in (40, 40)]
    gains = [100.0 * part[:, 0] - 7.0 for part in parts]
    features = torch.randn(9, 4)
    value = head(features) * scaling.value_deviation + scaling.value_mean
    for observed, returns in zip(parts, gains, strict=True):
        scaling.update(observed, returns, head)
    torch.testing.assert_close(scaling.mean, torch.cat(parts).mean(0))
    torch.testing.assert_close(scaling.deviation[:2], torch.cat(parts).std(0, correction=0)[:2])
    assert scaling.deviation[2] == pytest.approx(1e-3)
    torch.testing.assert_close(scaling.value_deviation[0], torch.cat(gains).std(correction=0))
    torch.testing.assert_close(head(features) * scaling.value_deviation + scaling.value_mean, value, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("own", [{"policy_kwargs": {"net_arch": [8, 8]}}, SHARED], ids=["plain", "shared"])
def test_a_finished_policy_has_its_scales_in_its_layers(own, tmp_path):
    """Stable-baselines3 opens it without this package; a checkpoint still has them."""
    keywords = {**own["policy_kwargs"], "features_extractor_class": Scaling}
    learner = model(**{**own, "policy_kwargs": keywords}, learning_rate=0.01)
    learner.learn(512)
    observed = 3.0 * np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)
    expected = policy_of(learner)(observed)
    path = save_policy(learner, tmp_path / "policy.zip")
    np.testing.assert_allclose(load_policy(path)(observed), expected, atol=1e-4)
    plain = PPO.load(path)
    np.testing.assert_allclose(plain.predict(observed, deterministic=True)[0], expected, atol=1e-4)
    with torch.no_grad():
        values = plain.policy.predict_values(torch.from_numpy(observed))[:, 0].numpy()
    np.testing.assert_allclose(values, learner._values(observed), rtol=1e-3, atol=1e-3)
    if own is not SHARED:
        learner.save(tmp_path / "policy_512_steps.zip", exclude=("policy_class", "policy_kwargs"))
        np.testing.assert_allclose(load_policy(tmp_path / "policy_512_steps.zip")(observed), expected, atol=1e-4)


def test_noise_decays_over_the_whole_training():
    """Beside what is learned, which is nothing here; by a setting of the training."""
    learner = model(learning_rate=0.0)
    learner.noise_decay = 1.5
    learner.learn(256)
    torch.testing.assert_close(learner.policy.log_std.detach(), torch.full((2,), -1.5))
    training = Training("softgym_envs:ArmReach-v0", 10, num_envs=2, overrides={"noise_decay": 0.5})
    envs = training.make()
    assert new_model(training, envs).noise_decay == 0.5
    envs.close()


@pytest.mark.parametrize("algorithm", ["PPO", "SAC"])
def test_a_saved_policy_drives_as_stable_baselines3_would(tmp_path, algorithm):
    sb3 = pytest.importorskip("stable_baselines3")
    torch = pytest.importorskip("torch")
    env = gym.make("softgym_envs:TensegrityRoll-v0")
    options = {"net_arch": [16, 8], "activation_fn": torch.nn.ELU}
    small = {"buffer_size": 10} if algorithm == "SAC" else {}
    model = getattr(sb3, algorithm)("MlpPolicy", env, policy_kwargs=options, device="cpu", seed=1, **small)
    model.save(tmp_path / "policy.zip")
    policy = load_policy(tmp_path / "policy.zip")
    for _ in range(3):
        observation = env.observation_space.sample() * 0.01
        expected = model.predict(observation, deterministic=True)[0]
        np.testing.assert_allclose(policy(observation[None])[0], expected, atol=1e-5)


def test_a_recurrent_policy_is_refused(tmp_path):
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.PPO("MlpPolicy", gym.make("softgym_envs:SlidingBlock-v0"), device="cpu")
    model.policy.lstm_actor = sb3.common.policies.nn.LSTM(7, 4)  # under the name that sb3-contrib gives it
    model.save(tmp_path / "policy.zip")
    with pytest.raises(FileFormatError, match=r"policy.zip holds lstm_actor.weight_ih_l0: policies with a memory \(LSTM\)"):
        load_policy(tmp_path / "policy.zip")


def test_files_that_are_no_policy_are_refused(tmp_path):
    (tmp_path / "text.zip").write_text("not a zip")
    for name, said in (("text.zip", "is no policy of stable-baselines3"), ("missing.zip", "no such file")):
        with pytest.raises(FileFormatError, match=said):
            load_policy(tmp_path / name)


@pytest.mark.parametrize("document", ['{"observed": [3]}', '{"observed": null}', "[1]"])
def test_what_a_policy_observes_stands_beside_it(tmp_path, document):
    sb3 = pytest.importorskip("stable_baselines3")
    path = tmp_path / "policy.zip"
    sb3.PPO("MlpPolicy", gym.make("softgym_envs:SlidingBlock-v0"), device="cpu").save(path)
    assert load_policy(path).keywords == {}
    (tmp_path / "policy.json").write_text('{"observed": {"action_memory": 3}, "more": 1}')
    assert load_policy(path).keywords == {"action_memory": 3}
    (tmp_path / "policy.json").write_text(document)
    with pytest.raises(FileFormatError, match=r"expected a table of keywords|no JSON object"):
        load_policy(path)


def test_a_policy_of_another_environment_is_refused(tmp_path):
    sb3 = pytest.importorskip("stable_baselines3")
    sb3.PPO("MlpPolicy", gym.make("softgym_envs:TensegrityCrawl-v0"), device="cpu").save(tmp_path / "crawl.zip")
    policy = load_policy(tmp_path / "crawl.zip")
    with pytest.raises(ShapeError, match=r"takes 46 observed numbers, the environment has shape \(1, 100\)"):
        policy(np.zeros((1, 100), dtype=np.float32))


ID = "softgym_envs:TensegrityRoll-v0"
OWN = system_of_task(ID).learning_of("TensegrityRoll-v0", "ppo")
QUICK = {"n_steps": 8, "n_epochs": 1, "batch_size": 32}


def roll(**changes):
    return Training(ID, 64, num_envs=4, keywords={"max_episode_steps": 8}, overrides={**OWN, **QUICK, **changes})


def network(task):
    torch.manual_seed(0)
    return SharedNetwork(len(task.entries), task.actuator_views, [16, 16], [8]).double()


def relabelling(model, turn):
    """Node -> the node whose place it takes when the structure is turned."""
    distance = np.linalg.norm((model.nodes @ turn.T)[:, None] - model.nodes[None], axis=-1)
    assert distance.min(axis=1).max() < 1e-9
    return distance.argmin(axis=1)


def test_a_symmetric_robot_with_its_nodes_relabelled_acts_alike():
    """SUPERball turned by a third about the vertical is SUPERball with other labels: its motors get each other's actions."""
    env = gym.make(ID)
    task, model = env.unwrapped.task, superball()
    actor = network(task)
    c, s = np.cos(2 * np.pi / 3), np.sin(2 * np.pi / 3)
    place = relabelling(model, np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]]))
    assert sorted(place) == list(range(12)) and (place != np.arange(12)).all()
    cables = [frozenset(cable) for cable in model.cables]
    motors = np.array([cables.index(frozenset(int(place[node]) for node in cable)) for cable in model.cables])
    observation = np.random.default_rng(0).standard_normal(len(task.entries))
    relabelled = observation.copy()
    relabelled[:72].reshape(12, 6)[place] = observation[:72].reshape(12, 6)
    relabelled[72:96][motors] = observation[72:96]
    first, second = (actor.forward_actor(torch.tensor(o[None])).detach().numpy()[0] for o in (observation, relabelled))
    np.testing.assert_allclose(second[motors], first, atol=1e-14)
    assert np.ptp(first) > 1e-3  # the motors do not all do the same


def test_every_motor_looks_at_its_own_cable_from_either_end():
    env = gym.make(ID)
    task = env.unwrapped.task
    names = np.array([entry.name for entry in task.entries])[task.actuator_views]
    assert names.shape == (2, 24, 29)
    for way, order in ((0, (0, 1)), (1, (1, 0))):
        for motor, cable in enumerate(superball().cables):
            a, b = (cable[i] for i in order)
            seen = names[way, motor]
            assert list(seen[[0, 5, 6, 11]]) == [f"node{a}.x", f"node{a}.vz", f"node{b}.x", f"node{b}.vz"]
            assert seen[24] == f"motor{motor}" and list(seen[25:27]) == ["com.height", "velocity_error.along"]
            rods = {int(name[4:].split(".")[0]) // 2 for name in seen[:24]}
            assert rods == {a // 2, b // 2}


def test_a_trained_policy_is_saved_and_loaded(tmp_path):
    done = train(roll(), tmp_path).model
    loaded = new_model(roll(), roll().make())
    load_checkpoint(newest_checkpoint(tmp_path), loaded)
    observation = np.random.default_rng(0).normal(size=(20, 100)).astype(np.float32)
    expected = policy_of(done)(observation)
    assert np.ptp(expected, axis=1).min() > 1e-3  # motors do not all do the same
    np.testing.assert_array_equal(policy_of(loaded)(observation), expected)
    np.testing.assert_allclose(load_policy(tmp_path / "policy.zip")(observation), expected, atol=1e-6)  # sums in float32
    plain = PPO.load(tmp_path / "policy.zip")
    np.testing.assert_allclose(plain.predict(observation, deterministic=True)[0], expected, atol=1e-6)
    values = [model.policy.predict_values(torch.as_tensor(observation)).detach() for model in (plain, done)]
    np.testing.assert_allclose(*values, atol=1e-5)
    assert isinstance(plain.policy, ActorCriticPolicy) and type(plain.policy) is ActorCriticPolicy


def test_a_task_must_say_what_its_motors_look_at():
    with pytest.raises(OptionError, match="look at"):
        train(Training(ID, 64, num_envs=4, keywords={"obs_mode": "state"}, overrides={**OWN, **QUICK}))
    with pytest.raises(ShapeError, match="indices below 3"):
        SharedNetwork(3, np.array([[[0, 3]]]), [4], [4])


def direction(state):
    """Two features of the pendulum, neither linear in the tangent: height, and speed squared over 10."""
    return np.stack([state[..., 0], 0.1 * state[..., 2] ** 2], axis=-1)


@pytest.fixture
def trajectory():
    p = Pendulum()
    controls = np.random.default_rng(0).normal(size=(2, 6, 1))
    start = p.retract(p.initial_state(2), np.array([[0.3, 1.0], [2.0, -1.0]]))
    return p, p.rollout(start, controls)[0], controls


def test_value_is_the_written_formula(trajectory):
    p, states, controls = trajectory
    cost = FeatureCost(p, direction, [1.0, 0.5], [2.0, 3.0], [5.0, 0.0], 0.1)
    height, speed = direction(states)[..., 0], direction(states)[..., 1]
    expected = 2 * (height - 1) ** 2 + 3 * (speed - 0.5) ** 2
    expected[:, -1] = 5 * (height[:, -1] - 1) ** 2
    expected[:, :-1] += 0.1 * controls[..., 0] ** 2
    np.testing.assert_allclose(cost.value(states, controls), expected, rtol=1e-14)


def test_gradients_equal_differences_of_the_value(trajectory):
    p, states, controls = trajectory
    cost = FeatureCost(p, direction, [1.0, 0.5], [2.0, 3.0], control_weight=[0.1])
    expansion, h = cost.expand(states, controls), 1e-5
    for i in range(p.n):
        up, down = (cost.value(p.retract(states, sign * h * np.eye(p.n)[i]), controls) for sign in (1, -1))
        # central differences twice: truncation h^2 and rounding 1e-16 / 1e-6 relative to values of order 10
        np.testing.assert_allclose((up - down) / (2 * h), expansion.x[..., i], atol=1e-7)
    du = cost.value(states, controls + h) - cost.value(states, controls - h)
    np.testing.assert_allclose(du[:, :-1] / (2 * h), expansion.u[..., 0], atol=1e-8)


def test_hessian_is_exact_at_zero_residual_and_positive_semidefinite(trajectory):
    p, states, controls = trajectory
    here = direction(states[0, 3])
    cost = FeatureCost(p, direction, here, [2.0, 3.0])
    expansion, h = cost.expand(states, controls), 1e-4
    value = lambda a, b: cost.value(p.retract(states, np.array([a, b])), controls)[0, 3]  # noqa: E731
    mixed = (value(h, h) - value(h, -h) - value(-h, h) + value(-h, -h)) / (4 * h * h)
    assert mixed == pytest.approx(expansion.xx[0, 3, 0, 1], rel=1e-4, abs=1e-5)
    assert np.linalg.eigvalsh(expansion.xx).min() > -1e-9


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"target": [1.0]}, ShapeError, "target"),
        ({"running": [1.0, -2.0]}, OptionError, "running"),
        ({"terminal": [1.0, np.nan]}, ShapeError, "terminal"),
        ({"control_weight": [1.0, 1.0]}, ShapeError, "control_weight"),
        ({"control_weight": -1.0}, OptionError, "control_weight"),
        ({"target": np.ones((3, 1))}, ShapeError, "target"),
        ({"terminal": np.ones((3, 2))}, ShapeError, "terminal"),
        ({"running": [[1.0, 1.0], [1.0, -1.0]]}, OptionError, "running"),
    ],
)
def test_bad_input_is_named(options, error, match):
    good = {"target": [1.0, 0.5], "running": [2.0, 3.0]}
    with pytest.raises(error, match=match):
        FeatureCost(Pendulum(), direction, **(good | options))


def test_constant_features_have_no_derivative():
    s = Linear()
    cost = FeatureCost(s, lambda x: 0 * x[..., :1] + 2.0, [1.0], [3.0])
    expansion = cost.expand(np.ones((1, 3, 4)), np.ones((1, 2, 2)))
    assert expansion.value.tolist() == [[3.0, 3.0, 3.0]]
    assert not expansion.x.any() and not expansion.xx.any() and not expansion.u.any()


def test_targets_and_weights_that_change_give_the_least_squares_solution():
    """Linear features of a linear system: one dense least-squares problem in all controls, solved by LAPACK."""
    s, T, rng, start = Linear(), 8, np.random.default_rng(0), np.array([1.0, -0.5, 0.3, 0.8])
    target, running, terminal = rng.normal(size=(T + 1, 4)), rng.uniform(0.1, 2.0, (T, 4)), rng.uniform(1.0, 2.0, 4)
    weight = rng.uniform(0.1, 1.0, (T, 2))
    cost = FeatureCost(s, lambda x: x, target, running, terminal, weight)
    plan = plan_ilqg(s, cost, start, controls=np.zeros((T, 2)), options=ILQGOptions(damping=1e-12))
    inputs = np.concatenate([np.zeros((1, 2 * T)), np.eye(2 * T)]).reshape(-1, T, 2)
    states = s.rollout(np.tile(start, (len(inputs), 1)), inputs)[0].reshape(len(inputs), -1)
    root = np.sqrt(np.concatenate([running, terminal[None]]).ravel())
    left = np.concatenate([root[:, None] * (states[1:] - states[0]).T, np.diag(np.sqrt(weight.ravel()))])
    right = np.concatenate([root * (target.ravel() - states[0]), np.zeros(2 * T)])
    expected = np.linalg.lstsq(left, right, rcond=None)[0]
    assert plan.converged
    np.testing.assert_allclose(plan.controls.ravel(), expected, atol=1e-8)
    for size in (T - 1, T + 1):
        with pytest.raises(ShapeError, match=f"target has 9 rows, expected {size + 1} for {size} control steps"):
            plan_ilqg(s, cost, start, controls=np.zeros((size, 2)))
