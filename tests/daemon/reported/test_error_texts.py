"""Texts of libraries about a rank that has gone are no causes; texts of a failure itself are."""

from __future__ import annotations

import pytest

from dlsched.daemon.reported.error_texts import Weight, weight_of

GLOO = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc"
NCCL = "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251,"
TEXTS = {
    Weight.CAUSE: [
        "ValueError: shard 17 is truncated",
        "SyntaxError: '(' was never closed",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total",
        "torch.AcceleratorError: CUDA error: device-side assert triggered",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "Process group watchdog thread terminated with exception: CUDA error: an illegal memory ac",
        f"{NCCL} unhandled cuda error\nncclUnhandledCudaError: Call to CUDA function failed.\n"
        "Last error:\nCuda failure 'out of memory'",
        f"{NCCL} invalid usage\nncclInvalidUsage: This usually reflects invalid usage of NCCL "
        "library.\nLast error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 1b0",
        "RuntimeError: DataLoader worker (pid 23410) is killed by signal: Killed.",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'",
        "OSError: [Errno 28] No space left on device",
        "AssertionError",
        "Fatal Python error: Segmentation fault",
        "exit 1",
        "exit 7",
        "signal 6",
        "signal 11",
    ],
    Weight.PERHAPS: [
        "ConnectionResetError: [Errno 104] Connection reset",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "EOFError",
        "TimeoutError: the data server did not answer",
        "signal 9",
        "exit 137",
        "KeyboardInterrupt",
    ],
    Weight.FOLLOW_UP: [
        f"RuntimeError: {GLOO}:553] Connection closed by peer [127.0.0.1]:25996. This is typically",
        f"RuntimeError: {GLOO}:537] Read error [127.0.0.1]:22446: Connection reset by peer.",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        f"RuntimeError: {GLOO}:161] Timed out waiting 1800000ms for recv operation to complete",
        "RuntimeError: Application timeout caused pair closure",
        "RuntimeError: Rank 0 successfully reached monitoredBarrier, but received errors while",
        f"{NCCL} remote process exited or network error\nncclRemoteError: A call failed "
        "possibly due to a network error or a remote process exiting prematurely.\nLast error:\n"
        "socketProgress: Connection closed by remote peer n2<41234>",
        f"{NCCL} unhandled system error\nncclSystemError: System call (e.g. socket, malloc) or "
        "external library call failed\nLast error:\nsocketStartConnect: Connection reset by peer",
        "RuntimeError: NCCL communicator was aborted on rank 3.",
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE)",
        "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA",
        "To avoid data inconsistency, we are taking the entire process down.",
        "torch.distributed.DistBackendError: [3] is setting up NCCL communicator and retrieving "
        "ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: "
        "Connection reset by peer",
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms",
        "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0",
        "torch.distributed.DistNetworkError: failed to recv, got 0 bytes",
        "[c10d] sendBytes failed on SocketImpl(fd=3, addr=[localhost]:53130): Broken pipe",
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 9 got signal: 15",
        "Terminating process because the JAX distributed service detected fatal errors. This most "
        "likely indicates that another task died; see the other task logs for more details.",
        "signal 15",
        "exit 143",
    ],
    Weight.WRAPPER: [
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        "torch.multiprocessing.spawn.ProcessRaisedException:",
        "torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with exit code 7",
        "subprocess.CalledProcessError: Command '['python', 'a.py']' returned non-zero exit status",
        "KeyError: Caught KeyError in DataLoader worker process 0.",
        "RuntimeError: DataLoader worker (pid(s) 23410) exited unexpectedly",
    ],
}


@pytest.mark.parametrize(
    ("text", "weight"), [(text, weight) for weight, texts in TEXTS.items() for text in texts]
)
def test_a_text_counts_as_what_it_says(text: str, weight: Weight) -> None:
    assert weight_of(text) is weight
