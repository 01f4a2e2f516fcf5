# ruff: noqa: E501
"""Programs that fail, each in one way that trainings fail. `produce.py` runs them and keeps what they say.

CPU programs need torch, numpy and what the tests install; GPU programs need one CUDA device. Each is followed
by the likely cause that it should be given; None: nothing that a rule should claim to know.
"""

CPU: dict[str, tuple[str | None, str]] = {
    "python_allocation": ("host_out_of_memory", "bytearray(1 << 60)"),
    "numpy_allocation": ("host_out_of_memory", "import numpy; numpy.zeros(1 << 50)"),
    "torch_cpu_allocation": ("host_out_of_memory", "import torch; torch.empty(1 << 50)"),
    "mmap_allocation": ("host_out_of_memory", "import mmap; mmap.mmap(-1, 1 << 55)"),
    "wrapped_allocation": (
        "host_out_of_memory",
        "try:\n    bytearray(1 << 60)\nexcept MemoryError as problem:\n"
        "    raise RuntimeError('the batch could not be prepared') from problem",
    ),
    "write_to_full_disk": ("disk_full", "f = open('/dev/full', 'w')\nf.write('x' * 100000)\nf.flush()"),
    "copy_to_full_disk": ("disk_full", "import shutil; shutil.copyfile('/proc/self/exe', '/dev/full')"),
    "torch_save_to_full_disk": (
        "disk_full", "import torch; torch.save({'w': torch.zeros(1 << 20)}, open('/dev/full', 'wb', 0))",
    ),
    "numpy_save_to_full_disk": (
        "disk_full", "import numpy; numpy.zeros(1 << 20).tofile(open('/dev/full', 'wb', 0))",
    ),
    "gloo_peer_killed": (
        "lost_rank",
        """
import os, signal, datetime, torch, torch.distributed as dist, torch.multiprocessing as mp
def other(port):
    dist.init_process_group('gloo', init_method=f'tcp://127.0.0.1:{port}', rank=1, world_size=2)
    dist.all_reduce(torch.ones(4))
    os.kill(os.getpid(), signal.SIGKILL)
if __name__ == '__main__':
    port = free_port()
    child = mp.get_context('fork').Process(target=other, args=(port,)); child.start()
    dist.init_process_group('gloo', init_method=f'tcp://127.0.0.1:{port}', rank=0, world_size=2)
    dist.all_reduce(torch.ones(4))
    child.join()
    dist.all_reduce(torch.ones(1 << 20))
""",
    ),
    "gloo_timeout": (
        "lost_rank",
        """
import time, datetime, torch, torch.distributed as dist, torch.multiprocessing as mp
def other(port):
    dist.init_process_group('gloo', init_method=f'tcp://127.0.0.1:{port}', rank=1, world_size=2)
    time.sleep(20)
port = free_port()
child = mp.get_context('fork').Process(target=other, args=(port,), daemon=True); child.start()
dist.init_process_group('gloo', init_method=f'tcp://127.0.0.1:{port}', rank=0, world_size=2,
                        timeout=datetime.timedelta(seconds=3))
dist.all_reduce(torch.ones(4))
""",
    ),
    "monitored_barrier": (
        "lost_rank",
        """
import time, datetime, torch.distributed as dist, torch.multiprocessing as mp
def other(port):
    dist.init_process_group('gloo', init_method=f'tcp://127.0.0.1:{port}', rank=1, world_size=2)
    time.sleep(20)
port = free_port()
child = mp.get_context('fork').Process(target=other, args=(port,), daemon=True); child.start()
dist.init_process_group('gloo', init_method=f'tcp://127.0.0.1:{port}', rank=0, world_size=2)
dist.monitored_barrier(timeout=datetime.timedelta(seconds=2))
""",
    ),
    "rank_never_joins": (
        "lost_rank",
        """
import datetime, torch.distributed as dist
dist.init_process_group('gloo', init_method=f'tcp://127.0.0.1:{free_port()}', rank=0, world_size=2,
                        timeout=datetime.timedelta(seconds=2))
""",
    ),
    "store_key_missing": (
        "lost_rank",
        """
import datetime, torch.distributed as dist
store = dist.TCPStore('127.0.0.1', free_port(), 1, True, timeout=datetime.timedelta(seconds=1))
store.get('never set')
""",
    ),
    "store_unreachable": (
        "lost_rank",
        """
import datetime, torch.distributed as dist
dist.TCPStore('127.0.0.1', free_port(), 2, False, timeout=datetime.timedelta(seconds=1))
""",
    ),
    "torchrun_child_failed": (
        "child_failed",
        """
import sys
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
config = LaunchConfig(1, 1, 1, rdzv_backend='static', rdzv_endpoint=f'127.0.0.1:{free_port()}',
                      rdzv_configs={'rank': 0}, max_restarts=0, run_id='1')
elastic_launch(config, sys.executable)('-c', 'raise ValueError(3)')
""",
    ),
    "torchrun_child_killed": (
        "host_out_of_memory",
        """
import sys
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
config = LaunchConfig(1, 1, 1, rdzv_backend='static', rdzv_endpoint=f'127.0.0.1:{free_port()}',
                      rdzv_configs={'rank': 0}, max_restarts=0, run_id='1')
elastic_launch(config, sys.executable)('-c', 'import os; os.kill(os.getpid(), 9)')
""",
    ),
    **{
        f"loader_worker_{name}": (
            cause,
            f"""
import os, torch
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): os.kill(os.getpid(), {number})
for batch in torch.utils.data.DataLoader(Rows(), num_workers=1): pass
""",
        )
        for name, number, cause in (
            ("killed", 9, "host_out_of_memory"), ("segfault", 11, "native_crash"), ("bus_error", 7, "shared_memory_full"),
        )
    },
    "loader_worker_exception": (
        "data_invalid",
        """
import torch
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return int('text')
for batch in torch.utils.data.DataLoader(Rows(), num_workers=1): pass
""",
    ),
    "loader_worker_memory": (
        "host_out_of_memory",
        """
import torch
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return bytearray(1 << 60)
for batch in torch.utils.data.DataLoader(Rows(), num_workers=1): pass
""",
    ),
    "loader_timeout": (
        "data_loader_stuck",
        """
import time, torch
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): time.sleep(10)
for batch in torch.utils.data.DataLoader(Rows(), num_workers=1, timeout=1): pass
""",
    ),
    "iterator_is_empty": ("data_exhausted", "batches = iter([1, 2])\nfor step in range(5): next(batches)"),
    "generator_is_empty": (
        "data_exhausted",
        "def batches():\n    rows = iter([1])\n    while True: yield next(rows)\nfor batch in batches(): pass",
    ),
    "sampler_without_rows": (
        "data_exhausted", "import torch\ntorch.utils.data.DataLoader([], shuffle=True)",
    ),
    "gradient_is_nan": (
        "nan_loss",
        "import torch\nwith torch.autograd.set_detect_anomaly(True):\n"
        "    x = torch.tensor([-1.0], requires_grad=True)\n    torch.log(x).sum().sqrt().backward()",
    ),
    "norm_is_not_finite": (
        "nan_loss",
        "import torch\nw = torch.nn.Parameter(torch.ones(2)); w.grad = torch.full((2,), float('inf'))\n"
        "torch.nn.utils.clip_grad_norm_([w], 1.0, error_if_nonfinite=True)",
    ),
    "numpy_overflow": ("nan_loss", "import numpy\nnumpy.seterr(all='raise')\nnumpy.exp(numpy.float32(1e4))"),
    "own_check_of_loss": ("nan_loss", "loss = float('nan')\nraise ValueError(f'loss is {loss} at step 7')"),
    "own_assertion_of_loss": (
        "nan_loss",
        "import torch\nloss = torch.tensor(float('nan'))\nreporter.metric('loss', float(loss), 3)\nassert torch.isfinite(loss)",
    ),
    "sampling_from_nan": (
        "nan_loss", "import torch\ntorch.multinomial(torch.tensor([float('nan'), 1.0]), 1)",
    ),
    "token_beyond_vocabulary": (
        "token_out_of_range", "import torch\ntorch.nn.Embedding(10, 4)(torch.tensor([12]))",
    ),
    "target_beyond_classes": (
        "token_out_of_range",
        "import torch\ntorch.nn.functional.cross_entropy(torch.randn(2, 5), torch.tensor([1, 9]))",
    ),
    "shapes_do_not_fit": ("shape_mismatch", "import torch\ntorch.nn.Linear(4, 4)(torch.ones(2, 5))"),
    "lengths_do_not_fit": ("shape_mismatch", "import torch\ntorch.ones(3) + torch.ones(4)"),
    "rows_of_different_length": (
        "shape_mismatch", "import torch\ntorch.stack([torch.ones(3), torch.ones(4)])",
    ),
    "weights_of_another_shape": (
        "checkpoint_does_not_fit",
        "import torch\ntorch.nn.Linear(4, 4).load_state_dict(torch.nn.Linear(4, 5).state_dict())",
    ),
    "weights_with_other_names": (
        "checkpoint_does_not_fit",
        "import torch\ntorch.nn.Linear(4, 4).load_state_dict({'kernel': torch.ones(4, 4)})",
    ),
    "optimizer_of_another_model": (
        "checkpoint_does_not_fit",
        "import torch\na = torch.optim.AdamW(torch.nn.Linear(2, 2).parameters())\n"
        "a.load_state_dict(torch.optim.AdamW(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))"
        ".parameters()).state_dict())",
    ),
    "checkpoint_cut_short": (
        "checkpoint_damaged",
        "import torch\ntorch.save({'w': torch.ones(9)}, 'a.pt')\nwhole = open('a.pt', 'rb').read()\n"
        "open('a.pt', 'wb').write(whole[:200])\ntorch.load('a.pt')",
    ),
    "safetensors_cut_short": (
        "checkpoint_damaged",
        "import torch\nfrom safetensors.torch import load_file, save_file\nsave_file({'w': torch.ones(99)}, 'a.st')\n"
        "whole = open('a.st', 'rb').read()\nopen('a.st', 'wb').write(whole[:100])\nload_file('a.st')",
    ),
    "safetensors_of_text": (
        "checkpoint_damaged",
        "from safetensors.torch import load_file\nopen('a.st', 'w').write('version https://git-lfs.github.com/spec/v1')\n"
        "load_file('a.st')",
    ),
    "pickle_refused": (
        "checkpoint_unsafe",
        "import torch, decimal\ntorch.save({'w': decimal.Decimal(1)}, 'a.pt')\ntorch.load('a.pt', weights_only=True)",
    ),
    "types_do_not_fit": (
        "dtype_mismatch", "import torch\ntorch.nn.Linear(4, 4)(torch.ones(2, 4, dtype=torch.bfloat16))",
    ),
    "nothing_to_train": ("nothing_to_train", "import torch\ntorch.ones(2).sum().backward()"),
    "graph_is_gone": (
        None, "import torch\nx = torch.ones(2, requires_grad=True)\ny = (x * x).sum()\ny.backward()\ny.backward()",
    ),
    "no_cuda_in_this_torch": ("gpu_not_usable", "import torch\ntorch.ones(1, device='cuda')"),
    "no_such_package": ("missing_package", "import flash_attn_4"),
    "no_such_name": ("missing_package", "from torch.nn import TransformerXL"),
    "library_of_nccl_is_missing": ("missing_library", "import ctypes\nctypes.CDLL('libnccl.so.99')"),
    "file_named_like_gloo": ("file_not_found", "open('gloomy.txt')"),
    "folder_is_missing": ("file_not_found", "import os\nos.listdir('data/nan')"),
    "too_many_files": (
        "too_many_open_files",
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\nfiles = [open('/dev/null') for _ in range(99)]",
    ),
    "port_in_use": (
        "port_in_use",
        "import socket\na, b = socket.socket(), socket.socket()\na.bind(('127.0.0.1', 0)); a.listen()\nb.bind(a.getsockname())",
    ),
    "store_port_in_use": (
        "port_in_use",
        "import socket, datetime, torch.distributed as dist\na = socket.socket(); a.bind(('0.0.0.0', 0)); a.listen()\n"
        "dist.TCPStore('127.0.0.1', a.getsockname()[1], 1, True)",
    ),
    "connection_refused": ("network", "import socket\nsocket.create_connection(('127.0.0.1', free_port()))"),
    "name_is_unknown": ("network", "import socket\nsocket.getaddrinfo('no-such-host.invalid', 443)"),
    "broken_json_row": ("data_invalid", "import json\njson.loads('{\"text\": \"a')"),
    "bytes_are_not_utf8": ("data_invalid", "b'\\xff\\xfea'.decode('utf-8')"),
    "broken_parquet": (
        "data_invalid",
        "import pyarrow.parquet\nopen('a.parquet', 'wb').write(b'PAR1 no')\npyarrow.parquet.read_table('a.parquet')",
    ),
    "column_is_missing": ("missing_column", "row = {'instruction': 'a'}\nrow['messages']"),
    "no_padding_token": (
        None,
        "raise ValueError('Asking to pad but the tokenizer does not have a padding token.')",
    ),
    "recursion": (None, "def f(): f()\nf()"),
    "nan_in_a_name": (None, "raise ValueError('took 5 nanoseconds too long for Nancy')"),
    "nccl_in_a_name": (None, "raise KeyError('nccl_settings')") ,
    "process_group_in_a_sentence": (None, "raise ValueError('choose a process group for the annotators')"),
    "signal_segfault": ("native_crash", "import ctypes\nctypes.string_at(0)"),
    "signal_abort": ("native_crash", "import os\nos.abort()"),
    "signal_illegal_instruction": ("illegal_instruction", "import os, signal\nos.kill(os.getpid(), signal.SIGILL)"),
    "signal_bus": (
        "shared_memory_full",
        "import mmap\nf = open('m', 'w+b'); f.truncate(8192)\nm = mmap.mmap(f.fileno(), 8192); f.truncate(0)\nm[5000]",
    ),
    "signal_kill": ("killed", "import os\nos.kill(os.getpid(), 9)"),
    "exit_status": (None, "raise SystemExit(3)"),
}  # fmt: skip

