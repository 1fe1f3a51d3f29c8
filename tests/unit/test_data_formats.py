"""Files of other programs: the numbers that were put in come out, in SI and with z up; or a sentence says what to do."""

import io
import zipfile

import h5py
import numpy as np
import pytest
from helpers import raises

from softgym_envs.core.errors import DataError, FileFormatError, OptionError
from softgym_envs.core.trajectory import TrajectorySet
from softgym_envs.core.units import UNITS, unit_named
from softgym_envs.data.formats import FORMATS, format_of
from softgym_envs.data.inspection import inspect_file
from softgym_envs.data.mapping import TO_Z_UP, Mapping
from softgym_envs.data.recordings import read_recordings

RATE, ROWS = 100.0, 12
TIMES = np.arange(ROWS) / RATE
PLACES = np.column_stack([0.1 + TIMES, 0.2 - 0.5 * TIMES, 0.3 + TIMES**2])
ANGLES = 0.3 + 2.0 * TIMES
QUATERNIONS = np.column_stack([np.cos(ANGLES / 2), *(np.outer([0.36, 0.48, 0.8], np.sin(ANGLES / 2)))])
"""A body that turns about one axis: w, x, y, z."""
TURN_TO_Y_UP = np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]])
"""(x, y, z) with z up -> (x, z, -y), with y up: by hand, as in Motive."""


def load(path, **options):
    return read_recordings([path], **options)[0]


def written(folder, content, name="file.csv"):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def holds(recording, names, values, *, atol=1e-6):
    np.testing.assert_allclose(recording.times - recording.times[0], TIMES, atol=1e-6)
    np.testing.assert_allclose(recording.select(names).values, values, atol=atol)


def joined(rows, sign):
    return "\n".join(sign.join(row) for row in rows) + "\n"


def cells(*columns, digits=6):
    return [[f"{entry:.{digits}f}" for entry in row] for row in np.column_stack(columns)]


POSE = ("x", "y", "z", "qw", "qx", "qy", "qz")
TRUE_POSE = np.column_stack([PLACES, QUATERNIONS])


def motive(kinds, labels, quantities, axes, rows, *, unit="Millimeters", turns="Quaternion"):
    settings = ["Format Version", "1.23", "Export Frame Rate", "100.0", "Rotation Type", turns, "Length Units", unit]
    titles = [["", "", *row] for row in (kinds, labels, ["id"] * len(kinds), quantities)]
    return joined([settings, [], *titles, ["Frame", "Time (Seconds)", *axes], *rows], ",")


@pytest.mark.parametrize("bodies", [1, 2])
def test_motive(tmp_path, bodies):
    """Rotations x y z w, millimetres, y up; markers beside bodies are left out; an empty cell was not seen."""
    body = np.column_stack([QUATERNIONS[:, 1:] @ TURN_TO_Y_UP.T, QUATERNIONS[:, 0], 1e3 * PLACES @ TURN_TO_Y_UP.T])
    parts = [("Rigid Body", f"rod{k}", "Rotation", axis) for k in range(bodies) for axis in "XYZW"]
    parts = sorted(parts + [("Rigid Body", f"rod{k}", "Position", a) for k in range(bodies) for a in "XYZ"], key=lambda p: p[1])
    parts += [("Rigid Body", "rod0", "Mean Marker Error", "")]
    parts += [("Marker", "rod0:M1", "Position", axis) for axis in "XYZ"]
    rows = [
        [str(k), f"{TIMES[k]:.6f}", *row]
        for k, row in enumerate(cells(*[body] * bodies, np.zeros(ROWS), np.ones((ROWS, 3)), digits=9))
    ]
    rows[5][2:9] = [""] * 7
    found = load(written(tmp_path, motive(*zip(*parts, strict=True), rows)))
    expected = TRUE_POSE.copy()
    expected[5] = np.nan
    assert len(found.names) == 7 * bodies and found.metadata["turned"] == "y"
    holds(found, POSE if bodies == 1 else [f"rod0.{name}" for name in POSE], expected)
    if bodies == 2:
        holds(found, [f"rod1.{name}" for name in POSE], TRUE_POSE)


