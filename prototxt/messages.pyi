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
    """The size of a blob along each axis."""

    @property
    def dim(self) -> RepeatedScalarFieldContainer[int]:
        """One size for each axis."""
    def __init__(
        self,
        *,
        dim: Iterable[int] | None = None,
    ) -> None: ...
    def HasField(self, field_name: Never) -> bool: ...

class BlobProto(Message):
    """A blob: weights in a caffemodel, a history in a solverstate, a mean image."""

    @property
    def shape(self) -> BlobShape:
        """Its shape; files of the first releases give num, channels, height and width instead."""
    @property
    def data(self) -> RepeatedScalarFieldContainer[float]:
        """The values as float32, in row order."""
    @property
    def diff(self) -> RepeatedScalarFieldContainer[float]:
        """The gradient, where it was saved."""
    @property
    def double_data(self) -> RepeatedScalarFieldContainer[float]:
        """The values as float64; they win over data."""
    @property
    def double_diff(self) -> RepeatedScalarFieldContainer[float]:
        """The gradient as float64."""
    num: int
    """Size of the first axis, in old files. Default: 0."""
    channels: int
    """Size of the second axis, in old files. Default: 0."""
    height: int
    """Size of the third axis, in old files. Default: 0."""
    width: int
    """Size of the fourth axis, in old files. Default: 0."""
    @property
    def shards(self) -> BlobShards:
        """Where the values are that this file lacks: in the shards of a snapshot, each with some rows. A field of
        mgcaffe."""
    raw_data_type: Type
    """Number type of raw_data. A field of NVIDIA's fork."""
    raw_diff_type: Type
    """Number type of raw_diff. A field of NVIDIA's fork."""
    raw_data: bytes
    """The values as bytes. A field of NVIDIA's fork."""
    raw_diff: bytes
    """The gradient as bytes. A field of NVIDIA's fork."""
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
        shards: BlobShards | Mapping[str, Any] | None = None,
        raw_data_type: Type | str | None = None,
        raw_diff_type: Type | str | None = None,
        raw_data: bytes | None = None,
        raw_diff: bytes | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "shape", "num", "channels", "height", "width", "shards", "raw_data_type", "raw_diff_type",
            "raw_data", "raw_diff"
        ],
    ) -> bool: ...

class BlobProtoVector(Message):
    """Blobs in a row."""

    @property
    def blobs(self) -> RepeatedCompositeFieldContainer[BlobProto]:
        """A blob: weights in a caffemodel, a history in a solverstate, a mean image."""
    def __init__(
        self,
        *,
        blobs: Iterable[BlobProto | Mapping[str, Any]] | None = None,
    ) -> None: ...
    def HasField(self, field_name: Never) -> bool: ...

class Datum(Message):
    """One record of an LMDB: an image or other values, and a label."""

    channels: int
    """How many channels the image has."""
    height: int
    """Its rows; unused where it is encoded."""
    width: int
    """Its columns; unused where it is encoded."""
    data: bytes
    """The pixels as bytes, channels x height x width, or an image file where encoded is set."""
    label: int
    """The record's class."""
    @property
    def float_data(self) -> RepeatedScalarFieldContainer[float]:
        """The values where they are not bytes."""
    encoded: bool
    """Data is an image file (JPEG, PNG) to be decoded. Default: false."""
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

class FillerParameter(Message):
    """How a parameter is initialised."""

    class VarianceNorm(_Enum):
        FAN_IN: ClassVar[FillerParameter.VarianceNorm]
        FAN_OUT: ClassVar[FillerParameter.VarianceNorm]
        AVERAGE: ClassVar[FillerParameter.VarianceNorm]

    FAN_IN: ClassVar[FillerParameter.VarianceNorm]
    FAN_OUT: ClassVar[FillerParameter.VarianceNorm]
    AVERAGE: ClassVar[FillerParameter.VarianceNorm]

    type: str
    """constant, uniform, gaussian, positive_unitball, xavier, msra or bilinear. Default: 'constant'."""
    value: float
    """The value of constant. Default: 0."""
    min: float
    """Lower bound of uniform. Default: 0."""
    max: float
    """Upper bound of uniform. Default: 1."""
    mean: float
    """Mean of gaussian. Default: 0."""
    std: float
    """Standard deviation of gaussian. Default: 1."""
    sparse: int
    """Of gaussian, how many inputs of each output have a weight other than 0; -1 for all. Default: -1."""
    variance_norm: FillerParameter.VarianceNorm
    """By which fan xavier and msra scale. Default: FAN_IN."""
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

class NetParameter(Message):
    """A net: its layers in order, and in a caffemodel their weights."""

    name: str
    """The net's name, for logs."""
    @property
    def input(self) -> RepeatedScalarFieldContainer[str]:
        """Names of the input blobs, in the old form; upgraded to an Input layer."""
    @property
    def input_shape(self) -> RepeatedCompositeFieldContainer[BlobShape]:
        """Their shapes."""
    @property
    def input_dim(self) -> RepeatedScalarFieldContainer[int]:
        """Their shapes in the oldest way, four numbers each."""
    force_backward: bool
    """Computes gradients for blobs that no parameter needs them for, too. Default: false."""
    @property
    def state(self) -> NetState:
        """Level and stages that decide which layers take part."""
    debug_info: bool
    """Logs mean values of blobs and gradients. Default: false."""
    @property
    def layer(self) -> RepeatedCompositeFieldContainer[LayerParameter]:
        """The layers."""
    @property
    def layers(self) -> RepeatedCompositeFieldContainer[V1LayerParameter]:
        """The layers in the form of the first releases; upgraded to layer."""
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

