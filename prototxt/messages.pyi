"""Types of Caffe's messages. Written by build_schema.py from its tables."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer, RepeatedScalarFieldContainer
from google.protobuf.message import Message
from typing_extensions import Never, Self

from mgcaffe.prototxt.descriptor_pool import has_field as has_field
from mgcaffe.prototxt.descriptor_pool import message_class as message_class
from mgcaffe.prototxt.descriptor_pool import message_facts as message_facts

class _Enum(int):
    """A value of an enum; the class is protobuf's EnumTypeWrapper, which makes no values."""

    def __new__(cls, _: Never, /) -> Self: ...
    @classmethod
    def Name(cls, number: int) -> str: ...
    @classmethod
    def Value(cls, name: str) -> Self: ...
    @classmethod
    def keys(cls) -> list[str]: ...
    @classmethod
    def values(cls) -> list[Self]: ...
    @classmethod
    def items(cls) -> list[tuple[str, Self]]: ...

class Phase(_Enum):
    TRAIN: ClassVar[Phase]
    TEST: ClassVar[Phase]

TRAIN: Phase
TEST: Phase

class NanEffect(_Enum):
    STOP: ClassVar[NanEffect]
    SKIP: ClassVar[NanEffect]
    SNAPSHOT: ClassVar[NanEffect]

STOP: NanEffect
SKIP: NanEffect
SNAPSHOT: NanEffect

class Type(_Enum):
    DOUBLE: ClassVar[Type]
    FLOAT: ClassVar[Type]
    FLOAT16: ClassVar[Type]
    INT: ClassVar[Type]
    UINT: ClassVar[Type]
    BOOL: ClassVar[Type]

DOUBLE: Type
FLOAT: Type
FLOAT16: Type
INT: Type
UINT: Type
BOOL: Type

class Packing(_Enum):
    NCHW: ClassVar[Packing]
    NHWC: ClassVar[Packing]

NCHW: Packing
NHWC: Packing

class DatumTypeInfo(_Enum):
    DatumTypeInfo_DATUM: ClassVar[DatumTypeInfo]
    DatumTypeInfo_ANNOTATED_DATUM: ClassVar[DatumTypeInfo]

DatumTypeInfo_DATUM: DatumTypeInfo
DatumTypeInfo_ANNOTATED_DATUM: DatumTypeInfo

class BlobShape(Message):
    @property
    def dim(self) -> RepeatedScalarFieldContainer[int]: ...
    def __init__(
        self,
        *,
        dim: Iterable[int] | None = None,
    ) -> None: ...
    def HasField(self, field_name: Never) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "dim"
        ],
    ) -> None: ...

class BlobProto(Message):
    @property
    def shape(self) -> BlobShape: ...
    @property
    def data(self) -> RepeatedScalarFieldContainer[float]: ...
    @property
    def diff(self) -> RepeatedScalarFieldContainer[float]: ...
    @property
    def double_data(self) -> RepeatedScalarFieldContainer[float]: ...
    @property
    def double_diff(self) -> RepeatedScalarFieldContainer[float]: ...
    num: int
    """Default: 0."""
    channels: int
    """Default: 0."""
    height: int
    """Default: 0."""
    width: int
    """Default: 0."""
    raw_data_type: Type
    """A field of NVIDIA's fork."""
    raw_diff_type: Type
    """A field of NVIDIA's fork."""
    raw_data: bytes
    """A field of NVIDIA's fork."""
    raw_diff: bytes
    """A field of NVIDIA's fork."""
    def __init__(
        self,
        *,
        shape: BlobShape | Mapping[str, Any] | None = None,
        data: Iterable[float] | None = None,
        diff: Iterable[float] | None = None,
        double_data: Iterable[float] | None = None,
        double_diff: Iterable[float] | None = None,
        num: int | None = None,
        channels: int | None = None,
        height: int | None = None,
        width: int | None = None,
        raw_data_type: Type | str | None = None,
        raw_diff_type: Type | str | None = None,
        raw_data: bytes | None = None,
        raw_diff: bytes | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "shape", "num", "channels", "height", "width", "raw_data_type", "raw_diff_type", "raw_data",
            "raw_diff"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "shape", "data", "diff", "double_data", "double_diff", "num", "channels", "height", "width",
            "raw_data_type", "raw_diff_type", "raw_data", "raw_diff"
        ],
    ) -> None: ...

class BlobProtoVector(Message):
    @property
    def blobs(self) -> RepeatedCompositeFieldContainer[BlobProto]: ...
    def __init__(
        self,
        *,
        blobs: Iterable[BlobProto | Mapping[str, Any]] | None = None,
    ) -> None: ...
    def HasField(self, field_name: Never) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "blobs"
        ],
    ) -> None: ...

class Datum(Message):
    channels: int
    height: int
    width: int
    data: bytes
    label: int
    @property
    def float_data(self) -> RepeatedScalarFieldContainer[float]: ...
    encoded: bool
    """Default: false."""
    record_id: int
    """Default: 0. A field of NVIDIA's fork."""
    def __init__(
        self,
        *,
        channels: int | None = None,
        height: int | None = None,
        width: int | None = None,
        data: bytes | None = None,
        label: int | None = None,
        float_data: Iterable[float] | None = None,
        encoded: bool | None = None,
        record_id: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "channels", "height", "width", "data", "label", "encoded", "record_id"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "channels", "height", "width", "data", "label", "float_data", "encoded", "record_id"
        ],
    ) -> None: ...

class FillerParameter(Message):
    class VarianceNorm(_Enum):
        FAN_IN: ClassVar[FillerParameter.VarianceNorm]
        FAN_OUT: ClassVar[FillerParameter.VarianceNorm]
        AVERAGE: ClassVar[FillerParameter.VarianceNorm]

    FAN_IN: ClassVar[FillerParameter.VarianceNorm]
    FAN_OUT: ClassVar[FillerParameter.VarianceNorm]
    AVERAGE: ClassVar[FillerParameter.VarianceNorm]

    type: str
    """Default: 'constant'."""
    value: float
    """Default: 0."""
    min: float
    """Default: 0."""
    max: float
    """Default: 1."""
    mean: float
    """Default: 0."""
    std: float
    """Default: 1."""
    sparse: int
    """Default: -1."""
    variance_norm: FillerParameter.VarianceNorm
    """Default: FAN_IN."""
    scale: float
    """Default: 1. A field of Intel's fork."""
    def __init__(
        self,
        *,
        type: str | None = None,
        value: float | None = None,
        min: float | None = None,
        max: float | None = None,
        mean: float | None = None,
        std: float | None = None,
        sparse: int | None = None,
        variance_norm: FillerParameter.VarianceNorm | str | None = None,
        scale: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "type", "value", "min", "max", "mean", "std", "sparse", "variance_norm", "scale"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "type", "value", "min", "max", "mean", "std", "sparse", "variance_norm", "scale"
        ],
    ) -> None: ...

class NetParameter(Message):
    name: str
    @property
    def input(self) -> RepeatedScalarFieldContainer[str]: ...
    @property
    def input_shape(self) -> RepeatedCompositeFieldContainer[BlobShape]: ...
    @property
    def input_dim(self) -> RepeatedScalarFieldContainer[int]: ...
    force_backward: bool
    """Default: false."""
    @property
    def state(self) -> NetState: ...
    debug_info: bool
    """Default: false."""
    @property
    def layer(self) -> RepeatedCompositeFieldContainer[LayerParameter]: ...
    @property
    def layers(self) -> RepeatedCompositeFieldContainer[V1LayerParameter]: ...
    default_forward_type: Type
    """Default: FLOAT. A field of NVIDIA's fork."""
    default_backward_type: Type
    """Default: FLOAT. A field of NVIDIA's fork."""
    default_forward_math: Type
    """Default: FLOAT. A field of NVIDIA's fork."""
    default_backward_math: Type
    """Default: FLOAT. A field of NVIDIA's fork."""
    global_grad_scale: float
    """Default: 1. A field of NVIDIA's fork."""
    global_grad_scale_adaptive: bool
    """Default: false. A field of NVIDIA's fork."""
    default_conv_algos_override: str
    """Default: '-1,-1,-1'. A field of NVIDIA's fork."""
    reduce_buckets: int
    """Default: 6. A field of NVIDIA's fork."""
    default_cudnn_math_override: int
    """Default: -1. A field of NVIDIA's fork."""
    eltwise_mem_sharing: bool
    """Default: true. A field of NVIDIA's fork."""
    @property
    def compile_net_state(self) -> CompileNetState:
        """A field of Intel's fork."""
    engine: str
    """A field of Intel's fork."""
    bn_stats_batch_size: int
    """Default: 0. A field of Intel's fork."""
    @property
    def multinode(self) -> MultinodeParameter:
        """A field of Intel's fork."""
    def __init__(
        self,
        *,
        name: str | None = None,
        input: Iterable[str] | None = None,
        input_shape: Iterable[BlobShape | Mapping[str, Any]] | None = None,
        input_dim: Iterable[int] | None = None,
        force_backward: bool | None = None,
        state: NetState | Mapping[str, Any] | None = None,
        debug_info: bool | None = None,
        layer: Iterable[LayerParameter | Mapping[str, Any]] | None = None,
        layers: Iterable[V1LayerParameter | Mapping[str, Any]] | None = None,
        default_forward_type: Type | str | None = None,
        default_backward_type: Type | str | None = None,
        default_forward_math: Type | str | None = None,
        default_backward_math: Type | str | None = None,
        global_grad_scale: float | None = None,
        global_grad_scale_adaptive: bool | None = None,
        default_conv_algos_override: str | None = None,
        reduce_buckets: int | None = None,
        default_cudnn_math_override: int | None = None,
        eltwise_mem_sharing: bool | None = None,
        compile_net_state: CompileNetState | Mapping[str, Any] | None = None,
        engine: str | None = None,
        bn_stats_batch_size: int | None = None,
        multinode: MultinodeParameter | Mapping[str, Any] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "name", "force_backward", "state", "debug_info", "default_forward_type",
            "default_backward_type", "default_forward_math", "default_backward_math", "global_grad_scale",
            "global_grad_scale_adaptive", "default_conv_algos_override", "reduce_buckets",
            "default_cudnn_math_override", "eltwise_mem_sharing", "compile_net_state", "engine",
            "bn_stats_batch_size", "multinode"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "name", "input", "input_shape", "input_dim", "force_backward", "state", "debug_info", "layer",
            "layers", "default_forward_type", "default_backward_type", "default_forward_math",
            "default_backward_math", "global_grad_scale", "global_grad_scale_adaptive",
            "default_conv_algos_override", "reduce_buckets", "default_cudnn_math_override",
            "eltwise_mem_sharing", "compile_net_state", "engine", "bn_stats_batch_size", "multinode"
        ],
    ) -> None: ...

class SolverParameter(Message):
    class SnapshotFormat(_Enum):
        HDF5: ClassVar[SolverParameter.SnapshotFormat]
        BINARYPROTO: ClassVar[SolverParameter.SnapshotFormat]

    HDF5: ClassVar[SolverParameter.SnapshotFormat]
    BINARYPROTO: ClassVar[SolverParameter.SnapshotFormat]

    class SolverMode(_Enum):
        CPU: ClassVar[SolverParameter.SolverMode]
        GPU: ClassVar[SolverParameter.SolverMode]

    CPU: ClassVar[SolverParameter.SolverMode]
    GPU: ClassVar[SolverParameter.SolverMode]

    class SolverType(_Enum):
        SGD: ClassVar[SolverParameter.SolverType]
        NESTEROV: ClassVar[SolverParameter.SolverType]
        ADAGRAD: ClassVar[SolverParameter.SolverType]
        RMSPROP: ClassVar[SolverParameter.SolverType]
        ADADELTA: ClassVar[SolverParameter.SolverType]
        ADAM: ClassVar[SolverParameter.SolverType]
        SAG: ClassVar[SolverParameter.SolverType]

    SGD: ClassVar[SolverParameter.SolverType]
    NESTEROV: ClassVar[SolverParameter.SolverType]
    ADAGRAD: ClassVar[SolverParameter.SolverType]
    RMSPROP: ClassVar[SolverParameter.SolverType]
    ADADELTA: ClassVar[SolverParameter.SolverType]
    ADAM: ClassVar[SolverParameter.SolverType]
    SAG: ClassVar[SolverParameter.SolverType]

    class SnapshotErrors(_Enum):
        WARN: ClassVar[SolverParameter.SnapshotErrors]
        STOP: ClassVar[SolverParameter.SnapshotErrors]

    WARN: ClassVar[SolverParameter.SnapshotErrors]
    STOP: ClassVar[SolverParameter.SnapshotErrors]

    net: str
    @property
    def net_param(self) -> NetParameter: ...
    train_net: str
    @property
    def test_net(self) -> RepeatedScalarFieldContainer[str]: ...
    @property
    def train_net_param(self) -> NetParameter: ...
    @property
    def test_net_param(self) -> RepeatedCompositeFieldContainer[NetParameter]: ...
    @property
    def train_state(self) -> NetState: ...
    @property
    def test_state(self) -> RepeatedCompositeFieldContainer[NetState]: ...
    @property
    def test_iter(self) -> RepeatedScalarFieldContainer[int]: ...
    test_interval: int
    """Default: 0."""
    test_compute_loss: bool
    """Default: false."""
    test_initialization: bool
    """Default: true."""
    base_lr: float
    display: int
    average_loss: int
    """Default: 1."""
    max_iter: int
    iter_size: int
    """Default: 1."""
    lr_policy: str
    gamma: float
    power: float
    momentum: float
    weight_decay: float
    regularization_type: str
    """Default: 'L2'."""
    stepsize: int
    @property
    def stepvalue(self) -> RepeatedScalarFieldContainer[int]: ...
    clip_gradients: float
    """Default: -1."""
    snapshot: int
    """Default: 0."""
    snapshot_prefix: str
    snapshot_diff: bool
    """Default: false."""
    snapshot_format: SolverParameter.SnapshotFormat
    """Default: BINARYPROTO."""
    solver_mode: SolverParameter.SolverMode
    """Default: GPU."""
    device_id: int
    """Default: 0."""
    random_seed: int
    """Default: -1."""
    type: str
    """Default: 'SGD'."""
    delta: float
    """Default: 1e-08."""
    momentum2: float
    """Default: 0.999."""
    rms_decay: float
    """Default: 0.99."""
    debug_info: bool
    """Default: false."""
    snapshot_after_train: bool
    """Default: true."""
    solver_type: SolverParameter.SolverType
    """Default: SGD."""
    layer_wise_reduce: bool
    """Default: true."""
    @property
    def weights(self) -> RepeatedScalarFieldContainer[str]: ...
    @property
    def comm_param(self) -> CommParameter:
        """A field of mgcaffe."""
    snapshot_keep: int
    """Default: 0. A field of mgcaffe."""
    snapshot_best: str
    """A field of mgcaffe."""
    snapshot_errors: SolverParameter.SnapshotErrors
    """Default: WARN. A field of mgcaffe."""
    snapshot_background: bool
    """Default: true. A field of mgcaffe."""
    nan_effect: NanEffect
    """Default: STOP. A field of mgcaffe."""
    bad_record: DataParameter.BadRecord
    """Default: STOP. A field of mgcaffe."""
    bad_record_limit: int
    """Default: 100. A field of mgcaffe."""
    decoupled_weight_decay: bool
    """Default: false. A field of mgcaffe."""
    eval_type: str
    """Default: 'classification'. A field of the SSD fork."""
    ap_version: str
    """Default: 'Integral'. A field of the SSD fork."""
    show_per_class_result: bool
    """Default: false. A field of the SSD fork."""
    @property
    def plateau_winsize(self) -> RepeatedScalarFieldContainer[int]:
        """A field of the SSD fork."""
    rampup_interval: int
    """Default: 0. A field of NVIDIA's fork."""
    rampup_lr: float
    """Default: 0. A field of NVIDIA's fork."""
    min_lr: float
    """Default: 0. A field of NVIDIA's fork."""
    momentum_policy: str
    """Default: 'fixed'. A field of NVIDIA's fork."""
    max_momentum: float
    """Default: 0.99. A field of NVIDIA's fork."""
    momentum_power: float
    """Default: 1. A field of NVIDIA's fork."""
    larc: bool
    """Default: false. A field of NVIDIA's fork."""
    larc_policy: str
    """Default: 'scale'. A field of NVIDIA's fork."""
    larc_eta: float
    """Default: 0.001. A field of NVIDIA's fork."""
    larc_turbo: bool
    """Default: false. A field of NVIDIA's fork."""
    weight_decay_policy: str
    """Default: 'fixed'. A field of NVIDIA's fork."""
    weight_decay_power: float
    """Default: 1. A field of NVIDIA's fork."""
    max_weight_decay: float
    """Default: 0. A field of NVIDIA's fork."""
    solver_data_type: Type
    """Default: FLOAT. A field of NVIDIA's fork."""
    store_blobs_in_old_format: bool
    """Default: false. A field of NVIDIA's fork."""
    test_and_snapshot_last_epochs: int
    """Default: 0. A field of NVIDIA's fork."""
    @property
    def stagelr(self) -> RepeatedScalarFieldContainer[float]:
        """A field of Intel's fork."""
    @property
    def stageiter(self) -> RepeatedScalarFieldContainer[int]:
        """A field of Intel's fork."""
    disabled_update: bool
    """Default: false. A field of Intel's fork."""
    engine: str
    """A field of Intel's fork."""
    warmup_iter: int
    """Default: 0. A field of Intel's fork."""
    warmup_start_lr: float
    """Default: 0. A field of Intel's fork."""
    local_lr_auto: bool
    """Default: false. A field of Intel's fork."""
    local_gw_ratio: float
    """Default: 0.001. A field of Intel's fork."""
    test_offset: int
    """Default: 0. A field of Intel's fork."""
    def __init__(
        self,
        *,
        net: str | None = None,
        net_param: NetParameter | Mapping[str, Any] | None = None,
        train_net: str | None = None,
        test_net: Iterable[str] | None = None,
        train_net_param: NetParameter | Mapping[str, Any] | None = None,
        test_net_param: Iterable[NetParameter | Mapping[str, Any]] | None = None,
        train_state: NetState | Mapping[str, Any] | None = None,
        test_state: Iterable[NetState | Mapping[str, Any]] | None = None,
        test_iter: Iterable[int] | None = None,
        test_interval: int | None = None,
        test_compute_loss: bool | None = None,
        test_initialization: bool | None = None,
        base_lr: float | None = None,
        display: int | None = None,
        average_loss: int | None = None,
        max_iter: int | None = None,
        iter_size: int | None = None,
        lr_policy: str | None = None,
        gamma: float | None = None,
        power: float | None = None,
        momentum: float | None = None,
        weight_decay: float | None = None,
        regularization_type: str | None = None,
        stepsize: int | None = None,
        stepvalue: Iterable[int] | None = None,
        clip_gradients: float | None = None,
        snapshot: int | None = None,
        snapshot_prefix: str | None = None,
        snapshot_diff: bool | None = None,
        snapshot_format: SolverParameter.SnapshotFormat | str | None = None,
        solver_mode: SolverParameter.SolverMode | str | None = None,
        device_id: int | None = None,
        random_seed: int | None = None,
        type: str | None = None,
        delta: float | None = None,
        momentum2: float | None = None,
        rms_decay: float | None = None,
        debug_info: bool | None = None,
        snapshot_after_train: bool | None = None,
        solver_type: SolverParameter.SolverType | str | None = None,
        layer_wise_reduce: bool | None = None,
        weights: Iterable[str] | None = None,
        comm_param: CommParameter | Mapping[str, Any] | None = None,
        snapshot_keep: int | None = None,
        snapshot_best: str | None = None,
        snapshot_errors: SolverParameter.SnapshotErrors | str | None = None,
        snapshot_background: bool | None = None,
        nan_effect: NanEffect | str | None = None,
        bad_record: DataParameter.BadRecord | str | None = None,
        bad_record_limit: int | None = None,
        decoupled_weight_decay: bool | None = None,
        eval_type: str | None = None,
        ap_version: str | None = None,
        show_per_class_result: bool | None = None,
        plateau_winsize: Iterable[int] | None = None,
        rampup_interval: int | None = None,
        rampup_lr: float | None = None,
        min_lr: float | None = None,
        momentum_policy: str | None = None,
        max_momentum: float | None = None,
        momentum_power: float | None = None,
        larc: bool | None = None,
        larc_policy: str | None = None,
        larc_eta: float | None = None,
        larc_turbo: bool | None = None,
        weight_decay_policy: str | None = None,
        weight_decay_power: float | None = None,
        max_weight_decay: float | None = None,
        solver_data_type: Type | str | None = None,
        store_blobs_in_old_format: bool | None = None,
        test_and_snapshot_last_epochs: int | None = None,
        stagelr: Iterable[float] | None = None,
        stageiter: Iterable[int] | None = None,
        disabled_update: bool | None = None,
        engine: str | None = None,
        warmup_iter: int | None = None,
        warmup_start_lr: float | None = None,
        local_lr_auto: bool | None = None,
        local_gw_ratio: float | None = None,
        test_offset: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "net", "net_param", "train_net", "train_net_param", "train_state", "test_interval",
            "test_compute_loss", "test_initialization", "base_lr", "display", "average_loss", "max_iter",
            "iter_size", "lr_policy", "gamma", "power", "momentum", "weight_decay", "regularization_type",
            "stepsize", "clip_gradients", "snapshot", "snapshot_prefix", "snapshot_diff", "snapshot_format",
            "solver_mode", "device_id", "random_seed", "type", "delta", "momentum2", "rms_decay",
            "debug_info", "snapshot_after_train", "solver_type", "layer_wise_reduce", "comm_param",
            "snapshot_keep", "snapshot_best", "snapshot_errors", "snapshot_background", "nan_effect",
            "bad_record", "bad_record_limit", "decoupled_weight_decay", "eval_type", "ap_version",
            "show_per_class_result", "rampup_interval", "rampup_lr", "min_lr", "momentum_policy",
            "max_momentum", "momentum_power", "larc", "larc_policy", "larc_eta", "larc_turbo",
            "weight_decay_policy", "weight_decay_power", "max_weight_decay", "solver_data_type",
            "store_blobs_in_old_format", "test_and_snapshot_last_epochs", "disabled_update", "engine",
            "warmup_iter", "warmup_start_lr", "local_lr_auto", "local_gw_ratio", "test_offset"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "net", "net_param", "train_net", "test_net", "train_net_param", "test_net_param", "train_state",
            "test_state", "test_iter", "test_interval", "test_compute_loss", "test_initialization",
            "base_lr", "display", "average_loss", "max_iter", "iter_size", "lr_policy", "gamma", "power",
            "momentum", "weight_decay", "regularization_type", "stepsize", "stepvalue", "clip_gradients",
            "snapshot", "snapshot_prefix", "snapshot_diff", "snapshot_format", "solver_mode", "device_id",
            "random_seed", "type", "delta", "momentum2", "rms_decay", "debug_info", "snapshot_after_train",
            "solver_type", "layer_wise_reduce", "weights", "comm_param", "snapshot_keep", "snapshot_best",
            "snapshot_errors", "snapshot_background", "nan_effect", "bad_record", "bad_record_limit",
            "decoupled_weight_decay", "eval_type", "ap_version", "show_per_class_result", "plateau_winsize",
            "rampup_interval", "rampup_lr", "min_lr", "momentum_policy", "max_momentum", "momentum_power",
            "larc", "larc_policy", "larc_eta", "larc_turbo", "weight_decay_policy", "weight_decay_power",
            "max_weight_decay", "solver_data_type", "store_blobs_in_old_format",
            "test_and_snapshot_last_epochs", "stagelr", "stageiter", "disabled_update", "engine",
            "warmup_iter", "warmup_start_lr", "local_lr_auto", "local_gw_ratio", "test_offset"
        ],
    ) -> None: ...