def test_motive_with_markers_alone_or_euler_angles(tmp_path):
    parts = [(kind, "set:M1", "Position", axis) for kind in ("Marker", "Rigid Body Marker") for axis in "XYZ"]
    rows = [[str(k), f"{t:.6f}", *row] for k, (t, row) in enumerate(zip(TIMES, cells(PLACES, 9 + PLACES), strict=True))]
    text = motive(*zip(*parts, strict=True), rows, unit="Meters")
    holds(load(written(tmp_path, text)), ["M1.x", "M1.z", "M1.y"], PLACES * [1, 1, -1])
    turned = motive(*zip(*[("Rigid Body", "a", "Rotation", axis) for axis in "XYZ"], strict=True), rows, turns="XYZ")
    with raises(FileFormatError, "(Motive CSV) has rotations of type XYZ: export it with `Rotation Type: Quaternion`"):
        load(written(tmp_path, turned))
    empty = motive(["x"], ["a"], ["Analog"], [""], [[str(k), str(t), "1"] for k, t in enumerate(TIMES)])
    with raises(FileFormatError, "(Motive CSV) has neither rigid bodies nor markers: export it with"):
        load(written(tmp_path, empty))


@pytest.mark.parametrize(("sign", "comma"), [(",", "."), (";", "."), (";", ","), ("\t", ",")])
def test_vicon(tmp_path, sign, comma):
    rows = [[str(k + 1), "0", *row] for k, row in enumerate(cells(1e3 * PLACES, 5 + 1e3 * PLACES))]
    rows = [[cell.replace(".", comma) for cell in row] for row in rows]
    head = [["Trajectories"], ["100"], ["", "", "cube:M1", "", "", "cube:M2", "", ""]]
    head += [["Frame", "Sub Frame", *"XYZXYZ"], ["", "", *["mm"] * 6]]
    text = joined([*head, *rows, [], ["Devices"], ["1000"], ["", "", "Force"]], sign)
    found = load(written(tmp_path, text))
    holds(found, [f"M1.{axis}" for axis in "xyz"], PLACES)
    holds(found, [f"M2.{axis}" for axis in "xyz"], PLACES + 0.005)


def test_vicon_poses(tmp_path):
    rows = [[str(k + 1), "0", *row] for k, row in enumerate(cells(QUATERNIONS[:, [1, 2, 3, 0]], 1e3 * PLACES, digits=9))]
    head = [["Objects"], ["100"], ["", "", "Global Angle cube:cube", *[""] * 6]]
    head += [["Frame", "Sub Frame", "RX", "RY", "RZ", "RW", "TX", "TY", "TZ"], ["", "", *[""] * 4, *["mm"] * 3]]
    holds(load(written(tmp_path, joined([*head, *rows], ","))), POSE, TRUE_POSE)
    with raises(FileFormatError, "(Vicon CSV) has Devices: export Trajectories (markers), or Objects (poses)"):
        load(written(tmp_path, "Devices\n1000\n,,Force\nFrame,Sub Frame,Fx\n,,N\n1,0,3\n"))


def matrices():
    """Rotation matrices by Rodrigues' formula."""
    x, y, z = 0.36, 0.48, 0.8
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return [np.eye(3) + np.sin(a) * cross + (1 - np.cos(a)) * cross @ cross for a in ANGLES]


@pytest.mark.parametrize("title", [True, False])
def test_qualisys(tmp_path, title):
    """Markers in mm at the rate of the header; a marker at zero was not seen."""
    head = [["NO_OF_FRAMES", str(ROWS)], ["FREQUENCY", "100"], ["DATA_INCLUDED", "3D"], ["MARKER_NAMES", "a", "b"]]
    rows = cells(1e3 * PLACES, 7 + 1e3 * PLACES)
    rows[3][:3] = ["0.000"] * 3
    if title:
        head += [["Frame", "Time", *(f"{name} {axis}" for name in "ab" for axis in "XYZ")]]
        rows = [[str(k + 1), f"{TIMES[k]:.5f}", *row] for k, row in enumerate(rows)]
    expected = PLACES.copy()
    expected[3] = np.nan
    found = load(written(tmp_path, joined([*head, *rows], "\t"), "run.tsv"))
    holds(found, ["a.x", "a.y", "a.z"], expected)
    holds(found, ["b.x", "b.y", "b.z"], PLACES + 0.007)