class SolverParameter(Message):
    """What is trained and how: a solver.prototxt."""

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

    class Winograd(_Enum):
        OFF: ClassVar[SolverParameter.Winograd]
        SAFE: ClassVar[SolverParameter.Winograd]
        FAST: ClassVar[SolverParameter.Winograd]

    OFF: ClassVar[SolverParameter.Winograd]
    SAFE: ClassVar[SolverParameter.Winograd]
    FAST: ClassVar[SolverParameter.Winograd]

    net: str
    """File of a net for training and tests."""
    @property
    def net_param(self) -> NetParameter:
        """The same written inside the solver."""
    train_net: str
    """File of the training net."""
    @property
    def test_net(self) -> RepeatedScalarFieldContainer[str]:
        """Files of test nets."""
    @property
    def train_net_param(self) -> NetParameter:
        """The training net written inside the solver."""
    @property
    def test_net_param(self) -> RepeatedCompositeFieldContainer[NetParameter]:
        """Test nets written inside the solver."""
    @property
    def train_state(self) -> NetState:
        """State in which the training net is built."""
    @property
    def test_state(self) -> RepeatedCompositeFieldContainer[NetState]:
        """States in which the test nets are built, one for each."""
    @property
    def test_iter(self) -> RepeatedScalarFieldContainer[int]:
        """Batches of one test, for each test net."""
    test_interval: int
    """Iterations between two tests; 0 for none. Default: 0."""
    test_compute_loss: bool
    """Logs the loss of a test as well. Default: false."""
    test_initialization: bool
    """Tests before the first iteration. Default: true."""
    base_lr: float
    """The learning rate that lr_policy starts from."""
    display: int
    """Iterations between two lines of the log; 0 for none."""
    average_loss: int
    """Over how many iterations the logged loss is smoothed. Default: 1."""
    max_iter: int
    """How many iterations to train."""
    iter_size: int
    """How many batches' gradients make up one update. Default: 1."""
    lr_policy: str
    """fixed, step, exp, inv, multistep, poly, sigmoid, multifixed or plateau (docs/solvers.md has the
    formulas)."""
    gamma: float
    """The factor or slope of step, exp, inv, multistep, sigmoid and plateau."""
    power: float
    """The exponent of inv and poly."""
    momentum: float
    """Factor on the history; beta 1 of Adam."""
    weight_decay: float
    """Factor of the regularisation."""
    regularization_type: str
    """L1 or L2. Default: 'L2'."""
    stepsize: int
    """Iterations between two steps of lr_policy step; the middle of sigmoid."""
    @property
    def stepvalue(self) -> RepeatedScalarFieldContainer[int]:
        """Iterations at which lr_policy multistep goes down."""
    clip_gradients: float
    """The largest norm that all gradients may have together; negative for any. Default: -1."""
    snapshot: int
    """Iterations between two snapshots; 0 for none. Default: 0."""
    snapshot_prefix: str
    """Path with which the names of snapshots begin."""
    snapshot_diff: bool
    """Saves the gradients as well. Default: false."""
    snapshot_format: SolverParameter.SnapshotFormat
    """HDF5 or BINARYPROTO. Default: BINARYPROTO."""
    solver_mode: SolverParameter.SolverMode
    """CPU or GPU. Default: GPU."""
    device_id: int
    """Which GPU. Default: 0."""
    random_seed: int
    """Seed of fillers, dropout and augmentation; negative for one drawn at the start. Default: -1."""
    type: str
    """SGD, Nesterov, AdaGrad, RMSProp, AdaDelta or Adam. Default: 'SGD'."""
    delta: float
    """What keeps AdaGrad, RMSProp, AdaDelta and Adam from dividing by 0. Default: 1e-08."""
    momentum2: float
    """Beta 2 of Adam. Default: 0.999."""
    rms_decay: float
    """How much of its history RMSProp keeps. Default: 0.99."""
    debug_info: bool
    """Logs mean values of blobs, gradients and weights. Default: false."""
    snapshot_after_train: bool
    """Takes a snapshot at the end, too. Default: true."""
    solver_type: SolverParameter.SolverType
    """type in the old form; upgraded. Default: SGD."""
    layer_wise_reduce: bool
    """All-reduces layer by layer in Caffe; comm_param.schedule decides here. Default: true."""
    @property
    def weights(self) -> RepeatedScalarFieldContainer[str]:
        """Caffemodels to begin with."""
    @property
    def comm_param(self) -> CommParameter:
        """How gradients are exchanged between ranks. A field of mgcaffe."""
    snapshot_keep: int
    """How many snapshots stay, older ones are deleted; 0 keeps all. Default: 0. A field of mgcaffe."""
    snapshot_best: str
    """A test output by which the best snapshot is kept apart: accuracy, or 1:top5:higher for test net 1 and
    which way is better. A field of mgcaffe."""
    snapshot_errors: SolverParameter.SnapshotErrors
    """Whether a snapshot that cannot be written warns or stops the run. Default: WARN. A field of mgcaffe."""
    snapshot_background: bool
    """Writes snapshots while training goes on. Default: true. A field of mgcaffe."""
    nan_effect: NanEffect
    """What a loss or gradient that is not finite does: stop, skip the update, or take a snapshot and stop.
    Default: STOP. A field of mgcaffe."""
    bad_record: DataParameter.BadRecord
    """What a damaged record does in layers that do not say so themselves: stop the run, or be skipped.
    Default: STOP. A field of mgcaffe."""
    bad_record_limit: int
    """How many different records of a source may be skipped. Default: 100. A field of mgcaffe."""
    decoupled_weight_decay: bool
    """Takes the decay off the weights instead of adding it to the gradients (AdamW, SGDW). Default: false. A
    field of mgcaffe."""
    row_wise_adagrad: bool
    """With type AdaGrad, gives every row of an EmbeddingBag's table one history instead of one for each value.
    Default: false. A field of mgcaffe."""
    autotune: str
    """How convolutions and inner products are computed: off (by rule), on (by what is fastest here, measured
    once and kept in the user's cache folder), or a file that keeps what was measured. Default: 'off'. A
    field of mgcaffe."""
    precision: str
    """In how many bits products are computed: float32, bf16 or fp16 (operands of 16 bits, sums and weights in
    float32), or on a GPU tf32. Default: 'float32'. A field of mgcaffe."""
    winograd: SolverParameter.Winograd
    """Whether autotune may choose Winograd's convolutions, which multiply less and round more: OFF, SAFE
    (where they differ by at most 1e-5 of the largest value, as measured once with random values), or FAST
    (1e-4). Default: OFF. A field of mgcaffe."""
    recompute: str
    """Which layers backward computes a second time, so that their values need not be kept: off, auto (as many
    as it takes for the lowest peak of memory), or ranges of layers, FIRST..LAST,FIRST..LAST. Default:
    'off'. A field of mgcaffe."""
    eval_type: str
    """Default: 'classification'. A field of the SSD fork."""
    ap_version: str
    """Default: 'Integral'. A field of the SSD fork."""
    show_per_class_result: bool
    """Default: false. A field of the SSD fork."""
    @property
    def plateau_winsize(self) -> RepeatedScalarFieldContainer[int]:
        """Of lr_policy plateau, how long to wait for a lower loss before each step of the rate. A field of the SSD
        fork."""
    rampup_interval: int
    """Iterations over which the rate rises to base_lr with the square of the iteration. Default: 0. A field of
    NVIDIA's fork."""
    rampup_lr: float
    """The rate at which the ramp begins. Default: 0. A field of NVIDIA's fork."""
    min_lr: float
    """Lower bound of the learning rate. Default: 0. A field of NVIDIA's fork."""
    momentum_policy: str
    """fixed, poly or opt. Default: 'fixed'. A field of NVIDIA's fork."""
    max_momentum: float
    """Where momentum_policy poly ends; upper bound of opt. Default: 0.99. A field of NVIDIA's fork."""
    momentum_power: float
    """Exponent of momentum_policy poly. Default: 1. A field of NVIDIA's fork."""
    larc: bool
    """Gives each parameter a rate of its own, from the norms of weights and gradient. Default: false. A field
    of NVIDIA's fork."""
    larc_policy: str
    """Scale or clip. Default: 'scale'. A field of NVIDIA's fork."""
    larc_eta: float
    """The trust ratio of larc. Default: 0.001. A field of NVIDIA's fork."""
    larc_turbo: bool
    """Not supported; refused. Default: false. A field of NVIDIA's fork."""
    weight_decay_policy: str
    """fixed or poly. Default: 'fixed'. A field of NVIDIA's fork."""
    weight_decay_power: float
    """Exponent of weight_decay_policy poly. Default: 1. A field of NVIDIA's fork."""
    max_weight_decay: float
    """Where weight_decay_policy poly ends. Default: 0. A field of NVIDIA's fork."""
    solver_data_type: Type
    """Default: FLOAT. A field of NVIDIA's fork."""
    store_blobs_in_old_format: bool
    """Default: false. A field of NVIDIA's fork."""
    test_and_snapshot_last_epochs: int
    """Default: 0. A field of NVIDIA's fork."""
    @property
    def stagelr(self) -> RepeatedScalarFieldContainer[float]:
        """The rates of lr_policy multifixed. A field of Intel's fork."""
    @property
    def stageiter(self) -> RepeatedScalarFieldContainer[int]:
        """The last iteration of each of them. A field of Intel's fork."""
    disabled_update: bool
    """Not supported; refused. Default: false. A field of Intel's fork."""
    engine: str
    """A field of Intel's fork."""
    warmup_iter: int
    """Iterations over which the rate rises to base_lr in a line. Default: 0. A field of Intel's fork."""
    warmup_start_lr: float
    """The rate at which the warm-up begins. Default: 0. A field of Intel's fork."""
    local_lr_auto: bool
    """Gives each parameter a rate of its own (LARS). Default: false. A field of Intel's fork."""
    local_gw_ratio: float
    """The trust ratio of local_lr_auto. Default: 0.001. A field of Intel's fork."""
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
        row_wise_adagrad: bool | None = None,
        autotune: str | None = None,
        precision: str | None = None,
        winograd: SolverParameter.Winograd | str | None = None,
        recompute: str | None = None,
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
            "bad_record", "bad_record_limit", "decoupled_weight_decay", "row_wise_adagrad", "autotune",
            "precision", "winograd", "recompute", "eval_type", "ap_version", "show_per_class_result",
            "rampup_interval", "rampup_lr", "min_lr", "momentum_policy", "max_momentum", "momentum_power",
            "larc", "larc_policy", "larc_eta", "larc_turbo", "weight_decay_policy", "weight_decay_power",
            "max_weight_decay", "solver_data_type", "store_blobs_in_old_format",
            "test_and_snapshot_last_epochs", "disabled_update", "engine", "warmup_iter", "warmup_start_lr",
            "local_lr_auto", "local_gw_ratio", "test_offset"
        ],
    ) -> bool: ...

class SolverState(Message):
    """A solverstate: what a resumed run needs beside the weights."""

    iter: int
    """Iterations done."""
    learned_net: str
    """File of the weights."""
    @property
    def history(self) -> RepeatedCompositeFieldContainer[BlobProto]:
        """The solver's histories, a blob for each parameter and history."""
    current_step: int
    """How many steps the rate has gone down. Default: 0."""
    @property
    def engine_state(self) -> EngineState:
        """What mgcaffe keeps beyond that. A field of mgcaffe."""
    minimum_loss: float
    """The lowest loss that lr_policy plateau has seen. Default: 1e+38. A field of the SSD fork."""
    iter_last_event: int
    """When it was seen, or the rate last went down. Default: 0. A field of the SSD fork."""
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

class NetState(Message):
    """The state by which rules let layers take part."""

    phase: Phase
    """TRAIN or TEST. Default: TEST."""
    level: int
    """A number for min_level and max_level. Default: 0."""
    @property
    def stage(self) -> RepeatedScalarFieldContainer[str]:
        """Names for stage and not_stage."""
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

class NetStateRule(Message):
    """A condition on the net's state; a layer takes part if an include rule is met, or no exclude rule is."""

    phase: Phase
    """The phase it wants."""
    min_level: int
    """The lowest level it wants."""
    max_level: int
    """The highest level it wants."""
    @property
    def stage(self) -> RepeatedScalarFieldContainer[str]:
        """Stages that must be there."""
    @property
    def not_stage(self) -> RepeatedScalarFieldContainer[str]:
        """Stages that must not be there."""
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

class ParamSpec(Message):
    """Training of one of a layer's parameters."""

    class DimCheckMode(_Enum):
        STRICT: ClassVar[ParamSpec.DimCheckMode]
        PERMISSIVE: ClassVar[ParamSpec.DimCheckMode]

    STRICT: ClassVar[ParamSpec.DimCheckMode]
    PERMISSIVE: ClassVar[ParamSpec.DimCheckMode]

    name: str
    """Layers with a parameter of the same name share it."""
    share_mode: ParamSpec.DimCheckMode
    """Whether a shared parameter needs the same shape, or only the same count."""
    lr_mult: float
    """Factor on the learning rate; 0 freezes the parameter. Default: 1."""
    decay_mult: float
    """Factor on the weight decay. Default: 1."""
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

