"""The subcommands in scripts/ are installed as the package `softgym_commands`; everything else stands in pyproject.toml.

Folders of data are packages, too: setuptools asks for that.
"""

from setuptools import find_namespace_packages, setup

setup(
    packages=[
        *find_namespace_packages(include=["softgym_envs*", "sysid*", "agents*"], exclude=["*__pycache__*"]),
        "softgym_commands",
    ],
    package_dir={"softgym_commands": "scripts"},
)