class SolverState(Message):
    iter: int
    learned_net: str
    @property
    def history(self) -> RepeatedCompositeFieldContainer[BlobProto]: ...
    current_step: int
    """Default: 0."""
    @property
    def engine_state(self) -> EngineState:
        """A field of mgcaffe."""
    minimum_loss: float
    """Default: 1e+38. A field of the SSD fork."""
    iter_last_event: int
    """Default: 0. A field of the SSD fork."""
    def __init__(
        self,
        *,
        iter: int | None = None,
        learned_net: str | None = None,
        history: Iterable[BlobProto | Mapping[str, Any]] | None = None,
        current_step: int | None = None,
        engine_state: EngineState | Mapping[str, Any] | None = None,
        minimum_loss: float | None = None,
        iter_last_event: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "iter", "learned_net", "current_step", "engine_state", "minimum_loss", "iter_last_event"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "iter", "learned_net", "history", "current_step", "engine_state", "minimum_loss",
            "iter_last_event"
        ],
    ) -> None: ...

class NetState(Message):
    phase: Phase
    """Default: TEST."""
    level: int
    """Default: 0."""
    @property
    def stage(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        phase: Phase | str | None = None,
        level: int | None = None,
        stage: Iterable[str] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "phase", "level"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "phase", "level", "stage"
        ],
    ) -> None: ...

class NetStateRule(Message):
    phase: Phase
    min_level: int
    max_level: int
    @property
    def stage(self) -> RepeatedScalarFieldContainer[str]: ...
    @property
    def not_stage(self) -> RepeatedScalarFieldContainer[str]: ...
    def __init__(
        self,
        *,
        phase: Phase | str | None = None,
        min_level: int | None = None,
        max_level: int | None = None,
        stage: Iterable[str] | None = None,
        not_stage: Iterable[str] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "phase", "min_level", "max_level"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "phase", "min_level", "max_level", "stage", "not_stage"
        ],
    ) -> None: ...

class ParamSpec(Message):
    class DimCheckMode(_Enum):
        STRICT: ClassVar[ParamSpec.DimCheckMode]
        PERMISSIVE: ClassVar[ParamSpec.DimCheckMode]

    STRICT: ClassVar[ParamSpec.DimCheckMode]
    PERMISSIVE: ClassVar[ParamSpec.DimCheckMode]

    name: str
    share_mode: ParamSpec.DimCheckMode
    lr_mult: float
    """Default: 1."""
    decay_mult: float
    """Default: 1."""
    def __init__(
        self,
        *,
        name: str | None = None,
        share_mode: ParamSpec.DimCheckMode | str | None = None,
        lr_mult: float | None = None,
        decay_mult: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "name", "share_mode", "lr_mult", "decay_mult"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "name", "share_mode", "lr_mult", "decay_mult"
        ],
    ) -> None: ...

class LayerParameter(Message):
    name: str
    type: str
    @property
    def bottom(self) -> RepeatedScalarFieldContainer[str]: ...
    @property
    def top(self) -> RepeatedScalarFieldContainer[str]: ...
    phase: Phase
    @property
    def loss_weight(self) -> RepeatedScalarFieldContainer[float]: ...
    @property
    def param(self) -> RepeatedCompositeFieldContainer[ParamSpec]: ...
    @property
    def blobs(self) -> RepeatedCompositeFieldContainer[BlobProto]: ...
    @property
    def propagate_down(self) -> RepeatedScalarFieldContainer[bool]: ...
    @property
    def include(self) -> RepeatedCompositeFieldContainer[NetStateRule]: ...
    @property
    def exclude(self) -> RepeatedCompositeFieldContainer[NetStateRule]: ...
    @property
    def transform_param(self) -> TransformationParameter: ...
    @property
    def loss_param(self) -> LossParameter: ...
    @property
    def accuracy_param(self) -> AccuracyParameter: ...
    @property
    def argmax_param(self) -> ArgMaxParameter: ...
    @property
    def batch_norm_param(self) -> BatchNormParameter: ...
    @property
    def bias_param(self) -> BiasParameter: ...
    @property
    def clip_param(self) -> ClipParameter: ...
    @property
    def concat_param(self) -> ConcatParameter: ...
    @property
    def contrastive_loss_param(self) -> ContrastiveLossParameter: ...
    @property
    def convolution_param(self) -> ConvolutionParameter: ...
    @property
    def crop_param(self) -> CropParameter: ...
    @property
    def data_param(self) -> DataParameter: ...
    @property
    def dropout_param(self) -> DropoutParameter: ...
    @property
    def dummy_data_param(self) -> DummyDataParameter: ...
    @property
    def eltwise_param(self) -> EltwiseParameter: ...
    @property
    def elu_param(self) -> ELUParameter: ...
    @property
    def embed_param(self) -> EmbedParameter: ...
    @property
    def exp_param(self) -> ExpParameter: ...
    @property
    def flatten_param(self) -> FlattenParameter: ...
    @property
    def hdf5_data_param(self) -> HDF5DataParameter: ...
    @property
    def hdf5_output_param(self) -> HDF5OutputParameter: ...
    @property
    def hinge_loss_param(self) -> HingeLossParameter: ...
    @property
    def image_data_param(self) -> ImageDataParameter: ...
    @property
    def infogain_loss_param(self) -> InfogainLossParameter: ...
    @property
    def inner_product_param(self) -> InnerProductParameter: ...
    @property
    def input_param(self) -> InputParameter: ...
    @property
    def log_param(self) -> LogParameter: ...
    @property
    def lrn_param(self) -> LRNParameter: ...
    @property
    def memory_data_param(self) -> MemoryDataParameter: ...
    @property
    def mvn_param(self) -> MVNParameter: ...
    @property
    def parameter_param(self) -> ParameterParameter: ...
    @property
    def pooling_param(self) -> PoolingParameter: ...
    @property
    def power_param(self) -> PowerParameter: ...
    @property
    def prelu_param(self) -> PReLUParameter: ...
    @property
    def python_param(self) -> PythonParameter: ...
    @property
    def recurrent_param(self) -> RecurrentParameter: ...
    @property
    def reduction_param(self) -> ReductionParameter: ...
    @property
    def relu_param(self) -> ReLUParameter: ...
    @property
    def reshape_param(self) -> ReshapeParameter: ...
    @property
    def scale_param(self) -> ScaleParameter: ...
    @property
    def sigmoid_param(self) -> SigmoidParameter: ...
    @property
    def softmax_param(self) -> SoftmaxParameter: ...
    @property
    def spp_param(self) -> SPPParameter: ...
    @property
    def slice_param(self) -> SliceParameter: ...
    @property
    def swish_param(self) -> SwishParameter: ...
    @property
    def tanh_param(self) -> TanHParameter: ...
    @property
    def threshold_param(self) -> ThresholdParameter: ...
    @property
    def tile_param(self) -> TileParameter: ...
    @property
    def window_data_param(self) -> WindowDataParameter: ...
    @property
    def interp_param(self) -> InterpParameter:
        """A field of mgcaffe."""
    @property
    def bn_param(self) -> BNParameter:
        """A field of mgcaffe."""
    @property
    def shuffle_channel_param(self) -> ShuffleChannelParameter:
        """A field of mgcaffe."""
    @property
    def relu6_param(self) -> ReLU6Parameter:
        """A field of mgcaffe."""
    @property
    def annotated_data_param(self) -> AnnotatedDataParameter:
        """A field of the SSD fork."""
    @property
    def detection_evaluate_param(self) -> DetectionEvaluateParameter:
        """A field of the SSD fork."""
    @property
    def detection_output_param(self) -> DetectionOutputParameter:
        """A field of the SSD fork."""
    @property
    def multibox_loss_param(self) -> MultiBoxLossParameter:
        """A field of the SSD fork."""
    @property
    def norm_param(self) -> NormalizeParameter:
        """A field of the SSD fork."""
    @property
    def permute_param(self) -> PermuteParameter:
        """A field of the SSD fork."""
    @property
    def prior_box_param(self) -> PriorBoxParameter:
        """A field of the SSD fork."""
    @property
    def video_data_param(self) -> VideoDataParameter:
        """A field of the SSD fork."""
    forward_type: Type
    """Default: FLOAT. A field of NVIDIA's fork."""
    backward_type: Type
    """Default: FLOAT. A field of NVIDIA's fork."""
    forward_math: Type
    """Default: FLOAT. A field of NVIDIA's fork."""
    backward_math: Type
    """Default: FLOAT. A field of NVIDIA's fork."""
    debug: bool
    """Default: false. A field of NVIDIA's fork."""
    cudnn_math_override: int
    """Default: -1. A field of NVIDIA's fork."""
    @property
    def trt_param(self) -> TRTParameter:
        """A field of NVIDIA's fork."""
    @property
    def detectnet_groundtruth_param(self) -> DetectNetGroundTruthParameter:
        """A field of NVIDIA's fork."""
    @property
    def detectnet_augmentation_param(self) -> DetectNetAugmentationParameter:
        """A field of NVIDIA's fork."""
    @property
    def box_annotator_ohem_param(self) -> BoxAnnotatorOHEMParameter:
        """A field of Intel's fork."""
    @property
    def psroi_pooling_param(self) -> PSROIPoolingParameter:
        """A field of Intel's fork."""
    @property
    def roi_pooling_param(self) -> ROIPoolingParameter:
        """A field of Intel's fork."""
    @property
    def smooth_l1_loss_param(self) -> SmoothL1LossParameter:
        """A field of Intel's fork."""
    @property
    def split_param(self) -> SplitParameter:
        """A field of Intel's fork."""
    @property
    def spatial_dropout_param(self) -> SpatialDropoutParameter:
        """A field of Intel's fork."""
    engine: str
    """A field of Intel's fork."""
    @property
    def multinode(self) -> MultinodeLayerParameter:
        """A field of Intel's fork."""
    @property
    def mn_activation_param(self) -> MnActivationParameter:
        """A field of Intel's fork."""
    @property
    def mn_grad_compress_param(self) -> MnParamGradCompressParameter:
        """A field of Intel's fork."""
    @property
    def quantization_param(self) -> QuantizationParameter:
        """A field of Intel's fork."""
    @property
    def reorg_param(self) -> ReorgParameter:
        """A field of Intel's fork."""
    @property
    def region_loss_param(self) -> RegionLossParameter:
        """A field of Intel's fork."""
    @property
    def eval_detection_param(self) -> EvalDetectionParameter:
        """A field of Intel's fork."""
    def __init__(
        self,
        *,
        name: str | None = None,
        type: str | None = None,
        bottom: Iterable[str] | None = None,
        top: Iterable[str] | None = None,
        phase: Phase | str | None = None,
        loss_weight: Iterable[float] | None = None,
        param: Iterable[ParamSpec | Mapping[str, Any]] | None = None,
        blobs: Iterable[BlobProto | Mapping[str, Any]] | None = None,
        propagate_down: Iterable[bool] | None = None,
        include: Iterable[NetStateRule | Mapping[str, Any]] | None = None,
        exclude: Iterable[NetStateRule | Mapping[str, Any]] | None = None,
        transform_param: TransformationParameter | Mapping[str, Any] | None = None,
        loss_param: LossParameter | Mapping[str, Any] | None = None,
        accuracy_param: AccuracyParameter | Mapping[str, Any] | None = None,
        argmax_param: ArgMaxParameter | Mapping[str, Any] | None = None,
        batch_norm_param: BatchNormParameter | Mapping[str, Any] | None = None,
        bias_param: BiasParameter | Mapping[str, Any] | None = None,
        clip_param: ClipParameter | Mapping[str, Any] | None = None,
        concat_param: ConcatParameter | Mapping[str, Any] | None = None,
        contrastive_loss_param: ContrastiveLossParameter | Mapping[str, Any] | None = None,
        convolution_param: ConvolutionParameter | Mapping[str, Any] | None = None,
        crop_param: CropParameter | Mapping[str, Any] | None = None,
        data_param: DataParameter | Mapping[str, Any] | None = None,
        dropout_param: DropoutParameter | Mapping[str, Any] | None = None,
        dummy_data_param: DummyDataParameter | Mapping[str, Any] | None = None,
        eltwise_param: EltwiseParameter | Mapping[str, Any] | None = None,
        elu_param: ELUParameter | Mapping[str, Any] | None = None,
        embed_param: EmbedParameter | Mapping[str, Any] | None = None,
        exp_param: ExpParameter | Mapping[str, Any] | None = None,
        flatten_param: FlattenParameter | Mapping[str, Any] | None = None,
        hdf5_data_param: HDF5DataParameter | Mapping[str, Any] | None = None,
        hdf5_output_param: HDF5OutputParameter | Mapping[str, Any] | None = None,
        hinge_loss_param: HingeLossParameter | Mapping[str, Any] | None = None,
        image_data_param: ImageDataParameter | Mapping[str, Any] | None = None,
        infogain_loss_param: InfogainLossParameter | Mapping[str, Any] | None = None,
        inner_product_param: InnerProductParameter | Mapping[str, Any] | None = None,
        input_param: InputParameter | Mapping[str, Any] | None = None,
        log_param: LogParameter | Mapping[str, Any] | None = None,
        lrn_param: LRNParameter | Mapping[str, Any] | None = None,
        memory_data_param: MemoryDataParameter | Mapping[str, Any] | None = None,
        mvn_param: MVNParameter | Mapping[str, Any] | None = None,
        parameter_param: ParameterParameter | Mapping[str, Any] | None = None,
        pooling_param: PoolingParameter | Mapping[str, Any] | None = None,
        power_param: PowerParameter | Mapping[str, Any] | None = None,
        prelu_param: PReLUParameter | Mapping[str, Any] | None = None,
        python_param: PythonParameter | Mapping[str, Any] | None = None,
        recurrent_param: RecurrentParameter | Mapping[str, Any] | None = None,
        reduction_param: ReductionParameter | Mapping[str, Any] | None = None,
        relu_param: ReLUParameter | Mapping[str, Any] | None = None,
        reshape_param: ReshapeParameter | Mapping[str, Any] | None = None,
        scale_param: ScaleParameter | Mapping[str, Any] | None = None,
        sigmoid_param: SigmoidParameter | Mapping[str, Any] | None = None,
        softmax_param: SoftmaxParameter | Mapping[str, Any] | None = None,
        spp_param: SPPParameter | Mapping[str, Any] | None = None,
        slice_param: SliceParameter | Mapping[str, Any] | None = None,
        swish_param: SwishParameter | Mapping[str, Any] | None = None,
        tanh_param: TanHParameter | Mapping[str, Any] | None = None,
        threshold_param: ThresholdParameter | Mapping[str, Any] | None = None,
        tile_param: TileParameter | Mapping[str, Any] | None = None,
        window_data_param: WindowDataParameter | Mapping[str, Any] | None = None,
        interp_param: InterpParameter | Mapping[str, Any] | None = None,
        bn_param: BNParameter | Mapping[str, Any] | None = None,
        shuffle_channel_param: ShuffleChannelParameter | Mapping[str, Any] | None = None,
        relu6_param: ReLU6Parameter | Mapping[str, Any] | None = None,
        annotated_data_param: AnnotatedDataParameter | Mapping[str, Any] | None = None,
        detection_evaluate_param: DetectionEvaluateParameter | Mapping[str, Any] | None = None,
        detection_output_param: DetectionOutputParameter | Mapping[str, Any] | None = None,
        multibox_loss_param: MultiBoxLossParameter | Mapping[str, Any] | None = None,
        norm_param: NormalizeParameter | Mapping[str, Any] | None = None,
        permute_param: PermuteParameter | Mapping[str, Any] | None = None,
        prior_box_param: PriorBoxParameter | Mapping[str, Any] | None = None,
        video_data_param: VideoDataParameter | Mapping[str, Any] | None = None,
        forward_type: Type | str | None = None,
        backward_type: Type | str | None = None,
        forward_math: Type | str | None = None,
        backward_math: Type | str | None = None,
        debug: bool | None = None,
        cudnn_math_override: int | None = None,
        trt_param: TRTParameter | Mapping[str, Any] | None = None,
        detectnet_groundtruth_param: DetectNetGroundTruthParameter | Mapping[str, Any] | None = None,
        detectnet_augmentation_param: DetectNetAugmentationParameter | Mapping[str, Any] | None = None,
        box_annotator_ohem_param: BoxAnnotatorOHEMParameter | Mapping[str, Any] | None = None,
        psroi_pooling_param: PSROIPoolingParameter | Mapping[str, Any] | None = None,
        roi_pooling_param: ROIPoolingParameter | Mapping[str, Any] | None = None,
        smooth_l1_loss_param: SmoothL1LossParameter | Mapping[str, Any] | None = None,
        split_param: SplitParameter | Mapping[str, Any] | None = None,
        spatial_dropout_param: SpatialDropoutParameter | Mapping[str, Any] | None = None,
        engine: str | None = None,
        multinode: MultinodeLayerParameter | Mapping[str, Any] | None = None,
        mn_activation_param: MnActivationParameter | Mapping[str, Any] | None = None,
        mn_grad_compress_param: MnParamGradCompressParameter | Mapping[str, Any] | None = None,
        quantization_param: QuantizationParameter | Mapping[str, Any] | None = None,
        reorg_param: ReorgParameter | Mapping[str, Any] | None = None,
        region_loss_param: RegionLossParameter | Mapping[str, Any] | None = None,
        eval_detection_param: EvalDetectionParameter | Mapping[str, Any] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "name", "type", "phase", "transform_param", "loss_param", "accuracy_param", "argmax_param",
            "batch_norm_param", "bias_param", "clip_param", "concat_param", "contrastive_loss_param",
            "convolution_param", "crop_param", "data_param", "dropout_param", "dummy_data_param",
            "eltwise_param", "elu_param", "embed_param", "exp_param", "flatten_param", "hdf5_data_param",
            "hdf5_output_param", "hinge_loss_param", "image_data_param", "infogain_loss_param",
            "inner_product_param", "input_param", "log_param", "lrn_param", "memory_data_param",
            "mvn_param", "parameter_param", "pooling_param", "power_param", "prelu_param", "python_param",
            "recurrent_param", "reduction_param", "relu_param", "reshape_param", "scale_param",
            "sigmoid_param", "softmax_param", "spp_param", "slice_param", "swish_param", "tanh_param",
            "threshold_param", "tile_param", "window_data_param", "interp_param", "bn_param",
            "shuffle_channel_param", "relu6_param", "annotated_data_param", "detection_evaluate_param",
            "detection_output_param", "multibox_loss_param", "norm_param", "permute_param",
            "prior_box_param", "video_data_param", "forward_type", "backward_type", "forward_math",
            "backward_math", "debug", "cudnn_math_override", "trt_param", "detectnet_groundtruth_param",
            "detectnet_augmentation_param", "box_annotator_ohem_param", "psroi_pooling_param",
            "roi_pooling_param", "smooth_l1_loss_param", "split_param", "spatial_dropout_param", "engine",
            "multinode", "mn_activation_param", "mn_grad_compress_param", "quantization_param",
            "reorg_param", "region_loss_param", "eval_detection_param"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "name", "type", "bottom", "top", "phase", "loss_weight", "param", "blobs", "propagate_down",
            "include", "exclude", "transform_param", "loss_param", "accuracy_param", "argmax_param",
            "batch_norm_param", "bias_param", "clip_param", "concat_param", "contrastive_loss_param",
            "convolution_param", "crop_param", "data_param", "dropout_param", "dummy_data_param",
            "eltwise_param", "elu_param", "embed_param", "exp_param", "flatten_param", "hdf5_data_param",
            "hdf5_output_param", "hinge_loss_param", "image_data_param", "infogain_loss_param",
            "inner_product_param", "input_param", "log_param", "lrn_param", "memory_data_param",
            "mvn_param", "parameter_param", "pooling_param", "power_param", "prelu_param", "python_param",
            "recurrent_param", "reduction_param", "relu_param", "reshape_param", "scale_param",
            "sigmoid_param", "softmax_param", "spp_param", "slice_param", "swish_param", "tanh_param",
            "threshold_param", "tile_param", "window_data_param", "interp_param", "bn_param",
            "shuffle_channel_param", "relu6_param", "annotated_data_param", "detection_evaluate_param",
            "detection_output_param", "multibox_loss_param", "norm_param", "permute_param",
            "prior_box_param", "video_data_param", "forward_type", "backward_type", "forward_math",
            "backward_math", "debug", "cudnn_math_override", "trt_param", "detectnet_groundtruth_param",
            "detectnet_augmentation_param", "box_annotator_ohem_param", "psroi_pooling_param",
            "roi_pooling_param", "smooth_l1_loss_param", "split_param", "spatial_dropout_param", "engine",
            "multinode", "mn_activation_param", "mn_grad_compress_param", "quantization_param",
            "reorg_param", "region_loss_param", "eval_detection_param"
        ],
    ) -> None: ...

