"""Parameters: checks on construction, vectors, files, distributions; every mistake has one clear message."""

import dataclasses
import pickle
import re

import numpy as np
import pytest

from softgym_envs.core.errors import FileFormatError, ParameterError, SoftgymError
from softgym_envs.core.files import read_toml
from softgym_envs.core.parameters import Parameters, UniformParameters, param


@dataclasses.dataclass(frozen=True)
class Spring(Parameters):
    stiffness: float = param(100.0, unit="N/m", bounds=(1.0, 1e4), scale="log", source="made up")
    offset: float = param(0.5, unit="m", bounds=(-1.0, 3.0))


@dataclasses.dataclass(frozen=True)
class Damper(Parameters):
    damping: float = param(1.0, unit="N s/m", bounds=(0.0, 10.0))


def raises(error, message):
    return pytest.raises(error, match=re.escape(message))


# --- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.5, 2e4, np.nan, np.inf, [10.0, np.nan]])
def test_values_out_of_bounds_are_refused(value):
    with raises(ParameterError, "allowed is [1, 10000] N/m"):
        Spring(stiffness=value)


@pytest.mark.parametrize("value", [True, "5.0", np.True_, [True, False], b"5", {}])
def test_what_is_no_number_is_refused(value):
    """True would be a stiffness of 1, "5.0" one of 5, without a word."""
    with raises(ParameterError, "is no number"):
        Spring(stiffness=value)


def test_shapes_are_checked():
    with raises(ParameterError, "stiffness has shape (1, 1), expected a scalar or (B,)"):
        Spring(stiffness=np.ones((1, 1)))
    with raises(ParameterError, "got lengths [2, 3]"):
        Spring(stiffness=np.full(2, 5.0), offset=np.zeros(3))


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"default": 2.0, "bounds": (0.0, 1.0)}, "lower <= default <= upper"),
        ({"default": 0.0, "bounds": (0.0, np.inf)}, "must be finite"),
        ({"default": 0.5, "bounds": (1.0, 0.0)}, "lower <= default <= upper"),
        ({"default": 0.5, "bounds": (0.0, 1.0), "scale": "log"}, "'log' with positive bounds"),
        ({"default": 0.5, "bounds": (0.1, 1.0), "scale": "cubic"}, "scale is 'cubic'"),
    ],
)
def test_declarations_are_checked(keywords, message):
    with raises(ParameterError, message):
        param(unit="-", **keywords)


def test_unknown_names_are_listed():
    for act in (lambda: Spring().replace(strength=1.0), lambda: Spring.index("strength")):
        with raises(ParameterError, "unknown parameter 'strength'; Spring has stiffness, offset"):
            act()
    with raises(ParameterError, "unknown parameter 'mass'; Parameters has none"):
        Parameters.check_names(["mass"])


def test_errors_are_of_one_tree():
    assert issubclass(ParameterError, SoftgymError)
    assert issubclass(ParameterError, ValueError)


# --- vectors -----------------------------------------------------------------------------------------------------------


def test_vector_round_trip_scalar_and_batch():
    assert Spring.from_vector(Spring(7.0, 2.0).to_vector()) == Spring(7.0, 2.0)
    batch = Spring(stiffness=np.array([5.0, 6.0, 7.0]))
    vector = batch.to_vector()
    np.testing.assert_array_equal(vector, [[5, 0.5], [6, 0.5], [7, 0.5]])
    again = Spring.from_vector(vector)
    assert batch.batch == again.batch == 3
    assert again.row(1) == Spring(6.0, 0.5)
    np.testing.assert_array_equal(again.to_vector(), vector)


def test_from_vector_copies():
    vector = np.array([[5.0, 0.5], [6.0, 0.5]])
    parameters = Spring.from_vector(vector)
    vector[:] = 1.0
    assert parameters.row(0).stiffness == 5.0


