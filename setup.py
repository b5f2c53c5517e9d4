"""The packages; everything else is in pyproject.toml. configs/ is shipped as sb3_cpp.configs."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["sb3_cpp*"]), "sb3_cpp.configs"],
    package_dir={"sb3_cpp.configs": "configs"},
)
