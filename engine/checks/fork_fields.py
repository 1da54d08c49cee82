"""What Caffe's forks call by names that BVLC's Caffe does not know: fields that only say how to compute, and layers.

Fields that change what is computed are either honoured by the layer that they belong to, or refused by it.
"""

from __future__ import annotations

_PRECISION = ("forward_type", "backward_type", "forward_math", "backward_math")

HOW_TO_COMPUTE: dict[str, frozenset[str]] = {
    message: frozenset(names)
    for message, names in {
        "NetParameter": (
            *("default_forward_type", "default_backward_type", "default_forward_math", "default_backward_math"),
            *("global_grad_scale", "global_grad_scale_adaptive", "default_conv_algos_override", "reduce_buckets"),
            *("default_cudnn_math_override", "eltwise_mem_sharing", "engine", "compile_net_state"),
        ),
        "LayerParameter": (*_PRECISION, "debug", "cudnn_math_override", "engine"),
        "ConcatParameter": ("per_fla_fuse",),
        "ConvolutionParameter": ("cudnn_convolution_algo_seeker", "conv_algos_override", "conv_algorithm"),
        "DataParameter": ("threads", "cache", "precache"),
        "ImageDataParameter": ("threads", "cache", "precache"),
        "ReLUParameter": ("fuse",),
        "ResizeParameter": ("height_scale", "width_scale"),
        "TransformationParameter": ("use_gpu_transform", "random_seed", "display"),
    }.items()
}
"""Return, by message, the fields that tune speed, memory or precision. `engine` is one in every message."""

CHANGES_THE_RESULT = {
    "quantization_param": "quantized computing",
    "mn_grad_compress_param": "gradient compression",
    "mn_activation_param": "model parallelism",
    "multinode": "model parallelism",
    "bn_stats_batch_size": "batch statistics over parts of a batch",
}
"""Fields of layers and nets that are refused, and what they ask for."""

_LAYERS_OF = {
    "the SSD fork": ("AnnotatedData", "DetectionEvaluate", "DetectionOutput", "MultiBoxLoss", "PriorBox", "VideoData"),
    "NVIDIA's fork": ("DetectNetTransformation", "L1Loss", "TRT"),
    "Intel's fork": (
        *("BoxAnnotatorOHEM", "BoxData", "EvalDetection", "MnActivation", "PSROIPooling", "RegionLoss", "Reorg"),
        *("SmoothL1LossOHEM", "SoftmaxWithLossOHEM", "SpatialDropout"),
    ),
    "the FCN and ParseNet forks": ("Grouping", "ParseEvaluate", "ParseOutput", "UnPooling"),
    "the DeconvNet fork": ("Unpooling",),
    "the CRF-RNN fork": ("MultiStageMeanfield",),
    "the OpenCL fork": (*("Affinity", "ConnectedComponent", "MOE", "MalisLoss", "MergeCrop", "Noise", "Quantizer"),),
    "the SegNet fork": ("DenseImageData", "Upsample"),
    "the DeepLab fork": ("DenseCRF", "ImageSegData", "MatRead", "MatWrite", "SegAccuracy"),
    "the FlowNet fork": (
        *("Accum", "BlackAugmentation", "ChannelNorm", "Correlation", "Correlation1D", "CustomData"),
        *("DataAugmentation", "DisparityData", "Downsample", "FLOWriter", "FloatReader", "FloatWriter"),
        *("FlowAugmentation", "FlowWarp", "GenerateAugmentationParameters", "ImgReader", "ImgWriter", "LpqLoss"),
        *("Mean", "Resample"),
    ),
    "forks for face recognition": (
        *("CenterLoss", "Identity2Verify", "InterClass", "LabelSpecificAdd", "LabelSpecificMargin"),
        *("LargeMarginInnerProduct", "MarginInnerProduct", "Normalization", "TripletLoss"),
    ),
    "the HED fork": ("ImageLabelmapData",),
    "forks for poses": (
        *("CPMData", "DataHeatmap", "EuclideanLossHeatmap", "HeatmapData", "HeatmapLoss", "ImResize", "Nms"),
    ),
    "forks for video": ("Convolution3D", "NdConvolution", "NdPooling", "Pooling3D"),
    "forks for hashing and several labels": (
        *("MultiLabelAccuracy", "MultiLabelData", "MultiLabelImageData", "PairwiseLoss", "QuantizationLoss"),
    ),
    "forks for sequences": ("CTCLoss", "Lstm", "WarpCTCLoss"),
    "forks for detection": ("FocalLoss", "Proposal", "ROIAlign", "YoloLoss", "Yolov3", "YoloV2Loss"),
}

LAYER_FORKS: dict[str, str] = {layer: fork for fork, layers in _LAYERS_OF.items() for layer in layers}
"""By layer type that is not supported, the Caffe that has it."""
