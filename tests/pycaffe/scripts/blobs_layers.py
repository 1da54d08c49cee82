"""Layers in Python: a source of two noisy classes, and a loss."""

import caffe
import numpy as np


class TwoClouds(caffe.Layer):
    """Gives points around (1, 1) and (-1, -1), and which of them each belongs to."""

    def setup(self, bottom, top):
        if len(top) != 2:
            raise Exception("Need two tops: points and labels.")
        params = eval(self.param_str)
        self.batch_size = params["batch_size"]
        self.random = np.random.RandomState(params["seed"])

    def reshape(self, bottom, top):
        top[0].reshape(self.batch_size, 2)
        top[1].reshape(self.batch_size)

    def forward(self, bottom, top):
        labels = self.random.randint(0, 2, self.batch_size)
        top[0].data[...] = (2 * labels - 1)[:, None] + 0.4 * self.random.randn(self.batch_size, 2)
        top[1].data[...] = labels

    def backward(self, top, propagate_down, bottom):
        pass


class HalfSquaredDistance(caffe.Layer):
    """A loss: half the mean squared distance of bottom 0 to bottom 1."""

    def setup(self, bottom, top):
        if len(bottom) != 2:
            raise Exception("Need two inputs to compute distance.")

    def reshape(self, bottom, top):
        if bottom[0].count != bottom[1].count:
            raise Exception("Inputs must have the same dimension.")
        self.diff = np.zeros_like(bottom[0].data, dtype=np.float32)
        top[0].reshape(1)

    def forward(self, bottom, top):
        self.diff[...] = bottom[0].data - bottom[1].data.reshape(bottom[0].data.shape)
        top[0].data[...] = np.sum(self.diff**2) / bottom[0].num / 2.0

    def backward(self, top, propagate_down, bottom):
        for i in range(2):
            if not propagate_down[i]:
                continue
            sign = 1 if i == 0 else -1
            bottom[i].diff[...] = (sign * self.diff / bottom[i].num).reshape(bottom[i].data.shape)
