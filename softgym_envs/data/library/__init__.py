"""Recordings of real robots that come with the package, a part of published sets; licences: LICENSES.md in this folder."""

from __future__ import annotations

from pathlib import Path

from softgym_envs.core.errors import FileFormatError

FOLDER = Path(__file__).parent
"""Folder of the files, which `experiments/recordings_library.py` writes."""
LIBRARY = {
    "cube_tosses": "12 of 285 tosses of a cube on a table, poses at 148 Hz (Pfrommer, Halm, Posa, CoRL 2020; BSD-3)",
    "planar_drops": "12 of 250 drops of a square between two plates, poses at 250 Hz (Fazeli et al., ICRA 2017; BSD-3)",
    "pneumatic_arm": "12 of 400 episodes of an arm with 8 pneumatic muscles, at about 100 Hz (Büchler; Shaj, CoRL 2020; MIT)",
    "silicone_beam": "2 releases of a clamped silicone beam, markers at 100 Hz (Dubied et al., RA-L 2022; MIT)",
}
"""Name -> what it holds; `sysid.load` takes the name."""


def in_library(name: str | Path) -> str | Path:
    """File of a set, if the name is one of `LIBRARY` and no file is called so; else the name as it is.

    Raises:
        FileFormatError: It has no ending, and is neither a file nor such a name.
    """
    path = Path(name)
    if path.suffix or path.exists():
        return name
    if str(name) not in LIBRARY:
        raise FileFormatError(f"cannot read {name}: no such file; recordings of the package are {', '.join(LIBRARY)}")
    return FOLDER / f"{name}.h5"
