"""What may stand where in a DeepSpeed JSON, read in the sources of 0.10.3 to 0.19.8 (runtime/config.py,
runtime/zero/config.py, runtime/zero/offload_config.py, runtime/constants.py, monitor/config.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["BLOCKS", "TYPES"]

#: Block -> the keys that it has; "" is the top.  A block whose keys are not told apart here is in none.
BLOCKS: Final[Mapping[str, frozenset[str]]] = {
    "": frozenset(
        """
        train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps optimizer scheduler fp16 bf16
        bfloat16 amp gradient_clipping zero_optimization steps_per_print wall_clock_breakdown dump_state
        memory_breakdown prescale_gradients gradient_predivide_factor sparse_gradients sparse_attention
        communication_data_type seq_parallel_communication_data_type disable_allgather activation_checkpointing
        flops_profiler autotuning elasticity comms_logger tensorboard wandb csv_monitor comet compression_training
        data_efficiency curriculum_learning progressive_layer_drop eigenvalue quantize_training checkpoint
        data_types aio zero_allow_untested_optimizer zero_force_ds_cpu_optimizer pipeline hybrid_engine
        dataloader_drop_last use_data_before_expert_parallelism compile torch_autocast tensor_parallel timers
        graph_harvesting weight_quantization nebula load_universal_checkpoint use_node_local_storage
        vocabulary_size global_rank expert_parallel sequence_parallel_size data_parallel_size
        gradient_allreduce_op managed_gradient_accumulation disable_python_gc log_level
        """.split()
    ),
    "zero_optimization": frozenset(
        """
        stage contiguous_gradients reduce_scatter reduce_bucket_size use_multi_rank_bucket_allreduce
        allgather_partitions allgather_bucket_size overlap_comm compute_grad_norm load_from_fp32_weights
        elastic_checkpoint offload_param offload_optimizer zenflow sub_group_size cpu_offload_param
        cpu_offload_use_pin_memory cpu_offload ignore_unused_parameters legacy_stage1 round_robin_gradients
        parameter_alignment zero_hpz_partition_size zero_quantized_weights zero_quantized_nontrainable_weights
        zero_quantized_gradients mics_shard_size mics_hierarchical_params_gather memory_efficient_linear
        pipeline_loading_checkpoint override_module_apply log_trace_cache_warnings enable_sanity_checks
        save_muon_momentum_buffer_in_memory leaf_module stage3_prefetch_bucket_size
        stage3_param_persistence_threshold stage3_model_persistence_threshold stage3_max_live_parameters
        stage3_max_reuse_distance stage3_gather_16bit_weights_on_model_save
        stage3_gather_fp16_weights_on_model_save stage3_module_granularity_threshold
        stage3_use_all_reduce_for_fetch_params stage3_allgather_sequential prefetch_bucket_size
        param_persistence_threshold model_persistence_threshold max_live_parameters max_reuse_distance
        gather_16bit_weights_on_model_save
        """.split()
    ),
    "zero_optimization.offload_optimizer": frozenset(
        """
        device nvme_path buffer_count pin_memory pipeline pipeline_read pipeline_write fast_init ratio super_offload
        cpuadam_cores_perc
        """.split()
    ),
    "zero_optimization.offload_param": frozenset(
        "device nvme_path buffer_count buffer_size max_in_cpu pin_memory".split()
    ),
    "bf16": frozenset(
        """
        enabled immediate_grad_update check_grad_overflow bf16_master_weights_and_grads bf16_optimizer_states
        """.split()
    ),
    "fp16": frozenset(
        """
        enabled auto_cast loss_scale initial_scale_power loss_scale_window hysteresis consecutive_hysteresis
        min_loss_scale fp16_master_weights_and_grads
        """.split()
    ),
    "optimizer": frozenset(("type", "params", "legacy_fusion")),
    "scheduler": frozenset(("type", "params")),
}

#: What a value must be, by dotted key; what is not here may be anything.
TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "zero_optimization": (dict,),
    "optimizer": (dict,),
    "scheduler": (dict,),
    "bf16": (dict,),
    "fp16": (dict,),
    "optimizer.type": (str,),
    "optimizer.params": (dict,),
    "scheduler.type": (str,),
    "scheduler.params": (dict,),
    "zero_optimization.stage": (int,),
    "zero_optimization.offload_optimizer": (dict,),
    "zero_optimization.offload_param": (dict,),
    "zero_optimization.offload_optimizer.device": (str,),
    "zero_optimization.offload_param.device": (str,),
    "zero_optimization.stage3_param_persistence_threshold": (int, float),
    "zero_optimization.stage3_gather_16bit_weights_on_model_save": (bool,),
    "bf16.enabled": (bool,),
    "fp16.enabled": (bool,),
    "train_batch_size": (int,),
    "train_micro_batch_size_per_gpu": (int,),
    "gradient_accumulation_steps": (int,),
    "gradient_clipping": (int, float),
}
