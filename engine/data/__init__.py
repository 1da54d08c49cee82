"""The data path: record sources, transformation, prefetching, and the layers that read data."""
