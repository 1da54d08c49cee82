"""Types of Caffe's messages under the name by which scripts import them; see `mgcaffe.prototxt.messages`."""

from google.protobuf.descriptor import FileDescriptor

from mgcaffe.prototxt.messages import *  # noqa: F403

DESCRIPTOR: FileDescriptor
