"""Net surgery, as scripts for pycaffe do it: a net's fully connected layers become convolutions over larger images.

Usage: net_surgery.py FOLDER
"""

import os
import sys

import caffe
import numpy as np

FEATURES = """
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 8 kernel_size: 3 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
  pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
layer { name: "norm1" type: "LRN" bottom: "pool1" top: "norm1" lrn_param { local_size: 3 alpha: 0.0001 beta: 0.75 } }
layer { name: "conv2" type: "Convolution" bottom: "norm1" top: "conv2"
  convolution_param { num_output: 8 pad: 1 kernel_size: 3 group: 2 weight_filler { type: "xavier" } } }
layer { name: "relu2" type: "ReLU" bottom: "conv2" top: "conv2" }
"""


def data(size):
    dims = "dim: 1 dim: 3 dim: %d dim: %d" % (size, size)
    return 'layer { name: "data" type: "Input" top: "data" input_param { shape { %s } } }' % dims


def fully_connected(name, bottom, outputs):
    return """layer { name: "%s" type: "InnerProduct" bottom: "%s" top: "%s"
  inner_product_param { num_output: %d weight_filler { type: "gaussian" std: 0.1 } bias_filler { type: "constant"
  value: 0.1 } } }
""" % (name, bottom, name, outputs)


def convolution(name, bottom, outputs, size):
    return """layer { name: "%s" type: "Convolution" bottom: "%s" top: "%s"
  convolution_param { num_output: %d kernel_size: %d } }
""" % (name, bottom, name, outputs, size)


PROB = 'layer { name: "prob" type: "Softmax" bottom: "%s" top: "prob" }'


def write(name, text):
    with open(name, "w") as file:
        file.write(text)
    return name


os.chdir(sys.argv[1])
caffe.set_mode_cpu()
write(
    "net.prototxt",
    data(27) + FEATURES + fully_connected("fc6", "conv2", 16)
    + 'layer { name: "relu6" type: "ReLU" bottom: "fc6" top: "fc6" }'
    + 'layer { name: "drop6" type: "Dropout" bottom: "fc6" top: "fc6" }'
    + fully_connected("fc7", "fc6", 10) + PROB % "fc7",
)  # fmt: skip
net = caffe.Net("net.prototxt", caffe.TEST)
net.save("net.caffemodel")
print("blobs", [(name, blob.data.shape) for name, blob in net.blobs.items()])

size = net.blobs["conv2"].data.shape[2]
write(
    "net_full_conv.prototxt",
    data(27 + 8) + FEATURES + convolution("fc6-conv", "conv2", 16, size)
    + 'layer { name: "relu6" type: "ReLU" bottom: "fc6-conv" top: "fc6-conv" }'
    + 'layer { name: "drop6" type: "Dropout" bottom: "fc6-conv" top: "fc6-conv" }'
    + convolution("fc7-conv", "fc6-conv", 10, 1) + PROB % "fc7-conv",
)  # fmt: skip
params = ["fc6", "fc7"]
net = caffe.Net("net.prototxt", "net.caffemodel", caffe.TEST)
fc_params = {pr: (net.params[pr][0].data, net.params[pr][1].data) for pr in params}
net_full_conv = caffe.Net("net_full_conv.prototxt", "net.caffemodel", caffe.TEST)
params_full_conv = ["fc6-conv", "fc7-conv"]
conv_params = {pr: (net_full_conv.params[pr][0].data, net_full_conv.params[pr][1].data) for pr in params_full_conv}
for conv in params_full_conv:
    print("%s weights are %s, biases are %s" % (conv, conv_params[conv][0].shape, conv_params[conv][1].shape))
for pr, pr_conv in zip(params, params_full_conv):
    conv_params[pr_conv][0].flat = fc_params[pr][0].flat
    conv_params[pr_conv][1][...] = fc_params[pr][1]
net_full_conv.save("net_full_conv.caffemodel")

net_full_conv = caffe.Net("net_full_conv.prototxt", "net_full_conv.caffemodel", caffe.TEST)
image = np.random.RandomState(0).rand(35, 35, 3).astype(np.float32)
transformer = caffe.io.Transformer({"data": net_full_conv.blobs["data"].data.shape})
transformer.set_transpose("data", (2, 0, 1))
transformer.set_channel_swap("data", (2, 1, 0))
transformer.set_raw_scale("data", 255.0)
out = net_full_conv.forward_all(data=np.asarray([transformer.preprocess("data", image)]))
heat = out["prob"][0]
print("heat map", heat.shape, heat.argmax(axis=0).shape)

# each place of the map is what the net says of the window that lies there
for y in range(3):
    for x in range(3):
        window = image[4 * y : 4 * y + 27, 4 * x : 4 * x + 27].transpose(2, 0, 1)[::-1] * 255
        net.blobs["data"].data[...] = window
        net.forward()
        if y == x == 1:
            print("centre agrees", np.allclose(net.blobs["prob"].data[0], heat[:, y, x], atol=1e-4))
assert np.isfinite(heat).all()
