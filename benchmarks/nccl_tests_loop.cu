// nccl-tests' own all_reduce loop as a library: its files are compiled unchanged, and called with a communicator that exists.
//
//     nvcc -std=c++17 -O3 --extended-lambda -DNCCL_OS_LINUX -shared -Xcompiler -fPIC \
//         -I NCCL_TESTS/src -I NCCL_TESTS/os -I NCCL/include benchmarks/nccl_tests_loop.cu NCCL_TESTS/src/util.cu \
//         NCCL_TESTS/src/timer.cc NCCL_TESTS/verifiable/verifiable.cu NCCL_TESTS/os/linux.cc \
//         -L NCCL/lib -lnccl -o nccl_tests_loop.so
//
// Whole runs of all_reduce_perf differ from each other over sockets by more than the two per cent that matter; what makes
// them differ is chosen once for each communicator. benchmarks/bench_on_one_gpu.py --nccl-tests-loop therefore lets this
// loop and ours take turns in one.
#define main nccl_tests_main
#include "common.cu"
#undef main
#include "all_reduce.cu"

// Seconds of one all_reduce of float32 in place, on this rank: warm-ups and measurement as TimeTest makes them for one size
// (common.cu of nccl-tests 2.19.6), without its check of the data. Returns a negative number if one of its functions failed.
// `buffer` and `other` hold `buffer_bytes` each; `bytes` divides them.
extern "C" double nccl_tests_all_reduce(
    void* communicator, void* stream, void* buffer, void* other, size_t buffer_bytes, size_t bytes, int device, int rank,
    int ranks, int iterations, int warm_ups) {
  iters = iterations;
  datacheck = 0;
  average = 3;  // the longest time; the mean would be divided by processes that are not counted here without MPI
  int gpu = device, errors = 0, bw_count = 0;
  double bw = 0;
  void *send[1] = {other}, *receive[1] = {buffer};
  ncclComm_t communicators[1] = {(ncclComm_t)communicator};
  cudaStream_t streams[1] = {(cudaStream_t)stream};
  struct threadArgs args;
  memset((void*)&args, 0, sizeof args);
  args.minbytes = args.maxbytes = buffer_bytes;
  args.nProcs = args.totalProcs = ranks;
  args.proc = rank;
  args.nThreads = args.nGpus = 1;
  args.gpus = &gpu;
  args.sendbuffs = send;
  args.recvbuffs = receive;
  args.comms = communicators;
  args.streams = streams;
  args.errors = &errors;
  args.bw = &bw;
  args.bw_count = &bw_count;
  args.collTest = &allReduceTest;
  if (cudaSetDevice(device) != cudaSuccess) return -1;
  setupArgs(bytes, ncclFloat, &args);
  for (int done = 0; done < warm_ups; done++)
    if (startColl(&args, ncclFloat, ncclSum, -1, 1, done) != testSuccess) return -1;
  if (completeColl(&args) != testSuccess) return -1;
  if (BenchTime(&args, ncclFloat, ncclSum, -1, 1) != testSuccess || bw <= 0) return -1;
  // It keeps the bus bandwidth in GB/s and not the time: back by AllReduceGetBw's formula.
  return (double)bytes * 2 * (ranks - 1) / ranks / 1e9 / bw;
}
