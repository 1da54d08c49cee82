"""Maps the repository's top-level folders to the packages `mgcaffe.<folder>`, inside the package `mgcaffe/`."""

from setuptools import find_namespace_packages, setup

FOLDERS = ("errors", "prototxt", "comm", "engine", "solvers", "pytorch", "tools", "pycaffe")

package_dir = {f"mgcaffe.{folder}": folder for folder in FOLDERS}
package_dir["mgcaffe"] = "mgcaffe"
packages = list(package_dir)
for folder in FOLDERS:
    packages += [
        f"mgcaffe.{folder}.{name}"
        for name in find_namespace_packages(folder, exclude=["__pycache__*", "*.__pycache__*"])
    ]

setup(
    packages=packages,
    package_dir=package_dir,
    package_data={"": ["py.typed", "*.pyi"], "mgcaffe.prototxt": ["*.binpb", "*.proto", "*.csv"]},
)
