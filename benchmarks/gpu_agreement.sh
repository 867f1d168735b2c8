#!/usr/bin/env bash
# All that shows, on one machine with GPUs, how far `allready bench` agrees with a plain loop and with nccl-tests.
#
#     benchmarks/gpu_agreement.sh OUT_DIR [SECONDS] [NCCL_TESTS_SOURCE]
#
# Two ranks share GPU 0 by MPS over sockets; then, where there are two GPUs, a rank on each of two.  SECONDS (120) is for
# each of both.  With the source of nccl-tests, nvcc, MPI and NCCL's header, it is built and run in turn with allready.
set -u
out=$1 seconds=${2:-120} source=${3:-}
here=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONPATH="$here/src${PYTHONPATH:+:$PYTHONPATH}"
export CUDA_MPS_PIPE_DIRECTORY=/tmp/allready_mps CUDA_MPS_LOG_DIRECTORY=/tmp/allready_mps_log
mkdir -p "$out" "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
gpus=$(nvidia-smi -L | wc -l)
if [ "$gpus" -ge 2 ]; then
    timeout $((2 * seconds + 60)) python3 "$here/benchmarks/bench_on_one_gpu.py" "$out/two_gpus.json" --gpus 2 \
        --seconds "$seconds" 2>&1 | tee "$out/two_gpus.txt"
fi
nvidia-cuda-mps-control -d
timeout $((2 * seconds + 60)) python3 "$here/benchmarks/bench_on_one_gpu.py" "$out/one_gpu.json" --ranks 2 \
    --seconds "$seconds" 2>&1 | tee "$out/one_gpu.txt"
if [ -n "$source" ] && command -v nvcc >/dev/null && command -v mpirun >/dev/null; then
    nccl=$(python3 -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])' 2>/dev/null || echo /usr)
    cuda=$(dirname "$(dirname "$(command -v nvcc)")") mpi=$(dirname "$(dirname "$(readlink -f "$(command -v mpicc)")")")
    cp -r "$source" "$out/nccl-tests" && [ -e "$nccl/lib/libnccl.so" ] || ln -sf libnccl.so.2 "$nccl/lib/libnccl.so"
    make -s -j8 -C "$out/nccl-tests/src" MPI=1 MPI_HOME="$mpi" CUDA_HOME="$cuda" NCCL_HOME="$nccl" \
        BUILDDIR="$out/nccl-tests/build" "$out/nccl-tests/build/all_reduce_perf" >"$out/build.txt" 2>&1 \
        || tail -n 5 "$out/build.txt"
    perf="$out/nccl-tests/build/all_reduce_perf"
    if [ -x "$perf" ]; then
        export LD_LIBRARY_PATH="$nccl/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
        shared=(--ranks 2)
        [ "$gpus" -ge 2 ] && shared=(--gpus 2)
        timeout 280 python3 "$here/benchmarks/against_nccl_tests.py" "$perf" "$out/nccl_tests.json" --rounds 4 \
            "${shared[@]}" 2>&1 | tee "$out/nccl_tests.txt"
    fi
    rm -rf "$out/nccl-tests"
fi
echo quit | nvidia-cuda-mps-control
