"""Where pycaffe keeps the classes of Caffe's messages: `from caffe.proto import caffe_pb2`."""

from mgcaffe.pycaffe.proto import caffe_pb2

__all__ = ["caffe_pb2"]
