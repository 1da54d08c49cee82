"""Trained weights in and out of a net, as caffemodel or HDF5."""