@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 2, 2), ()])
def test_from_vector_shape(shape):
    with raises(ParameterError, f"vector has shape {shape}, expected (2,) or (B, 2)"):
        Spring.from_vector(np.ones(shape))


def test_to_matrix():
    np.testing.assert_array_equal(Spring().to_matrix(2), [[100, 0.5], [100, 0.5]])
    assert Spring().to_matrix(4).flags.c_contiguous
    with raises(ParameterError, "parameters are given for 3 rows, the batch has 2"):
        Spring(stiffness=np.full(3, 2.0)).to_matrix(2)


@pytest.mark.parametrize("name", ["stiffness", "offset"])
def test_coordinates_of_a_fit(name):
    spec = Spring.specs()[name]
    values = np.linspace(*spec.bounds, 7)
    np.testing.assert_allclose(spec.decode(spec.encode(values)), values, rtol=1e-14)
    c, h = spec.encode(values), 1e-6
    differences = (spec.decode(c + h) - spec.decode(c - h)) / (2 * h)
    np.testing.assert_allclose(spec.slope(values), differences, rtol=1e-8)


# --- files -------------------------------------------------------------------------------------------------------------


def test_file_round_trip(tmp_path):
    spring = Spring(offset=-0.1).replace(stiffness=10 / 3)
    path = spring.save(tmp_path / "new" / "fit.toml", std={"stiffness": 0.25}, provenance={"data": "abc", "seed": 3})
    assert Spring.load(path) == Spring(10 / 3, -0.1)
    document = read_toml(path)
    assert document["parameters"]["stiffness"] == {"value": 10 / 3, "unit": "N/m", "std": 0.25}
    assert document["provenance"] == {"data": "abc", "seed": 3}


def test_file_by_hand(tmp_path):
    path = tmp_path / "hand.toml"
    path.write_text("[parameters]\nstiffness = 50\n")
    assert Spring.load(path) == Spring(50.0, 0.5)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("[parameters\n", FileFormatError, "is not valid TOML"),
        ("x = 1\n", FileFormatError, "unknown entry 'x'"),
        ("parameters = 3\n", FileFormatError, "has no table [parameters]"),
        ("[parameters]\nstiffness = 'soft'\n", FileFormatError, "stiffness is 'soft', expected a number"),
        ("[parameters]\nstiffness = true\n", FileFormatError, "stiffness is True"),
        ("[parameters]\nstiffness = {unit = 'N/m'}\n", FileFormatError, "stiffness is None"),
        ("[parameters]\nstiffness = {value = 5.0, unit = 'N/mm'}\n", ParameterError, "given in 'N/mm', expected 'N/m'"),
        ("[parameters]\nstiffness = 0.5\n", ParameterError, "stiffness = 0.5 N/m, allowed is [1, 10000] N/m"),
        ("[parameters]\nstiffness = nan\n", FileFormatError, "stiffness is nan, expected a number"),
        ("[parameters]\nmass = 1.0\n", ParameterError, "unknown parameter 'mass'; Spring has stiffness, offset"),
        ("kind = 'Damper'\n[parameters]\n", ParameterError, "holds Damper, this simulator takes Spring"),
    ],
)
def test_malformed_files(tmp_path, text, error, message):
    path = tmp_path / "fit.toml"
    path.write_text(text)
    with raises(error, message):
        Spring.load(path)


