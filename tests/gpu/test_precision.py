"""Products in bf16 and TF32 on the GPU."""

import pytest
import torch

from mgcaffe.engine.kernels.precision import BF16, FLOAT32, FP16, TF32
from tests.support.netkit import inputs, make_net

FILLER = "weight_filler { type: 'gaussian' std: 0.2 }"
NET = inputs(x=(32, 4, 8, 8), label=(32,)) + "".join(
    f"layer {{ {text} }}\n"
    for text in (
        "name: 'c1' type: 'Convolution' bottom: 'x' top: 'c1' "
        f"convolution_param {{ num_output: 8 kernel_size: 3 {FILLER} }}",
        "name: 'n1' type: 'BatchNorm' bottom: 'c1' top: 'c1'",
        "name: 's1' type: 'Scale' bottom: 'c1' top: 'c1' scale_param { bias_term: true }",
        "name: 'r1' type: 'ReLU' bottom: 'c1' top: 'c1'",
        f"name: 'ip' type: 'InnerProduct' bottom: 'c1' top: 'ip' inner_product_param {{ num_output: 3 {FILLER} }}",
        "name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss'",
    )
)


@pytest.mark.parametrize("precision", [BF16, FP16], ids=lambda each: each.name)
@pytest.mark.parametrize("keep_blobs", [True, False])
def test_gradients_in_16_bits_are_close_to_those_of_the_cpu_in_float32(device, keep_blobs, precision):
    nets = []
    for where, options in ((device, {"precision": precision}), (torch.device("cpu"), {})):
        net = make_net(NET, dtype=torch.float32, device=where, keep_blobs=keep_blobs, **options)
        generator = torch.Generator().manual_seed(1)
        net.layers[0].forward([])[0].copy_(torch.randn(32, 4, 8, 8, generator=generator))
        net.layers[1].forward([])[0].copy_(torch.arange(32) % 3)
        net.forward()
        net.backward(loss_scale=256.0)
        net.arena.diff.div_(256)
        nets.append(net)
    assert (nets[0].context.memory_format == torch.channels_last) != keep_blobs
    for ours, theirs in zip(nets[0].parameters, nets[1].parameters, strict=True):
        assert ours.diff.dtype == torch.float32
        largest = max(float(each.diff.norm()) for each in nets[1].parameters)
        assert float((ours.diff.cpu() - theirs.diff).norm()) <= 0.05 * float(theirs.diff.norm()) + 0.01 * largest


def test_each_net_switches_tf32_as_its_precision_says(device):
    backends = torch.backends.cudnn, torch.backends.cuda.matmul
    before = [each.allow_tf32 for each in backends]
    try:
        for precision in (TF32, TF32, FLOAT32, TF32, BF16, FP16):
            make_net(inputs(x=(2, 3)), dtype=torch.float32, device=device, precision=precision)
            assert [each.allow_tf32 for each in backends] == [precision == TF32] * 2
            assert not torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction
    finally:
        for each, allowed in zip(backends, before, strict=True):
            each.allow_tf32 = allowed
