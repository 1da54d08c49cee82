"""Builds a net: the graph rules, the layers with their blobs, and their parameters (Caffe: Net::Init).

Construction applies the graph rules, creates and sets up every layer in order, shares parameters, lays them
out in the arena and fills them, and works out which gradients are needed.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence

import torch

from mgcaffe.engine import fillers, registry
from mgcaffe.engine.arena import ParameterArena
from mgcaffe.engine.blob import Blob
from mgcaffe.engine.checks import sizes, unused_fields
from mgcaffe.engine.graph import fused_residual, fusion, lifetimes, needs, rules, sharing, table_look_ups
from mgcaffe.engine.graph.gradients import GradientStore
from mgcaffe.engine.graph.initial_values import fill, mix
from mgcaffe.engine.graph.node import Node, connect
from mgcaffe.engine.graph.recomputation import Recomputation, Recomputer
from mgcaffe.engine.graph.segment import Segment
from mgcaffe.engine.graph.table_look_ups import TableLookUps
from mgcaffe.engine.kernels.formats import preferred_memory_format
from mgcaffe.engine.kernels.precision import FLOAT32, Precision, set_gpu_products
from mgcaffe.engine.layer import TEST, TRAIN, Layer
from mgcaffe.engine.layer_context import LayerContext
from mgcaffe.engine.layers.input import Input
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.shard import Shard, TestShard
from mgcaffe.engine.tables.access import PlaceTables, TableAccess
from mgcaffe.engine.types import Shape
from mgcaffe.engine.weights import given
from mgcaffe.errors import EngineError, NetError
from mgcaffe.prototxt import NetParameter, NetSource, NetState, Phase, check_names

LayerHook = Callable[[int], None]


class BuiltNet:
    """The layers of a net, connected, with their parameters.

    Args:
        param: the NetParameter message, already upgraded.
        phase: TRAIN or TEST.
        level: replaces that of `param.state`; None: leaves it.
        stages: come beside those of `param.state`.
        dtype: float32 or float64.
        device: where tensors live.
        seed: of fillers, dropout and data augmentation; drawn from the system if None.
        shard: this rank's part of the data.
        sum_over_ranks, solver_ranks: see LayerContext.
        keep_blobs: every blob stays readable after a pass, in memory of its own where Caffe has it so; what is
            written into one blob shows in no other. A training driver sets it to False: values and
            gradients are then freed as soon as nothing needs them any more.
        sources: the prototxt's locations, for errors.
        input_shapes: shapes of data layers whose sources are absent, by layer name or "*".
        share_with: a net whose layers of the same name lend their parameters (a test net's train net).
        train_beside: a net of the same prototxt and state that trains the same weights (Hogwild): this one's values are
            that one's, its gradients, activations and measured statistics its own.
        outline: the net is only looked at: blobs may be larger than this machine's memory.
        before_setup: called with each layer before it is set up.
        place_tables: says which rows of the tables of EmbeddingBag layers lie in this process; None: all of them.
        precision: in how many bits products are computed; `precision.why_not` says whether the net can.
        preferred_format: four-dimensional blobs have the format that trains fastest, and not the ordinary one, which
            readers of blobs expect; None: where blobs are not kept.

    Attributes:
        layers: the layers in order, Splits included.
        nodes: the same with their blobs.
        blobs: by name; in-place layers write the same blob again.
        parameters: those that own their values, in Caffe's order (the order of solver histories).
        arena: where they live.
        inputs, outputs: names of the blobs made by Input layers, and of those that nothing reads (alphabetical).
        loss_weights: by blob name, without zeros.
        table_look_ups: looks up what lies in other processes; None where there is no such table.
        is_trained: whether a solver updates its parameters, which says so here.
        before_forward, after_forward, before_backward, after_backward: functions that are called with the
            number of each layer that runs. In a solver's pass that is replayed (`engine/capture`) blobs hold no values
            between the layers of a range.

    Raises:
        NetError, DataError: with the place in the prototxt.
    """

    def __init__(
        self,
        param: NetParameter,
        *,
        phase: Phase = TRAIN,
        level: int | None = None,
        stages: Sequence[str] = (),
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
        seed: int | None = None,
        shard: Shard | TestShard | None = None,
        sum_over_ranks: Callable[[float], float] | None = None,
        solver_ranks: int = 1,
        keep_blobs: bool = True,
        sources: NetSource | None = None,
        input_shapes: Mapping[str, Shape] | None = None,
        share_with: BuiltNet | None = None,
        train_beside: BuiltNet | None = None,
        outline: bool = False,
        before_setup: Callable[[Layer], None] | None = None,
        place_tables: PlaceTables | None = None,
        precision: Precision = FLOAT32,
        preferred_format: bool | None = None,
    ) -> None:
        self.param = param
        self.name: str = param.name
        self.phase = phase
        self.seed = int.from_bytes(os.urandom(4), "little") if seed is None else seed
        self.keep_blobs = keep_blobs
        self.is_trained = False
        self._before_setup = before_setup
        self._place_tables = place_tables
        self.table_look_ups: TableLookUps | None = None
        self.device = torch.device(device)
        if self.device.type == "cuda":
            set_gpu_products(precision)
        self.dtype = dtype
        self.context = LayerContext(
            phase=phase,
            dtype=dtype,
            device=self.device,
            stream=torch.Generator(device=self.device),
            seed=self.seed,
            shard=shard if shard is not None else Shard(),
            solver_ranks=solver_ranks,
            input_shapes=input_shapes,
            outline=outline,
            frees_blobs=not keep_blobs,
            divides_tables=place_tables is not None,
            precision=precision,
        )
        if sum_over_ranks is not None:
            self.context.sum_over_ranks = sum_over_ranks
        if (not keep_blobs) if preferred_format is None else preferred_format:
            types = (layer.type for layer in param.layer)
            self.context.memory_format = preferred_memory_format(types, self.device, dtype, precision)
        self.reseed(self.seed)
        self.blobs: dict[str, Blob] = {}
        self.nodes: list[Node] = []
        self.layers: list[Layer] = []
        state = rules.make_state(phase, level, stages, param.state if param.HasField("state") else None)
        try:
            self._build(state, sources, share_with, train_beside)
        except EngineError:
            self.close()
            raise
        self._find_ends()
        self._segments: dict[Node, Segment] = {}
        self._plan_memory()
        self.gradients = GradientStore(dtype, self.device, keep=keep_blobs)
        self.before_forward: list[LayerHook] = []
        self.after_forward: list[LayerHook] = []
        self.before_backward: list[LayerHook] = []
        self.after_backward: list[LayerHook] = []

    def _build(
        self, state: NetState, sources: NetSource | None, share_with: BuiltNet | None, train_beside: BuiltNet | None
    ) -> None:
        """Make the layers of a state and their parameters, and work out which gradients are needed."""
        check_names(self.param, sources)
        unused_fields.check_net(self.param, sources)
        specs = [
            rules.LayerSpec(layer, sources.layers[index] if sources is not None else None)
            for index, layer in enumerate(self.param.layer)
        ]
        for spec in rules.layers_that_run(specs, state):
            self._append(spec)
        self._bind_parameters(share_with, train_beside)
        self._find_needs(share_with is not None)

    def _find_ends(self) -> None:
        """Find the blobs where values enter and leave the net."""
        read = {blob for node in self.nodes for blob in node.bottoms if blob not in node.tops}
        self.outputs = sorted(name for name, blob in self.blobs.items() if blob not in read)
        self.inputs = [blob.name for node in self.nodes if isinstance(node.layer, Input) for blob in node.tops]
        self.loss_weights = {
            blob.name: weight
            for node in self.nodes
            for blob, weight in zip(node.tops, node.loss_weights, strict=True)
            if weight
        }

    def _plan_memory(self, *, makes_again: bool = True) -> None:
        """Decide what may be overwritten, and in a net that frees its blobs, what runs as one and what dies when.

        Args:
            makes_again: whether the ends of residual blocks may be made again in backward.
        """
        self._steps = self.nodes if self.keep_blobs else fusion.fuse(self.nodes, makes_again=makes_again)
        # Over what really runs: a fused layer keeps other blobs than its members would.
        lifetimes.decide_overwrites(self._steps, freeing=not self.keep_blobs)
        if self.keep_blobs:
            self._show_first_values()
            return
        lifetimes.find_dead(self._steps, kept={*self.outputs})

    def _append(self, spec: rules.LayerSpec) -> None:
        layer = registry.create(spec.param, self.context, spec.source)
        layer.bottom_names = spec.bottoms or layer.bottom_names
        node = connect(len(self.nodes), spec, layer, self.blobs)
        shapes = [blob.shape for blob in node.bottoms]
        if self._before_setup is not None:
            self._before_setup(layer)
        self.nodes.append(node)
        self.layers.append(layer)
        if isinstance(layer, Input):
            sizes.check_inputs(layer)
        with sizes.named(layer, "setting up"):
            layer.setup(shapes)
            unused_fields.check_numbers(spec.param, spec.source)
            self._reshape(node, shapes)
        named = node.tops[: len(spec.param.top)]
        self.blobs.update((blob.name, blob) for blob in named)
        specs, parameters = len(spec.param.param), len(layer.parameters)
        if specs > parameters:
            layer.fail(f"{specs} param message(s) are given, but the layer has {parameters} parameter(s)", "param")
        given.give(layer, spec.blobs)
        for index, parameter in enumerate(layer.parameters if not spec.blobs else ()):
            try:
                fillers.check(parameter.filler)
            except NetError as error:
                layer.fail(f"parameter {index}: {error.message}", hint=error.hint)

    def _bind_parameters(self, share_with: BuiltNet | None, train_beside: BuiltNet | None) -> None:
        lent = sharing.bind_to_net(self.layers, share_with.layers if share_with is not None else ())
        owned = sharing.share_by_name(self.layers)
        mine = [entry for entry in owned if id(entry[2]) not in lent]
        if self._place_tables is not None:
            table_look_ups.place(self.layers, mine, self._place_tables)
        sizes.check_all(self.layers, mine)
        try:
            self.arena: ParameterArena = ParameterArena(
                mine,
                self.dtype,
                self.device,
                beside=train_beside.arena if train_beside is not None else None,
            )
        except (RuntimeError, MemoryError) as error:
            largest, _, _ = max(mine, key=lambda entry: entry[2].count)
            sizes.explain(self.layers[largest], "allocating all parameters, this layer's being the largest", error)
            raise
        self.parameters: list[Parameter] = [parameter for _, _, parameter in owned]
        for index, _, parameter in owned:
            self.nodes[index].owned.append(parameter)
        generator = self.context.generator
        if self.device.type != "cpu":
            generator = torch.Generator().manual_seed(mix(self.seed))
        for index, _, parameter in mine:
            if train_beside is None:
                fill(self.layers[index], parameter, generator)
            else:
                parameter.initial = None  # the values are there
        given.forget(self.layers)
        sharing.bind_shared(self.layers)

    def _reshape(self, node: Node, shapes: Sequence[Shape]) -> None:
        if node.shapes != list(shapes):
            node.shapes, node.has_run = list(shapes), False
        for number, (blob, shape) in enumerate(zip(node.tops, node.layer.reshape(shapes), strict=True)):
            sizes.check_top(node.layer, number, blob.name, shape)
            blob.shape = tuple(shape)

    def _find_needs(self, is_tested: bool) -> None:
        """Check a net that trains now; one to test may lack gradients as long as none is asked for.

        Args:
            is_tested: whether it is a training net's test net, which may be in the TRAIN phase, too.
        """
        needs.sweep(self.nodes, self.param.force_backward)
        needs.find_last_products(self.nodes)
        if not self.keep_blobs and (is_tested or self.phase == TEST):
            needs.without_backward(self.nodes)
        elif self.phase == TRAIN:
            needs.check(self.nodes)

    def _show_first_values(self) -> None:
        """Put what some layers' tops hold from the start into their blobs, so that a user can fill them."""
        for node in self.nodes:
            for blob, values in zip(node.tops, node.layer.first_values(), strict=False):
                if values is not None:
                    blob.data = values

    def look_up_by(self, access: TableAccess, ahead: int = 0) -> None:
        """Look up the rows of all tables that `place_tables` placed, here or elsewhere, by `access` from now on.

        Args:
            access: where the tables are.
            ahead: for how many passes look-ups are begun ahead, where ids come from data layers.
        """
        self.table_look_ups = TableLookUps(self.nodes, access, ahead)

    def recompute(self, setting: str) -> Recomputation:
        """Compute layers a second time in backward from now on instead of keeping their values; call it once.

        Args:
            setting: `auto`, or ranges of layers, as for `Recomputer.make`, which also says what is raised.

        Raises:
            NetError: besides, the net keeps its blobs.
        """
        if self.keep_blobs:
            raise NetError(f"recompute: net '{self.name}' keeps all its blobs", hint="build it with keep_blobs=False")
        # What a segment computes again cannot be made again by itself.
        fused_residual.keep_bottoms(self.layers)
        self._plan_memory(makes_again=False)
        found = Recomputer(self._steps, self.dtype.itemsize).make(setting)
        self._segments = {node: segment for segment in found.segments for node in segment.steps}
        held = {node: numbers for segment in found.segments for node, numbers in segment.held.items()}
        lifetimes.decide_overwrites(self._steps, freeing=True, held=held)
        return found

    @property
    def recomputes(self) -> bool:
        """Whether some layers run a second time in backward."""
        return bool(self._segments)

    def reseed(self, *numbers: int) -> None:
        """Restart the net's random stream from these numbers (say seed, rank and iteration)."""
        self.context.restart_stream(functools.partial(mix, *numbers))

    def close(self) -> None:
        """Stop the data layers' threads and close their sources."""
        for layer in self.layers:
            close = getattr(layer, "close", None)
            if close is not None:
                close()