def test_qualisys_bodies(tmp_path):
    head = [["NO_OF_FRAMES", str(ROWS)], ["FREQUENCY", "100"], ["DATA_INCLUDED", "6D"], ["BODY_NAMES", "cube"]]
    turns = np.array([matrix.T.ravel() for matrix in matrices()])
    rows = cells(1e3 * PLACES, np.zeros((ROWS, 4)), turns, digits=9)
    holds(load(written(tmp_path, joined([*head, *rows], "\t"), "run.tsv")), POSE, TRUE_POSE)


@pytest.mark.parametrize("animals", [1, 2])
def test_deeplabcut(tmp_path, animals):
    """Pixels at a given rate and scale; a point of small likelihood was not seen."""
    seen = np.column_stack([100 + np.arange(ROWS), 50 - np.arange(ROWS), np.full(ROWS, 0.99)])
    seen[4, 2] = 0.2
    parts = [(f"ind{a}", f"p{k}", axis) for a in range(animals) for k in range(2) for axis in ("x", "y", "likelihood")]
    titles = [["scorer", *["net"] * len(parts)], ["individuals", *(p[0] for p in parts)], ["bodyparts", *(p[1] for p in parts)]]
    titles += [["coords", *(p[2] for p in parts)]]
    rows = [[str(k), *row] for k, row in enumerate(cells(*[seen] * 2 * animals))]
    path = written(tmp_path, joined([*(titles if animals > 1 else titles[:1] + titles[2:]), *rows], ","))
    found = load(path, fps=RATE, meters_per_pixel=0.01)
    expected = 0.01 * seen[:, :2]
    expected[4] = np.nan
    holds(found, ["ind1.p1.x", "ind1.p1.y"] if animals > 1 else ["point1.x", "point1.y"], expected)
    with raises(DataError, "(DeepLabCut CSV) has frames and no column 'time'; say how many frames a second has with `fps=...`"):
        load(path, meters_per_pixel=0.01)