class TransformationParameter(Message):
    class InterpolationAlgo(_Enum):
        INTER_NEAREST: ClassVar[TransformationParameter.InterpolationAlgo]
        INTER_LINEAR: ClassVar[TransformationParameter.InterpolationAlgo]
        INTER_CUBIC: ClassVar[TransformationParameter.InterpolationAlgo]
        INTER_AREA: ClassVar[TransformationParameter.InterpolationAlgo]

    INTER_NEAREST: ClassVar[TransformationParameter.InterpolationAlgo]
    INTER_LINEAR: ClassVar[TransformationParameter.InterpolationAlgo]
    INTER_CUBIC: ClassVar[TransformationParameter.InterpolationAlgo]
    INTER_AREA: ClassVar[TransformationParameter.InterpolationAlgo]

    scale: float
    """Default: 1."""
    mirror: bool
    """Default: false."""
    crop_size: int
    """Default: 0."""
    mean_file: str
    @property
    def mean_value(self) -> RepeatedScalarFieldContainer[float]: ...
    force_color: bool
    """Default: false."""
    force_gray: bool
    """Default: false."""
    crop_h: int
    """Default: 0. A field of the SSD fork."""
    crop_w: int
    """Default: 0. A field of the SSD fork."""
    @property
    def resize_param(self) -> ResizeParameter:
        """A field of the SSD fork."""
    @property
    def noise_param(self) -> NoiseParameter:
        """A field of the SSD fork."""
    @property
    def distort_param(self) -> DistortionParameter:
        """A field of the SSD fork."""
    @property
    def expand_param(self) -> ExpansionParameter:
        """A field of the SSD fork."""
    @property
    def emit_constraint(self) -> EmitConstraint:
        """A field of the SSD fork."""
    img_rand_resize_lower: int
    """Default: 0. A field of NVIDIA's fork."""
    img_rand_resize_upper: int
    """Default: 0. A field of NVIDIA's fork."""
    rand_resize_ratio_lower: float
    """Default: 0. A field of NVIDIA's fork."""
    rand_resize_ratio_upper: float
    """Default: 0. A field of NVIDIA's fork."""
    vertical_stretch_lower: float
    """Default: 1. A field of NVIDIA's fork."""
    vertical_stretch_upper: float
    """Default: 1. A field of NVIDIA's fork."""
    horizontal_stretch_lower: float
    """Default: 1. A field of NVIDIA's fork."""
    horizontal_stretch_upper: float
    """Default: 1. A field of NVIDIA's fork."""
    interpolation_algo_down: TransformationParameter.InterpolationAlgo
    """Default: INTER_NEAREST. A field of NVIDIA's fork."""
    interpolation_algo_up: TransformationParameter.InterpolationAlgo
    """Default: INTER_CUBIC. A field of NVIDIA's fork."""
    allow_upscale: bool
    """Default: false. A field of NVIDIA's fork."""
    forward_packing: Packing
    """Default: NCHW. A field of NVIDIA's fork."""
    use_gpu_transform: bool
    """Default: false. A field of NVIDIA's fork."""
    random_seed: int
    """Default: -1. A field of NVIDIA's fork."""
    display: bool
    """Default: false. A field of NVIDIA's fork."""
    num_labels: int
    """Default: 0. A field of NVIDIA's fork."""
    @property
    def random_resize_param(self) -> RandomResizeParameter:
        """A field of Intel's fork."""
    @property
    def random_aspect_ratio_param(self) -> RandomAspectRatioParameter:
        """A field of Intel's fork."""
    flow: bool
    """Default: false. A field of Intel's fork."""
    bgr2rgb: bool
    """Default: false. A field of Intel's fork."""
    pad: int
    """Default: 0. A field of Intel's fork."""
    def __init__(
        self,
        *,
        scale: float | None = None,
        mirror: bool | None = None,
        crop_size: int | None = None,
        mean_file: str | None = None,
        mean_value: Iterable[float] | None = None,
        force_color: bool | None = None,
        force_gray: bool | None = None,
        crop_h: int | None = None,
        crop_w: int | None = None,
        resize_param: ResizeParameter | Mapping[str, Any] | None = None,
        noise_param: NoiseParameter | Mapping[str, Any] | None = None,
        distort_param: DistortionParameter | Mapping[str, Any] | None = None,
        expand_param: ExpansionParameter | Mapping[str, Any] | None = None,
        emit_constraint: EmitConstraint | Mapping[str, Any] | None = None,
        img_rand_resize_lower: int | None = None,
        img_rand_resize_upper: int | None = None,
        rand_resize_ratio_lower: float | None = None,
        rand_resize_ratio_upper: float | None = None,
        vertical_stretch_lower: float | None = None,
        vertical_stretch_upper: float | None = None,
        horizontal_stretch_lower: float | None = None,
        horizontal_stretch_upper: float | None = None,
        interpolation_algo_down: TransformationParameter.InterpolationAlgo | str | None = None,
        interpolation_algo_up: TransformationParameter.InterpolationAlgo | str | None = None,
        allow_upscale: bool | None = None,
        forward_packing: Packing | str | None = None,
        use_gpu_transform: bool | None = None,
        random_seed: int | None = None,
        display: bool | None = None,
        num_labels: int | None = None,
        random_resize_param: RandomResizeParameter | Mapping[str, Any] | None = None,
        random_aspect_ratio_param: RandomAspectRatioParameter | Mapping[str, Any] | None = None,
        flow: bool | None = None,
        bgr2rgb: bool | None = None,
        pad: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "scale", "mirror", "crop_size", "mean_file", "force_color", "force_gray", "crop_h", "crop_w",
            "resize_param", "noise_param", "distort_param", "expand_param", "emit_constraint",
            "img_rand_resize_lower", "img_rand_resize_upper", "rand_resize_ratio_lower",
            "rand_resize_ratio_upper", "vertical_stretch_lower", "vertical_stretch_upper",
            "horizontal_stretch_lower", "horizontal_stretch_upper", "interpolation_algo_down",
            "interpolation_algo_up", "allow_upscale", "forward_packing", "use_gpu_transform", "random_seed",
            "display", "num_labels", "random_resize_param", "random_aspect_ratio_param", "flow", "bgr2rgb",
            "pad"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "scale", "mirror", "crop_size", "mean_file", "mean_value", "force_color", "force_gray",
            "crop_h", "crop_w", "resize_param", "noise_param", "distort_param", "expand_param",
            "emit_constraint", "img_rand_resize_lower", "img_rand_resize_upper", "rand_resize_ratio_lower",
            "rand_resize_ratio_upper", "vertical_stretch_lower", "vertical_stretch_upper",
            "horizontal_stretch_lower", "horizontal_stretch_upper", "interpolation_algo_down",
            "interpolation_algo_up", "allow_upscale", "forward_packing", "use_gpu_transform", "random_seed",
            "display", "num_labels", "random_resize_param", "random_aspect_ratio_param", "flow", "bgr2rgb",
            "pad"
        ],
    ) -> None: ...

class LossParameter(Message):
    class NormalizationMode(_Enum):
        FULL: ClassVar[LossParameter.NormalizationMode]
        VALID: ClassVar[LossParameter.NormalizationMode]
        BATCH_SIZE: ClassVar[LossParameter.NormalizationMode]
        NONE: ClassVar[LossParameter.NormalizationMode]
        PRE_FIXED: ClassVar[LossParameter.NormalizationMode]

    FULL: ClassVar[LossParameter.NormalizationMode]
    VALID: ClassVar[LossParameter.NormalizationMode]
    BATCH_SIZE: ClassVar[LossParameter.NormalizationMode]
    NONE: ClassVar[LossParameter.NormalizationMode]
    PRE_FIXED: ClassVar[LossParameter.NormalizationMode]

    ignore_label: int
    normalization: LossParameter.NormalizationMode
    """Default: VALID."""
    normalize: bool
    label_smoothing: float
    """Default: 0. A field of NVIDIA's fork."""
    pre_fixed_normalizer: float
    """Default: 1. A field of Intel's fork."""
    def __init__(
        self,
        *,
        ignore_label: int | None = None,
        normalization: LossParameter.NormalizationMode | str | None = None,
        normalize: bool | None = None,
        label_smoothing: float | None = None,
        pre_fixed_normalizer: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "ignore_label", "normalization", "normalize", "label_smoothing", "pre_fixed_normalizer"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "ignore_label", "normalization", "normalize", "label_smoothing", "pre_fixed_normalizer"
        ],
    ) -> None: ...

class AccuracyParameter(Message):
    top_k: int
    """Default: 1."""
    axis: int
    """Default: 1."""
    ignore_label: int
    def __init__(
        self,
        *,
        top_k: int | None = None,
        axis: int | None = None,
        ignore_label: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "top_k", "axis", "ignore_label"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "top_k", "axis", "ignore_label"
        ],
    ) -> None: ...

class ArgMaxParameter(Message):
    out_max_val: bool
    """Default: false."""
    top_k: int
    """Default: 1."""
    axis: int
    def __init__(
        self,
        *,
        out_max_val: bool | None = None,
        top_k: int | None = None,
        axis: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "out_max_val", "top_k", "axis"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "out_max_val", "top_k", "axis"
        ],
    ) -> None: ...

class ClipParameter(Message):
    min: float
    """Required."""
    max: float
    """Required."""
    def __init__(
        self,
        *,
        min: float | None = None,
        max: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "min", "max"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "min", "max"
        ],
    ) -> None: ...

class ConcatParameter(Message):
    class Engine(_Enum):
        DEFAULT: ClassVar[ConcatParameter.Engine]
        CAFFE: ClassVar[ConcatParameter.Engine]
        MKL2017: ClassVar[ConcatParameter.Engine]
        MKLDNN: ClassVar[ConcatParameter.Engine]

    DEFAULT: ClassVar[ConcatParameter.Engine]
    CAFFE: ClassVar[ConcatParameter.Engine]
    MKL2017: ClassVar[ConcatParameter.Engine]
    MKLDNN: ClassVar[ConcatParameter.Engine]

    axis: int
    """Default: 1."""
    concat_dim: int
    """Default: 1."""
    per_fla_fuse: bool
    """Default: false. A field of Intel's fork."""
    engine: ConcatParameter.Engine
    """Default: DEFAULT. A field of Intel's fork."""
    def __init__(
        self,
        *,
        axis: int | None = None,
        concat_dim: int | None = None,
        per_fla_fuse: bool | None = None,
        engine: ConcatParameter.Engine | str | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "axis", "concat_dim", "per_fla_fuse", "engine"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "axis", "concat_dim", "per_fla_fuse", "engine"
        ],
    ) -> None: ...

class BatchNormParameter(Message):
    class Engine(_Enum):
        DEFAULT: ClassVar[BatchNormParameter.Engine]
        CAFFE: ClassVar[BatchNormParameter.Engine]
        CUDNN: ClassVar[BatchNormParameter.Engine]
        MKL2017: ClassVar[BatchNormParameter.Engine]
        MKLDNN: ClassVar[BatchNormParameter.Engine]

    DEFAULT: ClassVar[BatchNormParameter.Engine]
    CAFFE: ClassVar[BatchNormParameter.Engine]
    CUDNN: ClassVar[BatchNormParameter.Engine]
    MKL2017: ClassVar[BatchNormParameter.Engine]
    MKLDNN: ClassVar[BatchNormParameter.Engine]

    use_global_stats: bool
    moving_average_fraction: float
    """Default: 0.999."""
    eps: float
    """Default: 1e-05."""
    @property
    def scale_filler(self) -> FillerParameter:
        """A field of NVIDIA's fork."""
    @property
    def bias_filler(self) -> FillerParameter:
        """A field of NVIDIA's fork."""
    scale_bias: bool
    """Default: false. A field of NVIDIA's fork."""
    engine: BatchNormParameter.Engine
    """Default: DEFAULT. A field of NVIDIA's fork."""
    use_weight_bias: bool
    """Default: true. A field of Intel's fork."""
    bias_term: bool
    """Default: true. A field of Intel's fork."""
    @property
    def filler(self) -> FillerParameter:
        """A field of Intel's fork."""
    stats_batch_size: int
    """Default: 0. A field of Intel's fork."""
    relu: bool
    """Default: false. A field of Intel's fork."""
    def __init__(
        self,
        *,
        use_global_stats: bool | None = None,
        moving_average_fraction: float | None = None,
        eps: float | None = None,
        scale_filler: FillerParameter | Mapping[str, Any] | None = None,
        bias_filler: FillerParameter | Mapping[str, Any] | None = None,
        scale_bias: bool | None = None,
        engine: BatchNormParameter.Engine | str | None = None,
        use_weight_bias: bool | None = None,
        bias_term: bool | None = None,
        filler: FillerParameter | Mapping[str, Any] | None = None,
        stats_batch_size: int | None = None,
        relu: bool | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "use_global_stats", "moving_average_fraction", "eps", "scale_filler", "bias_filler",
            "scale_bias", "engine", "use_weight_bias", "bias_term", "filler", "stats_batch_size", "relu"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "use_global_stats", "moving_average_fraction", "eps", "scale_filler", "bias_filler",
            "scale_bias", "engine", "use_weight_bias", "bias_term", "filler", "stats_batch_size", "relu"
        ],
    ) -> None: ...

class BiasParameter(Message):
    axis: int
    """Default: 1."""
    num_axes: int
    """Default: 1."""
    @property
    def filler(self) -> FillerParameter: ...
    def __init__(
        self,
        *,
        axis: int | None = None,
        num_axes: int | None = None,
        filler: FillerParameter | Mapping[str, Any] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "axis", "num_axes", "filler"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "axis", "num_axes", "filler"
        ],
    ) -> None: ...

class ContrastiveLossParameter(Message):
    margin: float
    """Default: 1."""
    legacy_version: bool
    """Default: false."""
    def __init__(
        self,
        *,
        margin: float | None = None,
        legacy_version: bool | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "margin", "legacy_version"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "margin", "legacy_version"
        ],
    ) -> None: ...

class ConvolutionParameter(Message):
    class Engine(_Enum):
        DEFAULT: ClassVar[ConvolutionParameter.Engine]
        CAFFE: ClassVar[ConvolutionParameter.Engine]
        CUDNN: ClassVar[ConvolutionParameter.Engine]
        MKL2017: ClassVar[ConvolutionParameter.Engine]
        MKLDNN: ClassVar[ConvolutionParameter.Engine]

    DEFAULT: ClassVar[ConvolutionParameter.Engine]
    CAFFE: ClassVar[ConvolutionParameter.Engine]
    CUDNN: ClassVar[ConvolutionParameter.Engine]
    MKL2017: ClassVar[ConvolutionParameter.Engine]
    MKLDNN: ClassVar[ConvolutionParameter.Engine]

    class CuDNNConvolutionAlgorithmSeeker(_Enum):
        GET: ClassVar[ConvolutionParameter.CuDNNConvolutionAlgorithmSeeker]
        FINDEX: ClassVar[ConvolutionParameter.CuDNNConvolutionAlgorithmSeeker]

    GET: ClassVar[ConvolutionParameter.CuDNNConvolutionAlgorithmSeeker]
    FINDEX: ClassVar[ConvolutionParameter.CuDNNConvolutionAlgorithmSeeker]

    class FusionType(_Enum):
        NONE_FUSION: ClassVar[ConvolutionParameter.FusionType]
        SUM_FUSION: ClassVar[ConvolutionParameter.FusionType]

    NONE_FUSION: ClassVar[ConvolutionParameter.FusionType]
    SUM_FUSION: ClassVar[ConvolutionParameter.FusionType]

    num_output: int
    bias_term: bool
    """Default: true."""
    @property
    def pad(self) -> RepeatedScalarFieldContainer[int]: ...
    @property
    def kernel_size(self) -> RepeatedScalarFieldContainer[int]: ...
    @property
    def stride(self) -> RepeatedScalarFieldContainer[int]: ...
    @property
    def dilation(self) -> RepeatedScalarFieldContainer[int]: ...
    pad_h: int
    """Default: 0."""
    pad_w: int
    """Default: 0."""
    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    group: int
    """Default: 1."""
    @property
    def weight_filler(self) -> FillerParameter: ...
    @property
    def bias_filler(self) -> FillerParameter: ...
    engine: ConvolutionParameter.Engine
    """Default: DEFAULT."""
    axis: int
    """Default: 1."""
    force_nd_im2col: bool
    """Default: false."""
    cudnn_convolution_algo_seeker: ConvolutionParameter.CuDNNConvolutionAlgorithmSeeker
    """Default: FINDEX. A field of NVIDIA's fork."""
    conv_algos_override: str
    """Default: '-1,-1,-1'. A field of NVIDIA's fork."""
    relu: bool
    """Default: false. A field of Intel's fork."""
    negative_slope: float
    """Default: 0. A field of Intel's fork."""
    conv_algorithm: str
    """Default: 'direct'. A field of Intel's fork."""
    @property
    def coeff(self) -> RepeatedScalarFieldContainer[float]:
        """A field of Intel's fork."""
    fusion_type: ConvolutionParameter.FusionType
    """Default: NONE_FUSION. A field of Intel's fork."""
    def __init__(
        self,
        *,
        num_output: int | None = None,
        bias_term: bool | None = None,
        pad: Iterable[int] | None = None,
        kernel_size: Iterable[int] | None = None,
        stride: Iterable[int] | None = None,
        dilation: Iterable[int] | None = None,
        pad_h: int | None = None,
        pad_w: int | None = None,
        kernel_h: int | None = None,
        kernel_w: int | None = None,
        stride_h: int | None = None,
        stride_w: int | None = None,
        group: int | None = None,
        weight_filler: FillerParameter | Mapping[str, Any] | None = None,
        bias_filler: FillerParameter | Mapping[str, Any] | None = None,
        engine: ConvolutionParameter.Engine | str | None = None,
        axis: int | None = None,
        force_nd_im2col: bool | None = None,
        cudnn_convolution_algo_seeker: ConvolutionParameter.CuDNNConvolutionAlgorithmSeeker | str | None = None,
        conv_algos_override: str | None = None,
        relu: bool | None = None,
        negative_slope: float | None = None,
        conv_algorithm: str | None = None,
        coeff: Iterable[float] | None = None,
        fusion_type: ConvolutionParameter.FusionType | str | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "num_output", "bias_term", "pad_h", "pad_w", "kernel_h", "kernel_w", "stride_h", "stride_w",
            "group", "weight_filler", "bias_filler", "engine", "axis", "force_nd_im2col",
            "cudnn_convolution_algo_seeker", "conv_algos_override", "relu", "negative_slope",
            "conv_algorithm", "fusion_type"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "num_output", "bias_term", "pad", "kernel_size", "stride", "dilation", "pad_h", "pad_w",
            "kernel_h", "kernel_w", "stride_h", "stride_w", "group", "weight_filler", "bias_filler",
            "engine", "axis", "force_nd_im2col", "cudnn_convolution_algo_seeker", "conv_algos_override",
            "relu", "negative_slope", "conv_algorithm", "coeff", "fusion_type"
        ],
    ) -> None: ...

class CropParameter(Message):
    axis: int
    """Default: 2."""
    @property
    def offset(self) -> RepeatedScalarFieldContainer[int]: ...
    def __init__(
        self,
        *,
        axis: int | None = None,
        offset: Iterable[int] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "axis"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "axis", "offset"
        ],
    ) -> None: ...

class DataParameter(Message):
    class DB(_Enum):
        LEVELDB: ClassVar[DataParameter.DB]
        LMDB: ClassVar[DataParameter.DB]

    LEVELDB: ClassVar[DataParameter.DB]
    LMDB: ClassVar[DataParameter.DB]

    class BadRecord(_Enum):
        STOP: ClassVar[DataParameter.BadRecord]
        SKIP: ClassVar[DataParameter.BadRecord]

    STOP: ClassVar[DataParameter.BadRecord]
    SKIP: ClassVar[DataParameter.BadRecord]

    source: str
    batch_size: int
    rand_skip: int
    """Default: 0."""
    backend: DataParameter.DB
    """Default: LEVELDB."""
    scale: float
    """Default: 1."""
    mean_file: str
    crop_size: int
    """Default: 0."""
    mirror: bool
    """Default: false."""
    force_encoded_color: bool
    """Default: false."""
    prefetch: int
    """Default: 4."""
    bad_record: DataParameter.BadRecord
    """Default: STOP. A field of mgcaffe."""
    bad_record_limit: int
    """Default: 100. A field of mgcaffe."""
    threads: int
    """Default: 0. A field of NVIDIA's fork."""
    parser_threads: int
    """Default: 0. A field of NVIDIA's fork."""
    cache: bool
    """Default: false. A field of NVIDIA's fork."""
    shuffle: bool
    """Default: false. A field of NVIDIA's fork."""
    precache: bool
    """Default: false. A field of NVIDIA's fork."""
    @property
    def side(self) -> RepeatedScalarFieldContainer[int]:
        """A field of Intel's fork."""
    def __init__(
        self,
        *,
        source: str | None = None,
        batch_size: int | None = None,
        rand_skip: int | None = None,
        backend: DataParameter.DB | str | None = None,
        scale: float | None = None,
        mean_file: str | None = None,
        crop_size: int | None = None,
        mirror: bool | None = None,
        force_encoded_color: bool | None = None,
        prefetch: int | None = None,
        bad_record: DataParameter.BadRecord | str | None = None,
        bad_record_limit: int | None = None,
        threads: int | None = None,
        parser_threads: int | None = None,
        cache: bool | None = None,
        shuffle: bool | None = None,
        precache: bool | None = None,
        side: Iterable[int] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "source", "batch_size", "rand_skip", "backend", "scale", "mean_file", "crop_size", "mirror",
            "force_encoded_color", "prefetch", "bad_record", "bad_record_limit", "threads",
            "parser_threads", "cache", "shuffle", "precache"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "source", "batch_size", "rand_skip", "backend", "scale", "mean_file", "crop_size", "mirror",
            "force_encoded_color", "prefetch", "bad_record", "bad_record_limit", "threads",
            "parser_threads", "cache", "shuffle", "precache", "side"
        ],
    ) -> None: ...

class DropoutParameter(Message):
    class Engine(_Enum):
        DEFAULT: ClassVar[DropoutParameter.Engine]
        CAFFE: ClassVar[DropoutParameter.Engine]
        CUDNN: ClassVar[DropoutParameter.Engine]

    DEFAULT: ClassVar[DropoutParameter.Engine]
    CAFFE: ClassVar[DropoutParameter.Engine]
    CUDNN: ClassVar[DropoutParameter.Engine]

    dropout_ratio: float
    """Default: 0.5."""
    engine: DropoutParameter.Engine
    """Default: DEFAULT. A field of NVIDIA's fork."""
    random_seed: int
    """Default: -1. A field of NVIDIA's fork."""
    def __init__(
        self,
        *,
        dropout_ratio: float | None = None,
        engine: DropoutParameter.Engine | str | None = None,
        random_seed: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "dropout_ratio", "engine", "random_seed"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "dropout_ratio", "engine", "random_seed"
        ],
    ) -> None: ...

