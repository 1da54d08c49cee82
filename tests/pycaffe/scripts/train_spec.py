"""Training, as scripts for pycaffe do it: a net from NetSpec, data and loss from layers in Python.

Usage: train_spec.py FOLDER
"""

import os
import sys
from os.path import join

import caffe
from caffe import layers as L
from caffe import params as P
from caffe.proto import caffe_pb2

folder = sys.argv[1]


def spec(batch_size, seed, phase):
    n = caffe.NetSpec()
    n.data, n.label = L.Python(
        module="blobs_layers", layer="TwoClouds", ntop=2, param_str=str(dict(batch_size=batch_size, seed=seed))
    )
    n.ip1 = L.InnerProduct(
        n.data, num_output=8, weight_filler=dict(type="xavier"), param=[dict(lr_mult=1), dict(lr_mult=2)]
    )
    n.relu1 = L.ReLU(n.ip1, in_place=True)
    n.ip2 = L.InnerProduct(n.relu1, num_output=2, weight_filler=dict(type="xavier"))
    n.loss = L.SoftmaxWithLoss(n.ip2, n.label, loss_param=dict(normalization=P.Loss.VALID))
    n.score = L.InnerProduct(n.relu1, num_output=1, weight_filler=dict(type="xavier"))
    n.distance = L.Python(n.score, n.label, module="blobs_layers", layer="HalfSquaredDistance", loss_weight=0.5)
    if phase == "test":
        n.accuracy = L.Accuracy(n.ip2, n.label)
    return n.to_proto()


for phase, batch_size in (("train", 32), ("test", 100)):
    with open(join(folder, phase + ".prototxt"), "w") as file:
        file.write(str(spec(batch_size, len(phase), phase)))

s = caffe_pb2.SolverParameter()
s.train_net = join(folder, "train.prototxt")
s.test_net.append(join(folder, "test.prototxt"))
s.test_interval = 50
s.test_iter.append(1)
s.max_iter = 100
s.base_lr = 0.1
s.momentum = 0.9
s.lr_policy = "step"
s.gamma = 0.1
s.stepsize = 80
s.display = 50
s.random_seed = 1
s.snapshot_prefix = join(folder, "clouds")
s.type = "SGD"
s.solver_mode = caffe_pb2.SolverParameter.CPU
with open(join(folder, "solver.prototxt"), "w") as file:
    file.write(str(s))

solver = caffe.get_solver(join(folder, "solver.prototxt"))
losses = []
for it in range(s.max_iter):
    solver.step(1)
    losses.append(float(solver.net.blobs["loss"].data))
    if it % 50 == 0:
        solver.test_nets[0].forward(start="ip1")
print("losses fall", losses[0] > 5 * losses[-1])
print("accuracy %.2f" % solver.test_nets[0].forward()["accuracy"])
print("distance %.3f" % solver.test_nets[0].blobs["distance"].data[0])
solver.net.save(join(folder, "final.caffemodel"))
net = caffe.Net(join(folder, "test.prototxt"), join(folder, "final.caffemodel"), caffe.TEST)
print("reloaded %.2f" % net.forward()["accuracy"])
print("files", sorted(name for name in os.listdir(folder) if name.startswith("final")))