class LayerParameter(Message):
    """One layer: its type, its blobs, its parameters' training, and the fields of its type."""

    name: str
    """The layer's name, by which weights are found in a caffemodel."""
    type: str
    """Its type, "Convolution" for example."""
    @property
    def bottom(self) -> RepeatedScalarFieldContainer[str]:
        """Names of the blobs that it reads."""
    @property
    def top(self) -> RepeatedScalarFieldContainer[str]:
        """Names of the blobs that it makes."""
    phase: Phase
    """The phase that it runs in."""
    @property
    def loss_weight(self) -> RepeatedScalarFieldContainer[float]:
        """The weight of each top in the net's loss."""
    @property
    def param(self) -> RepeatedCompositeFieldContainer[ParamSpec]:
        """Training of its parameters, in their order."""
    @property
    def blobs(self) -> RepeatedCompositeFieldContainer[BlobProto]:
        """The values of its parameters, in a caffemodel."""
    @property
    def propagate_down(self) -> RepeatedScalarFieldContainer[bool]:
        """For each bottom, whether it gets a gradient."""
    @property
    def include(self) -> RepeatedCompositeFieldContainer[NetStateRule]:
        """Rules of which one must be met."""
    @property
    def exclude(self) -> RepeatedCompositeFieldContainer[NetStateRule]:
        """Rules of which none may be met."""
    @property
    def transform_param(self) -> TransformationParameter:
        """What data layers do to each record."""
    @property
    def loss_param(self) -> LossParameter:
        """What losses with labels read."""
    @property
    def accuracy_param(self) -> AccuracyParameter:
        """What Accuracy reads."""
    @property
    def argmax_param(self) -> ArgMaxParameter:
        """What ArgMax reads."""
    @property
    def batch_norm_param(self) -> BatchNormParameter:
        """What BatchNorm reads."""
    @property
    def bias_param(self) -> BiasParameter:
        """What Bias reads."""
    @property
    def clip_param(self) -> ClipParameter:
        """What Clip reads."""
    @property
    def concat_param(self) -> ConcatParameter:
        """What Concat reads."""
    @property
    def contrastive_loss_param(self) -> ContrastiveLossParameter:
        """What ContrastiveLoss reads."""
    @property
    def convolution_param(self) -> ConvolutionParameter:
        """What Convolution, Deconvolution and Im2col read."""
    @property
    def crop_param(self) -> CropParameter:
        """What Crop reads."""
    @property
    def data_param(self) -> DataParameter:
        """What Data reads: records of an LMDB."""
    @property
    def dropout_param(self) -> DropoutParameter:
        """What Dropout reads."""
    @property
    def dummy_data_param(self) -> DummyDataParameter:
        """What DummyData reads."""
    @property
    def eltwise_param(self) -> EltwiseParameter:
        """What Eltwise reads."""
    @property
    def elu_param(self) -> ELUParameter:
        """What ELU reads."""
    @property
    def embed_param(self) -> EmbedParameter:
        """What Embed reads."""
    @property
    def exp_param(self) -> ExpParameter:
        """What Exp reads: base^(shift + scale x)."""
    @property
    def flatten_param(self) -> FlattenParameter:
        """What Flatten reads."""
    @property
    def hdf5_data_param(self) -> HDF5DataParameter:
        """What HDF5Data reads."""
    @property
    def hdf5_output_param(self) -> HDF5OutputParameter:
        """What HDF5Output reads."""
    @property
    def hinge_loss_param(self) -> HingeLossParameter:
        """What HingeLoss reads."""
    @property
    def image_data_param(self) -> ImageDataParameter:
        """What ImageData reads: image files with labels."""
    @property
    def infogain_loss_param(self) -> InfogainLossParameter:
        """What InfogainLoss reads."""
    @property
    def inner_product_param(self) -> InnerProductParameter:
        """What InnerProduct reads."""
    @property
    def input_param(self) -> InputParameter:
        """What Input reads."""
    @property
    def log_param(self) -> LogParameter:
        """What Log reads: the logarithm of shift + scale x."""
    @property
    def lrn_param(self) -> LRNParameter:
        """What LRN reads."""
    @property
    def memory_data_param(self) -> MemoryDataParameter:
        """What MemoryData reads."""
    @property
    def mvn_param(self) -> MVNParameter:
        """What MVN reads."""
    @property
    def parameter_param(self) -> ParameterParameter:
        """What Parameter reads."""
    @property
    def pooling_param(self) -> PoolingParameter:
        """What Pooling reads."""
    @property
    def power_param(self) -> PowerParameter:
        """What Power reads: (shift + scale x)^power."""
    @property
    def prelu_param(self) -> PReLUParameter:
        """What PReLU reads."""
    @property
    def python_param(self) -> PythonParameter:
        """What a Python layer reads."""
    @property
    def recurrent_param(self) -> RecurrentParameter:
        """What RNN and LSTM read."""
    @property
    def reduction_param(self) -> ReductionParameter:
        """What Reduction reads."""
    @property
    def relu_param(self) -> ReLUParameter:
        """What ReLU reads."""
    @property
    def reshape_param(self) -> ReshapeParameter:
        """What Reshape reads."""
    @property
    def scale_param(self) -> ScaleParameter:
        """What Scale reads."""
    @property
    def sigmoid_param(self) -> SigmoidParameter:
        """What Sigmoid reads."""
    @property
    def softmax_param(self) -> SoftmaxParameter:
        """What Softmax reads."""
    @property
    def spp_param(self) -> SPPParameter:
        """What SPP reads."""
    @property
    def slice_param(self) -> SliceParameter:
        """What Slice reads."""
    @property
    def swish_param(self) -> SwishParameter:
        """What Swish reads."""
    @property
    def tanh_param(self) -> TanHParameter:
        """What TanH reads."""
    @property
    def threshold_param(self) -> ThresholdParameter:
        """What Threshold reads."""
    @property
    def tile_param(self) -> TileParameter:
        """What Tile reads."""
    @property
    def window_data_param(self) -> WindowDataParameter:
        """What WindowData reads: windows of images."""
    @property
    def interp_param(self) -> InterpParameter:
        """What Interp reads. A field of mgcaffe."""
    @property
    def bn_param(self) -> BNParameter:
        """What BN reads. A field of mgcaffe."""
    @property
    def shuffle_channel_param(self) -> ShuffleChannelParameter:
        """What ShuffleChannel reads. A field of mgcaffe."""
    @property
    def relu6_param(self) -> ReLU6Parameter:
        """What ReLU6 reads. A field of mgcaffe."""
    @property
    def hard_sigmoid_param(self) -> HardSigmoidParameter:
        """What HardSigmoid reads. A field of mgcaffe."""
    @property
    def gelu_param(self) -> GELUParameter:
        """What GELU reads. A field of mgcaffe."""
    @property
    def layer_norm_param(self) -> LayerNormParameter:
        """What LayerNorm reads. A field of mgcaffe."""
    @property
    def embedding_bag_param(self) -> EmbeddingBagParameter:
        """What EmbeddingBag reads. A field of mgcaffe."""
    @property
    def criteo_data_param(self) -> CriteoDataParameter:
        """What CriteoData reads. A field of mgcaffe."""
    @property
    def dot_interaction_param(self) -> DotInteractionParameter:
        """What DotInteraction reads. A field of mgcaffe."""
    @property
    def normalized_entropy_param(self) -> NormalizedEntropyParameter:
        """What NormalizedEntropy reads. A field of mgcaffe."""
    @property
    def matmul_param(self) -> MatMulParameter:
        """What MatMul reads. A field of mgcaffe."""
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
        """What Normalize reads. A field of the SSD fork."""
    @property
    def permute_param(self) -> PermuteParameter:
        """What Permute reads. A field of the SSD fork."""
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
        """What ROIPooling reads. A field of Intel's fork."""
    @property
    def smooth_l1_loss_param(self) -> SmoothL1LossParameter:
        """What SmoothL1Loss reads. A field of Intel's fork."""
    @property
    def split_param(self) -> SplitParameter:
        """What Split reads. A field of Intel's fork."""
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
        hard_sigmoid_param: HardSigmoidParameter | Mapping[str, Any] | None = None,
        gelu_param: GELUParameter | Mapping[str, Any] | None = None,
        layer_norm_param: LayerNormParameter | Mapping[str, Any] | None = None,
        embedding_bag_param: EmbeddingBagParameter | Mapping[str, Any] | None = None,
        criteo_data_param: CriteoDataParameter | Mapping[str, Any] | None = None,
        dot_interaction_param: DotInteractionParameter | Mapping[str, Any] | None = None,
        normalized_entropy_param: NormalizedEntropyParameter | Mapping[str, Any] | None = None,
        matmul_param: MatMulParameter | Mapping[str, Any] | None = None,
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
            "shuffle_channel_param", "relu6_param", "hard_sigmoid_param", "gelu_param", "layer_norm_param",
            "embedding_bag_param", "criteo_data_param", "dot_interaction_param", "normalized_entropy_param",
            "matmul_param", "annotated_data_param", "detection_evaluate_param", "detection_output_param",
            "multibox_loss_param", "norm_param", "permute_param", "prior_box_param", "video_data_param",
            "forward_type", "backward_type", "forward_math", "backward_math", "debug",
            "cudnn_math_override", "trt_param", "detectnet_groundtruth_param",
            "detectnet_augmentation_param", "box_annotator_ohem_param", "psroi_pooling_param",
            "roi_pooling_param", "smooth_l1_loss_param", "split_param", "spatial_dropout_param", "engine",
            "multinode", "mn_activation_param", "mn_grad_compress_param", "quantization_param",
            "reorg_param", "region_loss_param", "eval_detection_param"
        ],
    ) -> bool: ...

class TransformationParameter(Message):
    """What data layers do to each record."""

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
    """Factor on every value, after the mean is taken off. Default: 1."""
    mirror: bool
    """Mirrors half of the images, at random. Default: false."""
    crop_size: int
    """Edge of the square that is cut out: at random in training, from the centre in a test. Default: 0."""
    mean_file: str
    """File of a mean image to take off."""
    @property
    def mean_value(self) -> RepeatedScalarFieldContainer[float]:
        """Mean to take off: one for all channels, or one for each."""
    force_color: bool
    """Decodes every image as colour. Default: false."""
    force_gray: bool
    """Decodes every image as grey. Default: false."""
    crop_h: int
    """Rows of what is cut out. Default: 0. A field of the SSD fork."""
    crop_w: int
    """Columns of what is cut out. Default: 0. A field of the SSD fork."""
    @property
    def resize_param(self) -> ResizeParameter:
        """How images are resized before. A field of the SSD fork."""
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

class LossParameter(Message):
    """What losses with labels read."""

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
    """A label whose values count for nothing."""
    normalization: LossParameter.NormalizationMode
    """What the sum of losses is divided by. Default: VALID."""
    normalize: bool
    """The old form of normalization: true VALID, false BATCH_SIZE."""
    weight_by_label_freqs: bool
    """Whether class_weighting counts (SegNet); true is refused. Default: false. A field of a smaller fork."""
    @property
    def class_weighting(self) -> RepeatedScalarFieldContainer[float]:
        """The factor of each class (SegNet); refused. A field of a smaller fork."""
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
        weight_by_label_freqs: bool | None = None,
        class_weighting: Iterable[float] | None = None,
        label_smoothing: float | None = None,
        pre_fixed_normalizer: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "ignore_label", "normalization", "normalize", "weight_by_label_freqs", "label_smoothing",
            "pre_fixed_normalizer"
        ],
    ) -> bool: ...

class AccuracyParameter(Message):
    """What Accuracy reads."""

    top_k: int
    """A label is right if it is among the k highest scores. Default: 1."""
    axis: int
    """The axis of the classes. Default: 1."""
    ignore_label: int
    """A label that does not count."""
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

class ArgMaxParameter(Message):
    """What ArgMax reads."""

    out_max_val: bool
    """Gives the values beside the places, or instead of them along an axis. Default: false."""
    top_k: int
    """How many. Default: 1."""
    axis: int
    """Along which axis; all but the first where it is not given."""
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

class ClipParameter(Message):
    """What Clip reads."""

    min: float
    """Lower bound. Required."""
    max: float
    """Upper bound. Required."""
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

class ConcatParameter(Message):
    """What Concat reads."""

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
    """The axis along which bottoms are joined. Default: 1."""
    concat_dim: int
    """The old name of axis. Default: 1."""
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

class BatchNormParameter(Message):
    """What BatchNorm reads."""

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
    """Normalises by the stored statistics; by default in a test."""
    moving_average_fraction: float
    """How much of the stored statistics each iteration keeps. Default: 0.999."""
    eps: float
    """What is added to the variance. Default: 1e-05."""
    @property
    def scale_filler(self) -> FillerParameter:
        """How a parameter is initialised. A field of NVIDIA's fork."""
    @property
    def bias_filler(self) -> FillerParameter:
        """How a parameter is initialised. A field of NVIDIA's fork."""
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
        """How a parameter is initialised. A field of Intel's fork."""
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

class BiasParameter(Message):
    """What Bias reads."""

    axis: int
    """The first axis of bottom 0 that the bias covers. Default: 1."""
    num_axes: int
    """Over how many axes the learned bias stretches; -1 for all from axis on. Default: 1."""
    @property
    def filler(self) -> FillerParameter:
        """Initialises the bias."""
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

