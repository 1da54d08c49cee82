"""PyTorch's tests of DistributedDataParallel by name, and what stands for each here; docs/ddp_tests.md shows the table.

The names are those of `torch/testing/_internal/distributed/distributed_test.py` in PyTorch 2.13, as far as they are
about DDP, and of the class DistributedDataParallelTest in `test/distributed/test_c10d_common.py`,
`test_c10d_gloo.py` and `test_c10d_nccl.py` of versions close to it. Where PyTorch's test asks for GPUs and what it asks
of DDP shows on the CPU as well, ours runs there. `RUNS` is said only of what was compared with PyTorch's source and
asserts the same in users' view; what asserts less, or was not compared, is `PART`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

RUNS, PART, REFUSED, GPU, INTERNAL = "passes", "passes in part", "refused", "needs GPUs", "internal"
DISTRIBUTED, COMMON, GLOO, NCCL = "distributed_test", "test_c10d_common", "test_c10d_gloo", "test_c10d_nccl"

_HOOKS = "communication hooks do not exist: `allreduce_type`, `schedule` and `on_group` stand for them"
_DEVICES = "`device_ids` and `output_device` do not exist: the module and its inputs are moved by the user"
_SYNC = "`SyncBatchNorm` is for GPUs; it does its own communication, of which the wrapper sees nothing"

# By file: a test of PyTorch's that ours stands for (`part:` marks a `PART`), behind `=` the name of ours where that is
# another one; or an outcome and its reason, which a line with `|` continues. Further tests of the same answer follow,
# further to the right.
_TABLES = {
    DISTRIBUTED: f"""
    part: test_DistributedDataParallelCPU
        test_DistributedDataParallelCPU_grad_is_view
    part: test_DistributedDataParallel = test_DistributedDataParallelCPU
    test_DistributedDataParallel_requires_grad
    part: test_DistributedDataParallel_with_amp_and_grad_is_view = a_scaler_and_a_gradient_that_overflows_on_one_rank
    test_ddp_zero_output_features
    test_ddp_create_graph
    test_accumulate_gradients_no_sync
        test_accumulate_gradients_no_sync_grad_is_view
    test_ddp_grad_div_uneven_inputs
    part: test_ddp_join_model_equivalence = test_ddp_uneven_inputs
        test_ddp_uneven_inputs
    test_ddp_uneven_input_join_disable
    part: test_ddp_uneven_input_exception
    part: test_ddp_ignore_params_arg
    test_ddp_unused_params_rebuild_buckets_exception
    part: test_ddp_shared_grad_acc_unused_params
    part: test_ddp_namedtuple
    part: test_ddp_control_flow_same_across_ranks = unused_parameters_that_change
    part: test_ddp_control_flow_different_across_ranks = unused_parameters_that_differ_between_ranks
    test_invalid_static_graph
    part: test_grads_same_across_ranks_with_no_sync = parameters_used_under_no_sync_alone
    part: test_ddp_model_diff_shape_across_ranks = test_verify_model_across_rank
    part: test_ddp_model_diff_num_params_across_ranks
    part: test_output_unused_in_loss_tuple_module
        test_output_unused_in_loss_dict_module
    test_undefined_grad_parity_unused_parameters
    part: test_ddp_multiple_nested_unused_params_error
    part: test_ddp_multiple_nested_unused_params_err_ignore_params
    part: test_ddp_inference
    test_ddp_static_graph_nested_types
    part: test_ddp_returns_tensor_with_no_grad
    part: test_ddp_new_tensor_in_fwd
        test_ddp_new_tensor_in_fwd_static_graph
    part: test_ddp_broadcast_buffer
    test_ddp_init_sync_buffers_with_forward_sync_buffers_false
    test_ddp_join_respects_forward_sync_buffers_false
    part: test_static_graph_multi_forward
    test_stateless_api_with_ddp
    part: test_ddp_forward_backward_hook
    part: test_ddp_compile_static_graph
    refused: {_HOOKS}
        test_ddp_comm_hook_logging test_ddp_hook_with_optimizer_parity_adamw
        test_ddp_hook_with_optimizer_parity_adam test_ddp_hook_with_optimizer_parity_sgd
        test_ddp_hook_parity_allreduce test_ddp_hook_parity_allreduce_process_group test_ddp_hook_parity_powerSGD
        test_ddp_hook_parity_post_localSGD test_accumulate_gradients_no_sync_allreduce_hook
        test_accumulate_gradients_no_sync_allreduce_with_then_hook test_ddp_buffer_hook_allreduce_return_future
        test_ddp_buffer_hook_allreduce test_ddp_broadcast_buffer_via_hook test_ddp_hook_pickling_powerSGD
    refused: a private function of PyTorch; `StepOnGroups` stands for it, and its bits are tested
    | (`test_a_step_for_each_group_gives_the_bits_of_one_step`)
        test_ddp_apply_optim_in_backward test_ddp_apply_optim_in_backward_grad_as_bucket_view_false
        test_ddp_apply_optim_in_backward_ignored_params
    refused: DDP's `mixed_precision` does not exist: `torch.autocast` does it
        test_ddp_native_mixed_precision_ignored_params
        test_ddp_native_mixed_precision_no_grad_as_bucket_view_no_set_grad_none
        test_ddp_native_mixed_precision_grad_as_bucket_view_no_set_grad_none
        test_ddp_native_mixed_precision_grad_as_bucket_view_set_grad_to_none
        test_ddp_native_mixed_precision_no_grad_as_bucket_view_set_grad_to_none
    refused: `bucket_cap_mb` does not exist: groups are planned
        test_ddp_bucket_cap_mb_list test_bucket_cap_mb_list_ascending_order test_bucket_cap_mb_list_descending_order
        test_bucket_cap_mb_list_with_duplicates test_bucket_cap_mb_property test_create_with_bucket_cap_mb_list
        test_create_with_bucket_cap_mb_list_overrides_bucket_cap_mb test_create_with_custom_bucket_cap_mb
        test_create_with_default_bucket_cap test_default_bucket_cap_mb_value test_empty_bucket_cap_mb_list
        test_has_custom_per_bucket_caps_property test_large_bucket_cap_mb test_single_element_bucket_cap_mb_list
        test_small_bucket_cap_mb test_compute_limits_custom_cap_with_find_unused_true
        test_compute_limits_default_with_find_unused_true test_compute_limits_find_unused_false_uses_maxsize
        test_compute_limits_static_graph_uses_maxsize test_compute_limits_with_custom_per_bucket_caps
    refused: `skip_all_reduce_unused_params` does not exist: unused parameters are sent as zeros
        test_skip_all_reduce_unused_parameters
    refused: {_DEVICES}
        test_ddp_device
    refused: a wrapper keeps its ranks; wrap the module again for others
        test_ddp_update_process_group_new_group test_ddp_update_process_group_default_group
        test_ddp_update_process_group_grad_undefined test_ddp_update_process_group_no_find_unused
    refused: `device_mesh` does not exist
        test_ddp_device_mesh_initialization
    refused: `broadcast_buffers` is not deprecated here; `forward_sync_buffers` is taken as well
        test_ddp_broadcast_buffers_deprecation_warning
    internal: the names of DDP's entries in PyTorch's profiles
        test_ddp_profiling_autograd_profiler test_ddp_profiling_torch_profiler test_ddp_profiling_execution_trace
    internal: DDP's logging data
        test_ddp_logging_data_cpu test_ddp_logging_data_gpu test_static_graph_api_cpu test_ddp_python_error_logged
        test_sync_bn_logged test_detect_ddp_is_actually_static test_dump_DDP_relevant_env_vars
    internal: private functions of DDP; what users see of the start is tested in `tests/pytorch/test_state.py`
        test_ddp_sync_module_states test_verify_model_across_rank_with_logger
        test_verify_model_across_rank_without_logger test_compute_bucket_assignment_by_size_sparse_error_with_logger
        test_compute_bucket_assignment_by_size_sparse_error_without_logger
        test_ddp_build_debug_param_to_name_mapping test_ddp_build_debug_param_to_name_mapping_requires_grad
        test_ddp_remove_autograd_hooks test_ddp_has_finalized test_ddp_sink_noclone
    needs GPUs: {_SYNC}
        test_DistributedDataParallel_SyncBatchNorm test_DistributedDataParallel_SyncBatchNorm_Channels_Last
        test_DistributedDataParallel_SyncBatchNorm_No_Affine test_DistributedDataParallel_SyncBatchNorm_2D_Input
        test_DistributedDataParallel_SyncBatchNorm_Single_Input_Per_Process
        test_DistributedDataParallel_SyncBatchNorm_Diff_Input_Sizes_Running_Value
        test_DistributedDataParallel_SyncBatchNorm_Diff_Input_Sizes_gradient
        test_DistributedDataParallel_SyncBatchNorm_half test_ddp_uneven_inputs_stop_iteration_sync_bn
        test_ddp_sync_bn_training_vs_eval
    needs GPUs: events of the stream on which gradients come are tested with fakes (`test_nccl_path.py`)
        test_DistributedDataParallel_non_default_stream
    """,
    COMMON: f"""
    part: test_ddp_checkpointing_once
    test_ddp_checkpointing_unused_params
    part: test_ddp_checkpointing_twice
    test_ddp_checkpointing_twice_static_graph
    test_ddp_checkpointing_twice_weight_sharing
    part: test_ddp_checkpointing_dynamic_module
        test_ddp_checkpointing_dynamic_weight_sharing
    test_ddp_checkpointing_weight_sharing
    test_dataclass_output
        test_dataclass_output_unused_param
    refused: {_HOOKS}
        test_invalid_powerSGD_state
    needs GPUs: {_SYNC}
        test_sync_batch_norm_only_empty_input test_sync_batch_norm_empty_input
    """,
    GLOO: f"""
    test_gloo_backend_cpu_module = test_DistributedDataParallelCPU
        test_gloo_backend_cpu_module_grad_is_view
    test_global_local_unused_params_grad
        test_global_local_unused_params_grad_with_grad_is_view
        test_global_local_unused_params_grad_with_static_graph
    test_find_unused_parameters_when_unused_parameters_empty
    test_ignored_output
        test_ignored_output_with_unused_parameters
    part: test_save_load_checkpoint
    refused: sparse gradients do not lie in a flat buffer; the refusal is tested (`test_sparse_gradients`)
        test_sparse_gradients test_sparse_gradients_grad_is_view
    refused: {_HOOKS}
        test_ddp_comm_hook_future_passing_cpu test_ddp_comm_hook_future_passing_gpu_gloo
        test_ddp_invalid_comm_hook_init test_ddp_invalid_comm_hook_return_type test_ddp_comm_hook_register_just_once
        test_ddp_comm_hook_sparse_gradients
    needs GPUs: its shards lie on GPUs; excluded parameters are left alone here
        test_ignored_sharded_tensor
    needs GPUs: modules on one or several GPUs, staged through the host
        test_gloo_backend_1gpu_module_device_ids_integer_list
        test_gloo_backend_1gpu_module_device_ids_torch_device_list test_gloo_backend_2gpu_module
        test_gloo_backend_4gpu_module
    """,
    NCCL: f"""
    test_fp16
        test_fp16_grad_is_view
    test_arbitrary_forward_return_value
        test_arbitrary_forward_return_value_grad_is_view
    test_ddp_with_lazy_parameters
    test_find_unused_parameters_kwarg_debug_detail = test_find_unused_parameters_kwarg
        test_find_unused_parameters_kwarg_debug_info test_find_unused_parameters_kwarg_debug_off
        test_find_unused_parameters_kwarg_grad_is_view_debug_detail
        test_find_unused_parameters_kwarg_grad_is_view_debug_info
        test_find_unused_parameters_kwarg_grad_is_view_debug_off
    test_multiple_outputs_multiple_backward = a_backward_pass_for_each_output
        test_multiple_outputs_multiple_backward_grad_is_view
    test_no_grad
    test_accumulate_gradients_module
        test_accumulate_gradients_module_with_grad_is_view
    test_failure_recovery
    part: test_grad_layout_1devicemodule_1replicaperprocess
    test_param_layout_mismatch_error
    test_ddp_weight_sharing
    test_ddp_packed_sequence
    part: test_ddp_complex_params = complex_parameters
    refused: {_DEVICES}
        test_nccl_backend_multi_device_ids_not_allowed test_nccl_backend_single_device_module_device_ids_None
        test_nccl_backend_single_device_module_empty_device_ids
        test_nccl_backend_1gpu_module_device_ids_integer_list
        test_nccl_backend_1gpu_module_device_ids_torch_device_list test_ddp_multi_device_module_config
    refused: {_HOOKS}
        test_ddp_comm_hook_future_passing_gpu_nccl test_ddp_comm_hook_allreduce_hook_nccl
        test_default_ddp_comm_hooks_nccl test_fp16_compress_wrapper_nccl test_bf16_compress_wrapper_nccl
        test_builtin_ddp_comm_hooks_nccl test_powerSGD_ddp_comm_hook_nccl
        test_ddp_comm_hook_allreduce_hook_nccl_grad_is_view test_ddp_comm_hook_allreduce_hook_nccl_static_graph
        test_default_ddp_comm_hooks_nccl_is_view test_fp16_compress_wrapper_is_view
        test_bf16_compress_wrapper_is_view test_builtin_ddp_comm_hooks_nccl_grad_is_view
        test_powerSGD_ddp_comm_hook_nccl_grad_is_view test_ddp_comm_hook_allreduce_with_then_hook_nccl
    needs GPUs: modules on several GPUs of a process
        test_nccl_backend_multi_device_module_device_ids_None test_nccl_backend_2gpu_module
        test_nccl_backend_4gpu_module test_grad_layout_2devicemodule
    internal: wraps no module
        test_pass_default_pg test_channels_last_contig
    """,
}


@dataclass(frozen=True)
class Row:
    """Tests of one file that one answer is for.

    Attributes:
        file: the file's name.
        names: of the tests.
        outcome: `RUNS` or `PART`, where ours has to pass, `REFUSED`, `GPU` or `INTERNAL`.
        here: the name of our test, or the reason.
    """

    file: str
    names: tuple[str, ...]
    outcome: str
    here: str


def _rows(file: str, table: str) -> Iterator[Row]:
    """Yield the rows of a table."""
    for entry in re.split(r"\n {4}(?=[^ |])", table.rstrip())[1:]:
        head, *further = re.sub(r"\n {4}\| ", " ", entry).split("\n")
        names = " ".join(further).split()
        outcome, _, reason = head.partition(": ")
        if outcome in (REFUSED, GPU, INTERNAL):
            yield Row(file, tuple(names), outcome, reason)
        else:
            first, _, ours = head.removeprefix("part: ").partition(" = ")
            yield Row(file, (first, *names), PART if outcome == "part" else RUNS, ours or first)


ROWS = tuple(row for file, table in _TABLES.items() for row in _rows(file, table))


def count(outcome: str) -> int:
    """Return how many tests of PyTorch have an outcome."""
    return sum(len(row.names) for row in ROWS if row.outcome == outcome)


def needed() -> list[str]:
    """Return the names of our tests that stand for one of PyTorch's."""
    return sorted({row.here for row in ROWS if row.outcome in (RUNS, PART)})