class DummyDataParameter(Message):
    @property
    def data_filler(self) -> RepeatedCompositeFieldContainer[FillerParameter]: ...
    @property
    def shape(self) -> RepeatedCompositeFieldContainer[BlobShape]: ...
    @property
    def num(self) -> RepeatedScalarFieldContainer[int]: ...
    @property
    def channels(self) -> RepeatedScalarFieldContainer[int]: ...
    @property
    def height(self) -> RepeatedScalarFieldContainer[int]: ...
    @property
    def width(self) -> RepeatedScalarFieldContainer[int]: ...
    def __init__(
        self,
        *,
        data_filler: Iterable[FillerParameter | Mapping[str, Any]] | None = None,
        shape: Iterable[BlobShape | Mapping[str, Any]] | None = None,
        num: Iterable[int] | None = None,
        channels: Iterable[int] | None = None,
        height: Iterable[int] | None = None,
        width: Iterable[int] | None = None,
    ) -> None: ...
    def HasField(self, field_name: Never) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "data_filler", "shape", "num", "channels", "height", "width"
        ],
    ) -> None: ...

class EltwiseParameter(Message):
    class EltwiseOp(_Enum):
        PROD: ClassVar[EltwiseParameter.EltwiseOp]
        SUM: ClassVar[EltwiseParameter.EltwiseOp]
        MAX: ClassVar[EltwiseParameter.EltwiseOp]

    PROD: ClassVar[EltwiseParameter.EltwiseOp]
    SUM: ClassVar[EltwiseParameter.EltwiseOp]
    MAX: ClassVar[EltwiseParameter.EltwiseOp]

    class Engine(_Enum):
        DEFAULT: ClassVar[EltwiseParameter.Engine]
        CAFFE: ClassVar[EltwiseParameter.Engine]
        MKL2017: ClassVar[EltwiseParameter.Engine]
        MKLDNN: ClassVar[EltwiseParameter.Engine]

    DEFAULT: ClassVar[EltwiseParameter.Engine]
    CAFFE: ClassVar[EltwiseParameter.Engine]
    MKL2017: ClassVar[EltwiseParameter.Engine]
    MKLDNN: ClassVar[EltwiseParameter.Engine]

    operation: EltwiseParameter.EltwiseOp
    """Default: SUM."""
    @property
    def coeff(self) -> RepeatedScalarFieldContainer[float]: ...
    stable_prod_grad: bool
    """Default: true."""
    engine: EltwiseParameter.Engine
    """Default: DEFAULT. A field of Intel's fork."""
    def __init__(
        self,
        *,
        operation: EltwiseParameter.EltwiseOp | str | None = None,
        coeff: Iterable[float] | None = None,
        stable_prod_grad: bool | None = None,
        engine: EltwiseParameter.Engine | str | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "operation", "stable_prod_grad", "engine"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "operation", "coeff", "stable_prod_grad", "engine"
        ],
    ) -> None: ...

class ELUParameter(Message):
    alpha: float
    """Default: 1."""
    def __init__(
        self,
        *,
        alpha: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "alpha", "lambda"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "alpha", "lambda"
        ],
    ) -> None: ...

class EmbedParameter(Message):
    num_output: int
    input_dim: int
    bias_term: bool
    """Default: true."""
    @property
    def weight_filler(self) -> FillerParameter: ...
    @property
    def bias_filler(self) -> FillerParameter: ...
    def __init__(
        self,
        *,
        num_output: int | None = None,
        input_dim: int | None = None,
        bias_term: bool | None = None,
        weight_filler: FillerParameter | Mapping[str, Any] | None = None,
        bias_filler: FillerParameter | Mapping[str, Any] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "num_output", "input_dim", "bias_term", "weight_filler", "bias_filler"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "num_output", "input_dim", "bias_term", "weight_filler", "bias_filler"
        ],
    ) -> None: ...

class ExpParameter(Message):
    base: float
    """Default: -1."""
    scale: float
    """Default: 1."""
    shift: float
    """Default: 0."""
    def __init__(
        self,
        *,
        base: float | None = None,
        scale: float | None = None,
        shift: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "base", "scale", "shift"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "base", "scale", "shift"
        ],
    ) -> None: ...

class FlattenParameter(Message):
    axis: int
    """Default: 1."""
    end_axis: int
    """Default: -1."""
    def __init__(
        self,
        *,
        axis: int | None = None,
        end_axis: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "axis", "end_axis"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "axis", "end_axis"
        ],
    ) -> None: ...

class HDF5DataParameter(Message):
    source: str
    batch_size: int
    shuffle: bool
    """Default: false."""
    def __init__(
        self,
        *,
        source: str | None = None,
        batch_size: int | None = None,
        shuffle: bool | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "source", "batch_size", "shuffle"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "source", "batch_size", "shuffle"
        ],
    ) -> None: ...

class HDF5OutputParameter(Message):
    file_name: str
    def __init__(
        self,
        *,
        file_name: str | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "file_name"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "file_name"
        ],
    ) -> None: ...

class HingeLossParameter(Message):
    class Norm(_Enum):
        L1: ClassVar[HingeLossParameter.Norm]
        L2: ClassVar[HingeLossParameter.Norm]

    L1: ClassVar[HingeLossParameter.Norm]
    L2: ClassVar[HingeLossParameter.Norm]

    norm: HingeLossParameter.Norm
    """Default: L1."""
    def __init__(
        self,
        *,
        norm: HingeLossParameter.Norm | str | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "norm"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "norm"
        ],
    ) -> None: ...

class ImageDataParameter(Message):
    source: str
    batch_size: int
    """Default: 1."""
    rand_skip: int
    """Default: 0."""
    shuffle: bool
    """Default: false."""
    new_height: int
    """Default: 0."""
    new_width: int
    """Default: 0."""
    is_color: bool
    """Default: true."""
    scale: float
    """Default: 1."""
    mean_file: str
    crop_size: int
    """Default: 0."""
    mirror: bool
    """Default: false."""
    root_folder: str
    short_side: int
    """Default: 0. A field of NVIDIA's fork."""
    threads: int
    """Default: 4. A field of NVIDIA's fork."""
    cache: bool
    """Default: false. A field of NVIDIA's fork."""
    precache: bool
    """Default: false. A field of NVIDIA's fork."""
    dataset_share_per_node: float
    """Default: 1. A field of NVIDIA's fork."""
    min_height: int
    """Default: 0. A field of Intel's fork."""
    min_width: int
    """Default: 0. A field of Intel's fork."""
    def __init__(
        self,
        *,
        source: str | None = None,
        batch_size: int | None = None,
        rand_skip: int | None = None,
        shuffle: bool | None = None,
        new_height: int | None = None,
        new_width: int | None = None,
        is_color: bool | None = None,
        scale: float | None = None,
        mean_file: str | None = None,
        crop_size: int | None = None,
        mirror: bool | None = None,
        root_folder: str | None = None,
        short_side: int | None = None,
        threads: int | None = None,
        cache: bool | None = None,
        precache: bool | None = None,
        dataset_share_per_node: float | None = None,
        min_height: int | None = None,
        min_width: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "source", "batch_size", "rand_skip", "shuffle", "new_height", "new_width", "is_color", "scale",
            "mean_file", "crop_size", "mirror", "root_folder", "short_side", "threads", "cache", "precache",
            "dataset_share_per_node", "min_height", "min_width"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "source", "batch_size", "rand_skip", "shuffle", "new_height", "new_width", "is_color", "scale",
            "mean_file", "crop_size", "mirror", "root_folder", "short_side", "threads", "cache", "precache",
            "dataset_share_per_node", "min_height", "min_width"
        ],
    ) -> None: ...

class InfogainLossParameter(Message):
    source: str
    axis: int
    """Default: 1."""
    def __init__(
        self,
        *,
        source: str | None = None,
        axis: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "source", "axis"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "source", "axis"
        ],
    ) -> None: ...

class InnerProductParameter(Message):
    class Engine(_Enum):
        DEFAULT: ClassVar[InnerProductParameter.Engine]
        CAFFE: ClassVar[InnerProductParameter.Engine]
        CUDNN: ClassVar[InnerProductParameter.Engine]
        MKLDNN: ClassVar[InnerProductParameter.Engine]

    DEFAULT: ClassVar[InnerProductParameter.Engine]
    CAFFE: ClassVar[InnerProductParameter.Engine]
    CUDNN: ClassVar[InnerProductParameter.Engine]
    MKLDNN: ClassVar[InnerProductParameter.Engine]

    num_output: int
    bias_term: bool
    """Default: true."""
    @property
    def weight_filler(self) -> FillerParameter: ...
    @property
    def bias_filler(self) -> FillerParameter: ...
    axis: int
    """Default: 1."""
    transpose: bool
    """Default: false."""
    engine: InnerProductParameter.Engine
    """Default: DEFAULT. A field of Intel's fork."""
    relu: bool
    """Default: false. A field of Intel's fork."""
    negative_slope: float
    """Default: 0. A field of Intel's fork."""
    def __init__(
        self,
        *,
        num_output: int | None = None,
        bias_term: bool | None = None,
        weight_filler: FillerParameter | Mapping[str, Any] | None = None,
        bias_filler: FillerParameter | Mapping[str, Any] | None = None,
        axis: int | None = None,
        transpose: bool | None = None,
        engine: InnerProductParameter.Engine | str | None = None,
        relu: bool | None = None,
        negative_slope: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "num_output", "bias_term", "weight_filler", "bias_filler", "axis", "transpose", "engine",
            "relu", "negative_slope"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "num_output", "bias_term", "weight_filler", "bias_filler", "axis", "transpose", "engine",
            "relu", "negative_slope"
        ],
    ) -> None: ...

class InputParameter(Message):
    @property
    def shape(self) -> RepeatedCompositeFieldContainer[BlobShape]: ...
    def __init__(
        self,
        *,
        shape: Iterable[BlobShape | Mapping[str, Any]] | None = None,
    ) -> None: ...
    def HasField(self, field_name: Never) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "shape"
        ],
    ) -> None: ...

class LogParameter(Message):
    base: float
    """Default: -1."""
    scale: float
    """Default: 1."""
    shift: float
    """Default: 0."""
    def __init__(
        self,
        *,
        base: float | None = None,
        scale: float | None = None,
        shift: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "base", "scale", "shift"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "base", "scale", "shift"
        ],
    ) -> None: ...

class LRNParameter(Message):
    class NormRegion(_Enum):
        ACROSS_CHANNELS: ClassVar[LRNParameter.NormRegion]
        WITHIN_CHANNEL: ClassVar[LRNParameter.NormRegion]

    ACROSS_CHANNELS: ClassVar[LRNParameter.NormRegion]
    WITHIN_CHANNEL: ClassVar[LRNParameter.NormRegion]

    class Engine(_Enum):
        DEFAULT: ClassVar[LRNParameter.Engine]
        CAFFE: ClassVar[LRNParameter.Engine]
        CUDNN: ClassVar[LRNParameter.Engine]
        MKL2017: ClassVar[LRNParameter.Engine]
        MKLDNN: ClassVar[LRNParameter.Engine]

    DEFAULT: ClassVar[LRNParameter.Engine]
    CAFFE: ClassVar[LRNParameter.Engine]
    CUDNN: ClassVar[LRNParameter.Engine]
    MKL2017: ClassVar[LRNParameter.Engine]
    MKLDNN: ClassVar[LRNParameter.Engine]

    local_size: int
    """Default: 5."""
    alpha: float
    """Default: 1."""
    beta: float
    """Default: 0.75."""
    norm_region: LRNParameter.NormRegion
    """Default: ACROSS_CHANNELS."""
    k: float
    """Default: 1."""
    engine: LRNParameter.Engine
    """Default: DEFAULT."""
    def __init__(
        self,
        *,
        local_size: int | None = None,
        alpha: float | None = None,
        beta: float | None = None,
        norm_region: LRNParameter.NormRegion | str | None = None,
        k: float | None = None,
        engine: LRNParameter.Engine | str | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "local_size", "alpha", "beta", "norm_region", "k", "engine"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "local_size", "alpha", "beta", "norm_region", "k", "engine"
        ],
    ) -> None: ...

class MemoryDataParameter(Message):
    batch_size: int
    channels: int
    height: int
    width: int
    def __init__(
        self,
        *,
        batch_size: int | None = None,
        channels: int | None = None,
        height: int | None = None,
        width: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "batch_size", "channels", "height", "width"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "batch_size", "channels", "height", "width"
        ],
    ) -> None: ...

class MVNParameter(Message):
    normalize_variance: bool
    """Default: true."""
    across_channels: bool
    """Default: false."""
    eps: float
    """Default: 1e-09."""
    def __init__(
        self,
        *,
        normalize_variance: bool | None = None,
        across_channels: bool | None = None,
        eps: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "normalize_variance", "across_channels", "eps"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "normalize_variance", "across_channels", "eps"
        ],
    ) -> None: ...

class ParameterParameter(Message):
    @property
    def shape(self) -> BlobShape: ...
    def __init__(
        self,
        *,
        shape: BlobShape | Mapping[str, Any] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "shape"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "shape"
        ],
    ) -> None: ...

class PoolingParameter(Message):
    class PoolMethod(_Enum):
        MAX: ClassVar[PoolingParameter.PoolMethod]
        AVE: ClassVar[PoolingParameter.PoolMethod]
        STOCHASTIC: ClassVar[PoolingParameter.PoolMethod]

    MAX: ClassVar[PoolingParameter.PoolMethod]
    AVE: ClassVar[PoolingParameter.PoolMethod]
    STOCHASTIC: ClassVar[PoolingParameter.PoolMethod]

    class Engine(_Enum):
        DEFAULT: ClassVar[PoolingParameter.Engine]
        CAFFE: ClassVar[PoolingParameter.Engine]
        CUDNN: ClassVar[PoolingParameter.Engine]
        MKL2017: ClassVar[PoolingParameter.Engine]
        MKLDNN: ClassVar[PoolingParameter.Engine]

    DEFAULT: ClassVar[PoolingParameter.Engine]
    CAFFE: ClassVar[PoolingParameter.Engine]
    CUDNN: ClassVar[PoolingParameter.Engine]
    MKL2017: ClassVar[PoolingParameter.Engine]
    MKLDNN: ClassVar[PoolingParameter.Engine]

    class RoundMode(_Enum):
        CEIL: ClassVar[PoolingParameter.RoundMode]
        FLOOR: ClassVar[PoolingParameter.RoundMode]

    CEIL: ClassVar[PoolingParameter.RoundMode]
    FLOOR: ClassVar[PoolingParameter.RoundMode]

    pool: PoolingParameter.PoolMethod
    """Default: MAX."""
    pad: int
    """Default: 0."""
    pad_h: int
    """Default: 0."""
    pad_w: int
    """Default: 0."""
    kernel_size: int
    kernel_h: int
    kernel_w: int
    stride: int
    """Default: 1."""
    stride_h: int
    stride_w: int
    engine: PoolingParameter.Engine
    """Default: DEFAULT."""
    global_pooling: bool
    """Default: false."""
    round_mode: PoolingParameter.RoundMode
    """Default: CEIL."""
    ceil_mode: bool
    """Default: true. A field of mgcaffe."""
    torch_pooling: bool
    """Default: false. A field of NVIDIA's fork."""
    @property
    def pad_3d(self) -> RepeatedScalarFieldContainer[int]:
        """A field of Intel's fork."""
    @property
    def kernel_size_3d(self) -> RepeatedScalarFieldContainer[int]:
        """A field of Intel's fork."""
    @property
    def stride_3d(self) -> RepeatedScalarFieldContainer[int]:
        """A field of Intel's fork."""
    avg_include_pad: bool
    """Default: true. A field of Intel's fork."""
    axis: int
    """Default: 1. A field of Intel's fork."""
    def __init__(
        self,
        *,
        pool: PoolingParameter.PoolMethod | str | None = None,
        pad: int | None = None,
        pad_h: int | None = None,
        pad_w: int | None = None,
        kernel_size: int | None = None,
        kernel_h: int | None = None,
        kernel_w: int | None = None,
        stride: int | None = None,
        stride_h: int | None = None,
        stride_w: int | None = None,
        engine: PoolingParameter.Engine | str | None = None,
        global_pooling: bool | None = None,
        round_mode: PoolingParameter.RoundMode | str | None = None,
        ceil_mode: bool | None = None,
        torch_pooling: bool | None = None,
        pad_3d: Iterable[int] | None = None,
        kernel_size_3d: Iterable[int] | None = None,
        stride_3d: Iterable[int] | None = None,
        avg_include_pad: bool | None = None,
        axis: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "pool", "pad", "pad_h", "pad_w", "kernel_size", "kernel_h", "kernel_w", "stride", "stride_h",
            "stride_w", "engine", "global_pooling", "round_mode", "ceil_mode", "torch_pooling",
            "avg_include_pad", "axis"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "pool", "pad", "pad_h", "pad_w", "kernel_size", "kernel_h", "kernel_w", "stride", "stride_h",
            "stride_w", "engine", "global_pooling", "round_mode", "ceil_mode", "torch_pooling", "pad_3d",
            "kernel_size_3d", "stride_3d", "avg_include_pad", "axis"
        ],
    ) -> None: ...

class PowerParameter(Message):
    power: float
    """Default: 1."""
    scale: float
    """Default: 1."""
    shift: float
    """Default: 0."""
    def __init__(
        self,
        *,
        power: float | None = None,
        scale: float | None = None,
        shift: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "power", "scale", "shift"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "power", "scale", "shift"
        ],
    ) -> None: ...

class PythonParameter(Message):
    module: str
    layer: str
    param_str: str
    share_in_parallel: bool
    """Default: false."""
    def __init__(
        self,
        *,
        module: str | None = None,
        layer: str | None = None,
        param_str: str | None = None,
        share_in_parallel: bool | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "module", "layer", "param_str", "share_in_parallel"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "module", "layer", "param_str", "share_in_parallel"
        ],
    ) -> None: ...

class RecurrentParameter(Message):
    num_output: int
    """Default: 0."""
    @property
    def weight_filler(self) -> FillerParameter: ...
    @property
    def bias_filler(self) -> FillerParameter: ...
    debug_info: bool
    """Default: false."""
    expose_hidden: bool
    """Default: false."""
    def __init__(
        self,
        *,
        num_output: int | None = None,
        weight_filler: FillerParameter | Mapping[str, Any] | None = None,
        bias_filler: FillerParameter | Mapping[str, Any] | None = None,
        debug_info: bool | None = None,
        expose_hidden: bool | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "num_output", "weight_filler", "bias_filler", "debug_info", "expose_hidden"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "num_output", "weight_filler", "bias_filler", "debug_info", "expose_hidden"
        ],
    ) -> None: ...

class ReductionParameter(Message):
    class ReductionOp(_Enum):
        SUM: ClassVar[ReductionParameter.ReductionOp]
        ASUM: ClassVar[ReductionParameter.ReductionOp]
        SUMSQ: ClassVar[ReductionParameter.ReductionOp]
        MEAN: ClassVar[ReductionParameter.ReductionOp]

    SUM: ClassVar[ReductionParameter.ReductionOp]
    ASUM: ClassVar[ReductionParameter.ReductionOp]
    SUMSQ: ClassVar[ReductionParameter.ReductionOp]
    MEAN: ClassVar[ReductionParameter.ReductionOp]

    operation: ReductionParameter.ReductionOp
    """Default: SUM."""
    axis: int
    """Default: 0."""
    coeff: float
    """Default: 1."""
    def __init__(
        self,
        *,
        operation: ReductionParameter.ReductionOp | str | None = None,
        axis: int | None = None,
        coeff: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "operation", "axis", "coeff"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "operation", "axis", "coeff"
        ],
    ) -> None: ...

class ReLUParameter(Message):
    class Engine(_Enum):
        DEFAULT: ClassVar[ReLUParameter.Engine]
        CAFFE: ClassVar[ReLUParameter.Engine]
        CUDNN: ClassVar[ReLUParameter.Engine]
        MKL2017: ClassVar[ReLUParameter.Engine]
        MKLDNN: ClassVar[ReLUParameter.Engine]

    DEFAULT: ClassVar[ReLUParameter.Engine]
    CAFFE: ClassVar[ReLUParameter.Engine]
    CUDNN: ClassVar[ReLUParameter.Engine]
    MKL2017: ClassVar[ReLUParameter.Engine]
    MKLDNN: ClassVar[ReLUParameter.Engine]

    negative_slope: float
    """Default: 0."""
    engine: ReLUParameter.Engine
    """Default: DEFAULT."""
    fuse: bool
    """Default: false. A field of Intel's fork."""
    def __init__(
        self,
        *,
        negative_slope: float | None = None,
        engine: ReLUParameter.Engine | str | None = None,
        fuse: bool | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "negative_slope", "engine", "fuse"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "negative_slope", "engine", "fuse"
        ],
    ) -> None: ...

class ReshapeParameter(Message):
    @property
    def shape(self) -> BlobShape: ...
    axis: int
    """Default: 0."""
    num_axes: int
    """Default: -1."""
    pixelshuffler: int
    """Default: 1. A field of Intel's fork."""
    def __init__(
        self,
        *,
        shape: BlobShape | Mapping[str, Any] | None = None,
        axis: int | None = None,
        num_axes: int | None = None,
        pixelshuffler: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "shape", "axis", "num_axes", "pixelshuffler"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "shape", "axis", "num_axes", "pixelshuffler"
        ],
    ) -> None: ...

class ScaleParameter(Message):
    axis: int
    """Default: 1."""
    num_axes: int
    """Default: 1."""
    @property
    def filler(self) -> FillerParameter: ...
    bias_term: bool
    """Default: false."""
    @property
    def bias_filler(self) -> FillerParameter: ...
    def __init__(
        self,
        *,
        axis: int | None = None,
        num_axes: int | None = None,
        filler: FillerParameter | Mapping[str, Any] | None = None,
        bias_term: bool | None = None,
        bias_filler: FillerParameter | Mapping[str, Any] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "axis", "num_axes", "filler", "bias_term", "bias_filler"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "axis", "num_axes", "filler", "bias_term", "bias_filler"
        ],
    ) -> None: ...

class SigmoidParameter(Message):
    class Engine(_Enum):
        DEFAULT: ClassVar[SigmoidParameter.Engine]
        CAFFE: ClassVar[SigmoidParameter.Engine]
        CUDNN: ClassVar[SigmoidParameter.Engine]

    DEFAULT: ClassVar[SigmoidParameter.Engine]
    CAFFE: ClassVar[SigmoidParameter.Engine]
    CUDNN: ClassVar[SigmoidParameter.Engine]

    engine: SigmoidParameter.Engine
    """Default: DEFAULT."""
    def __init__(
        self,
        *,
        engine: SigmoidParameter.Engine | str | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "engine"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "engine"
        ],
    ) -> None: ...

class SliceParameter(Message):
    axis: int
    """Default: 1."""
    @property
    def slice_point(self) -> RepeatedScalarFieldContainer[int]: ...
    slice_dim: int
    """Default: 1."""
    def __init__(
        self,
        *,
        axis: int | None = None,
        slice_point: Iterable[int] | None = None,
        slice_dim: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "axis", "slice_dim"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "axis", "slice_point", "slice_dim"
        ],
    ) -> None: ...