def test_deeplabcut_hdf5_is_never_unpickled(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_group("df_with_missing").attrs["pandas_type"] = "frame_table"
    with raises(
        FileFormatError, "(DeepLabCut HDF5) has no reader here: its names are pickled, which is never read: use the CSV"
    ):
        load(tmp_path / "a.h5")


def test_opensim_markers(tmp_path):
    rows = [
        [str(k + 1), f"{TIMES[k]:.5f}", *row] for k, row in enumerate(cells(1e3 * PLACES @ TURN_TO_Y_UP.T, np.ones((ROWS, 3))))
    ]
    head = [["PathFileType", "4", "(X/Y/Z)", "a.trc"], ["DataRate", "CameraRate", "NumFrames", "NumMarkers", "Units"]]
    head += [["100", "100", str(ROWS), "2", "mm"], ["Frame#", "Time", "M1", "", "", "M2"]]
    head += [["", "", "X1", "Y1", "Z1", "X2", "Y2", "Z2"], []]
    holds(load(written(tmp_path, joined([*head, *rows], "\t"), "a.trc")), ["M1.x", "M1.y", "M1.z"], PLACES)


def test_opensim_motion(tmp_path):
    head = ["Coordinates", "version=1", "inDegrees=yes", "endheader", "time\telbow_flex\tpelvis_tx\tbic/activation"]
    rows = ["\t".join(row) for row in cells(TIMES, np.degrees(ANGLES), PLACES[:, 0], PLACES[:, 1], digits=9)]
    found = load(written(tmp_path, "\n".join([*head, *rows]), "a.mot"))
    assert found.units == ("rad", "m", "-")
    holds(found, found.names, np.column_stack([ANGLES, PLACES[:, :2]]))


def test_c3d(tmp_path):
    """Markers in mm, axes as the file says, and an analog channel that a mapping names."""
    ezc3d = pytest.importorskip("ezc3d")
    file = ezc3d.c3d()
    file["parameters"]["POINT"]["RATE"]["value"] = [RATE]
    file["parameters"]["POINT"]["UNITS"]["value"] = ["mm"]
    file["parameters"]["POINT"]["LABELS"]["value"] = ["cube:M1", "cube:M2"]
    file.add_parameter("POINT", "Y_SCREEN", ["+Y"])
    file["data"]["points"] = np.ones((4, 2, ROWS))
    file["data"]["points"][:3, 0] = 1e3 * TURN_TO_Y_UP @ PLACES.T
    file["data"]["points"][:3, 1, 2] = np.nan
    file["parameters"]["ANALOG"]["RATE"]["value"] = [10 * RATE]
    file["parameters"]["ANALOG"]["LABELS"]["value"] = ["Fz"]
    file["parameters"]["ANALOG"]["UNITS"]["value"] = ["N"]
    file["data"]["analogs"] = np.arange(10.0 * ROWS).reshape(1, 1, -1)
    file.write(str(tmp_path / "a.c3d"))
    found = load(tmp_path / "a.c3d")
    holds(found, ["M1.x", "M1.y", "M1.z"], PLACES)
    assert np.isnan(found.column("M2.x")[2])
    mapping = written(tmp_path, '[columns]\n"control:force" = "Fz.analog"\n', "a.toml")
    driven = load(tmp_path / "a.c3d", mapping=Mapping.load(mapping))
    np.testing.assert_allclose(driven.controls[:, 0], 10.0 * np.arange(ROWS - 1))


STAMPS = (1764309600_123456789 + np.rint(1e9 * TIMES)).astype(np.int64)


def test_rostopic(tmp_path):
    """Stamps in ns of the header, not of the receiver; a float64 could not tell them apart to 0.1 us."""
    head = ["%time", "field.header.stamp", "field.header.frame_id"]
    head += [f"field.pose.position.{axis}" for axis in "xyz"] + [f"field.pose.orientation.{axis}" for axis in "wxyz"]
    rows = [
        [str(s + 77_777 * k % 991), str(s), "world", *row]
        for k, (s, row) in enumerate(zip(STAMPS, cells(TRUE_POSE), strict=True))
    ]
    found = load(written(tmp_path, joined([head, *rows], ",")))
    holds(found, POSE, TRUE_POSE)
    assert abs(found.times[0]) < 1e-6 and found.period == pytest.approx(0.01, rel=1e-6)


@pytest.mark.parametrize("version", [1, 2])
def test_ros_bags(tmp_path, version):
    """Poses of one topic, joint states of another beside it."""
    pytest.importorskip("rosbags")
    from rosbags import rosbag1, rosbag2
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS1_NOETIC if version == 1 else Stores.ROS2_HUMBLE)
    types = store.types
    writer = rosbag1.Writer(tmp_path / "a.bag") if version == 1 else rosbag2.Writer(tmp_path / "a", version=9)
    sequence = {"seq": 0} if version == 1 else {}

    def header(stamp):
        time = types["builtin_interfaces/msg/Time"](sec=int(stamp // 10**9), nanosec=int(stamp % 10**9))
        return types["std_msgs/msg/Header"](stamp=time, frame_id="world", **sequence)

    def raw(message, kind):
        return store.serialize_ros1(message, kind) if version == 1 else store.serialize_cdr(message, kind)

    with writer as bag:
        kinds = ("geometry_msgs/msg/PoseStamped", "sensor_msgs/msg/JointState")
        links = [
            bag.add_connection(topic, kind, typestore=store)
            for topic, kind in zip(("/cube", "/arm/joints"), kinds, strict=True)
        ]
        for stamp, pose in zip(STAMPS, TRUE_POSE, strict=True):
            place = types["geometry_msgs/msg/Point"](**dict(zip("xyz", pose[:3], strict=True)))
            turn = types["geometry_msgs/msg/Quaternion"](**dict(zip("wxyz", pose[3:], strict=True)))
            message = types[kinds[0]](header(stamp), types["geometry_msgs/msg/Pose"](place, turn))
            bag.write(links[0], int(stamp) + 500, raw(message, kinds[0]))
            joints = types[kinds[1]](header(stamp), ["elbow"], pose[:1], pose[1:2], pose[2:3])
            bag.write(links[1], int(stamp) + 900, raw(joints, kinds[1]))
    path = tmp_path / ("a.bag" if version == 1 else "a")
    holds(load(path), [f"cube.{name}" for name in POSE], TRUE_POSE)
    if version == 2:
        assert load(next(path.glob("*.db3"))).names == load(path).names
    mapping = written(
        tmp_path, '[columns]\nelbow = "arm.joints.position.elbow"\n"control:u" = "arm.joints.effort.elbow"', "a.toml"
    )
    found = load(path, mapping=Mapping.load(mapping))
    assert (found.units, found.control_units) == (("rad",), ("N m",))
    holds(found, ["elbow"], PLACES[:, :1])
    np.testing.assert_allclose(found.controls[:, 0], PLACES[:-1, 2])


ARRAYS = {"t": 1e3 * TIMES, "pos": 1e3 * PLACES, "quat": QUATERNIONS[:, [1, 2, 3, 0]]}
ARRAYS_MAP = """time = {column = "time", unit = "ms"}
quaternion = "xyzw"
[columns]
x = {column = "pos[0]", unit = "mm"}
y = {column = "pos[1]", unit = "mm"}
z = {column = "pos[2]", unit = "mm", factor = 1.0}
qw = {column = "quat[0]", unit = "-"}
qx = {column = "quat[1]", unit = "-"}
qy = {column = "quat[2]", unit = "-"}
qz = {column = "quat[3]", unit = "-"}
"""


@pytest.mark.parametrize("kind", ["mat", "mat in a struct", "mat 7.3", "npz"])
def test_arrays(tmp_path, kind):
    mapping = ARRAYS_MAP
    if kind.startswith("mat") and kind != "mat 7.3":
        from scipy.io import savemat

        path = tmp_path / "a.mat"
        savemat(path, {"run": ARRAYS, "note": "by hand"} if "struct" in kind else ARRAYS)
        mapping = mapping.replace('"pos', '"run.pos').replace('"quat[', '"run.quat[') if "struct" in kind else mapping
    elif kind == "npz":
        path = tmp_path / "a.npz"
        np.savez(path, **ARRAYS)
    else:
        path = tmp_path / "a.mat"
        with h5py.File(path, "w", userblock_size=512) as file:
            for name, array in ARRAYS.items():
                file[name] = np.atleast_2d(array).T if array.ndim == 1 else array.T
        with path.open("r+b") as file:
            file.write(b"MATLAB 7.3 MAT-file")
    holds(load(path, mapping=Mapping.load(written(tmp_path, mapping, "a.toml"))), POSE, TRUE_POSE)
    with raises(FileFormatError, "column 'time' has no unit in the header"):
        load(path)


def test_arrays_of_objects_are_never_unpickled(tmp_path):
    np.savez(tmp_path / "a.npz", t=np.array([{}, 1], dtype=object))
    with raises(FileFormatError, "(NumPy .npz) cannot be read"):
        load(tmp_path / "a.npz")


@pytest.mark.parametrize("given", ["list", "file", "comment"])
def test_a_log_without_header(tmp_path, given):
    rows = joined([[str(k), *row] for k, row in enumerate(cells(1e3 * TIMES, 1e3 * PLACES))], " ")
    names = ["", "time [ms]", "x [mm]", "y [mm]", "z_mm"]
    if given == "comment":
        found = load(written(tmp_path, "# row[-] time[ms] x[mm] y[mm] z_mm\n" + rows, "a.log"))
    else:
        listed = "names = [" + ", ".join(f'"{name}"' for name in names) + "]" if given == "list" else 'names = "names.txt"'
        written(tmp_path, "\n".join(["row [-]", *names[1:]]), "names.txt")
        found = load(written(tmp_path, rows, "a.log"), mapping=Mapping.load(written(tmp_path, listed, "a.toml")))
    holds(found, ["x", "y", "z"], PLACES)


def test_headers_of_many_hands(tmp_path):
    """Units as endings, in round brackets, with a degree sign; arrays; empty cells of many kinds; a comma behind every row."""
    text = "time_sec;press_psi_1;q[0] [°];angle (degrees);flow_lpm;tau [Nm];\n"
    text += "0,0;1;180;NA;60;1;\n0,1;2;-;90;null;N/A;\n0,2;1.000,5;0;NaN;;2;\n"
    found = load(written(tmp_path, text))
    assert found.names == ("press_1", "q[0]", "angle", "flow", "tau")
    assert found.units == ("Pa", "rad", "rad", "m^3/s", "N m")
    nan = np.nan
    expected = [[6894.757, np.pi, nan, 1e-3, 1], [2 * 6894.757, nan, np.pi / 2, nan, nan], [1000.5 * 6894.757, 0, nan, nan, 2]]
    np.testing.assert_allclose(found.values, expected, rtol=1e-7)


def test_thousands(tmp_path):
    found = load(written(tmp_path, 'time [s],x [mm]\n0,"1,234.5"\n1,"12,000"\n'))
    np.testing.assert_allclose(found.values[:, 0], [1.2345, 12.0])


def test_dates_and_clocks(tmp_path):
    for stamps in (
        ["2026-01-01 10:00:00.00", "2026-01-01 10:00:00.01", "2026-01-01 10:00:00.02"],
        ["1764309600.00", "1764309600.01", "1764309600.02"],
        ["1764309600000", "1764309600010", "1764309600020"],
    ):
        found = load(written(tmp_path, "timestamp,x [m]\n" + "".join(f"{stamp},1\n" for stamp in stamps)))
        np.testing.assert_allclose(found.times, [0, 0.01, 0.02], atol=1e-9)


def workbook():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("[Content_Types].xml", "")
        file.writestr("xl/workbook.xml", "")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "named", "remedy"),
    [
        (workbook(), "Excel workbook", "save its sheet as `CSV UTF-8`"),
        (b"PAR1" + bytes(20), "Parquet", "to_csv"),
        (b"\x80\x04\x95" + bytes(20), "pickle", "nothing is unpickled: save arrays with np.savez"),
        (b"\x1f\x8b" + bytes(20), "gzip", "unpack it"),
        (b'{"x": [1, 2]}', "JSON", "write its columns as CSV"),
        (b"<?xml version='1.0'?>", "XML", "write its columns as CSV"),
        (b"\x00\x01\x02" * 30, "binary file of no known format", "export it as CSV"),
    ],
)
def test_formats_without_reader_are_named_with_the_next_step(tmp_path, content, named, remedy):
    with raises(FileFormatError, remedy) as caught:
        load(written(tmp_path, content, "file.dat"))
    assert f"({named}" in str(caught.value)


