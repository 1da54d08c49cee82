"""Texts of pooling functions: Caffe's windows where they are not PyTorch's."""

from __future__ import annotations

from collections.abc import Mapping

TEXTS: Mapping[str, str] = {
    "window_margins": '''
def window_margins(x, kernel, stride, padding, ceil_mode):
    """Return how much to pad an image for Caffe's windows: left, right, above, below.

    Also return how many windows lie outside of it, as padding of the result.
    """
    margins, outside = [], []
    for axis in (1, 0):
        size = x.shape[2 + axis]
        span = size + 2 * padding[axis] - kernel[axis]
        last = -(-span // stride[axis]) if ceil_mode else span // stride[axis]
        is_outside = last * stride[axis] - padding[axis] >= size
        last -= is_outside
        outside += [0, int(is_outside and not any(padding))]
        end = last * stride[axis] + kernel[axis] - padding[axis]
        margins += [padding[axis], end - size]
    return margins, outside
''',
    "padded_max_pool2d": '''
def padded_max_pool2d(x, kernel, stride, padding, ceil_mode=True):
    """Return the maxima of Caffe's windows; padding may exceed half the kernel."""
    margins, outside = window_margins(x, kernel, stride, padding, ceil_mode)
    return F.pad(F.max_pool2d(F.pad(x, margins, value=-torch.inf), kernel, stride), outside)
''',
    "max_pool2d_with_mask": '''
def max_pool2d_with_mask(x, kernel, stride, padding, ceil_mode=True):
    """Return the maxima of Caffe's windows and their places, row * width + column."""
    margins, outside = window_margins(x, kernel, stride, padding, ceil_mode)
    padded = F.pad(x, margins, value=-torch.inf)
    y, places = F.max_pool2d(padded, kernel, stride, return_indices=True)
    rows, columns = places // padded.shape[3] - margins[2], places % padded.shape[3] - margins[0]
    mask = (rows * x.shape[3] + columns).to(x.dtype)
    return F.pad(y, outside), F.pad(mask, outside, value=-1)
''',
    "padded_avg_pool2d": '''
def padded_avg_pool2d(x, kernel, stride, padding, ceil_mode=True):
    """Return the means of Caffe's windows: padding counts, but not what lies behind it."""
    margins, outside = window_margins(x, kernel, stride, padding, ceil_mode)
    sums = F.avg_pool2d(F.pad(x, margins), kernel, stride, divisor_override=1)
    around = [padding[1], padding[1], padding[0], padding[0]]
    counted = F.pad(torch.ones_like(x[:1, :1]), around, value=1)
    behind = [margin - pad for margin, pad in zip(margins, around)]
    counts = F.avg_pool2d(F.pad(counted, behind), kernel, stride, divisor_override=1)
    return F.pad(sums / counts, outside)
''',
    "stochastic_pool2d": '''
def stochastic_pool2d(x, kernel, stride, padding=(0, 0), ceil_mode=True, training=False):
    """Return a pixel of each window, drawn by its value; in a test the mean weighted by value."""
    margins, outside = window_margins(x, kernel, stride, padding, ceil_mode)
    padded = F.pad(x, margins)
    columns = F.unfold(padded, kernel, stride=stride).unflatten(1, (x.shape[1], -1))
    total = columns.sum(2, keepdim=True)
    if training:
        reached = columns.cumsum(2) >= (1 - torch.rand_like(total)) * total
        y = columns.gather(2, reached.to(torch.uint8).argmax(2, keepdim=True))
    else:
        weighted = columns.square().sum(2, keepdim=True) / total.masked_fill(total == 0, 1)
        y = torch.where(total > 0, weighted, torch.zeros_like(total))
    rows = (padded.shape[2] - kernel[0]) // stride[0] + 1
    return F.pad(y.reshape(*x.shape[:2], rows, -1), outside)
''',
    "spatial_pyramid": '''
def spatial_pyramid(x, height, pool, **options):
    """Pool the image by 1, 4, 16 and so on windows that cover it; return all values in one row."""
    levels = []
    for level in range(height):
        bins = 2**level
        kernel = [-(-size // bins) for size in x.shape[2:]]
        padding = [(each * bins - size + 1) // 2 for each, size in zip(kernel, x.shape[2:])]
        levels.append(pool(x, kernel, kernel, padding, **options))
    return torch.cat([level.flatten(1) for level in levels], 1) if height > 1 else levels[0]
''',
    "roi_max_pool": '''
def roi_max_pool(x, rectangles, size, scale):
    """Return the maximum of each cell of a grid over rectangles (image, x1, y1, x2, y2)."""

    def cells(start, end, count, length):
        step = (end - start + 1).clamp(min=1) / count
        number, place = torch.arange(count).to(x), torch.arange(length).to(x)
        begins = (number * step).floor() + start
        ends = ((number + 1) * step).ceil() + start
        return (place < begins[:, None]) | (place >= ends[:, None])

    found = []
    for rectangle in rectangles.reshape(-1, 5).unbind():
        corners = rectangle[1:] * scale
        left, top, right, bottom = torch.copysign((corners.abs() + 0.5).floor(), corners).unbind()
        outside_rows = cells(top, bottom, size[0], x.shape[2])
        outside_columns = cells(left, right, size[1], x.shape[3])
        y = x.index_select(0, rectangle[:1].long())[0].unsqueeze(1)
        y = y.masked_fill(outside_rows[:, :, None], -torch.inf).max(2).values
        y = y.unsqueeze(2).masked_fill(outside_columns, -torch.inf).max(3).values
        empty = outside_rows.all(1)[:, None] | outside_columns.all(1)
        found.append(y.masked_fill(empty, 0))
    return torch.stack(found) if found else x.new_zeros(0, x.shape[1], *size)
''',
}
"""By the name that each defines."""