class SoftmaxParameter(Message):
    class Engine(_Enum):
        DEFAULT: ClassVar[SoftmaxParameter.Engine]
        CAFFE: ClassVar[SoftmaxParameter.Engine]
        CUDNN: ClassVar[SoftmaxParameter.Engine]

    DEFAULT: ClassVar[SoftmaxParameter.Engine]
    CAFFE: ClassVar[SoftmaxParameter.Engine]
    CUDNN: ClassVar[SoftmaxParameter.Engine]

    engine: SoftmaxParameter.Engine
    """Default: DEFAULT."""
    axis: int
    """Default: 1."""
    def __init__(
        self,
        *,
        engine: SoftmaxParameter.Engine | str | None = None,
        axis: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "engine", "axis"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "engine", "axis"
        ],
    ) -> None: ...

class SwishParameter(Message):
    beta: float
    """Default: 1."""
    def __init__(
        self,
        *,
        beta: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "beta"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "beta"
        ],
    ) -> None: ...

class TanHParameter(Message):
    class Engine(_Enum):
        DEFAULT: ClassVar[TanHParameter.Engine]
        CAFFE: ClassVar[TanHParameter.Engine]
        CUDNN: ClassVar[TanHParameter.Engine]

    DEFAULT: ClassVar[TanHParameter.Engine]
    CAFFE: ClassVar[TanHParameter.Engine]
    CUDNN: ClassVar[TanHParameter.Engine]

    engine: TanHParameter.Engine
    """Default: DEFAULT."""
    def __init__(
        self,
        *,
        engine: TanHParameter.Engine | str | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "engine"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "engine"
        ],
    ) -> None: ...

class TileParameter(Message):
    axis: int
    """Default: 1."""
    tiles: int
    def __init__(
        self,
        *,
        axis: int | None = None,
        tiles: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "axis", "tiles"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "axis", "tiles"
        ],
    ) -> None: ...

class ThresholdParameter(Message):
    threshold: float
    """Default: 0."""
    def __init__(
        self,
        *,
        threshold: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "threshold"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "threshold"
        ],
    ) -> None: ...

class WindowDataParameter(Message):
    source: str
    scale: float
    """Default: 1."""
    mean_file: str
    batch_size: int
    crop_size: int
    """Default: 0."""
    mirror: bool
    """Default: false."""
    fg_threshold: float
    """Default: 0.5."""
    bg_threshold: float
    """Default: 0.5."""
    fg_fraction: float
    """Default: 0.25."""
    context_pad: int
    """Default: 0."""
    crop_mode: str
    """Default: 'warp'."""
    cache_images: bool
    """Default: false."""
    root_folder: str
    def __init__(
        self,
        *,
        source: str | None = None,
        scale: float | None = None,
        mean_file: str | None = None,
        batch_size: int | None = None,
        crop_size: int | None = None,
        mirror: bool | None = None,
        fg_threshold: float | None = None,
        bg_threshold: float | None = None,
        fg_fraction: float | None = None,
        context_pad: int | None = None,
        crop_mode: str | None = None,
        cache_images: bool | None = None,
        root_folder: str | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "source", "scale", "mean_file", "batch_size", "crop_size", "mirror", "fg_threshold",
            "bg_threshold", "fg_fraction", "context_pad", "crop_mode", "cache_images", "root_folder"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "source", "scale", "mean_file", "batch_size", "crop_size", "mirror", "fg_threshold",
            "bg_threshold", "fg_fraction", "context_pad", "crop_mode", "cache_images", "root_folder"
        ],
    ) -> None: ...

class SPPParameter(Message):
    class PoolMethod(_Enum):
        MAX: ClassVar[SPPParameter.PoolMethod]
        AVE: ClassVar[SPPParameter.PoolMethod]
        STOCHASTIC: ClassVar[SPPParameter.PoolMethod]

    MAX: ClassVar[SPPParameter.PoolMethod]
    AVE: ClassVar[SPPParameter.PoolMethod]
    STOCHASTIC: ClassVar[SPPParameter.PoolMethod]

    class Engine(_Enum):
        DEFAULT: ClassVar[SPPParameter.Engine]
        CAFFE: ClassVar[SPPParameter.Engine]
        CUDNN: ClassVar[SPPParameter.Engine]

    DEFAULT: ClassVar[SPPParameter.Engine]
    CAFFE: ClassVar[SPPParameter.Engine]
    CUDNN: ClassVar[SPPParameter.Engine]

    pyramid_height: int
    pool: SPPParameter.PoolMethod
    """Default: MAX."""
    engine: SPPParameter.Engine
    """Default: DEFAULT."""
    def __init__(
        self,
        *,
        pyramid_height: int | None = None,
        pool: SPPParameter.PoolMethod | str | None = None,
        engine: SPPParameter.Engine | str | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "pyramid_height", "pool", "engine"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "pyramid_height", "pool", "engine"
        ],
    ) -> None: ...

class V1LayerParameter(Message):
    class LayerType(_Enum):
        NONE: ClassVar[V1LayerParameter.LayerType]
        ABSVAL: ClassVar[V1LayerParameter.LayerType]
        ACCURACY: ClassVar[V1LayerParameter.LayerType]
        ARGMAX: ClassVar[V1LayerParameter.LayerType]
        BNLL: ClassVar[V1LayerParameter.LayerType]
        CONCAT: ClassVar[V1LayerParameter.LayerType]
        CONTRASTIVE_LOSS: ClassVar[V1LayerParameter.LayerType]
        CONVOLUTION: ClassVar[V1LayerParameter.LayerType]
        DATA: ClassVar[V1LayerParameter.LayerType]
        DECONVOLUTION: ClassVar[V1LayerParameter.LayerType]
        DROPOUT: ClassVar[V1LayerParameter.LayerType]
        DUMMY_DATA: ClassVar[V1LayerParameter.LayerType]
        EUCLIDEAN_LOSS: ClassVar[V1LayerParameter.LayerType]
        ELTWISE: ClassVar[V1LayerParameter.LayerType]
        EXP: ClassVar[V1LayerParameter.LayerType]
        FLATTEN: ClassVar[V1LayerParameter.LayerType]
        HDF5_DATA: ClassVar[V1LayerParameter.LayerType]
        HDF5_OUTPUT: ClassVar[V1LayerParameter.LayerType]
        HINGE_LOSS: ClassVar[V1LayerParameter.LayerType]
        IM2COL: ClassVar[V1LayerParameter.LayerType]
        IMAGE_DATA: ClassVar[V1LayerParameter.LayerType]
        INFOGAIN_LOSS: ClassVar[V1LayerParameter.LayerType]
        INNER_PRODUCT: ClassVar[V1LayerParameter.LayerType]
        LRN: ClassVar[V1LayerParameter.LayerType]
        MEMORY_DATA: ClassVar[V1LayerParameter.LayerType]
        MULTINOMIAL_LOGISTIC_LOSS: ClassVar[V1LayerParameter.LayerType]
        MVN: ClassVar[V1LayerParameter.LayerType]
        POOLING: ClassVar[V1LayerParameter.LayerType]
        POWER: ClassVar[V1LayerParameter.LayerType]
        RELU: ClassVar[V1LayerParameter.LayerType]
        SIGMOID: ClassVar[V1LayerParameter.LayerType]
        SIGMOID_CROSS_ENTROPY_LOSS: ClassVar[V1LayerParameter.LayerType]
        SILENCE: ClassVar[V1LayerParameter.LayerType]
        SOFTMAX: ClassVar[V1LayerParameter.LayerType]
        SOFTMAX_LOSS: ClassVar[V1LayerParameter.LayerType]
        SPLIT: ClassVar[V1LayerParameter.LayerType]
        SLICE: ClassVar[V1LayerParameter.LayerType]
        TANH: ClassVar[V1LayerParameter.LayerType]
        WINDOW_DATA: ClassVar[V1LayerParameter.LayerType]
        THRESHOLD: ClassVar[V1LayerParameter.LayerType]

    NONE: ClassVar[V1LayerParameter.LayerType]
    ABSVAL: ClassVar[V1LayerParameter.LayerType]
    ACCURACY: ClassVar[V1LayerParameter.LayerType]
    ARGMAX: ClassVar[V1LayerParameter.LayerType]
    BNLL: ClassVar[V1LayerParameter.LayerType]
    CONCAT: ClassVar[V1LayerParameter.LayerType]
    CONTRASTIVE_LOSS: ClassVar[V1LayerParameter.LayerType]
    CONVOLUTION: ClassVar[V1LayerParameter.LayerType]
    DATA: ClassVar[V1LayerParameter.LayerType]
    DECONVOLUTION: ClassVar[V1LayerParameter.LayerType]
    DROPOUT: ClassVar[V1LayerParameter.LayerType]
    DUMMY_DATA: ClassVar[V1LayerParameter.LayerType]
    EUCLIDEAN_LOSS: ClassVar[V1LayerParameter.LayerType]
    ELTWISE: ClassVar[V1LayerParameter.LayerType]
    EXP: ClassVar[V1LayerParameter.LayerType]
    FLATTEN: ClassVar[V1LayerParameter.LayerType]
    HDF5_DATA: ClassVar[V1LayerParameter.LayerType]
    HDF5_OUTPUT: ClassVar[V1LayerParameter.LayerType]
    HINGE_LOSS: ClassVar[V1LayerParameter.LayerType]
    IM2COL: ClassVar[V1LayerParameter.LayerType]
    IMAGE_DATA: ClassVar[V1LayerParameter.LayerType]
    INFOGAIN_LOSS: ClassVar[V1LayerParameter.LayerType]
    INNER_PRODUCT: ClassVar[V1LayerParameter.LayerType]
    LRN: ClassVar[V1LayerParameter.LayerType]
    MEMORY_DATA: ClassVar[V1LayerParameter.LayerType]
    MULTINOMIAL_LOGISTIC_LOSS: ClassVar[V1LayerParameter.LayerType]
    MVN: ClassVar[V1LayerParameter.LayerType]
    POOLING: ClassVar[V1LayerParameter.LayerType]
    POWER: ClassVar[V1LayerParameter.LayerType]
    RELU: ClassVar[V1LayerParameter.LayerType]
    SIGMOID: ClassVar[V1LayerParameter.LayerType]
    SIGMOID_CROSS_ENTROPY_LOSS: ClassVar[V1LayerParameter.LayerType]
    SILENCE: ClassVar[V1LayerParameter.LayerType]
    SOFTMAX: ClassVar[V1LayerParameter.LayerType]
    SOFTMAX_LOSS: ClassVar[V1LayerParameter.LayerType]
    SPLIT: ClassVar[V1LayerParameter.LayerType]
    SLICE: ClassVar[V1LayerParameter.LayerType]
    TANH: ClassVar[V1LayerParameter.LayerType]
    WINDOW_DATA: ClassVar[V1LayerParameter.LayerType]
    THRESHOLD: ClassVar[V1LayerParameter.LayerType]

    class DimCheckMode(_Enum):
        STRICT: ClassVar[V1LayerParameter.DimCheckMode]
        PERMISSIVE: ClassVar[V1LayerParameter.DimCheckMode]

    STRICT: ClassVar[V1LayerParameter.DimCheckMode]
    PERMISSIVE: ClassVar[V1LayerParameter.DimCheckMode]

    @property
    def bottom(self) -> RepeatedScalarFieldContainer[str]: ...
    @property
    def top(self) -> RepeatedScalarFieldContainer[str]: ...
    name: str
    @property
    def include(self) -> RepeatedCompositeFieldContainer[NetStateRule]: ...
    @property
    def exclude(self) -> RepeatedCompositeFieldContainer[NetStateRule]: ...
    type: V1LayerParameter.LayerType
    @property
    def blobs(self) -> RepeatedCompositeFieldContainer[BlobProto]: ...
    @property
    def param(self) -> RepeatedScalarFieldContainer[str]: ...
    @property
    def blob_share_mode(self) -> RepeatedScalarFieldContainer[V1LayerParameter.DimCheckMode]: ...
    @property
    def blobs_lr(self) -> RepeatedScalarFieldContainer[float]: ...
    @property
    def weight_decay(self) -> RepeatedScalarFieldContainer[float]: ...
    @property
    def loss_weight(self) -> RepeatedScalarFieldContainer[float]: ...
    @property
    def accuracy_param(self) -> AccuracyParameter: ...
    @property
    def argmax_param(self) -> ArgMaxParameter: ...
    @property
    def concat_param(self) -> ConcatParameter: ...
    @property
    def contrastive_loss_param(self) -> ContrastiveLossParameter: ...
    @property
    def convolution_param(self) -> ConvolutionParameter: ...
    @property
    def data_param(self) -> DataParameter: ...
    @property
    def dropout_param(self) -> DropoutParameter: ...
    @property
    def dummy_data_param(self) -> DummyDataParameter: ...
    @property
    def eltwise_param(self) -> EltwiseParameter: ...
    @property
    def exp_param(self) -> ExpParameter: ...
    @property
    def hdf5_data_param(self) -> HDF5DataParameter: ...
    @property
    def hdf5_output_param(self) -> HDF5OutputParameter: ...
    @property
    def hinge_loss_param(self) -> HingeLossParameter: ...
    @property
    def image_data_param(self) -> ImageDataParameter: ...
    @property
    def infogain_loss_param(self) -> InfogainLossParameter: ...
    @property
    def inner_product_param(self) -> InnerProductParameter: ...
    @property
    def lrn_param(self) -> LRNParameter: ...
    @property
    def memory_data_param(self) -> MemoryDataParameter: ...
    @property
    def mvn_param(self) -> MVNParameter: ...
    @property
    def pooling_param(self) -> PoolingParameter: ...
    @property
    def power_param(self) -> PowerParameter: ...
    @property
    def relu_param(self) -> ReLUParameter: ...
    @property
    def sigmoid_param(self) -> SigmoidParameter: ...
    @property
    def softmax_param(self) -> SoftmaxParameter: ...
    @property
    def slice_param(self) -> SliceParameter: ...
    @property
    def tanh_param(self) -> TanHParameter: ...
    @property
    def threshold_param(self) -> ThresholdParameter: ...
    @property
    def window_data_param(self) -> WindowDataParameter: ...
    @property
    def transform_param(self) -> TransformationParameter: ...
    @property
    def loss_param(self) -> LossParameter: ...
    @property
    def layer(self) -> V0LayerParameter: ...
    def __init__(
        self,
        *,
        bottom: Iterable[str] | None = None,
        top: Iterable[str] | None = None,
        name: str | None = None,
        include: Iterable[NetStateRule | Mapping[str, Any]] | None = None,
        exclude: Iterable[NetStateRule | Mapping[str, Any]] | None = None,
        type: V1LayerParameter.LayerType | str | None = None,
        blobs: Iterable[BlobProto | Mapping[str, Any]] | None = None,
        param: Iterable[str] | None = None,
        blob_share_mode: Iterable[V1LayerParameter.DimCheckMode | str] | None = None,
        blobs_lr: Iterable[float] | None = None,
        weight_decay: Iterable[float] | None = None,
        loss_weight: Iterable[float] | None = None,
        accuracy_param: AccuracyParameter | Mapping[str, Any] | None = None,
        argmax_param: ArgMaxParameter | Mapping[str, Any] | None = None,
        concat_param: ConcatParameter | Mapping[str, Any] | None = None,
        contrastive_loss_param: ContrastiveLossParameter | Mapping[str, Any] | None = None,
        convolution_param: ConvolutionParameter | Mapping[str, Any] | None = None,
        data_param: DataParameter | Mapping[str, Any] | None = None,
        dropout_param: DropoutParameter | Mapping[str, Any] | None = None,
        dummy_data_param: DummyDataParameter | Mapping[str, Any] | None = None,
        eltwise_param: EltwiseParameter | Mapping[str, Any] | None = None,
        exp_param: ExpParameter | Mapping[str, Any] | None = None,
        hdf5_data_param: HDF5DataParameter | Mapping[str, Any] | None = None,
        hdf5_output_param: HDF5OutputParameter | Mapping[str, Any] | None = None,
        hinge_loss_param: HingeLossParameter | Mapping[str, Any] | None = None,
        image_data_param: ImageDataParameter | Mapping[str, Any] | None = None,
        infogain_loss_param: InfogainLossParameter | Mapping[str, Any] | None = None,
        inner_product_param: InnerProductParameter | Mapping[str, Any] | None = None,
        lrn_param: LRNParameter | Mapping[str, Any] | None = None,
        memory_data_param: MemoryDataParameter | Mapping[str, Any] | None = None,
        mvn_param: MVNParameter | Mapping[str, Any] | None = None,
        pooling_param: PoolingParameter | Mapping[str, Any] | None = None,
        power_param: PowerParameter | Mapping[str, Any] | None = None,
        relu_param: ReLUParameter | Mapping[str, Any] | None = None,
        sigmoid_param: SigmoidParameter | Mapping[str, Any] | None = None,
        softmax_param: SoftmaxParameter | Mapping[str, Any] | None = None,
        slice_param: SliceParameter | Mapping[str, Any] | None = None,
        tanh_param: TanHParameter | Mapping[str, Any] | None = None,
        threshold_param: ThresholdParameter | Mapping[str, Any] | None = None,
        window_data_param: WindowDataParameter | Mapping[str, Any] | None = None,
        transform_param: TransformationParameter | Mapping[str, Any] | None = None,
        loss_param: LossParameter | Mapping[str, Any] | None = None,
        layer: V0LayerParameter | Mapping[str, Any] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "name", "type", "accuracy_param", "argmax_param", "concat_param", "contrastive_loss_param",
            "convolution_param", "data_param", "dropout_param", "dummy_data_param", "eltwise_param",
            "exp_param", "hdf5_data_param", "hdf5_output_param", "hinge_loss_param", "image_data_param",
            "infogain_loss_param", "inner_product_param", "lrn_param", "memory_data_param", "mvn_param",
            "pooling_param", "power_param", "relu_param", "sigmoid_param", "softmax_param", "slice_param",
            "tanh_param", "threshold_param", "window_data_param", "transform_param", "loss_param", "layer"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "bottom", "top", "name", "include", "exclude", "type", "blobs", "param", "blob_share_mode",
            "blobs_lr", "weight_decay", "loss_weight", "accuracy_param", "argmax_param", "concat_param",
            "contrastive_loss_param", "convolution_param", "data_param", "dropout_param",
            "dummy_data_param", "eltwise_param", "exp_param", "hdf5_data_param", "hdf5_output_param",
            "hinge_loss_param", "image_data_param", "infogain_loss_param", "inner_product_param",
            "lrn_param", "memory_data_param", "mvn_param", "pooling_param", "power_param", "relu_param",
            "sigmoid_param", "softmax_param", "slice_param", "tanh_param", "threshold_param",
            "window_data_param", "transform_param", "loss_param", "layer"
        ],
    ) -> None: ...

class V0LayerParameter(Message):
    class PoolMethod(_Enum):
        MAX: ClassVar[V0LayerParameter.PoolMethod]
        AVE: ClassVar[V0LayerParameter.PoolMethod]
        STOCHASTIC: ClassVar[V0LayerParameter.PoolMethod]

    MAX: ClassVar[V0LayerParameter.PoolMethod]
    AVE: ClassVar[V0LayerParameter.PoolMethod]
    STOCHASTIC: ClassVar[V0LayerParameter.PoolMethod]

    name: str
    type: str
    num_output: int
    biasterm: bool
    """Default: true."""
    @property
    def weight_filler(self) -> FillerParameter: ...
    @property
    def bias_filler(self) -> FillerParameter: ...
    pad: int
    """Default: 0."""
    kernelsize: int
    group: int
    """Default: 1."""
    stride: int
    """Default: 1."""
    pool: V0LayerParameter.PoolMethod
    """Default: MAX."""
    dropout_ratio: float
    """Default: 0.5."""
    local_size: int
    """Default: 5."""
    alpha: float
    """Default: 1."""
    beta: float
    """Default: 0.75."""
    k: float
    """Default: 1."""
    source: str
    scale: float
    """Default: 1."""
    meanfile: str
    batchsize: int
    cropsize: int
    """Default: 0."""
    mirror: bool
    """Default: false."""
    @property
    def blobs(self) -> RepeatedCompositeFieldContainer[BlobProto]: ...
    @property
    def blobs_lr(self) -> RepeatedScalarFieldContainer[float]: ...
    @property
    def weight_decay(self) -> RepeatedScalarFieldContainer[float]: ...
    rand_skip: int
    """Default: 0."""
    det_fg_threshold: float
    """Default: 0.5."""
    det_bg_threshold: float
    """Default: 0.5."""
    det_fg_fraction: float
    """Default: 0.25."""
    det_context_pad: int
    """Default: 0."""
    det_crop_mode: str
    """Default: 'warp'."""
    new_num: int
    """Default: 0."""
    new_channels: int
    """Default: 0."""
    new_height: int
    """Default: 0."""
    new_width: int
    """Default: 0."""
    shuffle_images: bool
    """Default: false."""
    concat_dim: int
    """Default: 1."""
    @property
    def hdf5_output_param(self) -> HDF5OutputParameter: ...
    def __init__(
        self,
        *,
        name: str | None = None,
        type: str | None = None,
        num_output: int | None = None,
        biasterm: bool | None = None,
        weight_filler: FillerParameter | Mapping[str, Any] | None = None,
        bias_filler: FillerParameter | Mapping[str, Any] | None = None,
        pad: int | None = None,
        kernelsize: int | None = None,
        group: int | None = None,
        stride: int | None = None,
        pool: V0LayerParameter.PoolMethod | str | None = None,
        dropout_ratio: float | None = None,
        local_size: int | None = None,
        alpha: float | None = None,
        beta: float | None = None,
        k: float | None = None,
        source: str | None = None,
        scale: float | None = None,
        meanfile: str | None = None,
        batchsize: int | None = None,
        cropsize: int | None = None,
        mirror: bool | None = None,
        blobs: Iterable[BlobProto | Mapping[str, Any]] | None = None,
        blobs_lr: Iterable[float] | None = None,
        weight_decay: Iterable[float] | None = None,
        rand_skip: int | None = None,
        det_fg_threshold: float | None = None,
        det_bg_threshold: float | None = None,
        det_fg_fraction: float | None = None,
        det_context_pad: int | None = None,
        det_crop_mode: str | None = None,
        new_num: int | None = None,
        new_channels: int | None = None,
        new_height: int | None = None,
        new_width: int | None = None,
        shuffle_images: bool | None = None,
        concat_dim: int | None = None,
        hdf5_output_param: HDF5OutputParameter | Mapping[str, Any] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "name", "type", "num_output", "biasterm", "weight_filler", "bias_filler", "pad", "kernelsize",
            "group", "stride", "pool", "dropout_ratio", "local_size", "alpha", "beta", "k", "source",
            "scale", "meanfile", "batchsize", "cropsize", "mirror", "rand_skip", "det_fg_threshold",
            "det_bg_threshold", "det_fg_fraction", "det_context_pad", "det_crop_mode", "new_num",
            "new_channels", "new_height", "new_width", "shuffle_images", "concat_dim", "hdf5_output_param"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "name", "type", "num_output", "biasterm", "weight_filler", "bias_filler", "pad", "kernelsize",
            "group", "stride", "pool", "dropout_ratio", "local_size", "alpha", "beta", "k", "source",
            "scale", "meanfile", "batchsize", "cropsize", "mirror", "blobs", "blobs_lr", "weight_decay",
            "rand_skip", "det_fg_threshold", "det_bg_threshold", "det_fg_fraction", "det_context_pad",
            "det_crop_mode", "new_num", "new_channels", "new_height", "new_width", "shuffle_images",
            "concat_dim", "hdf5_output_param"
        ],
    ) -> None: ...

