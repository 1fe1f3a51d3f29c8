"""The subcommands in scripts/ are installed as the package `softgym_commands`; everything else stands in pyproject.toml."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["softgym_envs*", "sysid*", "agents*"]), "softgym_commands"],
    package_dir={"softgym_commands": "scripts"},
)