def test_every_format_has_a_reader_or_a_remedy():
    assert all(bool(form.reader) != bool(form.remedy) for form in FORMATS if form.name != "HDF5")


# --- mappings -----------------------------------------------------------------------------------------------------------


def test_every_axis_turns_up():
    for up, turn in TO_Z_UP.items():
        axis = np.zeros(3)
        axis["xyz".index(up[-1])] = -1.0 if up[0] == "-" else 1.0
        np.testing.assert_array_equal(turn @ axis, [0, 0, 1])
        assert np.linalg.det(turn) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ('up = "w"', OptionError, "up is 'w', allowed are z, y, x"),
        ('quaternion = "wxxz"', OptionError, "quaternion is 'wxxz', expected the order of its four entries"),
        ("rate = -1.0", OptionError, "rate is -1.0, expected a number > 0"),
        ("unit = 1", FileFormatError, "unknown entry 'unit'; allowed are columns, time, rate, up, quaternion, names"),
        ("[columns]\nx = 1", FileFormatError, "x is 1, expected a table with column, unit, factor"),
        ('[columns]\nx = {unit = "m"}', FileFormatError, 'expected {column = "theirs", unit = "mm"}'),
        ('[columns]\nx = "b"', FileFormatError, "has no column 'b'; its columns are time, x"),
        ('quaternion = "xyzw"', FileFormatError, "quaternion is 'xyzw', but no column is called qw"),
        ('up = "y"', DataError, "up is 'y', and x is recorded without the other axes"),
        ('names = ["a"]', FileFormatError, "has a header, 'time [s],x [m]': leave `names` out of the mapping"),
    ],
)
def test_mappings_that_do_not_fit(tmp_path, text, error, message):
    path = written(tmp_path, "time [s],x [m]\n0,1\n1,2\n")
    with raises(error, message):
        load(path, mapping=Mapping.load(written(tmp_path, text, "a.toml")))