class PReLUParameter(Message):
    @property
    def filler(self) -> FillerParameter: ...
    channel_shared: bool
    """Default: false."""
    def __init__(
        self,
        *,
        filler: FillerParameter | Mapping[str, Any] | None = None,
        channel_shared: bool | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "filler", "channel_shared"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "filler", "channel_shared"
        ],
    ) -> None: ...

class CommParameter(Message):
    class Schedule(_Enum):
        AUTO: ClassVar[CommParameter.Schedule]
        OPTIMAL: ClassVar[CommParameter.Schedule]
        MGWFBP: ClassVar[CommParameter.Schedule]
        WFBP: ClassVar[CommParameter.Schedule]
        SINGLE: ClassVar[CommParameter.Schedule]
        THRESHOLD: ClassVar[CommParameter.Schedule]

    AUTO: ClassVar[CommParameter.Schedule]
    OPTIMAL: ClassVar[CommParameter.Schedule]
    MGWFBP: ClassVar[CommParameter.Schedule]
    WFBP: ClassVar[CommParameter.Schedule]
    SINGLE: ClassVar[CommParameter.Schedule]
    THRESHOLD: ClassVar[CommParameter.Schedule]

    class WireType(_Enum):
        FLOAT32: ClassVar[CommParameter.WireType]
        FLOAT16: ClassVar[CommParameter.WireType]
        BFLOAT16: ClassVar[CommParameter.WireType]

    FLOAT32: ClassVar[CommParameter.WireType]
    FLOAT16: ClassVar[CommParameter.WireType]
    BFLOAT16: ClassVar[CommParameter.WireType]

    schedule: CommParameter.Schedule
    """Default: AUTO. A field of mgcaffe."""
    bucket_mb: float
    """Default: 25. A field of mgcaffe."""
    calibration_iterations: int
    """Default: 10. A field of mgcaffe."""
    plan_file: str
    """A field of mgcaffe."""
    cost_file: str
    """A field of mgcaffe."""
    emulate_link: str
    """A field of mgcaffe."""
    deterministic: bool
    """Default: false. A field of mgcaffe."""
    overlap_forward: bool
    """A field of mgcaffe."""
    allreduce_type: CommParameter.WireType
    """Default: FLOAT32. A field of mgcaffe."""
    hierarchical: bool
    """Default: false. A field of mgcaffe."""
    def __init__(
        self,
        *,
        schedule: CommParameter.Schedule | str | None = None,
        bucket_mb: float | None = None,
        calibration_iterations: int | None = None,
        plan_file: str | None = None,
        cost_file: str | None = None,
        emulate_link: str | None = None,
        deterministic: bool | None = None,
        overlap_forward: bool | None = None,
        allreduce_type: CommParameter.WireType | str | None = None,
        hierarchical: bool | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "schedule", "bucket_mb", "calibration_iterations", "plan_file", "cost_file", "emulate_link",
            "deterministic", "overlap_forward", "allreduce_type", "hierarchical"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "schedule", "bucket_mb", "calibration_iterations", "plan_file", "cost_file", "emulate_link",
            "deterministic", "overlap_forward", "allreduce_type", "hierarchical"
        ],
    ) -> None: ...

class EngineState(Message):
    version: int
    """Default: 1. A field of mgcaffe."""
    random_seed: int
    """A field of mgcaffe."""
    @property
    def records(self) -> RepeatedCompositeFieldContainer[DataPosition]:
        """A field of mgcaffe."""
    @property
    def smoothed_losses(self) -> RepeatedScalarFieldContainer[float]:
        """A field of mgcaffe."""
    world_size: int
    """Default: 1. A field of mgcaffe."""
    plan: str
    """A field of mgcaffe."""
    @property
    def extra(self) -> RepeatedCompositeFieldContainer[EngineStateEntry]:
        """A field of mgcaffe."""
    def __init__(
        self,
        *,
        version: int | None = None,
        random_seed: int | None = None,
        records: Iterable[DataPosition | Mapping[str, Any]] | None = None,
        smoothed_losses: Iterable[float] | None = None,
        world_size: int | None = None,
        plan: str | None = None,
        extra: Iterable[EngineStateEntry | Mapping[str, Any]] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "version", "random_seed", "world_size", "plan"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "version", "random_seed", "records", "smoothed_losses", "world_size", "plan", "extra"
        ],
    ) -> None: ...

class EngineStateEntry(Message):
    key: str
    """A field of mgcaffe."""
    value: bytes
    """A field of mgcaffe."""
    def __init__(
        self,
        *,
        key: str | None = None,
        value: bytes | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "key", "value"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "key", "value"
        ],
    ) -> None: ...

class DataPosition(Message):
    layer: str
    """A field of mgcaffe."""
    phase: Phase
    """A field of mgcaffe."""
    batches: int
    """Default: 0. A field of mgcaffe."""
    records: int
    """Default: 0. A field of mgcaffe."""
    def __init__(
        self,
        *,
        layer: str | None = None,
        phase: Phase | str | None = None,
        batches: int | None = None,
        records: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "layer", "phase", "batches", "records"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "layer", "phase", "batches", "records"
        ],
    ) -> None: ...

class InterpParameter(Message):
    height: int
    """Default: 0. A field of mgcaffe."""
    width: int
    """Default: 0. A field of mgcaffe."""
    zoom_factor: int
    """Default: 1. A field of mgcaffe."""
    shrink_factor: int
    """Default: 1. A field of mgcaffe."""
    pad_beg: int
    """Default: 0. A field of mgcaffe."""
    pad_end: int
    """Default: 0. A field of mgcaffe."""
    def __init__(
        self,
        *,
        height: int | None = None,
        width: int | None = None,
        zoom_factor: int | None = None,
        shrink_factor: int | None = None,
        pad_beg: int | None = None,
        pad_end: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "height", "width", "zoom_factor", "shrink_factor", "pad_beg", "pad_end"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "height", "width", "zoom_factor", "shrink_factor", "pad_beg", "pad_end"
        ],
    ) -> None: ...

class BNParameter(Message):
    class Engine(_Enum):
        DEFAULT: ClassVar[BNParameter.Engine]
        CAFFE: ClassVar[BNParameter.Engine]
        CUDNN: ClassVar[BNParameter.Engine]

    DEFAULT: ClassVar[BNParameter.Engine]
    CAFFE: ClassVar[BNParameter.Engine]
    CUDNN: ClassVar[BNParameter.Engine]

    class BNMode(_Enum):
        LEARN: ClassVar[BNParameter.BNMode]
        INFERENCE: ClassVar[BNParameter.BNMode]

    LEARN: ClassVar[BNParameter.BNMode]
    INFERENCE: ClassVar[BNParameter.BNMode]

    @property
    def slope_filler(self) -> FillerParameter:
        """A field of mgcaffe."""
    @property
    def bias_filler(self) -> FillerParameter:
        """A field of mgcaffe."""
    momentum: float
    """Default: 0.9. A field of mgcaffe."""
    eps: float
    """Default: 1e-05. A field of mgcaffe."""
    frozen: bool
    """Default: false. A field of mgcaffe."""
    engine: BNParameter.Engine
    """Default: DEFAULT. A field of mgcaffe."""
    @property
    def scale_filler(self) -> FillerParameter:
        """A field of mgcaffe."""
    @property
    def shift_filler(self) -> FillerParameter:
        """A field of mgcaffe."""
    bn_mode: BNParameter.BNMode
    """Default: LEARN. A field of mgcaffe."""
    def __init__(
        self,
        *,
        slope_filler: FillerParameter | Mapping[str, Any] | None = None,
        bias_filler: FillerParameter | Mapping[str, Any] | None = None,
        momentum: float | None = None,
        eps: float | None = None,
        frozen: bool | None = None,
        engine: BNParameter.Engine | str | None = None,
        scale_filler: FillerParameter | Mapping[str, Any] | None = None,
        shift_filler: FillerParameter | Mapping[str, Any] | None = None,
        bn_mode: BNParameter.BNMode | str | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "slope_filler", "bias_filler", "momentum", "eps", "frozen", "engine", "scale_filler",
            "shift_filler", "bn_mode"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "slope_filler", "bias_filler", "momentum", "eps", "frozen", "engine", "scale_filler",
            "shift_filler", "bn_mode"
        ],
    ) -> None: ...

class ShuffleChannelParameter(Message):
    group: int
    """Default: 1. A field of mgcaffe."""
    def __init__(
        self,
        *,
        group: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "group"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "group"
        ],
    ) -> None: ...

class ReLU6Parameter(Message):
    negative_slope: float
    """Default: 0. A field of mgcaffe."""
    def __init__(
        self,
        *,
        negative_slope: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "negative_slope"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "negative_slope"
        ],
    ) -> None: ...

class LabelMapItem(Message):
    name: str
    """A field of the SSD fork."""
    label: int
    """A field of the SSD fork."""
    display_name: str
    """A field of the SSD fork."""
    def __init__(
        self,
        *,
        name: str | None = None,
        label: int | None = None,
        display_name: str | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "name", "label", "display_name"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "name", "label", "display_name"
        ],
    ) -> None: ...

class LabelMap(Message):
    @property
    def item(self) -> RepeatedCompositeFieldContainer[LabelMapItem]:
        """A field of the SSD fork."""
    def __init__(
        self,
        *,
        item: Iterable[LabelMapItem | Mapping[str, Any]] | None = None,
    ) -> None: ...
    def HasField(self, field_name: Never) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "item"
        ],
    ) -> None: ...

class Sampler(Message):
    min_scale: float
    """Default: 1. A field of the SSD fork."""
    max_scale: float
    """Default: 1. A field of the SSD fork."""
    min_aspect_ratio: float
    """Default: 1. A field of the SSD fork."""
    max_aspect_ratio: float
    """Default: 1. A field of the SSD fork."""
    def __init__(
        self,
        *,
        min_scale: float | None = None,
        max_scale: float | None = None,
        min_aspect_ratio: float | None = None,
        max_aspect_ratio: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "min_scale", "max_scale", "min_aspect_ratio", "max_aspect_ratio"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "min_scale", "max_scale", "min_aspect_ratio", "max_aspect_ratio"
        ],
    ) -> None: ...

class SampleConstraint(Message):
    min_jaccard_overlap: float
    """A field of the SSD fork."""
    max_jaccard_overlap: float
    """A field of the SSD fork."""
    min_sample_coverage: float
    """A field of the SSD fork."""
    max_sample_coverage: float
    """A field of the SSD fork."""
    min_object_coverage: float
    """A field of the SSD fork."""
    max_object_coverage: float
    """A field of the SSD fork."""
    def __init__(
        self,
        *,
        min_jaccard_overlap: float | None = None,
        max_jaccard_overlap: float | None = None,
        min_sample_coverage: float | None = None,
        max_sample_coverage: float | None = None,
        min_object_coverage: float | None = None,
        max_object_coverage: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "min_jaccard_overlap", "max_jaccard_overlap", "min_sample_coverage", "max_sample_coverage",
            "min_object_coverage", "max_object_coverage"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "min_jaccard_overlap", "max_jaccard_overlap", "min_sample_coverage", "max_sample_coverage",
            "min_object_coverage", "max_object_coverage"
        ],
    ) -> None: ...

class BatchSampler(Message):
    use_original_image: bool
    """Default: true. A field of the SSD fork."""
    @property
    def sampler(self) -> Sampler:
        """A field of the SSD fork."""
    @property
    def sample_constraint(self) -> SampleConstraint:
        """A field of the SSD fork."""
    max_sample: int
    """A field of the SSD fork."""
    max_trials: int
    """Default: 100. A field of the SSD fork."""
    def __init__(
        self,
        *,
        use_original_image: bool | None = None,
        sampler: Sampler | Mapping[str, Any] | None = None,
        sample_constraint: SampleConstraint | Mapping[str, Any] | None = None,
        max_sample: int | None = None,
        max_trials: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "use_original_image", "sampler", "sample_constraint", "max_sample", "max_trials"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "use_original_image", "sampler", "sample_constraint", "max_sample", "max_trials"
        ],
    ) -> None: ...

class EmitConstraint(Message):
    class EmitType(_Enum):
        CENTER: ClassVar[EmitConstraint.EmitType]
        MIN_OVERLAP: ClassVar[EmitConstraint.EmitType]

    CENTER: ClassVar[EmitConstraint.EmitType]
    MIN_OVERLAP: ClassVar[EmitConstraint.EmitType]

    emit_type: EmitConstraint.EmitType
    """Default: CENTER. A field of the SSD fork."""
    emit_overlap: float
    """A field of the SSD fork."""
    def __init__(
        self,
        *,
        emit_type: EmitConstraint.EmitType | str | None = None,
        emit_overlap: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "emit_type", "emit_overlap"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "emit_type", "emit_overlap"
        ],
    ) -> None: ...

class NormalizedBBox(Message):
    xmin: float
    """A field of the SSD fork."""
    ymin: float
    """A field of the SSD fork."""
    xmax: float
    """A field of the SSD fork."""
    ymax: float
    """A field of the SSD fork."""
    label: int
    """A field of the SSD fork."""
    difficult: bool
    """A field of the SSD fork."""
    score: float
    """A field of the SSD fork."""
    size: float
    """A field of the SSD fork."""
    def __init__(
        self,
        *,
        xmin: float | None = None,
        ymin: float | None = None,
        xmax: float | None = None,
        ymax: float | None = None,
        label: int | None = None,
        difficult: bool | None = None,
        score: float | None = None,
        size: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "xmin", "ymin", "xmax", "ymax", "label", "difficult", "score", "size"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "xmin", "ymin", "xmax", "ymax", "label", "difficult", "score", "size"
        ],
    ) -> None: ...

class Annotation(Message):
    instance_id: int
    """Default: 0. A field of the SSD fork."""
    @property
    def bbox(self) -> NormalizedBBox:
        """A field of the SSD fork."""
    def __init__(
        self,
        *,
        instance_id: int | None = None,
        bbox: NormalizedBBox | Mapping[str, Any] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "instance_id", "bbox"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "instance_id", "bbox"
        ],
    ) -> None: ...

class AnnotationGroup(Message):
    group_label: int
    """A field of the SSD fork."""
    @property
    def annotation(self) -> RepeatedCompositeFieldContainer[Annotation]:
        """A field of the SSD fork."""
    def __init__(
        self,
        *,
        group_label: int | None = None,
        annotation: Iterable[Annotation | Mapping[str, Any]] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "group_label"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "group_label", "annotation"
        ],
    ) -> None: ...

class AnnotatedDatum(Message):
    class AnnotationType(_Enum):
        BBOX: ClassVar[AnnotatedDatum.AnnotationType]

    BBOX: ClassVar[AnnotatedDatum.AnnotationType]

    @property
    def datum(self) -> Datum:
        """A field of the SSD fork."""
    type: AnnotatedDatum.AnnotationType
    """A field of the SSD fork."""
    @property
    def annotation_group(self) -> RepeatedCompositeFieldContainer[AnnotationGroup]:
        """A field of the SSD fork."""
    record_id: int
    """Default: 0. A field of NVIDIA's fork."""
    def __init__(
        self,
        *,
        datum: Datum | Mapping[str, Any] | None = None,
        type: AnnotatedDatum.AnnotationType | str | None = None,
        annotation_group: Iterable[AnnotationGroup | Mapping[str, Any]] | None = None,
        record_id: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "datum", "type", "record_id"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "datum", "type", "annotation_group", "record_id"
        ],
    ) -> None: ...

class ResizeParameter(Message):
    class Resize_mode(_Enum):
        WARP: ClassVar[ResizeParameter.Resize_mode]
        FIT_SMALL_SIZE: ClassVar[ResizeParameter.Resize_mode]
        FIT_LARGE_SIZE_AND_PAD: ClassVar[ResizeParameter.Resize_mode]

    WARP: ClassVar[ResizeParameter.Resize_mode]
    FIT_SMALL_SIZE: ClassVar[ResizeParameter.Resize_mode]
    FIT_LARGE_SIZE_AND_PAD: ClassVar[ResizeParameter.Resize_mode]

    class Pad_mode(_Enum):
        CONSTANT: ClassVar[ResizeParameter.Pad_mode]
        MIRRORED: ClassVar[ResizeParameter.Pad_mode]
        REPEAT_NEAREST: ClassVar[ResizeParameter.Pad_mode]

    CONSTANT: ClassVar[ResizeParameter.Pad_mode]
    MIRRORED: ClassVar[ResizeParameter.Pad_mode]
    REPEAT_NEAREST: ClassVar[ResizeParameter.Pad_mode]

    class Interp_mode(_Enum):
        LINEAR: ClassVar[ResizeParameter.Interp_mode]
        AREA: ClassVar[ResizeParameter.Interp_mode]
        NEAREST: ClassVar[ResizeParameter.Interp_mode]
        CUBIC: ClassVar[ResizeParameter.Interp_mode]
        LANCZOS4: ClassVar[ResizeParameter.Interp_mode]

    LINEAR: ClassVar[ResizeParameter.Interp_mode]
    AREA: ClassVar[ResizeParameter.Interp_mode]
    NEAREST: ClassVar[ResizeParameter.Interp_mode]
    CUBIC: ClassVar[ResizeParameter.Interp_mode]
    LANCZOS4: ClassVar[ResizeParameter.Interp_mode]

    prob: float
    """Default: 1. A field of the SSD fork."""
    resize_mode: ResizeParameter.Resize_mode
    """Default: WARP. A field of the SSD fork."""
    height: int
    """Default: 0. A field of the SSD fork."""
    width: int
    """Default: 0. A field of the SSD fork."""
    height_scale: int
    """Default: 0. A field of the SSD fork."""
    width_scale: int
    """Default: 0. A field of the SSD fork."""
    pad_mode: ResizeParameter.Pad_mode
    """Default: CONSTANT. A field of the SSD fork."""
    @property
    def pad_value(self) -> RepeatedScalarFieldContainer[float]:
        """A field of the SSD fork."""
    @property
    def interp_mode(self) -> RepeatedScalarFieldContainer[ResizeParameter.Interp_mode]:
        """A field of the SSD fork."""
    def __init__(
        self,
        *,
        prob: float | None = None,
        resize_mode: ResizeParameter.Resize_mode | str | None = None,
        height: int | None = None,
        width: int | None = None,
        height_scale: int | None = None,
        width_scale: int | None = None,
        pad_mode: ResizeParameter.Pad_mode | str | None = None,
        pad_value: Iterable[float] | None = None,
        interp_mode: Iterable[ResizeParameter.Interp_mode | str] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "prob", "resize_mode", "height", "width", "height_scale", "width_scale", "pad_mode"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "prob", "resize_mode", "height", "width", "height_scale", "width_scale", "pad_mode",
            "pad_value", "interp_mode"
        ],
    ) -> None: ...

class SaltPepperParameter(Message):
    fraction: float
    """Default: 0. A field of the SSD fork."""
    @property
    def value(self) -> RepeatedScalarFieldContainer[float]:
        """A field of the SSD fork."""
    def __init__(
        self,
        *,
        fraction: float | None = None,
        value: Iterable[float] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "fraction"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "fraction", "value"
        ],
    ) -> None: ...

class NoiseParameter(Message):
    prob: float
    """Default: 0. A field of the SSD fork."""
    hist_eq: bool
    """Default: false. A field of the SSD fork."""
    inverse: bool
    """Default: false. A field of the SSD fork."""
    decolorize: bool
    """Default: false. A field of the SSD fork."""
    gauss_blur: bool
    """Default: false. A field of the SSD fork."""
    jpeg: float
    """Default: -1. A field of the SSD fork."""
    posterize: bool
    """Default: false. A field of the SSD fork."""
    erode: bool
    """Default: false. A field of the SSD fork."""
    saltpepper: bool
    """Default: false. A field of the SSD fork."""
    @property
    def saltpepper_param(self) -> SaltPepperParameter:
        """A field of the SSD fork."""
    clahe: bool
    """Default: false. A field of the SSD fork."""
    convert_to_hsv: bool
    """Default: false. A field of the SSD fork."""
    convert_to_lab: bool
    """Default: false. A field of the SSD fork."""
    def __init__(
        self,
        *,
        prob: float | None = None,
        hist_eq: bool | None = None,
        inverse: bool | None = None,
        decolorize: bool | None = None,
        gauss_blur: bool | None = None,
        jpeg: float | None = None,
        posterize: bool | None = None,
        erode: bool | None = None,
        saltpepper: bool | None = None,
        saltpepper_param: SaltPepperParameter | Mapping[str, Any] | None = None,
        clahe: bool | None = None,
        convert_to_hsv: bool | None = None,
        convert_to_lab: bool | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "prob", "hist_eq", "inverse", "decolorize", "gauss_blur", "jpeg", "posterize", "erode",
            "saltpepper", "saltpepper_param", "clahe", "convert_to_hsv", "convert_to_lab"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "prob", "hist_eq", "inverse", "decolorize", "gauss_blur", "jpeg", "posterize", "erode",
            "saltpepper", "saltpepper_param", "clahe", "convert_to_hsv", "convert_to_lab"
        ],
    ) -> None: ...