def test_files_that_cannot_be_read(tmp_path):
    with raises(FileFormatError, "cannot read"):
        Spring.load(tmp_path / "absent.toml")
    with raises(FileFormatError, "cannot read"):
        Spring.load(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00\x01")
    with raises(FileFormatError, "is not UTF-8 text"):
        Spring.load(tmp_path / "binary.toml")


def test_what_cannot_be_saved(tmp_path):
    with raises(ParameterError, "parameters given per row (2 rows) cannot be saved"):
        Spring(stiffness=np.full(2, 5.0)).save(tmp_path / "x.toml")
    with raises(ParameterError, "unknown parameter 'mass'"):
        Spring().save(tmp_path / "x.toml", std={"mass": 1.0})
    assert not list(tmp_path.iterdir())


# --- distributions -----------------------------------------------------------------------------------------------------


def test_uniform_parameters_follow_their_scale():
    """Median of a log-uniform constant is the geometric mean; of a uniform one the arithmetic mean."""
    rng = np.random.default_rng(1)
    spread = UniformParameters({"stiffness": (10.0, 1000.0), "offset": (0.0, 2.0)})
    draws = [spread.sample(rng, Spring()) for _ in range(4000)]
    for name, (lower, median, upper) in {"stiffness": (10.0, 100.0, 1000.0), "offset": (0.0, 1.0, 2.0)}.items():
        values = np.array([draw[name] for draw in draws])
        assert lower <= values.min() < values.max() <= upper
        assert abs(np.mean(values < median) - 0.5) < 4 * 0.5 / np.sqrt(4000)  # four standard errors of a fair coin


def test_uniform_parameters_refuse_unknown_names():
    with raises(ParameterError, "unknown parameter 'mass'"):
        UniformParameters({"mass": (1.0, 2.0)}).sample(np.random.default_rng(0), Spring())


@dataclasses.dataclass(frozen=True)
class Segments(Parameters):
    mass: float = param(1.0, unit="kg", bounds=(0.1, 10.0))
    stiffness: float = param(0.5, count=3, unit="N m/rad", bounds=(0.01, 10.0), scale="log", source="a guess")
    damping: float = param(0.1, unit="N m s/rad", bounds=(0.0, 1.0))


class TestVectors:
    """A vector is declared once; its entries are parameters, and its name stands for them."""

    names = ("stiffness0", "stiffness1", "stiffness2")

    def test_is_declared_once(self):
        assert Segments.names() == ("mass", *self.names, "damping") and Segments.columns("stiffness") == slice(1, 4)
        assert {s.unit for name, s in Segments.specs().items() if name in self.names} == {"N m/rad"}
        found = Segments(stiffness1=2.0)
        np.testing.assert_array_equal(found.stiffness, [0.5, 2.0, 0.5])
        rows = Segments.from_vector(np.tile(found.to_vector(), (4, 1)))
        assert rows.stiffness.shape == (4, 3) and pickle.loads(pickle.dumps(rows)).stiffness.shape == (4, 3)

    def test_its_name_stands_for_all_of_it(self, tmp_path):
        assert Segments().replace(stiffness=[1.0, 2.0, 3.0]).stiffness.tolist() == [1.0, 2.0, 3.0]
        assert Segments().replace(stiffness=0.7).stiffness.tolist() == [0.7] * 3
        path = Segments(stiffness2=3.0).save(tmp_path / "fit.toml")
        assert "stiffness2" in path.read_text() and Segments.load(path) == Segments(stiffness2=3.0)
        path.write_text('kind = "Segments"\n[parameters]\nstiffness = [1.0, 2.0, 3.0]\n')
        assert Segments.load(path).stiffness.tolist() == [1.0, 2.0, 3.0]
        drawn = UniformParameters({"stiffness": (0.4, 0.6), "mass": (1.0, 2.0)}).sample(np.random.default_rng(0), Segments())
        assert set(drawn) == {"mass", *self.names} and len(set(drawn.values())) == 4

    def test_wrong_values_are_named(self):
        with pytest.raises(ParameterError, match=r"stiffness1 = 20\.0 N m/rad, allowed is"):
            Segments().replace(stiffness=[1.0, 20.0, 3.0])
        with pytest.raises(ParameterError, match="stiffness has 2 values, expected one, or one for each of stiffness0"):
            Segments().replace(stiffness=[1.0, 2.0])
        with pytest.raises(ParameterError, match="unknown parameter 'stiffness3'"):
            Segments().replace(stiffness3=1.0)
