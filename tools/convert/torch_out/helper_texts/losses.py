"""Texts of losses and metrics, with Caffe's divisors, limits and gradients."""

from __future__ import annotations

from collections.abc import Mapping

TEXTS: Mapping[str, str] = {
    "with_gradient_of": '''
def with_gradient_of(surrogate, value):
    """Return a value that passes gradients on as the surrogate does."""
    return surrogate + (value - surrogate).detach()
''',
    "class_numbers": '''
def class_numbers(labels, x, dim, ignore_index):
    """Return labels as whole numbers, of size 1 along the classes' axis, and which count."""
    labels = labels.long().reshape(*x.shape[:dim], 1, *x.shape[dim + 1 :])
    if ignore_index is None:
        return labels, torch.ones_like(labels, dtype=torch.bool)
    valid = labels != ignore_index
    return labels * valid, valid
''',
    "divisor": '''
def divisor(valid, dim, normalization):
    """Return what a loss is divided by: valid, all or no positions, or the batch size."""
    if normalization == "valid":
        return valid.sum().clamp(min=1)
    sizes = {"full": valid.shape, "batch_size": valid.shape[:dim], "none": ()}
    return max(1, math.prod(sizes[normalization]))
''',
    "softmax_with_loss": '''
def softmax_with_loss(
    x, labels, dim=1, ignore_index=None, normalization="valid", label_smoothing=0.0
):
    """Return the negative log-likelihood of labels; no probability counts for less than 1.2e-38."""
    labels, valid = class_numbers(labels, x, dim, ignore_index)
    logarithms = F.log_softmax(x, dim)
    least = math.log(torch.finfo(torch.float32).tiny)
    logarithms = with_gradient_of(logarithms, logarithms.clamp(min=least))
    chosen = logarithms.gather(dim, labels)
    if label_smoothing:
        chosen = torch.lerp(chosen, logarithms.mean(dim, keepdim=True), label_smoothing)
    return -(chosen * valid).sum() / divisor(valid, dim, normalization)
''',
    "infogain_loss": '''
def infogain_loss(x, labels, matrix, dim=1, ignore_index=None, normalization="valid"):
    """Return a softmax loss in which each pair of label and class has its own weight."""
    labels, valid = class_numbers(labels, x, dim, ignore_index)
    logarithms = F.log_softmax(x, dim)
    logarithms = with_gradient_of(logarithms, logarithms.clamp(min=math.log(1e-20)))
    weights = matrix.reshape(x.shape[dim], x.shape[dim])[labels.squeeze(dim)].movedim(-1, dim)
    return -(weights * logarithms * valid).sum() / divisor(valid, dim, normalization)
''',
    "multinomial_logistic_loss": '''
def multinomial_logistic_loss(probabilities, labels):
    """Return the negative log-likelihood of labels; no probability counts as less than 1e-20."""
    rows = probabilities.reshape(probabilities.shape[0], -1)
    chosen = rows.gather(1, labels.long().reshape(-1, 1))
    return -chosen.clamp(min=1e-20).log().sum() / max(1, len(rows))
''',
    "sigmoid_loss": '''
def sigmoid_loss(x, targets, ignore_index=None, normalization="batch_size"):
    """Return the cross entropy of targets under a sigmoid of x."""
    targets = targets.reshape(x.shape)
    losses = F.binary_cross_entropy_with_logits(x, targets, reduction="none")
    all_count = torch.ones_like(targets, dtype=torch.bool)
    valid = all_count if ignore_index is None else targets.long() != ignore_index
    return (losses * valid).sum() / divisor(valid, 1, normalization)
''',
    "hinge_loss": '''
def hinge_loss(x, labels, norm=1):
    """Return what scores are short of 1 for the label and of -1 for the other classes."""
    rows = x.reshape(x.shape[0], -1)
    side = -torch.ones_like(rows).scatter(1, labels.long().reshape(-1, 1), -1.0)
    return F.relu(1 - side * rows).pow(norm).sum() / max(1, len(rows))
''',
    "contrastive_loss": '''
def contrastive_loss(a, b, similar, margin, legacy=False):
    """Return squared distances of similar pairs, and squared gaps to the margin of the others."""
    square = (a - b).flatten(1).square().sum(1)
    if legacy:
        apart = F.relu(margin - square)
    else:
        # Caffe's gradient has 1e-4 in the divisor.
        distance = square.detach().sqrt()
        gap = F.relu(margin - distance)
        apart = with_gradient_of(-gap / (distance + 1e-4) * square, gap.square())
    return torch.where(similar.reshape(-1).long() != 0, square, apart).sum() / (2 * max(1, len(a)))
''',
    "right_labels": '''
def right_labels(x, labels, top_k, dim, ignore_index):
    """Return which labels are among the best scores, ahead of equal ones, and which count."""
    labels, valid = class_numbers(labels, x, dim, ignore_index)
    lower = (x < x.gather(dim, labels)).sum(dim, keepdim=True)
    return labels, (lower >= x.shape[dim] - top_k) & valid, valid
''',
    "accuracy": '''
def accuracy(x, labels, top_k=1, dim=1, ignore_index=None):
    """Return the share of labels that are among the best scores."""
    _, right, valid = right_labels(x, labels, top_k, dim, ignore_index)
    return right.sum().to(x.dtype) / valid.sum().clamp(min=1)
''',
    "class_accuracy": '''
def class_accuracy(x, labels, top_k=1, dim=1, ignore_index=None):
    """Return the same for each class by itself."""
    labels, right, valid = right_labels(x, labels, top_k, dim, ignore_index)
    of_class = labels.flatten() == torch.arange(x.shape[dim], device=x.device)[:, None]
    right, valid = ((of_class & each.flatten()).sum(1) for each in (right, valid))
    return right.to(x.dtype) / valid.clamp(min=1)
''',
}
"""By the name that each defines."""
