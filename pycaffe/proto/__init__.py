"""Where pycaffe keeps the classes of Caffe's messages: `from caffe.proto import caffe_pb2`."""