@pytest.mark.parametrize("header", ["t", "t [s]", "Timestamp", "time"])
def test_a_mapping_names_the_time_as_the_file_does(tmp_path, header):
    path = written(tmp_path, f"{header},a\n0,1\n20,2\n")
    text = f'time = {{column = "{header.split(" ")[0]}", unit = "ms"}}\n[columns]\nx = {{column = "a", unit = "m"}}'
    np.testing.assert_allclose(load(path, mapping=Mapping.load(written(tmp_path, text, "a.toml"))).times, [0, 0.02])
    np.savez(tmp_path / "a.npz", **{header.split(" ")[0]: [0.0, 20.0], "a": [1.0, 2.0]})
    np.testing.assert_allclose(load(tmp_path / "a.npz", mapping=Mapping.load(tmp_path / "a.toml")).times, [0, 0.02])


def test_a_mapping_of_the_time_alone_keeps_all_other_columns(tmp_path):
    path, text = written(tmp_path, "ms,x [mm]\n0,1\n20,2\n"), 'time = {column = "ms", unit = "ms"}'
    found = load(path, mapping=Mapping.load(written(tmp_path, text, "a.toml")))
    assert found.names == ("x",)
    np.testing.assert_allclose(found.times, [0, 0.02])


def test_a_mapping_gives_rate_sign_and_unit(tmp_path):
    path = written(tmp_path, "a,b\n1,2\n3,4\n")
    text = 'rate = 50.0\n[columns]\nx = {column = "a", unit = "cm", factor = -2.0}\n"control:u" = {column = "b", unit = "mbar"}'
    found = load(path, mapping=Mapping.load(written(tmp_path, text, "a.toml")))
    np.testing.assert_allclose(found.times, [0, 0.02])
    np.testing.assert_allclose(found.values[:, 0], [-0.02, -0.06])
    np.testing.assert_allclose(found.controls[:, 0], [200.0])