class DistortionParameter(Message):
    brightness_prob: float
    """Default: 0. A field of the SSD fork."""
    brightness_delta: float
    """Default: 0. A field of the SSD fork."""
    contrast_prob: float
    """Default: 0. A field of the SSD fork."""
    contrast_lower: float
    """Default: 0. A field of the SSD fork."""
    contrast_upper: float
    """Default: 0. A field of the SSD fork."""
    hue_prob: float
    """Default: 0. A field of the SSD fork."""
    hue_delta: float
    """Default: 0. A field of the SSD fork."""
    saturation_prob: float
    """Default: 0. A field of the SSD fork."""
    saturation_lower: float
    """Default: 0. A field of the SSD fork."""
    saturation_upper: float
    """Default: 0. A field of the SSD fork."""
    random_order_prob: float
    """Default: 0. A field of the SSD fork."""
    def __init__(
        self,
        *,
        brightness_prob: float | None = None,
        brightness_delta: float | None = None,
        contrast_prob: float | None = None,
        contrast_lower: float | None = None,
        contrast_upper: float | None = None,
        hue_prob: float | None = None,
        hue_delta: float | None = None,
        saturation_prob: float | None = None,
        saturation_lower: float | None = None,
        saturation_upper: float | None = None,
        random_order_prob: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "brightness_prob", "brightness_delta", "contrast_prob", "contrast_lower", "contrast_upper",
            "hue_prob", "hue_delta", "saturation_prob", "saturation_lower", "saturation_upper",
            "random_order_prob"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "brightness_prob", "brightness_delta", "contrast_prob", "contrast_lower", "contrast_upper",
            "hue_prob", "hue_delta", "saturation_prob", "saturation_lower", "saturation_upper",
            "random_order_prob"
        ],
    ) -> None: ...

class ExpansionParameter(Message):
    prob: float
    """Default: 1. A field of the SSD fork."""
    max_expand_ratio: float
    """Default: 1. A field of the SSD fork."""
    def __init__(
        self,
        *,
        prob: float | None = None,
        max_expand_ratio: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "prob", "max_expand_ratio"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "prob", "max_expand_ratio"
        ],
    ) -> None: ...

class AnnotatedDataParameter(Message):
    @property
    def batch_sampler(self) -> RepeatedCompositeFieldContainer[BatchSampler]:
        """A field of the SSD fork."""
    label_map_file: str
    """A field of the SSD fork."""
    anno_type: AnnotatedDatum.AnnotationType
    """A field of the SSD fork."""
    def __init__(
        self,
        *,
        batch_sampler: Iterable[BatchSampler | Mapping[str, Any]] | None = None,
        label_map_file: str | None = None,
        anno_type: AnnotatedDatum.AnnotationType | str | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "label_map_file", "anno_type"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "batch_sampler", "label_map_file", "anno_type"
        ],
    ) -> None: ...

class DetectionEvaluateParameter(Message):
    num_classes: int
    """A field of the SSD fork."""
    background_label_id: int
    """Default: 0. A field of the SSD fork."""
    overlap_threshold: float
    """Default: 0.5. A field of the SSD fork."""
    evaluate_difficult_gt: bool
    """Default: true. A field of the SSD fork."""
    name_size_file: str
    """A field of the SSD fork."""
    @property
    def resize_param(self) -> ResizeParameter:
        """A field of the SSD fork."""
    def __init__(
        self,
        *,
        num_classes: int | None = None,
        background_label_id: int | None = None,
        overlap_threshold: float | None = None,
        evaluate_difficult_gt: bool | None = None,
        name_size_file: str | None = None,
        resize_param: ResizeParameter | Mapping[str, Any] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "num_classes", "background_label_id", "overlap_threshold", "evaluate_difficult_gt",
            "name_size_file", "resize_param"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "num_classes", "background_label_id", "overlap_threshold", "evaluate_difficult_gt",
            "name_size_file", "resize_param"
        ],
    ) -> None: ...

class NonMaximumSuppressionParameter(Message):
    nms_threshold: float
    """Default: 0.3. A field of the SSD fork."""
    top_k: int
    """A field of the SSD fork."""
    eta: float
    """Default: 1. A field of the SSD fork."""
    def __init__(
        self,
        *,
        nms_threshold: float | None = None,
        top_k: int | None = None,
        eta: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "nms_threshold", "top_k", "eta"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "nms_threshold", "top_k", "eta"
        ],
    ) -> None: ...

class SaveOutputParameter(Message):
    output_directory: str
    """A field of the SSD fork."""
    output_name_prefix: str
    """A field of the SSD fork."""
    output_format: str
    """A field of the SSD fork."""
    label_map_file: str
    """A field of the SSD fork."""
    name_size_file: str
    """A field of the SSD fork."""
    num_test_image: int
    """A field of the SSD fork."""
    @property
    def resize_param(self) -> ResizeParameter:
        """A field of the SSD fork."""
    def __init__(
        self,
        *,
        output_directory: str | None = None,
        output_name_prefix: str | None = None,
        output_format: str | None = None,
        label_map_file: str | None = None,
        name_size_file: str | None = None,
        num_test_image: int | None = None,
        resize_param: ResizeParameter | Mapping[str, Any] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "output_directory", "output_name_prefix", "output_format", "label_map_file", "name_size_file",
            "num_test_image", "resize_param"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "output_directory", "output_name_prefix", "output_format", "label_map_file", "name_size_file",
            "num_test_image", "resize_param"
        ],
    ) -> None: ...

class DetectionOutputParameter(Message):
    num_classes: int
    """A field of the SSD fork."""
    share_location: bool
    """Default: true. A field of the SSD fork."""
    background_label_id: int
    """Default: 0. A field of the SSD fork."""
    @property
    def nms_param(self) -> NonMaximumSuppressionParameter:
        """A field of the SSD fork."""
    @property
    def save_output_param(self) -> SaveOutputParameter:
        """A field of the SSD fork."""
    code_type: PriorBoxParameter.CodeType
    """Default: CORNER. A field of the SSD fork."""
    variance_encoded_in_target: bool
    """Default: false. A field of the SSD fork."""
    keep_top_k: int
    """Default: -1. A field of the SSD fork."""
    confidence_threshold: float
    """A field of the SSD fork."""
    visualize: bool
    """Default: false. A field of the SSD fork."""
    visualize_threshold: float
    """A field of the SSD fork."""
    save_file: str
    """A field of the SSD fork."""
    def __init__(
        self,
        *,
        num_classes: int | None = None,
        share_location: bool | None = None,
        background_label_id: int | None = None,
        nms_param: NonMaximumSuppressionParameter | Mapping[str, Any] | None = None,
        save_output_param: SaveOutputParameter | Mapping[str, Any] | None = None,
        code_type: PriorBoxParameter.CodeType | str | None = None,
        variance_encoded_in_target: bool | None = None,
        keep_top_k: int | None = None,
        confidence_threshold: float | None = None,
        visualize: bool | None = None,
        visualize_threshold: float | None = None,
        save_file: str | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "num_classes", "share_location", "background_label_id", "nms_param", "save_output_param",
            "code_type", "variance_encoded_in_target", "keep_top_k", "confidence_threshold", "visualize",
            "visualize_threshold", "save_file"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "num_classes", "share_location", "background_label_id", "nms_param", "save_output_param",
            "code_type", "variance_encoded_in_target", "keep_top_k", "confidence_threshold", "visualize",
            "visualize_threshold", "save_file"
        ],
    ) -> None: ...

class MultiBoxLossParameter(Message):
    class LocLossType(_Enum):
        L2: ClassVar[MultiBoxLossParameter.LocLossType]
        SMOOTH_L1: ClassVar[MultiBoxLossParameter.LocLossType]

    L2: ClassVar[MultiBoxLossParameter.LocLossType]
    SMOOTH_L1: ClassVar[MultiBoxLossParameter.LocLossType]

    class ConfLossType(_Enum):
        SOFTMAX: ClassVar[MultiBoxLossParameter.ConfLossType]
        LOGISTIC: ClassVar[MultiBoxLossParameter.ConfLossType]

    SOFTMAX: ClassVar[MultiBoxLossParameter.ConfLossType]
    LOGISTIC: ClassVar[MultiBoxLossParameter.ConfLossType]

    class MatchType(_Enum):
        BIPARTITE: ClassVar[MultiBoxLossParameter.MatchType]
        PER_PREDICTION: ClassVar[MultiBoxLossParameter.MatchType]

    BIPARTITE: ClassVar[MultiBoxLossParameter.MatchType]
    PER_PREDICTION: ClassVar[MultiBoxLossParameter.MatchType]

    class MiningType(_Enum):
        NONE: ClassVar[MultiBoxLossParameter.MiningType]
        MAX_NEGATIVE: ClassVar[MultiBoxLossParameter.MiningType]
        HARD_EXAMPLE: ClassVar[MultiBoxLossParameter.MiningType]

    NONE: ClassVar[MultiBoxLossParameter.MiningType]
    MAX_NEGATIVE: ClassVar[MultiBoxLossParameter.MiningType]
    HARD_EXAMPLE: ClassVar[MultiBoxLossParameter.MiningType]

    loc_loss_type: MultiBoxLossParameter.LocLossType
    """Default: SMOOTH_L1. A field of the SSD fork."""
    conf_loss_type: MultiBoxLossParameter.ConfLossType
    """Default: SOFTMAX. A field of the SSD fork."""
    loc_weight: float
    """Default: 1. A field of the SSD fork."""
    num_classes: int
    """A field of the SSD fork."""
    share_location: bool
    """Default: true. A field of the SSD fork."""
    match_type: MultiBoxLossParameter.MatchType
    """Default: PER_PREDICTION. A field of the SSD fork."""
    overlap_threshold: float
    """Default: 0.5. A field of the SSD fork."""
    use_prior_for_matching: bool
    """Default: true. A field of the SSD fork."""
    background_label_id: int
    """Default: 0. A field of the SSD fork."""
    use_difficult_gt: bool
    """Default: true. A field of the SSD fork."""
    do_neg_mining: bool
    """A field of the SSD fork."""
    neg_pos_ratio: float
    """Default: 3. A field of the SSD fork."""
    neg_overlap: float
    """Default: 0.5. A field of the SSD fork."""
    code_type: PriorBoxParameter.CodeType
    """Default: CORNER. A field of the SSD fork."""
    encode_variance_in_target: bool
    """Default: false. A field of the SSD fork."""
    map_object_to_agnostic: bool
    """Default: false. A field of the SSD fork."""
    ignore_cross_boundary_bbox: bool
    """Default: false. A field of the SSD fork."""
    bp_inside: bool
    """Default: false. A field of the SSD fork."""
    mining_type: MultiBoxLossParameter.MiningType
    """Default: MAX_NEGATIVE. A field of the SSD fork."""
    @property
    def nms_param(self) -> NonMaximumSuppressionParameter:
        """A field of the SSD fork."""
    sample_size: int
    """Default: 64. A field of the SSD fork."""
    use_prior_for_nms: bool
    """Default: false. A field of the SSD fork."""
    ignore_difficult_gt: bool
    """Default: false. A field of NVIDIA's fork."""
    def __init__(
        self,
        *,
        loc_loss_type: MultiBoxLossParameter.LocLossType | str | None = None,
        conf_loss_type: MultiBoxLossParameter.ConfLossType | str | None = None,
        loc_weight: float | None = None,
        num_classes: int | None = None,
        share_location: bool | None = None,
        match_type: MultiBoxLossParameter.MatchType | str | None = None,
        overlap_threshold: float | None = None,
        use_prior_for_matching: bool | None = None,
        background_label_id: int | None = None,
        use_difficult_gt: bool | None = None,
        do_neg_mining: bool | None = None,
        neg_pos_ratio: float | None = None,
        neg_overlap: float | None = None,
        code_type: PriorBoxParameter.CodeType | str | None = None,
        encode_variance_in_target: bool | None = None,
        map_object_to_agnostic: bool | None = None,
        ignore_cross_boundary_bbox: bool | None = None,
        bp_inside: bool | None = None,
        mining_type: MultiBoxLossParameter.MiningType | str | None = None,
        nms_param: NonMaximumSuppressionParameter | Mapping[str, Any] | None = None,
        sample_size: int | None = None,
        use_prior_for_nms: bool | None = None,
        ignore_difficult_gt: bool | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "loc_loss_type", "conf_loss_type", "loc_weight", "num_classes", "share_location", "match_type",
            "overlap_threshold", "use_prior_for_matching", "background_label_id", "use_difficult_gt",
            "do_neg_mining", "neg_pos_ratio", "neg_overlap", "code_type", "encode_variance_in_target",
            "map_object_to_agnostic", "ignore_cross_boundary_bbox", "bp_inside", "mining_type", "nms_param",
            "sample_size", "use_prior_for_nms", "ignore_difficult_gt"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "loc_loss_type", "conf_loss_type", "loc_weight", "num_classes", "share_location", "match_type",
            "overlap_threshold", "use_prior_for_matching", "background_label_id", "use_difficult_gt",
            "do_neg_mining", "neg_pos_ratio", "neg_overlap", "code_type", "encode_variance_in_target",
            "map_object_to_agnostic", "ignore_cross_boundary_bbox", "bp_inside", "mining_type", "nms_param",
            "sample_size", "use_prior_for_nms", "ignore_difficult_gt"
        ],
    ) -> None: ...

class NormalizeParameter(Message):
    across_spatial: bool
    """Default: true. A field of the SSD fork."""
    @property
    def scale_filler(self) -> FillerParameter:
        """A field of the SSD fork."""
    channel_shared: bool
    """Default: true. A field of the SSD fork."""
    eps: float
    """Default: 1e-10. A field of the SSD fork."""
    def __init__(
        self,
        *,
        across_spatial: bool | None = None,
        scale_filler: FillerParameter | Mapping[str, Any] | None = None,
        channel_shared: bool | None = None,
        eps: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "across_spatial", "scale_filler", "channel_shared", "eps"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "across_spatial", "scale_filler", "channel_shared", "eps"
        ],
    ) -> None: ...

class PermuteParameter(Message):
    @property
    def order(self) -> RepeatedScalarFieldContainer[int]:
        """A field of the SSD fork."""
    def __init__(
        self,
        *,
        order: Iterable[int] | None = None,
    ) -> None: ...
    def HasField(self, field_name: Never) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "order"
        ],
    ) -> None: ...

class PriorBoxParameter(Message):
    class CodeType(_Enum):
        CORNER: ClassVar[PriorBoxParameter.CodeType]
        CENTER_SIZE: ClassVar[PriorBoxParameter.CodeType]
        CORNER_SIZE: ClassVar[PriorBoxParameter.CodeType]

    CORNER: ClassVar[PriorBoxParameter.CodeType]
    CENTER_SIZE: ClassVar[PriorBoxParameter.CodeType]
    CORNER_SIZE: ClassVar[PriorBoxParameter.CodeType]

    @property
    def min_size(self) -> RepeatedScalarFieldContainer[float]:
        """A field of the SSD fork."""
    @property
    def max_size(self) -> RepeatedScalarFieldContainer[float]:
        """A field of the SSD fork."""
    @property
    def aspect_ratio(self) -> RepeatedScalarFieldContainer[float]:
        """A field of the SSD fork."""
    flip: bool
    """Default: true. A field of the SSD fork."""
    clip: bool
    """Default: false. A field of the SSD fork."""
    @property
    def variance(self) -> RepeatedScalarFieldContainer[float]:
        """A field of the SSD fork."""
    img_size: int
    """A field of the SSD fork."""
    img_h: int
    """A field of the SSD fork."""
    img_w: int
    """A field of the SSD fork."""
    step: float
    """A field of the SSD fork."""
    step_h: float
    """A field of the SSD fork."""
    step_w: float
    """A field of the SSD fork."""
    offset: float
    """Default: 0.5. A field of the SSD fork."""
    def __init__(
        self,
        *,
        min_size: Iterable[float] | None = None,
        max_size: Iterable[float] | None = None,
        aspect_ratio: Iterable[float] | None = None,
        flip: bool | None = None,
        clip: bool | None = None,
        variance: Iterable[float] | None = None,
        img_size: int | None = None,
        img_h: int | None = None,
        img_w: int | None = None,
        step: float | None = None,
        step_h: float | None = None,
        step_w: float | None = None,
        offset: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "flip", "clip", "img_size", "img_h", "img_w", "step", "step_h", "step_w", "offset"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "min_size", "max_size", "aspect_ratio", "flip", "clip", "variance", "img_size", "img_h",
            "img_w", "step", "step_h", "step_w", "offset"
        ],
    ) -> None: ...

class VideoDataParameter(Message):
    class VideoType(_Enum):
        WEBCAM: ClassVar[VideoDataParameter.VideoType]
        VIDEO: ClassVar[VideoDataParameter.VideoType]

    WEBCAM: ClassVar[VideoDataParameter.VideoType]
    VIDEO: ClassVar[VideoDataParameter.VideoType]

    video_type: VideoDataParameter.VideoType
    """Default: WEBCAM. A field of the SSD fork."""
    device_id: int
    """Default: 0. A field of the SSD fork."""
    video_file: str
    """A field of the SSD fork."""
    skip_frames: int
    """Default: 0. A field of the SSD fork."""
    def __init__(
        self,
        *,
        video_type: VideoDataParameter.VideoType | str | None = None,
        device_id: int | None = None,
        video_file: str | None = None,
        skip_frames: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "video_type", "device_id", "video_file", "skip_frames"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "video_type", "device_id", "video_file", "skip_frames"
        ],
    ) -> None: ...

class C2TensorProto(Message):
    class DataType(_Enum):
        UNDEFINED: ClassVar[C2TensorProto.DataType]
        FLOAT: ClassVar[C2TensorProto.DataType]
        INT32: ClassVar[C2TensorProto.DataType]
        BYTE: ClassVar[C2TensorProto.DataType]
        STRING: ClassVar[C2TensorProto.DataType]
        BOOL: ClassVar[C2TensorProto.DataType]
        UINT8: ClassVar[C2TensorProto.DataType]
        INT8: ClassVar[C2TensorProto.DataType]
        UINT16: ClassVar[C2TensorProto.DataType]
        INT16: ClassVar[C2TensorProto.DataType]
        INT64: ClassVar[C2TensorProto.DataType]
        FLOAT16: ClassVar[C2TensorProto.DataType]
        DOUBLE: ClassVar[C2TensorProto.DataType]

    UNDEFINED: ClassVar[C2TensorProto.DataType]
    FLOAT: ClassVar[C2TensorProto.DataType]
    INT32: ClassVar[C2TensorProto.DataType]
    BYTE: ClassVar[C2TensorProto.DataType]
    STRING: ClassVar[C2TensorProto.DataType]
    BOOL: ClassVar[C2TensorProto.DataType]
    UINT8: ClassVar[C2TensorProto.DataType]
    INT8: ClassVar[C2TensorProto.DataType]
    UINT16: ClassVar[C2TensorProto.DataType]
    INT16: ClassVar[C2TensorProto.DataType]
    INT64: ClassVar[C2TensorProto.DataType]
    FLOAT16: ClassVar[C2TensorProto.DataType]
    DOUBLE: ClassVar[C2TensorProto.DataType]

    @property
    def dims(self) -> RepeatedScalarFieldContainer[int]:
        """A field of NVIDIA's fork."""
    data_type: C2TensorProto.DataType
    """Default: FLOAT. A field of NVIDIA's fork."""
    @property
    def float_data(self) -> RepeatedScalarFieldContainer[float]:
        """A field of NVIDIA's fork."""
    @property
    def int32_data(self) -> RepeatedScalarFieldContainer[int]:
        """A field of NVIDIA's fork."""
    byte_data: bytes
    """A field of NVIDIA's fork."""
    @property
    def string_data(self) -> RepeatedScalarFieldContainer[bytes]:
        """A field of NVIDIA's fork."""
    @property
    def double_data(self) -> RepeatedScalarFieldContainer[float]:
        """A field of NVIDIA's fork."""
    @property
    def int64_data(self) -> RepeatedScalarFieldContainer[int]:
        """A field of NVIDIA's fork."""
    name: str
    """A field of NVIDIA's fork."""
    def __init__(
        self,
        *,
        dims: Iterable[int] | None = None,
        data_type: C2TensorProto.DataType | str | None = None,
        float_data: Iterable[float] | None = None,
        int32_data: Iterable[int] | None = None,
        byte_data: bytes | None = None,
        string_data: Iterable[bytes] | None = None,
        double_data: Iterable[float] | None = None,
        int64_data: Iterable[int] | None = None,
        name: str | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "data_type", "byte_data", "name"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "dims", "data_type", "float_data", "int32_data", "byte_data", "string_data", "double_data",
            "int64_data", "name"
        ],
    ) -> None: ...

class C2TensorProtos(Message):
    @property
    def protos(self) -> RepeatedCompositeFieldContainer[C2TensorProto]:
        """A field of NVIDIA's fork."""
    def __init__(
        self,
        *,
        protos: Iterable[C2TensorProto | Mapping[str, Any]] | None = None,
    ) -> None: ...
    def HasField(self, field_name: Never) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "protos"
        ],
    ) -> None: ...

class DetectNetGroundTruthParameter(Message):
    class GridboxType(_Enum):
        GRIDBOX_MAX: ClassVar[DetectNetGroundTruthParameter.GridboxType]
        GRIDBOX_MIN: ClassVar[DetectNetGroundTruthParameter.GridboxType]

    GRIDBOX_MAX: ClassVar[DetectNetGroundTruthParameter.GridboxType]
    GRIDBOX_MIN: ClassVar[DetectNetGroundTruthParameter.GridboxType]

    class CoverageType(_Enum):
        RECTANGULAR: ClassVar[DetectNetGroundTruthParameter.CoverageType]

    RECTANGULAR: ClassVar[DetectNetGroundTruthParameter.CoverageType]

    class ClassMapping(Message):
        src: int
        """Required. A field of NVIDIA's fork."""
        dst: int
        """Required. A field of NVIDIA's fork."""
        def __init__(
            self,
            *,
            src: int | None = None,
            dst: int | None = None,
        ) -> None: ...
        def HasField(
            self,
            field_name: Literal[
                "src", "dst"
            ],
        ) -> bool: ...
        def ClearField(
            self,
            field_name: Literal[
                "src", "dst"
            ],
        ) -> None: ...

    stride: int
    """Default: 4. A field of NVIDIA's fork."""
    scale_cvg: float
    """Default: 0.5. A field of NVIDIA's fork."""
    gridbox_type: DetectNetGroundTruthParameter.GridboxType
    """Default: GRIDBOX_MAX. A field of NVIDIA's fork."""
    max_cvg_len: int
    """Default: 50. A field of NVIDIA's fork."""
    min_cvg_len: int
    """Default: 50. A field of NVIDIA's fork."""
    coverage_type: DetectNetGroundTruthParameter.CoverageType
    """Default: RECTANGULAR. A field of NVIDIA's fork."""
    image_size_x: int
    """Default: 1248. A field of NVIDIA's fork."""
    image_size_y: int
    """Default: 384. A field of NVIDIA's fork."""
    obj_norm: bool
    """Default: false. A field of NVIDIA's fork."""
    crop_bboxes: bool
    """Default: true. A field of NVIDIA's fork."""
    @property
    def object_class(self) -> RepeatedCompositeFieldContainer[DetectNetGroundTruthParameter.ClassMapping]:
        """A field of NVIDIA's fork."""
    def __init__(
        self,
        *,
        stride: int | None = None,
        scale_cvg: float | None = None,
        gridbox_type: DetectNetGroundTruthParameter.GridboxType | str | None = None,
        max_cvg_len: int | None = None,
        min_cvg_len: int | None = None,
        coverage_type: DetectNetGroundTruthParameter.CoverageType | str | None = None,
        image_size_x: int | None = None,
        image_size_y: int | None = None,
        obj_norm: bool | None = None,
        crop_bboxes: bool | None = None,
        object_class: Iterable[DetectNetGroundTruthParameter.ClassMapping | Mapping[str, Any]] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "stride", "scale_cvg", "gridbox_type", "max_cvg_len", "min_cvg_len", "coverage_type",
            "image_size_x", "image_size_y", "obj_norm", "crop_bboxes"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "stride", "scale_cvg", "gridbox_type", "max_cvg_len", "min_cvg_len", "coverage_type",
            "image_size_x", "image_size_y", "obj_norm", "crop_bboxes", "object_class"
        ],
    ) -> None: ...

