"""Feature extraction, as scripts for pycaffe do it.

Usage: feature_extraction.py MODEL IMAGE MEAN
"""

import os
import sys

os.environ["GLOG_minloglevel"] = "2"
import caffe
import caffe.io
import google.protobuf.text_format
import numpy as np
from caffe.proto import caffe_pb2

model, image_file, mean_file = sys.argv[1:]

caffe.set_mode_cpu()
proto = caffe_pb2.NetParameter()
with open(model) as file:
    google.protobuf.text_format.Merge(file.read(), proto)
proto.force_backward = True
with open("deploy.prototxt", "w") as file:
    file.write(str(proto))
net = caffe.Net("deploy.prototxt", caffe.TEST)
for blobs in net.params.values():
    blobs[0].data[...] = np.random.RandomState(0).randn(*blobs[0].data.shape) / np.sqrt(blobs[0].data[0].size)
net.save("deploy.caffemodel")
net = caffe.Net("deploy.prototxt", caffe.TEST, weights="deploy.caffemodel")

blob = caffe_pb2.BlobProto()
with open(mean_file, "rb") as file:
    blob.ParseFromString(file.read())
mean = caffe.io.blobproto_to_array(blob)[0]

transformer = caffe.io.Transformer({"data": net.blobs["data"].data.shape})
transformer.set_transpose("data", (2, 0, 1))
transformer.set_mean("data", mean.mean(1).mean(1))
transformer.set_raw_scale("data", 255)
transformer.set_channel_swap("data", (2, 1, 0))

net.blobs["data"].reshape(50, *net.blobs["data"].data.shape[1:])
net.blobs["data"].data[...] = transformer.preprocess("data", caffe.io.load_image(image_file))
output = net.forward()
print("class", output["prob"].shape, output["prob"][0].argmax() == output["prob"][49].argmax())
for layer_name, blob in net.blobs.items():
    print(layer_name + "\t" + str(blob.data.shape))
for layer_name, param in net.params.items():
    print(layer_name + "\t" + str(param[0].data.shape), str(param[1].data.shape))
features = net.blobs["ip1"].data[0].copy()
print("features", features.shape, (features >= 0).all())

# the image that makes one feature larger, by its gradient
net.blobs["ip1"].diff[...] = 0
net.blobs["ip1"].diff[0, int(features.argmax())] = 1
gradient = net.backward(start="relu1")["data"][0]
net.blobs["data"].data[0] += 1e-2 * gradient / np.abs(gradient).max()
net.forward(end="relu1")
print("grew", net.blobs["ip1"].data[0, features.argmax()] > features.max())
