"""Constants of the memory and time model that only a measurement can give, each with its source.

Everything else in a plan follows from shapes. Refit these when the executor changes: bench/engine.py prints
predicted beside measured.
"""

GIGABYTE = 1_000_000_000

# --- Memory ---------------------------------------------------------------------------------------------
# A process with torch loaded; with CUDA its libraries and a driver context on top. Source: /proc of idle
# processes.
HOST_OVERHEAD_BYTES = 500_000_000
HOST_OVERHEAD_WITH_GPU_BYTES = 1_850_000_000
# The driver's context and kernels: in the GPU's memory, but not in what torch reserves. Source: nvidia-smi of
# a process that holds one tensor.
GPU_CONTEXT_BYTES = 600_000_000
# Workspaces of matrix and attention kernels, norms, tables, and what the allocator rounds up.
GPU_WORKSPACE_BYTES = 400_000_000
# What torch reserves above what is allocated, on everything whose size changes during a step.
RESERVED_OVER_ALLOCATED = 1.02
# Never plan to the last byte: drivers, displays and other processes need some.
USABLE_GPU_FRACTION = 0.97
# On the host also page tables, pinned bookkeeping and torch's compile workers.
HOST_RESERVE_FRACTION = 0.10
HOST_RESERVE_AT_MOST_BYTES = 14 * GIGABYTE
# Activations of a layer, in multiples of its widths (the executor's facts): what a kept layer saves per token
# when compiled, how much more when not, and the largest set that a backward pass works on.
EAGER_OVER_COMPILED = 2.0
WORKING_HIDDEN = 6
WORKING_KV = 2
WORKING_FFN_GATED = 5.5
WORKING_FFN_PLAIN = 3
# The backward pass of variable-length attention pads the queries' gradient, in fp32, by so many positions per
# document. Source: torch's kernel. Where a row's documents are shorter on average than the second number, in
# tokens, masks are used instead.
BACKWARD_POSITIONS_PER_DOCUMENT = 128
SHORTEST_PACKED_DOCUMENT = 32
# Buffers that offloaded inputs pass through.
OFFLOAD_BUFFERS = 3
# NF4: four bits, and a scale of eight bits per 64 weights, itself scaled per 256. Source: the codec.
NF4_BITS = 4.127

# --- Time -----------------------------------------------------------------------------------------------
# The part of the measured matrix rate that the matrix products of a layer reach. Source: the sketch's 7B
# rows at batch 64 (597 of 730 TFLOP/s with everything counted).
MATRIX_EFFICIENCY = 0.92
# Tokens in a micro-batch at which products reach half of that.
HALF_RATE_TOKENS = 250
# Flash attention against the matrix rate.
# Source: 131,072 tokens in a row, where it is most of the step.
ATTENTION_EFFICIENCY = 0.75
# How often the working set of a layer crosses the GPU's memory beside the products, compiled; not compiled it
# is more, where SwiGLU and its adapters are one kernel only somewhat more. Source: traces of nine rows of
# bench/engine.py on an H200, 1.5B to 7B; uncompiled, recorded steps of a 0.5B with adapters, before and after
# there was that kernel.
FORWARD_PASSES = 0.6
BACKWARD_PASSES = 2.6
EAGER_PASSES = 4.2
EAGER_FUSED_PASSES = 1.7
# How often what adapters read and add to crosses it, forward and backward. Source: LoRA of 0.5B and 7B on an
# H200, in bf16, in fp8 and in 18.7 GB; fused with SwiGLU, and before that.
ADAPTER_PASSES = (1.0, 1.5)
FUSED_ADAPTER_PASSES = (0.4, 0.9)
# Adapters of a higher rank are not fused with SwiGLU: the kernel would compute more than it saves.
HIGHEST_FUSED_RANK = 64
# Pauses between the kernels of one layer, forward or backward. Source: profiles of 124M and of a 0.5B with
# adapters, recorded, on an H200.
LAYER_SECONDS = 130e-6
EAGER_LAYER_SECONDS = 250e-6
# What the host needs to start the kernels of a layer, forward and backward; of a chunk of the loss; of an
# update; and to start a recorded step. Source: 124M and a 0.5B with adapters on a machine with one H200.
LAUNCH_LAYER_SECONDS = 4.8e-3
LAUNCH_EAGER_LAYER_SECONDS = 8e-3
LAUNCH_CHUNK_SECONDS = 0.8e-3
LAUNCH_UPDATE_SECONDS = 4e-3
LAUNCH_GRAPH_SECONDS = 3e-3
# From this part of a step on, launches are worth recording: machines start kernels at different speeds.
LAUNCHES_MATTER = 0.2
# Logits and what is computed of them cross memory this often per chunk, beside the products. Source: the
# kernel of the loss on an H200, vocabularies of 50,000 and 152,000.
LOSS_PASSES = 1.0
# Optimizer: bytes read and written per parameter beside its moments: the gradient, and twice the master.
# The upper half of the master is the compute copy.
UPDATE_BYTES = 10
# Adafactor reads the gradient three times, and on a GPU what it makes of it in between.
ADAFACTOR_BYTES = 24
# Muon: Newton-Schulz steps, and bytes per element of a matrix: gradient and momentum in fp32, three in bf16.
MUON_STEPS = 5
MUON_BYTES = 14
# Waiting for the gradient norm before the first update may begin, and what a step costs in Python.
STEP_SECONDS = 4e-3
# Two parts of a phase that are equally long make it 2**(1/16) times as long: 4 %. Source: 1.5B and 3B with 8
# to 13 of their layers updated on the GPU; the fastest steps are those with no second bottleneck near.
BOTTLENECK_SHARPNESS = 16
# Copies and host updates slow the GPU's own work a little while they run beside it.
OVERLAP_COST = 0.03
# Streaming through two slots instead of four: copies and products wait for each other.
TWO_SLOTS_SLOWDOWN = 1.08
# Small chunks of the loss, per halving below 2048 positions, on the loss alone.
CHUNK_SLOWDOWN = 1.03
# Decoding a 4-bit weight: bytes moved per element.
NF4_DECODE_BYTES = 8.0
# A CPU that trains, in fp32. Source of what follows: thirteen models of 64 to 768 columns and 64 to 2,048
# tokens on two cores of an AMD EPYC, with one thread and with two; four terms fit them within 3 % and 13 %.
# The part of the peak that matrix products and attention reach.
CPU_EFFICIENCY = 0.8
# What Python and small operations cost: a layer, forward and backward, and a step.
CPU_LAYER_SECONDS = 1.3e-3
CPU_STEP_SECONDS = 0.8e-3
# What one value of a layer's working set costs beside the products, forward and backward: norms, activation
# functions, copies. It is the same in bf16.
CPU_VALUE_SECONDS = 2.2e-9
# A logit costs as much as so many of them.
CPU_LOGIT_VALUES = 3.5
# Several threads divide the products, but they have to wait for each other after every small operation.
CPU_LAYER_WITH_THREADS = 1.6
CPU_VALUE_WITH_THREADS = 1.2