class ContrastiveLossParameter(Message):
    """What ContrastiveLoss reads."""

    margin: float
    """The distance that unlike pairs should have. Default: 1."""
    legacy_version: bool
    """Takes the margin of the squared distance. Default: false."""
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

class ConvolutionParameter(Message):
    """What Convolution, Deconvolution and Im2col read."""

    class Engine(_Enum):
        DEFAULT: ClassVar[ConvolutionParameter.Engine]
        CAFFE: ClassVar[ConvolutionParameter.Engine]
        CUDNN: ClassVar[ConvolutionParameter.Engine]
        LIBDNN: ClassVar[ConvolutionParameter.Engine]
        INTEL_SPATIAL: ClassVar[ConvolutionParameter.Engine]
        SPATIAL: ClassVar[ConvolutionParameter.Engine]
        FFT: ClassVar[ConvolutionParameter.Engine]
        LOOP: ClassVar[ConvolutionParameter.Engine]
        NNPACK: ClassVar[ConvolutionParameter.Engine]
        MKL2017: ClassVar[ConvolutionParameter.Engine]
        MKLDNN: ClassVar[ConvolutionParameter.Engine]

    DEFAULT: ClassVar[ConvolutionParameter.Engine]
    CAFFE: ClassVar[ConvolutionParameter.Engine]
    CUDNN: ClassVar[ConvolutionParameter.Engine]
    LIBDNN: ClassVar[ConvolutionParameter.Engine]
    INTEL_SPATIAL: ClassVar[ConvolutionParameter.Engine]
    SPATIAL: ClassVar[ConvolutionParameter.Engine]
    FFT: ClassVar[ConvolutionParameter.Engine]
    LOOP: ClassVar[ConvolutionParameter.Engine]
    NNPACK: ClassVar[ConvolutionParameter.Engine]
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
    """How many channels the top has."""
    bias_term: bool
    """Adds a bias. Default: true."""
    @property
    def pad(self) -> RepeatedScalarFieldContainer[int]:
        """Zeros around the image: one number, or one for each spatial axis."""
    @property
    def kernel_size(self) -> RepeatedScalarFieldContainer[int]:
        """Size of the filter: one number, or one for each spatial axis."""
    @property
    def stride(self) -> RepeatedScalarFieldContainer[int]:
        """Pixels between two places of the filter: one number, or one for each spatial axis."""
    @property
    def dilation(self) -> RepeatedScalarFieldContainer[int]:
        """Pixels between two values of the filter: one number, or one for each spatial axis."""
    pad_h: int
    """pad for rows. Default: 0."""
    pad_w: int
    """pad for columns. Default: 0."""
    kernel_h: int
    """kernel_size for rows."""
    kernel_w: int
    """kernel_size for columns."""
    stride_h: int
    """stride for rows."""
    stride_w: int
    """stride for columns."""
    group: int
    """Into how many groups the channels are cut, each with filters of its own. Default: 1."""
    @property
    def weight_filler(self) -> FillerParameter:
        """Initialises the filters."""
    @property
    def bias_filler(self) -> FillerParameter:
        """Initialises the bias."""
    engine: ConvolutionParameter.Engine
    """Which implementation computes in Caffe; without effect here. Default: DEFAULT."""
    axis: int
    """The axis of the channels; all behind it are spatial. Default: 1."""
    force_nd_im2col: bool
    """Which implementation computes in Caffe; without effect here. Default: false."""
    @property
    def hole(self) -> RepeatedScalarFieldContainer[int]:
        """dilation under another name (DeepLab). A field of a smaller fork."""
    hole_h: int
    """hole for rows. A field of a smaller fork."""
    hole_w: int
    """hole for columns. A field of a smaller fork."""
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
        hole: Iterable[int] | None = None,
        hole_h: int | None = None,
        hole_w: int | None = None,
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
            "group", "weight_filler", "bias_filler", "engine", "axis", "force_nd_im2col", "hole_h",
            "hole_w", "cudnn_convolution_algo_seeker", "conv_algos_override", "relu", "negative_slope",
            "conv_algorithm", "fusion_type"
        ],
    ) -> bool: ...

class CropParameter(Message):
    """What Crop reads."""

    axis: int
    """The first axis that is cut. Default: 2."""
    @property
    def offset(self) -> RepeatedScalarFieldContainer[int]:
        """Where the cut begins: one number, or one for each axis."""
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

class DataParameter(Message):
    """What Data reads: records of an LMDB."""

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
    """Folder of the LMDB."""
    batch_size: int
    """Records of a batch on each rank."""
    rand_skip: int
    """The seed picks a first record below this number. Default: 0."""
    backend: DataParameter.DB
    """What the source is in Caffe; what the folder holds decides here, and LevelDB is refused. Default:
    LEVELDB."""
    scale: float
    """transform_param.scale in the old form; upgraded. Default: 1."""
    mean_file: str
    """transform_param.mean_file in the old form; upgraded."""
    crop_size: int
    """transform_param.crop_size in the old form; upgraded. Default: 0."""
    mirror: bool
    """transform_param.mirror in the old form; upgraded. Default: false."""
    force_encoded_color: bool
    """Without effect; force_color of transform_param decodes as colour. Default: false."""
    prefetch: int
    """Batches that are made ahead. Default: 4."""
    bad_record: DataParameter.BadRecord
    """What a damaged record does: stop the run, or be skipped. Default: STOP. A field of mgcaffe."""
    bad_record_limit: int
    """How many different records may be skipped. Default: 100. A field of mgcaffe."""
    threads: int
    """Default: 0. A field of NVIDIA's fork."""
    parser_threads: int
    """Images that are decoded at a time; 0 for as many as there are threads. Default: 0. A field of NVIDIA's
    fork."""
    cache: bool
    """Default: false. A field of NVIDIA's fork."""
    shuffle: bool
    """Draws a new order for each pass. Default: false. A field of NVIDIA's fork."""
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

class DropoutParameter(Message):
    """What Dropout reads."""

    class Engine(_Enum):
        DEFAULT: ClassVar[DropoutParameter.Engine]
        CAFFE: ClassVar[DropoutParameter.Engine]
        CUDNN: ClassVar[DropoutParameter.Engine]

    DEFAULT: ClassVar[DropoutParameter.Engine]
    CAFFE: ClassVar[DropoutParameter.Engine]
    CUDNN: ClassVar[DropoutParameter.Engine]

    dropout_ratio: float
    """The probability with which a value is set to 0 in training. Default: 0.5."""
    scale_train: bool
    """Whether training scales what is kept up, or else tests scale all down (caffe-fast-rcnn). Default: true.
    A field of a smaller fork."""
    sample_weights_test: bool
    """Whether tests drop values too (SegNet); true is refused. Default: false. A field of a smaller fork."""
    engine: DropoutParameter.Engine
    """Default: DEFAULT. A field of NVIDIA's fork."""
    random_seed: int
    """Default: -1. A field of NVIDIA's fork."""
    def __init__(
        self,
        *,
        dropout_ratio: float | None = None,
        scale_train: bool | None = None,
        sample_weights_test: bool | None = None,
        engine: DropoutParameter.Engine | str | None = None,
        random_seed: int | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "dropout_ratio", "scale_train", "sample_weights_test", "engine", "random_seed"
        ],
    ) -> bool: ...

class DummyDataParameter(Message):
    """What DummyData reads."""

    @property
    def data_filler(self) -> RepeatedCompositeFieldContainer[FillerParameter]:
        """Fills the tops: one for all, or one for each."""
    @property
    def shape(self) -> RepeatedCompositeFieldContainer[BlobShape]:
        """Shapes of the tops: one for all, or one for each."""
    @property
    def num(self) -> RepeatedScalarFieldContainer[int]:
        """Size of the first axis, in the old form."""
    @property
    def channels(self) -> RepeatedScalarFieldContainer[int]:
        """Size of the second axis, in the old form."""
    @property
    def height(self) -> RepeatedScalarFieldContainer[int]:
        """Size of the third axis, in the old form."""
    @property
    def width(self) -> RepeatedScalarFieldContainer[int]:
        """Size of the fourth axis, in the old form."""
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

class EltwiseParameter(Message):
    """What Eltwise reads."""

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
    """Product, sum or maximum. Default: SUM."""
    @property
    def coeff(self) -> RepeatedScalarFieldContainer[float]:
        """Of a sum, a factor for each bottom."""
    stable_prod_grad: bool
    """Of a product, computes the gradient without dividing. Default: true."""
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

class ELUParameter(Message):
    """What ELU reads."""

    alpha: float
    """The limit for large negative values is -alpha. Default: 1."""
    def __init__(
        self,
        *,
        alpha: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "alpha"
        ],
    ) -> bool: ...

class EmbedParameter(Message):
    """What Embed reads."""

    num_output: int
    """Length of each vector."""
    input_dim: int
    """How many vectors there are."""
    bias_term: bool
    """Adds a bias. Default: true."""
    @property
    def weight_filler(self) -> FillerParameter:
        """Initialises the vectors."""
    @property
    def bias_filler(self) -> FillerParameter:
        """Initialises the bias."""
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

class ExpParameter(Message):
    """What Exp reads: base^(shift + scale x)."""

    base: float
    """The base; -1 for e. Default: -1."""
    scale: float
    """Factor on x. Default: 1."""
    shift: float
    """Added to that. Default: 0."""
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

class FlattenParameter(Message):
    """What Flatten reads."""

    axis: int
    """The first axis that is joined. Default: 1."""
    end_axis: int
    """The last one. Default: -1."""
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

class HDF5DataParameter(Message):
    """What HDF5Data reads."""

    source: str
    """File that lists HDF5 files."""
    batch_size: int
    """Records of a batch on each rank."""
    shuffle: bool
    """Draws a new order for each pass. Default: false."""
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

class HDF5OutputParameter(Message):
    """What HDF5Output reads."""

    file_name: str
    """The file to write."""
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

class HingeLossParameter(Message):
    """What HingeLoss reads."""

    class Norm(_Enum):
        L1: ClassVar[HingeLossParameter.Norm]
        L2: ClassVar[HingeLossParameter.Norm]

    L1: ClassVar[HingeLossParameter.Norm]
    L2: ClassVar[HingeLossParameter.Norm]

    norm: HingeLossParameter.Norm
    """L1 or L2. Default: L1."""
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

