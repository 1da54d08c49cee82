"""Texts of modules with parameters, and of small functions."""

from __future__ import annotations

from collections.abc import Mapping

TEXTS: Mapping[str, str] = {
    "Scale": '''
class Scale(nn.Module):
    """Multiplies by learned factors and, if there is a bias, adds it; both broadcast over x."""

    def __init__(self, *shape, bias=False):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape)) if bias else None

    def forward(self, x):
        y = x * self.weight
        return y if self.bias is None else y + self.bias
''',
    "Bias": '''
class Bias(nn.Module):
    """Adds learned values, which broadcast over x."""

    def __init__(self, *shape):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(shape))

    def forward(self, x):
        return x + self.bias
''',
    "FrozenBatchNorm": '''
class FrozenBatchNorm(nn.BatchNorm2d):
    """Normalizes by the stored statistics in training as well (use_global_stats: true)."""

    def forward(self, x):
        statistics = self.running_mean, self.running_var
        return F.batch_norm(x, *statistics, self.weight, self.bias, eps=self.eps)
''',
    "L2Normalize": '''
class L2Normalize(nn.Module):
    """Scales x to Euclidean length 1 over some axes, then by learned factors, which broadcast."""

    def __init__(self, *shape, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape))
        self.dim, self.eps = dim, eps

    def forward(self, x):
        return self.weight * x * (x.square().sum(self.dim, keepdim=True) + self.eps).rsqrt()
''',
    "mean_variance_normalize": '''
def mean_variance_normalize(x, dim, eps):
    """Return x with mean 0 and variance 1 over some axes; eps is added to the deviation."""
    x = x - x.mean(dim, keepdim=True)
    variance = x.square().mean(dim, keepdim=True)
    divisor = variance.detach().sqrt() + eps
    # Caffe's gradient has the divisor where the deviation would be, which may be 0.
    return x / (divisor + (variance - variance.detach()) / (2 * divisor))
''',
    "im2col": '''
def im2col(x, kernel, stride, padding, dilation):
    """Return what a filter meets, (N, C, sizes...) -> (N, C * points, positions...)."""
    rank = len(kernel)
    x = F.pad(x, [each for each in reversed(padding) for _ in range(2)])
    for axis, (size, step, gap) in enumerate(zip(kernel, stride, dilation), 2):
        x = x.unfold(axis, gap * (size - 1) + 1, step)[..., ::gap]
    points, positions = range(2 + rank, 2 + 2 * rank), range(2, 2 + rank)
    return x.permute(0, 1, *points, *positions).flatten(1, 1 + rank)
''',
    "largest": '''
def largest(x, count, dim):
    """Return the largest values along an axis and their places; of equal ones the last is first."""
    values, places = x.flip(dim).sort(dim=dim, descending=True, stable=True)
    places = x.shape[dim] - 1 - places
    return values.narrow(dim, 0, count), places.narrow(dim, 0, count).to(x.dtype)
''',
    "LSTM": '''
class LSTM(nn.Module):
    """Caffe's LSTM.

    x is (T, N, ...); keep (T, N) is 0 where a sequence begins, else 1; static (N, ...) is added to
    every step. The state (hidden, cell), (1, N, H) each, is given and returned, or goes on from
    call to call (carries_state) until `reset`; else it is zeros. No gradient flows through it.
    """

    def __init__(self, inputs, hidden, static=0, carries_state=False):
        super().__init__()
        self.input = nn.Linear(inputs, 4 * hidden)
        self.static = nn.Linear(static, 4 * hidden, bias=False) if static else None
        self.recurrent = nn.Linear(hidden, 4 * hidden, bias=False)
        self.carries_state = carries_state
        self.reset()

    def reset(self):
        self.state = None

    def forward(self, x, keep, static=None, state=None):
        gates = self.input(x.flatten(2))
        if static is not None:
            gates = gates + self.static(static.flatten(1))
        state = self.state if state is None else state
        if state is None:
            state = [gates.new_zeros(1, gates.shape[1], gates.shape[2] // 4)] * 2
        hidden, cell = (part.detach().to(gates).squeeze(0) for part in state)
        outputs = []
        for now, goes_on in zip(gates.unbind(), keep.unsqueeze(2).unbind()):
            i, f, o, g = (now + self.recurrent(goes_on * hidden)).chunk(4, dim=1)
            cell = torch.sigmoid(f) * (goes_on * cell) + torch.sigmoid(i) * torch.tanh(g)
            hidden = torch.sigmoid(o) * torch.tanh(cell)
            outputs.append(hidden)
        if self.carries_state:
            self.state = [hidden.detach().unsqueeze(0), cell.detach().unsqueeze(0)]
        return torch.stack(outputs), hidden.unsqueeze(0), cell.unsqueeze(0)
''',
    "RNN": '''
class RNN(nn.Module):
    """Caffe's RNN.

    x is (T, N, ...); keep (T, N) is 0 where a sequence begins, else 1; static (N, ...) is added to
    every step. The state (1, N, H) is given and returned, or goes on from call to call
    (carries_state) until `reset`; else it is zeros. No gradient flows through it.
    """

    def __init__(self, inputs, hidden, static=0, carries_state=False):
        super().__init__()
        self.input = nn.Linear(inputs, hidden)
        self.static = nn.Linear(static, hidden, bias=False) if static else None
        self.recurrent = nn.Linear(hidden, hidden, bias=False)
        self.output = nn.Linear(hidden, hidden)
        self.carries_state = carries_state
        self.reset()

    def reset(self):
        self.state = None

    def forward(self, x, keep, static=None, state=None):
        inputs = self.input(x.flatten(2))
        if static is not None:
            inputs = inputs + self.static(static.flatten(1))
        state = self.state if state is None else state
        hidden = torch.zeros_like(inputs[0]) if state is None else state.detach().to(inputs)[0]
        hiddens = []
        for now, goes_on in zip(inputs.unbind(), keep.unsqueeze(2).unbind()):
            hidden = torch.tanh(now + self.recurrent(goes_on * hidden))
            hiddens.append(hidden)
        if self.carries_state:
            self.state = hidden.detach().unsqueeze(0)
        return torch.tanh(self.output(torch.stack(hiddens))), hidden.unsqueeze(0)
''',
    "lstm_unit": '''
def lstm_unit(cell, gates, keep):
    """Return the next cell and the output of one step of an LSTM; all have shape (1, N, ...)."""
    i, f, o, g = gates.chunk(4, dim=2)
    cell = torch.sigmoid(f) * (keep.unsqueeze(2) * cell) + torch.sigmoid(i) * torch.tanh(g)
    return cell, torch.sigmoid(o) * torch.tanh(cell)
''',
    "dot_interaction": '''
def dot_interaction(vectors, diagonal=False):
    """Return each item's first vector, and behind it the dot products of all pairs."""
    count = vectors.shape[1]
    rows, columns = torch.tril_indices(count, count, 0 if diagonal else -1, device=vectors.device)
    products = vectors @ vectors.transpose(1, 2)
    return torch.cat([vectors[:, 0], products[:, rows, columns]], 1)
''',
}
"""By the name that each defines."""