# --- units --------------------------------------------------------------------------------------------------------------

NIST = {
    "psi": 6894.757, "mbar": 100.0, "atm": 101325.0, "Torr": 133.3224, "mmHg": 133.3224, "hPa": 100.0, "lbf": 4.448222,
    "in": 0.0254, "l/min": 1.666667e-5, "ml/min": 1.666667e-8, "rpm": 0.1047198, "rev": 6.283185, "deg": 0.01745329,
}  # fmt: skip
"""Factors to SI of NIST Special Publication 811 (2008), appendix B, with its seven digits."""


def test_factors_are_those_of_nist():
    for unit, factor in NIST.items():
        assert UNITS[unit][1] == pytest.approx(factor, rel=1e-6), unit
    known = {"Nm": "N m", "degrees": "deg", "um": "um", "lpm": "l/min", "ns": "ns", "kPa": "kPa", "N.m": "N m", "Sec": "s"}
    assert {spelling: unit_named(spelling) for spelling in known} == known


def test_a_format_is_known_by_what_a_file_holds(tmp_path):
    assert format_of(written(tmp_path, b"#ROSBAG V2.0\n" + bytes(9), "a.csv")).name == "ROS 1 bag"
    with raises(FileFormatError, "it is a folder, and no ROS 2 bag (metadata.yaml)"):
        format_of(tmp_path)