class ImageDataParameter(Message):
    """What ImageData reads: image files with labels."""

    source: str
    """File that lists images and labels."""
    batch_size: int
    """Records of a batch on each rank. Default: 1."""
    rand_skip: int
    """The seed picks a first line of the list below this number. Default: 0."""
    shuffle: bool
    """Draws a new order for each pass. Default: false."""
    new_height: int
    """Rows to resize to. Default: 0."""
    new_width: int
    """Columns to resize to. Default: 0."""
    is_color: bool
    """Decodes as colour. Default: true."""
    scale: float
    """transform_param.scale in the old form; upgraded. Default: 1."""
    mean_file: str
    """transform_param.mean_file in the old form; upgraded."""
    crop_size: int
    """transform_param.crop_size in the old form; upgraded. Default: 0."""
    mirror: bool
    """transform_param.mirror in the old form; upgraded. Default: false."""
    root_folder: str
    """What stands before each name of the list."""
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

class InfogainLossParameter(Message):
    """What InfogainLoss reads."""

    source: str
    """File of the matrix, a BlobProto."""
    axis: int
    """The axis of the classes. Default: 1."""
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

class InnerProductParameter(Message):
    """What InnerProduct reads."""

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
    """How many values each record gets."""
    bias_term: bool
    """Adds a bias. Default: true."""
    @property
    def weight_filler(self) -> FillerParameter:
        """Initialises the weights."""
    @property
    def bias_filler(self) -> FillerParameter:
        """Initialises the bias."""
    axis: int
    """The first axis that is taken as one vector. Default: 1."""
    transpose: bool
    """The weights lie as inputs x outputs. Default: false."""
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

class InputParameter(Message):
    """What Input reads."""

    @property
    def shape(self) -> RepeatedCompositeFieldContainer[BlobShape]:
        """Shapes of the tops: one for all, or one for each."""
    def __init__(
        self,
        *,
        shape: Iterable[BlobShape | Mapping[str, Any]] | None = None,
    ) -> None: ...
    def HasField(self, field_name: Never) -> bool: ...

class LogParameter(Message):
    """What Log reads: the logarithm of shift + scale x."""

    base: float
    """The base; -1 for e. Default: -1."""
    scale: float
    """Factor on x. Default: 1."""
    shift: float
    """Added to that. Default: 0."""
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

class LRNParameter(Message):
    """What LRN reads."""

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
    """Over how many channels, or pixels in each direction. Default: 5."""
    alpha: float
    """Factor on the sum of squares. Default: 1."""
    beta: float
    """The exponent. Default: 0.75."""
    norm_region: LRNParameter.NormRegion
    """Across channels, or within each. Default: ACROSS_CHANNELS."""
    k: float
    """What is added to the sum. Default: 1."""
    engine: LRNParameter.Engine
    """Which implementation computes in Caffe; without effect here. Default: DEFAULT."""
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

class MemoryDataParameter(Message):
    """What MemoryData reads."""

    batch_size: int
    """Records of a batch."""
    channels: int
    """Channels of a record."""
    height: int
    """Rows of a record."""
    width: int
    """Columns of a record."""
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

class MVNParameter(Message):
    """What MVN reads."""

    normalize_variance: bool
    """Divides by the deviation, too. Default: true."""
    across_channels: bool
    """Takes all channels together. Default: false."""
    eps: float
    """What is added to the deviation. Default: 1e-09."""
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

class ParameterParameter(Message):
    """What Parameter reads."""

    @property
    def shape(self) -> BlobShape:
        """Shape of the parameter."""
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

class PoolingParameter(Message):
    """What Pooling reads."""

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
        LIBDNN: ClassVar[PoolingParameter.Engine]
        MKL2017: ClassVar[PoolingParameter.Engine]
        MKLDNN: ClassVar[PoolingParameter.Engine]

    DEFAULT: ClassVar[PoolingParameter.Engine]
    CAFFE: ClassVar[PoolingParameter.Engine]
    CUDNN: ClassVar[PoolingParameter.Engine]
    LIBDNN: ClassVar[PoolingParameter.Engine]
    MKL2017: ClassVar[PoolingParameter.Engine]
    MKLDNN: ClassVar[PoolingParameter.Engine]

    class RoundMode(_Enum):
        CEIL: ClassVar[PoolingParameter.RoundMode]
        FLOOR: ClassVar[PoolingParameter.RoundMode]

    CEIL: ClassVar[PoolingParameter.RoundMode]
    FLOOR: ClassVar[PoolingParameter.RoundMode]

    pool: PoolingParameter.PoolMethod
    """Maximum, mean, or a pixel drawn at random. Default: MAX."""
    pad: int
    """Pixels around the image. Default: 0."""
    pad_h: int
    """pad for rows. Default: 0."""
    pad_w: int
    """pad for columns. Default: 0."""
    kernel_size: int
    """Size of the window."""
    kernel_h: int
    """kernel_size for rows."""
    kernel_w: int
    """kernel_size for columns."""
    stride: int
    """Pixels between two windows. Default: 1."""
    stride_h: int
    """stride for rows."""
    stride_w: int
    """stride for columns."""
    engine: PoolingParameter.Engine
    """Which implementation computes in Caffe; without effect here. Default: DEFAULT."""
    global_pooling: bool
    """One window, the whole image. Default: false."""
    round_mode: PoolingParameter.RoundMode
    """Whether the top's size is rounded up or down. Default: CEIL."""
    ceil_mode: bool
    """round_mode under another name: true CEIL, false FLOOR. Default: true. A field of a smaller fork."""
    torch_pooling: bool
    """round_mode under another name: true FLOOR. Default: false. A field of NVIDIA's fork."""
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

class PowerParameter(Message):
    """What Power reads: (shift + scale x)^power."""

    power: float
    """The exponent. Default: 1."""
    scale: float
    """Factor on x. Default: 1."""
    shift: float
    """Added to that. Default: 0."""
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

class PythonParameter(Message):
    """What a Python layer reads."""

    module: str
    """The module to import."""
    layer: str
    """The class in it."""
    param_str: str
    """A text for the class."""
    share_in_parallel: bool
    """Without effect, as each rank has its own. Default: false."""
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

class RecurrentParameter(Message):
    """What RNN and LSTM read."""

    num_output: int
    """Length of the hidden state. Default: 0."""
    @property
    def weight_filler(self) -> FillerParameter:
        """Initialises the weights."""
    @property
    def bias_filler(self) -> FillerParameter:
        """Initialises the biases."""
    debug_info: bool
    """Logs mean values of Caffe's inner net; without effect here. Default: false."""
    expose_hidden: bool
    """Hidden states of the first and last step are bottoms and tops. Default: false."""
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

class ReductionParameter(Message):
    """What Reduction reads."""

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
    """Sum, sum of absolute values, sum of squares, or mean. Default: SUM."""
    axis: int
    """The first axis that is reduced; all behind it are, too. Default: 0."""
    coeff: float
    """Factor on the result. Default: 1."""
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

class ReLUParameter(Message):
    """What ReLU reads."""

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
    """Factor on negative values. Default: 0."""
    engine: ReLUParameter.Engine
    """Which implementation computes in Caffe; without effect here. Default: DEFAULT."""
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

class ReshapeParameter(Message):
    """What Reshape reads."""

    @property
    def shape(self) -> BlobShape:
        """The new sizes: 0 copies one, -1 follows from the others."""
    axis: int
    """The first axis that they replace. Default: 0."""
    num_axes: int
    """How many axes they replace; -1 for all from axis on. Default: -1."""
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

class ScaleParameter(Message):
    """What Scale reads."""

    axis: int
    """The first axis of bottom 0 that the factors cover. Default: 1."""
    num_axes: int
    """Over how many axes the learned factors stretch; -1 for all from axis on. Default: 1."""
    @property
    def filler(self) -> FillerParameter:
        """Initialises the factors; with ones where it is not given."""
    bias_term: bool
    """Adds a bias of the same shape. Default: false."""
    @property
    def bias_filler(self) -> FillerParameter:
        """Initialises the bias."""
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

class SigmoidParameter(Message):
    """What Sigmoid reads."""

    class Engine(_Enum):
        DEFAULT: ClassVar[SigmoidParameter.Engine]
        CAFFE: ClassVar[SigmoidParameter.Engine]
        CUDNN: ClassVar[SigmoidParameter.Engine]

    DEFAULT: ClassVar[SigmoidParameter.Engine]
    CAFFE: ClassVar[SigmoidParameter.Engine]
    CUDNN: ClassVar[SigmoidParameter.Engine]

    engine: SigmoidParameter.Engine
    """Which implementation computes in Caffe; without effect here. Default: DEFAULT."""
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

class SliceParameter(Message):
    """What Slice reads."""

    axis: int
    """The axis along which the bottom is cut. Default: 1."""
    @property
    def slice_point(self) -> RepeatedScalarFieldContainer[int]:
        """Where it is cut; into equal parts where it is not given."""
    slice_dim: int
    """The old name of axis. Default: 1."""
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

class SoftmaxParameter(Message):
    """What Softmax reads."""

    class Engine(_Enum):
        DEFAULT: ClassVar[SoftmaxParameter.Engine]
        CAFFE: ClassVar[SoftmaxParameter.Engine]
        CUDNN: ClassVar[SoftmaxParameter.Engine]

    DEFAULT: ClassVar[SoftmaxParameter.Engine]
    CAFFE: ClassVar[SoftmaxParameter.Engine]
    CUDNN: ClassVar[SoftmaxParameter.Engine]

    engine: SoftmaxParameter.Engine
    """Which implementation computes in Caffe; without effect here. Default: DEFAULT."""
    axis: int
    """The axis of the classes. Default: 1."""
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

class SwishParameter(Message):
    """What Swish reads."""

    beta: float
    """Factor on x inside the sigmoid. Default: 1."""
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

class TanHParameter(Message):
    """What TanH reads."""

    class Engine(_Enum):
        DEFAULT: ClassVar[TanHParameter.Engine]
        CAFFE: ClassVar[TanHParameter.Engine]
        CUDNN: ClassVar[TanHParameter.Engine]

    DEFAULT: ClassVar[TanHParameter.Engine]
    CAFFE: ClassVar[TanHParameter.Engine]
    CUDNN: ClassVar[TanHParameter.Engine]

    engine: TanHParameter.Engine
    """Which implementation computes in Caffe; without effect here. Default: DEFAULT."""
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

class TileParameter(Message):
    """What Tile reads."""

    axis: int
    """The axis that is repeated. Default: 1."""
    tiles: int
    """How many times."""
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

class ThresholdParameter(Message):
    """What Threshold reads."""

    threshold: float
    """Above it the top is 1, else 0. Default: 0."""
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

