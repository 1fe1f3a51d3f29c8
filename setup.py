"""The verbs in scripts/ are installed as the package `softgym_verbs`; everything else stands in pyproject.toml."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["softgym_envs*", "sysid*", "agents*"]), "softgym_verbs"],
    package_dir={"softgym_verbs": "scripts"},
)