# --- inspect ------------------------------------------------------------------------------------------------------------


def test_inspect_tells_rate_gaps_and_held_samples(tmp_path):
    """100 rows/s, one row lost at 0.05 s, x held every second row, y held and missing."""
    times = np.delete(np.arange(20) / 100, 5)
    rows = [[f"{t:.2f}", str(k // 2), "" if k == 3 else str(7 + k // 2), "world"] for k, t in enumerate(times)]
    found = inspect_file(written(tmp_path, joined([["time_s", "x_mm", "b [V]", "frame_id"], *rows], ",")))
    assert (found.kind, found.rows, found.texts) == ("table of text", 19, ("frame_id",))
    x, b = found.columns
    assert (x.name, x.unit, x.low, x.high, x.missing, x.repeated) == ("x", "mm", 0.0, 9.0, 0, 9 / 18)
    assert (b.missing, found.held) == (1, 9)
    assert found.clock == "0 to 0.19 s, 100 rows/s, 1 gaps, the longest 0.02 s after 0.04 s"
    assert "x         [mm]" not in found.summary() and "50 % repeated" in found.summary()


SYSTEM = {
    "x": "m",
    "y": "m",
    "z": "m",
    **dict.fromkeys(("qw", "qx", "qy", "qz"), "-"),
    "s0": "rad",
    "s1": "rad",
    "control:s0": "N m",
}


@pytest.mark.parametrize("spelled", ["pos[{}] quat[{}]", "pose.position.{} pose.orientation.{}", "cube_p_{} cube_q_{}"])
def test_the_mapping_that_inspect_writes_can_be_used(tmp_path, spelled):
    """Poses under other names and joints as arrays; a second call leaves the file alone."""
    place, turn = spelled.split()
    axes = (range(3), range(4)) if "[" in spelled else ("xyz", "wxyz")
    header = [
        "t",
        *(place.format(axis) for axis in axes[0]),
        *(turn.format(axis) for axis in axes[1]),
        "q[0]",
        "q[1]",
        "tau[0]",
    ]
    rows = cells(TIMES, TRUE_POSE, ANGLES, -ANGLES, 2 * ANGLES, digits=9)
    found = inspect_file(written(tmp_path, joined([header, *rows], ",")))
    mapping = found.write_mapping(system=SYSTEM)
    assert mapping.name == "file.csv.map.toml"
    recording = load(found.path, mapping=Mapping.load(mapping))
    holds(recording, [*POSE, "s0", "s1"], np.column_stack([TRUE_POSE, ANGLES, -ANGLES]))
    np.testing.assert_allclose(recording.controls[:, 0], 2 * ANGLES[:-1])
    before = mapping.read_bytes()
    with raises(OptionError, "is there already, and stays as it is: name another file with `out`"):
        found.write_mapping()
    assert mapping.read_bytes() == before and found.write_mapping(tmp_path / "b.toml").exists()


def test_inspect_names_the_columns_of_a_log_without_header(tmp_path):
    rows = joined([[str(k), *row] for k, row in enumerate(cells(TIMES, PLACES))], ",")
    found = inspect_file(written(tmp_path, rows))
    assert found.header == ("frame", "time [s]", "column2", "column3", "column4")
    text = found.mapping().replace("?", "m")
    recording = load(found.path, mapping=Mapping.load(written(tmp_path, text, "a.toml")))
    holds(recording, ["column2", "column3", "column4"], PLACES)


def test_inspect_reads_our_own_recordings(tmp_path):
    run = load(written(tmp_path, "time [s],x [m],control:u [V]\n0,1,2\n1,2,2\n2,3,3\n"))
    found = inspect_file(TrajectorySet((run,)).save(tmp_path / "a.h5"))
    assert [column.name for column in found.columns] == ["x", "control:u"] and "1 rows/s, no gaps" in found.clock