class WindowDataParameter(Message):
    """What WindowData reads: windows of images."""

    source: str
    """The window file."""
    scale: float
    """transform_param.scale in the old form; upgraded. Default: 1."""
    mean_file: str
    """transform_param.mean_file in the old form; upgraded."""
    batch_size: int
    """Windows of a batch on each rank."""
    crop_size: int
    """transform_param.crop_size in the old form; upgraded. Default: 0."""
    mirror: bool
    """transform_param.mirror in the old form; upgraded. Default: false."""
    fg_threshold: float
    """The overlap from which a window is foreground. Default: 0.5."""
    bg_threshold: float
    """The overlap below which it is background. Default: 0.5."""
    fg_fraction: float
    """The share of foreground in a batch. Default: 0.25."""
    context_pad: int
    """Pixels of context around a window. Default: 0."""
    crop_mode: str
    """Warp or square. Default: 'warp'."""
    cache_images: bool
    """Keeps the image files in memory. Default: false."""
    root_folder: str
    """What stands before each name of the window file."""
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

class SPPParameter(Message):
    """What SPP reads."""

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
    """How many levels; level l has 2^l x 2^l windows."""
    pool: SPPParameter.PoolMethod
    """Maximum, mean, or a pixel drawn at random. Default: MAX."""
    engine: SPPParameter.Engine
    """Which implementation computes in Caffe; without effect here. Default: DEFAULT."""
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

class V1LayerParameter(Message):
    """A layer in the form of the first releases; upgraded to LayerParameter when a file is read."""

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
        BN: ClassVar[V1LayerParameter.LayerType]
        INTERP: ClassVar[V1LayerParameter.LayerType]
        PRELU: ClassVar[V1LayerParameter.LayerType]
        ROI_POOLING: ClassVar[V1LayerParameter.LayerType]
        SMOOTH_L1_LOSS: ClassVar[V1LayerParameter.LayerType]

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
    BN: ClassVar[V1LayerParameter.LayerType]
    INTERP: ClassVar[V1LayerParameter.LayerType]
    PRELU: ClassVar[V1LayerParameter.LayerType]
    ROI_POOLING: ClassVar[V1LayerParameter.LayerType]
    SMOOTH_L1_LOSS: ClassVar[V1LayerParameter.LayerType]

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
    def include(self) -> RepeatedCompositeFieldContainer[NetStateRule]:
        """A condition on the net's state; a layer takes part if an include rule is met, or no exclude rule is."""
    @property
    def exclude(self) -> RepeatedCompositeFieldContainer[NetStateRule]:
        """A condition on the net's state; a layer takes part if an include rule is met, or no exclude rule is."""
    type: V1LayerParameter.LayerType
    @property
    def blobs(self) -> RepeatedCompositeFieldContainer[BlobProto]:
        """A blob: weights in a caffemodel, a history in a solverstate, a mean image."""
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
    def accuracy_param(self) -> AccuracyParameter:
        """What Accuracy reads."""
    @property
    def argmax_param(self) -> ArgMaxParameter:
        """What ArgMax reads."""
    @property
    def concat_param(self) -> ConcatParameter:
        """What Concat reads."""
    @property
    def contrastive_loss_param(self) -> ContrastiveLossParameter:
        """What ContrastiveLoss reads."""
    @property
    def convolution_param(self) -> ConvolutionParameter:
        """What Convolution, Deconvolution and Im2col read."""
    @property
    def data_param(self) -> DataParameter:
        """What Data reads: records of an LMDB."""
    @property
    def dropout_param(self) -> DropoutParameter:
        """What Dropout reads."""
    @property
    def dummy_data_param(self) -> DummyDataParameter:
        """What DummyData reads."""
    @property
    def eltwise_param(self) -> EltwiseParameter:
        """What Eltwise reads."""
    @property
    def exp_param(self) -> ExpParameter:
        """What Exp reads: base^(shift + scale x)."""
    @property
    def hdf5_data_param(self) -> HDF5DataParameter:
        """What HDF5Data reads."""
    @property
    def hdf5_output_param(self) -> HDF5OutputParameter:
        """What HDF5Output reads."""
    @property
    def hinge_loss_param(self) -> HingeLossParameter:
        """What HingeLoss reads."""
    @property
    def image_data_param(self) -> ImageDataParameter:
        """What ImageData reads: image files with labels."""
    @property
    def infogain_loss_param(self) -> InfogainLossParameter:
        """What InfogainLoss reads."""
    @property
    def inner_product_param(self) -> InnerProductParameter:
        """What InnerProduct reads."""
    @property
    def lrn_param(self) -> LRNParameter:
        """What LRN reads."""
    @property
    def memory_data_param(self) -> MemoryDataParameter:
        """What MemoryData reads."""
    @property
    def mvn_param(self) -> MVNParameter:
        """What MVN reads."""
    @property
    def pooling_param(self) -> PoolingParameter:
        """What Pooling reads."""
    @property
    def power_param(self) -> PowerParameter:
        """What Power reads: (shift + scale x)^power."""
    @property
    def relu_param(self) -> ReLUParameter:
        """What ReLU reads."""
    @property
    def sigmoid_param(self) -> SigmoidParameter:
        """What Sigmoid reads."""
    @property
    def softmax_param(self) -> SoftmaxParameter:
        """What Softmax reads."""
    @property
    def slice_param(self) -> SliceParameter:
        """What Slice reads."""
    @property
    def tanh_param(self) -> TanHParameter:
        """What TanH reads."""
    @property
    def threshold_param(self) -> ThresholdParameter:
        """What Threshold reads."""
    @property
    def window_data_param(self) -> WindowDataParameter:
        """What WindowData reads: windows of images."""
    @property
    def transform_param(self) -> TransformationParameter:
        """What data layers do to each record."""
    @property
    def loss_param(self) -> LossParameter:
        """What losses with labels read."""
    @property
    def layer(self) -> V0LayerParameter:
        """A layer in the form before that; upgraded when a file is read."""
    @property
    def interp_param(self) -> InterpParameter:
        """What Interp reads. A field of a smaller fork."""
    @property
    def bn_param(self) -> BNParameter:
        """What BN reads. A field of a smaller fork."""
    @property
    def prelu_param(self) -> PReLUParameter:
        """What PReLU reads. A field of a smaller fork."""
    @property
    def roi_pooling_param(self) -> ROIPoolingParameter:
        """What ROIPooling reads. A field of a smaller fork."""
    @property
    def smooth_l1_loss_param(self) -> SmoothL1LossParameter:
        """What SmoothL1Loss reads. A field of a smaller fork."""
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
        interp_param: InterpParameter | Mapping[str, Any] | None = None,
        bn_param: BNParameter | Mapping[str, Any] | None = None,
        prelu_param: PReLUParameter | Mapping[str, Any] | None = None,
        roi_pooling_param: ROIPoolingParameter | Mapping[str, Any] | None = None,
        smooth_l1_loss_param: SmoothL1LossParameter | Mapping[str, Any] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "name", "type", "accuracy_param", "argmax_param", "concat_param", "contrastive_loss_param",
            "convolution_param", "data_param", "dropout_param", "dummy_data_param", "eltwise_param",
            "exp_param", "hdf5_data_param", "hdf5_output_param", "hinge_loss_param", "image_data_param",
            "infogain_loss_param", "inner_product_param", "lrn_param", "memory_data_param", "mvn_param",
            "pooling_param", "power_param", "relu_param", "sigmoid_param", "softmax_param", "slice_param",
            "tanh_param", "threshold_param", "window_data_param", "transform_param", "loss_param", "layer",
            "interp_param", "bn_param", "prelu_param", "roi_pooling_param", "smooth_l1_loss_param"
        ],
    ) -> bool: ...

class V0LayerParameter(Message):
    """A layer in the form before that; upgraded when a file is read."""

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
    def weight_filler(self) -> FillerParameter:
        """How a parameter is initialised."""
    @property
    def bias_filler(self) -> FillerParameter:
        """How a parameter is initialised."""
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
    def blobs(self) -> RepeatedCompositeFieldContainer[BlobProto]:
        """A blob: weights in a caffemodel, a history in a solverstate, a mean image."""
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
    def hdf5_output_param(self) -> HDF5OutputParameter:
        """What HDF5Output reads."""
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

class PReLUParameter(Message):
    """What PReLU reads."""

    @property
    def filler(self) -> FillerParameter:
        """Initialises the slopes; with 0.25 where it is not given."""
    channel_shared: bool
    """One slope for all channels. Default: false."""
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