class DetectNetAugmentationParameter(Message):
    crop_prob: float
    """Default: 1. A field of NVIDIA's fork."""
    shift_x: int
    """Default: 0. A field of NVIDIA's fork."""
    shift_y: int
    """Default: 0. A field of NVIDIA's fork."""
    scale_prob: float
    """Default: 0.33. A field of NVIDIA's fork."""
    scale_min: float
    """Default: 0.7. A field of NVIDIA's fork."""
    scale_max: float
    """Default: 1. A field of NVIDIA's fork."""
    flip_prob: float
    """Default: 0.33. A field of NVIDIA's fork."""
    rotation_prob: float
    """Default: 0.33. A field of NVIDIA's fork."""
    max_rotate_degree: float
    """Default: 1. A field of NVIDIA's fork."""
    hue_rotation_prob: float
    """Default: 0.33. A field of NVIDIA's fork."""
    hue_rotation: float
    """Default: 15. A field of NVIDIA's fork."""
    desaturation_prob: float
    """Default: 0.33. A field of NVIDIA's fork."""
    desaturation_max: float
    """Default: 0.5. A field of NVIDIA's fork."""
    @property
    def resize_param(self) -> ResizeParameter:
        """A field of NVIDIA's fork."""
    @property
    def noise_param(self) -> NoiseParameter:
        """A field of NVIDIA's fork."""
    @property
    def distort_param(self) -> DistortionParameter:
        """A field of NVIDIA's fork."""
    @property
    def expand_param(self) -> ExpansionParameter:
        """A field of NVIDIA's fork."""
    @property
    def emit_constraint(self) -> EmitConstraint:
        """A field of NVIDIA's fork."""
    def __init__(
        self,
        *,
        crop_prob: float | None = None,
        shift_x: int | None = None,
        shift_y: int | None = None,
        scale_prob: float | None = None,
        scale_min: float | None = None,
        scale_max: float | None = None,
        flip_prob: float | None = None,
        rotation_prob: float | None = None,
        max_rotate_degree: float | None = None,
        hue_rotation_prob: float | None = None,
        hue_rotation: float | None = None,
        desaturation_prob: float | None = None,
        desaturation_max: float | None = None,
        resize_param: ResizeParameter | Mapping[str, Any] | None = None,
        noise_param: NoiseParameter | Mapping[str, Any] | None = None,
        distort_param: DistortionParameter | Mapping[str, Any] | None = None,
        expand_param: ExpansionParameter | Mapping[str, Any] | None = None,
        emit_constraint: EmitConstraint | Mapping[str, Any] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "crop_prob", "shift_x", "shift_y", "scale_prob", "scale_min", "scale_max", "flip_prob",
            "rotation_prob", "max_rotate_degree", "hue_rotation_prob", "hue_rotation", "desaturation_prob",
            "desaturation_max", "resize_param", "noise_param", "distort_param", "expand_param",
            "emit_constraint"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "crop_prob", "shift_x", "shift_y", "scale_prob", "scale_min", "scale_max", "flip_prob",
            "rotation_prob", "max_rotate_degree", "hue_rotation_prob", "hue_rotation", "desaturation_prob",
            "desaturation_max", "resize_param", "noise_param", "distort_param", "expand_param",
            "emit_constraint"
        ],
    ) -> None: ...

class TRTParameter(Message):
    class TRTMode(_Enum):
        FP32: ClassVar[TRTParameter.TRTMode]
        FP16: ClassVar[TRTParameter.TRTMode]
        INT8: ClassVar[TRTParameter.TRTMode]

    FP32: ClassVar[TRTParameter.TRTMode]
    FP16: ClassVar[TRTParameter.TRTMode]
    INT8: ClassVar[TRTParameter.TRTMode]

    trt_mode: TRTParameter.TRTMode
    """Default: INT8. A field of NVIDIA's fork."""
    top_k: int
    """Default: 1. A field of NVIDIA's fork."""
    deploy: str
    """Required. A field of NVIDIA's fork."""
    model: str
    """Required. A field of NVIDIA's fork."""
    @property
    def deploy_outputs(self) -> RepeatedScalarFieldContainer[str]:
        """A field of NVIDIA's fork."""
    calibrator: str
    """A field of NVIDIA's fork."""
    def __init__(
        self,
        *,
        trt_mode: TRTParameter.TRTMode | str | None = None,
        top_k: int | None = None,
        deploy: str | None = None,
        model: str | None = None,
        deploy_outputs: Iterable[str] | None = None,
        calibrator: str | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "trt_mode", "top_k", "deploy", "model", "calibrator"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "trt_mode", "top_k", "deploy", "model", "deploy_outputs", "calibrator"
        ],
    ) -> None: ...

class CompileNetState(Message):
    is_init: bool
    """Default: true. A field of Intel's fork."""
    bn_scale_remove: bool
    """Default: false. A field of Intel's fork."""
    bn_scale_merge: bool
    """Default: false. A field of Intel's fork."""
    @property
    def kept_bn_layers(self) -> RepeatedScalarFieldContainer[str]:
        """A field of Intel's fork."""
    @property
    def negative_conv_names(self) -> RepeatedScalarFieldContainer[str]:
        """A field of Intel's fork."""
    @property
    def negative_conv_indexes(self) -> RepeatedScalarFieldContainer[int]:
        """A field of Intel's fork."""
    def __init__(
        self,
        *,
        is_init: bool | None = None,
        bn_scale_remove: bool | None = None,
        bn_scale_merge: bool | None = None,
        kept_bn_layers: Iterable[str] | None = None,
        negative_conv_names: Iterable[str] | None = None,
        negative_conv_indexes: Iterable[int] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "is_init", "bn_scale_remove", "bn_scale_merge"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "is_init", "bn_scale_remove", "bn_scale_merge", "kept_bn_layers", "negative_conv_names",
            "negative_conv_indexes"
        ],
    ) -> None: ...

class MultinodeParameter(Message):
    @property
    def model_parallel(self) -> RepeatedCompositeFieldContainer[MnModelParallelParameter]:
        """A field of Intel's fork."""
    @property
    def compress_layer_type_list(self) -> MnParamGradCompressLayerTypeList:
        """A field of Intel's fork."""
    def __init__(
        self,
        *,
        model_parallel: Iterable[MnModelParallelParameter | Mapping[str, Any]] | None = None,
        compress_layer_type_list: MnParamGradCompressLayerTypeList | Mapping[str, Any] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "compress_layer_type_list"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "model_parallel", "compress_layer_type_list"
        ],
    ) -> None: ...

class MnModelParallelParameter(Message):
    layer_from: str
    """Required. A field of Intel's fork."""
    layer_to: str
    """A field of Intel's fork."""
    num_nodes: int
    """A field of Intel's fork."""
    model_parts: int
    """A field of Intel's fork."""
    def __init__(
        self,
        *,
        layer_from: str | None = None,
        layer_to: str | None = None,
        num_nodes: int | None = None,
        model_parts: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "layer_from", "layer_to", "num_nodes", "model_parts"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "layer_from", "layer_to", "num_nodes", "model_parts"
        ],
    ) -> None: ...

class MnParamGradCompressLayerTypeList(Message):
    @property
    def layer_type(self) -> RepeatedScalarFieldContainer[str]:
        """A field of Intel's fork."""
    def __init__(
        self,
        *,
        layer_type: Iterable[str] | None = None,
    ) -> None: ...
    def HasField(self, field_name: Never) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "layer_type"
        ],
    ) -> None: ...

class MultiPhaseSolverParameter(Message):
    @property
    def params_pair(self) -> RepeatedCompositeFieldContainer[SolverBatchSizePair]:
        """A field of Intel's fork."""
    def __init__(
        self,
        *,
        params_pair: Iterable[SolverBatchSizePair | Mapping[str, Any]] | None = None,
    ) -> None: ...
    def HasField(self, field_name: Never) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "params_pair"
        ],
    ) -> None: ...

class SolverBatchSizePair(Message):
    @property
    def solver_params(self) -> SolverParameter:
        """A field of Intel's fork."""
    batch_size: int
    """A field of Intel's fork."""
    def __init__(
        self,
        *,
        solver_params: SolverParameter | Mapping[str, Any] | None = None,
        batch_size: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "solver_params", "batch_size"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "solver_params", "batch_size"
        ],
    ) -> None: ...

class RegionLossParameter(Message):
    side: int
    """Default: 13. A field of Intel's fork."""
    num_class: int
    """Default: 20. A field of Intel's fork."""
    bias_match: int
    """Default: 1. A field of Intel's fork."""
    coords: int
    """Default: 4. A field of Intel's fork."""
    num: int
    """Default: 5. A field of Intel's fork."""
    softmax: int
    """Default: 1. A field of Intel's fork."""
    jitter: float
    """Default: 0.2. A field of Intel's fork."""
    rescore: int
    """Default: 1. A field of Intel's fork."""
    object_scale: float
    """Default: 1. A field of Intel's fork."""
    class_scale: float
    """Default: 1. A field of Intel's fork."""
    noobject_scale: float
    """Default: 0.5. A field of Intel's fork."""
    coord_scale: float
    """Default: 5. A field of Intel's fork."""
    absolute: int
    """Default: 1. A field of Intel's fork."""
    thresh: float
    """Default: 0.2. A field of Intel's fork."""
    random: int
    """Default: 1. A field of Intel's fork."""
    @property
    def biases(self) -> RepeatedScalarFieldContainer[float]:
        """A field of Intel's fork."""
    softmax_tree: str
    """A field of Intel's fork."""
    class_map: str
    """A field of Intel's fork."""
    def __init__(
        self,
        *,
        side: int | None = None,
        num_class: int | None = None,
        bias_match: int | None = None,
        coords: int | None = None,
        num: int | None = None,
        softmax: int | None = None,
        jitter: float | None = None,
        rescore: int | None = None,
        object_scale: float | None = None,
        class_scale: float | None = None,
        noobject_scale: float | None = None,
        coord_scale: float | None = None,
        absolute: int | None = None,
        thresh: float | None = None,
        random: int | None = None,
        biases: Iterable[float] | None = None,
        softmax_tree: str | None = None,
        class_map: str | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "side", "num_class", "bias_match", "coords", "num", "softmax", "jitter", "rescore",
            "object_scale", "class_scale", "noobject_scale", "coord_scale", "absolute", "thresh", "random",
            "softmax_tree", "class_map"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "side", "num_class", "bias_match", "coords", "num", "softmax", "jitter", "rescore",
            "object_scale", "class_scale", "noobject_scale", "coord_scale", "absolute", "thresh", "random",
            "biases", "softmax_tree", "class_map"
        ],
    ) -> None: ...

class EvalDetectionParameter(Message):
    class ScoreType(_Enum):
        OBJ: ClassVar[EvalDetectionParameter.ScoreType]
        PROB: ClassVar[EvalDetectionParameter.ScoreType]
        MULTIPLY: ClassVar[EvalDetectionParameter.ScoreType]

    OBJ: ClassVar[EvalDetectionParameter.ScoreType]
    PROB: ClassVar[EvalDetectionParameter.ScoreType]
    MULTIPLY: ClassVar[EvalDetectionParameter.ScoreType]

    side: int
    """Default: 7. A field of Intel's fork."""
    num_class: int
    """Default: 20. A field of Intel's fork."""
    num_object: int
    """Default: 2. A field of Intel's fork."""
    threshold: float
    """Default: 0.5. A field of Intel's fork."""
    sqrt: bool
    """Default: true. A field of Intel's fork."""
    constriant: bool
    """Default: true. A field of Intel's fork."""
    score_type: EvalDetectionParameter.ScoreType
    """Default: MULTIPLY. A field of Intel's fork."""
    nms: float
    """Default: -1. A field of Intel's fork."""
    @property
    def biases(self) -> RepeatedScalarFieldContainer[float]:
        """A field of Intel's fork."""
    def __init__(
        self,
        *,
        side: int | None = None,
        num_class: int | None = None,
        num_object: int | None = None,
        threshold: float | None = None,
        sqrt: bool | None = None,
        constriant: bool | None = None,
        score_type: EvalDetectionParameter.ScoreType | str | None = None,
        nms: float | None = None,
        biases: Iterable[float] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "side", "num_class", "num_object", "threshold", "sqrt", "constriant", "score_type", "nms"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "side", "num_class", "num_object", "threshold", "sqrt", "constriant", "score_type", "nms",
            "biases"
        ],
    ) -> None: ...

class MultinodeLayerParameter(Message):
    num_nodes: int
    """A field of Intel's fork."""
    model_parts: int
    """Default: 1. A field of Intel's fork."""
    def __init__(
        self,
        *,
        num_nodes: int | None = None,
        model_parts: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "num_nodes", "model_parts"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "num_nodes", "model_parts"
        ],
    ) -> None: ...

class MnActivationParameter(Message):
    num_nodes_in: int
    """A field of Intel's fork."""
    num_nodes_out: int
    """A field of Intel's fork."""
    model_parts_in: int
    """Default: 1. A field of Intel's fork."""
    model_parts_out: int
    """Default: 1. A field of Intel's fork."""
    need_reduce: bool
    """Default: true. A field of Intel's fork."""
    def __init__(
        self,
        *,
        num_nodes_in: int | None = None,
        num_nodes_out: int | None = None,
        model_parts_in: int | None = None,
        model_parts_out: int | None = None,
        need_reduce: bool | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "num_nodes_in", "num_nodes_out", "model_parts_in", "model_parts_out", "need_reduce"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "num_nodes_in", "num_nodes_out", "model_parts_in", "model_parts_out", "need_reduce"
        ],
    ) -> None: ...

class QuantizationParameter(Message):
    class Precision(_Enum):
        DYNAMIC_FIXED_POINT: ClassVar[QuantizationParameter.Precision]

    DYNAMIC_FIXED_POINT: ClassVar[QuantizationParameter.Precision]

    class Rounding(_Enum):
        NEAREST: ClassVar[QuantizationParameter.Rounding]

    NEAREST: ClassVar[QuantizationParameter.Rounding]

    precision: QuantizationParameter.Precision
    """Default: DYNAMIC_FIXED_POINT. A field of Intel's fork."""
    rounding_scheme: QuantizationParameter.Rounding
    """Default: NEAREST. A field of Intel's fork."""
    bw_layer_in: int
    """Default: 32. A field of Intel's fork."""
    bw_layer_out: int
    """Default: 32. A field of Intel's fork."""
    bw_params: int
    """Default: 32. A field of Intel's fork."""
    @property
    def fl_layer_in(self) -> RepeatedScalarFieldContainer[int]:
        """A field of Intel's fork."""
    @property
    def fl_layer_out(self) -> RepeatedScalarFieldContainer[int]:
        """A field of Intel's fork."""
    @property
    def fl_params(self) -> RepeatedScalarFieldContainer[int]:
        """A field of Intel's fork."""
    @property
    def scale_in(self) -> RepeatedScalarFieldContainer[float]:
        """A field of Intel's fork."""
    @property
    def scale_out(self) -> RepeatedScalarFieldContainer[float]:
        """A field of Intel's fork."""
    @property
    def scale_params(self) -> RepeatedScalarFieldContainer[float]:
        """A field of Intel's fork."""
    is_negative_input: bool
    """Default: false. A field of Intel's fork."""
    force_u8_input: bool
    """Default: false. A field of Intel's fork."""
    def __init__(
        self,
        *,
        precision: QuantizationParameter.Precision | str | None = None,
        rounding_scheme: QuantizationParameter.Rounding | str | None = None,
        bw_layer_in: int | None = None,
        bw_layer_out: int | None = None,
        bw_params: int | None = None,
        fl_layer_in: Iterable[int] | None = None,
        fl_layer_out: Iterable[int] | None = None,
        fl_params: Iterable[int] | None = None,
        scale_in: Iterable[float] | None = None,
        scale_out: Iterable[float] | None = None,
        scale_params: Iterable[float] | None = None,
        is_negative_input: bool | None = None,
        force_u8_input: bool | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "precision", "rounding_scheme", "bw_layer_in", "bw_layer_out", "bw_params", "is_negative_input",
            "force_u8_input"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "precision", "rounding_scheme", "bw_layer_in", "bw_layer_out", "bw_params", "fl_layer_in",
            "fl_layer_out", "fl_params", "scale_in", "scale_out", "scale_params", "is_negative_input",
            "force_u8_input"
        ],
    ) -> None: ...

class MnParamGradCompressParameter(Message):
    @property
    def param_grad_compress_enable(self) -> RepeatedScalarFieldContainer[bool]:
        """A field of Intel's fork."""
    def __init__(
        self,
        *,
        param_grad_compress_enable: Iterable[bool] | None = None,
    ) -> None: ...
    def HasField(self, field_name: Never) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "param_grad_compress_enable"
        ],
    ) -> None: ...

class RandomResizeParameter(Message):
    min_size: int
    """Default: 0. A field of Intel's fork."""
    max_size: int
    """Default: 0. A field of Intel's fork."""
    @property
    def resize_param(self) -> ResizeParameter:
        """A field of Intel's fork."""
    def __init__(
        self,
        *,
        min_size: int | None = None,
        max_size: int | None = None,
        resize_param: ResizeParameter | Mapping[str, Any] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "min_size", "max_size", "resize_param"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "min_size", "max_size", "resize_param"
        ],
    ) -> None: ...

class RandomAspectRatioParameter(Message):
    min_area_ratio: float
    """Default: 0.5. A field of Intel's fork."""
    max_area_ratio: float
    """Default: 1. A field of Intel's fork."""
    aspect_ratio_change: float
    """Default: 1. A field of Intel's fork."""
    max_attempt: int
    """Default: 10. A field of Intel's fork."""
    @property
    def resize_param(self) -> ResizeParameter:
        """A field of Intel's fork."""
    def __init__(
        self,
        *,
        min_area_ratio: float | None = None,
        max_area_ratio: float | None = None,
        aspect_ratio_change: float | None = None,
        max_attempt: int | None = None,
        resize_param: ResizeParameter | Mapping[str, Any] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "min_area_ratio", "max_area_ratio", "aspect_ratio_change", "max_attempt", "resize_param"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "min_area_ratio", "max_area_ratio", "aspect_ratio_change", "max_attempt", "resize_param"
        ],
    ) -> None: ...

class SplitParameter(Message):
    class Engine(_Enum):
        DEFAULT: ClassVar[SplitParameter.Engine]
        CAFFE: ClassVar[SplitParameter.Engine]
        MKL2017: ClassVar[SplitParameter.Engine]
        MKLDNN: ClassVar[SplitParameter.Engine]

    DEFAULT: ClassVar[SplitParameter.Engine]
    CAFFE: ClassVar[SplitParameter.Engine]
    MKL2017: ClassVar[SplitParameter.Engine]
    MKLDNN: ClassVar[SplitParameter.Engine]

    engine: SplitParameter.Engine
    """Default: DEFAULT. A field of Intel's fork."""
    def __init__(
        self,
        *,
        engine: SplitParameter.Engine | str | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "engine"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "engine"
        ],
    ) -> None: ...

class BoxAnnotatorOHEMParameter(Message):
    roi_per_img: int
    """Required. A field of Intel's fork."""
    ignore_label: int
    """Default: -1. A field of Intel's fork."""
    def __init__(
        self,
        *,
        roi_per_img: int | None = None,
        ignore_label: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "roi_per_img", "ignore_label"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "roi_per_img", "ignore_label"
        ],
    ) -> None: ...

class ReorgParameter(Message):
    stride: int
    """A field of Intel's fork."""
    reverse: bool
    """Default: false. A field of Intel's fork."""
    def __init__(
        self,
        *,
        stride: int | None = None,
        reverse: bool | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "stride", "reverse"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "stride", "reverse"
        ],
    ) -> None: ...

class SpatialDropoutParameter(Message):
    dropout_ratio: float
    """Default: 0.5. A field of Intel's fork."""
    def __init__(
        self,
        *,
        dropout_ratio: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "dropout_ratio"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "dropout_ratio"
        ],
    ) -> None: ...

class PSROIPoolingParameter(Message):
    spatial_scale: float
    """Required. A field of Intel's fork."""
    output_dim: int
    """Required. A field of Intel's fork."""
    group_size: int
    """Required. A field of Intel's fork."""
    def __init__(
        self,
        *,
        spatial_scale: float | None = None,
        output_dim: int | None = None,
        group_size: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "spatial_scale", "output_dim", "group_size"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "spatial_scale", "output_dim", "group_size"
        ],
    ) -> None: ...

class ROIPoolingParameter(Message):
    pooled_h: int
    """Default: 0. A field of Intel's fork."""
    pooled_w: int
    """Default: 0. A field of Intel's fork."""
    spatial_scale: float
    """Default: 1. A field of Intel's fork."""
    @property
    def pooled_size(self) -> RepeatedScalarFieldContainer[int]:
        """A field of Intel's fork."""
    def __init__(
        self,
        *,
        pooled_h: int | None = None,
        pooled_w: int | None = None,
        spatial_scale: float | None = None,
        pooled_size: Iterable[int] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "pooled_h", "pooled_w", "spatial_scale"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "pooled_h", "pooled_w", "spatial_scale", "pooled_size"
        ],
    ) -> None: ...

class SmoothL1LossParameter(Message):
    sigma: float
    """Default: 1. A field of Intel's fork."""
    def __init__(
        self,
        *,
        sigma: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "sigma"
        ],
    ) -> bool: ...
    def ClearField(
        self,
        field_name: Literal[
            "sigma"
        ],
    ) -> None: ...

