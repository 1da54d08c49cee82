"""HDF5Data: rows of HDF5 files.

Fields of `hdf5_data_param` (default): source: a text file that lists the HDF5 files, separated by spaces or lines;
batch_size; shuffle (false): the files and the rows in each in a new order every epoch. A transform_param is refused.
Fields of `data_param` (default): prefetch (4), like that of a Data layer.
No bottoms. Tops: one or more, each batch x the shape of a row of the dataset of its name, as floats.
Differences from Caffe: names of files may hold spaces where each has a line to itself. With shuffle the order follows
from the seed, and is the same on all ranks; Caffe's comes from C's generator, which nothing seeds. Values that are too
large for the tops' type are an error, where Caffe's become infinite.
(Caffe: hdf5_data_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

from mgcaffe.engine.data.data_layer import DataLayer
from mgcaffe.engine.data.hdf5_files import Hdf5Reader
from mgcaffe.engine.layer import at_least
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape
from mgcaffe.errors.file_names import found_name


@register("HDF5Data")
class HDF5Data(DataLayer):
    """Rows of HDF5 files."""

    tops = at_least(1)
    fields = "hdf5_data_param"

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Check the fields and look into every file."""
        if self.param.HasField("transform_param"):
            self.fail("HDF5Data does not transform its data", "transform_param", hint="remove transform_param")
        super().setup(bottom_shapes)

    def open_source(self) -> Hdf5Reader:
        """Read the list and the shapes of all datasets."""
        param = self.param.hdf5_data_param
        if not param.source:
            self.fail("source is missing", "hdf5_data_param", hint="name a text file that lists HDF5 files")
        return Hdf5Reader(found_name(param.source), list(self.param.top), param.shuffle)

    def shape_without_source(self, hint: Shape | None) -> list[Shape]:
        """Return the hint for the first top; for others one number per row unless `input_shapes` names them."""
        shapes = self.context.input_shapes or {}
        first, *others = super().shape_without_source(hint)
        return [
            first,
            *(shapes.get(name, other) for name, other in zip(self.param.top[1:], others, strict=True)),
        ]