class CommParameter(Message):
    """How ranks train together (docs/overlap.md, docs/shadowsync.md)."""

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

    class Sync(_Enum):
        GRADIENTS: ClassVar[CommParameter.Sync]
        NONE: ClassVar[CommParameter.Sync]
        MA: ClassVar[CommParameter.Sync]
        EASGD: ClassVar[CommParameter.Sync]
        BMUF: ClassVar[CommParameter.Sync]
        DS_SYNC: ClassVar[CommParameter.Sync]
        SHADOW_MA: ClassVar[CommParameter.Sync]
        SHADOW_EASGD: ClassVar[CommParameter.Sync]
        SHADOW_BMUF: ClassVar[CommParameter.Sync]

    GRADIENTS: ClassVar[CommParameter.Sync]
    NONE: ClassVar[CommParameter.Sync]
    MA: ClassVar[CommParameter.Sync]
    EASGD: ClassVar[CommParameter.Sync]
    BMUF: ClassVar[CommParameter.Sync]
    DS_SYNC: ClassVar[CommParameter.Sync]
    SHADOW_MA: ClassVar[CommParameter.Sync]
    SHADOW_EASGD: ClassVar[CommParameter.Sync]
    SHADOW_BMUF: ClassVar[CommParameter.Sync]

    class Merge(_Enum):
        INCREMENT: ClassVar[CommParameter.Merge]
        INTERPOLATE: ClassVar[CommParameter.Merge]

    INCREMENT: ClassVar[CommParameter.Merge]
    INTERPOLATE: ClassVar[CommParameter.Merge]

    class Groups(_Enum):
        FACTORS: ClassVar[CommParameter.Groups]
        GRID: ClassVar[CommParameter.Groups]
        HYPERCUBE: ClassVar[CommParameter.Groups]

    FACTORS: ClassVar[CommParameter.Groups]
    GRID: ClassVar[CommParameter.Groups]
    HYPERCUBE: ClassVar[CommParameter.Groups]

    class Embeddings(_Enum):
        ALLTOALL: ClassVar[CommParameter.Embeddings]
        ASYNC: ClassVar[CommParameter.Embeddings]

    ALLTOALL: ClassVar[CommParameter.Embeddings]
    ASYNC: ClassVar[CommParameter.Embeddings]

    class TrainerLoss(_Enum):
        STOP: ClassVar[CommParameter.TrainerLoss]
        CONTINUE: ClassVar[CommParameter.TrainerLoss]

    STOP: ClassVar[CommParameter.TrainerLoss]
    CONTINUE: ClassVar[CommParameter.TrainerLoss]

    class TableFiles(_Enum):
        SHARDED: ClassVar[CommParameter.TableFiles]
        WHOLE: ClassVar[CommParameter.TableFiles]

    SHARDED: ClassVar[CommParameter.TableFiles]
    WHOLE: ClassVar[CommParameter.TableFiles]

    class Transport(_Enum):
        MPI: ClassVar[CommParameter.Transport]
        GLOO: ClassVar[CommParameter.Transport]
        NCCL: ClassVar[CommParameter.Transport]

    MPI: ClassVar[CommParameter.Transport]
    GLOO: ClassVar[CommParameter.Transport]
    NCCL: ClassVar[CommParameter.Transport]

    schedule: CommParameter.Schedule
    """Which gradients are all-reduced together, and when. Default: AUTO. A field of mgcaffe."""
    bucket_mb: float
    """Size of a bucket with schedule THRESHOLD. Default: 25. A field of mgcaffe."""
    calibration_iterations: int
    """Iterations that are measured before a plan is made. Default: 10. A field of mgcaffe."""
    plan_file: str
    """A plan to use instead of measuring. A field of mgcaffe."""
    cost_file: str
    """Measured all-reduce times to use instead of measuring. A field of mgcaffe."""
    emulate_link: str
    """Slows communication down to a link's speed, "a=9e-4,b=7.4e-10" for example. A field of mgcaffe."""
    deterministic: bool
    """Measures nothing, so that two runs use the same plan. Default: false. A field of mgcaffe."""
    overlap_forward: bool
    """Whether the last groups may be all-reduced during the next forward pass; tried by schedule AUTO if not
    given. A field of mgcaffe."""
    allreduce_type: CommParameter.WireType
    """Number type in which gradients are sent. Default: FLOAT32. A field of mgcaffe."""
    hierarchical: bool
    """Sums within each host first. Default: false. A field of mgcaffe."""
    sync: CommParameter.Sync
    """How ranks train together: their gradients averaged in step, or replicas of the parameters kept together
    (docs/shadowsync.md). Default: GRADIENTS. A field of mgcaffe."""
    sync_every: int
    """Iterations from one synchronization of replicas to the next, for sync MA, EASGD, BMUF (5) and DS_SYNC
    (1). A field of mgcaffe."""
    alpha: float
    """Rate at which replicas move towards what they share: 1, 0.5 for SHADOW_MA, 0.2 or 1 / trainers if that
    is less for EASGD. A field of mgcaffe."""
    merge: CommParameter.Merge
    """Whether a replica gets the increment of the mean over its snapshot, or is interpolated with the mean.
    Default: INCREMENT. A field of mgcaffe."""
    block_momentum: float
    """Momentum of the global model of BMUF; 1 - 1 / trainers if not given. A field of mgcaffe."""
    block_lr: float
    """Learning rate of the global model of BMUF. Default: 1. A field of mgcaffe."""
    block_nesterov: bool
    """Lets the global model of BMUF look ahead by its momentum. Default: false. A field of mgcaffe."""
    sync_interval_ms: float
    """Least time from the start of one background synchronization to the next. Default: 0. A field of mgcaffe."""
    sync_groups: CommParameter.Groups
    """In what groups trainers average under sync DS_SYNC. Default: FACTORS. A field of mgcaffe."""
    hogwild_threads: int
    """Worker threads of each trainer; they update one replica without locks. Default: 1. A field of mgcaffe."""
    hogwild_lock: bool
    """Makes Hogwild's workers update one at a time. Default: false. A field of mgcaffe."""
    embedding_servers: int
    """Ranks that hold the tables of EmbeddingBag layers; the last ranks of the job. Default: 0. A field of
    mgcaffe."""
    sync_servers: int
    """Ranks that hold the centre of EASGD, each a part of it. Default: 0. A field of mgcaffe."""
    embeddings: CommParameter.Embeddings
    """How trainers exchange rows of tables without embedding servers: in step by all-to-all (with sync
    GRADIENTS), or each when it needs them (with any other). A field of mgcaffe."""
    embedding_loads: str
    """A file with the load of each table, by which tables are assigned to ranks. A field of mgcaffe."""
    lookahead: int
    """Batches whose rows are looked up before they are needed. Default: 1. A field of mgcaffe."""
    on_trainer_loss: CommParameter.TrainerLoss
    """Whether the others go on when a trainer dies. Default: STOP. A field of mgcaffe."""
    snapshot_replicas: bool
    """Whether a snapshot holds the replicas of all trainers. Default: false. A field of mgcaffe."""
    snapshot_tables: CommParameter.TableFiles
    """Whether each process that holds rows of tables writes them to a file of its own, or the snapshot's files
    hold whole tables. Default: SHARDED. A field of mgcaffe."""
    transport: CommParameter.Transport
    """Over what gradients travel; if not given, NCCL on GPUs where it can, and else MPI under mpirun and gloo
    under torchrun. A field of mgcaffe."""
    exchange_products: bool
    """Whether ranks exchange the gradient of a large inner product's weight as the two matrices whose product
    it is, where these are much smaller. Default: true. A field of mgcaffe."""
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
        sync: CommParameter.Sync | str | None = None,
        sync_every: int | None = None,
        alpha: float | None = None,
        merge: CommParameter.Merge | str | None = None,
        block_momentum: float | None = None,
        block_lr: float | None = None,
        block_nesterov: bool | None = None,
        sync_interval_ms: float | None = None,
        sync_groups: CommParameter.Groups | str | None = None,
        hogwild_threads: int | None = None,
        hogwild_lock: bool | None = None,
        embedding_servers: int | None = None,
        sync_servers: int | None = None,
        embeddings: CommParameter.Embeddings | str | None = None,
        embedding_loads: str | None = None,
        lookahead: int | None = None,
        on_trainer_loss: CommParameter.TrainerLoss | str | None = None,
        snapshot_replicas: bool | None = None,
        snapshot_tables: CommParameter.TableFiles | str | None = None,
        transport: CommParameter.Transport | str | None = None,
        exchange_products: bool | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "schedule", "bucket_mb", "calibration_iterations", "plan_file", "cost_file", "emulate_link",
            "deterministic", "overlap_forward", "allreduce_type", "hierarchical", "sync", "sync_every",
            "alpha", "merge", "block_momentum", "block_lr", "block_nesterov", "sync_interval_ms",
            "sync_groups", "hogwild_threads", "hogwild_lock", "embedding_servers", "sync_servers",
            "embeddings", "embedding_loads", "lookahead", "on_trainer_loss", "snapshot_replicas",
            "snapshot_tables", "transport", "exchange_products"
        ],
    ) -> bool: ...

class BlobShards(Message):
    """The files that hold a table's rows, `<files>.shard_<k>_of_<count>.safetensors` in the same folder."""

    files: str
    """What the names of the files begin with. A field of mgcaffe."""
    count: int
    """How many there are. A field of mgcaffe."""
    array: str
    """What the table is called in them. A field of mgcaffe."""
    snapshot: str
    """Which snapshot they belong to; each of them says the same. A field of mgcaffe."""
    def __init__(
        self,
        *,
        files: str | None = None,
        count: int | None = None,
        array: str | None = None,
        snapshot: str | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "files", "count", "array", "snapshot"
        ],
    ) -> bool: ...

class EngineState(Message):
    """What mgcaffe keeps of a run beyond Caffe's solverstate."""

    version: int
    """Version of this message. Default: 1. A field of mgcaffe."""
    random_seed: int
    """The run's seed. A field of mgcaffe."""
    @property
    def records(self) -> RepeatedCompositeFieldContainer[DataPosition]:
        """Position of each data layer. A field of mgcaffe."""
    @property
    def smoothed_losses(self) -> RepeatedScalarFieldContainer[float]:
        """The losses that average_loss smooths over. A field of mgcaffe."""
    world_size: int
    """How many ranks there were. Default: 1. A field of mgcaffe."""
    plan: str
    """The plan in force. A field of mgcaffe."""
    @property
    def extra(self) -> RepeatedCompositeFieldContainer[EngineStateEntry]:
        """Further entries by key. A field of mgcaffe."""
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

class EngineStateEntry(Message):
    """A further entry."""

    key: str
    """Its name. A field of mgcaffe."""
    value: bytes
    """Its content. A field of mgcaffe."""
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

class DataPosition(Message):
    """Position of a data layer."""

    layer: str
    """Its name. A field of mgcaffe."""
    phase: Phase
    """Its net's phase. A field of mgcaffe."""
    batches: int
    """Batches read. Default: 0. A field of mgcaffe."""
    records: int
    """Records read, over all ranks. Default: 0. A field of mgcaffe."""
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

class InterpParameter(Message):
    """What Interp reads."""

    height: int
    """Rows of the top. Default: 0. A field of mgcaffe."""
    width: int
    """Columns of the top. Default: 0. A field of mgcaffe."""
    zoom_factor: int
    """Enlarges by this factor. Default: 1. A field of mgcaffe."""
    shrink_factor: int
    """Shrinks by this factor first. Default: 1. A field of mgcaffe."""
    pad_beg: int
    """Negative: rows and columns to cut off at the beginning. Default: 0. A field of mgcaffe."""
    pad_end: int
    """Negative: rows and columns to cut off at the end. Default: 0. A field of mgcaffe."""
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

class BNParameter(Message):
    """What BN reads."""

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
        """Initialises the factors. A field of mgcaffe."""
    @property
    def bias_filler(self) -> FillerParameter:
        """Initialises the bias. A field of mgcaffe."""
    momentum: float
    """How much of the stored statistics each iteration keeps. Default: 0.9. A field of mgcaffe."""
    eps: float
    """What is added to the variance. Default: 1e-05. A field of mgcaffe."""
    frozen: bool
    """Normalises by the stored statistics in training, too. Default: false. A field of mgcaffe."""
    engine: BNParameter.Engine
    """Which implementation computes in forks; without effect here. Default: DEFAULT. A field of mgcaffe."""
    @property
    def scale_filler(self) -> FillerParameter:
        """Initialises the factors, in SegNet's form. A field of mgcaffe."""
    @property
    def shift_filler(self) -> FillerParameter:
        """Initialises the bias, in SegNet's form. A field of mgcaffe."""
    bn_mode: BNParameter.BNMode
    """Whether statistics are those of the batch, or merged into factors and bias. Default: LEARN. A field of
    mgcaffe."""
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

class ShuffleChannelParameter(Message):
    """What ShuffleChannel reads."""

    group: int
    """Into how many groups the channels are cut. Default: 1. A field of mgcaffe."""
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