# Until the layers are compiled in another process while steps run uncompiled on a CPU.
CPU_COMPILE_SECONDS = 60.0
# On a GPU: before the first step; in another process beside uncompiled steps, which first loads torch and the
# model; and until programs run that another process has compiled. Source: LoRA of 0.5B on an H200.
GPU_COMPILE_SECONDS = 20.0
GPU_COMPILE_ASIDE_SECONDS = 30.0
KEPT_PROGRAMS_SECONDS = 10.0
# What that process needs: the driver's memory (0.65 GB seen); torch, compiler and helpers (assumed).
COMPILER_GPU_BYTES = 700_000_000
COMPILER_HOST_BYTES = 4 * GIGABYTE
# A run may end so much later if its first step comes at once and not after compiling.
WORTH_A_QUICK_START_SECONDS = 10.0

# --- Machines, when nothing was measured --------------------------------------------------------------
# Source: one H200: 730 of 989 TFLOP/s; 55 GB/s one way, 50 each way at once; Adam 117 GB/s on 16 cores.
MATRIX_OVER_PEAK = 730 / 989
# Linear layers are twice as fast in fp8, less what it takes to scale and round their operands. Source: one
# H200, steps of 7B predicted within 8 %: full 4.34 s (4.13 measured), LoRA 0.355 s (0.384).
FP8_OVER_BF16 = 1.3
DUPLEX_OVER_ONE_WAY = 50 / 55
# Host memory serves the optimizer and the link at once: together at most so much of the optimizer's rate.
# Source: traces of 1.5B, 3B and 7B on two machines, 175 to 190 GB/s where the optimizer alone had 143 to 145.
HOST_MEMORY_OVER_ADAM = 1.28
# What is left of the link while the CPU updates weights beside it without a pause. Source: one H200, 36 GB/s
# each way where the link alone had 50; on another 39 to 41 of 46.
LINK_DURING_UPDATES = 0.75
# States wait for their turn, so that their lane is idle in between. Source: steps of 1.5B and 3B with 8 to 13
# of their layers updated on the GPU.
STATE_LANE_USE = 0.9
ADAM_BYTES_PER_SECOND_PER_CORE = 117e9 / 16
# A socket's memory has an end, however many cores ask for it.
ADAM_BYTES_PER_SECOND_AT_MOST = 200e9
# Bytes per second of host updates with moments in fewer bits, against FP32: arithmetic limits them.
# Source: bench/host_adamw.py on two cores of an AMD EPYC.
BF16_STATE_RATE = 0.9
EIGHT_BIT_STATE_RATE = 0.55
# From this hidden size on, CPUs with instructions for bf16 gain by them; narrow layers wait for other things.
CPU_BF16_WIDTH = 256
# Matrix products on such a CPU, against fp32. Source: eight models of 256 to 768 columns on two cores.
CPU_BF16_OVER_FP32 = 1.9
# FP32 products on GPUs, against BF16 ones, without rounding to TF32.
FP32_OVER_BF16 = 1 / 14