_ILLEGAL = """
import torch, triton, triton.language as tl
@triton.jit
def bad(x, offset):
    tl.store(x + offset, 1.0)
x = torch.ones(16, device='cuda')
bad[(1,)](x, 1 << 40)
torch.cuda.synchronize()
"""

GPU: dict[str, tuple[str | None, str]] = {
    "gpu_allocation": ("gpu_out_of_memory", "import torch\ntorch.empty(1 << 42, device='cuda')"),
    "gpu_memory_grows": (
        "gpu_out_of_memory",
        "import torch\nkept = []\nwhile True: kept.append(torch.ones(1 << 30, device='cuda'))",
    ),
    "gpu_memory_in_backward": (
        "gpu_out_of_memory",
        "import torch\ntorch.cuda.set_per_process_memory_fraction(0.02)\n"
        "x = torch.randn(1 << 14, 1 << 14, device='cuda', requires_grad=True)\n(x @ x).sum().backward()",
    ),
    "gpu_allocation_through_autograd_wrapper": (
        "gpu_out_of_memory",
        "import torch\ntry:\n    torch.empty(1 << 42, device='cuda')\nexcept torch.OutOfMemoryError as problem:\n"
        "    raise RuntimeError('step 7 failed') from problem",
    ),
    "pinned_allocation": ("cuda_allocation", "import torch\ntorch.empty(1 << 42, pin_memory=True)"),
    "embedding_assert": (
        "device_side_assert",
        "import torch\ntorch.nn.Embedding(10, 4).cuda()(torch.tensor([12]).cuda())\ntorch.cuda.synchronize()",
    ),
    "cross_entropy_assert": (
        "device_side_assert",
        "import torch\nloss = torch.nn.functional.cross_entropy(torch.randn(2, 5).cuda(), torch.tensor([1, 9]).cuda())\n"
        "print(loss.item())",
    ),
    "gather_assert": (
        "device_side_assert",
        "import torch\nx = torch.ones(4, device='cuda')[torch.tensor([9], device='cuda')]\nprint(x.cpu())",
    ),
    "multinomial_assert": (
        "device_side_assert",
        "import torch\nprint(torch.multinomial(torch.tensor([float('nan'), 1.0], device='cuda'), 1).cpu())",
    ),
    "illegal_access": ("illegal_memory_access", _ILLEGAL),
    "kernel_trap": (
        "illegal_memory_access",
        "import torch, triton, triton.language as tl\n@triton.jit\ndef bad(x):\n"
        "    tl.inline_asm_elementwise('trap; mov.u32 $0, $1;', '=r,r', [tl.load(x)], tl.int32, False, 1)\n"
        "bad[(1,)](torch.ones(16, device='cuda', dtype=torch.int32))\ntorch.cuda.synchronize()",
    ),
    "invalid_ordinal": ("gpu_not_usable", "import torch\ntorch.ones(1, device='cuda:9')"),
    "no_visible_gpu": (
        "gpu_not_usable",
        "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = ''\nimport torch\ntorch.ones(1, device='cuda')",
    ),
    "forked_after_cuda": (
        "cuda_after_fork",
        "import torch, os, multiprocessing as mp\ntorch.ones(1, device='cuda')\n"
        "pool = mp.get_context('fork').Pool(1)\npool.apply(torch.ones, (1,), {'device': 'cuda'})",
    ),
    "two_devices": ("device_mismatch", "import torch\ntorch.ones(2, device='cuda') + torch.ones(2).expand(2)"),
    "weights_on_the_cpu": ("device_mismatch", "import torch\ntorch.nn.Linear(4, 4)(torch.ones(2, 4, device='cuda'))"),
    "nccl_same_gpu_twice": (
        "nccl_set_up",
        """
import subprocess, sys, torch, torch.distributed as dist
port = free_port()
rank = f'''
import sys, torch, torch.distributed as dist
dist.init_process_group("nccl", init_method="tcp://127.0.0.1:{port}", rank=1, world_size=2)
dist.all_reduce(torch.ones(4, device="cuda"))
'''
other = subprocess.Popen([sys.executable, '-c', rank])
dist.init_process_group('nccl', init_method=f'tcp://127.0.0.1:{port}', rank=0, world_size=2)
dist.all_reduce(torch.ones(4, device='cuda'))
torch.cuda.synchronize()
""",
    ),
    "nccl_rank_never_joins": (
        "lost_rank",
        """
import datetime, torch, torch.distributed as dist
dist.init_process_group('nccl', init_method=f'tcp://127.0.0.1:{free_port()}', rank=0, world_size=2,
                        timeout=datetime.timedelta(seconds=5))
dist.all_reduce(torch.ones(4, device='cuda'))
""",
    ),
    "memory_limit_of_a_cgroup": (
        "killed",
        """
import os, pathlib
group = pathlib.Path('/sys/fs/cgroup/bloom-corpus'); group.mkdir(exist_ok=True)
(group / 'memory.max').write_text(str(256 << 20))
try: (group / 'memory.swap.max').write_text('0')
except OSError: pass
(group / 'cgroup.procs').write_text(str(os.getpid()))
kept = [bytearray(os.urandom(1 << 20)) for _ in range(4096)]
""",
    ),
}  # fmt: skip