class ReLU6Parameter(Message):
    """What ReLU6 reads."""

    negative_slope: float
    """Factor on negative values. Default: 0. A field of mgcaffe."""
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

class HardSigmoidParameter(Message):
    """What HardSigmoid reads."""

    alpha: float
    """The slope of the middle line. Default: 0.16666666666666666. A field of mgcaffe."""
    beta: float
    """Its value at 0. Default: 0.5. A field of mgcaffe."""
    def __init__(
        self,
        *,
        alpha: float | None = None,
        beta: float | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "alpha", "beta"
        ],
    ) -> bool: ...

class GELUParameter(Message):
    """What GELU reads."""

    class Approximation(_Enum):
        NONE: ClassVar[GELUParameter.Approximation]
        TANH: ClassVar[GELUParameter.Approximation]

    NONE: ClassVar[GELUParameter.Approximation]
    TANH: ClassVar[GELUParameter.Approximation]

    approximate: GELUParameter.Approximation
    """Whether the probability is exact or made of a tanh. Default: NONE. A field of mgcaffe."""
    def __init__(
        self,
        *,
        approximate: GELUParameter.Approximation | str | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "approximate"
        ],
    ) -> bool: ...

class LayerNormParameter(Message):
    """What LayerNorm reads."""

    axis: int
    """The first axis that is normalized, all behind it too. Default: -1. A field of mgcaffe."""
    eps: float
    """What is added to the variance. Default: 1e-05. A field of mgcaffe."""
    affine: bool
    """Whether a scale is learned. Default: true. A field of mgcaffe."""
    bias_term: bool
    """Whether a bias is learned, too. Default: true. A field of mgcaffe."""
    @property
    def scale_filler(self) -> FillerParameter:
        """Initialises the scale. A field of mgcaffe."""
    @property
    def bias_filler(self) -> FillerParameter:
        """Initialises the bias. A field of mgcaffe."""
    def __init__(
        self,
        *,
        axis: int | None = None,
        eps: float | None = None,
        affine: bool | None = None,
        bias_term: bool | None = None,
        scale_filler: FillerParameter | Mapping[str, Any] | None = None,
        bias_filler: FillerParameter | Mapping[str, Any] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "axis", "eps", "affine", "bias_term", "scale_filler", "bias_filler"
        ],
    ) -> bool: ...

class EmbeddingBagParameter(Message):
    """What EmbeddingBag reads."""

    class Mode(_Enum):
        SUM: ClassVar[EmbeddingBagParameter.Mode]
        MEAN: ClassVar[EmbeddingBagParameter.Mode]

    SUM: ClassVar[EmbeddingBagParameter.Mode]
    MEAN: ClassVar[EmbeddingBagParameter.Mode]

    class Bags(_Enum):
        OFFSETS: ClassVar[EmbeddingBagParameter.Bags]
        LENGTHS: ClassVar[EmbeddingBagParameter.Bags]

    OFFSETS: ClassVar[EmbeddingBagParameter.Bags]
    LENGTHS: ClassVar[EmbeddingBagParameter.Bags]

    num_output: int
    """Length of each vector. A field of mgcaffe."""
    input_dim: int
    """How many vectors there are. A field of mgcaffe."""
    mode: EmbeddingBagParameter.Mode
    """Whether a bag's vectors are added up or averaged. Default: SUM. A field of mgcaffe."""
    bags: EmbeddingBagParameter.Bags
    """What a second bottom says of each bag: where its ids begin, or how many it has. Default: OFFSETS. A
    field of mgcaffe."""
    @property
    def weight_filler(self) -> FillerParameter:
        """Initialises the vectors; without it, uniformly within 1 / sqrt(input_dim). A field of mgcaffe."""
    def __init__(
        self,
        *,
        num_output: int | None = None,
        input_dim: int | None = None,
        mode: EmbeddingBagParameter.Mode | str | None = None,
        bags: EmbeddingBagParameter.Bags | str | None = None,
        weight_filler: FillerParameter | Mapping[str, Any] | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "num_output", "input_dim", "mode", "bags", "weight_filler"
        ],
    ) -> bool: ...

class CriteoDataParameter(Message):
    """What CriteoData reads."""

    @property
    def source(self) -> RepeatedScalarFieldContainer[str]:
        """A file of rows, plain or packed by gzip; several are read one after the other. Or an LMDB. A field of
        mgcaffe."""
    batch_size: int
    """Records of a batch on each rank. A field of mgcaffe."""
    @property
    def table_size(self) -> RepeatedScalarFieldContainer[int]:
        """How many ids a categorical feature has: once for all, or once for each of the 26. A field of mgcaffe."""
    shuffle: bool
    """Draws a new order for each pass. Default: false. A field of mgcaffe."""
    rand_skip: int
    """The start is one of the first so many records. Default: 0. A field of mgcaffe."""
    dictionary: str
    """File of engine convert_criteo that gives values their ids. A field of mgcaffe."""
    def __init__(
        self,
        *,
        source: Iterable[str] | None = None,
        batch_size: int | None = None,
        table_size: Iterable[int] | None = None,
        shuffle: bool | None = None,
        rand_skip: int | None = None,
        dictionary: str | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "batch_size", "shuffle", "rand_skip", "dictionary"
        ],
    ) -> bool: ...

class DotInteractionParameter(Message):
    """What DotInteraction reads."""

    diagonal: bool
    """Whether each vector's product with itself counts as well. Default: false. A field of mgcaffe."""
    def __init__(
        self,
        *,
        diagonal: bool | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "diagonal"
        ],
    ) -> bool: ...

class NormalizedEntropyParameter(Message):
    """What NormalizedEntropy reads."""

    class Predictions(_Enum):
        LOGIT: ClassVar[NormalizedEntropyParameter.Predictions]
        PROBABILITY: ClassVar[NormalizedEntropyParameter.Predictions]

    LOGIT: ClassVar[NormalizedEntropyParameter.Predictions]
    PROBABILITY: ClassVar[NormalizedEntropyParameter.Predictions]

    predictions: NormalizedEntropyParameter.Predictions
    """Whether bottom 0 holds logits or probabilities. Default: LOGIT. A field of mgcaffe."""
    def __init__(
        self,
        *,
        predictions: NormalizedEntropyParameter.Predictions | str | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "predictions"
        ],
    ) -> bool: ...

class MatMulParameter(Message):
    """What MatMul reads."""

    transpose_a: bool
    """Whether the first bottom's matrices are transposed. Default: false. A field of mgcaffe."""
    transpose_b: bool
    """Whether the second bottom's matrices are transposed. Default: false. A field of mgcaffe."""
    def __init__(
        self,
        *,
        transpose_a: bool | None = None,
        transpose_b: bool | None = None,
    ) -> None: ...
    def HasField(
        self,
        field_name: Literal[
            "transpose_a", "transpose_b"
        ],
    ) -> bool: ...

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

class AnnotatedDatum(Message):
    class AnnotationType(_Enum):
        BBOX: ClassVar[AnnotatedDatum.AnnotationType]

    BBOX: ClassVar[AnnotatedDatum.AnnotationType]

    @property
    def datum(self) -> Datum:
        """One record of an LMDB: an image or other values, and a label. A field of the SSD fork."""
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

class ResizeParameter(Message):
    """How images are resized before they are cropped."""

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
    """With which probability. Default: 1. A field of the SSD fork."""
    resize_mode: ResizeParameter.Resize_mode
    """Whether the image is stretched, fitted and padded, or fitted by its smaller side. Default: WARP. A field
    of the SSD fork."""
    height: int
    """Rows. Default: 0. A field of the SSD fork."""
    width: int
    """Columns. Default: 0. A field of the SSD fork."""
    height_scale: int
    """Default: 0. A field of the SSD fork."""
    width_scale: int
    """Default: 0. A field of the SSD fork."""
    pad_mode: ResizeParameter.Pad_mode
    """What fills the rest in FIT_LARGE_SIZE_AND_PAD. Default: CONSTANT. A field of the SSD fork."""
    @property
    def pad_value(self) -> RepeatedScalarFieldContainer[float]:
        """The value of pad_mode CONSTANT: one, or one for each channel. A field of the SSD fork."""
    @property
    def interp_mode(self) -> RepeatedScalarFieldContainer[ResizeParameter.Interp_mode]:
        """Interpolations, one of which is drawn for each image. A field of the SSD fork."""
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
        """How images are resized before they are cropped. A field of the SSD fork."""
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
        """How images are resized before they are cropped. A field of the SSD fork."""
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

class NormalizeParameter(Message):
    """What Normalize reads."""

    across_spatial: bool
    """One norm for each record, instead of one for each pixel. Default: true. A field of the SSD fork."""
    @property
    def scale_filler(self) -> FillerParameter:
        """Initialises the factors. A field of the SSD fork."""
    channel_shared: bool
    """One factor for all channels. Default: true. A field of the SSD fork."""
    eps: float
    """What is added to the sum of squares. Default: 1e-10. A field of the SSD fork."""
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

class PermuteParameter(Message):
    """What Permute reads."""

    @property
    def order(self) -> RepeatedScalarFieldContainer[int]:
        """The axes in their new order. A field of the SSD fork."""
    def __init__(
        self,
        *,
        order: Iterable[int] | None = None,
    ) -> None: ...
    def HasField(self, field_name: Never) -> bool: ...

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
        """How images are resized before they are cropped. A field of NVIDIA's fork."""
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

class SolverBatchSizePair(Message):
    @property
    def solver_params(self) -> SolverParameter:
        """What is trained and how: a solver.prototxt. A field of Intel's fork."""
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

class RandomResizeParameter(Message):
    min_size: int
    """Default: 0. A field of Intel's fork."""
    max_size: int
    """Default: 0. A field of Intel's fork."""
    @property
    def resize_param(self) -> ResizeParameter:
        """How images are resized before they are cropped. A field of Intel's fork."""
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
        """How images are resized before they are cropped. A field of Intel's fork."""
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

class SplitParameter(Message):
    """What Split reads."""

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

class ROIPoolingParameter(Message):
    """What ROIPooling reads."""

    pooled_h: int
    """Rows of the top. Default: 0. A field of Intel's fork."""
    pooled_w: int
    """Columns of the top. Default: 0. A field of Intel's fork."""
    spatial_scale: float
    """Factor from coordinates of the regions to those of the bottom. Default: 1. A field of Intel's fork."""
    @property
    def pooled_size(self) -> RepeatedScalarFieldContainer[int]:
        """Both of them: one number, or one each. A field of Intel's fork."""
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

class SmoothL1LossParameter(Message):
    """What SmoothL1Loss reads."""

    sigma: float
    """Differences below 1 / sigma^2 are squared. Default: 1. A field of Intel's fork."""
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

